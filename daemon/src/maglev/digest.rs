//! Names rings: a key of what a ring is built from, and a digest of what a built one says.

use std::collections::HashMap;
use std::fmt;

use sha2::Digest as _;

use super::hash::{domain, identity, mix, words};
use super::{Eligible, Ring, RingSpec, Seed};
use crate::model::{BackendId, RingSize};

/// 128 bits that name a ring; shown in hexadecimal.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct Digest(pub [u8; 16]);

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Digest {
    fn of(hasher: sha2::Sha256) -> Self {
        let [a, b, ..] = words(hasher);
        Self((u128::from(a) << 64 | u128::from(b)).to_be_bytes())
    }
}

/// Key of a ring's inputs: algorithm, class, seed, identities, weights and eligibility. Rules with equal keys share
/// one ring.
pub fn ring_key(spec: &RingSpec<'_>) -> Digest {
    let mut hasher = inputs("ring", spec);
    for member in spec.members() {
        hasher.update([u8::from(member.eligible == Eligible::Yes)]);
    }
    Digest::of(hasher)
}

/// Key of a base ring's inputs: as [`ring_key`] without eligibility.
pub fn base_key(spec: &RingSpec<'_>) -> Digest {
    Digest::of(inputs("base", spec))
}

fn inputs(what: &str, spec: &RingSpec<'_>) -> sha2::Sha256 {
    let mut hasher = domain(what);
    hasher.update(spec.size().slots().to_be_bytes());
    hasher.update(spec.seed().0);
    hasher.update((spec.members().len() as u64).to_be_bytes());
    for member in spec.members() {
        identity(&mut hasher, member.id);
        hasher.update(member.weight.get().to_be_bytes());
    }
    hasher
}

/// Digest of a ring's content: class, seed and the identity in each slot (`None`: no backend). Two gateways whose
/// digests of a VIP are equal send every flow to the same backend.
///
/// Needs only what can be read back from maps. Each identity is hashed once, so the same backend should come as the
/// same reference; other references to it give the same digest but cost a hash each.
pub fn digest<'a>(
    size: RingSize,
    seed: Seed,
    slots: impl IntoIterator<Item = Option<&'a BackendId>>,
) -> Digest {
    let mut known = Words::default();
    chain(size, seed, slots.into_iter().map(|slot| slot.map_or(0, |id| known.word(id))))
}

/// [`digest`] of a ring that was just built: each member's identity is hashed once and no slot looks one up.
pub fn ring_digest(spec: &RingSpec<'_>, ring: &Ring) -> Digest {
    let words: Vec<u64> = spec.members().iter().map(|member| identity_word(member.id)).collect();
    let word = |owner: Option<u16>| owner.and_then(|m| words.get(m as usize)).copied().unwrap_or(0);
    chain(spec.size(), spec.seed(), ring.owners().map(word))
}

fn chain(size: RingSize, seed: Seed, slots: impl Iterator<Item = u64>) -> Digest {
    let mut count = 0_u64;
    // Two chains of a bijection: equal sequences give equal values, and others do with a chance of 2⁻¹²⁸.
    let (mut a, mut b) = (0x243f_6a88_85a3_08d3_u64, 0x1319_8a2e_0370_7344_u64);
    for word in slots {
        a = mix(a ^ word);
        b = mix(b.wrapping_add(word.rotate_left(32)));
        count += 1;
    }
    let mut hasher = domain("digest");
    hasher.update(size.slots().to_be_bytes());
    hasher.update(seed.0);
    hasher.update(count.to_be_bytes());
    hasher.update(a.to_be_bytes());
    hasher.update(b.to_be_bytes());
    Digest::of(hasher)
}

/// Identities in 64 bits, by where they lie: those of a ring are looked up once a slot.
struct Words {
    /// The last one that fell on each place.
    recent: Vec<(*const BackendId, u64)>,
    all: HashMap<*const BackendId, u64>,
}

impl Default for Words {
    fn default() -> Self {
        Self { recent: vec![(std::ptr::null(), 0); 1024], all: HashMap::new() }
    }
}

impl Words {
    fn word(&mut self, id: &BackendId) -> u64 {
        let place = std::ptr::from_ref(id);
        let recent = &mut self.recent[(mix(place.addr() as u64) >> 54) as usize];
        if recent.0 != place {
            *recent = (place, *self.all.entry(place).or_insert_with(|| identity_word(id)));
        }
        recent.1
    }
}

/// An identity in 64 bits, never 0 (which stands for no backend).
fn identity_word(id: &BackendId) -> u64 {
    let mut hasher = domain("identity");
    identity(&mut hasher, id);
    words(hasher)[0].max(1)
}
