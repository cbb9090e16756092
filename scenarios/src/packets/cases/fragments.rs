//! Fragments of both families: led by their own entry, remembered from the first, or dropped.

use weir_bpf::abi::Reason;

use super::super::build::{
    ACK, ESP, FRAGMENT, GRE, HOP_BY_HOP, ICMPV6, OPTIONS, ROUTING, TCP, UDP, data, fragment, frame, frame_of,
    ip, options, routing, tagged,
};
use super::super::build4::{DF, ICMP, Ip4, MF, frame4, ip4};
use super::super::world::{
    CLIENT, CLIENT_2, CLIENT4, CLIENT4_2, Ingress, VIP_A, VIP_B, VIP4_A, VIP4_B, VIP4_BARE,
};
use super::super::{Expect, Verdict};
use super::{Of, Table, answered, needed, too_big};

/// The flow of a datagram to a VIP of tenant A.
const DNS: Of<'static> = Of { rule: "dns", client: CLIENT, port: 40001 };

fn dns4() -> Of<'static> {
    Of { rule: "dns4", client: CLIENT4.to_ipv6_mapped(), port: 40001 }
}

/// An IPv6 fragment from the client to tenant A's VIP.
fn piece(next: u8, units: u16, more: bool, payload: &[u8]) -> Vec<u8> {
    ip(CLIENT, VIP_A).packet(FRAGMENT, &[fragment(next, units, more), payload.to_vec()].concat())
}

/// A UDP datagram for the rule `dns` cut in three.
fn three() -> [Vec<u8>; 3] {
    let whole = ip(CLIENT, VIP_A).udp_datagram((40001, 53), &data(100));
    [
        piece(UDP, 0, true, &whole[..48]),
        piece(UDP, 6, true, &whole[48..96]),
        piece(UDP, 12, false, &whole[96..]),
    ]
}

/// The same for `dns4`.
fn three4() -> [Vec<u8>; 3] {
    let to = ip4(CLIENT4, VIP4_A);
    let whole = to.udp_datagram((40001, 53), &data(100));
    [(MF, &whole[..48]), (MF | 6, &whole[48..96]), (12, &whole[96..])]
        .map(|(word, part)| to.clone().fragment(word).packet(UDP, part))
}

impl Table<'_> {
    /// As [`Table::forwarded`], after other packets.
    fn rest(&mut self, name: &'static str, of: Of<'_>, earlier: &[&[u8]], packet: &[u8]) {
        let expect = self.to_backend(Ingress::Uplink, of, packet, &[], Reason::Forwarded);
        let earlier = earlier.iter().map(|packet| frame_of(&[], packet)).collect();
        self.after(name, Ingress::Uplink, earlier, frame_of(&[], packet), expect);
    }
    /// As [`Table::dropped`], after other packets.
    fn lost(&mut self, name: &'static str, earlier: &[&[u8]], packet: &[u8], reason: Reason) {
        let earlier = earlier.iter().map(|packet| frame_of(&[], packet)).collect();
        let expect = Expect::unsent(Verdict::Drop, reason);
        self.after(name, Ingress::Uplink, earlier, frame_of(&[], packet), expect);
    }
}

pub(super) fn add(table: &mut Table<'_>) {
    remembered(table);
    remembered4(table);
    led(table);
    portless(table);
    tiny(table);
    big(table);
}

