//! What an expectation may ask of a frame: small conditions that say why they do not hold, and combine.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use pnet_base::MacAddr;

use super::checksum::checksum_faults;
use super::decode::locate;
use super::diff::diff;
use super::layer::{Layer, Layers};
use super::{Difference, Icmp, Ipv4, Ipv6, Tcp, Udp};

/// A frame, decoded once for all matchers that look at it.
#[derive(Debug, Clone)]
pub struct Seen {
    bytes: Vec<u8>,
    layers: Layers,
    offsets: Vec<usize>,
}

impl Seen {
    /// Decodes a frame.
    pub fn new(frame: &[u8]) -> Self {
        let (offsets, layers) = locate(frame).into_iter().unzip();
        Self { bytes: frame.to_vec(), layers: Layers(layers), offsets }
    }

    /// The frame's bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The frame's layers.
    pub fn layers(&self) -> &Layers {
        &self.layers
    }

    /// Bytes from the `n`-th IP header on (0 is the outermost), without trailers.
    pub fn ip(&self, n: usize) -> Option<&[u8]> {
        let is_ip = |layer: &Layer| matches!(layer, Layer::Ipv6(_) | Layer::Ipv4(_));
        let at = self.layers.0.iter().enumerate().filter(|(_, layer)| is_ip(layer)).nth(n)?.0;
        let end = self.layers.0.iter().position(|layer| matches!(layer, Layer::Trailer(_)));
        self.bytes.get(self.offsets[at]..end.map_or(self.bytes.len(), |n| self.offsets[n]))
    }
}

type Check = dyn Fn(&Seen) -> Result<(), String> + Send + Sync;

/// A condition on a frame; `Display` says it in words.
#[derive(Clone)]
pub struct Matcher {
    wanted: String,
    check: Arc<Check>,
}

impl fmt::Debug for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Matcher({})", self.wanted)
    }
}

impl fmt::Display for Matcher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.wanted)
    }
}

impl Matcher {
    /// A condition of one's own: `wanted` says it, the function says in its error why a frame does not meet it.
    pub fn new(
        wanted: impl Into<String>,
        check: impl Fn(&Seen) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        Self { wanted: wanted.into(), check: Arc::new(check) }
    }

    /// `Err` says the first thing that does not fit.
    pub fn check(&self, seen: &Seen) -> Result<(), String> {
        (self.check)(seen)
    }

    /// Both conditions; the first that fails is reported.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self::new(format!("{self} and {other}"), move |seen| {
            self.check(seen).and_then(|()| other.check(seen))
        })
    }

    /// Either condition.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self::new(format!("({self} or {other})"), move |seen| {
            self.check(seen)
                .or_else(|first| other.check(seen).map_err(|second| format!("{first}; and {second}")))
        })
    }

    /// The condition must not hold.
    #[must_use]
    pub fn negated(self) -> Self {
        let wanted = format!("not ({self})");
        Self::new(wanted.clone(), move |seen| match self.check(seen) {
            Ok(()) => Err(format!("wanted {wanted}")),
            Err(_) => Ok(()),
        })
    }
}

fn equal<T: PartialEq + fmt::Display>(path: &str, expected: &T, actual: Option<T>) -> Result<(), String> {
    match actual {
        Some(actual) if actual == *expected => Ok(()),
        Some(actual) => Err(format!("{path}: expected {expected}, got {actual}")),
        None => Err(format!("{path}: expected {expected}, got no such layer")),
    }
}

fn no_difference(difference: Option<Difference>) -> Result<(), String> {
    difference.map_or(Ok(()), |difference| Err(difference.to_string()))
}

/// Any frame.
pub fn any() -> Matcher {
    Matcher::new("any frame", |_| Ok(()))
}

/// Exactly these bytes.
pub fn exactly(frame: &[u8]) -> Matcher {
    let expected = frame.to_vec();
    Matcher::new(format!("exactly the given frame of {} bytes", frame.len()), move |seen| {
        no_difference(diff(&expected, seen.bytes()))
    })
}

