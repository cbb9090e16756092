//! A running lab: brings a topology up, hands out its nodes, takes everything away at the end.

mod interrupt;
mod kernel;
mod node;
mod socket;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::configure;
use crate::error::{Error, Result};
use crate::fabric::{Fabric, NetnsFabric};
use crate::netns::{self, Netns};
use crate::process::{Logging, ProcessHandle};
use crate::role;
use crate::state::{self, LabDir, Record};
use crate::topology::{Node, Role, Topology};

pub use interrupt::clean_up_on_interrupt;
pub use kernel::{MAIN_TABLE, RouteEvent, RouteWatch};
pub use node::NodeHandle;

/// A lab that is up. Dropping it kills its processes and removes its namespaces, mounts and directory.
#[derive(Debug)]
pub struct Lab {
    inner: Arc<Inner>,
    timings: Timings,
}

/// How long it took to bring a lab up.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timings {
    /// Nodes and links.
    pub fabric: Duration,
    /// Settings, addresses, routes, files.
    pub configure: Duration,
    /// Routing daemons and declared processes, until they were ready.
    pub roles: Duration,
}

/// How to bring a lab up.
#[derive(Debug)]
pub struct LabOptions {
    keep: bool,
    fabric: Box<dyn Fabric>,
}

#[derive(Debug)]
struct Inner {
    record: Record,
    keep: bool,
    epoch: Instant,
    nodes: BTreeMap<String, NodeState>,
    processes: Mutex<Vec<ProcessHandle>>,
    /// Held until the lab is gone, so that `labkit clean` leaves it alone.
    dir: LabDir,
    down: Mutex<bool>,
}

#[derive(Debug)]
struct NodeState {
    ns: Netns,
    dir: PathBuf,
}

impl LabOptions {
    /// Whether the lab stays when its handle is dropped; `labkit clean` removes it then.
    #[must_use]
    pub fn keep(mut self, keep: bool) -> Self {
        self.keep = keep;
        self
    }
    /// What makes nodes and links; network namespaces by default.
    #[must_use]
    pub fn fabric(mut self, fabric: impl Fabric + 'static) -> Self {
        self.fabric = Box::new(fabric);
        self
    }

    /// Brings a topology up: nodes, links, configuration, roles, processes, in this order. Routing daemons answer and
    /// processes are ready when this returns.
    ///
    /// # Errors
    /// What failed, in which node; everything made until then is removed.
    pub fn up(self, topology: &Topology) -> Result<Lab> {
        topology.check()?;
        let epoch = Instant::now();
        let (record, dir) = state::claim(topology, self.fabric.name())?;
        // From here on whatever is made goes with this guard.
        let mut undo = Undo(Some(record.clone()));
        netns::mount_bpffs(&state::bpffs_of(&dir.path))?;
        let logs = state::logs_of(&dir.path);
        std::fs::create_dir_all(&logs)
            .map_err(|e| Error::system("create directory", logs.display().to_string(), e))?;
        let namespaces = self.fabric.up(&record)?;
        let mut timings = Timings { fabric: epoch.elapsed(), ..Timings::default() };

        let mut nodes = BTreeMap::new();
        for (name, ns) in namespaces {
            let own = state::node_dir_of(&dir.path, &name);
            std::fs::create_dir_all(&own)
                .map_err(|e| Error::system("create directory", own.display().to_string(), e))?;
            nodes.insert(name, NodeState { ns, dir: own });
        }
        each_node(topology, &nodes, |node, state| configure::set_up_ends(topology, node, &state.ns))?;
        each_node(topology, &nodes, |node, state| {
            configure::configure(topology, node, &state.ns, &state.dir)
        })?;
        timings.configure = epoch.elapsed().saturating_sub(timings.fabric);

        undo.0 = None;
        let inner = Inner {
            record,
            keep: self.keep,
            epoch,
            nodes,
            processes: Mutex::new(Vec::new()),
            dir,
            down: Mutex::new(false),
        };
        let mut lab = Lab { inner: Arc::new(inner), timings };
        interrupt::register(&lab.inner);
        // A lab that does not come up is of no use kept: the inner's own drop removes it only when it is not to be kept.
        if let Err(error) = lab.start_roles() {
            lab.inner.take_down()?;
            return Err(error);
        }
        lab.timings.roles = epoch.elapsed().saturating_sub(timings.fabric + timings.configure);
        Ok(lab)
    }
}

