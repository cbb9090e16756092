//! Locators from objects, SIDs composed on them, and overlaps that are refused.

use std::path::Path;

use super::*;
use crate::event::ObjectSet;
use crate::model::ObjectName;
use crate::resolve::{Index, Outcome, Site};

fn rule(name: &str, vip: &str, vpc: &str, backends: &[&str]) -> String {
    let backends: Vec<_> = backends.iter().map(|b| format!("{{ address: \"{b}\", port: 443 }}")).collect();
    format!(
        "apiVersion: network.datumapis.com/v1alpha1\nkind: NetworkRule\nmetadata: {{ name: {name}, namespace: tenant }}\nspec:\n  \
         vpcRef: {vpc}\n  vpcAttachmentRef: {vpc}-east\n  vipAddresses: [\"{vip}\"]\n  protocol: tcp\n  port: 443\n  backends: [{}]\n",
        backends.join(", ")
    )
}

fn endpoint(name: &str, vpc: &str, address: &str, sid: &str) -> String {
    format!(
        "apiVersion: network.datumapis.com/v1alpha1\nkind: VPCEndpoint\nmetadata: {{ name: {name}, namespace: platform }}\nspec:\n  \
         vpcRef: {vpc}\n  vpcAttachmentRef: {vpc}-east\n  address: \"{address}\"\n  nodeName: worker1\n  sid: \"{sid}\"\n"
    )
}

fn router(name: &str, node: &str, block: &str, id: u16) -> String {
    format!(
        "apiVersion: network.datumapis.com/v1alpha1\nkind: BGPRouter\nmetadata: {{ name: {name}, namespace: platform }}\nspec:\n  \
         targetRef: {{ kind: Node, name: {node} }}\n  roles: [fabric]\n  localASN: 65010\n  routerID: 192.0.2.1\n  addressFamilies: [{{ \
         afi: ipv6, safi: unicast }}]\n  srv6Locator: \"{block}\"\n  nodeID: {id}\n"
    )
}

fn shard(name: &str, sid: &str) -> String {
    format!(
        "apiVersion: network.datumapis.com/v1alpha1\nkind: NAT66Shard\nmetadata: {{ name: {name}, namespace: platform }}\nspec:\n  \
         targetRef: {{ kind: Node, name: gw1 }}\nstatus:\n  shardSID: \"{sid}\"\n"
    )
}

fn objects(texts: &[String]) -> ObjectSet {
    let load = |text: &String| {
        let parsed = weir_api::object::parse_file(Path::new("x.yaml"), text.as_bytes());
        let object = parsed.object.unwrap_or_else(|| panic!("{:?}", parsed.problems));
        Arc::new(Loaded { origin: "x.yaml".into(), object })
    };
    ObjectSet::new(texts.iter().map(load).collect())
}

const BLOCK: &str = "2001:db8:ff01::/48";

fn index(texts: &[String]) -> Index {
    let mut index = Index::new(Site { region: "us-east".into(), block: BLOCK.parse().unwrap() });
    index.update(objects(texts));
    index
}

/// SIDs of the rule `web`'s backends, or why there are none.
fn web(index: &Index) -> (Vec<String>, Vec<String>) {
    let name = ObjectName { namespace: "tenant".into(), name: "web".into() };
    let resolution = index.resolution(&name).unwrap();
    let Outcome::Served(rule) = &resolution.outcome else { panic!("{resolution:?}") };
    let sids = rule.backends.iter().filter_map(|b| Some(b.endpoint.as_ref()?.sid.to_string())).collect();
    (sids, resolution.unresolved.iter().map(|(_, why)| why.clone()).collect())
}

fn rule_web() -> String {
    rule("web", "2001:db8:100::1", "vpc-a", &["fd00::1"])
}

fn locator(id: u16) -> Locator {
    Locator { block: BLOCK.parse().unwrap(), node_id: id }
}

#[test]
fn the_nodes_router_gives_the_locator_and_a_configuration_that_differs_is_refused() {
    let here = objects(&[router("r1", "gw1", BLOCK, 7), router("r2", "gw2", BLOCK, 8)]);
    let at = |node: &str, configured| locate(node, configured, here.iter());
    assert_eq!(at("gw1", None), Ok(locator(7)));
    assert_eq!(at("gw1", Some(locator(7))), Ok(locator(7)));
    assert_eq!(
        at("gw1", Some(locator(9))).unwrap_err(),
        "the configuration's `locator` is 2001:db8:ff01:9::/64, and BGPRouter platform/r1 of this node gives 2001:db8:ff01:7::/64; \
         leave `locator` out of the configuration"
    );
    assert_eq!(at("gw3", Some(locator(9))), Ok(locator(9)), "a node without a router");
    let none = at("gw3", None).unwrap_err();
    assert!(none.contains("no BGPRouter with targetRef gw3") && none.contains("write locator:"), "{none}");
}

