//! The scenario tests, in one binary.

mod edge;
mod frame;
mod packets;
mod path;
