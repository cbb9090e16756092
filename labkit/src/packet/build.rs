//! From a description to bytes: each call adds a layer, and setters touch the layer added last.
//!
//! Lengths, next-header numbers and checksums are filled in unless set. Which setters exist follows from the type
//! of the last layer, so `flags` on a UDP header does not compile.

use std::net::{Ipv4Addr, Ipv6Addr};

use pnet_base::MacAddr;

use super::assemble::{Entry, assemble};
use super::decode::quote;
use super::extension::{Fragment, Options, OptionsKind, Routing};
use super::header::{Ethernet, Icmp, IcmpVersion, Ipv4, Ipv6, Tcp, Udp, Vlan};
use super::layer::{Layer, Layers};
use super::number::{ethertype, protocol};

/// The last layer of a packet that has none yet, or that ends in bytes.
#[derive(Debug, Clone)]
pub struct Bare;

/// A packet under construction; `T` is its last layer.
#[derive(Debug, Clone)]
#[must_use = "a description becomes a packet with `bytes`"]
pub struct Packet<T = Bare> {
    entries: Vec<Entry>,
    last: Vec<u8>,
    of: std::marker::PhantomData<T>,
}

impl Packet<Ethernet> {
    /// Starts a frame from `src` to `dst`.
    pub fn eth(src: MacAddr, dst: MacAddr) -> Self {
        Packet::bare().push(Layer::Ethernet(Ethernet { dst, src, ethertype: 0 }))
    }
}

impl Packet<Bare> {
    /// Starts a packet without a link layer.
    pub fn bare() -> Self {
        Self { entries: Vec::new(), last: Vec::new(), of: std::marker::PhantomData }
    }
}

impl<T> Packet<T> {
    fn push<U>(mut self, layer: Layer) -> Packet<U> {
        self.entries.push(Entry::new(layer));
        Packet { entries: self.entries, last: self.last, of: std::marker::PhantomData }
    }

    pub(super) fn edit(mut self, change: impl FnOnce(&mut Entry)) -> Self {
        if let Some(entry) = self.entries.last_mut() {
            change(entry);
        }
        self
    }

    /// Adds an 802.1Q tag.
    pub fn vlan(self, id: u16) -> Packet<Vlan> {
        self.tag(ethertype::VLAN, id)
    }

    /// Adds an 802.1ad service tag.
    pub fn service_vlan(self, id: u16) -> Packet<Vlan> {
        self.tag(ethertype::SERVICE_VLAN, id)
    }

    fn tag(self, tpid: u16, id: u16) -> Packet<Vlan> {
        self.push(Layer::Vlan(Vlan { tpid, priority: 0, drop_eligible: false, id, ethertype: 0 }))
    }

    /// Adds an IPv6 header; a second one makes a tunnel (SRv6 without a segment routing header).
    pub fn ipv6(self, src: Ipv6Addr, dst: Ipv6Addr) -> Packet<Ipv6> {
        let header = Ipv6 {
            traffic_class: 0,
            flow_label: 0,
            payload_length: 0,
            next_header: protocol::NO_NEXT_HEADER,
            hop_limit: 64,
            src,
            dst,
        };
        self.push(Layer::Ipv6(header))
    }

    /// Adds an IPv4 header.
    pub fn ipv4(self, src: Ipv4Addr, dst: Ipv4Addr) -> Packet<Ipv4> {
        let header = Ipv4 {
            tos: 0,
            total_length: 0,
            identification: 0,
            dont_fragment: false,
            more_fragments: false,
            fragment_offset: 0,
            ttl: 64,
            protocol: protocol::NO_NEXT_HEADER,
            checksum: 0,
            src,
            dst,
            options: Vec::new(),
        };
        self.push(Layer::Ipv4(header))
    }

    /// Adds a hop-by-hop options header; `data` holds whole options and is padded.
    pub fn hop_by_hop(self, data: &[u8]) -> Packet<Options> {
        self.push(Layer::Options(Options::padded(OptionsKind::HopByHop, data)))
    }

