//! The arm that runs the loaded program in the kernel (`BPF_PROG_TEST_RUN`).

use std::path::Path;

use weir::dataplane::Limits;
use weir::dataplane::bpf::{Mode, Params, TestRig, TraceRun};
use weir_bpf::abi::Reason;

use super::{Arm, Case, Increments, Ingress, Outcome, Totals, World};

/// Runs cases on the program; the interfaces that the world names must exist in the caller's network namespace.
pub struct TestRunArm {
    bpffs: std::path::PathBuf,
    rigs: Vec<(Ingress, TestRig, u32)>,
    indices: (u32, u32),
}

impl TestRunArm {
    /// An arm that pins below a path on a BPF file system.
    pub fn new(bpffs: &Path) -> Self {
        Self { bpffs: bpffs.into(), rigs: Vec::new(), indices: (0, 0) }
    }
}

/// What a rig for this world loads.
pub fn params(world: &World, ingress: Ingress, pins: &Path) -> Params {
    Params {
        pins: pins.into(),
        interfaces: Vec::new(),
        limits: Limits { vips: 256, backends: 256, ring_slots: 1 << 18, next_hops: 256, fragments: 1024 },
        mode: Mode::Native,
        constants: world.config(ingress),
        watch: weir_bpf::abi::Watch::default(),
    }
}

impl TestRunArm {
    /// Runs a case as `weir trace` does, after the frames before it as they come on the wire: what the program wrote down, and
    /// what it counted all the same.
    ///
    /// # Errors
    /// Why it could not be run.
    pub fn trace(&mut self, case: &Case) -> anyhow::Result<(TraceRun, Increments)> {
        self.after(case, |rig, ifindex, earlier| rig.run(ifindex, earlier).map(drop), TestRig::trace)
    }

    /// The same, after the frames before it were traced, too.
    ///
    /// # Errors
    /// Why it could not be run.
    pub fn trace_all(&mut self, case: &Case) -> anyhow::Result<(TraceRun, Increments)> {
        self.after(case, |rig, ifindex, earlier| rig.trace(ifindex, earlier).map(drop), TestRig::trace)
    }

    /// Runs a case's frame by `run`, after the frames before it by `before`.
    fn after<T>(
        &mut self,
        case: &Case,
        before: impl Fn(&mut TestRig, u32, &[u8]) -> Result<(), weir::dataplane::Error>,
        run: impl Fn(&mut TestRig, u32, &[u8]) -> Result<T, weir::dataplane::Error>,
    ) -> anyhow::Result<(T, Increments)> {
        let indices = self.indices;
        let (_, rig, ifindex) = self
            .rigs
            .iter_mut()
            .find(|(ingress, ..)| *ingress == case.ingress)
            .ok_or_else(|| anyhow::anyhow!("no world was loaded"))?;
        rig.maps.forget_fragments()?;
        for earlier in &case.earlier {
            before(rig, *ifindex, earlier)?;
        }
        let before = totals(rig, indices);
        let out = run(rig, *ifindex, &case.frame)?;
        Ok((out, Increments::between(&before, &totals(rig, indices))))
    }
}

impl Arm for TestRunArm {
    fn load(&mut self, world: &World) -> anyhow::Result<()> {
        let last = |keys: Option<&u32>| keys.map_or(0, |i| i + 1);
        self.indices = (last(world.tables.words.keys().last()), last(world.tables.backends.keys().last()));
        for ingress in Ingress::ALL {
            let pins = self.bpffs.join(format!("{ingress:?}").to_lowercase());
            let mut rig = TestRig::load(&params(world, ingress, &pins))?;
            rig.maps.write_image(&world.tables)?;
            self.rigs.push((ingress, rig, world.ifindex(ingress)));
        }
        Ok(())
    }

    fn run(&mut self, case: &Case) -> anyhow::Result<Outcome> {
        let earlier = |rig: &mut TestRig, ifindex, frame: &[u8]| rig.run(ifindex, frame).map(drop);
        let (out, increments) = self.after(case, earlier, TestRig::run)?;
        // A test run does not tell which interface a redirect named.
        Outcome::new(out.action, None, out.frame, increments)
    }
}

/// All counters of a rig, for the first so many VIPs and backends.
pub(super) fn totals(rig: &TestRig, (vips, backends): (u32, u32)) -> Totals {
    Totals {
        reasons: Reason::ALL.iter().map(|r| rig.maps.reason_total(*r)).collect(),
        vips: (0..vips).map(|i| rig.maps.vip_total(i)).collect(),
        backends: (0..backends).map(|i| rig.maps.backend_total(i)).collect(),
        selftest_seen: rig.maps.shared().selftest_seen,
        learned: rig.maps.learned().into_iter().map(|(sid, learned)| (sid.0, learned)).collect(),
    }
}
