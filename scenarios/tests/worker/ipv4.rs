//! IPv4 clients reach pods that have no IPv4 address but the VIP, and see their answers.

use std::net::{Ipv4Addr, Ipv6Addr};

use labkit::traffic::{Connection, UdpFlow};
use scenarios::region::{A, B, Family, Live, PORT, SOON, TENANTS};
use weir_bpf::worker_abi::Reason;

use super::region;

#[tokio::test(flavor = "multi_thread")]
async fn ipv4_clients_reach_pods_without_ipv4_of_their_own() {
    let live = Live::ready("wipv4", region(1)).unwrap();
    let client = live.node("client").unwrap();
    for tenant in TENANTS {
        let service = live.service_of(tenant, Family::Ipv4);
        let mut connection = Connection::open(&client, service).await.unwrap();
        assert_eq!(connection.backend(), live.region.pod(1, tenant));
        assert_eq!(
            connection.seen_as().ip().to_string(),
            live.region.client_of(Family::Ipv4),
            "the client's own"
        );
        connection.transfer(1 << 20, SOON).await.unwrap();
        let flow = UdpFlow::start(&client, service, std::time::Duration::from_millis(5), 200).await.unwrap();
        labkit::wait::eventually("packets both ways", SOON, || {
            let out: u64 = live
                .worker_maps(1)
                .and_then(|maps| Ok(maps.rows()?))
                .map_err(|e| e.to_string())?
                .iter()
                .filter(|row| row.vip == service.ip())
                .map(|row| row.sent.packets)
                .sum();
            if out > 1000 { Ok(()) } else { Err(out.to_string()) }
        })
        .unwrap();
        assert_eq!(flow.stop(&live.udp_servers()).await.unwrap().lost(), 0);
    }

    // A gateway's encapsulation, made by hand: the other tenant's VIP under this SID.
    let gateway = live.sender("gw1", "eth2").unwrap();
    let locator: Ipv6Addr = live.region.gateway_locator(1).trim_end_matches("/64").parse().unwrap();
    let outer = gateway
        .frame()
        .ipv6(Ipv6Addr::from_bits(locator.to_bits() | 1 << 16), live.region.sid(1, A).parse().unwrap());
    let before = live.worker_total(1, Reason::NotBound).unwrap();
    let (from, vip): (Ipv4Addr, Ipv4Addr) =
        ("198.51.100.7".parse().unwrap(), live.region.vip4(B).parse().unwrap());
    gateway.send(&outer.ipv4(from, vip).udp(4003, PORT).payload(b"a question")).unwrap();
    live.wait_worker_total(1, Reason::NotBound, before + 1).unwrap();

    let pod = live.lab.node(&live.region.pod(1, A)).unwrap();
    let addresses = pod.sh("ip -4 -o addr show").unwrap();
    let own = |line: &str| line.contains("127.0.0.1") || line.contains(&live.region.vip4(A));
    assert!(addresses.lines().all(own), "{addresses}");
    let routes = pod.sh("ip -4 route").unwrap();
    assert!(routes.contains("default via inet6 fe80::1 dev eth0"), "{routes}");
}
