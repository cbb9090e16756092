//! The region that scenarios play in: clients, an internet router, gateways, a fabric, workers, and pods of two tenants.
//!
//! ```text
//! client ── edge ──┬── gw1 ──┬── spine ──┬── w1 ── w1-a, w1-b
//!            │     └── gw2 ──┘     │     ├── w2 ── w2-a, w2-b
//!            └────── replies ──────┘     └── w3 ── w3-a, w3-b
//! ```
//!
//! Clients, the internet router and its links have both families; everything behind the gateways has IPv6 alone, and pods hold
//! their IPv4 VIP beside.
//!
//! Both tenants use the same private addresses; the same pod numbers exist in both.

mod families;
mod gateway;
mod live;
mod objects;
mod observe;
mod routers;
mod worker;

use std::path::PathBuf;

use labkit::topology::{FrrDaemon, TopologyBuilder};

pub use families::{FAMILIES, Family, Ipv4Routes};
pub use gateway::{Gateway, weir_binary};
pub use live::{Live, SOON};
pub use objects::{Objects, PORT, endpoint, rule, rule_on};
pub use observe::{Reasons, Sender, addressed_to};
pub use routers::BGP_PASSWORD;
pub use worker::{Pod, WorkerKind, second_endpoint};

/// A tenant: its VPC, its VIP, its pods' table on a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Tenant {
    /// Letter in node and interface names.
    pub letter: char,
    /// Number in SIDs (the argument of `End.DT`) and of the routing table, less 100.
    pub number: u16,
}

/// The first tenant.
pub const A: Tenant = Tenant { letter: 'a', number: 1 };
/// The second tenant.
pub const B: Tenant = Tenant { letter: 'b', number: 2 };

/// Both tenants.
pub const TENANTS: [Tenant; 2] = [A, B];

impl Tenant {
    /// Namespace of the tenant's objects.
    pub fn namespace(self) -> String {
        format!("tenant-{}", self.letter)
    }
    /// VPC of the tenant.
    pub fn vpc(self) -> String {
        format!("vpc-{}", self.letter)
    }
}

/// How the fabric learns where things are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Routing {
    /// FRR on edge and spine, BGP with the gateways.
    #[default]
    Bgp,
    /// Static routes: all VIPs through the first gateway.
    Static,
}

/// What a region is made of.
#[derive(Clone, Debug)]
pub struct Region {
    /// Number of the region, 1 or 2; part of every address.
    pub number: u16,
    /// Gateways.
    pub gateways: u16,
    /// Workers, each with a pod of each tenant.
    pub workers: u16,
    /// MTU of the links between gateways, spine and workers.
    pub fabric_mtu: u32,
    /// How routes come about.
    pub routing: Routing,
    /// How the internet router is told of IPv4 VIPs.
    pub ipv4_routes: Ipv4Routes,
    /// Who takes packets out of their outer headers on the workers.
    pub worker_kind: WorkerKind,
    /// BGP restart time told by gateways, in seconds.
    pub restart_time: u16,
    /// Timers of the gateways, as in their configuration.
    pub timers: String,
}

impl Default for Region {
    fn default() -> Self {
        Self {
            number: 1,
            gateways: 2,
            workers: 3,
            fabric_mtu: 1600,
            routing: Routing::Bgp,
            ipv4_routes: Ipv4Routes::NextHop,
            worker_kind: WorkerKind::Kernel,
            restart_time: 20,
            timers: "drain: 1s, gracefulShutdown: 1s".into(),
        }
    }
}

/// Directory of the project's build products, found from the running test.
pub fn target_dir() -> PathBuf {
    let exe = std::env::current_exe().unwrap_or_default();
    // target/<profile>/deps/<test> or target/<profile>/<program>
    let profile = exe.ancestors().find(|d| d.join("deps").is_dir()).map(PathBuf::from).unwrap_or_default();
    profile.parent().map(PathBuf::from).unwrap_or_default()
}

