//! FRR routers in a lab: BGP between them, routes in the kernel, their absence after a death.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::fmt::Write;

use common::SOON;
use labkit::Lab;
use labkit::netlink::RouteChange;
use labkit::role::frr::Frr;
use labkit::topology::{FrrDaemon, Topology};

fn bgp(asn: u32, id: u8, peers: &[(&str, u32)], networks: &str) -> String {
    let mut text = format!("router bgp {asn}\n bgp router-id 192.0.2.{id}\n no bgp ebgp-requires-policy\n");
    for (address, peer_asn) in peers {
        writeln!(text, " neighbor {address} remote-as {peer_asn}\n neighbor {address} timers connect 1")
            .unwrap();
    }
    text += " address-family ipv6 unicast\n";
    for (address, _) in peers {
        writeln!(text, "  neighbor {address} activate").unwrap();
    }
    text + &format!("{networks} exit-address-family\nexit\n")
}

#[test]
fn routes_learned_over_bgp_are_in_the_kernel_and_go_with_their_speaker() {
    let topology = Topology::build("bgp", |t| {
        let edge = bgp(65000, 1, &[("2001:db8:1::2", 65001), ("2001:db8:2::2", 65001)], "");
        let edge = edge.replace(" address-family", " bgp bestpath as-path multipath-relax\n address-family");
        t.node("edge")
            .forwarding()
            .address("eth1", "2001:db8:1::1/64")
            .address("eth2", "2001:db8:2::1/64")
            .frr(&[FrrDaemon::Bgpd], edge);
        for i in 1..=2 {
            let config =
                bgp(65001, i + 1, &[(&format!("2001:db8:{i}::1"), 65000)], "  network 2001:db8:a::1/128\n");
            t.node(&format!("gw{i}"))
                .address("eth0", &format!("2001:db8:{i}::2/64"))
                .address("lo", "2001:db8:a::1/128")
                .route(&format!("default via 2001:db8:{i}::1"))
                .frr(&[FrrDaemon::Bgpd, FrrDaemon::Staticd], config);
            t.link(&format!("edge:eth{i}"), &format!("gw{i}:eth0"), 1500);
        }
    })
    .unwrap();
    let lab = Lab::up(&topology).unwrap();
    println!("{:?}", lab.timings());
    let edge = lab.node("edge").unwrap();
    let frr = Frr::of(&edge);
    frr.wait_established("2001:db8:1::2", SOON).unwrap();
    frr.wait_established("2001:db8:2::2", SOON).unwrap();
    let route = edge.wait_route("2001:db8:a::1/128", 2, SOON).unwrap();
    assert_eq!(frr.wait_bgp_paths("2001:db8:a::1/128", 2, SOON).unwrap().len(), 2, "{route}");
    assert!(edge.ping("2001:db8:a::1".parse().unwrap()).unwrap().success());

    let watch = edge.watch_routes().unwrap();
    let to = "2001:db8:a::1/128".parse().unwrap();
    assert!(watch.events_for(to).is_empty());
    let gw2 = lab.node("gw2").unwrap();
    gw2.process("bgpd").unwrap().kill().unwrap();
    edge.wait_route("2001:db8:a::1/128", 1, SOON).unwrap();
    labkit::wait::eventually("the kernel tells of the change", SOON, || {
        let events = watch.events_for(to);
        labkit::wait::check(events.iter().any(|e| e.change == RouteChange::Added), || format!("{events:?}"))
    })
    .unwrap();

    // Back again: the daemon starts without configuration, and gets it anew.
    let back = Frr::of(&gw2);
    back.start_daemon(FrrDaemon::Bgpd).unwrap();
    back.wait_ready(FrrDaemon::Bgpd).unwrap();
    back.load("frr.conf").unwrap();
    edge.wait_route("2001:db8:a::1/128", 2, SOON).unwrap();
    for gw in ["gw1", "gw2"] {
        Frr::of(&lab.node(gw).unwrap())
            .configure("router bgp 65001\n address-family ipv6 unicast\n  no network 2001:db8:a::1/128\n")
            .unwrap();
    }
    edge.wait_no_route("2001:db8:a::1/128", SOON).unwrap();
}

#[test]
fn a_bad_configuration_is_refused_with_its_line() {
    let topology = Topology::build("badfrr", |t| {
        t.node("r").frr(&[FrrDaemon::Bgpd], "router bgp 65000\n neighbour-typo 2001:db8::1\n");
    })
    .unwrap();
    let error = Lab::up(&topology).unwrap_err().to_string();
    assert!(error.contains("neighbour-typo"), "{error}");
}
