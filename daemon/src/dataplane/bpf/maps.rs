//! The pinned maps as a [`Dataplane`]: encoding between the model's types and the shared layout.

use std::collections::{BTreeMap, HashSet};
use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};

use aya::maps::{Array, HashMap, MapData, MapError, PerCpuArray, PerCpuValues};
use aya::util::nr_cpus;
use bytemuck::Zeroable as _;
use sha2::{Digest as _, Sha256};
use weir_bpf::abi;
use weir_bpf::abi::{
    BackendMeta, Counter, Learned, Name, NextHop, Reason, RingBlock, RingMeta, SLOTS_PER_BLOCK, Sampler,
    Shared, VipMeta, VipWord,
};

use super::mmap::Mapped;
use super::pins::specs;
use super::sys;
use crate::dataplane::tables::{BackendEntry, VipEntry, blocks_for};
use crate::dataplane::{BackendRecord, Dataplane, Error, Limits, RingRecord, Tables, VipRecord};
use crate::flow::{Fragments, MemTables, View, fragments_key};
use crate::model::{BackendId, ObjectName, Protocol, Sid, VipKey, mapped, unmapped};

type Bytes<const N: usize> = Array<MapData, [u8; N]>;

const KEY: usize = size_of::<abi::VipKey>();
const VIP_META: usize = size_of::<VipMeta>();
const RING_META: usize = size_of::<RingMeta>();
const BACKEND_META: usize = size_of::<BackendMeta>();
const COUNTER: usize = size_of::<Counter>();
const SAMPLER: usize = size_of::<Sampler>();
const NAME: usize = size_of::<Name>();
const FRAGMENT_KEY: usize = size_of::<abi::FragmentKey>();
const FRAGMENT: usize = size_of::<abi::Fragment>();

/// One set of pinned maps, opened for reading and writing.
pub struct Maps {
    directory: PathBuf,
    limits: Limits,
    /// VIP indices from here on have never been used since the kernel made the maps: their counters are 0.
    untouched: u32,
    writes: u64,
    vip_index: HashMap<MapData, [u8; KEY], u32>,
    words: Mapped<u64>,
    rings: Mapped<RingBlock>,
    backends: Mapped<abi::Backend>,
    hops: Mapped<NextHop>,
    state: Mapped<Shared>,
    vip_counters: PerCpuArray<MapData, [u8; COUNTER]>,
    backend_counters: PerCpuArray<MapData, [u8; COUNTER]>,
    reasons: PerCpuArray<MapData, u64>,
    samplers: PerCpuArray<MapData, [u8; SAMPLER]>,
    vip_meta: Bytes<VIP_META>,
    ring_meta: HashMap<MapData, u32, [u8; RING_META]>,
    backend_meta: Bytes<BACKEND_META>,
    vip_carried: Bytes<COUNTER>,
    backend_carried: Bytes<COUNTER>,
    reason_carried: Array<MapData, u64>,
    names: HashMap<MapData, u64, [u8; NAME]>,
    reply_sources: HashMap<MapData, [u8; 16], u64>,
    /// How many backends have each SID.
    sid_holders: BTreeMap<[u8; 16], u32>,
    fragments: HashMap<MapData, [u8; FRAGMENT_KEY], [u8; FRAGMENT]>,
    learned: HashMap<MapData, [u8; 16], [u8; size_of::<Learned>()]>,
}

/// The map form of a key.
pub fn encode_key(key: VipKey) -> abi::VipKey {
    abi::VipKey {
        addr: mapped(key.address).octets(),
        port: key.port.to_be_bytes(),
        proto: key.protocol.number(),
        pad: 0,
    }
}

/// The map form of an entry that leads fragments.
pub fn encode_fragments(address: IpAddr, protocol: Protocol) -> abi::VipKey {
    fragments_key(mapped(address), protocol.number())
}

/// The map form of "this address is ours".
pub fn encode_owner(address: IpAddr) -> abi::VipKey {
    abi::VipKey { addr: mapped(address).octets(), port: [0; 2], proto: 0, pad: 0 }
}

