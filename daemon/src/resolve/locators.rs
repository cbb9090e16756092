//! Which node has which part of an SRv6 block, from the routers' objects, and SIDs that lie where they may not (711). Pure.

use std::collections::{BTreeMap, HashMap};
use std::net::Ipv6Addr;
use std::sync::Arc;

use weir_api::Problem;
use weir_api::checked::{CheckedObject, CheckedRouter, CheckedShard};

use super::{Name, name};
use crate::config::Locator;
use crate::event::Loaded;

/// Routers and egress shards.
#[derive(Debug, Default)]
pub(super) struct Locators {
    routers: BTreeMap<Name, Arc<Loaded>>,
    shards: BTreeMap<Name, Arc<Loaded>>,
    /// The routers of each node that give a locator: what is asked for each endpoint is looked up, not searched.
    of_node: HashMap<Arc<str>, Vec<(Name, Locator)>>,
    /// Routers and their nodes by the first 64 bits of their SIDs.
    of_part: HashMap<u64, Vec<(Name, Arc<str>)>>,
    of_sid: HashMap<Ipv6Addr, Name>,
}

/// The first 64 bits: block and node.
fn part(address: Ipv6Addr) -> u64 {
    (address.to_bits() >> 64) as u64
}

/// The locator that a router's object gives, if it gives one.
fn given(router: &CheckedRouter) -> Option<Locator> {
    router.locator.map(|(block, node_id)| Locator { block, node_id })
}

/// This node's locator: from the configuration, or from the node's BGPRouter among these objects.
///
/// # Errors
/// Why there is none, with what to do.
pub fn locate<'a>(
    node: &str,
    configured: Option<Locator>,
    objects: impl IntoIterator<Item = &'a Arc<Loaded>>,
) -> Result<Locator, String> {
    let mut locators = Locators::default();
    objects.into_iter().for_each(|loaded| _ = locators.learn(loaded));
    locators.settle();
    match (locators.of(node)?, configured) {
        (None, None) => Err(format!(
            "the configuration gives no `locator`, and no BGPRouter with targetRef {node} gives a srv6Locator and nodeID; make the \
             node's BGPRouter, or write locator: {{ prefix: the region's /48, nodeID: a number }}"
        )),
        (None, Some(locator)) => Ok(locator),
        (Some((router, own)), Some(locator)) if own != locator => Err(format!(
            "the configuration's `locator` is {}, and BGPRouter {router} of this node gives {}; leave `locator` out of the \
             configuration",
            locator.prefix(),
            own.prefix()
        )),
        (Some((_, own)), _) => Ok(own),
    }
}

impl Locators {
    /// Takes an object in; tells whether it is one of ours.
    pub(super) fn learn(&mut self, loaded: &Arc<Loaded>) -> bool {
        match &loaded.object {
            CheckedObject::Router(_) => self.routers.insert(name(loaded), Arc::clone(loaded)),
            CheckedObject::Shard(_) => self.shards.insert(name(loaded), Arc::clone(loaded)),
            _ => return false,
        };
        true
    }

    /// Lets an object go; tells whether it was one of ours.
    pub(super) fn forget(&mut self, loaded: &Loaded) -> bool {
        match &loaded.object {
            CheckedObject::Router(_) => self.routers.remove(&name(loaded)),
            CheckedObject::Shard(_) => self.shards.remove(&name(loaded)),
            _ => return false,
        };
        true
    }

    /// To be called after objects came or went, before anything is asked.
    pub(super) fn settle(&mut self) {
        let (mut of_node, mut of_part) = (HashMap::<_, Vec<_>>::new(), HashMap::<_, Vec<_>>::new());
        for (name, router, locator) in self.routers() {
            of_node.entry(Arc::clone(&router.node)).or_default().push((Arc::clone(name), locator));
            let node = (Arc::clone(name), Arc::clone(&router.node));
            of_part.entry(part(locator.prefix().network())).or_default().push(node);
        }
        let of_sid = self.shards().map(|(name, _, sid)| (sid, Arc::clone(name))).collect();
        (self.of_node, self.of_part, self.of_sid) = (of_node, of_part, of_sid);
    }

    /// Whether there is nothing that could overlap.
    pub(super) fn is_empty(&self) -> bool {
        self.routers.is_empty() && self.shards.is_empty()
    }

    fn routers(&self) -> impl Iterator<Item = (&Name, &CheckedRouter, Locator)> {
        self.routers.iter().filter_map(|(name, loaded)| match &loaded.object {
            CheckedObject::Router(router) => Some((name, router, given(router)?)),
            _ => None,
        })
    }

