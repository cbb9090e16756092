//! Tests of the announce plan: each rule by example, then all of them over random orders of events.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::model::{Affinity, ObjectName, OnAllDown, Protocol, RingSize, Rule};

const DRAIN: Duration = Duration::from_secs(5);

fn settings() -> PlanSettings {
    PlanSettings {
        region: "us-east".into(),
        locator: Some("2001:db8:ff01:1::/64".parse().unwrap()),
        region_community: LargeCommunity(65010, 1, 7),
        communities: BTreeSet::new(),
        large: BTreeSet::from([LargeCommunity(65010, 9, 9)]),
        drain_time: DRAIN,
    }
}

fn vip(n: u8) -> IpAddr {
    format!("2001:db8:1::{n}").parse().unwrap()
}

fn key(n: u8, port: u16) -> VipKey {
    VipKey { address: vip(n), protocol: Protocol::Tcp, port }
}

fn rule(n: u8, port: u16, region: &str) -> Arc<Rule> {
    Arc::new(Rule {
        name: ObjectName { namespace: "t".into(), name: format!("r{n}-{port}").into() },
        region: region.into(),
        vips: vec![vip(n)],
        protocol: Protocol::Tcp,
        port,
        affinity: Affinity::None,
        ring_size: RingSize::S1021,
        on_all_down: OnAllDown::Keep,
        backends: vec![],
    })
}

/// A `Desired` that wants these (VIP, port) and lets all of them be announced.
fn desired(generation: u64, keys: &[(u8, u16)]) -> Desired {
    Desired {
        unload: std::collections::BTreeSet::new(),
        generation,
        synced: true,
        rules: keys.iter().map(|&(n, p)| rule(n, p, "us-east")).map(|r| (r.name.clone(), r)).collect(),
        announce: keys.iter().map(|&(n, _)| vip(n)).collect(),
        drain: DrainStage::None,
    }
}

fn applied(generation: u64, keys: &[(u8, u16)]) -> Applied {
    Applied { generation, loaded: keys.iter().map(|&(n, p)| key(n, p)).collect(), ..Applied::default() }
}

struct Bench {
    state: AnnounceState,
    now: Instant,
    settled: u64,
    fitness: Fitness,
}

impl Bench {
    fn new() -> Self {
        let (state, now) = (AnnounceState::new(settings()), Instant::now());
        Self { state, now, settled: 0, fitness: Fitness::Proven }
    }
    fn step(&mut self, desired: &Desired, applied: &Applied) -> Decision {
        let forwarding = Forwarding::Preserved;
        let (settled, fitness) = (self.settled, self.fitness);
        self.state.step(Input { desired, applied, settled, forwarding, fitness }, self.now)
    }
    /// A step after every router was told of the plan in force.
    fn settle(&mut self, desired: &Desired, applied: &Applied) -> Decision {
        self.settled = self.state.plan().revision;
        self.step(desired, applied)
    }
}

fn vips(decision: &Decision) -> Vec<IpAddr> {
    decision.plan.vips.keys().map(IpNet::addr).collect()
}

#[test]
fn a_vip_is_announced_only_once_a_key_of_it_is_loaded() {
    let mut bench = Bench::new();
    let want = desired(1, &[(1, 80), (2, 80)]);
    assert!(vips(&bench.step(&want, &applied(0, &[]))).is_empty());
    assert_eq!(vips(&bench.step(&want, &applied(1, &[(2, 80)]))), [vip(2)]);
    assert_eq!(vips(&bench.step(&want, &applied(1, &[(1, 80), (2, 80)]))), [vip(1), vip(2)]);
}

#[test]
fn a_gateway_that_has_not_shown_that_it_forwards_announces_its_locator_and_no_vip() {
    let mut bench = Bench { fitness: Fitness::Unproven, ..Bench::new() };
    let (want, have) = (desired(1, &[(1, 80)]), applied(1, &[(1, 80)]));
    let decision = bench.step(&want, &have);
    assert!(vips(&decision).is_empty() && !decision.plan.node.is_empty());
    assert_eq!(decision.plan.end_of_rib, EndOfRib::Send, "no router keeps anything for it");
    assert!(decision.may_unload.is_empty());
    bench.fitness = Fitness::Proven;
    let decision = bench.step(&want, &have);
    assert_eq!(vips(&decision), [vip(1)]);
}

