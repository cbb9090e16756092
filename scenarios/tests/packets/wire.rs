//! The packet cases over a link: what is sent is captured where it arrives. Apart from the other arms, which run on other kernels too.

use scenarios::packets::wire::WireArm;
use scenarios::packets::{Case, run_all};

use super::arms::node_with;

#[test]
fn packet_cases_over_the_wire_agree_with_the_table() {
    // Room for the longest frame of a case.
    let (lab, world) = node_with("wire-arm", 9000);
    let mut arm = WireArm::new(lab.node("gw").unwrap(), &lab.node("peer").unwrap()).unwrap();
    let (ran, failed) = run_all(&mut arm, &world, Case::stack_takes_it).unwrap();
    assert!(ran >= 715, "only {ran} cases ran");
    assert!(failed.is_empty(), "{} of {ran} cases failed:\n{}", failed.len(), failed.join("\n"));
}
