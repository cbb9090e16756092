//! From objects to what is served and announced; the outcome depends on the objects alone, never on their history.

use std::num::NonZeroU64;
use std::time::SystemTime;

use proptest::prelude::*;
use weir_api::checked::{
    CheckedBackend, CheckedEndpoint, CheckedObject, CheckedRule, Identity, SidSource, Transport,
};
use weir_api::network_rule::{self, Affinity};

use super::*;
use crate::config::PeerRole;
use crate::desired::{Refusal, RefusalCause};
use crate::event::Loaded;
use crate::model::{Families, Rules, VipKey};

fn settings() -> Settings {
    Settings {
        site: Site { region: "us-east".into(), block: "2001:db8:ff01::/48".parse().unwrap() },
        sources: BTreeSet::from(["files".to_string()]),
        graceful_shutdown: Duration::from_secs(5),
        drain: Duration::from_secs(3),
    }
}

fn id(namespace: &str, name: &str) -> Identity {
    Identity { namespace: namespace.into(), name: name.into(), created: None, deleted: false }
}

fn rule(namespace: &str, name: &str, vips: &[&str], vpc: &str, backends: &[&str]) -> CheckedRule {
    let backend = |a: &&str| CheckedBackend {
        address: a.parse().unwrap(),
        weight: NonZeroU64::MIN,
        drained: false,
        health: network_rule::Health::Unknown,
    };
    CheckedRule {
        id: id(namespace, name),
        region: None,
        vips: vips.iter().map(|v| v.parse().unwrap()).collect(),
        transport: Transport::Tcp,
        port: 443,
        affinity: Affinity::None,
        ring_size: 4093,
        on_all_down: network_rule::OnAllDown::Keep,
        vpc: vpc.into(),
        attachment: format!("{vpc}-east").into(),
        backends: backends.iter().map(backend).collect(),
        health_check: None,
    }
}

fn endpoint(name: &str, vpc: &str, address: &str, node: &str, sid: &str) -> CheckedEndpoint {
    CheckedEndpoint {
        id: id("platform", name),
        vpc: vpc.into(),
        attachment: format!("{vpc}-east").into(),
        address: address.parse().unwrap(),
        node: node.into(),
        sid: SidSource::Whole(sid.parse().unwrap()),
    }
}

fn loaded(object: CheckedObject) -> Arc<Loaded> {
    Arc::new(Loaded { origin: format!("{}.yaml", object.id().name), object })
}

fn set(rules: &[CheckedRule], endpoints: &[CheckedEndpoint]) -> ObjectSet {
    let rules = rules.iter().cloned().map(CheckedObject::Rule);
    let endpoints = endpoints.iter().cloned().map(CheckedObject::Endpoint);
    ObjectSet::new(rules.chain(endpoints).map(loaded).collect())
}

fn state(rules: &[CheckedRule], endpoints: &[CheckedEndpoint]) -> State {
    let mut state = State::new(settings());
    state.apply(Event::Objects(set(rules, endpoints)), Instant::now());
    state
}

fn name(namespace: &str, name: &str) -> ObjectName {
    ObjectName { namespace: namespace.into(), name: name.into() }
}

/// SIDs of a rule's backends, `-` where none is known.
fn sids(state: &State, namespace: &str, rule: &str) -> Vec<String> {
    let rule = &state.desired().rules[&name(namespace, rule)];
    let sid = |b: &crate::model::Backend| b.endpoint.as_ref().map_or("-".into(), |e| e.sid.to_string());
    rule.backends.iter().map(sid).collect()
}

fn condition(state: &State, namespace: &str, rule: &str, kind: &str) -> RuleCondition {
    let status = state.rule_status(&name(namespace, rule)).unwrap();
    status.conditions.into_iter().find(|c| c.kind == kind).unwrap()
}

