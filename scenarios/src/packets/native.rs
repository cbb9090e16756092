//! The arm that runs the C packet path compiled for this machine.

use weir_bpf::abi::{NextHop, RingBlock};
use weir_bpf::native::{self, Tables};

use super::{Arm, Case, Increments, Ingress, Outcome, Totals, World};

/// Runs cases on [`weir_bpf::native::run`].
#[derive(Default)]
pub struct NativeArm {
    worlds: Vec<(Ingress, Tables, u32)>,
}

/// The world's tables as the native build takes them.
pub fn tables(world: &World, ingress: Ingress) -> Tables {
    fn dense<T: Copy>(sparse: &std::collections::BTreeMap<u32, T>, empty: T) -> Vec<T> {
        let length = sparse.last_key_value().map_or(0, |(i, _)| *i + 1);
        (0..length).map(|i| sparse.get(&i).copied().unwrap_or(empty)).collect()
    }
    let image = &world.tables;
    let mut tables = Tables::new(world.config(ingress));
    tables.vips = image.vip_index.iter().map(|(key, index)| (*key, *index)).collect();
    tables.words = dense(&image.words, weir_bpf::abi::VipWord(0)).into_iter().map(|w| w.0).collect();
    tables.blocks = dense(&image.ring_blocks(), RingBlock { slot: [0; 16] });
    tables.backends = dense(&image.backends, weir_bpf::abi::Backend::default());
    tables.hops = dense(&image.next_hops, NextHop::default());
    tables
}

impl Arm for NativeArm {
    fn load(&mut self, world: &World) -> anyhow::Result<()> {
        self.worlds = Ingress::ALL.map(|i| (i, tables(world, i), world.ifindex(i))).into();
        Ok(())
    }

    fn run(&mut self, case: &Case) -> anyhow::Result<Outcome> {
        let (_, tables, ifindex) = self
            .worlds
            .iter_mut()
            .find(|(ingress, ..)| *ingress == case.ingress)
            .ok_or_else(|| anyhow::anyhow!("no world was loaded"))?;
        // One clock tick a case: the bucket is full each time.
        tables.now_ns += 2_000_000_000;
        tables.fragment_keys.clear();
        tables.fragments.clear();
        for earlier in &case.earlier {
            native::run(tables, *ifindex, earlier);
        }
        let before = totals(tables);
        let out = native::run(tables, *ifindex, &case.frame);
        let increments = Increments::between(&before, &totals(tables));
        let action = if out.action == native::LEFT { super::XDP_PASS } else { out.action };
        Outcome::new(action, Some(out.redirect).filter(|i| *i != 0), out.frame, increments)
    }
}

fn totals(tables: &Tables) -> Totals {
    Totals {
        reasons: tables.reasons.clone(),
        vips: tables.vip_counters.clone(),
        backends: tables.backend_counters.clone(),
        selftest_seen: tables.state.selftest_seen,
        learned: tables.learned.iter().map(|(sid, learned)| ((*sid).into(), *learned)).collect(),
    }
}
