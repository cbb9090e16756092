//! ICMP errors about a flow's replies reach the flow's own backend, whichever gateway gets them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use labkit::capture::Capture;
use labkit::expect::expect;
use labkit::packet::{IcmpVersion, Layers, Packet, decode_ip, matcher};
use labkit::traffic::Connection;
use labkit::wait::eventually;
use scenarios::region::{A, FAMILIES, Family, Live, PORT, Region, SOON, Sender};
use weir_bpf::abi::Reason;

use super::ends;

/// A router on the path back to the client.
fn router(family: Family) -> IpAddr {
    family.pick("192.0.2.254", "2001:db8:feed::1").parse().unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_packet_too_big_that_reaches_the_other_gateway_is_steered_to_the_flows_pod() {
    let live = Live::ready("steering", Region::default()).unwrap();
    for family in FAMILIES {
        steered(&live, family).await;
    }
}

/// The error with a TTL or hop limit, as it leaves and as it arrives.
fn error(sender: &Sender, to: IpAddr, hops: u8, mtu: u32, quote: &[u8]) -> Packet {
    match (router(if to.is_ipv4() { Family::Ipv4 } else { Family::Ipv6 }), to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            sender.frame().ipv4(from, to).ttl(hops).icmpv4(3, 4, mtu).quote(quote)
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            sender.frame().ipv6(from, to).hop_limit(hops).packet_too_big(mtu).quote(quote)
        }
        _ => unreachable!(),
    }
}

/// The MTU that a Packet Too Big or a "fragmentation needed" tells.
fn mtu_told(layers: &Layers) -> Option<u32> {
    let icmp = layers.icmp()?;
    match icmp.version {
        IcmpVersion::V4 if (icmp.kind, icmp.code) == (3, 4) => Some(icmp.body & 0xffff),
        IcmpVersion::V6 if icmp.kind == 2 => icmp.mtu(),
        _ => None,
    }
}

async fn steered(live: &Live, family: Family) {
    let (client, vip) = ends(live, A, family);
    let header = family.pick(20, 40);
    let wires = [live.capture("spine", "eth1").unwrap(), live.capture("spine", "eth2").unwrap()];
    let replies = live.capture("edge", "eth9").unwrap();
    let edge = [live.sender("edge", "eth1").unwrap(), live.sender("edge", "eth2").unwrap()];
    let pods = live.capture_pods(&[A]).unwrap();

    // The MTU numbers the errors; a pod must get those of its flows and no others.
    let mut expected: BTreeMap<String, BTreeSet<u32>> = BTreeMap::new();
    let mut used = BTreeSet::new();
    let mut number = 1300;
    let mut connections = Vec::new();
    for _ in 0..16 {
        let mut connection =
            Connection::open(&live.node("client").unwrap(), live.service_of(A, family)).await.unwrap();
        connection.round_trip().await.unwrap();
        let port = connection.local_addr().unwrap().port();
        let of_flow = matcher::tcp_ports(port, PORT);
        let gateway = eventually("a gateway forwards the flow", SOON, || {
            let forwards = |wire: &Capture| {
                wire.tap().frames().iter().any(|f| of_flow.check(&matcher::Seen::new(&f.bytes)).is_ok())
            };
            wires.iter().position(forwards).ok_or("none does")
        })
        .unwrap();
        used.insert(gateway);
        let other = &edge[1 - gateway];
        let of_reply =
            matcher::tcp_ports(PORT, port).and(matcher::Matcher::new("with data", |seen| {
                match seen.layers().payload() {
                    [] => Err("no data".into()),
                    _ => Ok(()),
                }
            }));
        replies.forget().unwrap();
        connection.round_trip().await.unwrap();
        let reply = expect(&replies).within(SOON).packet(of_reply).unwrap();
        // The whole packet, a TCP header, the 8 bytes of older routers, and the ports alone.
        for quoted in [reply.bytes.len() - 14, header + 20, header + 8, header + 4] {
            number += 1;
            let error = |hops| error(other, vip, hops, number, &reply.bytes[14..14 + quoted]);
            other.send(&error(64)).unwrap();
            // The worker's kernel takes one hop off; nothing else changes.
            let arrives = matcher::ip_exactly(&error(63).bytes()[14..]);
            expect(&pods[connection.backend()]).within(SOON).packet(arrives).unwrap();
            expected.entry(connection.backend().to_owned()).or_default().insert(number);
        }
        connections.push(connection);
    }
    assert_eq!(used.len(), 2, "flows were on both gateways");
    assert_eq!(expected.len(), 3, "flows were on all pods");
    for (pod, capture) in &pods {
        let frames = capture.tap().frames();
        let got: BTreeSet<u32> = frames.iter().filter_map(|f| mtu_told(&f.layers())).collect();
        assert_eq!(got, expected[pod], "errors that reached {pod}");
    }

    // The pod's kernel believes it: it sends this client no more than the router takes.
    let connection = connections.last_mut().unwrap();
    let pod = live.lab.node(connection.backend()).unwrap();
    eventually("the pod has learned the path's MTU", SOON, || {
        let version = family.pick("-4", "-6");
        let route = pod.run(["ip", version, "route", "get", &client.to_string(), "from", &vip.to_string()]);
        let route = route.map_err(|e| e.to_string())?;
        if route.contains(" mtu 13") { Ok(()) } else { Err(route) }
    })
    .unwrap();
    connection.transfer(200_000, SOON).await.unwrap();

    // A quote that ends inside the ports says of no flow.
    let before = live.reasons(1).unwrap()[&Reason::IcmpBadQuote];
    let reply = edge[0].tcp(vip, client, (PORT, 40_000)).bytes();
    edge[0].send(&error(&edge[0], vip, 64, 1290, &reply[14..14 + header + 3])).unwrap();
    eventually("the cut quote is counted", SOON, || {
        let now = live.reasons(1).unwrap()[&Reason::IcmpBadQuote];
        if now == before + 1 { Ok(()) } else { Err(format!("{before} before, {now} now")) }
    })
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_about_udp_replies_follow_the_flows_own_ring_slot_on_every_gateway() {
    let live = Live::ready("udp-errors", Region::default()).unwrap();
    for family in FAMILIES {
        errors_follow(&live, family);
    }
}

fn errors_follow(live: &Live, family: Family) {
    let (client, vip) = ends(live, A, family);
    let ports = 20_000..20_128;
    let flows = live.assignments_of(1, A, family, ports.clone()).unwrap();
    assert_eq!(flows.values().collect::<BTreeSet<_>>().len(), 3, "all pods have flows");
    for n in 1..=2 {
        let link = format!("eth{n}");
        let wire = live.capture("spine", &link).unwrap();
        let edge = live.sender("edge", &link).unwrap();
        for port in ports.clone() {
            let reply = edge.udp(vip, client, (PORT, port)).payload(b"answer").bytes();
            edge.send(&error(&edge, vip, 64, 1300, &reply[14..])).unwrap();
        }
        let kind = matcher::icmp_type(family.pick(3, 2));
        let errors = expect(&wire).within(SOON).packets(ports.len(), kind).unwrap();
        for error in errors {
            let layers = error.layers();
            let quote = layers.quote().unwrap();
            let port = quote.udp().unwrap().dst;
            assert_eq!(layers.ipv6().unwrap().dst, flows[&port], "gateway {n}, flow of port {port}");
            let inner = decode_ip(&error.bytes[54..]);
            let from = inner.ipv6().map(|ip| ip.src.into()).or(inner.ipv4().map(|ip| ip.src.into()));
            assert_eq!(from, Some(router(family)), "the error is inside");
        }
    }
}
