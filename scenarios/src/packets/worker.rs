//! The worker's packet cases: frames that meet a small node's tables, and all that must come of each.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use anyhow::Context as _;
use weir::config::WorkerLimits;
use weir::worker::apply::{Tables as _, apply};
use weir::worker::image::{Facts, Image};
use weir::worker::programs::TestRig;
use weir_bpf::native_worker::{self, Tables};
use weir_bpf::worker_abi::{
    Binding, Config, Counter, Endpoint, Flag, GATEWAYS, Kind, MARK, OWN_ADDRESS, OWN_SID, Params, PortKey,
    Prefix, Reason, Reply, SidKey, SourceKey,
};

use super::build::{
    self, ACK, FRAGMENT, ICMPV6, OPTIONS, ROUTING, SYN, TCP, data, ethernet, frame, ip, tagged,
};
use super::build::{FROM, TO};

const NODE: &str = "2001:db8:ff01:11::";
const CLIENT: &str = "2001:db8:c::1234";
const VIP_A: &str = "2001:db8:aa::a";
const VIP_B: &str = "2001:db8:aa::b";
const VIP4: &str = "192.0.2.80";
const CLIENT4: &str = "198.51.100.7";
/// VIPs that are translated, port 8443, and the IPv4 address of the endpoint that has them.
const VIP_T: &str = "2001:db8:aa::7:f00d";
const VIP4_T: &str = "192.0.2.99";
const OWN4: &str = "10.200.0.9";
/// MSS limits of the world: the largest packet back, and through.
const BACK: u32 = 1460;
const THROUGH: u32 = 1440;

fn v6(text: &str) -> Ipv6Addr {
    text.parse().unwrap_or(Ipv6Addr::UNSPECIFIED)
}
fn v4(text: &str) -> Ipv4Addr {
    text.parse().unwrap_or(Ipv4Addr::UNSPECIFIED)
}
fn mapped(text: &str) -> [u8; 16] {
    match text.parse() {
        Ok(IpAddr::V4(a)) => a.to_ipv6_mapped().octets(),
        Ok(IpAddr::V6(a)) => a.octets(),
        Err(_) => [0; 16],
    }
}
fn half(octets: [u8; 16]) -> u64 {
    u64::from_ne_bytes(std::array::from_fn(|i| octets[i]))
}

/// The SID with this function and argument on the node.
fn sid(word: u16) -> Ipv6Addr {
    Ipv6Addr::from_bits(v6(NODE).to_bits() | u128::from(word) << 48)
}

/// The programs' constants.
pub fn config() -> Config {
    Config { source: v6("2001:db8:ff01:11::1:0").octets(), locator_hi: half(v6(NODE).octets()), build: 0 }
}

/// What may change while programs run.
pub fn params() -> Params {
    let mut gateways = [Prefix::NONE; GATEWAYS];
    gateways[0] = Prefix { hi: half(v6("2001:db8:ff01:1::").octets()), mask: u64::MAX };
    gateways[5] = Prefix {
        hi: half(v6("2001:db8:ff01:80::").octets()),
        mask: half(v6("ffff:ffff:ffff:fff0::").octets()),
    };
    Params {
        gateways,
        reply_sid: [0; 16],
        reply: Reply::Direct as u32,
        fabric_ifindex: 0,
        fabric_mtu: 1500,
        to_pod_max: BACK,
        from_pod_max: THROUGH,
        icmp_rate: 1000,
    }
}

