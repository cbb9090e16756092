//! Assigned numbers the packets need, and the names people know them by.

use super::header::IcmpVersion;

/// EtherTypes (IEEE registry).
pub mod ethertype {
    /// IPv4.
    pub const IPV4: u16 = 0x0800;
    /// ARP.
    pub const ARP: u16 = 0x0806;
    /// 802.1Q customer tag.
    pub const VLAN: u16 = 0x8100;
    /// 802.1ad service tag.
    pub const SERVICE_VLAN: u16 = 0x88a8;
    /// IPv6.
    pub const IPV6: u16 = 0x86dd;
    /// Local experiments (IEEE 802 clause 9.2.4); what a built frame says when nothing else fits.
    pub const EXPERIMENT: u16 = 0x88b5;
}

/// IP protocol numbers (IANA registry).
pub mod protocol {
    /// IPv6 hop-by-hop options.
    pub const HOP_BY_HOP: u8 = 0;
    /// ICMP for IPv4.
    pub const ICMPV4: u8 = 1;
    /// IPv4 in IP.
    pub const IPV4: u8 = 4;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// IPv6 in IP.
    pub const IPV6: u8 = 41;
    /// IPv6 routing header.
    pub const ROUTING: u8 = 43;
    /// IPv6 fragment header.
    pub const FRAGMENT: u8 = 44;
    /// ICMPv6.
    pub const ICMPV6: u8 = 58;
    /// Nothing follows.
    pub const NO_NEXT_HEADER: u8 = 59;
    /// IPv6 destination options.
    pub const DESTINATION_OPTIONS: u8 = 60;
}

/// TCP flags (RFC 9293, RFC 3168).
pub mod flags {
    /// No more data.
    pub const FIN: u8 = 0x01;
    /// Synchronise.
    pub const SYN: u8 = 0x02;
    /// Reset.
    pub const RST: u8 = 0x04;
    /// Push.
    pub const PSH: u8 = 0x08;
    /// Acknowledgement field is valid.
    pub const ACK: u8 = 0x10;
    /// Urgent field is valid.
    pub const URG: u8 = 0x20;
    /// ECN echo.
    pub const ECE: u8 = 0x40;
    /// Congestion window reduced.
    pub const CWR: u8 = 0x80;
}

pub(super) fn ethertype_name(number: u16) -> String {
    let name = match number {
        ethertype::IPV4 => "ipv4",
        ethertype::ARP => "arp",
        ethertype::VLAN => "vlan",
        ethertype::SERVICE_VLAN => "service-vlan",
        ethertype::IPV6 => "ipv6",
        _ => return format!("0x{number:04x}"),
    };
    format!("{name}(0x{number:04x})")
}

pub(super) fn protocol_name(number: u8) -> String {
    let name = match number {
        protocol::HOP_BY_HOP => "hop-by-hop",
        protocol::ICMPV4 => "icmp",
        protocol::IPV4 => "ipv4",
        protocol::TCP => "tcp",
        protocol::UDP => "udp",
        protocol::IPV6 => "ipv6",
        protocol::ROUTING => "routing",
        protocol::FRAGMENT => "fragment",
        protocol::ICMPV6 => "icmpv6",
        protocol::NO_NEXT_HEADER => "none",
        protocol::DESTINATION_OPTIONS => "destination-options",
        _ => return number.to_string(),
    };
    format!("{name}({number})")
}

pub(super) fn tcp_flags_name(bits: u8) -> String {
    const NAMES: [&str; 8] = ["FIN", "SYN", "RST", "PSH", "ACK", "URG", "ECE", "CWR"];
    let set: Vec<&str> =
        NAMES.iter().enumerate().filter(|(bit, _)| bits & (1 << bit) != 0).map(|(_, n)| *n).collect();
    if set.is_empty() { "none".into() } else { set.join("|") }
}

pub(super) fn icmp_name(version: IcmpVersion, kind: u8) -> String {
    let name = match (version, kind) {
        (IcmpVersion::V6, 1) | (IcmpVersion::V4, 3) => "destination-unreachable",
        (IcmpVersion::V6, 2) => "packet-too-big",
        (IcmpVersion::V6, 3) | (IcmpVersion::V4, 11) => "time-exceeded",
        (IcmpVersion::V6, 4) | (IcmpVersion::V4, 12) => "parameter-problem",
        (IcmpVersion::V6, 128) | (IcmpVersion::V4, 8) => "echo-request",
        (IcmpVersion::V6, 129) | (IcmpVersion::V4, 0) => "echo-reply",
        (IcmpVersion::V6, 133) => "router-solicitation",
        (IcmpVersion::V6, 134) => "router-advertisement",
        (IcmpVersion::V6, 135) => "neighbor-solicitation",
        (IcmpVersion::V6, 136) => "neighbor-advertisement",
        (IcmpVersion::V6, 143) => "multicast-listener-report",
        _ => return kind.to_string(),
    };
    format!("{name}({kind})")
}
