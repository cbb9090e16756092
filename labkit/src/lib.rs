//! A network lab in Rust: topologies of real kernels' network namespaces, with routers, packets, faults and assertions.
//!
//! [`topology`] describes, [`lab`] runs: `Lab::up(&topology)` makes namespaces and links through a [`fabric`], configures
//! them, starts routers ([`role`]) and hands out a [`NodeHandle`] a node, with commands, processes, files and sockets inside
//! it. [`wait`] asserts over time. [`state`] is what other processes see, and what cleans up after a crash.
//!
//! [`packet`] builds, reads and compares frames; [`inject`] sends them, [`capture`] gets them, [`expect`] says which must
//! come and which never. [`step`] runs a scenario as declared steps, [`report`] tells of it. [`containerlab`] writes a
//! topology for that program. [`skip`] is how a test says that it cannot run here.

pub mod capture;
mod configure;
pub mod containerlab;
pub mod error;
mod ethtool;
pub mod expect;
pub mod fabric;
pub mod fault;
pub mod inject;
pub mod lab;
pub mod netlink;
pub mod netns;
pub mod packet;
mod packet_socket;
pub mod pcap;
pub mod process;
pub mod report;
pub mod role;
pub mod skip;
pub mod state;
pub mod step;
pub mod topology;
pub mod traffic;
pub mod wait;

pub use error::{CommandError, Error, Result};
pub use lab::{Lab, NodeHandle};
pub use netns::Netns;
pub use process::ProcessHandle;
pub use topology::Topology;
