//! What the verifier and the JIT make of the load balancer: growth is seen and reviewed, not discovered in production.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use labkit::Lab;
use labkit::skip::skip;
use labkit::topology::Topology;
use scenarios::packets::interpreted::InterpretedArm;
use scenarios::packets::test_run::params;
use scenarios::packets::{Arm as _, Ingress, World, cases};
use weir::dataplane::bpf::TestRig;

/// The numbers hold for one compiler and one line of kernels, that of the machines the project is built on.
const KERNEL: &str = "6.18";
const CLANG: &str = "clang version 19.";

/// Most instructions that the verifier may walk before it gives up on a program (`BPF_COMPLEXITY_LIMIT_INSNS`).
const LIMIT: u32 = 1_000_000;
/// This test, for skips.
const TEST: &str = "packets::golden::load_balancer_stays_within_the_verifiers_golden_size";

/// Packets that nearly all traffic is made of.
const PLAIN: &[&str] = &["tcp: SYN", "udp: data", "ipv4 tcp: SYN", "ipv4 udp: data"];

#[test]
fn load_balancer_stays_within_the_verifiers_golden_size() {
    let topology = Topology::build("golden", |t| {
        t.node("gw");
    })
    .unwrap();
    let lab = Lab::up(&topology).unwrap();
    let gw = lab.node("gw").unwrap();
    let pins = gw.bpffs().unwrap().join("golden");
    let info = gw.netns().run(|| {
        let mut rig = TestRig::load(&params(&World::default(), Ingress::Uplink, &pins)).unwrap();
        rig.info().unwrap()
    });
    let info = info.unwrap();
    let Some(verified) = info.verified_instruction_count() else {
        skip(TEST, "this kernel does not tell how many instructions its verifier walked (before 5.16)");
        return;
    };
    assert!(
        verified < LIMIT / 10,
        "{verified} instructions verified: a tenth of the limit is the most that is sane"
    );
    let release = nix::sys::utsname::uname().unwrap().release().to_string_lossy().into_owned();
    let series = release.split('.').take(2).collect::<Vec<_>>().join(".");
    if series != KERNEL {
        skip(
            TEST,
            format!("{verified} instructions verified on {release}; the golden numbers are of {KERNEL}"),
        );
        return;
    }
    if !clang_is_golden() {
        skip(TEST, format!("the golden numbers are of {CLANG}x, another compiler made this program"));
        return;
    }
    let translated = info.size_translated().unwrap() / 8;
    insta::with_settings!({snapshot_suffix => series}, {
        insta::assert_snapshot!(format!(
            "instructions verified    {verified}\ninstructions translated  {translated}"
        ));
    });
}

/// Most instructions that a plain packet to a VIP may take.
const MOST: u64 = 300;
/// The instruction count's test, for skips.
const EXECUTED: &str = "packets::golden::a_packet_takes_the_golden_number_of_instructions";

#[test]
fn a_packet_takes_the_golden_number_of_instructions() {
    let world = World::default();
    let mut arm = InterpretedArm::default();
    arm.load(&world).unwrap();
    let mut most: BTreeMap<&str, (u64, &str)> = BTreeMap::new();
    let mut plain = BTreeMap::new();
    for case in cases::all(&world).iter().filter(|case| case.test_run_takes_it()) {
        arm.run(case).unwrap();
        let name = case.expect.reason.name();
        if most.get(name).is_none_or(|(worst, _)| *worst < arm.executed) {
            most.insert(name, (arm.executed, case.name));
        }
        if PLAIN.contains(&case.name) {
            plain.insert(case.name, arm.executed);
        }
    }
    assert_eq!(plain.len(), PLAIN.len(), "a plain case is gone: {plain:?}");
    let worst = plain.values().max().unwrap();
    assert!(*worst <= MOST, "{worst} instructions for a plain packet: {plain:?}");
    if !clang_is_golden() {
        skip(EXECUTED, format!("the golden numbers are of {CLANG}x, another compiler made this program"));
        return;
    }
    let mut table = String::from("plain packets\n");
    for (name, executed) in plain {
        let _ = writeln!(table, "  {executed:5}  {name}");
    }
    table.push_str("most for each reason\n");
    for (reason, (executed, name)) in most {
        let _ = writeln!(table, "  {executed:5}  {reason:22} {name}");
    }
    insta::assert_snapshot!(table);
}

fn clang_is_golden() -> bool {
    weir_bpf::lb_object().windows(CLANG.len()).any(|text| text == CLANG.as_bytes())
}
