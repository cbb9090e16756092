//! A region that runs: the lab with its routers, gateways as real processes, servers in the pods.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use labkit::process::ProcessHandle;
use labkit::role::frr::Frr;
use labkit::topology::{Process, Topology};
use labkit::traffic::{IdentifyServer, UdpServer};
use labkit::wait::eventually;
use labkit::{Lab, NodeHandle};
use serde_json::Value;
use weir::dataplane::bpf::{Maps, Pins, open_set, serving_set};

use super::objects::PORT;
use super::{FAMILIES, Family, Gateway, Objects, Region, Routing, TENANTS, Tenant, WorkerKind, weir_binary};

/// Longest wait for anything that should come about by itself.
pub const SOON: Duration = Duration::from_secs(20);

/// A running region.
pub struct Live {
    /// The lab.
    pub lab: Arc<Lab>,
    /// What it is made of.
    pub region: Region,
    servers: Vec<(IdentifyServer, UdpServer)>,
}

impl Live {
    /// Brings the lab up with its servers; gateways are started by [`Live::start_gateway`].
    ///
    /// # Errors
    /// What could not be set up.
    pub fn up(name: &str, region: Region) -> anyhow::Result<Self> {
        let topology = Topology::build(name, |t| region.build(t))?;
        Self::up_with(Lab::options(), &topology, region)
    }

    /// As [`Live::up`], with a topology that holds more than the region, and other options.
    ///
    /// # Errors
    /// What could not be set up.
    pub fn up_with(
        options: labkit::lab::LabOptions,
        topology: &Topology,
        region: Region,
    ) -> anyhow::Result<Self> {
        Self::beside(&Arc::new(options.up(topology)?), region)
    }

    /// A region of a lab that is up and may hold others.
    ///
    /// # Errors
    /// What could not be set up.
    pub fn beside(lab: &Arc<Lab>, region: Region) -> anyhow::Result<Self> {
        let lab = Arc::clone(lab);
        let mut live = Self { lab, region, servers: Vec::new() };
        if live.region.worker_kind != WorkerKind::Kernel {
            // The pods hold no VIP before the workers have placed it.
            live.start_workers()?;
        }
        live.serve()?;
        Ok(live)
    }

    /// As [`Live::up`], with all gateways started and ready.
    ///
    /// # Errors
    /// What could not be set up, or did not get ready.
    pub fn ready(name: &str, region: Region) -> anyhow::Result<Self> {
        let live = Self::up(name, region)?;
        for n in 1..=live.region.gateways {
            live.start_gateway(n)?;
        }
        live.wait_ready()?;
        Ok(live)
    }

    fn serve(&mut self) -> anyhow::Result<()> {
        for tenant in TENANTS {
            for on in FAMILIES.map(|family| self.service_of(tenant, family)) {
                for worker in 1..=self.region.workers {
                    let name = self.region.pod(worker, tenant);
                    let pod = self.lab.node(&name)?;
                    self.servers
                        .push((IdentifyServer::start(&pod, &name, on)?, UdpServer::start(&pod, &name, on)?));
                }
            }
        }
        if self.region.worker_kind != WorkerKind::Kernel {
            let on = SocketAddr::new(self.vip(super::A), PORT);
            for worker in 1..=self.region.workers {
                let name = self.region.second_pod(worker);
                let pod = self.lab.node(&name)?;
                self.servers
                    .push((IdentifyServer::start(&pod, &name, on)?, UdpServer::start(&pod, &name, on)?));
            }
        }
        Ok(())
    }

