//! A frame's layers and their fields in the words of the RFCs; outer and inner headers, and what ICMP errors quote.

use etherparse::{Ipv4HeaderSlice, Ipv6HeaderSlice};
use serde::ser::SerializeMap as _;
use serde::{Serialize, Serializer};

use super::transport;

/// VLAN tags and headers of one kind that are followed at most.
const DEEPEST: usize = 16;
/// Payload bytes that are shown.
const SHOWN: usize = 32;

/// One header, or what follows the last one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layer {
    /// Its name.
    pub name: String,
    /// Fields in the order in which they lie there.
    pub fields: Vec<(&'static str, String)>,
}

impl Serialize for Layer {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.fields.len() + 1))?;
        map.serialize_entry("layer", &self.name)?;
        for (name, value) in &self.fields {
            map.serialize_entry(name, value)?;
        }
        map.end()
    }
}

impl Layer {
    /// A field's value.
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(n, _)| *n == name).map(|(_, value)| value.as_str())
    }
}

/// Decodes a frame from its Ethernet header on; `length` is what it had on the wire, more than there is when it was cut.
pub fn decode(frame: &[u8], length: usize) -> Vec<Layer> {
    let mut decoder = Decoder { layers: Vec::new(), cut: length > frame.len(), quoted: "" };
    decoder.ethernet(frame);
    decoder.layers
}

/// Addresses over which a transport checksum goes, as the pseudo header has them.
pub(super) type Pseudo<'a> = (&'a [u8], &'a [u8]);

pub(super) struct Decoder {
    layers: Vec<Layer>,
    /// Bytes are missing at the end: checksums cannot be checked.
    pub(super) cut: bool,
    /// Put before the names of quoted headers.
    quoted: &'static str,
}

impl Decoder {
    pub(super) fn push(&mut self, name: &str, fields: Vec<(&'static str, String)>) {
        self.layers.push(Layer { name: format!("{}{name}", self.quoted), fields });
    }

    pub(super) fn short(&mut self, what: &str, rest: &[u8]) {
        self.push(
            "cut",
            vec![("header", what.into()), ("bytes", rest.len().to_string()), ("hex", hex(rest))],
        );
    }

    pub(super) fn payload(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.push("payload", vec![("bytes", bytes.len().to_string()), ("hex", hex(bytes))]);
        }
    }

    fn ethernet(&mut self, frame: &[u8]) {
        let Some((header, mut rest)) = frame.split_at_checked(14) else {
            return self.short("Ethernet", frame);
        };
        let mut kind = be16(header, 12);
        self.push(
            "Ethernet",
            vec![
                ("destination", mac(&header[..6])),
                ("source", mac(&header[6..12])),
                ("type", ether_type(kind)),
            ],
        );
        for _ in 0..DEEPEST {
            if kind != 0x8100 && kind != 0x88a8 {
                break;
            }
            let Some((tag, after)) = rest.split_at_checked(4) else { return self.short("VLAN", rest) };
            let control = be16(tag, 0);
            kind = be16(tag, 2);
            self.push(
                "VLAN",
                vec![
                    ("priority", (control >> 13).to_string()),
                    ("drop eligible", (control >> 12 & 1).to_string()),
                    ("id", (control & 0xfff).to_string()),
                    ("type", ether_type(kind)),
                ],
            );
            rest = after;
        }
        match kind {
            0x0800 => self.ipv4(rest, 0),
            0x86dd => self.ipv6(rest, 0),
            _ => self.payload(rest),
        }
    }

