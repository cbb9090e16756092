//! Builds the base ring: weighted Maglev over the configured members, whatever their health.

use super::hash::{domain, identity, words};
use super::{NO_MEMBER, RingSpec, Seed};
use crate::model::BackendId;

/// The ring before healing. It depends on class, seed, identities and weights, so it outlives changes of health.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    /// Owner of each slot; no slot is free unless there are no members.
    pub(super) slots: Vec<u16>,
}

impl Base {
    /// Fills the ring as in section 3.4 of the Maglev paper: members take turns, each takes the first slot of its
    /// own permutation that is still free.
    ///
    /// The first turn gives every member one slot, as an advance. Then each round adds a member's weight to its
    /// credit, and a slot costs the largest weight: shares differ from the weights' ratio by less than one slot,
    /// but for the slot that everyone has. With more members than slots (which validation refuses) the first ones
    /// in the order of identity own one each.
    pub fn build(spec: &RingSpec<'_>) -> Self {
        let slots = spec.size.slots();
        let mut fill = Fill::new(slots, spec.members.iter().map(|m| Permutation::of(spec.seed, m.id, slots)));
        let price = spec.members.iter().map(|m| m.weight.get()).max().unwrap_or(0);
        if price == 0 {
            return Self { slots: vec![NO_MEMBER; slots as usize] };
        }
        for member in 0..spec.members.len() {
            if fill.left == 0 {
                break;
            }
            fill.take(member);
        }
        // Everyone owes the advance; a debt is kept as what is missing to the next slot.
        let mut missing: Vec<u64> = spec.members.iter().map(|m| 2 * price - m.weight.get()).collect();
        'full: loop {
            for (member, missing) in missing.iter_mut().enumerate() {
                let weight = spec.members[member].weight.get();
                if *missing > weight {
                    *missing -= weight;
                    continue;
                }
                if fill.left == 0 {
                    break 'full;
                }
                *missing += price - weight;
                fill.take(member);
            }
        }
        Self { slots: fill.owners }
    }
}

/// A member's order of preference over the slots: `offset`, `offset + skip`, `offset + 2 skip` … modulo the size.
#[derive(Clone, Copy, Debug)]
pub(super) struct Permutation {
    /// First slot.
    offset: u32,
    /// Step, 1..slots; the size is prime, so every slot is visited.
    skip: u32,
    /// Next slot to try.
    next: u32,
    /// 2, 3 and 4 steps, modulo the size.
    ahead: [u32; 3],
    /// `skip`'s inverse modulo the size as a fraction of the size, in units of 2⁻⁶⁴ (see [`Fill::search`]).
    inverse: u64,
}

impl Permutation {
    /// From the hash of seed and identity.
    pub(super) fn of(seed: Seed, id: &BackendId, slots: u32) -> Self {
        let mut hasher = domain("member");
        sha2::Digest::update(&mut hasher, seed.0);
        identity(&mut hasher, id);
        let [a, b, ..] = words(hasher);
        let offset = (a % u64::from(slots)) as u32;
        let skip = (b % u64::from(slots - 1)) as u32 + 1;
        let fraction = (u128::from(inverse(skip, slots)) << 64).div_ceil(u128::from(slots));
        let two = forward(skip, skip, slots);
        let three = forward(two, skip, slots);
        let ahead = [two, three, forward(three, skip, slots)];
        Self { offset, skip, next: offset, ahead, inverse: fraction as u64 }
    }

    /// First slot and step.
    #[cfg(test)]
    pub(super) fn start(self) -> (u32, u32) {
        (self.offset, self.skip)
    }
}

/// `slot + steps` modulo the size. Both are smaller than it, so one subtraction does what the remainder would; below
/// the size it wraps to something large, so the smaller value is the right one, without a branch to guess.
#[inline]
fn forward(slot: u32, steps: u32, size: u32) -> u32 {
    let sum = slot + steps;
    sum.min(sum.wrapping_sub(size))
}

/// Inverse of `value` modulo a prime that does not divide it (extended Euclid).
fn inverse(value: u32, prime: u32) -> u32 {
    let (mut r0, mut r1) = (i64::from(prime), i64::from(value));
    let (mut t0, mut t1) = (0_i64, 1_i64);
    while r1 != 0 {
        let q = r0 / r1;
        (r0, r1) = (r1, r0 - q * r1);
        (t0, t1) = (t1, t0 - q * t1);
    }
    t0.rem_euclid(i64::from(prime)) as u32
}

/// A ring while it is filled.
///
/// Trying slots in turn costs about `size / free` steps for one turn, so the last slots cost most (`size · ln size`
/// in all). Once fewer than `√size` are free, looking at each free one and asking where it stands in the member's
/// permutation is cheaper, and has the same result.
struct Fill {
    owners: Vec<u16>,
    left: u32,
    size: u32,
    permutations: Vec<Permutation>,
    /// Free slots in no order, filled when few are left.
    last: Vec<u32>,
    /// Number of free slots from which `last` is used.
    few: u32,
}

impl Fill {
    fn new(size: u32, permutations: impl Iterator<Item = Permutation>) -> Self {
        Self {
            owners: vec![NO_MEMBER; size as usize],
            left: size,
            size,
            permutations: permutations.collect(),
            last: Vec::new(),
            few: size.isqrt(),
        }
    }

    /// Gives `member` the free slot that comes first in its permutation. There must be one.
    #[inline]
    fn take(&mut self, member: usize) {
        let slot = if self.left > self.few {
            self.walk(member)
        } else {
            if self.last.is_empty() {
                let free = self.owners.iter().enumerate().filter(|(_, owner)| **owner == NO_MEMBER);
                self.last.extend(free.map(|(slot, _)| slot as u32));
            }
            self.search(member)
        };
        self.owners[slot as usize] = member as u16;
        self.left -= 1;
    }

    /// Tries one slot after the other: four at a time, since a wrong guess of where the loop ends costs more than
    /// three tries too many.
    #[inline]
    fn walk(&mut self, member: usize) -> u32 {
        let owners = self.owners.as_slice();
        let size = self.size;
        let permutation = &mut self.permutations[member];
        let (skip, [two, three, four]) = (permutation.skip, permutation.ahead);
        let mut next = permutation.next;
        loop {
            let tries =
                [next, forward(next, skip, size), forward(next, two, size), forward(next, three, size)];
            let is_free = |n: usize| u32::from(owners[tries[n] as usize] == NO_MEMBER) << n;
            let free = is_free(0) | is_free(1) | is_free(2) | is_free(3);
            if free != 0 {
                let slot = tries[free.trailing_zeros() as usize & 3];
                permutation.next = forward(slot, skip, size);
                return slot;
            }
            next = forward(next, four, size);
        }
    }

    /// Looks for the free slot that comes first.
    ///
    /// Slot s stands at place `(s − offset) · skip⁻¹ mod size`. Places are compared as fractions of the size in
    /// 64-bit fixed point, where wrapping multiplication is the remainder: neighbouring places lie 2⁴⁷ apart, and
    /// rounding adds less than 2¹⁸.
    #[inline]
    fn search(&mut self, member: usize) -> u32 {
        let Permutation { offset, inverse, .. } = self.permutations[member];
        let back = self.size - offset;
        let mut best = (u64::MAX, 0);
        for (index, &slot) in self.last.iter().enumerate() {
            let place = u64::from(slot + back).wrapping_mul(inverse);
            if place < best.0 {
                best = (place, index);
            }
        }
        self.last.swap_remove(best.1)
    }
}
