//! The reconciler on the fake data plane, which panics when a write could be seen half done.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroU64;
use std::sync::Arc;

use proptest::prelude::*;
use weir_bpf::abi::Affinity;

use super::ahead::{self, Built};
use super::apply::Reconciler;
use super::mem::Mem;
use super::{Dataplane as _, Limits, Tables};
use crate::desired::{Desired, RefusalCause};
use crate::maglev::{self, RingSpec, Seed};
use crate::model::{
    Backend, BackendId, Drain, Endpoint, Health, ObjectName, OnAllDown, Protocol, RingSize, Rule, Sid, VipKey,
};

const SEED: Seed = Seed([7; 16]);

fn backend(tenant: u8, n: u8) -> Backend {
    let address = format!("fd00::{n:x}").parse().unwrap();
    let sid = format!("2001:db8:ff01:{}:e{tenant:03x}::", n + 10).parse().unwrap();
    Backend {
        id: BackendId { vpc: format!("vpc-{tenant}").into(), attachment: "a".into(), address },
        weight: NonZeroU64::MIN,
        drain: Drain::No,
        health: Health::Unknown,
        endpoint: Some(Endpoint { node: format!("w{n}").into(), sid: Sid(sid) }),
    }
}

fn rule(tenant: u8, name: u8, vips: &[u8], backends: &[u8]) -> Rule {
    Rule {
        name: ObjectName {
            namespace: format!("tenant-{tenant}").into(),
            name: format!("rule-{name}").into(),
        },
        region: "r".into(),
        vips: vips.iter().map(|v| format!("2001:db8:a::{v:x}").parse().unwrap()).collect(),
        protocol: Protocol::Tcp,
        port: 443,
        affinity: Affinity::None,
        ring_size: RingSize::S1021,
        on_all_down: OnAllDown::Keep,
        backends: backends.iter().map(|n| backend(tenant, *n)).collect(),
    }
}

fn desired(rules: impl IntoIterator<Item = Rule>) -> Desired {
    let rules: BTreeMap<_, _> = rules.into_iter().map(|r| (r.name.clone(), Arc::new(r))).collect();
    Desired { synced: true, rules, ..Desired::default() }
}

#[test]
fn rings_built_ahead_equal_those_built_one_by_one() {
    let rules: Vec<_> = (0..40).map(|n| Arc::new(rule(1, n, &[n], &[n / 2, 50]))).collect();
    let key = |rule: &Arc<Rule>| maglev::ring_key(&RingSpec::for_rule(rule, SEED)).0;
    let first = key(&rules[0]);
    let built = ahead::build(&rules, SEED, |key| *key == first);
    assert_eq!(built.len(), 19, "20 rings differ, one of them is known");
    for rule in &rules[2..] {
        let (ahead, alone) = (&built[&key(rule)], Built::of(&RingSpec::for_rule(rule, SEED)));
        assert_eq!((&ahead.ring, ahead.digest), (&alone.ring, alone.digest));
    }
    assert!(ahead::build(&rules[..8], SEED, |_| false).is_empty(), "a few are built as they come");
}

/// As the route plan would, once the routes are gone.
fn unload_all(reconciler: &Reconciler<Mem>, desired: &mut Desired) {
    desired.unload = reconciler.tables().vips.keys().copied().collect();
}

/// Each loaded key's ring is the one that its rule asks for, and fragments are led where they may be and nowhere else.
fn check(reconciler: &mut Reconciler<Mem>, desired: &Desired) {
    let applied = reconciler.applied(desired);
    let tables = reconciler.tables();
    assert_eq!(tables.fragments, led(tables));
    assert_eq!(reconciler.dataplane().read_back().unwrap().fragments, led(reconciler.tables()));
    let mem = reconciler.dataplane().clone();
    for rule in desired.rules.values() {
        if applied.refused.contains_key(&rule.name) {
            continue;
        }
        let spec = RingSpec::for_rule(rule, SEED);
        let ring = maglev::build(&spec);
        for key in rule.keys() {
            for (slot, wanted) in (0..).zip(ring.identities(&spec)) {
                let found = mem.backend_at(&key, slot);
                assert_eq!(found.map(|b| &b.id), wanted, "{key} slot {slot}");
                let sid = rule
                    .backends
                    .iter()
                    .find(|b| Some(&b.id) == wanted)
                    .map(|b| b.endpoint.as_ref().unwrap().sid);
                assert_eq!(found.map(|b| b.sid), sid);
            }
        }
    }
}

