//! A network lab in Rust: packets, captures, declared steps, reports.

pub mod packet;
