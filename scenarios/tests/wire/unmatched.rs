//! What a VIP does with packets for which there is no rule: echo is answered, the rest is taken once and never sent on.

use std::net::IpAddr;

use labkit::capture::Direction;
use labkit::expect::expect;
use labkit::packet::{Layers, flags, matcher};
use labkit::wait::eventually;
use scenarios::region::{A, B, FAMILIES, Family, Live, PORT, Region, SOON, Sender};
use weir_bpf::abi::Reason;

use super::{client_and_vip, ends};

const GRE: u8 = 47;
const SCTP: u8 = 132;

fn ping(live: &Live, tenant: scenarios::region::Tenant, size: u32) {
    let client = live.node("client").unwrap();
    for family in FAMILIES {
        let (size, vip) = (size.to_string(), live.region.vip_of(tenant, family));
        let answer = client.run(["ping", "-n", "-c10", "-i0.02", "-W10", "-s", &size, &vip]).unwrap();
        assert!(answer.contains("10 received, 0% packet loss"), "{answer}");
    }
}

/// Takes all backends of a tenant away.
fn without_backends(live: &Live) {
    for worker in 1..=live.region.workers {
        live.remove(&format!("vpce-a-{worker}.yaml")).unwrap();
    }
    let (client, vip) = client_and_vip(live, A);
    for n in 1..=2 {
        let edge = live.sender("edge", &format!("eth{n}")).unwrap();
        let before = live.reasons(n).unwrap()[&Reason::NoBackend];
        eventually("no backend is left", SOON, || {
            edge.send(&edge.frame().ipv6(client, vip).udp(1, PORT).payload(b"x"))
                .map_err(|e| e.to_string())?;
            let now = live.reasons(n).map_err(|e| e.to_string())?[&Reason::NoBackend];
            if now > before { Ok(()) } else { Err(format!("{now} packets found no backend")) }
        })
        .unwrap();
    }
}

/// What tells a packet of [`taken_once`] from others: the flow label, or the identification.
fn number(layers: &Layers, vip: IpAddr) -> Option<(u32, u8)> {
    match vip {
        IpAddr::V4(vip) => {
            layers.ipv4().filter(|ip| ip.dst == vip).map(|ip| (ip.identification.into(), ip.ttl))
        }
        IpAddr::V6(vip) => layers.ipv6().filter(|ip| ip.dst == vip).map(|ip| (ip.flow_label, ip.hop_limit)),
    }
}

fn source(layers: &Layers) -> Option<IpAddr> {
    layers.ipv6().map(|ip| ip.src.into()).or(layers.ipv4().map(|ip| ip.src.into()))
}

type Unmatched = [(u32, Reason, Vec<u8>); 5];

fn unmatched4(live: &Live, from: &Sender) -> Unmatched {
    let (IpAddr::V4(client), IpAddr::V4(vip)) = ends(live, A, Family::Ipv4) else { panic!() };
    let header = |n| from.frame().ipv4(client, vip).identification(n);
    [
        (0x1111, Reason::NoRule, header(0x1111).tcp(40_000, 81).flags(flags::SYN).bytes()),
        (0x2222, Reason::NoRule, header(0x2222).udp(40_000, 81).payload(b"unmatched").bytes()),
        (0x3333, Reason::UnsupportedProtocol, header(0x3333).protocol(GRE).payload(&[0; 24]).bytes()),
        (0x4444, Reason::UnsupportedProtocol, header(0x4444).protocol(SCTP).payload(&[7; 24]).bytes()),
        (0x5555, Reason::UnsupportedProtocol, header(0x5555).bytes()),
    ]
}

fn unmatched6(live: &Live, from: &Sender) -> Unmatched {
    let (client, vip) = client_and_vip(live, A);
    let header = |label| from.frame().ipv6(client, vip).flow_label(label);
    [
        (0x11111, Reason::NoRule, header(0x11111).tcp(40_000, 81).flags(flags::SYN).bytes()),
        (0x22222, Reason::NoRule, header(0x22222).udp(40_000, 81).payload(b"unmatched").bytes()),
        (0x33333, Reason::UnsupportedProtocol, header(0x33333).next_header(GRE).payload(&[0; 24]).bytes()),
        (0x44444, Reason::UnsupportedProtocol, header(0x44444).next_header(SCTP).payload(&[7; 24]).bytes()),
        (0x55555, Reason::UnsupportedProtocol, header(0x55555).bytes()),
    ]
}