fn decode_key(key: &abi::VipKey) -> Option<VipKey> {
    let address = unmapped(Ipv6Addr::from(key.addr));
    let protocol = Protocol::from_number(key.proto)?;
    Some(VipKey { address, protocol, port: u16::from_be_bytes(key.port) })
}

/// A name's number: the first eight bytes of its SHA-256, so that every daemon gives it the same.
fn name_id(text: &str) -> u64 {
    let digest = Sha256::digest(text);
    let mut id = [0; 8];
    id.copy_from_slice(&digest[..8]);
    // 0 says "none".
    u64::from_le_bytes(id).max(1)
}

impl Maps {
    /// Opens the maps pinned in `directory`, each compared with what this build and these limits need.
    pub fn open(directory: &Path, limits: Limits) -> Result<Self, Error> {
        let mut maps: BTreeMap<&'static str, MapData> = BTreeMap::new();
        for spec in specs(&limits) {
            maps.insert(spec.name, spec.open(directory)?);
        }
        let mut take = |name: &'static str| {
            maps.remove(name).ok_or(Error::Map {
                operation: "open",
                map: name,
                reason: "not in the layout".into(),
            })
        };
        fn typed<T>(name: &'static str, map: Result<T, MapError>) -> Result<T, Error> {
            map.map_err(|e| Error::map("open", name, e))
        }
        fn mmap<T: bytemuck::Pod>(
            name: &'static str,
            map: &MapData,
            entries: u32,
        ) -> Result<Mapped<T>, Error> {
            use std::os::fd::AsFd as _;
            Mapped::new(map.fd().as_fd(), entries).map_err(|e| Error::map("map into memory the", name, e))
        }
        macro_rules! open {
            ($kind:ident $name:literal) => {
                typed(
                    $name,
                    $kind::try_from(
                        aya::maps::Map::from_map_data(take($name)?)
                            .map_err(|e| Error::map("open", $name, e))?,
                    ),
                )?
            };
        }
        let mut this = Self {
            directory: directory.into(),
            limits,
            untouched: u32::MAX,
            writes: 0,
            vip_index: open!(HashMap "vip_index"),
            words: mmap("vip_state", &take("vip_state")?, limits.vips)?,
            rings: mmap("rings", &take("rings")?, limits.ring_blocks())?,
            backends: mmap("backends", &take("backends")?, limits.backends)?,
            hops: mmap("nexthops", &take("nexthops")?, limits.next_hops)?,
            state: mmap("state", &take("state")?, 1)?,
            vip_counters: open!(PerCpuArray "vip_counters"),
            backend_counters: open!(PerCpuArray "backend_counters"),
            reasons: open!(PerCpuArray "reasons"),
            samplers: open!(PerCpuArray "samplers"),
            vip_meta: open!(Array "vip_meta"),
            ring_meta: open!(HashMap "ring_meta"),
            backend_meta: open!(Array "backend_meta"),
            vip_carried: open!(Array "vip_carried"),
            backend_carried: open!(Array "backend_carried"),
            reason_carried: open!(Array "reason_carried"),
            names: open!(HashMap "names"),
            reply_sources: open!(HashMap "reply_sources"),
            sid_holders: BTreeMap::new(),
            fragments: open!(HashMap "fragments"),
            learned: open!(HashMap "learned"),
        };
        for index in 1..limits.backends {
            let sid = this.backends.read(index).sid;
            if sid != [0; 16] {
                *this.sid_holders.entry(sid).or_default() += 1;
            }
        }
        Ok(this)
    }

    /// As [`Maps::open`], of maps that have just been made: a new VIP index needs no clearing.
    pub(super) fn open_new(directory: &Path, limits: Limits) -> Result<Self, Error> {
        Ok(Self { untouched: 0, ..Self::open(directory, limits)? })
    }

    /// Directory of the pins.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Words shared with the program: heartbeat and self-test.
    pub fn shared(&self) -> Shared {
        self.state.read(0)
    }

    /// What the fabric's routers have said of paths, whatever its age and whoever's the SID.
    pub fn learned(&self) -> Vec<(Sid, Learned)> {
        let notes = self.learned.iter().filter_map(Result::ok);
        notes.map(|(sid, learned)| (Sid(Ipv6Addr::from(sid)), bytemuck::cast(learned))).collect()
    }

    /// The slots of a ring.
    pub fn slot(&self, slot: u32) -> u32 {
        self.rings.read(slot / SLOTS_PER_BLOCK).slot[(slot % SLOTS_PER_BLOCK) as usize]
    }

    /// A backend record as it is now.
    pub fn backend(&self, index: u32) -> abi::Backend {
        self.backends.read(index)
    }

    /// A VIP's word as it is now.
    pub fn word(&self, index: u32) -> VipWord {
        VipWord(self.words.read(index))
    }

    /// Index that a raw key leads to.
    pub fn find(&self, key: &abi::VipKey) -> Option<u32> {
        self.vip_index.get(&bytemuck::cast(*key), 0).ok()
    }

    /// Whose SID a backend index holds, and on which node; `None` when the index is free.
    pub fn identity(&self, index: u32) -> Result<Option<(BackendId, String)>, Error> {
        let meta = self.backend_meta.get(&index, 0).map_err(|e| Error::map("read", "backend_meta", e))?;
        Ok(self.decode_identity(&bytemuck::cast(meta)))
    }

    fn decode_identity(&self, meta: &BackendMeta) -> Option<(BackendId, String)> {
        let id = || BackendId {
            vpc: self.name(meta.vpc).into(),
            attachment: self.name(meta.attachment).into(),
            address: unmapped(Ipv6Addr::from(meta.addr)),
        };
        (meta.vpc != 0).then(|| (id(), self.name(meta.node)))
    }

    /// Writes an image as it is, whatever is there: for test rigs.
    pub fn write_image(&mut self, image: &MemTables) -> Result<(), Error> {
        for (index, hop) in &image.next_hops {
            self.hops.write(*index, *hop);
        }
        for (index, backend) in &image.backends {
            self.backends.write(*index, *backend);
        }
        for (index, block) in image.ring_blocks() {
            self.rings.write(index, block);
        }
        for (index, word) in &image.words {
            self.words.store_u64(*index, 0, word.0);
        }
        for (key, index) in &image.vip_index {
            let key: [u8; KEY] = bytemuck::cast(*key);
            self.vip_index.insert(key, index, 0).map_err(|e| Error::map("insert into", "vip_index", e))?;
        }
        Ok(())
    }

    /// Forgets every first fragment that was seen: for test rigs.
    pub fn forget_fragments(&mut self) -> Result<(), Error> {
        let known: Result<Vec<_>, _> = self.fragments.keys().collect();
        for key in known.map_err(|e| Error::map("read", "fragments", e))? {
            match self.fragments.remove(&key) {
                // The kernel may have forgotten it meanwhile.
                Ok(()) | Err(MapError::KeyNotFound) => {}
                Err(e) => return Err(Error::map("delete from", "fragments", e)),
            }
        }
        Ok(())
    }

    /// Packets and bytes sent for a VIP index, all CPUs and earlier layouts together.
    pub fn vip_total(&self, index: u32) -> Counter {
        total(&self.vip_counters, &self.vip_carried, index)
    }

    /// Packets and bytes sent to a backend index.
    pub fn backend_total(&self, index: u32) -> Counter {
        total(&self.backend_counters, &self.backend_carried, index)
    }

    /// Packets that left for a reason.
    pub fn reason_total(&self, reason: Reason) -> u64 {
        let index = reason as u32;
        let carried = self.reason_carried.get(&index, 0).unwrap_or(0);
        self.reasons.get(&index, 0).map_or(0, |values| values.iter().sum::<u64>()) + carried
    }

    /// Drop events for which the ring buffer had no room.
    pub fn events_lost(&self) -> u64 {
        let of = |reason: &Reason| {
            let values = self.samplers.get(&(*reason as u32), 0).ok()?;
            Some(values.iter().map(|value| bytemuck::cast::<_, Sampler>(*value).lost).sum::<u64>())
        };
        Reason::ALL.iter().filter_map(of).sum()
    }

    /// What first fragments have told.
    pub fn fragments(&self) -> Fragments {
        let known = self.fragments.iter().filter_map(Result::ok);
        known.map(|(key, value)| (bytemuck::cast(key), bytemuck::cast(value))).collect()
    }

    /// Adds the totals of another set of maps, which nothing counts into any more.
    pub fn carry_from(&mut self, old: &Self) -> Result<(), Error> {
        for reason in Reason::ALL {
            let index = *reason as u32;
            let sum = self.reason_carried.get(&index, 0).unwrap_or(0) + old.reason_total(*reason);
            self.reason_carried.set(index, sum, 0).map_err(|e| Error::map("write", "reason_carried", e))?;
        }
        let (ours, theirs) = (self.read_back()?, old.read_back()?);
        for (key, entry) in &ours.vips {
            if let Some(before) = theirs.vips.get(key).filter(|before| before.rule == entry.rule) {
                add(&mut self.vip_carried, "vip_carried", entry.index, old.vip_total(before.index))?;
            }
        }
        for (id, entry) in &ours.backends {
            if let Some(before) = theirs.backends.get(id) {
                add(
                    &mut self.backend_carried,
                    "backend_carried",
                    entry.index,
                    old.backend_total(before.index),
                )?;
            }
        }
        Ok(())
    }

    /// Writes of rules, rings, records and next hops since these maps were opened. Heartbeats and self-tests are none.
    pub const fn writes(&self) -> u64 {
        self.writes
    }

    /// The numbers of these names, each written if it is new. When there is no room, those that nothing uses any more go.
    fn intern<const N: usize>(&mut self, texts: [&str; N]) -> Result<[u64; N], Error> {
        let missing: Vec<&str> =
            texts.iter().copied().filter(|text| self.names.get(&name_id(text), 0).is_err()).collect();
        if missing.iter().any(|text| self.write_name(text).is_err()) {
            self.forget_unused_names(&texts)?;
            for text in missing {
                self.write_name(text).map_err(|e| Error::map("insert into", "names", e))?;
            }
        }
        Ok(texts.map(name_id))
    }

    fn write_name(&mut self, text: &str) -> Result<(), MapError> {
        let mut name = Name::zeroed();
        let bytes = text.as_bytes();
        let length = bytes.len().min(abi::NAME_LEN - 1);
        name.text[..length].copy_from_slice(&bytes[..length]);
        self.writes += 1;
        self.names.insert(name_id(text), name.text, 0)
    }

    /// Removes the names that no VIP and no backend has, but for `wanted`.
    fn forget_unused_names(&mut self, wanted: &[&str]) -> Result<(), Error> {
        let mut used: HashSet<u64> = wanted.iter().map(|text| name_id(text)).collect();
        for meta in self.backend_meta.iter() {
            let meta: BackendMeta = bytemuck::cast(meta.map_err(|e| Error::map("read", "backend_meta", e))?);
            used.extend([meta.vpc, meta.attachment, meta.node]);
        }
        for item in &self.vip_index {
            let (key, index) = item.map_err(|e| Error::map("read", "vip_index", e))?;
            if bytemuck::cast::<_, abi::VipKey>(key).proto != 0 {
                let meta = self.vip_meta.get(&index, 0).map_err(|e| Error::map("read", "vip_meta", e))?;
                used.insert(bytemuck::cast::<_, VipMeta>(meta).rule);
            }
        }
        let unused: Vec<u64> = self.names.keys().flatten().filter(|id| !used.contains(id)).collect();
        for id in unused {
            self.names.remove(&id).map_err(|e| Error::map("delete from", "names", e))?;
        }
        Ok(())
    }

    /// Removes what is noted of regions that no VIP's word names.
    fn forget_unused_rings(&mut self) -> Result<(), Error> {
        let used: HashSet<u32> = (0..self.limits.vips).map(|index| self.word(index).base()).collect();
        let unused: Vec<u32> = self.ring_meta.keys().flatten().filter(|base| !used.contains(base)).collect();
        for base in unused {
            self.ring_meta.remove(&base).map_err(|e| Error::map("delete from", "ring_meta", e))?;
        }
        Ok(())
    }

    fn name(&self, id: u64) -> String {
        let Ok(text) = self.names.get(&id, 0) else { return String::new() };
        let length = text.iter().position(|b| *b == 0).unwrap_or(text.len());
        String::from_utf8_lossy(&text[..length]).into_owned()
    }

    fn vip_entry(&self, index: u32) -> Result<VipEntry, Error> {
        let meta = self.vip_meta.get(&index, 0).map_err(|e| Error::map("read", "vip_meta", e))?;
        let meta: VipMeta = bytemuck::cast(meta);
        let full = self.name(meta.rule);
        let (namespace, name) = full.split_once('/').unwrap_or(("", &full));
        let rule = ObjectName { namespace: namespace.into(), name: name.into() };
        let word = self.word(index);
        let ring = self.ring_meta.get(&word.base(), 0).map_or_else(|_| RingMeta::zeroed(), bytemuck::cast);
        let ring = RingRecord { ring_key: ring.ring_key, digest: ring.digest };
        Ok(VipEntry { index, word, rule, ring })
    }
}

