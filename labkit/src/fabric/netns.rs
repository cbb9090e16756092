//! The default fabric: network namespaces of this kernel, joined by veth pairs, made by rtnetlink.

use std::collections::BTreeMap;
use std::thread;

use super::Fabric;
use crate::configure::write_sysctl;
use crate::error::{Error, Result};
use crate::netlink::{Netlink, VethEnd};
use crate::netns::Netns;
use crate::state::Record;
use crate::topology::{Endpoint, Topology};

/// Nodes as network namespaces, links as veth pairs.
#[derive(Clone, Copy, Debug, Default)]
pub struct NetnsFabric;

/// Settings that interfaces take over when they are made: no address by itself, none that waits for its check. A namespace takes
/// reverse-path filtering from the machine, where it may be on: replies that go another way than requests came would be lost.
const DEFAULTS: [(&str, &str); 4] = [
    ("net.ipv6.conf.default.accept_ra", "0"),
    ("net.ipv6.conf.default.accept_dad", "0"),
    ("net.ipv4.conf.all.rp_filter", "0"),
    ("net.ipv4.conf.default.rp_filter", "0"),
];

/// Interface index of the first link's first end; each end in a lab has its own, well above what the kernel hands out.
const FIRST_INDEX: u32 = 100;

impl Fabric for NetnsFabric {
    fn name(&self) -> &'static str {
        "netns"
    }

    fn up(&self, record: &Record) -> Result<BTreeMap<String, Netns>> {
        let nodes = thread::scope(|scope| {
            let threads: Vec<_> = record
                .namespaces
                .iter()
                .map(|(node, name)| scope.spawn(move || Ok((node.clone(), create(name)?))))
                .collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
                .collect::<Result<BTreeMap<String, Netns>>>()
        })?;
        // A link is made by the node it names first; the nodes work side by side.
        thread::scope(|scope| {
            let threads: Vec<_> = nodes
                .iter()
                .map(|(node, ns)| scope.spawn(|| add_links(&record.topology, node, ns, &nodes)))
                .collect();
            threads
                .into_iter()
                .try_for_each(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
        })?;
        Ok(nodes)
    }

    fn down(&self, record: &Record) -> Result<()> {
        record.namespaces.values().map(|name| Netns::remove(name)).fold(Ok(()), Result::and)
    }
}

fn create(name: &str) -> Result<Netns> {
    let ns = Netns::create(name)?;
    ns.run(|| DEFAULTS.iter().try_for_each(|(setting, value)| write_sysctl(setting, value)))??;
    Ok(ns)
}

fn add_links(topology: &Topology, node: &str, ns: &Netns, nodes: &BTreeMap<String, Netns>) -> Result<()> {
    let mine: Vec<_> = topology.links.iter().enumerate().filter(|(_, link)| link.a.node == node).collect();
    if mine.is_empty() {
        return Ok(());
    }
    Netlink::with(ns, async |netlink| {
        for (index, link) in mine {
            let index = FIRST_INDEX + 2 * index as u32;
            let (near, far) =
                (end(topology, &link.a, nodes, index)?, end(topology, &link.b, nodes, index + 1)?);
            netlink.add_veth(near, far, link.mtu).await?;
        }
        Ok(())
    })
}

fn end<'a>(
    topology: &Topology,
    end: &'a Endpoint,
    nodes: &'a BTreeMap<String, Netns>,
    index: u32,
) -> Result<VethEnd<'a>> {
    match (nodes.get(&end.node), topology.mac(&end.node, &end.interface)) {
        (Some(ns), Some(mac)) => Ok(VethEnd { ns, interface: &end.interface, mac, index }),
        _ => Err(Error::Unknown {
            kind: "node",
            name: end.node.clone(),
            known: nodes.keys().cloned().collect(),
        }),
    }
}
