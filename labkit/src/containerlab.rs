//! A topology as containerlab's YAML, and back.
//!
//! What containerlab has a field for is written there; addresses, routes and rules are `exec` commands in iproute2's
//! language, so that the file also works by hand; the rest (FRR daemons, processes, ends that keep offloads or bring
//! their own XDP) are `labkit.*` labels that [`read`] understands and containerlab ignores. Files and FRR's and
//! nftables' configurations are separate files that the nodes bind, in a folder named after the topology.
//!
//! The file asks for little: no privileges beyond three capabilities, no image pulls, no management network, no
//! restarts (a restarted container loses its links), an MTU on every link (containerlab's own default is too large for
//! XDP). Needs containerlab 0.78 or later.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::topology::{
    Address, Endpoint, FrrDaemon, FrrRole, Link, Node, Process, Role, Rule, Topology, TxChecksum, Xdp,
};

/// Capabilities a node gets: links and routes, mounts and BPF, packet sockets.
const CAPABILITIES: [&str; 3] = ["NET_ADMIN", "SYS_ADMIN", "NET_RAW"];

/// Kernel settings that every node is created with: IPv6 works, and addresses are usable at once.
const CREATED_WITH: [(&str, &str); 3] = [
    ("net.ipv6.conf.all.disable_ipv6", "0"),
    ("net.ipv6.conf.default.disable_ipv6", "0"),
    ("net.ipv6.conf.default.accept_dad", "0"),
];

/// Where a node finds its own files.
const NODE_FOLDER: &str = "/lab";

const FRR_LABEL: &str = "labkit.frr-daemons";
const PROCESS_LABEL: &str = "labkit.processes";
const OWN_XDP_LABEL: &str = "labkit.own-xdp";
const OFFLOAD_LABEL: &str = "labkit.tx-checksum-offload";

/// A containerlab file that could not be read or written.
#[derive(Debug, thiserror::Error)]
#[error("{operation} containerlab topology: {problem}")]
pub struct Error {
    operation: &'static str,
    problem: String,
}

impl Error {
    fn read(problem: impl ToString) -> Self {
        Self { operation: "read", problem: problem.to_string() }
    }

    fn write(problem: impl ToString) -> Self {
        Self { operation: "write", problem: problem.to_string() }
    }
}

