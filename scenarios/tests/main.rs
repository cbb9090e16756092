//! The scenario tests, in one binary.
#![allow(clippy::unwrap_used, reason = "a test's helpers fail as the test does")]

mod bgp;
mod configuration;
mod edge;
mod frame;
mod inspect;
mod packets;
mod path;
mod rules;
mod sharing;
