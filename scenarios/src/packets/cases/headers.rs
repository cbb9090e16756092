//! Step 6: extension headers, fragments, protocols that are not served.

use weir_bpf::abi::Reason;

use super::super::build::{
    ACK, FRAGMENT, HOP_BY_HOP, Ip, OPTIONS, ROUTING, TCP, UDP, chain, cut, fragment, frame, ip, long_options,
    options, routing, stating,
};
use super::super::world::{CLIENT, VIP_A, VIP_BARE};
use super::{Of, Table};

const WEB: Of<'static> = Of { rule: "web", client: CLIENT, port: 40001 };
const DNS: Of<'static> = Of { rule: "dns", client: CLIENT, port: 40001 };

pub(super) fn add(table: &mut Table<'_>) {
    let to_vip = ip(CLIENT, VIP_A);
    let segment = to_vip.tcp_segment((40001, 443), ACK, b"data");
    let datagram = to_vip.udp_datagram((40001, 53), b"q");
    let with = |first: u8, headers: &[Vec<u8>], payload: &[u8]| {
        to_vip.packet(first, &[headers.concat(), payload.to_vec()].concat())
    };

    for (name, first, headers) in [
        ("headers: hop-by-hop", HOP_BY_HOP, vec![options(TCP, 0)]),
        ("headers: hop-by-hop of 256 bytes", HOP_BY_HOP, vec![options(TCP, 31)]),
        ("headers: destination options", OPTIONS, vec![options(TCP, 1)]),
        ("headers: routing, no segment left", ROUTING, vec![routing(TCP, 0)]),
        ("headers: atomic fragment", FRAGMENT, vec![fragment(TCP, 0, false)]),
        ("headers: hop-by-hop in second place", OPTIONS, vec![options(HOP_BY_HOP, 0), options(TCP, 0)]),
        (
            "headers: one of each",
            HOP_BY_HOP,
            vec![
                options(OPTIONS, 0),
                options(ROUTING, 2),
                routing(FRAGMENT, 0),
                fragment(OPTIONS, 0, false),
                options(TCP, 0),
            ],
        ),
        ("headers: up to byte 512", OPTIONS, vec![long_options(TCP, 58)]),
        ("headers: two up to byte 512", OPTIONS, vec![long_options(OPTIONS, 28), long_options(TCP, 29)]),
    ] {
        table.forwarded(name, WEB, &with(first, &headers, &segment));
    }
    table.forwarded("headers: UDP behind options", DNS, &with(OPTIONS, &[options(UDP, 0)], &datagram));
    table.forwarded("headers: six", WEB, &to_vip.packet(OPTIONS, &chain(6, TCP, &segment)));
    table.forwarded("headers: reserved bits of an atomic fragment", DNS, &{
        let mut header = fragment(UDP, 0, false);
        (header[1], header[3]) = (0xff, 0x06);
        with(FRAGMENT, &[header], &datagram)
    });

    let dropped = [
        ("headers: seven", to_vip.packet(OPTIONS, &chain(7, TCP, &segment)), Reason::ExtensionHeaders),
        ("headers: twenty", to_vip.packet(OPTIONS, &chain(20, TCP, &segment)), Reason::ExtensionHeaders),
        (
            "headers: beyond byte 512",
            with(OPTIONS, &[long_options(TCP, 59)], &segment),
            Reason::ExtensionHeaders,
        ),
        (
            "headers: two beyond byte 512",
            with(OPTIONS, &[long_options(OPTIONS, 29), long_options(TCP, 29)], &segment),
            Reason::ExtensionHeaders,
        ),
        ("headers: a segment left", with(ROUTING, &[routing(TCP, 1)], &segment), Reason::ExtensionHeaders),
        (
            "headers: 255 segments left",
            with(ROUTING, &[routing(TCP, 255)], &segment),
            Reason::ExtensionHeaders,
        ),
        (
            "headers: a segment left in second place",
            with(OPTIONS, &[options(ROUTING, 0), routing(TCP, 1)], &segment),
            Reason::ExtensionHeaders,
        ),
        ("headers: none of its bytes there", with(HOP_BY_HOP, &[], &[]), Reason::Truncated),
        ("headers: one of its bytes there", with(OPTIONS, &[], &[TCP]), Reason::Truncated),
        ("headers: seven of its bytes there", with(OPTIONS, &[], &options(TCP, 0)[..7]), Reason::Truncated),
        (
            "headers: ends a byte beyond the payload",
            with(OPTIONS, &[], &options(TCP, 1)[..15]),
            Reason::Truncated,
        ),
        (
            "headers: second one cut",
            with(OPTIONS, &[options(OPTIONS, 0)], &options(TCP, 1)[..8]),
            Reason::Truncated,
        ),
        ("headers: routing cut", with(ROUTING, &[], &routing(TCP, 0)[..23]), Reason::Truncated),
        ("headers: fragment cut", with(FRAGMENT, &[], &fragment(TCP, 0, false)[..7]), Reason::Truncated),
        ("headers: nothing behind", with(OPTIONS, &[options(TCP, 0)], &[]), Reason::Truncated),
        ("headers: TCP cut behind", with(OPTIONS, &[options(TCP, 0)], &segment[..19]), Reason::Truncated),
        ("headers: UDP cut behind", with(OPTIONS, &[options(UDP, 0)], &datagram[..7]), Reason::Truncated),
        ("headers: no rule behind", with(OPTIONS, &[options(TCP, 0)], &no_rule(to_vip)), Reason::NoRule),
    ];
    for (name, packet, reason) in dropped {
        table.dropped(name, frame(&packet), reason);
    }
    let unserved = with(OPTIONS, &[], &options(59, 1)[..15]);
    table.dropped("headers: end beyond the payload, no next header", frame(&unserved), Reason::Truncated);
    // Options that the payload length leaves out, though the frame holds them.
    let lying = stating(with(OPTIONS, &[options(TCP, 1)], &segment), 15);
    table.dropped("headers: end beyond the stated length", frame(&lying), Reason::Truncated);
    table.dropped(
        "headers: frame cut inside",
        frame(&cut(with(OPTIONS, &[options(TCP, 1)], &segment), 50)),
        Reason::Truncated,
    );

    for (name, protocol) in [
        ("protocol: IPv4 inside", 4),
        ("protocol: IPv6 inside", 41),
        ("protocol: GRE", 47),
        ("protocol: ESP", 50),
        ("protocol: AH is not walked", 51),
        ("protocol: no next header", 59),
        ("protocol: ICMPv4", 1),
        ("protocol: SCTP", 132),
        ("protocol: mobility is not walked", 135),
        ("protocol: HIP is not walked", 139),
        ("protocol: experiment", 253),
        ("protocol: reserved", 255),
    ] {
        table.dropped(name, frame(&to_vip.packet(protocol, &segment)), Reason::UnsupportedProtocol);
    }
    table.dropped(
        "protocol: no next header, nothing behind",
        frame(&to_vip.packet(59, &[])),
        Reason::UnsupportedProtocol,
    );
    table.dropped(
        "protocol: GRE behind options",
        frame(&with(OPTIONS, &[options(47, 0)], &segment)),
        Reason::UnsupportedProtocol,
    );
    let bare = ip(CLIENT, VIP_BARE).packet(132, &segment);
    table.dropped("protocol: SCTP to a VIP without rules", frame(&bare), Reason::UnsupportedProtocol);
}

fn no_rule(to_vip: Ip) -> Vec<u8> {
    to_vip.tcp_segment((40001, 9), ACK, &[])
}
