//! The scenario tests, in one binary.

mod packets;
mod path;
