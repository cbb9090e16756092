//! What the packet path looks up: the `View` of the tables, and one held in memory.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;

use weir_bpf::abi::{Backend, FRAGMENTS, NextHop, RingBlock, SLOTS_PER_BLOCK, VipKey, VipWord};

/// The maps as a packet sees them. `None` from any but [`View::vip_index`] counts as `internal`.
pub trait View {
    /// Element of `vip_index`: a VIP's index.
    fn vip_index(&self, key: &VipKey) -> Option<u32>;
    /// Element of `vip_state`: a VIP's word.
    fn word(&self, vip: u32) -> Option<VipWord>;
    /// Backend index in a slot of `rings`.
    fn ring_slot(&self, slot: u32) -> Option<u32>;
    /// Element of `backends`.
    fn backend(&self, index: u32) -> Option<Backend>;
    /// Element of `nexthops`.
    fn next_hop(&self, index: u32) -> Option<NextHop>;
}

/// The key under which packets to a port are looked up; port 0 for a protocol without ports.
pub const fn port_key(address: Ipv6Addr, port: u16, proto: u8) -> VipKey {
    VipKey { addr: address.octets(), port: port.to_be_bytes(), proto, pad: 0 }
}

/// The key that says an address is ours.
pub const fn ownership_key(address: Ipv6Addr) -> VipKey {
    port_key(address, 0, 0)
}

/// The key under which fragments of a protocol find their rule without knowing their ports.
pub const fn fragments_key(address: Ipv6Addr, protocol: u8) -> VipKey {
    port_key(address, protocol as u16, FRAGMENTS)
}

/// Tables in memory, for tests and as the image of what is written into maps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MemTables {
    /// `vip_index`.
    pub vip_index: BTreeMap<VipKey, u32>,
    /// `vip_state`.
    pub words: BTreeMap<u32, VipWord>,
    /// `rings`, by slot.
    pub slots: BTreeMap<u32, u32>,
    /// `backends`.
    pub backends: BTreeMap<u32, Backend>,
    /// `nexthops`.
    pub next_hops: BTreeMap<u32, NextHop>,
}

impl MemTables {
    /// Empty tables.
    pub fn new() -> Self {
        Self::default()
    }
    /// Adds a next hop; its index is one above the highest.
    pub fn add_next_hop(&mut self, hop: NextHop) -> u32 {
        append(&mut self.next_hops, hop)
    }
    /// Adds a backend; its index is one above the highest.
    pub fn add_backend(&mut self, backend: Backend) -> u32 {
        append(&mut self.backends, backend)
    }
    /// Adds a ring region with these backend indices; gives its first slot, a multiple of [`SLOTS_PER_BLOCK`].
    pub fn add_ring(&mut self, slots: &[u32]) -> u32 {
        let end = self.slots.last_key_value().map_or(0, |(&slot, _)| slot + 1);
        let base = end.next_multiple_of(SLOTS_PER_BLOCK);
        self.slots.extend((base..).zip(slots.iter().copied()));
        base
    }
    /// Adds a VIP's key, the ownership entry of its address and its word; gives the VIP's index.
    pub fn add_vip(&mut self, address: Ipv6Addr, port: u16, proto: u8, word: VipWord) -> u32 {
        self.own(address);
        let index = append(&mut self.words, word);
        self.vip_index.insert(port_key(address, port, proto), index);
        index
    }
    /// Says that an address is ours, with or without a rule for any of its ports.
    pub fn own(&mut self, address: Ipv6Addr) {
        self.vip_index.insert(ownership_key(address), 0);
    }
    /// Lets fragments of a VIP's only rule for a protocol find it.
    pub fn lead_fragments(&mut self, address: Ipv6Addr, protocol: u8, vip: u32) {
        self.vip_index.insert(fragments_key(address, protocol), vip);
    }
    /// The elements of `rings` that are not all zero, by index.
    pub fn ring_blocks(&self) -> BTreeMap<u32, RingBlock> {
        let mut blocks: BTreeMap<u32, RingBlock> = BTreeMap::new();
        for (&slot, &backend) in &self.slots {
            let block = blocks
                .entry(slot / SLOTS_PER_BLOCK)
                .or_insert(RingBlock { slot: [0; SLOTS_PER_BLOCK as usize] });
            block.slot[(slot % SLOTS_PER_BLOCK) as usize] = backend;
        }
        blocks
    }
}

impl View for MemTables {
    fn vip_index(&self, key: &VipKey) -> Option<u32> {
        self.vip_index.get(key).copied()
    }
    fn word(&self, vip: u32) -> Option<VipWord> {
        self.words.get(&vip).copied()
    }
    fn ring_slot(&self, slot: u32) -> Option<u32> {
        self.slots.get(&slot).copied()
    }
    fn backend(&self, index: u32) -> Option<Backend> {
        self.backends.get(&index).copied()
    }
    fn next_hop(&self, index: u32) -> Option<NextHop> {
        self.next_hops.get(&index).copied()
    }
}

/// Inserts above the highest index; the first index is 1, since 0 says "none".
fn append<T>(table: &mut BTreeMap<u32, T>, value: T) -> u32 {
    let index = table.last_key_value().map_or(1, |(&i, _)| i + 1);
    table.insert(index, value);
    index
}
