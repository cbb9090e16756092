//! A topology as plain data: nodes, links, addresses, routes, files, roles. It describes; [`crate::lab::Lab`] runs.

mod build;
mod check;
mod route;

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use ipnet::IpNet;
use serde::{Deserialize, Serialize};

pub use build::{NodeBuilder, TopologyBuilder};
pub use route::{Encap, NextHop, Route, RouteKind, Rule, Seg6Local, Seg6Mode};

/// What is wrong with a topology; every problem found, not only the first.
#[derive(Debug, thiserror::Error)]
#[error("topology {topology:?} is not valid: {}", problems.join("; "))]
pub struct TopologyError {
    /// Name of the topology.
    pub topology: String,
    /// One sentence a problem.
    pub problems: Vec<String>,
}

/// A whole topology. Its nodes and links keep the order they were declared in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Topology {
    /// Short name: lower-case letters, digits and hyphens.
    pub name: String,
    /// Hosts and routers.
    pub nodes: Vec<Node>,
    /// Point-to-point links between them.
    #[serde(default)]
    pub links: Vec<Link>,
}

/// One host or router: a network namespace, or a container.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Node {
    /// Name, unique in the topology: letters, digits and hyphens.
    pub name: String,
    /// What the node runs by itself.
    #[serde(default, skip_serializing_if = "Role::is_plain")]
    pub role: Role,
    /// Addresses in the order they are added; on `lo` too. Duplicate address detection is skipped for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<Address>,
    /// Routes, in the language of `ip route add`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<Route>,
    /// Policy rules, in the language of `ip rule add`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rules: Vec<Rule>,
    /// Kernel settings by dotted name, set once the interfaces exist.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub sysctls: BTreeMap<String, String>,
    /// An nftables rule set, loaded by the `nft` program.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nftables: Option<String>,
    /// Files by path relative to the node's own directory.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub files: BTreeMap<String, String>,
    /// Programs started with the lab, in order, after the role is ready.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub processes: Vec<Process>,
}

/// What a node runs by itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Nothing: a host, or a router with static routes.
    #[default]
    Plain,
    /// FRR routing daemons.
    Frr(FrrRole),
}

impl Role {
    /// Whether the node runs nothing by itself.
    pub const fn is_plain(&self) -> bool {
        matches!(self, Self::Plain)
    }
}

/// FRR's daemons and their one configuration.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FrrRole {
    /// Daemons beside zebra, which always runs.
    pub daemons: Vec<FrrDaemon>,
    /// Text of `frr.conf`, read by all of them.
    pub config: String,
}

/// A daemon of FRR.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FrrDaemon {
    /// Kernel table keeper; always runs.
    Zebra,
    /// BGP.
    Bgpd,
    /// Static routes.
    Staticd,
    /// BFD.
    Bfdd,
}

impl FrrDaemon {
    /// Name of its program.
    pub const fn program(self) -> &'static str {
        match self {
            Self::Zebra => "zebra",
            Self::Bgpd => "bgpd",
            Self::Staticd => "staticd",
            Self::Bfdd => "bfdd",
        }
    }
}

/// An address of an interface, written `ADDRESS/LENGTH`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Address {
    /// Interface that gets it.
    pub interface: String,
    /// Host address with its prefix length.
    pub address: IpNet,
}

/// A program that runs in a node while the lab is up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// Name, unique in the node; also the log file's name.
    pub name: String,
    /// Program and arguments; its working directory is the node's own directory.
    pub command: Vec<String>,
    /// Environment on top of the lab's own.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub env: BTreeMap<String, String>,
    /// When it counts as started; without one, as soon as it runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<Ready>,
}

/// When a process counts as ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ready {
    /// Text that must appear in its log.
    pub log: String,
    /// Longest wait in milliseconds.
    #[serde(default = "Ready::default_within_ms")]
    pub within_ms: u64,
}

