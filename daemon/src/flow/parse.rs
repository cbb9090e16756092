//! Reads a frame as the packet path does: link header, IP header, and what lies between it and the upper layer.

use std::net::{Ipv4Addr, Ipv6Addr};

use weir_bpf::abi::Reason;

/// ICMP's protocol number.
pub(super) const ICMP: u8 = 1;
/// TCP's protocol number.
pub(super) const TCP: u8 = 6;
/// UDP's protocol number.
pub(super) const UDP: u8 = 17;
/// ICMPv6's protocol number.
pub(super) const ICMPV6: u8 = 58;
/// Bytes of the fixed IPv6 header.
pub(super) const IPV6_LEN: usize = 40;
/// Bytes of an IPv4 header without options.
pub(super) const IPV4_LEN: usize = 20;
/// Bytes of a link header without tags.
pub(super) const ETHERNET_LEN: usize = 14;

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DESTINATION_OPTIONS: u8 = 60;
/// Most extension headers that are walked.
const MAX_EXTENSIONS: u32 = 6;
/// No extension header may reach further from the start of its IPv6 header.
const MAX_EXTENSION_BYTES: usize = 512;

/// The 16-bit big-endian value at `at`, when it is there.
pub(super) fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}

/// Of the IP header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    V4,
    V6,
}

/// Walks the link header; gives the offset of the IP header.
pub(super) fn link(frame: &[u8]) -> Result<(usize, Family), Reason> {
    if frame.len() < ETHERNET_LEN {
        return Err(Reason::Malformed);
    }
    if frame[0] & 1 != 0 {
        return Err(Reason::NotForHost);
    }
    let mut l3 = ETHERNET_LEN;
    loop {
        let ethertype = be16(frame, l3 - 2).ok_or(Reason::Malformed)?;
        match ethertype {
            0x8100 | 0x88a8 if l3 < ETHERNET_LEN + 8 => l3 += 4,
            0x8100 | 0x88a8 => return Err(Reason::Malformed),
            0x86dd => return Ok((l3, Family::V6)),
            0x0800 => return Ok((l3, Family::V4)),
            _ => return Err(Reason::NotIp),
        }
    }
}

/// An IP packet: its header is there; its payload need not be. Addresses are IPv6, those of IPv4 mapped.
#[derive(Clone, Copy)]
pub(super) struct Ip<'a> {
    family: Family,
    bytes: &'a [u8],
}

impl<'a> Ip<'a> {
    /// Step 2. `bytes` start at the header and run to the end of what is there.
    pub(super) fn new(family: Family, bytes: &'a [u8]) -> Option<Self> {
        let ip = Self::quoted(family, bytes)?;
        (family == Family::V6 || ip.stated_len() >= ip.header_len()).then_some(ip)
    }
    /// As [`Ip::new`], whatever length it states.
    pub(super) fn quoted(family: Family, bytes: &'a [u8]) -> Option<Self> {
        let (version, least) = match family {
            Family::V4 => (4, IPV4_LEN),
            Family::V6 => (6, IPV6_LEN),
        };
        let ip = Self { family, bytes };
        let there = bytes.len() >= least && bytes[0] >> 4 == version;
        (there && (least..=bytes.len()).contains(&ip.header_len())).then_some(ip)
    }
    pub(super) const fn is_v4(self) -> bool {
        matches!(self.family, Family::V4)
    }
    /// Bytes of the IPv4 header with its options, of the fixed IPv6 header.
    pub(super) fn header_len(self) -> usize {
        if self.is_v4() { usize::from(self.bytes[0] & 15) * 4 } else { IPV6_LEN }
    }
    /// Traffic class or TOS: DSCP and ECN.
    pub(super) fn traffic_class(self) -> u8 {
        if self.is_v4() { self.bytes[1] } else { self.bytes[0] << 4 | self.bytes[1] >> 4 }
    }
    /// Protocol, or the first next header.
    pub(super) fn protocol(self) -> u8 {
        self.bytes[if self.is_v4() { 9 } else { 6 }]
    }
    pub(super) fn source(self) -> Ipv6Addr {
        if self.is_v4() { self.v4(12).to_ipv6_mapped() } else { self.v6(8) }
    }
    pub(super) fn destination(self) -> Ipv6Addr {
        if self.is_v4() { self.v4(16).to_ipv6_mapped() } else { self.v6(24) }
    }
    /// Bytes of header and payload as the header states them.
    pub(super) fn stated_len(self) -> usize {
        let at = |at: usize| usize::from(u16::from_be_bytes([self.bytes[at], self.bytes[at + 1]]));
        if self.is_v4() { at(2) } else { IPV6_LEN + at(4) }
    }
    /// Header and payload, when all of it is there; bytes after the payload are not part of it.
    pub(super) fn whole(self) -> Option<&'a [u8]> {
        self.bytes.get(..self.stated_len())
    }
    /// Everything from the header on, bytes after the payload included.
    pub(super) fn bytes(self) -> &'a [u8] {
        self.bytes
    }
    /// The IPv4 flag "don't fragment".
    pub(super) fn must_not_fragment(self) -> bool {
        self.bytes[6] & 0x40 != 0
    }
    /// The IPv4 flag "more fragments".
    pub(super) fn more_fragments(self) -> bool {
        self.bytes[6] & 0x20 != 0
    }
    /// The IPv4 fragment offset in units of 8 bytes.
    pub(super) fn fragment_offset(self) -> u16 {
        u16::from_be_bytes([self.bytes[6] & 0x1f, self.bytes[7]])
    }
    fn v4(self, at: usize) -> Ipv4Addr {
        let b = self.bytes;
        Ipv4Addr::new(b[at], b[at + 1], b[at + 2], b[at + 3])
    }
    fn v6(self, at: usize) -> Ipv6Addr {
        let mut octets = [0; 16];
        octets.copy_from_slice(&self.bytes[at..at + 16]);
        octets.into()
    }
}

