//! What the fabric's routers have said of the paths to SIDs: whom to believe, how far, and for how long. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use weir_bpf::abi::{Learned, MIN_FABRIC_MTU};

use crate::model::Sid;

/// How long a router's word counts (RFC 8201 section 4 allows a larger packet to be tried after ten minutes).
pub const REMEMBER: Duration = Duration::from_mins(10);

/// Path MTUs that count now.
#[derive(Clone, Debug, Default)]
pub struct PathMtus {
    known: BTreeMap<Sid, Learned>,
}

impl PathMtus {
    /// Takes in what the program noted, and forgets what is older than [`REMEMBER`] or of no backend's SID. `now_ns` is on the
    /// clock of the notes. A message never raises what another said before it is forgotten.
    pub fn update(
        &mut self,
        told: impl IntoIterator<Item = (Sid, Learned)>,
        sids: &BTreeSet<Sid>,
        now_ns: u64,
    ) {
        let fresh = |learned: &Learned| now_ns.saturating_sub(learned.at_ns) < REMEMBER.as_nanos() as u64;
        self.known.retain(|sid, learned| fresh(learned) && sids.contains(sid));
        for (sid, learned) in told {
            let learned = Learned { mtu: learned.mtu.max(MIN_FABRIC_MTU), ..learned };
            let lower = self.known.get(&sid).is_none_or(|known| learned.mtu <= known.mtu);
            if sids.contains(&sid) && fresh(&learned) && lower {
                self.known.insert(sid, learned);
            }
        }
    }

    /// Bytes of the outer packet that fit on the way to a SID; 0 when nobody has said so.
    pub fn of(&self, sid: Sid) -> u32 {
        self.known.get(&sid).map_or(0, |learned| learned.mtu)
    }

    /// Whether nothing is known.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sid(n: u16) -> Sid {
        Sid(std::net::Ipv6Addr::new(0x2001, 0xdb8, 0xff01, n, 0xe001, 0, 0, 0))
    }

    fn said(mtu: u32, seconds: u64) -> Learned {
        Learned { at_ns: seconds * 1_000_000_000, mtu, pad: 0 }
    }

    #[test]
    fn a_routers_word_counts_for_ten_minutes_never_below_1320_and_is_never_raised_meanwhile() {
        let (ours, mut mtus) = (BTreeSet::from([sid(1), sid(2)]), PathMtus::default());
        let at = |seconds: u64| seconds * 1_000_000_000;
        mtus.update(
            [(sid(1), said(1400, 100)), (sid(2), said(1281, 100)), (sid(3), said(1400, 100))],
            &ours,
            at(101),
        );
        assert_eq!([mtus.of(sid(1)), mtus.of(sid(2)), mtus.of(sid(3))], [1400, 1320, 0], "3 is no backend's");
        mtus.update([(sid(1), said(1480, 200))], &ours, at(201));
        assert_eq!(mtus.of(sid(1)), 1400);
        mtus.update([(sid(1), said(1380, 300))], &ours, at(301));
        assert_eq!(mtus.of(sid(1)), 1380);
        // The notes stay in the map after their time.
        let notes = [(sid(1), said(1380, 300)), (sid(2), said(1281, 100))];
        mtus.update(notes, &ours, at(899));
        assert_eq!([mtus.of(sid(1)), mtus.of(sid(2))], [1380, 0]);
        mtus.update(notes, &ours, at(900));
        assert!(mtus.is_empty());
        // After that a larger one is believed.
        mtus.update([(sid(1), said(1480, 901))], &ours, at(902));
        assert_eq!(mtus.of(sid(1)), 1480);
        mtus.update([], &BTreeSet::new(), at(903));
        assert!(mtus.is_empty(), "its backend went");
    }
}