fn remembered(table: &mut Table<'_>) {
    let [first, middle, last] = three();
    table.forwarded("fragment: first", DNS, &first);
    table.rest("fragment: middle", DNS, &[&first], &middle);
    table.rest("fragment: last", DNS, &[&first, &middle], &last);
    table.rest("fragment: first, twice", DNS, &[&first], &first);
    // The limit that the page names: routers may send the first fragment to one gateway and the rest to another.
    table.dropped(
        "fragment: rest without its first, which another gateway got",
        frame(&middle),
        Reason::FragmentUnknown,
    );
    table.lost("fragment: rest before its first", &[&last], &middle, Reason::FragmentUnknown);
    let tcp = ip(CLIENT, VIP_A).tcp_segment((40001, 443), ACK, &data(100));
    let web = Of { rule: "web", ..DNS };
    let head = piece(TCP, 0, true, &tcp[..24]);
    table.forwarded("fragment: first of TCP", web, &head);
    table.rest("fragment: rest of TCP", web, &[&head], &piece(TCP, 3, false, &tcp[24..]));
    table.rest("fragment: rest without a byte", web, &[&head], &piece(TCP, 4, false, &[]));
    table.rest("fragment: highest offset", web, &[&head], &piece(TCP, 0x1fff, false, &data(8)));
    let tag = [[0x81, 0, 0, 4]];
    let expect = table.to_backend(Ingress::Uplink, DNS, &last, &[], Reason::Forwarded);
    table.after("fragment: rest, tagged", Ingress::Uplink, vec![frame(&first)], tagged(&tag, &last), expect);
    // Sticky by client, but one of several rules for its protocol.
    let sticky = ip(CLIENT, VIP_A).tcp_segment((9, 80), ACK, &data(100));
    let (head, tail) = (piece(TCP, 0, true, &sticky[..48]), piece(TCP, 6, false, &sticky[48..]));
    table.dropped("fragment: client affinity among several rules", frame(&tail), Reason::FragmentUnknown);
    table.rest(
        "fragment: client affinity among several rules, first seen",
        Of { rule: "sticky", port: 0, ..DNS },
        &[&head],
        &tail,
    );
    let other_id = |packet: &[u8]| {
        let mut packet = packet.to_vec();
        packet[47] ^= 1;
        packet
    };
    table.lost("fragment: of another datagram", &[&first], &other_id(&last), Reason::FragmentUnknown);
    let stranger = ip(CLIENT_2, VIP_A).packet(FRAGMENT, &last[40..]);
    table.lost("fragment: of another client", &[&first], &stranger, Reason::FragmentUnknown);
    let other_vip = ip(CLIENT, super::super::world::VIP_BARE).packet(FRAGMENT, &last[40..]);
    table.lost("fragment: to another VIP", &[&first], &other_vip, Reason::FragmentUnknown);
    // RFC 8200: what a later fragment states of the next header does not count.
    let mut lying = last.clone();
    lying[40] = TCP;
    table.rest("fragment: rest states another protocol", DNS, &[&first], &lying);
    let unknown = ip(CLIENT, VIP_A).udp_datagram((40001, 54), &data(40));
    let unknown = piece(UDP, 0, true, &unknown);
    table.dropped("fragment: first to no rule", frame(&unknown), Reason::NoRule);
    table.lost("fragment: rest of one to no rule", &[&unknown], &last, Reason::FragmentUnknown);
    let unloaded = ip(CLIENT, VIP_A).tcp_segment((40001, 1011), ACK, &data(20));
    let unloaded = piece(TCP, 0, true, &unloaded);
    table.dropped("fragment: first to a rule not loaded", frame(&unloaded), Reason::NotLoaded);
    table.lost(
        "fragment: rest to a rule not loaded",
        &[&unloaded],
        &piece(TCP, 5, false, &data(8)),
        Reason::NotLoaded,
    );

    // Headers around and behind the fragment header.
    let datagram = ip(CLIENT, VIP_A).udp_datagram((40001, 53), &data(100));
    let with = |headers: &[Vec<u8>], payload: &[u8]| {
        ip(CLIENT, VIP_A).packet(HOP_BY_HOP, &[headers.concat(), payload.to_vec()].concat())
    };
    let before = with(&[options(FRAGMENT, 0), fragment(UDP, 0, true)], &datagram[..48]);
    let rest = with(&[options(FRAGMENT, 0), fragment(UDP, 6, false)], &datagram[48..]);
    table.forwarded("fragment: first behind options", DNS, &before);
    table.rest("fragment: rest behind options", DNS, &[&before], &rest);
    let behind = piece(OPTIONS, 0, true, &[options(UDP, 0), datagram[..40].to_vec()].concat());
    let rest = piece(OPTIONS, 6, false, &datagram[40..]);
    table.forwarded("fragment: first with options inside", DNS, &behind);
    table.rest("fragment: rest of one with options inside", DNS, &[&behind], &rest);
    table.dropped("fragment: rest states options, first not seen", frame(&rest), Reason::FragmentUnknown);
    for (name, next, inside) in [
        ("fragment: options of the first cut", OPTIONS, options(UDP, 1)[..8].to_vec()),
        ("fragment: options of the first cut short", OPTIONS, options(UDP, 0)[..7].to_vec()),
        (
            "fragment: a fragment inside a fragment",
            FRAGMENT,
            [fragment(UDP, 0, false), datagram.clone()].concat(),
        ),
        (
            "fragment: a first fragment inside one",
            FRAGMENT,
            [fragment(UDP, 0, true), datagram.clone()].concat(),
        ),
    ] {
        table.dropped(name, frame(&piece(next, 0, true, &inside)), Reason::Fragment);
    }
    let atomic = piece(FRAGMENT, 0, false, &[fragment(UDP, 0, true), datagram[..48].to_vec()].concat());
    table.forwarded("fragment: first behind an atomic one", DNS, &atomic);
    let routed = piece(ROUTING, 0, true, &[routing(UDP, 1), datagram.clone()].concat());
    table.dropped("fragment: a segment left in the first", frame(&routed), Reason::ExtensionHeaders);
    let cut = ip(CLIENT, VIP_A).packet(FRAGMENT, &fragment(UDP, 9, true)[..7]);
    table.dropped("fragment: header of a later one cut", frame(&cut), Reason::Truncated);
    table.add(
        "fragment: on the fabric",
        Ingress::Fabric,
        frame(&middle),
        Expect::unsent(Verdict::Drop, Reason::FragmentUnknown),
    );
}