/// What each fragment of a datagram says of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Datagram {
    /// Protocol, or the fragment header's next header.
    pub(super) protocol: u8,
    /// Identification as it stands in the packet.
    pub(super) id: u32,
}

/// Which part of a datagram a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Piece {
    /// All of it; atomic fragments (RFC 6946) are that too.
    Whole,
    /// Its first fragment.
    First(Datagram),
    /// Another one, with its offset in units of 8 bytes.
    Later(Datagram, u16),
}

/// What lies behind the IP header and what follows it.
#[derive(Clone, Copy)]
pub(super) struct Upper {
    /// In a later fragment, what the fragment states.
    pub(super) protocol: u8,
    /// From the start of the IP header.
    pub(super) offset: usize,
    /// Extension headers or options were passed.
    pub(super) extra: bool,
    pub(super) piece: Piece,
}

/// Step 6 up to the upper layer, of a packet whose end is the slice's.
pub(super) fn upper(ip: Ip<'_>, packet: &[u8]) -> Result<Upper, Reason> {
    if !ip.is_v4() {
        return walk(packet, Walk::Packet);
    }
    let offset = ip.header_len();
    options(&packet[IPV4_LEN..offset])?;
    let datagram =
        Datagram { protocol: ip.protocol(), id: u32::from(u16::from_le_bytes([packet[4], packet[5]])) };
    let units = ip.fragment_offset();
    let piece = match (units, ip.more_fragments()) {
        (0, false) => Piece::Whole,
        (0, true) => Piece::First(datagram),
        _ => Piece::Later(datagram, units),
    };
    Ok(Upper { protocol: ip.protocol(), offset, extra: offset != IPV4_LEN, piece })
}

/// Reads IPv4 options (RFC 791): none may be a source route with something left of it, and all must be readable.
fn options(mut rest: &[u8]) -> Result<(), Reason> {
    const END: u8 = 0;
    const NOTHING: u8 = 1;
    const LOOSE_ROUTE: u8 = 131;
    const STRICT_ROUTE: u8 = 137;
    loop {
        match *rest {
            [] | [END, ..] => return Ok(()),
            [NOTHING, ..] => rest = &rest[1..],
            [kind, length, ..] if length >= 2 && usize::from(length) <= rest.len() => {
                if matches!(kind, LOOSE_ROUTE | STRICT_ROUTE) && (length < 3 || rest[2] <= length) {
                    return Err(Reason::IpOptions);
                }
                rest = &rest[usize::from(length)..];
            }
            _ => return Err(Reason::IpOptions),
        }
    }
}

/// What is walked.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Walk {
    /// A packet.
    Packet,
    /// A packet that an ICMP error quotes: a first fragment is as good as a whole one.
    Quote,
}

/// Walks the extension headers of an IPv6 packet whose fixed header is there; its end is the slice's.
pub(super) fn walk(packet: &[u8], what: Walk) -> Result<Upper, Reason> {
    let mut upper = Upper { protocol: packet[6], offset: IPV6_LEN, extra: false, piece: Piece::Whole };
    let mut passed = 0;
    while matches!(upper.protocol, HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION_OPTIONS) {
        // The seventh is not looked into: whether it is whole does not matter.
        if passed == MAX_EXTENSIONS {
            return Err(Reason::ExtensionHeaders);
        }
        // A first fragment must hold all headers (RFC 7112).
        let cut = if upper.piece == Piece::Whole { Reason::Truncated } else { Reason::Fragment };
        // Every extension header has at least 8 bytes.
        let header = packet.get(upper.offset..upper.offset + 8).ok_or(cut)?;
        let mut len = (usize::from(header[1]) + 1) * 8;
        match upper.protocol {
            ROUTING if header[3] != 0 => return Err(Reason::ExtensionHeaders),
            FRAGMENT => {
                // Offset 13 bits, reserved 2 bits, more-fragments 1 bit (RFC 8200 section 4.5).
                let word = u16::from_be_bytes([header[2], header[3]]);
                let (units, more) = (word >> 3, word & 1 != 0);
                let id = u32::from_le_bytes([header[4], header[5], header[6], header[7]]);
                let datagram = Datagram { protocol: header[0], id };
                match (what, upper.piece, units, more) {
                    (Walk::Quote, _, 0, _) => {}
                    (Walk::Quote, ..) | (Walk::Packet, Piece::First(_), ..) => return Err(Reason::Fragment),
                    (Walk::Packet, _, 0, false) => {}
                    (Walk::Packet, _, 0, true) => upper.piece = Piece::First(datagram),
                    (Walk::Packet, ..) => upper.piece = Piece::Later(datagram, units),
                }
                len = 8;
            }
            _ => {}
        }
        let end = upper.offset + len;
        if end > packet.len() {
            return Err(cut);
        }
        if end > MAX_EXTENSION_BYTES {
            return Err(Reason::ExtensionHeaders);
        }
        upper = Upper { protocol: header[0], offset: end, extra: true, ..upper };
        passed += 1;
        if matches!(upper.piece, Piece::Later(..)) {
            break;
        }
    }
    Ok(upper)
}

/// Whether an IPv6 next header is an extension header that is walked.
pub(super) const fn is_extension(next: u8) -> bool {
    matches!(next, HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION_OPTIONS)
}