/// The tables: tenant A's table 1 (endpoint 1), tenant B's table 2 (endpoint 2), a cross-connect (endpoint 3), an endpoint whose
/// interface is gone (4). `ifindex` is that of endpoint 1.
pub fn image(ifindex: u32) -> Image {
    let mut image = Image::default();
    let own = "fd00:10::1";
    let records = [
        (VIP_A, 0xe001, 1, own, 0),
        (VIP_B, 0xe002, 2, own, 0),
        (VIP_A, 0xd003, 3, own, 0),
        (VIP4, 0xe001, 1, own, 0),
        (VIP_A, 0xd004, 4, own, 0),
        (VIP_T, 0xe001, 1, own, Flag::Translate as u8),
        (VIP4_T, 0xe001, 1, OWN4, Flag::Translate as u8),
    ];
    for (index, (vip, word, endpoint, backend, flags)) in (0..).zip(records) {
        let backend = mapped(backend);
        let binding =
            Binding { vip: mapped(vip), backend, endpoint, sid: u16::to_be_bytes(word), flags, pad: 0 };
        image
            .bindings
            .insert(index, (binding, Facts { interface: format!("p{endpoint}"), ..Facts::default() }));
        let point = Endpoint {
            next_hop: [0; 16],
            ifindex: if endpoint == 4 { 0 } else { ifindex + endpoint - 1 },
            kind: Kind::Veth as u32,
        };
        image.endpoints.insert(endpoint, (point, format!("p{endpoint}")));
        let key = |vip, pad| SidKey { vip, sid: word.to_be_bytes(), pad };
        image.sids.insert(key(mapped(vip), [0; 2]), index);
        image.sids.entry(key([0; 16], OWN_SID)).or_insert(index);
        image.sources.insert(SourceKey { addr: backend, endpoint }, OWN_ADDRESS);
        if flags == 0 {
            image.sources.insert(SourceKey { addr: mapped(vip), endpoint }, index);
            continue;
        }
        let family = if vip.contains(':') { 6 } else { 4 };
        for proto in [6, 17] {
            image.services.insert(PortKey { endpoint, port: 8443_u16.to_be_bytes(), proto, family }, index);
        }
    }
    image.ports.insert(ifindex, 1);
    image
}

/// What must come of a frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Left as it came.
    Left,
    /// Dropped.
    Drop,
    /// Taken out of its outer header: the frame, and the binding's index with its inner bytes.
    Taken(Vec<u8>, u32, u64),
}

/// A frame and what must come of it.
#[derive(Clone, Debug)]
pub struct Case {
    /// Unique name.
    pub name: &'static str,
    /// The frame.
    pub frame: Vec<u8>,
    /// The reason that grows by one.
    pub reason: Reason,
    /// What else.
    pub expect: Expect,
}

/// An outer header of a gateway's around an inner packet.
fn outer(word: u16, next: u8, inner: &[u8]) -> Vec<u8> {
    ip(v6("2001:db8:ff01:1::1:beef"), sid(word)).packet(next, inner)
}
/// The same with another traffic class.
fn marked(class: u8, next: u8, inner: &[u8]) -> Vec<u8> {
    ip(v6("2001:db8:ff01:1::1:beef"), sid(0xe001)).class(class).packet(next, inner)
}

/// An IPv4 packet with a right header checksum; `fragment` is the flags and offset word.
pub fn ipv4(
    source: &str,
    destination: &str,
    protocol: u8,
    tos: u8,
    fragment: u16,
    options: &[u8],
    payload: &[u8],
) -> Vec<u8> {
    let header = 20 + options.len();
    let mut out = vec![0x40 | (header / 4) as u8, tos];
    out.extend(((header + payload.len()) as u16).to_be_bytes());
    out.extend([0x12, 0x34]);
    out.extend(fragment.to_be_bytes());
    out.extend([61, protocol, 0, 0]);
    out.extend(v4(source).octets());
    out.extend(v4(destination).octets());
    out.extend(options);
    let sum: u32 = out.chunks(2).map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
    let sum = !(((sum & 0xffff) + (sum >> 16)) as u16);
    out[10..12].copy_from_slice(&sum.to_be_bytes());
    out.extend(payload);
    out
}

/// A TCP segment with options; its checksum right for the addresses.
fn segment(source: &str, destination: &str, flags: u8, options: &[u8]) -> Vec<u8> {
    let mut out = vec![
        0x9c,
        0x41,
        0x1f,
        0x90,
        1,
        2,
        3,
        4,
        5,
        6,
        7,
        8,
        ((20 + options.len()) as u8 / 4) << 4,
        flags,
        0xfa,
        0xf0,
        0,
        0,
        0,
        0,
    ];
    out.extend(options);
    let sum = checksum(source, destination, TCP, &out);
    out[16..18].copy_from_slice(&sum.to_be_bytes());
    out
}

/// The checksum of a message whose field is 0, of either family.
pub fn checksum(source: &str, destination: &str, protocol: u8, message: &[u8]) -> u16 {
    match (source.parse(), destination.parse()) {
        (Ok(IpAddr::V6(s)), Ok(IpAddr::V6(d))) => build::checksum(s, d, protocol, message),
        _ => {
            let mut all = [v4(source).octets(), v4(destination).octets()].concat();
            all.extend([0, protocol]);
            all.extend((message.len() as u16).to_be_bytes());
            all.extend(message);
            all.resize(all.len().next_multiple_of(2), 0);
            let sum: u64 = all.chunks(2).map(|w| u64::from(w[0]) << 8 | u64::from(w[1])).sum();
            !((sum % 0xffff) as u16)
        }
    }
}