#[test]
fn two_tenants_with_equal_addresses_resolve_to_their_own_endpoints() {
    let s = state(
        &[
            rule("a", "web", &["2001:db8:100::1"], "vpc-a", &["fd00::1"]),
            rule("b", "web", &["2001:db8:100::2"], "vpc-b", &["fd00::1"]),
        ],
        &[
            endpoint("a1", "vpc-a", "fd00::1", "w1", "2001:db8:ff01:11:e001::"),
            endpoint("b1", "vpc-b", "fd00::1", "w1", "2001:db8:ff01:11:e002::"),
        ],
    );
    assert_eq!(sids(&s, "a", "web"), ["2001:db8:ff01:11:e001::"]);
    assert_eq!(sids(&s, "b", "web"), ["2001:db8:ff01:11:e002::"]);
    assert_eq!(condition(&s, "a", "web", "BackendsResolved").status, Truth::True);
}

#[test]
fn two_endpoints_for_one_address_fail_closed_and_the_rest_serves() {
    let web = rule("a", "web", &["2001:db8:100::1"], "vpc-a", &["fd00::1", "fd00::2"]);
    let one = endpoint("a1", "vpc-a", "fd00::1", "w1", "2001:db8:ff01:11:e001::");
    let two = endpoint("a2", "vpc-a", "fd00::2", "w2", "2001:db8:ff01:12:e001::");
    let again = endpoint("z1", "vpc-a", "fd00::1", "w3", "2001:db8:ff01:13:e001::");
    let mut s = state(std::slice::from_ref(&web), &[one.clone(), two.clone(), again]);
    assert_eq!(sids(&s, "a", "web"), ["-", "2001:db8:ff01:12:e001::"]);
    assert_eq!(
        condition(&s, "a", "web", "BackendsResolved").message,
        "1 of 2 backends lead nowhere: VPCEndpoints platform/a1 and platform/z1 both have address fd00::1 in VPC vpc-a"
    );
    assert!(s.apply(Event::Objects(set(&[web], &[one, two])), Instant::now()));
    assert_eq!(sids(&s, "a", "web"), ["2001:db8:ff01:11:e001::", "2001:db8:ff01:12:e001::"]);
}

#[test]
fn one_sid_for_two_tenants_leads_neither_anywhere() {
    let rules = [
        rule("a", "web", &["2001:db8:100::1"], "vpc-a", &["fd00::1"]),
        rule("b", "web", &["2001:db8:100::2"], "vpc-b", &["fd00::9"]),
    ];
    let a = endpoint("a1", "vpc-a", "fd00::1", "w1", "2001:db8:ff01:11:e001::");
    let b = endpoint("b1", "vpc-b", "fd00::9", "w1", "2001:db8:ff01:11:e001::");
    let mut s = state(&rules, std::slice::from_ref(&a));
    assert_eq!(sids(&s, "a", "web"), ["2001:db8:ff01:11:e001::"]);
    s.apply(Event::Objects(set(&rules, &[a.clone(), b])), Instant::now());
    assert_eq!((sids(&s, "a", "web"), sids(&s, "b", "web")), (vec!["-".to_string()], vec!["-".to_string()]));
    s.apply(Event::Objects(set(&rules, &[a])), Instant::now());
    assert_eq!(sids(&s, "a", "web"), ["2001:db8:ff01:11:e001::"]);
}

#[test]
fn endpoints_of_one_tenant_on_one_node_may_share_a_sid() {
    let s = state(
        &[rule("a", "web", &["2001:db8:100::1"], "vpc-a", &["fd00::1", "fd00::2"])],
        &[
            endpoint("a1", "vpc-a", "fd00::1", "w1", "2001:db8:ff01:11:e001::"),
            endpoint("a2", "vpc-a", "fd00::2", "w1", "2001:db8:ff01:11:e001::"),
        ],
    );
    assert_eq!(sids(&s, "a", "web"), ["2001:db8:ff01:11:e001::", "2001:db8:ff01:11:e001::"]);
}

