//! Packets: a fluent builder, a decoder into named fields, and a diff that names the first field that differs.
//!
//! ```
//! use labkit::packet::{Packet, decode, flags};
//!
//! let frame = Packet::eth("02:00:00:00:00:01".parse()?, "02:00:00:00:00:02".parse()?)
//!     .ipv6("2001:db8::1".parse()?, "2001:db8::2".parse()?)
//!     .tcp(40000, 443)
//!     .flags(flags::SYN)
//!     .payload(b"hello")
//!     .bytes();
//! assert_eq!(decode(&frame).tcp().map(|tcp| tcp.dst), Some(443));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! `header` and `extension` hold one struct a header, `layer` what a packet is made of, `build` the way to bytes,
//! `decode` the way back, `diff` the comparison, `matcher` what an expectation may ask of a packet.

mod assemble;
mod build;
mod checksum;
mod decode;
mod diff;
mod extension;
mod header;
mod layer;
pub mod matcher;
mod number;
mod setters;
#[cfg(test)]
mod tests;

pub use build::{Bare, Packet};
pub use checksum::{ChecksumFault, checksum_faults};
pub use decode::{decode, decode_ip};
pub use diff::{Difference, diff, diff_layers};
pub use extension::{Fragment, Options, OptionsKind, Routing};
pub use header::{Ethernet, Fields, Icmp, IcmpVersion, Ipv4, Ipv6, Tcp, Udp, Vlan};
pub use layer::{Layer, Layers};
pub use number::{ethertype, flags, protocol};
pub use pnet_base::MacAddr;