impl Region {
    /// Name of a node: plain in region 1, with the region's number elsewhere.
    pub fn name(&self, node: &str) -> String {
        if self.number == 1 { node.into() } else { format!("{node}-{}", self.number) }
    }
    /// Region name in objects and configuration.
    pub fn region(&self) -> String {
        format!("region-{}", self.number)
    }
    fn net(&self, kind: &str, n: u16) -> String {
        format!("2001:db8:{}{kind}{n:x}:", self.number)
    }
    /// The client's address.
    pub fn client(&self) -> String {
        format!("{}:2", self.net("c", 0))
    }
    /// Address of the edge router on the link to a gateway.
    pub fn edge_uplink(&self, gateway: u16) -> String {
        format!("{}:1", self.net("1", gateway))
    }
    /// A gateway's address on its uplink.
    pub fn gateway_uplink(&self, gateway: u16) -> String {
        format!("{}:2", self.net("1", gateway))
    }
    /// Address of the spine on the link to a gateway.
    pub fn spine_fabric(&self, gateway: u16) -> String {
        format!("{}:1", self.net("2", gateway))
    }
    /// A gateway's address on the fabric.
    pub fn gateway_fabric(&self, gateway: u16) -> String {
        format!("{}:2", self.net("2", gateway))
    }
    /// A tenant's VIP in this region.
    pub fn vip(&self, tenant: Tenant) -> String {
        format!("2001:db8:{}aa::{}", self.number, tenant.letter)
    }
    /// The region's SRv6 block.
    pub fn block(&self) -> String {
        format!("2001:db8:ff0{}::/48", self.number)
    }
    /// A gateway's locator.
    pub fn gateway_locator(&self, gateway: u16) -> String {
        format!("2001:db8:ff0{}:{gateway:x}::/64", self.number)
    }
    /// A worker's locator: node ids from 0x11.
    pub fn worker_locator(&self, worker: u16) -> String {
        format!("2001:db8:ff0{}:{:x}::/64", self.number, 0x10 + worker)
    }
    /// SID of a tenant's table on a worker (function 0xE, `End.DT`).
    pub fn sid(&self, worker: u16, tenant: Tenant) -> String {
        format!("2001:db8:ff0{}:{:x}:e{:03x}::", self.number, 0x10 + worker, tenant.number)
    }
    /// A pod's private address: the same in both tenants.
    pub fn pod_address(&self, worker: u16) -> String {
        format!("fd00:10::{worker:x}")
    }
    /// Node name of a pod.
    pub fn pod(&self, worker: u16, tenant: Tenant) -> String {
        self.name(&format!("w{worker}-{}", tenant.letter))
    }

    /// Adds the region's nodes and links to a topology.
    pub fn build(&self, t: &mut TopologyBuilder) {
        let (client, edge, spine) = (self.name("client"), self.name("edge"), self.name("spine"));
        let (net_c, net_e) = (self.net("c", 0), self.net("9", 0));
        t.node(&client).address("eth0", &format!("{net_c}:2/64")).route(&format!("default via {net_c}:1"));
        // As routers do: a route through a link without carrier is no choice.
        const LINKDOWN: &str = "net.ipv6.conf.all.ignore_routes_with_linkdown";
        t.node(&edge)
            .forwarding()
            .sysctl(LINKDOWN, 1)
            .address("eth0", &format!("{net_c}:1/64"))
            .address("eth9", &format!("{net_e}:1/64"));
        t.node(&spine)
            .forwarding()
            .sysctl(LINKDOWN, 1)
            .address("eth9", &format!("{net_e}:2/64"))
            .route(&format!("default via {net_e}:1"));
        t.link(&format!("{client}:eth0"), &format!("{edge}:eth0"), 1500);
        t.link(&format!("{edge}:eth9"), &format!("{spine}:eth9"), 1500);
        for n in 1..=self.gateways {
            self.gateway_node(t, n);
        }
        for n in 1..=self.workers {
            match self.worker_kind {
                WorkerKind::Kernel => self.worker(t, n),
                WorkerKind::Direct | WorkerKind::Edge => self.weir_worker(t, n),
            }
        }
        self.add_ipv4(t);
        match self.routing {
            Routing::Static => {
                for (tenant, family) in TENANTS.into_iter().flat_map(|t| FAMILIES.map(|f| (t, f))) {
                    let route = format!(
                        "{} via {}",
                        self.vip_route(tenant, family),
                        self.gateway_uplink_of(1, family)
                    );
                    t.node(&edge).route(&route);
                }
                for n in 1..=self.gateways {
                    let route = format!("{} via {}", self.gateway_locator(n), self.gateway_fabric(n));
                    t.node(&spine).route(&route);
                }
            }
            Routing::Bgp => {
                let daemons = [FrrDaemon::Bgpd];
                let (edge_config, spine_config) = (self.edge_config(), self.spine_config());
                t.node(&edge).frr(&daemons, edge_config);
                t.node(&spine).frr(&daemons, spine_config);
            }
        }
    }

