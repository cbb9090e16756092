//! Runs a plan on a data plane: the only place that decides indices, regions and the order of writes.
//!
//! A VIP is published by backends, then ring, then word, then key, and goes in reverse. Records and regions that a running
//! program may still read are garbage until every CPU has left (`Dataplane::wait_for_readers`); only then are they written
//! again. Keys are inserted only when no hidden key waits for its readers: the kernel may reuse a hash element at once, and a
//! late reader of the old key would then see the new one's index.

mod room;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use weir_bpf::abi::{NextHop, SLOTS_PER_BLOCK, VipWord};

use super::ahead::{self, Ahead, Built};
use super::fragments::Fragments;
use super::hops::Hops;
use super::pathmtu::PathMtus;
use super::plan::{Plan, diff};
use super::tables::{BackendEntry, Indices, Spans, Tables, VipEntry, blocks_for};
use super::{BackendRecord, Dataplane, Error, RingRecord, VipRecord};
use crate::desired::{Applied, Desired, Refusal, RefusalCause};
use crate::maglev::{self, Eligible, RingSpec, Seed};
use crate::model::{BackendId, ObjectName, Protocol, Rule, Rules, Sid, VipKey};

/// A ring in the maps.
#[derive(Debug)]
struct Region {
    slots: u32,
    record: RingRecord,
    /// Indices of the backends in its slots, ascending.
    members: Vec<u32>,
    /// Index of each of the ring's members by position, 0 for one that is not eligible; `None` when it was adopted.
    order: Option<Vec<u32>>,
    /// VIP words that name it.
    users: u32,
}

/// Keys published so far for a rule, each with the word and ring it had before.
type Done = Vec<(VipKey, Option<(VipWord, RingRecord)>)>;

/// What is hidden or replaced but may still be read.
#[derive(Debug, Default)]
pub(super) struct Garbage {
    vips: Vec<u32>,
    backends: BTreeSet<u32>,
    regions: Vec<(u32, u32)>,
    pub(super) hidden_keys: bool,
}

impl Garbage {
    fn is_empty(&self) -> bool {
        self.vips.is_empty() && self.backends.is_empty() && self.regions.is_empty() && !self.hidden_keys
    }
}

/// Keeps a data plane equal to what is desired.
pub struct Reconciler<D> {
    pub(super) dataplane: D,
    seed: Seed,
    pub(super) tables: Tables,
    rules: Rules,
    refused: BTreeMap<ObjectName, Refusal>,
    regions: BTreeMap<u32, Region>,
    by_content: HashMap<([u8; 16], Vec<u32>), u32>,
    /// Regions that hold a ring with this key: the same owners by position, with other records.
    by_key: HashMap<[u8; 16], BTreeSet<u32>>,
    vip_indices: Indices,
    backend_indices: Indices,
    spans: Spans,
    hops: Hops,
    /// How many regions name a backend index.
    namings: HashMap<u32, u32>,
    /// Whose record an index holds: `tables.backends` the other way round.
    identities: HashMap<u32, BackendId>,
    /// Rules that were found loaded at the start and have not been asked for since.
    adopted: BTreeSet<ObjectName>,
    /// Rings built since the start.
    ring_builds: u64,
    /// An owned address may have lost its last key.
    stray_owners: bool,
    /// What may lead fragments otherwise than its keys ask for.
    pub(super) unsure: BTreeSet<Fragments>,
    pub(super) garbage: Garbage,
}