    /// Adds a destination options header; `data` holds whole options and is padded.
    pub fn destination_options(self, data: &[u8]) -> Packet<Options> {
        self.push(Layer::Options(Options::padded(OptionsKind::Destination, data)))
    }

    /// Adds a routing header.
    pub fn routing(self, header: Routing) -> Packet<Routing> {
        self.push(Layer::Routing(header))
    }

    /// Adds a fragment header; `offset` is in units of 8 bytes.
    pub fn fragment(self, identification: u32, offset: u16, more: bool) -> Packet<Fragment> {
        let next_header = protocol::NO_NEXT_HEADER;
        self.push(Layer::Fragment(Fragment { next_header, offset, more, identification }))
    }

    /// Adds a TCP header: no flags, window 65535.
    pub fn tcp(self, src: u16, dst: u16) -> Packet<Tcp> {
        let header = Tcp {
            src,
            dst,
            seq: 0,
            ack: 0,
            flags: 0,
            window: 65535,
            checksum: 0,
            urgent: 0,
            options: Vec::new(),
        };
        self.push(Layer::Tcp(header))
    }

    /// Adds a UDP header.
    pub fn udp(self, src: u16, dst: u16) -> Packet<Udp> {
        self.push(Layer::Udp(Udp { src, dst, length: 0, checksum: 0 }))
    }

    /// Adds an ICMPv6 header; `body` is the 4 bytes after the checksum.
    pub fn icmpv6(self, kind: u8, code: u8, body: u32) -> Packet<Icmp> {
        self.push(Layer::Icmp(Icmp { version: IcmpVersion::V6, kind, code, checksum: 0, body }))
    }

    /// Adds an ICMP header for IPv4; `body` is the 4 bytes after the checksum.
    pub fn icmpv4(self, kind: u8, code: u8, body: u32) -> Packet<Icmp> {
        self.push(Layer::Icmp(Icmp { version: IcmpVersion::V4, kind, code, checksum: 0, body }))
    }

    /// Adds an ICMPv6 echo request.
    pub fn echo_request(self, identifier: u16, sequence: u16) -> Packet<Icmp> {
        self.icmpv6(128, 0, u32::from(identifier) << 16 | u32::from(sequence))
    }

    /// Adds an ICMPv6 echo reply.
    pub fn echo_reply(self, identifier: u16, sequence: u16) -> Packet<Icmp> {
        self.icmpv6(129, 0, u32::from(identifier) << 16 | u32::from(sequence))
    }

    /// Adds an ICMPv6 Packet Too Big header; add the quote next.
    pub fn packet_too_big(self, mtu: u32) -> Packet<Icmp> {
        self.icmpv6(2, 0, mtu)
    }

    /// Ends an ICMP error with the packet it quotes, from its IP header on, cut wherever the caller cut it.
    pub fn quote(self, packet: &[u8]) -> Packet<Bare> {
        let bytes = packet.to_vec();
        let mut packet: Packet<Bare> = self.push(Layer::Quote(quote(&bytes)));
        if let Some(entry) = packet.entries.last_mut() {
            entry.raw = bytes;
        }
        packet
    }

    /// Ends with data.
    pub fn payload(self, bytes: &[u8]) -> Packet<Bare> {
        if bytes.is_empty() {
            return Packet { entries: self.entries, last: self.last, of: std::marker::PhantomData };
        }
        self.push(Layer::Payload(bytes.to_vec()))
    }

    /// Ends with bytes beyond what the IP header counts, such as Ethernet padding. Only at the very end.
    pub fn trailer(mut self, bytes: &[u8]) -> Packet<Bare> {
        self.last.extend_from_slice(bytes);
        Packet { entries: self.entries, last: self.last, of: std::marker::PhantomData }
    }

    /// The packet's bytes.
    pub fn bytes(&self) -> Vec<u8> {
        assemble(&self.entries, &self.last).1
    }

    /// The packet's layers as they are on the wire, with what was filled in.
    pub fn layers(&self) -> Layers {
        assemble(&self.entries, &self.last).0
    }
}
