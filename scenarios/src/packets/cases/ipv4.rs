//! IPv4 through steps 1 to 7 and 11: frame, header, options, delivery, padding; addresses that look like the other family's.

use std::net::Ipv4Addr;

use weir::flow::hash;
use weir_bpf::abi::Reason;

use super::super::build::{ACK, ESP, FROM, ICMPV6, SYN, TCP, TO, UDP, cut, data, ethernet, frame, ip};
use super::super::build4::{DF, Ip4, NOP, frame4, ip4, stating4, summed, tagged4};
use super::super::world::{
    CLIENT, CLIENT4, CLIENT4_2, FOREIGN, FOREIGN4, Ingress, VIP_A, VIP_B, VIP4_A, VIP4_B, VIP4_BARE,
};
use super::super::{Expect, Verdict};
use super::{Of, Table};

const TAG: [u8; 4] = [0x81, 0x00, 0x20, 0x05];
const SERVICE_TAG: [u8; 4] = [0x88, 0xa8, 0x0f, 0xff];

fn of(rule: &str) -> Of<'_> {
    Of { rule, client: CLIENT4.to_ipv6_mapped(), port: 40001 }
}

fn to_a() -> Ip4 {
    ip4(CLIENT4, VIP4_A)
}

pub(super) fn add(table: &mut Table<'_>) {
    frames(table);
    delivery(table);
    lengths(table);
    options(table);
    families(table);
}

fn frames(table: &mut Table<'_>) {
    let packet = to_a().tcp((40001, 443), ACK, b"hello");
    let whole = frame4(&packet);
    for (name, len) in [
        ("ipv4 frame: link header alone", 14),
        ("ipv4 frame: one byte", 15),
        ("ipv4 frame: header short by one", 14 + 19),
    ] {
        table.left(name, cut(whole.clone(), len), Reason::Malformed);
    }
    table.left("ipv4 mac: broadcast", ethernet([0xff; 6], FROM, &[], 0x0800, &packet), Reason::NotForHost);
    table.left(
        "ipv4 mac: IPv4 multicast",
        ethernet([1, 0, 0x5e, 0, 0, 1], FROM, &[], 0x0800, &packet),
        Reason::NotForHost,
    );
    for (name, first) in [
        ("ipv4 version: 6", 0x65),
        ("ipv4 version: 5", 0x55),
        ("ipv4 version: 0", 0x05),
        ("ipv4 header length: 0", 0x40),
        ("ipv4 header length: 16", 0x44),
    ] {
        let mut wrong = packet.clone();
        wrong[0] = first;
        table.left(name, frame4(&wrong), Reason::Malformed);
    }
    let mut long = cut(packet.clone(), 59);
    long[0] = 0x4f;
    table.left("ipv4 header length: beyond the frame", frame4(&long), Reason::Malformed);
    table.left(
        "ipv4 header length: beyond the frame of a stranger",
        frame4(&{
            let mut long = cut(ip4(CLIENT4, FOREIGN4).tcp((1, 443), ACK, b"x"), 24);
            long[0] = 0x47;
            long
        }),
        Reason::Malformed,
    );
    table.left("ipv4 total length: 0", frame4(&stating4(packet.clone(), 0)), Reason::Malformed);
    table.left("ipv4 total length: 19", frame4(&stating4(packet.clone(), 19)), Reason::Malformed);
    let optional = to_a().options(&[NOP; 8]).tcp((40001, 443), ACK, b"x");
    table.left("ipv4 total length: inside the options", frame4(&stating4(optional, 27)), Reason::Malformed);

    for (name, tags) in [
        ("ipv4 vlan: one tag", &[TAG][..]),
        ("ipv4 vlan: one service tag", &[SERVICE_TAG]),
        ("ipv4 vlan: service and customer tag", &[SERVICE_TAG, TAG]),
    ] {
        let expect = table.to_backend(Ingress::Uplink, of("web4"), &packet, &[], Reason::Forwarded);
        table.add(name, Ingress::Uplink, tagged4(tags, &packet), expect);
    }
    table.left("ipv4 vlan: three tags", tagged4(&[SERVICE_TAG, TAG, TAG], &packet), Reason::Malformed);
    table.left("ipv4 vlan: nothing after the tag", cut(tagged4(&[TAG], &packet), 18), Reason::Malformed);
    table.left("ipv4 vlan: ARP", ethernet(TO, FROM, &[TAG], 0x0806, &[0; 28]), Reason::NotIp);
}

