//! What the packet half must hold: bytes known by hand, round trips, and differences that name their field.

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;

use super::matcher::Seen;
use super::*;

const A: MacAddr = MacAddr(2, 0, 0, 0, 0, 1);
const B: MacAddr = MacAddr(2, 0, 0, 0, 0, 2);

fn ip6(last: u16) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last)
}

fn syn() -> Packet<Tcp> {
    Packet::eth(A, B).ipv6(ip6(1), ip6(2)).tcp(40000, 443).flags(flags::SYN)
}

fn hex_to_bytes(text: &str) -> Vec<u8> {
    let digits: Vec<char> = text.chars().filter(|c| !c.is_whitespace()).collect();
    digits.chunks(2).map(|pair| u8::from_str_radix(&pair.iter().collect::<String>(), 16).unwrap()).collect()
}

#[test]
fn udp_frame_equals_bytes_computed_independently() {
    let frame = Packet::eth(A, B).ipv6(ip6(1), ip6(2)).udp(0x1234, 53).payload(b"hi").bytes();
    let expected = hex_to_bytes(
        "020000000002 020000000001 86dd
         60000000 000a 11 40
         20010db8000000000000000000000001 20010db8000000000000000000000002
         1234 0035 000a 2993 6869",
    );
    assert_eq!(diff(&expected, &frame), None);
    assert_eq!(frame, expected);
}

#[test]
fn ipv4_header_checksum_matches_the_published_example() {
    // The header of the worked example that RFC 1071 implementations are commonly checked with.
    let expected = hex_to_bytes("4500 0073 0000 4000 4011 b861 c0a8 0001 c0a8 00c7");
    let built = Packet::bare()
        .ipv4(Ipv4Addr::new(192, 168, 0, 1), Ipv4Addr::new(192, 168, 0, 199))
        .dont_fragment()
        .total_length(0x73)
        .protocol(17)
        .bytes();
    assert_eq!(built, expected);
}

