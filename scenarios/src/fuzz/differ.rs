//! The C headers against the Rust oracle: whatever a frame is, both do the same with it.

use std::cell::RefCell;

use anyhow::ensure;
use weir_bpf::abi::Reason;

use crate::packets::native::NativeArm;
use crate::packets::oracle::OracleArm;
use crate::packets::{Arm as _, Case, Expect, Ingress, Verdict, World};

/// Both arms, with the same world.
pub struct Differ {
    native: NativeArm,
    oracle: OracleArm,
}

impl Differ {
    /// Both arms in this world.
    ///
    /// # Errors
    /// When an arm does not take it.
    pub fn new(world: &World) -> anyhow::Result<Self> {
        let (mut native, mut oracle) = (NativeArm::default(), OracleArm::default());
        native.load(world)?;
        oracle.load(world)?;
        Ok(Self { native, oracle })
    }

    /// Runs a case, whatever it expects, through both, and gives the reason that they agree on.
    ///
    /// # Errors
    /// What they disagree on.
    pub fn compare(&mut self, case: &Case) -> anyhow::Result<Reason> {
        let (c, rust) = (self.native.run(case)?, self.oracle.run(case)?);
        let sent = rust.frame.is_some() && rust.verdict != Verdict::Drop;
        let same = c.verdict == rust.verdict
            && c.reasons == rust.reasons
            && c.vips == rust.vips
            && c.backends == rust.backends
            && c.selftest_seen == rust.selftest_seen
            && (!sent || c.frame == rust.frame);
        ensure!(
            same,
            "from {:?}, {:?}, after {:02x?}:\n{:02x?}\nC {c:02x?}\nRust {rust:02x?}",
            case.name,
            case.ingress,
            case.earlier,
            case.frame
        );
        rust.reasons.keys().next().copied().ok_or_else(|| anyhow::anyhow!("no reason was counted"))
    }
}

/// A byte that says where the frame comes in (its lowest two bits) and whether one comes before it (bit 2), of as many bytes as
/// the next two say, most significant first; then the frame.
///
/// # Panics
/// When C and Rust disagree.
#[allow(clippy::unwrap_used, reason = "a fuzz target fails by panicking")]
pub fn packet(bytes: &[u8]) {
    thread_local! {
        static DIFFER: RefCell<Differ> = RefCell::new(Differ::new(&World::default()).unwrap());
    }
    let Some((first, mut rest)) = bytes.split_first() else { return };
    let mut earlier = Vec::new();
    if first & 4 != 0
        && let [high, low, after @ ..] = rest
    {
        let (before, frame) = after.split_at(after.len().min(usize::from(*high) << 8 | usize::from(*low)));
        earlier.push(before.to_vec());
        rest = frame;
    }
    // Longer ones come from no interface.
    if rest.len() > 9216 || earlier.iter().any(|frame| frame.len() > 9216) {
        return;
    }
    let case = Case {
        name: "fuzz",
        ingress: Ingress::ALL[usize::from(first & 3)],
        earlier,
        frame: rest.to_vec(),
        expect: Expect::unsent(Verdict::Drop, Reason::Internal),
    };
    DIFFER.with_borrow_mut(|differ| differ.compare(&case)).unwrap();
}

/// A case's frames as [`packet`] takes them.
pub fn input(case: &Case) -> Vec<u8> {
    let ingress = Ingress::ALL.iter().position(|i| *i == case.ingress).unwrap_or(0) as u8;
    let mut bytes = vec![ingress];
    if let Some(earlier) = case.earlier.first() {
        bytes[0] |= 4;
        bytes.extend_from_slice(&(earlier.len() as u16).to_be_bytes());
        bytes.extend_from_slice(earlier);
    }
    bytes.extend_from_slice(&case.frame);
    bytes
}