    fn gateway_node(&self, t: &mut TopologyBuilder, n: u16) {
        let (edge, spine, gateway) = (self.name("edge"), self.name("spine"), self.name(&format!("gw{n}")));
        t.node(&edge).address(&format!("eth{n}"), &format!("{}/64", self.edge_uplink(n)));
        t.node(&spine).address(&format!("eth{n}"), &format!("{}/64", self.spine_fabric(n)));
        t.node(&gateway)
            .address("eth1", &format!("{}/64", self.gateway_uplink(n)))
            .address("eth2", &format!("{}/64", self.gateway_fabric(n)))
            .route(&format!("default via {}", self.edge_uplink(n)))
            .route(&format!("{} via {}", self.block(), self.spine_fabric(n)));
        t.link(&format!("{edge}:eth{n}"), &format!("{gateway}:eth1"), 1500).own_xdp(&gateway);
        t.link(&format!("{spine}:eth{n}"), &format!("{gateway}:eth2"), self.fabric_mtu).own_xdp(&gateway);
    }

    fn worker(&self, t: &mut TopologyBuilder, n: u16) {
        let (spine, worker, net) = (self.name("spine"), self.name(&format!("w{n}")), self.net("3", n));
        let port = format!("eth{}", 10 + n);
        t.node(&spine)
            .address(&port, &format!("{net}:1/64"))
            .route(&format!("{} via {net}:2", self.worker_locator(n)));
        t.link(&format!("{spine}:{port}"), &format!("{worker}:eth0"), self.fabric_mtu);
        let gateways: Vec<String> = (1..=self.gateways).map(|g| self.gateway_locator(g)).collect();
        let worker_node = t
            .node(&worker)
            .forwarding()
            .sysctl("net.ipv6.conf.all.seg6_enabled", 1)
            .sysctl("net.ipv6.conf.eth0.seg6_enabled", 1)
            .address("eth0", &format!("{net}:2/64"))
            .route(&format!("default via {net}:1"))
            // End.DT6 looks at no source: let only the region's gateways in.
            .nftables(format!(
                "table ip6 weir {{\n chain decapsulate {{\n  type filter hook prerouting priority raw;\n  ip6 daddr {} ip6 saddr \
                 != {{ {} }} counter drop\n  {}\n }}\n}}\n",
                self.worker_locator(n),
                gateways.join(", "),
                self.mark_ipv4(n)
            ));
        TENANTS.iter().fold(worker_node, |node, tenant| {
            let table = 100 + tenant.number;
            node.address(&format!("pod-{}", tenant.letter), "fe80::1/64")
                .route(&format!(
                    "{}/128 encap seg6local action End.DT6 table {table} dev eth0",
                    self.sid(n, *tenant)
                ))
                .route(&format!(
                    "{}/128 via fe80::2 dev pod-{} table {table}",
                    self.vip(*tenant),
                    tenant.letter
                ))
                .route(&format!("unreachable ::/0 metric 4278198272 table {table}"))
        });
        for tenant in TENANTS {
            let pod = self.pod(n, tenant);
            t.node(&pod)
                .address("eth0", "fe80::2/64")
                .address("eth0", &format!("{}/128", self.pod_address(n)))
                .address("lo", &format!("{}/128", self.vip(tenant)))
                .route("default via fe80::1 dev eth0");
            t.link(&format!("{worker}:pod-{}", tenant.letter), &format!("{pod}:eth0"), 1500);
        }
        self.ipv4_worker(t, n);
    }
}
