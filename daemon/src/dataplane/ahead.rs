//! Rings of many rules built ahead of their loading, on all CPUs: a gateway's start is mostly this. Pure.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroUsize;
use std::sync::Arc;

use crate::maglev::{self, Ring, RingSpec, Seed};
use crate::model::Rule;

/// Rules whose rings are built together; bounds the memory that built rings wait in.
pub(super) const CHUNK: usize = 256;
/// Fewer rings than this are not worth a thread.
const WORTH_A_THREAD: usize = 16;

/// A ring and its digest.
#[derive(Debug)]
pub(super) struct Built {
    pub(super) ring: Ring,
    pub(super) digest: [u8; 16],
}

impl Built {
    pub(super) fn of(spec: &RingSpec<'_>) -> Self {
        let ring = maglev::build(spec);
        let digest = maglev::ring_digest(spec, &ring).0;
        Self { ring, digest }
    }
}

/// Rings by [`maglev::ring_key`].
pub(super) type Ahead = HashMap<[u8; 16], Built>;

/// The rings of these rules but those that are `known`; none when they are few, for then they are built as they come.
pub(super) fn build(rules: &[Arc<Rule>], seed: Seed, known: impl Fn(&[u8; 16]) -> bool) -> Ahead {
    if rules.len() < WORTH_A_THREAD {
        return Ahead::new();
    }
    let specs = rules.iter().map(|rule| RingSpec::for_rule(rule, seed));
    let missing: BTreeMap<[u8; 16], RingSpec<'_>> =
        specs.map(|spec| (maglev::ring_key(&spec).0, spec)).filter(|(key, _)| !known(key)).collect();
    let missing: Vec<_> = missing.into_iter().collect();
    let threads = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let share = missing.len().div_ceil(threads).max(WORTH_A_THREAD);
    let all = |part: &[([u8; 16], RingSpec<'_>)]| -> Vec<_> {
        part.iter().map(|(key, spec)| (*key, Built::of(spec))).collect()
    };
    std::thread::scope(|scope| {
        let mut parts = missing.chunks(share);
        let first = parts.next();
        let others: Vec<_> = parts.map(|part| scope.spawn(move || all(part))).collect();
        let mut built: Ahead = first.map(all).into_iter().flatten().collect();
        // A thread that died leaves its rings to be built as they come.
        built.extend(others.into_iter().filter_map(|thread| thread.join().ok()).flatten());
        built
    })
}
