//! ICMPv4: steps 9 and 10, and messages that are neither.

use std::net::Ipv4Addr;

use weir_bpf::abi::Reason;

use super::super::build::{ACK, ESP, TCP, UDP, cut, data, ip};
use super::super::build4::{DF, ICMP, Ip4, MF, NOP, frame4, ip4, stating4, tagged4};
use super::super::world::{
    CLIENT, CLIENT4, CLIENT4_2, FOREIGN4, Ingress, ROUTER4, VIP_A, VIP4_A, VIP4_B, VIP4_BARE,
};
use super::super::{Expect, Verdict};
use super::{Of, Table, answer4, answered};

pub(super) fn add(table: &mut Table<'_>) {
    echo(table);
    errors(table);
    bad_quotes(table);
}

/// What answers a right request, made from scratch.
fn reply(request: &Ip4, word: u32, body: &[u8]) -> Vec<u8> {
    answer4(request.destination, request.source).icmp(0, 0, word, body)
}

fn echo(table: &mut Table<'_>) {
    let to_vip = ip4(CLIENT4, VIP4_A);
    for (name, request, word, body) in [
        ("ipv4 echo: 56 bytes", to_vip.clone(), 0x1234_0001, data(56)),
        ("ipv4 echo: no data", to_vip.clone(), 0, vec![]),
        ("ipv4 echo: odd length", to_vip.clone(), 0xffff_ffff, data(33)),
        ("ipv4 echo: 1472 bytes, more than would fit a tunnel", to_vip.clone(), 7, data(1472)),
        ("ipv4 echo: VIP without rules", ip4(CLIENT4, VIP4_BARE), 1, data(8)),
        (
            "ipv4 echo: other tenant, TOS, TTL, id and DF are not kept",
            ip4(CLIENT4_2, VIP4_B).tos(0xff).fragment(0).id(0xfffe),
            1,
            data(8),
        ),
    ] {
        let expect = answered(Reason::EchoReply, &[], &reply(&request, word, &body));
        table.add(name, Ingress::Uplink, frame4(&request.icmp(8, 0, word, &body)), expect);
    }
    let request = to_vip.icmp(8, 0, 5, &data(8));
    let answer = reply(&to_vip, 5, &data(8));
    let tags = [[0x88, 0xa8, 0, 1], [0x81, 0, 0, 2]];
    table.add(
        "ipv4 echo: two tags",
        Ingress::Uplink,
        tagged4(&tags, &request),
        answered(Reason::EchoReply, &tags, &answer),
    );
    for (name, ingress) in [("ipv4 echo: fabric", Ingress::Fabric), ("ipv4 echo: both roles", Ingress::Both)]
    {
        table.add(name, ingress, frame4(&request), answered(Reason::EchoReply, &[], &answer));
    }
    let expect = answered(Reason::EchoReply, &[], &[answer.clone(), vec![0xee; 10]].concat());
    table.add(
        "ipv4 echo: padding stays",
        Ingress::Uplink,
        [frame4(&request), vec![0xee; 10]].concat(),
        expect,
    );
    // The checksum is adjusted, not made anew: a wrong one stays wrong by as much (ones' complement arithmetic).
    for (name, sum, adjusted) in [
        ("ipv4 echo: wrong checksum stays wrong", [0x12, 0x34], [0x1a, 0x34]),
        ("ipv4 echo: checksum wraps", [0xff, 0x50], [0x07, 0x51]),
        ("ipv4 echo: checksum 0xf7ff becomes 0", [0xf7, 0xff], [0x00, 0x00]),
        ("ipv4 echo: checksum 0xf800 wraps to 1", [0xf8, 0x00], [0x00, 0x01]),
    ] {
        let (mut request, mut answer) = (request.clone(), answer.clone());
        request[22..24].copy_from_slice(&sum);
        answer[22..24].copy_from_slice(&adjusted);
        table.add(name, Ingress::Uplink, frame4(&request), answered(Reason::EchoReply, &[], &answer));
    }
    table.add(
        "ipv4 echo: no token",
        Ingress::Quiet,
        frame4(&request),
        Expect::unsent(Verdict::Drop, Reason::RateLimited),
    );
    let optional = to_vip.clone().options(&[NOP; 4]).icmp(8, 0, 5, &data(8));
    table.dropped("ipv4 echo: with options", frame4(&optional), Reason::IcmpUnhandled);
    for (name, source) in [
        ("ipv4 echo: from multicast", Ipv4Addr::new(224, 0, 0, 1)),
        ("ipv4 echo: from broadcast", Ipv4Addr::BROADCAST),
        ("ipv4 echo: from class E", Ipv4Addr::new(240, 1, 2, 3)),
        ("ipv4 echo: from nobody", Ipv4Addr::UNSPECIFIED),
        ("ipv4 echo: from loopback", Ipv4Addr::LOCALHOST),
    ] {
        table.dropped(name, frame4(&ip4(source, VIP4_A).icmp(8, 0, 1, &data(8))), Reason::IcmpUnhandled);
    }
    for (name, word) in [("ipv4 echo: first fragment", MF), ("ipv4 echo: last fragment", 3)] {
        let fragment = to_vip.clone().fragment(word).icmp(8, 0, 5, &data(8));
        table.dropped(name, frame4(&fragment), Reason::Fragment);
    }
    for (name, kind, code) in [
        ("icmpv4: echo request with code 1", 8, 1),
        ("icmpv4: echo reply", 0, 0),
        ("icmpv4: type 1", 1, 0),
        ("icmpv4: source quench is deprecated", 4, 0),
        ("icmpv4: redirect", 5, 1),
        ("icmpv4: router advertisement", 9, 0),
        ("icmpv4: timestamp", 13, 0),
        ("icmpv4: address mask", 17, 0),
        ("icmpv4: an ICMPv6 echo request", 128, 0),
        ("icmpv4: type 255", 255, 255),
    ] {
        table.dropped(name, frame4(&to_vip.icmp(kind, code, 0, &data(28))), Reason::IcmpUnhandled);
    }
    table.dropped("icmpv4: stated as 7 bytes", frame4(&stating4(request.clone(), 27)), Reason::Truncated);
    table.dropped("icmpv4: nothing", frame4(&to_vip.packet(ICMP, &[])), Reason::Truncated);
    table.dropped("icmpv4: frame cut", frame4(&cut(request, 30)), Reason::Truncated);
    let over_v6 = ip(CLIENT, VIP_A).packet(ICMP, &[8, 0, 0xf7, 0xff, 0, 0, 0, 0]);
    table.dropped("icmpv4: over IPv6", super::super::build::frame(&over_v6), Reason::UnsupportedProtocol);
}

