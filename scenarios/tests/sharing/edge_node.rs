//! An edge node with three roles (718): load balancer, a stateful egress shard, and a tenant's table that SRv6 packets are
//! decapsulated into. Each restarts alone while the others' traffic runs.
//!
//! ```text
//! client ── edge ── gw1 ── spine ── w1 (sends to the tenant's table), inside (leaves through the shard)
//!                    └── tenant
//! ```
//!
//! The tenant's table is a routing table of its own with `End.DT6` into it and a policy rule out of it, which is what a VRF is
//! made of; this kernel has no VRF device.

use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use anyhow::Result;
use labkit::topology::Topology;
use labkit::traffic::{UdpFlow, UdpServer};
use labkit::wait::{check, eventually};
use labkit::{Lab, NodeHandle};
use scenarios::nat::{Nat, Shard, Side};
use scenarios::region::{A, Live, Region, SOON};

const PACE: Duration = Duration::from_millis(5);
/// A host on the internet, at the client.
const OUTSIDE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xf, 0, 0, 0, 0, 1);
const SHARD: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xe, 0, 0, 0, 0, 9);
const INSIDE: &str = "fd00:20::";
/// The tenant's host on the edge node itself.
const TENANT: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x30, 0, 0, 0, 0, 0, 1);
const TABLE: &str = "103";
const PORT: u16 = 7000;

struct Edge {
    live: Live,
    /// At the internet host and at the tenant's.
    servers: [UdpServer; 2],
}

fn on(address: Ipv6Addr) -> SocketAddr {
    SocketAddr::V6(SocketAddrV6::new(address, PORT, 0, 0))
}

impl Edge {
    fn up() -> Result<Self> {
        let region = Region { gateways: 1, ..Region::default() };
        let topology = Topology::build("edge-node", |t| {
            region.build(t);
            let (uplink, fabric) = (region.gateway_uplink(1), region.gateway_fabric(1));
            t.node("client").address("lo", &format!("{OUTSIDE}/128"));
            t.node("edge")
                .route(&format!("{OUTSIDE}/128 via {}", region.client()))
                .route(&format!("{SHARD}/128 via {uplink}"));
            t.node("spine")
                .address("eth20", &format!("{INSIDE}1/64"))
                .route(&format!("{OUTSIDE}/128 via {fabric}"));
            t.node("inside")
                .address("eth0", &format!("{INSIDE}2/64"))
                .route(&format!("default via {INSIDE}1"));
            t.link("spine:eth20", "inside:eth0", 1500);
            t.node("tenant")
                .address("eth0", "fe80::2/64")
                .address("eth0", &format!("{TENANT}/128"))
                .route("default via fe80::1 dev eth0");
            t.node("gw1")
                .forwarding()
                .sysctl("net.ipv6.conf.all.seg6_enabled", 1)
                .sysctl("net.ipv6.conf.eth2.seg6_enabled", 1)
                .address("tenant", "fe80::1/64");
            t.link("gw1:tenant", "tenant:eth0", 1500);
        })?;
        let live = Live::up_with(Lab::options(), &topology, region)?;
        let servers = [
            UdpServer::start(&live.node("client")?, "outside", on(OUTSIDE))?,
            UdpServer::start(&live.node("tenant")?, "tenant", on(TENANT))?,
        ];
        let edge = Self { live, servers };
        edge.tenant_role("add")?;
        let w1 = edge.live.node("w1")?;
        let sid = edge.sid();
        w1.run([
            "ip",
            "-6",
            "route",
            "add",
            &format!("{TENANT}/128"),
            "encap",
            "seg6",
            "mode",
            "encap.red",
            "segs",
            &sid,
            "dev",
            "eth0",
        ])?;
        // The outer source must be one that the gateways' node has a way back to.
        Ok(edge)
    }

    fn gateway(&self) -> NodeHandle {
        self.live.gateway(1).unwrap()
    }

    /// SID of the tenant's table on the gateway's node.
    fn sid(&self) -> String {
        self.live.region.gateway_locator(1).replace("::/64", ":e003::")
    }

    /// Writes the tenant's table and what leads into and out of it; `replace` is what a routing daemon's restart does.
    fn tenant_role(&self, verb: &str) -> Result<()> {
        let gateway = self.gateway();
        let via = self.live.region.spine_fabric(1);
        let ip = |words: &str| gateway.run(["ip", "-6"].into_iter().chain(words.split(' ')));
        ip(&format!("route {verb} {TENANT}/128 via fe80::2 dev tenant table {TABLE}"))?;
        ip(&format!("route {verb} default via {via} dev eth2 table {TABLE}"))?;
        ip(&format!(
            "route {verb} {}/128 encap seg6local action End.DT6 table {TABLE} dev eth2",
            self.sid()
        ))?;
        if verb == "add" {
            ip(&format!("rule add iif tenant lookup {TABLE}"))?;
        }
        Ok(())
    }

