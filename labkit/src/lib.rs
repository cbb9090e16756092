//! A network lab in Rust: topologies of real kernels' network namespaces, with routers, packets, faults and assertions.

pub mod capture;
pub mod error;
pub mod expect;
pub mod inject;
pub mod netns;
pub mod packet;
mod packet_socket;
pub mod pcap;
pub mod report;
pub mod skip;
pub mod step;
pub mod topology;

pub use error::{CommandError, Error, Result};