impl View for Maps {
    fn vip_index(&self, key: &abi::VipKey) -> Option<u32> {
        self.find(key)
    }
    fn word(&self, vip: u32) -> Option<VipWord> {
        (vip < self.limits.vips).then(|| Maps::word(self, vip))
    }
    fn ring_slot(&self, slot: u32) -> Option<u32> {
        (slot / SLOTS_PER_BLOCK < self.limits.ring_blocks()).then(|| self.slot(slot))
    }
    fn backend(&self, index: u32) -> Option<abi::Backend> {
        (index < self.limits.backends).then(|| self.backends.read(index))
    }
    fn next_hop(&self, index: u32) -> Option<NextHop> {
        (index < self.limits.next_hops).then(|| self.hops.read(index))
    }
}

fn total(live: &PerCpuArray<MapData, [u8; COUNTER]>, carried: &Bytes<COUNTER>, index: u32) -> Counter {
    let mut sum: Counter = carried.get(&index, 0).map_or(Counter::default(), bytemuck::cast);
    if let Ok(values) = live.get(&index, 0) {
        for value in values.iter() {
            let value: Counter = bytemuck::cast(*value);
            sum.packets += value.packets;
            sum.bytes += value.bytes;
        }
    }
    sum
}

fn add(map: &mut Bytes<COUNTER>, name: &'static str, index: u32, more: Counter) -> Result<(), Error> {
    let now: Counter = map.get(&index, 0).map_or(Counter::default(), bytemuck::cast);
    let sum = Counter { packets: now.packets + more.packets, bytes: now.bytes + more.bytes };
    map.set(index, bytemuck::cast::<_, [u8; COUNTER]>(sum), 0).map_err(|e| Error::map("write", name, e))
}

