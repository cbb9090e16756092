//! The fixed headers: one plain struct each, how it reads from and writes to the wire, and its fields by name.
//!
//! Values are in host order. Lengths and checksums are what the wire says, right or wrong; the builder fills them in.

use std::net::{Ipv4Addr, Ipv6Addr};

use pnet_base::MacAddr;
use pnet_packet::Packet as _;
use pnet_packet::ethernet::{EtherType, EthernetPacket, MutableEthernetPacket};
use pnet_packet::icmpv6::{Icmpv6Code, Icmpv6Packet, Icmpv6Type, MutableIcmpv6Packet};
use pnet_packet::ip::IpNextHeaderProtocol;
use pnet_packet::ipv4::{Ipv4Packet, MutableIpv4Packet};
use pnet_packet::ipv6::{Ipv6Packet, MutableIpv6Packet};
use pnet_packet::tcp::{MutableTcpPacket, TcpPacket};
use pnet_packet::udp::{MutableUdpPacket, UdpPacket};
use pnet_packet::vlan::{ClassOfService, MutableVlanPacket, VlanPacket};

use super::number::{ethertype_name, icmp_name, protocol_name, tcp_flags_name};

/// A header's fields in wire order, as (name, value) in the form that people read.
pub type Fields = Vec<(&'static str, String)>;

/// Ethernet II (IEEE 802.3), 14 bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ethernet {
    /// Destination address.
    pub dst: MacAddr,
    /// Source address.
    pub src: MacAddr,
    /// What follows.
    pub ethertype: u16,
}

impl Ethernet {
    pub(super) fn read(bytes: &[u8]) -> Option<(Self, usize)> {
        let p = EthernetPacket::new(bytes)?;
        Some((
            Self { dst: p.get_destination(), src: p.get_source(), ethertype: p.get_ethertype().0 },
            EthernetPacket::minimum_packet_size(),
        ))
    }

    pub(super) fn write(&self) -> Vec<u8> {
        let mut bytes = vec![0; EthernetPacket::minimum_packet_size()];
        if let Some(mut p) = MutableEthernetPacket::new(&mut bytes) {
            p.set_destination(self.dst);
            p.set_source(self.src);
            p.set_ethertype(EtherType(self.ethertype));
        }
        bytes
    }

    pub(super) fn fields(&self) -> Fields {
        vec![
            ("dst", self.dst.to_string()),
            ("src", self.src.to_string()),
            ("ethertype", ethertype_name(self.ethertype)),
        ]
    }
}

/// One VLAN tag (IEEE 802.1Q or 802.1ad), 4 bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Vlan {
    /// The EtherType that announced the tag: 0x8100 (802.1Q) or 0x88a8 (802.1ad).
    pub tpid: u16,
    /// Priority code point, 0–7.
    pub priority: u8,
    /// Drop eligible indicator.
    pub drop_eligible: bool,
    /// VLAN identifier, 0–4095.
    pub id: u16,
    /// What follows.
    pub ethertype: u16,
}

impl Vlan {
    pub(super) fn read(tpid: u16, bytes: &[u8]) -> Option<(Self, usize)> {
        let p = VlanPacket::new(bytes)?;
        Some((
            Self {
                tpid,
                priority: p.get_priority_code_point().0,
                drop_eligible: p.get_drop_eligible_indicator() != 0,
                id: p.get_vlan_identifier(),
                ethertype: p.get_ethertype().0,
            },
            VlanPacket::minimum_packet_size(),
        ))
    }

    pub(super) fn write(&self) -> Vec<u8> {
        let mut bytes = vec![0; VlanPacket::minimum_packet_size()];
        if let Some(mut p) = MutableVlanPacket::new(&mut bytes) {
            p.set_priority_code_point(ClassOfService(self.priority & 7));
            p.set_drop_eligible_indicator(self.drop_eligible.into());
            p.set_vlan_identifier(self.id & 0xfff);
            p.set_ethertype(EtherType(self.ethertype));
        }
        bytes
    }

    pub(super) fn fields(&self) -> Fields {
        vec![
            ("tpid", format!("0x{:04x}", self.tpid)),
            ("id", self.id.to_string()),
            ("priority", self.priority.to_string()),
            ("drop_eligible", u8::from(self.drop_eligible).to_string()),
            ("ethertype", ethertype_name(self.ethertype)),
        ]
    }
}