    fn shards(&self) -> impl Iterator<Item = (&Name, &CheckedShard, Ipv6Addr)> {
        self.shards.iter().filter_map(|(name, loaded)| match &loaded.object {
            CheckedObject::Shard(shard) => Some((name, shard, shard.sid?)),
            _ => None,
        })
    }

    /// A node's locator and the router that gives it; two routers that disagree, or share a place, give none.
    pub(super) fn of(&self, node: &str) -> Result<Option<(Name, Locator)>, String> {
        let Some([(first, locator), others @ ..]) = self.of_node.get(node).map(Vec::as_slice) else {
            return Ok(None);
        };
        if let Some((second, other)) = others.iter().find(|(_, other)| other != locator) {
            return Err(format!(
                "BGPRouters {first} and {second} of node {node} give {} and {}; keep one of them",
                locator.prefix(),
                other.prefix()
            ));
        }
        if let Some((other, foreign)) = self.strangers(node, locator.prefix().network()).next() {
            return Err(format!(
                "BGPRouters {first} of node {node} and {other} of node {foreign} both give {}; give each node a nodeID of its own",
                locator.prefix()
            ));
        }
        Ok(Some((Arc::clone(first), *locator)))
    }

    /// Routers of other nodes in whose part of a block an address lies, each with its node.
    fn strangers(&self, node: &str, address: Ipv6Addr) -> impl Iterator<Item = &(Name, Arc<str>)> {
        self.of_part.get(&part(address)).into_iter().flatten().filter(move |(_, other)| &**other != node)
    }

    /// Why a node's endpoint may not have this SID.
    pub(super) fn refuse(&self, endpoint: &Name, node: &str, sid: Ipv6Addr) -> Result<(), String> {
        if let Some((router, locator)) = self.of(node)?
            && !locator.prefix().contains(&sid)
        {
            return Err(format!(
                "SID {sid} of VPCEndpoint {endpoint} lies outside {}, which BGPRouter {router} gives to its node {node}",
                locator.prefix()
            ));
        }
        if let Some((router, other)) = self.strangers(node, sid).next() {
            let part = Ipv6Addr::from_bits(u128::from(part(sid)) << 64);
            return Err(format!(
                "SID {sid} of VPCEndpoint {endpoint} on node {node} overlaps {part}/64, the locator of BGPRouter {router} on node {other}"
            ));
        }
        if let Some(shard) = self.of_sid.get(&sid) {
            return Err(format!("SID {sid} of VPCEndpoint {endpoint} is that of NAT66Shard {shard} too"));
        }
        Ok(())
    }

    /// What is wrong between routers and shards, each with the object that it is told of.
    pub(super) fn problems(&self) -> Vec<(Arc<Loaded>, Problem)> {
        let mut found = Vec::new();
        let mut tell = |loaded: Option<&Arc<Loaded>>, problem| {
            found.extend(loaded.map(|loaded| (Arc::clone(loaded), problem)));
        };
        for (name, router, locator) in self.routers() {
            if let Err(why) = self.of(&router.node) {
                let (why, remedy) = why.split_once("; ").unwrap_or((&why, "give each node one locator"));
                let problem =
                    Problem::error("spec.nodeID", locator.node_id, format!("is ambiguous: {why}"), remedy);
                tell(self.routers.get(name), problem);
            }
        }
        for (name, _, sid) in self.shards() {
            let inside = |(_, _, locator): &(&Name, &CheckedRouter, Locator)| locator.block.contains(&sid);
            if let Some((router, _, locator)) = self.routers().find(inside) {
                let why = format!(
                    "of NAT66Shard {name} overlaps {}, the srv6Locator of BGPRouter {router}",
                    locator.block
                );
                let remedy = "give the egress tier SIDs of a block of its own";
                tell(self.shards.get(name), Problem::error("status.shardSID", sid, why, remedy));
            }
            if let Some((other, ..)) = self.shards().find(|(other, _, taken)| *taken == sid && *other < name)
            {
                let why = format!("of NAT66Shard {name} is that of NAT66Shard {other} too");
                let remedy = "give each shard a SID of its own";
                tell(self.shards.get(name), Problem::error("status.shardSID", sid, why, remedy));
            }
        }
        found
    }
}

#[cfg(test)]
#[path = "locator_tests.rs"]
mod tests;
