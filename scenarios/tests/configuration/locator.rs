//! The node's locator comes from its BGPRouter object; SIDs that overlap another node's are refused.

use std::net::Ipv6Addr;

use labkit::expect::expect;
use labkit::packet::matcher;
use labkit::wait::{check, eventually};
use scenarios::region::{A, Live, PORT, Region, SOON, endpoint};

/// The router object of a node.
fn router(live: &Live, node: &str, id: u16) -> String {
    format!(
        "apiVersion: network.datumapis.com/v1alpha1\nkind: BGPRouter\nmetadata:\n  namespace: platform\n  name: {node}\nspec:\n  \
         targetRef: {{ kind: Node, name: {node} }}\n  roles: [fabric]\n  localASN: 65011\n  routerID: 192.0.2.{id}\n  \
         addressFamilies: [{{ afi: ipv6, safi: unicast }}]\n  srv6Locator: \"{}\"\n  nodeID: {id}\n",
        live.region.block()
    )
}

fn without_locator(live: &Live) {
    let given = format!("locator: {{ prefix: \"{}\", nodeID: 1 }}\n", live.region.block());
    live.edit_config(1, &given, "").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_outer_source_is_that_of_the_nodes_router_object_and_nothing_else_is_believed() {
    let live = Live::up("router-object", Region { gateways: 1, ..Region::default() }).unwrap();
    live.prepare_gateway(1).unwrap();
    without_locator(&live);
    // Neither the configuration nor an object says where this node is.
    let process = live.run_gateway(1, None).unwrap();
    assert!(!process.wait(SOON).unwrap().success());
    let log = process.log_tail(5);
    assert!(log.contains("no BGPRouter with targetRef gw1"), "{log}");

    let objects = live.objects(1).unwrap();
    objects.put("router.yaml", &router(&live, "gw1", 1)).unwrap();
    live.run_gateway(1, None).unwrap();
    live.wait_ready().unwrap();
    live.node("spine").unwrap().wait_route(&live.region.gateway_locator(1), 1, SOON).unwrap();
    let (client, vip): (Ipv6Addr, Ipv6Addr) =
        (live.region.client().parse().unwrap(), live.region.vip(A).parse().unwrap());
    let edge = live.sender("edge", "eth1").unwrap();
    let wire = live.capture("spine", "eth1").unwrap();
    edge.send(&edge.frame().ipv6(client, vip).udp(40_200, PORT).payload(b"where from")).unwrap();
    let ours = matcher::inner_dst(vip).and(matcher::udp("the probe", |udp| udp.src == 40_200));
    let frame = expect(&wire).within(SOON).packet(ours).unwrap();
    let locator: ipnet::Ipv6Net = live.region.gateway_locator(1).parse().unwrap();
    let source = frame.layers().ipv6().unwrap().src;
    assert!(locator.contains(&source), "{source} is not in {locator}");

    // Another worker's place is no place for this worker's backend; the rest serves, and both objects are named.
    objects.put("router-w2.yaml", &router(&live, "w2", 0x12)).unwrap();
    let stray = endpoint(&live.region, 1, A).replace(&live.region.sid(1, A), &live.region.sid(2, A));
    objects.put("vpce-a-1.yaml", &stray).unwrap();
    let why =
        live.wait_condition(1, "tenant-a/web-tcp", "BackendsResolved", "False", "EndpointMissing").unwrap();
    assert!(
        why.contains("of VPCEndpoint platform/a-w1 on node w1 overlaps")
            && why.contains("BGPRouter platform/w2"),
        "{why}"
    );
    live.wait_condition(1, "tenant-a/web-tcp", "Loaded", "True", "Loaded").unwrap();

    // A router object that moves the node is told of, and used after a restart.
    objects.put("router.yaml", &router(&live, "gw1", 9)).unwrap();
    eventually("the gateway says that its locator has changed", SOON, || {
        let reasons = live.status(1).map_err(|e| e.to_string())?["reasons"].to_string();
        let said = reasons.contains("this node's BGPRouter gives 2001:db8:ff01:9::/64");
        check(said && reasons.contains("restart the gateway"), || reasons)
    })
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_configuration_that_differs_from_the_nodes_router_object_does_not_start() {
    let live = Live::up("router-differs", Region { gateways: 1, ..Region::default() }).unwrap();
    live.prepare_gateway(1).unwrap();
    live.objects(1).unwrap().put("router.yaml", &router(&live, "gw1", 9)).unwrap();
    let process = live.run_gateway(1, None).unwrap();
    assert!(!process.wait(SOON).unwrap().success());
    let log = process.log_tail(5);
    assert!(log.contains("the configuration's `locator` is 2001:db8:ff01:1::/64"), "{log}");
    assert!(log.contains("BGPRouter platform/gw1 of this node gives 2001:db8:ff01:9::/64"), "{log}");
    let output = live.gateway(1).unwrap().exec([
        &scenarios::region::weir_binary(None).unwrap().display().to_string(),
        "check",
        "--offline",
        "--config",
        "weir.yaml",
    ]);
    let output = format!("{output:?}");
    assert!(output.contains("leave `locator` out"), "{output}");
}
