//! The worker: takes packets out of their outer headers and hands them to this node's endpoints; lets out only what may go.
//!
//! ```text
//! objects ─► plan ─► Wanted ─► image ─► apply ─► pinned maps ─► decap, deliver, from_endpoint
//!                      │                └─► programs: roots, tcx links
//!                      └─► place: VIPs in the endpoints' network namespaces
//! ```
//!
//! `plan` and `image` are pure; `apply` carries out a difference in the only safe order on [`apply::Tables`], of which there
//! are two: the pinned maps and, for tests, one in memory. What is pinned goes on without the daemon.

pub mod apply;
pub mod image;
pub mod maps;
pub mod place;
pub mod plan;
pub mod programs;
pub mod status;
#[cfg(test)]
mod tests;

use std::net::{IpAddr, Ipv6Addr};

/// IPv4 as `::ffff:a.b.c.d`, as maps hold it.
pub(crate) fn mapped(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(a) => a.to_ipv6_mapped().octets(),
        IpAddr::V6(a) => a.octets(),
    }
}

/// The address that a map's bytes stand for.
pub(crate) fn unmapped(bytes: [u8; 16]) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical()
}