    /// Bytes of a packet that states its length, and what lies behind it.
    fn bounded<'a>(&mut self, rest: &'a [u8], stated: usize) -> (&'a [u8], &'a [u8]) {
        if stated > rest.len() && self.quoted.is_empty() {
            self.cut = true;
        }
        rest.split_at(stated.min(rest.len()))
    }

    fn ipv4(&mut self, bytes: &[u8], depth: usize) {
        let Ok(header) = Ipv4HeaderSlice::from_slice(bytes) else { return self.short("IPv4", bytes) };
        let expected = header.to_header().calc_header_checksum();
        let fragment = header.is_fragmenting_payload();
        let flags = [(header.dont_fragment(), "DF"), (header.more_fragments(), "MF")];
        let flags: Vec<&str> = flags.iter().filter(|(set, _)| *set).map(|(_, name)| *name).collect();
        let protocol = header.protocol().0;
        let mut fields = vec![
            ("header length", (usize::from(header.ihl()) * 4).to_string()),
            ("DSCP", header.dcp().value().to_string()),
            ("ECN", header.ecn().value().to_string()),
            ("total length", header.total_len().to_string()),
            ("identification", format!("0x{:04x}", header.identification())),
            ("flags", if flags.is_empty() { "none".into() } else { flags.join(" ") }),
            ("fragment offset", (u32::from(header.fragments_offset().value()) * 8).to_string()),
            ("TTL", header.ttl().to_string()),
            ("protocol", protocol_name(protocol)),
            ("checksum", checked(header.header_checksum(), Some(expected))),
            ("source", header.source_addr().to_string()),
            ("destination", header.destination_addr().to_string()),
        ];
        if !header.options().is_empty() {
            fields.push(("options", hex(header.options())));
        }
        self.push("IPv4", fields);
        let head = header.slice().len();
        let (packet, trailer) = self.bounded(bytes, usize::from(header.total_len()).max(head));
        let (source, destination) = (header.source(), header.destination());
        if header.fragments_offset().value() != 0 {
            self.payload(&packet[head..]);
        } else {
            self.upper(protocol, &packet[head..], (&source, &destination), fragment, depth);
        }
        self.trailer(trailer);
    }

    fn ipv6(&mut self, bytes: &[u8], depth: usize) {
        let Ok(header) = Ipv6HeaderSlice::from_slice(bytes) else { return self.short("IPv6", bytes) };
        let protocol = header.next_header().0;
        self.push(
            "IPv6",
            vec![
                ("DSCP", header.dscp().value().to_string()),
                ("ECN", header.ecn().value().to_string()),
                ("flow label", format!("0x{:05x}", header.flow_label().value())),
                ("payload length", header.payload_length().to_string()),
                ("next header", protocol_name(protocol)),
                ("hop limit", header.hop_limit().to_string()),
                ("source", header.source_addr().to_string()),
                ("destination", header.destination_addr().to_string()),
            ],
        );
        let (packet, trailer) = self.bounded(&bytes[40..], header.payload_length().into());
        let (source, destination) = (header.source(), header.destination());
        self.extensions(protocol, packet, (&source, &destination), depth);
        self.trailer(trailer);
    }

    fn trailer(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.push("trailer", vec![("bytes", bytes.len().to_string()), ("hex", hex(bytes))]);
        }
    }

    /// IPv6 extension headers (RFC 8200), then what they lead to.
    fn extensions(&mut self, mut protocol: u8, mut rest: &[u8], pseudo: Pseudo<'_>, depth: usize) {
        let mut fragment = false;
        for _ in 0..DEEPEST {
            let name = match protocol {
                0 => "hop-by-hop options",
                43 => "routing",
                44 => "fragment",
                60 => "destination options",
                _ => break,
            };
            let length = match rest {
                [_, _, ..] if protocol == 44 => 8,
                [_, length, ..] => (usize::from(*length) + 1) * 8,
                _ => return self.short(name, rest),
            };
            let Some((header, after)) = rest.split_at_checked(length) else { return self.short(name, rest) };
            let mut fields = vec![("next header", protocol_name(header[0])), ("length", length.to_string())];
            match protocol {
                43 => {
                    fields.push(("type", header[2].to_string()));
                    fields.push(("segments left", header[3].to_string()));
                }
                44 => {
                    let word = be16(header, 2);
                    fields.push(("offset", (word & 0xfff8).to_string()));
                    fields.push(("more fragments", (word & 1).to_string()));
                    let id = u32::from(be16(header, 4)) << 16 | u32::from(be16(header, 6));
                    fields.push(("identification", format!("0x{id:08x}")));
                    fragment |= word & 0xfff9 != 0;
                    if word & 0xfff8 != 0 {
                        self.push(name, fields);
                        return self.payload(after);
                    }
                }
                _ => fields.push(("options", hex(&header[2..]))),
            }
            self.push(name, fields);
            (protocol, rest) = (header[0], after);
        }
        self.upper(protocol, rest, pseudo, fragment, depth);
    }

    fn upper(&mut self, protocol: u8, rest: &[u8], pseudo: Pseudo<'_>, fragment: bool, depth: usize) {
        match protocol {
            4 if depth < DEEPEST => self.ipv4(rest, depth + 1),
            41 if depth < DEEPEST => self.ipv6(rest, depth + 1),
            _ => transport::decode(self, protocol, rest, pseudo, fragment),
        }
    }

    /// What an ICMP error quotes: cut anywhere, which is no fault.
    pub(super) fn quote(&mut self, bytes: &[u8]) {
        let (cut, quoted) = (self.cut, self.quoted);
        (self.cut, self.quoted) = (true, "quoted ");
        match bytes.first().map(|b| b >> 4) {
            Some(4) => self.ipv4(bytes, DEEPEST),
            Some(6) => self.ipv6(bytes, DEEPEST),
            _ => self.payload(bytes),
        }
        (self.cut, self.quoted) = (cut, quoted);
    }

    pub(super) fn quoting(&self) -> bool {
        !self.quoted.is_empty()
    }
}

