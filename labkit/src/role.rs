//! What nodes run by themselves.

pub mod frr;