fn remembered4(table: &mut Table<'_>) {
    let [first, middle, last] = three4();
    table.forwarded("ipv4 fragment: first", dns4(), &first);
    table.rest("ipv4 fragment: middle", dns4(), &[&first], &middle);
    table.rest("ipv4 fragment: last", dns4(), &[&first, &middle], &last);
    table.dropped(
        "ipv4 fragment: rest without its first, which another gateway got",
        frame4(&middle),
        Reason::FragmentUnknown,
    );
    table.lost("ipv4 fragment: rest before its first", &[&last], &middle, Reason::FragmentUnknown);
    let to = ip4(CLIENT4, VIP4_A);
    let tcp = to.tcp_segment((40001, 443), ACK, &data(100));
    let web = Of { rule: "web4", ..dns4() };
    let head = to.clone().fragment(MF).packet(TCP, &tcp[..24]);
    table.forwarded("ipv4 fragment: first of TCP", web, &head);
    table.rest("ipv4 fragment: rest of TCP", web, &[&head], &to.clone().fragment(3).packet(TCP, &tcp[24..]));
    let forbids = to.clone().fragment(DF | MF).packet(TCP, &tcp[..24]);
    table.forwarded("ipv4 fragment: first that must not be fragmented", web, &forbids);
    let other =
        |change: &dyn Fn(Ip4) -> Ip4, protocol| change(to.clone().fragment(12)).packet(protocol, &data(12));
    for (name, packet) in [
        ("ipv4 fragment: of another datagram", other(&|ip| ip.id(0x3412), UDP)),
        ("ipv4 fragment: of another client", other(&|ip| Ip4 { source: CLIENT4_2, ..ip }, UDP)),
        ("ipv4 fragment: to another VIP", other(&|ip| Ip4 { destination: VIP4_BARE, ..ip }, UDP)),
        ("ipv4 fragment: of another protocol with the same id", other(&|ip| ip, TCP)),
    ] {
        table.lost(name, &[&first], &packet, Reason::FragmentUnknown);
    }
    let sized = to.clone().options(&[1; 8]).fragment(12).packet(UDP, &data(12));
    table.rest("ipv4 fragment: rest with options", dns4(), &[&first], &sized);
    let routed = to.clone().options(&[131, 7, 4, 1, 2, 3, 4, 0]).fragment(12).packet(UDP, &data(12));
    table.lost("ipv4 fragment: rest with a source route", &[&first], &routed, Reason::IpOptions);
    let unknown = to.clone().fragment(MF).packet(UDP, &to.udp_datagram((40001, 54), &data(40)));
    table.dropped("ipv4 fragment: first to no rule", frame4(&unknown), Reason::NoRule);
    table.lost("ipv4 fragment: rest of one to no rule", &[&unknown], &last, Reason::FragmentUnknown);
    let v6 = three();
    let mixed = ip4(CLIENT4, VIP4_A).fragment(12).packet(UDP, &v6[2][48..]);
    table.lost("ipv4 fragment: after an IPv6 one", &[&v6[0]], &mixed, Reason::FragmentUnknown);
    let truncated = super::super::build::cut(last.clone(), 25);
    table.dropped("ipv4 fragment: cut", frame4(&truncated), Reason::Truncated);
    let padding = vec![0xee; 20];
    let expect = table.to_backend(Ingress::Uplink, dns4(), &last, &padding, Reason::Forwarded);
    let padded = [frame4(&last), padding].concat();
    table.after(
        "ipv4 fragment: rest in a frame of 60 bytes",
        Ingress::Uplink,
        vec![frame4(&first)],
        padded,
        expect,
    );
}

