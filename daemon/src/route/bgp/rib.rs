//! What one session has been sent (Adj-RIB-Out), and the UPDATEs that make it equal to the plan.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use ipnet::IpNet;
use rustbgpd_fsm::NegotiatedSession;
use rustbgpd_wire::{
    Afi, AsPath, AsPathSegment, EncodeError, Ipv4NlriEntry, Ipv4Prefix, Ipv4UnicastMode, Ipv6Prefix,
    LargeCommunity, MAX_MESSAGE_LEN, MpReachNlri, MpUnreachNlri, NlriEntry, Origin, PathAttribute, Prefix,
    Safi, UpdateMessage,
};

use crate::model::Families;
use crate::route::{PeerConfig, RouteAttributes, Routes};

/// LOCAL_PREF for iBGP peers: the usual default, equal at every gateway so that all share the load.
const LOCAL_PREF: u32 = 100;

/// How routes of one family travel on a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Carriage {
    /// Not at all: not negotiated, or our address cannot be its next hop.
    None,
    /// IPv4 in the UPDATE's own fields (RFC 4271).
    Body(Ipv4Addr),
    /// In MP_REACH_NLRI (RFC 4760; IPv4 with an IPv6 next hop: RFC 8950).
    Multiprotocol(IpAddr),
}

/// What a session's OPENs and addresses decide about its UPDATEs.
#[derive(Clone, Debug)]
pub(super) struct Encoding {
    asn: u32,
    internal: bool,
    four_octet_as: bool,
    ipv4: Carriage,
    ipv6: Carriage,
}

impl Encoding {
    /// `local` is the session's own address, which becomes the next hop of a family that the peer's settings give none.
    pub(super) fn new(asn: u32, local: IpAddr, peer: &PeerConfig, session: &NegotiatedSession) -> Self {
        let negotiated = |afi| session.negotiated_families.contains(&(afi, Safi::Unicast));
        let extended = session.extended_nexthop_families.contains_key(&(Afi::Ipv4, Safi::Unicast));
        let ipv4 = match peer.next_hop_ipv4.map_or(local, IpAddr::V4) {
            _ if !negotiated(Afi::Ipv4) => Carriage::None,
            IpAddr::V4(next_hop) => Carriage::Body(next_hop),
            IpAddr::V6(_) if extended => Carriage::Multiprotocol(local),
            IpAddr::V6(_) => Carriage::None,
        };
        let ipv6 = match peer.next_hop_ipv6.map_or(local, IpAddr::V6) {
            next_hop @ IpAddr::V6(_) if negotiated(Afi::Ipv6) => Carriage::Multiprotocol(next_hop),
            _ => Carriage::None,
        };
        let internal = session.peer_asn == asn;
        Self { asn, internal, four_octet_as: session.four_octet_as, ipv4, ipv6 }
    }

    /// Families that travel at all.
    pub(super) fn carries(&self) -> Families {
        Families { ipv4: self.ipv4 != Carriage::None, ipv6: self.ipv6 != Carriage::None }
    }

    fn carriage(&self, afi: Afi) -> Carriage {
        if afi == Afi::Ipv4 { self.ipv4 } else { self.ipv6 }
    }

    fn attributes(&self, route: &RouteAttributes) -> Vec<PathAttribute> {
        let segments = if self.internal { vec![] } else { vec![AsPathSegment::AsSequence(vec![self.asn])] };
        let mut list = vec![PathAttribute::Origin(Origin::Igp), PathAttribute::AsPath(AsPath { segments })];
        if self.internal {
            list.push(PathAttribute::LocalPref(LOCAL_PREF));
        }
        if !route.communities.is_empty() {
            list.push(PathAttribute::Communities(route.communities.iter().copied().collect()));
        }
        if !route.large.is_empty() {
            let large = route.large.iter().map(|c| LargeCommunity::new(c.0, c.1, c.2)).collect();
            list.push(PathAttribute::LargeCommunities(large));
        }
        list
    }

    fn reach(
        &self,
        afi: Afi,
        route: &RouteAttributes,
        prefixes: &[IpNet],
    ) -> Result<UpdateMessage, EncodeError> {
        let mut attributes = self.attributes(route);
        let mut body = Vec::new();
        match self.carriage(afi) {
            Carriage::None => {}
            Carriage::Body(next_hop) => {
                attributes.insert(2, PathAttribute::NextHop(next_hop));
                body = body_nlri(prefixes);
            }
            Carriage::Multiprotocol(next_hop) => {
                attributes.push(PathAttribute::MpReachNlri(Box::new(mp_reach(afi, next_hop, prefixes))));
            }
        }
        self.build(&body, &[], &attributes)
    }

