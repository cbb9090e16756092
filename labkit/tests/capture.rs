//! Frames from one namespace to another over a veth: captured whole, expected, missed and forbidden.
#![allow(clippy::unwrap_used, reason = "helpers of a test fail it")]

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use labkit::capture::{Capture, Direction, Options};
use labkit::expect::{ExpectError, expect};
use labkit::inject::Injector;
use labkit::netns::Netns;
use labkit::packet::{MacAddr, Packet, decode, diff, flags, matcher};
use labkit::pcap;

/// Long enough for any loaded machine; only failures wait this long.
const SOON: Duration = Duration::from_secs(20);
/// How long tests watch for what must not come, or wait for what will not.
const BRIEFLY: Duration = Duration::from_millis(50);

/// Two namespaces joined by a veth, `left` and `right`; gone when dropped.
struct Pair {
    a: Netns,
    b: Netns,
}

impl Pair {
    fn new(mtu: u32) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let n = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = |end: &str| format!("cap{}-{n}{end}", std::process::id());
        let pair = Self { a: Netns::create(&name("a")).unwrap(), b: Netns::create(&name("b")).unwrap() };
        let mtu = mtu.to_string();
        let peer = pair.b.name().to_owned();
        for netns in [&pair.a, &pair.b] {
            // No router solicitations or reports of the kernel's own: the tests count frames.
            netns
                .run(|| std::fs::write("/proc/sys/net/ipv6/conf/default/disable_ipv6", "1"))
                .unwrap()
                .unwrap();
        }
        ip(
            &pair.a,
            &["link", "add", "left", "mtu", &mtu, "type", "veth", "peer", "name", "right", "mtu", &mtu],
        );
        ip(&pair.a, &["link", "set", "right", "netns", &peer]);
        ip(&pair.a, &["link", "set", "left", "up"]);
        ip(&pair.b, &["link", "set", "right", "up"]);
        pair
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for netns in [&self.a, &self.b] {
            // A test that failed already says why.
            let _ = Netns::remove(netns.name());
        }
    }
}