#[test]
fn an_endpoint_on_another_attachment_or_without_a_whole_sid_leads_nowhere() {
    let mut other = endpoint("a1", "vpc-a", "fd00::1", "w1", "2001:db8:ff01:11:e001::");
    other.attachment = "vpc-a-west".into();
    let mut composed = endpoint("a2", "vpc-a", "fd00::2", "w1", "2001:db8:ff01:11:e001::");
    composed.sid = SidSource::Composed { function: weir_api::vpc_endpoint::Function::EndDt46, argument: 1 };
    let s = state(
        &[rule("a", "web", &["2001:db8:100::1"], "vpc-a", &["fd00::1", "fd00::2"])],
        &[other, composed],
    );
    assert_eq!(
        condition(&s, "a", "web", "BackendsResolved").message,
        "2 of 2 backends lead nowhere: VPCEndpoint platform/a1 is on attachment vpc-a-west, not on the rule's vpc-a-east; \
         VPCEndpoint platform/a2 gives function and argument, but the locator of node w1 is not known: give spec.sid"
    );
}

#[test]
fn only_rules_of_this_region_or_of_none_are_served() {
    let mut here = rule("a", "here", &["2001:db8:100::1"], "vpc-a", &["fd00::1"]);
    here.region = Some("us-east".into());
    let mut there = rule("a", "there", &["2001:db8:100::2"], "vpc-a", &["fd00::1"]);
    there.region = Some("eu-west".into());
    let s = state(&[here, there, rule("a", "none", &["2001:db8:100::3"], "vpc-a", &["fd00::1"])], &[]);
    let names: Vec<_> = s.desired().rules.values().map(|r| (&*r.name.name, r.region.as_str())).collect();
    assert_eq!(names, [("here", "us-east"), ("none", "us-east")]);
    assert_eq!(s.desired().announce.len(), 2);
    assert_eq!(condition(&s, "a", "there", "Advertised").message, "region eu-west serves it");
}

#[test]
fn the_older_of_two_rules_has_the_key_whatever_their_order_and_after_a_restart() {
    let at = |s| Some(SystemTime::UNIX_EPOCH + Duration::from_secs(s));
    let mut young =
        rule("a", "first-by-name", &["2001:db8:100::1", "2001:db8:100::9"], "vpc-a", &["fd00::1"]);
    young.id.created = at(200);
    let mut old = rule("z", "web", &["2001:db8:100::1"], "vpc-z", &["fd00::1"]);
    old.id.created = at(100);
    let both = [young.clone(), old.clone()];
    let mut grown = state(std::slice::from_ref(&young), &[]);
    assert_eq!(grown.desired().announce.len(), 2);
    grown.apply(Event::Objects(set(&both, &[])), Instant::now());
    for s in [&grown, &state(&both, &[])] {
        assert_eq!(s.desired().rules.keys().collect::<Vec<_>>(), [&name("z", "web")]);
        assert_eq!(s.desired().announce.len(), 1, "a rule that loses one key takes none");
        let accepted = condition(s, "a", "first-by-name", "Accepted");
        assert_eq!(
            accepted.message,
            "spec.vipAddresses: [2001:db8:100::1]:443/tcp is taken by the rule z/web, which is older or comes first by name; give another address or port"
        );
    }
    grown.apply(Event::Objects(set(&[young], &[])), Instant::now());
    assert_eq!(grown.desired().rules.len(), 1, "the loser is served once the winner is gone");
}

#[test]
fn a_rule_that_loses_one_key_bars_nobody_from_its_others() {
    let vips = ["2001:db8:100::1", "2001:db8:100::2"];
    let middle = rule("b", "web", &vips, "v", &["fd00::1"]);
    let last = rule("c", "web", &vips[1..], "v", &["fd00::1"]);
    let mut s = state(&[rule("a", "web", &vips[..1], "v", &["fd00::1"]), middle.clone(), last.clone()], &[]);
    assert_eq!(s.desired().rules.keys().collect::<Vec<_>>(), [&name("a", "web"), &name("c", "web")]);
    s.apply(Event::Objects(set(&[middle, last], &[])), Instant::now());
    assert_eq!(s.desired().rules.keys().collect::<Vec<_>>(), [&name("b", "web")]);
}

