//! Mutated frames through the C headers and the oracle: they may not differ.

use std::collections::BTreeMap;
use std::num::NonZero;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore as _, SeedableRng as _};
use scenarios::packets::native::NativeArm;
use scenarios::packets::oracle::OracleArm;
use scenarios::packets::{Arm as _, Case, Ingress, Verdict, World, cases};
use weir_bpf::abi::Reason;

/// Frames tried, unless [`MORE`] says otherwise; the seed is fixed so that a failure repeats.
const FRAMES: u64 = 60_000;
/// Variable that sets how many frames are tried, for long runs.
const MORE: &str = "WEIR_DIFFER_FRAMES";
/// Frames that one generator's seed is good for.
const BATCH: u64 = 20_000;

/// Offsets that decide something come up more often than payload.
fn mutate(frame: &mut Vec<u8>, rng: &mut ChaCha8Rng) {
    for _ in 0..=rng.next_u32() % 4 {
        let length = frame.len().max(1) as u32;
        let near = |rng: &mut ChaCha8Rng| (rng.next_u32() % length.min(140)) as usize;
        match rng.next_u32() % 8 {
            0 => frame.truncate((rng.next_u32() % length) as usize),
            1 => frame.extend((0..rng.next_u32() % 64).map(|i| i as u8)),
            2 => {
                let at = near(rng);
                frame.insert(at.min(frame.len()), rng.next_u32() as u8);
            }
            3 => {
                let at = near(rng);
                if at < frame.len() {
                    frame.remove(at);
                }
            }
            4 => {
                // Protocols, types and options that mean something.
                const KNOWN: [u8; 20] =
                    [0, 6, 17, 43, 44, 58, 59, 60, 1, 2, 3, 4, 128, 255, 8, 11, 12, 0x45, 0x46, 131];
                let at = near(rng);
                if let Some(byte) = frame.get_mut(at) {
                    *byte = KNOWN[rng.next_u32() as usize % KNOWN.len()];
                }
            }
            _ => {
                let at = near(rng);
                if let Some(byte) = frame.get_mut(at) {
                    *byte ^= 1 << (rng.next_u32() % 8);
                }
            }
        }
    }
}

/// Runs the `n`-th batch; counts reasons.
fn batch(world: &World, cases: &[Case], n: u64, frames: u64, reasons: &mut BTreeMap<Reason, u64>) {
    let (mut native, mut oracle) = (NativeArm::default(), OracleArm::default());
    native.load(world).unwrap();
    oracle.load(world).unwrap();
    let mut rng = ChaCha8Rng::seed_from_u64(0x5eed + n);
    for frame in 0..frames {
        let mut case: Case = cases[rng.next_u32() as usize % cases.len()].clone();
        mutate(&mut case.frame, &mut rng);
        case.ingress = Ingress::ALL[rng.next_u32() as usize % 4];
        // The same change to a fragment and to its first leads to another entry, of only one of them to none.
        for earlier in &mut case.earlier {
            if rng.next_u32().is_multiple_of(4) {
                mutate(earlier, &mut rng);
            }
        }
        let (c, rust) = (native.run(&case).unwrap(), oracle.run(&case).unwrap());
        let sent = rust.frame.is_some() && !matches!(rust.verdict, Verdict::Drop);
        let frames = !sent || c.frame == rust.frame;
        let same = c.verdict == rust.verdict
            && c.reasons == rust.reasons
            && c.vips == rust.vips
            && c.backends == rust.backends
            && c.selftest_seen == rust.selftest_seen
            && c.learned == rust.learned
            && frames;
        assert!(
            same,
            "frame {frame} of batch {n} from {:?}, {:?}:\n{:02x?}\nafter {:02x?}\nC {c:02x?}\nRust {rust:02x?}",
            case.name, case.ingress, case.frame, case.earlier
        );
        *reasons.entry(*rust.reasons.keys().next().unwrap()).or_default() += 1;
    }
}

#[test]
fn mutated_frames_fare_alike_in_c_and_in_the_oracle() {
    let frames = std::env::var(MORE).map_or(FRAMES, |text| text.parse().expect(MORE));
    let (world, started) = (World::default(), Instant::now());
    let (cases, next, reasons) = (cases::all(&world), AtomicU64::new(0), Mutex::new(BTreeMap::new()));
    let batches = frames.div_ceil(BATCH);
    let work = || {
        let mut seen = BTreeMap::new();
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            if n >= batches {
                break;
            }
            batch(&world, &cases, n, BATCH.min(frames - n * BATCH), &mut seen);
        }
        let mut reasons = reasons.lock().unwrap();
        for (reason, more) in seen {
            *reasons.entry(reason).or_insert(0) += more;
        }
    };
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, NonZero::get) {
            scope.spawn(work);
        }
    });
    let reasons = reasons.into_inner().unwrap();
    let total: u64 = reasons.values().sum();
    println!("{total} frames fared alike in {:?}: {reasons:?}", started.elapsed());
    assert_eq!(total, frames);
    // Mutation that only ever broke frames early would prove little.
    assert!(reasons.len() >= 26, "{reasons:?}");
}
