//! The arm that asks the Rust oracle.

use std::collections::BTreeMap;

use weir::flow::{Surroundings, decide};
use weir_bpf::abi::{Counter, Reason};

use super::{Arm, Case, Outcome, Verdict, World};

/// Runs cases on [`weir::flow::decide`].
#[derive(Debug, Default)]
pub struct OracleArm {
    world: Option<World>,
}

impl Arm for OracleArm {
    fn load(&mut self, world: &World) -> anyhow::Result<()> {
        self.world = Some(world.clone());
        Ok(())
    }

    fn run(&mut self, case: &Case) -> anyhow::Result<Outcome> {
        let world = self.world.as_ref().ok_or_else(|| anyhow::anyhow!("no world was loaded"))?;
        let mut around = Surroundings::default();
        let (config, ifindex) = (world.config(case.ingress), world.ifindex(case.ingress));
        let mut run = |frame: &[u8]| decide(&config, &world.tables, &mut around, ifindex, frame);
        for earlier in &case.earlier {
            run(earlier);
        }
        let decision = run(&case.frame);
        let (verdict, redirect) = match decision.verdict {
            weir::flow::Verdict::Left => (Verdict::Left, None),
            weir::flow::Verdict::Drop => (Verdict::Drop, None),
            weir::flow::Verdict::Tx => (Verdict::Tx, None),
            weir::flow::Verdict::Redirect(ifindex) => (Verdict::Redirect, Some(ifindex)),
        };
        let count = |bytes| Counter { packets: 1, bytes };
        Ok(Outcome {
            verdict,
            redirect,
            frame: decision.frame_out,
            reasons: BTreeMap::from([(decision.reason, 1)]),
            vips: decision.counted.map(|c| (c.vip, count(c.bytes))).into_iter().collect(),
            backends: decision.counted.map(|c| (c.backend, count(c.bytes))).into_iter().collect(),
            selftest_seen: u64::from(decision.reason == Reason::SelfTest),
            learned: decision.trail.learned.into_iter().collect(),
        })
    }
}
