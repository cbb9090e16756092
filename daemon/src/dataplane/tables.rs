//! A plain image of what the maps hold, and who uses which index and ring region. No I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use weir_bpf::abi::{SLOTS_PER_BLOCK, VipWord};

use super::RingRecord;
use crate::model::{BackendId, ObjectName, Protocol, Sid, VipKey};

/// Capacities of the maps, fixed when they are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Limits {
    /// Entries of `vip_state`, one a (VIP, protocol, port); `vip_index` has room for what they need.
    pub vips: u32,
    /// Entries of `backends`, index 0 included.
    pub backends: u32,
    /// Ring slots, all rings together.
    pub ring_slots: u32,
    /// Entries of `nexthops`, index 0 included.
    pub next_hops: u32,
    /// Entries of `fragments`: datagrams whose first fragment is remembered.
    pub fragments: u32,
}

impl Default for Limits {
    fn default() -> Self {
        Self { vips: 4096, backends: 16_384, ring_slots: 1 << 24, next_hops: 4096, fragments: 16_384 }
    }
}

impl Limits {
    /// Blocks of [`SLOTS_PER_BLOCK`] slots in the `rings` array.
    pub const fn ring_blocks(&self) -> u32 {
        self.ring_slots / SLOTS_PER_BLOCK
    }
}

/// One loaded (VIP, protocol, port).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VipEntry {
    /// Index into `vip_state` and `vip_meta`.
    pub index: u32,
    /// State word.
    pub word: VipWord,
    /// Rule that it serves.
    pub rule: ObjectName,
    /// The ring that the word names.
    pub ring: RingRecord,
}

/// One backend record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendEntry {
    /// Index into `backends` and `backend_meta`.
    pub index: u32,
    /// Its SID.
    pub sid: Sid,
    /// Node that holds it.
    pub node: std::sync::Arc<str>,
}

/// What the maps hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tables {
    /// Keys that packets can match.
    pub vips: BTreeMap<VipKey, VipEntry>,
    /// Addresses that are ours whatever the port.
    pub owned: BTreeSet<IpAddr>,
    /// Entries that lead the fragments sent to an address, by protocol, to the VIP index of its only rule.
    pub fragments: BTreeMap<(IpAddr, Protocol), u32>,
    /// Records that a ring may name.
    pub backends: BTreeMap<BackendId, BackendEntry>,
}

/// Hands out indices from 1 (or 0) up to a limit; a freed one comes back only through [`Indices::release`].
#[derive(Clone, Debug)]
pub struct Indices {
    free: BTreeSet<u32>,
    next: u32,
    limit: u32,
}

impl Indices {
    /// Indices `first..limit` but those in use.
    pub fn new(first: u32, limit: u32, used: impl IntoIterator<Item = u32>) -> Self {
        let used: BTreeSet<u32> = used.into_iter().collect();
        let next = used.last().map_or(first, |last| (last + 1).max(first));
        let free = (first..next).filter(|i| !used.contains(i)).collect();
        Self { free, next, limit }
    }
    /// An unused index, or `None` when all are in use.
    pub fn take(&mut self) -> Option<u32> {
        if let Some(index) = self.free.pop_first() {
            return Some(index);
        }
        let index = self.next;
        (index < self.limit).then(|| {
            self.next += 1;
            index
        })
    }
    /// Gives an index back; the caller has made sure that no CPU still reads it.
    pub fn release(&mut self, index: u32) {
        self.free.insert(index);
    }
    /// Unused indices.
    pub fn available(&self) -> u32 {
        self.free.len() as u32 + self.limit.saturating_sub(self.next)
    }
}

/// Blocks that a ring of `slots` slots takes.
pub const fn blocks_for(slots: u32) -> u32 {
    slots.div_ceil(SLOTS_PER_BLOCK)
}

/// First-fit allocator of runs of consecutive elements: ring blocks, next-hop groups.
#[derive(Clone, Debug)]
pub struct Spans {
    free: BTreeMap<u32, u32>,
}

impl Spans {
    /// Elements `first..end` but the runs (start, length) in use. Runs may repeat: rings are shared.
    pub fn new(first: u32, end: u32, used: impl IntoIterator<Item = (u32, u32)>) -> Self {
        let used: BTreeMap<u32, u32> = used.into_iter().collect();
        let mut free = BTreeMap::new();
        let mut at = first;
        for (start, length) in used {
            if start > at {
                free.insert(at, start - at);
            }
            at = at.max(start + length);
        }
        if end > at {
            free.insert(at, end - at);
        }
        Self { free }
    }
    /// Start of a run of `length`, or `None` when no hole is long enough.
    pub fn take(&mut self, length: u32) -> Option<u32> {
        let (&start, &hole) = self.free.iter().find(|(_, hole)| **hole >= length)?;
        self.free.remove(&start);
        if hole > length {
            self.free.insert(start + length, hole - length);
        }
        Some(start)
    }
    /// Gives a run back; the caller has made sure that no CPU still reads it.
    pub fn release(&mut self, mut start: u32, mut length: u32) {
        if let Some((&before, &n)) = self.free.range(..start).next_back()
            && before + n == start
        {
            self.free.remove(&before);
            (start, length) = (before, n + length);
        }
        if let Some(n) = self.free.remove(&(start + length)) {
            length += n;
        }
        self.free.insert(start, length);
    }
    /// Free elements.
    pub fn available(&self) -> u32 {
        self.free.values().sum()
    }
    /// Length of the longest free run.
    pub fn longest(&self) -> u32 {
        self.free.values().copied().max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn indices_come_back_only_when_released() {
        let mut indices = Indices::new(1, 5, [2]);
        assert_eq!([indices.take(), indices.take(), indices.take()], [Some(1), Some(3), Some(4)]);
        assert_eq!(indices.take(), None);
        assert_eq!(indices.available(), 0);
        indices.release(3);
        assert_eq!(indices.available(), 1);
        assert_eq!([indices.take(), indices.take()], [Some(3), None]);
    }

    #[test]
    fn spans_are_disjoint_and_merge_when_released() {
        let mut spans = Spans::new(0, 330, [(64, 64), (64, 64)]);
        assert_eq!(spans.available(), 330 - 64);
        assert_eq!(spans.take(64), Some(0));
        assert_eq!(spans.take(64), Some(128));
        assert_eq!(spans.take(256), None, "the hole has 138 elements");
        assert_eq!(spans.longest(), 138);
        spans.release(128, 64);
        spans.release(0, 64);
        spans.release(64, 64);
        assert_eq!(spans.take(256), Some(0));
        assert_eq!(spans.available(), 74);
    }
}
