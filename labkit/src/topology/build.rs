//! The builder: a topology written in a few lines, its mistakes collected and reported together.

#![allow(
    clippy::return_self_not_must_use,
    reason = "the builders write through to the topology; dropping one loses nothing"
)]

use std::fmt::Display;
use std::str::FromStr;

use super::{
    Address, Endpoint, FrrDaemon, FrrRole, Link, Node, Process, Role, Topology, TopologyError, TxChecksum,
    Xdp,
};

/// Collects nodes and links; made by [`Topology::build`].
#[derive(Debug)]
pub struct TopologyBuilder {
    topology: Topology,
    problems: Vec<String>,
}

impl Topology {
    /// Builds and checks a topology.
    ///
    /// ```
    /// use labkit::topology::Topology;
    /// let topology = Topology::build("pair", |t| {
    ///     t.node("client").address("eth0", "2001:db8:1::2/64").route("default via 2001:db8:1::1");
    ///     t.node("router").forwarding().address("eth0", "2001:db8:1::1/64").address("eth1", "2001:db8:2::1/64");
    ///     t.node("server").address("eth0", "2001:db8:2::2/64").route("default via 2001:db8:2::1");
    ///     t.link("client:eth0", "router:eth0", 1500);
    ///     t.link("router:eth1", "server:eth0", 1500);
    /// })?;
    /// # Ok::<(), labkit::topology::TopologyError>(())
    /// ```
    pub fn build(name: &str, describe: impl FnOnce(&mut TopologyBuilder)) -> Result<Self, TopologyError> {
        let topology = Self { name: name.into(), nodes: Vec::new(), links: Vec::new() };
        let mut builder = TopologyBuilder { topology, problems: Vec::new() };
        describe(&mut builder);
        let TopologyBuilder { topology, mut problems } = builder;
        problems.extend(topology.problems());
        if problems.is_empty() {
            Ok(topology)
        } else {
            Err(TopologyError { topology: topology.name, problems })
        }
    }
}

impl TopologyBuilder {
    /// Adds a node, or goes on with one added before.
    pub fn node(&mut self, name: &str) -> NodeBuilder<'_> {
        let index = self.topology.nodes.iter().position(|node| node.name == name).unwrap_or_else(|| {
            self.topology.nodes.push(Node { name: name.into(), ..Node::default() });
            self.topology.nodes.len() - 1
        });
        NodeBuilder { node: &mut self.topology.nodes[index], problems: &mut self.problems }
    }

    /// Joins two ends, each `node:interface`, by a link of this MTU.
    pub fn link(&mut self, a: &str, b: &str, mtu: u32) -> LinkBuilder<'_> {
        let mut end = |text: &str| match text.parse::<Endpoint>() {
            Ok(end) => Some(end),
            Err(problem) => {
                self.problems.push(problem);
                None
            }
        };
        let link = match (end(a), end(b)) {
            (Some(a), Some(b)) => {
                self.topology.links.push(Link { a, b, mtu });
                self.topology.links.last_mut()
            }
            _ => None,
        };
        LinkBuilder { link }
    }

    /// Reports a mistake found by the caller's own code together with the builder's.
    pub fn problem(&mut self, problem: impl Into<String>) {
        self.problems.push(problem.into());
    }
}

/// Options of a link just added.
#[derive(Debug)]
pub struct LinkBuilder<'a> {
    link: Option<&'a mut Link>,
}

impl LinkBuilder<'_> {
    fn end(mut self, node: &str, change: impl Fn(&mut Endpoint)) -> Self {
        if let Some(link) = &mut self.link {
            for end in [&mut link.a, &mut link.b] {
                if end.node == node {
                    change(end);
                }
            }
        }
        self
    }
    /// Leaves XDP on this node's end to the node.
    pub fn own_xdp(self, node: &str) -> Self {
        self.end(node, |end| end.xdp = Xdp::None)
    }
    /// Keeps transmit checksum offload on this node's end.
    pub fn checksum_offload(self, node: &str) -> Self {
        self.end(node, |end| end.tx_checksum = TxChecksum::Offload)
    }
}

/// Describes one node.
#[derive(Debug)]
pub struct NodeBuilder<'a> {
    node: &'a mut Node,
    problems: &'a mut Vec<String>,
}

impl NodeBuilder<'_> {
    fn parse<T: FromStr<Err: Display>>(&mut self, what: &str, text: &str) -> Option<T> {
        match text.parse() {
            Ok(value) => Some(value),
            Err(error) => {
                self.problems.push(format!("node {:?}: {what} {text:?}: {error}", self.node.name));
                None
            }
        }
    }

    /// Adds an address, `ADDRESS/LENGTH`, to an interface (or `lo`).
    pub fn address(mut self, interface: &str, address: &str) -> Self {
        if let Some(address) = self.parse("address", address) {
            self.node.addresses.push(Address { interface: interface.into(), address });
        }
        self
    }
    /// Adds a route in the language of `ip route add`.
    pub fn route(mut self, route: &str) -> Self {
        if let Some(route) = self.parse("route", route) {
            self.node.routes.push(route);
        }
        self
    }
    /// Adds a policy rule in the language of `ip rule add`.
    pub fn rule(mut self, rule: &str) -> Self {
        if let Some(rule) = self.parse("rule", rule) {
            self.node.rules.push(rule);
        }
        self
    }
    /// Sets a kernel setting by its dotted name.
    pub fn sysctl(self, name: &str, value: impl Display) -> Self {
        self.node.sysctls.insert(name.into(), value.to_string());
        self
    }
    /// Makes the node a router for IPv6 and IPv4.
    pub fn forwarding(self) -> Self {
        self.sysctl("net.ipv6.conf.all.forwarding", 1).sysctl("net.ipv4.ip_forward", 1)
    }
    /// Loads an nftables rule set.
    pub fn nftables(self, rules: impl Into<String>) -> Self {
        self.node.nftables = Some(rules.into());
        self
    }
    /// Puts a file into the node's own directory.
    pub fn file(self, path: &str, content: impl Into<String>) -> Self {
        self.node.files.insert(path.into(), content.into());
        self
    }
    /// Starts a program with the lab.
    pub fn process(self, process: Process) -> Self {
        self.node.processes.push(process);
        self
    }
    /// Runs FRR with these daemons beside zebra.
    pub fn frr(self, daemons: &[FrrDaemon], config: impl Into<String>) -> Self {
        self.node.role = Role::Frr(FrrRole { daemons: daemons.to_vec(), config: config.into() });
        self
    }
}
