//! Every fault, seen in force and seen healed; and that traffic counts what a scripted fault did, exactly.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::time::Duration;

use common::{SOON, routed};
use labkit::fault::{self, Counts, Direction, Impair};
use labkit::topology::Topology;
use labkit::traffic::{IdentifyServer, Pool, UdpFlow, UdpServer};
use labkit::{Lab, NodeHandle, wait};

const SERVER: &str = "2001:db8:2::2";

fn reaches(node: &NodeHandle, to: &str) -> bool {
    node.ping(to.parse().unwrap()).unwrap().success()
}

fn pair(name: &str) -> Topology {
    Topology::build(name, |t| {
        t.node("a").address("eth0", "2001:db8::1/64");
        t.node("b").address("eth0", "2001:db8::2/64");
        t.link("a:eth0", "b:eth0", 1500);
    })
    .unwrap()
}

#[test]
fn a_link_that_was_down_comes_back_with_its_addresses_and_routes() {
    let lab = Lab::up(&routed("linkdown")).unwrap();
    let (client, router) = (lab.node("client").unwrap(), lab.node("router").unwrap());
    router.add_route("2001:db8:a::/64 via 2001:db8:2::2").unwrap();
    router.add_route("2001:db8:b::/64 nexthop via 2001:db8:2::2 nexthop via 2001:db8:1::2").unwrap();
    router
        .add_route("2001:db8:c::/64 encap seg6 mode encap.red segs 2001:db8:f::1 via 2001:db8:2::2 table 100")
        .unwrap();
    let shown = || {
        router
            .sh("ip -6 route show table all | grep 2001:db8 | sed 's/ pref medium//; s/ linkdown//'")
            .unwrap()
    };
    let before = shown();
    assert!(reaches(&client, SERVER));
    let fault = fault::link_down(&router, "eth1").unwrap();
    assert!(!reaches(&client, SERVER));
    assert_ne!(shown(), before);
    fault.heal().unwrap();
    let sorted = |text: String| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(shown()), sorted(before));
    wait::eventually("the server answers again", SOON, || wait::check(reaches(&client, SERVER), String::new))
        .unwrap();
}

#[test]
fn a_small_mtu_stops_big_packets_until_the_guard_is_dropped() {
    let lab = Lab::up(&pair("mtu")).unwrap();
    let a = lab.node("a").unwrap();
    let big =
        || a.exec(["ping", "-c1", "-W1", "-M", "do", "-s", "1400", "2001:db8::2"]).unwrap().status.success();
    assert!(big());
    let fault = fault::mtu(&a, "eth0", 1300).unwrap();
    assert!(!big());
    drop(fault);
    assert!(big());
    assert!(fault::mtu(&a, "eth0", 1000).unwrap_err().to_string().contains("loses its IPv6 addresses"));
}

#[test]
fn a_blackhole_swallows_and_lets_go() {
    let lab = Lab::up(&routed("hole")).unwrap();
    let (client, router) = (lab.node("client").unwrap(), lab.node("router").unwrap());
    let fault = fault::blackhole(&router, "2001:db8:2::/64".parse().unwrap()).unwrap();
    assert!(!reaches(&client, SERVER));
    fault.heal().unwrap();
    assert!(reaches(&client, SERVER));
}

#[test]
fn a_silent_node_keeps_its_links_up() {
    let lab = Lab::up(&routed("silent")).unwrap();
    let client = lab.node("client").unwrap();
    let fault = fault::silence(&lab, "router").unwrap();
    assert!(!reaches(&client, SERVER) && !reaches(&client, "2001:db8:1::1"));
    assert!(client.netlink(async |netlink| netlink.is_operational("eth0").await).unwrap());
    fault.heal().unwrap();
    wait::eventually("the server answers again", SOON, || wait::check(reaches(&client, SERVER), String::new))
        .unwrap();
}

#[test]
fn a_killed_process_is_restarted_by_healing() {
    let lab = Lab::up(&pair("restart")).unwrap();
    let a = lab.node("a").unwrap();
    let start = |node: &NodeHandle| {
        let mut command = node.command("sleep");
        command.arg("1000");
        node.spawn_command("sleeper", command)
    };
    let first = start(&a).unwrap();
    let again = a.clone();
    let fault = fault::kill(&first, move || start(&again).map(drop)).unwrap();
    assert!(!first.is_running());
    fault.heal().unwrap();
    let second = a.process("sleeper").unwrap();
    assert!(second.is_running() && second.pid() != first.pid());
}