#[test]
fn two_routers_that_disagree_or_share_a_place_give_nobody_a_locator() {
    let one = objects(&[router("r1", "gw1", BLOCK, 7), router("r2", "gw1", BLOCK, 8)]);
    let why = locate("gw1", None, one.iter()).unwrap_err();
    assert!(why.contains("BGPRouters platform/r1 and platform/r2 of node gw1"), "{why}");
    let shared = [router("r1", "gw1", BLOCK, 7), router("r2", "gw2", BLOCK, 7)];
    let why = locate("gw2", None, objects(&shared).iter()).unwrap_err();
    assert!(
        why.contains("platform/r2 of node gw2 and platform/r1 of node gw1 both give 2001:db8:ff01:7::/64"),
        "{why}"
    );
    let told: Vec<_> = index(&shared).between_objects().iter().map(|(_, p)| p.to_string()).collect();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told[0].starts_with("spec.nodeID: 7 is ambiguous: BGPRouters platform/r1"), "{told:?}");
}

#[test]
fn an_endpoints_sid_lies_in_its_nodes_locator_or_leads_nowhere() {
    let own = endpoint("a1", "vpc-a", "fd00::1", "2001:db8:ff01:11:e001::");
    let with = |more: &[String]| web(&index(&[&[rule_web(), own.clone()], more].concat()));
    let sid = vec!["2001:db8:ff01:11:e001::".to_string()];
    assert_eq!(with(&[]), (sid.clone(), vec![]), "no router is known");
    assert_eq!(with(&[router("r", "worker1", BLOCK, 0x11)]), (sid.clone(), vec![]));
    assert_eq!(
        with(&[router("r", "worker2", BLOCK, 0x12)]),
        (sid, vec![]),
        "another node's router, another place"
    );
    let (sids, why) = with(&[router("r", "worker1", BLOCK, 0x12)]);
    assert_eq!(
        (sids.len(), why[0].as_str()),
        (
            0,
            "SID 2001:db8:ff01:11:e001:: of VPCEndpoint platform/a1 lies outside 2001:db8:ff01:12::/64, which BGPRouter platform/r \
             gives to its node worker1"
        )
    );
    let (sids, why) = with(&[router("r", "worker2", BLOCK, 0x11)]);
    assert_eq!(
        (sids.len(), why[0].as_str()),
        (
            0,
            "SID 2001:db8:ff01:11:e001:: of VPCEndpoint platform/a1 on node worker1 overlaps 2001:db8:ff01:11::/64, the locator of \
             BGPRouter platform/r on node worker2"
        )
    );
    let (sids, why) = with(&[shard("s", "2001:db8:ff01:11:e001::")]);
    assert_eq!(
        (sids.len(), why[0].as_str()),
        (0, "SID 2001:db8:ff01:11:e001:: of VPCEndpoint platform/a1 is that of NAT66Shard platform/s too")
    );
}

#[test]
fn function_and_argument_become_a_sid_once_the_nodes_router_is_known_and_follow_it() {
    let composed = endpoint("a1", "vpc-a", "fd00::1", "::")
        .replace("  sid: \"::\"\n", "  function: End.DT46\n  argument: 5\n");
    let mut index = index(&[rule_web(), composed.clone()]);
    assert!(web(&index).1[0].contains("the locator of node worker1 is not known"));
    for id in [0x21, 0x22] {
        index.update(objects(&[rule_web(), composed.clone(), router("r", "worker1", BLOCK, id)]));
        assert_eq!(web(&index), (vec![format!("2001:db8:ff01:{id:x}:e005::")], vec![]));
    }
    // Two tenants' composed SIDs that are one are as ambiguous as written ones.
    let other = endpoint("b1", "vpc-b", "fd00::9", "2001:db8:ff01:22:e005::");
    index.update(objects(&[rule_web(), composed, router("r", "worker1", BLOCK, 0x22), other]));
    assert!(web(&index).1[0].contains("have one SID 2001:db8:ff01:22:e005:: but differ in VPC or node"));
}

#[test]
fn a_shards_sid_inside_a_routers_locator_is_refused_and_both_are_named() {
    let told = |texts: &[String]| -> Vec<String> {
        index(texts).between_objects().iter().map(|(_, p)| p.to_string()).collect()
    };
    let r = router("r", "gw1", BLOCK, 7);
    assert_eq!(
        told(&[r.clone(), shard("s", "2001:db8:ff01:9:f001::")]),
        [
            "status.shardSID: 2001:db8:ff01:9:f001:: of NAT66Shard platform/s overlaps 2001:db8:ff01::/48, the srv6Locator of BGPRouter \
             platform/r; give the egress tier SIDs of a block of its own"
        ]
    );
    assert!(told(&[r, shard("s", "2001:db8:ff02:9:f001::")]).is_empty());
    let twice = told(&[shard("s", "2001:db8:ff02::1"), shard("t", "2001:db8:ff02::1")]);
    assert_eq!(twice.len(), 1, "{twice:?}");
    assert!(twice[0].contains("NAT66Shard platform/t is that of NAT66Shard platform/s too"), "{twice:?}");
}
