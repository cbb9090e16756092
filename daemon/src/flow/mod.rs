//! The data plane in Rust: what becomes of a frame and why. Serves `weir explain` and is the packet cases' oracle.
//!
//! Follows `docs/packet-path.md` step by step, written from that page and not from the C program, so that the two
//! check each other. Pure: no I/O, no clock, no state but what the caller passes.

mod fabric;
mod fragments;
mod hash;
mod parse;
mod path;
mod pick;
mod reply;
mod tables;
#[cfg(test)]
mod tests;

use weir_bpf::abi::{Bucket, Config, Reason};

pub use fragments::Fragments;
pub use hash::{FlowHash, HashKey, hash};
use path::{Path, Sent};
pub use pick::{Explanation, Flow, NextHops, Trail, explain};
pub use reply::take_token;
pub use tables::{MemTables, View, fragments_key, ownership_key, port_key};

/// What a packet meets besides the tables.
pub struct Surroundings<'a> {
    /// Where next hops come from.
    pub next_hops: NextHops<'a>,
    /// This CPU's bucket for generated ICMP.
    pub bucket: Bucket,
    /// Time on the bucket's clock, nanoseconds.
    pub now_ns: u64,
    /// Bytes that may be pushed in front of the frame.
    pub headroom: usize,
    /// What first fragments told; grows with them.
    pub fragments: Fragments,
}

impl Default for Surroundings<'_> {
    /// A fresh heartbeat, an unused bucket, the 256 bytes of `XDP_PACKET_HEADROOM`, and no fragment seen.
    fn default() -> Self {
        Self {
            next_hops: NextHops::Table,
            bucket: Bucket::default(),
            now_ns: 1,
            headroom: 256,
            fragments: Fragments::new(),
        }
    }
}

/// What the program says to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Left to the next slot, then the stack.
    Left,
    /// Dropped.
    Drop,
    /// Sent out of the interface it came from.
    Tx,
    /// Sent out of another interface.
    Redirect(u32),
}

/// What a sent packet adds to `vip_counters` and `backend_counters`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// VIP index.
    pub vip: u32,
    /// Backend index.
    pub backend: u32,
    /// Bytes of the inner packet.
    pub bytes: u64,
}

/// What becomes of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What the program returns.
    pub verdict: Verdict,
    /// The one reason it counts. `SelfTest` also adds one to `state.selftest_seen`.
    pub reason: Reason,
    /// The frame that is sent.
    pub frame_out: Option<Vec<u8>>,
    /// What a packet sent to a backend counts.
    pub counted: Option<Counted>,
    /// What was looked up.
    pub trail: Trail,
}

/// Says what the program does with `frame` from interface `ingress`.
pub fn decide(
    config: &Config,
    view: &impl View,
    around: &mut Surroundings<'_>,
    ingress: u32,
    frame: &[u8],
) -> Decision {
    let mut trail = Trail::default();
    match (Path { config, view, around, ingress, trail: &mut trail }).run(frame) {
        Ok(Sent { verdict, reason, frame, counted }) => {
            Decision { verdict, reason, frame_out: Some(frame), counted, trail }
        }
        Err(reason) => {
            Decision { verdict: verdict_without_frame(reason), reason, frame_out: None, counted: None, trail }
        }
    }
}

fn verdict_without_frame(reason: Reason) -> Verdict {
    match reason {
        Reason::NotIp | Reason::NotForHost | Reason::Malformed | Reason::NotVip => Verdict::Left,
        _ => Verdict::Drop,
    }
}
