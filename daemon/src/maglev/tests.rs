//! What must hold for any ring.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU64;

use proptest::prelude::*;

use super::build::Permutation;
use super::*;
use crate::model::{Backend, BackendId, Endpoint, ObjectName, Protocol, Sid};

const SEED: Seed = Seed([7; 16]);
const SIZES: [RingSize; 4] = [RingSize::S1021, RingSize::S4093, RingSize::S16381, RingSize::S65537];

/// Identities, in their order.
fn ids(count: usize) -> Vec<BackendId> {
    (0..count as u32)
        .map(|n| BackendId {
            vpc: "red".into(),
            attachment: "web".into(),
            address: IpAddr::V6(Ipv6Addr::from(0xfd00 << 112 | u128::from(n))),
        })
        .collect()
}

fn weight(weight: u64) -> NonZeroU64 {
    NonZeroU64::new(weight).unwrap()
}

fn member(id: &BackendId, weight: u64, up: bool) -> Member<'_> {
    let eligible = if up { Eligible::Yes } else { Eligible::No };
    Member { id, weight: NonZeroU64::new(weight).unwrap(), eligible }
}

/// A ring's inputs with all weights 1 and the given members up.
fn equal(size: RingSize, ids: &[BackendId], up: impl Fn(usize) -> bool) -> RingSpec<'_> {
    let members = ids.iter().enumerate().map(|(n, id)| member(id, 1, up(n))).collect();
    RingSpec::new(size, SEED, members)
}

fn owners(spec: &RingSpec<'_>) -> Vec<Option<BackendId>> {
    build(spec).identities(spec).map(Option::<&BackendId>::cloned).collect()
}

fn digest_of(spec: &RingSpec<'_>) -> Digest {
    let ring = build(spec);
    let digest = digest(spec.size(), spec.seed(), ring.identities(spec));
    assert_eq!(digest, ring_digest(spec, &ring), "both ways to it must agree");
    digest
}

fn backend(id: &BackendId) -> Backend {
    let sid = Sid("2001:db8:ff01:2:e001::".parse().unwrap());
    Backend {
        id: id.clone(),
        weight: weight(1),
        drain: Drain::No,
        health: Health::Healthy,
        endpoint: Some(Endpoint { node: "w1".into(), sid }),
    }
}

fn rule(backends: Vec<Backend>, on_all_down: OnAllDown) -> Rule {
    Rule {
        name: ObjectName { namespace: "red".into(), name: "web".into() },
        region: "us-east".into(),
        vips: vec!["2001:db8:100::1".parse().unwrap()],
        protocol: Protocol::Tcp,
        port: 443,
        affinity: crate::model::Affinity::None,
        ring_size: RingSize::S1021,
        on_all_down,
        backends,
    }
}

/// The paper's pseudo code (section 3.4, listing 1), turns by floating credit.
fn paper(spec: &RingSpec<'_>) -> Vec<u16> {
    let size = spec.size().slots();
    let starts: Vec<_> = spec.members().iter().map(|m| Permutation::of(SEED, m.id, size).start()).collect();
    let most = spec.members().iter().map(|m| m.weight.get()).max().unwrap();
    let mut table = vec![NO_MEMBER; size as usize];
    let mut next = vec![0_u64; starts.len()];
    let mut owned = vec![0_u64; starts.len()];
    let mut filled = 0;
    for round in 1_u64.. {
        for (i, &(offset, skip)) in starts.iter().enumerate() {
            let due = (round * spec.members()[i].weight.get() / most).max(1);
            while owned[i] < due {
                if filled == size {
                    return table;
                }
                let slot = loop {
                    let slot = (u64::from(offset) + next[i] * u64::from(skip)) % u64::from(size);
                    next[i] += 1;
                    if table[slot as usize] == NO_MEMBER {
                        break slot;
                    }
                };
                table[slot as usize] = i as u16;
                owned[i] += 1;
                filled += 1;
            }
        }
    }
    unreachable!()
}

