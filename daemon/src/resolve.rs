//! Rules and endpoints become the rules to serve: conflicts decided, backends looked up, other regions left out.
//!
//! An index keeps what depends on what, so that one changed object costs only the rules it touches. The outcome is a
//! function of the objects alone, never of the order in which they came.

mod locators;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use ipnet::Ipv6Net;
use weir_api::Problem;
use weir_api::checked::{CheckedBackend, CheckedEndpoint, CheckedObject, CheckedRule, SidSource, Transport};
use weir_api::network_rule::{Affinity as ApiAffinity, Health as ApiHealth, OnAllDown as ApiOnAllDown};

use crate::event::{Loaded, ObjectSet};
use crate::model::{
    Affinity, Backend, BackendId, Drain, Endpoint, Health, ObjectName, OnAllDown, Protocol, RingSize, Rule,
    Sid, VipKey,
};

pub use locators::locate;

use locators::Locators;

/// Where this gateway is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// Region it serves.
    pub region: String,
    /// The region's SRv6 block.
    pub block: Ipv6Net,
}

/// What becomes of one rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolution {
    /// The rule, or why it is not served here.
    pub outcome: Outcome,
    /// Backends that no endpoint leads to, each with the reason.
    pub unresolved: Vec<(IpAddr, String)>,
}

/// Whether a rule is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is.
    Served(Arc<Rule>),
    /// Another region's gateways serve it.
    Elsewhere {
        /// That region.
        region: String,
    },
    /// It breaks a rule between objects.
    Refused(Problem),
}

/// Address of a VPC.
type Place = (Arc<str>, IpAddr);
/// Shared name: the index holds each many times.
type Name = Arc<ObjectName>;

/// Objects and what depends on what.
#[derive(Debug)]
pub struct Index {
    site: Site,
    objects: ObjectSet,
    locators: Locators,
    overlaps: Vec<(Arc<Loaded>, Problem)>,
    rules: HashMap<Name, Arc<Loaded>>,
    /// Endpoints by address; more than one is ambiguous.
    endpoints: HashMap<Place, BTreeMap<Name, Arc<Loaded>>>,
    /// Endpoints by SID.
    sids: HashMap<Ipv6Addr, BTreeMap<Name, Arc<Loaded>>>,
    /// Rules that claim a key.
    claims: HashMap<VipKey, BTreeSet<Name>>,
    /// Rules that lost a key, and to whom.
    losers: HashMap<Name, (VipKey, Name)>,
    /// Rules that name an address as backend.
    users: HashMap<Place, BTreeSet<Name>>,
    resolutions: BTreeMap<Name, Resolution>,
    /// When each was last worked out, as a count.
    revisions: HashMap<Name, u64>,
    computed: u64,
}

fn name(loaded: &Loaded) -> Name {
    let id = loaded.object.id();
    Arc::new(ObjectName { namespace: id.namespace.as_str().into(), name: id.name.as_str().into() })
}

/// The set's objects, less those that are being deleted.
fn living(set: &ObjectSet) -> impl Iterator<Item = &Arc<Loaded>> {
    set.iter().filter(|l| !l.object.id().deleted)
}

impl Index {
    /// No objects.
    pub fn new(site: Site) -> Self {
        Self {
            site,
            objects: ObjectSet::default(),
            locators: Locators::default(),
            overlaps: Vec::new(),
            rules: HashMap::new(),
            endpoints: HashMap::new(),
            sids: HashMap::new(),
            claims: HashMap::new(),
            losers: HashMap::new(),
            users: HashMap::new(),
            resolutions: BTreeMap::new(),
            revisions: HashMap::new(),
            computed: 0,
        }
    }

    /// What becomes of each rule, by name.
    pub fn resolutions(&self) -> impl Iterator<Item = (&ObjectName, &Resolution)> {
        self.resolutions.iter().map(|(n, r)| (&**n, r))
    }

    /// How many resolutions were worked out since the start: one changed object costs only the rules it touches.
    pub const fn computed(&self) -> u64 {
        self.computed
    }

    /// Changes whenever a rule's resolution, or the place it was read from, may have changed.
    pub fn revision(&self, name: &ObjectName) -> u64 {
        self.revisions.get(name).copied().unwrap_or(0)
    }

    /// What becomes of one rule.
    pub fn resolution(&self, name: &ObjectName) -> Option<&Resolution> {
        self.resolutions.get(name)
    }