impl<D: Dataplane> Reconciler<D> {
    /// Adopts what the data plane holds.
    pub fn new(dataplane: D, seed: Seed) -> Result<Self, Error> {
        let limits = dataplane.limits();
        let tables = dataplane.read_back()?;
        let mut regions: BTreeMap<u32, Region> = BTreeMap::new();
        for entry in tables.vips.values() {
            let (base, slots) = (entry.word.base(), entry.word.size());
            if slots == 0 {
                continue;
            }
            regions.entry(base).or_insert_with(|| {
                let members: BTreeSet<u32> =
                    dataplane.read_ring(base, slots).into_iter().filter(|b| *b != 0).collect();
                let members = members.into_iter().collect();
                Region { slots, record: entry.ring, members, order: None, users: 0 }
            });
            if let Some(region) = regions.get_mut(&base) {
                region.users += 1;
            }
        }
        let by_content = regions
            .iter()
            .map(|(base, region)| ((region.record.ring_key, region.members.clone()), *base))
            .collect();
        let mut by_key: HashMap<[u8; 16], BTreeSet<u32>> = HashMap::new();
        for (base, region) in &regions {
            by_key.entry(region.record.ring_key).or_default().insert(*base);
        }
        let vip_indices = Indices::new(0, limits.vips, tables.vips.values().map(|entry| entry.index));
        let mut namings: HashMap<u32, u32> = HashMap::new();
        for member in regions.values().flat_map(|region| &region.members) {
            *namings.entry(*member).or_default() += 1;
        }
        // A ring may still name a record that was replaced when the last daemon ended: its index is in use all the same.
        let known = tables.backends.values().map(|entry| entry.index);
        let backend_indices = Indices::new(1, limits.backends, known.chain(namings.keys().copied()));
        let used = regions.iter().map(|(base, region)| (base / SLOTS_PER_BLOCK, blocks_for(region.slots)));
        let spans = Spans::new(0, limits.ring_blocks(), used);
        let hops = Hops::adopt(&dataplane, tables.backends.values().map(|entry| entry.index));
        let keyed = tables.vips.keys().map(|key| (key.address, key.protocol));
        let unsure = keyed.chain(tables.fragments.keys().copied()).collect();
        let taken_over = !tables.vips.is_empty() || !tables.owned.is_empty();
        let identities = tables.backends.iter().map(|(id, entry)| (entry.index, id.clone())).collect();
        let adopted = tables.vips.values().map(|entry| entry.rule.clone()).collect();
        let mut this = Self {
            dataplane,
            seed,
            tables,
            rules: Rules::new(),
            refused: BTreeMap::new(),
            regions,
            by_content,
            by_key,
            vip_indices,
            backend_indices,
            spans,
            hops,
            namings,
            identities,
            adopted,
            ring_builds: 0,
            stray_owners: true,
            unsure,
            // What the last daemon hid may still be read, however soon this one came.
            garbage: Garbage { hidden_keys: taken_over, ..Garbage::default() },
        };
        let stale: Vec<u32> = this.tables.backends.values().map(|entry| entry.index).collect();
        for index in stale {
            this.orphan(index);
        }
        Ok(this)
    }

    /// The data plane itself.
    pub fn dataplane(&mut self) -> &mut D {
        &mut self.dataplane
    }

    /// What the maps hold.
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Rings built since the start; a change of routes builds none.
    pub const fn ring_builds(&self) -> u64 {
        self.ring_builds
    }

    /// SIDs that need a next hop.
    pub fn sids(&self) -> BTreeSet<Sid> {
        self.tables.backends.values().map(|entry| entry.sid).collect()
    }

    /// Brings the maps to what is desired and says what they hold then.
    pub fn apply(&mut self, desired: &Desired) -> Result<Applied, Error> {
        self.bring(desired)?;
        Ok(self.applied(desired))
    }

    /// Brings the maps to what is desired. One rule's failure harms no other rule.
    pub fn bring(&mut self, desired: &Desired) -> Result<(), Error> {
        if desired.synced {
            // A rule that went while nobody looked may be made anew with another ring class.
            self.adopted.retain(|name| desired.rules.contains_key(name));
        }
        let plan = diff(desired, &self.rules, self.tables.vips.keys().copied());
        self.run(&plan)?;
        if !self.refused.is_empty() && !plan.remove.is_empty() {
            // What was removed may have made room.
            let retry = self.refused.keys().filter_map(|name| desired.rules.get(name)).cloned().collect();
            self.run(&Plan { load: retry, ..Plan::default() })?;
        }
        self.refused.retain(|name, _| desired.rules.contains_key(name));
        Ok(())
    }