fn zeros() -> Result<PerCpuValues<[u8; COUNTER]>, Error> {
    let cpus = nr_cpus().map_err(|(what, e)| {
        Error::map("count the CPUs for", "vip_counters", std::io::Error::new(e.kind(), what))
    })?;
    PerCpuValues::try_from(vec![[0; COUNTER]; cpus]).map_err(|e| Error::map("clear", "vip_counters", e))
}

impl Dataplane for Maps {
    fn limits(&self) -> Limits {
        self.limits
    }

    fn read_back(&self) -> Result<Tables, Error> {
        let mut tables = Tables::default();
        for item in &self.vip_index {
            let (key, index) = item.map_err(|e| Error::map("read", "vip_index", e))?;
            let key: abi::VipKey = bytemuck::cast(key);
            if key.proto == 0 {
                tables.owned.insert(unmapped(Ipv6Addr::from(key.addr)));
            } else if key.proto == abi::FRAGMENTS {
                let [_, number] = key.port;
                let Some(protocol) = Protocol::from_number(number) else { continue };
                tables.fragments.insert((unmapped(Ipv6Addr::from(key.addr)), protocol), index);
            } else if let Some(key) = decode_key(&key) {
                tables.vips.insert(key, self.vip_entry(index)?);
            }
        }
        for (index, meta) in (0..).zip(self.backend_meta.iter()) {
            let meta: BackendMeta = bytemuck::cast(meta.map_err(|e| Error::map("read", "backend_meta", e))?);
            let Some((id, node)) = self.decode_identity(&meta) else { continue };
            let sid = Sid(Ipv6Addr::from(self.backends.read(index).sid));
            tables.backends.insert(id, BackendEntry { index, sid, node: node.into() });
        }
        Ok(tables)
    }

