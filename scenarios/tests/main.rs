//! The scenario tests, in one binary.

mod frame;
mod packets;
mod path;
