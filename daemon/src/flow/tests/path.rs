//! Properties of whole decisions: errors follow flows, addresses survive, nothing panics.

use std::net::Ipv6Addr;

use proptest::prelude::*;
use weir_bpf::abi::{Affinity, Config, NextHop, ROLE_FABRIC, ROLE_UPLINK, Reason};

use super::super::{Counted, Flow, MemTables, NextHops, Surroundings, Verdict, View, decide, explain, hash};
use super::{FABRIC, MACS, UPLINK, config, error, fabric_config, frame, key, packet, run, tables, v6};

fn flow() -> Flow {
    Flow {
        client: v6("2001:db8:c::1234"),
        client_port: 40001,
        vip: v6("2001:db8:64::1"),
        vip_port: 443,
        protocol: 6,
    }
}

fn affinity() -> impl Strategy<Value = Affinity> {
    prop_oneof![Just(Affinity::None), Just(Affinity::ClientIp), Just(Affinity::ClientIpAndProtocol)]
}

/// Global addresses of the prefixes in use, with bytes that a sign extension would spoil.
fn address() -> impl Strategy<Value = Ipv6Addr> {
    let prefix = prop_oneof![
        Just(vec![0x20, 0x01, 0x0d, 0xb8, 0x80]),
        Just(vec![0xfd]),
        Just(vec![0x2a, 0x01]),
        Just(vec![0x26]),
        Just(vec![0xfe, 0x80]),
    ];
    let byte = prop_oneof![Just(0x00), Just(0x7f), Just(0x80), Just(0xff), any::<u8>()];
    (prefix, proptest::collection::vec(byte, 16)).prop_map(|(prefix, mut bytes)| {
        bytes[..prefix.len()].copy_from_slice(&prefix);
        Ipv6Addr::from(<[u8; 16]>::try_from(bytes).unwrap())
    })
}

prop_compose! {
    fn any_flow()(
        client in address(), vip in address(), client_port: u16, vip_port in 1u16.., tcp: bool
    ) -> Flow {
        Flow { client, client_port, vip, vip_port, protocol: if tcp { 6 } else { 17 } }
    }
}

