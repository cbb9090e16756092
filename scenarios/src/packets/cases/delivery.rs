//! Steps 4, 7 and 11: TCP and UDP that reach a backend, and what keeps them from it.

use weir_bpf::abi::Reason;

use super::super::build::{ACK, FRAGMENT, SYN, cut, data, fragment, frame, ip, stating};
use super::super::world::{CLIENT, CLIENT_2, Ingress, VIP_A, VIP_B};
use super::{Of, Table};
use weir::flow::hash;

const TO_A: super::super::build::Ip = super::super::build::Ip {
    source: CLIENT,
    destination: VIP_A,
    traffic_class: 0,
    flow_label: 0xf_ffff,
    hop_limit: 1,
};

fn of(rule: &str) -> Of<'_> {
    Of { rule, client: CLIENT, port: 40001 }
}

pub(super) fn add(table: &mut Table<'_>) {
    let tcp = |port, flags, data: &[u8]| TO_A.tcp((40001, port), flags, data);
    for (name, flags) in [
        ("tcp: SYN", SYN),
        ("tcp: SYN ACK", SYN | ACK),
        ("tcp: ACK", ACK),
        ("tcp: FIN ACK", 0x11),
        ("tcp: RST", 0x04),
        ("tcp: PSH URG ACK", 0x38),
        ("tcp: ECE CWR SYN", 0xc2),
        ("tcp: no flag", 0x00),
        ("tcp: every flag", 0xff),
    ] {
        table.forwarded(name, of("web"), &tcp(443, flags, &[]));
    }
    table.forwarded("tcp: one byte of data", of("web"), &tcp(443, ACK, &data(1)));
    table.forwarded("tcp: odd length", of("web"), &tcp(443, ACK, &data(777)));
    table.forwarded("tcp: 40 bytes of options", of("web"), &{
        let mut packet = tcp(443, SYN, &[1; 40]);
        packet[40 + 12] = 0xf0;
        packet
    });
    table.forwarded("tcp: header length 0 is the backend's to judge", of("web"), &{
        let mut packet = tcp(443, ACK, b"x");
        packet[40 + 12] = 0;
        packet
    });
    table.forwarded("tcp: wrong checksum is the backend's to judge", of("web"), &{
        let mut packet = tcp(443, ACK, b"x");
        packet[40 + 16] ^= 0xff;
        packet
    });
    for (name, port) in [("tcp: source port 0", 0), ("tcp: source port 65535", 65535)] {
        table.forwarded(name, Of { port, ..of("web") }, &TO_A.tcp((port, 443), ACK, b"x"));
    }
    table.forwarded("udp: data", of("dns"), &TO_A.udp((40001, 53), &data(100)));
    table.forwarded("udp: empty", of("dns"), &TO_A.udp((40001, 53), &[]));
    table.forwarded("udp: odd length", of("dns"), &TO_A.udp((40001, 53), &data(33)));
    table.forwarded("udp: own length lies", of("dns"), &{
        let mut packet = TO_A.udp((40001, 53), &data(10));
        packet[44..46].copy_from_slice(&[0xff, 0xff]);
        packet
    });
    for (name, port) in
        [("udp: big ring, port 1", 1), ("udp: big ring, port 256", 256), ("udp: big ring, port 50000", 50000)]
    {
        table.forwarded(name, Of { port, ..of("dns") }, &TO_A.udp((port, 53), b"q"));
    }

    for (name, bytes) in [
        ("client bytes: 0x80", [0x80; 16]),
        ("client bytes: 0x7f", [0x7f; 16]),
        ("client bytes: 0x00 and 0xff", std::array::from_fn(|i| if i % 2 == 0 { 0x00 } else { 0xff })),
        ("client bytes: 0x81 to 0x90", std::array::from_fn(|i| 0x81 + i as u8)),
    ] {
        let client = bytes.into();
        table.forwarded(name, Of { client, ..of("web") }, &ip(client, VIP_A).tcp((40001, 443), ACK, b"x"));
    }

    let to_b = ip(CLIENT_2, VIP_B);
    let of_b = |rule| Of { rule, client: CLIENT_2, port: 40001 };
    table.forwarded("tenant b: tcp", of_b("web-b"), &to_b.tcp((40001, 443), SYN, &[]));
    table.forwarded("tenant b: udp by client", of_b("dns-b"), &to_b.udp((40001, 53), b"q"));
    table.dropped("tenant b: port of tenant a only", frame(&to_b.tcp((40001, 80), SYN, &[])), Reason::NoRule);

    for (name, port) in [("client affinity: port 1", 1), ("client affinity: port 40001", 40001)] {
        // Whatever the port, the flow is hashed as one with port 0.
        table.forwarded(name, Of { port: 0, ..of("sticky") }, &TO_A.tcp((port, 80), ACK, b"x"));
    }
    for (name, port) in
        [("client and protocol affinity: port 1", 1), ("client and protocol affinity: port 9999", 9999)]
    {
        table.forwarded(name, Of { port: 0, ..of("quic") }, &TO_A.udp((port, 443), b"x"));
    }
    let other = ip(CLIENT_2, VIP_A);
    table.forwarded(
        "client affinity: another client",
        Of { rule: "sticky", client: CLIENT_2, port: 0 },
        &other.tcp((40001, 80), ACK, b"x"),
    );

    for (name, class) in [
        ("traffic class: 0xff", 0xff),
        ("traffic class: EF with CE", 0xbb),
        ("traffic class: ECT(0)", 0x02),
        ("traffic class: high bit alone", 0x80),
    ] {
        table.forwarded(name, of("web"), &TO_A.class(class).tcp((40001, 443), ACK, b"x"));
    }

    let plain = tcp(443, ACK, b"hello");
    for (name, ingress) in [("ingress: fabric", Ingress::Fabric), ("ingress: both roles", Ingress::Both)] {
        let expect = table.to_backend(ingress, of("web"), &plain, &[], Reason::Forwarded);
        table.add(name, ingress, frame(&plain), expect);
    }
    table.forwarded("next hop: out of the ingress interface", of("turned"), &tcp(1002, SYN, &[]));
    let expect =
        table.to_backend(Ingress::Fabric, of("turned"), &tcp(1002, SYN, &[]), &[], Reason::Forwarded);
    table.add(
        "next hop: from the fabric to the uplink",
        Ingress::Fabric,
        frame(&tcp(1002, SYN, &[])),
        expect,
    );
    let equal_cost = table.world.rule("equal-cost");
    for (wanted, name) in
        ["equal cost: first hop", "equal cost: second hop", "equal cost: third hop"].iter().enumerate()
    {
        let choice = |port: &u16| {
            let flow = hash(table.world.key(), equal_cost.affinity, CLIENT, *port, 1001, 6);
            (((flow.low & 0xffff) * 3) >> 16) as usize == wanted
        };
        let Some(port) = (40000..u16::MAX).find(choice) else { unreachable!("65536 ports reach three hops") };
        table.forwarded(name, Of { port, ..of("equal-cost") }, &TO_A.tcp((port, 1001), ACK, b"x"));
    }

    table.dropped("no rule: tcp port", frame(&tcp(444, SYN, &[])), Reason::NoRule);
    table.dropped("no rule: udp port of a tcp rule", frame(&TO_A.udp((1, 80), b"x")), Reason::NoRule);
    table.dropped("no rule: port 0", frame(&tcp(0, SYN, &[])), Reason::NoRule);
    table.dropped(
        "no rule: port with its bytes swapped",
        frame(&tcp(443u16.swap_bytes(), SYN, &[])),
        Reason::NoRule,
    );
    table.dropped("not loaded", frame(&tcp(1011, SYN, &[])), Reason::NotLoaded);
    table.dropped("no backend", frame(&tcp(1012, SYN, &[])), Reason::NoBackend);
    table.dropped("no next hop", frame(&tcp(1007, SYN, &[])), Reason::NoNextHop);
    let half = table.world.rule("half");
    let slot = |port: u16| {
        let flow = hash(table.world.key(), half.affinity, CLIENT, port, 1013, 17);
        (u64::from(flow.h) * 1021) >> 32
    };
    let Some(full) = (1..u16::MAX).find(|&p| slot(p).is_multiple_of(2)) else {
        unreachable!("half the slots")
    };
    let Some(none) = (1..u16::MAX).find(|&p| !slot(p).is_multiple_of(2)) else {
        unreachable!("half the slots")
    };
    table.forwarded(
        "half a ring: a slot with a backend",
        Of { port: full, ..of("half") },
        &TO_A.udp((full, 1013), b"x"),
    );
    table.dropped("half a ring: a slot without", frame(&TO_A.udp((none, 1013), b"x")), Reason::NoBackend);

    // Bytes after the payload stay where they are and are not counted.
    for (name, padding) in [("padding: one byte", 1), ("padding: 300 bytes", 300)] {
        let padding = vec![0xee; padding];
        let expect = table.to_backend(Ingress::Uplink, of("web"), &plain, &padding, Reason::Forwarded);
        table.add(name, Ingress::Uplink, [frame(&plain), padding].concat(), expect);
    }
    let shorter = stating(cut(tcp(443, ACK, &data(50)), 40 + 25), 25);
    let rest = data(50)[5..].to_vec();
    let expect = table.to_backend(Ingress::Uplink, of("web"), &shorter, &rest, Reason::Forwarded);
    table.add("length: states less than there is", Ingress::Uplink, [frame(&shorter), rest].concat(), expect);
    table.dropped(
        "length: states one more than there is",
        frame(&stating(plain.clone(), 26)),
        Reason::Truncated,
    );
    table.dropped("length: states 65535", frame(&stating(plain.clone(), 65535)), Reason::Truncated);
    table.dropped("length: states 0", frame(&stating(plain.clone(), 0)), Reason::Truncated);
    table.dropped(
        "length: states a byte less than TCP needs",
        frame(&stating(plain.clone(), 19)),
        Reason::Truncated,
    );
    table.dropped(
        "length: states a byte less than UDP needs",
        frame(&stating(TO_A.udp((40001, 53), b"q"), 7)),
        Reason::Truncated,
    );
    for (name, len) in [
        ("cut: after the IPv6 header", 40),
        ("cut: inside the ports", 43),
        ("cut: TCP header short by one", 59),
        ("cut: data short by one", 64),
    ] {
        table.dropped(name, frame(&cut(plain.clone(), len)), Reason::Truncated);
    }
    table.dropped(
        "cut: unserved port is truncated first",
        frame(&cut(tcp(444, SYN, &[]), 50)),
        Reason::Truncated,
    );
    table.dropped("cut: UDP short by one", frame(&cut(TO_A.udp((1, 53), &[]), 47)), Reason::Truncated);
    let atomic =
        TO_A.packet(FRAGMENT, &[fragment(6, 0, false), TO_A.tcp_segment((40001, 443), ACK, &[])].concat());
    table.dropped(
        "cut: TCP short by one behind an atomic fragment",
        frame(&stating(cut(atomic, 40 + 27), 27)),
        Reason::Truncated,
    );
}
