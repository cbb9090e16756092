//! A gateway that leaves takes its own routes with it, and nobody else's.

use std::net::IpAddr;
use std::time::Duration;

use labkit::netlink::RouteChange;
use labkit::topology::RouteKind;
use labkit::traffic::UdpFlow;
use labkit::wait::{check, eventually};
use nix::sys::signal::Signal;
use scenarios::region::{A, B, Live, Region, SOON, TENANTS};

/// Whether some next hop of this route is `via`.
fn leads_to(kind: &RouteKind, via: IpAddr) -> bool {
    matches!(kind, RouteKind::Unicast(hops) if hops.iter().any(|hop| hop.via == Some(via)))
}

/// Waits until the edge sends everything through the second gateway alone, and requires that it never stopped doing so.
fn only_the_first_ones_routes_went(live: &Live, watch: &labkit::lab::RouteWatch) {
    let second: IpAddr = live.region.gateway_uplink(2).parse().unwrap();
    for tenant in TENANTS {
        eventually("the edge has the other gateway's route alone", SOON, || {
            let hops = live.edge_hops(live.vip(tenant)).map_err(|e| e.to_string())?;
            check(hops == [second], || format!("{hops:?}"))
        })
        .unwrap();
        for event in watch.events_for(ipnet::IpNet::from(live.vip(tenant))) {
            let removed = event.change == RouteChange::Removed && leads_to(&event.route.kind, second);
            assert!(!removed, "the other gateway's route was removed: {event:?}");
        }
    }
    assert_eq!(live.status(2).unwrap()["routes"].as_array().map(Vec::len), Some(3), "two VIPs and a locator");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_gateways_routes_go_and_the_others_stay() {
    let live = Live::ready("depart-drain", Region::default()).unwrap();
    let watch = live.node("edge").unwrap().watch_routes().unwrap();
    let flow = UdpFlow::start(&live.node("client").unwrap(), live.service(A), Duration::from_millis(5), 64)
        .await
        .unwrap();
    let marker = live.gateway(1).unwrap().write_file("drain", "").unwrap();
    assert!(marker.exists());
    let process = live.gateway(1).unwrap().process("weir").unwrap();
    let ended = process.terminate(SOON).unwrap();
    assert!(ended.success(), "{ended}: {}", live.log(1));
    only_the_first_ones_routes_went(&live, &watch);
    let report = flow.stop(&live.udp_servers()).await.unwrap();
    assert_eq!((report.lost(), report.sent > 0), (0, true), "{report:?}");
    let spine = live.node("spine").unwrap();
    spine.wait_no_route(&live.region.gateway_locator(1), SOON).unwrap();
    spine.wait_route(&live.region.gateway_locator(2), 1, SOON).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_died_for_good_loses_its_routes_and_the_others_stay() {
    let live = Live::ready("depart-death", Region { restart_time: 3, ..Region::default() }).unwrap();
    let watch = live.node("edge").unwrap().watch_routes().unwrap();
    let gateway = live.gateway(1).unwrap();
    gateway.process("weir").unwrap().signal(Signal::SIGKILL).unwrap();
    only_the_first_ones_routes_went(&live, &watch);
    assert_eq!(live.edge_hops(live.vip(B)).unwrap().len(), 1);
}