    /// Where a rule was read.
    pub fn origin(&self, name: &ObjectName) -> Option<&str> {
        self.rules.get(name).map(|l| l.origin.as_str())
    }

    /// Takes all objects anew and returns the names of the rules whose resolution changed, the gone ones included.
    pub fn update(&mut self, objects: ObjectSet) -> Vec<ObjectName> {
        let (removed, added) = difference(&self.objects, &objects);
        self.objects = objects;
        let mut dirty: BTreeSet<Name> = BTreeSet::new();
        let mut keys: BTreeSet<VipKey> = BTreeSet::new();
        let mut places: BTreeSet<Place> = BTreeSet::new();
        let mut relocated = false;
        for loaded in &removed {
            match &loaded.object {
                CheckedObject::Rule(rule) => self.forget_rule(&name(loaded), rule, &mut keys, &mut dirty),
                CheckedObject::Endpoint(endpoint) => {
                    self.forget_endpoint(&name(loaded), endpoint, &mut places);
                }
                _ => relocated |= self.locators.forget(loaded),
            }
        }
        for loaded in &added {
            match &loaded.object {
                CheckedObject::Rule(rule) => {
                    self.learn_rule(&name(loaded), loaded, rule, &mut keys, &mut dirty);
                }
                CheckedObject::Endpoint(endpoint) => {
                    self.learn_endpoint(&name(loaded), loaded, endpoint, &mut places);
                }
                _ => relocated |= self.locators.learn(loaded),
            }
        }
        if relocated {
            self.locators.settle();
            // Rare, and any endpoint's SID may lie elsewhere now, or where it may not.
            self.sids.clear();
            for (name, loaded) in self.endpoints.values().flatten() {
                if let CheckedObject::Endpoint(endpoint) = &loaded.object
                    && let Ok(sid) = self.sid(name, endpoint)
                {
                    self.sids.entry(sid).or_default().insert(Arc::clone(name), Arc::clone(loaded));
                }
            }
            dirty.extend(self.rules.keys().cloned());
        }
        if relocated || (!places.is_empty() && !self.locators.is_empty()) {
            self.overlaps = self.find_overlaps();
        }
        self.settle_claims(keys, &mut dirty);
        for place in &places {
            dirty.extend(self.users.get(place).into_iter().flatten().cloned());
        }
        let mut changed = Vec::new();
        for name in dirty {
            let new = self.rules.get(&name).and_then(|l| match &l.object {
                CheckedObject::Rule(rule) => Some(self.resolve(&name, rule)),
                _ => None,
            });
            self.computed += 1;
            if new.is_some() {
                self.revisions.insert(Arc::clone(&name), self.computed);
            } else {
                self.revisions.remove(&name);
            }
            let old = match new.clone() {
                Some(new) => self.resolutions.insert(Arc::clone(&name), new),
                None => self.resolutions.remove(&name),
            };
            if old != new {
                changed.push(ObjectName::clone(&name));
            }
        }
        changed
    }

    fn forget_rule(
        &mut self,
        name: &Name,
        rule: &CheckedRule,
        keys: &mut BTreeSet<VipKey>,
        dirty: &mut BTreeSet<Name>,
    ) {
        self.rules.remove(name);
        dirty.insert(Arc::clone(name));
        for key in rule_keys(rule) {
            keys.insert(key);
            drop_from_set(&mut self.claims, &key, name);
        }
        for b in &rule.backends {
            drop_from_set(&mut self.users, &(Arc::clone(&rule.vpc), b.address), name);
        }
    }

    fn learn_rule(
        &mut self,
        name: &Name,
        loaded: &Arc<Loaded>,
        rule: &CheckedRule,
        keys: &mut BTreeSet<VipKey>,
        dirty: &mut BTreeSet<Name>,
    ) {
        self.rules.insert(Arc::clone(name), Arc::clone(loaded));
        dirty.insert(Arc::clone(name));
        // A rule that is refused anyway takes nobody's VIP.
        if self.inside_block(rule).is_none() {
            for key in rule_keys(rule) {
                keys.insert(key);
                self.claims.entry(key).or_default().insert(Arc::clone(name));
            }
        }
        for b in &rule.backends {
            self.users.entry((Arc::clone(&rule.vpc), b.address)).or_default().insert(Arc::clone(name));
        }
    }

