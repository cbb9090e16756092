//! Reads the kernel's route, neighbour and link messages as changes of the mirror, and writes neighbour requests.

use std::net::Ipv6Addr;

use ipnet::Ipv6Net;
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use netlink_packet_route::neighbour::{
    NeighbourAddress, NeighbourAttribute, NeighbourExtFlags, NeighbourMessage, NeighbourState,
};
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteFlags, RouteHeader, RouteMessage, RouteMetric, RouteType,
};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rtnetlink::packet_core::NLM_F_REPLACE;

use super::fib::{FibEvent, Hop, Insert, Link, Neighbour, Route, RouteKind, Upkeep};

/// The change that a message tells; `None` for what is not mirrored (other tables and families, cached routes).
/// `flags` are those of its netlink header.
pub(super) fn event(message: RouteNetlinkMessage, flags: u16) -> Option<FibEvent> {
    match message {
        RouteNetlinkMessage::NewRoute(m) => {
            let insert = if flags & NLM_F_REPLACE == 0 { Insert::Add } else { Insert::Replace };
            route(m).map(|(prefix, route)| FibEvent::Route(prefix, route, insert))
        }
        RouteNetlinkMessage::DelRoute(m) => {
            route(m).map(|(prefix, route)| FibEvent::RouteGone(prefix, route))
        }
        RouteNetlinkMessage::NewNeighbour(m) => neighbour(m).map(|(i, a, n)| FibEvent::Neighbour(i, a, n)),
        RouteNetlinkMessage::DelNeighbour(m) => neighbour(m).map(|(i, a, _)| FibEvent::NeighbourGone(i, a)),
        RouteNetlinkMessage::NewLink(m) if m.header.interface_family == AddressFamily::Unspec => {
            let ifindex = m.header.index;
            Some(FibEvent::Link(ifindex, link(m)))
        }
        RouteNetlinkMessage::DelLink(m) if m.header.interface_family == AddressFamily::Unspec => {
            Some(FibEvent::LinkGone(m.header.index))
        }
        _ => None,
    }
}

fn route(message: RouteMessage) -> Option<(Ipv6Net, Route)> {
    let header = &message.header;
    let mut table = u32::from(header.table);
    let mut destination = Ipv6Addr::UNSPECIFIED;
    let mut route = Route { metric: 0, kind: RouteKind::Reject };
    let mut hops = Vec::new();
    let mut single = Hop { via: None, oif: 0, weight: 1, mtu: None };
    let mut encapsulates = false;
    if header.address_family != AddressFamily::Inet6
        || header.source_prefix_length != 0
        || header.flags.contains(RouteFlags::Cloned)
    {
        return None;
    }
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Table(n) => table = *n,
            RouteAttribute::Destination(RouteAddress::Inet6(a)) => destination = *a,
            RouteAttribute::Priority(n) => route.metric = *n,
            RouteAttribute::Oif(n) => single.oif = *n,
            RouteAttribute::Gateway(RouteAddress::Inet6(a)) => single.via = Some(*a),
            RouteAttribute::EncapType(_) | RouteAttribute::Encap(_) => encapsulates = true,
            RouteAttribute::Metrics(metrics) => {
                single.mtu =
                    metrics.iter().find_map(|m| if let RouteMetric::Mtu(n) = m { Some(*n) } else { None });
            }
            RouteAttribute::MultiPath(paths) => {
                for path in paths {
                    let mut hop = Hop {
                        via: None,
                        oif: path.interface_index,
                        weight: u16::from(path.hops) + 1,
                        mtu: None,
                    };
                    for attribute in &path.attributes {
                        match attribute {
                            RouteAttribute::Gateway(RouteAddress::Inet6(a)) => hop.via = Some(*a),
                            RouteAttribute::EncapType(_) | RouteAttribute::Encap(_) => encapsulates = true,
                            _ => {}
                        }
                    }
                    hops.push(hop);
                }
            }
            _ => {}
        }
    }
    if table != u32::from(RouteHeader::RT_TABLE_MAIN) {
        return None;
    }
    for hop in &mut hops {
        hop.mtu = single.mtu;
    }
    if hops.is_empty() && single.oif != 0 {
        hops.push(single);
    }
    route.kind = match header.kind {
        RouteType::Unicast if encapsulates || hops.is_empty() => RouteKind::Unsupported,
        RouteType::Unicast => RouteKind::Unicast(hops),
        RouteType::Unreachable | RouteType::BlackHole | RouteType::Prohibit | RouteType::Throw => {
            RouteKind::Reject
        }
        _ => return None,
    };
    Some((Ipv6Net::new(destination, header.destination_prefix_length).ok()?, route))
}

