//! Whether a rule fits into the maps, asked before the first write: what does not fit leaves nothing half written.

use super::{Dataplane, Error, Reconciler, blocks_for};
use crate::maglev::{Eligible, RingSpec};
use crate::model::Rule;
use weir_bpf::abi::SLOTS_PER_BLOCK;

impl<D: Dataplane> Reconciler<D> {
    /// A rule that is loaded keeps its ring class, also over a restart.
    pub(super) fn same_ring_size(&self, rule: &Rule) -> Result<(), Error> {
        let asked = rule.ring_size.slots();
        let loaded = |key| self.tables.vips.get(&key).filter(|entry| entry.rule == rule.name);
        let before = match self.rules.get(&rule.name) {
            Some(known) => Some(known.ring_size.slots()),
            None if self.adopted.contains(&rule.name) => {
                rule.keys().find_map(loaded).map(|entry| entry.word.size()).filter(|slots| *slots != 0)
            }
            None => None,
        };
        match before {
            Some(loaded) if loaded != asked => {
                Err(Error::RingSizeChanged { rule: rule.name.clone(), loaded, asked })
            }
            _ => Ok(()),
        }
    }

    /// Makes sure that all a rule needs is there; what was given up is freed when that makes the difference.
    pub(super) fn make_room(
        &mut self,
        rule: &Rule,
        spec: &RingSpec<'_>,
        ring_key: [u8; 16],
    ) -> Result<(), Error> {
        let Err(error) = self.room(rule, spec, ring_key) else { return Ok(()) };
        let waiting = match &error {
            Error::LimitReached { map: "rings", .. } => {
                self.garbage.regions.iter().map(|(_, slots)| blocks_for(*slots)).sum()
            }
            Error::LimitReached { map: "backends", .. } => self.garbage.backends.len() as u32,
            _ => self.garbage.vips.len() as u32,
        };
        let Error::LimitReached { map, needed, .. } = &error else { return Err(error) };
        let (needed, free) = match *map {
            "rings" => (blocks_for(*needed), self.spans.available()),
            "backends" => (*needed, self.backend_indices.available()),
            _ => (*needed, self.vip_indices.available()),
        };
        if waiting == 0 || free + waiting < needed {
            return Err(error);
        }
        self.collect()?;
        self.room(rule, spec, ring_key)
    }

    fn room(&self, rule: &Rule, spec: &RingSpec<'_>, ring_key: [u8; 16]) -> Result<(), Error> {
        let ours = |key: &_| self.tables.vips.get(key).is_some_and(|entry| entry.rule == rule.name);
        let vips = rule.keys().filter(|key| !ours(key)).count() as u32;
        if vips > self.vip_indices.available() {
            return Err(self.no_vips(vips));
        }
        let eligible = rule.backends.iter().zip(spec.members()).filter(|(_, m)| m.eligible == Eligible::Yes);
        let mut indices = Vec::with_capacity(rule.backends.len());
        let mut missing = 0;
        for (backend, _) in eligible {
            let Some(endpoint) = &backend.endpoint else { continue };
            match self.tables.backends.get(&backend.id) {
                Some(e) if e.sid == endpoint.sid && e.node == endpoint.node => indices.push(e.index),
                _ => missing += 1,
            }
        }
        if missing > self.backend_indices.available() {
            return Err(self.no_backends(missing));
        }
        indices.sort_unstable();
        indices.dedup();
        let there = missing == 0 && self.by_content.contains_key(&(ring_key, indices));
        let slots = spec.size().slots();
        if !there && blocks_for(slots) > self.spans.longest() {
            return Err(self.no_slots(slots));
        }
        Ok(())
    }

    pub(super) fn no_vips(&self, needed: u32) -> Error {
        let free = self.vip_indices.available();
        let configured = self.dataplane.limits().vips;
        Error::LimitReached { map: "vip_index", limit: "limits.vips", configured, needed, free }
    }

    pub(super) fn no_backends(&self, needed: u32) -> Error {
        let free = self.backend_indices.available();
        let configured = self.dataplane.limits().backends;
        Error::LimitReached { map: "backends", limit: "limits.backends", configured, needed, free }
    }

    /// Slots come in one run, in whole blocks.
    pub(super) fn no_slots(&self, slots: u32) -> Error {
        let free = self.spans.longest() * SLOTS_PER_BLOCK;
        let configured = self.dataplane.limits().ring_slots;
        let needed = blocks_for(slots) * SLOTS_PER_BLOCK;
        Error::LimitReached { map: "rings", limit: "limits.ringSlots", configured, needed, free }
    }
}
