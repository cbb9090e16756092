//! Addresses: reading them, and which may be a VIP, a backend or a SID.

use std::net::{IpAddr, Ipv6Addr};

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

/// Checks a VIP: a global or unique local IPv6 unicast address.
pub(crate) fn vip(field: &str, text: &str, problems: &mut Vec<Problem>) -> Option<Ipv6Addr> {
    let remedy = "give an IPv6 unicast address that routers may carry";
    let mut refuse = |problem: &str, remedy: &str| {
        problems.push(Problem::error(field, text, problem, remedy));
        None
    };
    match text.parse::<IpAddr>() {
        Err(_) => refuse("is no IP address", "give one address, without prefix length, zone or port"),
        Ok(IpAddr::V4(_)) => refuse("is an IPv4 VIP, which is not served yet", "give an IPv6 address"),
        Ok(IpAddr::V6(a)) if a.to_ipv4_mapped().is_some() => {
            refuse("is an IPv4 address written as IPv6 (::ffff:0:0/96)", "give a native IPv6 address")
        }
        Ok(IpAddr::V6(a)) => match special(&a) {
            Some(what) => refuse(what, remedy),
            None => Some(a),
        },
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
        IpAddr::V4(a) if a.is_unspecified() => Some("is the unspecified address"),
        IpAddr::V4(a) if a.is_loopback() => Some("is a loopback address"),
        IpAddr::V4(a) if a.is_multicast() => Some("is a multicast address"),
        IpAddr::V4(a) if a.is_broadcast() => Some("is the broadcast address"),
        IpAddr::V4(_) => None,
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