fn delivery(table: &mut Table<'_>) {
    let tcp = |port, flags, data: &[u8]| to_a().tcp((40001, port), flags, data);
    for (name, flags) in [
        ("ipv4 tcp: SYN", SYN),
        ("ipv4 tcp: ACK", ACK),
        ("ipv4 tcp: RST", 0x04),
        ("ipv4 tcp: no flag", 0),
        ("ipv4 tcp: every flag", 0xff),
    ] {
        table.forwarded(name, of("web4"), &tcp(443, flags, &[]));
    }
    table.forwarded("ipv4 tcp: one byte of data", of("web4"), &tcp(443, ACK, &data(1)));
    table.forwarded("ipv4 tcp: odd length", of("web4"), &tcp(443, ACK, &data(777)));
    for (name, port) in [("ipv4 tcp: source port 0", 0), ("ipv4 tcp: source port 65535", 65535)] {
        table.forwarded(name, Of { port, ..of("web4") }, &to_a().tcp((port, 443), ACK, b"x"));
    }
    table.forwarded("ipv4 udp: data", of("dns4"), &to_a().udp((40001, 53), &data(100)));
    table.forwarded("ipv4 udp: empty", of("dns4"), &to_a().udp((40001, 53), &[]));
    table.forwarded("ipv4 udp: 11 bytes", of("dns4"), &to_a().udp((40001, 53), &data(11)));
    table.forwarded("ipv4 udp: 12 bytes", of("dns4"), &to_a().udp((40001, 53), &data(12)));
    table.forwarded("ipv4 udp: no checksum", of("dns4"), &{
        let mut packet = to_a().udp((40001, 53), &data(33));
        packet[26..28].fill(0);
        packet
    });
    table.forwarded("ipv4 header: wrong checksum is the backend's to judge", of("web4"), &{
        let mut packet = tcp(443, ACK, b"x");
        packet[10] ^= 0xff;
        packet
    });
    for (name, ttl) in [("ipv4 header: TTL 1 is not counted", 1), ("ipv4 header: TTL 0 is not counted", 0)] {
        table.forwarded(name, of("web4"), &Ip4 { ttl, ..to_a() }.tcp((40001, 443), ACK, b"x"));
    }
    for (name, word) in [
        ("ipv4 header: may be fragmented", 0),
        ("ipv4 header: reserved flag", 0x8000),
        ("ipv4 header: reserved flag and DF", 0xc000),
    ] {
        table.forwarded(name, of("web4"), &to_a().fragment(word).tcp((40001, 443), ACK, b"x"));
    }
    for (name, tos) in [
        ("ipv4 tos: 0xff", 0xff),
        ("ipv4 tos: EF with CE", 0xbb),
        ("ipv4 tos: ECT(0)", 0x02),
        ("ipv4 tos: high bit alone", 0x80),
    ] {
        table.forwarded(name, of("web4"), &to_a().tos(tos).tcp((40001, 443), ACK, b"x"));
    }
    for (name, client) in [
        ("ipv4 client: 128.128.128.128", Ipv4Addr::new(128, 128, 128, 128)),
        ("ipv4 client: 255.0.255.0 goes on", Ipv4Addr::new(255, 0, 255, 0)),
        ("ipv4 client: 0.0.0.0 goes on", Ipv4Addr::UNSPECIFIED),
        ("ipv4 client: multicast goes on", Ipv4Addr::new(224, 0, 0, 1)),
        ("ipv4 client: loopback goes on", Ipv4Addr::LOCALHOST),
    ] {
        let packet = ip4(client, VIP4_A).tcp((40001, 443), ACK, b"x");
        table.forwarded(name, Of { client: client.to_ipv6_mapped(), ..of("web4") }, &packet);
    }
    for (name, port) in [("ipv4 client affinity: port 1", 1), ("ipv4 client affinity: port 40001", 40001)] {
        table.forwarded(name, Of { port: 0, ..of("sticky4") }, &to_a().tcp((port, 80), ACK, b"x"));
    }
    let other = Of { rule: "sticky4", client: CLIENT4_2.to_ipv6_mapped(), port: 0 };
    let packet = ip4(CLIENT4_2, VIP4_A).tcp((9, 80), ACK, b"x");
    table.forwarded("ipv4 client affinity: another client", other, &packet);
    for (name, port) in [
        ("ipv4 client and protocol affinity: port 1", 1),
        ("ipv4 client and protocol affinity: port 9999", 9999),
    ] {
        table.forwarded(name, Of { port: 0, ..of("quic4") }, &to_a().udp((port, 443), b"x"));
    }
    let to_b = ip4(CLIENT4, VIP4_B);
    let of_b = |rule| Of { port: 0, ..of(rule) };
    table.forwarded("ipv4 tenant b: tcp", of_b("web-b4"), &to_b.tcp((40001, 443), SYN, &[]));
    table.forwarded("ipv4 tenant b: udp", of_b("dns-b4"), &to_b.udp((40001, 53), b"q"));
    table.dropped(
        "ipv4 tenant b: port of tenant a only",
        frame4(&to_b.tcp((40001, 80), SYN, &[])),
        Reason::NoRule,
    );
    let plain = tcp(443, ACK, b"hello");
    for (name, ingress) in [
        ("ipv4 ingress: fabric", Ingress::Fabric),
        ("ipv4 ingress: both roles", Ingress::Both),
        ("ipv4 ingress: needs no token", Ingress::Quiet),
    ] {
        let expect = table.to_backend(ingress, of("web4"), &plain, &[], Reason::Forwarded);
        table.add(name, ingress, frame4(&plain), expect);
    }
    table.forwarded("ipv4 next hop: out of the ingress interface", of("turned4"), &tcp(1002, SYN, &[]));
    table.forwarded("ipv4 next hop: one of three", of("equal-cost4"), &tcp(1001, SYN, &[]));
    let half = table.world.rule("half4");
    let slot = |port: u16| {
        let client = CLIENT4.to_ipv6_mapped();
        (u64::from(hash(table.world.key(), half.affinity, client, port, 1013, UDP).h) * 1021) >> 32
    };
    let Some(full) = (1..u16::MAX).find(|&p| slot(p).is_multiple_of(2)) else {
        unreachable!("half the slots")
    };
    table.forwarded(
        "ipv4 half a ring: a slot with a backend",
        Of { port: full, ..of("half4") },
        &to_a().udp((full, 1013), b"x"),
    );
    for (name, packet, reason) in [
        ("ipv4 no rule: tcp port", tcp(444, SYN, &[]), Reason::NoRule),
        ("ipv4 no rule: udp port of a tcp rule", to_a().udp((1, 80), b"x"), Reason::NoRule),
        ("ipv4 no rule: port 0", tcp(0, SYN, &[]), Reason::NoRule),
        ("ipv4 no rule: port 0 where fragments are led", to_b.tcp((40001, 0), SYN, &[]), Reason::NoRule),
        ("ipv4 no rule: port 6 where fragments are led", to_b.tcp((40001, 6), SYN, &[]), Reason::NoRule),
        ("ipv4 no rule: VIP without any", ip4(CLIENT4, VIP4_BARE).tcp((1, 443), SYN, &[]), Reason::NoRule),
        ("ipv4 not loaded", tcp(1011, SYN, &[]), Reason::NotLoaded),
        ("ipv4 no backend", tcp(1012, SYN, &[]), Reason::NoBackend),
        ("ipv4 no next hop", tcp(1007, SYN, &[]), Reason::NoNextHop),
        ("ipv4 protocol: SCTP", to_a().packet(132, &data(32)), Reason::UnsupportedProtocol),
        ("ipv4 protocol: GRE", to_a().packet(47, &data(32)), Reason::UnsupportedProtocol),
        ("ipv4 protocol: IPv6 inside", to_a().packet(41, &data(60)), Reason::UnsupportedProtocol),
        ("ipv4 protocol: ICMPv6", to_a().packet(ICMPV6, &data(32)), Reason::UnsupportedProtocol),
        (
            "ipv4 protocol: 0 is not the ownership entry",
            to_a().packet(0, &data(32)),
            Reason::UnsupportedProtocol,
        ),
        (
            "ipv4 protocol: 44 is not an entry for fragments",
            to_b.packet(44, &data(32)),
            Reason::UnsupportedProtocol,
        ),
        ("ipv4 protocol: 60 is not walked", to_a().packet(60, &data(32)), Reason::UnsupportedProtocol),
        ("ipv4 protocol: 255, nothing behind", to_a().packet(255, &[]), Reason::UnsupportedProtocol),
    ] {
        table.dropped(name, frame4(&packet), reason);
    }
    let esp = Of { port: 0, ..of("esp-b4") };
    table.forwarded("ipv4 portless: ESP", esp, &to_b.packet(ESP, &data(64)));
    table.forwarded("ipv4 portless: ESP, nothing behind", esp, &to_b.packet(ESP, &[]));
    table.forwarded(
        "portless: GRE",
        Of { rule: "gre-b", client: CLIENT, port: 0 },
        &ip(CLIENT, VIP_B).packet(47, &data(64)),
    );
    for (name, packet) in [
        ("ipv4 not ours: TCP", ip4(CLIENT4, FOREIGN4).tcp((1, 443), SYN, &[])),
        ("ipv4 not ours: UDP", ip4(CLIENT4, FOREIGN4).udp((1, 53), &[])),
        ("ipv4 not ours: echo", ip4(CLIENT4, FOREIGN4).icmp(8, 0, 1, &[])),
        ("ipv4 not ours: fragment", ip4(CLIENT4, FOREIGN4).fragment(100).packet(UDP, &data(64))),
        (
            "ipv4 not ours: source route",
            ip4(CLIENT4, FOREIGN4).options(&[131, 7, 4, 1, 2, 3, 4, 0]).tcp((1, 443), SYN, &[]),
        ),
        ("ipv4 not ours: cut", cut(ip4(CLIENT4, FOREIGN4).tcp((1, 443), SYN, &[]), 30)),
        ("ipv4 not ours: from a VIP", ip4(VIP4_A, CLIENT4).tcp((443, 1), SYN, &[])),
    ] {
        table.left(name, frame4(&packet), Reason::NotVip);
    }
}

