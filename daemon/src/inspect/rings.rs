//! The rings in the maps: who holds how many slots, and whether the digest on record is that of the slots.

use std::collections::{BTreeMap, HashMap};

use serde::Serialize;

use super::{Error, Image};
use crate::dataplane::Dataplane as _;
use crate::dataplane::bpf::Maps;
use crate::maglev::{self, Digest, Seed};
use crate::model::{BackendId, RingSize, VipKey};

/// A ring in the maps. Several VIPs share one when all that it is built from is equal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RingRow {
    /// First slot in the maps.
    pub ring: u32,
    /// Number of slots.
    pub slots: u32,
    /// Digest on record.
    pub digest: String,
    /// Whether the slots have that digest.
    pub check: DigestCheck,
    /// Keys that lead to it.
    pub vips: Vec<VipKey>,
    /// Who holds its slots, most slots first.
    pub members: Vec<RingMember>,
    /// Slots without a backend: their packets are dropped.
    pub empty_slots: u32,
}

/// A digest computed from the slots against the one on record.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum DigestCheck {
    /// Equal.
    Equal,
    /// Not equal: the slots are not those that were built. Holds the digest of the slots.
    Differs(String),
    /// The region's key, and with it the seed, is not known.
    Unchecked,
}

/// A backend's part of a ring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RingMember {
    /// Who; `None` when the maps do not say whose index the slots hold.
    pub backend: Option<BackendId>,
    /// Index in the maps.
    pub index: u32,
    /// Slots that it holds.
    pub slots: u32,
}

/// Reads every ring that a VIP of `image` leads to; with the region's seed, their digests are checked.
pub fn rings(maps: &Maps, image: &Image, seed: Option<Seed>) -> Result<Vec<RingRow>, Error> {
    let mut known: HashMap<u32, Option<BackendId>> = HashMap::new();
    let mut rows: BTreeMap<u32, RingRow> = BTreeMap::new();
    for vip in image.vips.iter().filter(|vip| vip.slots != 0) {
        if let Some(row) = rows.get_mut(&vip.ring) {
            row.vips.push(vip.key);
            continue;
        }
        let slots = maps.read_ring(vip.ring, vip.slots);
        for index in slots.iter().copied().filter(|i| *i != 0) {
            if let std::collections::hash_map::Entry::Vacant(entry) = known.entry(index) {
                entry.insert(maps.identity(index)?.map(|(id, _)| id));
            }
        }
        rows.insert(vip.ring, row(vip.ring, &slots, &vip.digest, vip.key, &known, seed));
    }
    Ok(rows.into_values().collect())
}

fn row(
    ring: u32,
    slots: &[u32],
    digest: &str,
    key: VipKey,
    known: &HashMap<u32, Option<BackendId>>,
    seed: Option<Seed>,
) -> RingRow {
    let mut shares: HashMap<u32, u32> = HashMap::new();
    for index in slots {
        *shares.entry(*index).or_default() += 1;
    }
    let empty_slots = shares.remove(&0).unwrap_or(0);
    let member = |(index, slots)| RingMember { backend: known.get(&index).cloned().flatten(), index, slots };
    let mut members: Vec<RingMember> = shares.into_iter().map(member).collect();
    members.sort_by(|a, b| (b.slots, &a.backend, a.index).cmp(&(a.slots, &b.backend, b.index)));
    let owners = slots.iter().map(|index| known.get(index).and_then(Option::as_ref));
    let check = match (seed, RingSize::from_slots(slots.len() as u32)) {
        (Some(seed), Some(size)) => compare(maglev::digest(size, seed, owners), digest),
        _ => DigestCheck::Unchecked,
    };
    let digest = digest.to_string();
    RingRow { ring, slots: slots.len() as u32, digest, check, vips: vec![key], members, empty_slots }
}

fn compare(found: Digest, recorded: &str) -> DigestCheck {
    let found = found.to_string();
    if found == recorded { DigestCheck::Equal } else { DigestCheck::Differs(found) }
}
