//! The outer header as it is on the fabric: forty bytes of it and nothing else, the client's packet untouched inside.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

use labkit::expect::expect;
use labkit::packet::{MacAddr, Packet, flags, matcher};
use labkit::traffic::Connection;
use scenarios::region::{A, Family, Live, PORT, Region, SOON};

use super::{client_and_vip, ends};

/// The same for IPv4: next header 4, the TOS copied outside, no byte of the packet changed, its TTL and checksum included.
fn ipv4(live: &Live, own_address: Ipv6Addr, macs: (MacAddr, MacAddr)) {
    let (IpAddr::V4(client), IpAddr::V4(vip)) = ends(live, A, Family::Ipv4) else { panic!() };
    let wire = live.capture("spine", "eth1").unwrap();
    let edge = live.sender("edge", "eth1").unwrap();
    let mut labels = BTreeSet::new();
    for port in 31_000..31_064_u16 {
        let header = edge.frame().ipv4(client, vip).tos(port as u8).ttl(57).identification(port);
        // Options are walked and carried; padding of the frame is not.
        let header = if port % 2 == 0 { header } else { header.options(&[1; 7]) };
        let packet = header.tcp(port, PORT).flags(flags::SYN).mss(1440);
        let length = packet.bytes().len() - 14;
        let packet = edge.send(&packet.trailer(&[0; 3])).unwrap()[14..14 + length].to_vec();
        let of_flow = matcher::tcp_ports(port, PORT).and(matcher::tcp("SYN", |t| t.flags == flags::SYN));
        let seen = expect(&wire).within(SOON).packet(of_flow).unwrap();
        let outer = seen.layers().ipv6().unwrap().clone();
        assert_eq!(outer.src.octets()[..14], own_address.octets()[..14], "{}", outer.src);
        labels.insert(outer.flow_label);
        let expected = Packet::eth(macs.0, macs.1)
            .ipv6(outer.src, outer.dst)
            .traffic_class(port as u8)
            .flow_label(outer.flow_label)
            .next_header(4)
            .payload(&packet)
            .bytes();
        assert_eq!(seen.bytes[..expected.len()], expected, "{}", seen.layers());
    }
    assert!(labels.len() > 48, "flow labels of 64 flows: {labels:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_fabric_carries_forty_outer_bytes_and_the_clients_packet_untouched() {
    let live = Live::ready("outer", Region { gateways: 1, ..Region::default() }).unwrap();
    let (client, vip) = client_and_vip(&live, A);
    let wire = live.capture("spine", "eth1").unwrap();
    let edge = live.sender("edge", "eth1").unwrap();
    let locator: Ipv6Addr = live.region.gateway_locator(1).trim_end_matches("/64").parse().unwrap();
    let own_address = Ipv6Addr::from_bits(locator.to_bits() | 1 << 16);
    let (own, spine) = (live.gateway(1).unwrap(), live.node("spine").unwrap());
    let macs = (MacAddr::from(own.mac("eth2").unwrap()), MacAddr::from(spine.mac("eth1").unwrap()));

    let (mut labels, mut sources) = (BTreeMap::new(), BTreeSet::new());
    for port in 30_000..30_064_u16 {
        // Every DSCP and every ECN comes by; the second packet of a flow is a long one.
        for (class, data) in [(port as u8, 0), ((port as u8).rotate_left(2), 1000)] {
            let header =
                edge.frame().ipv6(client, vip).traffic_class(class).flow_label(0xf_0f0f).hop_limit(57);
            let packet = header.tcp(port, PORT).flags(flags::SYN).mss(1440).payload(&vec![0xa5; data]);
            let packet = edge.send(&packet).unwrap().split_off(14);
            // The client's kernel, which knows of no connection, sends resets on the same ports.
            let of_flow = matcher::tcp_ports(port, PORT).and(matcher::tcp("SYN", |t| t.flags == flags::SYN));
            let seen = expect(&wire).within(SOON).packet(of_flow).unwrap();
            let outer = seen.layers().ipv6().unwrap().clone();
            // The node's own address in its locator, and hash bits in the last two bytes.
            let source = outer.src.octets();
            assert_eq!(source[..14], own_address.octets()[..14], "{}", outer.src);
            sources.insert([source[14], source[15]]);
            let label = *labels.entry(port).or_insert(outer.flow_label);
            assert_eq!(outer.flow_label, label, "one flow, one label");
            // Everything else follows: no byte of the frame is left to chance.
            let expected = Packet::eth(macs.0, macs.1)
                .ipv6(outer.src, outer.dst)
                .traffic_class(class)
                .flow_label(label)
                .next_header(41)
                .payload(&packet)
                .bytes();
            assert_eq!(expected.len(), 14 + 40 + packet.len());
            matcher::exactly(&expected).check(&matcher::Seen::new(&seen.bytes)).unwrap();
            let sids: Vec<Ipv6Addr> = (1..=3).map(|w| live.region.sid(w, A).parse().unwrap()).collect();
            assert!(sids.contains(&outer.dst), "{}", outer.dst);
        }
    }
    let distinct: BTreeSet<_> = labels.values().collect();
    assert!(distinct.len() > 48, "flow labels of 64 flows: {labels:?}");
    assert!(sources.len() > 48, "low bits of the source of 64 flows: {sources:?}");

    ipv4(&live, own_address, macs);

    // A real client's SYN, options and all, as it left the client but for the edge's hop.
    let at_client = live.capture_both_ways("client", "eth0").unwrap();
    let connection = Connection::open(&live.node("client").unwrap(), live.service(A)).await.unwrap();
    let port = connection.local_addr().unwrap().port();
    let syn = matcher::tcp_ports(port, PORT).and(matcher::tcp("SYN", |tcp| tcp.flags & flags::SYN != 0));
    let sent = expect(&at_client).within(SOON).packet(syn.clone()).unwrap();
    assert!(!sent.layers().tcp().unwrap().options.is_empty());
    let mut packet = sent.bytes[14..].to_vec();
    packet[7] -= 1;
    let arrived = matcher::inner_exactly(&packet).and(matcher::ipv6("hop limit 64", |ip| ip.hop_limit == 64));
    expect(&wire).within(SOON).packet(syn.and(arrived)).unwrap();
}
