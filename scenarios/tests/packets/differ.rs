//! Mutated frames through the C headers and the oracle: they may not differ.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore as _, SeedableRng as _};
use scenarios::packets::native::NativeArm;
use scenarios::packets::oracle::OracleArm;
use scenarios::packets::{Arm as _, Case, Ingress, World, cases};

/// Frames tried; the seed is fixed so that a failure repeats.
const FRAMES: usize = 60_000;

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
                // Next-header values that mean something.
                let at = near(rng);
                if let Some(byte) = frame.get_mut(at) {
                    *byte =
                        [0, 6, 17, 43, 44, 58, 59, 60, 1, 2, 3, 4, 128, 255][rng.next_u32() as usize % 14];
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

#[test]
fn mutated_frames_fare_alike_in_c_and_in_the_oracle() {
    let world = World::default();
    let (mut native, mut oracle) = (NativeArm::default(), OracleArm::default());
    native.load(&world).unwrap();
    oracle.load(&world).unwrap();
    let cases = cases::all(&world);
    let mut rng = ChaCha8Rng::seed_from_u64(0x5eed);
    let mut reasons = std::collections::BTreeMap::new();
    for n in 0..FRAMES {
        let mut case: Case = cases[rng.next_u32() as usize % cases.len()].clone();
        mutate(&mut case.frame, &mut rng);
        case.ingress = Ingress::ALL[rng.next_u32() as usize % 4];
        let (c, rust) = (native.run(&case).unwrap(), oracle.run(&case).unwrap());
        let sent = rust.frame.is_some() && !matches!(rust.verdict, scenarios::packets::Verdict::Drop);
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
            "frame {n} from {:?}, {:?}:\n{:02x?}\nC {c:02x?}\nRust {rust:02x?}",
            case.name, case.ingress, case.frame
        );
        *reasons.entry(*rust.reasons.keys().next().unwrap()).or_insert(0) += 1;
    }
    // Mutation that only ever broke frames early would prove little.
    assert!(reasons.len() >= 20, "{reasons:?}");
}