/// Removes what was made of a lab that did not come up.
struct Undo(Option<Record>);

impl Drop for Undo {
    fn drop(&mut self) {
        if let Some(record) = &self.0
            && let Err(error) = state::tear_down(record)
        {
            tracing::error!(lab = record.lab, %error, "a lab that did not come up could not be removed");
        }
    }
}

/// Runs `f` for every node side by side and returns the first error in the topology's order.
fn each_node(
    topology: &Topology,
    nodes: &BTreeMap<String, NodeState>,
    f: impl Fn(&Node, &NodeState) -> Result<()> + Sync,
) -> Result<()> {
    thread::scope(|scope| {
        let threads: Vec<_> = topology
            .nodes
            .iter()
            .filter_map(|node| nodes.get(&node.name).map(|state| (node, state)))
            .map(|(node, state)| scope.spawn(|| f(node, state)))
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)))
            .fold(Ok(()), Result::and)
    })
}

impl Lab {
    /// Brings a topology up with the default options.
    pub fn up(topology: &Topology) -> Result<Self> {
        Self::options().up(topology)
    }

    /// Options to choose before `up`.
    pub fn options() -> LabOptions {
        LabOptions { keep: false, fabric: Box::new(NetnsFabric) }
    }

    fn start_roles(&self) -> Result<()> {
        each_node(&self.inner.record.topology, &self.inner.nodes, |node, _| {
            let handle = self.node(&node.name)?;
            if let Role::Frr(frr) = &node.role {
                role::frr::start(&handle, frr)?;
            }
            for process in &node.processes {
                let started = handle.spawn(process)?;
                if let Some(ready) = &process.ready {
                    started.wait_for_log(&ready.log, ready.within())?;
                }
            }
            Ok(())
        })
    }

    /// The lab's name on this machine.
    pub fn name(&self) -> &str {
        &self.inner.record.lab
    }
    /// What was asked for.
    pub fn topology(&self) -> &Topology {
        &self.inner.record.topology
    }
    /// The lab's state as other processes see it.
    pub fn record(&self) -> &Record {
        &self.inner.record
    }
    /// Its directory, with everything its nodes have written.
    pub fn dir(&self) -> &Path {
        &self.inner.dir.path
    }
    /// Its own BPF file system.
    pub fn bpffs(&self) -> PathBuf {
        state::bpffs_of(self.dir())
    }
    /// Where its processes' logs are.
    pub fn logs(&self) -> PathBuf {
        state::logs_of(self.dir())
    }
    /// When it began to come up: the zero of its logs' timestamps.
    pub fn epoch(&self) -> Instant {
        self.inner.epoch
    }
    /// How long it took to come up.
    pub fn timings(&self) -> Timings {
        self.timings
    }

    /// A node by its name.
    pub fn node(&self, name: &str) -> Result<NodeHandle> {
        NodeHandle::new(&self.inner, name)
    }
    /// All nodes in the topology's order.
    pub fn nodes(&self) -> Vec<NodeHandle> {
        self.topology().nodes.iter().filter_map(|node| self.node(&node.name).ok()).collect()
    }

    /// Takes the lab down now, whether or not it was to be kept, and tells what went wrong with it.
    pub fn down(&self) -> Result<()> {
        self.inner.take_down()
    }
}

impl Inner {
    fn processes(&self) -> std::sync::MutexGuard<'_, Vec<ProcessHandle>> {
        self.processes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn logging(&self) -> Logging {
        if self.keep { Logging::Direct } else { Logging::Timestamped(self.epoch) }
    }

    fn take_down(&self) -> Result<()> {
        let mut down = self.down.lock().unwrap_or_else(PoisonError::into_inner);
        if std::mem::replace(&mut *down, true) {
            return Ok(());
        }
        let killed: Vec<Result<_>> = self.processes().drain(..).map(|process| process.kill()).collect();
        let result = state::tear_down(&self.record);
        killed.into_iter().try_for_each(|killed| killed.map(drop)).and(result)
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if self.inner.keep {
            return;
        }
        if let Err(error) = self.inner.take_down() {
            tracing::error!(lab = self.name(), %error, "lab could not be removed; try: labkit clean");
        }
    }
}
