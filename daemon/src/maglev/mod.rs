//! Rings: which member of a rule owns which slot, the same on every gateway that reads the same objects.
//!
//! A ring is built in two steps. [`Base`] is weighted Maglev (Eisenbud et al., NSDI '16, section 3.4) over the
//! *configured* members in the order of their identity. [`Base::heal`] then gives the slots of members that must
//! get no flow to others by a chain fixed for each slot, so that no survivor's slot moves. Pure code.

mod build;
mod digest;
mod hash;
mod heal;
#[cfg(test)]
mod tests;

use std::num::NonZeroU64;

use sha2::Digest as _;

pub use build::Base;
pub use digest::{Digest, base_key, digest, ring_digest, ring_key};

use crate::model::{BackendId, Drain, Health, OnAllDown, RingSize, Rule};

/// Version of the ring's algorithm. It is part of every key and digest; a change moves flows, so all gateways
/// of a region must change together.
pub const ALGORITHM: u32 = 1;

/// Most members that a ring can name; validation allows far fewer.
pub const MAX_MEMBERS: usize = NO_MEMBER as usize;

/// Slot value that names no member.
const NO_MEMBER: u16 = u16::MAX;

/// The region's seed, equal on all its gateways.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Seed(pub [u8; 16]);

impl Seed {
    /// The seed of a region, from its 32-byte key: equal on all its gateways, and not to be guessed.
    pub fn from_region_key(key: &[u8; 32]) -> Self {
        let mut hasher = sha2::Sha256::new();
        hasher.update(b"weir ring seed v1");
        hasher.update(key);
        let digest = hasher.finalize();
        Self(std::array::from_fn(|i| digest[i]))
    }
}

/// Whether a member may own slots now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Eligible {
    /// Keeps its place in the base ring and may own slots.
    Yes,
    /// Keeps its place in the base ring; its slots are healed by others.
    No,
}

/// One backend as a ring sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Member<'a> {
    /// Identity.
    pub id: &'a BackendId,
    /// Share of the slots, relative to the other members' weights.
    pub weight: NonZeroU64,
    /// Whether it may own slots now.
    pub eligible: Eligible,
}

/// Everything that a ring depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct RingSpec<'a> {
    size: RingSize,
    seed: Seed,
    members: Vec<Member<'a>>,
}

impl<'a> RingSpec<'a> {
    /// A ring's inputs. Members may come in any order; an identity that comes twice counts once, with its smaller
    /// weight. Members beyond [`MAX_MEMBERS`] in the order of identity are left out.
    pub fn new(size: RingSize, seed: Seed, mut members: Vec<Member<'a>>) -> Self {
        // All fields, so that not even the order of duplicates matters.
        members.sort_by_key(|m| (m.id, m.weight, m.eligible == Eligible::Yes));
        members.dedup_by_key(|m| m.id);
        members.truncate(MAX_MEMBERS);
        Self { size, seed, members }
    }

    /// The inputs of a rule's ring. A backend is eligible when it is not unhealthy, not drained and its endpoint is
    /// known. When none is, [`OnAllDown::Keep`] makes all eligible that are not drained and have an endpoint.
    pub fn for_rule(rule: &'a Rule, seed: Seed) -> Self {
        let reachable = |b: &crate::model::Backend| b.drain == Drain::No && b.endpoint.is_some();
        let serves = |b: &crate::model::Backend| reachable(b) && b.health != Health::Unhealthy;
        let all_down = !rule.backends.iter().any(serves);
        let ignore_health = all_down && rule.on_all_down == OnAllDown::Keep;
        let members = rule
            .backends
            .iter()
            .map(|b| Member {
                id: &b.id,
                weight: b.weight,
                eligible: if serves(b) || (ignore_health && reachable(b)) {
                    Eligible::Yes
                } else {
                    Eligible::No
                },
            })
            .collect();
        Self::new(rule.ring_size, seed, members)
    }

    /// Size class.
    pub fn size(&self) -> RingSize {
        self.size
    }
    /// Seed.
    pub fn seed(&self) -> Seed {
        self.seed
    }
    /// Members in the order of their identity, unique. A ring's slots hold positions in this list.
    pub fn members(&self) -> &[Member<'a>] {
        &self.members
    }
    /// Whether any member may own slots; when not, the ring is empty.
    pub fn serves(&self) -> bool {
        self.members.iter().any(|m| m.eligible == Eligible::Yes)
    }
}

/// A built ring: for each slot the position of its owner in [`RingSpec::members`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ring {
    slots: Vec<u16>,
}

impl Ring {
    /// Owner of each slot, `None` where no member is eligible. As many items as the class has slots.
    pub fn owners(&self) -> impl ExactSizeIterator<Item = Option<u16>> + '_ {
        self.slots.iter().map(|&m| (m != NO_MEMBER).then_some(m))
    }
    /// Owner of one slot; `None` also beyond the ring.
    pub fn owner(&self, slot: u32) -> Option<u16> {
        self.slots.get(slot as usize).copied().filter(|&m| m != NO_MEMBER)
    }
    /// Number of slots.
    pub fn len(&self) -> usize {
        self.slots.len()
    }
    /// Whether no slot names a member.
    pub fn is_empty(&self) -> bool {
        // Either no member is eligible or every slot has an owner.
        self.slots.first().is_none_or(|&m| m == NO_MEMBER)
    }
    /// Identity of each slot's owner; `spec` is the one that the ring was built from.
    pub fn identities<'s, 'a: 's>(
        &'s self,
        spec: &'s RingSpec<'a>,
    ) -> impl Iterator<Item = Option<&'a BackendId>> + 's {
        self.slots.iter().map(|&m| spec.members.get(m as usize).map(|member| member.id))
    }
    /// Slots owned by each member, in the order of [`RingSpec::members`].
    pub fn shares(&self, members: usize) -> Vec<u32> {
        let mut shares = vec![0; members];
        for &m in &self.slots {
            if let Some(share) = shares.get_mut(m as usize) {
                *share += 1;
            }
        }
        shares
    }
}

/// Builds a rule's ring: the base, healed.
pub fn build(spec: &RingSpec<'_>) -> Ring {
    Base::build(spec).heal(spec)
}