/// Of a VIP's only rule for the protocol, with an affinity that leaves the ports out: no state is needed.
fn led(table: &mut Table<'_>) {
    let to_b =
        |headers: Vec<u8>, payload: &[u8]| ip(CLIENT, VIP_B).packet(FRAGMENT, &[&headers, payload].concat());
    let datagram = ip(CLIENT, VIP_B).udp_datagram((7, 53), &data(100));
    let of = Of { rule: "dns-b", client: CLIENT, port: 0 };
    let first = to_b(fragment(UDP, 0, true), &datagram[..48]);
    table.forwarded("led fragment: first", of, &first);
    table.forwarded(
        "led fragment: rest, first not seen",
        of,
        &to_b(fragment(UDP, 6, false), &datagram[48..]),
    );
    table.forwarded("led fragment: offset 1 of UDP", of, &to_b(fragment(UDP, 1, false), &datagram[8..]));
    // The rest states options: it cannot be told that it is UDP, but for the first, which is remembered.
    let inside = to_b(fragment(OPTIONS, 0, true), &[options(UDP, 0), datagram[..40].to_vec()].concat());
    let rest = to_b(fragment(OPTIONS, 6, false), &datagram[40..]);
    table.rest("led fragment: rest of one with options inside", of, &[&inside], &rest);
    table.dropped(
        "led fragment: rest with options inside, first not seen",
        frame(&rest),
        Reason::FragmentUnknown,
    );
    let other = ip(CLIENT, VIP_B).udp_datagram((7, 54), &data(100));
    table.dropped(
        "led fragment: first to another port",
        frame(&to_b(fragment(UDP, 0, true), &other[..48])),
        Reason::NoRule,
    );
    let tcp = to_b(fragment(TCP, 6, false), &data(40));
    table.dropped("led fragment: of the VIP's other protocol", frame(&tcp), Reason::FragmentUnknown);

    let to_b = ip4(CLIENT4, VIP4_B);
    let of = |rule| Of { rule, client: CLIENT4.to_ipv6_mapped(), port: 0 };
    let datagram = to_b.udp_datagram((7, 53), &data(100));
    table.forwarded(
        "ipv4 led fragment: first",
        of("dns-b4"),
        &to_b.clone().fragment(MF).packet(UDP, &datagram[..48]),
    );
    let rest = to_b.clone().fragment(6).packet(UDP, &datagram[48..]);
    table.forwarded("ipv4 led fragment: rest, first not seen", of("dns-b4"), &rest);
    let whole = to_b.udp((7, 53), b"q");
    table.forwarded("ipv4 led fragment: a whole packet goes the same way", of("dns-b4"), &whole);
    let tcp = to_b.tcp_segment((7, 443), ACK, &data(100));
    table.forwarded(
        "ipv4 led fragment: first of TCP",
        of("web-b4"),
        &to_b.clone().fragment(MF).packet(TCP, &tcp[..48]),
    );
    table.forwarded(
        "ipv4 led fragment: rest of TCP",
        of("web-b4"),
        &to_b.clone().fragment(6).packet(TCP, &tcp[48..]),
    );
    let other = to_b.udp_datagram((7, 54), &data(100));
    let other = to_b.clone().fragment(MF).packet(UDP, &other[..48]);
    table.dropped("ipv4 led fragment: first to another port", frame4(&other), Reason::NoRule);
}

