//! Finds what is wrong with a topology before anything is created.

use std::collections::HashSet;
use std::path::{Component, Path};

use super::{Node, Topology, TopologyError};

/// The kernel's IFNAMSIZ without its terminating zero (`include/uapi/linux/if.h`).
const INTERFACE_NAME_MAX: usize = 15;
/// Smallest MTU that IPv6 runs over (RFC 8200 section 5).
const MTU_MIN: u32 = 1280;
/// Longest node and topology name; longer ones make socket paths under the lab's directory too long.
const NAME_MAX: usize = 24;

impl Topology {
    /// Checks names, references and bounds.
    ///
    /// # Errors
    /// Lists every problem found.
    pub fn check(&self) -> Result<(), TopologyError> {
        let problems = self.problems();
        if problems.is_empty() {
            Ok(())
        } else {
            Err(TopologyError { topology: self.name.clone(), problems })
        }
    }

    pub(super) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        if !is_name(&self.name) {
            problems.push(name_problem("topology", &self.name));
        }
        let mut nodes = HashSet::new();
        for node in &self.nodes {
            if !is_name(&node.name) {
                problems.push(name_problem("node", &node.name));
            }
            if !nodes.insert(node.name.as_str()) {
                problems.push(format!("node {:?} is declared twice", node.name));
            }
        }
        let mut ends = HashSet::new();
        for link in &self.links {
            for end in link.ends() {
                if !nodes.contains(end.node.as_str()) {
                    problems.push(format!("link {}: there is no node {:?}", link.label(), end.node));
                }
                if !is_interface(&end.interface) {
                    problems.push(format!(
                        "link {}: interface name {:?} must have 1 to {INTERFACE_NAME_MAX} letters, digits, '-', '_' or '.', and not be lo",
                        link.label(),
                        end.interface
                    ));
                }
                if !ends.insert((end.node.as_str(), end.interface.as_str())) {
                    problems.push(format!("interface {end} is used by two links"));
                }
            }
            if !(MTU_MIN..=65_535).contains(&link.mtu) {
                problems.push(format!(
                    "link {}: MTU {} is not between {MTU_MIN} and 65535",
                    link.label(),
                    link.mtu
                ));
            }
        }
        for node in &self.nodes {
            node_problems(node, &ends, &mut problems);
        }
        problems
    }
}

fn node_problems(node: &Node, ends: &HashSet<(&str, &str)>, problems: &mut Vec<String>) {
    let has = |interface: &str| interface == "lo" || ends.contains(&(node.name.as_str(), interface));
    let mut missing = |what: String, interface: &str| {
        if !has(interface) {
            problems.push(format!("node {:?}: {what}: no link ends at interface {interface:?}", node.name));
        }
    };
    for address in &node.addresses {
        missing(format!("address {}", address.address), &address.interface);
    }
    for route in &node.routes {
        for device in route.devices() {
            missing(format!("route {route}"), device);
        }
    }
    let mut processes = HashSet::new();
    for process in &node.processes {
        if process.command.is_empty() || process.command[0].is_empty() {
            problems.push(format!("node {:?}: process {:?} has no command", node.name, process.name));
        }
        if !is_name(&process.name) {
            problems.push(name_problem("process", &process.name));
        }
        if !processes.insert(&process.name) {
            problems.push(format!("node {:?}: process {:?} is declared twice", node.name, process.name));
        }
    }
    for path in node.files.keys() {
        if path.is_empty() || !Path::new(path).components().all(|c| matches!(c, Component::Normal(_))) {
            problems.push(format!(
                "node {:?}: file {path:?} must be a path inside the node's own directory, without '..' or a leading '/'",
                node.name
            ));
        }
    }
}

fn is_name(name: &str) -> bool {
    (1..=NAME_MAX).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
        && !name.starts_with('-')
}

fn name_problem(what: &str, name: &str) -> String {
    format!(
        "{what} name {name:?} must have 1 to {NAME_MAX} letters, digits or hyphens and not begin with a hyphen"
    )
}

fn is_interface(name: &str) -> bool {
    name != "lo"
        && name != "."
        && name != ".."
        && (1..=INTERFACE_NAME_MAX).contains(&name.len())
        && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_.".contains(&b))
}