/// Sends numbered UDP from a to b until `enough` says so.
async fn udp(lab: &Lab, enough: impl Fn() -> bool) -> labkit::traffic::UdpReport {
    let (a, b) = (lab.node("a").unwrap(), lab.node("b").unwrap());
    let to = "[2001:db8::2]:9".parse().unwrap();
    let server = UdpServer::start(&b, "b", to).unwrap();
    let flow = UdpFlow::start(&a, to, Duration::from_millis(1), 100).await.unwrap();
    wait::eventually_async("enough packets", SOON, async || wait::check(enough(), String::new))
        .await
        .unwrap();
    let report = flow.stop(&[&server]).await.unwrap();
    server.stop().await;
    report
}

#[tokio::test]
async fn scripted_loss_is_counted_exactly_in_each_direction() {
    let lab = Lab::up(&pair("loss")).unwrap();
    let (a, b) = (lab.node("a").unwrap(), lab.node("b").unwrap());
    let out = Impair::new(1).only_udp(9).lose_exactly(20..33).at(&a, "eth0", Direction::Egress).unwrap();
    // Answers go to the client's port, which nobody knows before: all UDP.
    let back = Impair::new(1).only_udp(0).lose_exactly(50..55).at(&b, "eth0", Direction::Egress).unwrap();
    let report = udp(&lab, || back.counts().unwrap().seen > 100).await;
    assert_eq!(report.lost_out, (20..33).collect::<Vec<u64>>());
    // The 50th answer is that to packet 63: 13 never arrived.
    assert_eq!(report.lost_back, (63..68).collect::<Vec<u64>>());
    assert_eq!(out.counts().unwrap(), Counts { seen: report.sent, lost: 13, ..Counts::default() });
    assert_eq!(report.lost(), 18);
    let samples = report.samples(Duration::from_millis(20));
    assert_eq!(samples.iter().map(|s| s.sent).sum::<u64>(), report.sent);
    assert_eq!(samples.iter().map(|s| s.lost).sum::<u64>(), 18);
    assert!(report.outage() >= Duration::from_millis(20), "{:?}", report.outage());
    out.heal().unwrap();
    back.heal().unwrap();
    let start = std::time::Instant::now();
    let clean = udp(&lab, || start.elapsed() > Duration::from_millis(200)).await;
    assert_eq!((clean.lost(), clean.by_server[0].1), (0, clean.sent));
}

#[tokio::test]
async fn the_same_seed_loses_the_same_packets() {
    let mut lost = Vec::new();
    for seed in [7, 7, 8] {
        let lab = Lab::up(&pair("seed")).unwrap();
        let b = lab.node("b").unwrap();
        let impaired = Impair::new(seed).only_udp(9).lose(0.2).at(&b, "eth0", Direction::Ingress).unwrap();
        let report = udp(&lab, || impaired.counts().unwrap().seen >= 200).await;
        lost.push(report.lost_out.into_iter().filter(|n| *n < 200).collect::<Vec<u64>>());
    }
    assert!(!lost[0].is_empty() && lost[0].len() < 100, "{lost:?}");
    assert_eq!(lost[0], lost[1]);
    assert_ne!(lost[0], lost[2]);
}

