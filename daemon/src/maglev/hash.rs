//! Hashes that place members and slots: SHA-256 for identities, a 64-bit finaliser inside loops.

use std::net::IpAddr;

use sha2::{Digest as _, Sha256};

use super::{ALGORITHM, Seed};
use crate::model::BackendId;

/// Starts a SHA-256 of `what`, kept apart from every other use by its name and the algorithm's version.
pub(super) fn domain(what: &str) -> Sha256 {
    let mut hasher = Sha256::new();
    text(&mut hasher, what);
    hasher.update(ALGORITHM.to_be_bytes());
    hasher
}

/// Adds a string with its length in front, so that no two sequences of strings have one encoding.
pub(super) fn text(hasher: &mut Sha256, text: &str) {
    hasher.update((text.len() as u64).to_be_bytes());
    hasher.update(text.as_bytes());
}

/// Adds an identity in an encoding that no other identity has.
pub(super) fn identity(hasher: &mut Sha256, id: &BackendId) {
    text(hasher, &id.vpc);
    text(hasher, &id.attachment);
    match id.address {
        IpAddr::V4(a) => {
            hasher.update([4]);
            hasher.update(a.octets());
        }
        IpAddr::V6(a) => {
            hasher.update([6]);
            hasher.update(a.octets());
        }
    }
}

/// Four 64-bit words of a finished SHA-256.
pub(super) fn words(hasher: Sha256) -> [u64; 4] {
    let hash = hasher.finalize();
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(hash.chunks_exact(8)) {
        *word = bytes.iter().fold(0, |word, &byte| word << 8 | u64::from(byte));
    }
    words
}

/// Key of the hashes that depend on the slot, from the seed.
pub(super) fn slot_key(seed: Seed) -> u64 {
    let mut hasher = domain("slot");
    hasher.update(seed.0);
    words(hasher)[0]
}

/// Finaliser of SplitMix64 (Steele, Lea, Flood, OOPSLA '14): a bijection in which every bit depends on every other.
#[inline]
pub(super) const fn mix(mut x: u64) -> u64 {
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

/// Maps 64 random bits to `0..range` by multiplication (Lemire, 2019), without a division.
#[inline]
pub(super) const fn reduce(x: u64, range: u32) -> u32 {
    (((x >> 32) * range as u64) >> 32) as u32
}
