//! IPv4 in IPv6 reaches a pod that has no IPv4 address but the VIP, and its answer finds out.

use std::net::{Ipv4Addr, Ipv6Addr, UdpSocket};

use labkit::expect::expect;
use labkit::packet::matcher;
use scenarios::region::{A, B, Live, PORT, SOON, TENANTS};
use weir_bpf::worker_abi::Reason;

use super::region;

#[tokio::test(flavor = "multi_thread")]
async fn ipv4_packets_reach_pods_without_ipv4_of_their_own_and_answers_go_out() {
    let live = Live::ready("wipv4", region(1)).unwrap();
    let client: Ipv4Addr = "198.51.100.7".parse().unwrap();
    for tenant in TENANTS {
        let (vip, name) = (live.vip4(tenant), live.region.pod(1, tenant));
        let pod = live.lab.node(&name).unwrap();
        let socket = pod.netns().run(|| UdpSocket::bind((vip, PORT))).unwrap().unwrap();
        std::thread::spawn(move || {
            let mut buffer = [0; 2048];
            while let Ok((length, from)) = socket.recv_from(&mut buffer) {
                let answer = [name.as_bytes(), b" heard ", &buffer[..length]].concat();
                let _ = socket.send_to(&answer, from);
            }
        });
    }
    // A gateway's encapsulation, made by hand.
    let gateway = live.sender("gw1", "eth2").unwrap();
    let locator: Ipv6Addr = live.region.gateway_locator(1).trim_end_matches("/64").parse().unwrap();
    let source = Ipv6Addr::from_bits(locator.to_bits() | 1 << 16);
    let fabric = live.capture("spine", "eth11").unwrap();
    let send = |tenant, vip: Ipv4Addr, port| {
        let sid = live.region.sid(1, tenant).parse().unwrap();
        let outer = gateway.frame().ipv6(source, sid);
        gateway.send(&outer.ipv4(client, vip).udp(port, PORT).payload(b"a question")).unwrap();
    };
    for (port, tenant) in [(4001, A), (4002, B)] {
        let vip: Ipv4Addr = live.region.vip4(tenant).parse().unwrap();
        send(tenant, vip, port);
        let wanted = format!("{} heard a question", live.region.pod(1, tenant));
        let answer = matcher::ipv4_src(vip)
            .and(matcher::ipv4_dst(client))
            .and(matcher::udp_ports(PORT, port))
            .and(matcher::payload(wanted.as_bytes()))
            .and(matcher::right_checksums());
        expect(&fabric).within(SOON).packet(answer).unwrap();
    }
    let before = live.worker_total(1, Reason::NotBound).unwrap();
    send(A, live.region.vip4(B).parse().unwrap(), 4003);
    live.wait_worker_total(1, Reason::NotBound, before + 1).unwrap();

    let pod = live.lab.node(&live.region.pod(1, A)).unwrap();
    let addresses = pod.sh("ip -4 -o addr show").unwrap();
    assert!(
        addresses.lines().all(|l| l.contains("127.0.0.1") || l.contains(&live.region.vip4(A))),
        "{addresses}"
    );
    let routes = pod.sh("ip -4 route").unwrap();
    assert!(routes.contains("default via inet6 fe80::1 dev eth0"), "{routes}");
}
