//! A mirror of the kernel's IPv6 main table, neighbours and links, and the lookup of a SID in it. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;

use ipnet::Ipv6Net;
use prefix_trie::PrefixMap;

use crate::model::Sid;

/// Most next hops that share one SID's load; the data plane counts them in a byte.
pub const MAX_HOPS: usize = 64;

/// One next hop of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hop {
    /// Gateway; `None` when the destination is on the link.
    pub via: Option<Ipv6Addr>,
    /// Interface to send on.
    pub oif: u32,
    /// Share of the flows, 1..=256.
    pub weight: u16,
    /// The route's own MTU in bytes, when it sets one.
    pub mtu: Option<u32>,
}

/// What a route does with a packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteKind {
    /// Forwards it to one of these.
    Unicast(Vec<Hop>),
    /// Ends the lookup without a next hop (unreachable, blackhole, prohibit, throw).
    Reject,
    /// Does something that the data plane cannot (tunnel or segment routing encapsulation, a next hop object of
    /// which the kernel does not tell the hops).
    Unsupported,
}

/// A route of the main table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Of routes to one prefix the smallest wins.
    pub metric: u32,
    /// What it does.
    pub kind: RouteKind,
}

/// A neighbour cache entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Neighbour {
    /// Its MAC; `None` while it is not resolved.
    pub mac: Option<[u8; 6]>,
    /// The kernel is asking for it and has no answer yet.
    pub probing: bool,
    /// Who keeps it resolved.
    pub upkeep: Upkeep,
}

/// Who keeps a neighbour resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Upkeep {
    /// Nobody: it is forgotten or goes stale when the kernel itself sends it nothing.
    None,
    /// The kernel probes it periodically (`NTF_EXT_MANAGED`).
    Managed,
    /// It needs no upkeep (permanent, or the link resolves nothing).
    Permanent,
}

/// An interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Link {
    /// Name.
    pub name: String,
    /// Own MAC; `None` on links without Ethernet addresses.
    pub mac: Option<[u8; 6]>,
    /// Bytes of the largest IP packet.
    pub mtu: u32,
    /// Whether it is set up and has its carrier.
    pub up: bool,
}

/// Whether a new route takes the place of the one with the same prefix and metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insert {
    /// Stands beside it, or adds hops to it.
    Add,
    /// Takes its place.
    Replace,
}

/// A change of what is mirrored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FibEvent {
    /// A route came or changed.
    Route(Ipv6Net, Route, Insert),
    /// A route, or some of its hops, went.
    RouteGone(Ipv6Net, Route),
    /// A neighbour (interface, address) came or changed.
    Neighbour(u32, Ipv6Addr, Neighbour),
    /// A neighbour went.
    NeighbourGone(u32, Ipv6Addr),
    /// An interface came or changed.
    Link(u32, Link),
    /// An interface went.
    LinkGone(u32),
}

/// Which SIDs an event may have moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Touched {
    /// None.
    Nothing,
    /// Those inside a prefix.
    Prefix(Ipv6Net),
    /// Any.
    All,
}

/// Where a SID leads.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Resolution {
    /// Next hops that share the flows evenly, sorted; one with a larger weight comes several times.
    pub hops: Vec<ResolvedHop>,
    /// Interfaces and addresses of next hops whose MAC is not known yet, sorted.
    pub pending: Vec<(u32, Ipv6Addr)>,
}

/// A next hop as packets need it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ResolvedHop {
    /// Interface to send on.
    pub ifindex: u32,
    /// Destination MAC, then source MAC.
    pub macs: [u8; 12],
    /// Bytes of the largest IP packet.
    pub mtu: u32,
}

/// A resolution and the neighbours that it rests on, resolved or not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lookup {
    /// Where the SID leads.
    pub resolution: Resolution,
    /// Interface and address of each neighbour, sorted.
    pub neighbours: Vec<(u32, Ipv6Addr)>,
}

/// The mirror.
#[derive(Clone, Debug, Default)]
pub struct Fib {
    /// Routes to each prefix, by metric; of equal ones the older is first.
    routes: PrefixMap<Ipv6Net, Vec<Route>>,
    neighbours: BTreeMap<(u32, Ipv6Addr), Neighbour>,
    links: BTreeMap<u32, Link>,
}

