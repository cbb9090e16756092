//! Fills a described packet in from its end to its start: what follows, how long, which checksum.

use super::checksum;
use super::extension::{Options, OptionsKind};
use super::header::{Icmp, IcmpVersion};
use super::layer::{Layer, Layers};
use super::number::{ethertype, protocol};

/// What becomes of a layer's checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Checksum {
    Right,
    Wrong,
    Set,
}

/// A layer, or bytes, and what is to be filled in.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) layer: Layer,
    pub(super) next_set: bool,
    pub(super) length_set: bool,
    pub(super) checksum: Checksum,
    /// The bytes of a quote, whose layers may not cover all of them.
    pub(super) raw: Vec<u8>,
}

impl Entry {
    pub(super) fn new(layer: Layer) -> Self {
        Self { layer, next_set: false, length_set: false, checksum: Checksum::Right, raw: Vec::new() }
    }
}

/// Layers as they will be on the wire, and the bytes; `trailer` follows what the IP headers count.
pub(super) fn assemble(described: &[Entry], trailer: &[u8]) -> (Layers, Vec<u8>) {
    let mut entries = described.to_vec();
    let mut bytes: Vec<u8> = Vec::new();
    let (mut next_type, mut next_protocol) = (ethertype::EXPERIMENT, protocol::NO_NEXT_HEADER);
    for n in (0..entries.len()).rev() {
        let (before, from) = entries.split_at_mut(n);
        let entry = &mut from[0];
        entry.fill_next(next_type, next_protocol);
        entry.fill_length(bytes.len());
        let mut header = entry.write();
        if entry.checksum != Checksum::Set {
            let addresses = before.iter().rev().find_map(|e| checksum::Addresses::of(&e.layer));
            let right = checksum::over(&entry.layer, &header, &bytes, addresses);
            if let Some(right) = right {
                // 0 and 0xffff are the same number to a receiver: flipping half the bits is wrong for all.
                let value = if entry.checksum == Checksum::Wrong { right ^ 0x00ff } else { right };
                checksum::set(&mut entry.layer, value);
                header = entry.write();
            }
        }
        (next_type, next_protocol) = entry.announced_as();
        header.extend_from_slice(&bytes);
        bytes = header;
    }
    let mut layers: Vec<Layer> = entries.into_iter().map(|entry| entry.layer).collect();
    if !trailer.is_empty() {
        layers.push(Layer::Trailer(trailer.to_vec()));
        bytes.extend_from_slice(trailer);
    }
    (Layers(layers), bytes)
}

impl Entry {
    /// The EtherType and the protocol number by which the layer before announces this one.
    fn announced_as(&self) -> (u16, u8) {
        match &self.layer {
            Layer::Vlan(tag) => (tag.tpid, protocol::NO_NEXT_HEADER),
            Layer::Ipv6(_) => (ethertype::IPV6, protocol::IPV6),
            Layer::Ipv4(_) => (ethertype::IPV4, protocol::IPV4),
            Layer::Options(Options { kind: OptionsKind::HopByHop, .. }) => {
                (ethertype::EXPERIMENT, protocol::HOP_BY_HOP)
            }
            Layer::Options(_) => (ethertype::EXPERIMENT, protocol::DESTINATION_OPTIONS),
            Layer::Routing(_) => (ethertype::EXPERIMENT, protocol::ROUTING),
            Layer::Fragment(_) => (ethertype::EXPERIMENT, protocol::FRAGMENT),
            Layer::Tcp(_) => (ethertype::EXPERIMENT, protocol::TCP),
            Layer::Udp(_) => (ethertype::EXPERIMENT, protocol::UDP),
            Layer::Icmp(Icmp { version: IcmpVersion::V6, .. }) => (ethertype::EXPERIMENT, protocol::ICMPV6),
            Layer::Icmp(_) => (ethertype::EXPERIMENT, protocol::ICMPV4),
            _ => (ethertype::EXPERIMENT, protocol::NO_NEXT_HEADER),
        }
    }

    fn fill_next(&mut self, next_type: u16, next_protocol: u8) {
        if self.next_set {
            return;
        }
        match &mut self.layer {
            Layer::Ethernet(h) => h.ethertype = next_type,
            Layer::Vlan(h) => h.ethertype = next_type,
            Layer::Ipv6(h) => h.next_header = next_protocol,
            Layer::Ipv4(h) => h.protocol = next_protocol,
            Layer::Options(h) => h.next_header = next_protocol,
            Layer::Routing(h) => h.next_header = next_protocol,
            Layer::Fragment(h) => h.next_header = next_protocol,
            _ => {}
        }
    }

    /// Lengths beyond 16 bits stay at their largest value; such a packet cannot be described.
    fn fill_length(&mut self, after: usize) {
        if self.length_set {
            return;
        }
        let clamp = |length: usize| u16::try_from(length).unwrap_or(u16::MAX);
        match &mut self.layer {
            Layer::Ipv6(h) => h.payload_length = clamp(after),
            Layer::Ipv4(h) => h.total_length = clamp(h.write().len() + after),
            Layer::Udp(h) => h.length = clamp(8 + after),
            _ => {}
        }
    }

    fn write(&self) -> Vec<u8> {
        match &self.layer {
            Layer::Ethernet(h) => h.write(),
            Layer::Vlan(h) => h.write(),
            Layer::Ipv6(h) => h.write(),
            Layer::Ipv4(h) => h.write(),
            Layer::Options(h) => h.write(),
            Layer::Routing(h) => h.write(),
            Layer::Fragment(h) => h.write(),
            Layer::Tcp(h) => h.write(),
            Layer::Udp(h) => h.write(),
            Layer::Icmp(h) => h.write(),
            Layer::Payload(bytes) | Layer::Trailer(bytes) | Layer::Malformed { bytes, .. } => bytes.clone(),
            Layer::Quote(_) => self.raw.clone(),
        }
    }
}