fn neighbour(message: NeighbourMessage) -> Option<(u32, Ipv6Addr, Neighbour)> {
    if message.header.family != AddressFamily::Inet6 {
        return None;
    }
    let (mut address, mut mac, mut managed) = (None, None, false);
    for attribute in &message.attributes {
        match attribute {
            NeighbourAttribute::Destination(NeighbourAddress::Inet6(a)) => address = Some(*a),
            NeighbourAttribute::LinkLayerAddress(bytes) => mac = <[u8; 6]>::try_from(bytes.as_slice()).ok(),
            NeighbourAttribute::ExtFlags(flags) => managed = flags.contains(NeighbourExtFlags::Managed),
            _ => {}
        }
    }
    // The kernel keeps the last MAC of an entry that failed: it must not be used.
    let valid = matches!(
        message.header.state,
        NeighbourState::Reachable
            | NeighbourState::Stale
            | NeighbourState::Delay
            | NeighbourState::Probe
            | NeighbourState::Permanent
            | NeighbourState::Noarp
    );
    let upkeep = match message.header.state {
        NeighbourState::Permanent | NeighbourState::Noarp => Upkeep::Permanent,
        _ if managed => Upkeep::Managed,
        _ => Upkeep::None,
    };
    let probing = matches!(
        message.header.state,
        NeighbourState::None | NeighbourState::Incomplete | NeighbourState::Probe
    );
    Some((message.header.ifindex, address?, Neighbour { mac: mac.filter(|_| valid), probing, upkeep }))
}

fn link(message: LinkMessage) -> Link {
    let up = LinkFlags::Up | LinkFlags::LowerUp;
    let mut link = Link { name: String::new(), mac: None, mtu: 0, up: message.header.flags.contains(up) };
    for attribute in message.attributes {
        match attribute {
            LinkAttribute::IfName(name) => link.name = name,
            LinkAttribute::Address(bytes) if !message.header.flags.contains(LinkFlags::Loopback) => {
                link.mac = <[u8; 6]>::try_from(bytes.as_slice()).ok();
            }
            LinkAttribute::Mtu(mtu) => link.mtu = mtu,
            _ => {}
        }
    }
    link
}

#[cfg(test)]
mod tests {
    use super::*;

    fn neighbour(state: NeighbourState, more: Option<NeighbourAttribute>) -> FibEvent {
        let mut message = NeighbourMessage::default();
        message.header.family = AddressFamily::Inet6;
        message.header.ifindex = 4;
        message.header.state = state;
        message.attributes = vec![
            NeighbourAttribute::Destination(NeighbourAddress::Inet6("fe80::1".parse().unwrap())),
            NeighbourAttribute::LinkLayerAddress(vec![2, 0, 0, 0, 0, 1]),
        ];
        message.attributes.extend(more);
        event(RouteNetlinkMessage::NewNeighbour(message), 0).unwrap()
    }

    fn told(mac: Option<[u8; 6]>, probing: bool, upkeep: Upkeep) -> FibEvent {
        FibEvent::Neighbour(4, "fe80::1".parse().unwrap(), Neighbour { mac, probing, upkeep })
    }

    #[test]
    fn the_mac_of_a_failed_neighbour_is_not_used() {
        let mac = Some([2, 0, 0, 0, 0, 1]);
        for state in [NeighbourState::Failed, NeighbourState::Incomplete, NeighbourState::None] {
            let probing = state != NeighbourState::Failed;
            assert_eq!(neighbour(state, None), told(None, probing, Upkeep::None), "{state:?}");
        }
        for state in
            [NeighbourState::Reachable, NeighbourState::Stale, NeighbourState::Delay, NeighbourState::Probe]
        {
            let probing = state == NeighbourState::Probe;
            assert_eq!(neighbour(state, None), told(mac, probing, Upkeep::None), "{state:?}");
        }
        for state in [NeighbourState::Permanent, NeighbourState::Noarp] {
            assert_eq!(neighbour(state, None), told(mac, false, Upkeep::Permanent), "{state:?}");
        }
        let managed = NeighbourAttribute::ExtFlags(NeighbourExtFlags::Managed);
        assert_eq!(neighbour(NeighbourState::Stale, Some(managed)), told(mac, false, Upkeep::Managed));
    }

    fn unicast(table: u8) -> RouteMessage {
        let mut message = RouteMessage::default();
        message.header.address_family = AddressFamily::Inet6;
        message.header.table = table;
        message.header.kind = RouteType::Unicast;
        message.header.destination_prefix_length = 32;
        message.attributes = vec![
            RouteAttribute::Destination(RouteAddress::Inet6("2001:db8::".parse().unwrap())),
            RouteAttribute::Oif(3),
            RouteAttribute::Gateway(RouteAddress::Inet6("fe80::1".parse().unwrap())),
        ];
        message
    }

    #[test]
    fn only_whole_routes_of_the_main_table_are_mirrored() {
        let tell = |message| event(RouteNetlinkMessage::NewRoute(message), 0);
        assert!(tell(unicast(RouteHeader::RT_TABLE_MAIN)).is_some());
        let local = 255;
        assert_eq!(tell(unicast(local)), None);
        let mut high = unicast(RouteHeader::RT_TABLE_MAIN);
        high.attributes.push(RouteAttribute::Table(1000));
        assert_eq!(tell(high), None);
        let mut cached = unicast(RouteHeader::RT_TABLE_MAIN);
        cached.header.flags = RouteFlags::Cloned;
        assert_eq!(tell(cached), None);
        let mut by_source = unicast(RouteHeader::RT_TABLE_MAIN);
        by_source.header.source_prefix_length = 64;
        assert_eq!(tell(by_source), None);
        let mut v4 = unicast(RouteHeader::RT_TABLE_MAIN);
        v4.header.address_family = AddressFamily::Inet;
        assert_eq!(tell(v4), None);
    }
}
