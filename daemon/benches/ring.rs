//! Ring build and heal, as ratios to straightforward versions of the same algorithm.

use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU64;
use std::time::{Duration, Instant};

use criterion::{BenchmarkId, Criterion};
use sha2::{Digest as _, Sha256};
use weir::maglev::{Base, Eligible, Member, RingSpec, Seed, digest};
use weir::model::{BackendId, RingSize};

/// The paper's pseudo code as it stands: a remainder for every slot tried.
fn remainder(slots: u32, ids: &[BackendId]) -> Vec<i32> {
    let starts: Vec<(u64, u64)> = ids.iter().map(|id| start(slots, id)).collect();
    let mut next = vec![0_u64; starts.len()];
    let mut entry = vec![-1_i32; slots as usize];
    let mut filled = 0;
    loop {
        for (i, &(offset, skip)) in starts.iter().enumerate() {
            let mut c = (offset + next[i] * skip) % u64::from(slots);
            while entry[c as usize] >= 0 {
                next[i] += 1;
                c = (offset + next[i] * skip) % u64::from(slots);
            }
            entry[c as usize] = i as i32;
            next[i] += 1;
            filled += 1;
            if filled == slots {
                return entry;
            }
        }
    }
}

/// The same with a subtraction in place of the remainder and entries half as wide.
fn subtraction(slots: u32, ids: &[BackendId]) -> Vec<u16> {
    let mut state: Vec<(u32, u32)> =
        ids.iter().map(|id| start(slots, id)).map(|(offset, skip)| (offset as u32, skip as u32)).collect();
    let mut entry = vec![u16::MAX; slots as usize];
    let mut filled = 0;
    loop {
        for (i, (next, skip)) in state.iter_mut().enumerate() {
            let slot = loop {
                let slot = *next;
                *next += *skip;
                if *next >= slots {
                    *next -= slots;
                }
                if entry[slot as usize] == u16::MAX {
                    break slot;
                }
            };
            entry[slot as usize] = i as u16;
            filled += 1;
            if filled == slots {
                return entry;
            }
        }
    }
}

fn start(slots: u32, id: &BackendId) -> (u64, u64) {
    let hash = Sha256::digest(format!("{id}"));
    let word = |from: usize| hash[from..from + 8].iter().fold(0_u64, |w, &b| w << 8 | u64::from(b));
    (word(0) % u64::from(slots), word(8) % u64::from(slots - 1) + 1)
}

fn ids(count: u32) -> Vec<BackendId> {
    let address = |n| IpAddr::V6(Ipv6Addr::from(0xfd00_u128 << 112 | u128::from(n)));
    (0..count).map(|n| BackendId { vpc: "v".into(), attachment: "a".into(), address: address(n) }).collect()
}

fn spec(size: RingSize, ids: &[BackendId], dead: Option<usize>) -> RingSpec<'_> {
    let members = ids.iter().enumerate().map(|(n, id)| Member {
        id,
        weight: NonZeroU64::MIN,
        eligible: if Some(n) == dead { Eligible::No } else { Eligible::Yes },
    });
    RingSpec::new(size, Seed([7; 16]), members.collect())
}

/// A name and what is timed under it.
type Subject<'a> = (&'a str, Box<dyn FnMut() + 'a>);

/// Fastest of interleaved runs, so that a busy machine slows all subjects alike.
fn fastest(subjects: &mut [Subject<'_>]) -> Vec<Duration> {
    let mut best = vec![Duration::MAX; subjects.len()];
    for _ in 0..60 {
        for ((_, run), best) in subjects.iter_mut().zip(&mut best) {
            let begin = Instant::now();
            run();
            *best = begin.elapsed().min(*best);
        }
    }
    best
}

fn ratios(size: RingSize, members: u32) {
    let ids = ids(members);
    let whole = spec(size, &ids, None);
    let dead = spec(size, &ids, Some(3));
    let base = Base::build(&whole);
    let ring = base.heal(&dead);
    let slots = size.slots();
    let mut subjects: [Subject<'_>; 5] = [
        ("remainder", Box::new(|| drop(std::hint::black_box(remainder(slots, &ids))))),
        ("subtraction", Box::new(|| drop(std::hint::black_box(subtraction(slots, &ids))))),
        ("build", Box::new(|| drop(std::hint::black_box(Base::build(&whole))))),
        ("heal one death", Box::new(|| drop(std::hint::black_box(base.heal(&dead))))),
        (
            "digest",
            Box::new(|| {
                std::hint::black_box(digest(size, dead.seed(), ring.identities(&dead)));
            }),
        ),
    ];
    let best = fastest(&mut subjects);
    let plain = best[0].min(best[1]).as_secs_f64();
    let build = best[2].as_secs_f64();
    println!("{slots} slots, {members} members");
    for ((name, _), time) in subjects.iter().zip(&best) {
        let time = time.as_secs_f64();
        println!(
            "  {name:<16} {:>9.1} us   {:>6.3} x fastest straightforward   {:>6.3} x build",
            time * 1e6,
            time / plain,
            time / build
        );
    }
}

fn main() {
    ratios(RingSize::S65537, 64);
    ratios(RingSize::S65537, 512);
    ratios(RingSize::S4093, 8);
    let mut criterion = Criterion::default()
        .configure_from_args()
        .sample_size(20)
        .warm_up_time(Duration::from_millis(300))
        .measurement_time(Duration::from_secs(2));
    let mut group = criterion.benchmark_group("ring");
    for (size, members) in [(RingSize::S65537, 64), (RingSize::S4093, 8)] {
        let ids = ids(members);
        let (whole, dead) = (spec(size, &ids, None), spec(size, &ids, Some(3)));
        let base = Base::build(&whole);
        let name = format!("{}x{members}", size.slots());
        group.bench_function(BenchmarkId::new("build", &name), |b| b.iter(|| Base::build(&whole)));
        group.bench_function(BenchmarkId::new("heal", &name), |b| b.iter(|| base.heal(&dead)));
    }
    group.finish();
    criterion.final_summary();
}
