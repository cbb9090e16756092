//! Loss, duplication, corruption and reordering of chosen packets, by a tc program. The same seed does the same to the same
//! packets.

use std::ops::Range;
use std::time::Duration;

use aya::maps::{Array, RingBuf};
use aya::programs::{SchedClassifier, TcAttachType};

use super::resend::Resender;
use crate::error::{Error, Result};
use crate::lab::NodeHandle;

/// The program, compiled by the build script.
static IMPAIR: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/impair.bpf.o"));

/// Where on an interface packets are impaired.
///
/// Frames that XDP transmits or redirects pass no egress hook, and those that XDP takes pass no ingress hook. So impair what
/// such a node sends at the ingress of its neighbour, and what it receives at its neighbour's egress.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// What the interface receives, after XDP.
    Ingress,
    /// What the kernel sends out of the interface; large TCP segments are not cut up yet and count as one packet. The sender
    /// is told of a loss here: its TCP sends again without counting a retransmission.
    Egress,
}

/// What to do to which packets. Chances are between 0 and 1.
#[derive(Clone, Debug)]
pub struct Impair {
    seed: u64,
    lose: f64,
    duplicate: f64,
    corrupt: f64,
    reorder: f64,
    hold: Duration,
    lose_range: Range<u64>,
    ethertype: u16,
    protocol: u8,
    port: u16,
}

/// What was done, in packets that matched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Matching packets seen.
    pub seen: u64,
    /// Dropped for good.
    pub lost: u64,
    /// Sent twice.
    pub duplicated: u64,
    /// One bit flipped.
    pub corrupted: u64,
    /// Held back and sent later.
    pub reordered: u64,
}

/// An impairment in force; heals when dropped.
pub struct Impaired {
    what: String,
    object: aya::Ebpf,
    resender: Option<Resender>,
}

impl std::fmt::Debug for Impaired {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Impaired").field("what", &self.what).finish_non_exhaustive()
    }
}

impl Impair {
    /// Does nothing yet, to all packets.
    pub fn new(seed: u64) -> Self {
        Self {
            seed,
            lose: 0.0,
            duplicate: 0.0,
            corrupt: 0.0,
            reorder: 0.0,
            hold: Duration::from_millis(10),
            lose_range: 0..0,
            ethertype: 0,
            protocol: 0,
            port: 0,
        }
    }
    /// Loses packets with this chance.
    #[must_use]
    pub fn lose(mut self, chance: f64) -> Self {
        self.lose = chance;
        self
    }
    /// Loses exactly the matching packets of these numbers, counted from 0.
    #[must_use]
    pub fn lose_exactly(mut self, packets: Range<u64>) -> Self {
        self.lose_range = packets;
        self
    }
    /// Doubles packets with this chance.
    #[must_use]
    pub fn duplicate(mut self, chance: f64) -> Self {
        self.duplicate = chance;
        self
    }
    /// Flips one bit behind the Ethernet header with this chance.
    #[must_use]
    pub fn corrupt(mut self, chance: f64) -> Self {
        self.corrupt = chance;
        self
    }
    /// Holds packets back with this chance and sends them `hold` later, after those behind them. Only at egress.
    #[must_use]
    pub fn reorder(mut self, chance: f64, hold: Duration) -> Self {
        self.reorder = chance;
        self.hold = hold;
        self
    }
    /// Only IPv6 packets, so that ARP and the like stay whole.
    #[must_use]
    pub fn only_ipv6(mut self) -> Self {
        self.ethertype = 0x86dd;
        self
    }
    /// Only UDP to this port (in packets without extension headers).
    #[must_use]
    pub fn only_udp(mut self, port: u16) -> Self {
        self.protocol = 17;
        self.port = port;
        self
    }
    /// Only TCP to this port (in packets without extension headers).
    #[must_use]
    pub fn only_tcp(mut self, port: u16) -> Self {
        self.protocol = 6;
        self.port = port;
        self
    }

