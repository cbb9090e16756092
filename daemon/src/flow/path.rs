//! One frame through all steps, from the link header to what is sent.

use std::net::Ipv6Addr;

use weir_bpf::abi::{Config, ENCAP_LEN, ROLE_FABRIC, Reason};

use super::parse::{self, Family, ICMP, ICMPV6, Ip, Piece, TCP, UDP, Upper, Walk};
use super::pick::pick;
use super::{
    Counted, Flow, Surroundings, Trail, Verdict, View, fabric, fragments, ownership_key, port_key, reply,
    take_token,
};

/// A frame that leaves.
pub(super) struct Sent {
    pub(super) verdict: Verdict,
    pub(super) reason: Reason,
    pub(super) frame: Vec<u8>,
    pub(super) counted: Option<Counted>,
}

/// One frame on its way.
pub(super) struct Path<'p, 'a, V> {
    pub(super) config: &'p Config,
    pub(super) view: &'p V,
    pub(super) around: &'p mut Surroundings<'a>,
    pub(super) ingress: u32,
    pub(super) trail: &'p mut Trail,
}

/// A packet with its rule found.
struct Found<'f> {
    link: &'f [u8],
    ip: Ip<'f>,
    flow: Flow,
    vip: u32,
    reason: Reason,
    /// It is a later fragment.
    later: bool,
}

impl<V: View> Path<'_, '_, V> {
    /// Steps 1–6.
    pub(super) fn run(&mut self, frame: &[u8]) -> Result<Sent, Reason> {
        let (l2, family) = parse::link(frame)?;
        let (link, rest) = frame.split_at(l2);
        let ip = Ip::new(family, rest).ok_or(Reason::Malformed)?;
        if family == Family::V6 {
            self.addresses(ip)?;
        }
        // Step 4 is a short way to the same end, but for one thing: it does without the ownership of the address.
        if let Some(found) = self.plain(link, ip) {
            return self.forward(found);
        }
        if self.view.vip_index(&ownership_key(ip.destination())).is_none() {
            return Err(Reason::NotVip);
        }
        let packet = ip.whole().ok_or(Reason::Truncated)?;
        let upper = parse::upper(ip, packet)?;
        let found = |flow, vip, reason, later| Found { link, ip, flow, vip, reason, later };
        let first = match upper.piece {
            Piece::Later(datagram, units) => {
                let (flow, vip) = fragments::rest(&self.around.fragments, self.view, ip, datagram, units)?;
                return self.forward(found(flow, vip, Reason::Forwarded, true));
            }
            Piece::First(datagram) => Some(datagram),
            Piece::Whole => None,
        };
        let (flow, vip) = match upper.protocol {
            TCP | UDP => {
                let cut = if first.is_some() { Reason::Fragment } else { Reason::Truncated };
                let (flow, vip) = self.transport(ip, packet, upper.protocol, upper.offset).ok_or(cut)?;
                (flow, vip.ok_or(Reason::NoRule)?)
            }
            own if own == icmp(ip) => {
                return if first.is_some() {
                    Err(Reason::Fragment)
                } else {
                    self.icmp(link, ip, packet, &upper)
                };
            }
            0 => return Err(Reason::UnsupportedProtocol),
            protocol => {
                let flow = Flow {
                    client: ip.source(),
                    client_port: 0,
                    vip: ip.destination(),
                    vip_port: 0,
                    protocol,
                };
                let vip = self.view.vip_index(&port_key(flow.vip, 0, protocol));
                (flow, vip.ok_or(Reason::UnsupportedProtocol)?)
            }
        };
        if let Some(datagram) = first {
            fragments::remember(&mut self.around.fragments, self.view, ip, datagram, &flow);
        }
        self.forward(found(flow, vip, Reason::Forwarded, false))
    }

