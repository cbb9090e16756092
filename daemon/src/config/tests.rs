//! What a configuration may say, what it means when it does not, and the exact words of every refusal.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rstest::rstest;

use super::*;

const GOOD: &str = r#"node: gw1
region: us-east
locator: { prefix: "2001:db8:ff01::/48", nodeID: 1 }
hashKeyFile: hash-key
uplinks: [eth1]
fabric: [eth2]
objects: objects.d
bgp:
  asn: 65010
  routerID: 192.0.2.11
  gracefulRestart: { restartTime: 60s }
  peers:
    - name: tor1
      address: "2001:db8:11::1"
      localAddress: "2001:db8:11::2"
      asn: 65000
      role: upstream
      passwordFile: tor1.key
      gtsm: true
admin: /run/weir/gateway.sock
metrics: "[::1]:9464"
"#;

/// A directory with the key files that [`GOOD`] names.
fn directory() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, bytes: &[u8], mode| {
        let path = dir.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
    };
    write("hash-key", &[7; 32], 0o600);
    write("hex-key", b"00112233445566778899aabbccddeeff00112233445566778899AABBCCDDEEFF\n", 0o640);
    write("short-key", &[7; 31], 0o600);
    write("open-key", &[7; 32], 0o644);
    write("tor1.key", b"s3cret\nsecond line\n", 0o600);
    write("empty.key", b"\n", 0o600);
    dir
}

fn parse(dir: &Path, text: &str) -> Result<Config, Vec<String>> {
    let words = |p: FileProblem| p.to_string().replace(&format!("{}/", dir.display()), "");
    Config::parse(&dir.join("weir.yaml"), text.as_bytes()).map_err(|p| p.into_iter().map(words).collect())
}

#[test]
fn the_documented_example_is_read_with_defaults() {
    let dir = directory();
    let config = parse(dir.path(), GOOD).unwrap();
    assert_eq!(config.hash_key.expose(), &[7; 32]);
    assert_eq!(config.objects, dir.path().join("objects.d"), "paths are relative to the configuration");
    assert_eq!(config.admin, Path::new("/run/weir/gateway.sock"));
    assert_eq!(config.pins, Path::new("/sys/fs/bpf/weir"));
    assert_eq!(config.drain_marker, Path::new("/etc/weir/drain"));
    assert_eq!((config.xdp_mode, config.icmp_rate, config.drop_samples), (XdpMode::Native, 1000, 10));
    assert_eq!(
        config.limits,
        Limits { vips: 4096, backends: 16384, ring_slots: 1 << 24, next_hops: 4096, fragments: 16384 }
    );
    assert_eq!(config.timers.drain, Duration::from_secs(5));
    assert_eq!(config.timers.settle, Duration::from_millis(5));
    assert_eq!(config.timers.hold_time, Duration::from_secs(9));
    let bgp = config.bgp.unwrap();
    let peer = &bgp.peers[0];
    assert_eq!((peer.port, peer.role, peer.gtsm), (179, PeerRole::Upstream, true));
    assert_eq!(peer.password.as_ref().unwrap().expose(), b"s3cret", "only the first line is the password");
}

#[test]
fn the_locator_gives_the_nodes_prefix_source_and_self_test_sid() {
    let dir = directory();
    let locator = parse(dir.path(), &GOOD.replace("nodeID: 1 ", "nodeID: 0xdfff ")).unwrap().locator.unwrap();
    assert_eq!(locator.prefix().to_string(), "2001:db8:ff01:dfff::/64");
    assert_eq!(locator.source().to_string(), "2001:db8:ff01:dfff::1:0");
    assert_eq!(locator.self_test_sid().to_string(), "2001:db8:ff01:dfff:f000::");
}

#[test]
fn keys_may_be_written_in_hexadecimal_and_are_never_printed() {
    let dir = directory();
    let config = parse(dir.path(), &GOOD.replace("hash-key", "hex-key")).unwrap();
    assert_eq!(config.hash_key.expose()[..4], [0, 0x11, 0x22, 0x33]);
    assert_eq!(config.hash_key.expose()[31], 0xff);
    let shown = format!("{config:?}");
    assert!(!shown.contains("s3cret") && !shown.contains("115, 51, 99"), "{shown}");
    assert!(shown.contains("hash_key: (secret)"), "{shown}");
}

#[test]
fn without_bgp_a_gateway_announces_nothing() {
    let dir = directory();
    let start = GOOD.find("bgp:").unwrap();
    let text = format!("{}metrics: \"[::1]:9464\"\n", &GOOD[..start]);
    assert!(parse(dir.path(), &text).unwrap().bgp.is_none());
}