/// The entries that lead fragments, from what is loaded: one for each VIP and protocol with a single key, whose affinity leaves
/// the ports out.
fn led(tables: &Tables) -> BTreeMap<(IpAddr, Protocol), u32> {
    let mut keys: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for (key, entry) in &tables.vips {
        keys.entry((key.address, key.protocol)).or_default().push(entry);
    }
    let only = keys.into_iter().filter_map(|(of, entries)| match entries[..] {
        [entry] if entry.word.affinity() != Affinity::None => Some((of, entry.index)),
        _ => None,
    });
    only.collect()
}

fn limits() -> Limits {
    Limits { vips: 12, backends: 24, ring_slots: 16 * 64 * 12, next_hops: 8, ..Limits::default() }
}

fn reconciler() -> Reconciler<Mem> {
    Reconciler::new(Mem::new(limits()), SEED).unwrap()
}

#[test]
fn a_rule_is_loaded_changed_and_unloaded() {
    let mut r = reconciler();
    let mut want = desired([rule(1, 1, &[1, 2], &[1, 2, 3])]);
    let applied = r.apply(&want).unwrap();
    assert_eq!(applied.loaded.len(), 2);
    check(&mut r, &want);
    want = desired([rule(1, 1, &[1, 2], &[2, 3, 4])]);
    r.apply(&want).unwrap();
    check(&mut r, &want);
    want = desired([]);
    assert_eq!(r.apply(&want).unwrap().lingering.len(), 2, "served until the routes are gone");
    unload_all(&r, &mut want);
    let applied = r.apply(&want).unwrap();
    assert!(applied.loaded.is_empty() && r.tables().backends.is_empty() && r.tables().owned.is_empty());
}

#[test]
fn nothing_is_removed_before_all_sources_are_read() {
    let mut r = reconciler();
    r.apply(&desired([rule(1, 1, &[1], &[1])])).unwrap();
    let mut want = Desired { synced: false, ..desired([]) };
    unload_all(&r, &mut want);
    assert_eq!(r.apply(&want).unwrap().loaded.len(), 1);
}

#[test]
fn a_restart_writes_nothing_when_nothing_changed() {
    let mut r = reconciler();
    let sticky = Rule { affinity: Affinity::ClientIp, ..rule(1, 2, &[4], &[1, 2]) };
    let want = desired([rule(1, 1, &[1, 2], &[1, 2]), rule(2, 1, &[3], &[1, 2]), sticky]);
    r.apply(&want).unwrap();
    let mem = r.dataplane().clone();
    let before = mem.writes;
    let mut r = Reconciler::new(mem, SEED).unwrap();
    r.apply(&want).unwrap();
    assert_eq!(r.dataplane().writes, before);
    check(&mut r, &want);
}