impl Fib {
    /// Takes a change in.
    pub fn apply(&mut self, event: FibEvent) -> Touched {
        match event {
            FibEvent::Route(prefix, route, insert) => self.insert_route(prefix.trunc(), route, insert),
            FibEvent::RouteGone(prefix, route) => self.remove_route(prefix.trunc(), &route),
            FibEvent::Neighbour(ifindex, address, neighbour) => {
                let old = self.neighbours.insert((ifindex, address), neighbour);
                touched(old.and_then(|n| n.mac) != neighbour.mac)
            }
            FibEvent::NeighbourGone(ifindex, address) => {
                touched(self.neighbours.remove(&(ifindex, address)).is_some_and(|n| n.mac.is_some()))
            }
            FibEvent::Link(ifindex, link) => {
                let changed = self.links.get(&ifindex) != Some(&link);
                self.links.insert(ifindex, link);
                touched(changed)
            }
            FibEvent::LinkGone(ifindex) => touched(self.links.remove(&ifindex).is_some()),
        }
    }

    fn insert_route(&mut self, prefix: Ipv6Net, route: Route, insert: Insert) -> Touched {
        let routes = self.routes.entry(prefix).or_default();
        let same = |r: &Route| {
            r.metric == route.metric
                && (insert == Insert::Replace
                    || r.kind == route.kind
                    || (r.is_multipath() && route.is_multipath()))
        };
        // The kernel tells a route with several gateways whole each time a hop joins it.
        if let Some(old) = routes.iter_mut().find(|r| same(r)) {
            let changed = *old != route;
            *old = route;
            return if changed { Touched::Prefix(prefix) } else { Touched::Nothing };
        }
        let place = routes.partition_point(|r| r.metric <= route.metric);
        routes.insert(place, route);
        Touched::Prefix(prefix)
    }

    fn remove_route(&mut self, prefix: Ipv6Net, gone: &Route) -> Touched {
        let Some(routes) = self.routes.get_mut(&prefix) else { return Touched::Nothing };
        let count = routes.len();
        let mut changed = false;
        routes.retain_mut(|route| {
            if route.metric != gone.metric || changed {
                return true;
            }
            match (&mut route.kind, &gone.kind) {
                (RouteKind::Unicast(hops), RouteKind::Unicast(gone)) => {
                    let before = hops.len();
                    hops.retain(|h| !gone.iter().any(|g| g.via == h.via && g.oif == h.oif));
                    changed = hops.len() != before;
                    !hops.is_empty()
                }
                (kind, gone) => {
                    changed = kind == gone;
                    !changed
                }
            }
        });
        if routes.is_empty() && count > 0 {
            self.routes.remove(&prefix);
        }
        if changed { Touched::Prefix(prefix) } else { Touched::Nothing }
    }

    /// Where a SID leads by the kernel's rules: the longest prefix, the smallest metric, then all hops of that route
    /// whose link is up. A route none of whose links is up is passed over. Of the hops only those on `allowed`
    /// interfaces count.
    pub fn lookup(&self, sid: Sid, allowed: &BTreeSet<u32>) -> Lookup {
        let mut covering: Vec<_> = self.routes.cover(&Ipv6Net::from(sid.0)).collect();
        while let Some((_, routes)) = covering.pop() {
            for route in routes {
                let RouteKind::Unicast(hops) = &route.kind else { return Lookup::default() };
                let mut up = hops
                    .iter()
                    .filter_map(|h| self.links.get(&h.oif).filter(|link| link.up).map(|link| (h, link)))
                    .peekable();
                if up.peek().is_some() {
                    return self.resolve_hops(sid, up.filter(|(h, _)| allowed.contains(&h.oif)));
                }
            }
        }
        Lookup::default()
    }

    /// Where a SID leads; see [`Fib::lookup`].
    pub fn resolve(&self, sid: Sid, allowed: &BTreeSet<u32>) -> Resolution {
        self.lookup(sid, allowed).resolution
    }