    /// As [`Reconciler::apply`], after which rules that were refused are tried once more.
    pub fn retry(&mut self, desired: &Desired) -> Result<Applied, Error> {
        self.bring(desired)?;
        let load = self.refused.keys().filter_map(|name| desired.rules.get(name)).cloned().collect();
        self.run(&Plan { load, ..Plan::default() })?;
        Ok(self.applied(desired))
    }

    fn run(&mut self, plan: &Plan) -> Result<(), Error> {
        for key in &plan.remove {
            self.hide(*key)?;
        }
        for name in &plan.forget {
            self.rules.remove(name);
            self.refused.remove(name);
        }
        for rules in plan.load.chunks(ahead::CHUNK) {
            let known = |key: &[u8; 16]| self.by_key.contains_key(key);
            let mut built = ahead::build(rules, self.seed, known);
            self.ring_builds += built.len() as u64;
            for rule in rules {
                match self.load(rule, &mut built) {
                    Ok(()) => {
                        self.refused.remove(&rule.name);
                        self.rules.insert(rule.name.clone(), Arc::clone(rule));
                    }
                    Err(error) => {
                        tracing::warn!(rule = %rule.name, %error, "rule not loaded");
                        self.refused.insert(rule.name.clone(), refusal(&error));
                    }
                }
            }
        }
        self.collect()?;
        self.lead_fragments()
    }

    /// What is loaded now.
    pub fn applied(&self, desired: &Desired) -> Applied {
        let loaded: BTreeSet<VipKey> = self
            .tables
            .vips
            .iter()
            .filter(|(_, entry)| entry.word.size() != 0)
            .map(|(key, _)| *key)
            .collect();
        let lingering = if desired.synced {
            let wanted: BTreeSet<VipKey> =
                desired.rules.values().flat_map(|rule| rule.keys().collect::<Vec<_>>()).collect();
            loaded.difference(&wanted).copied().collect()
        } else {
            BTreeSet::new()
        };
        Applied {
            generation: desired.generation,
            loaded,
            refused: self.refused.clone(),
            unreachable: self.hops.unreachable(self.sids().into_iter()).map(|sid| sid.0).collect(),
            lingering,
        }
    }

    /// Netlink speaks of SIDs: their backends are pointed at these next hops.
    pub fn next_hops(&mut self, news: impl IntoIterator<Item = (Sid, Vec<NextHop>)>) -> Result<(), Error> {
        let mut backends: BTreeMap<Sid, Vec<u32>> = BTreeMap::new();
        for entry in self.tables.backends.values() {
            backends.entry(entry.sid).or_default().push(entry.index);
        }
        let mut outcome = Ok(());
        for (sid, hops) in news {
            let indices = backends.get(&sid).map_or(&[][..], Vec::as_slice);
            let mut told = self.hops.update(&mut self.dataplane, sid, hops.clone(), indices);
            if matches!(told, Err(Error::LimitReached { .. })) && self.hops.has_garbage() {
                self.collect_hops()?;
                told = self.hops.update(&mut self.dataplane, sid, hops, indices);
            }
            // One SID's trouble is not the others'.
            outcome = outcome.and(told);
        }
        self.collect_hops()?;
        outcome
    }

    /// Sets what is known of the paths to all backends.
    pub fn path_mtus(&mut self, known: &PathMtus) -> Result<(), Error> {
        for entry in self.tables.backends.values() {
            let mtu = known.of(entry.sid);
            if self.dataplane.path_mtu(entry.index) != mtu {
                self.dataplane.set_path_mtu(entry.index, mtu)?;
            }
        }
        Ok(())
    }

    fn collect_hops(&mut self) -> Result<(), Error> {
        if self.hops.has_garbage() {
            self.dataplane.wait_for_readers()?;
            self.hops.collect();
        }
        Ok(())
    }