#[test]
fn base_is_the_papers_table() {
    let ids = ids(64);
    for size in SIZES {
        for count in [1, 2, 3, 10, 64] {
            for weights in [&[1][..], &[1, 10], &[7, 3, 5], &[1, 65536]] {
                let members = ids[..count]
                    .iter()
                    .zip(weights.iter().cycle())
                    .map(|(id, &w)| member(id, w, true))
                    .collect();
                let spec = RingSpec::new(size, SEED, members);
                assert!(Base::build(&spec).slots == paper(&spec), "{size:?}, {count} members, {weights:?}");
            }
        }
    }
}

#[test]
fn slots_of_a_known_ring_never_change() {
    // A change here moves the flows of a running region: it needs a new `ALGORITHM`.
    let ids = ids(5);
    let members = |up: [bool; 5]| {
        ids.iter().zip([1, 2, 3, 1, 9]).zip(up).map(|((id, w), up)| member(id, w, up)).collect()
    };
    let whole = RingSpec::new(RingSize::S1021, SEED, members([true; 5]));
    let healed = RingSpec::new(RingSize::S1021, SEED, members([true, true, false, true, false]));
    let last = RingSpec::new(RingSize::S1021, SEED, members([true, true, false, false, false]));
    assert_eq!(
        [&whole, &healed, &last].map(|s| digest_of(s).to_string()),
        [
            "cf0dead12e9ec9fa538dc1b353dd4578",
            "c195b57ba3831d99e54787d40b8ca56c",
            "091df0ca56c70992241c1e2265703f6a"
        ]
    );
    assert_eq!(ring_key(&healed).to_string(), "46d85748c399b871fa3c8164ea36ead8");
}

#[test]
fn equal_weights_share_evenly() {
    let ids = ids(64);
    let ring = build(&equal(RingSize::S65537, &ids, |_| true));
    let shares = ring.shares(64);
    let mean = 65537.0 / 64.0;
    let peak = f64::from(*shares.iter().max().unwrap()) / mean;
    assert!(peak <= 1.03, "peak/mean {peak}");
    assert_eq!(shares.iter().sum::<u32>(), 65537);
}

#[test]
fn healing_keeps_the_load_even() {
    let ids = ids(64);
    let shares = build(&equal(RingSize::S65537, &ids, |n| n % 8 != 3)).shares(64);
    let peak = f64::from(*shares.iter().max().unwrap()) / (65537.0 / 56.0);
    assert!(peak <= 1.05, "peak/mean {peak}");
}

#[test]
fn shares_follow_weights() {
    /// Largest weight that an object can write.
    const MOST: u64 = i64::MAX as u64;
    let ids = ids(6);
    for size in SIZES {
        for weights in [
            &[1, 10][..],
            &[1, 1, 1],
            &[7, 3],
            &[1, 65536],
            &[3, 900, 2, 5000, 1],
            &[MOST, 1, MOST],
            &[MOST, MOST / 2],
        ] {
            let members: Vec<_> = ids.iter().zip(weights).map(|(id, &w)| member(id, w, true)).collect();
            let total: f64 = weights.iter().map(|&w| w as f64).sum();
            let shares = build(&RingSpec::new(size, SEED, members)).shares(weights.len());
            for (&share, &weight) in shares.iter().zip(weights) {
                let got = f64::from(share) / f64::from(size.slots());
                assert!((got - weight as f64 / total).abs() < 0.02, "{size:?} {weights:?}: {shares:?}");
                assert!(share >= 1, "{size:?} {weights:?}: {shares:?}");
            }
        }
    }
}

#[test]
fn weights_hold_among_those_left_when_the_heaviest_is_down() {
    // Nearly every chain names only the heavy member, so this is the rendezvous' doing.
    let ids = ids(3);
    let members = vec![member(&ids[0], 1_000_000, false), member(&ids[1], 1, true), member(&ids[2], 3, true)];
    let shares = build(&RingSpec::new(RingSize::S16381, SEED, members)).shares(3);
    assert_eq!(shares[0], 0);
    assert!((f64::from(shares[2]) / 16381.0 - 0.75).abs() < 0.02, "{shares:?}");
}

