//! Decides what may be announced and what may be unloaded. Pure: state and time come in, a decision goes out.
//!
//! Three rules hold whatever the order of events:
//!
//! 1. A VIP is announced only while one of its keys is loaded and wanted, and never by a gateway that has not yet shown that
//!    packets get through it.
//! 2. A VIP that goes away is withdrawn first. Its keys stay loaded until the withdraw was written to every session
//!    ([`RouteStatus::settled`](super::RouteStatus)) and the drain time has passed since.
//! 3. A key that the data plane was allowed to unload vouches for no VIP until the data plane has answered a `Desired` that
//!    wants it again: it may be on its way out.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ipnet::{IpNet, Ipv6Net};

use super::config::{LargeCommunity, PeerRole};
use crate::desired::{Applied, Desired, DrainStage};
use crate::model::VipKey;

/// GRACEFUL_SHUTDOWN, 65535:0 (RFC 8326 section 5).
pub const GRACEFUL_SHUTDOWN: u32 = 0xffff_0000;

/// Attributes of a route that a plan decides; the rest depends on the session.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct RouteAttributes {
    /// Communities (RFC 1997), high 16 bits first.
    pub communities: BTreeSet<u32>,
    /// Large communities (RFC 8092).
    pub large: BTreeSet<LargeCommunity>,
}

/// Routes by prefix.
pub type Routes = BTreeMap<IpNet, Arc<RouteAttributes>>;

/// Whether routers may be told that all routes were sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EndOfRib {
    /// Not yet: what is missing from the plan may still come, and End-of-RIB would delete it at the router.
    #[default]
    Withhold,
    /// The plan is complete.
    Send,
}

/// Whether packets were forwarded throughout, as the caller has verified it: link attached, our program in its slot, maps
/// holding what was announced. It is the F flag of graceful restart (RFC 4724 section 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Forwarding {
    /// Not looked at yet: no OPEN is sent, since one without F would delete the routes kept for us.
    #[default]
    Unknown,
    /// Forwarding was interrupted, or that could not be excluded.
    NotPreserved,
    /// Verified.
    Preserved,
}

/// Whether this gateway has shown that packets get through it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Fitness {
    /// Not yet since it was started: it must draw no traffic.
    #[default]
    Unproven,
    /// It has, or it took over from a process that served. A later fault does not take that back: where every gateway has
    /// the same fault, withdrawing would only make sure that nothing arrives.
    Proven,
}

/// What to announce, complete at any time. Cheap to clone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RoutePlan {
    /// Grows with every change of the routes or of `end_of_rib`.
    pub revision: u64,
    /// VIPs as host routes.
    pub vips: Arc<Routes>,
    /// The node's locator.
    pub node: Arc<Routes>,
    /// Whether End-of-RIB is due.
    pub end_of_rib: EndOfRib,
    /// F flag for the next OPEN.
    pub forwarding: Forwarding,
}

impl RoutePlan {
    /// What a peer gets: VIPs for upstream peers; the locator, and with `export_vips` the VIPs, for fabric peers.
    pub fn routes_for(
        &self,
        role: PeerRole,
        export_vips: bool,
    ) -> impl Iterator<Item = (IpNet, &Arc<RouteAttributes>)> {
        let (node, vips) = match role {
            PeerRole::Upstream => (None, Some(&self.vips)),
            PeerRole::Fabric => (Some(&self.node), export_vips.then_some(&self.vips)),
        };
        node.into_iter().chain(vips).flat_map(|routes| routes.iter().map(|(&prefix, a)| (prefix, a)))
    }
}

/// What does not change while the process runs.
#[derive(Clone, Debug)]
pub struct PlanSettings {
    /// This node's region: VIPs of rules of another are never announced.
    pub region: String,
    /// The node's locator, for fabric peers.
    pub locator: Option<Ipv6Net>,
    /// Marks every route of this region, for the routers' export policy.
    pub region_community: LargeCommunity,
    /// Communities that the operator wants on every route.
    pub communities: BTreeSet<u32>,
    /// Large communities that the operator wants on every route.
    pub large: BTreeSet<LargeCommunity>,
    /// How long a VIP's keys stay loaded after its withdraw was written to every session: routers need that long to
    /// forget it.
    pub drain_time: Duration,
}

/// What a step looks at.
#[derive(Clone, Copy, Debug)]
pub struct Input<'a> {
    /// What should be served.
    pub desired: &'a Desired,
    /// What is loaded, as last read back.
    pub applied: &'a Applied,
    /// [`RouteStatus::settled`](super::RouteStatus) as last reported.
    pub settled: u64,
    /// See [`Forwarding`].
    pub forwarding: Forwarding,
    /// See [`Fitness`].
    pub fitness: Fitness,
}

/// What a step decides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Generation of the `Desired` it belongs to. The data plane must use `may_unload` with that `Desired` only: with a
    /// newer one the key may be announced again.
    pub generation: u64,
    /// What to announce.
    pub plan: RoutePlan,
    /// Loaded keys that nobody wants and no router sends packets for any more.
    pub may_unload: BTreeSet<VipKey>,
    /// The drain has come to its end: every withdraw is out and the drain time has passed.
    pub may_detach: bool,
    /// When to step again although nothing happens.
    pub next_step: Option<Instant>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Withdrawal {
    /// Not yet written to every session.
    Sending { revision: u64 },
    /// Written; the drain time runs.
    Draining { since: Instant },
    /// Nobody sends packets for it.
    Done,
}