#[test]
fn tunnel_decodes_to_one_line_a_layer() {
    let inner = Packet::bare().ipv6(ip6(1), ip6(2)).tcp(40000, 443).flags(flags::SYN).bytes();
    let frame = Packet::eth(A, B)
        .service_vlan(200)
        .vlan(10)
        .priority(5)
        .ipv6(ip6(0x11), ip6(0x12))
        .flow_label(0xabcde)
        .ipv6(ip6(1), ip6(2))
        .tcp(40000, 443)
        .flags(flags::SYN)
        .bytes();
    assert_eq!(Seen::new(&frame).ip(1), Some(inner.as_slice()));
    insta::assert_snapshot!(decode(&frame).to_string(), @r"
    ethernet   dst=02:00:00:00:00:02 src=02:00:00:00:00:01 ethertype=service-vlan(0x88a8)
    vlan       tpid=0x88a8 id=200 priority=0 drop_eligible=0 ethertype=vlan(0x8100)
    vlan       tpid=0x8100 id=10 priority=5 drop_eligible=0 ethertype=ipv6(0x86dd)
    ipv6       src=2001:db8::11 dst=2001:db8::12 traffic_class=0x00 flow_label=0xabcde payload_length=60 next_header=ipv6(41) hop_limit=64
    ipv6       src=2001:db8::1 dst=2001:db8::2 traffic_class=0x00 flow_label=0x00000 payload_length=20 next_header=tcp(6) hop_limit=64
    tcp        src=40000 dst=443 flags=SYN seq=0 ack=0 window=65535 urgent=0 checksum=0xb672
    ");
}

#[test]
fn packet_too_big_decodes_with_its_quote() {
    let quoted = Packet::bare().ipv6(ip6(9), ip6(1)).tcp(443, 40000).payload(&[7; 100]).bytes();
    let frame = Packet::eth(A, B).ipv6(ip6(2), ip6(9)).packet_too_big(1360).quote(&quoted[..48]).bytes();
    let layers = decode(&frame);
    assert_eq!(layers.icmp().and_then(Icmp::mtu), Some(1360));
    // 8 bytes of TCP are too few for its header, but an ICMP error may end there.
    assert_eq!(layers.quote().unwrap().ipv6().unwrap().dst, ip6(1));
    assert_eq!(checksum_faults(&frame), []);
}

#[test]
fn right_checksums_are_accepted_and_wrong_ones_named() {
    assert_eq!(checksum_faults(&syn().payload(b"odd").bytes()), []);
    let bad = syn().wrong_checksum().payload(b"odd").bytes();
    let faults = checksum_faults(&bad);
    assert_eq!(faults.len(), 1, "{faults:?}");
    assert_eq!(faults[0].layer, "tcp");
    let v4 = Packet::eth(A, B)
        .ipv4(Ipv4Addr::LOCALHOST, Ipv4Addr::LOCALHOST)
        .wrong_checksum()
        .icmpv4(8, 0, 1)
        .wrong_checksum()
        .bytes();
    assert_eq!(checksum_faults(&v4).iter().map(|f| f.layer).collect::<Vec<_>>(), ["ipv4", "icmp"]);
    let padded = Packet::eth(A, B).ipv6(ip6(1), ip6(2)).udp(1, 2).trailer(&[9; 4]).bytes();
    assert_eq!(checksum_faults(&padded), [], "Ethernet padding is not covered");
}

#[test]
fn diff_names_the_first_differing_field() {
    let expected = syn().payload(b"hello").bytes();
    let named = |other: Vec<u8>| diff(&expected, &other).map(|d| d.to_string()).unwrap_or_default();

    assert_eq!(named(expected.clone()), "");
    let other_port =
        Packet::eth(A, B).ipv6(ip6(1), ip6(2)).tcp(40000, 80).flags(flags::SYN).payload(b"hello").bytes();
    assert_eq!(named(other_port), "tcp.dst: expected 443, got 80");
    let other_flags = syn().flags(flags::ACK | flags::SYN).payload(b"hello").bytes();
    assert_eq!(named(other_flags), "tcp.flags: expected SYN, got SYN|ACK");
    assert_eq!(named(syn().payload(b"hellO").bytes()), "tcp.checksum: expected 0x729b, got 0x929b");
    let udp = Packet::eth(A, B).ipv6(ip6(1), ip6(2)).next_header(6).payload_length(25).udp(1, 2).bytes();
    assert!(named(udp).starts_with("layer 3.kind: expected tcp, got "), "layers of another kind");
    // A reserved bit is in no field; it is a difference all the same.
    let mut reserved = expected.clone();
    reserved[14 + 40 + 12] |= 1;
    assert_eq!(named(reserved), "frame.byte 66: expected 0x50, got 0x51");
}

#[test]
fn diff_reaches_into_tunnels_and_quotes() {
    let tunnel =
        |hops| Packet::eth(A, B).ipv6(ip6(1), ip6(2)).ipv6(ip6(3), ip6(4)).hop_limit(hops).udp(1, 2).bytes();
    assert_eq!(diff(&tunnel(64), &tunnel(63)).unwrap().to_string(), "ipv6#2.hop_limit: expected 64, got 63");
    let quoting = |port| {
        let quoted = Packet::bare().ipv6(ip6(1), ip6(2)).udp(port, 53).bytes();
        Packet::eth(A, B).ipv6(ip6(1), ip6(2)).packet_too_big(1400).checksum(0).quote(&quoted).bytes()
    };
    assert_eq!(
        diff(&quoting(1000), &quoting(1001)).unwrap().to_string(),
        "quote.udp.src: expected 1000, got 1001"
    );
}

#[test]
fn cut_packets_decode_to_what_is_there() {
    let frame = syn().payload(b"hello").bytes();
    for length in 0..frame.len() {
        let layers = decode(&frame[..length]);
        assert!(
            matches!(layers.0.last(), Some(Layer::Malformed { .. })),
            "cut to {length} bytes must be reported:\n{layers}"
        );
    }
    assert!(!decode(&frame).to_string().contains("malformed"));
}

#[test]
fn matchers_say_what_does_not_fit() {
    let frame = Seen::new(&syn().payload(b"x").bytes());
    let why = |matcher: matcher::Matcher| matcher.check(&frame).err().unwrap_or_default();
    assert_eq!(why(matcher::tcp_ports(40000, 443).and(matcher::ipv6_dst(ip6(2)))), "");
    assert_eq!(why(matcher::tcp_ports(40000, 80)), "tcp.dst: expected 80, got 443");
    assert_eq!(why(matcher::udp_ports(1, 2)), "udp.src: expected 1, got no such layer");
    assert_eq!(
        why(matcher::ipv6_src(ip6(5)).or(matcher::vlans(&[7]))),
        "ipv6.src: expected 2001:db8::5, got 2001:db8::1; and vlan ids: expected [7], got []"
    );
    assert_eq!(why(matcher::any().negated()), "wanted not (any frame)");
    assert_eq!(why(matcher::payload(b"y")), "payload.byte 0: expected 0x79, got 0x78");
    assert_eq!(why(matcher::right_checksums()), "");
    assert_eq!(why(matcher::inner_exactly(&[0x60])), "expected 2 IP headers, got 1");
}

/// Any stack of headers that the builder can describe.
#[derive(Debug, Clone)]
enum Piece {
    Hop(Vec<u8>),
    Destination(Vec<u8>),
    Segments(Vec<Ipv6Addr>, u8),
    Fragment(u32, bool),
    Tunnel(Ipv6Addr, Ipv6Addr, u32, u8),
    Tunnel4(Ipv4Addr, Ipv4Addr, u8, Vec<u8>),
}

fn piece() -> impl Strategy<Value = Piece> {
    let v6 = || any::<u128>().prop_map(Ipv6Addr::from);
    let v4 = || any::<u32>().prop_map(Ipv4Addr::from);
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..40).prop_map(Piece::Hop),
        prop::collection::vec(any::<u8>(), 0..40).prop_map(Piece::Destination),
        (prop::collection::vec(v6(), 0..4), any::<u8>()).prop_map(|(s, n)| Piece::Segments(s, n)),
        (any::<u32>(), any::<bool>()).prop_map(|(id, more)| Piece::Fragment(id, more)),
        (v6(), v6(), 0u32..1 << 20, any::<u8>()).prop_map(|(a, b, f, c)| Piece::Tunnel(a, b, f, c)),
        (v4(), v4(), any::<u8>(), prop::collection::vec(any::<u8>(), 0..=40))
            .prop_map(|(a, b, t, o)| Piece::Tunnel4(a, b, t, o)),
    ]
}