    /// Step 3.
    fn addresses(&mut self, ip: Ip<'_>) -> Result<(), Reason> {
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

    /// Step 4.
    fn plain<'f>(&self, link: &'f [u8], ip: Ip<'f>) -> Option<Found<'f>> {
        let packet = ip.whole()?;
        let fragment = || ip.more_fragments() || ip.fragment_offset() != 0;
        let whole = !ip.is_v4() || (ip.header_len() == parse::IPV4_LEN && !fragment());
        let protocol = Some(ip.protocol()).filter(|p| whole && matches!(*p, TCP | UDP))?;
        let (flow, vip) = self.transport(ip, packet, protocol, ip.header_len())?;
        Some(Found { link, ip, flow, vip: vip?, reason: Reason::Forwarded, later: false })
    }

    /// The flow of the TCP or UDP header at `offset` and its VIP index; `None` when the header is cut.
    fn transport(
        &self,
        ip: Ip<'_>,
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

    /// ICMP of step 6, then step 9 or 10.
    fn icmp(&mut self, link: &[u8], ip: Ip<'_>, packet: &[u8], upper: &Upper) -> Result<Sent, Reason> {
        let header = packet.get(upper.offset..upper.offset + 8).ok_or(Reason::Truncated)?;
        let (echo, errors): (u8, &[u8]) = if ip.is_v4() { (8, &[3, 11, 12]) } else { (128, &[1, 2, 3, 4]) };
        match *header {
            [kind, 0, ..] if kind == echo => self.echo(link, ip, upper),
            [kind, ..] if errors.contains(&kind) => {
                let quote = &packet[upper.offset + 8..];
                let (flow, vip) = self.quoted(ip, quote).ok_or(Reason::IcmpBadQuote)?;
                self.forward(Found { link, ip, flow, vip, reason: Reason::IcmpSteered, later: false })
            }
            _ => Err(Reason::IcmpUnhandled),
        }
    }

    /// Step 9.
    fn echo(&mut self, link: &[u8], ip: Ip<'_>, upper: &Upper) -> Result<Sent, Reason> {
        if upper.extra || unanswerable(ip) {
            return Err(Reason::IcmpUnhandled);
        }
        self.token()?;
        let frame = if ip.is_v4() {
            reply::echo_reply_v4(link, ip)
        } else {
            reply::echo_reply(link, ip, upper.offset)
        };
        Ok(Sent { verdict: Verdict::Tx, reason: Reason::EchoReply, frame, counted: None })
    }

    /// Step 10: the flow whose reply an ICMP error quotes, client's side first, and its VIP index.
    fn quoted(&self, error: Ip<'_>, quote: &[u8]) -> Option<(Flow, u32)> {
        let family = if error.is_v4() { Family::V4 } else { Family::V6 };
        let ip = Ip::quoted(family, quote).filter(|ip| ip.source() == error.destination())?;
        let (protocol, offset) = if ip.is_v4() {
            (ip.fragment_offset() == 0).then_some((ip.protocol(), ip.header_len()))?
        } else {
            let upper = parse::walk(quote, Walk::Quote).ok()?;
            (upper.protocol, upper.offset)
        };
        let (vip_port, client_port) = match protocol {
            0 => return None,
            TCP | UDP => {
                let ports = quote.get(offset..offset + 4)?;
                (parse::be16(ports, 0)?, parse::be16(ports, 2)?)
            }
            _ => (0, 0),
        };
        let flow = Flow { client: ip.destination(), client_port, vip: ip.source(), vip_port, protocol };
        Some((flow, self.view.vip_index(&port_key(flow.vip, vip_port, protocol))?))
    }

    /// Steps 7, 8 and 11.
    fn forward(&mut self, found: Found<'_>) -> Result<Sent, Reason> {
        let Found { link, ip, flow, vip, reason, later } = found;
        let picked = pick(&self.config.into(), self.view, self.around.next_hops, vip, flow, self.trail)?;
        let inner_len = ip.stated_len();
        if inner_len + ENCAP_LEN as usize > picked.mtu as usize {
            if reason == Reason::IcmpSteered {
                return Err(Reason::TooBigSilent);
            }
            if ip.is_v4() && !ip.must_not_fragment() {
                return Err(Reason::TooBigNoDf);
            }
            if later || unanswerable(ip) {
                return Err(Reason::TooBigSilent);
            }
            self.token()?;
            let mtu = picked.mtu - ENCAP_LEN;
            let frame = if ip.is_v4() {
                reply::fragmentation_needed(link, ip, mtu)
            } else {
                reply::packet_too_big(link, ip, mtu)
            };
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

/// The ICMP of the packet's family.
fn icmp(ip: Ip<'_>) -> u8 {
    if ip.is_v4() { ICMP } else { ICMPV6 }
}

/// Sources that get no answer (RFC 4443 section 2.4 e, RFC 1812 section 4.3.2.7).
fn unanswerable(ip: Ip<'_>) -> bool {
    let source = ip.source();
    match source.to_ipv4_mapped() {
        Some(v4) if ip.is_v4() => matches!(v4.octets()[0], 0 | 127 | 224..),
        _ => source.is_multicast() || source.is_unspecified(),
    }
}
