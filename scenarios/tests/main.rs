//! The scenario tests, in one binary.

mod continuity;
mod edge;
mod frame;
mod packets;
mod path;
