//! Both families over each kind of session: IPv4 VIPs with IPv6 next hops and with IPv4 ones, IPv6 VIPs over IPv4, judged by the
//! kernels' routes of FRR and BIRD.

use std::net::IpAddr;
use std::time::Duration;

use labkit::NodeHandle;
use labkit::topology::RouteKind;
use labkit::wait::{check, eventually, steady};
use rstest::rstest;
use weir::route::bgp::Start;
use weir::route::{EndOfRib, Leave, PeerState};

use super::lab::{Routers, SOON, Speaker, Transport, config_over, plan_of, vip, vip_v4};

/// Prefixes of both families, and whether each is of IPv4.
fn both(n: u32) -> [(String, bool); 2] {
    [(vip(n), false), (vip_v4(n), true)]
}

fn prefixes(ns: impl IntoIterator<Item = u32>) -> Vec<String> {
    ns.into_iter().flat_map(|n| [vip(n), vip_v4(n)]).collect()
}

/// Requires the kernel's route and its one next hop.
fn leads_to(node: &NodeHandle, prefix: &str, hop: IpAddr) {
    let route = node.wait_route(prefix, 1, SOON).unwrap();
    let RouteKind::Unicast(hops) = &route.kind else { panic!("{route}") };
    assert_eq!(hops[0].via, Some(hop), "{route}");
}

/// Which families FRR has the whole of, by End-of-RIB.
fn whole(routers: &Routers, address: &str) -> [bool; 2] {
    let seen = routers.vtysh().json(&format!("show bgp neighbors {address} json")).unwrap();
    ["ipv4Unicast", "ipv6Unicast"]
        .map(|family| seen[address]["gracefulRestartInfo"][family]["endOfRibStatus"]["endOfRibRecv"] == true)
}

