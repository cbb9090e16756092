//! Only what changed is reported anew, and what is reported is what a report from nothing would say.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use super::*;
use crate::desired::{Applied, Refusal, RefusalCause};
use crate::event::{Event, Loaded, ObjectSet};
use crate::resolve::Site;
use crate::state::Settings;

const RULES: usize = 300;

/// Rules over one endpoint, with the backends of rule 7 as given.
fn objects(of_seven: &[&str], origin: &str) -> ObjectSet {
    let text = |n: usize| {
        let backends =
            if n == 7 { of_seven.join(", ") } else { "{ address: \"fd00::1\", port: 443 }".into() };
        format!(
            "apiVersion: network.datumapis.com/v1alpha1\nkind: NetworkRule\nmetadata: {{ name: r{n}, namespace: t }}\nspec:\n  vpcRef: \
             v\n  vpcAttachmentRef: e\n  vipAddresses: [\"2001:db8:100::{:x}\"]\n  protocol: tcp\n  port: 443\n  backends: \
             [{backends}]\n",
            n + 1
        )
    };
    let load = |n: usize| {
        let parsed = weir_api::object::parse_file(Path::new("x.yaml"), text(n).as_bytes());
        let origin = if n == 9 { origin.to_string() } else { "x.yaml".into() };
        Arc::new(Loaded { origin, object: parsed.object.unwrap_or_else(|| panic!("{:?}", parsed.problems)) })
    };
    ObjectSet::new((0..RULES).map(load).collect())
}

fn plain() -> ObjectSet {
    objects(&["{ address: \"fd00::1\", port: 443 }"], "x.yaml")
}

#[test]
fn of_many_rules_only_those_whose_basis_changed_are_reported_anew() {
    let settings = Settings {
        site: Site { region: "r".into(), block: "2001:db8:ff01::/48".parse().unwrap() },
        sources: BTreeSet::new(),
        graceful_shutdown: Duration::ZERO,
        drain: Duration::ZERO,
    };
    let (mut state, mut kept, now) = (State::new(settings), Rules::default(), Instant::now());
    let plan = RoutePlan::default();
    let mut expect = |state: &State, made: usize, what: &str| {
        let before = kept.made;
        let told = kept.report(state, &plan);
        assert_eq!(kept.made - before, made as u64, "{what}");
        assert_eq!(told, Rules::default().report(state, &plan), "{what}");
    };
    state.apply(Event::Objects(plain()), now);
    expect(&state, RULES, "all are new");
    expect(&state, 0, "nothing changed");
    let all: BTreeSet<_> =
        state.desired().rules.values().flat_map(|r| r.keys().collect::<Vec<_>>()).collect();
    let mut applied = Applied { loaded: all, ..Applied::default() };
    state.apply(Event::Applied(applied.clone()), now);
    expect(&state, RULES, "all are loaded");
    let name = ObjectName { namespace: "t".into(), name: "r5".into() };
    applied.refused.insert(name, Refusal { cause: RefusalCause::LimitReached, message: "full".into() });
    state.apply(Event::Applied(applied), now);
    expect(&state, 1, "one is refused");
    let two = ["{ address: \"fd00::1\", port: 443 }", "{ address: \"fd00::2\", port: 443 }"];
    state.apply(Event::Objects(objects(&two, "x.yaml")), now);
    expect(&state, 1, "one has another backend");
    state.apply(Event::Objects(objects(&two, "moved.yaml")), now);
    expect(&state, 1, "one was read from another file");
    state.apply(Event::Drain, now);
    expect(&state, RULES, "the gateway leaves");
}
