//! Conditions of a rule on this gateway, with reasons that a tenant can read.

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
    told: bool,
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
        told: told(state),
    }
}

fn is_loaded(state: &State, rule: &Rule) -> bool {
    rule.keys().all(|key| state.applied.loaded.contains(&key))
}

fn is_announced(state: &State, rule: &Rule) -> bool {
    rule.vips.iter().all(|vip| state.desired.announce.contains(vip))
}

/// Whether some upstream peer knows all it should.
fn told(state: &State) -> bool {
    state.peers().filter(|p| p.role != PeerRole::Fabric).any(|p| p.established && p.synced)
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
    if !told(state) {
        return no("NoPeer", "no upstream peer is established and told");
    }
    condition("Advertised", Truth::True, "Advertised", "")
}
