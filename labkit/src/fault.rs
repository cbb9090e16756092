//! Faults as guards: in force from when they are made until they are healed or dropped.

mod impair;
mod resend;

use std::fmt;
use std::time::Instant;

use ipnet::IpNet;

use crate::error::{Error, Result};
use crate::lab::NodeHandle;
use crate::process::ProcessHandle;
use crate::topology::{Route, RouteKind};

pub use impair::{Counts, Direction, Impair, Impaired};

/// Smallest MTU with which an interface keeps IPv6.
const IPV6_MTU: u32 = 1280;

/// A fault in force. Dropping it heals it.
pub struct Fault {
    what: String,
    since: Instant,
    heal: Option<Box<dyn FnOnce() -> Result<()> + Send>>,
}

impl Fault {
    /// A fault that is in force already, and what heals it.
    pub fn new(what: impl Into<String>, heal: impl FnOnce() -> Result<()> + Send + 'static) -> Self {
        let what = what.into();
        tracing::info!(fault = what, "in force");
        Self { what, since: Instant::now(), heal: Some(Box::new(heal)) }
    }
    /// What it is, for people.
    pub fn what(&self) -> &str {
        &self.what
    }
    /// When it came into force.
    pub fn since(&self) -> Instant {
        self.since
    }
    /// Heals it, and tells whether that worked.
    pub fn heal(mut self) -> Result<()> {
        self.heal_once()
    }
    fn heal_once(&mut self) -> Result<()> {
        self.heal.take().map_or(Ok(()), |heal| {
            tracing::info!(fault = self.what, "heals");
            heal()
        })
    }
}

impl Drop for Fault {
    fn drop(&mut self) {
        if let Err(error) = self.heal_once() {
            tracing::error!(fault = self.what, %error, "could not be healed");
        }
    }
}

impl fmt::Debug for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fault").field("what", &self.what).field("since", &self.since).finish_non_exhaustive()
    }
}

/// Sets an interface down; both ends lose their carrier. Healing sets it up and puts back the addresses and static routes
/// that went with it.
pub fn link_down(node: &NodeHandle, interface: &str) -> Result<Fault> {
    let snapshot = node.netlink(async |netlink| {
        let snapshot = netlink.snapshot(interface).await?;
        netlink.set_down(interface).await?;
        Ok(snapshot)
    })?;
    let (again, interface) = (node.clone(), interface.to_owned());
    Ok(Fault::new(format!("link {}:{interface} down", node.name()), move || {
        again.netlink(async |netlink| {
            netlink.set_up(&interface).await?;
            netlink.wait_operational(&interface).await?;
            netlink.restore(&interface, &snapshot).await
        })
    }))
}

/// Changes the MTU of one end of a link, in bytes; at least 1280, below which an interface loses IPv6.
pub fn mtu(node: &NodeHandle, interface: &str, mtu: u32) -> Result<Fault> {
    let what = format!("MTU {mtu} on {}:{interface}", node.name());
    if mtu < IPV6_MTU {
        return Err(Error::Answer {
            operation: "bring about",
            object: what,
            problem: format!("an interface with an MTU under {IPV6_MTU} loses its IPv6 addresses"),
        });
    }
    let before = node.netlink(async |netlink| {
        let before = netlink.mtu(interface).await?;
        netlink.set_mtu(interface, mtu).await?;
        Ok(before)
    })?;
    let (again, interface) = (node.clone(), interface.to_owned());
    Ok(Fault::new(what, move || again.netlink(async |netlink| netlink.set_mtu(&interface, before).await)))
}

/// Drops silently what a node would route to a prefix, before any other route to exactly that prefix.
pub fn blackhole(node: &NodeHandle, prefix: IpNet) -> Result<Fault> {
    let route = Route { to: prefix, kind: RouteKind::Blackhole, table: None, metric: Some(1), src: None };
    node.netlink(async |netlink| netlink.add_route(&route).await)?;
    let again = node.clone();
    Ok(Fault::new(format!("blackhole for {prefix} in {}", node.name()), move || {
        again.netlink(async |netlink| netlink.del_route(&route).await)
    }))
}

/// Stops a process without ending it (SIGSTOP); healing lets it go on.
pub fn pause(process: &ProcessHandle) -> Result<Fault> {
    process.pause()?;
    let again = process.clone();
    Ok(Fault::new(format!("{} paused", process.label()), move || again.resume()))
}

/// Kills a process (SIGKILL); healing calls `restart`.
pub fn kill(process: &ProcessHandle, restart: impl FnOnce() -> Result<()> + Send + 'static) -> Result<Fault> {
    process.kill()?;
    Ok(Fault::new(format!("{} killed", process.label()), restart))
}

/// Makes a node vanish with its links up: at the far ends of all its links, whatever comes from it or goes to it is lost.
pub fn silence(lab: &crate::Lab, name: &str) -> Result<Fault> {
    let node = lab.node(name)?;
    let mut lossy = Vec::new();
    for (_, far, _) in lab.topology().links_of(node.name()) {
        let neighbour = lab.node(&far.node)?;
        for direction in [Direction::Ingress, Direction::Egress] {
            lossy.push(Impair::new(0).lose(1.0).at(&neighbour, &far.interface, direction)?);
        }
    }
    Ok(Fault::new(format!("{name} silent, links up"), move || {
        lossy.into_iter().map(Impaired::heal).fold(Ok(()), Result::and)
    }))
}
