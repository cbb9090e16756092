//! The SIDs in use, where each leads, and which of them a change moves. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;

use super::fib::{Fib, FibEvent, Link, Lookup, Neighbour, Resolution, Touched, Upkeep};
use crate::model::Sid;

/// SIDs whose resolution changed, with the new one.
pub type Changes = BTreeMap<Sid, Resolution>;

/// Watched SIDs over a mirror of the kernel's tables.
#[derive(Debug)]
pub struct Watch {
    fib: Fib,
    /// Interfaces on which packets may leave, by name: an index does not outlive its interface.
    interfaces: BTreeSet<String>,
    allowed: BTreeSet<u32>,
    /// `None` until the first lookup, so that it is told even when it finds nothing.
    sids: BTreeMap<Sid, Option<Lookup>>,
    /// Neighbours that the lookups rest on, and how many do on each.
    neighbours: BTreeMap<(u32, Ipv6Addr), u32>,
    lookups: u64,
}

impl Watch {
    /// Watches nothing yet; packets leave on `interfaces` only.
    pub fn new(interfaces: BTreeSet<String>) -> Self {
        Self {
            fib: Fib::default(),
            interfaces,
            allowed: BTreeSet::new(),
            sids: BTreeMap::new(),
            neighbours: BTreeMap::new(),
            lookups: 0,
        }
    }

    /// Sets the SIDs to watch; tells where the new ones lead.
    pub fn set(&mut self, sids: &BTreeSet<Sid>) -> Changes {
        for (_, lookup) in self.sids.extract_if(.., |sid, _| !sids.contains(sid)) {
            release(&mut self.neighbours, &lookup.unwrap_or_default());
        }
        let new: Vec<Sid> = sids.iter().filter(|sid| !self.sids.contains_key(sid)).copied().collect();
        self.sids.extend(new.iter().map(|&sid| (sid, None)));
        self.refresh(new)
    }

    /// Takes changes in; tells the SIDs that now lead elsewhere. A change that concerns no watched SID costs no
    /// lookup, and one that leaves a SID's next hops as they were is not told.
    pub fn apply(&mut self, events: impl IntoIterator<Item = FibEvent>) -> Changes {
        let mut touched = BTreeSet::new();
        for event in events {
            let event = self.hold(event);
            let link = matches!(event, FibEvent::Link(..) | FibEvent::LinkGone(_));
            match self.fib.apply(event) {
                Touched::Nothing => {}
                Touched::Prefix(prefix) => {
                    let inside = Sid(prefix.network())..=Sid(prefix.broadcast());
                    touched.extend(self.sids.range(inside).map(|(&sid, _)| sid));
                }
                Touched::All => touched.extend(self.sids.keys().copied()),
            }
            if link {
                self.allowed = self.fib.ifindexes(&self.interfaces);
            }
        }
        self.refresh(touched)
    }

    /// Keeps the MAC of a neighbour in use while the kernel, which was told to forget it, asks for it anew: the next
    /// packet must not be the price. Only an unanswered probe says that it is gone.
    fn hold(&self, event: FibEvent) -> FibEvent {
        let (key, new) = match event {
            FibEvent::Neighbour(ifindex, address, neighbour) => ((ifindex, address), Some(neighbour)),
            FibEvent::NeighbourGone(ifindex, address) => ((ifindex, address), None),
            other => return other,
        };
        let old = self.fib.neighbour(key.0, key.1).filter(|_| self.neighbours.contains_key(&key));
        let Some(Neighbour { mac: Some(mac), probing, .. }) = old.copied() else { return event };
        let held = |probing, upkeep| {
            FibEvent::Neighbour(key.0, key.1, Neighbour { mac: Some(mac), probing, upkeep })
        };
        match new {
            None => held(false, Upkeep::None),
            Some(Neighbour { mac: None, probing: true, upkeep }) => held(true, upkeep),
            // Deleting an entry makes it fail first.
            Some(Neighbour { mac: None, probing: false, .. }) if !probing => held(false, Upkeep::None),
            Some(_) => event,
        }
    }

    /// Replaces the mirror by one that was read afresh; tells the SIDs that now lead elsewhere.
    pub fn replace(&mut self, fib: Fib) -> Changes {
        self.fib = fib;
        self.allowed = self.fib.ifindexes(&self.interfaces);
        self.refresh(self.sids.keys().copied().collect::<Vec<_>>())
    }

    fn refresh(&mut self, sids: impl IntoIterator<Item = Sid>) -> Changes {
        let mut changes = Changes::new();
        for sid in sids {
            let lookup = self.fib.lookup(sid, &self.allowed);
            self.lookups += 1;
            let known = self.sids.entry(sid).or_default();
            if known.as_ref().map(|l| &l.resolution) != Some(&lookup.resolution) {
                changes.insert(sid, lookup.resolution.clone());
            }
            for &neighbour in &lookup.neighbours {
                *self.neighbours.entry(neighbour).or_default() += 1;
            }
            if let Some(old) = known.replace(lookup) {
                release(&mut self.neighbours, &old);
            }
        }
        changes
    }

