//! What the worker's maps should hold, with every index chosen: pure. Records that a key leads to are never changed; what
//! changes gets another index.

use std::collections::{BTreeMap, BTreeSet};

use weir_api::checked::Transport;
use weir_bpf::worker_abi::{Binding, Endpoint, Flag, Kind, OWN_ADDRESS, OWN_SID, PortKey, SidKey, SourceKey};

use super::plan::{Delivery, Key, Refusal, Wanted};
use super::{mapped, unmapped};
use crate::config::WorkerLimits;

/// What user space keeps about a binding's index.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// VPC.
    pub vpc: String,
    /// Attachment of the VPC.
    pub attachment: String,
    /// Host side of the endpoint's interface.
    pub interface: String,
    /// Network namespace in which the VIP was placed; empty when it was not.
    pub netns: String,
    /// Bit 0: the worker placed the VIP; bit 1: the IPv4 default route, too.
    pub placed: u8,
}

/// Everything in the maps but counters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// `w_sids`.
    pub sids: BTreeMap<SidKey, u32>,
    /// `w_sources`.
    pub sources: BTreeMap<SourceKey, u32>,
    /// `w_services`.
    pub services: BTreeMap<PortKey, u32>,
    /// `w_ports`.
    pub ports: BTreeMap<u32, u32>,
    /// `w_bindings` and `w_meta`.
    pub bindings: BTreeMap<u32, (Binding, Facts)>,
    /// `w_endpoints`, with the interfaces' names.
    pub endpoints: BTreeMap<u32, (Endpoint, String)>,
}

/// The map form of a key.
pub fn sid_key(key: Key) -> SidKey {
    SidKey { vip: mapped(key.vip), sid: key.sid.to_be_bytes(), pad: [0; 2] }
}

/// The key of "this SID is ours".
fn sid_owner(sid: u16) -> SidKey {
    SidKey { vip: [0; 16], sid: sid.to_be_bytes(), pad: OWN_SID }
}

impl Image {
    /// The same without new SIDs and VIPs: what must stand before packets may come for them.
    #[must_use]
    pub fn without_new(&self, current: &Self) -> Self {
        let sids = self.sids.iter().filter(|(key, index)| current.sids.get(key) == Some(index));
        Self { sids: sids.map(|(key, index)| (*key, *index)).collect(), ..self.clone() }
    }

    /// Host side interfaces and their present indices.
    pub fn interfaces(&self) -> BTreeMap<String, u32> {
        let present = self.endpoints.values().filter(|(e, _)| e.ifindex != 0);
        present.map(|(e, name)| (name.clone(), e.ifindex)).collect()
    }

    /// Index of a delivery.
    pub fn index_of(&self, key: Key) -> Option<u32> {
        self.sids.get(&sid_key(key)).copied()
    }

    /// What each binding is recognised by, by index.
    pub fn keys(&self) -> impl Iterator<Item = (Key, u32)> {
        let real = self.sids.iter().filter(|(key, _)| key.pad != OWN_SID);
        real.map(|(key, index)| (Key { sid: u16::from_be_bytes(key.sid), vip: unmapped(key.vip) }, *index))
    }
}

/// Chooses indices that neither the maps nor the new image use.
struct Free<'a> {
    taken: &'a dyn Fn(u32) -> bool,
    next: u32,
    limit: u32,
}

impl Free<'_> {
    fn take(&mut self) -> Option<u32> {
        while self.next < self.limit && (self.taken)(self.next) {
            self.next += 1;
        }
        let index = self.next;
        self.next += 1;
        (index < self.limit).then_some(index)
    }
}

