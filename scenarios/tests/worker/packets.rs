//! The worker's packet cases on the C headers built for this machine and on the loaded programs.

use std::collections::BTreeSet;

use labkit::Lab;
use labkit::topology::Topology;
use scenarios::packets::build::{frame, ip};
use scenarios::packets::worker::{Case, Loaded, Native, cases, check, ipv4, params, reply};
use weir_bpf::worker_abi::{Params, Reason, Reply};

#[test]
fn native_build_agrees_with_every_case_of_the_worker() {
    let mut arm = Native::default();
    let all = cases();
    let failed: Vec<_> = all.iter().filter_map(|case| check(case, &arm.run(case)).err()).collect();
    assert!(all.len() >= 70, "only {} cases", all.len());
    assert!(failed.is_empty(), "{} of {} cases failed:\n{}", failed.len(), all.len(), failed.join("\n"));
}

#[test]
fn every_reason_of_decapsulation_has_a_case() {
    let all = cases();
    let names: BTreeSet<_> = all.iter().map(|case| case.name).collect();
    assert_eq!(names.len(), all.len(), "names are unique");
    let seen: BTreeSet<Reason> = all.iter().map(|case| case.reason).collect();
    // Up to `Untranslatable` they are `decap`'s; that a driver has no room for metadata no frame can bring about.
    let missing: Vec<_> = Reason::ALL[..17].iter().filter(|r| !seen.contains(r)).collect();
    assert_eq!(missing, [&Reason::NoMetadata]);
}

/// Runs `f` in a node that has an endpoint's interface, with its index.
fn on_a_node(name: &str, params: &Params, f: impl FnOnce(&mut Loaded, u32) + Send) {
    let topology = Topology::build(name, |t| {
        t.node("w1");
        t.node("pod");
        t.link("w1:p1", "pod:eth0", 1500);
    })
    .unwrap();
    let lab = Lab::up(&topology).unwrap();
    let node = lab.node("w1").unwrap();
    let pins = node.bpffs().unwrap();
    node.netns()
        .run(|| {
            let ifindex = nix::net::if_::if_nametoindex("p1").unwrap();
            let mut arm = Loaded::load(&pins, ifindex, params).unwrap();
            f(&mut arm, ifindex);
        })
        .unwrap();
}

#[test]
fn loaded_program_agrees_with_every_case_of_the_worker() {
    on_a_node("wpackets", &params(), |arm, _| {
        let all = cases();
        let run = |case: &Case| check(case, &arm.run(case).unwrap()).err();
        let failed: Vec<_> = all.iter().filter_map(run).collect();
        assert!(failed.is_empty(), "{} of {} cases failed:\n{}", failed.len(), all.len(), failed.join("\n"));
    });
}

/// `TCX_NEXT` as a program returns it, and `TCX_DROP`.
const NEXT: u32 = u32::MAX;
const DROP: u32 = 2;