    fn forget_endpoint(&mut self, name: &Name, endpoint: &CheckedEndpoint, places: &mut BTreeSet<Place>) {
        let place = (Arc::clone(&endpoint.vpc), endpoint.address);
        drop_from_map(&mut self.endpoints, &place, name);
        places.insert(place);
        if let Ok(sid) = self.sid(name, endpoint) {
            drop_from_map(&mut self.sids, &sid, name);
            places.extend(self.sharers(sid));
        }
    }

    fn learn_endpoint(
        &mut self,
        name: &Name,
        loaded: &Arc<Loaded>,
        endpoint: &CheckedEndpoint,
        places: &mut BTreeSet<Place>,
    ) {
        let place = (Arc::clone(&endpoint.vpc), endpoint.address);
        self.endpoints.entry(place.clone()).or_default().insert(Arc::clone(name), Arc::clone(loaded));
        places.insert(place);
        if let Ok(sid) = self.sid(name, endpoint) {
            self.sids.entry(sid).or_default().insert(Arc::clone(name), Arc::clone(loaded));
            places.extend(self.sharers(sid));
        }
    }

    /// Addresses of the endpoints that have a SID.
    fn sharers(&self, sid: Ipv6Addr) -> Vec<Place> {
        let place = |l: &Arc<Loaded>| match &l.object {
            CheckedObject::Endpoint(e) => Some((Arc::clone(&e.vpc), e.address)),
            _ => None,
        };
        self.sids.get(&sid).into_iter().flat_map(|m| m.values().filter_map(place)).collect()
    }

    /// Decides anew who has each key, for all rules that conflicts connect with the given keys.
    fn settle_claims(&mut self, keys: BTreeSet<VipKey>, dirty: &mut BTreeSet<Name>) {
        let mut group: BTreeSet<Name> = BTreeSet::new();
        let mut open: Vec<VipKey> = keys.into_iter().collect();
        while let Some(key) = open.pop() {
            for name in self.claims.get(&key).into_iter().flatten() {
                if group.insert(Arc::clone(name)) {
                    open.extend(self.rule(name).into_iter().flat_map(rule_keys));
                }
            }
        }
        let mut order: Vec<&Name> = group.iter().collect();
        order.sort_by_key(|n| self.rule(n).map(|r| r.id.precedence()));
        let mut owners: HashMap<VipKey, &Name> = HashMap::new();
        let mut verdicts = Vec::new();
        for name in order {
            let Some(rule) = self.rule(name) else { continue };
            // Whole or not at all: a rule that loses one key takes none, and so bars nobody.
            let lost = rule_keys(rule).find_map(|k| owners.get(&k).map(|&w| (k, Arc::clone(w))));
            if lost.is_none() {
                owners.extend(rule_keys(rule).map(|k| (k, name)));
            }
            verdicts.push((Arc::clone(name), lost));
        }
        for (name, lost) in verdicts {
            let old = match lost.clone() {
                Some(lost) => self.losers.insert(Arc::clone(&name), lost),
                None => self.losers.remove(&name),
            };
            if old != lost {
                dirty.insert(name);
            }
        }
        self.losers.retain(|name, _| self.rules.contains_key(name));
    }

    fn rule(&self, name: &Name) -> Option<&CheckedRule> {
        match self.rules.get(name).map(|l| &l.object) {
            Some(CheckedObject::Rule(rule)) => Some(rule),
            _ => None,
        }
    }

    fn inside_block(&self, rule: &CheckedRule) -> Option<IpAddr> {
        let block = ipnet::IpNet::V6(self.site.block);
        rule.vips.iter().copied().find(|vip| block.contains(vip))
    }