/// A SYN of the client to a VIP with these options.
fn syn(vip: &str, options: &[u8]) -> Vec<u8> {
    if vip.contains(':') {
        ip(v6(CLIENT), v6(vip)).packet(TCP, &segment(CLIENT, vip, SYN, options))
    } else {
        ipv4(CLIENT4, vip, TCP, 0, 0x4000, &[], &segment(CLIENT4, vip, SYN, options))
    }
}

fn mss(value: u16) -> Vec<u8> {
    [vec![2, 4], value.to_be_bytes().to_vec()].concat()
}

struct Table(Vec<Case>);

impl Table {
    fn left(&mut self, name: &'static str, frame: Vec<u8>, reason: Reason) {
        self.0.push(Case { name, frame, reason, expect: Expect::Left });
    }
    fn dropped(&mut self, name: &'static str, packet: &[u8], reason: Reason) {
        self.0.push(Case { name, frame: frame(packet), reason, expect: Expect::Drop });
    }
    fn taken(&mut self, name: &'static str, packet: &[u8], index: u32, inner: &[u8]) {
        self.taken_frame(name, frame(packet), index, inner);
    }
    fn taken_frame(&mut self, name: &'static str, frame: Vec<u8>, index: u32, inner: &[u8]) {
        let kind = if inner[0] >> 4 == 6 { 0x86dd } else { 0x0800 };
        let expect = Expect::Taken(ethernet(TO, FROM, &[], kind, inner), index, inner.len() as u64);
        self.0.push(Case { name, frame, reason: Reason::Decapsulated, expect });
    }
}

