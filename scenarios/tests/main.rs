//! The scenario tests, in one binary.

mod inspect;
mod packets;
