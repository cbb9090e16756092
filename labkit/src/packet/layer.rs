//! What a packet is made of: a list of layers, each shown on one line.

use std::fmt;

use super::extension::{Fragment, Options, OptionsKind, Routing};
use super::header::{Ethernet, Fields, Icmp, IcmpVersion, Ipv4, Ipv6, Tcp, Udp, Vlan};

/// How many bytes of a payload `Display` shows.
const SHOWN: usize = 32;

/// One layer of a packet.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "each variant is the header it names")]
pub enum Layer {
    Ethernet(Ethernet),
    Vlan(Vlan),
    Ipv6(Ipv6),
    Ipv4(Ipv4),
    Options(Options),
    Routing(Routing),
    Fragment(Fragment),
    Tcp(Tcp),
    Udp(Udp),
    Icmp(Icmp),
    /// The packet that an ICMP error quotes, as far as it is there.
    Quote(Layers),
    /// Bytes that nothing here reads further.
    Payload(Vec<u8>),
    /// Bytes of the frame beyond what the IP header counts.
    Trailer(Vec<u8>),
    /// A header that is cut short or contradicts itself, and the bytes in its place.
    Malformed {
        what: String,
        bytes: Vec<u8>,
    },
}

impl Layer {
    /// The layer's name as it stands in a path such as `tcp.dst`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Ethernet(_) => "ethernet",
            Self::Vlan(_) => "vlan",
            Self::Ipv6(_) => "ipv6",
            Self::Ipv4(_) => "ipv4",
            Self::Options(Options { kind: OptionsKind::HopByHop, .. }) => "hop_by_hop",
            Self::Options(Options { kind: OptionsKind::Destination, .. }) => "destination_options",
            Self::Routing(_) => "routing",
            Self::Fragment(_) => "fragment",
            Self::Tcp(_) => "tcp",
            Self::Udp(_) => "udp",
            Self::Icmp(Icmp { version: IcmpVersion::V6, .. }) => "icmpv6",
            Self::Icmp(_) => "icmp",
            Self::Quote(_) => "quote",
            Self::Payload(_) => "payload",
            Self::Trailer(_) => "trailer",
            Self::Malformed { .. } => "malformed",
        }
    }

    /// The layer's fields in wire order; a quote has none of its own.
    pub fn fields(&self) -> Fields {
        match self {
            Self::Ethernet(h) => h.fields(),
            Self::Vlan(h) => h.fields(),
            Self::Ipv6(h) => h.fields(),
            Self::Ipv4(h) => h.fields(),
            Self::Options(h) => h.fields(),
            Self::Routing(h) => h.fields(),
            Self::Fragment(h) => h.fields(),
            Self::Tcp(h) => h.fields(),
            Self::Udp(h) => h.fields(),
            Self::Icmp(h) => h.fields(),
            Self::Quote(_) => Vec::new(),
            Self::Payload(bytes) | Self::Trailer(bytes) => {
                vec![("length", bytes.len().to_string()), ("bytes", dump(bytes))]
            }
            Self::Malformed { what, bytes } => {
                vec![("what", what.clone()), ("length", bytes.len().to_string()), ("bytes", dump(bytes))]
            }
        }
    }
}

/// A packet as a list of layers, outermost first. `Display` writes one line a layer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Layers(pub Vec<Layer>);

macro_rules! first {
    ($(#[$doc:meta])* $name:ident, $variant:ident, $header:ty) => {
        $(#[$doc])*
        pub fn $name(&self) -> Option<&$header> {
            self.0.iter().find_map(|layer| match layer {
                Layer::$variant(header) => Some(header),
                _ => None,
            })
        }
    };
}

impl Layers {
    first!(
        /// The Ethernet header.
        ethernet, Ethernet, Ethernet
    );
    first!(
        /// The outermost VLAN tag.
        vlan, Vlan, Vlan
    );
    first!(
        /// The outermost IPv6 header.
        ipv6, Ipv6, Ipv6
    );
    first!(
        /// The outermost IPv4 header.
        ipv4, Ipv4, Ipv4
    );
    first!(
        /// The fragment header.
        fragment, Fragment, Fragment
    );
    first!(
        /// The TCP header, inside a tunnel or not.
        tcp, Tcp, Tcp
    );
    first!(
        /// The UDP header, inside a tunnel or not.
        udp, Udp, Udp
    );
    first!(
        /// The ICMP header of either version.
        icmp, Icmp, Icmp
    );
    first!(
        /// The packet quoted by an ICMP error.
        quote, Quote, Layers
    );

    /// The data after the last header, empty if there is none.
    pub fn payload(&self) -> &[u8] {
        self.0
            .iter()
            .find_map(|layer| match layer {
                Layer::Payload(bytes) => Some(bytes.as_slice()),
                _ => None,
            })
            .unwrap_or_default()
    }

    /// All VLAN tags, outermost first.
    pub fn vlans(&self) -> impl Iterator<Item = &Vlan> {
        self.0.iter().filter_map(|layer| match layer {
            Layer::Vlan(tag) => Some(tag),
            _ => None,
        })
    }

    /// The innermost IPv6 header: the same as [`Layers::ipv6`] outside tunnels.
    pub fn inner_ipv6(&self) -> Option<&Ipv6> {
        self.0.iter().rev().find_map(|layer| match layer {
            Layer::Ipv6(header) => Some(header),
            _ => None,
        })
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, indent: usize) -> fmt::Result {
        for (n, layer) in self.0.iter().enumerate() {
            if n > 0 {
                writeln!(f)?;
            }
            write!(f, "{:indent$}{:<width$}", "", layer.name(), width = 10 - indent.min(4))?;
            for (field, value) in layer.fields() {
                write!(f, " {field}={value}")?;
            }
            if let Layer::Quote(inner) = layer {
                writeln!(f)?;
                inner.write(f, indent + 2)?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Layers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 0)
    }
}

/// The first bytes in hexadecimal and, where they print, as text.
fn dump(bytes: &[u8]) -> String {
    let shown = &bytes[..bytes.len().min(SHOWN)];
    let text: String =
        shown.iter().map(|b| if b.is_ascii_graphic() || *b == b' ' { *b as char } else { '.' }).collect();
    let more = if bytes.len() > SHOWN { "…" } else { "" };
    format!("{}{more} |{text}{more}|", super::header::hex(shown))
}