    fn unreach(&self, afi: Afi, prefixes: &[IpNet]) -> Result<UpdateMessage, EncodeError> {
        match self.carriage(afi) {
            Carriage::Body(_) => self.build(&[], &body_nlri(prefixes), &[]),
            _ => self.build(&[], &[], &[PathAttribute::MpUnreachNlri(Box::new(mp_unreach(afi, prefixes)))]),
        }
    }

    fn build(
        &self,
        announced: &[Ipv4NlriEntry],
        withdrawn: &[Ipv4NlriEntry],
        attributes: &[PathAttribute],
    ) -> Result<UpdateMessage, EncodeError> {
        let mode = Ipv4UnicastMode::Body;
        UpdateMessage::try_build(announced, withdrawn, attributes, self.four_octet_as, false, mode)
    }
}

/// End-of-RIB markers of the negotiated families (RFC 4724 section 2).
pub(super) fn end_of_rib(session: &NegotiatedSession) -> Result<Vec<UpdateMessage>, EncodeError> {
    let mut markers = Vec::new();
    for &(afi, safi) in &session.negotiated_families {
        let attributes = if afi == Afi::Ipv4 {
            vec![]
        } else {
            vec![PathAttribute::MpUnreachNlri(Box::new(MpUnreachNlri { safi, ..mp_unreach(afi, &[]) }))]
        };
        let mode = Ipv4UnicastMode::Body;
        markers.push(UpdateMessage::try_build(&[], &[], &attributes, true, false, mode)?);
    }
    Ok(markers)
}

/// Routes that wait for an UPDATE, of one family and with equal attributes.
#[derive(Debug)]
struct Batch {
    afi: Afi,
    attributes: Arc<RouteAttributes>,
    prefixes: VecDeque<IpNet>,
}

/// Adj-RIB-Out of one session.
#[derive(Debug)]
pub(super) struct AdjRibOut {
    encoding: Encoding,
    want: Routes,
    sent: Routes,
    /// Sent, and asked for again by a route refresh.
    again: BTreeSet<IpNet>,
    withdraw: VecDeque<IpNet>,
    announce: VecDeque<Batch>,
    unsendable: usize,
}

impl AdjRibOut {
    /// Nothing sent yet.
    pub(super) fn new(encoding: Encoding) -> Self {
        Self {
            encoding,
            want: Routes::new(),
            sent: Routes::new(),
            again: BTreeSet::new(),
            withdraw: VecDeque::new(),
            announce: VecDeque::new(),
            unsendable: 0,
        }
    }

    /// Sets what the peer should have.
    pub(super) fn want(&mut self, routes: Routes) {
        let all = routes.len();
        let encoding = &self.encoding;
        self.want =
            routes.into_iter().filter(|(p, _)| encoding.carriage(afi_of(p)) != Carriage::None).collect();
        self.unsendable = all - self.want.len();
        self.again.retain(|prefix| self.want.contains_key(prefix));
        self.compare();
    }

    /// Answers a route refresh (RFC 2918): all routes of the family are sent again.
    pub(super) fn refresh(&mut self, afi: Afi) {
        self.again.extend(self.sent.keys().filter(|p| afi_of(p) == afi && self.want.contains_key(p)));
        self.compare();
    }

    fn compare(&mut self) {
        self.withdraw = self.sent.keys().filter(|p| !self.want.contains_key(p)).copied().collect();
        let mut batches: BTreeMap<(u16, &RouteAttributes), Batch> = BTreeMap::new();
        for (prefix, attributes) in &self.want {
            if self.sent.get(prefix) == Some(attributes) && !self.again.contains(prefix) {
                continue;
            }
            let afi = afi_of(prefix);
            batches
                .entry((afi as u16, attributes))
                .or_insert_with(|| Batch {
                    afi,
                    attributes: Arc::clone(attributes),
                    prefixes: VecDeque::new(),
                })
                .prefixes
                .push_back(*prefix);
        }
        self.announce = batches.into_values().collect();
    }

