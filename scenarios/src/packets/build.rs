//! Builds packets and frames from bytes alone, for packet cases: what goes in and, by hand, what must come out.

use std::net::Ipv6Addr;

/// TCP's protocol number.
pub const TCP: u8 = 6;
/// UDP's protocol number.
pub const UDP: u8 = 17;
/// GRE's protocol number.
pub const GRE: u8 = 47;
/// ESP's protocol number.
pub const ESP: u8 = 50;
/// ICMPv6's protocol number.
pub const ICMPV6: u8 = 58;
/// Next header: hop-by-hop options.
pub const HOP_BY_HOP: u8 = 0;
/// Next header: routing.
pub const ROUTING: u8 = 43;
/// Next header: fragment.
pub const FRAGMENT: u8 = 44;
/// Next header: destination options.
pub const OPTIONS: u8 = 60;
/// TCP flags of a connection's first packet.
pub const SYN: u8 = 0x02;
/// TCP flag ACK.
pub const ACK: u8 = 0x10;

/// Destination MAC of every frame that a case sends in.
pub const TO: [u8; 6] = [0x02, 0x11, 0x00, 0x80, 0xff, 0x01];
/// Source MAC of every frame that a case sends in.
pub const FROM: [u8; 6] = [0x02, 0x22, 0xfe, 0x00, 0x7f, 0x02];

/// An IPv6 header's fields.
#[derive(Clone, Copy, Debug)]
pub struct Ip {
    /// Source address.
    pub source: Ipv6Addr,
    /// Destination address.
    pub destination: Ipv6Addr,
    /// Traffic class: DSCP and ECN.
    pub traffic_class: u8,
    /// Flow label.
    pub flow_label: u32,
    /// Hop limit.
    pub hop_limit: u8,
}

/// A header with an unremarkable traffic class, flow label and hop limit.
pub fn ip(source: Ipv6Addr, destination: Ipv6Addr) -> Ip {
    Ip { source, destination, traffic_class: 0, flow_label: 0x5_4321, hop_limit: 57 }
}

impl Ip {
    /// Same, with a traffic class.
    #[must_use]
    pub fn class(self, traffic_class: u8) -> Self {
        Self { traffic_class, ..self }
    }
    /// The packet.
    pub fn packet(self, next_header: u8, payload: &[u8]) -> Vec<u8> {
        let first = 0x6000_0000 | u32::from(self.traffic_class) << 20 | self.flow_label;
        let mut out = first.to_be_bytes().to_vec();
        out.extend((payload.len() as u16).to_be_bytes());
        out.extend([next_header, self.hop_limit]);
        out.extend(self.source.octets());
        out.extend(self.destination.octets());
        out.extend(payload);
        out
    }
    /// A TCP packet with `data`, its checksum right.
    pub fn tcp(self, ports: (u16, u16), flags: u8, data: &[u8]) -> Vec<u8> {
        self.packet(TCP, &self.tcp_segment(ports, flags, data))
    }
    /// The segment of [`Ip::tcp`] without the IPv6 header.
    pub fn tcp_segment(self, ports: (u16, u16), flags: u8, data: &[u8]) -> Vec<u8> {
        let mut out = [ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat();
        out.extend([0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x80, 0x50, flags, 0xfa, 0xf0, 0, 0, 0, 0]);
        out.extend(data);
        self.with_checksum(TCP, out, 16)
    }
    /// A UDP packet with `data`, its length and checksum right.
    pub fn udp(self, ports: (u16, u16), data: &[u8]) -> Vec<u8> {
        self.packet(UDP, &self.udp_datagram(ports, data))
    }
    /// The datagram of [`Ip::udp`] without the IPv6 header.
    pub fn udp_datagram(self, ports: (u16, u16), data: &[u8]) -> Vec<u8> {
        let len = (8 + data.len() as u16).to_be_bytes();
        let mut out = [ports.0.to_be_bytes(), ports.1.to_be_bytes(), len, [0, 0]].concat();
        out.extend(data);
        self.with_checksum(UDP, out, 6)
    }
    /// An ICMPv6 packet: type, code, the four bytes after the checksum, body; checksum right.
    pub fn icmp(self, kind: u8, code: u8, word: u32, body: &[u8]) -> Vec<u8> {
        self.packet(ICMPV6, &self.icmp_message(kind, code, word, body))
    }
    /// The message of [`Ip::icmp`] without the IPv6 header.
    pub fn icmp_message(self, kind: u8, code: u8, word: u32, body: &[u8]) -> Vec<u8> {
        let mut out = vec![kind, code, 0, 0];
        out.extend(word.to_be_bytes());
        out.extend(body);
        self.with_checksum(ICMPV6, out, 2)
    }
    fn with_checksum(self, protocol: u8, mut message: Vec<u8>, at: usize) -> Vec<u8> {
        let sum = checksum(self.source, self.destination, protocol, &message);
        message[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        message
    }
}

/// Checksum of a message whose field is 0 (RFC 8200 section 8.1).
pub fn checksum(source: Ipv6Addr, destination: Ipv6Addr, protocol: u8, message: &[u8]) -> u16 {
    let mut all = [source.octets(), destination.octets()].concat();
    all.extend((message.len() as u32).to_be_bytes());
    all.extend([0, 0, 0, protocol]);
    all.extend(message);
    all.resize(all.len().next_multiple_of(2), 0);
    let sum: u64 = all.chunks(2).map(|w| u64::from(w[0]) << 8 | u64::from(w[1])).sum();
    // 65536 ≡ 1 (mod 65535); the sum is not 0, since the protocol is in it.
    let rest = (sum % 0xffff) as u16;
    if rest == 0 { 0 } else { !rest }
}

/// `len` bytes that differ from their neighbours.
pub fn data(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + 1) as u8).collect()
}