    fn load(&mut self, rule: &Arc<Rule>, built: &mut Ahead) -> Result<(), Error> {
        self.same_ring_size(rule)?;
        let spec = RingSpec::for_rule(rule, self.seed);
        let ring_key = maglev::ring_key(&spec).0;
        self.make_room(rule, &spec, ring_key)?;
        let mut fresh = Vec::new();
        let outcome = self.backends_of(rule, &spec, &mut fresh).and_then(|members| {
            let base = self.region(&spec, ring_key, &members, built)?;
            // Held while keys move to it: hiding the key of another rule with the same ring must not give it up.
            self.use_region(base);
            let mut done = Vec::new();
            let outcome = rule.keys().try_for_each(|key| self.publish(key, rule, base, &mut done));
            let outcome = outcome.or_else(|error| self.undo(&done).and(Err(error)));
            if outcome.is_ok() {
                for (_, old) in &done {
                    self.release_region_of(old.as_ref());
                }
            }
            self.release_region(base);
            outcome
        });
        // A record that no ring came to name goes again.
        for id in fresh {
            self.drop_backend_if_unused(&id);
        }
        outcome
    }

    /// Index of each member's record, 0 for one that is not eligible.
    fn backends_of(
        &mut self,
        rule: &Rule,
        spec: &RingSpec<'_>,
        fresh: &mut Vec<BackendId>,
    ) -> Result<Vec<u32>, Error> {
        let mut indices = Vec::with_capacity(spec.members().len());
        for (backend, member) in rule.backends.iter().zip(spec.members()) {
            let Some(endpoint) = backend.endpoint.as_ref().filter(|_| member.eligible == Eligible::Yes)
            else {
                indices.push(0);
                continue;
            };
            if let Some(entry) = self.tables.backends.get(&backend.id)
                && entry.sid == endpoint.sid
                && entry.node == endpoint.node
            {
                indices.push(entry.index);
                continue;
            }
            let index = self.backend_indices.take().ok_or_else(|| self.no_backends(1))?;
            let record =
                BackendRecord { id: backend.id.clone(), sid: endpoint.sid, node: endpoint.node.clone() };
            if let Err(error) = self.dataplane.put_backend(index, &record) {
                self.backend_indices.release(index);
                return Err(error);
            }
            let entry = BackendEntry { index, sid: record.sid, node: record.node };
            self.identities.insert(index, record.id.clone());
            if let Some(old) = self.tables.backends.insert(record.id.clone(), entry) {
                self.identities.remove(&old.index);
                // Rings that name the old record keep it until they are written anew.
                self.orphan(old.index);
            }
            fresh.push(record.id);
            self.hops.point(&mut self.dataplane, endpoint.sid, index)?;
            indices.push(index);
        }
        Ok(indices)
    }

    /// A region that holds this ring: one that is there already, or a new one.
    fn region(
        &mut self,
        spec: &RingSpec<'_>,
        ring_key: [u8; 16],
        members: &[u32],
        built: &mut Ahead,
    ) -> Result<u32, Error> {
        let mut named: Vec<u32> = members.iter().copied().filter(|i| *i != 0).collect();
        named.sort_unstable();
        named.dedup();
        if let Some(base) = self.by_content.get(&(ring_key, named.clone())) {
            return Ok(*base);
        }
        let slots = spec.size().slots();
        let (words, digest) = self.same_owners(ring_key, members).unwrap_or_else(|| {
            let Built { ring, digest } = built.remove(&ring_key).unwrap_or_else(|| {
                self.ring_builds += 1;
                Built::of(spec)
            });
            (ring.owners().map(|m| m.map_or(0, |m| members[m as usize])).collect(), digest)
        });
        let base = self.spans.take(blocks_for(slots)).ok_or_else(|| self.no_slots(slots))? * SLOTS_PER_BLOCK;
        let record = RingRecord { ring_key, digest };
        if let Err(error) = self.dataplane.write_ring(base, &words, &record) {
            self.spans.release(base / SLOTS_PER_BLOCK, blocks_for(slots));
            return Err(error);
        }
        self.by_content.insert((ring_key, named.clone()), base);
        self.by_key.entry(ring_key).or_default().insert(base);
        for member in &named {
            *self.namings.entry(*member).or_default() += 1;
        }
        let order = Some(members.to_vec());
        self.regions.insert(base, Region { slots, record, members: named, order, users: 0 });
        Ok(base)
    }

