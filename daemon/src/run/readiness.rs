//! Why a gateway is not ready: each reason with what to do about it.

use std::collections::BTreeSet;

use super::datapath::{Health, SelfTest};
use super::sysctl::Unset;
use crate::config::{Config, Locator, PeerRole};
use crate::desired::DrainStage;
use crate::route::{PeerState, RouteStatus};
use crate::state::State;
use crate::status::NotReady;

fn reason(id: &str, text: impl Into<String>, remedy: impl Into<String>) -> NotReady {
    NotReady { id: id.into(), text: text.into(), remedy: remedy.into() }
}

/// All reasons; none when the gateway may be sent traffic and does its job whole.
pub(super) fn reasons(
    config: &Config,
    locator: Locator,
    state: &State,
    health: &Health,
    routes: &RouteStatus,
    unset: &[Unset],
) -> Vec<NotReady> {
    let mut reasons = Vec::new();
    if let Some(now) = state.index().locator_of(&config.node).filter(|now| *now != locator) {
        let text = format!(
            "this node's BGPRouter gives {}, and the gateway runs with {}",
            now.prefix(),
            locator.prefix()
        );
        reasons.push(reason("locator", text, "restart the gateway, or set the BGPRouter back"));
    }
    if state.desired().drain != DrainStage::None {
        reasons.push(reason("draining", "the gateway leaves for good", "start it again to serve"));
    }
    for setting in unset {
        let Unset { interface, reason: why } = setting;
        reasons.push(reason(
            "forwarding",
            format!("IPv6 forwarding cannot be enabled on {interface}: {why}"),
            format!("set net.ipv6.conf.{interface}.forwarding=1, or give the gateway a writable /proc/sys"),
        ));
    }
    for interface in &health.interfaces {
        let name = &interface.name;
        if !interface.attached {
            let text = format!("the XDP link is not attached to {name}");
            reasons.push(reason("not-attached", text, "restart the gateway once the interface is back"));
        } else if !interface.in_slot {
            let text = format!("another program sits in the load balancer's slot of {name}");
            reasons.push(reason(
                "not-in-slot",
                text,
                "stop the other gateway of this host, then restart this one",
            ));
        }
    }
    if let Some(error) = &health.error {
        reasons.push(reason("data-plane", error.clone(), "see the log"));
    }
    if !state.desired().synced {
        reasons.push(unsynced(state));
    }
    if state.desired().synced && state.applied().generation < state.desired().generation {
        reasons.push(reason("loading", "the maps do not hold the newest rules yet", "wait"));
    }
    let refused = &state.applied().refused;
    if let Some((_, first)) = refused.first_key_value() {
        let names: Vec<String> = refused.keys().take(3).map(ToString::to_string).collect();
        let text =
            format!("{} rules are not loaded ({}): {}", refused.len(), names.join(", "), first.message);
        reasons.push(reason("not-loaded", text, "see the rules' condition Loaded in weir show vips"));
    }
    for sid in &state.applied().unreachable {
        reasons.push(reason(
            "unreachable",
            format!("no next hop towards SID {sid} on {}", config.fabric.join(", ")),
            "add a route for it on the fabric side, or look at why its neighbour does not answer",
        ));
    }
    reasons.extend(peers(config, routes));
    match health.self_test {
        SelfTest::Returned => {}
        SelfTest::Pending => {
            reasons.push(reason("self-test", "the self-test frame has not come back yet", "wait"));
        }
        SelfTest::Lost => reasons.push(reason(
            "self-test",
            format!("the self-test frame sent to {} does not come back", locator.self_test_sid()),
            format!("see that the fabric routes {} to this node", locator.prefix()),
        )),
    }
    reasons
}

fn unsynced(state: &State) -> NotReady {
    let problems: Vec<String> =
        state.sources().flat_map(|source| &source.problems).take(3).map(ToString::to_string).collect();
    if problems.is_empty() {
        reason("not-synced", "objects have not been read yet", "wait")
    } else {
        reason(
            "not-synced",
            format!("objects have no good version: {}", problems.join("; ")),
            "correct the files",
        )
    }
}

/// At least one peer of each configured role must be established and hold all it should know.
fn peers(config: &Config, routes: &RouteStatus) -> Vec<NotReady> {
    let roles: BTreeSet<bool> =
        config.bgp.iter().flat_map(|bgp| &bgp.peers).map(|peer| peer.role == PeerRole::Upstream).collect();
    let mut reasons = Vec::new();
    for upstream in roles {
        let (role, wanted) = if upstream {
            ("upstream", crate::route::PeerRole::Upstream)
        } else {
            ("fabric", crate::route::PeerRole::Fabric)
        };
        let of_role = || routes.peers.values().filter(|peer| peer.role == wanted);
        let ready =
            |peer: &crate::route::PeerStatus| peer.state == PeerState::Established && peer.end_of_rib_sent;
        if !of_role().any(ready) {
            let states: Vec<String> = of_role()
                .map(|peer| match &peer.last_error {
                    Some(error) => format!("{} {} ({error})", peer.name, peer.state),
                    None => format!("{} {}", peer.name, peer.state),
                })
                .collect();
            reasons.push(reason(
                &format!("no-{role}-peer"),
                format!("no {role} BGP peer is established and told everything: {}", states.join(", ")),
                "see weir show peers, and the router's own view of the session",
            ));
        }
    }
    reasons
}