#[tokio::test]
async fn duplicated_corrupted_and_held_back_packets_are_what_they_say() {
    let lab = Lab::up(&pair("impair")).unwrap();
    let (a, b) = (lab.node("a").unwrap(), lab.node("b").unwrap());
    let server = b.udp_bind("[2001:db8::2]:9".parse().unwrap()).unwrap();
    let client = a.udp_bind("[2001:db8::1]:0".parse().unwrap()).unwrap();
    client.connect("[2001:db8::2]:9".parse::<std::net::SocketAddr>().unwrap()).await.unwrap();
    let mut buffer = [0; 64];
    // Resolves the neighbour, so that packets are not queued for it.
    client.send(&[0]).await.unwrap();
    server.recv(&mut buffer).await.unwrap();
    let receive =
        async |buffer: &mut [u8]| tokio::time::timeout(Duration::from_millis(300), server.recv(buffer)).await;

    for (node, direction) in [(&a, Direction::Egress), (&b, Direction::Ingress)] {
        let doubled = Impair::new(3).only_udp(9).duplicate(1.0).at(node, "eth0", direction).unwrap();
        client.send(&[1]).await.unwrap();
        for _ in 0..2 {
            assert_eq!(tokio::time::timeout(SOON, server.recv(&mut buffer)).await.unwrap().unwrap(), 1);
        }
        assert!(receive(&mut buffer).await.is_err(), "three of one, {direction:?}");
        assert_eq!(doubled.counts().unwrap().duplicated, 1);
    }

    let corrupt = Impair::new(3).only_udp(9).corrupt(1.0).at(&a, "eth0", Direction::Egress).unwrap();
    for _ in 0..20 {
        client.send(&[2; 40]).await.unwrap();
    }
    // A flipped bit shows in the checksum, or sends the packet elsewhere; at most fields outside of both (hop limit, flow
    // label, traffic class) let one through whole.
    let mut whole = 0;
    while let Ok(Ok(length)) = receive(&mut buffer).await {
        assert_eq!(buffer[..length], [2; 40]);
        whole += 1;
    }
    assert!(whole < 10, "{whole} of 20 came through");
    assert_eq!(corrupt.counts().unwrap().corrupted, 20);
    corrupt.heal().unwrap();

    let held = Impair::new(5)
        .only_udp(9)
        .reorder(0.3, Duration::from_millis(20))
        .at(&a, "eth0", Direction::Egress)
        .unwrap();
    for number in 0..50_u8 {
        client.send(&[number]).await.unwrap();
    }
    let mut order = Vec::new();
    while let Ok(Ok(_)) = tokio::time::timeout(Duration::from_secs(1), server.recv(&mut buffer)).await {
        order.push(buffer[0]);
    }
    let mut sorted = order.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, (0..50).collect::<Vec<u8>>(), "all arrive, once");
    assert_ne!(order, sorted, "in another order");
    assert!(held.counts().unwrap().reordered > 0);
    let refused =
        Impair::new(0).reorder(1.0, SOON).at(&a, "eth0", Direction::Ingress).unwrap_err().to_string();
    assert!(refused.contains("only at egress"), "{refused}");
}

#[tokio::test]
async fn pools_know_their_backends_and_count_what_breaks() {
    let lab = Lab::up(&routed("pool")).unwrap();
    let (client, server) = (lab.node("client").unwrap(), lab.node("server").unwrap());
    let to = format!("[{SERVER}]:80").parse().unwrap();
    let identify = IdentifyServer::start(&server, "one", to).unwrap();
    let mut pool = Pool::open(&client, to, 100).await.unwrap();
    assert_eq!(pool.by_backend(), [("one".to_owned(), 100)].into());
    assert_eq!(identify.accepted(), 100);
    for connection in pool.connections() {
        assert_eq!(connection.seen_as(), connection.local_addr().unwrap());
    }
    assert_eq!(pool.verify().await, 0);
    assert_eq!(pool.retransmissions().unwrap(), 0);

    // A loss is healed by TCP, and shows in its count alone.
    let router = lab.node("router").unwrap();
    let lossy = Impair::new(2).only_tcp(80).lose(0.2).at(&router, "eth0", Direction::Ingress).unwrap();
    assert_eq!(pool.verify().await, 0);
    assert!(pool.retransmissions().unwrap() > 0);
    lossy.heal().unwrap();

    let pulse = pool.pulse(Duration::from_millis(20));
    drop(identify);
    tokio::time::sleep(Duration::from_millis(300)).await;
    let report = pulse.stop().await;
    assert_eq!((report.connections, report.broken.len()), (100, 100));
    assert_eq!(report.samples(Duration::from_millis(100)).iter().map(|s| s.lost).sum::<u64>(), 100);
    let error = Pool::open(&client, to, 3).await.unwrap_err().to_string();
    assert!(error.contains("3 of 3 failed") && error.contains("refused"), "{error}");
}

#[tokio::test]
async fn a_bulk_transfer_comes_back_whole() {
    let lab = Lab::up(&routed("bulk")).unwrap();
    let (client, server) = (lab.node("client").unwrap(), lab.node("server").unwrap());
    let to = format!("[{SERVER}]:80").parse().unwrap();
    let _identify = IdentifyServer::start(&server, "one", to).unwrap();
    let mut connection = labkit::traffic::Connection::open(&client, to).await.unwrap();
    connection.transfer(4 << 20, SOON).await.unwrap();
    let hole = fault::blackhole(&lab.node("router").unwrap(), "2001:db8:2::/64".parse().unwrap()).unwrap();
    assert!(connection.transfer(1 << 20, Duration::from_millis(500)).await.is_err());
    hole.heal().unwrap();
}
