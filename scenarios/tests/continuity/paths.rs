//! Equal-cost paths: two gateways decide alike, so a flow may change from one to the other.

use std::collections::BTreeSet;

use labkit::topology::RouteKind;
use labkit::wait::{check, eventually};
use scenarios::region::{A, Live, Region, SOON};

use super::{Traffic, digests, forwarded, forwards_more, is_vip, paths};

#[tokio::test(flavor = "multi_thread")]
async fn the_edge_has_one_next_hop_a_gateway_and_both_gateways_hold_the_same_rings() {
    let live = Live::ready("equal", Region::default()).unwrap();
    let gateways: BTreeSet<String> = (1..=2).map(|n| live.region.gateway_uplink(n)).collect();
    for (tenant, family, _) in live.services() {
        let prefix = live.region.vip_route(tenant, family);
        let route = live.node("edge").unwrap().wait_route(&prefix, 2, SOON).unwrap();
        let RouteKind::Unicast(hops) = &route.kind else { panic!("{route}") };
        let via: BTreeSet<String> =
            hops.iter().filter_map(|hop| hop.via).map(|address| address.to_string()).collect();
        let next_hops: BTreeSet<String> = (1..=2).map(|n| live.region.next_hop(n, family)).collect();
        assert_eq!(via, next_hops, "next hops in the kernel");

        let paths = paths(&live, tenant, family);
        assert_eq!(paths.keys().cloned().collect::<BTreeSet<_>>(), gateways, "paths in FRR: {paths:?}");
        assert!(paths.values().all(|path| path["multipath"] == true), "equal-cost paths in FRR: {paths:?}");
    }
    let (one, two) = (digests(&live, 1), digests(&live, 2));
    assert_eq!(one.len(), 8, "two tenants, two families, TCP and UDP: {one:?}");
    assert!(one.keys().all(|key| is_vip(&live, key.address)));
    assert_eq!(one, two, "digests of the rings");
    assert!(one.values().all(|digest| *digest != [0; 16]));

    // A rule that only one gateway has read yet shows in the digest.
    let workers = scenarios::region::rule(&live.region, A, "web-tcp", "tcp", &[1, 2]);
    live.objects(1).unwrap().put("rule-a-tcp.yaml", &workers).unwrap();
    eventually("digests differ", SOON, || check(digests(&live, 1) != two, || "still equal".into())).unwrap();
    live.objects(2).unwrap().put("rule-a-tcp.yaml", &workers).unwrap();
    eventually("digests are equal again", SOON, || {
        check(digests(&live, 1) == digests(&live, 2), || "still different".into())
    })
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn flows_moved_to_the_other_gateway_and_back_lose_nothing_and_keep_their_backend() {
    let live = Live::ready("moved", Region::default()).unwrap();
    let edge = live.node("edge").unwrap();
    // In a table of their own: FRR would take its own route back for one that it sees in the main table.
    for (tenant, family, _) in live.services() {
        let vip = live.region.vip_route(tenant, family);
        let rule = format!("to {vip} table 77 priority 77").parse().unwrap();
        edge.netlink(async |netlink| netlink.add_rule(&rule).await).unwrap();
    }
    let traffic = Traffic::start(&live).await;
    for (to, from) in [(1, 2), (2, 1), (1, 2)] {
        for (tenant, family, _) in live.services() {
            let vip = live.region.vip_route(tenant, family);
            let route = format!("{vip} via {} table 77", live.region.next_hop(to, family));
            let route = route.parse().unwrap();
            edge.netlink(async |netlink| netlink.replace_route(&route).await).unwrap();
        }
        let (new, old) = (forwarded(&live, to), forwarded(&live, from));
        forwards_more(&live, to, new, 1000);
        let stray = forwarded(&live, from) - old;
        assert!(stray < 100, "gateway {from} still forwards: {stray} packets");
    }
    traffic.stop(&live).await.assert_lossless(&live);
}
