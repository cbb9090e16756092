//! IPv4 through steps 7 and 8: what fits, and the "fragmentation needed" for what does not.

use std::net::Ipv4Addr;

use weir_bpf::abi::Reason;

use super::super::build::{ACK, data};
use super::super::build4::{DF, NOP, frame4, ip4, tagged4};
use super::super::world::{CLIENT4, CLIENT4_2, Ingress, VIP4_A, VIP4_B};
use super::super::{Expect, Verdict};
use super::{Of, Table, answered, needed};

/// A TCP packet of `len` bytes in all that must not be fragmented.
fn sized(port: u16, len: usize) -> Vec<u8> {
    ip4(CLIENT4, VIP4_A).tcp((40001, port), ACK, &data(len - 40))
}

pub(super) fn add(table: &mut Table<'_>) {
    let of = |rule| Of { rule, client: CLIENT4.to_ipv6_mapped(), port: 40001 };
    for (name, rule, port, len) in [
        ("ipv4 size: fits 1500", "web4", 443, 1460),
        ("ipv4 size: fits 1400", "mtu-1400-4", 1003, 1360),
        ("ipv4 size: fits 1320", "mtu-1320-4", 1004, 1280),
        ("ipv4 size: fits 9000", "mtu-9000-4", 1006, 8960),
        ("ipv4 size: fits a learned 1400", "pmtu-1400-4", 1008, 1360),
    ] {
        table.forwarded(name, of(rule), &sized(port, len));
    }
    let loose = ip4(CLIENT4, VIP4_A).fragment(0).tcp((40001, 443), ACK, &data(1420));
    table.forwarded("ipv4 size: fits and may be fragmented", of("web4"), &loose);
    for (name, port, len, mtu) in [
        ("ipv4 needed: a byte over 1500", 443, 1461, 1460),
        ("ipv4 needed: full Ethernet frame", 443, 1500, 1460),
        ("ipv4 needed: a byte over 1400", 1003, 1361, 1360),
        ("ipv4 needed: a byte over 1320", 1004, 1281, 1280),
        ("ipv4 needed: a byte over 9000", 1006, 8961, 8960),
        ("ipv4 needed: a byte over a learned 1400", 1008, 1361, 1360),
    ] {
        let packet = sized(port, len);
        let expect = answered(Reason::PacketTooBig, &[], &needed(VIP4_A, CLIENT4, mtu, &packet));
        table.add(name, Ingress::Uplink, frame4(&packet), expect);
    }
    let packet = sized(1003, 1400);
    let answer = needed(VIP4_A, CLIENT4, 1360, &packet);
    let tags = [[0x88, 0xa8, 0, 9], [0x81, 0, 0, 10]];
    for (name, tags) in [("ipv4 needed: one tag", &tags[..1]), ("ipv4 needed: two tags", &tags)] {
        let expect = answered(Reason::PacketTooBig, tags, &answer);
        table.add(name, Ingress::Uplink, tagged4(tags, &packet), expect);
    }
    let plain = answered(Reason::PacketTooBig, &[], &answer);
    table.add("ipv4 needed: from the fabric", Ingress::Fabric, frame4(&packet), plain.clone());
    let padded = [frame4(&packet), vec![0xee; 40]].concat();
    table.add("ipv4 needed: padding is not quoted", Ingress::Uplink, padded, plain);

    let udp = ip4(CLIENT4, VIP4_A).udp((40001, 1003), &data(1333));
    let expect = answered(Reason::PacketTooBig, &[], &needed(VIP4_A, CLIENT4, 1360, &udp));
    table.add("ipv4 needed: UDP", Ingress::Uplink, frame4(&udp), expect);
    let other = ip4(CLIENT4_2, VIP4_B).tos(0xbb).tcp((40001, 443), ACK, &data(1421));
    let expect = answered(Reason::PacketTooBig, &[], &needed(VIP4_B, CLIENT4_2, 1460, &other));
    table.add("ipv4 needed: TOS is not copied", Ingress::Uplink, frame4(&other), expect);
    let behind = ip4(CLIENT4, VIP4_A).options(&[NOP; 40]).tcp((40001, 443), ACK, &data(1400));
    let expect = answered(Reason::PacketTooBig, &[], &needed(VIP4_A, CLIENT4, 1460, &behind));
    table.add("ipv4 needed: options are quoted", Ingress::Uplink, frame4(&behind), expect);
    let reserved = ip4(CLIENT4, VIP4_A).fragment(0xc000).tcp((40001, 443), ACK, &data(1421));
    let expect = answered(Reason::PacketTooBig, &[], &needed(VIP4_A, CLIENT4, 1460, &reserved));
    table.add("ipv4 needed: reserved flag", Ingress::Uplink, frame4(&reserved), expect);

    let big = |source, word| frame4(&ip4(source, VIP4_A).fragment(word).tcp((40001, 443), ACK, &data(1421)));
    for (name, word) in
        [("ipv4 too big: may be fragmented", 0), ("ipv4 too big: reserved flag alone", 0x8000)]
    {
        table.dropped(name, big(CLIENT4, word), Reason::TooBigNoDf);
    }
    let optional = ip4(CLIENT4, VIP4_A).fragment(0).options(&[NOP; 4]).tcp((40001, 443), ACK, &data(1421));
    table.dropped("ipv4 too big: options, may be fragmented", frame4(&optional), Reason::TooBigNoDf);
    table.dropped(
        "ipv4 too big: multicast, may be fragmented",
        big(Ipv4Addr::new(224, 0, 0, 1), 0),
        Reason::TooBigNoDf,
    );
    for (name, source) in [
        ("ipv4 too big: from multicast", Ipv4Addr::new(224, 0, 0, 1)),
        ("ipv4 too big: from the highest multicast", Ipv4Addr::new(239, 255, 255, 255)),
        ("ipv4 too big: from class E", Ipv4Addr::new(240, 0, 0, 1)),
        ("ipv4 too big: from broadcast", Ipv4Addr::BROADCAST),
        ("ipv4 too big: from nobody", Ipv4Addr::UNSPECIFIED),
        ("ipv4 too big: from this network", Ipv4Addr::new(0, 255, 0, 1)),
        ("ipv4 too big: from loopback", Ipv4Addr::new(127, 255, 0, 1)),
    ] {
        table.dropped(name, big(source, DF), Reason::TooBigSilent);
    }
    for (name, source, word, reason) in [
        ("ipv4 too big: no token", CLIENT4, DF, Reason::RateLimited),
        ("ipv4 too big: no token, may be fragmented", CLIENT4, 0, Reason::TooBigNoDf),
        ("ipv4 too big: no token, from nobody", Ipv4Addr::UNSPECIFIED, DF, Reason::TooBigSilent),
    ] {
        table.add(name, Ingress::Quiet, big(source, word), Expect::unsent(Verdict::Drop, reason));
    }
    for (name, source) in [
        ("ipv4 needed: to 126.255.255.255", Ipv4Addr::new(126, 255, 255, 255)),
        ("ipv4 needed: to 223.255.255.255", Ipv4Addr::new(223, 255, 255, 255)),
        ("ipv4 needed: to 1.0.0.0", Ipv4Addr::new(1, 0, 0, 0)),
        ("ipv4 needed: to 128.0.0.0", Ipv4Addr::new(128, 0, 0, 0)),
    ] {
        let packet = ip4(source, VIP4_A).tcp((40001, 443), ACK, &data(1421));
        let expect = answered(Reason::PacketTooBig, &[], &needed(VIP4_A, source, 1460, &packet));
        table.add(name, Ingress::Uplink, frame4(&packet), expect);
    }
    // The floor is the same for both families.
    table.dropped("ipv4 fabric MTU: 1319, small packet", frame4(&sized(1005, 60)), Reason::FabricMtu);
    table.dropped("ipv4 fabric MTU: 1319, big packet", frame4(&sized(1005, 1400)), Reason::FabricMtu);
}