    fn put_backend(&mut self, index: u32, record: &BackendRecord) -> Result<(), Error> {
        let [vpc, attachment, node] = self.intern([&record.id.vpc, &record.id.attachment, &record.node])?;
        let meta = BackendMeta { addr: mapped(record.id.address).octets(), vpc, attachment, node };
        self.writes += 1;
        self.backends.write(index, abi::Backend { sid: record.sid.0.octets(), ..abi::Backend::default() });
        self.backend_counters
            .set(index, zeros()?, 0)
            .map_err(|e| Error::map("clear", "backend_counters", e))?;
        self.backend_carried
            .set(index, [0; COUNTER], 0)
            .map_err(|e| Error::map("clear", "backend_carried", e))?;
        let vpc = meta.vpc;
        let meta: [u8; BACKEND_META] = bytemuck::cast(meta);
        self.backend_meta.set(index, meta, 0).map_err(|e| Error::map("write", "backend_meta", e))?;
        let sid = record.sid.0.octets();
        let holders = self.sid_holders.entry(sid).or_default();
        *holders += 1;
        if *holders > 1 {
            return Ok(());
        }
        self.reply_sources.insert(sid, vpc, 0).map_err(|e| Error::map("insert into", "reply_sources", e))
    }

    fn clear_backend(&mut self, index: u32) -> Result<(), Error> {
        self.writes += 1;
        self.backend_meta
            .set(index, [0; BACKEND_META], 0)
            .map_err(|e| Error::map("clear", "backend_meta", e))?;
        let sid = self.backends.read(index).sid;
        self.backends.write(index, abi::Backend::default());
        let Some(holders) = self.sid_holders.get_mut(&sid) else { return Ok(()) };
        *holders -= 1;
        if *holders > 0 {
            return Ok(());
        }
        self.sid_holders.remove(&sid);
        self.reply_sources.remove(&sid).map_err(|e| Error::map("delete from", "reply_sources", e))
    }

