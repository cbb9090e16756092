//! The kinds of `weir show` that only a running daemon can answer: routes, peers, node.

use std::io::Write;
use std::path::Path;
use std::sync::Arc;

use super::failure::block_on;
use super::output::{self, Format, Rows};
use super::{Exit, Failure};
use crate::admin::Client;
use crate::desired::DrainStage;
use crate::status::{NodeStatus, PeerStatus, RouteStatus, RuleStatus};

/// Asks the daemon what it says of itself.
pub(super) fn status(admin: &Path) -> Result<NodeStatus, Failure> {
    block_on(Client::new(admin).status())
}

pub(super) fn routes(admin: &Path, format: Format, out: &mut dyn Write) -> Result<Exit, Failure> {
    output::list(out, format, &Routes(status(admin)?.routes))?;
    Ok(Exit::Fine)
}

pub(super) fn peers(admin: &Path, format: Format, out: &mut dyn Write) -> Result<Exit, Failure> {
    output::list(out, format, &Peers(status(admin)?.peers))?;
    Ok(Exit::Fine)
}

/// Shows the node; a node that is not ready is a problem found.
pub(super) fn node(admin: &Path, format: Format, out: &mut dyn Write) -> Result<Exit, Failure> {
    let status = status(admin)?;
    match format {
        Format::Table => out.write_all(node_text(&status).as_bytes())?,
        Format::Json | Format::Yaml => output::data(out, format, &status)?,
    }
    Ok(if status.ready { Exit::Fine } else { Exit::Problems })
}

/// The node for people.
pub(super) fn node_text(status: &NodeStatus) -> String {
    let interface = |i: &crate::status::Interface| {
        let state = match (i.attached, i.in_slot) {
            (true, true) => "attached",
            (true, false) => "attached, but another program is in the slot",
            (false, _) => "NOT ATTACHED",
        };
        format!("{} ({}): {state}", i.name, i.roles.join(", "))
    };
    let source = |s: &crate::status::Source| {
        let synced = if s.synced { "read" } else { "not read yet" };
        std::iter::once(format!("{}: {synced}, {}", s.name, output::count(s.problems.len(), "problem")))
            .chain(s.problems.iter().map(|problem| format!("  {problem}")))
            .collect::<Vec<_>>()
            .join("\n")
    };
    let lines = |lines: Vec<String>| lines.join("\n");
    let stage = match status.drain {
        DrainStage::None => "no",
        DrainStage::GracefulShutdown => "routes carry GRACEFUL_SHUTDOWN",
        DrainStage::Withdrawn => "routes are withdrawn, packets are still served",
        DrainStage::Detached => "programs are being detached",
    };
    let established = status.peers.iter().filter(|peer| peer.established).count();
    let mut pairs = vec![
        ("node", status.node.clone()),
        ("region", status.region.clone()),
        ("version", status.version.clone()),
        ("ready", if status.ready { "yes" } else { "NO" }.into()),
        ("not ready", lines(status.reasons.iter().map(ToString::to_string).collect())),
        ("draining", stage.into()),
        ("generation", format!("{}, in the data plane {}", status.generation, status.applied)),
        ("interfaces", lines(status.interfaces.iter().map(interface).collect())),
        ("sources", lines(status.sources.iter().map(source).collect())),
        ("peers", format!("{established} of {} established", status.peers.len())),
        ("routes", output::count(status.routes.len(), "route")),
        ("unreachable", lines(status.unreachable.iter().map(ToString::to_string).collect())),
        (
            "since start",
            format!(
                "{} built, {}, {} of routes seen",
                output::count(status.work.ring_builds as usize, "ring"),
                output::count(status.work.map_writes as usize, "map write"),
                output::count(status.work.route_changes as usize, "change"),
            ),
        ),
    ];
    pairs.retain(|(_, value)| !value.is_empty());
    format!("{}\n{}", output::pairs(pairs), output::table(&Rules(&status.rules)))
}

#[derive(serde::Serialize)]
#[serde(transparent)]
pub(super) struct Routes(pub(super) Vec<RouteStatus>);

impl Rows for Routes {
    fn header(&self) -> Vec<&'static str> {
        vec!["PREFIX", "ADVERTISED TO", "COMMUNITIES"]
    }
    fn rows(&self) -> Vec<Vec<String>> {
        let told = |route: &RouteStatus| {
            if route.peers.is_empty() { "nobody".into() } else { route.peers.join(", ") }
        };
        self.0.iter().map(|r| vec![r.prefix.to_string(), told(r), r.communities.join(" ")]).collect()
    }
    fn nothing(&self) -> &'static str {
        "no route is announced"
    }
}

#[derive(serde::Serialize)]
#[serde(transparent)]
pub(super) struct Peers(pub(super) Vec<PeerStatus>);

impl Rows for Peers {
    fn header(&self) -> Vec<&'static str> {
        vec!["PEER", "ROLE", "ADDRESS", "AS", "STATE", "SINCE", "CARRIES", "SENT", "SYNCED", "LAST ERROR"]
    }
    fn rows(&self) -> Vec<Vec<String>> {
        let row = |peer: &PeerStatus| {
            vec![
                peer.name.clone(),
                peer.role.clone(),
                peer.address.to_string(),
                peer.asn.to_string(),
                peer.state.clone(),
                peer.established_since.clone().unwrap_or_default(),
                peer.carries.to_string(),
                peer.advertised.to_string(),
                if peer.synced { "yes" } else { "no" }.into(),
                peer.last_error.clone().unwrap_or_default(),
            ]
        };
        self.0.iter().map(row).collect()
    }
    fn nothing(&self) -> &'static str {
        "no peer is configured"
    }
}

#[derive(serde::Serialize)]
#[serde(transparent)]
struct Rules<'a>(&'a [Arc<RuleStatus>]);

impl Rows for Rules<'_> {
    fn header(&self) -> Vec<&'static str> {
        vec!["RULE", "BACKENDS", "CONDITION", "REASON", "MESSAGE"]
    }
    fn rows(&self) -> Vec<Vec<String>> {
        let row = |rule: &Arc<RuleStatus>| {
            let backends = format!("{} of {}", rule.backends.serving, rule.backends.configured);
            // The first condition that does not hold explains the others.
            let condition = rule.conditions.iter().find(|c| c.status != "True").or(rule.conditions.last());
            let words = condition.map_or_else(Default::default, |c| {
                let sign = if c.status == "True" { "" } else { "not " };
                [format!("{sign}{}", c.kind), c.reason.to_string(), c.message.clone()]
            });
            [rule.name.to_string(), backends].into_iter().chain(words).collect()
        };
        self.0.iter().map(row).collect()
    }
    fn nothing(&self) -> &'static str {
        "no rule is known"
    }
}
