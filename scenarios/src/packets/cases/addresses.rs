//! Step 3: mapped addresses, the SRv6 block, the self-test; and destinations that are not ours.

use std::net::Ipv6Addr;

use weir_bpf::abi::Reason;

use super::super::build::{ACK, ROUTING, SYN, data, frame, ip, routing};
use super::super::world::{CLIENT, FOREIGN, IN_BLOCK, Ingress, ROUTER, SELF_TEST, VIP_A, VIP_BARE};
use super::super::{Expect, Verdict};
use super::{Of, Table};

pub(super) fn add(table: &mut Table<'_>) {
    let between = |source, destination| frame(&ip(source, destination).tcp((40001, 443), ACK, b"x"));
    let mapped = Ipv6Addr::new(0, 0, 0, 0, 0, 0xffff, 0xc000, 0x0201);

    table.dropped("mapped: source", between(mapped, VIP_A), Reason::MappedAddress);
    table.dropped("mapped: destination", between(CLIENT, mapped), Reason::MappedAddress);
    table.dropped("mapped: both", between(mapped, mapped), Reason::MappedAddress);
    table.dropped("mapped: source, destination not ours", between(mapped, FOREIGN), Reason::MappedAddress);
    table.dropped(
        "mapped: source, destination in the block",
        between(mapped, IN_BLOCK),
        Reason::MappedAddress,
    );
    table.add(
        "mapped: to the self-test SID",
        Ingress::Fabric,
        between(mapped, SELF_TEST),
        Expect::unsent(Verdict::Drop, Reason::MappedAddress),
    );
    // Neighbours of the mapped prefix are ordinary sources.
    for (name, client) in [
        ("mapped: IPv4-compatible source is not mapped", Ipv6Addr::new(0, 0, 0, 0, 0, 0, 0xc000, 0x0201)),
        ("mapped: translated source is not mapped", Ipv6Addr::new(0, 0, 0, 0, 0xffff, 0, 0xc000, 0x0201)),
        (
            "mapped: source with one more bit is not mapped",
            Ipv6Addr::new(0, 0, 0, 0x8000, 0, 0xffff, 0xc000, 0x0201),
        ),
    ] {
        let packet = ip(client, VIP_A).tcp((40001, 443), ACK, b"x");
        table.forwarded(name, Of { rule: "web", client, port: 40001 }, &packet);
    }

    let unsent = |reason, verdict| Expect::unsent(verdict, reason);
    let dropped = unsent(Reason::Srv6Block, Verdict::Drop);
    let left = unsent(Reason::NotVip, Verdict::Left);
    let encapsulated = ip(ROUTER, IN_BLOCK).packet(41, &ip(CLIENT, VIP_A).tcp((40001, 443), SYN, &[]));
    let srh = ip(ROUTER, IN_BLOCK).packet(ROUTING, &[routing(41, 1), data(40)].concat());
    for (name, ingress, frame, expect) in [
        ("block: encapsulated to a SID, uplink", Ingress::Uplink, frame(&encapsulated), &dropped),
        ("block: encapsulated to a SID, fabric", Ingress::Fabric, frame(&encapsulated), &left),
        ("block: encapsulated to a SID, both roles", Ingress::Both, frame(&encapsulated), &left),
        ("block: SRH to a SID, uplink", Ingress::Uplink, frame(&srh), &dropped),
        ("block: source, uplink", Ingress::Uplink, between(IN_BLOCK, VIP_A), &dropped),
        ("block: source, fabric", Ingress::Fabric, between(IN_BLOCK, VIP_A), &left),
        ("block: source, both roles", Ingress::Both, between(IN_BLOCK, VIP_A), &left),
        ("block: source, not ours, uplink", Ingress::Uplink, between(IN_BLOCK, FOREIGN), &dropped),
        ("block: self-test SID, uplink", Ingress::Uplink, between(CLIENT, SELF_TEST), &dropped),
        (
            "block: next to the self-test SID, fabric",
            Ingress::Fabric,
            between(CLIENT, Ipv6Addr::from(u128::from(SELF_TEST) ^ 1)),
            &left,
        ),
        (
            "block: another node's self-test SID, fabric",
            Ingress::Fabric,
            between(CLIENT, Ipv6Addr::from(u128::from(SELF_TEST) ^ 1 << 64)),
            &left,
        ),
        (
            "block: the next block is not ours",
            Ingress::Uplink,
            between(Ipv6Addr::new(0x2001, 0xdb8, 0xff02, 1, 0, 0, 0, 1), FOREIGN),
            &left,
        ),
    ] {
        table.add(name, ingress, frame, expect.clone());
    }
    let seen = Expect { selftest_seen: 1, ..unsent(Reason::SelfTest, Verdict::Drop) };
    table.add("self-test: fabric", Ingress::Fabric, between(CLIENT, SELF_TEST), seen.clone());
    table.add("self-test: both roles", Ingress::Both, between(CLIENT, SELF_TEST), seen.clone());
    let from_block = frame(&ip(IN_BLOCK, SELF_TEST).packet(59, &[]));
    table.add("self-test: from the block, no payload", Ingress::Fabric, from_block, seen);

    table.left("not ours: TCP", between(CLIENT, FOREIGN), Reason::NotVip);
    table.left("not ours: UDP", frame(&ip(CLIENT, FOREIGN).udp((1, 53), &[])), Reason::NotVip);
    table.left("not ours: echo", frame(&ip(CLIENT, FOREIGN).icmp(128, 0, 1, &[])), Reason::NotVip);
    table.left("not ours: no next header", frame(&ip(CLIENT, FOREIGN).packet(59, &[])), Reason::NotVip);
    let mut short = between(CLIENT, FOREIGN);
    short.truncate(14 + 45);
    table.left("not ours: cut", short, Reason::NotVip);
    table.left("not ours: from a VIP", between(VIP_A, CLIENT), Reason::NotVip);
    table.dropped("no rule: VIP without any", between(CLIENT, VIP_BARE), Reason::NoRule);
}