fn portless(table: &mut Table<'_>) {
    let to_b =
        |headers: Vec<u8>, payload: &[u8]| ip(CLIENT, VIP_B).packet(FRAGMENT, &[&headers, payload].concat());
    let gre = Of { rule: "gre-b", client: CLIENT, port: 0 };
    table.forwarded("portless fragment: first", gre, &to_b(fragment(GRE, 0, true), &data(8)));
    table.forwarded("portless fragment: rest", gre, &to_b(fragment(GRE, 1, false), &data(9)));
    let inside = to_b(fragment(OPTIONS, 0, true), &[options(GRE, 0), data(40)].concat());
    table.forwarded("portless fragment: first with options inside", gre, &inside);
    let rest = to_b(fragment(OPTIONS, 6, false), &data(40));
    table.rest("portless fragment: rest of one with options inside", gre, &[&inside], &rest);
    let sctp = piece(132, 0, true, &data(32));
    table.dropped("portless fragment: first of no rule", frame(&sctp), Reason::UnsupportedProtocol);
    let sctp = piece(132, 9, true, &data(32));
    table.dropped("portless fragment: rest of no rule", frame(&sctp), Reason::UnsupportedProtocol);
    let to_b = ip4(CLIENT4, VIP4_B);
    let esp = Of { rule: "esp-b4", client: CLIENT4.to_ipv6_mapped(), port: 0 };
    table.forwarded("ipv4 portless fragment: first", esp, &to_b.clone().fragment(MF).packet(ESP, &data(8)));
    table.forwarded("ipv4 portless fragment: rest", esp, &to_b.clone().fragment(1).packet(ESP, &data(8)));
    for (name, word, protocol) in [
        ("ipv4 portless fragment: of no rule", 5, 132),
        ("ipv4 portless fragment: protocol 0", 5, 0),
        ("ipv4 portless fragment: protocol 44", 5, FRAGMENT),
        ("ipv4 portless fragment: first of protocol 60", MF, OPTIONS),
    ] {
        let packet = to_b.clone().fragment(word).packet(protocol, &data(16));
        table.dropped(name, frame4(&packet), Reason::UnsupportedProtocol);
    }
}

