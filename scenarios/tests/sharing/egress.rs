//! Load balancer and egress on one uplink: each comes, restarts and goes while the other's traffic runs.

use std::net::{Ipv6Addr, SocketAddr, SocketAddrV6};
use std::time::Duration;

use anyhow::Result;
use labkit::topology::Topology;
use labkit::traffic::{UdpFlow, UdpReport, UdpServer};
use labkit::wait::{check, eventually};
use labkit::{Lab, NodeHandle};
use scenarios::egress::{Egress, MARK};
use scenarios::region::{A, FAMILIES, Live, Region, SOON};

const ADDRESS: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xe, 0, 0, 0, 0, 1);
const PORT: u16 = 7000;
const PACE: Duration = Duration::from_millis(5);

fn claim() -> SocketAddrV6 {
    SocketAddrV6::new(ADDRESS, PORT, 0, 0)
}

/// One gateway whose node also serves [`ADDRESS`], but only to packets that the egress program has marked.
struct Shared {
    live: Live,
    server: UdpServer,
}

impl Shared {
    fn up(name: &str) -> Result<Self> {
        let region = Region { gateways: 1, ..Region::default() };
        let topology = Topology::build(name, |t| {
            region.build(t);
            let _ = t.node("gw1").address("lo", &format!("{ADDRESS}/128")).nftables(format!(
                "table ip6 egress {{\n chain marked {{\n  type filter hook prerouting priority raw;\n  ip6 daddr {ADDRESS} udp dport \
                 {PORT} ip6 hoplimit != {MARK} counter drop\n }}\n}}\n"
            ));
            let _ = t.node("edge").route(&format!("{ADDRESS}/128 via {}", region.gateway_uplink(1)));
        })?;
        let live = Live::up_with(Lab::options(), &topology, region)?;
        let server = UdpServer::start(&live.gateway(1)?, "egress", SocketAddr::V6(claim()))?;
        Ok(Self { live, server })
    }
    fn gateway(&self) -> NodeHandle {
        self.live.gateway(1).unwrap()
    }
    fn start_gateway(&self) {
        self.live.run_gateway(1, None).unwrap();
        self.live.wait_ready().unwrap();
    }
    async fn egress_flow(&self) -> UdpFlow {
        UdpFlow::start(&self.live.node("client").unwrap(), SocketAddr::V6(claim()), PACE, 64).await.unwrap()
    }
    /// Load-balanced flows of both families.
    async fn flows(&self) -> Vec<UdpFlow> {
        let client = self.live.node("client").unwrap();
        let mut flows = Vec::new();
        for family in FAMILIES {
            flows.push(UdpFlow::start(&client, self.live.service_of(A, family), PACE, 64).await.unwrap());
        }
        flows
    }
    /// Ends load-balanced flows of which no packet may have been lost.
    async fn all_whole(&self, what: &str, flows: Vec<UdpFlow>) {
        for flow in flows {
            self.whole(what, flow).await;
        }
    }
    /// Ends a flow of which no packet may have been lost.
    async fn whole(&self, what: &str, flow: UdpFlow) -> UdpReport {
        let mut servers = self.live.udp_servers();
        servers.push(&self.server);
        let report = flow.stop(&servers).await.unwrap();
        assert_eq!(report.lost(), 0, "{what}: {report:?}");
        assert!(report.sent > 0);
        report
    }
    /// Waits until the load balancer has forwarded some packets more.
    fn forwarded(&self) {
        let maps = self.live.maps(1).unwrap();
        let total = || maps.reason_total(weir_bpf::abi::Reason::Forwarded);
        let wanted = total() + 50;
        eventually("load-balanced traffic flows", SOON, || {
            check(total() >= wanted, || format!("{} forwarded", total()))
        })
        .unwrap();
    }
    fn drain(&self) {
        self.live.weir(1, &["drain", "--wait", "--admin", "admin.sock"]).unwrap();
        assert!(self.gateway().process("weir").unwrap().wait(SOON).unwrap().success());
    }
    fn root_exists(&self) -> bool {
        self.gateway().bpffs().unwrap().join("weir/root-v1/eth1").exists()
    }
    fn xdp(&self) -> Option<u32> {
        let gateway = self.gateway();
        gateway
            .netns()
            .run(|| nix::net::if_::if_nametoindex("eth1").map(weir::dataplane::bpf::attached_program))
            .unwrap()
            .unwrap()
    }
}

