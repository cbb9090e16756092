//! Two gateways behind equal-cost paths.

use std::collections::BTreeSet;

use labkit::traffic::Pool;
use rstest::rstest;
use scenarios::region::{FAMILIES, Ipv4Routes, Live, Region, TENANTS};

/// Clients of both families reach all pods of their tenant, and none of another, over both gateways; pods see the clients' own
/// addresses, of IPv4 too though they have no IPv4 address but the VIP. Once with IPv4 next hops in BGP, once with IPv6 ones.
#[rstest]
#[case::with_ipv4_next_hops("edge", Ipv4Routes::NextHop)]
#[case::with_ipv6_next_hops("edge-8950", Ipv4Routes::Extended)]
#[tokio::test(flavor = "multi_thread")]
async fn clients_reach_both_tenants_through_two_gateways(
    #[case] name: &str,
    #[case] ipv4_routes: Ipv4Routes,
) {
    let live = Live::ready(name, Region { ipv4_routes, ..Region::default() }).unwrap();
    let client = live.node("client").unwrap();
    for tenant in TENANTS {
        for family in FAMILIES {
            let hops: BTreeSet<String> = live
                .edge_hops(live.vip_of(tenant, family))
                .unwrap()
                .iter()
                .map(ToString::to_string)
                .collect();
            let gateways = (1..=2).map(|n| live.region.next_hop(n, family)).collect();
            assert_eq!(hops, gateways, "{family:?}");
            let pool = Pool::open(&client, live.service_of(tenant, family), 60).await.unwrap();
            let by_backend = pool.by_backend();
            assert_eq!(by_backend.len(), 3, "{family:?}: all pods serve: {by_backend:?}");
            assert!(by_backend.keys().all(|name| name.ends_with(tenant.letter)), "{by_backend:?}");
            for connection in pool.connections() {
                assert_eq!(connection.seen_as().ip().to_string(), live.region.client_of(family));
            }
        }
    }
    let pod = live.lab.node(&live.region.pod(1, TENANTS[0])).unwrap();
    let addresses = pod.run(["ip", "-4", "-o", "address", "show", "up", "scope", "global"]).unwrap();
    assert_eq!(addresses.lines().count(), 1, "the pod has the VIP and no other IPv4 address: {addresses}");
    let forwarded: Vec<u64> =
        (1..=2).map(|n| live.reasons(n).unwrap()[&weir_bpf::abi::Reason::Forwarded]).collect();
    assert!(forwarded.iter().all(|n| *n > 0), "both gateways serve: {forwarded:?}");
}