/// All cases.
pub fn cases() -> Vec<Case> {
    let mut t = Table(Vec::new());
    let to_a = ip(v6(CLIENT), v6(VIP_A));
    let plain = to_a.tcp((40001, 8080), ACK, b"hello");
    let plain4 = ipv4(CLIENT4, VIP4, TCP, 0, 0x4000, &[], &segment(CLIENT4, VIP4, ACK, &[]));
    let good = outer(0xe001, 41, &plain);

    t.taken("table: tcp", &good, 0, &plain);
    t.taken(
        "table: udp",
        &outer(0xe001, 41, &to_a.udp((1, 8080), &data(99))),
        0,
        &to_a.udp((1, 8080), &data(99)),
    );
    let to_b = ip(v6(CLIENT), v6(VIP_B)).udp((1, 53), b"q");
    t.taken("table: the other tenant's", &outer(0xe002, 41, &to_b), 1, &to_b);
    t.taken("cross-connect: the same VIP by another SID", &outer(0xd003, 41, &plain), 2, &plain);
    t.taken("ipv4: tcp", &outer(0xe001, 4, &plain4), 3, &plain4);
    let options = ipv4(CLIENT4, VIP4, 17, 0, 0, &[1, 1, 1, 0], &data(40));
    t.taken("ipv4: options", &outer(0xe001, 4, &options), 3, &options);
    let later = ipv4(CLIENT4, VIP4, TCP, 0, 0x20b9, &[], &syn(VIP4, &mss(9000))[20..]);
    t.taken("ipv4: a later fragment is no SYN", &outer(0xe001, 4, &later), 3, &later);
    let icmp = to_a.icmp(2, 0, 1400, &data(64));
    t.taken("icmp error", &outer(0xe001, 41, &icmp), 0, &icmp);
    let fragment = to_a.packet(FRAGMENT, &[build::fragment(17, 0, true), data(64)].concat());
    t.taken("fragment", &outer(0xe001, 41, &fragment), 0, &fragment);
    t.taken("no next header", &outer(0xe001, 41, &to_a.packet(59, &[])), 0, &to_a.packet(59, &[]));
    let second = ip(v6("2001:db8:ff01:8f::1"), sid(0xe001)).packet(41, &plain);
    t.taken("source: the end of a wider prefix", &second, 0, &plain);
    let padded = [frame(&good), vec![0xee; 9]].concat();
    t.taken_frame("padding behind the packet", padded, 0, &[plain.clone(), vec![0xee; 9]].concat());
    if let Some(case) = t.0.last_mut()
        && let Expect::Taken(_, _, bytes) = &mut case.expect
    {
        *bytes = plain.len() as u64;
    }
    let vlan = [0x81, 0, 0, 7];
    t.taken_frame("vlan: one tag goes with the outer header", tagged(&[vlan], &good), 0, &plain);
    t.taken_frame("vlan: two tags", tagged(&[[0x88, 0xa8, 0, 9], vlan], &good), 0, &plain);

    t.left("not ip: arp", ethernet(TO, FROM, &[], 0x0806, &data(46)), Reason::NotIp);
    t.left("not ip: ipv4 on the fabric", ethernet(TO, FROM, &[], 0x0800, &plain4), Reason::NotIp);
    t.left(
        "not for host: multicast",
        ethernet([0x33, 0x33, 0, 0, 0, 1], FROM, &[], 0x86dd, &good),
        Reason::NotForHost,
    );
    t.left("malformed: cut in the outer header", frame(&good[..39]), Reason::Malformed);
    t.left(
        "malformed: version 4 in an ipv6 frame",
        frame(&[vec![0x45], good[1..].to_vec()].concat()),
        Reason::Malformed,
    );
    t.left("malformed: three tags", tagged(&[vlan, vlan, vlan], &good), Reason::Malformed);
    t.left(
        "not sid: another node",
        frame(&ip(v6(CLIENT), v6("2001:db8:ff01:12:e001::")).packet(41, &plain)),
        Reason::NotSid,
    );
    t.left("not sid: a plain address", frame(&plain), Reason::NotSid);
    t.left("not sid: function 1", frame(&outer(0x1001, 41, &plain)), Reason::NotSid);
    t.left(
        "not sid: the node's own source",
        frame(&ip(v6(CLIENT), v6("2001:db8:ff01:11::1:0")).packet(58, &data(8))),
        Reason::NotSid,
    );
    let low = Ipv6Addr::from_bits(sid(0xe001).to_bits() | 1);
    t.left(
        "not sid: bits after the argument",
        frame(&ip(v6("2001:db8:ff01:1::1"), low).packet(41, &plain)),
        Reason::NotSid,
    );
    t.left("unknown sid: no such table", frame(&outer(0xe009, 41, &plain)), Reason::UnknownSid);
    t.left(
        "unknown sid: from a stranger",
        frame(&ip(v6(CLIENT), sid(0xd001)).packet(41, &plain)),
        Reason::UnknownSid,
    );
    t.left("unknown sid: broken inside", frame(&outer(0xd001, 41, &data(7))), Reason::UnknownSid);

    for (name, source) in [
        ("foreign source: a client", CLIENT),
        ("foreign source: another node of the block", "2001:db8:ff01:2::1"),
        ("foreign source: one past the wider prefix", "2001:db8:ff01:90::1"),
        ("foreign source: all ones", "ffff:ffff:ffff:ffff::"),
        ("foreign source: unspecified", "::"),
    ] {
        t.dropped(name, &ip(v6(source), sid(0xe001)).packet(41, &plain), Reason::ForeignSource);
    }
    let routed = [build::routing(41, 0), plain.clone()].concat();
    t.dropped("routing header", &outer(0xe001, ROUTING, &routed), Reason::RoutingHeader);
    t.dropped("not encapsulated: tcp", &outer(0xe001, TCP, &data(20)), Reason::NotEncapsulated);
    t.dropped("not encapsulated: icmp to the SID", &outer(0xe001, ICMPV6, &data(8)), Reason::NotEncapsulated);
    t.dropped(
        "not encapsulated: destination options",
        &outer(0xe001, OPTIONS, &build::chain(1, 41, &plain)),
        Reason::NotEncapsulated,
    );
    t.dropped(
        "not encapsulated: fragment of an outer packet",
        &outer(0xe001, FRAGMENT, &[build::fragment(41, 0, true), plain.clone()].concat()),
        Reason::NotEncapsulated,
    );
    t.dropped("truncated: by one", &good[..good.len() - 1], Reason::Truncated);
    t.dropped("truncated: states 65535", &build::stating(good.clone(), 65535), Reason::Truncated);
    t.dropped("bad inner: 39 bytes", &outer(0xe001, 41, &plain[..39]), Reason::BadInner);
    t.dropped("bad inner: nothing", &outer(0xe001, 41, &[]), Reason::BadInner);
    t.dropped(
        "bad inner: version 4 said to be 6",
        &outer(0xe001, 41, &[plain4.clone(), data(40)].concat()),
        Reason::BadInner,
    );
    t.dropped("bad inner: version 6 said to be 4", &outer(0xe001, 4, &plain), Reason::BadInner);
    t.dropped(
        "bad inner: longer than the outer",
        &outer(0xe001, 41, &build::stating(plain.clone(), plain.len() as u16 - 39)),
        Reason::BadInner,
    );
    t.dropped("bad inner: ipv4 of 19 bytes", &outer(0xe001, 4, &plain4[..19]), Reason::BadInner);
    let with = |at: usize, byte: u8| {
        let mut packet = plain4.clone();
        packet[at] = byte;
        packet
    };
    t.dropped("bad inner: ipv4 header of 16 bytes", &outer(0xe001, 4, &with(0, 0x44)), Reason::BadInner);
    t.dropped("bad inner: ipv4 length below its header", &outer(0xe001, 4, &with(3, 19)), Reason::BadInner);
    t.dropped(
        "bad inner: ipv4 longer than the outer",
        &outer(0xe001, 4, &with(3, plain4.len() as u8 + 1)),
        Reason::BadInner,
    );
    let trick = ip(v6(CLIENT), v6("::ffff:192.0.2.80")).udp((1, 2), b"x");
    t.dropped("mapped address: an IPv4 VIP by IPv6", &outer(0xe001, 41, &trick), Reason::MappedAddress);
    let trick = ip(v6("::ffff:198.51.100.7"), v6(VIP_A)).udp((1, 2), b"x");
    t.dropped("mapped address: source", &outer(0xe001, 41, &trick), Reason::MappedAddress);
    t.dropped("not bound: the other tenant's VIP by this SID", &outer(0xe001, 41, &to_b), Reason::NotBound);
    t.dropped("not bound: this VIP by the other tenant's SID", &outer(0xe002, 41, &plain), Reason::NotBound);
    t.dropped(
        "not bound: the backend's own address",
        &outer(0xe001, 41, &ip(v6(CLIENT), v6("fd00:10::1")).udp((1, 2), b"x")),
        Reason::NotBound,
    );
    t.dropped(
        "not bound: the unspecified address",
        &outer(0xe001, 41, &ip(v6(CLIENT), v6("::")).udp((1, 2), b"x")),
        Reason::NotBound,
    );
    t.dropped("not bound: ipv4 by a SID of IPv6 alone", &outer(0xd003, 4, &plain4), Reason::NotBound);
    t.dropped("no endpoint", &outer(0xd004, 41, &plain), Reason::NoEndpoint);

    // RFC 6040 section 4.2, figure 4: outer by inner.
    let inner = |class| to_a.class(class).udp((1, 8080), b"x");
    t.taken("ecn: CE on ECT(0)", &marked(0x03, 41, &inner(0xb2)), 0, &inner(0xb3));
    t.taken("ecn: CE on ECT(1)", &marked(0x03, 41, &inner(0x01)), 0, &inner(0x03));
    t.taken("ecn: CE on CE", &marked(0xff, 41, &inner(0x03)), 0, &inner(0x03));
    t.dropped("ecn: CE on not-ECT", &marked(0x03, 41, &inner(0xfc)), Reason::Congestion);
    t.taken("ecn: ECT(1) on ECT(0)", &marked(0x01, 41, &inner(0x02)), 0, &inner(0x01));
    t.taken("ecn: ECT(0) on ECT(1)", &marked(0x02, 41, &inner(0x01)), 0, &inner(0x01));
    t.taken("ecn: ECT(0) on not-ECT", &marked(0x02, 41, &inner(0x00)), 0, &inner(0x00));
    let inner4 = |tos| ipv4(CLIENT4, VIP4, 17, tos, 0x4000, &[], &data(30));
    t.taken("ecn: ipv4, CE on ECT(0)", &marked(0x03, 4, &inner4(0xba)), 3, &inner4(0xbb));
    t.dropped("ecn: ipv4, CE on not-ECT", &marked(0x03, 4, &inner4(0xb8)), Reason::Congestion);

    let clamp = |t: &mut Table, name, vip: &str, before: &[u8], after: &[u8]| {
        let next = if vip.contains(':') { 41 } else { 4 };
        t.taken(
            name,
            &outer(0xe001, next, &syn(vip, before)),
            if next == 41 { 0 } else { 3 },
            &syn(vip, after),
        );
    };
    clamp(&mut t, "mss: lowered", VIP_A, &mss(1440), &mss(1400));
    clamp(&mut t, "mss: just fits", VIP_A, &mss(1400), &mss(1400));
    clamp(&mut t, "mss: by one", VIP_A, &mss(1401), &mss(1400));
    clamp(&mut t, "mss: ipv4", VIP4, &mss(1460), &mss(1420));
    let odd = |value: u16| [vec![1, 2, 4], value.to_be_bytes().to_vec(), vec![1, 1, 0]].concat();
    clamp(&mut t, "mss: at an odd offset", VIP_A, &odd(9000), &odd(1400));
    let behind = |value: u16| [vec![8, 10, 1, 2, 3, 4, 5, 6, 7, 8], mss(value), vec![4, 2]].concat();
    clamp(&mut t, "mss: behind timestamps", VIP_A, &behind(9000), &behind(1400));
    clamp(&mut t, "mss: none", VIP_A, &[], &[]);
    let none = [0, 2, 4, 0x23];
    clamp(&mut t, "mss: after the end of options", VIP_A, &none, &none);
    let zero = [3, 0, 2, 4];
    clamp(&mut t, "mss: behind an option of length 0", VIP_A, &zero, &zero);
    let ack = ip(v6(CLIENT), v6(VIP_A)).packet(TCP, &segment(CLIENT, VIP_A, ACK, &mss(9000)));
    t.taken("mss: no SYN", &outer(0xe001, 41, &ack), 0, &ack);
    translations(&mut t);
    t.0
}

