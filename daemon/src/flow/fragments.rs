//! Fragments: what the gateway remembers of a first one, and how the rest finds its rule.

use std::collections::BTreeMap;

use weir_bpf::abi::{Fragment, FragmentKey, Reason};

use super::parse::{Datagram, ICMP, ICMPV6, Ip, TCP, UDP, is_extension};
use super::{Flow, View, fragments_key, port_key};

/// The map `fragments`. The kernel's is bounded and forgets what was used least lately.
pub type Fragments = BTreeMap<FragmentKey, Fragment>;

fn key(ip: Ip<'_>, datagram: Datagram) -> FragmentKey {
    let proto = if ip.is_v4() { u32::from(datagram.protocol) } else { 0 };
    FragmentKey { src: ip.source().octets(), dst: ip.destination().octets(), id: datagram.id, proto }
}

/// Remembers what a first fragment tells of the rest, unless the rest finds its rule without.
pub(super) fn remember(known: &mut Fragments, view: &impl View, ip: Ip<'_>, datagram: Datagram, flow: &Flow) {
    let direct = datagram.protocol == flow.protocol;
    let found = match flow.protocol {
        TCP | UDP => view.vip_index(&fragments_key(flow.vip, flow.protocol)).is_some(),
        _ => true,
    };
    if direct && found {
        return;
    }
    let ([a, b], [c, d]) = (flow.client_port.to_be_bytes(), flow.vip_port.to_be_bytes());
    let value = Fragment { ports: u32::from_ne_bytes([a, b, c, d]), proto: u32::from(flow.protocol) };
    known.insert(key(ip, datagram), value);
}

/// Flow and VIP index of a later fragment. A flow that its ports do not matter to has ports 0.
pub(super) fn rest(
    known: &Fragments,
    view: &impl View,
    ip: Ip<'_>,
    datagram: Datagram,
    units: u16,
) -> Result<(Flow, u32), Reason> {
    let stated = datagram.protocol;
    let flow = |client_port, vip_port, protocol| Flow {
        client: ip.source(),
        client_port,
        vip: ip.destination(),
        vip_port,
        protocol,
    };
    let plain = flow(0, 0, stated);
    match stated {
        // It would lie over a TCP header's flags (RFC 1858).
        TCP if units == 1 => return Err(Reason::Fragment),
        ICMP if ip.is_v4() => return Err(Reason::Fragment),
        ICMPV6 if !ip.is_v4() => return Err(Reason::Fragment),
        TCP | UDP => {
            if let Some(vip) = view.vip_index(&fragments_key(plain.vip, stated)) {
                return Ok((plain, vip));
            }
        }
        _ if !ip.is_v4() && is_extension(stated) => {}
        0 => return Err(Reason::UnsupportedProtocol),
        _ => {
            let vip = view.vip_index(&port_key(plain.vip, 0, stated));
            return vip.map(|vip| (plain, vip)).ok_or(Reason::UnsupportedProtocol);
        }
    }
    let first = known.get(&key(ip, datagram)).ok_or(Reason::FragmentUnknown)?;
    let [a, b, c, d] = first.ports.to_ne_bytes();
    let flow = flow(u16::from_be_bytes([a, b]), u16::from_be_bytes([c, d]), first.proto as u8);
    let vip = view.vip_index(&port_key(flow.vip, flow.vip_port, flow.protocol)).ok_or(Reason::NoRule)?;
    Ok((flow, vip))
}
