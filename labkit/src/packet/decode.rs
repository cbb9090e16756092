//! From bytes to layers. Never fails: what cannot be read becomes a `Malformed` or `Payload` layer.

use super::extension::{Fragment, Options, OptionsKind, Routing};
use super::header::{Ethernet, Icmp, IcmpVersion, Ipv4, Ipv6, Tcp, Udp, Vlan};
use super::layer::{Layer, Layers};
use super::number::{ethertype, protocol};

/// Decodes a frame that starts with its Ethernet header.
pub fn decode(frame: &[u8]) -> Layers {
    Layers(locate(frame).into_iter().map(|(_, layer)| layer).collect())
}

/// Decodes a packet that starts with its IP header.
pub fn decode_ip(packet: &[u8]) -> Layers {
    let mut decoder = Decoder::new(packet, Cut::Reported);
    decoder.ip_by_version();
    decoder.finish()
}

/// Layers of a frame with the offset at which each starts.
pub(super) fn locate(frame: &[u8]) -> Vec<(usize, Layer)> {
    let mut decoder = Decoder::new(frame, Cut::Reported);
    decoder.ethernet();
    decoder.close();
    decoder.layers
}

/// What a packet shorter than its IP header says means: an error, or (in a quote) nothing unusual.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cut {
    Reported,
    Usual,
}

struct Decoder<'a> {
    bytes: &'a [u8],
    at: usize,
    /// End of what the innermost IP header counts as its own.
    end: usize,
    cut: Cut,
    layers: Vec<(usize, Layer)>,
    /// Starts of the bytes beyond each IP header's end, innermost last, each with its end.
    trailers: Vec<(usize, usize)>,
    /// What the IP headers promised and the frame does not hold.
    missing: Option<String>,
}

impl<'a> Decoder<'a> {
    fn new(bytes: &'a [u8], cut: Cut) -> Self {
        Self { bytes, at: 0, end: bytes.len(), cut, layers: Vec::new(), trailers: Vec::new(), missing: None }
    }