/// First fragments that hide what the backend would see (RFC 1858), and ICMP in pieces.
fn tiny(table: &mut Table<'_>) {
    let to = ip(CLIENT, VIP_A);
    let (tcp, udp) = (to.tcp_segment((40001, 443), ACK, &data(8)), to.udp_datagram((40001, 53), &data(8)));
    for (name, next, units, more, payload) in [
        ("tiny fragment: TCP without a byte", TCP, 0, true, &[][..]),
        ("tiny fragment: TCP of 8 bytes", TCP, 0, true, &tcp[..8]),
        ("tiny fragment: TCP of 19 bytes", TCP, 0, true, &tcp[..19]),
        ("tiny fragment: UDP of 7 bytes", UDP, 0, true, &udp[..7]),
        ("tiny fragment: TCP at offset 1", TCP, 1, false, &tcp[8..]),
        ("tiny fragment: TCP at offset 1, more to come", TCP, 1, true, &tcp[8..]),
        ("fragment: first of ICMPv6", ICMPV6, 0, true, &data(64)[..]),
        ("fragment: rest of ICMPv6", ICMPV6, 8, false, &data(64)),
    ] {
        table.dropped(name, frame(&piece(next, units, more, payload)), Reason::Fragment);
    }
    table.forwarded("tiny fragment: UDP header alone", DNS, &piece(UDP, 0, true, &udp[..8]));
    let to = ip4(CLIENT4, VIP4_A);
    let (tcp, udp) = (to.tcp_segment((40001, 443), ACK, &data(8)), to.udp_datagram((40001, 53), &data(8)));
    for (name, protocol, word, payload) in [
        ("ipv4 tiny fragment: TCP without a byte", TCP, MF, &[][..]),
        ("ipv4 tiny fragment: TCP of 8 bytes", TCP, MF, &tcp[..8]),
        ("ipv4 tiny fragment: TCP of 19 bytes", TCP, MF, &tcp[..19]),
        ("ipv4 tiny fragment: UDP of 7 bytes", UDP, MF, &udp[..7]),
        ("ipv4 tiny fragment: TCP at offset 1", TCP, 1, &tcp[8..]),
        ("ipv4 fragment: first of ICMP", ICMP, MF, &data(64)),
        ("ipv4 fragment: rest of ICMP", ICMP, 8, &data(64)),
    ] {
        table.dropped(name, frame4(&to.clone().fragment(word).packet(protocol, payload)), Reason::Fragment);
    }
    table.forwarded(
        "ipv4 tiny fragment: UDP header alone",
        dns4(),
        &to.clone().fragment(MF).packet(UDP, &udp[..8]),
    );
    let led = ip4(CLIENT4, VIP4_B).fragment(1).packet(TCP, &tcp[8..]);
    table.dropped("ipv4 tiny fragment: led TCP at offset 1", frame4(&led), Reason::Fragment);
}

/// Fragments meet the same bound as other packets; only a first one gets an error.
fn big(table: &mut Table<'_>) {
    let datagram = ip(CLIENT, VIP_A).udp_datagram((40001, 53), &data(1408));
    let first = piece(UDP, 0, true, &datagram);
    let rest = piece(UDP, 177, false, &data(1416));
    let expect = answered(Reason::PacketTooBig, &[], &too_big(VIP_A, CLIENT, 1460, &first));
    table.add("big fragment: first", Ingress::Uplink, frame(&first), expect);
    table.lost("big fragment: rest gets no error", &[&first], &rest, Reason::TooBigSilent);
    let fits = piece(UDP, 177, false, &data(1412));
    table.rest("big fragment: rest that fits", DNS, &[&first], &fits);
    let to = ip4(CLIENT4, VIP4_A);
    let datagram = to.udp_datagram((40001, 53), &data(1436));
    for (name, word, reason) in [
        ("ipv4 big fragment: first", MF, Reason::TooBigNoDf),
        ("ipv4 big fragment: first that must not be fragmented", MF | DF, Reason::PacketTooBig),
    ] {
        let packet = to.clone().fragment(word).packet(UDP, &datagram);
        let expect = match reason {
            Reason::PacketTooBig => answered(reason, &[], &needed(VIP4_A, CLIENT4, 1460, &packet)),
            _ => Expect::unsent(Verdict::Drop, reason),
        };
        table.add(name, Ingress::Uplink, frame4(&packet), expect);
    }
    let first = to.clone().fragment(MF).packet(UDP, &datagram);
    for (name, word, reason) in [
        ("ipv4 big fragment: rest", 0xb5, Reason::TooBigNoDf),
        ("ipv4 big fragment: rest that must not be fragmented", 0xb5 | DF, Reason::TooBigSilent),
    ] {
        table.lost(name, &[&first], &to.clone().fragment(word).packet(UDP, &data(1441)), reason);
    }
}