/// Link header with VLAN tags, as they stand in the frame, in front of a packet.
pub fn ethernet(to: [u8; 6], from: [u8; 6], tags: &[[u8; 4]], ethertype: u16, packet: &[u8]) -> Vec<u8> {
    let mut out = [to, from].concat();
    out.extend(tags.iter().flatten());
    out.extend(ethertype.to_be_bytes());
    out.extend(packet);
    out
}

/// A frame of a good packet of either family, which its version tells.
pub fn frame_of(tags: &[[u8; 4]], packet: &[u8]) -> Vec<u8> {
    ethernet(TO, FROM, tags, ethertype(packet), packet)
}

/// EtherType of a good packet.
pub fn ethertype(packet: &[u8]) -> u16 {
    if packet[0] >> 4 == 4 { 0x0800 } else { 0x86dd }
}

/// An untagged IPv6 frame.
pub fn frame(packet: &[u8]) -> Vec<u8> {
    tagged(&[], packet)
}

/// An IPv6 frame with VLAN tags.
pub fn tagged(tags: &[[u8; 4]], packet: &[u8]) -> Vec<u8> {
    ethernet(TO, FROM, tags, 0x86dd, packet)
}

/// Options header (hop-by-hop or destination) of (`units` + 1) × 8 bytes, filled by PadN; at most 31 units.
pub fn options(next: u8, units: u8) -> Vec<u8> {
    let mut out = vec![next, units, 1, units * 8 + 4];
    out.resize((usize::from(units) + 1) * 8, 0);
    out
}

/// Options header longer than one PadN can fill: (`units` + 1) × 8 bytes of Pad1.
pub fn long_options(next: u8, units: u8) -> Vec<u8> {
    let mut out = vec![next, units];
    out.resize((usize::from(units) + 1) * 8, 0);
    out
}

/// Routing header, type 4 (SRH), of 24 bytes with one segment.
pub fn routing(next: u8, segments_left: u8) -> Vec<u8> {
    let mut out = vec![next, 2, 4, segments_left, 0, 0, 0, 0];
    out.extend([0x20, 0x01, 0x0d, 0xb8, 0, 0x77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 9]);
    out
}

/// Fragment header; `offset` in units of 8 bytes.
pub fn fragment(next: u8, offset: u16, more: bool) -> Vec<u8> {
    let word = (offset << 3 | u16::from(more)).to_be_bytes();
    vec![next, 0, word[0], word[1], 0xde, 0xad, 0xbe, 0xef]
}

/// `count` destination options headers of 8 bytes in front of `payload` of protocol `last`; the first next header is
/// [`OPTIONS`].
pub fn chain(count: usize, last: u8, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    for left in (0..count).rev() {
        out.extend(options(if left == 0 { last } else { OPTIONS }, 0));
    }
    out.extend(payload);
    out
}

/// Overwrites the payload length of an IPv6 packet.
pub fn stating(mut packet: Vec<u8>, payload_len: u16) -> Vec<u8> {
    packet[4..6].copy_from_slice(&payload_len.to_be_bytes());
    packet
}

/// The first `len` bytes.
pub fn cut(mut bytes: Vec<u8>, len: usize) -> Vec<u8> {
    bytes.truncate(len);
    bytes
}
