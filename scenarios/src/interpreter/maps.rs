//! Maps as an interpreted program sees them: one CPU, values in [`Memory`].

use std::collections::BTreeMap;

use anyhow::{Result, bail};

use super::memory::Memory;

/// How keys find values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Index to element; per-CPU arrays too.
    Array,
    /// Key to element; LRU maps too, which here never lose one before they are full.
    Hash,
    /// Other programs: all slots are empty.
    Programs,
    /// Takes what is put out and keeps nothing.
    Ring,
}

/// One map.
#[derive(Clone, Debug)]
pub struct Map {
    /// How keys find values.
    pub kind: Kind,
    key: usize,
    value: usize,
    entries: usize,
    /// Address of the values.
    pub base: u64,
    found: BTreeMap<Vec<u8>, usize>,
}

impl Map {
    /// A map with all values zero.
    pub fn new(memory: &mut Memory, kind: Kind, key: usize, value: usize, entries: usize) -> Self {
        let stride = value.next_multiple_of(8);
        let room = if matches!(kind, Kind::Array | Kind::Hash) { stride * entries } else { 0 };
        Self { kind, key, value, entries, base: memory.add(vec![0; room]), found: BTreeMap::new() }
    }

    /// An array of one element that holds these bytes: a section of the object.
    pub fn section(memory: &mut Memory, bytes: Vec<u8>) -> Self {
        let value = bytes.len();
        Self { kind: Kind::Array, key: 4, value, entries: 1, base: memory.add(bytes), found: BTreeMap::new() }
    }

    fn element(&self, index: usize) -> u64 {
        self.base + (index * self.value.next_multiple_of(8)) as u64
    }

    /// Address of an array's element, to fill it.
    ///
    /// # Errors
    /// When it has no such element.
    pub fn at(&self, index: u32) -> Result<u64> {
        if index as usize >= self.entries {
            bail!("element {index} of {}", self.entries);
        }
        Ok(self.element(index as usize))
    }

    /// Address of a value, or 0.
    ///
    /// # Errors
    /// When the key cannot be read.
    pub fn lookup(&self, memory: &Memory, key: u64) -> Result<u64> {
        let key = memory.bytes(key, self.key)?;
        Ok(match self.kind {
            Kind::Array => {
                let index = u32::from_le_bytes(key.try_into()?) as usize;
                if index < self.entries { self.element(index) } else { 0 }
            }
            Kind::Hash => self.found.get(key).map_or(0, |index| self.element(*index)),
            Kind::Programs | Kind::Ring => bail!("a look-up in a map that has none"),
        })
    }

    /// Sets a value; false when the map is full.
    ///
    /// # Errors
    /// When the map's keys are no bytes, or the value does not fit.
    pub fn put(&mut self, memory: &mut Memory, key: &[u8], value: &[u8]) -> Result<bool> {
        if self.kind != Kind::Hash || key.len() != self.key || value.len() != self.value {
            bail!(
                "{} bytes of key and {} of value into a map of {} and {}",
                key.len(),
                value.len(),
                self.key,
                self.value
            );
        }
        let next = self.found.len();
        if !self.found.contains_key(key) && next == self.entries {
            return Ok(false);
        }
        let index = *self.found.entry(key.to_vec()).or_insert(next);
        let at = self.element(index);
        memory.bytes_mut(at, value.len())?.copy_from_slice(value);
        Ok(true)
    }

    /// All keys, each with its value.
    ///
    /// # Errors
    /// When a value cannot be read.
    pub fn pairs(&self, memory: &Memory) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        let pair = |(key, index): (&Vec<u8>, &usize)| {
            Ok((key.clone(), memory.bytes(self.element(*index), self.value)?.to_vec()))
        };
        self.found.iter().map(pair).collect()
    }

    /// Removes every key.
    pub fn clear(&mut self) {
        self.found.clear();
    }

    /// Sizes of key and value.
    pub const fn sizes(&self) -> (usize, usize) {
        (self.key, self.value)
    }
}
