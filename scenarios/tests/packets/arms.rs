//! The packet cases on the C program: compiled for this machine, and loaded into this kernel.

use labkit::Lab;
use labkit::topology::Topology;
use scenarios::packets::interpreted::InterpretedArm;
use scenarios::packets::native::NativeArm;
use scenarios::packets::test_run::TestRunArm;
use scenarios::packets::{Case, Ports, World, run_all};

#[test]
fn native_build_agrees_with_every_packet_case() {
    let (ran, failed) = run_all(&mut NativeArm::default(), &World::default(), |_| true).unwrap();
    assert!(ran >= 692, "only {ran} cases ran");
    assert!(failed.is_empty(), "{} of {ran} cases failed:\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn loaded_program_agrees_with_every_packet_case() {
    let topology = Topology::build("packets", |t| {
        t.node("gw");
        t.node("peer");
        t.link("gw:eth1", "peer:eth1", 1500).own_xdp("gw");
        t.link("gw:eth2", "peer:eth2", 1500).own_xdp("gw");
    })
    .unwrap();
    let lab = Lab::up(&topology).unwrap();
    let gw = lab.node("gw").unwrap();
    let index = |name: &'static str| gw.netns().run(|| nix::net::if_::if_nametoindex(name)).unwrap().unwrap();
    let world = World::new(Ports { uplink: index("eth1"), fabric: index("eth2") });
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
