//! Addresses: reading them, and which may be a VIP, a backend or a SID.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::problem::Problem;

/// Reads an address; an IPv4-mapped IPv6 address is the IPv4 address it stands for.
pub fn parse(text: &str) -> Option<IpAddr> {
    text.parse::<IpAddr>().ok().map(|a| a.to_canonical())
}

/// What an IPv6 address is that must not be routed to, if it is.
fn special(a: &Ipv6Addr) -> Option<&'static str> {
    if a.is_unspecified() {
        Some("is the unspecified address")
    } else if a.is_loopback() {
        Some("is the loopback address")
    } else if a.is_multicast() {
        Some("is a multicast address")
    } else if a.is_unicast_link_local() {
        Some("is a link-local address")
    } else {
        None
    }
}

/// What an IPv4 address is that must not be routed to, if it is (RFC 6890).
fn special_v4(a: Ipv4Addr) -> Option<&'static str> {
    if a.is_unspecified() {
        Some("is the unspecified address")
    } else if a.is_loopback() {
        Some("is a loopback address")
    } else if a.is_multicast() {
        Some("is a multicast address")
    } else if a.is_broadcast() {
        Some("is the broadcast address")
    } else {
        None
    }
}

/// Checks a VIP: a unicast address of either family that routers carry. An IPv4 VIP is written as IPv4.
pub(crate) fn vip(field: &str, text: &str, problems: &mut Vec<Problem>) -> Option<IpAddr> {
    let unicast = "give a unicast address that routers may carry";
    let (what, remedy) = match text.parse::<IpAddr>() {
        Err(_) => (Some("is no IP address"), "give one address, without prefix length, zone or port"),
        Ok(IpAddr::V6(a)) if a.to_ipv4_mapped().is_some() => {
            (Some("is an IPv4 address written as IPv6 (::ffff:0:0/96)"), "write it as IPv4")
        }
        Ok(IpAddr::V6(a)) => (special(&a), unicast),
        Ok(IpAddr::V4(a)) if a.is_link_local() => (Some("is a link-local address"), unicast),
        Ok(IpAddr::V4(a)) => match (special_v4(a), a.octets()[0]) {
            (None, 0) => (Some("is an address of \"this network\" (0.0.0.0/8)"), unicast),
            (None, 240..) => (Some("is a reserved address (240.0.0.0/4)"), unicast),
            (what, _) => (what, unicast),
        },
    };
    match what {
        Some(what) => {
            problems.push(Problem::error(field, text, what, remedy));
            None
        }
        None => text.parse().ok(),
    }
}

/// Checks a backend's or an endpoint's address inside a VPC.
pub(crate) fn backend(field: &str, text: &str, problems: &mut Vec<Problem>) -> Option<IpAddr> {
    let remedy = "give the backend's own unicast address inside the VPC";
    let Some(address) = parse(text) else {
        problems.push(Problem::error(field, text, "is no IP address", remedy));
        return None;
    };
    let what = match address {
        IpAddr::V6(a) => special(&a),
        IpAddr::V4(a) => special_v4(a),
    };
    match what {
        Some(what) => {
            problems.push(Problem::error(field, text, what, remedy));
            None
        }
        None => Some(address),
    }
}

/// Checks a SID: an IPv6 unicast address.
pub(crate) fn sid(field: &str, text: &str, problems: &mut Vec<Problem>) -> Option<Ipv6Addr> {
    let remedy = "give the IPv6 SID that the node's worker decapsulates";
    let why = match text.parse::<IpAddr>() {
        Err(_) => "is no IP address",
        Ok(IpAddr::V4(_)) => "is an IPv4 address",
        Ok(IpAddr::V6(a)) if a.to_ipv4_mapped().is_some() => {
            "is an IPv4 address written as IPv6 (::ffff:0:0/96)"
        }
        Ok(IpAddr::V6(a)) => match special(&a) {
            Some(what) => what,
            None => return Some(a),
        },
    };
    problems.push(Problem::error(field, text, why, remedy));
    None
}
