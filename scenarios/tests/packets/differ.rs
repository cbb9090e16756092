//! Mutated frames through the C headers and the oracle: they may not differ.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore as _, SeedableRng as _};
use scenarios::fuzz::differ::{Differ, mutate};
use scenarios::packets::{Case, Ingress, World, cases};

/// Frames tried, unless `WEIR_DIFFER_FRAMES` says how many.
const FRAMES: usize = 60_000;
/// The seed, unless `WEIR_DIFFER_SEED` has one; fixed, so that a failure repeats.
const SEED: u64 = 0x5eed;

fn setting<T: std::str::FromStr>(name: &str, usual: T) -> T {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

#[test]
fn mutated_frames_fare_alike_in_c_and_in_the_oracle() {
    let (frames, seed) = (setting("WEIR_DIFFER_FRAMES", FRAMES), setting("WEIR_DIFFER_SEED", SEED));
    let world = World::default();
    let mut differ = Differ::new(&world).unwrap();
    let cases = cases::all(&world);
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut reasons = std::collections::BTreeMap::new();
    let start = std::time::Instant::now();
    for n in 0..frames {
        let mut case: Case = cases[rng.next_u32() as usize % cases.len()].clone();
        mutate(&mut case.frame, &mut rng);
        case.ingress = Ingress::ALL[rng.next_u32() as usize % 4];
        let reason = differ.compare(&case).unwrap_or_else(|e| panic!("frame {n} of seed {seed}: {e:#}"));
        *reasons.entry(reason).or_insert(0_u64) += 1;
    }
    let rate = frames as f64 / start.elapsed().as_secs_f64();
    println!("{frames} frames of seed {seed}, {rate:.0} a second, {} reasons: {reasons:?}", reasons.len());
    // Mutation that only ever broke frames early would prove little.
    assert!(reasons.len() >= 20, "{reasons:?}");
}
