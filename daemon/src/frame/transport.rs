//! TCP, UDP and ICMP for people.

use etherparse::{TcpHeaderSlice, TcpOptionElement, UdpHeaderSlice};

use super::decode::{Decoder, Pseudo, be16, checked, transport_checksum};

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;

/// Decodes a segment; of a fragment, or of a packet that was cut, the checksum cannot be told.
pub(super) fn decode(d: &mut Decoder, protocol: u8, rest: &[u8], pseudo: Pseudo<'_>, fragment: bool) {
    let checkable = !d.cut && !fragment;
    let sum = |field: usize, pseudo: Option<Pseudo<'_>>| {
        if checkable { transport_checksum(pseudo, protocol, rest, field) } else { None }
    };
    match protocol {
        TCP => tcp(d, rest, sum(16, Some(pseudo))),
        UDP if rest.len() >= 8 => udp(d, rest, sum(6, Some(pseudo))),
        ICMP | ICMPV6 if rest.len() >= 8 => {
            let expected = sum(2, (protocol == ICMPV6).then_some(pseudo));
            icmp(d, protocol, rest, expected);
        }
        UDP => ports_only(d, "UDP", rest),
        ICMP | ICMPV6 => d.short("ICMP", rest),
        _ => d.payload(rest),
    }
}

/// A quote may end right behind the ports.
fn ports_only(d: &mut Decoder, name: &str, rest: &[u8]) {
    if rest.len() < 4 {
        return d.short(name, rest);
    }
    d.push(
        name,
        vec![
            ("source port", be16(rest, 0).to_string()),
            ("destination port", be16(rest, 2).to_string()),
            ("header", format!("cut after {} bytes", rest.len())),
        ],
    );
}

fn tcp(d: &mut Decoder, rest: &[u8], expected: Option<u16>) {
    let Ok(header) = TcpHeaderSlice::from_slice(rest) else { return ports_only(d, "TCP", rest) };
    let flags = [
        (header.cwr(), "CWR"),
        (header.ece(), "ECE"),
        (header.urg(), "URG"),
        (header.ack(), "ACK"),
        (header.psh(), "PSH"),
        (header.rst(), "RST"),
        (header.syn(), "SYN"),
        (header.fin(), "FIN"),
    ];
    let flags: Vec<&str> = flags.iter().filter(|(set, _)| *set).map(|(_, name)| *name).collect();
    let mut fields = vec![
        ("source port", header.source_port().to_string()),
        ("destination port", header.destination_port().to_string()),
        ("sequence", header.sequence_number().to_string()),
        ("acknowledgement", header.acknowledgment_number().to_string()),
        ("header length", header.slice().len().to_string()),
        ("flags", if flags.is_empty() { "none".into() } else { flags.join(" ") }),
        ("window", header.window_size().to_string()),
        ("checksum", checked(header.checksum(), expected)),
        ("urgent pointer", header.urgent_pointer().to_string()),
    ];
    let options: Vec<String> = header.options_iterator().map(|o| option(&o)).collect();
    if !options.is_empty() {
        fields.push(("options", options.join(", ")));
    }
    d.push("TCP", fields);
    d.payload(&rest[header.slice().len()..]);
}

fn option<E: std::fmt::Display>(option: &Result<TcpOptionElement, E>) -> String {
    match option {
        Ok(TcpOptionElement::Noop) => "no-op".into(),
        Ok(TcpOptionElement::MaximumSegmentSize(size)) => format!("maximum segment size {size}"),
        Ok(TcpOptionElement::WindowScale(scale)) => format!("window scale {scale}"),
        Ok(TcpOptionElement::SelectiveAcknowledgementPermitted) => "SACK permitted".into(),
        Ok(TcpOptionElement::SelectiveAcknowledgement(first, more)) => {
            let blocks = std::iter::once(*first).chain(more.iter().copied().flatten());
            format!("SACK {}", blocks.map(|(a, b)| format!("{a}–{b}")).collect::<Vec<_>>().join(" "))
        }
        Ok(TcpOptionElement::Timestamp(value, echo)) => format!("timestamp {value} echo {echo}"),
        Err(error) => format!("unread ({error})"),
    }
}

fn udp(d: &mut Decoder, rest: &[u8], expected: Option<u16>) {
    let Ok(header) = UdpHeaderSlice::from_slice(rest) else { return ports_only(d, "UDP", rest) };
    // What would be 0 is sent as all ones (RFC 768).
    let expected = expected.map(|sum| if sum == 0 { 0xffff } else { sum });
    let checksum = match header.checksum() {
        0 => "0x0000 (none)".into(),
        found => checked(found, expected),
    };
    d.push(
        "UDP",
        vec![
            ("source port", header.source_port().to_string()),
            ("destination port", header.destination_port().to_string()),
            ("length", header.length().to_string()),
            ("checksum", checksum),
        ],
    );
    d.payload(&rest[8..]);
}

fn icmp(d: &mut Decoder, protocol: u8, rest: &[u8], expected: Option<u16>) {
    let (kind, code) = (rest[0], rest[1]);
    let meaning = meaning(protocol, kind, code);
    let mut fields = vec![
        ("type", format!("{kind} ({meaning})")),
        ("code", code.to_string()),
        ("checksum", checked(be16(rest, 2), expected)),
    ];
    match (protocol, kind, code) {
        (ICMPV6, 2, _) => {
            let mtu = u32::from(be16(rest, 4)) << 16 | u32::from(be16(rest, 6));
            fields.push(("MTU", mtu.to_string()));
        }
        (ICMP, 3, 4) => fields.push(("MTU", be16(rest, 6).to_string())),
        (ICMPV6, 128 | 129, _) | (ICMP, 0 | 8, _) => {
            fields.push(("identifier", be16(rest, 4).to_string()));
            fields.push(("sequence", be16(rest, 6).to_string()));
        }
        _ => fields.push(("rest of header", super::decode::hex(&rest[4..8]))),
    }
    d.push(if protocol == ICMP { "ICMP" } else { "ICMPv6" }, fields);
    let error = matches!((protocol, kind), (ICMPV6, 1..=4) | (ICMP, 3 | 4 | 5 | 11 | 12));
    if error && !d.quoting() { d.quote(&rest[8..]) } else { d.payload(&rest[8..]) }
}

/// Names of RFC 4443 and RFC 792.
fn meaning(protocol: u8, kind: u8, code: u8) -> &'static str {
    match (protocol, kind, code) {
        (ICMP, 3, 4) => "fragmentation needed",
        (ICMPV6, 1, _) | (ICMP, 3, _) => "destination unreachable",
        (ICMPV6, 2, _) => "Packet Too Big",
        (ICMPV6, 3, _) | (ICMP, 11, _) => "time exceeded",
        (ICMPV6, 4, _) | (ICMP, 12, _) => "parameter problem",
        (ICMPV6, 128, _) | (ICMP, 8, _) => "echo request",
        (ICMPV6, 129, _) | (ICMP, 0, _) => "echo reply",
        (ICMPV6, 133, _) => "router solicitation",
        (ICMPV6, 134, _) => "router advertisement",
        (ICMPV6, 135, _) => "neighbour solicitation",
        (ICMPV6, 136, _) => "neighbour advertisement",
        (ICMP, 5, _) => "redirect",
        _ => "unnamed",
    }
}