/// Exactly these bytes from the outermost IP header on, whatever the link layer.
pub fn ip_exactly(packet: &[u8]) -> Matcher {
    nth_ip_exactly(0, packet, "the given IP packet")
}

/// Exactly these bytes from the second IP header on: the packet inside a tunnel, unchanged.
pub fn inner_exactly(packet: &[u8]) -> Matcher {
    nth_ip_exactly(1, packet, "the given IP packet inside a tunnel")
}

fn nth_ip_exactly(n: usize, packet: &[u8], what: &str) -> Matcher {
    let expected = packet.to_vec();
    Matcher::new(format!("{what}, {} bytes", packet.len()), move |seen| {
        let Some(actual) = seen.ip(n) else {
            return Err(format!("expected {} IP headers, got {n}", n + 1));
        };
        // The diff wants frames: both get the same neutral link header.
        let framed = |packet: &[u8]| {
            let kind: [u8; 2] =
                if packet.first().is_some_and(|b| b >> 4 == 4) { [8, 0] } else { [0x86, 0xdd] };
            [&[0; 12], kind.as_slice(), packet].concat()
        };
        no_difference(diff(&framed(&expected), &framed(actual)))
    })
}

/// Destination MAC address.
pub fn ethernet_dst(mac: MacAddr) -> Matcher {
    Matcher::new(format!("ethernet.dst = {mac}"), move |seen| {
        equal("ethernet.dst", &mac, seen.layers().ethernet().map(|h| h.dst))
    })
}

/// Identifiers of all VLAN tags, outermost first; an empty list asks for an untagged frame.
pub fn vlans(ids: &[u16]) -> Matcher {
    let expected = ids.to_vec();
    Matcher::new(format!("vlan ids = {ids:?}"), move |seen| {
        let actual: Vec<u16> = seen.layers().vlans().map(|tag| tag.id).collect();
        if actual == expected {
            Ok(())
        } else {
            Err(format!("vlan ids: expected {expected:?}, got {actual:?}"))
        }
    })
}

/// A condition on the outermost IPv6 header.
pub fn ipv6(wanted: &str, holds: impl Fn(&Ipv6) -> bool + Send + Sync + 'static) -> Matcher {
    of_layer("ipv6", wanted, Layers::ipv6, holds)
}

/// A condition on the innermost IPv6 header.
pub fn inner_ipv6(wanted: &str, holds: impl Fn(&Ipv6) -> bool + Send + Sync + 'static) -> Matcher {
    of_layer("inner ipv6", wanted, Layers::inner_ipv6, holds)
}

/// A condition on the outermost IPv4 header.
pub fn ipv4(wanted: &str, holds: impl Fn(&Ipv4) -> bool + Send + Sync + 'static) -> Matcher {
    of_layer("ipv4", wanted, Layers::ipv4, holds)
}

/// A condition on the TCP header.
pub fn tcp(wanted: &str, holds: impl Fn(&Tcp) -> bool + Send + Sync + 'static) -> Matcher {
    of_layer("tcp", wanted, Layers::tcp, holds)
}

/// A condition on the UDP header.
pub fn udp(wanted: &str, holds: impl Fn(&Udp) -> bool + Send + Sync + 'static) -> Matcher {
    of_layer("udp", wanted, Layers::udp, holds)
}

/// A condition on the ICMP header of either version.
pub fn icmp(wanted: &str, holds: impl Fn(&Icmp) -> bool + Send + Sync + 'static) -> Matcher {
    of_layer("icmp", wanted, Layers::icmp, holds)
}

fn of_layer<H: fmt::Debug + 'static>(
    name: &'static str,
    wanted: &str,
    get: fn(&Layers) -> Option<&H>,
    holds: impl Fn(&H) -> bool + Send + Sync + 'static,
) -> Matcher {
    let wanted = format!("{name}: {wanted}");
    Matcher::new(wanted.clone(), move |seen| match get(seen.layers()) {
        Some(header) if holds(header) => Ok(()),
        Some(header) => Err(format!("wanted {wanted}; got {header:?}")),
        None => Err(format!("wanted {wanted}; got no such layer")),
    })
}