/// Bytes after the packet stay where they are, are not counted, and the outer payload length leaves them out.
fn lengths(table: &mut Table<'_>) {
    let plain = to_a().tcp((40001, 443), ACK, &[]);
    for (name, packet, rule, padding) in [
        ("ipv4 padding: an ACK in a frame of 60 bytes", plain.clone(), "web4", 6),
        ("ipv4 padding: UDP of 1 byte in a frame of 60 bytes", to_a().udp((40001, 53), b"q"), "dns4", 17),
        ("ipv4 padding: 300 bytes", plain.clone(), "web4", 300),
    ] {
        let padding = vec![0xee; padding];
        let expect = table.to_backend(Ingress::Uplink, of(rule), &packet, &padding, Reason::Forwarded);
        table.add(name, Ingress::Uplink, [frame4(&packet), padding].concat(), expect);
    }
    let shorter = stating4(cut(to_a().tcp((40001, 443), ACK, &data(50)), 45), 45);
    let rest = data(50)[5..].to_vec();
    let expect = table.to_backend(Ingress::Uplink, of("web4"), &shorter, &rest, Reason::Forwarded);
    table.add(
        "ipv4 length: states less than there is",
        Ingress::Uplink,
        [frame4(&shorter), rest].concat(),
        expect,
    );
    let five = to_a().tcp((40001, 443), ACK, b"hello");
    for (name, total) in [
        ("ipv4 length: states one more than there is", 46),
        ("ipv4 length: states 65535", 65535),
        ("ipv4 length: states a byte less than TCP needs", 39),
        ("ipv4 length: states the header alone", 20),
    ] {
        table.dropped(name, frame4(&stating4(five.clone(), total)), Reason::Truncated);
    }
    let udp = to_a().udp((40001, 53), b"q");
    table.dropped(
        "ipv4 length: states a byte less than UDP needs",
        frame4(&stating4(udp.clone(), 27)),
        Reason::Truncated,
    );
    for (name, len) in [
        ("ipv4 cut: after the header", 20),
        ("ipv4 cut: inside the ports", 23),
        ("ipv4 cut: TCP header short by one", 39),
        ("ipv4 cut: data short by one", 44),
    ] {
        table.dropped(name, frame4(&cut(five.clone(), len)), Reason::Truncated);
    }
    table.dropped(
        "ipv4 cut: unserved protocol",
        frame4(&cut(to_a().packet(132, &data(32)), 40)),
        Reason::Truncated,
    );
}