    fn resolve(&self, name: &Name, rule: &CheckedRule) -> Resolution {
        let refused = |p| Resolution { outcome: Outcome::Refused(p), unresolved: Vec::new() };
        if let Some(vip) = self.inside_block(rule) {
            let why = format!("lies in the region's SRv6 block {}", self.site.block);
            return refused(Problem::error("spec.vipAddresses", vip, why, "give an address outside it"));
        }
        if let Some((key, winner)) = self.losers.get(name) {
            let why = format!("is taken by the rule {winner}, which is older or comes first by name");
            return refused(Problem::error("spec.vipAddresses", key, why, "give another address or port"));
        }
        let region = rule.region.as_deref().unwrap_or(&self.site.region);
        if region != self.site.region {
            return Resolution {
                outcome: Outcome::Elsewhere { region: region.into() },
                unresolved: Vec::new(),
            };
        }
        let mut unresolved = Vec::new();
        let mut backends: Vec<Backend> = Vec::with_capacity(rule.backends.len());
        for b in &rule.backends {
            let endpoint = match self.endpoint(rule, b.address) {
                Ok(endpoint) => Some(endpoint),
                Err(why) => {
                    unresolved.push((b.address, why));
                    None
                }
            };
            backends.push(backend(rule, b, endpoint));
        }
        backends.sort_by(|a, b| a.id.cmp(&b.id));
        let served = Rule {
            name: ObjectName::clone(name),
            region: region.to_string(),
            vips: rule.vips.clone(),
            protocol: protocol(rule.transport),
            port: rule.port,
            affinity: match rule.affinity {
                ApiAffinity::None => Affinity::None,
                ApiAffinity::ClientIP => Affinity::ClientIp,
                ApiAffinity::ClientIPAndProtocol => Affinity::ClientIpAndProtocol,
            },
            // Checked objects hold one of the four sizes.
            ring_size: RingSize::from_slots(rule.ring_size).unwrap_or_default(),
            on_all_down: match rule.on_all_down {
                ApiOnAllDown::Keep => OnAllDown::Keep,
                ApiOnAllDown::Drop => OnAllDown::Drop,
                ApiOnAllDown::Withdraw => OnAllDown::Withdraw,
            },
            backends,
        };
        Resolution { outcome: Outcome::Served(Arc::new(served)), unresolved }
    }

    /// The one endpoint that leads to a backend; whatever is ambiguous leads nowhere, for it could cross tenants.
    fn endpoint(&self, rule: &CheckedRule, address: IpAddr) -> Result<Endpoint, String> {
        let vpc = &rule.vpc;
        let found = self.endpoints.get(&(Arc::clone(vpc), address));
        let mut found = found.into_iter().flatten();
        let Some((name, loaded)) = found.next() else {
            return Err(format!("no VPCEndpoint has address {address} in VPC {vpc}"));
        };
        if let Some((other, _)) = found.next() {
            return Err(format!("VPCEndpoints {name} and {other} both have address {address} in VPC {vpc}"));
        }
        let CheckedObject::Endpoint(endpoint) = &loaded.object else {
            return Err(format!("{name} is no VPCEndpoint"));
        };
        if endpoint.attachment != rule.attachment {
            return Err(format!(
                "VPCEndpoint {name} is on attachment {}, not on the rule's {}",
                endpoint.attachment, rule.attachment
            ));
        }
        let sid = self.sid(name, endpoint)?;
        self.locators.refuse(name, &endpoint.node, sid)?;
        // One SID is one tenant's table on one node: endpoints of one VPC on one node may share it.
        let foreign = |l: &Arc<Loaded>| match &l.object {
            CheckedObject::Endpoint(e) => e.vpc != endpoint.vpc || e.node != endpoint.node,
            _ => false,
        };
        if let Some((other, _)) = self.sids.get(&sid).into_iter().flatten().find(|(_, l)| foreign(l)) {
            return Err(format!(
                "VPCEndpoints {name} and {other} have one SID {sid} but differ in VPC or node"
            ));
        }
        Ok(Endpoint { node: Arc::clone(&endpoint.node), sid: Sid(sid) })
    }

    /// An endpoint's SID, as it is written or composed on its node's locator.
    fn sid(&self, name: &Name, endpoint: &CheckedEndpoint) -> Result<Ipv6Addr, String> {
        let (function, argument) = match endpoint.sid {
            SidSource::Whole(sid) => return Ok(sid),
            SidSource::Composed { function, argument } => (function, argument),
        };
        let Some((_, locator)) = self.locators.of(&endpoint.node)? else {
            return Err(format!(
                "VPCEndpoint {name} gives function and argument, but the locator of node {} is not known: give spec.sid",
                endpoint.node
            ));
        };
        Ok(weir_api::sid::compose(locator.block, locator.node_id, function.bits(), argument))
    }

