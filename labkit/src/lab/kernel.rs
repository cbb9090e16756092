//! A node's kernel: settings, addresses, routes, nftables, while the lab runs.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ipnet::IpNet;
use tokio::task::AbortHandle;

use super::NodeHandle;
use crate::configure;
use crate::error::{Error, Result};
use crate::netlink::{Netlink, RouteChange};
use crate::topology::{Route, RouteKind};
use crate::wait;

/// The kernel's main routing table.
pub const MAIN_TABLE: u32 = 254;

impl NodeHandle {
    /// Sets a kernel setting by its dotted name.
    pub fn set_sysctl(&self, name: &str, value: &str) -> Result<()> {
        self.netns().run(|| configure::write_sysctl(name, value))?
    }
    /// Reads a kernel setting.
    pub fn sysctl(&self, name: &str) -> Result<String> {
        self.netns().run(|| configure::read_sysctl(name))?
    }
    /// Loads an nftables rule set on top of what is there.
    pub fn load_nftables(&self, rules: &str) -> Result<()> {
        configure::load_nftables(self.name(), self.netns(), rules)
    }

    /// Runs netlink requests in the node: links, addresses, routes, rules.
    pub fn netlink<T: Send>(&self, f: impl AsyncFnOnce(&Netlink) -> Result<T> + Send) -> Result<T> {
        Netlink::with(self.netns(), f)
    }
    /// Adds an address.
    pub fn add_address(&self, interface: &str, address: IpNet) -> Result<()> {
        self.netlink(async |netlink| netlink.add_address(interface, address).await)
    }
    /// Removes an address.
    pub fn del_address(&self, interface: &str, address: IpNet) -> Result<()> {
        self.netlink(async |netlink| netlink.del_address(interface, address).await)
    }
    /// Adds a route, in the language of `ip route add`.
    pub fn add_route(&self, route: &str) -> Result<()> {
        let route = self.parse_route(route)?;
        self.netlink(async |netlink| netlink.add_route(&route).await)
    }
    /// Removes a route, named as it was added.
    pub fn del_route(&self, route: &str) -> Result<()> {
        let route = self.parse_route(route)?;
        self.netlink(async |netlink| netlink.del_route(&route).await)
    }
    /// Unicast, unreachable and blackhole routes of a table, both families; 254 is the main one.
    pub fn routes(&self, table: u32) -> Result<Vec<Route>> {
        self.netlink(async |netlink| netlink.routes(table).await)
    }

    fn parse_route(&self, route: &str) -> Result<Route> {
        route.parse().map_err(|problem| Error::Answer {
            operation: "read route",
            object: format!("{route:?} for node {}", self.name()),
            problem,
        })
    }

    /// Waits until the main table has a route to exactly this prefix over `hops` next hops, and returns it.
    ///
    /// # Errors
    /// Names the routes to the prefix that are there instead.
    pub fn wait_route(&self, prefix: &str, hops: usize, within: Duration) -> Result<Route> {
        let to = self.parse_prefix(prefix)?;
        let what = format!("route to {to} over {hops} next hops in node {}", self.name());
        wait::eventually(&what, within, || {
            let routes = self.routes_to(to).map_err(|e| e.to_string())?;
            let right =
                |route: &&Route| matches!(&route.kind, RouteKind::Unicast(list) if list.len() == hops);
            routes.iter().find(right).cloned().ok_or_else(|| match routes.as_slice() {
                [] => "no route to it".to_owned(),
                routes => routes.iter().map(Route::to_string).collect::<Vec<_>>().join("; "),
            })
        })
    }

    /// Waits until the main table has no route to exactly this prefix.
    pub fn wait_no_route(&self, prefix: &str, within: Duration) -> Result<()> {
        let to = self.parse_prefix(prefix)?;
        wait::eventually(&format!("no route to {to} in node {}", self.name()), within, || {
            let routes = self.routes_to(to).map_err(|e| e.to_string())?;
            routes.first().map_or(Ok(()), |route| Err(route.to_string()))
        })
    }

    fn routes_to(&self, to: IpNet) -> Result<Vec<Route>> {
        Ok(self.routes(MAIN_TABLE)?.into_iter().filter(|route| route.to == to).collect())
    }

    fn parse_prefix(&self, prefix: &str) -> Result<IpNet> {
        prefix.parse().map_err(|problem: ipnet::AddrParseError| Error::Answer {
            operation: "read prefix",
            object: format!("{prefix:?} for node {}", self.name()),
            problem: problem.to_string(),
        })
    }

    /// Records every change of the node's IPv6 and IPv4 routes from now on.
    pub fn watch_routes(&self) -> Result<RouteWatch> {
        let events = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&events);
        let task = Netlink::watch_routes(self.netns(), move |change, route| {
            let event = RouteEvent { at: Instant::now(), change, route };
            sink.lock().unwrap_or_else(PoisonError::into_inner).push(event);
        })?;
        Ok(RouteWatch { events, task })
    }
}

/// A change of the kernel's routes.
#[derive(Clone, Debug)]
pub struct RouteEvent {
    /// When it was heard of.
    pub at: Instant,
    /// What happened.
    pub change: RouteChange,
    /// To which route. Of a multipath route the kernel may tell hop by hop.
    pub route: Route,
}

/// Changes of a node's routes since it was made; stops when dropped.
#[derive(Debug)]
pub struct RouteWatch {
    events: Arc<Mutex<Vec<RouteEvent>>>,
    task: AbortHandle,
}

impl RouteWatch {
    /// What has happened so far.
    pub fn events(&self) -> Vec<RouteEvent> {
        self.events.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
    /// What has happened so far to routes to exactly this prefix.
    pub fn events_for(&self, prefix: IpNet) -> Vec<RouteEvent> {
        self.events().into_iter().filter(|event| event.route.to == prefix).collect()
    }
}

impl Drop for RouteWatch {
    fn drop(&mut self) {
        self.task.abort();
    }
}
