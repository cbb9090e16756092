//! IPv6 extension headers (RFC 8200 section 4, RFC 8754): options, routing, fragment.

use std::net::Ipv6Addr;

use super::header::{Fields, hex};
use super::number::protocol_name;

/// Which of the two option headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OptionsKind {
    /// Looked at by every hop.
    HopByHop,
    /// Looked at by the destination.
    Destination,
}

/// A hop-by-hop or destination options header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Which header.
    pub kind: OptionsKind,
    /// Protocol number of what follows.
    pub next_header: u8,
    /// The options, raw, padding included: 6 bytes, or 6 and a multiple of 8.
    pub data: Vec<u8>,
}

impl Options {
    /// A header whose options, `data`, are filled up with Pad1 and PadN to the next multiple of 8 bytes.
    pub fn padded(kind: OptionsKind, data: &[u8]) -> Self {
        let mut data = data.to_vec();
        match (data.len() + 2).next_multiple_of(8) - (data.len() + 2) {
            0 => {}
            1 => data.push(0),
            missing => {
                data.extend([1, (missing - 2) as u8]);
                data.resize(data.len() + missing - 2, 0);
            }
        }
        Self { kind, next_header: 0, data }
    }

    pub(super) fn read(kind: OptionsKind, bytes: &[u8]) -> Option<(Self, usize)> {
        let (next_header, length) = extent(bytes)?;
        Some((Self { kind, next_header, data: bytes.get(2..length)?.to_vec() }, length))
    }

    pub(super) fn write(&self) -> Vec<u8> {
        let mut bytes = vec![self.next_header, 0];
        bytes.extend(&self.data);
        finish(bytes)
    }

    pub(super) fn fields(&self) -> Fields {
        vec![("next_header", protocol_name(self.next_header)), ("data", hex(&self.data))]
    }
}

/// A routing header of any type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Routing {
    /// Protocol number of what follows.
    pub next_header: u8,
    /// 4 is segment routing (RFC 8754), 2 is mobile IPv6.
    pub kind: u8,
    /// Segments still to be visited.
    pub segments_left: u8,
    /// Type-specific data: 4 bytes, or 4 and a multiple of 8.
    pub data: Vec<u8>,
}

impl Routing {
    /// A segment routing header. `segments` are in the order of the visit; the wire holds them reversed.
    pub fn segment_routing(segments: &[Ipv6Addr], segments_left: u8) -> Self {
        let last_entry = segments.len().saturating_sub(1) as u8;
        let mut data = vec![last_entry, 0, 0, 0];
        for segment in segments.iter().rev() {
            data.extend(segment.octets());
        }
        Self { next_header: 0, kind: 4, segments_left, data }
    }

    pub(super) fn read(bytes: &[u8]) -> Option<(Self, usize)> {
        let (next_header, length) = extent(bytes)?;
        let data = bytes.get(4..length)?.to_vec();
        Some((Self { next_header, kind: bytes[2], segments_left: bytes[3], data }, length))
    }

    pub(super) fn write(&self) -> Vec<u8> {
        let mut bytes = vec![self.next_header, 0, self.kind, self.segments_left];
        bytes.extend(&self.data);
        finish(bytes)
    }

    pub(super) fn fields(&self) -> Fields {
        vec![
            ("next_header", protocol_name(self.next_header)),
            ("type", self.kind.to_string()),
            ("segments_left", self.segments_left.to_string()),
            ("data", hex(&self.data)),
        ]
    }
}

/// A fragment header, 8 bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fragment {
    /// Protocol number of what follows in the whole packet.
    pub next_header: u8,
    /// In units of 8 bytes.
    pub offset: u16,
    /// More fragments follow.
    pub more: bool,
    /// The same in all fragments of a packet.
    pub identification: u32,
}

impl Fragment {
    pub(super) fn read(bytes: &[u8]) -> Option<(Self, usize)> {
        let word = u16::from_be_bytes(bytes.get(2..4)?.try_into().ok()?);
        let identification = u32::from_be_bytes(bytes.get(4..8)?.try_into().ok()?);
        let header = Self { next_header: bytes[0], offset: word >> 3, more: word & 1 != 0, identification };
        Some((header, 8))
    }

    pub(super) fn write(&self) -> Vec<u8> {
        let mut bytes = vec![self.next_header, 0];
        bytes.extend((self.offset << 3 | u16::from(self.more)).to_be_bytes());
        bytes.extend(self.identification.to_be_bytes());
        bytes
    }

    pub(super) fn fields(&self) -> Fields {
        vec![
            ("next_header", protocol_name(self.next_header)),
            ("offset", self.offset.to_string()),
            ("more", u8::from(self.more).to_string()),
            ("identification", format!("0x{:08x}", self.identification)),
        ]
    }
}

/// Next header and length in bytes of an extension header that counts itself in 8-byte units.
fn extent(bytes: &[u8]) -> Option<(u8, usize)> {
    let length = (usize::from(*bytes.get(1)?) + 1) * 8;
    (length <= bytes.len()).then_some((bytes[0], length))
}

/// Fills `bytes` to a multiple of 8 and writes the length field.
fn finish(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize(bytes.len().next_multiple_of(8), 0);
    bytes[1] = (bytes.len() / 8 - 1) as u8;
    bytes
}