    fn write_ring(&mut self, base: u32, slots: &[u32], record: &RingRecord) -> Result<(), Error> {
        for (block, part) in (base / SLOTS_PER_BLOCK..).zip(slots.chunks(SLOTS_PER_BLOCK as usize)) {
            let mut value = RingBlock::zeroed();
            value.slot[..part.len()].copy_from_slice(part);
            self.rings.write(block, value);
        }
        self.writes += 1;
        let meta = RingMeta { ring_key: record.ring_key, digest: record.digest };
        let meta: [u8; RING_META] = bytemuck::cast(meta);
        if self.ring_meta.insert(base, meta, 0).is_ok() {
            return Ok(());
        }
        self.forget_unused_rings()?;
        self.ring_meta.insert(base, meta, 0).map_err(|e| Error::map("insert into", "ring_meta", e))
    }

    fn read_ring(&self, base: u32, slots: u32) -> Vec<u32> {
        let first = base / SLOTS_PER_BLOCK;
        let blocks = (first..first + blocks_for(slots)).flat_map(|block| self.rings.read(block).slot);
        blocks.take(slots as usize).collect()
    }

    fn put_vip(&mut self, index: u32, record: &VipRecord) -> Result<(), Error> {
        let [rule] = self.intern([&record.rule.to_string()])?;
        let meta = VipMeta { key: encode_key(record.key), pad: 0, rule };
        self.writes += 1;
        let meta: [u8; VIP_META] = bytemuck::cast(meta);
        self.vip_meta.set(index, meta, 0).map_err(|e| Error::map("write", "vip_meta", e))
    }