    fn resolve_hops<'a>(&self, sid: Sid, hops: impl Iterator<Item = (&'a Hop, &'a Link)>) -> Lookup {
        let mut lookup = Lookup::default();
        let mut weighted: Vec<(ResolvedHop, usize)> = Vec::new();
        for (hop, link) in hops {
            let Some(own) = link.mac else { continue };
            let key = (hop.oif, hop.via.unwrap_or(sid.0));
            lookup.neighbours.push(key);
            if let Some(mac) = self.neighbours.get(&key).and_then(|n| n.mac) {
                let mut macs = [0; 12];
                macs[..6].copy_from_slice(&mac);
                macs[6..].copy_from_slice(&own);
                let mtu = hop.mtu.map_or(link.mtu, |mtu| mtu.min(link.mtu));
                weighted.push((ResolvedHop { ifindex: hop.oif, macs, mtu }, usize::from(hop.weight.max(1))));
            } else {
                lookup.resolution.pending.push(key);
            }
        }
        lookup.neighbours.sort_unstable();
        lookup.neighbours.dedup();
        lookup.resolution.pending.sort_unstable();
        lookup.resolution.pending.dedup();
        weighted.sort_unstable();
        lookup.resolution.hops = spread(&weighted);
        lookup
    }

    /// Interfaces with these names.
    pub fn ifindexes(&self, names: &BTreeSet<String>) -> BTreeSet<u32> {
        self.links
            .iter()
            .filter(|(_, link)| names.contains(&link.name))
            .map(|(&ifindex, _)| ifindex)
            .collect()
    }
    /// A neighbour.
    pub fn neighbour(&self, ifindex: u32, address: Ipv6Addr) -> Option<&Neighbour> {
        self.neighbours.get(&(ifindex, address))
    }
    /// An interface.
    pub fn link(&self, ifindex: u32) -> Option<&Link> {
        self.links.get(&ifindex)
    }
    /// Number of prefixes.
    pub fn prefixes(&self) -> usize {
        self.routes.len()
    }
}

impl Route {
    /// Whether further gateways of the same metric join this route rather than stand beside it.
    fn is_multipath(&self) -> bool {
        matches!(&self.kind, RouteKind::Unicast(hops) if hops.iter().all(|h| h.via.is_some()))
    }
}

fn touched(changed: bool) -> Touched {
    if changed { Touched::All } else { Touched::Nothing }
}

/// Writes weights as repetitions, at most [`MAX_HOPS`] in all.
fn spread(weighted: &[(ResolvedHop, usize)]) -> Vec<ResolvedHop> {
    let divisor = weighted.iter().map(|w| w.1).fold(0, gcd).max(1);
    let total = weighted.iter().map(|w| w.1 / divisor).sum::<usize>();
    let repeat = |weight: usize| {
        let weight = weight / divisor;
        if total <= MAX_HOPS { weight } else { (weight * MAX_HOPS / total).max(1) }
    };
    let mut hops: Vec<_> =
        weighted.iter().flat_map(|&(hop, w)| std::iter::repeat_n(hop, repeat(w))).collect();
    hops.truncate(MAX_HOPS);
    hops
}