/// Cases of `delivery: Translate`.
fn translations(t: &mut Table) {
    let (vip, own) = (ip(v6(CLIENT), v6(VIP_T)), ip(v6(CLIENT), v6("fd00:10::1")));
    let ports = (40001, 8443);
    t.taken(
        "translate: tcp",
        &outer(0xe001, 41, &vip.tcp(ports, ACK, &data(33))),
        5,
        &own.tcp(ports, ACK, &data(33)),
    );
    t.taken("translate: udp", &outer(0xe001, 41, &vip.udp(ports, &data(8))), 5, &own.udp(ports, &data(8)));
    let with = |vip: &str, mss: u16| {
        let mut segment = segment(CLIENT, vip, SYN, &self::mss(mss));
        segment[2..4].copy_from_slice(&8443_u16.to_be_bytes());
        segment[16..18].fill(0);
        let sum = checksum(CLIENT, vip, TCP, &segment);
        segment[16..18].copy_from_slice(&sum.to_be_bytes());
        ip(v6(CLIENT), v6(vip)).packet(TCP, &segment)
    };
    t.taken("translate: the MSS, too", &outer(0xe001, 41, &with(VIP_T, 9000)), 5, &with("fd00:10::1", 1400));
    let four = |destination: &str, fragment: u16, sum: bool| {
        let mut datagram = vec![0x9c, 0x41, 0x20, 0xfb, 0, 13, 0, 0, b'h', b'e', b'l', b'l', b'o'];
        if sum {
            let sum = checksum(CLIENT4, destination, 17, &datagram);
            datagram[6..8].copy_from_slice(&sum.to_be_bytes());
        }
        ipv4(CLIENT4, destination, 17, 0, fragment, &[], &datagram)
    };
    t.taken("translate: ipv4 udp", &outer(0xe001, 4, &four(VIP4_T, 0, true)), 6, &four(OWN4, 0, true));
    t.taken(
        "translate: udp without checksum",
        &outer(0xe001, 4, &four(VIP4_T, 0, false)),
        6,
        &four(OWN4, 0, false),
    );
    for (name, fragment) in [("translate: first fragment", 0x2000), ("translate: later fragment", 0x0004)] {
        t.dropped(name, &outer(0xe001, 4, &four(VIP4_T, fragment, true)), Reason::Untranslatable);
    }
    let fragment = vip.packet(FRAGMENT, &[build::fragment(17, 0, true), data(64)].concat());
    t.dropped("translate: IPv6 fragment", &outer(0xe001, 41, &fragment), Reason::Untranslatable);
    t.dropped(
        "translate: icmp",
        &outer(0xe001, 41, &vip.icmp(2, 0, 1400, &data(64))),
        Reason::Untranslatable,
    );
    t.dropped("translate: no such port", &outer(0xe001, 41, &vip.udp((1, 8444), b"x")), Reason::NotBound);
    t.dropped("translate: cut ports", &outer(0xe001, 41, &vip.packet(TCP, &data(3))), Reason::Untranslatable);
}

