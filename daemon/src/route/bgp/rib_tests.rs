//! Tests of the Adj-RIB-Out: what UPDATEs hold, how full they are, and that a peer following them has what is wanted.

use std::net::Ipv6Addr;

use proptest::prelude::*;
use rustbgpd_wire::{Message, decode_message, encode_message};

use super::*;
use crate::route::bgp::test_support::peer;
use crate::route::config::LargeCommunity as Large;

const EXTERNAL: u32 = 65000;
const OWN: u32 = 65010;

fn session(peer_asn: u32, extended_next_hop: bool) -> NegotiatedSession {
    let mut session = NegotiatedSession::default();
    session.peer_asn = peer_asn;
    session.four_octet_as = true;
    session.negotiated_families = vec![(Afi::Ipv6, Safi::Unicast), (Afi::Ipv4, Safi::Unicast)];
    if extended_next_hop {
        session.extended_nexthop_families.insert((Afi::Ipv4, Safi::Unicast), Afi::Ipv6);
    }
    session
}

fn rib(peer_asn: u32, local: &str, extended_next_hop: bool) -> AdjRibOut {
    rib_of(&peer(), peer_asn, local, extended_next_hop)
}

fn rib_of(peer: &PeerConfig, peer_asn: u32, local: &str, extended_next_hop: bool) -> AdjRibOut {
    AdjRibOut::new(Encoding::new(OWN, local.parse().unwrap(), peer, &session(peer_asn, extended_next_hop)))
}

fn attributes(communities: &[u32]) -> Arc<RouteAttributes> {
    let large = BTreeSet::from([Large(OWN, 1, 7)]);
    Arc::new(RouteAttributes { communities: communities.iter().copied().collect(), large })
}

fn v6(n: u32) -> IpNet {
    let base = u128::from("2001:db8:b::".parse::<Ipv6Addr>().unwrap());
    IpNet::from(IpAddr::from(Ipv6Addr::from(base + u128::from(n))))
}

/// What a peer holds after decoding messages from the wire.
#[derive(Default)]
struct Peer {
    routes: BTreeMap<Prefix, Vec<PathAttribute>>,
}

impl Peer {
    /// Returns the message's length and how many routes it announced and withdrew.
    fn take(&mut self, update: UpdateMessage) -> (usize, usize, usize) {
        let mut wire = encode_message(&Message::Update(update)).unwrap().freeze();
        let length = wire.len();
        let Message::Update(update) = decode_message(&mut wire, MAX_MESSAGE_LEN).unwrap() else { panic!() };
        let parsed = update.parse(true, false, &[]).unwrap();
        let (mut add, mut del) = (vec![], vec![]);
        add.extend(parsed.announced.iter().map(|e| Prefix::V4(e.prefix)));
        del.extend(parsed.withdrawn.iter().map(|e| Prefix::V4(e.prefix)));
        let mut rest = vec![];
        for attribute in parsed.attributes {
            match attribute {
                PathAttribute::MpReachNlri(mut reach) => {
                    add.extend(std::mem::take(&mut reach.announced).into_iter().map(|e| e.prefix));
                    rest.push(PathAttribute::MpReachNlri(reach));
                }
                PathAttribute::MpUnreachNlri(unreach) => {
                    del.extend(unreach.withdrawn.iter().map(|e| e.prefix));
                }
                other => rest.push(other),
            }
        }
        for prefix in &del {
            self.routes.remove(prefix);
        }
        for prefix in &add {
            self.routes.insert(*prefix, rest.clone());
        }
        (length, add.len(), del.len())
    }

    fn take_all(&mut self, rib: &mut AdjRibOut) -> Vec<(usize, usize, usize)> {
        std::iter::from_fn(|| rib.next_update().unwrap()).map(|update| self.take(update)).collect()
    }
}

#[test]
fn ten_thousand_host_routes_fill_each_update_with_220_or_more() {
    let mut rib = rib(EXTERNAL, "2001:db8:11::2", false);
    let mut peer = Peer::default();
    rib.want((0..10_000).map(|n| (v6(n), attributes(&[1]))).collect());
    let sizes = peer.take_all(&mut rib);
    assert!(sizes.iter().all(|&(length, _, _)| length <= 4096));
    let (last, full) = sizes.split_last().unwrap();
    assert!(full.iter().all(|&(length, add, _)| add >= 220 && length > 4096 - 18), "{sizes:?}");
    assert!(last.1 > 0);
    assert_eq!((peer.routes.len(), rib.sent()), (10_000, 10_000));

    rib.want(Routes::new());
    let sizes = peer.take_all(&mut rib);
    assert!(sizes.iter().all(|&(length, _, _)| length <= 4096));
    assert!(sizes.len() <= 10_000 / 220 + 1);
    assert!(peer.routes.is_empty());
}

