//! Next hops follow the kernel's neighbours: one that is flushed comes back, one whose MAC changes is followed.

use std::net::Ipv6Addr;

use labkit::expect::expect;
use labkit::packet::{MacAddr, flags, matcher};
use scenarios::region::{A, Live, PORT, Region, SOON, Sender};

use super::client_and_vip;

fn syn(port: u16, edge: &Sender, addresses: (Ipv6Addr, Ipv6Addr)) {
    edge.send(&edge.frame().ipv6(addresses.0, addresses.1).tcp(port, PORT).flags(flags::SYN)).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_syn_after_the_neighbours_were_flushed_is_delivered_and_a_new_mac_is_followed() {
    let live = Live::ready("neighbours", Region { gateways: 1, ..Region::default() }).unwrap();
    let addresses = client_and_vip(&live, A);
    let (gateway, spine) = (live.gateway(1).unwrap(), live.node("spine").unwrap());
    let wire = live.capture("spine", "eth1").unwrap();
    let edge = live.sender("edge", "eth1").unwrap();

    for port in 50_000..50_010 {
        gateway.run(["ip", "-6", "neigh", "flush", "dev", "eth2"]).unwrap();
        syn(port, &edge, addresses);
        expect(&wire).within(SOON).packet(matcher::tcp_ports(port, PORT)).unwrap();
    }

    let fresh = MacAddr::new(2, 0xfe, 0, 0, 0, 0x42);
    spine.run(["ip", "link", "set", "eth1", "address", &fresh.to_string()]).unwrap();
    labkit::wait::eventually("packets go to the spine's new address", SOON, || {
        syn(50_100, &edge, addresses);
        let arrives = matcher::tcp_ports(50_100, PORT).and(matcher::ethernet_dst(fresh));
        expect(&wire).within(std::time::Duration::from_millis(200)).packet(arrives)
    })
    .unwrap();
}