#[test]
fn fragments_are_led_to_a_vips_only_rule_whose_affinity_leaves_the_ports_out() {
    let mut r = reconciler();
    let sticky = |name, port, affinity| Rule { port, affinity, ..rule(1, name, &[1], &[1, 2]) };
    let mut steps = vec![
        (vec![sticky(1, 443, Affinity::None)], None),
        (vec![sticky(1, 443, Affinity::ClientIp)], Some(1)),
        (vec![sticky(1, 443, Affinity::ClientIpAndProtocol)], Some(1)),
        (vec![sticky(1, 443, Affinity::ClientIp), sticky(2, 80, Affinity::None)], None),
        (vec![sticky(1, 443, Affinity::ClientIp), sticky(2, 80, Affinity::ClientIp)], None),
        (vec![sticky(2, 80, Affinity::ClientIp)], Some(2)),
        // Another protocol is another matter.
        (
            vec![
                sticky(2, 80, Affinity::ClientIp),
                Rule { protocol: Protocol::Udp, ..sticky(1, 80, Affinity::None) },
            ],
            Some(2),
        ),
        (vec![sticky(3, 80, Affinity::ClientIp)], Some(3)),
        (vec![], None),
    ];
    steps.extend(steps.clone());
    for (n, (rules, wanted)) in steps.into_iter().enumerate() {
        let mut want = desired(rules);
        unload_all(&r, &mut want);
        r.apply(&want).unwrap();
        check(&mut r, &want);
        let tables = r.tables();
        let owner =
            |index: &u32| tables.vips.values().find(|e| e.index == *index).map(|e| e.rule.name.to_string());
        let led: Vec<_> = tables.fragments.values().filter_map(owner).collect();
        assert_eq!(led, wanted.map(|n| format!("rule-{n}")).into_iter().collect::<Vec<_>>(), "step {n}");
    }
    assert!(r.tables().fragments.is_empty());
}

#[test]
fn equal_rings_share_one_region_and_different_tenants_never_do() {
    let mut r = reconciler();
    r.apply(&desired([rule(1, 1, &[1, 2], &[1, 2]), rule(1, 2, &[3], &[1, 2]), rule(2, 1, &[4], &[1, 2])]))
        .unwrap();
    let base = |vip: u8| {
        let key = VipKey {
            address: format!("2001:db8:a::{vip:x}").parse().unwrap(),
            protocol: Protocol::Tcp,
            port: 443,
        };
        r.tables().vips[&key].word.base()
    };
    assert_eq!([base(1), base(2)], [base(3); 2]);
    assert_ne!(base(1), base(4));
}

#[test]
fn a_full_map_refuses_the_new_rule_whole_and_keeps_the_others() {
    let mut r = reconciler();
    let mut rules: Vec<Rule> = (1..=11).map(|n| rule(1, n, &[n], &[1])).collect();
    r.apply(&desired(rules.clone())).unwrap();
    rules.push(rule(1, 12, &[12, 13], &[1]));
    let applied = r.apply(&desired(rules.clone())).unwrap();
    let (name, reason) = applied.refused.first_key_value().unwrap();
    assert_eq!((&*name.name, applied.refused.len()), ("rule-12", 1));
    assert_eq!(reason.cause, RefusalCause::LimitReached);
    assert_eq!(
        reason.message,
        "load into map vip_index: 2 more entries are needed and 1 of 12 are free; remove rules, or raise `limits.vips` (now 12) \
         and restart the gateway"
    );
    assert_eq!(applied.loaded.len(), 11, "no half of the refused rule");
    rules.drain(..2);
    let mut want = desired(rules);
    unload_all(&r, &mut want);
    let applied = r.apply(&want).unwrap();
    assert!(applied.refused.is_empty(), "room was made: {:?}", applied.refused);
    check(&mut r, &want);
}

/// Each limit in turn is one too small for the second rule: not one write is made for it.
#[test]
fn what_does_not_fit_is_refused_before_the_first_write_and_says_which_limit() {
    let roomy = Limits { vips: 16, backends: 24, ring_slots: 1 << 16, next_hops: 8, fragments: 8 };
    let cases = [
        (Limits { vips: 2, ..roomy }, "limits.vips", "2 more entries are needed and 1 of 2 are free"),
        (Limits { backends: 4, ..roomy }, "limits.backends", "3 more entries are needed and 1 of 4 are free"),
        (
            Limits { ring_slots: 1536, ..roomy },
            "limits.ringSlots",
            "1024 more entries are needed and 512 of 1536",
        ),
    ];
    for (limits, limit, words) in cases {
        let mut r = Reconciler::new(Mem::new(limits), SEED).unwrap();
        let first = rule(1, 1, &[1], &[1, 2]);
        r.apply(&desired([first.clone()])).unwrap();
        let before = r.dataplane().writes;
        let applied = r.apply(&desired([first, rule(1, 2, &[2, 3], &[3, 4, 5])])).unwrap();
        let (_, reason) = applied.refused.first_key_value().unwrap();
        assert_eq!(reason.cause, RefusalCause::LimitReached);
        assert!(reason.message.contains(words) && reason.message.contains(limit), "{}", reason.message);
        assert_eq!(
            r.dataplane().writes,
            before,
            "{limit}: something was written of a rule that does not fit"
        );
        assert_eq!(applied.loaded.len(), 1);
    }
}