#[test]
fn no_members_is_an_empty_ring() {
    let spec = RingSpec::new(RingSize::S4093, SEED, vec![]);
    let ring = build(&spec);
    assert!(ring.is_empty());
    assert_eq!(ring.len(), 4093);
    assert!(ring.owners().all(|o| o.is_none()));
    assert!(ring.identities(&spec).all(|o| o.is_none()));
}

#[test]
fn one_member_owns_every_slot() {
    let ids = ids(1);
    for size in SIZES {
        let ring = build(&equal(size, &ids, |_| true));
        assert!(!ring.is_empty());
        assert!(ring.owners().all(|o| o == Some(0)));
    }
    assert!(build(&equal(RingSize::S1021, &ids, |_| false)).is_empty());
}

#[test]
fn members_around_the_size_end_with_one_slot_each() {
    let ids = ids(1022);
    for count in [1020, 1021, 1022] {
        let shares = build(&equal(RingSize::S1021, &ids[..count], |_| true)).shares(count);
        let with_slot = shares.iter().filter(|&&s| s > 0).count();
        assert_eq!(with_slot, count.min(1021));
        assert_eq!(shares.iter().sum::<u32>(), 1021);
    }
    let shares = build(&equal(RingSize::S65537, &ids[..512], |_| true)).shares(512);
    assert!(shares.iter().all(|&s| (127..=129).contains(&s)));
}

#[test]
fn a_duplicate_counts_once_and_owner_beyond_the_ring_is_none() {
    let ids = ids(2);
    let twice = vec![member(&ids[1], 5, true), member(&ids[0], 1, true), member(&ids[1], 1, true)];
    let spec = RingSpec::new(RingSize::S1021, SEED, twice);
    assert_eq!(spec.members().len(), 2);
    assert_eq!(owners(&spec), owners(&equal(RingSize::S1021, &ids, |_| true)));
    assert_eq!(build(&spec).owner(1021), None);
    assert!(build(&spec).owner(1020).is_some());
}

#[test]
fn every_health_vector_of_up_to_six_names_only_the_eligible() {
    let ids = ids(6);
    for count in 1..=6_usize {
        let all = equal(RingSize::S1021, &ids[..count], |_| true);
        let base = Base::build(&all);
        for up in 0_u32..1 << count {
            let spec = equal(RingSize::S1021, &ids[..count], |n| up >> n & 1 == 1);
            let ring = base.heal(&spec);
            assert_eq!(ring, build(&spec));
            assert_eq!(ring.is_empty(), up == 0);
            for owner in ring.owners() {
                assert_eq!(owner.is_some(), up != 0);
                assert!(owner.is_none_or(|o| up >> o & 1 == 1), "{count} members, up {up:b}");
            }
            // Whoever is up gets a share, and keeps every slot of the base.
            for (slot, owner) in base.slots.iter().enumerate().filter(|(_, o)| up >> **o & 1 == 1) {
                assert_eq!(ring.owner(slot as u32), Some(*owner));
            }
        }
    }
}

#[test]
fn a_rules_ring_leaves_out_the_unhealthy_drained_and_unresolved() {
    let ids = ids(5);
    let mut backends: Vec<_> = ids.iter().map(backend).collect();
    backends[0].health = Health::Unhealthy;
    backends[1].drain = Drain::Yes;
    backends[2].endpoint = None;
    backends[3].health = Health::Unknown;
    let rule = rule(backends, OnAllDown::Keep);
    let spec = RingSpec::for_rule(&rule, SEED);
    let up: Vec<_> = spec.members().iter().map(|m| m.eligible == Eligible::Yes).collect();
    assert_eq!(up, [false, false, false, true, true]);
    // All five keep their place in the base.
    assert!(Base::build(&spec).slots.iter().collect::<BTreeSet<_>>().len() == 5);
}

