//! The packet cases on the Rust oracle, and the table's own rules.

mod arms;
mod differ;
mod golden;
mod wire;

use std::collections::{BTreeMap, BTreeSet};

use scenarios::packets::oracle::OracleArm;
use scenarios::packets::{Arm, Case, Ports, Verdict, World, cases, check, run_all};
use weir_bpf::abi::{Counter, Reason};

fn all() -> Vec<Case> {
    cases::all(&World::default())
}

#[test]
fn oracle_agrees_with_every_packet_case() {
    let (ran, failed) = run_all(&mut OracleArm::default(), &World::default(), |_| true).unwrap();
    assert!(ran >= 692, "only {ran} cases ran");
    assert!(failed.is_empty(), "{} of {ran} cases failed:\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn cases_do_not_depend_on_interface_numbers() {
    let world = World::new(Ports { uplink: 40_000, fabric: 2 });
    let (_, failed) = run_all(&mut OracleArm::default(), &world, |_| true).unwrap();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

#[test]
fn case_names_are_unique() {
    let mut seen = BTreeSet::new();
    let twice: Vec<_> = all().iter().map(|case| case.name).filter(|name| !seen.insert(*name)).collect();
    assert!(twice.is_empty(), "{twice:?}");
}

#[test]
fn every_reason_but_faults_has_a_case() {
    let seen: BTreeSet<Reason> = all().iter().map(|case| case.expect.reason).collect();
    let missing: Vec<_> = Reason::ALL.iter().filter(|reason| !seen.contains(reason)).collect();
    // No frame can bring these about: the first needs a driver without room, the second a broken map.
    let faults = [Reason::NoHeadroom, Reason::Internal];
    // Numbers that are taken for what is being built.
    let coming = [Reason::ReplyForwarded, Reason::ReplyRefused, Reason::ReplyNoRoute];
    assert_eq!(missing, faults.iter().chain(&coming).collect::<Vec<_>>());
}

#[test]
fn every_rule_of_the_world_is_met_by_a_packet() {
    let world = World::default();
    let reached: BTreeSet<u32> =
        all().iter().filter_map(|case| case.expect.vip).map(|(vip, _)| vip).collect();
    let never: Vec<_> =
        world.rules.iter().filter(|(_, r)| !reached.contains(&r.vip)).map(|(n, _)| *n).collect();
    let of_both = ["empty", "mtu-1319", "mtu-1400-udp", "not-loaded", "unresolved"];
    let unsent: BTreeSet<&str> =
        never.iter().map(|name| name.trim_end_matches("-4").trim_end_matches('4')).collect();
    assert_eq!(unsent, of_both.into_iter().chain(["pmtu-1319"]).collect());
    assert_eq!(never.len(), 2 * of_both.len() + 1);
}

#[test]
fn check_sees_every_kind_of_difference() {
    let world = World::default();
    let cases = all();
    let case = cases.iter().find(|case| case.name == "tcp: SYN").unwrap();
    let left = cases.iter().find(|case| case.name == "not ours: TCP").unwrap();
    let mut arm = OracleArm::default();
    assert!(arm.run(case).is_err(), "an arm without a world must refuse");
    arm.load(&world).unwrap();
    let good = arm.run(case).unwrap();
    check(case, &good).unwrap();

    let mut differences = Vec::new();
    let mut spoil = |what: &str, change: &dyn Fn(&mut scenarios::packets::Outcome)| {
        let mut outcome = good.clone();
        change(&mut outcome);
        let text = check(case, &outcome).unwrap_err();
        assert!(text.starts_with("case tcp: SYN:") && text.contains(what), "{text}");
        differences.push(text);
    };
    spoil("verdict", &|o| o.verdict = Verdict::Drop);
    spoil("redirect", &|o| o.redirect = Some(99));
    spoil("reasons", &|o| o.reasons = BTreeMap::new());
    spoil("reasons", &|o| {
        let _ = o.reasons.insert(Reason::NoRule, 1);
    });
    spoil("reasons", &|o| {
        let _ = o.reasons.insert(Reason::Forwarded, 2);
    });
    spoil("vip counters", &|o| {
        let _ = o.vips.insert(99, Counter { packets: 1, bytes: 1 });
    });
    spoil("backend counters", &|o| o.backends.values_mut().for_each(|c| c.bytes += 1));
    spoil("selftest_seen", &|o| o.selftest_seen = 1);
    spoil("differs from byte 20", &|o| o.frame.as_mut().unwrap()[20] ^= 1);
    spoil("differs from byte 114", &|o| o.frame.as_mut().unwrap().push(0));
    spoil("frame: expected 114 bytes, saw none", &|o| o.frame = None);
    assert_eq!(differences.len(), 11);

    let mut outcome = arm.run(left).unwrap();
    outcome.frame = Some(left.frame.clone());
    check(left, &outcome).unwrap();
    outcome.frame.as_mut().unwrap()[0] ^= 2;
    assert!(check(left, &outcome).unwrap_err().contains("differs from byte 0"));
}

/// Two expectations against bytes that a Python program made from `docs/packet-path.md` and the world's numbers (hashlib,
/// ipaddress, struct; RFC 1071 sums of its own), so that the case table's builders are checked too.
#[test]
fn expected_frames_equal_independent_ones() {
    let cases = all();
    let sent = |name: &str| {
        let case = cases.iter().find(|case| case.name == name).unwrap();
        case.expect.frame_out.as_ref().unwrap().iter().fold(String::new(), |text, b| format!("{text}{b:02x}"))
    };
    let forwarded = [
        "02a00080ff1002b0007f002086dd",
        "60055176003c2940",
        "20010db8ff010001e000008000006f7a",
        "20010db8ff010102e0010000ff800000",
        "600fffff00140601",
        "20010db8000c00000000000000001234",
        "20010db800640000000000000000000a",
        "9c4101bb10203040506070805002faf0a7940000",
    ];
    assert_eq!(sent("tcp: SYN"), forwarded.concat());
    let too_big = [
        "0222fe007f0202110080ff0186dd",
        "6000000004d83a40",
        "20010db800640000000000000000000a",
        "20010db8000c00000000000000001234",
        "0200078200000550",
    ];
    let seen = sent("too big: a byte over 1400");
    assert_eq!(seen.len(), 2 * 1294);
    assert_eq!(seen[..2 * 62], too_big.concat());
}