#[test]
fn what_was_given_up_makes_room_within_one_pass() {
    // Room for three rings: two rules, and one to move each of them to.
    let limits = Limits { vips: 16, backends: 24, ring_slots: 3 * 1024, next_hops: 8, fragments: 8 };
    let mut r = Reconciler::new(Mem::new(limits), SEED).unwrap();
    r.apply(&desired([rule(1, 1, &[1], &[1, 2]), rule(1, 2, &[2], &[3, 4])])).unwrap();
    let want = desired([rule(1, 1, &[1], &[5, 6]), rule(1, 2, &[2], &[7, 8])]);
    let applied = r.apply(&want).unwrap();
    assert!(applied.refused.is_empty(), "{:?}", applied.refused);
    check(&mut r, &want);
}

#[test]
fn an_endpoint_that_moves_builds_no_ring_and_leaves_no_slot_on_the_old_one() {
    let mut r = reconciler();
    let mut rules: Vec<Rule> = (1..=5).map(|n| rule(1, n, &[n], &[1, n + 10])).collect();
    r.apply(&desired(rules.clone())).unwrap();
    assert_eq!(r.ring_builds(), 5);
    for b in
        rules.iter_mut().flat_map(|r| &mut r.backends).filter(|b| b.id.address == backend(1, 1).id.address)
    {
        b.endpoint =
            Some(Endpoint { node: "elsewhere".into(), sid: Sid("2001:db8:ff01:99:e001::".parse().unwrap()) });
    }
    let want = desired(rules.clone());
    r.apply(&want).unwrap();
    check(&mut r, &want);
    assert_eq!(r.ring_builds(), 5);
    // Adopted rings are built once more, since nobody wrote down which slot is whose place.
    let mut r = Reconciler::new(r.dataplane().clone(), SEED).unwrap();
    for b in
        rules.iter_mut().flat_map(|r| &mut r.backends).filter(|b| b.id.address == backend(1, 1).id.address)
    {
        b.endpoint = backend(1, 1).endpoint;
    }
    let want = desired(rules);
    r.apply(&want).unwrap();
    check(&mut r, &want);
    assert_eq!(r.ring_builds(), 5);
}

#[test]
fn a_loaded_rule_keeps_its_ring_class_also_over_a_restart() {
    let mut r = reconciler();
    let small = rule(1, 1, &[1], &[1, 2]);
    let large = Rule { ring_size: RingSize::S4093, ..small.clone() };
    r.apply(&desired([small.clone()])).unwrap();
    for restart in [false, true] {
        if restart {
            r = Reconciler::new(r.dataplane().clone(), SEED).unwrap();
        }
        let applied = r.apply(&desired([large.clone()])).unwrap();
        let (_, refusal) = applied.refused.first_key_value().unwrap();
        assert_eq!(refusal.cause, RefusalCause::Immutable);
        assert!(
            refusal.message.contains("its ring has 1021 slots and spec.ringSize is now 4093"),
            "{}",
            refusal.message
        );
        check(&mut r, &desired([small.clone()]));
    }
    // Made anew, also while the old one's keys still wait for their routes to go.
    r.apply(&desired([])).unwrap();
    let want = desired([large]);
    let applied = r.apply(&want).unwrap();
    assert!(applied.refused.is_empty(), "{:?}", applied.refused);
    check(&mut r, &want);
}

