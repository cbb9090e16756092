//! The scenario tests, in one binary.
#![allow(clippy::unwrap_used, reason = "a test's helpers fail as the test does")]

mod affinity;
mod bgp;
mod configuration;
mod containerlab;
mod continuity;
mod demo;
mod edge;
mod frame;
mod fuzz;
mod inspect;
mod isolation;
mod kernels;
mod observe;
mod packets;
mod path;
mod regions;
mod rules;
mod sharing;
mod wire;
mod worker;