    /// The next UPDATE, as full as one message can be; `None` when the peer has everything. Counts as sent.
    ///
    /// # Errors
    /// Attributes that cannot be encoded, such as communities that leave no room for a prefix.
    pub(super) fn next_update(&mut self) -> Result<Option<UpdateMessage>, EncodeError> {
        if let Some(first) = self.withdraw.front() {
            let afi = afi_of(first);
            let room = room(&self.encoding.unreach(afi, &[])?)?;
            let prefixes = take_fitting(&mut self.withdraw, afi, room);
            for prefix in &prefixes {
                self.sent.remove(prefix);
            }
            return self.encoding.unreach(afi, &prefixes).map(Some);
        }
        let Some(batch) = self.announce.front_mut() else { return Ok(None) };
        let room = room(&self.encoding.reach(batch.afi, &batch.attributes, &[])?)?;
        let prefixes = take_fitting(&mut batch.prefixes, batch.afi, room);
        let update = self.encoding.reach(batch.afi, &batch.attributes, &prefixes)?;
        for prefix in prefixes {
            self.again.remove(&prefix);
            self.sent.insert(prefix, Arc::clone(&batch.attributes));
        }
        if batch.prefixes.is_empty() {
            self.announce.pop_front();
        }
        Ok(Some(update))
    }

    /// Families of which routes can be sent.
    pub(super) fn carries(&self) -> Families {
        self.encoding.carries()
    }

    /// Routes sent and not withdrawn.
    pub(super) fn sent(&self) -> usize {
        self.sent.len()
    }

    /// Wanted routes that this session cannot carry.
    pub(super) fn unsendable(&self) -> usize {
        self.unsendable
    }
}

/// Bytes left for NLRI in a message that has none yet; one byte goes to the longer attribute length field.
fn room(empty: &UpdateMessage) -> Result<usize, EncodeError> {
    let used = empty.encoded_len() + 1;
    let room = usize::from(MAX_MESSAGE_LEN).saturating_sub(used);
    // An IPv6 host route takes 17 bytes; without room for one, nothing would ever be sent.
    if room < 17 { Err(EncodeError::MessageTooLong { size: used + 17 }) } else { Ok(room) }
}

fn take_fitting(queue: &mut VecDeque<IpNet>, afi: Afi, mut room: usize) -> Vec<IpNet> {
    let mut taken = Vec::new();
    while let Some(prefix) = queue.front() {
        let length = 1 + usize::from(prefix.prefix_len().div_ceil(8));
        if afi_of(prefix) != afi || length > room {
            break;
        }
        room -= length;
        taken.push(*prefix);
        queue.pop_front();
    }
    taken
}

fn afi_of(prefix: &IpNet) -> Afi {
    match prefix {
        IpNet::V4(_) => Afi::Ipv4,
        IpNet::V6(_) => Afi::Ipv6,
    }
}

fn body_nlri(prefixes: &[IpNet]) -> Vec<Ipv4NlriEntry> {
    prefixes
        .iter()
        .filter_map(|prefix| match prefix {
            IpNet::V4(net) => {
                Some(Ipv4NlriEntry { path_id: 0, prefix: Ipv4Prefix::new(net.addr(), net.prefix_len()) })
            }
            IpNet::V6(_) => None,
        })
        .collect()
}

fn nlri(prefixes: &[IpNet]) -> Vec<NlriEntry> {
    prefixes
        .iter()
        .map(|prefix| match prefix {
            IpNet::V4(net) => Prefix::V4(Ipv4Prefix::new(net.addr(), net.prefix_len())),
            IpNet::V6(net) => Prefix::V6(Ipv6Prefix::new(net.addr(), net.prefix_len())),
        })
        .map(|prefix| NlriEntry { path_id: 0, prefix })
        .collect()
}

fn mp_reach(afi: Afi, next_hop: IpAddr, prefixes: &[IpNet]) -> MpReachNlri {
    MpReachNlri {
        afi,
        safi: Safi::Unicast,
        next_hop,
        link_local_next_hop: None,
        announced: nlri(prefixes),
        flowspec_announced: vec![],
        evpn_announced: vec![],
        bgpls_announced: vec![],
        vpn_announced: vec![],
        labeled_announced: vec![],
        rtc_announced: vec![],
    }
}

fn mp_unreach(afi: Afi, prefixes: &[IpNet]) -> MpUnreachNlri {
    MpUnreachNlri {
        afi,
        safi: Safi::Unicast,
        withdrawn: nlri(prefixes),
        flowspec_withdrawn: vec![],
        evpn_withdrawn: vec![],
        bgpls_withdrawn: vec![],
        vpn_withdrawn: vec![],
        labeled_withdrawn: vec![],
        rtc_withdrawn: vec![],
    }
}

#[cfg(test)]
#[path = "rib_tests.rs"]
mod tests;