    fn rest(&self) -> &'a [u8] {
        &self.bytes[self.at..self.end]
    }

    fn push(&mut self, layer: Layer, length: usize) {
        self.layers.push((self.at, layer));
        self.at += length;
    }

    /// Ends with the remaining bytes as payload.
    fn payload(&mut self) {
        if !self.rest().is_empty() {
            self.push(Layer::Payload(self.rest().to_vec()), self.rest().len());
        }
    }

    fn malformed(&mut self, what: &str) {
        let bytes = self.rest().to_vec();
        if self.cut == Cut::Usual {
            self.payload();
        } else {
            self.push(Layer::Malformed { what: what.to_owned(), bytes }, self.rest().len());
        }
    }

    /// Adds trailers and what is missing, once the headers have been walked.
    fn close(&mut self) {
        while let Some((start, end)) = self.trailers.pop() {
            self.layers.push((start, Layer::Trailer(self.bytes[start..end].to_vec())));
        }
        if let Some(what) = self.missing.take().filter(|_| self.cut == Cut::Reported) {
            self.layers.push((self.bytes.len(), Layer::Malformed { what, bytes: Vec::new() }));
        }
    }

    fn finish(mut self) -> Layers {
        self.close();
        Layers(self.layers.into_iter().map(|(_, layer)| layer).collect())
    }

    fn ethernet(&mut self) {
        let Some((header, length)) = Ethernet::read(self.rest()) else {
            return self.malformed("ethernet header cut short");
        };
        let mut kind = header.ethertype;
        self.push(Layer::Ethernet(header), length);
        while matches!(kind, ethertype::VLAN | ethertype::SERVICE_VLAN) {
            let Some((tag, length)) = Vlan::read(kind, self.rest()) else {
                return self.malformed("vlan tag cut short");
            };
            kind = tag.ethertype;
            self.push(Layer::Vlan(tag), length);
        }
        match kind {
            ethertype::IPV6 => self.ipv6(),
            ethertype::IPV4 => self.ipv4(),
            _ => self.payload(),
        }
    }

    fn ip_by_version(&mut self) {
        match self.rest().first().map(|b| b >> 4) {
            Some(6) => self.ipv6(),
            Some(4) => self.ipv4(),
            _ => self.malformed("neither IPv4 nor IPv6"),
        }
    }

    /// Narrows `end` to what an IP header counts, `length` bytes from `start`.
    fn bound(&mut self, start: usize, length: usize, name: &str) {
        let end = start + length;
        if end < self.end {
            self.trailers.push((end, self.end));
            self.end = end;
        } else if end > self.end {
            let missing = end - self.end;
            self.missing.get_or_insert(format!("{name} length counts {missing} bytes more than there are"));
        }
    }

    fn ipv6(&mut self) {
        let Some((header, length)) = Ipv6::read(self.rest()) else {
            return self.malformed("ipv6 header cut short or of another version");
        };
        let (next, payload) = (header.next_header, usize::from(header.payload_length));
        self.push(Layer::Ipv6(header), length);
        self.bound(self.at, payload, "ipv6");
        self.after(next);
    }

    fn ipv4(&mut self) {
        let start = self.at;
        let Some((header, length)) = Ipv4::read(self.rest()) else {
            return self.malformed("ipv4 header cut short or of another version");
        };
        let (next, later) = (header.protocol, header.fragment_offset > 0);
        let total = usize::from(header.total_length).max(length);
        self.push(Layer::Ipv4(header), length);
        self.bound(start, total, "ipv4");
        if later { self.payload() } else { self.after(next) }
    }

    fn after(&mut self, mut next: u8) {
        loop {
            let rest = self.rest();
            let (layer, length) = match next {
                protocol::HOP_BY_HOP | protocol::DESTINATION_OPTIONS => {
                    let kind = if next == protocol::HOP_BY_HOP {
                        OptionsKind::HopByHop
                    } else {
                        OptionsKind::Destination
                    };
                    let Some((header, length)) = Options::read(kind, rest) else {
                        return self.malformed("options header cut short");
                    };
                    next = header.next_header;
                    (Layer::Options(header), length)
                }
                protocol::ROUTING => {
                    let Some((header, length)) = Routing::read(rest) else {
                        return self.malformed("routing header cut short");
                    };
                    next = header.next_header;
                    (Layer::Routing(header), length)
                }
                protocol::FRAGMENT => {
                    let Some((header, length)) = Fragment::read(rest) else {
                        return self.malformed("fragment header cut short");
                    };
                    next = header.next_header;
                    let later = header.offset > 0;
                    self.push(Layer::Fragment(header), length);
                    if later {
                        return self.payload();
                    }
                    continue;
                }
                protocol::IPV6 => return self.ipv6(),
                protocol::IPV4 => return self.ipv4(),
                _ => return self.transport(next),
            };
            self.push(layer, length);
        }
    }

    fn transport(&mut self, kind: u8) {
        let rest = self.rest();
        let read = match kind {
            protocol::TCP => Tcp::read(rest).map(|(h, n)| (Layer::Tcp(h), n)),
            protocol::UDP => Udp::read(rest).map(|(h, n)| (Layer::Udp(h), n)),
            protocol::ICMPV6 => Icmp::read(IcmpVersion::V6, rest).map(|(h, n)| (Layer::Icmp(h), n)),
            protocol::ICMPV4 => Icmp::read(IcmpVersion::V4, rest).map(|(h, n)| (Layer::Icmp(h), n)),
            _ => return self.payload(),
        };
        let Some((layer, length)) = read else {
            return self.malformed("transport header cut short");
        };
        let error = matches!(&layer, Layer::Icmp(icmp) if icmp.is_error());
        self.push(layer, length);
        if error && !self.rest().is_empty() {
            let quote = quote(self.rest());
            self.push(Layer::Quote(quote), self.rest().len());
        } else {
            self.payload();
        }
    }
}

/// Decodes what an ICMP error quotes: cut anywhere, which is no fault.
pub(super) fn quote(bytes: &[u8]) -> Layers {
    let mut decoder = Decoder::new(bytes, Cut::Usual);
    decoder.ip_by_version();
    decoder.finish()
}