/// The fixed IPv6 header (RFC 8200), 40 bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ipv6 {
    /// DSCP and ECN.
    pub traffic_class: u8,
    /// 20 bits.
    pub flow_label: u32,
    /// Bytes after this header.
    pub payload_length: u16,
    /// Protocol number of what follows.
    pub next_header: u8,
    /// Hops left.
    pub hop_limit: u8,
    /// Source address.
    pub src: Ipv6Addr,
    /// Destination address.
    pub dst: Ipv6Addr,
}

impl Ipv6 {
    pub(super) fn read(bytes: &[u8]) -> Option<(Self, usize)> {
        let p = Ipv6Packet::new(bytes)?;
        let header = Self {
            traffic_class: p.get_traffic_class(),
            flow_label: p.get_flow_label(),
            payload_length: p.get_payload_length(),
            next_header: p.get_next_header().0,
            hop_limit: p.get_hop_limit(),
            src: p.get_source(),
            dst: p.get_destination(),
        };
        (p.get_version() == 6).then_some((header, Ipv6Packet::minimum_packet_size()))
    }

    pub(super) fn write(&self) -> Vec<u8> {
        let mut bytes = vec![0; Ipv6Packet::minimum_packet_size()];
        if let Some(mut p) = MutableIpv6Packet::new(&mut bytes) {
            p.set_version(6);
            p.set_traffic_class(self.traffic_class);
            p.set_flow_label(self.flow_label & 0xf_ffff);
            p.set_payload_length(self.payload_length);
            p.set_next_header(IpNextHeaderProtocol(self.next_header));
            p.set_hop_limit(self.hop_limit);
            p.set_source(self.src);
            p.set_destination(self.dst);
        }
        bytes
    }

    pub(super) fn fields(&self) -> Fields {
        vec![
            ("src", self.src.to_string()),
            ("dst", self.dst.to_string()),
            ("traffic_class", format!("0x{:02x}", self.traffic_class)),
            ("flow_label", format!("0x{:05x}", self.flow_label)),
            ("payload_length", self.payload_length.to_string()),
            ("next_header", protocol_name(self.next_header)),
            ("hop_limit", self.hop_limit.to_string()),
        ]
    }
}

/// The IPv4 header (RFC 791), 20 bytes and its options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ipv4 {
    /// DSCP and ECN.
    pub tos: u8,
    /// Header and payload, bytes.
    pub total_length: u16,
    /// Fragment identification.
    pub identification: u16,
    /// Don't fragment.
    pub dont_fragment: bool,
    /// More fragments follow.
    pub more_fragments: bool,
    /// In units of 8 bytes.
    pub fragment_offset: u16,
    /// Hops left.
    pub ttl: u8,
    /// Protocol number of what follows.
    pub protocol: u8,
    /// Header checksum.
    pub checksum: u16,
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
    /// Raw options, a multiple of 4 bytes, at most 40.
    pub options: Vec<u8>,
}

impl Ipv4 {
    pub(super) fn read(bytes: &[u8]) -> Option<(Self, usize)> {
        let p = Ipv4Packet::new(bytes)?;
        let length = usize::from(p.get_header_length()) * 4;
        if p.get_version() != 4 || length < Ipv4Packet::minimum_packet_size() {
            return None;
        }
        let header = Self {
            tos: p.get_dscp() << 2 | p.get_ecn(),
            total_length: p.get_total_length(),
            identification: p.get_identification(),
            dont_fragment: p.get_flags() & 0b010 != 0,
            more_fragments: p.get_flags() & 0b001 != 0,
            fragment_offset: p.get_fragment_offset(),
            ttl: p.get_ttl(),
            protocol: p.get_next_level_protocol().0,
            checksum: p.get_checksum(),
            src: p.get_source(),
            dst: p.get_destination(),
            options: bytes.get(Ipv4Packet::minimum_packet_size()..length)?.to_vec(),
        };
        Some((header, length))
    }

    pub(super) fn write(&self) -> Vec<u8> {
        let fixed = Ipv4Packet::minimum_packet_size();
        let mut bytes = vec![0; fixed];
        bytes.extend(padded(&self.options, 4, 40));
        let words = (bytes.len() / 4) as u8;
        if let Some(mut p) = MutableIpv4Packet::new(&mut bytes) {
            p.set_version(4);
            p.set_header_length(words);
            p.set_dscp(self.tos >> 2);
            p.set_ecn(self.tos & 3);
            p.set_total_length(self.total_length);
            p.set_identification(self.identification);
            p.set_flags(u8::from(self.dont_fragment) << 1 | u8::from(self.more_fragments));
            p.set_fragment_offset(self.fragment_offset & 0x1fff);
            p.set_ttl(self.ttl);
            p.set_next_level_protocol(IpNextHeaderProtocol(self.protocol));
            p.set_checksum(self.checksum);
            p.set_source(self.src);
            p.set_destination(self.dst);
        }
        bytes
    }

