//! A data plane in memory that checks the order of writes and can fail: for tests of everything above the maps.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use weir_bpf::abi::{NextHop, VipWord};

use super::tables::{BackendEntry, VipEntry};
use super::{BackendRecord, Dataplane, Error, Limits, RingRecord, Tables, VipRecord};
use crate::model::{Affinity, Protocol, VipKey};

/// Maps as plain collections.
#[derive(Clone, Debug, Default)]
pub struct Mem {
    limits: Limits,
    keys: BTreeMap<VipKey, u32>,
    owned: BTreeSet<IpAddr>,
    fragments: BTreeMap<(IpAddr, Protocol), u32>,
    words: BTreeMap<u32, VipWord>,
    vips: BTreeMap<u32, VipRecord>,
    slots: BTreeMap<u32, u32>,
    rings: BTreeMap<u32, RingRecord>,
    backends: BTreeMap<u32, BackendRecord>,
    hops: BTreeMap<u32, NextHop>,
    hops_of: BTreeMap<u32, u32>,
    path_mtus: BTreeMap<u32, u32>,
    /// Keys were hidden since the last wait.
    hidden: bool,
    /// Words and records that a reader that started before the last wait may still use.
    readable: BTreeSet<u32>,
    /// Operations until one fails; each failure happens once.
    fail_in: Option<u32>,
    /// Writes so far.
    pub writes: u64,
}

impl Mem {
    /// Empty maps of a size.
    pub fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// The `n`-th operation from now fails, once.
    pub fn fail_in(&mut self, n: u32) {
        self.fail_in = Some(n);
    }

    /// Backend that a flow with this slot number would reach, as the program would find it.
    pub fn backend_at(&self, key: &VipKey, slot: u32) -> Option<&BackendRecord> {
        let word = self.words.get(self.keys.get(key)?)?;
        if word.size() == 0 {
            return None;
        }
        self.backends.get(self.slots.get(&(word.base() + slot % word.size()))?)
    }

    fn step(&mut self, operation: &'static str, map: &'static str) -> Result<(), Error> {
        self.writes += 1;
        if let Some(n) = &mut self.fail_in {
            if *n == 0 {
                self.fail_in = None;
                return Err(Error::Map { operation, map, reason: "injected fault".into() });
            }
            *n -= 1;
        }
        Ok(())
    }

    /// Slots that a VIP word names, now or for a late reader.
    fn slot_in_use(&self, slot: u32) -> bool {
        self.readable.contains(&slot)
            || (self.keys.values().filter_map(|index| self.words.get(index)))
                .any(|word| (word.base()..word.base() + word.size()).contains(&slot))
    }
}

impl Dataplane for Mem {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn read_back(&self) -> Result<Tables, Error> {
        let mut tables =
            Tables { owned: self.owned.clone(), fragments: self.fragments.clone(), ..Tables::default() };
        for (key, index) in &self.keys {
            let (Some(record), Some(word)) = (self.vips.get(index), self.words.get(index)) else { continue };
            let entry = VipEntry {
                index: *index,
                word: *word,
                rule: record.rule.clone(),
                ring: self.rings.get(&word.base()).copied().unwrap_or_default(),
            };
            tables.vips.insert(*key, entry);
        }
        for (index, record) in &self.backends {
            let entry = BackendEntry { index: *index, sid: record.sid, node: record.node.clone() };
            tables.backends.insert(record.id.clone(), entry);
        }
        Ok(tables)
    }

    fn put_backend(&mut self, index: u32, record: &BackendRecord) -> Result<(), Error> {
        self.step("write", "backends")?;
        assert!(
            !self.slots.iter().any(|(slot, b)| *b == index && self.slot_in_use(*slot)),
            "backend {index} is in use"
        );
        self.backends.insert(index, record.clone());
        self.hops_of.remove(&index);
        self.path_mtus.remove(&index);
        Ok(())
    }

    fn clear_backend(&mut self, index: u32) -> Result<(), Error> {
        self.step("clear", "backends")?;
        assert!(
            !self.slots.iter().any(|(slot, b)| *b == index && self.slot_in_use(*slot)),
            "backend {index} is in use"
        );
        self.backends.remove(&index);
        self.hops_of.remove(&index);
        Ok(())
    }

    fn write_ring(&mut self, base: u32, slots: &[u32], record: &RingRecord) -> Result<(), Error> {
        self.step("write", "rings")?;
        for (slot, backend) in (base..).zip(slots) {
            assert!(!self.slot_in_use(slot), "slot {slot} is written while a VIP word names it");
            assert!(*backend == 0 || self.backends.contains_key(backend), "slot {slot} names no backend");
            self.slots.insert(slot, *backend);
        }
        self.rings.insert(base, *record);
        Ok(())
    }

    fn read_ring(&self, base: u32, slots: u32) -> Vec<u32> {
        (base..base + slots).map(|slot| self.slots.get(&slot).copied().unwrap_or(0)).collect()
    }