/// The image for what is wanted, close to what the maps hold now. `present` gives the interfaces that exist; deliveries that
/// find no room are told.
pub fn target(
    wanted: &Wanted,
    present: &BTreeMap<String, u32>,
    current: &Image,
    limits: WorkerLimits,
) -> (Image, BTreeMap<Key, Refusal>) {
    let mut image = Image::default();
    let mut refused = BTreeMap::new();
    let mut free_endpoints =
        Free { taken: &|i| current.endpoints.contains_key(&i), next: 1, limit: limits.endpoints };
    let mut free_bindings =
        Free { taken: &|i| current.bindings.contains_key(&i), next: 0, limit: limits.bindings };
    let mut chosen: BTreeMap<(String, [u8; 16]), u32> = BTreeMap::new();
    let mut used: BTreeSet<u32> = BTreeSet::new();
    for (key, delivery) in &wanted.deliveries {
        let full = |what: &str, limit: &str| {
            let message = format!(
                "no room for {what}; remove bindings, or raise `{limit}` in worker.yaml and restart the worker"
            );
            Refusal::new("LimitReached", message)
        };
        let next_hop = if delivery.kind == Kind::Tap { mapped(delivery.backend) } else { [0; 16] };
        let identity = (delivery.interface.to_string(), next_hop);
        let endpoint = match chosen.get(&identity) {
            Some(index) => *index,
            None => {
                let held = current.endpoints.iter().find(|(_, (e, name))| {
                    *name == identity.0 && e.next_hop == next_hop && e.kind == delivery.kind as u32
                });
                let Some(index) = held.map(|(index, _)| *index).or_else(|| free_endpoints.take()) else {
                    refused.insert(*key, full("another endpoint", "limits.endpoints"));
                    continue;
                };
                index
            }
        };
        let record = record(*key, delivery, endpoint);
        let held = current.index_of(*key).filter(|index| {
            !used.contains(index) && current.bindings.get(index).is_some_and(|(held, _)| *held == record)
        });
        let Some(index) = held.or_else(|| free_bindings.take()) else {
            refused.insert(*key, full("another binding", "limits.bindings"));
            continue;
        };
        used.insert(index);
        if chosen.insert(identity.clone(), endpoint).is_none() {
            let ifindex = present.get(&identity.0).copied().unwrap_or(0);
            let point = Endpoint { next_hop, ifindex, kind: delivery.kind as u32 };
            image.endpoints.insert(endpoint, (point, identity.0.clone()));
            if ifindex != 0 {
                image.ports.insert(ifindex, endpoint);
            }
        }
        let old = current.bindings.get(&index).filter(|_| held.is_some()).map(|(_, facts)| facts);
        let facts = Facts {
            vpc: delivery.vpc.to_string(),
            attachment: delivery.attachment.to_string(),
            interface: delivery.interface.to_string(),
            netns: old.map_or_else(String::new, |f| f.netns.clone()),
            placed: old.map_or(0, |f| f.placed),
        };
        image.bindings.insert(index, (record, facts));
        image.sids.insert(sid_owner(key.sid), index);
        image.sids.insert(sid_key(*key), index);
        image.sources.entry(SourceKey { addr: mapped(delivery.backend), endpoint }).or_insert(OWN_ADDRESS);
        if delivery.translate {
            for (transport, port) in &delivery.services {
                let proto = match transport {
                    Transport::Tcp => 6,
                    Transport::Udp => 17,
                };
                let family = if key.vip.is_ipv4() { 4 } else { 6 };
                image.services.insert(PortKey { endpoint, port: port.to_be_bytes(), proto, family }, index);
            }
        } else {
            image.sources.insert(SourceKey { addr: mapped(key.vip), endpoint }, index);
        }
    }
    // Whoever holds a SID already keeps its entry: the value says nothing.
    for (key, index) in &mut image.sids {
        if key.pad == OWN_SID
            && let Some(held) = current.sids.get(key)
        {
            *index = *held;
        }
    }
    (image, refused)
}

fn record(key: Key, delivery: &Delivery, endpoint: u32) -> Binding {
    let flag = if delivery.translate { Flag::Translate } else { Flag::None };
    Binding {
        vip: mapped(key.vip),
        backend: mapped(delivery.backend),
        endpoint,
        sid: key.sid.to_be_bytes(),
        flags: flag as u8,
        pad: 0,
    }
}
