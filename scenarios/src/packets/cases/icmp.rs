//! Step 9, and ICMPv6 messages that are no errors.

use std::net::Ipv6Addr;

use weir_bpf::abi::Reason;

use super::super::build::{
    FRAGMENT, ICMPV6, Ip, OPTIONS, cut, data, fragment, frame, ip, options, stating, tagged,
};
use super::super::world::{CLIENT, CLIENT_2, Ingress, VIP_A, VIP_B, VIP_BARE};
use super::super::{Expect, Verdict};
use super::{Table, answered};

/// What answers a right request, made from scratch.
fn reply(request: Ip, word: u32, body: &[u8]) -> Vec<u8> {
    let mut back = ip(request.destination, request.source);
    (back.flow_label, back.hop_limit) = (0, 64);
    back.icmp(129, 0, word, body)
}

pub(super) fn add(table: &mut Table<'_>) {
    let to_vip = ip(CLIENT, VIP_A);
    for (name, request, word, body) in [
        ("echo: 56 bytes", to_vip, 0x1234_0001, data(56)),
        ("echo: no data", to_vip, 0x0000_0000, vec![]),
        ("echo: odd length", to_vip, 0xffff_ffff, data(33)),
        ("echo: 1452 bytes, more than would fit a tunnel", to_vip, 7, data(1452)),
        ("echo: VIP without rules", ip(CLIENT, VIP_BARE), 1, data(8)),
        ("echo: other tenant", ip(CLIENT_2, VIP_B).class(0xff), 1, data(8)),
        ("echo: from loopback", ip(Ipv6Addr::LOCALHOST, VIP_A), 1, data(8)),
    ] {
        let expect = answered(Reason::EchoReply, &[], &reply(request, word, &body));
        table.add(name, Ingress::Uplink, frame(&request.icmp(128, 0, word, &body)), expect);
    }
    let request = to_vip.icmp(128, 0, 5, &data(8));
    let answer = reply(to_vip, 5, &data(8));
    let tags = [[0x88, 0xa8, 0, 1], [0x81, 0, 0, 2]];
    table.add(
        "echo: two tags",
        Ingress::Uplink,
        tagged(&tags, &request),
        answered(Reason::EchoReply, &tags, &answer),
    );
    for (name, ingress) in [("echo: fabric", Ingress::Fabric), ("echo: both roles", Ingress::Both)] {
        table.add(name, ingress, frame(&request), answered(Reason::EchoReply, &[], &answer));
    }
    let padded = [frame(&request), vec![0xee; 6]].concat();
    let expect = answered(Reason::EchoReply, &[], &[answer.clone(), vec![0xee; 6]].concat());
    table.add("echo: padding stays", Ingress::Uplink, padded, expect);
    // The checksum is adjusted, not made anew: a wrong one stays wrong by as much (ones' complement arithmetic).
    for (name, sum, adjusted) in [
        ("echo: wrong checksum stays wrong", [0x12, 0x34], [0x11, 0x34]),
        ("echo: checksum wraps", [0x00, 0x50], [0xff, 0x4f]),
        ("echo: checksum 0x0100 becomes 0", [0x01, 0x00], [0x00, 0x00]),
        ("echo: checksum 0x00ff wraps to 0xfffe", [0x00, 0xff], [0xff, 0xfe]),
    ] {
        let (mut request, mut answer) = (request.clone(), answer.clone());
        request[42..44].copy_from_slice(&sum);
        answer[42..44].copy_from_slice(&adjusted);
        table.add(name, Ingress::Uplink, frame(&request), answered(Reason::EchoReply, &[], &answer));
    }
    table.add(
        "echo: no token",
        Ingress::Quiet,
        frame(&request),
        Expect::unsent(Verdict::Drop, Reason::RateLimited),
    );

    let message = to_vip.icmp_message(128, 0, 5, &data(8));
    for (name, first, header) in [
        ("echo: behind options", OPTIONS, options(ICMPV6, 0)),
        ("echo: behind an atomic fragment", FRAGMENT, fragment(ICMPV6, 0, false)),
    ] {
        let packet = to_vip.packet(first, &[header, message.clone()].concat());
        table.dropped(name, frame(&packet), Reason::IcmpUnhandled);
    }
    let first = to_vip.packet(FRAGMENT, &[fragment(ICMPV6, 0, true), message].concat());
    table.dropped("echo: first fragment", frame(&first), Reason::Fragment);
    for (name, source) in [
        ("echo: from multicast", Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1)),
        ("echo: from nobody", Ipv6Addr::UNSPECIFIED),
    ] {
        table.dropped(name, frame(&ip(source, VIP_A).icmp(128, 0, 1, &data(8))), Reason::IcmpUnhandled);
    }
    table.add(
        "echo: from nobody without a token",
        Ingress::Quiet,
        frame(&ip(Ipv6Addr::UNSPECIFIED, VIP_A).icmp(128, 0, 1, &data(8))),
        Expect::unsent(Verdict::Drop, Reason::IcmpUnhandled),
    );
    for (name, kind, code) in [
        ("icmp: echo request with code 1", 128, 1),
        ("icmp: echo reply", 129, 0),
        ("icmp: type 0", 0, 0),
        ("icmp: type 5", 5, 0),
        ("icmp: private error 100", 100, 0),
        ("icmp: type 127", 127, 0),
        ("icmp: multicast listener query", 130, 0),
        ("icmp: router solicitation", 133, 0),
        ("icmp: neighbour solicitation", 135, 0),
        ("icmp: redirect", 137, 0),
        ("icmp: type 255", 255, 255),
    ] {
        table.dropped(name, frame(&to_vip.icmp(kind, code, 0, &data(24))), Reason::IcmpUnhandled);
    }
    table.dropped("icmp: cut to 7 bytes", frame(&stating(cut(request.clone(), 47), 7)), Reason::Truncated);
    table.dropped("icmp: stated as 7 bytes", frame(&stating(request.clone(), 7)), Reason::Truncated);
    table.dropped("icmp: nothing", frame(&to_vip.packet(ICMPV6, &[])), Reason::Truncated);
    table.dropped("icmp: frame cut", frame(&cut(request, 52)), Reason::Truncated);
}