    fn put_vip(&mut self, index: u32, record: &VipRecord) -> Result<(), Error> {
        self.step("write", "vip_meta")?;
        self.vips.insert(index, record.clone());
        Ok(())
    }

    fn set_word(&mut self, index: u32, word: VipWord) -> Result<(), Error> {
        self.step("write", "vip_state")?;
        assert!(
            (word.base()..word.base() + word.size()).all(|slot| self.slots.contains_key(&slot)),
            "no such ring"
        );
        let led = self.fragments.values().any(|led| *led == index);
        assert!(
            !led || word.affinity() != Affinity::None,
            "fragments are led to VIP index {index}, which hashes ports"
        );
        if let Some(old) = self.words.insert(index, word) {
            self.readable.extend(old.base()..old.base() + old.size());
        }
        Ok(())
    }

    fn clear_vip(&mut self, index: u32) -> Result<(), Error> {
        self.step("clear", "vip_state")?;
        assert!(!self.keys.values().any(|i| *i == index), "VIP index {index} is in use");
        self.words.remove(&index);
        self.vips.remove(&index);
        Ok(())
    }

    fn insert_key(&mut self, key: VipKey, index: u32) -> Result<(), Error> {
        self.step("insert into", "vip_index")?;
        assert!(!self.hidden, "a key is inserted while readers may hold a hidden one");
        assert!(self.words.get(&index).is_some_and(|word| word.size() > 0), "key {key} leads to nothing");
        let led = self.fragments.contains_key(&(key.address, key.protocol));
        assert!(!led, "key {key} is inserted while fragments are led to another rule");
        assert_eq!(self.keys.insert(key, index), None, "key {key} is updated in place");
        Ok(())
    }

    fn delete_key(&mut self, key: VipKey) -> Result<(), Error> {
        self.step("delete from", "vip_index")?;
        let led = self.fragments.contains_key(&(key.address, key.protocol));
        assert!(!led, "key {key} is hidden before the entry that leads fragments to it");
        if let Some(word) = self.keys.remove(&key).and_then(|index| self.words.remove(&index)) {
            self.readable.extend(word.base()..word.base() + word.size());
        }
        self.hidden = true;
        Ok(())
    }

    fn insert_owner(&mut self, address: IpAddr) -> Result<(), Error> {
        self.step("insert into", "vip_index")?;
        assert!(!self.hidden, "an address is inserted while readers may hold a hidden key");
        self.owned.insert(address);
        Ok(())
    }

    fn delete_owner(&mut self, address: IpAddr) -> Result<(), Error> {
        self.step("delete from", "vip_index")?;
        self.owned.remove(&address);
        self.hidden = true;
        Ok(())
    }

    fn insert_fragments(&mut self, address: IpAddr, protocol: Protocol, index: u32) -> Result<(), Error> {
        self.step("insert into", "vip_index")?;
        assert!(!self.hidden, "fragments are led while readers may hold a hidden key");
        let keys = self.keys.iter().filter(|(key, _)| (key.address, key.protocol) == (address, protocol));
        let indices: Vec<u32> = keys.map(|(_, index)| *index).collect();
        assert_eq!(indices, [index], "fragments of {address} are led to one of several rules, or to none");
        let affinity = self.words.get(&index).map(|word| word.affinity());
        assert!(
            affinity.is_some_and(|affinity| affinity != Affinity::None),
            "fragments are led by {affinity:?}"
        );
        assert_eq!(self.fragments.insert((address, protocol), index), None, "an entry is updated in place");
        Ok(())
    }

    fn delete_fragments(&mut self, address: IpAddr, protocol: Protocol) -> Result<(), Error> {
        self.step("delete from", "vip_index")?;
        self.fragments.remove(&(address, protocol));
        self.hidden = true;
        Ok(())
    }

    fn put_hop(&mut self, index: u32, hop: NextHop) -> Result<(), Error> {
        self.step("write", "nexthops")?;
        self.hops.insert(index, hop);
        Ok(())
    }

    fn set_hops(&mut self, backend: u32, hops: u32) -> Result<(), Error> {
        self.step("write", "backends")?;
        self.hops_of.insert(backend, hops);
        Ok(())
    }

    fn hops_of(&self, backend: u32) -> u32 {
        self.hops_of.get(&backend).copied().unwrap_or(0)
    }

    fn set_path_mtu(&mut self, backend: u32, mtu: u32) -> Result<(), Error> {
        self.step("write", "backends")?;
        self.path_mtus.insert(backend, mtu);
        Ok(())
    }

    fn path_mtu(&self, backend: u32) -> u32 {
        self.path_mtus.get(&backend).copied().unwrap_or(0)
    }

    fn hop(&self, index: u32) -> NextHop {
        self.hops.get(&index).copied().unwrap_or_default()
    }

    fn wait_for_readers(&mut self) -> Result<(), Error> {
        self.hidden = false;
        self.readable.clear();
        Ok(())
    }
}
