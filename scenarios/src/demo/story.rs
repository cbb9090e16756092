//! The demo's story: what its steps share, and the steps in their order.

use anyhow::Context as _;
use labkit::fault::Fault;
use labkit::report::Diagram;
use labkit::step::{Scenario, Step};
use labkit::topology::Topology;
use tokio::runtime::Handle;

use super::load::Load;
use super::{explore, steps};
use crate::region::{Live, Region, SOON, TENANTS};

/// A step's action.
pub type Action = fn(&mut Step<'_, Story>) -> anyhow::Result<()>;

/// The steps, in their order: what each shows, and what shows it.
pub const STEPS: &[(&str, Action)] = &[
    ("the lab comes up: namespaces, links, FRR routers", steps::lab),
    ("two gateways get ready; the router has equal-cost routes to both VIPs", steps::gateways),
    ("clients of both tenants reach their own pods, which see the clients' address", steps::clients),
    ("a gateway dies, process and links: no connection lost", steps::death),
    ("it comes back: no connection lost", steps::recovery),
    ("a daemon is killed (-9) and started again: no packet lost", steps::kill),
    ("both gateways are upgraded to another build: no packet lost", steps::upgrade),
    ("a gateway drains and leaves: no connection lost", steps::drain),
    ("it joins again; all connections from the beginning are alive", steps::rejoin),
    ("a pod is drained: no connection to another pod moves", steps::pod),
];

/// What the steps share.
pub struct Story {
    pub(super) keep: bool,
    pub(super) topology: Topology,
    pub(super) region: Region,
    pub(super) runtime: Handle,
    /// Faults in force; healed when a step fails.
    pub(super) faults: Vec<Fault>,
    /// Traffic from the first clients to the end.
    pub(super) base: Option<Load>,
    pub(super) live: Option<Live>,
}

impl Story {
    /// A story that has not begun. Must be made inside a tokio runtime.
    ///
    /// # Errors
    /// When the topology is not sound.
    pub fn new(keep: bool) -> anyhow::Result<Self> {
        let region = Region::default();
        let topology = Topology::build("demo", |t| region.build(t))?;
        let runtime = Handle::current();
        Ok(Self { keep, topology, region, runtime, faults: Vec::new(), base: None, live: None })
    }

    /// The region, once it is up.
    ///
    /// # Errors
    /// When it is not.
    pub fn live(&self) -> anyhow::Result<&Live> {
        self.live.as_ref().context("the lab is not up")
    }

    /// Ends all faults, the last one first.
    ///
    /// # Errors
    /// One that could not be healed.
    pub(super) fn heal(&mut self) -> anyhow::Result<()> {
        for fault in self.faults.drain(..).rev() {
            fault.heal()?;
        }
        Ok(())
    }

    /// Everything that helps to see why a step failed.
    fn diagnosis(&self) -> anyhow::Result<String> {
        let live = self.live()?;
        let mut text = String::new();
        for n in 1..=live.region.gateways {
            text.extend(["log of gw", &n.to_string(), "\n", &live.log(n), "\n\n"]);
        }
        for tenant in TENANTS {
            let vip = live.vip(tenant).to_string();
            text += &live.node("edge")?.run(["ip", "-6", "route", "show", &vip])?;
        }
        for command in ["show bgp ipv6 unicast", "show ipv6 route"] {
            text += &live.frr("edge")?.vtysh(command)?;
        }
        Ok(text)
    }

    /// Ends the story. A lab that stays gets both gateways and servers of its own; the text says how to enter it.
    ///
    /// # Errors
    /// What could not be put in order or taken down.
    pub fn end(mut self, keep: bool) -> anyhow::Result<String> {
        self.heal()?;
        drop(self.base.take());
        let Some(mut live) = self.live.take() else { return Ok(String::new()) };
        if !keep {
            live.lab.down()?;
            return Ok(String::new());
        }
        for n in 1..=live.region.gateways {
            if !live.gateway(n)?.process("weir").is_ok_and(|process| process.is_running()) {
                live.run_gateway(n, None)?;
            }
        }
        self.runtime.block_on(live.stop_servers());
        explore::serve_all(&live)?;
        explore::guide(&live)
    }
}

/// The scenario with all steps and its drawing.
pub fn scenario(story: &Story) -> Scenario<Story> {
    let scenario = Scenario::new("a region under fire").diagram(diagram(&story.topology));
    let scenario = STEPS.iter().fold(scenario, |scenario, (name, action)| {
        scenario.step(*name, move |step: &mut Step<'_, Story>| Ok(action(step)?))
    });
    scenario
        .heal("faults", |story: &mut Story| Ok(story.heal()?))
        .diagnose("gateways and router", |story: &mut Story| Ok(story.diagnosis()?))
}

/// The region from the client on the left to the pods on the right.
pub fn diagram(topology: &Topology) -> Diagram {
    topology.nodes.iter().fold(Diagram::from(topology), |diagram, node| {
        let name = node.name.as_str();
        let (rank, role) = match name {
            "client" => (0, "clients"),
            "edge" => (1, "internet router, FRR"),
            "spine" => (3, "fabric, FRR"),
            _ if name.starts_with("gw") => (2, "weir gateway"),
            _ if name.ends_with("-a") => (5, "pod of tenant a"),
            _ if name.ends_with("-b") => (5, "pod of tenant b"),
            _ => (4, "worker"),
        };
        diagram.rank(name, rank).role(name, role)
    })
}

impl Story {
    /// Waits until a gateway is ready and the router has an equal-cost route through each.
    ///
    /// # Errors
    /// What did not come about.
    pub(super) fn wait_all(&self) -> anyhow::Result<()> {
        self.live()?.wait_ready()
    }

    /// Waits until a gateway says that it is of this version, and ready.
    ///
    /// # Errors
    /// What it says instead.
    pub(super) fn wait_version(&self, n: u16, version: &str) -> anyhow::Result<()> {
        let live = self.live()?;
        labkit::wait::eventually("gateway of the other build ready", SOON, || {
            let status = live.status(n).map_err(|e| e.to_string())?;
            let right = status["ready"] == true && status["version"] == version;
            if right { Ok(()) } else { Err(format!("{} {}", status["version"], status["reasons"])) }
        })?;
        Ok(())
    }
}