#[test]
fn sets_of_none_one_and_512_backends_end_as_their_policy_says() {
    let limits = Limits { vips: 16, backends: 1100, ring_slots: 1 << 19, next_hops: 8, fragments: 8 };
    let mut r = Reconciler::new(Mem::new(limits), SEED).unwrap();
    let many: Vec<Backend> = (0..512_u16)
        .map(|n| {
            let mut b = backend(1, 1);
            b.id.address = format!("fd00::{n:x}").parse().unwrap();
            b.endpoint.as_mut().unwrap().sid =
                Sid(format!("2001:db8:ff01:{:x}:e001::", n + 1).parse().unwrap());
            b
        })
        .collect();
    let of = |name: u8, backends: Vec<Backend>, on_all_down| Rule {
        backends,
        on_all_down,
        ring_size: RingSize::S65537,
        ..rule(1, name, &[name], &[])
    };
    let down = |mut backends: Vec<Backend>, drain| {
        for b in &mut backends {
            b.health = Health::Unhealthy;
            b.drain = drain;
        }
        backends
    };
    let one = vec![backend(1, 1)];
    let want = desired([
        of(1, vec![], OnAllDown::Keep),
        of(2, one.clone(), OnAllDown::Keep),
        of(3, many.clone(), OnAllDown::Keep),
        of(4, down(one.clone(), Drain::No), OnAllDown::Keep),
        of(5, down(one.clone(), Drain::No), OnAllDown::Drop),
        of(6, down(one, Drain::Yes), OnAllDown::Keep),
    ]);
    let applied = r.apply(&want).unwrap();
    assert!(applied.refused.is_empty(), "{:?}", applied.refused);
    let mem = r.dataplane().clone();
    let owners = |n: u8| -> std::collections::BTreeSet<_> {
        let key = rule(1, n, &[n], &[]).keys().next().unwrap();
        (0..65_537).map(|slot| mem.backend_at(&key, slot).map(|b| b.id.clone())).collect()
    };
    let none = std::collections::BTreeSet::from([None]);
    assert_eq!(owners(1), none);
    assert_eq!(owners(2), [Some(backend(1, 1).id)].into());
    assert_eq!(owners(3), many.iter().map(|b| Some(b.id.clone())).collect());
    assert_eq!(owners(4), [Some(backend(1, 1).id)].into(), "keep: a verdict may be wrong");
    assert_eq!(owners(5), none, "drop");
    assert_eq!(owners(6), none, "drained is the operator's word, which keep does not overrule");
}

#[test]
fn a_key_that_passes_to_a_rule_with_the_same_ring_goes_on_being_served() {
    let mut r = reconciler();
    r.apply(&desired([rule(1, 1, &[1], &[1, 2])])).unwrap();
    let want = desired([rule(1, 2, &[1], &[1, 2])]);
    r.apply(&want).unwrap();
    check(&mut r, &want);
    // What was given up meanwhile may be used again.
    let want = desired([rule(1, 2, &[1], &[1, 2]), rule(2, 1, &[2], &[3, 4])]);
    r.apply(&want).unwrap();
    check(&mut r, &want);
}

#[test]
fn churn_leaves_no_index_behind() {
    let mut r = reconciler();
    for n in 0..400_u32 {
        let (vip, b) = ((n % 9) as u8, (n % 20) as u8);
        let mut want = desired([rule((n % 3) as u8, (n % 4) as u8, &[vip, vip + 1], &[b, b + 1, b + 2])]);
        unload_all(&r, &mut want);
        let applied = r.apply(&want).unwrap();
        assert!(applied.refused.is_empty(), "{:?}", applied.refused);
        check(&mut r, &want);
    }
}

