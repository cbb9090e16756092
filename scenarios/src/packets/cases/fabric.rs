//! Step 3a: Packet Too Big of the fabric's routers about what this node encapsulated.

use std::net::Ipv6Addr;

use weir_bpf::abi::Reason;

use super::super::build::{ACK, ICMPV6, OPTIONS, cut, data, frame, ip, options, stating, tagged};
use super::super::world::{CLIENT, IN_BLOCK, OUTER_SOURCE, ROUTER, VIP_A};
use super::super::{Expect, Ingress, Verdict};
use super::Table;

/// The node's outer source with a flow's last two bytes.
fn source(low: u16) -> Ipv6Addr {
    let mut octets = [0; 16];
    octets[..14].copy_from_slice(&OUTER_SOURCE);
    octets[14..].copy_from_slice(&low.to_be_bytes());
    octets.into()
}

/// Another SID of the block for each case, so that each note is a new one.
fn sid(n: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0xff01, 0x4000 + n, 0xe001, 0, 0, 0)
}

pub(super) fn add(table: &mut Table<'_>) {
    let ours = source(0xbeef);
    let inner = ip(CLIENT, VIP_A).tcp((40001, 443), ACK, &data(1400));
    let sent = |to: Ipv6Addr| ip(ours, to).packet(41, &inner);
    let error = |mtu: u32, quote: &[u8]| ip(ROUTER, ours).icmp(2, 0, mtu, &cut(quote.to_vec(), 1232));

    let taken =
        |sid, mtu| Expect { learned: Some((sid, mtu)), ..Expect::unsent(Verdict::Drop, Reason::FabricPtb) };
    let left = Expect::unsent(Verdict::Left, Reason::NotVip);
    let mut n = 0;
    let mut next = || {
        n += 1;
        sid(n)
    };
    // What is believed, each with the MTU that must be noted as it was told: floor and SID are the daemon's to judge.
    for (name, ingress, mtu) in [
        ("fabric error: fabric", Ingress::Fabric, 1400),
        ("fabric error: both roles", Ingress::Both, 1400),
        ("fabric error: least that counts", Ingress::Fabric, 1280),
        ("fabric error: most that counts", Ingress::Fabric, 65_535),
    ] {
        let to = next();
        table.add(name, ingress, frame(&error(mtu, &sent(to))), taken(to, mtu));
    }
    let to = next();
    let short = error(1400, &cut(sent(to), 40));
    table.add("fabric error: outer header alone quoted", Ingress::Fabric, frame(&short), taken(to, 1400));
    let to = next();
    let ipv4 = error(1400, &ip(ours, to).packet(4, &data(60)));
    table.add("fabric error: IPv4 inside", Ingress::Fabric, frame(&ipv4), taken(to, 1400));
    let to = next();
    let code = ip(ROUTER, ours).icmp(2, 7, 1400, &cut(sent(to), 1232));
    table.add("fabric error: code is not looked at", Ingress::Fabric, frame(&code), taken(to, 1400));
    let to = next();
    let from_block = ip(IN_BLOCK, ours).icmp(2, 0, 1400, &cut(sent(to), 1232));
    table.add("fabric error: router inside the block", Ingress::Fabric, frame(&from_block), taken(to, 1400));
    let to = next();
    let tags = tagged(&[[0x81, 0, 0, 100]], &error(1400, &sent(to)));
    table.add("fabric error: VLAN tag", Ingress::Fabric, tags, taken(to, 1400));
    let to = next();
    let mut padded = frame(&error(1400, &sent(to)));
    padded.extend([0; 9]);
    table.add("fabric error: bytes after the payload", Ingress::Fabric, padded, taken(to, 1400));
    let to = next();
    let zero = ip(ROUTER, source(0)).icmp(2, 0, 1400, &ip(source(0), to).packet(41, &data(60)));
    table.add("fabric error: a flow whose bits are 0", Ingress::Fabric, frame(&zero), taken(to, 1400));

    // What is not: it is left like all else that comes from the fabric to the block.
    let to = sid(999);
    let own = ip(ROUTER, ours);
    let other = Ipv6Addr::from(u128::from(ours) ^ 1 << 16);
    let node = Ipv6Addr::from(u128::from(ours) ^ 1 << 64);
    let quote = cut(sent(to), 200);
    for (name, packet) in [
        ("fabric error: MTU no link may have", error(1279, &sent(to))),
        ("fabric error: MTU 0", error(0, &sent(to))),
        ("fabric error: MTU no packet has", error(65_536, &sent(to))),
        ("fabric error: unreachable", own.icmp(1, 0, 1400, &quote)),
        ("fabric error: time exceeded", own.icmp(3, 0, 1400, &quote)),
        ("fabric error: echo reply", own.icmp(129, 0, 1400, &quote)),
        ("fabric error: not to a source of ours", ip(ROUTER, other).icmp(2, 0, 1400, &quote)),
        ("fabric error: to another node's source", ip(ROUTER, node).icmp(2, 0, 1400, &quote)),
        ("fabric error: quote cut", own.icmp(2, 0, 1400, &cut(quote.clone(), 39))),
        ("fabric error: no quote", own.icmp(2, 0, 1400, &[])),
        ("fabric error: quote of another flow", error(1400, &ip(source(1), to).packet(41, &data(60)))),
        ("fabric error: quote not to the block", error(1400, &ip(ours, CLIENT).packet(41, &data(60)))),
        ("fabric error: quote not encapsulated", error(1400, &ip(ours, to).packet(17, &data(60)))),
        ("fabric error: quote of IPv4", error(1400, &[&[0x45], &data(99)[..]].concat())),
        (
            "fabric error: payload length short by one",
            stating(own.icmp(2, 0, 1400, &cut(quote.clone(), 40)), 47),
        ),
        (
            "fabric error: payload length beyond the frame",
            stating(own.icmp(2, 0, 1400, &cut(quote.clone(), 40)), 49),
        ),
        (
            "fabric error: behind an extension header",
            own.packet(OPTIONS, &[options(ICMPV6, 0), own.icmp_message(2, 0, 1400, &quote)].concat()),
        ),
        ("fabric error: TCP to our source", own.tcp((443, 40001), ACK, &data(100))),
    ] {
        table.add(name, Ingress::Fabric, frame(&packet), left.clone());
    }
    let believed = frame(&error(1400, &sent(to)));
    let refused = Expect::unsent(Verdict::Drop, Reason::Srv6Block);
    table.add("fabric error: from an uplink", Ingress::Uplink, believed, refused);
}
