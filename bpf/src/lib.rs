//! Weir's BPF programs and the layout they share with user space.

pub mod abi;
