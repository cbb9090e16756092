//! Every rule that one `BGPRouter` or `NAT66Shard` must hold, all broken ones at once.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::Ipv6Net;

use crate::address;
use crate::bgp_router::{Afi, BGPRouter, BGPRouterSpec, Safi, TargetRef};
use crate::checked::{CheckedRouter, CheckedShard};
use crate::names;
use crate::nat66_shard::NAT66Shard;
use crate::object::identity;
use crate::problem::{Problem, refuses};
use crate::sid;

/// Checks a router. The router is `None` exactly when a problem is an error.
pub fn check(router: &BGPRouter) -> (Option<CheckedRouter>, Vec<Problem>) {
    let mut problems = Vec::new();
    let spec = &router.spec;
    names::metadata(&router.metadata, &mut problems);
    let node = target(&spec.target_ref, &mut problems);
    if spec.roles.is_empty() {
        let remedy = "give fabric, tenant or transit";
        problems.push(Problem::error("spec.roles", "", "is empty", remedy));
    }
    if u32::try_from(spec.local_asn).ok().is_none_or(|asn| asn == 0) {
        let remedy = "give a number from 1 to 4294967295";
        problems.push(Problem::error("spec.localASN", spec.local_asn, "is no AS number", remedy));
    }
    if spec.router_id.parse::<Ipv4Addr>().ok().is_none_or(|id| id.is_unspecified()) {
        let remedy = "give a dotted quad of the node's own, such as 192.0.2.11";
        problems.push(Problem::error("spec.routerID", &spec.router_id, "is no router id", remedy));
    }
    families(spec, &mut problems);
    if let Some(port) = spec.listen_port.filter(|port| !(1..=65_535).contains(port)) {
        let remedy = "give a port from 1 to 65535, or leave it out";
        problems.push(Problem::error("spec.listenPort", port, "is no port", remedy));
    }
    let locator = locator(spec, &mut problems);
    let checked = (!refuses(&problems)).then(|| CheckedRouter {
        id: identity(&router.metadata),
        node: node.into(),
        locator,
    });
    (checked, problems)
}

/// Checks a shard. The shard is `None` exactly when a problem is an error.
pub fn check_shard(shard: &NAT66Shard) -> (Option<CheckedShard>, Vec<Problem>) {
    let mut problems = Vec::new();
    names::metadata(&shard.metadata, &mut problems);
    let node: Arc<str> = target(&shard.spec.target_ref, &mut problems).into();
    let status = shard.status.as_ref();
    let sid = status
        .and_then(|status| status.shard_sid.as_deref())
        .and_then(|text| address::sid("status.shardSID", text, &mut problems));
    if let Some(text) = status.and_then(|status| status.shard_address.as_deref())
        && address::parse(text).is_none()
    {
        let remedy = "give the shard's public address";
        problems.push(Problem::error("status.shardAddress", text, "is no IP address", remedy));
    }
    let checked = (!refuses(&problems)).then(|| CheckedShard { id: identity(&shard.metadata), node, sid });
    (checked, problems)
}

fn target<'a>(target: &'a TargetRef, problems: &mut Vec<Problem>) -> &'a str {
    if target.kind != "Node" {
        problems.push(Problem::error("spec.targetRef.kind", &target.kind, "is not Node", "write Node"));
    }
    if let Err(why) = names::subdomain(&target.name) {
        problems.push(Problem::error("spec.targetRef.name", &target.name, why, "name the node"));
    }
    &target.name
}

fn families(spec: &BGPRouterSpec, problems: &mut Vec<Problem>) {
    if spec.address_families.is_empty() {
        let remedy = "give at least one, such as { afi: ipv6, safi: unicast }";
        problems.push(Problem::error("spec.addressFamilies", "", "is empty", remedy));
    }
    for (i, family) in spec.address_families.iter().enumerate() {
        let (safi, wanted) = match (family.afi, family.safi) {
            (Afi::L2vpn, Safi::Unicast) => ("unicast", "evpn, which l2vpn goes with"),
            (Afi::Ipv4 | Afi::Ipv6, Safi::Evpn) => ("evpn", "unicast, which ipv4 and ipv6 go with"),
            _ => continue,
        };
        let field = format!("spec.addressFamilies[{i}].safi");
        problems.push(Problem::error(field, safi, "does not go with the afi", format!("write {wanted}")));
    }
}

fn locator(spec: &BGPRouterSpec, problems: &mut Vec<Problem>) -> Option<(Ipv6Net, u16)> {
    match (&spec.srv6_locator, spec.node_id) {
        (None, None) => None,
        (Some(_), None) => {
            let remedy = "give the node's number, from 1 to 57343 (0xdfff)";
            problems.push(Problem::error("spec.nodeID", "", "is missing beside srv6Locator", remedy));
            None
        }
        (None, Some(_)) => {
            let remedy = "give the region's SRv6 block, a /48";
            problems.push(Problem::error("spec.srv6Locator", "", "is missing beside nodeID", remedy));
            None
        }
        (Some(text), Some(number)) => {
            let block = match block(text) {
                Ok(block) => Some(block),
                Err((why, remedy)) => {
                    problems.push(Problem::error("spec.srv6Locator", text, why, remedy));
                    None
                }
            };
            let id = u16::try_from(number).ok().filter(|id| sid::NODE_IDS.contains(id));
            if id.is_none() {
                let remedy = "give a number from 1 to 57343 (0xdfff)";
                problems.push(Problem::error("spec.nodeID", number, "is no node id", remedy));
            }
            Some((block?, id?))
        }
    }
}

/// Reads an SRv6 block: what is wrong with it, and the remedy, when it is none.
pub fn block(text: &str) -> Result<Ipv6Net, (String, String)> {
    let remedy = || "give the region's SRv6 block, a /48 such as 2001:db8:ff01::/48".to_string();
    let net: Ipv6Net = text.parse().map_err(|_| ("is no IPv6 prefix".to_string(), remedy()))?;
    let first: Ipv6Addr = net.network();
    if net.prefix_len() != 48 {
        Err((format!("has length {}, and the SID layout needs 48", net.prefix_len()), remedy()))
    } else if net.addr() != first {
        Err(("has bits beyond its length".into(), format!("write {}", net.trunc())))
    } else if first.is_multicast() || first.is_unicast_link_local() || first.segments()[0] == 0 {
        Err(("is no block that routers carry".into(), remedy()))
    } else {
        Ok(net)
    }
}