/// A checksum and whether it is what it should be, where that can be told.
pub(super) fn checked(found: u16, expected: Option<u16>) -> String {
    match expected {
        Some(expected) if expected == found => format!("0x{found:04x} (right)"),
        Some(expected) => format!("0x{found:04x} (WRONG: 0x{expected:04x} is right)"),
        None => format!("0x{found:04x} (not checked)"),
    }
}

pub(super) fn be16(bytes: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

pub(super) fn hex(bytes: &[u8]) -> String {
    let mut text: String = bytes.iter().take(SHOWN).map(|b| format!("{b:02x}")).collect();
    if bytes.len() > SHOWN {
        text.push('…');
    }
    text
}

fn mac(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(":")
}

fn ether_type(kind: u16) -> String {
    let name = match kind {
        0x0800 => "IPv4",
        0x0806 => "ARP",
        0x86dd => "IPv6",
        0x8100 => "VLAN",
        0x88a8 => "service VLAN",
        _ => return format!("0x{kind:04x}"),
    };
    format!("0x{kind:04x} ({name})")
}

/// A protocol's number and name (IANA).
pub(super) fn protocol_name(protocol: u8) -> String {
    let name = match protocol {
        0 => "hop-by-hop options",
        1 => "ICMP",
        4 => "IPv4",
        6 => "TCP",
        17 => "UDP",
        41 => "IPv6",
        43 => "routing",
        44 => "fragment",
        47 => "GRE",
        50 => "ESP",
        58 => "ICMPv6",
        59 => "no next header",
        60 => "destination options",
        132 => "SCTP",
        _ => return protocol.to_string(),
    };
    format!("{protocol} ({name})")
}

/// The pseudo header's sum and the segment's (RFC 1071, RFC 8200 section 8.1), with the two bytes at `field` taken as 0;
/// `None` when the segment ends before them.
pub(super) fn transport_checksum(
    pseudo: Option<Pseudo<'_>>,
    protocol: u8,
    segment: &[u8],
    field: usize,
) -> Option<u16> {
    let mut bytes = segment.to_vec();
    bytes.get_mut(field..field + 2)?.fill(0);
    let sum = etherparse::checksum::Sum16BitWords::new();
    let sum = match pseudo {
        Some((source, destination)) => sum
            .add_slice(source)
            .add_slice(destination)
            .add_4bytes((segment.len() as u32).to_be_bytes())
            .add_2bytes([0, protocol]),
        None => sum,
    };
    Some(sum.add_slice(&bytes).ones_complement().to_be())
}
