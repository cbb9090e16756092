//! Internet checksums (RFC 1071) of the layers that have one, computed and checked.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};

use pnet_packet::ip::IpNextHeaderProtocol;
use pnet_packet::util;

use super::decode::locate;
use super::header::IcmpVersion;
use super::layer::Layer;
use super::number::protocol;

/// The addresses that go into a pseudo-header.
#[derive(Debug, Clone, Copy)]
pub(super) enum Addresses {
    V4(Ipv4Addr, Ipv4Addr),
    V6(Ipv6Addr, Ipv6Addr),
}

impl Addresses {
    pub(super) fn of(layer: &Layer) -> Option<Self> {
        match layer {
            Layer::Ipv4(h) => Some(Self::V4(h.src, h.dst)),
            Layer::Ipv6(h) => Some(Self::V6(h.src, h.dst)),
            _ => None,
        }
    }
}

/// A checksum that is not what the bytes ask for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChecksumFault {
    /// Name of the layer.
    pub layer: &'static str,
    /// What the packet says.
    pub found: u16,
    /// What it should say.
    pub expected: u16,
}

impl fmt::Display for ChecksumFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { layer, found, expected } = self;
        write!(f, "{layer}.checksum: expected 0x{expected:04x}, got 0x{found:04x}")
    }
}

/// Every wrong checksum of a frame, outermost first.
///
/// Fragments and cut packets cannot be judged beyond their IPv4 headers and are not; nor are packets inside ICMP
/// errors. A UDP checksum of 0 is right over IPv4 and wrong over IPv6 (RFC 8200 section 8.1).
pub fn checksum_faults(frame: &[u8]) -> Vec<ChecksumFault> {
    let layers = locate(frame);
    let end = layers
        .iter()
        .find(|(_, layer)| matches!(layer, Layer::Trailer(_)))
        .map_or(frame.len(), |(start, _)| *start);
    let partial = layers.iter().any(|(_, layer)| match layer {
        Layer::Fragment(h) => h.offset > 0 || h.more,
        Layer::Ipv4(h) => h.fragment_offset > 0 || h.more_fragments,
        Layer::Malformed { .. } => true,
        _ => false,
    });
    let mut addresses = None;
    let mut faults = Vec::new();
    for (start, layer) in &layers {
        addresses = Addresses::of(layer).or(addresses);
        let covered = match layer {
            Layer::Ipv4(h) => *start..*start + h.write().len(),
            _ if partial => continue,
            _ => *start..end,
        };
        let Some(bytes) = frame.get(covered) else { continue };
        let (Some(found), Some(expected)) = (get(layer), over(layer, bytes, &[], addresses)) else {
            continue;
        };
        let unused = found == 0 && matches!((layer, addresses), (Layer::Udp(_), Some(Addresses::V4(..))));
        if found != expected && !unused {
            faults.push(ChecksumFault { layer: layer.name(), found, expected });
        }
    }
    faults
}

/// The right checksum of a layer whose header is `header` (its checksum field is skipped) and whose data is `data`.
pub(super) fn over(layer: &Layer, header: &[u8], data: &[u8], addresses: Option<Addresses>) -> Option<u16> {
    let mut bytes = header.to_vec();
    bytes.extend_from_slice(data);
    let pseudo = |skip: usize, number: u8| {
        let number = IpNextHeaderProtocol(number);
        Some(match addresses? {
            Addresses::V4(src, dst) => util::ipv4_checksum(&bytes, skip, &[], &src, &dst, number),
            Addresses::V6(src, dst) => util::ipv6_checksum(&bytes, skip, &[], &src, &dst, number),
        })
    };
    match layer {
        Layer::Ipv4(_) => Some(util::checksum(header, 5)),
        Layer::Tcp(_) => pseudo(8, protocol::TCP),
        // 0 means "none", so a sum of 0 is sent as its other form.
        Layer::Udp(_) => pseudo(3, protocol::UDP).map(|sum| if sum == 0 { 0xffff } else { sum }),
        Layer::Icmp(h) if h.version == IcmpVersion::V6 => pseudo(1, protocol::ICMPV6),
        Layer::Icmp(_) => Some(util::checksum(&bytes, 1)),
        _ => None,
    }
}

/// The checksum field of a layer that has one.
pub(super) fn get(layer: &Layer) -> Option<u16> {
    match layer {
        Layer::Ipv4(h) => Some(h.checksum),
        Layer::Tcp(h) => Some(h.checksum),
        Layer::Udp(h) => Some(h.checksum),
        Layer::Icmp(h) => Some(h.checksum),
        _ => None,
    }
}

/// Writes the checksum field of a layer that has one.
pub(super) fn set(layer: &mut Layer, value: u16) {
    match layer {
        Layer::Ipv4(h) => h.checksum = value,
        Layer::Tcp(h) => h.checksum = value,
        Layer::Udp(h) => h.checksum = value,
        Layer::Icmp(h) => h.checksum = value,
        _ => {}
    }
}