#[test]
fn a_loaded_key_that_nobody_wants_announces_nothing() {
    let mut bench = Bench::new();
    assert!(vips(&bench.step(&desired(1, &[]), &applied(0, &[(1, 80)]))).is_empty());
}

#[test]
fn a_rule_of_another_region_is_never_announced() {
    let mut bench = Bench::new();
    let mut want = desired(1, &[(1, 80)]);
    let foreign = rule(2, 80, "eu-west");
    want.rules.insert(foreign.name.clone(), foreign);
    want.announce.insert(vip(2));
    let decision = bench.settle(&want, &applied(1, &[(1, 80), (2, 80)]));
    assert_eq!(vips(&decision), [vip(1)]);
    assert!(decision.may_unload.is_empty());
}

#[test]
fn a_vip_goes_in_order_withdraw_then_drain_time_then_unload() {
    let mut bench = Bench::new();
    let loaded = applied(1, &[(1, 80)]);
    assert_eq!(vips(&bench.settle(&desired(1, &[(1, 80)]), &loaded)), [vip(1)]);

    let gone = desired(2, &[]);
    let decision = bench.step(&gone, &loaded);
    assert!(vips(&decision).is_empty(), "withdrawn at once");
    assert!(decision.may_unload.is_empty());

    bench.now += DRAIN * 10;
    let decision = bench.step(&gone, &loaded);
    assert!(decision.may_unload.is_empty(), "the withdraw is not out yet, however long that takes");

    let decision = bench.settle(&gone, &loaded);
    assert!(decision.may_unload.is_empty(), "the drain time has only begun");
    assert_eq!(decision.next_step, Some(bench.now + DRAIN));

    let drained = bench.now + DRAIN;
    bench.now = drained.checked_sub(Duration::from_millis(1)).unwrap();
    assert!(bench.step(&gone, &loaded).may_unload.is_empty());
    bench.now = drained;
    assert_eq!(bench.step(&gone, &loaded).may_unload, BTreeSet::from([key(1, 80)]));
}

#[test]
fn a_key_that_may_be_on_its_way_out_announces_nothing_until_the_data_plane_has_answered() {
    let mut bench = Bench::new();
    let loaded = |generation| applied(generation, &[(1, 80)]);
    bench.settle(&desired(1, &[(1, 80)]), &loaded(1));
    for _ in 0..3 {
        bench.settle(&desired(2, &[]), &loaded(1));
        bench.now += DRAIN;
    }
    assert!(!bench.settle(&desired(2, &[]), &loaded(1)).may_unload.is_empty());
    // Wanted again, while the data plane may already be unloading it.
    assert!(vips(&bench.step(&desired(3, &[(1, 80)]), &loaded(1))).is_empty());
    assert!(vips(&bench.step(&desired(3, &[(1, 80)]), &loaded(2))).is_empty());
    assert_eq!(vips(&bench.step(&desired(3, &[(1, 80)]), &loaded(3))), [vip(1)]);
}

#[test]
fn a_vip_shared_by_two_rules_stays_while_one_is_loaded() {
    let mut bench = Bench::new();
    let loaded = applied(1, &[(1, 80), (1, 443)]);
    bench.settle(&desired(1, &[(1, 80), (1, 443)]), &loaded);
    let decision = bench.settle(&desired(2, &[(1, 80)]), &loaded);
    assert_eq!(vips(&decision), [vip(1)]);
    assert_eq!(decision.may_unload, BTreeSet::from([key(1, 443)]), "no route to wait for");
    for generation in 3..103 {
        let both = desired(generation * 2, &[(1, 80), (1, 443)]);
        bench.settle(&both, &applied(generation * 2, &[(1, 80), (1, 443)]));
        let one = desired(generation * 2 + 1, &[(1, 80)]);
        assert_eq!(vips(&bench.settle(&one, &applied(generation * 2 + 1, &[(1, 80)]))), [vip(1)]);
    }
    let decision = bench.step(&desired(500, &[]), &applied(500, &[(1, 80)]));
    assert!(vips(&decision).is_empty());
}

