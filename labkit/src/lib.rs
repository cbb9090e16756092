//! A network lab in Rust: topologies of real kernels' network namespaces, with routers, packets, faults and assertions.
//!
//! [`topology`] describes, [`lab`] runs: `Lab::up(&topology)` makes namespaces and links through a [`fabric`], configures
//! them, starts routers ([`role`]) and hands out a [`NodeHandle`] a node, with commands, processes, files and sockets inside
//! it. [`wait`] asserts over time. [`state`] is what other processes see, and what cleans up after a crash.

mod configure;
pub mod error;
mod ethtool;
pub mod fabric;
pub mod fault;
pub mod lab;
pub mod netlink;
pub mod netns;
pub mod process;
pub mod role;
pub mod state;
pub mod topology;
pub mod traffic;
pub mod wait;

pub use error::{CommandError, Error, Result};
pub use lab::{Lab, NodeHandle};
pub use netns::Netns;
pub use process::ProcessHandle;
pub use topology::Topology;