#[test]
fn a_vip_in_the_regions_block_is_refused_and_bars_nobody() {
    let s = state(
        &[
            rule("a", "web", &["2001:db8:ff01::1", "2001:db8:100::1"], "v", &["fd00::1"]),
            rule("b", "web", &["2001:db8:100::1"], "v", &["fd00::1"]),
        ],
        &[],
    );
    assert_eq!(s.desired().rules.keys().collect::<Vec<_>>(), [&name("b", "web")]);
    assert_eq!(
        condition(&s, "a", "web", "Accepted").message,
        "spec.vipAddresses: 2001:db8:ff01::1 lies in the region's SRv6 block 2001:db8:ff01::/48; give an address outside it"
    );
}

#[test]
fn an_object_that_is_being_deleted_is_gone() {
    let mut web = rule("a", "web", &["2001:db8:100::1"], "vpc-a", &["fd00::1"]);
    web.id.deleted = true;
    assert!(state(&[web], &[]).desired().rules.is_empty());
}

#[test]
fn withdraw_takes_a_vip_back_when_no_backend_serves_and_gives_it_again() {
    let mut web = rule("a", "web", &["2001:db8:100::1"], "vpc-a", &["fd00::1", "fd00::2"]);
    web.on_all_down = network_rule::OnAllDown::Withdraw;
    let ends = [
        endpoint("a1", "vpc-a", "fd00::1", "w1", "2001:db8:ff01:11:e001::"),
        endpoint("a2", "vpc-a", "fd00::2", "w2", "2001:db8:ff01:12:e001::"),
    ];
    let mut s = state(std::slice::from_ref(&web), &ends);
    let vip: IpAddr = "2001:db8:100::1".parse().unwrap();
    assert!(s.desired().announce.contains(&vip));
    web.backends[0].health = network_rule::Health::Unhealthy;
    s.apply(Event::Objects(set(std::slice::from_ref(&web), &ends)), Instant::now());
    assert!(s.desired().announce.contains(&vip), "one still serves");
    web.backends[1].drained = true;
    s.apply(Event::Objects(set(std::slice::from_ref(&web), &ends)), Instant::now());
    assert!(!s.desired().announce.contains(&vip));
    assert!(s.desired().rules.len() == 1, "the rule itself stays loaded");
    // Another rule on the same address, whose backends serve, keeps it announced.
    let mut other = rule("a", "other", &["2001:db8:100::1"], "vpc-a", &["fd00::1"]);
    other.port = 80;
    s.apply(Event::Objects(set(&[web.clone(), other], &ends)), Instant::now());
    assert!(s.desired().announce.contains(&vip));
    web.on_all_down = network_rule::OnAllDown::Keep;
    s.apply(Event::Objects(set(&[web], &ends)), Instant::now());
    assert!(s.desired().announce.contains(&vip));
}

#[test]
fn synced_once_stays_and_an_unchanged_set_changes_nothing() {
    let mut s = state(&[rule("a", "web", &["2001:db8:100::1"], "vpc-a", &["fd00::1"])], &[]);
    let now = Instant::now();
    assert!(!s.desired().synced);
    let status =
        |synced| Event::Source(SourceStatus { source: "files".into(), synced, problems: Vec::new() });
    assert!(s.apply(status(true), now));
    let generation = s.desired().generation;
    assert!(!s.apply(status(false), now));
    assert!(!s.apply(
        Event::Objects(set(&[rule("a", "web", &["2001:db8:100::1"], "vpc-a", &["fd00::1"])], &[])),
        now
    ));
    assert!(s.desired().synced);
    assert_eq!(s.desired().generation, generation);
}

#[test]
fn leaving_goes_through_its_stages_by_time_and_never_back() {
    let mut s = state(&[], &[]);
    let start = Instant::now();
    let after = |seconds| start + Duration::from_secs(seconds);
    assert_eq!(s.next_deadline(), None);
    assert!(s.apply(Event::Drain, start));
    assert_eq!(s.desired().drain, DrainStage::GracefulShutdown);
    assert_eq!(s.next_deadline(), Some(after(5)));
    assert!(!s.apply(Event::Drain, after(4)), "asking twice does not start anew");
    assert!(s.apply(Event::Tick, after(5)));
    assert_eq!((s.desired().drain, s.next_deadline()), (DrainStage::Withdrawn, Some(after(8))));
    assert!(!s.apply(Event::Tick, after(1)));
    assert_eq!(s.desired().drain, DrainStage::Withdrawn);
    assert!(s.apply(Event::Tick, after(8)));
    assert_eq!((s.desired().drain, s.next_deadline()), (DrainStage::Detached, None));
}

