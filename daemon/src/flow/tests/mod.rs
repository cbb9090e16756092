//! The oracle's own tests: small frames and the tables they meet.

mod hashing;
mod path;
mod replies;

use std::net::Ipv6Addr;

use weir_bpf::abi::{Affinity, Backend, Config, NextHop, ROLE_FABRIC, ROLE_UPLINK, VipWord, pack_nh};

use super::{Decision, Flow, HashKey, MemTables, Surroundings, decide};

pub(super) const UPLINK: u32 = 7;
pub(super) const FABRIC: u32 = 8;
pub(super) const MACS: [u8; 12] = [2, 0, 0, 0, 0xff, 1, 2, 0, 0, 0, 0x80, 2];

pub(super) fn key() -> HashKey {
    HashKey::from_region_key(&std::array::from_fn(|i| i as u8))
}

pub(super) fn v6(text: &str) -> Ipv6Addr {
    text.parse().unwrap()
}

/// Node 1 of block 2001:db8:ff01::/48.
pub(super) fn config() -> Config {
    let HashKey { nh, fin } = key();
    Config {
        nh,
        fin,
        src_hi: u64::from_ne_bytes([0x20, 1, 0x0d, 0xb8, 0xff, 1, 0, 1]),
        src_lo: 0,
        selftest_lo: u64::from_ne_bytes([0, 0, 0, 0, 0, 0, 0, 0xfe]),
        role: ROLE_UPLINK,
        icmp_rate: 10,
        heartbeat_jiffies: 0,
        build: 0,
    }
}

pub(super) fn fabric_config() -> Config {
    Config { role: ROLE_FABRIC, ..config() }
}

/// `flow.vip` with one rule and `backends` backends behind two equal next hops of `mtu` bytes.
pub(super) fn tables(flow: Flow, affinity: Affinity, backends: u16, mtu: u32) -> MemTables {
    let mut tables = MemTables::new();
    let hop = NextHop { macs: MACS, ifindex: FABRIC, mtu, flags: 0 };
    let first = tables.add_next_hop(hop);
    tables.add_next_hop(NextHop { ifindex: UPLINK, ..hop });
    let indices: Vec<u32> = (0..backends)
        .map(|i| {
            let sid = Ipv6Addr::new(0x2001, 0xdb8, 0xff01, 100 + i, 0xe000, 0, 0, 0).octets();
            tables.add_backend(Backend { sid, nh: pack_nh(first, 2), ..Backend::default() })
        })
        .collect();
    let slots: Vec<u32> = indices.iter().copied().cycle().take(1021).collect();
    let word = VipWord::new(tables.add_ring(&slots), 1021, affinity);
    tables.add_vip(flow.vip, flow.vip_port, flow.protocol, word);
    tables
}

/// A frame around an IPv6 packet; traffic class 0xb9, flow label 0x12345, hop limit 61.
pub(super) fn frame(source: Ipv6Addr, destination: Ipv6Addr, next_header: u8, payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() as u16).to_be_bytes();
    let mut out = vec![2, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 0x86, 0xdd];
    out.extend([0x6b, 0x91, 0x23, 0x45, len[0], len[1], next_header, 61]);
    out.extend(source.octets());
    out.extend(destination.octets());
    out.extend(payload);
    out
}

/// Transport header and `data` bytes of 0xa5.
pub(super) fn segment(from: u16, to: u16, protocol: u8, data: usize) -> Vec<u8> {
    let mut out = [from.to_be_bytes(), to.to_be_bytes()].concat();
    out.resize(if protocol == 6 { 20 } else { 8 }, 0);
    out.resize(out.len() + data, 0xa5);
    out
}

/// A packet of the flow.
pub(super) fn packet(flow: Flow, data: usize) -> Vec<u8> {
    let payload = segment(flow.client_port, flow.vip_port, flow.protocol, data);
    frame(flow.client, flow.vip, flow.protocol, &payload)
}

/// An ICMP error from `router` about the flow's reply, with `quoted` bytes of the quote.
pub(super) fn error(flow: Flow, router: Ipv6Addr, kind: u8, quoted: usize) -> Vec<u8> {
    let reply = segment(flow.vip_port, flow.client_port, flow.protocol, 8);
    let quote = frame(flow.vip, flow.client, flow.protocol, &reply);
    let mut message = vec![kind, 0, 0, 0, 0, 0, 5, 0x78];
    message.extend(&quote[14..(14 + quoted).min(quote.len())]);
    frame(router, flow.vip, 58, &message)
}

pub(super) fn run(config: &Config, tables: &MemTables, frame: &[u8]) -> Decision {
    decide(config, tables, &mut Surroundings::default(), UPLINK, frame)
}

/// What the ICMPv6 message behind a fixed header leaves over: header and message, read as one number in base 65536,
/// modulo 65535; 0 when the checksum is right (RFC 1071's sum by another road than the code's).
pub(super) fn checksum_residue(packet: &[u8]) -> u16 {
    let message = &packet[40..];
    let mut bytes = packet[8..40].to_vec();
    bytes.extend((message.len() as u32).to_be_bytes());
    bytes.extend([0, 0, 0, 58]);
    bytes.extend(message);
    if bytes.len() % 2 == 1 {
        bytes.push(0);
    }
    let digit = |pair: &[u8]| u64::from(pair[0]) * 256 + u64::from(pair[1]);
    bytes.chunks(2).fold(0, |rest, pair| (rest * 65536 + digit(pair)) % 65535) as u16
}
