//! Next hops towards SIDs: the user-space half of the cache that packets are sent by.
//!
//! [`fib`] mirrors the kernel's IPv6 main table, neighbours and links, and says where a SID leads; [`watch`] tells
//! which SIDs lead elsewhere after a change; [`netlink`] feeds both and keeps the neighbours in use resolved, since
//! packets that XDP sends refresh none.

pub mod fib;
mod message;
pub mod netlink;
pub mod watch;

pub use fib::{Resolution, ResolvedHop};
pub use netlink::{Monitor, NextHopUpdate};