#[test]
fn a_stop_for_restart_changes_nothing_that_should_be() {
    let mut s = state(&[rule("a", "web", &["2001:db8:100::1"], "vpc-a", &["fd00::1"])], &[]);
    let before = s.desired().clone();
    assert!(!s.finished());
    assert!(!s.apply(Event::Shutdown, Instant::now()));
    assert!(s.finished());
    assert_eq!(s.desired(), &before);
}

#[test]
fn conditions_say_why_a_rule_is_not_advertised() {
    let mut s = state(&[rule("a", "web", &["2001:db8:100::1"], "vpc-a", &["fd00::1"])], &[]);
    let now = Instant::now();
    let reason = |s: &State, kind| condition(s, "a", "web", kind).reason;
    assert_eq!((reason(&s, "Loaded"), reason(&s, "Advertised")), ("Pending", "NotLoaded"));
    let key = VipKey {
        address: "2001:db8:100::1".parse().unwrap(),
        protocol: crate::model::Protocol::Tcp,
        port: 443,
    };
    let message = "the limit of 10 VIPs is reached".to_string();
    let refusal = Refusal { cause: RefusalCause::LimitReached, message };
    let refused = BTreeMap::from([(name("a", "web"), refusal)]);
    s.apply(Event::Applied(Applied { refused, ..Applied::default() }), now);
    let loaded = condition(&s, "a", "web", "Loaded");
    assert_eq!((loaded.reason, loaded.message.as_str()), ("LimitReached", "the limit of 10 VIPs is reached"));
    s.apply(Event::Applied(Applied { loaded: BTreeSet::from([key]), ..Applied::default() }), now);
    assert_eq!((reason(&s, "Loaded"), reason(&s, "Advertised")), ("Loaded", "NoPeer"));
    let peer = |role, ipv6| {
        let carries = Families { ipv4: true, ipv6 };
        Event::Peer(PeerStatus { name: "tor1".into(), role, established: true, synced: true, carries })
    };
    s.apply(peer(PeerRole::Fabric, true), now);
    assert_eq!(reason(&s, "Advertised"), "NoPeer", "fabric peers get no VIPs");
    s.apply(peer(PeerRole::Upstream, false), now);
    let advertised = condition(&s, "a", "web", "Advertised");
    assert_eq!(advertised.reason, "FamilyNotCarried");
    assert!(advertised.message.contains("2001:db8:100::1 is told to nobody"), "{}", advertised.message);
    s.apply(peer(PeerRole::Upstream, true), now);
    assert_eq!(reason(&s, "Advertised"), "Advertised");
    s.apply(Event::Drain, now);
    s.apply(Event::Tick, now + Duration::from_secs(6));
    assert_eq!(reason(&s, "Advertised"), "Draining");
}

#[test]
fn one_changed_object_among_many_leaves_the_other_rules_as_they_are() {
    let vip = |i: u32| format!("2001:db8:100::{i:x}");
    let mut rules: Vec<_> =
        (0..500).map(|i| rule("a", &format!("r{i}"), &[&vip(i)], "vpc-a", &["fd00::1"])).collect();
    rules[7].backends[0].address = "fd00::7".parse().unwrap();
    let one = endpoint("a1", "vpc-a", "fd00::1", "w1", "2001:db8:ff01:11:e001::");
    let mut s = state(&rules, std::slice::from_ref(&one));
    let before = s.desired().rules.clone();
    let computed = s.index().computed();
    let seven = endpoint("a7", "vpc-a", "fd00::7", "w1", "2001:db8:ff01:11:d007::");
    assert!(s.apply(Event::Objects(set(&rules, &[one, seven])), Instant::now()));
    let changed: Vec<_> = s
        .desired()
        .rules
        .iter()
        .filter(|(n, r)| !Arc::ptr_eq(r, &before[*n]))
        .map(|(n, _)| &*n.name)
        .collect();
    assert_eq!(changed, ["r7"]);
    assert_eq!(s.index().computed(), computed + 1);
}