    /// `struct config` of `bpf/impair.bpf.c`.
    fn config(&self) -> Vec<u8> {
        // A float cast saturates: a chance of 1 becomes the largest number.
        let chance = |chance: f64| (chance * (f64::from(u32::MAX) + 1.0)) as u32;
        let mut bytes = Vec::with_capacity(48);
        bytes.extend_from_slice(&self.seed.to_ne_bytes());
        for part in [self.lose, self.duplicate, self.corrupt, self.reorder] {
            bytes.extend_from_slice(&chance(part).to_ne_bytes());
        }
        bytes.extend_from_slice(&self.lose_range.start.to_ne_bytes());
        bytes.extend_from_slice(&self.lose_range.end.to_ne_bytes());
        bytes.extend_from_slice(&self.ethertype.to_ne_bytes());
        bytes.extend_from_slice(&[self.protocol, 0]);
        bytes.extend_from_slice(&self.port.to_ne_bytes());
        bytes.extend_from_slice(&[0, 0]);
        bytes
    }

    /// Puts it in force on an interface of a node.
    ///
    /// # Errors
    /// The kernel refused the program (needs 6.6 for tcx), or reordering was asked for at ingress.
    pub fn at(&self, node: &NodeHandle, interface: &str, direction: Direction) -> Result<Impaired> {
        let what = format!("{}:{interface} {direction:?}", node.name()).to_lowercase();
        let failed = |problem: &str| Error::Answer {
            operation: "impair",
            object: what.clone(),
            problem: problem.to_owned(),
        };
        if self.reorder > 0.0 && direction == Direction::Ingress {
            return Err(failed("packets can be held back only at egress; use the other end's egress"));
        }
        let config = self.config();
        let loaded = node.netns().run(|| load(&config, interface, direction))?;
        let mut object =
            loaded.map_err(|cause| Error::Bpf { operation: "impair", object: what.clone(), cause })?;
        let resender = if self.reorder > 0.0 {
            let held = object.take_map("held").ok_or_else(|| failed("the program has no map \"held\""))?;
            let held = RingBuf::try_from(held).map_err(|e| Error::bpf("impair", &*what, e))?;
            Some(Resender::start(node, interface, held, self.hold)?)
        } else {
            None
        };
        tracing::info!(fault = what, "in force");
        Ok(Impaired { what, object, resender })
    }
}

type Cause = Box<dyn std::error::Error + Send + Sync>;

/// Loads and attaches; the calling thread must be inside the node.
fn load(config: &[u8], interface: &str, direction: Direction) -> Result<aya::Ebpf, Cause> {
    let mut object = aya::EbpfLoader::new().btf(None).override_global("cfg", config, true).load(IMPAIR)?;
    let (name, hook) = match direction {
        Direction::Ingress => ("labkit_ingress", TcAttachType::Ingress),
        Direction::Egress => ("labkit_egress", TcAttachType::Egress),
    };
    let program: &mut SchedClassifier = object.program_mut(name).ok_or("not in the object")?.try_into()?;
    program.load()?;
    program.attach(interface, hook)?;
    Ok(object)
}

impl Impaired {
    /// What was done so far.
    pub fn counts(&self) -> Result<Counts> {
        let map = self.object.map(".bss").ok_or_else(|| Error::Answer {
            operation: "read counts of",
            object: self.what.clone(),
            problem: "the program has none".into(),
        })?;
        let failed = |e| Error::bpf("read counts of", &*self.what, e);
        let array: Array<_, [u64; 5]> = Array::try_from(map).map_err(failed)?;
        let [seen, lost, duplicated, corrupted, reordered] = array.get(&0, 0).map_err(failed)?;
        Ok(Counts { seen, lost, duplicated, corrupted, reordered })
    }

    /// Heals it: packets pass whole again, held ones are sent.
    pub fn heal(self) -> Result<()> {
        let Self { what, object, resender } = self;
        // Closing the program's link detaches it.
        drop(object);
        let result = resender.map_or(Ok(()), Resender::finish);
        tracing::info!(fault = what, "healed");
        result
    }
}