    pub(super) fn fields(&self) -> Fields {
        let mut fields = vec![
            ("src", self.src.to_string()),
            ("dst", self.dst.to_string()),
            ("tos", format!("0x{:02x}", self.tos)),
            ("total_length", self.total_length.to_string()),
            ("identification", format!("0x{:04x}", self.identification)),
            ("dont_fragment", u8::from(self.dont_fragment).to_string()),
            ("more_fragments", u8::from(self.more_fragments).to_string()),
            ("fragment_offset", self.fragment_offset.to_string()),
            ("ttl", self.ttl.to_string()),
            ("protocol", protocol_name(self.protocol)),
            ("checksum", format!("0x{:04x}", self.checksum)),
        ];
        if !self.options.is_empty() {
            fields.push(("options", hex(&self.options)));
        }
        fields
    }
}

/// The TCP header (RFC 9293), 20 bytes and its options.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tcp {
    /// Source port.
    pub src: u16,
    /// Destination port.
    pub dst: u16,
    /// Sequence number.
    pub seq: u32,
    /// Acknowledgement number.
    pub ack: u32,
    /// Flags, see [`super::flags`].
    pub flags: u8,
    /// Window, unscaled.
    pub window: u16,
    /// Checksum over pseudo-header, header and data.
    pub checksum: u16,
    /// Urgent pointer.
    pub urgent: u16,
    /// Raw options, a multiple of 4 bytes, at most 40.
    pub options: Vec<u8>,
}

impl Tcp {
    pub(super) fn read(bytes: &[u8]) -> Option<(Self, usize)> {
        let p = TcpPacket::new(bytes)?;
        let length = usize::from(p.get_data_offset()) * 4;
        let header = Self {
            src: p.get_source(),
            dst: p.get_destination(),
            seq: p.get_sequence(),
            ack: p.get_acknowledgement(),
            flags: p.get_flags(),
            window: p.get_window(),
            checksum: p.get_checksum(),
            urgent: p.get_urgent_ptr(),
            options: bytes.get(TcpPacket::minimum_packet_size()..length)?.to_vec(),
        };
        Some((header, length))
    }

    pub(super) fn write(&self) -> Vec<u8> {
        let mut bytes = vec![0; TcpPacket::minimum_packet_size()];
        bytes.extend(padded(&self.options, 4, 40));
        let words = (bytes.len() / 4) as u8;
        if let Some(mut p) = MutableTcpPacket::new(&mut bytes) {
            p.set_source(self.src);
            p.set_destination(self.dst);
            p.set_sequence(self.seq);
            p.set_acknowledgement(self.ack);
            p.set_data_offset(words);
            p.set_flags(self.flags);
            p.set_window(self.window);
            p.set_checksum(self.checksum);
            p.set_urgent_ptr(self.urgent);
        }
        bytes
    }

    pub(super) fn fields(&self) -> Fields {
        let mut fields = vec![
            ("src", self.src.to_string()),
            ("dst", self.dst.to_string()),
            ("flags", tcp_flags_name(self.flags)),
            ("seq", self.seq.to_string()),
            ("ack", self.ack.to_string()),
            ("window", self.window.to_string()),
            ("urgent", self.urgent.to_string()),
            ("checksum", format!("0x{:04x}", self.checksum)),
        ];
        if !self.options.is_empty() {
            fields.push(("options", hex(&self.options)));
        }
        fields
    }
}

/// The UDP header (RFC 768), 8 bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Udp {
    /// Source port.
    pub src: u16,
    /// Destination port.
    pub dst: u16,
    /// Header and data, bytes.
    pub length: u16,
    /// Checksum over pseudo-header, header and data.
    pub checksum: u16,
}

impl Udp {
    pub(super) fn read(bytes: &[u8]) -> Option<(Self, usize)> {
        let p = UdpPacket::new(bytes)?;
        Some((
            Self {
                src: p.get_source(),
                dst: p.get_destination(),
                length: p.get_length(),
                checksum: p.get_checksum(),
            },
            UdpPacket::minimum_packet_size(),
        ))
    }