    fn set_word(&mut self, index: u32, word: VipWord) -> Result<(), Error> {
        self.writes += 1;
        self.words.store_u64(index, 0, word.0);
        Ok(())
    }

    fn clear_vip(&mut self, index: u32) -> Result<(), Error> {
        self.writes += 1;
        self.words.store_u64(index, 0, 0);
        if index >= self.untouched {
            self.untouched = index + 1;
            return Ok(());
        }
        self.vip_counters.set(index, zeros()?, 0).map_err(|e| Error::map("clear", "vip_counters", e))?;
        self.vip_carried.set(index, [0; COUNTER], 0).map_err(|e| Error::map("clear", "vip_carried", e))
    }

    fn insert_key(&mut self, key: VipKey, index: u32) -> Result<(), Error> {
        const BPF_NOEXIST: u64 = 1;
        self.writes += 1;
        let key: [u8; KEY] = bytemuck::cast(encode_key(key));
        self.vip_index.insert(key, index, BPF_NOEXIST).map_err(|e| Error::map("insert into", "vip_index", e))
    }

    fn delete_key(&mut self, key: VipKey) -> Result<(), Error> {
        self.writes += 1;
        let key: [u8; KEY] = bytemuck::cast(encode_key(key));
        self.vip_index.remove(&key).map_err(|e| Error::map("delete from", "vip_index", e))
    }

    fn insert_owner(&mut self, address: IpAddr) -> Result<(), Error> {
        const BPF_NOEXIST: u64 = 1;
        self.writes += 1;
        let key: [u8; KEY] = bytemuck::cast(encode_owner(address));
        self.vip_index.insert(key, 0, BPF_NOEXIST).map_err(|e| Error::map("insert into", "vip_index", e))
    }

    fn delete_owner(&mut self, address: IpAddr) -> Result<(), Error> {
        self.writes += 1;
        let key: [u8; KEY] = bytemuck::cast(encode_owner(address));
        self.vip_index.remove(&key).map_err(|e| Error::map("delete from", "vip_index", e))
    }

    fn insert_fragments(&mut self, address: IpAddr, protocol: Protocol, index: u32) -> Result<(), Error> {
        const BPF_NOEXIST: u64 = 1;
        let key: [u8; KEY] = bytemuck::cast(encode_fragments(address, protocol));
        self.vip_index.insert(key, index, BPF_NOEXIST).map_err(|e| Error::map("insert into", "vip_index", e))
    }

    fn delete_fragments(&mut self, address: IpAddr, protocol: Protocol) -> Result<(), Error> {
        let key: [u8; KEY] = bytemuck::cast(encode_fragments(address, protocol));
        self.vip_index.remove(&key).map_err(|e| Error::map("delete from", "vip_index", e))
    }

    fn put_hop(&mut self, index: u32, hop: NextHop) -> Result<(), Error> {
        self.writes += 1;
        self.hops.write(index, hop);
        Ok(())
    }

    fn set_hops(&mut self, backend: u32, hops: u32) -> Result<(), Error> {
        self.writes += 1;
        self.backends.store_u32(backend, std::mem::offset_of!(abi::Backend, nh), hops);
        Ok(())
    }

    fn hops_of(&self, backend: u32) -> u32 {
        self.backends.read(backend).nh
    }

    fn set_path_mtu(&mut self, backend: u32, mtu: u32) -> Result<(), Error> {
        self.writes += 1;
        self.backends.store_u32(backend, std::mem::offset_of!(abi::Backend, pmtu), mtu);
        Ok(())
    }

    fn path_mtu(&self, backend: u32) -> u32 {
        self.backends.read(backend).pmtu
    }

    fn hop(&self, index: u32) -> NextHop {
        self.hops.read(index)
    }

    fn wait_for_readers(&mut self) -> Result<(), Error> {
        sys::wait_for_readers().map_err(|e| Error::map("wait for readers of", "rings", e))
    }
}