/// Communities take 4 bytes and prefixes 17, so one of the counts leaves exactly no room.
#[test]
fn no_number_of_communities_makes_an_update_too_long() {
    for communities in 0..=17 {
        let communities: Vec<u32> = (0..communities).collect();
        let mut rib = rib(EXTERNAL, "2001:db8:11::2", false);
        let mut peer = Peer::default();
        rib.want((0..300).map(|n| (v6(n), attributes(&communities))).collect());
        assert!(peer.take_all(&mut rib).iter().all(|&(length, _, _)| length <= 4096));
        assert_eq!(peer.routes.len(), 300);
    }
}

#[test]
fn external_peers_get_our_as_and_internal_ones_a_preference() {
    for (asn, path, preference) in [(EXTERNAL, vec![OWN], None), (OWN, vec![], Some(LOCAL_PREF))] {
        let mut rib = rib(asn, "2001:db8:11::2", false);
        let mut peer = Peer::default();
        rib.want(Routes::from([(v6(1), attributes(&[0xffff_0000]))]));
        peer.take_all(&mut rib);
        let got = peer.routes.values().next().unwrap();
        let mut seen = (None, None, None, None, None);
        for attribute in got {
            match attribute {
                PathAttribute::AsPath(p) => seen.0 = Some(p.asns().collect::<Vec<_>>()),
                PathAttribute::LocalPref(p) => seen.1 = Some(*p),
                PathAttribute::Communities(c) => seen.2 = Some(c.clone()),
                PathAttribute::LargeCommunities(c) => seen.3 = Some(c.clone()),
                PathAttribute::MpReachNlri(r) => seen.4 = Some(r.next_hop),
                _ => {}
            }
        }
        assert_eq!(seen.0, Some(path));
        assert_eq!(seen.1, preference);
        assert_eq!(seen.2, Some(vec![0xffff_0000]));
        assert_eq!(seen.3, Some(vec![LargeCommunity::new(OWN, 1, 7)]));
        assert_eq!(seen.4, Some("2001:db8:11::2".parse().unwrap()));
    }
}

#[test]
fn ipv4_travels_in_the_body_over_ipv4_and_by_rfc_8950_over_ipv6_and_not_at_all_without_it() {
    let routes: Routes = [(IpNet::from(IpAddr::from([203, 0, 113, 7])), attributes(&[]))].into();
    for (local, extended, count) in
        [("192.0.2.2", false, 1), ("2001:db8:11::2", true, 1), ("2001:db8:11::2", false, 0)]
    {
        let mut rib = rib(EXTERNAL, local, extended);
        let mut peer = Peer::default();
        rib.want(routes.clone());
        peer.take_all(&mut rib);
        assert_eq!(peer.routes.len(), count, "{local} {extended}");
        assert_eq!(rib.unsendable(), 1 - count);
        let next_hop = |a: &PathAttribute| match a {
            PathAttribute::NextHop(n) => Some(IpAddr::V4(*n)),
            PathAttribute::MpReachNlri(r) => Some(r.next_hop),
            _ => None,
        };
        for got in peer.routes.values() {
            assert_eq!(got.iter().find_map(next_hop), Some(local.parse().unwrap()));
        }
        rib.want(Routes::new());
        peer.take_all(&mut rib);
        assert!(peer.routes.is_empty(), "{local}: withdrawn the same way");
    }
}

/// Both families on a session of either, with next hops from the configuration: each in the form that the router understands
/// without RFC 8950.
#[test]
fn a_configured_next_hop_makes_a_session_carry_the_other_family() {
    let v4 = IpNet::from(IpAddr::from([203, 0, 113, 7]));
    let routes: Routes = [(v4, attributes(&[])), (v6(1), attributes(&[]))].into();
    let mut with = peer();
    with.next_hop_ipv4 = Some([192, 0, 2, 9].into());
    with.next_hop_ipv6 = Some("2001:db8:11::9".parse().unwrap());
    for local in ["192.0.2.2", "2001:db8:11::2"] {
        for extended in [false, true] {
            let mut rib = rib_of(&with, EXTERNAL, local, extended);
            assert_eq!(rib.carries(), Families { ipv4: true, ipv6: true });
            let mut peer = Peer::default();
            rib.want(routes.clone());
            peer.take_all(&mut rib);
            assert_eq!((peer.routes.len(), rib.unsendable()), (2, 0), "{local} {extended}");
            for (prefix, attributes) in &peer.routes {
                let body = attributes.iter().find_map(|a| match a {
                    PathAttribute::NextHop(n) => Some(*n),
                    _ => None,
                });
                let multiprotocol = attributes.iter().find_map(|a| match a {
                    PathAttribute::MpReachNlri(r) => Some(r.next_hop),
                    _ => None,
                });
                let want = match prefix {
                    Prefix::V4(_) => (with.next_hop_ipv4, None),
                    Prefix::V6(_) => (None, with.next_hop_ipv6.map(IpAddr::V6)),
                };
                assert_eq!((body, multiprotocol), want, "{local} {extended} {prefix}");
            }
            rib.want(Routes::new());
            peer.take_all(&mut rib);
            assert!(peer.routes.is_empty(), "{local}: withdrawn the same way");
        }
        let without = rib_of(&super::super::test_support::peer(), EXTERNAL, local, false);
        let ipv4 = local.starts_with("192");
        assert_eq!(without.carries(), Families { ipv4, ipv6: !ipv4 });
    }
    // What the router has not negotiated no next hop brings it.
    let mut ipv6_only = session(EXTERNAL, false);
    ipv6_only.negotiated_families.retain(|f| f.0 == Afi::Ipv6);
    let encoding = Encoding::new(OWN, "2001:db8:11::2".parse().unwrap(), &with, &ipv6_only);
    assert_eq!(encoding.carries(), Families { ipv4: false, ipv6: true });
}