    fn start_gateway(&self) {
        self.live.run_gateway(1, None).unwrap();
        self.live.wait_ready().unwrap();
    }

    fn shard(&self) -> Shard {
        let mac = |node: &str, interface: &str| self.live.node(node).unwrap().mac(interface).unwrap();
        Shard {
            address: SHARD,
            inside_net: INSIDE.parse().unwrap(),
            inside: Side { interface: "eth2".into(), router: mac("spine", "eth1") },
            outside: Side { interface: "eth1".into(), router: mac("edge", "eth1") },
        }
    }

    async fn flow(&self, from: &str, to: SocketAddr) -> UdpFlow {
        UdpFlow::start(&self.live.node(from).unwrap(), to, PACE, 64).await.unwrap()
    }

    /// Starts a flow of each role.
    async fn flows(&self) -> [(&'static str, UdpFlow); 3] {
        [
            ("load balancer", self.flow("client", self.live.service(A)).await),
            ("egress", self.flow("inside", on(OUTSIDE)).await),
            ("tenant's table", self.flow("w1", on(TENANT)).await),
        ]
    }

    /// Ends flows of which no packet may have been lost in either direction.
    async fn whole(&self, what: &str, flows: [(&'static str, UdpFlow); 3]) {
        let mut servers = self.live.udp_servers();
        servers.extend(&self.servers);
        for (role, flow) in flows {
            let report = flow.stop(&servers).await.unwrap();
            assert_eq!(report.lost(), 0, "{role} while {what}: {report:?}");
            // It ran throughout: what it is waited for above is twenty packets of the shard's flow, about as long.
            assert!(report.sent >= 10, "{role} while {what}: {report:?}");
        }
    }
}

/// Waits until the shard has translated this many packets more, each way.
fn translates(nat: &Nat, more: u64) {
    let (out, back) = nat.translated().unwrap();
    eventually("the shard translates", SOON, || {
        let now = nat.translated().map_err(|e| e.to_string())?;
        check(now.0 >= out + more && now.1 >= back + more, || format!("{now:?}"))
    })
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn load_balancer_egress_shard_and_tenant_table_share_an_edge_node_and_restart_alone_without_loss() {
    let edge = Edge::up().unwrap();
    edge.live.prepare_gateway(1).unwrap();
    edge.start_gateway();
    let mut nat = Nat::join(&edge.gateway(), &edge.shard()).unwrap();

    // All three at once, with nothing happening.
    let flows = edge.flows().await;
    translates(&nat, 20);
    edge.whole("nothing happens", flows).await;
    let ports = nat.ports().unwrap();
    assert!(ports >= 1, "the internet host saw the shard's ports");

    // The load balancer, in order and killed.
    for killed in [false, true] {
        let flows = edge.flows().await;
        translates(&nat, 20);
        let process = edge.gateway().process("weir").unwrap();
        if killed {
            process.kill().unwrap();
        } else {
            assert!(process.terminate(SOON).unwrap().success());
        }
        translates(&nat, 20);
        edge.start_gateway();
        translates(&nat, 20);
        edge.whole("the load balancer restarts", flows).await;
    }

    // The shard: another program goes on with its tables, so that its own flows stay whole too.
    let flows = edge.flows().await;
    translates(&nat, 20);
    let before = nat.ports().unwrap();
    nat = Nat::join(&edge.gateway(), &edge.shard()).unwrap();
    translates(&nat, 20);
    assert_eq!(nat.ports().unwrap(), before, "no flow got another port");
    edge.whole("the shard restarts", flows).await;

    // The tenant's role writes all its routes anew.
    let flows = edge.flows().await;
    translates(&nat, 20);
    edge.tenant_role("replace").unwrap();
    translates(&nat, 20);
    edge.whole("the tenant's table is written anew", flows).await;

    // The shard leaves for good; the others stay.
    let lb = edge.flow("client", edge.live.service(A)).await;
    nat.leave().unwrap();
    tokio::time::sleep(PACE * 20).await;
    let report = lb.stop(&edge.live.udp_servers()).await.unwrap();
    assert_eq!(report.lost(), 0, "load balancer while the shard leaves: {report:?}");
}