fn ip(netns: &Netns, arguments: &[&str]) {
    let output = netns.command("ip").args(arguments).output().unwrap();
    assert!(output.status.success(), "ip {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

fn frame() -> Packet<labkit::packet::Ethernet> {
    Packet::eth(MacAddr(2, 0, 0, 0, 0, 1), MacAddr(2, 0, 0, 0, 0, 2))
}

fn datagram(port: u16, payload: &[u8]) -> Vec<u8> {
    let (src, dst) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
    frame().ipv6(src, dst).udp(port, 53).payload(payload).bytes()
}

#[test]
fn an_injected_frame_is_captured_byte_for_byte_at_the_other_end() {
    let pair = Pair::new(1500);
    let capture = Capture::open(&pair.b, "right").unwrap();
    let injector = Injector::open(&pair.a, "left").unwrap();
    let sent = datagram(4000, b"hello");
    injector.send(&sent).unwrap();
    let seen = expect(&capture).within(SOON).packet(matcher::udp_ports(4000, 53)).unwrap();
    assert_eq!(diff(&sent, &seen.bytes), None);
    assert_eq!(seen.direction, Direction::Arriving);
    let age = seen.at.elapsed().unwrap();
    assert!(age < SOON, "time stamp is the kernel's: {age:?}");
}

#[test]
fn vlan_tags_survive_capture() {
    let pair = Pair::new(1500);
    let capture = Capture::open(&pair.b, "right").unwrap();
    let injector = Injector::open(&pair.a, "left").unwrap();
    let (src, dst) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
    let one = frame().vlan(10).priority(5).ipv6(src, dst).udp(1, 2).bytes();
    let two = frame().service_vlan(200).vlan(10).ipv6(src, dst).udp(3, 4).bytes();
    for (sent, ids) in [(&one, &[10][..]), (&two, &[200, 10])] {
        injector.send(sent).unwrap();
        let seen = expect(&capture).within(SOON).packet(matcher::vlans(ids)).unwrap();
        assert_eq!(diff(sent, &seen.bytes), None);
    }
}

#[test]
fn a_frame_of_9000_bytes_is_captured_whole() {
    let pair = Pair::new(9000);
    let capture = Capture::open(&pair.b, "right").unwrap();
    let injector = Injector::open(&pair.a, "left").unwrap();
    let payload: Vec<u8> = (0..9000 - 48).map(|n: usize| n as u8).collect();
    let sent = datagram(4000, &payload);
    assert_eq!(sent.len(), 9014);
    injector.send(&sent).unwrap();
    let seen = expect(&capture).within(SOON).packet(matcher::exactly(&sent)).unwrap();
    assert_eq!((seen.bytes.len(), seen.cut), (9014, 0));
}

#[test]
fn an_expectation_that_is_not_met_names_the_first_differing_field() {
    let pair = Pair::new(1500);
    let capture = Capture::open(&pair.b, "right").unwrap();
    let injector = Injector::open(&pair.a, "left").unwrap();
    let nothing = expect(&capture).within(BRIEFLY).packet(matcher::any()).unwrap_err();
    assert!(nothing.to_string().contains("0 of 1"), "{nothing}");
    assert!(nothing.to_string().contains("no other frame came"), "{nothing}");

    injector.send(&datagram(4001, b"hello")).unwrap();
    let wanted = datagram(4000, b"hello");
    let error = expect(&capture).within(BRIEFLY).packet(matcher::exactly(&wanted)).unwrap_err().to_string();
    assert!(error.contains("last mismatch: udp.src: expected 4000, got 4001"), "{error}");
    assert!(error.contains("\nudp        src=4001 dst=53"), "the frame is shown: {error}");

    // The mismatch was not consumed: the right expectation still finds the frame.
    expect(&capture).within(SOON).packet(matcher::udp_ports(4001, 53)).unwrap();
    let again = expect(&capture).within(BRIEFLY).packet(matcher::udp_ports(4001, 53));
    assert!(matches!(again, Err(ExpectError::NotSeen { .. })), "a frame is matched once");
}

#[test]
fn never_fails_on_a_frame_that_came_before_or_comes_while_it_watches() {
    let pair = Pair::new(1500);
    let capture = Capture::open(&pair.b, "right").unwrap();
    let injector = Injector::open(&pair.a, "left").unwrap();
    let unwanted = || matcher::udp_ports(4000, 53);
    expect(&capture).within(BRIEFLY).never(unwanted()).unwrap();

    injector.send(&datagram(4001, b"")).unwrap();
    expect(&capture).within(BRIEFLY).never(unwanted()).unwrap();

    injector.send(&datagram(4000, b"before")).unwrap();
    let error = expect(&capture).within(Duration::ZERO).never(unwanted()).unwrap_err();
    assert!(matches!(error, ExpectError::Seen { .. }), "{error}");
    assert!(error.to_string().contains("|before|"), "the frame is shown: {error}");

    capture.forget().unwrap();
    expect(&capture).within(BRIEFLY).never(unwanted()).unwrap();

    std::thread::scope(|scope| {
        let watching = scope.spawn(|| expect(&capture).within(SOON).never(unwanted()));
        injector.send(&datagram(4000, b"while")).unwrap();
        assert!(matches!(watching.join().unwrap(), Err(ExpectError::Seen { .. })));
    });
}

#[test]
fn never_admits_that_it_cannot_tell_when_frames_were_lost() {
    let pair = Pair::new(1500);
    let options = Options { kept: 4, ..Options::default() };
    let capture = Capture::open_with(&pair.b, "right", options).unwrap();
    let injector = Injector::open(&pair.a, "left").unwrap();
    for port in 0..10 {
        injector.send(&datagram(port, b"")).unwrap();
    }
    let error = expect(&capture).within(BRIEFLY).never(matcher::udp_ports(9999, 53)).unwrap_err();
    assert!(matches!(error, ExpectError::Lost { lost: 1.., .. }), "{error}");
}

#[test]
fn leaving_frames_are_captured_only_when_asked_for() {
    let pair = Pair::new(1500);
    let arriving = Capture::open(&pair.a, "left").unwrap();
    let both = Capture::open_with(&pair.a, "left", Options { leaving: true, ..Options::default() }).unwrap();
    Injector::open(&pair.a, "left").unwrap().send(&datagram(1, b"")).unwrap();
    let seen = expect(&both).within(SOON).packet(matcher::udp_ports(1, 53)).unwrap();
    assert_eq!(seen.direction, Direction::Leaving);
    expect(&arriving).within(BRIEFLY).never(matcher::any()).unwrap();
}

#[test]
fn a_count_of_frames_is_expected_in_order() {
    let pair = Pair::new(1500);
    let capture = Capture::open(&pair.b, "right").unwrap();
    let injector = Injector::open(&pair.a, "left").unwrap();
    for port in 1..=3 {
        injector.send(&datagram(port, b"")).unwrap();
    }
    let seen = expect(&capture).within(SOON).packets(3, matcher::any()).unwrap();
    let ports: Vec<u16> = seen.iter().map(|f| decode(&f.bytes).udp().unwrap().src).collect();
    assert_eq!(ports, [1, 2, 3]);
    let error = expect(&capture).within(BRIEFLY).packets(2, matcher::any()).unwrap_err();
    assert!(error.to_string().contains("0 of 2"), "{error}");
}

#[test]
fn a_frame_longer_than_the_mtu_is_refused_with_the_reason() {
    let pair = Pair::new(1500);
    let injector = Injector::open(&pair.a, "left").unwrap();
    let error = injector.send(&datagram(1, &[0; 2000])).unwrap_err().to_string();
    assert!(error.contains("longer than the interface's MTU") && error.contains("2062 bytes"), "{error}");
    let absent = Injector::open(&pair.a, "nowhere").unwrap_err().to_string();
    assert!(absent.contains("find interface \"nowhere\""), "{absent}");
}

#[test]
fn a_capture_outlives_its_interface_going_down_and_up() {
    let pair = Pair::new(1500);
    let capture = Capture::open(&pair.b, "right").unwrap();
    ip(&pair.b, &["link", "set", "right", "down"]);
    ip(&pair.b, &["link", "set", "right", "up"]);
    let injector = Injector::open(&pair.a, "left").unwrap();
    injector.send(&datagram(1, b"")).unwrap();
    expect(&capture).within(SOON).packet(matcher::udp_ports(1, 53)).unwrap();
}

#[test]
fn captured_frames_are_written_to_a_pcap_file_that_other_tools_read() {
    let pair = Pair::new(1500);
    let capture = Capture::open(&pair.b, "right").unwrap();
    let injector = Injector::open(&pair.a, "left").unwrap();
    let (src, dst) = ("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap());
    let sent = frame().vlan(10).ipv6(src, dst).tcp(40000, 443).flags(flags::SYN).bytes();
    injector.send(&sent).unwrap();
    expect(&capture).within(SOON).packet(matcher::tcp_ports(40000, 443)).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("right.pcap");
    pcap::write(&path, &capture.tap().frames()).unwrap();
    let read = pcap::read(&path).unwrap();
    assert_eq!(read.len(), 1);
    assert_eq!(read[0].1, sent);
    // tcpdump is part of every lab machine, but not of every builder's.
    match Command::new("tcpdump").args(["-nr"]).arg(&path).output() {
        Ok(output) => {
            let text = String::from_utf8_lossy(&output.stdout);
            assert!(text.contains("2001:db8::1.40000 > 2001:db8::2.443: Flags [S]"), "{output:?}");
        }
        Err(e) => labkit::skip::skip("captured_frames…: tcpdump's view", e),
    }
}