proptest! {
    #[test]
    fn an_icmp_error_follows_the_flow_it_quotes(
        flow in any_flow(), router in address(), affinity in affinity(), kind in 1u8..=4, quoted in 44usize..80,
    ) {
        let tables = tables(flow, affinity, 64, 1500);
        let sent = run(&config(), &tables, &packet(flow, 10));
        let steered = run(&config(), &tables, &error(flow, router, kind, quoted));
        prop_assert_eq!(sent.reason, Reason::Forwarded);
        prop_assert_eq!(steered.reason, Reason::IcmpSteered);
        prop_assert_eq!(sent.trail, steered.trail);
        prop_assert_eq!(sent.verdict, steered.verdict);
    }

    #[test]
    fn every_address_byte_survives_encapsulation(flow in any_flow(), sid in address(), node in address()) {
        let mut tables = tables(flow, Affinity::None, 1, 1500);
        tables.backends.get_mut(&1).unwrap().sid = sid.octets();
        let halves: [[u8; 8]; 2] = [node.octets()[..8].try_into().unwrap(), node.octets()[8..].try_into().unwrap()];
        let config = Config { src_hi: u64::from_ne_bytes(halves[0]), src_lo: u64::from_ne_bytes(halves[1]), ..config() };
        prop_assume!(flow.client.octets()[..6] != halves[0][..6] && flow.vip.octets()[..6] != halves[0][..6]);
        let inner = packet(flow, 3);
        let out = run(&config, &tables, &inner).frame_out.unwrap();
        prop_assert_eq!(&out[22..36], &node.octets()[..14]);
        prop_assert_eq!(&out[38..54], &sid.octets());
        prop_assert_eq!(&out[54..], &inner[14..]);
    }

    #[test]
    fn explain_names_the_backend_that_decide_uses(flow in any_flow(), affinity in affinity()) {
        let tables = tables(flow, affinity, 64, 1500);
        let decision = run(&config(), &tables, &packet(flow, 0));
        let explained = explain(&key(), &tables, NextHops::Table, flow);
        prop_assert_eq!(explained.reason, Reason::Forwarded);
        prop_assert_eq!(explained.trail, decision.trail);
        prop_assert_eq!(explained.trail.backend_index, decision.counted.map(|c| c.backend));
    }

    #[test]
    fn random_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200), role in 0u32..4) {
        let tables = tables(flow(), Affinity::None, 3, 1500);
        run(&Config { role, ..config() }, &tables, &bytes);
    }

    #[test]
    fn random_payloads_to_a_vip_never_panic_or_leave(
        bytes in proptest::collection::vec(any::<u8>(), 0..700),
        first in prop::sample::select(vec![0u8, 6, 17, 43, 44, 58, 59, 60]),
        second in prop::sample::select(vec![0u8, 6, 17, 43, 44, 58, 59, 60]),
    ) {
        let flow = flow();
        let tables = tables(flow, Affinity::None, 3, 1500);
        let mut payload = bytes;
        if let Some(next) = payload.first_mut() {
            *next = second;
        }
        let decision = run(&config(), &tables, &frame(flow.client, flow.vip, first, &payload));
        prop_assert_ne!(decision.verdict, Verdict::Left);
    }

    #[test]
    fn mutated_frames_never_panic_and_stay_consistent(
        kind in 0usize..5, at: prop::sample::Index, byte: u8, second: prop::sample::Index, other: u8,
        cut: prop::sample::Index, role in 1u32..4,
    ) {
        let flow = flow();
        let tables = tables(flow, Affinity::ClientIp, 3, 1400);
        let mut bytes = match kind {
            0 => packet(flow, 30),
            1 => packet(flow, 1400),
            2 => error(flow, v6("2001:db8:9::9"), 1, 64),
            3 => frame(flow.client, flow.vip, 58, &[128, 0, 1, 2, 3, 4, 5, 6, 7]),
            _ => frame(flow.client, flow.vip, 0, &[&[44, 0, 1, 4, 0, 0, 0, 0, 6, 0, 0, 1, 0, 0, 0, 9][..],
                &super::segment(1, 443, 6, 4)].concat()),
        };
        let len = bytes.len();
        bytes[at.index(len)] = byte;
        bytes[second.index(len)] = other;
        bytes.truncate(cut.index(2 * len));
        let decision = run(&Config { role, ..config() }, &tables, &bytes);
        let sent = matches!(decision.verdict, Verdict::Tx | Verdict::Redirect(_));
        prop_assert_eq!(sent, decision.frame_out.is_some());
        prop_assert_eq!(
            decision.counted.is_some(),
            matches!(decision.reason, Reason::Forwarded | Reason::IcmpSteered)
        );
    }
}