    /// Whether a SID is watched.
    pub fn watches(&self, sid: Sid) -> bool {
        self.sids.contains_key(&sid)
    }
    /// Neighbours (interface, address) that the watched SIDs' next hops need, resolved or not, with the number of
    /// SIDs that do.
    pub fn neighbours(&self) -> &BTreeMap<(u32, Ipv6Addr), u32> {
        &self.neighbours
    }
    /// Whether packets may leave on an interface of this name.
    pub fn may_use(&self, link: &Link) -> bool {
        self.interfaces.contains(&link.name)
    }
    /// The mirror.
    pub fn fib(&self) -> &Fib {
        &self.fib
    }
    /// Interfaces on which packets may leave now.
    pub fn allowed(&self) -> &BTreeSet<u32> {
        &self.allowed
    }
    /// Lookups made so far.
    pub fn lookups(&self) -> u64 {
        self.lookups
    }
}

/// Takes a lookup's neighbours out of the count.
fn release(neighbours: &mut BTreeMap<(u32, Ipv6Addr), u32>, lookup: &Lookup) {
    for neighbour in &lookup.neighbours {
        if let Some(count) = neighbours.get_mut(neighbour) {
            *count -= 1;
            if *count == 0 {
                neighbours.remove(neighbour);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::fib::tests::{add, fib, hop, link, neighbour, net, sid, unicast, via};
    use super::super::fib::{Insert, Neighbour, Upkeep};
    use super::*;

    /// Watches one SID behind link 1 and one behind link 2.
    fn watch() -> Watch {
        let mut watch = Watch::new(["eth1", "eth2"].map(str::to_owned).into());
        watch.replace(fib([
            add("2001:db8:ff01:1::/64", unicast(20, &[via(1, "fe80::1")])),
            add("2001:db8:ff01:2::/64", unicast(20, &[via(2, "fe80::2")])),
        ]));
        watch.set(&[sid("2001:db8:ff01:1::1"), sid("2001:db8:ff01:2::1")].into());
        watch
    }

    fn sids(changes: &Changes) -> Vec<String> {
        changes.keys().map(ToString::to_string).collect()
    }

    #[test]
    fn ten_thousand_unrelated_routes_change_nothing_and_cost_no_lookup() {
        let mut watch = watch();
        let before = watch.lookups();
        for n in 0..10_000_u32 {
            let prefix = format!("2001:db8:{:x}:{:x}::/64", 0x1000 + n / 100, n % 100);
            assert!(watch.apply([add(&prefix, unicast(20, &[via(1, "fe80::1")]))]).is_empty());
        }
        for n in 0..5_000_u32 {
            let prefix = net(&format!("2001:db8:{:x}:{:x}::/64", 0x1000 + n / 100, n % 100));
            assert!(watch.apply([FibEvent::RouteGone(prefix, unicast(20, &[via(1, "fe80::1")]))]).is_empty());
        }
        assert_eq!(watch.fib().prefixes(), 5_002);
        assert_eq!(watch.lookups(), before);
    }

    #[test]
    fn only_the_sids_that_lead_elsewhere_are_told() {
        let mut watch = watch();
        let changes = watch.apply([add("2001:db8:ff01:1::/64", unicast(10, &[via(2, "fe80::2")]))]);
        assert_eq!(sids(&changes), ["2001:db8:ff01:1::1"]);
        assert_eq!(changes.values().next().unwrap().hops, [hop(2, 2)]);
        // A covering route that loses to a longer one.
        assert!(watch.apply([add("2001:db8:ff01::/48", unicast(1, &[via(2, "fe80::2")]))]).is_empty());
        // The same route told again, and one that leads to the same hop.
        let same =
            FibEvent::Route(net("2001:db8:ff01:2::/64"), unicast(20, &[via(2, "fe80::2")]), Insert::Replace);
        assert!(watch.apply([same]).is_empty());
        assert!(watch.apply([add("2001:db8:ff01:2::/72", unicast(20, &[via(2, "fe80::2")]))]).is_empty());
    }

    #[test]
    fn a_neighbour_that_only_ages_is_not_told_and_a_new_mac_is() {
        let mut watch = watch();
        let before = watch.lookups();
        let aged = Neighbour { mac: Some([2, 0, 0, 0, 0, 2]), probing: false, upkeep: Upkeep::None };
        assert!(watch.apply([FibEvent::Neighbour(2, "fe80::2".parse().unwrap(), aged)]).is_empty());
        assert!(watch.apply([neighbour(3, "fe80::77", 0)]).is_empty());
        assert_eq!(watch.lookups(), before);
        let changes = watch.apply([neighbour(2, "fe80::2", 44)]);
        assert_eq!(sids(&changes), ["2001:db8:ff01:2::1"]);
        assert_eq!(changes.values().next().unwrap().hops, [hop(2, 44)]);
    }

    #[test]
    fn a_forgotten_neighbour_is_used_until_a_probe_stays_unanswered() {
        let state = |mac: Option<u8>, probing| {
            let mac = mac.map(|last| [2, 0, 0, 0, 0, last]);
            FibEvent::Neighbour(
                2,
                "fe80::2".parse().unwrap(),
                Neighbour { mac, probing, upkeep: Upkeep::Managed },
            )
        };
        let gone = || FibEvent::NeighbourGone(2, "fe80::2".parse().unwrap());
        let second = "2001:db8:ff01:2::1";

        // Deleted by hand: fails, goes, is asked for, answers.
        let mut flushed = watch();
        assert!(flushed.apply([state(None, false), gone()]).is_empty());
        let known = flushed.fib().neighbour(2, "fe80::2".parse().unwrap()).unwrap();
        assert_eq!((known.mac.is_some(), known.upkeep), (true, Upkeep::None), "it must be asked for again");
        assert!(flushed.apply([state(None, true)]).is_empty());
        assert!(flushed.apply([state(Some(2), false)]).is_empty());
        // The same, with another MAC in the end, and with none.
        assert!(flushed.apply([state(None, false), gone(), state(None, true)]).is_empty());
        assert_eq!(sids(&flushed.apply([state(Some(9), false)])), [second]);
        assert!(flushed.apply([gone(), state(None, true)]).is_empty());
        assert_eq!(sids(&flushed.apply([state(None, false)])), [second]);

        // Probed in vain.
        let mut dead = watch();
        assert!(dead.apply([state(Some(2), true)]).is_empty());
        assert_eq!(sids(&dead.apply([state(None, false)])), [second]);

        // One that nobody needs is forgotten.
        let mut unused = watch();
        unused.set(&BTreeSet::new());
        unused.apply([gone()]);
        assert!(unused.fib().neighbour(2, "fe80::2".parse().unwrap()).is_none());
    }

    #[test]
    fn a_link_that_flaps_within_one_batch_is_not_told() {
        let mut watch = watch();
        assert!(watch.apply([link(2, false), link(2, true)]).is_empty());
        assert_eq!(sids(&watch.apply([link(2, false)])), ["2001:db8:ff01:2::1"]);
    }

    #[test]
    fn a_new_sid_is_told_even_when_it_leads_nowhere() {
        let mut watch = watch();
        let nowhere = sid("2001:db8:ff02::1");
        let mut all: BTreeSet<Sid> = [sid("2001:db8:ff01:1::1"), nowhere].into();
        assert_eq!(watch.set(&all), Changes::from([(nowhere, Resolution::default())]));
        assert!(watch.set(&all).is_empty());
        // One that is no longer watched is neither told nor kept resolved.
        assert_eq!(watch.neighbours(), &BTreeMap::from([((1, "fe80::1".parse().unwrap()), 1)]));
        assert!(watch.apply([neighbour(2, "fe80::2", 45)]).is_empty());
        all.insert(sid("2001:db8:ff01:2::1"));
        assert_eq!(sids(&watch.set(&all)), ["2001:db8:ff01:2::1"]);
        watch.apply([add("2001:db8:ff01:2::/64", unicast(10, &[via(1, "fe80::1")]))]);
        assert_eq!(watch.neighbours(), &BTreeMap::from([((1, "fe80::1".parse().unwrap()), 2)]));
    }

    #[test]
    fn a_fresh_mirror_tells_differences_only() {
        let mut watch = watch();
        let same = watch.fib().clone();
        assert!(watch.replace(same).is_empty());
        let fresh = fib([add("2001:db8:ff01:1::/64", unicast(20, &[via(1, "fe80::1")]))]);
        assert_eq!(sids(&watch.replace(fresh)), ["2001:db8:ff01:2::1"]);
    }

    #[test]
    fn an_interface_that_comes_back_with_another_index_is_used() {
        let mut watch = watch();
        let FibEvent::Link(_, mut eth2) = link(2, true) else { unreachable!() };
        eth2.mac = Some([2, 0, 0, 0, 0, 109]);
        watch.apply([FibEvent::LinkGone(2)]);
        let changes = watch.apply([
            FibEvent::Link(9, eth2),
            neighbour(9, "fe80::2", 2),
            FibEvent::Route(net("2001:db8:ff01:2::/64"), unicast(20, &[via(9, "fe80::2")]), Insert::Replace),
        ]);
        assert_eq!(changes[&sid("2001:db8:ff01:2::1")].hops, [hop(9, 2)]);
    }
}