#[test]
fn all_down_keeps_the_resolved_or_empties_the_ring() {
    let ids = ids(3);
    let mut backends: Vec<_> = ids.iter().map(backend).collect();
    backends[0].health = Health::Unhealthy;
    backends[1].health = Health::Unhealthy;
    backends[1].drain = Drain::Yes;
    backends[2].health = Health::Unhealthy;
    backends[2].endpoint = None;
    let keep = rule(backends.clone(), OnAllDown::Keep);
    let spec = RingSpec::for_rule(&keep, SEED);
    assert!(build(&spec).owners().all(|o| o == Some(0)));
    for policy in [OnAllDown::Drop, OnAllDown::Withdraw] {
        assert!(build(&RingSpec::for_rule(&rule(backends.clone(), policy), SEED)).is_empty());
    }
    // Nothing to keep: drained and unresolved ones are never sent to.
    let rest = rule(backends[1..].to_vec(), OnAllDown::Keep);
    assert!(build(&RingSpec::for_rule(&rest, SEED)).is_empty());
}

#[test]
fn one_backend_more_moves_little_at_a_fixed_class() {
    let ids = ids(65);
    for (size, count, bound) in
        [(RingSize::S65537, 64, 0.025), (RingSize::S1021, 10, 0.14), (RingSize::S4093, 10, 0.13)]
    {
        let few = owners(&equal(size, &ids[..count], |_| true));
        let more = owners(&equal(size, &ids[..=count], |_| true));
        let moved = few.iter().zip(&more).filter(|(a, b)| a != b).count() as f64 / few.len() as f64;
        assert!(moved < bound, "{size:?}, {count} + 1: {moved}");
        assert!(moved >= 0.9 / (count + 1) as f64);
    }
}

#[test]
fn digest_tells_class_seed_order_and_absence_apart() {
    let ids = ids(2);
    let ring = [Some(&ids[0]), Some(&ids[1]), None];
    let d = digest(RingSize::S1021, SEED, ring);
    assert_eq!(
        d,
        digest(RingSize::S1021, SEED, ring.map(Option::<&BackendId>::cloned).iter().map(Option::as_ref))
    );
    assert_ne!(d, digest(RingSize::S4093, SEED, ring));
    assert_ne!(d, digest(RingSize::S1021, Seed([8; 16]), ring));
    assert_ne!(d, digest(RingSize::S1021, SEED, [ring[1], ring[0], None]));
    assert_ne!(d, digest(RingSize::S1021, SEED, [ring[0], ring[1]]));
    assert_ne!(d, digest(RingSize::S1021, SEED, [ring[0], ring[1], ring[1]]));
    assert_eq!(d.to_string().len(), 32);
}

#[test]
fn two_tenants_equal_addresses_are_two_identities() {
    let mut ids = ids(2);
    ids[1] = BackendId { vpc: "blue".into(), ..ids[0].clone() };
    let red = equal(RingSize::S1021, &ids[..1], |_| true);
    let blue = equal(RingSize::S1021, &ids[1..], |_| true);
    assert_ne!(digest_of(&red), digest_of(&blue));
    assert_ne!(ring_key(&red), ring_key(&blue));
    // Neither does moving a letter from one name to the next, nor writing IPv4 as mapped, make two identities one.
    let split = |vpc: &str, attachment: &str, address: &str| BackendId {
        vpc: vpc.into(),
        attachment: attachment.into(),
        address: address.parse().unwrap(),
    };
    let all =
        [split("ab", "c", "10.0.0.1"), split("a", "bc", "10.0.0.1"), split("ab", "c", "::ffff:10.0.0.1")];
    let digests: BTreeSet<_> = all.iter().map(|id| digest(RingSize::S1021, SEED, [Some(id)])).collect();
    assert_eq!(digests.len(), 3);
}

/// Up to 12 members with weights up to 20, of which some are up.
fn any_members() -> impl Strategy<Value = Vec<(u32, bool)>> {
    prop::collection::vec((1..20_u32, any::<bool>()), 1..12)
}

