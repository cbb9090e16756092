//! The packet cases on the C program: compiled for this machine, and loaded into this kernel.

use labkit::Lab;
use labkit::topology::Topology;
use scenarios::packets::interpreted::InterpretedArm;
use scenarios::packets::native::NativeArm;
use scenarios::packets::test_run::{TestRunArm, params};
use scenarios::packets::{Arm as _, Case, Ingress, Ports, Verdict, World, cases, run_all};
use weir::dataplane::bpf::TestRig;
use weir_bpf::abi::Reason;

#[test]
fn native_build_agrees_with_every_packet_case() {
    let (ran, failed) = run_all(&mut NativeArm::default(), &World::default(), |_| true).unwrap();
    assert!(ran >= 692, "only {ran} cases ran");
    assert!(failed.is_empty(), "{} of {ran} cases failed:\n{}", failed.len(), failed.join("\n"));
}

/// A node with the interfaces that the world names, and that world.
fn node(name: &str) -> (Lab, World) {
    node_with(name, 1500)
}

pub(super) fn node_with(name: &str, mtu: u32) -> (Lab, World) {
    let topology = Topology::build(name, |t| {
        t.node("gw");
        t.node("peer");
        t.link("gw:eth1", "peer:eth1", mtu).own_xdp("gw");
        t.link("gw:eth2", "peer:eth2", mtu).own_xdp("gw");
    })
    .unwrap();
    let lab = Lab::up(&topology).unwrap();
    let gw = lab.node("gw").unwrap();
    let index = |name: &'static str| gw.netns().run(|| nix::net::if_::if_nametoindex(name)).unwrap().unwrap();
    let world = World::new(Ports { uplink: index("eth1"), fabric: index("eth2") });
    (lab, world)
}

#[test]
fn loaded_program_agrees_with_every_packet_case() {
    let (lab, world) = node("packets");
    let gw = lab.node("gw").unwrap();
    let bpffs = gw.bpffs().unwrap();
    let (ran, failed) = gw
        .netns()
        .run(|| run_all(&mut TestRunArm::new(&bpffs), &world, Case::test_run_takes_it))
        .unwrap()
        .unwrap();
    assert!(ran >= 685, "only {ran} cases ran");
    assert!(failed.is_empty(), "{} of {ran} cases failed:\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn interpreted_program_agrees_with_every_packet_case() {
    let (ran, failed) =
        run_all(&mut InterpretedArm::default(), &World::default(), Case::test_run_takes_it).unwrap();
    assert!(ran >= 315, "only {ran} cases ran");
    assert!(failed.is_empty(), "{} of {ran} cases failed:\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn a_traced_frame_fares_as_every_packet_case_says_and_changes_nothing() {
    let (lab, world) = node("traced");
    let gw = lab.node("gw").unwrap();
    let bpffs = gw.bpffs().unwrap();
    let all = cases::all(&world);
    let mut unremembered = 0;
    let traced = gw.netns().run(|| {
        let mut arm = TestRunArm::new(&bpffs);
        arm.load(&world).unwrap();
        let cases = all.iter().filter(|case| case.test_run_takes_it());
        // Twice: the second run meets what the first one left.
        let run = |case: &Case| {
            if !case.earlier.is_empty() {
                // A traced first fragment is not remembered.
                let (run, _) = arm.trace_all(case).unwrap();
                let forwarded = run.trace.reason == Reason::Forwarded as u32;
                assert!(!forwarded || case.expect.reason == Reason::Forwarded, "case {}", case.name);
                unremembered += u32::from(run.trace.reason == Reason::FragmentUnknown as u32);
            }
            [arm.trace(case).unwrap(), arm.trace(case).unwrap()]
        };
        cases.map(run).collect::<Vec<_>>()
    });
    let traced = traced.unwrap();
    assert!(traced.len() >= 315, "only {} cases ran", traced.len());
    assert!(unremembered >= 4, "only {unremembered} later fragments were unknown after traced first ones");
    for (case, runs) in all.iter().filter(|case| case.test_run_takes_it()).zip(traced) {
        let expect = &case.expect;
        let action = match expect.verdict {
            Verdict::Drop => 1,
            Verdict::Left => 2,
            Verdict::Tx => 3,
            Verdict::Redirect => 4,
        };
        for (run, grown) in runs {
            let name = case.name;
            assert!(grown.nothing(), "case {name} counted {grown:?}");
            assert_eq!((run.action, run.trace.reason), (action, expect.reason as u32), "case {name}");
            if let Some(sent) = &expect.frame_out {
                assert_eq!(&run.frame, sent, "case {name}");
            }
            if let Some((vip, _)) = expect.vip {
                let (backend, _) = expect.backend.unwrap();
                assert_eq!((run.trace.vip, run.trace.backend), (vip, backend), "case {name}");
                let leaves = expect.redirect.unwrap_or_else(|| world.ifindex(case.ingress));
                assert_eq!(run.trace.ifindex, leaves, "case {name}");
            }
        }
    }
}

#[test]
fn traced_frames_take_no_token_of_those_for_answers() {
    let (lab, world) = node("tokens");
    let gw = lab.node("gw").unwrap();
    let pins = gw.bpffs().unwrap().join("tokens");
    let all = cases::all(&world);
    let echo = |case: &&Case| case.expect.reason == Reason::EchoReply && case.ingress == Ingress::Uplink;
    let echo = all.iter().find(echo).unwrap();
    let reasons = gw.netns().run(|| {
        let mut params = params(&world, echo.ingress, &pins);
        // One answer a second and CPU.
        params.constants.icmp_rate = 1;
        let mut rig = TestRig::load(&params).unwrap();
        rig.maps.write_image(&world.tables).unwrap();
        let mut traced = || rig.trace(world.ifindex(echo.ingress), &echo.frame).unwrap().trace.reason;
        (0..100).map(|_| traced()).collect::<Vec<_>>()
    });
    assert_eq!(reasons.unwrap(), vec![Reason::EchoReply as u32; 100]);
}
