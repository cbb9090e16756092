//! The data plane in Rust: what becomes of a frame and why. Serves `weir explain` and is the packet cases' oracle.
//!
//! Follows `docs/packet-path.md` step by step, written from that page and not from the C program, so that the two
//! check each other. Pure: no I/O, no clock, no state but what the caller passes.

mod fabric;
mod hash;
mod parse;
mod pick;
mod reply;
mod tables;
#[cfg(test)]
mod tests;

use std::net::Ipv6Addr;

use weir_bpf::abi::{Bucket, Config, ENCAP_LEN, ROLE_FABRIC, Reason};

pub use hash::{FlowHash, HashKey, hash};
use parse::{Fragments, ICMPV6, IPV6_LEN, Ipv6, TCP, UDP, Upper};
use pick::pick;
pub use pick::{Explanation, Flow, NextHops, Trail, explain};
pub use reply::take_token;
pub use tables::{MemTables, View, ownership_key, port_key};

/// What a packet meets besides the tables.
pub struct Surroundings<'a> {
    /// Where next hops come from.
    pub next_hops: NextHops<'a>,
    /// This CPU's bucket for generated ICMP.
    pub bucket: Bucket,
    /// Time on the bucket's clock, nanoseconds.
    pub now_ns: u64,
    /// Bytes that may be pushed in front of the frame.
    pub headroom: usize,
}

impl Default for Surroundings<'_> {
    /// A fresh heartbeat, an unused bucket, and the 256 bytes of `XDP_PACKET_HEADROOM`.
    fn default() -> Self {
        Self { next_hops: NextHops::Table, bucket: Bucket::default(), now_ns: 1, headroom: 256 }
    }
}

/// What the program says to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Left to the next slot, then the stack.
    Left,
    /// Dropped.
    Drop,
    /// Sent out of the interface it came from.
    Tx,
    /// Sent out of another interface.
    Redirect(u32),
}

/// What a sent packet adds to `vip_counters` and `backend_counters`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counted {
    /// VIP index.
    pub vip: u32,
    /// Backend index.
    pub backend: u32,
    /// Bytes of the inner packet.
    pub bytes: u64,
}

/// What becomes of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// What the program returns.
    pub verdict: Verdict,
    /// The one reason it counts. `SelfTest` also adds one to `state.selftest_seen`.
    pub reason: Reason,
    /// The frame that is sent.
    pub frame_out: Option<Vec<u8>>,
    /// What a packet sent to a backend counts.
    pub counted: Option<Counted>,
    /// What was looked up.
    pub trail: Trail,
}

/// Says what the program does with `frame` from interface `ingress`.
pub fn decide(
    config: &Config,
    view: &impl View,
    around: &mut Surroundings<'_>,
    ingress: u32,
    frame: &[u8],
) -> Decision {
    let mut trail = Trail::default();
    match (Path { config, view, around, ingress, trail: &mut trail }).run(frame) {
        Ok(Sent { verdict, reason, frame, counted }) => {
            Decision { verdict, reason, frame_out: Some(frame), counted, trail }
        }
        Err(reason) => {
            Decision { verdict: verdict_without_frame(reason), reason, frame_out: None, counted: None, trail }
        }
    }
}

fn verdict_without_frame(reason: Reason) -> Verdict {
    match reason {
        Reason::NotIp | Reason::Ipv4Unserved | Reason::NotForHost | Reason::Malformed | Reason::NotVip => {
            Verdict::Left
        }
        _ => Verdict::Drop,
    }
}

struct Sent {
    verdict: Verdict,
    reason: Reason,
    frame: Vec<u8>,
    counted: Option<Counted>,
}

/// One frame on its way.
struct Path<'p, 'a, V> {
    config: &'p Config,
    view: &'p V,
    around: &'p mut Surroundings<'a>,
    ingress: u32,
    trail: &'p mut Trail,
}

impl<V: View> Path<'_, '_, V> {
    /// Steps 1–6.
    fn run(&mut self, frame: &[u8]) -> Result<Sent, Reason> {
        let (link, rest) = frame.split_at(parse::link(frame)?);
        let ip = Ipv6::new(rest).ok_or(Reason::Malformed)?;
        self.addresses(ip)?;
        if let (TCP | UDP, Some(packet)) = (ip.next_header(), ip.whole())
            && let Some((flow, Some(vip))) = self.transport(ip, packet, ip.next_header(), IPV6_LEN)
        {
            return self.forward(link, ip, vip, flow, Reason::Forwarded);
        }
        if self.view.vip_index(&ownership_key(ip.destination())).is_none() {
            return Err(Reason::NotVip);
        }
        let packet = ip.whole().ok_or(Reason::Truncated)?;
        let upper = parse::walk(packet, Fragments::Atomic)?;
        match upper.protocol {
            TCP | UDP => {
                let (flow, vip) =
                    self.transport(ip, packet, upper.protocol, upper.offset).ok_or(Reason::Truncated)?;
                self.forward(link, ip, vip.ok_or(Reason::NoRule)?, flow, Reason::Forwarded)
            }
            ICMPV6 => self.icmp(link, ip, packet, &upper),
            _ => Err(Reason::UnsupportedProtocol),
        }
    }

