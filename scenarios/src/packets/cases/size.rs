//! Steps 7 and 8: what fits, and the Packet Too Big for what does not.

use std::net::Ipv6Addr;

use weir_bpf::abi::Reason;

use super::super::build::{ACK, OPTIONS, SYN, TCP, data, frame, ip, options, tagged};
use super::super::world::{CLIENT, CLIENT_2, Ingress, VIP_A, VIP_B};
use super::super::{Expect, Verdict};
use super::{Of, Table, answered, too_big};

/// A TCP packet of `len` bytes in all.
fn sized(port: u16, len: usize) -> Vec<u8> {
    ip(CLIENT, VIP_A).tcp((40001, port), ACK, &data(len - 60))
}

pub(super) fn add(table: &mut Table<'_>) {
    let of = |rule| Of { rule, client: CLIENT, port: 40001 };
    for (name, rule, port, len) in [
        ("size: fits 1500", "web", 443, 1460),
        ("size: fits 1400", "mtu-1400", 1003, 1360),
        ("size: fits 1320", "mtu-1320", 1004, 1280),
        ("size: fits 9000", "mtu-9000", 1006, 8960),
        ("size: 3000 of 9000", "mtu-9000", 1006, 3000),
        ("size: fits a learned 1400", "pmtu-1400", 1008, 1360),
        ("size: a learned 9000 does not lift 1500", "pmtu-9000", 1010, 1460),
    ] {
        table.forwarded(name, of(rule), &sized(port, len));
    }
    for (name, port, len, mtu) in [
        ("too big: a byte over 1500", 443, 1461, 1460),
        ("too big: full Ethernet frame", 443, 1500, 1460),
        ("too big: a byte over 1400", 1003, 1361, 1360),
        ("too big: a byte over 1320", 1004, 1281, 1280),
        ("too big: a byte over 9000", 1006, 8961, 8960),
        ("too big: a byte over a learned 1400", 1008, 1361, 1360),
        ("too big: a learned 9000 does not lift 1500", 1010, 1461, 1460),
    ] {
        let packet = sized(port, len);
        let expect = answered(Reason::PacketTooBig, &[], &too_big(VIP_A, CLIENT, mtu, &packet));
        table.add(name, Ingress::Uplink, frame(&packet), expect);
    }
    let packet = sized(1003, 1400);
    let answer = too_big(VIP_A, CLIENT, 1360, &packet);
    let one = [[0x81, 0, 0x60, 9]];
    let two = [[0x88, 0xa8, 0, 9], [0x81, 0, 0, 10]];
    table.add(
        "too big: one tag",
        Ingress::Uplink,
        tagged(&one, &packet),
        answered(Reason::PacketTooBig, &one, &answer),
    );
    table.add(
        "too big: two tags",
        Ingress::Uplink,
        tagged(&two, &packet),
        answered(Reason::PacketTooBig, &two, &answer),
    );
    let on_fabric = answered(Reason::PacketTooBig, &[], &answer);
    table.add("too big: from the fabric", Ingress::Fabric, frame(&packet), on_fabric.clone());
    table.add(
        "too big: padding is not quoted",
        Ingress::Uplink,
        [frame(&packet), vec![0xee; 40]].concat(),
        on_fabric,
    );

    let udp = ip(CLIENT, VIP_A).udp((40001, 1003), &data(1313));
    let expect = answered(Reason::PacketTooBig, &[], &too_big(VIP_A, CLIENT, 1360, &udp));
    table.add("too big: UDP", Ingress::Uplink, frame(&udp), expect);
    let other = ip(CLIENT_2, VIP_B).class(0xbb).tcp((40001, 443), ACK, &data(1401));
    let expect = answered(Reason::PacketTooBig, &[], &too_big(VIP_B, CLIENT_2, 1460, &other));
    table.add("too big: traffic class and label are not copied", Ingress::Uplink, frame(&other), expect);
    let segment = ip(CLIENT, VIP_A).tcp_segment((40001, 443), ACK, &data(1393));
    let behind = ip(CLIENT, VIP_A).packet(OPTIONS, &[options(TCP, 0), segment].concat());
    let expect = answered(Reason::PacketTooBig, &[], &too_big(VIP_A, CLIENT, 1460, &behind));
    table.add("too big: behind options", Ingress::Uplink, frame(&behind), expect);

    let silent = |source: Ipv6Addr| frame(&ip(source, VIP_A).tcp((40001, 443), ACK, &data(1440)));
    table.dropped(
        "too big: from multicast",
        silent(Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1)),
        Reason::TooBigSilent,
    );
    table.dropped(
        "too big: from the highest multicast",
        silent(Ipv6Addr::from(u128::MAX)),
        Reason::TooBigSilent,
    );
    table.dropped("too big: from nobody", silent(Ipv6Addr::UNSPECIFIED), Reason::TooBigSilent);
    for (name, source, reason) in [
        ("too big: no token", CLIENT, Reason::RateLimited),
        ("too big: no token, from nobody", Ipv6Addr::UNSPECIFIED, Reason::TooBigSilent),
    ] {
        table.add(name, Ingress::Quiet, silent(source), Expect::unsent(Verdict::Drop, reason));
    }
    let loopback = Ipv6Addr::LOCALHOST;
    let packet = ip(loopback, VIP_A).tcp((40001, 443), ACK, &data(1440));
    let expect = answered(Reason::PacketTooBig, &[], &too_big(VIP_A, loopback, 1460, &packet));
    table.add("too big: from ::1 like any other", Ingress::Uplink, frame(&packet), expect);
    for (name, client) in [
        ("size: small from multicast goes on", Ipv6Addr::new(0xff0e, 0, 0, 0, 0, 0, 0, 1)),
        ("size: small from nobody goes on", Ipv6Addr::UNSPECIFIED),
    ] {
        let packet = ip(client, VIP_A).tcp((40001, 443), SYN, &[]);
        table.forwarded(name, Of { client, ..of("web") }, &packet);
    }
    let small = ip(CLIENT, VIP_A).tcp((40001, 443), SYN, &[]);
    let expect = table.to_backend(Ingress::Quiet, of("web"), &small, &[], Reason::Forwarded);
    table.add("size: small needs no token", Ingress::Quiet, frame(&small), expect);

    table.dropped("fabric MTU: 1319, small packet", frame(&sized(1005, 60)), Reason::FabricMtu);
    table.dropped("fabric MTU: 1319, big packet", frame(&sized(1005, 1400)), Reason::FabricMtu);
    table.dropped("fabric MTU: learned 1319", frame(&sized(1009, 60)), Reason::FabricMtu);
}