/// A rendered topology.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// The text of `<name>.clab.yml`.
    pub yaml: String,
    /// Files beside it by relative path, which the nodes bind.
    pub files: BTreeMap<String, String>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    name: String,
    mgmt: Management,
    topology: Body,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Management {
    skip_when_unused: bool,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    /// A map that keeps the order of its keys: nodes keep theirs.
    nodes: Map<String, Value>,
    #[serde(default)]
    links: Vec<ClabLink>,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ClabLink {
    endpoints: [String; 2],
    mtu: u32,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct ClabNode {
    kind: String,
    image: String,
    image_pull_policy: String,
    network_mode: String,
    restart_policy: String,
    privileged: bool,
    cap_add: Vec<String>,
    sysctls: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    binds: Vec<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    exec: Vec<String>,
}

/// Renders a topology whose nodes all run `image`.
pub fn render(topology: &Topology, image: &str) -> Result<Rendered, Error> {
    let mut files = BTreeMap::new();
    let mut nodes = Map::new();
    for node in &topology.nodes {
        let rendered = render_node(topology, node, image, &mut files)?;
        nodes.insert(node.name.clone(), serde_json::to_value(rendered).map_err(Error::write)?);
    }
    let links = topology
        .links
        .iter()
        .map(|link| ClabLink { endpoints: link.ends().map(ToString::to_string), mtu: link.mtu });
    let document = Document {
        name: topology.name.clone(),
        mgmt: Management { skip_when_unused: true },
        topology: Body { nodes, links: links.collect() },
    };
    Ok(Rendered { yaml: serde_saphyr::to_string(&document).map_err(Error::write)?, files })
}

fn render_node(
    topology: &Topology,
    node: &Node,
    image: &str,
    files: &mut BTreeMap<String, String>,
) -> Result<ClabNode, Error> {
    let mut bind = |path: &str, content: &str, target: String, binds: &mut Vec<String>| {
        let source = format!("{}/{}/{path}", topology.name, node.name);
        binds.push(format!("{source}:{target}:ro"));
        files.insert(source, content.to_owned());
    };
    let (mut binds, mut labels, mut exec) = (Vec::new(), BTreeMap::new(), Vec::new());
    for (path, content) in &node.files {
        bind(&format!("files/{path}"), content, format!("{NODE_FOLDER}/{path}"), &mut binds);
    }
    if let Role::Frr(frr) = &node.role {
        bind("frr.conf", &frr.config, "/etc/frr/frr.conf".into(), &mut binds);
        let daemons: Vec<&str> = frr.daemons.iter().map(|daemon| daemon.program()).collect();
        labels.insert(FRR_LABEL.to_owned(), daemons.join(","));
    }
    let mut of_ends = |label: &str, chosen: fn(&Endpoint) -> bool| {
        let names: Vec<&str> = topology
            .links_of(&node.name)
            .filter(|(near, _, _)| chosen(near))
            .map(|(near, _, _)| near.interface.as_str())
            .collect();
        if !names.is_empty() {
            labels.insert(label.to_owned(), names.join(","));
        }
    };
    of_ends(OWN_XDP_LABEL, |end| end.xdp == Xdp::None);
    of_ends(OFFLOAD_LABEL, |end| end.tx_checksum == TxChecksum::Offload);
    if !node.processes.is_empty() {
        let text = serde_json::to_string(&node.processes).map_err(Error::write)?;
        labels.insert(PROCESS_LABEL.to_owned(), text);
    }
    let mut sysctls: BTreeMap<String, String> =
        CREATED_WITH.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    for (name, value) in &node.sysctls {
        // A container is created before its links: settings of one interface come later.
        if names_an_interface(name) {
            exec.push(format!("sysctl -w {name}={value}"));
        } else {
            sysctls.insert(name.clone(), value.clone());
        }
    }
    for (near, _, _) in topology.links_of(&node.name) {
        if near.tx_checksum == TxChecksum::Software {
            exec.push(format!("ethtool -K {} tx off", near.interface));
        }
    }
    for Address { interface, address } in &node.addresses {
        let no_detection = if address.addr().is_ipv6() { " nodad" } else { "" };
        exec.push(format!("ip address add {address} dev {interface}{no_detection}"));
    }
    for rule in &node.rules {
        let text = rule.to_string();
        // The rule's own text says -4 where it must; iproute2 wants it before the object.
        let (family, text) = text.strip_prefix("-4 ").map_or(("-6", text.as_str()), |text| ("-4", text));
        exec.push(format!("ip {family} rule add {text}"));
    }
    for route in &node.routes {
        exec.push(format!("ip {} route add {route}", if route.to.addr().is_ipv4() { "-4" } else { "-6" }));
    }
    if let Some(rules) = &node.nftables {
        bind("nftables.conf", rules, format!("{NODE_FOLDER}/.nftables.conf"), &mut binds);
        exec.push(format!("nft -f {NODE_FOLDER}/.nftables.conf"));
    }
    Ok(ClabNode {
        kind: "linux".into(),
        image: image.to_owned(),
        image_pull_policy: "Never".into(),
        network_mode: "none".into(),
        restart_policy: "no".into(),
        privileged: false,
        cap_add: CAPABILITIES.map(str::to_owned).into(),
        sysctls,
        binds,
        labels,
        exec,
    })
}

/// True for `net.ipv6.conf.eth1.forwarding` and its like.
fn names_an_interface(sysctl: &str) -> bool {
    let mut parts = sysctl.split('.');
    let family = (parts.next(), parts.next(), parts.next());
    matches!(family, (Some("net"), Some("ipv4" | "ipv6"), Some("conf" | "neigh")))
        && !matches!(parts.next(), Some("all" | "default"))
}

/// Reads a topology from what [`render`] wrote. Anything it would not write is refused by name. Kernel settings that
/// every node is created with are not told from the same ones in the topology.
pub fn read(rendered: &Rendered) -> Result<Topology, Error> {
    let document: Document = serde_saphyr::from_str(&rendered.yaml).map_err(Error::read)?;
    let mut topology = Topology { name: document.name, nodes: Vec::new(), links: Vec::new() };
    let mut ends = BTreeSet::new();
    for (name, value) in document.topology.nodes {
        let clab: ClabNode =
            serde_json::from_value(value).map_err(|e| Error::read(format!("node {name:?}: {e}")))?;
        for label in [OWN_XDP_LABEL, OFFLOAD_LABEL] {
            for interface in clab.labels.get(label).into_iter().flat_map(|list| list.split(',')) {
                ends.insert((name.clone(), interface.to_owned(), label));
            }
        }
        let node = read_node(&topology.name, &name, clab, &rendered.files)
            .map_err(|problem| Error::read(format!("node {name:?}: {problem}")))?;
        topology.nodes.push(node);
    }
    for link in document.topology.links {
        let [a, b] = link.endpoints.map(|text| {
            let mut end: Endpoint = text.parse()?;
            let has = |label| ends.contains(&(end.node.clone(), end.interface.clone(), label));
            let (own, offload) = (has(OWN_XDP_LABEL), has(OFFLOAD_LABEL));
            end.xdp = if own { Xdp::None } else { Xdp::PassThrough };
            end.tx_checksum = if offload { TxChecksum::Offload } else { TxChecksum::Software };
            Ok::<_, String>(end)
        });
        topology.links.push(Link { a: a.map_err(Error::read)?, b: b.map_err(Error::read)?, mtu: link.mtu });
    }
    topology.check().map_err(Error::read)?;
    Ok(topology)
}

fn read_node(
    topology: &str,
    name: &str,
    clab: ClabNode,
    files: &BTreeMap<String, String>,
) -> Result<Node, String> {
    let mut node = Node { name: name.to_owned(), ..Node::default() };
    let mut frr_config = None;
    for bind in &clab.binds {
        let (source, _) = bind.split_once(':').ok_or_else(|| format!("bind {bind:?} has no target"))?;
        let content =
            files.get(source).ok_or_else(|| format!("bind {bind:?}: there is no file {source:?}"))?;
        let own = source.strip_prefix(&format!("{topology}/{name}/")).unwrap_or(source);
        match (own, own.strip_prefix("files/")) {
            (_, Some(path)) => drop(node.files.insert(path.to_owned(), content.clone())),
            ("frr.conf", _) => frr_config = Some(content.clone()),
            ("nftables.conf", _) => node.nftables = Some(content.clone()),
            _ => return Err(format!("bind {bind:?} is not one that labkit writes")),
        }
    }
    for (label, value) in &clab.labels {
        match label.as_str() {
            FRR_LABEL => {
                let daemons = value.split(',').filter(|name| !name.is_empty()).map(daemon);
                let daemons = daemons.collect::<Result<_, _>>()?;
                let config = frr_config.take().ok_or("FRR daemons without a bound frr.conf")?;
                node.role = Role::Frr(FrrRole { daemons, config });
            }
            PROCESS_LABEL => {
                node.processes = serde_json::from_str::<Vec<Process>>(value)
                    .map_err(|e| format!("label {PROCESS_LABEL}: {e}"))?;
            }
            OWN_XDP_LABEL | OFFLOAD_LABEL => {}
            _ => return Err(format!("label {label:?} is not one that labkit writes")),
        }
    }
    node.sysctls = clab.sysctls;
    node.sysctls.retain(|name, value| !CREATED_WITH.contains(&(name.as_str(), value.as_str())));
    for command in &clab.exec {
        read_command(&mut node, command).map_err(|problem| format!("exec {command:?}: {problem}"))?;
    }
    Ok(node)
}

fn daemon(program: &str) -> Result<FrrDaemon, String> {
    [FrrDaemon::Zebra, FrrDaemon::Bgpd, FrrDaemon::Staticd, FrrDaemon::Bfdd]
        .into_iter()
        .find(|daemon| daemon.program() == program)
        .ok_or_else(|| format!("FRR daemon {program:?} is unknown"))
}

fn read_command(node: &mut Node, command: &str) -> Result<(), String> {
    let after = |prefix: &str| command.strip_prefix(prefix);
    if let Some(setting) = after("sysctl -w ") {
        let (name, value) = setting.split_once('=').ok_or("no value")?;
        node.sysctls.insert(name.to_owned(), value.to_owned());
    } else if let Some(text) = after("ip address add ") {
        let mut words = text.split(' ');
        let (address, dev, interface) = (words.next(), words.next(), words.next());
        let (Some(address), Some("dev"), Some(interface)) = (address, dev, interface) else {
            return Err("expected ADDRESS dev INTERFACE".into());
        };
        let address = address.parse().map_err(|e| format!("{address:?}: {e}"))?;
        node.addresses.push(Address { interface: interface.to_owned(), address });
    } else if let Some(text) = after("ip -6 route add ").or_else(|| after("ip -4 route add ")) {
        node.routes.push(text.parse()?);
    } else if let Some(text) = after("ip -6 rule add ") {
        node.rules.push(text.parse()?);
    } else if let Some(text) = after("ip -4 rule add ") {
        let mut rule: Rule = text.parse()?;
        rule.ipv4 = true;
        node.rules.push(rule);
    } else if after("ethtool -K ").is_none() && after("nft -f ").is_none() {
        return Err("not a command that labkit writes".into());
    }
    Ok(())
}