    /// The slots of a ring that another region holds with other records of the same members, and its digest: an endpoint
    /// that moved changes no slot's owner, so nothing need be built.
    fn same_owners(&self, ring_key: [u8; 16], members: &[u32]) -> Option<(Vec<u32>, [u8; 16])> {
        let known = self.by_key.get(&ring_key)?;
        let (base, region, order) = known.iter().find_map(|base| {
            let region = self.regions.get(base)?;
            Some((*base, region, region.order.as_ref()?))
        })?;
        let renamed: HashMap<u32, u32> = order.iter().copied().zip(members.iter().copied()).collect();
        let slots = self.dataplane.read_ring(base, region.slots);
        let words = slots.iter().map(|slot| renamed.get(slot).copied().unwrap_or(0)).collect();
        Some((words, region.record.digest))
    }

    /// Lets one key lead to a ring.
    fn publish(&mut self, key: VipKey, rule: &Rule, base: u32, done: &mut Done) -> Result<(), Error> {
        let Some(region) = self.regions.get(&base) else { return Err(self.no_slots(0)) };
        let word = VipWord::new(base, region.slots, rule.affinity);
        let ring = region.record;
        if let Some(entry) = self.tables.vips.get_mut(&key) {
            if entry.rule == rule.name {
                let old = (entry.word, entry.ring);
                if old.0 == word {
                    return Ok(());
                }
                if word.affinity() != old.0.affinity() {
                    self.unlead((key.address, key.protocol))?;
                }
                let Some(entry) = self.tables.vips.get_mut(&key) else { return Ok(()) };
                self.dataplane.set_word(entry.index, word)?;
                (entry.word, entry.ring) = (word, ring);
                self.use_region(base);
                // Its ring is given up when all keys have moved.
                done.push((key, Some(old)));
                return Ok(());
            }
            // Another rule's key: its counters must not become this rule's.
            self.hide(key)?;
        }
        self.unlead((key.address, key.protocol))?;
        if self.garbage.hidden_keys {
            self.collect()?;
        }
        let index = self.vip_indices.take().ok_or_else(|| self.no_vips(1))?;
        self.use_region(base);
        let outcome = self.insert(key, index, word, &rule.name);
        if outcome.is_err() {
            self.release_region(base);
            self.garbage.vips.push(index);
        } else {
            let rule = rule.name.clone();
            self.tables.vips.insert(key, VipEntry { index, word, rule, ring });
            done.push((key, None));
        }
        outcome
    }

    /// Takes back what was published of a rule that could not be loaded whole.
    fn undo(&mut self, done: &Done) -> Result<(), Error> {
        for (key, old) in done.iter().rev() {
            let Some((word, ring)) = old else {
                self.hide(*key)?;
                continue;
            };
            self.unlead((key.address, key.protocol))?;
            let Some(entry) = self.tables.vips.get_mut(key) else { continue };
            self.dataplane.set_word(entry.index, *word)?;
            let base = entry.word.base();
            (entry.word, entry.ring) = (*word, *ring);
            self.release_region(base);
        }
        Ok(())
    }

    fn release_region_of(&mut self, old: Option<&(VipWord, RingRecord)>) {
        if let Some((word, _)) = old.filter(|(word, _)| word.size() != 0) {
            self.release_region(word.base());
        }
    }

    fn insert(&mut self, key: VipKey, index: u32, word: VipWord, rule: &ObjectName) -> Result<(), Error> {
        self.dataplane.clear_vip(index)?;
        self.dataplane.put_vip(index, &VipRecord { key, rule: rule.clone() })?;
        self.dataplane.set_word(index, word)?;
        if !self.tables.owned.contains(&key.address) {
            self.dataplane.insert_owner(key.address)?;
            self.tables.owned.insert(key.address);
        }
        let outcome = self.dataplane.insert_key(key, index);
        self.stray_owners |= outcome.is_err();
        outcome
    }

