//! Conditions of a rule on this gateway, with reasons that a tenant can read.

use std::net::IpAddr;

use serde::Serialize;

use super::State;
use crate::config::PeerRole;
use crate::desired::{DrainStage, Refusal, RefusalCause};
use crate::model::{ObjectName, Rule};
use crate::resolve::Outcome;

/// What became of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuleStatus {
    /// The rule.
    pub name: ObjectName,
    /// File or URL it was read from.
    pub origin: String,
    /// `Accepted`, `BackendsResolved`, `Loaded`, `Advertised`, in this order.
    pub conditions: Vec<RuleCondition>,
}

/// Whether a condition holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Truth {
    /// It holds.
    True,
    /// It does not.
    False,
    /// It cannot be said yet.
    Unknown,
}

/// One condition.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RuleCondition {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// Whether it holds.
    pub status: Truth,
    /// One word for machines.
    pub reason: &'static str,
    /// One sentence for people; empty when the reason says all.
    pub message: String,
}

fn condition(
    kind: &'static str,
    status: Truth,
    reason: &'static str,
    message: impl Into<String>,
) -> RuleCondition {
    RuleCondition { kind, status, reason, message: message.into() }
}

pub(super) fn of(state: &State, name: &ObjectName) -> Option<RuleStatus> {
    let resolution = state.index.resolution(name)?;
    let origin = state.index.origin(name).unwrap_or_default().to_string();
    let not_served = |kind| condition(kind, Truth::False, "NotServed", "");
    let conditions = match &resolution.outcome {
        Outcome::Refused(problem) => {
            let accepted = condition("Accepted", Truth::False, "Refused", problem.to_string());
            vec![accepted, not_served("BackendsResolved"), not_served("Loaded"), not_served("Advertised")]
        }
        Outcome::Elsewhere { region } => {
            let elsewhere =
                |kind| condition(kind, Truth::False, "OtherRegion", format!("region {region} serves it"));
            let accepted = condition("Accepted", Truth::True, "Valid", "");
            vec![accepted, elsewhere("BackendsResolved"), elsewhere("Loaded"), elsewhere("Advertised")]
        }
        Outcome::Served(rule) => {
            let resolved = if resolution.unresolved.is_empty() {
                condition("BackendsResolved", Truth::True, "AllResolved", "")
            } else {
                let (total, n) = (rule.backends.len(), resolution.unresolved.len());
                let why: Vec<_> = resolution.unresolved.iter().take(3).map(|(_, why)| why.as_str()).collect();
                let message = format!("{n} of {total} backends lead nowhere: {}", why.join("; "));
                condition("BackendsResolved", Truth::False, "EndpointMissing", message)
            };
            vec![
                condition("Accepted", Truth::True, "Valid", ""),
                resolved,
                loaded(state, rule),
                advertised(state, rule),
            ]
        }
    };
    Some(RuleStatus { name: name.clone(), origin, conditions })
}

/// What a rule's status was made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleBasis {
    revision: u64,
    refusal: Option<Refusal>,
    loaded: bool,
    announced: bool,
    leaving: bool,
    told: Told,
}

pub(super) fn basis(state: &State, name: &ObjectName) -> RuleBasis {
    let served = match state.index.resolution(name).map(|resolution| &resolution.outcome) {
        Some(Outcome::Served(rule)) => Some(rule),
        _ => None,
    };
    RuleBasis {
        revision: state.index.revision(name),
        refusal: state.applied.refused.get(name).cloned(),
        loaded: served.is_some_and(|rule| is_loaded(state, rule)),
        announced: served.is_some_and(|rule| is_announced(state, rule)),
        leaving: state.desired.drain >= DrainStage::Withdrawn,
        told: served.map_or(Told::Nobody, |rule| told(state, rule)),
    }
}

fn is_loaded(state: &State, rule: &Rule) -> bool {
    rule.keys().all(|key| state.applied.loaded.contains(&key))
}

fn is_announced(state: &State, rule: &Rule) -> bool {
    rule.vips.iter().all(|vip| state.desired.announce.contains(vip))
}

/// Which of a rule's VIPs upstream peers know of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    /// All of them.
    All,
    /// No peer is established and knows all it should.
    Nobody,
    /// No such peer's session carries the family of this one.
    NotOf(IpAddr),
}

fn told(state: &State, rule: &Rule) -> Told {
    let peers = || state.peers().filter(|p| p.role != PeerRole::Fabric && p.established && p.synced);
    if peers().next().is_none() {
        return Told::Nobody;
    }
    let missing = rule.vips.iter().find(|vip| !peers().any(|p| p.carries.contain(**vip)));
    missing.map_or(Told::All, |vip| Told::NotOf(*vip))
}

fn loaded(state: &State, rule: &Rule) -> RuleCondition {
    if let Some(why) = state.applied.refused.get(&rule.name) {
        let reason = match why.cause {
            RefusalCause::LimitReached => "LimitReached",
            RefusalCause::Immutable => "Immutable",
            RefusalCause::Fault => "NotLoaded",
        };
        return condition("Loaded", Truth::False, reason, &why.message);
    }
    if is_loaded(state, rule) {
        return condition("Loaded", Truth::True, "Loaded", "");
    }
    condition("Loaded", Truth::Unknown, "Pending", "the data plane has not answered yet")
}

fn advertised(state: &State, rule: &Rule) -> RuleCondition {
    let no = |reason, message: &str| condition("Advertised", Truth::False, reason, message);
    if state.desired.drain >= DrainStage::Withdrawn {
        return no("Draining", "this gateway leaves");
    }
    if !is_announced(state, rule) {
        return no("AllBackendsDown", "no backend serves, and the rule's onAllDown is withdraw");
    }
    if !is_loaded(state, rule) {
        return no("NotLoaded", "only what is loaded is announced");
    }
    let told = told(state, rule);
    if told == Told::Nobody {
        return no("NoPeer", "no upstream peer is established and told");
    }
    if let Told::NotOf(vip) = told {
        let (family, remedy) = if vip.is_ipv4() {
            ("IPv4", "with IPv6 next hops (RFC 8950), or set nextHopIPv4 for it")
        } else {
            ("IPv6", "or set nextHopIPv6 for an IPv4 session")
        };
        let message = format!(
            "no session with an upstream peer carries {family} routes, so {vip} is told to nobody: let the router negotiate {family} \
             unicast {remedy}"
        );
        return no("FamilyNotCarried", &message);
    }
    condition("Advertised", Truth::True, "Advertised", "")
}
