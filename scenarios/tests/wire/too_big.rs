//! Packet Too Big: what does not fit into the fabric is told to the client, exactly and not too often.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use labkit::expect::expect;
use labkit::packet::{Ethernet, Packet, matcher};
use labkit::traffic::Connection;
use scenarios::region::{A, FAMILIES, Family, Live, PORT, Region, SOON};
use weir_bpf::abi::Reason;

use super::{client_and_vip, ends};

/// MTU of the fabric, and what is left inside the tunnel.
const FABRIC: u32 = 1400;
const INNER: u32 = FABRIC - 40;
/// Bytes that an error quotes: 1280 less its own headers (RFC 4443 section 2.4 c).
const QUOTE: usize = 1232;

fn region() -> Region {
    Region { fabric_mtu: FABRIC, ..Region::default() }
}

/// Bytes that one of IPv4 quotes: 576 less its own headers (RFC 1812 section 4.3.2.3).
const QUOTE4: usize = 548;

/// The payload with which a UDP packet has this many bytes.
fn filling(packet: u32) -> Vec<u8> {
    (0..packet as usize - 48).map(|i| (i % 251) as u8).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_transfer_completes_both_ways_over_a_fabric_too_small_for_full_segments() {
    let live = Live::ready("bulk", region()).unwrap();
    let client = live.node("client").unwrap();
    for family in FAMILIES {
        let told = || -> u64 { (1..=2).map(|n| live.reasons(n).unwrap()[&Reason::PacketTooBig]).sum() };
        let before = told();
        let mut connection = Connection::open(&client, live.service_of(A, family)).await.unwrap();
        // The pod sends everything back: 4 MB go each way.
        connection.transfer(4 << 20, SOON).await.unwrap();
        assert!(told() > before, "{family:?}: no gateway told the client");
        let version = family.pick("-4", "-6");
        let route = client.run(["ip", version, "route", "get", &live.region.vip_of(A, family)]).unwrap();
        assert!(route.contains(&format!("mtu {INNER}")), "the client has learned what fits: {route}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_packet_too_big_for_the_fabric_gets_the_exact_error_within_the_rate_and_never_to_multicast() {
    let live = Live::up("too-big", region()).unwrap();
    const RATE: u32 = 3;
    for n in 1..=2 {
        live.prepare_gateway(n).unwrap();
    }
    let second = live.gateway(2).unwrap();
    let config = second.read_file("weir.yaml").unwrap() + &format!("icmpRate: {RATE}\n");
    second.write_file("weir.yaml", config).unwrap();
    for n in 1..=2 {
        live.run_gateway(n, None).unwrap();
    }
    live.wait_ready().unwrap();
    let (client, vip) = client_and_vip(&live, A);

    // A byte too long, straight into a gateway: the whole frame that comes back, byte by byte.
    let uplink = live.capture("edge", "eth1").unwrap();
    let fabric = live.capture("spine", "eth1").unwrap();
    let edge = live.sender("edge", "eth1").unwrap();
    let packet = |size| edge.frame().ipv6(client, vip).udp(40_001, PORT).payload(&filling(size));
    let too_long = edge.send(&packet(INNER + 1)).unwrap();
    let error =
        edge.answer().ipv6(vip, client).packet_too_big(INNER).quote(&too_long[14..14 + QUOTE]).bytes();
    assert_eq!(error.len(), 14 + 1280);
    let exact = matcher::exactly(&error).and(matcher::right_checksums());
    expect(&uplink).within(SOON).packet(exact).unwrap();

    // What just fits goes through.
    let fitting = edge.send(&packet(INNER)).unwrap();
    let passed = expect(&fabric).within(SOON).packet(matcher::inner_exactly(&fitting[14..])).unwrap();
    assert_eq!(passed.bytes.len(), 14 + FABRIC as usize);

    // From where the client is: the error reaches it, quoting the packet as the gateway got it.
    let stub = live.sender("client", "eth0").unwrap();
    let at_client = live.capture("client", "eth0").unwrap();
    let packet = |hops: u8| {
        let payload = filling(INNER + 40);
        stub.frame().ipv6(client, vip).hop_limit(hops).udp(40_002, PORT).payload(&payload)
    };
    stub.send(&packet(64)).unwrap();
    let quoted = packet(63).bytes();
    let error =
        stub.frame().ipv6(vip, client).hop_limit(63).packet_too_big(INNER).quote(&quoted[14..14 + QUOTE]);
    expect(&at_client).within(SOON).packet(matcher::ip_exactly(&error.bytes()[14..])).unwrap();

    ipv4_too_big(&live);

    // Nobody answers a group.
    uplink.forget().unwrap();
    let before = live.reasons(1).unwrap();
    let group = "ff0e::1".parse().unwrap();
    edge.send(&edge.frame().ipv6(group, vip).udp(40_003, PORT).payload(&filling(INNER + 1))).unwrap();
    expect(&uplink).within(Duration::from_millis(300)).never(matcher::icmp_type(2)).unwrap();
    let after = live.reasons(1).unwrap();
    assert_eq!(after[&Reason::TooBigSilent] - before[&Reason::TooBigSilent], 1);
    assert_eq!(after[&Reason::PacketTooBig], before[&Reason::PacketTooBig]);

    // The second gateway may send three a second and CPU.
    let uplink = live.capture("edge", "eth2").unwrap();
    let edge = live.sender("edge", "eth2").unwrap();
    let before = live.reasons(2).unwrap();
    let start = Instant::now();
    const PACKETS: u64 = 300;
    for _ in 0..PACKETS {
        edge.send(&edge.frame().ipv6(client, vip).udp(40_004, PORT).payload(&filling(INNER + 1))).unwrap();
    }
    let grown = |reason| live.reasons(2).unwrap()[&reason] - before[&reason];
    labkit::wait::eventually("all packets counted", SOON, || {
        let counted = grown(Reason::PacketTooBig) + grown(Reason::RateLimited);
        if counted == PACKETS { Ok(()) } else { Err(format!("{counted} of {PACKETS}")) }
    })
    .unwrap();
    let seconds = start.elapsed().as_secs() + 2;
    let cpus = std::thread::available_parallelism().unwrap().get() as u64;
    let sent = grown(Reason::PacketTooBig);
    assert!((1..=u64::from(RATE) * cpus * seconds).contains(&sent), "{sent} in {seconds} s on {cpus} CPUs");
    let seen = expect(&uplink).within(SOON).packets(sent as usize, matcher::packet_too_big(INNER)).unwrap();
    assert_eq!(seen.len() as u64, sent);
    expect(&uplink).within(Duration::from_millis(100)).never(matcher::packet_too_big(INNER)).unwrap();
}

/// What a router says that cannot forward an IPv4 packet without fragmenting it: the same steps with the bytes of that family.
fn ipv4_too_big(live: &Live) {
    let (IpAddr::V4(client), IpAddr::V4(vip)) = ends(live, A, Family::Ipv4) else { panic!() };
    let uplink = live.capture("edge", "eth1").unwrap();
    let fabric = live.capture("spine", "eth1").unwrap();
    let edge = live.sender("edge", "eth1").unwrap();
    let udp = |size: u32| {
        let data = &filling(size + 20);
        edge.udp(client.into(), vip.into(), (40_001, PORT)).payload(data)
    };
    let too_long = edge.send(&udp(INNER + 1)).unwrap();
    assert_eq!(too_long.len() as u32, 14 + INNER + 1);
    let header = |packet: Packet<Ethernet>| packet.ipv4(vip, client).dont_fragment();
    let error = header(edge.answer()).icmpv4(3, 4, INNER).quote(&too_long[14..14 + QUOTE4]).bytes();
    assert_eq!(error.len(), 14 + 576);
    let exact = matcher::exactly(&error).and(matcher::right_checksums());
    expect(&uplink).within(SOON).packet(exact).unwrap();

    let fitting = edge.send(&udp(INNER)).unwrap();
    let passed = expect(&fabric).within(SOON).packet(matcher::inner_exactly(&fitting[14..])).unwrap();
    assert_eq!(passed.bytes.len(), 14 + FABRIC as usize);
    assert_eq!(passed.layers().ipv6().unwrap().next_header, 4);

    // From where the client is.
    let stub = live.sender("client", "eth0").unwrap();
    let at_client = live.capture("client", "eth0").unwrap();
    let packet = |ttl: u8| {
        let header = stub.frame().ipv4(client, vip).dont_fragment().ttl(ttl);
        header.udp(40_002, PORT).payload(&filling(INNER + 60))
    };
    stub.send(&packet(64)).unwrap();
    let quoted = packet(63).bytes();
    let error = header(stub.frame()).ttl(63).icmpv4(3, 4, INNER).quote(&quoted[14..14 + QUOTE4]);
    expect(&at_client).within(SOON).packet(matcher::ip_exactly(&error.bytes()[14..])).unwrap();

    // One that routers may fragment is not, and nobody is told.
    uplink.forget().unwrap();
    let before = live.reasons(1).unwrap();
    let loose = edge.frame().ipv4(client, vip).udp(40_003, PORT).payload(&filling(INNER + 21));
    edge.send(&loose).unwrap();
    expect(&uplink).within(Duration::from_millis(300)).never(matcher::icmp_type(3)).unwrap();
    let after = live.reasons(1).unwrap();
    assert_eq!(after[&Reason::TooBigNoDf] - before[&Reason::TooBigNoDf], 1);
    assert_eq!(after[&Reason::PacketTooBig], before[&Reason::PacketTooBig]);
}
