//! What the gateway says of itself, put together from what each part knows.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::datapath::Health;
use crate::config::Config;
use crate::dataplane::bpf::InterfaceStatus;
use crate::model::{Drain, ObjectName, Rule};
use crate::resolve::Outcome;
use crate::route::{self, PeerState, RouteAttributes, RoutePlan};
use crate::state::{RuleBasis, State, Truth};
use crate::status::{
    BackendSummary, Condition, Interface, NodeStatus, NotReady, PeerStatus, RouteStatus, RuleStatus, Source,
    VERSION, Work, rfc3339,
};

pub(super) fn node(
    config: &Config,
    state: &State,
    health: &Health,
    routes: &route::RouteStatus,
    plan: &RoutePlan,
    reasons: Vec<NotReady>,
    rules: &mut Rules,
) -> NodeStatus {
    NodeStatus {
        node: config.node.clone(),
        region: config.region.clone(),
        version: VERSION.into(),
        ready: reasons.is_empty(),
        reasons,
        drain: state.desired().drain,
        generation: state.desired().generation,
        applied: state.applied().generation,
        interfaces: health.interfaces.iter().map(|i| interface(config, i)).collect(),
        sources: state
            .sources()
            .map(|source| Source {
                name: source.source.clone(),
                synced: source.synced,
                problems: source.problems.iter().map(ToString::to_string).collect(),
            })
            .chain(overlaps(state))
            .collect(),
        rules: rules.report(state, plan),
        peers: routes.peers.values().map(|p| peer(config, p)).collect(),
        routes: prefixes(config, routes, plan),
        unreachable: state.applied().unreachable.iter().copied().collect(),
        work: Work { ring_builds: health.ring_builds, map_writes: health.map_writes, route_changes: 0 },
    }
}

/// SIDs and locators of different objects that overlap, shown as a source when there are any.
fn overlaps(state: &State) -> Option<Source> {
    let all = state.index().between_objects().iter();
    let problems: Vec<String> =
        all.map(|(loaded, problem)| format!("{}: {problem}", loaded.origin)).collect();
    (!problems.is_empty()).then(|| Source { name: "between objects".into(), synced: true, problems })
}

fn interface(config: &Config, status: &InterfaceStatus) -> Interface {
    let roles = [("uplink", &config.uplinks), ("fabric", &config.fabric)];
    Interface {
        name: status.name.clone(),
        roles: roles
            .iter()
            .filter(|(_, names)| names.contains(&status.name))
            .map(|(r, _)| (*r).into())
            .collect(),
        attached: status.attached,
        in_slot: status.in_slot,
    }
}

/// `Advertised` of a rule whose VIPs the plan holds back.
fn held_back() -> Condition {
    Condition {
        kind: "Advertised".into(),
        status: "False".into(),
        reason: "GatewayNotReady".into(),
        message:
            "this gateway has not yet shown since its start that packets get through it; see its own reasons"
                .into(),
    }
}

/// The rules' statuses as they were reported last: of ten thousand rules only those whose basis changed are made anew.
#[derive(Debug, Default)]
pub(super) struct Rules {
    known: HashMap<ObjectName, Known>,
    made: u64,
    /// Counts reports, to tell rules that are gone.
    round: u64,
}

#[derive(Debug)]
struct Known {
    basis: RuleBasis,
    planned: bool,
    status: Arc<RuleStatus>,
    /// The last report that it was in.
    round: u64,
}

impl Rules {
    fn report(&mut self, state: &State, plan: &RoutePlan) -> Vec<Arc<RuleStatus>> {
        let mut all = Vec::with_capacity(self.known.len());
        self.round += 1;
        for (name, resolution) in state.index().resolutions() {
            let served = match &resolution.outcome {
                Outcome::Served(rule) => Some(rule.as_ref()),
                _ => None,
            };
            let in_plan = |vip: &IpAddr| plan.vips.contains_key(&ipnet::IpNet::from(*vip));
            let planned = served.is_none_or(|rule| rule.vips.iter().all(in_plan));
            let basis = state.rule_basis(name);
            if let Some(known) = self.known.get_mut(name)
                && known.basis == basis
                && known.planned == planned
            {
                known.round = self.round;
                all.push(Arc::clone(&known.status));
                continue;
            }
            let Some(status) = state.rule_status(name) else { continue };
            self.made += 1;
            let status = Arc::new(rule(status, served, planned));
            all.push(Arc::clone(&status));
            let known = Known { basis, planned, status, round: self.round };
            self.known.insert(ObjectName::clone(name), known);
        }
        if self.known.len() > all.len() {
            self.known.retain(|_, known| known.round == self.round);
        }
        all
    }
}