/// Waits until the egress program has claimed this many packets more.
fn claims(egress: &Egress, more: u64) {
    let wanted = egress.claimed().unwrap() + more;
    eventually("egress traffic flows", SOON, || {
        let now = egress.claimed().map_err(|e| e.to_string())?;
        check(now >= wanted, || format!("{now} claimed"))
    })
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn load_balancer_and_egress_restart_and_leave_without_loss_to_each_other() {
    let shared = Shared::up("egress-second").unwrap();
    shared.live.prepare_gateway(1).unwrap();
    shared.start_gateway();
    // Without its program the egress service is not reached: a loss would show.
    let flow = shared.egress_flow().await;
    tokio::time::sleep(PACE * 10).await;
    let report = flow.stop(&[&shared.server]).await.unwrap();
    assert_eq!(report.lost_out.len() as u64, report.sent);

    let lb = shared.flows().await;
    let mut egress = Egress::join(&shared.gateway(), "eth1", claim()).unwrap();
    let root = shared.xdp();
    let flow = shared.egress_flow().await;
    claims(&egress, 20);
    // The load balancer restarts, in order and killed.
    for killed in [false, true] {
        let process = shared.gateway().process("weir").unwrap();
        if killed {
            process.kill().unwrap();
        } else {
            assert!(process.terminate(SOON).unwrap().success());
        }
        claims(&egress, 20);
        shared.start_gateway();
        shared.forwarded();
    }
    // The egress program is replaced by another.
    let old = std::mem::replace(&mut egress, Egress::join(&shared.gateway(), "eth1", claim()).unwrap());
    claims(&egress, 20);
    let report = shared.whole("egress while the load balancer restarts", flow).await;
    assert_eq!(
        old.claimed().unwrap() + egress.claimed().unwrap(),
        report.sent,
        "each packet was claimed once"
    );
    drop(old);
    egress.leave().unwrap();
    shared.forwarded();
    assert!(shared.root_exists() && shared.xdp() == root, "the load balancer still uses the root");
    shared.all_whole("load balancer while egress comes, is replaced, goes", lb).await;

    // The other way round: the load balancer leaves first, for good.
    let egress = Egress::join(&shared.gateway(), "eth1", claim()).unwrap();
    let flow = shared.egress_flow().await;
    claims(&egress, 20);
    shared.drain();
    claims(&egress, 20);
    shared.whole("egress while the load balancer leaves", flow).await;
    assert!(shared.root_exists() && shared.xdp() == root, "egress still uses the root");
    egress.leave().unwrap();
    assert!(!shared.root_exists(), "whoever leaves last removes the root");
    assert_eq!(shared.xdp(), None);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_uplink_that_egress_had_first_takes_the_load_balancer_in() {
    let shared = Shared::up("egress-first").unwrap();
    let egress = Egress::join(&shared.gateway(), "eth1", claim()).unwrap();
    let root = shared.xdp();
    assert!(root.is_some());
    let flow = shared.egress_flow().await;
    claims(&egress, 20);
    shared.live.prepare_gateway(1).unwrap();
    shared.start_gateway();
    assert_eq!(shared.xdp(), root, "the root that is there is adopted");
    let lb = shared.flows().await;
    shared.forwarded();
    let report = shared.whole("egress while the load balancer comes", flow).await;
    assert_eq!(egress.claimed().unwrap(), report.sent);
    egress.leave().unwrap();
    shared.forwarded();
    shared.all_whole("load balancer while egress leaves", lb).await;
    assert_eq!(shared.xdp(), root);
    shared.drain();
    assert!(!shared.root_exists(), "whoever leaves last removes the root");
    assert_eq!(shared.xdp(), None);
}