/// What an arm saw.
#[derive(Debug)]
pub struct Seen {
    /// XDP action, with "left" as `XDP_PASS`.
    pub action: u32,
    /// The frame after the run.
    pub frame: Vec<u8>,
    /// Endpoint in its metadata.
    pub marked: Option<u32>,
    /// Increments of `w_reasons`.
    pub reasons: BTreeMap<&'static str, u64>,
    /// Increments of `w_in`.
    pub counters: BTreeMap<u32, (u64, u64)>,
}

/// Compares what was seen with what must be, all counters included.
///
/// # Errors
/// The differences.
pub fn check(case: &Case, seen: &Seen) -> Result<(), String> {
    let mut wrong = Vec::new();
    let action = match case.expect {
        Expect::Drop => 1,
        Expect::Left | Expect::Taken(..) => 2,
    };
    if seen.action != action {
        wrong.push(format!("action {}, not {action}", seen.action));
    }
    if seen.reasons != BTreeMap::from([(case.reason.name(), 1)]) {
        wrong.push(format!("reasons {:?}, not {}", seen.reasons, case.reason.name()));
    }
    let (wanted, counters) = match &case.expect {
        Expect::Left => (Some(&case.frame), BTreeMap::new()),
        Expect::Drop => (None, BTreeMap::new()),
        Expect::Taken(frame, index, bytes) => (Some(frame), BTreeMap::from([(*index, (1, *bytes))])),
    };
    let marked = match &case.expect {
        Expect::Taken(_, index, _) => image(7).bindings.get(index).map(|(binding, _)| binding.endpoint),
        Expect::Left | Expect::Drop => None,
    };
    if seen.marked != marked {
        wrong.push(format!("marked for {:?}, not {marked:?}", seen.marked));
    }
    if seen.counters != counters {
        wrong.push(format!("counters {:?}, not {counters:?}", seen.counters));
    }
    if let Some(wanted) = wanted.filter(|wanted| **wanted != seen.frame) {
        let at = wanted.iter().zip(&seen.frame).position(|(a, b)| a != b);
        wrong.push(format!(
            "frame of {} bytes, not {}, differs from byte {at:?}",
            seen.frame.len(),
            wanted.len()
        ));
    }
    if wrong.is_empty() { Ok(()) } else { Err(format!("case {}: {}", case.name, wrong.join("; "))) }
}