/// What the host routes of IPv4 take is less than what is kept free: a message holds some 800 of them.
#[test]
fn ten_thousand_ipv4_host_routes_fill_each_update_in_either_form() {
    let v4 = |n: u32| IpNet::from(IpAddr::from(std::net::Ipv4Addr::from(0xcb00_7100 + n)));
    for (local, extended) in [("192.0.2.2", false), ("2001:db8:11::2", true)] {
        let mut rib = rib(EXTERNAL, local, extended);
        let mut peer = Peer::default();
        rib.want((0..10_000).map(|n| (v4(n), attributes(&[1]))).collect());
        let sizes = peer.take_all(&mut rib);
        assert!(sizes.iter().all(|&(length, _, _)| length <= 4096), "{local}");
        let (_, full) = sizes.split_last().unwrap();
        assert!(full.iter().all(|&(_, add, _)| add >= 780), "{local}: {sizes:?}");
        rib.want(Routes::new());
        assert!(peer.take_all(&mut rib).iter().all(|&(length, _, _)| length <= 4096), "{local}");
        assert!(peer.routes.is_empty(), "{local}");
    }
}

#[test]
fn a_refresh_sends_everything_of_the_family_again_and_nothing_else() {
    let mut rib = rib(EXTERNAL, "2001:db8:11::2", true);
    let mut peer = Peer::default();
    let mut routes: Routes = (0..300).map(|n| (v6(n), attributes(&[]))).collect();
    routes.insert("203.0.113.0/24".parse().unwrap(), attributes(&[]));
    rib.want(routes);
    peer.take_all(&mut rib);
    rib.refresh(Afi::Ipv6);
    let announced: usize = peer.take_all(&mut rib).iter().map(|s| s.1).sum();
    assert_eq!(announced, 300);
    assert!(peer.take_all(&mut rib).is_empty());
}

#[test]
fn an_unchanged_want_sends_nothing() {
    let mut rib = rib(EXTERNAL, "2001:db8:11::2", false);
    let routes: Routes = (0..300).map(|n| (v6(n), attributes(&[]))).collect();
    rib.want(routes.clone());
    Peer::default().take_all(&mut rib);
    rib.want(routes);
    assert!(rib.next_update().unwrap().is_none());
}

#[test]
fn end_of_rib_is_an_empty_update_for_ipv4_and_an_empty_mp_unreach_for_ipv6() {
    let markers = end_of_rib(&session(EXTERNAL, false)).unwrap();
    let wire: Vec<_> = markers.iter().map(|m| (m.path_attributes.to_vec(), m.nlri.len())).collect();
    assert_eq!(wire, [(vec![0x80, 15, 3, 0, 2, 1], 0), (vec![], 0)]);
}

proptest! {
    /// Wants may change while only part of the UPDATEs for the one before have left.
    #[test]
    fn a_peer_that_follows_the_updates_has_what_is_wanted(
        wants in proptest::collection::vec((proptest::collection::btree_map(0u32..400, 0u32..3, 0..400), 0usize..4, any::<bool>()), 1..8),
    ) {
        let mut rib = rib(EXTERNAL, "2001:db8:11::2", false);
        let mut peer = Peer::default();
        let last = wants.len() - 1;
        for (i, (want, partial, refresh)) in wants.into_iter().enumerate() {
            let want: Routes = want.into_iter().map(|(n, c)| (v6(n), attributes(&[c]))).collect();
            rib.want(want.clone());
            if refresh {
                rib.refresh(Afi::Ipv6);
            }
            let limit = if i == last { usize::MAX } else { partial };
            for _ in 0..limit {
                let Some(update) = rib.next_update().unwrap() else { break };
                peer.take(update);
            }
            if i == last {
                let got: BTreeMap<_, _> = peer.routes.iter().map(|(p, a)| {
                    let communities = a.iter().find_map(|a| a.communities().map(<[u32]>::to_vec)).unwrap();
                    (p.to_string(), communities)
                }).collect();
                let want: BTreeMap<_, _> = want.iter().map(|(p, a)| {
                    (p.to_string(), a.communities.iter().copied().collect::<Vec<_>>())
                }).collect();
                prop_assert_eq!(got, want);
            }
        }
    }
}