    /// Step 3.
    fn addresses(&mut self, ip: Ipv6<'_>) -> Result<(), Reason> {
        let (source, destination) = (ip.source(), ip.destination());
        let mapped = |a: Ipv6Addr| a.to_ipv4_mapped().is_some();
        if mapped(source) || mapped(destination) {
            return Err(Reason::MappedAddress);
        }
        let own = self.config.src_hi.to_ne_bytes();
        let fabric = self.config.role & ROLE_FABRIC != 0;
        let selftest = [own, self.config.selftest_lo.to_ne_bytes()].concat();
        if fabric && destination.octets() == selftest[..] {
            return Err(Reason::SelfTest);
        }
        if fabric && let Some(learned) = fabric::packet_too_big(self.config, ip) {
            self.trail.learned = Some(learned);
            return Err(Reason::FabricPtb);
        }
        let in_block = |a: Ipv6Addr| a.octets()[..6] == own[..6];
        match in_block(source) || in_block(destination) {
            true if fabric => Err(Reason::NotVip),
            true => Err(Reason::Srv6Block),
            false => Ok(()),
        }
    }

    /// The flow of the TCP or UDP header at `offset` and its VIP index; `None` when the header is cut.
    fn transport(
        &self,
        ip: Ipv6<'_>,
        packet: &[u8],
        protocol: u8,
        offset: usize,
    ) -> Option<(Flow, Option<u32>)> {
        let needed = if protocol == TCP { 20 } else { 8 };
        let header = packet.get(offset..offset + needed)?;
        let flow = Flow {
            client: ip.source(),
            client_port: parse::be16(header, 0)?,
            vip: ip.destination(),
            vip_port: parse::be16(header, 2)?,
            protocol,
        };
        Some((flow, self.view.vip_index(&port_key(flow.vip, flow.vip_port, protocol))))
    }

    /// ICMPv6 of step 6, then step 9 or 10.
    fn icmp(&mut self, link: &[u8], ip: Ipv6<'_>, packet: &[u8], upper: &Upper) -> Result<Sent, Reason> {
        let header = packet.get(upper.offset..upper.offset + 8).ok_or(Reason::Truncated)?;
        match header {
            [128, 0, ..] => self.echo(link, ip, upper),
            [1..=4, ..] => {
                let flow = quoted_flow(ip, &packet[upper.offset + 8..]).ok_or(Reason::IcmpBadQuote)?;
                let key = port_key(flow.vip, flow.vip_port, flow.protocol);
                let vip = self.view.vip_index(&key).ok_or(Reason::IcmpBadQuote)?;
                self.forward(link, ip, vip, flow, Reason::IcmpSteered)
            }
            _ => Err(Reason::IcmpUnhandled),
        }
    }

    /// Step 9.
    fn echo(&mut self, link: &[u8], ip: Ipv6<'_>, upper: &Upper) -> Result<Sent, Reason> {
        if upper.extensions > 0 || unanswerable(ip.source()) {
            return Err(Reason::IcmpUnhandled);
        }
        self.token()?;
        let frame = reply::echo_reply(link, ip, upper.offset);
        Ok(Sent { verdict: Verdict::Tx, reason: Reason::EchoReply, frame, counted: None })
    }

    /// Steps 7, 8 and 11.
    fn forward(
        &mut self,
        link: &[u8],
        ip: Ipv6<'_>,
        vip: u32,
        flow: Flow,
        reason: Reason,
    ) -> Result<Sent, Reason> {
        let picked = pick(&self.config.into(), self.view, self.around.next_hops, vip, flow, self.trail)?;
        let inner_len = ip.stated_len();
        if inner_len + ENCAP_LEN as usize > picked.mtu as usize {
            if reason == Reason::IcmpSteered || unanswerable(ip.source()) {
                return Err(Reason::TooBigSilent);
            }
            self.token()?;
            let frame = reply::packet_too_big(link, ip, picked.mtu - ENCAP_LEN);
            return Ok(Sent { verdict: Verdict::Tx, reason: Reason::PacketTooBig, frame, counted: None });
        }
        let frame = reply::encapsulate(self.config, ip, picked.hash, picked.sid, &picked.hop);
        if frame.len() > link.len() + ip.bytes().len() + self.around.headroom {
            return Err(Reason::NoHeadroom);
        }
        let verdict = if picked.hop.ifindex == self.ingress {
            Verdict::Tx
        } else {
            Verdict::Redirect(picked.hop.ifindex)
        };
        let counted = Some(Counted { vip, backend: picked.backend, bytes: inner_len as u64 });
        Ok(Sent { verdict, reason, frame, counted })
    }

    fn token(&mut self) -> Result<(), Reason> {
        take_token(&mut self.around.bucket, self.config.icmp_rate, self.around.now_ns)
            .then_some(())
            .ok_or(Reason::RateLimited)
    }
}

/// Sources that get no answer (RFC 4443 section 2.4 e).
fn unanswerable(source: Ipv6Addr) -> bool {
    source.is_multicast() || source.is_unspecified()
}

/// Step 10: the flow whose reply an ICMP error quotes, client's side first.
fn quoted_flow(error: Ipv6<'_>, quote: &[u8]) -> Option<Flow> {
    let ip = Ipv6::new(quote).filter(|ip| ip.source() == error.destination())?;
    let upper = parse::walk(quote, Fragments::First).ok()?;
    let ports = matches!(upper.protocol, TCP | UDP).then_some(quote.get(upper.offset..upper.offset + 4)?)?;
    Some(Flow {
        client: ip.destination(),
        client_port: parse::be16(ports, 2)?,
        vip: ip.source(),
        vip_port: parse::be16(ports, 0)?,
        protocol: upper.protocol,
    })
}