    /// A tenant's VIP.
    pub fn vip(&self, tenant: Tenant) -> IpAddr {
        self.region.vip(tenant).parse().unwrap_or(IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED))
    }
    /// A tenant's VIP and port.
    pub fn service(&self, tenant: Tenant) -> SocketAddr {
        SocketAddr::new(self.vip(tenant), PORT)
    }
    /// A tenant's VIP of a family.
    pub fn vip_of(&self, tenant: Tenant, family: Family) -> IpAddr {
        let vip = self.region.vip_of(tenant, family).parse();
        vip.unwrap_or(IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED))
    }
    /// A tenant's VIP of a family, and port.
    pub fn service_of(&self, tenant: Tenant, family: Family) -> SocketAddr {
        SocketAddr::new(self.vip_of(tenant, family), PORT)
    }
    /// All services: each tenant's VIP of each family, and port.
    pub fn services(&self) -> Vec<(Tenant, Family, SocketAddr)> {
        let of = |tenant| FAMILIES.map(|family| (tenant, family, self.service_of(tenant, family)));
        TENANTS.into_iter().flat_map(of).collect()
    }
    /// Which tenant's VIP an address is.
    pub fn owner(&self, address: IpAddr) -> Option<Tenant> {
        self.services().into_iter().find(|(_, _, service)| service.ip() == address).map(|found| found.0)
    }
    /// UDP servers of all pods, for a flow's report.
    pub fn udp_servers(&self) -> Vec<&UdpServer> {
        self.servers.iter().map(|(_, udp)| udp).collect()
    }
    /// Stops the servers in all pods; their addresses are free when this returns.
    pub async fn stop_servers(&mut self) {
        for (tcp, udp) in self.servers.drain(..) {
            tcp.stop().await;
            udp.stop().await;
        }
    }
    /// A node by its name in region 1.
    ///
    /// # Errors
    /// When there is none.
    pub fn node(&self, name: &str) -> anyhow::Result<NodeHandle> {
        Ok(self.lab.node(&self.region.name(name))?)
    }
    /// A gateway's node.
    ///
    /// # Errors
    /// When there is none.
    pub fn gateway(&self, n: u16) -> anyhow::Result<NodeHandle> {
        self.node(&format!("gw{n}"))
    }
    /// FRR of a router.
    ///
    /// # Errors
    /// When there is none.
    pub fn frr(&self, router: &str) -> anyhow::Result<Frr> {
        Ok(Frr::of(&self.node(router)?))
    }
    /// A gateway's objects.
    ///
    /// # Errors
    /// When there is no such gateway.
    pub fn objects(&self, n: u16) -> anyhow::Result<Objects> {
        Ok(Objects::at(self.gateway(n)?.dir().join("objects.d")))
    }

    /// Writes configuration, secrets and the region's objects for a gateway, without starting it.
    ///
    /// # Errors
    /// What could not be written.
    pub fn prepare_gateway(&self, n: u16) -> anyhow::Result<()> {
        let node = self.gateway(n)?;
        for (name, secret) in Gateway::secrets() {
            let path = node.write_file(name, secret)?;
            std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
        }
        let pins = node.bpffs()?.join("weir");
        node.write_file("weir.yaml", Gateway { number: n }.config(&self.region, node.dir(), &pins))?;
        self.objects(n)?.put_region(&self.region)?;
        Ok(())
    }

    /// Starts a gateway with the region's objects.
    ///
    /// # Errors
    /// What could not be written or started.
    pub fn start_gateway(&self, n: u16) -> anyhow::Result<ProcessHandle> {
        self.prepare_gateway(n)?;
        self.run_gateway(n, None)
    }

    /// Starts a gateway as it is prepared; `build` names another build.
    ///
    /// # Errors
    /// What could not be started.
    pub fn run_gateway(&self, n: u16, build: Option<&str>) -> anyhow::Result<ProcessHandle> {
        let binary = weir_binary(build)?;
        let process = Process {
            name: "weir".into(),
            command: [&binary.display().to_string(), "gateway", "--config", "weir.yaml"]
                .map(Into::into)
                .into(),
            env: [("RUST_LOG".to_owned(), "info".to_owned())].into(),
            ready: None,
        };
        Ok(self.gateway(n)?.spawn(&process)?)
    }

    /// The `weir` command in a gateway's node: its output.
    ///
    /// # Errors
    /// When it fails.
    pub fn weir(&self, n: u16, arguments: &[&str]) -> anyhow::Result<String> {
        let binary = weir_binary(None)?.display().to_string();
        let line = std::iter::once(binary.as_str()).chain(arguments.iter().copied());
        Ok(self.gateway(n)?.run(line)?)
    }

    /// What a gateway says of itself.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn status(&self, n: u16) -> anyhow::Result<Value> {
        let socket = self.gateway(n)?.dir().join("admin.sock");
        // A thread of its own: the caller may or may not be inside a runtime.
        let ask = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            Ok::<_, anyhow::Error>(runtime.block_on(weir::admin::Client::new(&socket).status())?)
        };
        let asked = std::thread::scope(|scope| scope.spawn(ask).join());
        let status = asked.map_err(|_| anyhow::anyhow!("the thread that asks gateway {n} failed"))??;
        Ok(serde_json::to_value(status)?)
    }

    /// Waits until a gateway says that it is ready.
    ///
    /// # Errors
    /// The reasons it gave last.
    pub fn wait_gateway_ready(&self, n: u16) -> anyhow::Result<()> {
        eventually("gateway ready", SOON, || {
            let status = self.status(n).map_err(|e| e.to_string())?;
            if status["ready"] == true { Ok(()) } else { Err(status["reasons"].to_string()) }
        })
        .map_err(|e| anyhow::anyhow!("gateway {n} is not ready: {e}\n{}", self.log(n)))
    }

    /// Waits until all gateways are ready and the edge has an equal-cost route through each to every VIP.
    ///
    /// # Errors
    /// What did not come about.
    pub fn wait_ready(&self) -> anyhow::Result<()> {
        for n in 1..=self.region.gateways {
            self.wait_gateway_ready(n)?;
        }
        if self.region.routing == Routing::Bgp {
            self.wait_paths(usize::from(self.region.gateways))?;
        }
        Ok(())
    }

    /// Waits until the edge has this many next hops to every VIP.
    ///
    /// # Errors
    /// What the edge has instead.
    pub fn wait_paths(&self, hops: usize) -> anyhow::Result<()> {
        for (tenant, family, _) in self.services() {
            self.node("edge")?.wait_route(&self.region.vip_route(tenant, family), hops, SOON)?;
        }
        Ok(())
    }

    /// Changes a prepared gateway's `weir.yaml`: `from`, which must be there, becomes `to`.
    ///
    /// # Errors
    /// When `from` is not in the file.
    pub fn edit_config(&self, n: u16, from: &str, to: &str) -> anyhow::Result<()> {
        let node = self.gateway(n)?;
        let text = node.read_file("weir.yaml")?;
        anyhow::ensure!(text.contains(from), "{from:?} is not in the configuration of gateway {n}:\n{text}");
        node.replace_file("weir.yaml", text.replacen(from, to, 1))?;
        Ok(())
    }

    /// What a gateway says of a rule, by `namespace/name`; `Null` when it knows none of that name.
    ///
    /// # Errors
    /// When it does not answer.
    pub fn rule_status(&self, n: u16, rule: &str) -> anyhow::Result<Value> {
        let status = self.status(n)?;
        let rules = status["rules"].as_array().cloned().unwrap_or_default();
        let name = |r: &Value| {
            format!(
                "{}/{}",
                r["name"]["namespace"].as_str().unwrap_or_default(),
                r["name"]["name"].as_str().unwrap_or_default()
            )
        };
        Ok(rules.into_iter().find(|r| name(r) == rule).unwrap_or_default())
    }

    /// Waits until a condition of a rule on a gateway has this status and reason; returns its message.
    ///
    /// # Errors
    /// The rule's status as it was last.
    pub fn wait_condition(
        &self,
        n: u16,
        rule: &str,
        kind: &str,
        status: &str,
        reason: &str,
    ) -> anyhow::Result<String> {
        let what = format!("{kind} of {rule} on gateway {n} is {status} for {reason}");
        Ok(eventually(&what, SOON, || {
            let rule = self.rule_status(n, rule).map_err(|e| e.to_string())?;
            let conditions = rule["conditions"].as_array().cloned().unwrap_or_default();
            let holds = |c: &&Value| c["type"] == kind && c["status"] == status && c["reason"] == reason;
            conditions
                .iter()
                .find(holds)
                .map(|c| c["message"].as_str().unwrap_or_default().to_owned())
                .ok_or_else(|| rule.to_string())
        })?)
    }

    /// The maps that serve now on a gateway.
    ///
    /// # Errors
    /// When none are pinned.
    pub fn maps(&self, n: u16) -> anyhow::Result<Maps> {
        let pins = Pins::existing(&self.gateway(n)?.bpffs()?.join("weir"))?;
        let set = serving_set(&pins, &["eth1".into(), "eth2".into()])?.context("no maps are pinned")?;
        Ok(open_set(&set)?)
    }

    /// Addresses of the gateways over which the edge sends packets for a VIP, sorted; empty without a route.
    ///
    /// # Errors
    /// When the routes cannot be read.
    pub fn edge_hops(&self, vip: IpAddr) -> anyhow::Result<Vec<IpAddr>> {
        let to = ipnet::IpNet::from(vip);
        let routes = self.node("edge")?.routes(labkit::lab::MAIN_TABLE)?;
        let mut hops: Vec<IpAddr> = routes
            .into_iter()
            .filter(|route| route.to == to)
            .flat_map(|route| match route.kind {
                labkit::topology::RouteKind::Unicast(hops) => hops,
                _ => Vec::new(),
            })
            .filter_map(|hop| hop.via)
            .collect();
        hops.sort();
        Ok(hops)
    }

    /// The end of a gateway's log.
    pub fn log(&self, n: u16) -> String {
        let process = self.gateway(n).and_then(|node| Ok(node.process("weir")?));
        process.map_or_else(|e| e.to_string(), |process| process.log_tail(30))
    }
}
