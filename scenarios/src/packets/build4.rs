//! Builds IPv4 packets and frames from bytes alone: the twin of `build`.

use std::net::Ipv4Addr;

use super::build::{FROM, TCP, TO, UDP, ethernet};

/// ICMP's protocol number.
pub const ICMP: u8 = 1;
/// The flag "don't fragment", as it stands in the flags and offset field.
pub const DF: u16 = 0x4000;
/// The flag "more fragments".
pub const MF: u16 = 0x2000;
/// Option: no operation.
pub const NOP: u8 = 1;

/// An IPv4 header's fields.
#[derive(Clone, Debug)]
pub struct Ip4 {
    /// Source address.
    pub source: Ipv4Addr,
    /// Destination address.
    pub destination: Ipv4Addr,
    /// TOS: DSCP and ECN.
    pub tos: u8,
    /// Identification.
    pub id: u16,
    /// Flags and fragment offset.
    pub fragment: u16,
    /// Time to live.
    pub ttl: u8,
    /// Options, a multiple of four bytes.
    pub options: Vec<u8>,
}

/// A header without options that must not be fragmented.
pub fn ip4(source: Ipv4Addr, destination: Ipv4Addr) -> Ip4 {
    Ip4 { source, destination, tos: 0, id: 0x1234, fragment: DF, ttl: 57, options: Vec::new() }
}

impl Ip4 {
    /// Same, with a TOS.
    #[must_use]
    pub fn tos(mut self, tos: u8) -> Self {
        self.tos = tos;
        self
    }
    /// Same, with flags and fragment offset.
    #[must_use]
    pub fn fragment(mut self, word: u16) -> Self {
        self.fragment = word;
        self
    }
    /// Same, with an identification.
    #[must_use]
    pub fn id(mut self, id: u16) -> Self {
        self.id = id;
        self
    }
    /// Same, with options.
    #[must_use]
    pub fn options(mut self, options: &[u8]) -> Self {
        self.options = options.to_vec();
        self
    }
    /// The packet, its header's checksum right.
    pub fn packet(&self, protocol: u8, payload: &[u8]) -> Vec<u8> {
        let header_len = 20 + self.options.len();
        let mut out = vec![0x40 | (header_len / 4) as u8, self.tos];
        out.extend(((header_len + payload.len()) as u16).to_be_bytes());
        out.extend(self.id.to_be_bytes());
        out.extend(self.fragment.to_be_bytes());
        out.extend([self.ttl, protocol, 0, 0]);
        out.extend(self.source.octets());
        out.extend(self.destination.octets());
        out.extend(&self.options);
        let sum = sum(&out);
        out[10..12].copy_from_slice(&sum.to_be_bytes());
        out.extend(payload);
        out
    }
    /// A TCP packet with `data`, its checksum right.
    pub fn tcp(&self, ports: (u16, u16), flags: u8, data: &[u8]) -> Vec<u8> {
        self.packet(TCP, &self.tcp_segment(ports, flags, data))
    }
    /// The segment of [`Ip4::tcp`] without the IPv4 header.
    pub fn tcp_segment(&self, ports: (u16, u16), flags: u8, data: &[u8]) -> Vec<u8> {
        let mut out = [ports.0.to_be_bytes(), ports.1.to_be_bytes()].concat();
        out.extend([0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70, 0x80, 0x50, flags, 0xfa, 0xf0, 0, 0, 0, 0]);
        out.extend(data);
        self.with_checksum(TCP, out, 16)
    }
    /// A UDP packet with `data`, its length and checksum right.
    pub fn udp(&self, ports: (u16, u16), data: &[u8]) -> Vec<u8> {
        self.packet(UDP, &self.udp_datagram(ports, data))
    }
    /// The datagram of [`Ip4::udp`] without the IPv4 header.
    pub fn udp_datagram(&self, ports: (u16, u16), data: &[u8]) -> Vec<u8> {
        let len = (8 + data.len() as u16).to_be_bytes();
        let mut out = [ports.0.to_be_bytes(), ports.1.to_be_bytes(), len, [0, 0]].concat();
        out.extend(data);
        self.with_checksum(UDP, out, 6)
    }
    /// An ICMP packet: type, code, the four bytes after the checksum, body; checksum right.
    pub fn icmp(&self, kind: u8, code: u8, word: u32, body: &[u8]) -> Vec<u8> {
        let mut out = vec![kind, code, 0, 0];
        out.extend(word.to_be_bytes());
        out.extend(body);
        let sum = sum(&out);
        out[2..4].copy_from_slice(&sum.to_be_bytes());
        self.packet(ICMP, &out)
    }
    fn with_checksum(&self, protocol: u8, mut message: Vec<u8>, at: usize) -> Vec<u8> {
        let mut all = [self.source.octets(), self.destination.octets()].concat();
        all.extend([0, protocol]);
        all.extend((message.len() as u16).to_be_bytes());
        all.extend(&message);
        let sum = sum(&all);
        message[at..at + 2].copy_from_slice(&sum.to_be_bytes());
        message
    }
}

/// Internet checksum (RFC 1071) of bytes whose field is 0; they are not all 0.
fn sum(bytes: &[u8]) -> u16 {
    let mut all = bytes.to_vec();
    all.resize(all.len().next_multiple_of(2), 0);
    let sum: u64 = all.chunks(2).map(|w| u64::from(w[0]) << 8 | u64::from(w[1])).sum();
    // 65536 ≡ 1 (mod 65535).
    let rest = (sum % 0xffff) as u16;
    if rest == 0 { 0 } else { !rest }
}

/// An untagged IPv4 frame.
pub fn frame4(packet: &[u8]) -> Vec<u8> {
    tagged4(&[], packet)
}

/// An IPv4 frame with VLAN tags.
pub fn tagged4(tags: &[[u8; 4]], packet: &[u8]) -> Vec<u8> {
    ethernet(TO, FROM, tags, 0x0800, packet)
}

/// The packet with its header's checksum made right again after a change.
pub fn summed(mut packet: Vec<u8>) -> Vec<u8> {
    let len = usize::from(packet[0] & 15) * 4;
    packet[10..12].fill(0);
    let sum = sum(&packet[..len]);
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    packet
}

/// The packet stating another total length.
pub fn stating4(mut packet: Vec<u8>, total: u16) -> Vec<u8> {
    packet[2..4].copy_from_slice(&total.to_be_bytes());
    summed(packet)
}