#[test]
fn all_down_with_policy_withdraw_withdraws_and_keeps_the_key() {
    let mut bench = Bench::new();
    let loaded = applied(1, &[(1, 80)]);
    let mut want = desired(1, &[(1, 80)]);
    assert_eq!(vips(&bench.settle(&want, &loaded)), [vip(1)]);
    want.announce.clear();
    want.generation = 2;
    bench.settle(&want, &loaded);
    bench.now += DRAIN * 2;
    let decision = bench.settle(&want, &loaded);
    assert!(vips(&decision).is_empty());
    assert!(decision.may_unload.is_empty(), "it is still wanted");
}

#[test]
fn adopted_keys_stay_while_sources_are_not_synced() {
    let mut bench = Bench::new();
    let mut want = desired(1, &[]);
    want.synced = false;
    let adopted = applied(0, &[(1, 80)]);
    for _ in 0..3 {
        let decision = bench.settle(&want, &adopted);
        assert!(decision.may_unload.is_empty());
        assert_eq!(decision.plan.end_of_rib, EndOfRib::Withhold);
        bench.now += DRAIN * 2;
    }
    want.synced = true;
    assert_eq!(bench.settle(&want, &adopted).may_unload, BTreeSet::from([key(1, 80)]));
}

#[test]
fn end_of_rib_waits_for_the_sources_and_for_the_data_plane_to_answer_them() {
    let mut bench = Bench::new();
    let mut want = desired(3, &[(1, 80)]);
    want.synced = false;
    assert_eq!(bench.step(&want, &applied(3, &[(1, 80)])).plan.end_of_rib, EndOfRib::Withhold);
    want.synced = true;
    want.generation = 4;
    assert_eq!(bench.step(&want, &applied(3, &[(1, 80)])).plan.end_of_rib, EndOfRib::Withhold);
    let decision = bench.step(&want, &applied(4, &[(1, 80)]));
    assert_eq!(decision.plan.end_of_rib, EndOfRib::Send);
    want.generation = 9;
    assert_eq!(
        bench.step(&want, &applied(4, &[(1, 80)])).plan.end_of_rib,
        EndOfRib::Send,
        "once is for good"
    );
}

#[test]
fn a_drain_marks_then_withdraws_then_detaches() {
    let mut bench = Bench::new();
    let loaded = applied(1, &[(1, 80)]);
    let mut want = desired(1, &[(1, 80)]);
    bench.settle(&want, &loaded);

    want.drain = DrainStage::GracefulShutdown;
    let plan = bench.settle(&want, &loaded).plan;
    for route in plan.vips.values().chain(plan.node.values()) {
        assert!(route.communities.contains(&GRACEFUL_SHUTDOWN));
    }
    assert_eq!((plan.vips.len(), plan.node.len()), (1, 1));

    want.drain = DrainStage::Withdrawn;
    let decision = bench.settle(&want, &loaded);
    assert!(decision.plan.vips.is_empty());
    assert_eq!(
        decision.plan.node.len(),
        1,
        "packets are still served, so the fabric still needs the way back"
    );
    bench.settle(&want, &loaded);

    want.drain = DrainStage::Detached;
    assert!(!bench.step(&want, &loaded).may_detach);
    assert!(bench.state.plan().node.is_empty());
    bench.now += DRAIN;
    let decision = bench.step(&want, &loaded);
    assert!(!decision.may_detach, "the locator's withdraw is not out yet");
    assert!(bench.settle(&want, &loaded).may_detach);
}

#[test]
fn upstream_peers_get_vips_and_fabric_peers_the_locator() {
    let mut bench = Bench::new();
    let plan = bench.settle(&desired(1, &[(1, 80)]), &applied(1, &[(1, 80)])).plan;
    let of = |role, export| plan.routes_for(role, export).map(|(p, _)| p.to_string()).collect::<Vec<_>>();
    assert_eq!(of(PeerRole::Upstream, false), ["2001:db8:1::1/128"]);
    assert_eq!(of(PeerRole::Upstream, true), ["2001:db8:1::1/128"], "the locator never goes upstream");
    assert_eq!(of(PeerRole::Fabric, false), ["2001:db8:ff01:1::/64"]);
    assert_eq!(of(PeerRole::Fabric, true), ["2001:db8:ff01:1::/64", "2001:db8:1::1/128"]);
    let large = BTreeSet::from([LargeCommunity(65010, 1, 7), LargeCommunity(65010, 9, 9)]);
    assert!(
        plan.routes_for(PeerRole::Fabric, true).all(|(_, a)| a.large == large),
        "the region's and the operator's"
    );
}