/// The C path compiled for this machine.
pub struct Native(Tables);

impl Default for Native {
    fn default() -> Self {
        let mut tables = Tables::new(config());
        let image = image(7);
        tables.params = params();
        tables.sids = image.sids.into_iter().collect();
        tables.services = image.services.into_iter().collect();
        tables.bindings = image.bindings.into_values().map(|(binding, _)| binding).collect();
        tables.endpoints =
            (0..5).map(|i| image.endpoints.get(&i).map_or_else(Endpoint::default, |(e, _)| *e)).collect();
        Self(tables)
    }
}

impl Native {
    /// Runs a case.
    pub fn run(&mut self, case: &Case) -> Seen {
        let before = self.0.clone();
        let out = native_worker::run(&mut self.0, &case.frame);
        let action = if out.action == weir_bpf::native_worker::LEFT { 2 } else { out.action };
        let old = |i: usize| before.counters.get(i).copied().unwrap_or_default();
        let grown = |(i, now): (usize, &Counter)| {
            let more = (now.packets - old(i).packets, now.bytes - old(i).bytes);
            (more != (0, 0)).then_some((i as u32, more))
        };
        let reasons =
            Reason::ALL.iter().map(|r| (r.name(), self.0.reasons[*r as usize] - before.reasons[*r as usize]));
        Seen {
            action,
            frame: out.frame,
            marked: Some(out.marked).filter(|m| *m != 0),
            reasons: reasons.filter(|(_, n)| *n != 0).collect(),
            counters: self.0.counters.iter().enumerate().filter_map(grown).collect(),
        }
    }
}

