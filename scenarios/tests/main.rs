//! The scenario tests, in one binary.

mod bgp;
mod edge;
mod frame;
mod isolation;
mod packets;
mod path;
mod regions;
mod wire;
