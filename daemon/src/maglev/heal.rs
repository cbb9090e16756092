//! Heals a base ring: gives the slots of members that must get no flow to those that may.

use super::hash::{domain, identity, mix, reduce, slot_key, words};
use super::{Base, Eligible, NO_MEMBER, Ring, RingSpec, Seed};
use crate::model::BackendId;

/// Candidates of a slot that are taken from the base ring.
const CHAIN: u64 = 64;

impl Base {
    /// The ring in which only eligible members own slots.
    ///
    /// Each slot s has a chain of candidates that never changes: the base ring's owners of s, H(s, 1), H(s, 2) … 63,
    /// then all members by weighted rendezvous hashing (Thaler and Ravishankar, 1998; Schindelhauer and
    /// Schomaker, 2005). Its owner is the first eligible one. So the owner depends on the eligible set alone,
    /// whatever happened before; who leaves moves its own slots only, and who returns gets exactly those back.
    ///
    /// `spec` must have the class, seed, identities and weights that the base was built from.
    pub fn heal(&self, spec: &RingSpec<'_>) -> Ring {
        if !spec.serves() {
            return Ring { slots: vec![NO_MEMBER; self.slots.len()] };
        }
        let eligible: Vec<bool> = spec.members.iter().map(|m| m.eligible == Eligible::Yes).collect();
        let mut slots = self.slots.clone();
        if eligible.iter().all(|&e| e) {
            return Ring { slots };
        }
        let may_own = |member: u16| eligible.get(member as usize).is_some_and(|&e| e);
        let key = slot_key(spec.seed);
        let size = slots.len() as u32;
        let mut rendezvous = None;
        for (slot, owner) in slots.iter_mut().enumerate() {
            if may_own(*owner) {
                continue;
            }
            *owner = (1..CHAIN)
                .map(|step| self.slots[candidate(key, slot as u64, step, size) as usize])
                .find(|&member| may_own(member))
                .unwrap_or_else(|| {
                    rendezvous.get_or_insert_with(|| Rendezvous::new(spec)).owner(key, slot as u64)
                });
        }
        Ring { slots }
    }
}

/// H(slot, step): the slot whose owner is the candidate number `step`.
#[inline]
fn candidate(key: u64, slot: u64, step: u64, size: u32) -> u32 {
    reduce(mix(key ^ mix(slot << 32 | step)), size)
}

/// The eligible members, for slots whose whole chain is not eligible.
struct Rendezvous {
    /// Position, key and weight of each.
    members: Vec<(u16, u64, f64)>,
}

impl Rendezvous {
    fn new(spec: &RingSpec<'_>) -> Self {
        let members = spec
            .members
            .iter()
            .enumerate()
            .filter(|(_, m)| m.eligible == Eligible::Yes)
            .map(|(position, m)| (position as u16, member_key(spec.seed, m.id), m.weight.get() as f64))
            .collect();
        Self { members }
    }

    /// The member with the smallest score at this slot; of equals the first in the order of identity.
    fn owner(&self, key: u64, slot: u64) -> u16 {
        let mut best = (f64::INFINITY, NO_MEMBER);
        for &(position, member, weight) in &self.members {
            let score = exponential(mix(mix(key ^ slot) ^ member)) / weight;
            if score < best.0 {
                best = (score, position);
            }
        }
        best.1
    }
}

fn member_key(seed: Seed, id: &BackendId) -> u64 {
    let mut hasher = domain("rendezvous");
    sha2::Digest::update(&mut hasher, seed.0);
    identity(&mut hasher, id);
    words(hasher)[0]
}

/// −ln of a uniform number in (0, 1] made of 52 of the hash's bits, to about 10⁻⁵.
///
/// Written with additions, multiplications and divisions only: IEEE 754 fixes their results bit for bit, while `ln`
/// of two C libraries may differ, and with it two gateways' rings.
fn exponential(hash: u64) -> f64 {
    // 1 ..= 2^52, exact in a double.
    let uniform = ((hash >> 12) + 1) as f64;
    let bits = uniform.to_bits();
    let exponent = (bits >> 52) as i32 - 1023;
    let mantissa = f64::from_bits(bits & ((1 << 52) - 1) | 1023 << 52);
    // ln m = 2 artanh((m − 1) / (m + 1)), and the argument is below 1/3.
    let t = (mantissa - 1.0) / (mantissa + 1.0);
    let t2 = t * t;
    let ln = 2.0 * t * (1.0 + t2 * (1.0 / 3.0 + t2 * (1.0 / 5.0 + t2 * (1.0 / 7.0 + t2 / 9.0))));
    f64::from(52 - exponent) * std::f64::consts::LN_2 - ln
}

#[cfg(test)]
mod tests {
    use super::exponential;

    #[test]
    fn exponential_is_minus_the_natural_logarithm() {
        for shift in 0..52 {
            for hash in [1 << (shift + 12), (u64::MAX >> shift) & !0xfff, 0xdead_beef_cafe_f00d >> shift] {
                let uniform = ((hash >> 12) + 1) as f64 / (1_u64 << 52) as f64;
                assert!((exponential(hash) + uniform.ln()).abs() < 2e-5, "{hash:#x}");
            }
        }
        assert!(exponential(u64::MAX).abs() < 2e-5);
        assert!(exponential(0) > 36.0);
    }
}
