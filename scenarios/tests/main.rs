//! The scenario tests, in one binary.

mod containerlab;
mod demo;
mod edge;
mod frame;
mod packets;
mod path;