/// Few names and addresses, so that conflicts of every kind are common.
fn any_set() -> impl Strategy<Value = ObjectSet> {
    let rules = proptest::collection::vec((0..6u8, 0..4u8, 0..4u8, 0..3u8, 0..3u64, any::<bool>()), 0..7);
    let endpoints = proptest::collection::vec((0..5u8, 0..3u8, 0..3u8, 0..3u8), 0..6);
    (rules, endpoints).prop_map(|(rules, endpoints)| {
        let rules: Vec<_> = rules
            .into_iter()
            .map(|(n, v, w, b, age, there)| {
                let mut vips = vec![format!("2001:db8:100::{v}"), format!("2001:db8:100::{w}")];
                vips.dedup();
                let vips: Vec<&str> = vips.iter().map(String::as_str).collect();
                let mut r = rule(
                    "a",
                    &format!("r{n}"),
                    &vips,
                    &format!("vpc-{}", n % 2),
                    &[&format!("fd00::{b}"), "fd00::9"],
                );
                r.id.created = (age > 0).then(|| SystemTime::UNIX_EPOCH + Duration::from_secs(age));
                r.region = there.then(|| "eu-west".to_string()).filter(|_| n == 0);
                r.on_all_down = if n % 2 == 0 {
                    network_rule::OnAllDown::Withdraw
                } else {
                    network_rule::OnAllDown::Keep
                };
                r
            })
            .collect();
        let endpoints: Vec<_> = endpoints
            .into_iter()
            .map(|(n, a, s, v)| {
                endpoint(
                    &format!("e{n}"),
                    &format!("vpc-{}", v % 2),
                    &format!("fd00::{a}"),
                    "w1",
                    &format!("2001:db8:ff01:11:e00{s}::"),
                )
            })
            .collect();
        set(&rules, &endpoints)
    })
}

fn outcome(s: &State) -> (Rules, BTreeSet<IpAddr>, Vec<RuleStatus>) {
    (s.desired().rules.clone(), s.desired().announce.clone(), s.rule_statuses().collect())
}

proptest! {
    /// State is a function of the objects: any history ends where a fresh start ends.
    #[test]
    fn rules_depend_on_the_objects_alone(history in proptest::collection::vec(any_set(), 1..6)) {
        let mut grown = State::new(settings());
        for objects in &history {
            grown.apply(Event::Objects(objects.clone()), Instant::now());
            let mut fresh = State::new(settings());
            fresh.apply(Event::Objects(objects.clone()), Instant::now());
            prop_assert_eq!(outcome(&grown), outcome(&fresh));
        }
    }

    /// No two served rules share a key, whatever was asked for, and an object is announced only when it is served.
    #[test]
    fn no_key_is_served_twice(objects in any_set()) {
        let mut s = State::new(settings());
        s.apply(Event::Objects(objects), Instant::now());
        let keys: Vec<_> = s.desired().rules.values().flat_map(|r| r.keys().collect::<Vec<_>>()).collect();
        let unique: BTreeSet<_> = keys.iter().collect();
        prop_assert_eq!(unique.len(), keys.len());
        let vips: BTreeSet<IpAddr> = keys.iter().map(|k| k.address).collect();
        prop_assert!(s.desired().announce.is_subset(&vips));
    }

    /// The order in which objects are listed does not matter.
    #[test]
    fn the_order_of_objects_does_not_matter(objects in any_set(), seed in any::<u64>()) {
        let mut list: Vec<_> = objects.iter().cloned().collect();
        let count = list.len().max(1);
        list.rotate_left(seed as usize % count);
        list.reverse();
        prop_assert_eq!(ObjectSet::new(list), objects);
    }
}
