//! Next hops in the maps: which group of records a SID's backends point at.

use std::collections::{BTreeMap, BTreeSet};

use weir_bpf::abi::{NextHop, pack_nh, unpack_nh};

use super::tables::Spans;
use super::{Dataplane, Error};
use crate::model::Sid;

/// Largest number of equal-cost next hops of one SID; the count has 8 bits in the map, and more help nobody.
pub const MAX_HOPS: usize = 64;

/// Groups of next-hop records and who uses them.
#[derive(Debug)]
pub struct Hops {
    spans: Spans,
    /// Start of the group that holds exactly these hops, and how many backends point there.
    groups: BTreeMap<Vec<[u8; 24]>, (u32, BTreeSet<u32>)>,
    /// What netlink last said of each SID.
    known: BTreeMap<Sid, Vec<NextHop>>,
    garbage: Vec<(u32, u32)>,
}

fn key(hops: &[NextHop]) -> Vec<[u8; 24]> {
    hops.iter().map(|hop| bytemuck::cast(*hop)).collect()
}

impl Hops {
    /// Adopts the groups that the given backends point at.
    pub fn adopt(dataplane: &dyn Dataplane, backends: impl Iterator<Item = u32>) -> Self {
        let mut groups: BTreeMap<Vec<[u8; 24]>, (u32, BTreeSet<u32>)> = BTreeMap::new();
        let mut used = Vec::new();
        for backend in backends {
            let (first, count) = unpack_nh(dataplane.hops_of(backend));
            if count == 0 {
                continue;
            }
            let hops: Vec<NextHop> = (first..first + u32::from(count)).map(|i| dataplane.hop(i)).collect();
            used.push((first, u32::from(count)));
            groups.entry(key(&hops)).or_insert_with(|| (first, BTreeSet::new())).1.insert(backend);
        }
        let spans = Spans::new(1, dataplane.limits().next_hops, used);
        Self { spans, groups, known: BTreeMap::new(), garbage: Vec::new() }
    }

    /// SIDs of `wanted` for which no next hop is known.
    pub fn unreachable<'a>(
        &'a self,
        wanted: impl Iterator<Item = Sid> + 'a,
    ) -> impl Iterator<Item = Sid> + 'a {
        wanted.filter(|sid| self.known.get(sid).is_none_or(Vec::is_empty))
    }

    /// Notes what netlink says of a SID and points its backends there.
    pub fn update(
        &mut self,
        dataplane: &mut dyn Dataplane,
        sid: Sid,
        mut hops: Vec<NextHop>,
        backends: &[u32],
    ) -> Result<(), Error> {
        hops.truncate(MAX_HOPS);
        self.known.insert(sid, hops);
        backends.iter().try_for_each(|&backend| self.point(dataplane, sid, backend))
    }

    /// Points one backend at its SID's next hops. A SID that netlink has not spoken of keeps what was adopted.
    pub fn point(&mut self, dataplane: &mut dyn Dataplane, sid: Sid, backend: u32) -> Result<(), Error> {
        let Some(hops) = self.known.get(&sid) else { return Ok(()) };
        let wanted = key(hops);
        if self.groups.get(&wanted).is_some_and(|(_, users)| users.contains(&backend)) {
            return Ok(());
        }
        let word = if hops.is_empty() {
            0
        } else if let Some((first, users)) = self.groups.get_mut(&wanted) {
            users.insert(backend);
            pack_nh(*first, hops.len() as u8)
        } else {
            let length = hops.len() as u32;
            let first = self.spans.take(length).ok_or_else(|| Error::LimitReached {
                map: "nexthops",
                limit: "limits.nextHops",
                configured: dataplane.limits().next_hops,
                needed: length,
                free: self.spans.longest(),
            })?;
            for (i, hop) in (first..).zip(hops) {
                dataplane.put_hop(i, *hop)?;
            }
            self.groups.insert(wanted.clone(), (first, BTreeSet::from([backend])));
            pack_nh(first, length as u8)
        };
        dataplane.set_hops(backend, word)?;
        self.leave(backend, Some(&wanted));
        Ok(())
    }

    /// A backend record is gone: its group loses a user.
    pub fn forget(&mut self, backend: u32) {
        self.leave(backend, None);
    }

    /// SIDs that no backend has any more need not be remembered.
    pub fn retain(&mut self, wanted: &BTreeSet<Sid>) {
        self.known.retain(|sid, _| wanted.contains(sid));
    }

    fn leave(&mut self, backend: u32, but: Option<&Vec<[u8; 24]>>) {
        let garbage = &mut self.garbage;
        self.groups.retain(|hops, (first, users)| {
            if Some(hops) != but && users.remove(&backend) && users.is_empty() {
                garbage.push((*first, hops.len() as u32));
                return false;
            }
            true
        });
    }

    /// Whether records wait for readers to leave.
    pub fn has_garbage(&self) -> bool {
        !self.garbage.is_empty()
    }

    /// Every CPU has left the groups that were given up: they may be written again.
    pub fn collect(&mut self) {
        for (first, length) in self.garbage.drain(..) {
            self.spans.release(first, length);
        }
    }
}
