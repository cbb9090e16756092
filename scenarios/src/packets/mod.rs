//! The packet cases: a fixed world, frames that meet it, and everything that must come of each.
//!
//! An [`Arm`] runs them: the Rust oracle ([`oracle::OracleArm`]) here, the loaded program elsewhere.

pub mod build;
pub mod build4;
pub mod cases;
pub mod interpreted;
pub mod native;
pub mod oracle;
pub mod test_run;
pub mod wire;
pub mod worker;
pub mod world;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::net::Ipv6Addr;

use weir_bpf::abi::{Counter, Learned, Reason};
pub use world::{Ingress, Ports, World};

/// What the program returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Left to the next slot, then the stack: `XDP_PASS` when that slot is empty.
    Left,
    /// `XDP_DROP`.
    Drop,
    /// `XDP_TX`.
    Tx,
    /// `XDP_REDIRECT`.
    Redirect,
}

/// A frame and what must come of it.
#[derive(Clone, Debug)]
pub struct Case {
    /// Unique name.
    pub name: &'static str,
    /// Where the frame comes in.
    pub ingress: Ingress,
    /// Frames that came in there just before, starting from a gateway that has seen none; their own fate is other cases'.
    pub earlier: Vec<Vec<u8>>,
    /// The frame.
    pub frame: Vec<u8>,
    /// What must come of it.
    pub expect: Expect,
}

impl Case {
    /// False when `BPF_PROG_TEST_RUN` refuses the frame: it takes none without a whole Ethernet header.
    pub fn test_run_takes_it(&self) -> bool {
        self.frame.len() >= 14
    }

    /// False when the kernel's stack drops the frame before anyone can see that the program left it: it takes a VLAN tag off
    /// every frame, and wants a whole one with two bytes behind it.
    pub fn stack_takes_it(&self) -> bool {
        let tagged = matches!(self.frame.get(12..14), Some([0x81, 0x00] | [0x88, 0xa8]));
        self.test_run_takes_it() && (!tagged || self.frame.len() >= 20)
    }
}

/// What must come of a frame. All counters that are not named here must stay as they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Expect {
    /// What the program returns.
    pub verdict: Verdict,
    /// The reason that grows by one.
    pub reason: Reason,
    /// Interface that a [`Verdict::Redirect`] names.
    pub redirect: Option<u32>,
    /// The frame that is sent.
    pub frame_out: Option<Vec<u8>>,
    /// Index in `vip_counters` and what is added there.
    pub vip: Option<(u32, Counter)>,
    /// Index in `backend_counters` and what is added there.
    pub backend: Option<(u32, Counter)>,
    /// What `state.selftest_seen` grows by.
    pub selftest_seen: u64,
    /// The SID and MTU that are noted in `learned`.
    pub learned: Option<(Ipv6Addr, u32)>,
}

impl Expect {
    /// Left or dropped for a reason.
    pub fn unsent(verdict: Verdict, reason: Reason) -> Self {
        Self {
            verdict,
            reason,
            redirect: None,
            frame_out: None,
            vip: None,
            backend: None,
            selftest_seen: 0,
            learned: None,
        }
    }
}

/// What an arm saw. Counters are increments of this run alone, without the zero ones.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// What the program returned.
    pub verdict: Verdict,
    /// Interface of a redirect, where the arm can see it.
    pub redirect: Option<u32>,
    /// The frame after the run; of frames that are not sent, where the arm can see it.
    pub frame: Option<Vec<u8>>,
    /// Increments of `reasons`.
    pub reasons: BTreeMap<Reason, u64>,
    /// Increments of `vip_counters`.
    pub vips: BTreeMap<u32, Counter>,
    /// Increments of `backend_counters`.
    pub backends: BTreeMap<u32, Counter>,
    /// Increment of `state.selftest_seen`.
    pub selftest_seen: u64,
    /// What was noted in `learned`: MTU by SID.
    pub learned: BTreeMap<Ipv6Addr, u32>,
}

/// `XDP_PASS`: what the program returns for a frame that it leaves, when no other slot is filled.
pub const XDP_PASS: u32 = 2;

/// All counters at one moment.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// `reasons`, by index.
    pub reasons: Vec<u64>,
    /// `vip_counters`, by index.
    pub vips: Vec<Counter>,
    /// `backend_counters`, by index.
    pub backends: Vec<Counter>,
    /// `state.selftest_seen`.
    pub selftest_seen: u64,
    /// `learned`, by SID.
    pub learned: BTreeMap<Ipv6Addr, Learned>,
}

/// What grew between two moments, without what did not.
#[derive(Clone, Debug, Default)]
pub struct Increments {
    reasons: BTreeMap<Reason, u64>,
    vips: BTreeMap<u32, Counter>,
    backends: BTreeMap<u32, Counter>,
    selftest_seen: u64,
    learned: BTreeMap<Ipv6Addr, u32>,
}

impl Increments {
    /// Whether nothing grew.
    pub fn nothing(&self) -> bool {
        let Self { reasons, vips, backends, selftest_seen, learned } = self;
        reasons.is_empty()
            && vips.is_empty()
            && backends.is_empty()
            && *selftest_seen == 0
            && learned.is_empty()
    }

