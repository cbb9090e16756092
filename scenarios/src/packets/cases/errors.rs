//! Step 10: ICMPv6 errors about a flow reach that flow's backend.

use weir_bpf::abi::Reason;

use super::super::build::{
    ACK, FRAGMENT, HOP_BY_HOP, ICMPV6, Ip, OPTIONS, ROUTING, TCP, UDP, chain, cut, data, fragment, frame, ip,
    long_options, options, routing, stating, tagged,
};
use super::super::world::{CLIENT, CLIENT_2, FOREIGN, IN_BLOCK, Ingress, ROUTER, VIP_A, VIP_B};
use super::super::{Expect, Verdict};
use super::{Of, Table};

const WEB: Of<'static> = Of { rule: "web", client: CLIENT, port: 40001 };

/// From a router to tenant A's VIP.
fn error() -> Ip {
    ip(ROUTER, VIP_A)
}

/// Header of the VIP's reply to the client.
fn reply() -> Ip {
    ip(VIP_A, CLIENT).class(0x28)
}

pub(super) fn add(table: &mut Table<'_>) {
    let full = reply().tcp((443, 40001), ACK, &data(300));
    let steer = |table: &mut Table<'_>, name, of, packet: &[u8]| {
        let expect = table.to_backend(Ingress::Uplink, of, packet, &[], Reason::IcmpSteered);
        table.add(name, Ingress::Uplink, frame(packet), expect);
    };
    for (name, kind, code, word) in [
        ("error: no route", 1, 0, 0),
        ("error: port unreachable", 1, 4, 0),
        ("error: packet too big", 2, 0, 1280),
        ("error: hop limit exceeded", 3, 0, 0),
        ("error: parameter problem", 4, 1, 6),
        ("error: unknown code", 1, 200, 0),
    ] {
        steer(table, name, WEB, &error().icmp(kind, code, word, &full));
    }
    for (name, len) in [
        ("error: quote of 8 bytes behind the header", 48),
        ("error: quote of the ports alone", 44),
        ("error: quote of ports and one byte", 45),
    ] {
        steer(table, name, WEB, &error().icmp(2, 0, 1400, &cut(full.clone(), len)));
    }
    let udp = ip(VIP_A, CLIENT_2).udp((53, 9), &data(20));
    steer(table, "error: UDP", Of { rule: "dns", client: CLIENT_2, port: 9 }, &error().icmp(1, 4, 0, &udp));
    let sticky = reply().tcp((80, 50123), ACK, b"x");
    steer(
        table,
        "error: client affinity",
        Of { port: 0, rule: "sticky", ..WEB },
        &error().icmp(2, 0, 1300, &sticky),
    );
    let quic = reply().udp((443, 50123), b"x");
    steer(
        table,
        "error: client and protocol affinity",
        Of { port: 0, rule: "quic", ..WEB },
        &error().icmp(2, 0, 1300, &quic),
    );
    let tenant_b = ip(VIP_B, CLIENT_2).tcp((443, 40001), ACK, b"x");
    let of_b = Of { rule: "web-b", client: CLIENT_2, port: 40001 };
    steer(table, "error: tenant b", of_b, &ip(ROUTER, VIP_B).class(0xc0).icmp(2, 0, 1300, &tenant_b));
    let equal = reply().tcp((1001, 40001), ACK, b"x");
    steer(table, "error: equal-cost hops", Of { rule: "equal-cost", ..WEB }, &error().icmp(3, 0, 0, &equal));
    steer(table, "error: from the client itself", WEB, &ip(CLIENT, VIP_A).icmp(1, 4, 0, &full));
    for (name, payload_len) in
        [("error: quote states length 0", 0), ("error: quote states length 65535", 65535)]
    {
        steer(table, name, WEB, &error().icmp(2, 0, 1300, &stating(cut(full.clone(), 60), payload_len)));
    }

    let segment = reply().tcp_segment((443, 40001), ACK, &data(10));
    let quote =
        |first: u8, headers: &[Vec<u8>]| reply().packet(first, &[headers.concat(), segment.clone()].concat());
    for (name, quote) in [
        ("error: quote with options", quote(OPTIONS, &[options(TCP, 1)])),
        ("error: quote with hop-by-hop", quote(HOP_BY_HOP, &[options(TCP, 0)])),
        ("error: quote with a spent routing header", quote(ROUTING, &[routing(TCP, 0)])),
        ("error: quote of an atomic fragment", quote(FRAGMENT, &[fragment(TCP, 0, false)])),
        ("error: quote of a first fragment", quote(FRAGMENT, &[fragment(TCP, 0, true)])),
        (
            "error: quote with options and a first fragment",
            quote(OPTIONS, &[options(FRAGMENT, 0), fragment(TCP, 0, true)]),
        ),
        ("error: quote with six headers", reply().packet(OPTIONS, &chain(6, TCP, &segment))),
        ("error: quote with headers up to byte 512", quote(OPTIONS, &[long_options(TCP, 58)])),
        ("error: quote ends behind the ports behind options", cut(quote(OPTIONS, &[options(TCP, 0)]), 52)),
    ] {
        steer(table, name, WEB, &error().icmp(1, 0, 0, &quote));
    }
    let message = error().icmp_message(2, 0, 1400, &full);
    steer(
        table,
        "error: behind options",
        WEB,
        &error().packet(OPTIONS, &[options(ICMPV6, 0), message.clone()].concat()),
    );
    let atomic = error().packet(FRAGMENT, &[fragment(ICMPV6, 0, false), message].concat());
    steer(table, "error: in an atomic fragment", WEB, &atomic);
    let plain = error().icmp(2, 0, 1400, &full);
    let expect = table.to_backend(Ingress::Uplink, WEB, &plain, &[], Reason::IcmpSteered);
    table.add("error: tagged", Ingress::Uplink, tagged(&[[0x81, 0, 0, 4]], &plain), expect);
    for (name, ingress) in
        [("error: from the fabric", Ingress::Fabric), ("error: needs no token", Ingress::Quiet)]
    {
        let expect = table.to_backend(ingress, WEB, &plain, &[], Reason::IcmpSteered);
        table.add(name, ingress, frame(&plain), expect);
    }
    let expect = table.to_backend(Ingress::Uplink, WEB, &plain, &[0xee; 9], Reason::IcmpSteered);
    table.add("error: padding stays", Ingress::Uplink, [frame(&plain), vec![0xee; 9]].concat(), expect);
    steer(
        table,
        "error: as big as fits",
        WEB,
        &error().icmp(1, 0, 0, &reply().tcp((443, 40001), ACK, &data(1352))),
    );

    let bad = [
        ("bad quote: none", vec![]),
        ("bad quote: header short by one", cut(full.clone(), 39)),
        ("bad quote: header alone", cut(full.clone(), 40)),
        ("bad quote: cut inside the ports", cut(full.clone(), 43)),
        ("bad quote: version 4", {
            let mut quote = full.clone();
            quote[0] = 0x45;
            quote
        }),
        ("bad quote: foreign source", ip(FOREIGN, CLIENT).tcp((443, 40001), ACK, b"x")),
        ("bad quote: another VIP's reply", ip(VIP_B, CLIENT).tcp((443, 40001), ACK, b"x")),
        (
            "bad quote: the client's packet instead of the reply",
            ip(CLIENT, VIP_A).tcp((40001, 443), ACK, b"x"),
        ),
        ("bad quote: port without a rule", reply().tcp((444, 40001), ACK, b"x")),
        ("bad quote: ports the wrong way round", reply().tcp((40001, 443), ACK, b"x")),
        ("bad quote: protocol of another rule", reply().udp((80, 40001), b"x")),
        ("bad quote: echo reply", reply().icmp(129, 0, 1, &data(8))),
        ("bad quote: SCTP", reply().packet(132, &segment)),
        ("bad quote: no next header", reply().packet(59, &segment)),
        ("bad quote: later fragment", quote(FRAGMENT, &[fragment(TCP, 100, true)])),
        ("bad quote: last fragment", quote(FRAGMENT, &[fragment(TCP, 100, false)])),
        ("bad quote: segments left", quote(ROUTING, &[routing(TCP, 1)])),
        ("bad quote: seven headers", reply().packet(OPTIONS, &chain(7, TCP, &segment))),
        ("bad quote: headers beyond byte 512", quote(OPTIONS, &[long_options(TCP, 59)])),
        ("bad quote: options cut", cut(quote(OPTIONS, &[options(TCP, 1)]), 47)),
        ("bad quote: options end beyond it", cut(quote(OPTIONS, &[options(TCP, 1)]), 55)),
        ("bad quote: cut behind the options", cut(quote(OPTIONS, &[options(TCP, 1)]), 56)),
        ("bad quote: cut inside the ports behind options", cut(quote(OPTIONS, &[options(UDP, 0)]), 51)),
    ];
    for (name, quote) in bad {
        table.dropped(name, frame(&error().icmp(2, 0, 1400, &quote)), Reason::IcmpBadQuote);
    }
    // The ports lie behind the payload's end: padding is no part of the packet.
    let padding = stating(error().icmp(2, 0, 1400, &cut(full.clone(), 44)), 8 + 40);
    table.dropped("bad quote: ports in the padding", frame(&padding), Reason::IcmpBadQuote);

    let about = |port| frame(&error().icmp(2, 0, 1400, &reply().tcp((port, 40001), ACK, b"x")));
    table.dropped("error: rule not loaded", about(1011), Reason::NotLoaded);
    table.dropped("error: no backend", about(1012), Reason::NoBackend);
    table.dropped("error: no next hop", about(1007), Reason::NoNextHop);
    table.dropped("error: fabric MTU", about(1005), Reason::FabricMtu);
    let big = frame(&error().icmp(1, 0, 0, &reply().tcp((443, 40001), ACK, &data(1353))));
    table.dropped("error: too big gets no error", big.clone(), Reason::TooBigSilent);
    table.add(
        "error: too big without a token",
        Ingress::Quiet,
        big,
        Expect::unsent(Verdict::Drop, Reason::TooBigSilent),
    );
    let from_block = frame(&ip(IN_BLOCK, VIP_A).icmp(2, 0, 1400, &full));
    table.dropped("error: from the block on an uplink", from_block.clone(), Reason::Srv6Block);
    table.add(
        "error: from the block on the fabric",
        Ingress::Fabric,
        from_block,
        Expect::unsent(Verdict::Left, Reason::NotVip),
    );
    table.left(
        "error: to an address not ours",
        frame(&ip(ROUTER, FOREIGN).icmp(2, 0, 1400, &full)),
        Reason::NotVip,
    );
    let fragment = error().packet(FRAGMENT, &[fragment(ICMPV6, 0, true), data(64)].concat());
    table.dropped("error: in a first fragment", frame(&fragment), Reason::Fragment);
}