#[test]
fn an_unchanged_input_keeps_the_revision() {
    let mut bench = Bench::new();
    let (want, have) = (desired(1, &[(1, 80)]), applied(1, &[(1, 80)]));
    let first = bench.step(&want, &have).plan;
    let second = bench.step(&want, &have).plan;
    assert_eq!(first.revision, second.revision);
    assert!(Arc::ptr_eq(&first.vips, &second.vips));
}

/// Something that happens to the model system.
#[derive(Clone, Debug)]
enum Step {
    /// The wanted (VIP, port) pairs change.
    Want(BTreeSet<(u8, u16)>),
    /// Health policy takes VIPs out.
    AllDown(BTreeSet<u8>),
    Sync,
    Drain(DrainStage),
    /// The data plane takes the newest `Desired` and decision.
    Take,
    /// The data plane applies what it took last, failing to load these.
    Apply(BTreeSet<(u8, u16)>),
    /// An `Applied` reaches the planner.
    ReadBack,
    /// A plan reaches the router.
    Deliver,
    /// The router's state is reported back.
    Report,
    Pass(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let pairs = || proptest::collection::btree_set((0u8..3, prop_oneof![Just(80u16), Just(443)]), 0..5);
    let stage = prop_oneof![
        4 => Just(DrainStage::None),
        1 => Just(DrainStage::GracefulShutdown),
        1 => Just(DrainStage::Withdrawn),
        1 => Just(DrainStage::Detached),
    ];
    let step = prop_oneof![
        3 => pairs().prop_map(Step::Want),
        1 => proptest::collection::btree_set(0u8..3, 0..2).prop_map(Step::AllDown),
        2 => Just(Step::Sync),
        1 => stage.prop_map(Step::Drain),
        4 => Just(Step::Take),
        4 => pairs().prop_map(|fail| Step::Apply(fail.into_iter().take(1).collect())),
        4 => Just(Step::ReadBack),
        4 => Just(Step::Deliver),
        4 => Just(Step::Report),
        4 => (0u64..8).prop_map(Step::Pass),
    ];
    proptest::collection::vec(step, 1..120)
}

/// A data plane, a router and the planner between them, each as late as the steps make it.
struct Model {
    state: AnnounceState,
    now: Instant,
    desired: Desired,
    decision: Decision,
    taken: Option<(Desired, BTreeSet<VipKey>)>,
    loaded: BTreeSet<VipKey>,
    read_back: VecDeque<Applied>,
    seen: Applied,
    in_flight: VecDeque<RoutePlan>,
    held: BTreeSet<IpAddr>,
    stale: BTreeSet<IpAddr>,
    lost_at: BTreeMap<IpAddr, Instant>,
    router_settled: u64,
    settled: u64,
}

impl Model {
    /// After a restart that adopted one key, whose route the router keeps as stale.
    fn new() -> Self {
        let adopted = applied(0, &[(0, 80)]);
        let mut want = desired(1, &[]);
        want.synced = false;
        let mut state = AnnounceState::new(settings());
        let now = Instant::now();
        let input = Input {
            desired: &want,
            applied: &adopted,
            settled: 0,
            forwarding: Forwarding::Preserved,
            fitness: Fitness::Proven,
        };
        let decision = state.step(input, now);
        Self {
            state,
            now,
            desired: want,
            decision,
            taken: None,
            loaded: adopted.loaded.clone(),
            read_back: VecDeque::new(),
            seen: adopted,
            in_flight: VecDeque::new(),
            held: BTreeSet::new(),
            stale: BTreeSet::from([vip(0)]),
            lost_at: BTreeMap::new(),
            router_settled: 0,
            settled: 0,
        }
    }

    fn change(&mut self, change: impl FnOnce(&mut Desired)) {
        self.desired.generation += 1;
        change(&mut self.desired);
    }

