//! A gateway that leaves takes its own routes with it, and nobody else's.

use std::net::IpAddr;
use std::time::Duration;

use labkit::lab::RouteWatch;
use labkit::netlink::RouteChange;
use labkit::topology::RouteKind;
use labkit::traffic::UdpFlow;
use labkit::wait::{check, eventually};
use nix::sys::signal::Signal;
use scenarios::region::{B, Live, Region, SOON};

/// Whether some next hop of this route is `via`.
fn leads_to(kind: &RouteKind, via: IpAddr) -> bool {
    matches!(kind, RouteKind::Unicast(hops) if hops.iter().any(|hop| hop.via == Some(via)))
}

/// When the edge's BGP last heard of each VIP from the second gateway: seconds since 1970, of which FRR shows one more or less
/// from look to look.
fn heard(live: &Live) -> Vec<i64> {
    let second = live.region.gateway_uplink(2);
    let edge = live.frr("edge").unwrap();
    let path = |(tenant, family, _)| {
        let paths = edge.bgp_paths(&live.region.vip_route(tenant, family)).unwrap();
        let path = paths.iter().find(|path| path["peer"]["peerId"] == second.as_str());
        let path = path.unwrap_or_else(|| panic!("no path from {second}: {paths:?}"));
        path["lastUpdate"]["epoch"].as_i64().unwrap()
    };
    live.services().into_iter().map(path).collect()
}

/// Waits until the edge sends everything through the second gateway alone, and requires that this one's routes were never
/// touched: not in BGP, and in the kernel only as the router writes its smaller set of next hops.
fn only_the_first_ones_routes_went(live: &Live, watch: &RouteWatch, heard_before: &[i64]) {
    for (_, family, service) in live.services() {
        let second: IpAddr = live.region.next_hop(2, family).parse().unwrap();
        eventually("the edge has the other gateway's route alone", SOON, || {
            let hops = live.edge_hops(service.ip()).map_err(|e| e.to_string())?;
            check(hops == [second], || format!("{hops:?}"))
        })
        .unwrap();
        let events = watch.events_for(ipnet::IpNet::from(service.ip()));
        for (i, event) in events.iter().enumerate().filter(|(_, e)| e.change == RouteChange::Removed) {
            // FRR replaces a set of IPv6 next hops by a removal and an addition in one go.
            let next = events.get(i + 1).filter(|next| next.change == RouteChange::Added);
            assert!(
                !leads_to(&event.route.kind, second) || next.is_some_and(|n| leads_to(&n.route.kind, second)),
                "the other gateway's route was removed: {events:?}"
            );
        }
    }
    for (now, before) in heard(live).iter().zip(heard_before) {
        assert!(now - before <= 1, "the other gateway announced anew {} s later", now - before);
    }
    assert_eq!(
        live.status(2).unwrap()["routes"].as_array().map(Vec::len),
        Some(5),
        "four VIPs and a locator"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_gateways_routes_go_and_the_others_stay() {
    let live = Live::ready("depart-drain", Region::default()).unwrap();
    let (watch, before) = (live.node("edge").unwrap().watch_routes().unwrap(), heard(&live));
    let client = live.node("client").unwrap();
    let mut flows = Vec::new();
    for (_, _, service) in live.services() {
        flows.push(UdpFlow::start(&client, service, Duration::from_millis(5), 64).await.unwrap());
    }
    live.weir(1, &["drain", "--wait", "--admin", "admin.sock"]).unwrap();
    let link = live.gateway(1).unwrap().bpffs().unwrap().join("weir/root-v1/eth1/link");
    assert!(!link.exists(), "the command returned while {} was pinned", link.display());
    let ended = live.gateway(1).unwrap().process("weir").unwrap().wait(SOON).unwrap();
    assert!(ended.success(), "{ended}: {}", live.log(1));
    only_the_first_ones_routes_went(&live, &watch, &before);
    for flow in flows {
        let report = flow.stop(&live.udp_servers()).await.unwrap();
        assert_eq!((report.lost(), report.sent > 0), (0, true), "{report:?}");
    }
    let spine = live.node("spine").unwrap();
    spine.wait_no_route(&live.region.gateway_locator(1), SOON).unwrap();
    spine.wait_route(&live.region.gateway_locator(2), 1, SOON).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_died_for_good_loses_its_routes_and_the_others_stay() {
    let live = Live::ready("depart-death", Region { restart_time: 3, ..Region::default() }).unwrap();
    let (watch, before) = (live.node("edge").unwrap().watch_routes().unwrap(), heard(&live));
    let gateway = live.gateway(1).unwrap();
    gateway.process("weir").unwrap().signal(Signal::SIGKILL).unwrap();
    only_the_first_ones_routes_went(&live, &watch, &before);
    assert_eq!(live.edge_hops(live.vip(B)).unwrap().len(), 1);
}
