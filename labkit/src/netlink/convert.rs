//! Routes and rules to netlink messages and back.

use std::net::IpAddr;

use ipnet::IpNet;
use netlink_packet_route::AddressFamily;
use netlink_packet_route::route::{
    RouteAddress, RouteAttribute, RouteHeader, RouteLwEnCapType, RouteLwTunnelEncap, RouteMessage,
    RouteNextHop, RouteProtocol, RouteScope, RouteSeg6IpTunnel, RouteSeg6LocalTunnel, RouteType, RouteVia,
    Seg6Header, Seg6LocalAction, Seg6Mode as KernelSeg6Mode,
};
use netlink_packet_route::rule::{RuleAction, RuleAttribute, RuleMessage};
use nix::net::if_::if_indextoname;

use crate::error::Result;
use crate::topology::{Encap, NextHop, Route, RouteKind, Rule, Seg6Local, Seg6Mode};

/// `SEG6_IPTUN_MODE_ENCAP_RED` (`include/uapi/linux/seg6_iptunnel.h`).
const MODE_ENCAP_RED: u32 = 3;

fn family(net: &IpNet) -> AddressFamily {
    match net {
        IpNet::V4(_) => AddressFamily::Inet,
        IpNet::V6(_) => AddressFamily::Inet6,
    }
}

/// The message that adds, replaces or deletes a route.
pub(super) fn route_message(route: &Route, index: impl Fn(&str) -> Result<u32>) -> Result<RouteMessage> {
    let mut message = RouteMessage::default();
    message.header.address_family = family(&route.to);
    message.header.destination_prefix_length = route.to.prefix_len();
    message.header.protocol = RouteProtocol::Static;
    message.header.scope = RouteScope::Universe;
    message.header.kind = match route.kind {
        RouteKind::Unicast(_) => RouteType::Unicast,
        RouteKind::Local(_) => RouteType::Local,
        RouteKind::Unreachable => RouteType::Unreachable,
        RouteKind::Blackhole => RouteType::BlackHole,
    };
    let attributes = &mut message.attributes;
    attributes.push(RouteAttribute::Destination(route.to.addr().into()));
    attributes.push(RouteAttribute::Table(route.table.unwrap_or(u32::from(RouteHeader::RT_TABLE_MAIN))));
    if let Some(metric) = route.metric {
        attributes.push(RouteAttribute::Priority(metric));
    }
    if let Some(src) = route.src {
        attributes.push(RouteAttribute::PrefSource(src.into()));
    }
    match &route.kind {
        RouteKind::Unicast(hops) => match hops.as_slice() {
            [hop] => {
                attributes.extend(hop_attributes(hop, route));
                if let Some(dev) = &hop.dev {
                    attributes.push(RouteAttribute::Oif(index(dev)?));
                }
                // The kernel wants IPv4 routes without a gateway to have link scope.
                if hop.via.is_none() && matches!(route.to, IpNet::V4(_)) && hop.encap.is_none() {
                    message.header.scope = RouteScope::Link;
                }
            }
            hops => {
                let mut list = Vec::with_capacity(hops.len());
                for hop in hops {
                    let mut next_hop = RouteNextHop::default();
                    // The kernel counts weights from 0.
                    next_hop.hops = hop.weight.saturating_sub(1);
                    if let Some(dev) = &hop.dev {
                        next_hop.interface_index = index(dev)?;
                    }
                    next_hop.attributes = hop_attributes(hop, route);
                    list.push(next_hop);
                }
                attributes.push(RouteAttribute::MultiPath(list));
            }
        },
        RouteKind::Local(dev) => {
            attributes.push(RouteAttribute::Oif(index(dev)?));
            message.header.scope = RouteScope::Host;
        }
        RouteKind::Unreachable | RouteKind::Blackhole => {}
    }
    Ok(message)
}

fn hop_attributes(hop: &NextHop, route: &Route) -> Vec<RouteAttribute> {
    let mut attributes = Vec::new();
    match (hop.via, &route.to) {
        (Some(IpAddr::V6(via)), IpNet::V4(_)) => attributes.push(RouteAttribute::Via(RouteVia::Inet6(via))),
        (Some(via), _) => attributes.push(RouteAttribute::Gateway(via.into())),
        (None, _) => {}
    }
    match &hop.encap {
        Some(Encap::Seg6 { mode, segments }) => {
            let mut header = Seg6Header::default();
            header.mode = match mode {
                Seg6Mode::Encap => KernelSeg6Mode::Encap,
                Seg6Mode::EncapRed => KernelSeg6Mode::Other(MODE_ENCAP_RED),
            };
            header.segments.clone_from(segments);
            attributes.push(RouteAttribute::EncapType(RouteLwEnCapType::Seg6));
            let tunnel = RouteLwTunnelEncap::Seg6(RouteSeg6IpTunnel::Seg6(header));
            attributes.push(RouteAttribute::Encap(vec![tunnel]));
        }
        Some(Encap::Seg6Local(action)) => {
            let tunnel = match action {
                Seg6Local::End => vec![RouteSeg6LocalTunnel::Action(Seg6LocalAction::End)],
                Seg6Local::EndDt6 { table } => vec![
                    RouteSeg6LocalTunnel::Action(Seg6LocalAction::EndDt6),
                    RouteSeg6LocalTunnel::Table(*table),
                ],
                Seg6Local::EndDx6 { nh6 } => vec![
                    RouteSeg6LocalTunnel::Action(Seg6LocalAction::EndDx6),
                    RouteSeg6LocalTunnel::Nh6(*nh6),
                ],
                Seg6Local::EndDx4 { nh4 } => vec![
                    RouteSeg6LocalTunnel::Action(Seg6LocalAction::EndDx4),
                    RouteSeg6LocalTunnel::Nh4(*nh4),
                ],
            };
            attributes.push(RouteAttribute::EncapType(RouteLwEnCapType::Seg6Local));
            attributes
                .push(RouteAttribute::Encap(tunnel.into_iter().map(RouteLwTunnelEncap::Seg6Local).collect()));
        }
        None => {}
    }
    attributes
}

