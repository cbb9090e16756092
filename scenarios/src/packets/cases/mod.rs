//! All packet cases, by the step of `docs/packet-path.md` they are about.

mod addresses;
mod delivery;
mod errors;
mod fabric;
mod fragments;
mod headers;
mod icmp;
mod ipv4;
mod ipv4_icmp;
mod ipv4_size;
mod link;
mod size;

use std::net::{Ipv4Addr, Ipv6Addr};

use weir::flow::hash;
use weir_bpf::abi::{Counter, Reason, unpack_nh};

use super::build::{FROM, ICMPV6, TO, ethertype, frame_of, ip};
use super::build4::{DF, ip4};
use super::world::OUTER_SOURCE;
use super::{Case, Expect, Ingress, Verdict, World};

/// Every case against this world.
pub fn all(world: &World) -> Vec<Case> {
    let mut table = Table { world, cases: Vec::new() };
    link::add(&mut table);
    addresses::add(&mut table);
    delivery::add(&mut table);
    headers::add(&mut table);
    size::add(&mut table);
    icmp::add(&mut table);
    errors::add(&mut table);
    fragments::add(&mut table);
    ipv4::add(&mut table);
    ipv4_size::add(&mut table);
    ipv4_icmp::add(&mut table);
    fabric::add(&mut table);
    table.cases
}

/// Collects cases; knows how to write down what must come out, from the page and without the code under test (but
/// for the hash, which has known answers of its own).
struct Table<'w> {
    world: &'w World,
    cases: Vec<Case>,
}

/// The flow whose backend a packet must reach.
#[derive(Clone, Copy)]
struct Of<'a> {
    rule: &'a str,
    client: Ipv6Addr,
    port: u16,
}

impl Table<'_> {
    fn add(&mut self, name: &'static str, ingress: Ingress, frame: Vec<u8>, expect: Expect) {
        self.after(name, ingress, Vec::new(), frame, expect);
    }

    /// As [`Table::add`], after other frames.
    fn after(
        &mut self,
        name: &'static str,
        ingress: Ingress,
        earlier: Vec<Vec<u8>>,
        frame: Vec<u8>,
        expect: Expect,
    ) {
        self.cases.push(Case { name, ingress, earlier, frame, expect });
    }

    /// From the uplink, left alone.
    fn left(&mut self, name: &'static str, frame: Vec<u8>, reason: Reason) {
        self.add(name, Ingress::Uplink, frame, Expect::unsent(Verdict::Left, reason));
    }

    /// From the uplink, dropped.
    fn dropped(&mut self, name: &'static str, frame: Vec<u8>, reason: Reason) {
        self.add(name, Ingress::Uplink, frame, Expect::unsent(Verdict::Drop, reason));
    }

    /// From the uplink in a plain frame, encapsulated.
    fn forwarded(&mut self, name: &'static str, of: Of<'_>, packet: &[u8]) {
        let expect = self.to_backend(Ingress::Uplink, of, packet, &[], Reason::Forwarded);
        self.add(name, Ingress::Uplink, frame_of(&[], packet), expect);
    }

    /// What must come out when `packet`, with `padding` after its payload, goes to the backend of a flow.
    fn to_backend(
        &self,
        ingress: Ingress,
        of: Of<'_>,
        packet: &[u8],
        padding: &[u8],
        reason: Reason,
    ) -> Expect {
        let rule = self.world.rule(of.rule);
        let flow = hash(self.world.key(), rule.affinity, of.client, of.port, rule.port, rule.protocol);
        let slot = (u64::from(flow.h) * u64::from(rule.size)) >> 32;
        let index = rule.backends[slot as usize % rule.backends.len()];
        let backend = self.world.tables.backends[&index];
        let (first, count) = unpack_nh(backend.nh);
        let hop = self.world.tables.next_hops[&(first + (((flow.low & 0xffff) * u32::from(count)) >> 16))];

        let v4 = packet[0] >> 4 == 4;
        let class = if v4 { packet[1] } else { packet[0] << 4 | packet[1] >> 4 };
        let label = flow.low >> 12;
        let mut out = hop.macs.to_vec();
        out.extend([0x86, 0xdd]);
        out.extend([0x60 | class >> 4, class << 4 | (label >> 16) as u8, (label >> 8) as u8, label as u8]);
        out.extend((packet.len() as u16).to_be_bytes());
        out.extend([if v4 { 4 } else { 41 }, 64]);
        out.extend(OUTER_SOURCE);
        out.extend([(flow.low >> 8) as u8, flow.low as u8]);
        out.extend(backend.sid);
        out.extend(packet);
        out.extend(padding);

        let turned = hop.ifindex == self.world.ifindex(ingress);
        let counter = Counter { packets: 1, bytes: packet.len() as u64 };
        Expect {
            verdict: if turned { Verdict::Tx } else { Verdict::Redirect },
            reason,
            redirect: (!turned).then_some(hop.ifindex),
            frame_out: Some(out),
            vip: Some((rule.vip, counter)),
            backend: Some((index, counter)),
            selftest_seen: 0,
            learned: None,
        }
    }
}

/// What must come out when a frame is answered with `packet` on the interface it came from.
fn answered(reason: Reason, tags: &[[u8; 4]], packet: &[u8]) -> Expect {
    let out = super::build::ethernet(FROM, TO, tags, ethertype(packet), packet);
    Expect { frame_out: Some(out), ..Expect::unsent(Verdict::Tx, reason) }
}

/// The Packet Too Big that a VIP sends about `packet`.
fn too_big(vip: Ipv6Addr, client: Ipv6Addr, mtu: u32, packet: &[u8]) -> Vec<u8> {
    let mut header = ip(vip, client);
    header.flow_label = 0;
    header.hop_limit = 64;
    header.packet(ICMPV6, &header.icmp_message(2, 0, mtu, &packet[..1232]))
}

/// The "fragmentation needed" that an IPv4 VIP sends about `packet`.
fn needed(vip: Ipv4Addr, client: Ipv4Addr, mtu: u32, packet: &[u8]) -> Vec<u8> {
    answer4(vip, client).icmp(3, 4, mtu, &packet[..548])
}

/// Header of what an IPv4 VIP sends of its own.
fn answer4(vip: Ipv4Addr, client: Ipv4Addr) -> super::build4::Ip4 {
    super::build4::Ip4 { id: 0, ttl: 64, ..ip4(vip, client).fragment(DF) }
}
