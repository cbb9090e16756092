//! The flow hash: known answers, and what each affinity depends on.

use proptest::prelude::*;
use weir_bpf::abi::Affinity;

use super::super::{FlowHash, HashKey, hash};
use super::{key, v6};

// The answers below come from a Python program that was written from `docs/packet-path.md` alone, with hashlib for the
// key expansion, ipaddress and struct for the words, and arbitrary-precision integers reduced mod 2^64.

#[test]
fn region_key_expands_to_the_known_words() {
    let HashKey { nh, fin } = key();
    assert_eq!(
        nh,
        [
            0xaabd_47eb,
            0xe901_ed52,
            0x70b9_57fc,
            0x769b_364e,
            0xc1ba_cf4b,
            0x8189_da4d,
            0x0413_e72f,
            0xc68d_9e4e,
            0x20cb_d033,
            0xf29f_6741,
            0xd3ed_26bb,
            0x3c5c_a2fc
        ]
    );
    assert_eq!(fin, 0x07cd_8c7e_4fd8_e3a1);
}

#[test]
fn hashes_equal_the_known_answers() {
    let key = key();
    let none = hash(&key, Affinity::None, v6("2001:db8:c::1234"), 40001, 443, 6);
    assert_eq!(none, FlowHash { h: 0xdc0b_ec0a, low: 0xed32_c8e1 });
    let client = hash(&key, Affinity::ClientIp, v6("2a01:80ff::ff00:8080"), 1, 65535, 17);
    assert_eq!(client, FlowHash { h: 0x0bd6_6c75, low: 0x11d0_e5d0 });
    let protocol = hash(&key, Affinity::ClientIpAndProtocol, v6("fd00::1"), 9, 53, 17);
    assert_eq!(protocol, FlowHash { h: 0x72d3_c596, low: 0xf31c_fa00 });
    // Every addition and product wraps.
    let high = HashKey { nh: std::array::from_fn(|i| u32::MAX - i as u32), fin: u64::MAX };
    let all_ones =
        hash(&high, Affinity::None, v6("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff"), 65535, 65535, 255);
    assert_eq!(all_ones, FlowHash { h: 0x3d46_b93e, low: 0xcabf_6a28 });
}

#[test]
fn multiplier_is_odd_and_keys_differ() {
    let keys: Vec<HashKey> = (0..64).map(|i| HashKey::from_region_key(&[i; 32])).collect();
    assert!(keys.iter().all(|k| k.fin % 2 == 1));
    assert!(keys.windows(2).all(|pair| pair[0] != pair[1]));
}

#[test]
fn debug_output_hides_the_key() {
    assert_eq!(format!("{:?}", key()), "HashKey(..)");
}

proptest! {
    #[test]
    fn hash_depends_on_exactly_what_the_affinity_says(
        client: u128, other: u128, ports: (u16, u16), others: (u16, u16), tcp: bool,
    ) {
        prop_assume!(client != other && ports.0 != others.0 && ports.1 != others.1);
        let key = key();
        let (proto, other_proto) = if tcp { (6, 17) } else { (17, 6) };
        for (affinity, by_ports, by_protocol) in [
            (Affinity::None, true, true),
            (Affinity::ClientIp, false, false),
            (Affinity::ClientIpAndProtocol, false, true),
        ] {
            let of = |c: u128, cp, vp, t| hash(&key, affinity, c.into(), cp, vp, t);
            let base = of(client, ports.0, ports.1, proto);
            prop_assert_ne!(base, of(other, ports.0, ports.1, proto));
            prop_assert_eq!(base != of(client, others.0, ports.1, proto), by_ports);
            prop_assert_eq!(base != of(client, ports.0, others.1, proto), by_ports);
            prop_assert_eq!(base != of(client, ports.0, ports.1, other_proto), by_protocol);
        }
    }

    #[test]
    fn slot_and_next_hop_stay_in_range(h: u32, low: u32, blocks in 0u32..4096, size in 1u32..=65537, count: u8) {
        let hash = FlowHash { h, low };
        let base = blocks * 16;
        prop_assert!((base..base + size).contains(&hash.slot(base, size)));
        prop_assert!(hash.next_hop(count) < u32::from(count.max(1)));
        prop_assert!(hash.flow_label() < 1 << 20);
    }
}
