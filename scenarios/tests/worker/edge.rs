//! Replies over the edge: the worker encapsulates them to a gateway, which lets out what a rule covers.

use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use labkit::expect::expect;
use labkit::packet::matcher;
use labkit::traffic::Connection;
use labkit::wait::eventually;
use scenarios::region::{A, B, Family, Live, PORT, Region, SOON, TENANTS, WorkerKind};
use weir_bpf::abi::Reason;
use weir_bpf::worker_abi::Reason as WorkerReason;

use super::region;

fn edge(name: &str, fabric_mtu: u32) -> Live {
    Live::ready(name, Region { worker_kind: WorkerKind::Edge, fabric_mtu, ..region(1) }).unwrap()
}

fn v6(text: &str) -> Ipv6Addr {
    text.trim_end_matches("/64").parse().unwrap()
}

fn wait_total(live: &Live, reason: Reason, wanted: u64) {
    eventually(&format!("the gateway counts {wanted} {}", reason.name()), SOON, || {
        let all = live.reasons(1).map_err(|e| e.to_string())?;
        if all[&reason] == wanted { Ok(()) } else { Err(format!("{all:?}")) }
    })
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_gets_its_replies_through_the_edge_over_a_fabric_of_1500_bytes() {
    let live = edge("wedge", 1500);
    let client = live.node("client").unwrap();
    let at_client = live.capture("client", "eth0").unwrap();
    let from_fabric = live.capture("edge", "eth9").unwrap();
    for tenant in TENANTS {
        let opened = Connection::open(&client, live.service(tenant)).await;
        let counted = || format!("{}; {:?}", live.worker_reasons(1), live.reasons(1).unwrap());
        let mut connection = opened.unwrap_or_else(|e| panic!("{e}: {}", counted()));
        assert_eq!(connection.seen_as().ip().to_string(), live.region.client());
        assert_eq!(connection.backend(), live.region.pod(1, tenant));
        connection.transfer(1 << 20, Duration::from_secs(20)).await.unwrap();
        assert_eq!(connection.retransmissions().unwrap(), 0, "{}", live.worker_reasons(1));
    }
    let replies = live.reasons(1).unwrap()[&Reason::ReplyForwarded];
    assert!(replies > 100, "{replies}");
    assert_eq!(live.worker_total(1, WorkerReason::ReplyEdge).unwrap(), replies);
    assert_eq!(live.worker_total(1, WorkerReason::ReplyDirect).unwrap(), 0);
    // Both ways the MSS leaves room for the outer header.
    let syn = |frame: &labkit::capture::Frame| {
        frame
            .layers()
            .tcp()
            .is_some_and(|t| t.flags & 2 != 0 && t.options.windows(4).any(|w| w == [2, 4, 0x05, 0x78]))
    };
    assert!(at_client.tap().frames().iter().any(|f| syn(f)), "MSS 1400 from the pods");
    let vips = TENANTS.map(|t| live.vip(t));
    let direct = |frame: &labkit::capture::Frame| {
        frame.layers().ipv6().is_some_and(|ip| vips.contains(&IpAddr::from(ip.src)))
    };
    assert!(!from_fabric.tap().frames().iter().any(|f| direct(f)), "no reply went straight out");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reply_that_no_rule_covers_is_refused_and_counted() {
    let live = edge("wrefuse", 1600);
    let region = &live.region;
    let client = v6(&region.client());
    let at_client = live.capture("client", "eth0").unwrap();
    // As a worker would send it; whoever can do so is on the fabric.
    let worker = live.sender("spine", "eth1").unwrap();
    let reply_sid = v6(&region.reply_sid(1));
    let source = |sid: &str| Ipv6Addr::from_bits(v6(sid).to_bits() | 0xbeef);
    let (sid_a, vip_a, vip_b) = (source(&region.sid(1, A)), v6(&region.vip(A)), v6(&region.vip(B)));

    let before = live.reasons(1).unwrap();
    let refused = [
        // The other tenant's VIP; a port no rule has; an address that is none; a SID no backend has; a stranger.
        worker.frame().ipv6(sid_a, reply_sid).ipv6(vip_b, client).udp(PORT, 700).payload(b"refused").bytes(),
        worker
            .frame()
            .ipv6(sid_a, reply_sid)
            .ipv6(vip_a, client)
            .udp(PORT + 1, 700)
            .payload(b"refused")
            .bytes(),
        worker
            .frame()
            .ipv6(sid_a, reply_sid)
            .ipv6(v6("2001:db8:1ff::1"), client)
            .udp(PORT, 700)
            .payload(b"refused")
            .bytes(),
        worker
            .frame()
            .ipv6(source(&region.second_sid(1)), reply_sid)
            .ipv6(vip_a, client)
            .udp(PORT, 700)
            .payload(b"refused")
            .bytes(),
        worker.frame().ipv6(client, reply_sid).ipv6(vip_a, client).udp(PORT, 700).payload(b"refused").bytes(),
        // Into the block; not encapsulated at all.
        worker
            .frame()
            .ipv6(sid_a, reply_sid)
            .ipv6(vip_a, v6(&region.sid(1, B)))
            .udp(PORT, 700)
            .payload(b"refused")
            .bytes(),
        worker.frame().ipv6(sid_a, reply_sid).udp(PORT, 700).payload(b"refused").bytes(),
    ];
    let injector = labkit::inject::Injector::open(live.node("spine").unwrap().netns(), "eth1").unwrap();
    for frame in &refused {
        injector.send(frame).unwrap();
    }
    wait_total(&live, Reason::ReplyRefused, before[&Reason::ReplyRefused] + refused.len() as u64);

    // A client that this node knows no way to.
    live.gateway(1).unwrap().add_route("unreachable 2001:db8:dead::/48").unwrap();
    let lost = worker
        .frame()
        .ipv6(sid_a, reply_sid)
        .ipv6(vip_a, v6("2001:db8:dead::1"))
        .udp(PORT, 700)
        .payload(b"lost");
    worker.send(&lost).unwrap();
    wait_total(&live, Reason::ReplyNoRoute, before[&Reason::ReplyNoRoute] + 1);

    let good = worker.frame().ipv6(sid_a, reply_sid).ipv6(vip_a, client).udp(PORT, 701).payload(b"an answer");
    worker.send(&good).unwrap();
    expect(&at_client)
        .within(SOON)
        .packet(matcher::udp_ports(PORT, 701).and(matcher::right_checksums()))
        .unwrap();
    let refused = |f: &labkit::capture::Frame| f.layers().udp().is_some_and(|u| u.dst == 700);
    assert!(!at_client.tap().frames().iter().any(|f| refused(f)));
}

#[tokio::test(flavor = "multi_thread")]
async fn an_ipv4_client_gets_its_replies_through_the_edge() {
    let live = edge("wedge4", 1600);
    let region = &live.region;
    let gateway = live.gateway(1).unwrap();
    let out = format!("198.51.100.0/24 via {}", region.edge_uplink_of(1, Family::Ipv4));
    gateway.add_route(&out).unwrap();
    // What is sent by XDP keeps no neighbour fresh; a session with the router does.
    gateway.exec(["ping", "-n", "-c1", "-W5", &region.edge_uplink_of(1, Family::Ipv4)]).unwrap();
    let client = live.node("client").unwrap();
    for tenant in TENANTS {
        let opened = Connection::open(&client, live.service_of(tenant, Family::Ipv4)).await;
        let counted = || format!("{}; {:?}", live.worker_reasons(1), live.reasons(1).unwrap());
        let mut connection = opened.unwrap_or_else(|e| panic!("{e}: {}", counted()));
        assert_eq!(connection.backend(), live.region.pod(1, tenant));
        connection.transfer(1 << 20, SOON).await.unwrap();
        assert_eq!(connection.retransmissions().unwrap(), 0, "{}", counted());
    }
    assert!(live.reasons(1).unwrap()[&Reason::ReplyForwarded] > 100);
    assert_eq!(live.reasons(1).unwrap()[&Reason::ReplyRefused], 0);

    // A port of the VIP that no rule has.
    let before = live.reasons(1).unwrap()[&Reason::ReplyRefused];
    let pod = live.sender("w1-a", "eth0").unwrap();
    let (vip, from) = (region.vip4(A).parse().unwrap(), "198.51.100.7".parse().unwrap());
    pod.send(&pod.frame().ipv4(vip, from).udp(PORT + 1, 703).payload(b"no rule")).unwrap();
    wait_total(&live, Reason::ReplyRefused, before + 1);
}
