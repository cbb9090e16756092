//! Equal-cost paths: two gateways decide alike, so a flow may change from one to the other.

use std::collections::BTreeSet;

use labkit::topology::RouteKind;
use labkit::wait::{check, eventually};
use scenarios::region::{A, Live, Region, SOON, TENANTS};

use super::{Traffic, digests, forwarded, forwards_more, is_vip};

#[tokio::test(flavor = "multi_thread")]
async fn the_edge_has_one_next_hop_a_gateway_and_both_gateways_hold_the_same_rings() {
    let live = Live::ready("equal", Region::default()).unwrap();
    let gateways: BTreeSet<String> = (1..=2).map(|n| live.region.gateway_uplink(n)).collect();
    for tenant in TENANTS {
        let prefix = format!("{}/128", live.vip(tenant));
        let route = live.node("edge").unwrap().wait_route(&prefix, 2, SOON).unwrap();
        let RouteKind::Unicast(hops) = &route.kind else { panic!("{route}") };
        let via: BTreeSet<String> =
            hops.iter().filter_map(|hop| hop.via).map(|address| address.to_string()).collect();
        assert_eq!(via, gateways, "next hops in the kernel");

        let paths = live.frr("edge").unwrap().bgp_paths(&prefix).unwrap();
        let from: BTreeSet<String> =
            paths.iter().filter_map(|path| path["peerId"].as_str()).map(ToOwned::to_owned).collect();
        assert_eq!(from, gateways, "paths in FRR: {paths:?}");
        let multipath = paths.iter().filter(|path| path["multipath"] == true || path["bestpath"] == true);
        assert_eq!(multipath.count(), 2, "equal-cost paths in FRR: {paths:?}");
    }
    let (one, two) = (digests(&live, 1), digests(&live, 2));
    assert_eq!(one.len(), 4, "two tenants, TCP and UDP: {one:?}");
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
    let traffic = Traffic::start(&live).await;
    for (to, from) in [(1, 2), (2, 1), (1, 2)] {
        let by_hand: Vec<String> = TENANTS
            .iter()
            .map(|t| format!("{}/128 via {} metric 1", live.vip(*t), live.region.gateway_uplink(to)))
            .collect();
        for route in &by_hand {
            edge.add_route(route).unwrap();
        }
        let (new, old) = (forwarded(&live, to), forwarded(&live, from));
        forwards_more(&live, to, new, 1000);
        let stray = forwarded(&live, from) - old;
        assert!(stray < 100, "gateway {from} still forwards: {stray} packets");
        for route in &by_hand {
            edge.del_route(route).unwrap();
        }
    }
    traffic.stop(&live).await.assert_lossless();
}
