//! Packet Too Big, echo replies and the bucket that bounds them.

use proptest::prelude::*;
use weir_bpf::abi::{Affinity, Bucket, Config, Reason};

use super::super::{Flow, Surroundings, Verdict, decide, take_token};
use super::{UPLINK, checksum_residue, config, error, frame, packet, run, tables, v6};

fn flow() -> Flow {
    Flow {
        client: v6("2001:db8:c::1"),
        client_port: 7,
        vip: v6("2001:db8:64::1"),
        vip_port: 53,
        protocol: 17,
    }
}

#[test]
fn packet_too_big_has_the_bytes_of_the_page() {
    let flow = flow();
    let tables = tables(flow, Affinity::None, 1, 1400);
    // 40 + 8 + 1312 = 1360 fits 1400; one more does not.
    assert_eq!(run(&config(), &tables, &packet(flow, 1312)).reason, Reason::Forwarded);
    let mut bytes = packet(flow, 1313);
    bytes.splice(12..12, [0x88, 0xa8, 0, 7]);
    let decision = run(&config(), &tables, &bytes);
    assert_eq!((decision.verdict, decision.reason), (Verdict::Tx, Reason::PacketTooBig));
    assert_eq!(decision.counted, None);
    let out = decision.frame_out.unwrap();
    assert_eq!(out.len(), 18 + 1280);
    assert_eq!(out[..18], [2, 2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 0x88, 0xa8, 0, 7, 0x86, 0xdd]);
    assert_eq!(out[18..26], [0x60, 0, 0, 0, 0x04, 0xd8, 58, 64]);
    assert_eq!(out[26..42], flow.vip.octets());
    assert_eq!(out[42..58], flow.client.octets());
    assert_eq!(out[58..60], [2, 0]);
    assert_eq!(out[62..66], 1360u32.to_be_bytes());
    assert_eq!(out[66..], bytes[18..18 + 1232]);
    assert_eq!(checksum_residue(&out[18..]), 0);
}

#[test]
fn a_learned_mtu_counts_only_when_it_is_smaller() {
    let flow = flow();
    let mut tables = tables(flow, Affinity::None, 1, 1500);
    let mut mtu = |pmtu| {
        tables.backends.get_mut(&1).unwrap().pmtu = pmtu;
        run(&config(), &tables, &packet(flow, 0)).trail.mtu
    };
    assert_eq!(mtu(0), Some(1500));
    assert_eq!(mtu(1400), Some(1400));
    assert_eq!(mtu(9000), Some(1500));
}

#[test]
fn an_error_too_big_to_steer_gets_no_error() {
    let flow = flow();
    let tables = tables(flow, Affinity::None, 1, 1320);
    let mut bytes = error(flow, v6("2001:db8:9::9"), 2, 60);
    let payload = 1281 - 40;
    bytes.resize(14 + 1281, 0);
    bytes[18..20].copy_from_slice(&(payload as u16).to_be_bytes());
    assert_eq!(run(&config(), &tables, &bytes).reason, Reason::TooBigSilent);
}

#[test]
fn generated_messages_take_tokens_and_forwarding_takes_none() {
    let flow = flow();
    let tables = tables(flow, Affinity::None, 1, 1400);
    let config = Config { icmp_rate: 2, ..config() };
    let mut around = Surroundings::default();
    let mut reason = |bytes: &[u8]| decide(&config, &tables, &mut around, UPLINK, bytes).reason;
    let echo = frame(flow.client, flow.vip, 58, &[128, 0, 0, 0, 0, 1, 0, 1]);
    assert_eq!(reason(&packet(flow, 0)), Reason::Forwarded);
    assert_eq!(reason(&echo), Reason::EchoReply);
    assert_eq!(reason(&packet(flow, 1400)), Reason::PacketTooBig);
    assert_eq!(reason(&echo), Reason::RateLimited);
    assert_eq!(reason(&packet(flow, 1400)), Reason::RateLimited);
    assert_eq!(reason(&packet(flow, 0)), Reason::Forwarded);
}

#[test]
fn the_bucket_starts_full_refills_and_never_overflows() {
    let mut bucket = Bucket::default();
    let start = 5_000_000_000;
    assert!((0..3).all(|_| take_token(&mut bucket, 3, start)));
    assert!(!take_token(&mut bucket, 3, start));
    // A third of a second is one token at three a second, less the rounding.
    assert!(!take_token(&mut bucket, 3, start + 333_333_333));
    assert!(take_token(&mut bucket, 3, start + 333_333_334));
    assert!(!take_token(&mut bucket, 3, start + 333_333_334));
    // After an hour it is full, not fuller; a clock that steps back gives nothing.
    let late = start + 3_600_000_000_000;
    assert!((0..3).all(|_| take_token(&mut bucket, 3, late)));
    assert!(!take_token(&mut bucket, 3, late - 1_000_000_000));
    assert!(!take_token(&mut Bucket::default(), 0, start));
    assert!(take_token(&mut Bucket { last_ns: 1, tokens: u64::MAX }, u32::MAX, u64::MAX));
}

proptest! {
    #[test]
    fn an_echo_reply_has_a_right_checksum_and_the_request_s_data(
        id: u16, sequence: u16, data in proptest::collection::vec(any::<u8>(), 0..64), client: u128,
    ) {
        let flow = Flow { client: client.into(), ..flow() };
        let tables = tables(flow, Affinity::None, 1, 1500);
        let mut message = vec![128, 0, 0, 0];
        message.extend(id.to_be_bytes());
        message.extend(sequence.to_be_bytes());
        message.extend(&data);
        let mut bytes = frame(flow.client, flow.vip, 58, &message);
        let sum = 65535 - checksum_residue(&bytes[14..]);
        bytes[56..58].copy_from_slice(&sum.to_be_bytes());
        prop_assert_eq!(checksum_residue(&bytes[14..]), 0);
        let decision = run(&config(), &tables, &bytes);
        prop_assume!(decision.reason == Reason::EchoReply);
        let out = decision.frame_out.unwrap();
        prop_assert_eq!(checksum_residue(&out[14..]), 0);
        prop_assert_eq!(&out[14..22], &[0x60, 0, 0, 0, bytes[18], bytes[19], 58, 64]);
        prop_assert_eq!(&out[22..38], &flow.vip.octets());
        prop_assert_eq!(&out[38..54], &flow.client.octets());
        prop_assert_eq!(&out[54..56], &[129, 0]);
        prop_assert_eq!(&out[58..], &bytes[58..]);
    }
}