fn spec_of<'a>(ids: &'a [BackendId], members: &[(u32, bool)]) -> RingSpec<'a> {
    let members = ids.iter().zip(members).map(|(id, &(w, up))| member(id, w.into(), up)).collect();
    RingSpec::new(RingSize::S1021, SEED, members)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn order_of_a_list_does_not_matter(members in any_members(), shuffles in prop::collection::vec(any::<u64>(), 12)) {
        let ids = ids(members.len());
        let straight = spec_of(&ids, &members);
        let mut list = straight.members().to_vec();
        list.sort_by_key(|m| shuffles[ids.iter().position(|id| id == m.id).unwrap()]);
        let shuffled = RingSpec::new(RingSize::S1021, SEED, list);
        prop_assert_eq!(owners(&straight), owners(&shuffled));
        prop_assert_eq!(digest_of(&straight), digest_of(&shuffled));
        prop_assert_eq!(ring_key(&straight), ring_key(&shuffled));
    }

    #[test]
    fn deaths_drains_and_returns_move_exactly_the_flows_that_must(
        weights in prop::collection::vec(1..20_u32, 2..12),
        steps in prop::collection::vec((any::<prop::sample::Index>(), 0..3_u8), 1..24),
        policy in prop::sample::select(vec![OnAllDown::Drop, OnAllDown::Withdraw]),
    ) {
        let ids = ids(weights.len());
        let mut backends: Vec<Backend> = ids.iter().map(backend).collect();
        for (backend, &w) in backends.iter_mut().zip(&weights) {
            backend.weight = weight(w.into());
        }
        let mut rule = rule(backends, policy);
        let first = owners(&RingSpec::for_rule(&rule, SEED));
        let serving = |rule: &Rule| -> BTreeSet<BackendId> {
            let spec = RingSpec::for_rule(rule, SEED);
            spec.members().iter().filter(|m| m.eligible == Eligible::Yes).map(|m| m.id.clone()).collect()
        };
        let (mut before, mut up_before) = (first.clone(), serving(&rule));
        for (index, what) in steps {
            let backend = index.get(&ids);
            let backend = rule.backends.iter_mut().find(|b| b.id == *backend).unwrap();
            match what {
                0 => backend.health = if backend.health == Health::Unhealthy { Health::Healthy } else { Health::Unhealthy },
                1 => backend.drain = if backend.drain == Drain::Yes { Drain::No } else { Drain::Yes },
                _ => backend.endpoint = if backend.endpoint.is_some() { None } else { super::tests::backend(&ids[0]).endpoint },
            }
            let (after, up) = (owners(&RingSpec::for_rule(&rule, SEED)), serving(&rule));
            for (old, new) in before.iter().zip(&after) {
                prop_assert_eq!(new.is_some(), !up.is_empty());
                prop_assert!(new.as_ref().is_none_or(|id| up.contains(id)));
                if old != new && let (Some(old), Some(new)) = (old, new) {
                    // A slot moves only off one that left or onto one that came.
                    prop_assert!(!up.contains(old) || !up_before.contains(new), "{old} to {new}");
                }
            }
            (before, up_before) = (after, up);
        }
        // Everyone back: the very ring of the start.
        for backend in &mut rule.backends {
            *backend = Backend { weight: backend.weight, ..super::tests::backend(&backend.id) };
        }
        prop_assert_eq!(owners(&RingSpec::for_rule(&rule, SEED)), first);
    }

    #[test]
    fn digests_and_keys_are_equal_exactly_when_slots_and_inputs_are(
        a in any_members(), b in any_members(), alike in 0..3_u8,
    ) {
        // Equal, equal but for who is up, or anything.
        let b = match alike {
            0 => a.clone(),
            1 => a.iter().zip(b.iter().cycle()).map(|(a, b)| (a.0, b.1)).collect(),
            _ => b,
        };
        let ids = ids(12);
        let (x, y) = (spec_of(&ids, &a), spec_of(&ids, &b));
        prop_assert_eq!(owners(&x) == owners(&y), digest_of(&x) == digest_of(&y));
        prop_assert_eq!(x == y, ring_key(&x) == ring_key(&y));
        let base = |m: &[(u32, bool)]| m.iter().map(|m| m.0).collect::<Vec<_>>();
        prop_assert_eq!(base(&a) == base(&b), base_key(&x) == base_key(&y));
    }
}
