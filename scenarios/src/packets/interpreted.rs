//! The arm that runs the compiled object's instructions one by one and counts them.

use anyhow::Context as _;
use weir_bpf::abi::Counter;

use super::{Arm, Case, Increments, Ingress, Outcome, Totals, World};
use crate::interpreter::Machine;

/// Runs cases on [`Machine`].
#[derive(Default)]
pub struct InterpretedArm {
    machines: Vec<(Ingress, Machine, u32)>,
    /// Instructions of the last run.
    pub executed: u64,
    sizes: (u32, u32),
}

impl Arm for InterpretedArm {
    fn load(&mut self, world: &World) -> anyhow::Result<()> {
        let tables = &world.tables;
        let last = |keys: Option<&u32>| keys.map_or(0, |i| i + 1);
        self.sizes = (last(tables.words.keys().last()), last(tables.backends.keys().last()));
        let blocks = tables.ring_blocks();
        for ingress in Ingress::ALL {
            let config = world.config(ingress);
            let constants = ("weir_cfg", bytemuck::bytes_of(&config));
            let entries = [("rings", last(blocks.keys().last()))];
            let mut machine = Machine::new(weir_bpf::lb_object(), "lb", constants, &entries)?;
            for (key, index) in &tables.vip_index {
                machine.put("vip_index", bytemuck::bytes_of(key), &index.to_ne_bytes())?;
            }
            for (i, word) in &tables.words {
                machine.set("vip_state", *i, &word.0.to_ne_bytes())?;
            }
            for (i, block) in &blocks {
                machine.set("rings", *i, bytemuck::bytes_of(block))?;
            }
            for (i, backend) in &tables.backends {
                machine.set("backends", *i, bytemuck::bytes_of(backend))?;
            }
            for (i, hop) in &tables.next_hops {
                machine.set("nexthops", *i, bytemuck::bytes_of(hop))?;
            }
            self.machines.push((ingress, machine, world.ifindex(ingress)));
        }
        Ok(())
    }

    fn run(&mut self, case: &Case) -> anyhow::Result<Outcome> {
        let sizes = self.sizes;
        let (_, machine, ifindex) = self
            .machines
            .iter_mut()
            .find(|(ingress, ..)| *ingress == case.ingress)
            .context("no world was loaded")?;
        // One clock tick a case: the bucket is full each time.
        machine.now_ns += 2_000_000_000;
        machine.clear("fragments")?;
        for earlier in &case.earlier {
            machine.run(*ifindex, earlier)?;
        }
        let before = totals(machine, sizes)?;
        let out = machine.run(*ifindex, &case.frame)?;
        self.executed = out.executed;
        let increments = Increments::between(&before, &totals(machine, sizes)?);
        Outcome::new(out.action, Some(out.redirect).filter(|i| *i != 0), out.frame, increments)
    }
}

fn totals(machine: &Machine, (vips, backends): (u32, u32)) -> anyhow::Result<Totals> {
    let counters = |map: &str, count| -> anyhow::Result<Vec<Counter>> {
        Ok(machine.elements(map, count)?.iter().map(|bytes| bytemuck::pod_read_unaligned(bytes)).collect())
    };
    let reasons = machine.elements("reasons", weir_bpf::abi::Reason::ALL.len() as u32)?;
    let shared = machine.elements("state", 1)?;
    let learned = machine.pairs("learned")?.into_iter().map(|(sid, value)| {
        let sid: [u8; 16] = bytemuck::pod_read_unaligned(&sid);
        (sid.into(), bytemuck::pod_read_unaligned(&value))
    });
    Ok(Totals {
        learned: learned.collect(),
        reasons: reasons.iter().map(|bytes| bytemuck::pod_read_unaligned(bytes)).collect(),
        vips: counters("vip_counters", vips)?,
        backends: counters("backend_counters", backends)?,
        selftest_seen: bytemuck::pod_read_unaligned::<weir_bpf::abi::Shared>(&shared[0]).selftest_seen,
    })
}
