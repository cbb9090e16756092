//! Topologies, roles, packet cases and scenarios that prove Weir over the wire.

pub mod bench;
pub mod demo;
pub mod egress;
pub mod fuzz;
pub mod interpreter;
pub mod nat;
pub mod packets;
pub mod region;