    /// The locator that the objects give to a node; `None` when they give none, or two.
    pub fn locator_of(&self, node: &str) -> Option<crate::config::Locator> {
        self.locators.of(node).ok().flatten().map(|(_, locator)| locator)
    }

    /// What is wrong between objects other than rules: SIDs and locators that overlap.
    pub fn between_objects(&self) -> &[(Arc<Loaded>, Problem)] {
        &self.overlaps
    }

    fn find_overlaps(&self) -> Vec<(Arc<Loaded>, Problem)> {
        let mut found = self.locators.problems();
        for (name, loaded) in self.endpoints.values().flatten() {
            let CheckedObject::Endpoint(endpoint) = &loaded.object else { continue };
            let Ok(sid) = self.sid(name, endpoint) else { continue };
            if let Err(why) = self.locators.refuse(name, &endpoint.node, sid) {
                let remedy = "give the endpoint a SID of its node's own";
                found.push((Arc::clone(loaded), Problem::error("spec.sid", "", why, remedy)));
            }
        }
        found.sort_by(|(a, _), (b, _)| a.key().cmp(&b.key()));
        found
    }

    /// Endpoints whose SID lies outside the region's block, which is right only for other regions' endpoints.
    pub fn outside_block(&self) -> impl Iterator<Item = (&Loaded, Ipv6Addr)> {
        let out = |sid: &Ipv6Addr| !self.site.block.contains(sid);
        self.sids.iter().filter(move |(s, _)| out(s)).flat_map(|(s, m)| m.values().map(|l| (&**l, *s)))
    }
}

fn protocol(transport: Transport) -> Protocol {
    match transport {
        Transport::Tcp => Protocol::Tcp,
        Transport::Udp => Protocol::Udp,
    }
}

fn rule_keys(rule: &CheckedRule) -> impl Iterator<Item = VipKey> + '_ {
    let protocol = protocol(rule.transport);
    rule.vips.iter().map(move |&address| VipKey { address, protocol, port: rule.port })
}

fn backend(rule: &CheckedRule, b: &CheckedBackend, endpoint: Option<Endpoint>) -> Backend {
    Backend {
        id: BackendId {
            vpc: Arc::clone(&rule.vpc),
            attachment: Arc::clone(&rule.attachment),
            address: b.address,
        },
        weight: b.weight,
        drain: if b.drained { Drain::Yes } else { Drain::No },
        health: match b.health {
            ApiHealth::Healthy => Health::Healthy,
            ApiHealth::Unhealthy => Health::Unhealthy,
            ApiHealth::Unknown => Health::Unknown,
        },
        endpoint,
    }
}

/// Objects that went and that came; a changed one is in both. Both sets are sorted.
fn difference(old: &ObjectSet, new: &ObjectSet) -> (Vec<Arc<Loaded>>, Vec<Arc<Loaded>>) {
    let (mut removed, mut added) = (Vec::new(), Vec::new());
    let (mut old, mut new) = (living(old).peekable(), living(new).peekable());
    loop {
        let order = match (old.peek(), new.peek()) {
            (None, None) => return (removed, added),
            // The same allocation is the same object: not even its name needs to be looked at.
            (Some(o), Some(n)) if Arc::ptr_eq(o, n) => {
                old.next();
                new.next();
                continue;
            }
            (Some(_), None) => std::cmp::Ordering::Less,
            (None, Some(_)) => std::cmp::Ordering::Greater,
            (Some(o), Some(n)) => o.key().cmp(&n.key()),
        };
        let o = if order.is_le() { old.next() } else { None };
        let n = if order.is_ge() { new.next() } else { None };
        if let (Some(o), Some(n)) = (o, n)
            && o == n
        {
            continue;
        }
        removed.extend(o.cloned());
        added.extend(n.cloned());
    }
}

fn drop_from_set<K: std::hash::Hash + Eq>(map: &mut HashMap<K, BTreeSet<Name>>, key: &K, name: &Name) {
    if let Some(set) = map.get_mut(key) {
        set.remove(name);
        if set.is_empty() {
            map.remove(key);
        }
    }
}

fn drop_from_map<K: std::hash::Hash + Eq>(
    map: &mut HashMap<K, BTreeMap<Name, Arc<Loaded>>>,
    key: &K,
    name: &Name,
) {
    if let Some(inner) = map.get_mut(key) {
        inner.remove(name);
        if inner.is_empty() {
            map.remove(key);
        }
    }
}