impl Ready {
    const fn default_within_ms() -> u64 {
        10_000
    }
    /// Ready once `text` is in the log, waited for at most ten seconds.
    pub fn log(text: impl Into<String>) -> Self {
        Self { log: text.into(), within_ms: Self::default_within_ms() }
    }
    /// Longest wait.
    pub const fn within(&self) -> Duration {
        Duration::from_millis(self.within_ms)
    }
}

/// A point-to-point Ethernet link.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// One end.
    pub a: Endpoint,
    /// The other end.
    pub b: Endpoint,
    /// MTU of both ends in bytes. Mandatory: defaults differ between fabrics and decide whether XDP attaches.
    pub mtu: u32,
}

impl Link {
    /// Both ends, `a` first.
    pub const fn ends(&self) -> [&Endpoint; 2] {
        [&self.a, &self.b]
    }
    /// `a:eth0—b:eth0`.
    pub fn label(&self) -> String {
        format!("{}—{}", self.a, self.b)
    }
}

/// One end of a link, written `node:interface`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Endpoint {
    /// Node that has the interface.
    pub node: String,
    /// Interface name inside the node, at most 15 bytes.
    pub interface: String,
    /// What the lab attaches to this end.
    #[serde(default, skip_serializing_if = "is_default")]
    pub xdp: Xdp,
    /// Whether the kernel leaves checksums to the "hardware" of this end.
    #[serde(default, skip_serializing_if = "is_default")]
    pub tx_checksum: TxChecksum,
}

impl fmt::Display for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.node, self.interface)
    }
}

impl FromStr for Endpoint {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once(':') {
            Some((node, interface)) if !node.is_empty() && !interface.is_empty() => Ok(Self {
                node: node.into(),
                interface: interface.into(),
                xdp: Xdp::default(),
                tx_checksum: TxChecksum::default(),
            }),
            _ => Err(format!("link end {text:?}: write it as node:interface")),
        }
    }
}

/// XDP program that the lab attaches to a link's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Xdp {
    /// A program that passes everything, so that frames transmitted by XDP on the other end are delivered
    /// (veth takes them only while its peer runs NAPI).
    #[default]
    PassThrough,
    /// None: the node attaches its own.
    None,
}

/// Transmit checksum offload of a link's end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TxChecksum {
    /// Computed before the frame leaves, so that XDP and captures see right checksums.
    #[default]
    Software,
    /// Left as veth has it: partial checksums on the link.
    Offload,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Topology {
    /// The node of that name.
    pub fn node(&self, name: &str) -> Option<&Node> {
        self.nodes.iter().find(|node| node.name == name)
    }

    /// Links that end at a node, each with that end first.
    pub fn links_of<'a>(
        &'a self,
        node: &'a str,
    ) -> impl Iterator<Item = (&'a Endpoint, &'a Endpoint, &'a Link)> {
        self.links.iter().flat_map(move |link| {
            let [a, b] = link.ends();
            [(a, b, link), (b, a, link)].into_iter().filter(move |(near, _, _)| near.node == node)
        })
    }

    /// The MAC address the lab gives a link's end: locally administered, the same in every run, from the positions of
    /// the node and of its link. `None` when the topology has no such end.
    pub fn mac(&self, node: &str, interface: &str) -> Option<[u8; 6]> {
        let node_index = self.nodes.iter().position(|n| n.name == node)? as u16 + 1;
        let end = self.links_of(node).position(|(near, _, _)| near.interface == interface)? as u16 + 1;
        let ([n0, n1], [e0, e1]) = (node_index.to_be_bytes(), end.to_be_bytes());
        Some([0x02, 0x00, n0, n1, e0, e1])
    }

    /// First address of a node's interface, without its prefix length.
    pub fn address(&self, node: &str, interface: &str) -> Option<std::net::IpAddr> {
        self.node(node)?.addresses.iter().find(|a| a.interface == interface).map(|a| a.address.addr())
    }
}