fn rule(status: crate::state::RuleStatus, served: Option<&Rule>, planned: bool) -> RuleStatus {
    let condition = |condition: crate::state::RuleCondition| {
        if condition.kind == "Advertised" && condition.status == Truth::True && !planned {
            return held_back();
        }
        Condition {
            kind: condition.kind.into(),
            status: match condition.status {
                Truth::True => "True",
                Truth::False => "False",
                Truth::Unknown => "Unknown",
            }
            .into(),
            reason: condition.reason.into(),
            message: condition.message,
        }
    };
    RuleStatus {
        origin: status.origin,
        vips: served.map(|rule| rule.vips.clone()).unwrap_or_default(),
        protocol: served.map(|rule| rule.protocol),
        port: served.map(|rule| rule.port),
        backends: served.map(summary).unwrap_or_default(),
        conditions: status.conditions.into_iter().map(condition).collect(),
        name: status.name,
    }
}

fn summary(rule: &Rule) -> BackendSummary {
    let count = |wanted: fn(&crate::model::Backend) -> bool| {
        rule.backends.iter().filter(|b| wanted(b)).count() as u32
    };
    let unhealthy = |b: &crate::model::Backend| b.health == crate::model::Health::Unhealthy;
    BackendSummary {
        configured: rule.backends.len() as u32,
        serving: count(|b| {
            b.drain == Drain::No && b.endpoint.is_some() && b.health != crate::model::Health::Unhealthy
        }),
        unresolved: count(|b| b.endpoint.is_none()),
        unhealthy: rule.backends.iter().filter(|b| unhealthy(b)).count() as u32,
        drained: count(|b| b.drain == Drain::Yes),
    }
}

fn peer(config: &Config, peer: &route::PeerStatus) -> PeerStatus {
    let exports = config
        .bgp
        .iter()
        .flat_map(|bgp| &bgp.peers)
        .any(|p| p.name == peer.name && p.role == crate::config::PeerRole::FabricWithVips);
    PeerStatus {
        name: peer.name.clone(),
        role: if exports { "fabric-with-vips".into() } else { peer.role.to_string() },
        address: peer.address,
        asn: peer.asn,
        state: peer.state.to_string(),
        established: peer.state == PeerState::Established,
        established_since: peer.established_since.map(rfc3339),
        synced: peer.state == PeerState::Established && peer.end_of_rib_sent,
        carries: peer.carries,
        advertised: peer.advertised,
        unsendable: peer.unsendable,
        received: peer.received,
        hold_time: peer.hold_time,
        restart_time: peer.graceful_restart.map(|g| g.restart_time),
        last_error: peer.last_error.clone(),
    }
}

fn prefixes(config: &Config, routes: &route::RouteStatus, plan: &RoutePlan) -> Vec<RouteStatus> {
    let text = |attributes: &RouteAttributes| {
        let plain = attributes.communities.iter().map(|c| format!("{}:{}", c >> 16, c & 0xffff));
        plain.chain(attributes.large.iter().map(ToString::to_string)).collect::<Vec<_>>()
    };
    let told = |prefix: &ipnet::IpNet| -> Vec<String> {
        let exports = |name: &str| {
            let mut peers = config.bgp.iter().flat_map(|bgp| &bgp.peers);
            peers.any(|p| p.name == name && p.role == crate::config::PeerRole::FabricWithVips)
        };
        let current =
            routes.peers.values().filter(|p| p.state == PeerState::Established && p.settled >= plan.revision);
        let told = current
            .filter(|p| p.carries.contain(prefix.addr()))
            .filter(|p| plan.routes_for(p.role, exports(&p.name)).any(|(net, _)| net == *prefix));
        told.map(|p| p.name.clone()).collect()
    };
    let all = plan.node.iter().chain(plan.vips.iter());
    all.map(|(prefix, a)| RouteStatus { prefix: *prefix, peers: told(prefix), communities: text(a) })
        .collect()
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
