//! The sole owner of truth: events in, [`Desired`] out. Time is an argument, nothing is read or awaited.

mod status;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::desired::{Applied, Desired, DrainStage};
use crate::event::{Event, ObjectSet, PeerStatus, SourceStatus};
use crate::model::{Drain, Health, ObjectName, OnAllDown, Rule};
use crate::resolve::{Index, Outcome, Site};

pub use status::{RuleBasis, RuleCondition, RuleStatus, Truth};

/// What of the configuration the state needs.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Region and its SRv6 block.
    pub site: Site,
    /// Sources that must have synced before anything is deleted.
    pub sources: BTreeSet<String>,
    /// From GRACEFUL_SHUTDOWN until routes are withdrawn.
    pub graceful_shutdown: Duration,
    /// From withdrawing until the data plane is detached.
    pub drain: Duration,
}

/// All that is known.
#[derive(Debug)]
pub struct State {
    settings: Settings,
    index: Index,
    desired: Desired,
    /// How many rules want a VIP announced.
    wanted: HashMap<IpAddr, usize>,
    sources: BTreeMap<String, SourceStatus>,
    peers: BTreeMap<String, PeerStatus>,
    applied: Applied,
    draining_since: Option<Instant>,
    stopping: bool,
}

impl State {
    /// Knows nothing yet.
    pub fn new(settings: Settings) -> Self {
        Self {
            index: Index::new(settings.site.clone()),
            settings,
            desired: Desired::default(),
            wanted: HashMap::new(),
            sources: BTreeMap::new(),
            peers: BTreeMap::new(),
            applied: Applied::default(),
            draining_since: None,
            stopping: false,
        }
    }

    /// What should be.
    pub const fn desired(&self) -> &Desired {
        &self.desired
    }

    /// What the data plane last said it holds.
    pub const fn applied(&self) -> &Applied {
        &self.applied
    }

    /// How sources do.
    pub fn sources(&self) -> impl Iterator<Item = &SourceStatus> {
        self.sources.values()
    }

    /// How peers do.
    pub fn peers(&self) -> impl Iterator<Item = &PeerStatus> {
        self.peers.values()
    }

    /// What became of each rule.
    pub const fn index(&self) -> &Index {
        &self.index
    }

    /// The daemon is to end now: it was asked to stop, or it has left for good.
    pub fn finished(&self) -> bool {
        self.stopping || self.desired.drain == DrainStage::Detached
    }

    /// Takes an event; tells whether [`State::desired`] changed, in which case its generation grew.
    pub fn apply(&mut self, event: Event, now: Instant) -> bool {
        let mut changed = false;
        match event {
            Event::Objects(objects) => changed = self.objects(objects),
            Event::Source(status) => {
                self.sources.insert(status.source.clone(), status);
                let synced = |s: &String| self.sources.get(s).is_some_and(|s| s.synced);
                // What was complete once stays so: a later fault keeps the last good versions.
                let all = self.settings.sources.iter().all(synced);
                changed = all && !self.desired.synced;
                self.desired.synced |= all;
            }
            Event::Applied(applied) => self.applied = applied,
            Event::Peer(peer) => {
                self.peers.insert(peer.name.clone(), peer);
            }
            Event::Drain => {
                self.draining_since.get_or_insert(now);
            }
            Event::Shutdown => self.stopping = true,
            Event::Tick => {}
        }
        changed |= self.progress(now);
        if changed {
            self.desired.generation += 1;
        }
        changed
    }

    /// When the next [`Event::Tick`] will change something, if ever.
    pub fn next_deadline(&self) -> Option<Instant> {
        let since = self.draining_since?;
        match self.desired.drain {
            DrainStage::None | DrainStage::GracefulShutdown => Some(since + self.settings.graceful_shutdown),
            DrainStage::Withdrawn => Some(since + self.settings.graceful_shutdown + self.settings.drain),
            DrainStage::Detached => None,
        }
    }

    fn progress(&mut self, now: Instant) -> bool {
        let Some(since) = self.draining_since else { return false };
        let past = now.saturating_duration_since(since);
        let stage = if past < self.settings.graceful_shutdown {
            DrainStage::GracefulShutdown
        } else if past < self.settings.graceful_shutdown + self.settings.drain {
            DrainStage::Withdrawn
        } else {
            DrainStage::Detached
        };
        // Leaving has no way back, not even when a clock reading is older than the last one.
        let stage = stage.max(self.desired.drain);
        stage != std::mem::replace(&mut self.desired.drain, stage)
    }

    fn objects(&mut self, objects: ObjectSet) -> bool {
        let mut changed = false;
        for name in self.index.update(objects) {
            let new = match self.index.resolution(&name).map(|r| &r.outcome) {
                Some(Outcome::Served(rule)) => Some(Arc::clone(rule)),
                _ => None,
            };
            let old = match new.clone() {
                Some(rule) => self.desired.rules.insert(name, rule),
                None => self.desired.rules.remove(&name),
            };
            if old == new {
                continue;
            }
            changed = true;
            for vip in old.iter().filter(|r| wants_announcement(r)).flat_map(|r| &r.vips) {
                self.unwant(*vip);
            }
            for &vip in new.iter().filter(|r| wants_announcement(r)).flat_map(|r| &r.vips) {
                *self.wanted.entry(vip).or_default() += 1;
                self.desired.announce.insert(vip);
            }
        }
        changed
    }

    fn unwant(&mut self, vip: IpAddr) {
        if let Some(count) = self.wanted.get_mut(&vip) {
            *count -= 1;
            if *count == 0 {
                self.wanted.remove(&vip);
                self.desired.announce.remove(&vip);
            }
        }
    }

    /// What became of one rule, for people; `None` when there is no such rule.
    pub fn rule_status(&self, name: &ObjectName) -> Option<RuleStatus> {
        status::of(self, name)
    }

    /// All that a rule's status depends on: while it is equal, so is [`State::rule_status`].
    pub fn rule_basis(&self, name: &ObjectName) -> RuleBasis {
        status::basis(self, name)
    }

    /// What became of every rule, by name.
    pub fn rule_statuses(&self) -> impl Iterator<Item = RuleStatus> + '_ {
        self.index.resolutions().filter_map(|(name, _)| self.rule_status(name))
    }
}

/// Whether a rule wants its VIPs announced now. A VIP of several rules stays while one of them wants it: one rule's
/// outage must not take another's traffic.
fn wants_announcement(rule: &Rule) -> bool {
    let serves = |b: &crate::model::Backend| {
        b.drain == Drain::No && b.health != Health::Unhealthy && b.endpoint.is_some()
    };
    rule.on_all_down != OnAllDown::Withdraw || rule.backends.iter().any(serves)
}

#[cfg(test)]
mod tests;