/// What was announced before, as far as the next step needs to know.
#[derive(Clone, Debug)]
pub struct AnnounceState {
    settings: PlanSettings,
    plan: RoutePlan,
    /// Loaded VIPs that are not announced.
    withdrawals: BTreeMap<IpAddr, Withdrawal>,
    /// Keys that the data plane may be unloading, with the generation that wants them again, if one does.
    released: BTreeMap<VipKey, Option<u64>>,
    /// Generation of the first synced `Desired`.
    synced_at: Option<u64>,
}

impl AnnounceState {
    /// Nothing announced.
    pub fn new(settings: PlanSettings) -> Self {
        Self {
            settings,
            plan: RoutePlan::default(),
            withdrawals: BTreeMap::new(),
            released: BTreeMap::new(),
            synced_at: None,
        }
    }

    /// The plan in force.
    pub fn plan(&self) -> &RoutePlan {
        &self.plan
    }

    /// Decides anew. Call it on every change of the input, and at [`Decision::next_step`].
    pub fn step(&mut self, input: Input<'_>, now: Instant) -> Decision {
        let Input { desired, applied, settled, fitness, .. } = input;
        let wanted: BTreeSet<VipKey> = desired.rules.values().flat_map(|rule| rule.keys()).collect();
        self.forget_released(&wanted, desired.generation, applied);

        let serving = if desired.drain < DrainStage::Withdrawn && fitness == Fitness::Proven {
            self.announceable(desired, applied)
        } else {
            BTreeSet::new()
        };
        self.update_plan(input, &serving);

        let loaded = applied.vips();
        self.withdrawals.retain(|vip, _| loaded.contains(vip) && !serving.contains(vip));
        for &vip in loaded.difference(&serving) {
            // Also for a VIP that this process never announced: the one before may have, and routers may keep it.
            self.withdrawals.entry(vip).or_insert(Withdrawal::Sending { revision: self.plan.revision });
        }
        let next_step = self.advance_withdrawals(settled, now);

        let mut may_unload = BTreeSet::new();
        if desired.synced {
            let gone = |vip| self.withdrawals.get(vip) == Some(&Withdrawal::Done);
            may_unload.extend(applied.loaded.iter().filter(|key| {
                !wanted.contains(key) && (serving.contains(&key.address) || gone(&key.address))
            }));
        }
        self.released.extend(may_unload.iter().map(|&key| (key, None)));

        let may_detach = desired.drain == DrainStage::Detached
            && settled >= self.plan.revision
            && self.withdrawals.values().all(|w| *w == Withdrawal::Done);
        Decision {
            generation: desired.generation,
            plan: self.plan.clone(),
            may_unload,
            may_detach,
            next_step,
        }
    }

    fn forget_released(&mut self, wanted: &BTreeSet<VipKey>, generation: u64, applied: &Applied) {
        self.released.retain(|key, wanted_again| {
            if !wanted.contains(key) {
                *wanted_again = None;
                return applied.loaded.contains(key);
            }
            let since = *wanted_again.get_or_insert(generation);
            applied.loaded.contains(key) && applied.generation < since
        });
    }

    /// VIPs for which rule 1 and rule 3 hold.
    fn announceable(&self, desired: &Desired, applied: &Applied) -> BTreeSet<IpAddr> {
        desired
            .rules
            .values()
            .filter(|rule| rule.region == self.settings.region)
            .flat_map(|rule| rule.keys())
            .filter(|key| {
                desired.announce.contains(&key.address)
                    && applied.loaded.contains(key)
                    && !self.released.contains_key(key)
            })
            .map(|key| key.address)
            .collect()
    }

    fn update_plan(&mut self, input: Input<'_>, serving: &BTreeSet<IpAddr>) {
        let Input { desired, applied, forwarding, .. } = input;
        if desired.synced && self.synced_at.is_none() {
            self.synced_at = Some(desired.generation);
        }
        let complete = self.synced_at.is_some_and(|generation| applied.generation >= generation);
        let end_of_rib = if complete { EndOfRib::Send } else { self.plan.end_of_rib };

        let attributes = Arc::new(self.attributes(desired.drain));
        let vips: Routes = serving.iter().map(|&vip| (IpNet::from(vip), Arc::clone(&attributes))).collect();
        let locator = self.settings.locator.filter(|_| desired.drain < DrainStage::Detached);
        let node: Routes = locator.into_iter().map(|net| (net.into(), Arc::clone(&attributes))).collect();

        let plan = &mut self.plan;
        plan.forwarding = forwarding;
        let same = *plan.vips == vips && *plan.node == node && plan.end_of_rib == end_of_rib;
        if same && plan.revision > 0 {
            return;
        }
        plan.revision += 1;
        plan.end_of_rib = end_of_rib;
        if *plan.vips != vips {
            plan.vips = Arc::new(vips);
        }
        if *plan.node != node {
            plan.node = Arc::new(node);
        }
    }

    fn attributes(&self, drain: DrainStage) -> RouteAttributes {
        let mut communities = self.settings.communities.clone();
        if drain >= DrainStage::GracefulShutdown {
            communities.insert(GRACEFUL_SHUTDOWN);
        }
        let mut large = self.settings.large.clone();
        large.insert(self.settings.region_community);
        RouteAttributes { communities, large }
    }

    fn advance_withdrawals(&mut self, settled: u64, now: Instant) -> Option<Instant> {
        let mut next = None::<Instant>;
        for withdrawal in self.withdrawals.values_mut() {
            if let Withdrawal::Sending { revision } = *withdrawal
                && settled >= revision
            {
                *withdrawal = Withdrawal::Draining { since: now };
            }
            if let Withdrawal::Draining { since } = *withdrawal {
                let end = since + self.settings.drain_time;
                if now >= end {
                    *withdrawal = Withdrawal::Done;
                } else {
                    next = Some(next.map_or(end, |other| other.min(end)));
                }
            }
        }
        next
    }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
