//! What a running gateway says of itself: plain data, sent to `weir show` and read by `/metrics` and `/readyz`.

use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;
use std::time::SystemTime;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

use crate::desired::DrainStage;
use crate::model::{Families, ObjectName, Protocol};

/// This build's version: the package's, with a label when it is another build of it.
pub const VERSION: &str = if cfg!(feature = "next-build") {
    concat!(env!("CARGO_PKG_VERSION"), "+next")
} else {
    env!("CARGO_PKG_VERSION")
};

/// Number of this build, for `Config::build` of the program's constants.
pub const BUILD: u32 = if cfg!(feature = "next-build") { 2 } else { 1 };

/// A gateway at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeStatus {
    /// This node's name.
    pub node: String,
    /// Region that it serves.
    pub region: String,
    /// [`VERSION`] of the daemon.
    pub version: String,
    /// It may be sent traffic and does its job whole.
    pub ready: bool,
    /// Why it is not ready.
    pub reasons: Vec<NotReady>,
    /// How far it is in leaving for good.
    pub drain: DrainStage,
    /// Generation of what should be.
    pub generation: u64,
    /// Generation that the data plane holds.
    pub applied: u64,
    /// Interfaces that carry the program.
    pub interfaces: Vec<Interface>,
    /// Where objects come from.
    pub sources: Vec<Source>,
    /// Rules, by name.
    pub rules: Vec<Arc<RuleStatus>>,
    /// BGP peers, by name.
    pub peers: Vec<PeerStatus>,
    /// Routes of this node, by prefix.
    pub routes: Vec<RouteStatus>,
    /// SIDs to which no next hop is known.
    pub unreachable: Vec<Ipv6Addr>,
    /// Work done since the start.
    pub work: Work,
}

/// What the daemon has done since its start. An unrelated change of routes grows only the last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Work {
    /// Rings built.
    pub ring_builds: u64,
    /// Writes into the maps: rules, rings, records, next hops.
    pub map_writes: u64,
    /// Changes of routes that the kernel has told.
    pub route_changes: u64,
}

impl NodeStatus {
    /// A gateway that has just been started: not ready, nothing known.
    pub fn starting(node: &str, region: &str) -> Self {
        Self {
            node: node.into(),
            region: region.into(),
            version: VERSION.into(),
            reasons: vec![NotReady {
                id: "starting".into(),
                text: "the gateway is starting".into(),
                remedy: "wait".into(),
            }],
            ..Self::default()
        }
    }
}

/// One thing that keeps a gateway from being ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NotReady {
    /// One word for machines, such as `no-upstream-peer`.
    pub id: String,
    /// What is the matter.
    pub text: String,
    /// What to do about it.
    pub remedy: String,
}

impl std::fmt::Display for NotReady {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}: {}", self.id, self.text)?;
        if self.remedy.is_empty() { Ok(()) } else { write!(f, "; {}", self.remedy) }
    }
}

/// An interface that carries the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Name.
    pub name: String,
    /// `uplink`, `fabric` or both.
    pub roles: Vec<String>,
    /// The pinned link is attached to the interface as it is now.
    pub attached: bool,
    /// The program in our slot is the one that this daemon loaded.
    pub in_slot: bool,
}

/// A source of objects.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Name, such as `files`.
    pub name: String,
    /// Everything has been read once.
    pub synced: bool,
    /// What is wrong now, one line each: place, problem, remedy.
    pub problems: Vec<String>,
}

/// What became of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleStatus {
    /// Its name.
    pub name: ObjectName,
    /// File or URL that it was read from.
    pub origin: String,
    /// Public addresses.
    pub vips: Vec<IpAddr>,
    /// Protocol; `None` when the rule is refused.
    pub protocol: Option<Protocol>,
    /// Port; `None` when the rule is refused.
    pub port: Option<u16>,
    /// Its backends in figures.
    pub backends: BackendSummary,
    /// `Accepted`, `BackendsResolved`, `Loaded`, `Advertised`.
    pub conditions: Vec<Condition>,
}

/// A rule's backends in figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BackendSummary {
    /// As many as the rule names.
    pub configured: u32,
    /// May get new flows.
    pub serving: u32,
    /// No endpoint says where they are.
    pub unresolved: u32,
    /// Unhealthy by the shared verdict.
    pub unhealthy: u32,
    /// Drained by the operator.
    pub drained: u32,
}

/// One condition, as in a cluster object's status.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Condition {
    /// Its type.
    #[serde(rename = "type")]
    pub kind: std::borrow::Cow<'static, str>,
    /// `True`, `False` or `Unknown`.
    pub status: std::borrow::Cow<'static, str>,
    /// One word for machines.
    pub reason: std::borrow::Cow<'static, str>,
    /// One sentence for people; empty when the reason says all.
    pub message: String,
}

/// A BGP peer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerStatus {
    /// Name in the configuration.
    pub name: String,
    /// What it is told: `upstream`, `fabric`, `fabric-with-vips`.
    pub role: String,
    /// Address.
    pub address: IpAddr,
    /// AS number.
    pub asn: u32,
    /// Session state (RFC 4271 section 8.2.2), such as `Established`.
    pub state: String,
    /// The session is established.
    pub established: bool,
    /// Since when, RFC 3339 (see [`rfc3339`]).
    pub established_since: Option<String>,
    /// All that it should know was sent, End-of-RIB included.
    pub synced: bool,
    /// Families of which the session carries routes: negotiated, and with a next hop.
    pub carries: Families,
    /// Routes sent and not withdrawn.
    pub advertised: u64,
    /// Routes that this session cannot carry.
    pub unsendable: u64,
    /// Prefixes that it announces to us; all are refused.
    pub received: u64,
    /// Hold time in force, seconds.
    pub hold_time: Option<u16>,
    /// Its graceful-restart time, seconds.
    pub restart_time: Option<u16>,
    /// Why the last session ended or did not come up.
    pub last_error: Option<String>,
}

/// A route of this node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteStatus {
    /// Prefix.
    pub prefix: IpNet,
    /// Peers that have been told, by name.
    pub peers: Vec<String>,
    /// Communities and large communities that it carries, as text.
    pub communities: Vec<String>,
}

/// A time as [`PeerStatus::established_since`] holds it, whole seconds.
pub fn rfc3339(time: SystemTime) -> String {
    humantime::format_rfc3339_seconds(time).to_string()
}