fn options(table: &mut Table<'_>) {
    let with = |options: &[u8]| to_a().options(options).tcp((40001, 443), ACK, b"x");
    let spent: &[u8] = &[131, 7, 8, 10, 0, 0, 1, NOP];
    for (name, options) in [
        ("ipv4 options: nothing, four times", &[NOP; 4][..]),
        ("ipv4 options: nothing, forty times", &[NOP; 40]),
        ("ipv4 options: end, then anything", &[0, 131, 3, 1]),
        ("ipv4 options: router alert", &[148, 4, 0, 0]),
        ("ipv4 options: record route of 39 bytes", &{
            let mut route = [0; 40];
            (route[0], route[1], route[2]) = (7, 39, 4);
            route
        }),
        ("ipv4 options: unknown", &[200, 3, 9, 0]),
        ("ipv4 options: unknown of 2 bytes", &[200, 2, 200, 2]),
        ("ipv4 options: a spent source route", spent),
        ("ipv4 options: ends with the last one", &[NOP, NOP, 200, 2]),
    ] {
        table.forwarded(name, of("web4"), &with(options));
    }
    let udp = to_a().options(&[NOP; 12]).udp((40001, 53), b"q");
    table.forwarded("ipv4 options: UDP behind", of("dns4"), &udp);
    for (name, options) in [
        ("ipv4 options: loose source route", &[131, 7, 4, 10, 0, 0, 1, 0][..]),
        ("ipv4 options: strict source route", &[137, 7, 4, 10, 0, 0, 1, 0]),
        ("ipv4 options: source route in second place", &[NOP, 131, 7, 4, 10, 0, 0, 1]),
        ("ipv4 options: source route without a pointer", &[NOP, NOP, 131, 2]),
        ("ipv4 options: source route whose pointer is its length", &[131, 3, 3, 0]),
        ("ipv4 options: length 0", &[200, 0, 0, 0]),
        ("ipv4 options: length 1", &[200, 1, 0, 0]),
        ("ipv4 options: one byte beyond the header", &[200, 5, 0, 0]),
        ("ipv4 options: length beyond the header", &[NOP, NOP, NOP, 200]),
    ] {
        table.dropped(name, frame4(&with(options)), Reason::IpOptions);
    }
    let cut_behind = stating4(cut(with(&[NOP; 4]), 24 + 19), 24 + 19);
    table.dropped("ipv4 options: TCP cut behind", frame4(&cut_behind), Reason::Truncated);
    let no_rule = to_a().options(&[NOP; 4]).tcp((40001, 9), ACK, b"x");
    table.dropped("ipv4 options: no rule behind", frame4(&no_rule), Reason::NoRule);
    let first = cut(with(&[131, 7, 4, 10, 0, 0, 1, 0]), 30);
    table.dropped("ipv4 options: truncated comes first", frame4(&first), Reason::Truncated);
    let bare = ip4(CLIENT4, VIP4_BARE).options(&[137, 3, 4, 0]).packet(132, &[]);
    table.dropped("ipv4 options: spent, then unserved", frame4(&bare), Reason::UnsupportedProtocol);
}

