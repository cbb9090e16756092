//! Workers that decapsulate with the kernel's End.DT46 into a VRF a tenant, in place of End.DT6 into a table.

use labkit::NodeHandle;
use labkit::skip::skip;
use labkit::traffic::{Connection, Pool};
use scenarios::region::{A, B, Live, Region, TENANTS};
use serde_json::Value;

/// The test, for skips.
const TEST: &str = "kernels::vrf::workers_decapsulate_with_end_dt46_into_a_vrf_a_tenant";

/// Changes a worker over: each tenant's pod joins the VRF of the tenant's table, to which the SID's route then leads.
fn into_vrfs(live: &Live, number: u16) -> anyhow::Result<()> {
    let (region, worker) = (&live.region, live.node(&format!("w{number}"))?);
    worker.set_sysctl("net.vrf.strict_mode", "1")?;
    let routes = worker.sh("ip -6 route show default")?;
    let (router, _) = routes
        .strip_prefix("default via ")
        .and_then(|rest| rest.split_once(' '))
        .ok_or_else(|| anyhow::anyhow!("worker {number} has no default route: {routes:?}"))?;
    for tenant in TENANTS {
        let (vrf, pod) = (format!("vrf-{}", tenant.letter), format!("pod-{}", tenant.letter));
        let (table, sid, vip) = (100 + tenant.number, region.sid(number, tenant), live.region.vip(tenant));
        // Joining takes the interface down and its addresses and routes away. Replies leave the VRF by its default route.
        worker.sh(&format!(
            "ip link add {vrf} type vrf table {table}
             ip link set {vrf} up
             ip link set {pod} master {vrf}
             ip -6 address replace fe80::1/64 dev {pod} nodad
             ip -6 route replace {vip}/128 via fe80::2 dev {pod} table {table}
             ip -6 route add default via {router} dev eth0 table {table}
             ip -6 route del {sid}/128
             ip -6 route add {sid}/128 encap seg6local action End.DT46 vrftable {table} dev {vrf}"
        ))?;
    }
    Ok(())
}

/// Packets that a worker's VRF has received.
fn received(worker: &NodeHandle, vrf: &str) -> u64 {
    let text = worker.sh(&format!("ip -s -j link show {vrf}")).unwrap();
    let links: Value = serde_json::from_str(&text).unwrap();
    links[0]["stats64"]["rx"]["packets"].as_u64().unwrap_or_else(|| panic!("{text}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_decapsulate_with_end_dt46_into_a_vrf_a_tenant() {
    if let Err(reason) = super::kernel_takes("ip link add vrf0 type vrf table 100") {
        return skip(TEST, format!("no VRF in this kernel: {reason}"));
    }
    let region = Region { gateways: 1, workers: 2, ..Region::default() };
    let live = Live::ready("vrf", region).unwrap();
    for worker in 1..=2 {
        into_vrfs(&live, worker).unwrap();
    }
    let client = live.node("client").unwrap();
    for tenant in [A, B] {
        let mut pool = Pool::open(&client, live.service(tenant), 30).await.unwrap();
        let by_backend = pool.by_backend();
        assert_eq!(by_backend.len(), 2, "all pods serve: {by_backend:?}");
        assert!(by_backend.keys().all(|name| name.ends_with(tenant.letter)), "{by_backend:?}");
        for connection in pool.connections() {
            assert_eq!(connection.seen_as().ip().to_string(), live.region.client());
        }
        assert_eq!(pool.verify().await, 0);
        let mut bulk = Connection::open(&client, live.service(tenant)).await.unwrap();
        bulk.transfer(300_000, std::time::Duration::from_secs(20)).await.unwrap();
        for worker in ["w1", "w2"] {
            let vrf = format!("vrf-{}", tenant.letter);
            let packets = received(&live.node(worker).unwrap(), &vrf);
            // At least SYN, ACK and a message of a dozen connections.
            assert!(packets >= 30, "{vrf} of {worker} has received {packets} packets");
        }
    }
}