fn web() -> Of<'static> {
    Of { rule: "web4", client: CLIENT4.to_ipv6_mapped(), port: 40001 }
}

/// From a router to tenant A's VIP.
fn error() -> Ip4 {
    ip4(ROUTER4, VIP4_A)
}

/// Header of the VIP's reply to the client.
fn back() -> Ip4 {
    ip4(VIP4_A, CLIENT4).tos(0x28)
}

fn steer(table: &mut Table<'_>, name: &'static str, of: Of<'_>, packet: &[u8]) {
    let expect = table.to_backend(Ingress::Uplink, of, packet, &[], Reason::IcmpSteered);
    table.add(name, Ingress::Uplink, frame4(packet), expect);
}

fn errors(table: &mut Table<'_>) {
    let full = back().tcp((443, 40001), ACK, &data(300));
    for (name, kind, code, word) in [
        ("ipv4 error: host unreachable", 3, 1, 0),
        ("ipv4 error: port unreachable", 3, 3, 0),
        ("ipv4 error: fragmentation needed", 3, 4, 1280),
        ("ipv4 error: unknown code", 3, 200, 0),
        ("ipv4 error: time exceeded", 11, 0, 0),
        ("ipv4 error: parameter problem", 12, 0, 0x0600_0000),
    ] {
        steer(table, name, web(), &error().icmp(kind, code, word, &full));
    }
    for (name, len) in [
        ("ipv4 error: quote of 8 bytes behind the header", 28),
        ("ipv4 error: quote of the ports alone", 24),
        ("ipv4 error: quote of ports and one byte", 25),
    ] {
        steer(table, name, web(), &error().icmp(3, 4, 1400, &cut(full.clone(), len)));
    }
    let of = |rule, client: Ipv4Addr, port| Of { rule, client: client.to_ipv6_mapped(), port };
    let udp = ip4(VIP4_A, CLIENT4_2).udp((53, 9), &data(20));
    steer(table, "ipv4 error: UDP", of("dns4", CLIENT4_2, 9), &error().icmp(3, 3, 0, &udp));
    let sticky = back().tcp((80, 50123), ACK, b"x");
    steer(
        table,
        "ipv4 error: client affinity",
        of("sticky4", CLIENT4, 0),
        &error().icmp(3, 4, 1300, &sticky),
    );
    let quic = back().udp((443, 50123), b"x");
    steer(
        table,
        "ipv4 error: client and protocol affinity",
        of("quic4", CLIENT4, 0),
        &error().icmp(3, 4, 1300, &quic),
    );
    let tenant_b = ip4(VIP4_B, CLIENT4_2).tcp((443, 40001), ACK, b"x");
    steer(
        table,
        "ipv4 error: tenant b",
        of("web-b4", CLIENT4_2, 0),
        &ip4(ROUTER4, VIP4_B).tos(0xc0).icmp(3, 4, 1300, &tenant_b),
    );
    let esp = ip4(VIP4_B, CLIENT4).packet(ESP, &data(8));
    steer(
        table,
        "ipv4 error: a protocol without ports",
        of("esp-b4", CLIENT4, 0),
        &ip4(ROUTER4, VIP4_B).icmp(3, 1, 0, &esp),
    );
    steer(table, "ipv4 error: from the client itself", web(), &ip4(CLIENT4, VIP4_A).icmp(3, 3, 0, &full));
    for (name, quote) in [
        ("ipv4 error: quote states length 0", stating4(full.clone(), 0)),
        ("ipv4 error: quote states length 65535", stating4(full.clone(), 65535)),
        ("ipv4 error: quote with a wrong header checksum", {
            let mut quote = full.clone();
            quote[10] ^= 1;
            quote
        }),
        ("ipv4 error: quote with options", back().options(&[NOP; 40]).tcp((443, 40001), ACK, b"x")),
        (
            "ipv4 error: quote with a source route",
            back().options(&[131, 7, 4, 1, 2, 3, 4, 0]).tcp((443, 40001), ACK, b"x"),
        ),
        ("ipv4 error: quote of a first fragment", back().fragment(MF).tcp((443, 40001), ACK, &data(8))),
        (
            "ipv4 error: quote with options ends behind the ports",
            cut(back().options(&[NOP; 8]).tcp((443, 40001), ACK, b"x"), 32),
        ),
    ] {
        steer(table, name, web(), &error().icmp(3, 0, 0, &quote));
    }
    steer(
        table,
        "ipv4 error: with options",
        web(),
        &error().options(&[148, 4, 0, 0]).icmp(3, 4, 1400, &full),
    );
    let plain = error().icmp(3, 4, 1400, &full);
    let expect = table.to_backend(Ingress::Uplink, web(), &plain, &[], Reason::IcmpSteered);
    table.add("ipv4 error: tagged", Ingress::Uplink, tagged4(&[[0x81, 0, 0, 4]], &plain), expect);
    for (name, ingress) in
        [("ipv4 error: from the fabric", Ingress::Fabric), ("ipv4 error: needs no token", Ingress::Quiet)]
    {
        let expect = table.to_backend(ingress, web(), &plain, &[], Reason::IcmpSteered);
        table.add(name, ingress, frame4(&plain), expect);
    }
    let short = error().icmp(3, 1, 0, &cut(full.clone(), 24));
    let expect = table.to_backend(Ingress::Uplink, web(), &short, &[0xee; 8], Reason::IcmpSteered);
    table.add("ipv4 error: padding stays", Ingress::Uplink, [frame4(&short), vec![0xee; 8]].concat(), expect);
    let fits = error().icmp(3, 0, 0, &back().tcp((443, 40001), ACK, &data(1392)));
    steer(table, "ipv4 error: as big as fits", web(), &fits);
}