/// Reasons, packets and bytes in, packets and bytes out.
type Totals = (BTreeMap<&'static str, u64>, Pairs, Pairs);
type Pairs = BTreeMap<u32, (u64, u64)>;

/// The programs loaded into this kernel.
pub struct Loaded(TestRig);

impl Loaded {
    /// Loads them below a path on a BPF file system; `ifindex` is endpoint 1's interface.
    ///
    /// # Errors
    /// What could not be loaded.
    pub fn load(pins: &std::path::Path, ifindex: u32, params: &Params) -> anyhow::Result<Self> {
        let mut rig = TestRig::load(pins, WorkerLimits { bindings: 16, endpoints: 8 }, config())?;
        rig.maps.put_params(params)?;
        apply(&mut rig.maps, &Image::default(), &image(ifindex)).context("load the worker's tables")?;
        Ok(Self(rig))
    }

    fn totals(&self) -> Totals {
        let maps = &self.0.maps;
        let pair = |c: Counter| (c.packets, c.bytes);
        (
            Reason::ALL.iter().map(|r| (r.name(), maps.reason_total(*r))).collect(),
            (0..7).map(|i| (i, pair(maps.totals(i).0))).collect(),
            (0..7).map(|i| (i, pair(maps.totals(i).1))).collect(),
        )
    }

    fn seen(
        &mut self,
        run: impl FnOnce(&mut TestRig) -> anyhow::Result<(u32, Vec<u8>)>,
        sent: bool,
    ) -> anyhow::Result<Seen> {
        let before = self.totals();
        let (action, mut frame) = run(&mut self.0)?;
        // A test run gives the metadata as the first bytes of what comes out.
        let marked = (frame.get(..4) == Some(&MARK.to_ne_bytes())).then(|| {
            let head: Vec<u8> = frame.drain(..8).collect();
            u32::from_ne_bytes([head[4], head[5], head[6], head[7]])
        });
        let after = self.totals();
        let (old, new) = if sent { (before.2, after.2) } else { (before.1, after.1) };
        let grown = new.into_iter().map(|(i, (p, b))| (i, (p - old[&i].0, b - old[&i].1)));
        let reasons = after.0.into_iter().map(|(name, n)| (name, n - before.0[name]));
        Ok(Seen {
            action,
            frame,
            marked,
            reasons: reasons.filter(|(_, n)| *n != 0).collect(),
            counters: grown.filter(|(_, more)| *more != (0, 0)).collect(),
        })
    }

    /// Runs a case.
    ///
    /// # Errors
    /// When the kernel does not run it.
    pub fn run(&mut self, case: &Case) -> anyhow::Result<Seen> {
        self.seen(|rig| Ok(rig.decap(&case.frame)?), false)
    }

    /// Runs a frame that endpoint 1 sends; the action is tc's.
    ///
    /// # Errors
    /// When the kernel does not run it.
    pub fn reply(&mut self, ifindex: u32, frame: &[u8]) -> anyhow::Result<Seen> {
        self.seen(|rig| Ok(rig.reply(ifindex, frame)?), true)
    }
}

/// Addresses and packets that reply cases are made of.
pub mod reply {
    use super::{CLIENT, CLIENT4, SYN, TCP, VIP_A, VIP4, ip, ipv4, segment, v6};

    /// What a translated endpoint sends, by its own address and port, and what must leave: tcp, udp, ipv4 tcp.
    pub fn translated() -> [(Vec<u8>, Vec<u8>); 3] {
        let six = |from: &str| ip(v6(from), v6(CLIENT));
        let four = |from: &str| {
            let mut segment = segment(from, CLIENT4, super::ACK, &[]);
            segment[..2].copy_from_slice(&8443_u16.to_be_bytes());
            segment[16..18].fill(0);
            let sum = super::checksum(from, CLIENT4, TCP, &segment);
            segment[16..18].copy_from_slice(&sum.to_be_bytes());
            ipv4(from, CLIENT4, TCP, 0, 0x4000, &[], &segment)
        };
        let (own, vip) = ("fd00:10::1", super::VIP_T);
        [
            (
                six(own).tcp((8443, 40001), super::ACK, b"answer"),
                six(vip).tcp((8443, 40001), super::ACK, b"answer"),
            ),
            (six(own).udp((8443, 40001), b"answer!"), six(vip).udp((8443, 40001), b"answer!")),
            (four(super::OWN4), four(super::VIP4_T)),
        ]
    }

    /// Client, tenant A's VIP, the other tenant's VIP, IPv4 VIP and client.
    pub const ADDRESSES: [&str; 5] = [CLIENT, VIP_A, super::VIP_B, VIP4, CLIENT4];

    /// A SYN ACK from a VIP with an MSS.
    pub fn syn_ack(vip: &str, mss: u16) -> Vec<u8> {
        let options = super::mss(mss);
        if vip.contains(':') {
            ip(v6(vip), v6(CLIENT)).packet(TCP, &segment(vip, CLIENT, SYN | super::ACK, &options))
        } else {
            ipv4(vip, CLIENT4, TCP, 0, 0x4000, &[], &segment(vip, CLIENT4, SYN | super::ACK, &options))
        }
    }
}