    fn happen(&mut self, step: Step) {
        match step {
            Step::Want(keys) => self.change(|d| {
                let keys: Vec<_> = keys.into_iter().collect();
                let new = desired(d.generation, &keys);
                d.rules = new.rules;
                d.announce = new.announce;
            }),
            Step::AllDown(down) => {
                self.change(|d| d.announce.retain(|a| !down.iter().any(|&n| vip(n) == *a)));
            }
            Step::Sync => self.change(|d| d.synced = true),
            Step::Drain(stage) => self.change(|d| d.drain = stage),
            Step::Take => {
                let paired = self.decision.generation == self.desired.generation;
                let may = if paired { self.decision.may_unload.clone() } else { BTreeSet::new() };
                self.taken = Some((self.desired.clone(), may));
            }
            Step::Apply(fail) => {
                if let Some((want, may_unload)) = self.taken.take() {
                    let keys: BTreeSet<_> = want.rules.values().flat_map(|r| r.keys()).collect();
                    self.loaded.retain(|k| keys.contains(k) || !may_unload.contains(k));
                    self.loaded.extend(keys.iter().filter(|k| !fail.iter().any(|&(n, p)| key(n, p) == **k)));
                    let loaded = self.loaded.clone();
                    self.read_back.push_back(Applied {
                        generation: want.generation,
                        loaded,
                        ..Applied::default()
                    });
                }
            }
            Step::ReadBack => {
                if let Some(applied) = self.read_back.pop_front() {
                    self.seen = applied;
                }
            }
            Step::Deliver => {
                if let Some(plan) = self.in_flight.pop_front() {
                    let before: BTreeSet<_> = self.held.union(&self.stale).copied().collect();
                    self.held = plan.vips.keys().map(IpNet::addr).collect();
                    if plan.end_of_rib == EndOfRib::Send {
                        self.stale.clear();
                        self.router_settled = plan.revision;
                    }
                    for lost in before.iter().filter(|v| !self.held.contains(v) && !self.stale.contains(v)) {
                        self.lost_at.insert(*lost, self.now);
                    }
                }
            }
            Step::Report => self.settled = self.router_settled,
            Step::Pass(seconds) => self.now += Duration::from_secs(seconds),
        }
        let before = self.decision.plan.revision;
        let input = Input {
            desired: &self.desired,
            applied: &self.seen,
            settled: self.settled,
            forwarding: Forwarding::Preserved,
            fitness: Fitness::Proven,
        };
        self.decision = self.state.step(input, self.now);
        if self.decision.plan.revision != before {
            self.in_flight.push_back(self.decision.plan.clone());
        }
    }

    fn check(&self) -> Result<(), TestCaseError> {
        let loaded: BTreeSet<_> = self.loaded.iter().map(|k| k.address).collect();
        for announced in vips(&self.decision) {
            prop_assert!(loaded.contains(&announced), "{announced} is announced and not loaded");
        }
        for held in self.held.union(&self.stale) {
            prop_assert!(loaded.contains(held), "the router sends packets for {held}, which is not loaded");
        }
        for key in &self.decision.may_unload {
            let vip = key.address;
            if self.decision.plan.vips.contains_key(&IpNet::from(vip)) {
                continue;
            }
            prop_assert!(
                !self.held.contains(&vip) && !self.stale.contains(&vip),
                "{key} unloads before the withdraw"
            );
            if let Some(&lost) = self.lost_at.get(&vip) {
                prop_assert!(self.now >= lost + DRAIN, "{key} unloads before its drain time");
            }
        }
        Ok(())
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn whatever_happens_what_is_advertised_is_loaded_and_unloading_waits_for_the_routers(steps in steps()) {
        let mut model = Model::new();
        for step in steps {
            model.happen(step);
            model.check()?;
        }
    }

    /// Safety alone would be met by never unloading: once all is quiet, what nobody wants is gone.
    #[test]
    fn when_all_is_quiet_unwanted_keys_are_gone_and_wanted_ones_announced(steps in steps()) {
        let mut model = Model::new();
        for step in steps {
            model.happen(step);
        }
        model.happen(Step::Sync);
        model.happen(Step::Drain(DrainStage::None));
        for _ in 0..40 {
            for step in [Step::Take, Step::Apply(BTreeSet::new()), Step::ReadBack, Step::Deliver, Step::Report, Step::Pass(1)] {
                model.happen(step);
            }
        }
        let wanted: BTreeSet<_> = model.desired.rules.values().flat_map(|r| r.keys()).collect();
        prop_assert_eq!(&model.loaded, &wanted);
        prop_assert_eq!(vips(&model.decision).into_iter().collect::<BTreeSet<_>>(), model.desired.announce.clone());
    }
}
