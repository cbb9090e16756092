//! Reads a frame as the packet path does: link header, IPv6 header, extension headers.

use std::net::Ipv6Addr;

use weir_bpf::abi::Reason;

/// TCP's protocol number.
pub(super) const TCP: u8 = 6;
/// UDP's protocol number.
pub(super) const UDP: u8 = 17;
/// ICMPv6's protocol number.
pub(super) const ICMPV6: u8 = 58;
/// Bytes of the fixed IPv6 header.
pub(super) const IPV6_LEN: usize = 40;
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

/// Walks the link header; gives the offset of the IPv6 header.
pub(super) fn link(frame: &[u8]) -> Result<usize, Reason> {
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
            0x86dd => return Ok(l3),
            0x0800 => return Err(Reason::Ipv4Unserved),
            _ => return Err(Reason::NotIp),
        }
    }
}

/// An IPv6 packet: its header is there; its payload need not be.
#[derive(Clone, Copy)]
pub(super) struct Ipv6<'a>(&'a [u8]);

impl<'a> Ipv6<'a> {
    /// `bytes` start at the header and run to the end of what is there.
    pub(super) fn new(bytes: &'a [u8]) -> Option<Self> {
        (bytes.len() >= IPV6_LEN && bytes[0] >> 4 == 6).then_some(Self(bytes))
    }
    pub(super) fn traffic_class(self) -> u8 {
        self.0[0] << 4 | self.0[1] >> 4
    }
    pub(super) fn next_header(self) -> u8 {
        self.0[6]
    }
    pub(super) fn source(self) -> Ipv6Addr {
        self.address(8)
    }
    pub(super) fn destination(self) -> Ipv6Addr {
        self.address(24)
    }
    /// Bytes of header and payload as the header states them.
    pub(super) fn stated_len(self) -> usize {
        IPV6_LEN + usize::from(u16::from_be_bytes([self.0[4], self.0[5]]))
    }
    /// Header and payload, when all of it is there; bytes after the payload are not part of it.
    pub(super) fn whole(self) -> Option<&'a [u8]> {
        self.0.get(..self.stated_len())
    }
    /// Everything from the header on, bytes after the payload included.
    pub(super) fn bytes(self) -> &'a [u8] {
        self.0
    }
    fn address(self, at: usize) -> Ipv6Addr {
        let mut octets = [0; 16];
        octets.copy_from_slice(&self.0[at..at + 16]);
        octets.into()
    }
}

/// Which fragments a walk passes.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Fragments {
    /// Only whole packets: atomic fragments (RFC 6946).
    Atomic,
    /// First fragments too: quotes in ICMP errors.
    First,
}

/// What lies behind the extension headers.
pub(super) struct Upper {
    pub(super) protocol: u8,
    /// From the start of the IPv6 header.
    pub(super) offset: usize,
    /// Extension headers passed.
    pub(super) extensions: u32,
}

/// Walks the extension headers of a packet whose fixed header is there; its end is the slice's.
pub(super) fn walk(packet: &[u8], fragments: Fragments) -> Result<Upper, Reason> {
    let mut upper = Upper { protocol: packet[6], offset: IPV6_LEN, extensions: 0 };
    while matches!(upper.protocol, HOP_BY_HOP | ROUTING | FRAGMENT | DESTINATION_OPTIONS) {
        // The seventh is not looked into: whether it is whole does not matter.
        if upper.extensions == MAX_EXTENSIONS {
            return Err(Reason::ExtensionHeaders);
        }
        // Every extension header has at least 8 bytes, and what is read below lies in the first 4.
        let Some(header) = packet.get(upper.offset..upper.offset + 8) else {
            return Err(Reason::Truncated);
        };
        let mut len = (usize::from(header[1]) + 1) * 8;
        match upper.protocol {
            ROUTING if header[3] != 0 => return Err(Reason::ExtensionHeaders),
            FRAGMENT => {
                // Offset 13 bits, reserved 2 bits, more-fragments 1 bit (RFC 8200 section 4.5).
                let word = u16::from_be_bytes([header[2], header[3]]);
                let (offset, more) = (word >> 3, word & 1);
                if offset != 0 || (more != 0 && fragments == Fragments::Atomic) {
                    return Err(Reason::Fragment);
                }
                len = 8;
            }
            _ => {}
        }
        let end = upper.offset + len;
        if end > packet.len() {
            return Err(Reason::Truncated);
        }
        if end > MAX_EXTENSION_BYTES {
            return Err(Reason::ExtensionHeaders);
        }
        upper = Upper { protocol: header[0], offset: end, extensions: upper.extensions + 1 };
    }
    Ok(upper)
}