    /// The difference of two moments.
    pub fn between(before: &Totals, after: &Totals) -> Self {
        let counters = |before: &[Counter], after: &[Counter]| {
            let old = |i: usize| before.get(i).copied().unwrap_or_default();
            let grown = |(i, now): (usize, &Counter)| {
                let more = Counter { packets: now.packets - old(i).packets, bytes: now.bytes - old(i).bytes };
                (more != Counter::default()).then_some((i as u32, more))
            };
            after.iter().enumerate().filter_map(grown).collect()
        };
        let reason = |(reason, now): (&Reason, &u64)| {
            let old = before.reasons.get(*reason as usize).copied().unwrap_or(0);
            (*now != old).then_some((*reason, now - old))
        };
        Self {
            reasons: Reason::ALL.iter().zip(&after.reasons).filter_map(reason).collect(),
            vips: counters(&before.vips, &after.vips),
            backends: counters(&before.backends, &after.backends),
            selftest_seen: after.selftest_seen - before.selftest_seen,
            learned: after
                .learned
                .iter()
                .filter(|(sid, learned)| before.learned.get(sid) != Some(learned))
                .map(|(sid, learned)| (*sid, learned.mtu))
                .collect(),
        }
    }
}

impl Outcome {
    /// What a program returned, with the counters it moved.
    ///
    /// # Errors
    /// When the program aborted.
    pub fn new(
        action: u32,
        redirect: Option<u32>,
        frame: Vec<u8>,
        grown: Increments,
    ) -> anyhow::Result<Self> {
        let verdict = match action {
            1 => Verdict::Drop,
            XDP_PASS => Verdict::Left,
            3 => Verdict::Tx,
            4 => Verdict::Redirect,
            other => anyhow::bail!("the program returned the XDP action {other}"),
        };
        let Increments { reasons, vips, backends, selftest_seen, learned } = grown;
        Ok(Self { verdict, redirect, frame: Some(frame), reasons, vips, backends, selftest_seen, learned })
    }
}

/// Something that runs frames against tables.
pub trait Arm {
    /// Takes the world's tables and configuration.
    ///
    /// # Errors
    /// What could not be loaded.
    fn load(&mut self, world: &World) -> anyhow::Result<()>;
    /// Runs one frame.
    ///
    /// # Errors
    /// Why it could not be run; a wrong outcome is none.
    fn run(&mut self, case: &Case) -> anyhow::Result<Outcome>;
}

/// Loads the world and runs all cases that `wanted` keeps; gives how many ran and a text for each that failed.
///
/// # Errors
/// When the arm itself fails.
pub fn run_all(
    arm: &mut impl Arm,
    world: &World,
    wanted: impl Fn(&Case) -> bool,
) -> anyhow::Result<(usize, Vec<String>)> {
    use anyhow::Context as _;
    arm.load(world).context("load the world")?;
    let (mut ran, mut failed) = (0, Vec::new());
    for case in cases::all(world).iter().filter(|case| wanted(case)) {
        let outcome = arm.run(case).with_context(|| format!("run case {}", case.name))?;
        ran += 1;
        failed.extend(check(case, &outcome).err());
    }
    Ok((ran, failed))
}

/// Compares an outcome with a case's expectation, every counter included.
///
/// # Errors
/// A text that names the case and each difference.
pub fn check(case: &Case, outcome: &Outcome) -> Result<(), String> {
    let expect = &case.expect;
    let mut differences = String::new();
    let mut differ = |what: &str, expected: String, seen: String| {
        if expected != seen {
            let _ = write!(differences, "\n  {what}: expected {expected}, saw {seen}");
        }
    };
    let show = |value: &dyn std::fmt::Debug| format!("{value:?}");
    differ("verdict", show(&expect.verdict), show(&outcome.verdict));
    differ("reasons", show(&BTreeMap::from([(expect.reason, 1)])), show(&outcome.reasons));
    differ("vip counters", show(&BTreeMap::from_iter(expect.vip)), show(&outcome.vips));
    differ("backend counters", show(&BTreeMap::from_iter(expect.backend)), show(&outcome.backends));
    differ("selftest_seen", show(&expect.selftest_seen), show(&outcome.selftest_seen));
    differ("learned", show(&BTreeMap::from_iter(expect.learned)), show(&outcome.learned));
    if outcome.redirect.is_some() {
        differ("redirect", show(&expect.redirect), show(&outcome.redirect));
    }
    // What is left goes on as it came; what becomes of a dropped frame's bytes does not matter.
    let bytes = match expect.verdict {
        Verdict::Left => Some(&case.frame),
        Verdict::Drop => None,
        Verdict::Tx | Verdict::Redirect => expect.frame_out.as_ref(),
    };
    match (bytes, &outcome.frame) {
        (Some(expected), Some(seen)) if expected != seen => {
            let at = expected.iter().zip(seen).take_while(|(a, b)| a == b).count();
            let _ = write!(
                differences,
                "\n  frame differs from byte {at}: expected {} bytes …{}, saw {} bytes …{}",
                expected.len(),
                hex(expected, at),
                seen.len(),
                hex(seen, at)
            );
        }
        (Some(expected), None) if expect.frame_out.is_some() => {
            let _ = write!(differences, "\n  frame: expected {} bytes, saw none", expected.len());
        }
        _ => {}
    }
    if differences.is_empty() { Ok(()) } else { Err(format!("case {}:{differences}", case.name)) }
}

/// Up to 24 bytes around `at`.
fn hex(bytes: &[u8], at: usize) -> String {
    let from = at.saturating_sub(4).min(bytes.len());
    bytes[from..bytes.len().min(from + 24)].iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