#[test]
fn a_fabric_peer_may_ask_for_vips() {
    let dir = directory();
    let text = GOOD.replace("role: upstream", "role: fabric\n      exportVIPs: true");
    assert_eq!(parse(dir.path(), &text).unwrap().bgp.unwrap().peers[0].role, PeerRole::FabricWithVips);
}

#[rstest]
#[case("node: gw1", "node: GW1", "1: node: GW1 holds 'G', which an RFC 1123 name may not; name this node")]
#[case("region: us-east\n", "", "1: region: is missing; name the region this node serves")]
#[case(
    "region: us-east\n",
    "regoin: us-east\n",
    "2: regoin: is no known field; remove it, or use one of node, region, locator, hashKeyFile, uplinks, fabric, objects, bgp, admin, metrics, pins, limits, timers, xdpMode, icmpRate, dropSamples, drainMarker"
)]
#[case(
    "ff01::/48",
    "ff01::/64",
    "3: locator.prefix: 2001:db8:ff01::/64 has length 64, and the SID layout needs 48; give the region's SRv6 block, a /48 such as 2001:db8:ff01::/48"
)]
#[case(
    "ff01::/48",
    "ff01:1::/48",
    "3: locator.prefix: 2001:db8:ff01:1::/48 has bits beyond its length; write 2001:db8:ff01::/48"
)]
#[case(
    "2001:db8:ff01::/48",
    "10.0.0.0/8",
    "3: locator.prefix: 10.0.0.0/8 is no IPv6 prefix; give the region's SRv6 block, a /48 such as 2001:db8:ff01::/48"
)]
#[case(
    "nodeID: 1 ",
    "nodeID: 0xe000 ",
    "3: locator.nodeID: 57344 is no node id; give this node a number of its own from 1 to 57343 (0xdfff)"
)]
#[case(
    "hash-key",
    "short-key",
    "4: hashKeyFile: short-key holds 31 bytes, neither 32 raw bytes nor 64 hexadecimal digits; make it once with `head -c 32 /dev/urandom` and copy it to every gateway of the region"
)]
#[case(
    "hash-key",
    "open-key",
    "4: hashKeyFile: open-key has mode 0644: everybody may use it; chmod 0600 open-key"
)]
#[case(
    "hash-key",
    "no-key",
    "4: hashKeyFile: no-key cannot be read: No such file or directory (os error 2); create it, readable by weir alone"
)]
#[case("uplinks: [eth1]", "uplinks: []", "5: uplinks: is empty; name the interfaces on the internet side")]
#[case(
    "uplinks: [eth1]",
    "uplinks: [eth1, eth1]",
    "5: uplinks[1]: eth1 is uplinks[0] again; name each interface once"
)]
#[case(
    "fabric: [eth2]",
    "fabric: [a/b]",
    "6: fabric[0]: a/b is no interface name; give a name as `ip link` shows it, at most 15 characters"
)]
#[case(
    "fabric: [eth2]",
    "fabric: eth2",
    "6: fabric: eth2 is a single value; write a list: `- item` lines, or [item, …]"
)]
#[case("asn: 65010", "asn: 0", "9: bgp.asn: 0 is no AS number; give a number from 1 to 4294967295")]
#[case(
    "asn: 65010",
    "asn: 4294967296",
    "9: bgp.asn: 4294967296 is no AS number; give a number from 1 to 4294967295"
)]
#[case(
    "192.0.2.11",
    "0.0.0.0",
    "10: bgp.routerID: 0.0.0.0 is no router id; give a dotted quad of this node's own, such as 192.0.2.11"
)]
#[case(
    "restartTime: 60s",
    "restartTime: 60",
    "11: bgp.gracefulRestart.restartTime: 60 is no duration; write it like 10s or 1m30s, from 1s to 1h8m15s"
)]
#[case(
    "restartTime: 60s",
    "restartTime: 2h",
    "11: bgp.gracefulRestart.restartTime: 2h is out of bounds; give a time from 1s to 1h8m15s"
)]
#[case(
    "restartTime: 60s",
    "restartTime: 1500ms",
    "11: bgp.gracefulRestart.restartTime: 1s500ms is no whole number of seconds; give whole seconds"
)]
#[case(
    "2001:db8:11::1\"",
    "tor1.example\"",
    "14: bgp.peers[0].address: tor1.example is no IP address; give the router's address"
)]
#[case(
    "2001:db8:11::1\"",
    "fe80::1\"",
    "14: bgp.peers[0].address: fe80::1 is link-local, which needs an interface and is not supported; give a global or unique local address"
)]
#[case(
    "2001:db8:11::2",
    "192.0.2.2",
    "15: bgp.peers[0].localAddress: 192.0.2.2 is of another family than 2001:db8:11::1; give this node's address of the peer's family"
)]
#[case(
    "role: upstream",
    "role: upstream\n      nextHopIPv4: 2001:db8:11::2",
    "18: bgp.peers[0].nextHopIPv4: 2001:db8:11::2 is of the other family; give this node's address of that family on the router's link"
)]
#[case(
    "role: upstream",
    "role: upstream\n      nextHopIPv6: 2001:db8:11::1",
    "18: bgp.peers[0].nextHopIPv6: 2001:db8:11::1 is the peer's own address; give this node's address of that family on the router's link"
)]
#[case(
    "role: upstream",
    "role: transit",
    "17: bgp.peers[0].role: transit is no role; write upstream or fabric"
)]
#[case(
    "role: upstream",
    "role: upstream\n      exportVIPs: true",
    "18: bgp.peers[0].exportVIPs: true is for fabric peers; leave it out: an upstream peer always gets the VIPs"
)]
#[case(
    "tor1.key",
    "empty.key",
    "18: bgp.peers[0].passwordFile: empty.key has a first line of 0 bytes; write the password, 1 to 80 bytes, as its first line"
)]
#[case(
    "      gtsm: true\n",
    "      gtsm: true\n    - { name: tor1, address: \"2001:db8:12::1\", asn: 1, role: fabric }\n",
    "20: bgp.peers[1].name: tor1 is the name of bgp.peers[0] too; give each peer a name of its own"
)]
#[case(
    "      gtsm: true\n",
    "      gtsm: true\n    - { name: a, address: 192.0.2.1, asn: 1, role: fabric }\n    - { name: b, address: \"::ffff:192.0.2.1\", asn: 2, role: fabric }\n",
    "21: bgp.peers[2].address: ::ffff:192.0.2.1 is the address of bgp.peers[1] too: two sessions with one router flap; name each router once"
)]
#[case(
    "      gtsm: true\n",
    "      gtsm: maybe\n",
    "19: bgp.peers[0].gtsm: maybe is neither true nor false; write true or false"
)]
#[case(
    "\"[::1]:9464\"",
    "9464",
    "21: metrics: 9464 is no address with port; write it like [::1]:9464 or 192.0.2.1:9464"
)]
#[case(
    "admin:",
    "limits: { ringSlots: 10 }\nadmin:",
    "20: limits.ringSlots: 10 is out of bounds; give a number from 65552 to 1073741824"
)]
#[case(
    "admin:",
    "timers: { holdTime: 0s }\nadmin:",
    "20: timers.holdTime: 0s is out of bounds; give a time from 3s to 18h12m15s"
)]
#[case("admin:", "xdpMode: offload\nadmin:", "20: xdpMode: offload is no mode; write native or generic")]
#[case(
    "  asn: 65010\n",
    "  asn: 65010\n  communities: [\"65010:99999\"]\n",
    "10: bgp.communities[0]: 65010:99999 is no community; write it like 65010:100"
)]
fn a_bad_configuration_is_refused_with_line_field_value_and_remedy(
    #[case] from: &str,
    #[case] to: &str,
    #[case] want: &str,
) {
    let dir = directory();
    assert!(GOOD.contains(from), "{from:?}");
    let problems = parse(dir.path(), &GOOD.replacen(from, to, 1)).unwrap_err();
    assert_eq!(problems, [format!("weir.yaml:{want}")]);
}

#[test]
fn everything_that_is_missing_is_told_at_once() {
    let dir = directory();
    let problems = parse(dir.path(), "").unwrap_err();
    let fields: Vec<_> = problems.iter().map(|p| p.split(": ").nth(1).unwrap()).collect();
    assert_eq!(fields, ["node", "region", "hashKeyFile", "uplinks", "fabric"]);
}

#[test]
fn a_file_that_cannot_be_read_is_told_apart_from_a_bad_one() {
    let error = Config::load(Path::new("/nonexistent/weir.yaml")).unwrap_err();
    assert!(matches!(error, ConfigError::Unreadable { .. }));
    assert!(
        error.to_string().starts_with("read configuration /nonexistent/weir.yaml: No such file"),
        "{error}"
    );
}

proptest::proptest! {
    #[test]
    fn no_bytes_make_the_configuration_panic(at in 0..GOOD.len(), put in "[-:{}\\[\\]\"'&*!|>#%@,a0 \n\t]{0,12}") {
        let text = format!("{}{put}{}", &GOOD[..at], &GOOD[at..]);
        let _ = Config::parse(Path::new("/nonexistent/weir.yaml"), text.as_bytes());
    }
}