    pub(super) fn write(&self) -> Vec<u8> {
        let mut bytes = vec![0; UdpPacket::minimum_packet_size()];
        if let Some(mut p) = MutableUdpPacket::new(&mut bytes) {
            p.set_source(self.src);
            p.set_destination(self.dst);
            p.set_length(self.length);
            p.set_checksum(self.checksum);
        }
        bytes
    }

    pub(super) fn fields(&self) -> Fields {
        vec![
            ("src", self.src.to_string()),
            ("dst", self.dst.to_string()),
            ("length", self.length.to_string()),
            ("checksum", format!("0x{:04x}", self.checksum)),
        ]
    }
}

/// Which ICMP a header belongs to: the types' meaning and the checksum's reach differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IcmpVersion {
    /// RFC 792; the checksum covers the message alone.
    V4,
    /// RFC 4443; the checksum covers a pseudo-header too.
    V6,
}

/// An ICMP header of either version, the 4 bytes after the checksum included: 8 bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Icmp {
    /// Which ICMP.
    pub version: IcmpVersion,
    /// Message type.
    pub kind: u8,
    /// Message code.
    pub code: u8,
    /// Checksum.
    pub checksum: u16,
    /// The 4 bytes after the checksum, as one number, most significant byte first.
    pub body: u32,
}

impl Icmp {
    /// True if the message quotes the packet that caused it.
    pub fn is_error(&self) -> bool {
        match self.version {
            IcmpVersion::V6 => self.kind < 128,
            IcmpVersion::V4 => matches!(self.kind, 3 | 4 | 5 | 11 | 12),
        }
    }

    /// The MTU of a Packet Too Big or of a Fragmentation Needed message.
    pub fn mtu(&self) -> Option<u32> {
        match (self.version, self.kind, self.code) {
            (IcmpVersion::V6, 2, _) => Some(self.body),
            (IcmpVersion::V4, 3, 4) => Some(self.body & 0xffff),
            _ => None,
        }
    }

    /// Identifier and sequence number of an echo request or reply.
    pub fn echo(&self) -> Option<(u16, u16)> {
        let echo = match self.version {
            IcmpVersion::V6 => matches!(self.kind, 128 | 129),
            IcmpVersion::V4 => matches!(self.kind, 0 | 8),
        };
        echo.then_some(((self.body >> 16) as u16, self.body as u16))
    }

    pub(super) fn read(version: IcmpVersion, bytes: &[u8]) -> Option<(Self, usize)> {
        // The two ICMPs share the layout of these 8 bytes.
        let p = Icmpv6Packet::new(bytes)?;
        let body = u32::from_be_bytes(p.packet().get(4..8)?.try_into().ok()?);
        let header = Self {
            version,
            kind: p.get_icmpv6_type().0,
            code: p.get_icmpv6_code().0,
            checksum: p.get_checksum(),
            body,
        };
        Some((header, 8))
    }

    pub(super) fn write(&self) -> Vec<u8> {
        let mut bytes = vec![0; 4];
        if let Some(mut p) = MutableIcmpv6Packet::new(&mut bytes) {
            p.set_icmpv6_type(Icmpv6Type(self.kind));
            p.set_icmpv6_code(Icmpv6Code(self.code));
            p.set_checksum(self.checksum);
        }
        bytes.extend(self.body.to_be_bytes());
        bytes
    }

    pub(super) fn fields(&self) -> Fields {
        let mut fields = vec![("type", icmp_name(self.version, self.kind)), ("code", self.code.to_string())];
        if let Some((identifier, sequence)) = self.echo() {
            fields.push(("identifier", identifier.to_string()));
            fields.push(("sequence", sequence.to_string()));
        } else if let Some(mtu) = self.mtu() {
            fields.push(("mtu", mtu.to_string()));
        } else {
            fields.push(("body", format!("0x{:08x}", self.body)));
        }
        fields.push(("checksum", format!("0x{:04x}", self.checksum)));
        fields
    }
}

/// Bytes as lower-case hexadecimal pairs without separators.
pub(super) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// `bytes` cut to `most` and filled with zeros to a multiple of `unit`.
pub(super) fn padded(bytes: &[u8], unit: usize, most: usize) -> Vec<u8> {
    let mut out = bytes[..bytes.len().min(most)].to_vec();
    out.resize(out.len().next_multiple_of(unit), 0);
    out
}
