//! A network lab in Rust: topologies of real kernels' network namespaces, with routers, packets, faults and assertions.

pub mod topology;