    /// Hides a key from packets; its index and ring are garbage from then on.
    fn hide(&mut self, key: VipKey) -> Result<(), Error> {
        let Some(entry) = self.tables.vips.get(&key) else { return Ok(()) };
        let (index, base, loaded) = (entry.index, entry.word.base(), entry.word.size() != 0);
        self.unlead((key.address, key.protocol))?;
        self.dataplane.delete_key(key)?;
        self.tables.vips.remove(&key);
        self.garbage.hidden_keys = true;
        self.garbage.vips.push(index);
        if loaded {
            self.release_region(base);
        }
        self.stray_owners = true;
        Ok(())
    }

    /// Gives up addresses that no key is left of.
    fn drop_stray_owners(&mut self) -> Result<(), Error> {
        if !self.stray_owners {
            return Ok(());
        }
        let held = |address: &IpAddr| {
            let first = VipKey { address: *address, protocol: Protocol::Tcp, port: 0 };
            self.tables.vips.range(first..).next().is_some_and(|(key, _)| key.address == *address)
        };
        let stray: Vec<IpAddr> = self.tables.owned.iter().filter(|address| !held(address)).copied().collect();
        for address in stray {
            self.dataplane.delete_owner(address)?;
            self.tables.owned.remove(&address);
            self.garbage.hidden_keys = true;
        }
        self.stray_owners = false;
        Ok(())
    }

    fn use_region(&mut self, base: u32) {
        if let Some(region) = self.regions.get_mut(&base) {
            region.users += 1;
        }
    }

    fn release_region(&mut self, base: u32) {
        if let Some(region) = self.regions.get_mut(&base) {
            region.users = region.users.saturating_sub(1);
        }
        self.drop_region_if_unused(base);
    }

    fn drop_region_if_unused(&mut self, base: u32) {
        if self.regions.get(&base).is_none_or(|region| region.users != 0) {
            return;
        }
        let Some(region) = self.regions.remove(&base) else { return };
        self.by_content.remove(&(region.record.ring_key, region.members.clone()));
        if let Some(bases) = self.by_key.get_mut(&region.record.ring_key) {
            bases.remove(&base);
            if bases.is_empty() {
                self.by_key.remove(&region.record.ring_key);
            }
        }
        self.garbage.regions.push((base, region.slots));
        for index in region.members {
            if let Some(count) = self.namings.get_mut(&index) {
                *count -= 1;
                if *count == 0 {
                    self.namings.remove(&index);
                }
            }
            self.orphan(index);
        }
    }

    /// Gives up a record that no ring names.
    fn orphan(&mut self, index: u32) {
        if self.namings.contains_key(&index) {
            return;
        }
        if let Some(id) = self.identities.remove(&index) {
            self.tables.backends.remove(&id);
        }
        self.garbage.backends.insert(index);
    }

    fn drop_backend_if_unused(&mut self, id: &BackendId) {
        if let Some(index) = self.tables.backends.get(id).map(|entry| entry.index) {
            self.orphan(index);
        }
    }

    /// Waits until no CPU can read what was given up, then frees it. A fault leaves the rest for the next time.
    pub(super) fn collect(&mut self) -> Result<(), Error> {
        self.drop_stray_owners()?;
        if self.garbage.is_empty() {
            return Ok(());
        }
        self.dataplane.wait_for_readers()?;
        self.garbage.hidden_keys = false;
        self.garbage.vips.drain(..).for_each(|index| self.vip_indices.release(index));
        for (base, slots) in self.garbage.regions.drain(..) {
            self.spans.release(base / SLOTS_PER_BLOCK, blocks_for(slots));
        }
        while let Some(&index) = self.garbage.backends.last() {
            self.dataplane.clear_backend(index)?;
            self.hops.forget(index);
            self.backend_indices.release(index);
            self.garbage.backends.pop_last();
        }
        // The groups of cleared backends were unreachable along with them.
        self.hops.collect();
        let wanted = self.sids();
        self.hops.retain(&wanted);
        Ok(())
    }
}

fn refusal(error: &Error) -> Refusal {
    let cause = match error {
        Error::LimitReached { .. } => RefusalCause::LimitReached,
        Error::RingSizeChanged { .. } => RefusalCause::Immutable,
        _ => RefusalCause::Fault,
    };
    Refusal { cause, message: error.to_string() }
}