/// Outermost IPv6 source address.
pub fn ipv6_src(address: Ipv6Addr) -> Matcher {
    Matcher::new(format!("ipv6.src = {address}"), move |seen| {
        equal("ipv6.src", &address, seen.layers().ipv6().map(|h| h.src))
    })
}

/// Outermost IPv6 destination address: the SID of a tunnelled packet.
pub fn ipv6_dst(address: Ipv6Addr) -> Matcher {
    Matcher::new(format!("ipv6.dst = {address}"), move |seen| {
        equal("ipv6.dst", &address, seen.layers().ipv6().map(|h| h.dst))
    })
}

/// Innermost IPv6 source address.
pub fn inner_src(address: Ipv6Addr) -> Matcher {
    Matcher::new(format!("inner ipv6.src = {address}"), move |seen| {
        equal("inner ipv6.src", &address, seen.layers().inner_ipv6().map(|h| h.src))
    })
}

/// Innermost IPv6 destination address.
pub fn inner_dst(address: Ipv6Addr) -> Matcher {
    Matcher::new(format!("inner ipv6.dst = {address}"), move |seen| {
        equal("inner ipv6.dst", &address, seen.layers().inner_ipv6().map(|h| h.dst))
    })
}

/// Outermost IPv4 source address.
pub fn ipv4_src(address: Ipv4Addr) -> Matcher {
    Matcher::new(format!("ipv4.src = {address}"), move |seen| {
        equal("ipv4.src", &address, seen.layers().ipv4().map(|h| h.src))
    })
}

/// Outermost IPv4 destination address.
pub fn ipv4_dst(address: Ipv4Addr) -> Matcher {
    Matcher::new(format!("ipv4.dst = {address}"), move |seen| {
        equal("ipv4.dst", &address, seen.layers().ipv4().map(|h| h.dst))
    })
}

/// TCP ports, source and destination.
pub fn tcp_ports(src: u16, dst: u16) -> Matcher {
    Matcher::new(format!("tcp ports = {src} to {dst}"), move |seen| {
        equal("tcp.src", &src, seen.layers().tcp().map(|h| h.src))?;
        equal("tcp.dst", &dst, seen.layers().tcp().map(|h| h.dst))
    })
}

/// UDP ports, source and destination.
pub fn udp_ports(src: u16, dst: u16) -> Matcher {
    Matcher::new(format!("udp ports = {src} to {dst}"), move |seen| {
        equal("udp.src", &src, seen.layers().udp().map(|h| h.src))?;
        equal("udp.dst", &dst, seen.layers().udp().map(|h| h.dst))
    })
}

/// ICMP type, of either version.
pub fn icmp_type(kind: u8) -> Matcher {
    Matcher::new(format!("icmp.type = {kind}"), move |seen| {
        equal("icmp.type", &kind, seen.layers().icmp().map(|h| h.kind))
    })
}

/// An ICMPv6 Packet Too Big with this MTU.
pub fn packet_too_big(mtu: u32) -> Matcher {
    Matcher::new(format!("packet too big, mtu = {mtu}"), move |seen| {
        equal("icmp.type", &2, seen.layers().icmp().map(|h| h.kind))?;
        equal("icmp.mtu", &mtu, seen.layers().icmp().and_then(Icmp::mtu))
    })
}

/// The data after the last header.
pub fn payload(bytes: &[u8]) -> Matcher {
    let expected = bytes.to_vec();
    Matcher::new(format!("payload of {} bytes", bytes.len()), move |seen| {
        let actual = seen.layers().payload();
        no_difference(super::diff_layers(
            &Layers(vec![Layer::Payload(expected.clone())]),
            &Layers(vec![Layer::Payload(actual.to_vec())]),
        ))
    })
}

/// All checksums are right.
pub fn right_checksums() -> Matcher {
    Matcher::new("right checksums", |seen| match checksum_faults(seen.bytes()).first() {
        None => Ok(()),
        Some(fault) => Err(fault.to_string()),
    })
}