#[derive(Debug, Clone)]
enum End {
    Tcp(u16, u16, u8, u32, Vec<u8>),
    Udp(u16, u16),
    Echo(u16, u16),
    Nothing,
}

fn end() -> impl Strategy<Value = End> {
    prop_oneof![
        (any::<u16>(), any::<u16>(), any::<u8>(), any::<u32>(), prop::collection::vec(any::<u8>(), 0..=40))
            .prop_map(|(s, d, f, q, o)| End::Tcp(s, d, f, q, o)),
        (any::<u16>(), any::<u16>()).prop_map(|(s, d)| End::Udp(s, d)),
        (any::<u16>(), any::<u16>()).prop_map(|(i, s)| End::Echo(i, s)),
        Just(End::Nothing),
    ]
}

/// The builder's type changes with each layer; only its last state matters here.
fn describe(tags: &[u16], pieces: &[Piece], end: &End, data: &[u8], trailer: &[u8]) -> Packet<Bare> {
    let mut packet = Packet::eth(A, B).payload(&[]);
    for id in tags {
        packet = packet.vlan(*id).payload(&[]);
    }
    packet = packet.ipv6(ip6(1), ip6(2)).payload(&[]);
    for piece in pieces {
        packet = match piece {
            Piece::Hop(options) => packet.hop_by_hop(options).payload(&[]),
            Piece::Destination(options) => packet.destination_options(options).payload(&[]),
            Piece::Segments(segments, left) => {
                packet.routing(Routing::segment_routing(segments, *left)).payload(&[])
            }
            Piece::Fragment(id, more) => packet.fragment(*id, 0, *more).payload(&[]),
            Piece::Tunnel(src, dst, label, class) => {
                packet.ipv6(*src, *dst).flow_label(*label).traffic_class(*class).payload(&[])
            }
            Piece::Tunnel4(src, dst, tos, options) => {
                packet.ipv4(*src, *dst).tos(*tos).options(options).payload(&[])
            }
        };
    }
    let packet = match end {
        End::Tcp(src, dst, bits, seq, options) => {
            packet.tcp(*src, *dst).flags(*bits).seq(*seq).options(options).payload(data)
        }
        End::Udp(src, dst) => packet.udp(*src, *dst).payload(data),
        End::Echo(identifier, sequence) => packet.echo_request(*identifier, *sequence).payload(data),
        End::Nothing => packet.payload(data),
    };
    packet.trailer(trailer)
}

proptest! {
    #[test]
    fn what_is_built_decodes_to_what_was_described(
        tags in prop::collection::vec(0u16..4096, 0..3),
        pieces in prop::collection::vec(piece(), 0..5),
        end in end(),
        data in prop::collection::vec(any::<u8>(), 0..64),
        trailer in prop::collection::vec(any::<u8>(), 0..8),
    ) {
        let packet = describe(&tags, &pieces, &end, &data, &trailer);
        let bytes = packet.bytes();
        let layers = decode(&bytes);
        prop_assert_eq!(diff_layers(&packet.layers(), &layers), None);
        prop_assert_eq!(packet.layers(), layers);
        prop_assert_eq!(checksum_faults(&bytes), vec![]);
    }

    #[test]
    fn decoding_takes_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = decode(&bytes).to_string();
        let _ = decode_ip(&bytes).to_string();
        let _ = checksum_faults(&bytes);
    }
}