#[rstest]
#[case::with_ipv6_next_hops("bgpfam6", Transport::Ipv6)]
#[case::with_a_configured_next_hop("bgpfam64", Transport::Ipv6WithNextHop)]
#[case::over_ipv4("bgpfam4", Transport::Ipv4)]
fn vips_of_both_families_live_and_leave_alike(#[case] name: &str, #[case] transport: Transport) {
    let routers = Routers::over(name, transport);
    let nodes = [("frr", &routers.frr), ("bird", &routers.bird)];
    let gateway = transport.ends("frr").0;
    let speaker = Speaker::start(&routers.gw, config_over(transport), Start::Fresh);
    speaker.handle.follow(plan_of(1, prefixes(1..=3), EndOfRib::Send));
    speaker.until_established();
    for (router, node) in nodes {
        for n in 1..=3 {
            for (prefix, ipv4) in both(n) {
                leads_to(node, &prefix, transport.next_hop(router, ipv4));
            }
        }
        let status = speaker.peer(router).unwrap();
        assert_eq!(status.address.to_string(), transport.ends(router).1);
        assert!(status.carries.ipv4 && status.carries.ipv6, "{status:?}");
        assert_eq!((status.advertised, status.unsendable), (6, 0), "{status:?}");
    }
    let paths = routers.vtysh().wait_bgp_paths(&vip_v4(1), 1, SOON).unwrap();
    assert_eq!(paths[0]["largeCommunity"]["string"], "65010:1:7", "{}", paths[0]);
    eventually("FRR has the whole of both families", SOON, || {
        let whole = whole(&routers, gateway);
        check(whole == [true, true], || format!("IPv4, IPv6: {whole:?}"))
    })
    .unwrap();

    // Withdrawn, each in its family's way.
    speaker.handle.follow(plan_of(2, prefixes(2..=3), EndOfRib::Send));
    speaker.until_settled(2);
    for (router, node) in nodes {
        for (prefix, ipv4) in both(1) {
            node.wait_no_route(&prefix, SOON).unwrap();
            leads_to(node, &both(2)[usize::from(ipv4)].0, transport.next_hop(router, ipv4));
        }
    }

    // Killed and started again, without one of those that it announced before: End-of-RIB takes it away in both families.
    let watches = nodes.map(|(_, node)| node.watch_routes().unwrap());
    let events = |prefix: &str| -> Vec<_> {
        watches.iter().flat_map(|w| w.events_for(prefix.parse().unwrap())).collect()
    };
    speaker.kill();
    let speaker = Speaker::start(&routers.gw, config_over(transport), Start::Restarted);
    speaker.handle.follow(plan_of(1, prefixes([2]), EndOfRib::Withhold));
    speaker.until_established();
    steady("stale routes of both families stay while End-of-RIB is withheld", Duration::from_secs(2), || {
        let events: Vec<_> = prefixes(2..=3).iter().flat_map(|p| events(p)).collect();
        check(events.is_empty(), || format!("{events:?}"))
    })
    .unwrap();
    speaker.handle.follow(plan_of(2, prefixes([2]), EndOfRib::Send));
    for (_, node) in nodes {
        for (prefix, _) in both(3) {
            node.wait_no_route(&prefix, SOON).unwrap();
        }
    }
    speaker.until_settled(2);
    for (prefix, _) in both(2) {
        let events = events(&prefix);
        assert!(events.is_empty(), "{prefix} was announced throughout: {events:?}");
    }

    // Leaves: marked in both families, then gone while the sessions stand.
    let (shutdown_wait, withdraw_wait) = (Duration::from_secs(3), Duration::from_secs(3));
    let leave = Leave { reason: "maintenance".into(), shutdown_wait, withdraw_wait };
    let leaving = std::thread::spawn(move || speaker.leave(leave));
    for (prefix, _) in both(2) {
        eventually(&format!("FRR sees GRACEFUL_SHUTDOWN on {prefix}"), SOON, || {
            let paths = routers.vtysh().bgp_paths(&prefix).map_err(|e| e.to_string())?;
            let marked =
                paths.first().is_some_and(|p| p["community"]["string"].to_string().contains("graceful"));
            check(marked, || format!("{paths:?}"))
        })
        .unwrap();
    }
    for (_, node) in nodes {
        for (prefix, _) in both(2) {
            node.wait_no_route(&prefix, SOON).unwrap();
        }
    }
    assert_eq!(routers.vtysh().bgp_state(gateway).unwrap(), "Established");
    leaving.join().unwrap();
}

/// What a router does not take stays with it: the other family goes on, and the session says what it does not carry.
#[test]
fn a_router_without_extended_next_hops_gets_no_ipv4_vip_until_one_is_configured() {
    let routers = Routers::over("bgpfamno", Transport::Ipv6WithNextHop);
    let speaker = Speaker::start(&routers.gw, config_over(Transport::Ipv6), Start::Fresh);
    speaker.handle.follow(plan_of(1, prefixes([1]), EndOfRib::Send));
    speaker.until_established();
    speaker.until_settled(1);
    for (router, node) in [("frr", &routers.frr), ("bird", &routers.bird)] {
        node.wait_route(&vip(1), 1, SOON).unwrap();
        node.wait_no_route(&vip_v4(1), SOON).unwrap();
        let status = speaker.until(router, "sent all that it carries", |s| s.advertised == 1);
        assert_eq!(status.unsendable, 1, "{status:?}");
        assert!(!status.carries.ipv4 && status.carries.ipv6, "{status:?}");
    }
    super::wait_for_configure(&speaker, config_over(Transport::Ipv6WithNextHop));
    for (router, node) in [("frr", &routers.frr), ("bird", &routers.bird)] {
        leads_to(node, &vip_v4(1), Transport::Ipv6WithNextHop.next_hop(router, true));
        speaker.until(router, "carries both", |s| {
            s.state == PeerState::Established && s.carries.ipv4 && s.unsendable == 0
        });
    }
}