/// IPv4 VIPs stand in the tables as mapped addresses: no IPv6 packet may find them, whatever way it takes.
fn families(table: &mut Table<'_>) {
    let mapped = VIP4_A.to_ipv6_mapped();
    let dropped = [
        ("mapped: IPv6 packet to an IPv4 VIP's port", ip(CLIENT, mapped).tcp((40001, 443), SYN, &[])),
        ("mapped: long IPv6 packet to an IPv4 VIP", ip(CLIENT, mapped).udp((40001, 53), &data(900))),
        (
            "mapped: IPv6 packet between mapped addresses",
            ip(CLIENT4.to_ipv6_mapped(), mapped).tcp((40001, 443), SYN, &[]),
        ),
        ("mapped: IPv6 echo to an IPv4 VIP", ip(CLIENT, mapped).icmp(128, 0, 1, &data(8))),
        ("mapped: from an IPv4 VIP to an IPv6 one", ip(mapped, VIP_A).tcp((443, 443), SYN, &[])),
    ];
    for (name, packet) in dropped {
        table.dropped(name, frame(&packet), Reason::MappedAddress);
    }
    // Its first eight bytes are those of a mapped address, and no more.
    let near = std::net::Ipv6Addr::new(0, 0, 0, 0, 0, 0xfffe, 0xc000, 0x020a);
    table.left(
        "mapped: beside the prefix is no VIP",
        frame(&ip(CLIENT, near).tcp((1, 443), SYN, &[])),
        Reason::NotVip,
    );
    let marked = ethernet(TO, FROM, &[], 0x86dd, &to_a().tcp((40001, 443), SYN, &data(40)));
    table.left("families: IPv4 marked as IPv6", marked, Reason::Malformed);
    let marked = frame4(&ip(CLIENT, VIP_A).tcp((40001, 443), SYN, &[]));
    table.left("families: IPv6 marked as IPv4", marked, Reason::Malformed);
    let near_vip = frame(&ip(CLIENT, FOREIGN).tcp((1, 443), SYN, &[]));
    table.add(
        "families: a stranger on the fabric",
        Ingress::Fabric,
        near_vip,
        Expect::unsent(Verdict::Left, Reason::NotVip),
    );
    let packet = summed(to_a().fragment(DF).packet(TCP, &to_a().tcp_segment((40001, 443), SYN, &[])));
    table.forwarded("families: the same port as the IPv6 VIP's", of("web4"), &packet);
}