/// Dump requests, one a family.
pub(super) fn route_queries() -> [RouteMessage; 2] {
    [AddressFamily::Inet6, AddressFamily::Inet].map(|family| {
        let mut message = RouteMessage::default();
        message.header.address_family = family;
        message
    })
}

/// The route a dump message tells of, when it is in `table` and of a kind that [`Route`] knows.
pub(super) fn route_from_message(message: &RouteMessage, table: u32) -> Option<Route> {
    let mut in_table = u32::from(message.header.table);
    let (mut to, mut metric, mut src) = (None, None, None);
    let mut single = NextHop::default();
    let mut hops = Vec::new();
    for attribute in &message.attributes {
        match attribute {
            RouteAttribute::Table(table) => in_table = *table,
            RouteAttribute::Destination(address) => to = ip(address),
            RouteAttribute::Priority(priority) => metric = Some(*priority),
            RouteAttribute::PrefSource(address) => src = ip(address),
            RouteAttribute::MultiPath(list) => {
                for next_hop in list {
                    let mut hop = NextHop { weight: next_hop.hops.saturating_add(1), ..NextHop::default() };
                    hop.dev = interface(next_hop.interface_index);
                    next_hop.attributes.iter().for_each(|a| hop_from(a, &mut hop));
                    hops.push(hop);
                }
            }
            other => hop_from(other, &mut single),
        }
    }
    if in_table != table {
        return None;
    }
    if hops.is_empty() {
        hops.push(single);
    }
    let kind = match message.header.kind {
        RouteType::Unicast => RouteKind::Unicast(hops),
        RouteType::Unreachable => RouteKind::Unreachable,
        RouteType::BlackHole => RouteKind::Blackhole,
        _ => return None,
    };
    let zero = || match message.header.address_family {
        AddressFamily::Inet => IpAddr::from([0; 4]),
        _ => IpAddr::from([0; 16]),
    };
    let to = IpNet::new(to.unwrap_or_else(zero), message.header.destination_prefix_length).ok()?;
    let table = (table != u32::from(RouteHeader::RT_TABLE_MAIN)).then_some(table);
    Some(Route { to, kind, table, metric, src })
}

/// The address that a local route delivers to this host.
pub(super) fn local_address(message: &RouteMessage) -> Option<IpAddr> {
    if message.header.kind != RouteType::Local {
        return None;
    }
    message.attributes.iter().find_map(|attribute| match attribute {
        RouteAttribute::Destination(address) => ip(address),
        _ => None,
    })
}

fn hop_from(attribute: &RouteAttribute, hop: &mut NextHop) {
    match attribute {
        RouteAttribute::Gateway(address) => hop.via = ip(address),
        RouteAttribute::Via(RouteVia::Inet6(address)) => hop.via = Some((*address).into()),
        RouteAttribute::Oif(index) => hop.dev = interface(*index),
        _ => {}
    }
}

fn interface(index: u32) -> Option<String> {
    if_indextoname(index).ok()?.into_string().ok()
}

fn ip(address: &RouteAddress) -> Option<IpAddr> {
    match address {
        RouteAddress::Inet(address) => Some((*address).into()),
        RouteAddress::Inet6(address) => Some((*address).into()),
        _ => None,
    }
}

/// The message that adds a rule.
pub(super) fn rule_message(rule: &Rule) -> RuleMessage {
    let mut message = RuleMessage::default();
    message.header.family = if rule.ipv4 { AddressFamily::Inet } else { AddressFamily::Inet6 };
    message.header.action = RuleAction::ToTable;
    let attributes = &mut message.attributes;
    attributes.push(RuleAttribute::Table(rule.table));
    if let Some(from) = rule.from {
        message.header.src_len = from.prefix_len();
        attributes.push(RuleAttribute::Source(from.addr()));
    }
    if let Some(to) = rule.to {
        message.header.dst_len = to.prefix_len();
        attributes.push(RuleAttribute::Destination(to.addr()));
    }
    if let Some(iif) = &rule.iif {
        attributes.push(RuleAttribute::Iifname(iif.clone()));
    }
    if let Some(fwmark) = rule.fwmark {
        attributes.push(RuleAttribute::FwMark(fwmark));
    }
    if let Some(priority) = rule.priority {
        attributes.push(RuleAttribute::Priority(priority));
    }
    message
}