/// Sends packets that no rule matches from the client, and requires that each crosses to a gateway exactly once, that
/// nothing comes back, and that it is counted for what it is.
fn taken_once(live: &Live) {
    for family in FAMILIES {
        taken_once_of(live, family);
    }
}

fn taken_once_of(live: &Live, family: Family) {
    let (client, vip) = ends(live, A, family);
    let from = live.sender("client", "eth0").unwrap();
    let packets = match family {
        Family::Ipv4 => unmatched4(live, &from),
        Family::Ipv6 => unmatched6(live, &from),
    };
    let echo = family.pick(0, 129);
    let links =
        [live.capture_both_ways("edge", "eth1").unwrap(), live.capture_both_ways("edge", "eth2").unwrap()];
    let at_client = live.capture("client", "eth0").unwrap();
    let counted = || -> std::collections::BTreeMap<Reason, u64> {
        let all = [live.reasons(1).unwrap(), live.reasons(2).unwrap()];
        [Reason::NoRule, Reason::UnsupportedProtocol].map(|r| (r, all[0][&r] + all[1][&r])).into()
    };
    let before = counted();
    let injector = labkit::inject::Injector::open(live.node("client").unwrap().netns(), "eth0").unwrap();
    for (_, _, frame) in &packets {
        injector.send(frame).unwrap();
    }
    let wanted = |reason| before[&reason] + packets.iter().filter(|(_, r, _)| *r == reason).count() as u64;
    eventually("each packet is counted", SOON, || {
        let now = counted();
        let same = now.iter().all(|(reason, count)| *count >= wanted(*reason));
        if same { Ok(()) } else { Err(format!("{now:?}, before {before:?}")) }
    })
    .unwrap();
    // Echo through both gateways: whatever a gateway did with the packets before is on the links by now.
    for n in 1..=2_u16 {
        let edge = live.sender("edge", &format!("eth{n}")).unwrap();
        let fence = match (client, vip) {
            (IpAddr::V4(client), IpAddr::V4(vip)) => {
                edge.frame().ipv4(client, vip).icmpv4(8, 0, u32::from(n) << 16 | 1).payload(b"fence")
            }
            (IpAddr::V6(client), IpAddr::V6(vip)) => {
                edge.frame().ipv6(client, vip).echo_request(n, 1).payload(b"fence")
            }
            _ => unreachable!(),
        };
        edge.send(&fence).unwrap();
        expect(&links[usize::from(n) - 1]).within(SOON).packet(matcher::icmp_type(echo)).unwrap();
    }
    for (label, _, frame) in &packets {
        let of_packet =
            |f: &labkit::capture::Frame| number(&f.layers(), vip).is_some_and(|(n, _)| n == *label);
        let frames: Vec<_> =
            links.iter().flat_map(|link| link.tap().frames()).filter(|f| of_packet(f)).collect();
        let to = frames.iter().filter(|f| f.direction == Direction::Leaving).count();
        assert_eq!((to, frames.len()), (1, 1), "{}", labkit::packet::decode(frame));
        assert_eq!(number(&frames[0].layers(), vip).unwrap().1, 63);
    }
    let to_client = at_client.tap().frames();
    let answers = to_client.iter().filter(|f| source(&f.layers()) == Some(vip));
    let answers: Vec<_> =
        answers.filter(|f| f.layers().icmp().is_none_or(|icmp| icmp.kind != echo)).collect();
    assert!(answers.is_empty(), "the VIP answered: {}", answers[0].layers());
    let now = counted();
    assert!(now.iter().all(|(reason, count)| *count == wanted(*reason)), "{now:?}, before {before:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vip_answers_echo_and_takes_unmatched_packets_once_with_and_without_backends() {
    let live = Live::ready("unmatched", Region::default()).unwrap();
    live.route_in_gateways().unwrap();
    for size in [56, 1400] {
        ping(&live, A, size);
        ping(&live, B, size);
    }
    taken_once(&live);
    without_backends(&live);
    ping(&live, A, 56);
    ping(&live, A, 1400);
    taken_once(&live);
}