fn gcd(a: usize, b: usize) -> usize {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    pub(crate) fn sid(text: &str) -> Sid {
        Sid(text.parse().unwrap())
    }
    pub(crate) fn net(text: &str) -> Ipv6Net {
        text.parse().unwrap()
    }
    pub(crate) fn mac(last: u8) -> [u8; 6] {
        [2, 0, 0, 0, 0, last]
    }
    pub(crate) fn via(oif: u32, via: &str) -> Hop {
        Hop { via: Some(via.parse().unwrap()), oif, weight: 1, mtu: None }
    }
    pub(crate) fn unicast(metric: u32, hops: &[Hop]) -> Route {
        Route { metric, kind: RouteKind::Unicast(hops.to_vec()) }
    }
    pub(crate) fn add(prefix: &str, route: Route) -> FibEvent {
        FibEvent::Route(net(prefix), route, Insert::Add)
    }
    pub(crate) fn neighbour(oif: u32, address: &str, last: u8) -> FibEvent {
        let mac = (last != 0).then(|| mac(last));
        FibEvent::Neighbour(
            oif,
            address.parse().unwrap(),
            Neighbour { mac, probing: false, upkeep: Upkeep::Managed },
        )
    }
    pub(crate) fn link(ifindex: u32, up: bool) -> FibEvent {
        let link = Link { name: format!("eth{ifindex}"), mac: Some(mac(100 + ifindex as u8)), mtu: 1500, up };
        FibEvent::Link(ifindex, link)
    }
    pub(crate) fn hop(ifindex: u32, last: u8) -> ResolvedHop {
        let mut macs = [0; 12];
        macs[..6].copy_from_slice(&mac(last));
        macs[6..].copy_from_slice(&mac(100 + ifindex as u8));
        ResolvedHop { ifindex, macs, mtu: 1500 }
    }

    /// Links 1–3 up, neighbours fe80::1..3 known on each.
    pub(crate) fn fib(events: impl IntoIterator<Item = FibEvent>) -> Fib {
        let mut fib = Fib::default();
        for ifindex in 1..=3 {
            fib.apply(link(ifindex, true));
            fib.apply(neighbour(ifindex, &format!("fe80::{ifindex}"), ifindex as u8));
        }
        for event in events {
            fib.apply(event);
        }
        fib
    }

    const SID: &str = "2001:db8:ff01:2:e001::";

    fn hops(fib: &Fib) -> Vec<ResolvedHop> {
        fib.resolve(sid(SID), &BTreeSet::from([1, 2])).hops
    }

    #[test]
    fn longest_prefix_then_smallest_metric_wins() {
        let mut fib = fib([
            add("::/0", unicast(1, &[via(1, "fe80::1")])),
            add("2001:db8:ff01:2::/64", unicast(1024, &[via(2, "fe80::2")])),
            add("2001:db8:ff01:3::/64", unicast(1, &[via(1, "fe80::1")])),
        ]);
        assert_eq!(hops(&fib), [hop(2, 2)]);
        fib.apply(add("2001:db8:ff01:2::/64", unicast(20, &[via(1, "fe80::1")])));
        assert_eq!(hops(&fib), [hop(1, 1)]);
        fib.apply(FibEvent::RouteGone(net("2001:db8:ff01:2::/64"), unicast(20, &[via(1, "fe80::1")])));
        assert_eq!(hops(&fib), [hop(2, 2)]);
        fib.apply(FibEvent::RouteGone(net("2001:db8:ff01:2::/64"), unicast(1024, &[via(2, "fe80::2")])));
        assert_eq!(hops(&fib), [hop(1, 1)]);
        assert_eq!(fib.prefixes(), 2);
    }

    #[test]
    fn a_hop_joins_and_leaves_a_multipath_route() {
        let mut fib = fib([add("2001:db8::/32", unicast(20, &[via(1, "fe80::1")]))]);
        fib.apply(add("2001:db8::/32", unicast(20, &[via(1, "fe80::1"), via(2, "fe80::2")])));
        assert_eq!(hops(&fib), [hop(1, 1), hop(2, 2)]);
        fib.apply(FibEvent::RouteGone(net("2001:db8::/32"), unicast(20, &[via(1, "fe80::1")])));
        assert_eq!(hops(&fib), [hop(2, 2)]);
        fib.apply(FibEvent::Route(net("2001:db8::/32"), unicast(20, &[via(1, "fe80::1")]), Insert::Replace));
        assert_eq!(hops(&fib), [hop(1, 1)]);
    }

    #[test]
    fn reject_and_unsupported_routes_end_the_lookup() {
        for kind in [RouteKind::Reject, RouteKind::Unsupported] {
            let route = Route { metric: 1024, kind };
            let mut fib = fib([
                add("::/0", unicast(1, &[via(1, "fe80::1")])),
                add("2001:db8:ff01::/48", route.clone()),
            ]);
            assert_eq!(fib.lookup(sid(SID), &BTreeSet::from([1])), Lookup::default());
            fib.apply(FibEvent::RouteGone(net("2001:db8:ff01::/48"), route));
            assert_eq!(hops(&fib), [hop(1, 1)]);
        }
    }

    #[test]
    fn a_link_that_is_down_takes_its_hops_away() {
        let mut fib = fib([
            add("::/0", unicast(1, &[via(1, "fe80::1")])),
            add("2001:db8::/32", unicast(1, &[via(1, "fe80::1"), via(2, "fe80::2")])),
            add("2001:db8:ff01::/48", unicast(1, &[via(2, "fe80::2")])),
        ]);
        assert_eq!(hops(&fib), [hop(2, 2)]);
        fib.apply(link(2, false));
        assert_eq!(hops(&fib), [hop(1, 1)]);
        fib.apply(FibEvent::LinkGone(1));
        assert_eq!(hops(&fib), []);
    }

    #[test]
    fn other_interfaces_get_nothing() {
        let mut fib = fib([add("2001:db8::/32", unicast(1, &[via(3, "fe80::3"), via(1, "fe80::1")]))]);
        assert_eq!(hops(&fib), [hop(1, 1)]);
        // ... and a route that leads out of an interface that is not ours is not replaced by a shorter one.
        fib.apply(add("::/0", unicast(1, &[via(1, "fe80::1")])));
        fib.apply(add("2001:db8:ff01::/48", unicast(1, &[via(3, "fe80::3")])));
        assert_eq!(fib.lookup(sid(SID), &BTreeSet::from([1, 2])), Lookup::default());
    }

    #[test]
    fn unresolved_hops_are_pending_while_others_serve() {
        let mut fib = fib([
            add("2001:db8::/32", unicast(1, &[via(1, "fe80::1"), via(2, "fe80::99")])),
            neighbour(2, "fe80::99", 0),
        ]);
        let lookup = fib.lookup(sid(SID), &BTreeSet::from([1, 2]));
        assert_eq!(lookup.resolution.hops, [hop(1, 1)]);
        let pending = [(2, "fe80::99".parse().unwrap())];
        assert_eq!(lookup.resolution.pending, pending);
        assert_eq!(lookup.neighbours, [(1, "fe80::1".parse().unwrap()), pending[0]]);
        fib.apply(neighbour(2, "fe80::99", 9));
        assert_eq!(hops(&fib), [hop(1, 1), hop(2, 9)]);
        fib.apply(FibEvent::NeighbourGone(2, "fe80::99".parse().unwrap()));
        assert_eq!(hops(&fib), [hop(1, 1)]);
    }

    #[test]
    fn an_on_link_sid_is_its_own_neighbour() {
        let on_link = Hop { via: None, oif: 1, weight: 1, mtu: None };
        let mut fib = fib([add("2001:db8:ff01:2::/64", unicast(256, &[on_link]))]);
        assert_eq!(fib.resolve(sid(SID), &BTreeSet::from([1])).pending, [(1, sid(SID).0)]);
        fib.apply(neighbour(1, SID, 7));
        assert_eq!(hops(&fib), [hop(1, 7)]);
    }

    #[test]
    fn mtu_is_the_smaller_of_link_and_route() {
        for (route, want) in [(None, 1500), (Some(1400), 1400), (Some(9000), 1500)] {
            let fib = fib([add("::/0", unicast(1, &[Hop { mtu: route, ..via(1, "fe80::1") }]))]);
            assert_eq!(hops(&fib)[0].mtu, want);
        }
    }

    #[test]
    fn weights_become_repetitions_within_the_bound() {
        let weighted = |a, b| {
            let hops = [Hop { weight: a, ..via(1, "fe80::1") }, Hop { weight: b, ..via(2, "fe80::2") }];
            let got = super::tests::hops(&fib([add("::/0", unicast(1, &hops))]));
            (got.iter().filter(|h| h.ifindex == 1).count(), got.iter().filter(|h| h.ifindex == 2).count())
        };
        assert_eq!(weighted(1, 1), (1, 1));
        assert_eq!(weighted(4, 6), (2, 3));
        assert_eq!(weighted(256, 1), (63, 1));
        assert_eq!(weighted(256, 255), (32, 31));
    }

    #[test]
    fn hops_come_in_one_order_whatever_the_routes() {
        let one = fib([add("::/0", unicast(1, &[via(1, "fe80::1"), via(2, "fe80::2")]))]);
        let other = fib([add("::/0", unicast(1, &[via(2, "fe80::2"), via(1, "fe80::1")]))]);
        assert_eq!(hops(&one), hops(&other));
    }
}
