//! The scenario tests, in one binary.

mod bgp;
mod edge;
mod frame;
mod packets;
mod path;
