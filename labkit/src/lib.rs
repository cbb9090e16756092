//! A network lab in Rust: topologies of real kernels' network namespaces, with routers, packets, faults and assertions.

pub mod error;
pub mod netns;
pub mod topology;

pub use error::{CommandError, Error, Result};