fn bad_quotes(table: &mut Table<'_>) {
    let full = back().tcp((443, 40001), ACK, &data(300));
    let mut short_header = full.clone();
    short_header[0] = 0x44;
    let mut long_header = cut(full.clone(), 40);
    long_header[0] = 0x4f;
    for (name, quote) in [
        ("ipv4 bad quote: none", vec![]),
        ("ipv4 bad quote: header short by one", cut(full.clone(), 19)),
        ("ipv4 bad quote: header alone", cut(full.clone(), 20)),
        ("ipv4 bad quote: cut inside the ports", cut(full.clone(), 23)),
        ("ipv4 bad quote: header length 16", short_header),
        ("ipv4 bad quote: header ends beyond it", long_header),
        ("ipv4 bad quote: IPv6", ip(VIP_A, CLIENT).tcp((443, 40001), ACK, b"x")),
        ("ipv4 bad quote: foreign source", ip4(FOREIGN4, CLIENT4).tcp((443, 40001), ACK, b"x")),
        ("ipv4 bad quote: another VIP's reply", ip4(VIP4_B, CLIENT4).tcp((443, 40001), ACK, b"x")),
        (
            "ipv4 bad quote: the client's packet instead of the reply",
            ip4(CLIENT4, VIP4_A).tcp((40001, 443), ACK, b"x"),
        ),
        ("ipv4 bad quote: port without a rule", back().tcp((444, 40001), ACK, b"x")),
        ("ipv4 bad quote: ports the wrong way round", back().tcp((40001, 443), ACK, b"x")),
        ("ipv4 bad quote: protocol of another rule", back().udp((80, 40001), b"x")),
        ("ipv4 bad quote: echo reply", back().icmp(0, 0, 1, &data(8))),
        ("ipv4 bad quote: SCTP", back().packet(132, &data(8))),
        ("ipv4 bad quote: protocol 0", back().packet(0, &data(8))),
        ("ipv4 bad quote: later fragment", back().fragment(MF | 0x64).packet(TCP, &data(64))),
        ("ipv4 bad quote: last fragment", back().fragment(1).packet(UDP, &data(64))),
        (
            "ipv4 bad quote: cut behind the options",
            cut(back().options(&[NOP; 8]).tcp((443, 1), ACK, &[]), 28),
        ),
        (
            "ipv4 bad quote: cut inside the ports behind options",
            cut(back().options(&[NOP; 8]).tcp((443, 1), ACK, &[]), 31),
        ),
    ] {
        table.dropped(name, frame4(&error().icmp(3, 4, 1400, &quote)), Reason::IcmpBadQuote);
    }
    let padding = stating4(error().icmp(3, 4, 1400, &cut(full.clone(), 24)), 48);
    table.dropped("ipv4 bad quote: ports in the padding", frame4(&padding), Reason::IcmpBadQuote);

    let about = |port| frame4(&error().icmp(3, 4, 1400, &back().tcp((port, 40001), ACK, b"x")));
    table.dropped("ipv4 error: rule not loaded", about(1011), Reason::NotLoaded);
    table.dropped("ipv4 error: no next hop", about(1007), Reason::NoNextHop);
    for (name, word, ingress) in [
        ("ipv4 error: too big gets no error", DF, Ingress::Uplink),
        ("ipv4 error: too big and may be fragmented", 0, Ingress::Uplink),
        ("ipv4 error: too big without a token", DF, Ingress::Quiet),
    ] {
        let big = error().fragment(word).icmp(3, 0, 0, &back().tcp((443, 40001), ACK, &data(1393)));
        table.add(name, ingress, frame4(&big), Expect::unsent(Verdict::Drop, Reason::TooBigSilent));
    }
    table.left(
        "ipv4 error: to an address not ours",
        frame4(&ip4(ROUTER4, FOREIGN4).icmp(3, 4, 1400, &full)),
        Reason::NotVip,
    );
    let fragment = error().fragment(MF).icmp(3, 4, 1400, &full);
    table.dropped("ipv4 error: in a first fragment", frame4(&fragment), Reason::Fragment);
}