#[test]
fn what_an_endpoint_sends_is_let_out_only_as_what_is_bound_to_it() {
    let [client, vip, other, vip4, client4] = reply::ADDRESSES;
    let v6 =
        |from: &str, to: &str| ip(from.parse().unwrap(), to.parse().unwrap()).udp((8080, 40001), b"answer");
    let ethernet = |kind, packet: &[u8]| {
        scenarios::packets::build::ethernet([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], &[], kind, packet)
    };
    let v4 = |from: &str, fragment| {
        ethernet(0x0800, &ipv4(from, client4, 17, 0, fragment, &[], b"01234567answer"))
    };
    on_a_node("wreply", &params(), |arm, ifindex| {
        let table: Vec<(&str, Vec<u8>, u32, Reason)> = vec![
            ("a VIP bound to it", frame(&v6(vip, client)), NEXT, Reason::ReplyDirect),
            ("an IPv4 VIP bound to it", v4(vip4, 0), NEXT, Reason::ReplyDirect),
            ("a later IPv4 fragment", v4(vip4, 20), NEXT, Reason::ReplyDirect),
            ("its own address", frame(&v6("fd00:10::1", client)), NEXT, Reason::ReplyOwn),
            ("link-local", frame(&v6("fe80::2", "ff02::1")), NEXT, Reason::ReplyLocal),
            ("unspecified, as address detection", frame(&v6("::", "ff02::1")), NEXT, Reason::ReplyLocal),
            ("arp", ethernet(0x0806, &[0; 46]), NEXT, Reason::ReplyNotIp),
            ("another tenant's VIP", frame(&v6(other, client)), DROP, Reason::SpoofedSource),
            ("a client's address", frame(&v6(client, vip)), DROP, Reason::SpoofedSource),
            ("a gateway's address", frame(&v6("2001:db8:ff01:1::1", client)), DROP, Reason::SpoofedSource),
            ("an IPv4 VIP that is not its own", v4("192.0.2.81", 0), DROP, Reason::SpoofedSource),
            (
                "its IPv4 VIP written as IPv6",
                frame(&v6("::ffff:192.0.2.80", client)),
                DROP,
                Reason::SpoofedSource,
            ),
            ("into the region's block", frame(&v6(vip, "2001:db8:ff01:12:e002::")), DROP, Reason::IntoBlock),
            (
                "into the block as itself",
                frame(&v6("fd00:10::1", "2001:db8:ff01:1::")),
                DROP,
                Reason::IntoBlock,
            ),
        ];
        for (name, frame, action, reason) in table {
            let seen = arm.reply(ifindex, &frame).unwrap();
            assert_eq!(seen.action, action, "{name}: {seen:?}");
            assert_eq!(seen.reasons, [(reason.name(), 1)].into(), "{name}");
            assert_eq!(seen.counters.len(), usize::from(reason == Reason::ReplyDirect), "{name}: {seen:?}");
            assert_eq!(seen.frame, frame, "{name}: left as it came");
        }
        for (sent, wanted) in reply::translated() {
            let kind = if sent[0] >> 4 == 6 { 0x86dd } else { 0x0800 };
            let seen = arm.reply(ifindex, &ethernet(kind, &sent)).unwrap();
            assert_eq!(seen.frame, ethernet(kind, &wanted), "the VIP as source, checksums right");
            assert_eq!((seen.action, seen.reasons), (NEXT, [("reply_direct", 1)].into()));
        }
        let other =
            frame(&ip("fd00:10::1".parse().unwrap(), client.parse().unwrap()).tcp((8444, 1), 0x10, b"x"));
        let seen = arm.reply(ifindex, &other).unwrap();
        assert_eq!((seen.frame, seen.reasons), (other, [("reply_own", 1)].into()), "another port is its own");
        for (vip, before, after) in [(vip, 1440, 1380), (vip, 1380, 1380), (vip4, 1460, 1400)] {
            let kind = if vip.contains(':') { 0x86dd } else { 0x0800 };
            let seen = arm.reply(ifindex, &ethernet(kind, &reply::syn_ack(vip, before))).unwrap();
            assert_eq!(seen.frame, ethernet(kind, &reply::syn_ack(vip, after)), "MSS {before} of {vip}");
        }
    });
}

#[test]
fn a_reply_too_big_for_the_way_to_the_edge_gets_its_error() {
    let [client, vip, _, vip4, client4] = reply::ADDRESSES;
    let edge = Params { reply: Reply::Edge as u32, fabric_mtu: 1400, ..params() };
    let big = |size: usize| {
        ip(vip.parse().unwrap(), client.parse().unwrap()).udp((8080, 40001), &vec![7; size - 48])
    };
    let eth = |kind, packet: &[u8]| {
        scenarios::packets::build::ethernet([2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 0, 2], &[], kind, packet)
    };
    on_a_node("wbig", &edge, |arm, ifindex| {
        let seen = arm.reply(ifindex, &frame(&big(1360))).unwrap();
        assert!(!seen.reasons.contains_key("packet_too_big"), "just fits: {seen:?}");
        let packet = big(1361);
        let seen = arm.reply(ifindex, &eth(0x86dd, &packet)).unwrap();
        assert_eq!(seen.reasons, [("packet_too_big", 1)].into());
        let router = "2001:db8:ff01:11::1:0".parse().unwrap();
        let mut wanted = ip(router, vip.parse().unwrap()).icmp(2, 0, 1360, &packet[..1232]);
        wanted[..8].copy_from_slice(&[0x60, 0, 0, 0, 0x04, 0xd8, 58, 64]);
        assert_eq!(seen.frame[14..], wanted, "RFC 4443 section 3.2");
        assert_eq!(seen.frame[..12], [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1], "back to the endpoint");

        let packet = ipv4(vip4, client4, 17, 0, 0x4000, &[], &vec![7; 1341]);
        let seen = arm.reply(ifindex, &eth(0x0800, &packet)).unwrap();
        assert_eq!(seen.reasons, [("fragmentation_needed", 1)].into());
        assert_eq!(seen.frame.len(), 14 + 576);
        let (header, message) = seen.frame[14..].split_at(20);
        assert_eq!((&header[12..16], &header[16..20]), (&[192, 0, 0, 8][..], &[192, 0, 2, 80][..]));
        assert_eq!((&message[..2], &message[4..8]), (&[3, 4][..], &[0, 0, 0x05, 0x50][..]), "MTU 1360");
        assert_eq!(message[8..], packet[..548]);
        for part in [header, message] {
            let sum: u64 = part.chunks(2).map(|w| u64::from(w[0]) << 8 | u64::from(w[1])).sum();
            assert_eq!(sum % 0xffff, 0, "right checksums");
        }
        let packet = ipv4(vip4, client4, 17, 0, 0, &[], &vec![7; 1341]);
        let seen = arm.reply(ifindex, &eth(0x0800, &packet)).unwrap();
        assert_eq!((seen.action, seen.reasons), (DROP, [("too_big_silent", 1)].into()));
    });
}
