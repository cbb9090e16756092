//! The data plane: what serves packets, and what keeps it as it should be.

pub mod nexthop;
