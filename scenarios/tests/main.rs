//! The scenario tests, in one binary.

mod edge;
mod frame;
mod inspect;
mod packets;
mod path;
