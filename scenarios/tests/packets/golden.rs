//! What the verifier and the JIT make of the load balancer: growth is seen and reviewed, not discovered in production.

use labkit::Lab;
use labkit::skip::skip;
use labkit::topology::Topology;
use scenarios::packets::test_run::params;
use scenarios::packets::{Ingress, World};
use weir::dataplane::bpf::TestRig;

/// The numbers hold for one line of kernels and one compiler.
const KERNEL: &str = "6.18.";
const CLANG: &str = "clang version 19.";

/// Most instructions that the verifier may walk before it gives up on a program (`BPF_COMPLEXITY_LIMIT_INSNS`).
const LIMIT: u32 = 1_000_000;
/// This test, for skips.
const TEST: &str = "packets::golden::load_balancer_stays_within_the_verifiers_golden_size";

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
    if !release.starts_with(KERNEL) {
        skip(TEST, format!("the golden numbers are of kernel {KERNEL}x, this is {release}"));
        return;
    }
    if !weir_bpf::lb_object().windows(CLANG.len()).any(|text| text == CLANG.as_bytes()) {
        skip(TEST, format!("the golden numbers are of {CLANG}x, another compiler made this program"));
        return;
    }
    let translated = info.size_translated().unwrap() / 8;
    insta::assert_snapshot!(format!(
        "instructions verified    {verified}\ninstructions translated  {translated}"
    ));
}