#[test]
fn the_outer_header_has_every_field_of_the_page() {
    let flow = flow();
    let tables = tables(flow, Affinity::None, 1, 1500);
    let inner = packet(flow, 5);
    let decision = run(&config(), &tables, &inner);
    // The known answer of this very flow: h 0xdc0bec0a, low 0xed32c8e1.
    assert_eq!(hash(&key(), Affinity::None, flow.client, 40001, 443, 6).low, 0xed32_c8e1);
    let mut expected = MACS.to_vec();
    expected.extend([0x86, 0xdd, 0x6b, 0x9e, 0xd3, 0x2c, 0, 65, 41, 64]);
    expected.extend([0x20, 1, 0x0d, 0xb8, 0xff, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0xc8, 0xe1]);
    expected.extend([0x20, 1, 0x0d, 0xb8, 0xff, 1, 0, 100, 0xe0, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend(&inner[14..]);
    assert_eq!(decision.frame_out.unwrap(), expected);
    assert_eq!(decision.counted, Some(Counted { vip: 1, backend: 1, bytes: 65 }));
    // (0xc8e1 * 2) >> 16 = 1: the second hop, which is the interface the packet came from.
    assert_eq!(decision.trail.next_hop_index, Some(2));
    assert_eq!(decision.verdict, Verdict::Tx);
}

#[test]
fn a_stale_heartbeat_asks_the_fib_for_the_sid() {
    let flow = flow();
    let tables = tables(flow, Affinity::None, 1, 1500);
    let sid = v6("2001:db8:ff01:64:e000::");
    let hop = NextHop { macs: [9; 12], ifindex: FABRIC, mtu: 1500, flags: 0 };
    let answer = |asked: Ipv6Addr| (asked == sid).then_some(hop);
    let mut around = Surroundings { next_hops: NextHops::Fib(&answer), ..Surroundings::default() };
    let decision = decide(&config(), &tables, &mut around, UPLINK, &packet(flow, 0));
    assert_eq!(decision.verdict, Verdict::Redirect(FABRIC));
    assert_eq!(decision.frame_out.unwrap()[..12], [9; 12]);
    let silent = |_: Ipv6Addr| None;
    let mut around = Surroundings { next_hops: NextHops::Fib(&silent), ..Surroundings::default() };
    let decision = decide(&config(), &tables, &mut around, UPLINK, &packet(flow, 0));
    assert_eq!((decision.verdict, decision.reason), (Verdict::Drop, Reason::NoNextHop));
}

#[test]
fn no_room_for_the_outer_header_drops_and_counts_nothing() {
    let flow = flow();
    let tables = tables(flow, Affinity::None, 1, 1500);
    let reason = |headroom, tag: &[u8]| {
        let mut bytes = packet(flow, 0);
        bytes.splice(12..12, tag.iter().copied());
        let mut around = Surroundings { headroom, ..Surroundings::default() };
        let decision = decide(&config(), &tables, &mut around, UPLINK, &bytes);
        assert_eq!(decision.counted.is_some(), decision.reason == Reason::Forwarded);
        decision.reason
    };
    assert_eq!(reason(40, &[]), Reason::Forwarded);
    assert_eq!(reason(39, &[]), Reason::NoHeadroom);
    // The tag that is removed makes room.
    assert_eq!(reason(36, &[0x81, 0, 0, 5]), Reason::Forwarded);
}

#[test]
fn missing_elements_are_internal_faults() {
    let flow = flow();
    let whole = tables(flow, Affinity::None, 1, 1500);
    let reason = |spoil: fn(&mut MemTables)| {
        let mut tables = whole.clone();
        spoil(&mut tables);
        run(&config(), &tables, &packet(flow, 0)).reason
    };
    assert_eq!(reason(|_| {}), Reason::Forwarded);
    assert_eq!(reason(|t| t.words.clear()), Reason::Internal);
    assert_eq!(reason(|t| t.slots.clear()), Reason::Internal);
    assert_eq!(reason(|t| t.backends.clear()), Reason::Internal);
    assert_eq!(reason(|t| t.next_hops.clear()), Reason::Internal);
}

#[test]
fn the_srv6_block_and_the_self_test_depend_on_the_role() {
    let tables = tables(flow(), Affinity::None, 1, 1500);
    let selftest = frame(v6("2001:db8:9::9"), v6("2001:db8:ff01:1::fe"), 59, &[]);
    let sid = frame(v6("2001:db8:9::9"), v6("2001:db8:ff01:99::1"), 59, &[]);
    let both = Config { role: ROLE_UPLINK | ROLE_FABRIC, ..config() };
    assert_eq!(run(&config(), &tables, &selftest).reason, Reason::Srv6Block);
    assert_eq!(run(&fabric_config(), &tables, &selftest).reason, Reason::SelfTest);
    assert_eq!(run(&both, &tables, &selftest).reason, Reason::SelfTest);
    assert_eq!(run(&config(), &tables, &sid).verdict, Verdict::Drop);
    assert_eq!(run(&both, &tables, &sid).verdict, Verdict::Left);
}

#[test]
fn explain_says_why_a_flow_gets_nowhere() {
    let flow = flow();
    let tables = tables(flow, Affinity::None, 1, 1500);
    let reason = |flow| explain(&key(), &tables, NextHops::Table, flow).reason;
    assert_eq!(reason(Flow { vip: v6("2001:db8::1"), ..flow }), Reason::NotVip);
    assert_eq!(reason(Flow { vip_port: 444, ..flow }), Reason::NoRule);
    assert_eq!(reason(Flow { protocol: 47, ..flow }), Reason::UnsupportedProtocol);
}

#[test]
fn ring_regions_start_at_whole_blocks() {
    let mut tables = MemTables::new();
    assert_eq!(tables.add_ring(&[7; 17]), 0);
    assert_eq!(tables.add_ring(&[9; 3]), 32);
    let blocks = tables.ring_blocks();
    assert_eq!(blocks.keys().copied().collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!((blocks[&0].slot, blocks[&1].slot[0], blocks[&1].slot[1]), ([7; 16], 7, 0));
    assert_eq!((blocks[&2].slot[2], blocks[&2].slot[3]), (9, 0));
    assert_eq!((tables.ring_slot(34), tables.ring_slot(35)), (Some(9), None));
}