#[derive(Clone, Debug)]
enum Op {
    Put { tenant: u8, name: u8, vip: u8, port: u16, affinity: Affinity, backends: Vec<u8>, down: u8 },
    Delete(u8),
    Unload,
    Fault(u32),
    Restart,
    MoveEndpoint(u8),
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        5 => (
            (0..3_u8, 0..5_u8, 0..6_u8),
            (80..82_u16, prop::sample::select(vec![Affinity::None, Affinity::ClientIp, Affinity::ClientIpAndProtocol])),
            prop::collection::btree_set(0..8_u8, 1..5),
            0..8_u8
        ).prop_map(
            |((tenant, name, vip), (port, affinity), backends, down)| {
                Op::Put { tenant, name, vip, port, affinity, backends: backends.into_iter().collect(), down }
            }
        ),
        2 => (0..8_u8).prop_map(Op::Delete),
        3 => Just(Op::Unload),
        2 => (0..40_u32).prop_map(Op::Fault),
        1 => Just(Op::Restart),
        1 => (0..8_u8).prop_map(Op::MoveEndpoint),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    /// Whatever happens, no write is seen half done (the fake asserts it), no flow leaves its tenant, and once faults
    /// cease every rule is exactly as asked.
    #[test]
    fn any_history_ends_as_desired(ops in prop::collection::vec(op(), 1..40)) {
        let mut r = Reconciler::new(Mem::new(Limits { vips: 64, backends: 200, ring_slots: 16 * 64 * 64, next_hops: 8, ..Limits::default() }), SEED).unwrap();
        let mut rules: BTreeMap<ObjectName, Rule> = BTreeMap::new();
        let mut moved = 0_u16;
        for op in ops {
            let unload = matches!(op, Op::Unload);
            match op {
                Op::Put { tenant, name, vip, port, affinity, backends, down } => {
                    let mut new = Rule { port, affinity, ..rule(tenant, name, &[vip], &backends) };
                    new.backends.iter_mut().filter(|b| b.id.address == format!("fd00::{down:x}").parse::<std::net::IpAddr>().unwrap()).for_each(|b| b.health = Health::Unhealthy);
                    // Validation admits one rule a key.
                    rules.retain(|_, other| !other.keys().eq(new.keys()));
                    rules.insert(new.name.clone(), new);
                }
                Op::Delete(n) => {
                    if let Some(name) = rules.keys().nth(n as usize).cloned() {
                        rules.remove(&name);
                    }
                }
                Op::MoveEndpoint(n) => {
                    moved += 1;
                    for b in rules.values_mut().flat_map(|r| &mut r.backends) {
                        if b.id.address == format!("fd00::{n:x}").parse::<std::net::IpAddr>().unwrap() {
                            let tenant = &b.id.vpc[4..];
                            b.endpoint = Some(Endpoint { node: "moved".into(), sid: Sid(format!("2001:db8:ff01:{moved:x}:e00{tenant}::").parse().unwrap()) });
                        }
                    }
                }
                Op::Fault(n) => r.dataplane().fail_in(n),
                Op::Restart => {
                    let mem = r.dataplane().clone();
                    r = Reconciler::new(mem, SEED).unwrap();
                }
                Op::Unload => {}
            }
            let mut want = desired(rules.values().cloned());
            if unload {
                unload_all(&r, &mut want);
            }
            // A fault may end a pass early; the next one goes on.
            let _ = r.apply(&want);
            let mem = r.dataplane().clone();
            for (key, entry) in &r.tables().vips {
                for slot in 0..1021 {
                    if let Some(b) = mem.backend_at(key, slot) {
                        prop_assert_eq!(&b.id.vpc[4..], &entry.rule.namespace[7..], "a flow left its tenant");
                    }
                }
            }
        }
        r.dataplane().fail_in(u32::MAX);
        let mut want = desired(rules.values().cloned());
        for _ in 0..4 {
            unload_all(&r, &mut want);
            // Refused rules are tried again when something changes.
            want.generation += 1;
            let _ = r.retry(&want);
        }
        let applied = r.applied(&want);
        prop_assert!(applied.refused.is_empty(), "{:?}", applied.refused);
        check(&mut r, &want);
    }
}
