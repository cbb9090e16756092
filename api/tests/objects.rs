//! Objects as files: what is accepted with which defaults, and what is refused with which words.

use std::path::Path;

use proptest::prelude::*;
use rstest::rstest;
use weir_api::checked::{CheckedObject, SidSource, Transport};
use weir_api::network_rule::{Affinity, Health, OnAllDown};
use weir_api::object::{Parsed, parse_file};

const RULE: &str = r#"apiVersion: network.datumapis.com/v1alpha1
kind: NetworkRule
metadata:
  name: web
  namespace: tenant-a
spec:
  vpcRef: vpc-a
  vpcAttachmentRef: vpc-a-east
  vipAddresses:
    - "2001:db8:100::1"
  protocol: tcp
  port: 443
  backends:
    - address: "fd00::1"
      port: 443
    - address: "fd00::2"
      port: 443
      weight: 2
"#;

const ENDPOINT: &str = r#"apiVersion: network.datumapis.com/v1alpha1
kind: VPCEndpoint
metadata:
  name: a1
  namespace: platform
spec:
  vpcRef: vpc-a
  vpcAttachmentRef: vpc-a-east
  address: "fd00::1"
  nodeName: worker1
  sid: "2001:db8:ff01:11:e001::"
"#;

fn parse(text: &str) -> Parsed {
    parse_file(Path::new("objects.d/web.yaml"), text.as_bytes())
}

/// The problems of `base` after one replacement, without the file's name.
fn problems(base: &str, from: &str, to: &str) -> Vec<String> {
    assert!(base.contains(from), "{from:?} is not in the text");
    let parsed = parse(&base.replacen(from, to, 1));
    let text =
        |p: &weir_api::FileProblem| p.to_string().trim_start_matches("objects.d/web.yaml:").to_string();
    assert_eq!(parsed.object.is_none(), parsed.problems.iter().any(weir_api::FileProblem::is_error));
    parsed.problems.iter().map(text).collect()
}

#[test]
fn a_rule_with_only_the_public_fields_gets_the_documented_defaults() {
    let parsed = parse(RULE);
    assert!(parsed.problems.is_empty(), "{:?}", parsed.problems);
    let Some(CheckedObject::Rule(rule)) = parsed.object else { panic!("no rule") };
    assert_eq!((rule.transport, rule.port, rule.ring_size), (Transport::Tcp, 443, 4093));
    assert_eq!((rule.affinity, rule.on_all_down, rule.region), (Affinity::None, OnAllDown::Keep, None));
    let weights: Vec<u64> = rule.backends.iter().map(|b| b.weight.get()).collect();
    assert_eq!(weights, [1, 2]);
    assert!(rule.backends.iter().all(|b| !b.drained && b.health == Health::Unknown));
}

#[test]
fn a_rule_may_have_vips_of_both_families() {
    let vips = "    - \"192.0.2.1\"\n    - \"2001:db8:100::1\"\n    - 10.255.0.0\n";
    let parsed = parse(&RULE.replace("    - \"2001:db8:100::1\"\n", vips));
    assert!(parsed.problems.is_empty(), "{:?}", parsed.problems);
    let Some(CheckedObject::Rule(rule)) = parsed.object else { panic!("no rule") };
    assert_eq!(
        rule.vips.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["10.255.0.0", "192.0.2.1", "2001:db8:100::1"]
    );
}

#[test]
fn a_rule_with_every_field_and_what_an_api_server_adds_is_accepted() {
    let text = RULE.replace("  protocol: tcp\n", concat!(
        "  protocol: tcp\n  region: us-east\n  affinity: ClientIPAndProtocol\n  ringSize: 65537\n",
        "  onAllDown: withdraw\n  healthCheck:\n    type: http\n    interval: 10s\n    timeout: 1s500ms\n",
        "    healthyThreshold: 3\n    unhealthyThreshold: 4\n    http: { path: /healthz, host: a.example, statuses: [200, 204] }\n",
    )).replace("  namespace: tenant-a\n", concat!(
        "  namespace: tenant-a\n  uid: 8f7c\n  resourceVersion: \"12\"\n  generation: 3\n",
        "  creationTimestamp: \"2026-01-31T12:00:00Z\"\n  managedFields: [{ manager: kubectl, fieldsV1: { f: {} } }]\n",
    )) + "status:\n  backends:\n    - { address: \"fd00:0::1\", health: Unhealthy, reason: refused, since: \"2026-01-31T12:00:00Z\", verdictGeneration: 7 }\n";
    let parsed = parse(&text);
    assert!(parsed.problems.is_empty(), "{:?}", parsed.problems);
    let Some(CheckedObject::Rule(rule)) = parsed.object else { panic!("no rule") };
    assert_eq!(rule.region.as_deref(), Some("us-east"));
    assert!(rule.id.created.is_some());
    assert_eq!(
        rule.backends[0].health,
        Health::Unhealthy,
        "verdicts find their backend whatever its spelling"
    );
    assert_eq!(rule.health_check.unwrap().http.unwrap().2, [200, 204]);
}

#[test]
fn an_endpoint_names_its_sid_whole_or_by_function_and_argument() {
    let Some(CheckedObject::Endpoint(e)) = parse(ENDPOINT).object else { panic!("no endpoint") };
    assert_eq!(e.sid, SidSource::Whole("2001:db8:ff01:11:e001::".parse().unwrap()));
    let composed =
        ENDPOINT.replace("sid: \"2001:db8:ff01:11:e001::\"", "function: End.DT46\n  argument: 4095");
    let Some(CheckedObject::Endpoint(e)) = parse(&composed).object else { panic!("no endpoint") };
    assert!(matches!(e.sid, SidSource::Composed { argument: 4095, .. }));
}

#[rstest]
#[case(
    "weight: 2",
    "weight: 0",
    "18: spec.backends[1].weight: 0 is no weight: it is less than 1; set `drained: true` to give a backend no new flow"
)]
#[case(
    "      port: 443\n      weight",
    "      port: 8081\n      weight",
    "17: spec.backends[1].port: 8081 differs from the rule's port 443: direct server return rewrites nothing; let the backend listen on 443 (or make a rule for 8081)"
)]
#[case(
    "      port: 443\n      weight: 2",
    "      weight: 2",
    "16: spec.backends[1].port: is missing; write port: 443, the rule's"
)]
#[case(
    "fd00::2",
    "FD00:0::1",
    "16: spec.backends[1].address: FD00:0::1 is the address of spec.backends[0] again; name each backend once"
)]
#[case(
    "fd00::2",
    "ff02::1",
    "16: spec.backends[1].address: ff02::1 is a multicast address; give the backend's own unicast address inside the VPC"
)]
#[case(
    "fd00::2",
    "backend2",
    "16: spec.backends[1].address: backend2 is no IP address; give the backend's own unicast address inside the VPC"
)]
#[case(
    "2001:db8:100::1",
    "0.0.0.0",
    "10: spec.vipAddresses[0]: 0.0.0.0 is the unspecified address; give a unicast address that routers may carry"
)]
#[case(
    "2001:db8:100::1",
    "0.1.2.3",
    "10: spec.vipAddresses[0]: 0.1.2.3 is an address of \"this network\" (0.0.0.0/8); give a unicast address that routers may carry"
)]
#[case(
    "2001:db8:100::1",
    "127.0.0.53",
    "10: spec.vipAddresses[0]: 127.0.0.53 is a loopback address; give a unicast address that routers may carry"
)]
#[case(
    "2001:db8:100::1",
    "169.254.0.1",
    "10: spec.vipAddresses[0]: 169.254.0.1 is a link-local address; give a unicast address that routers may carry"
)]
#[case(
    "2001:db8:100::1",
    "232.1.1.1",
    "10: spec.vipAddresses[0]: 232.1.1.1 is a multicast address; give a unicast address that routers may carry"
)]
#[case(
    "2001:db8:100::1",
    "250.0.0.1",
    "10: spec.vipAddresses[0]: 250.0.0.1 is a reserved address (240.0.0.0/4); give a unicast address that routers may carry"
)]
#[case(
    "2001:db8:100::1",
    "255.255.255.255",
    "10: spec.vipAddresses[0]: 255.255.255.255 is the broadcast address; give a unicast address that routers may carry"
)]
#[case(
    "2001:db8:100::1",
    "192.0.2.01",
    "10: spec.vipAddresses[0]: 192.0.2.01 is no IP address; give one address, without prefix length, zone or port"
)]
#[case(
    "2001:db8:100::1",
    "::ffff:192.0.2.1",
    "10: spec.vipAddresses[0]: ::ffff:192.0.2.1 is an IPv4 address written as IPv6 (::ffff:0:0/96); write it as IPv4"
)]
#[case(
    "2001:db8:100::1",
    "ff0e::1",
    "10: spec.vipAddresses[0]: ff0e::1 is a multicast address; give a unicast address that routers may carry"
)]
#[case(
    "2001:db8:100::1",
    "::",
    "10: spec.vipAddresses[0]: :: is the unspecified address; give a unicast address that routers may carry"
)]
#[case(
    "2001:db8:100::1",
    "::1",
    "10: spec.vipAddresses[0]: ::1 is the loopback address; give a unicast address that routers may carry"
)]
#[case(
    "2001:db8:100::1",
    "fe80::1",
    "10: spec.vipAddresses[0]: fe80::1 is a link-local address; give a unicast address that routers may carry"
)]
#[case(
    "2001:db8:100::1",
    "2001:db8:100::1/128",
    "10: spec.vipAddresses[0]: 2001:db8:100::1/128 is no IP address; give one address, without prefix length, zone or port"
)]
#[case(
    "    - \"2001:db8:100::1\"\n",
    "    - \"2001:db8:100::1\"\n    - \"2001:DB8:100:0::1\"\n",
    "11: spec.vipAddresses[1]: 2001:DB8:100:0::1 is the address of spec.vipAddresses[0] again; give each address once"
)]
#[case(
    "\n    - \"2001:db8:100::1\"\n",
    " []\n",
    "9: spec.vipAddresses: is empty; give one to eight addresses"
)]
#[case(
    "protocol: tcp",
    "protocol: esp",
    "11: spec.protocol: esp is not served yet; use tcp or udp|12: spec.port: 443 is given, but esp has no ports; leave it out"
)]
#[case("protocol: tcp", "protocol: sctp", "11: spec.protocol: sctp is not served yet; use tcp or udp")]
#[case(
    "protocol: tcp",
    "protocol: tpc",
    "11: spec.protocol: tpc is not known; use one of tcp, udp, esp, gre, icmp, sctp"
)]
#[case("  port: 443\n", "", "7: spec.port: is missing, and tcp needs one; give a port from 1 to 65535")]
#[case("  port: 443\n  b", "  port: https\n  b", "12: spec.port: https cannot be read; write a whole number")]
#[case(
    "  port: 443\n  b",
    "  port: 0\n  b",
    "12: spec.port: 0 is no port; give a port from 1 to 65535|15: spec.backends[0].port: 443 differs from the rule's port 0: direct server return rewrites nothing; let the backend listen on 0 (or make a rule for 443)|17: spec.backends[1].port: 443 differs from the rule's port 0: direct server return rewrites nothing; let the backend listen on 0 (or make a rule for 443)"
)]
#[case(
    "  port: 443\n  b",
    "  port: 443\n  ringSize: 65536\n  b",
    "13: spec.ringSize: 65536 is no ring size; choose 1021, 4093, 16381 or 65537"
)]
#[case("vpcRef: vpc-a\n", "vpcRef: \"\"\n", "7: spec.vpcRef: is empty; name the VPC")]
#[case("  vpcRef: vpc-a\n", "", "7: spec.vpcRef: is missing; add it")]
#[case(
    "vpcRef: vpc-a\n",
    "vpcReff: vpc-a\n",
    "7: spec.vpcReff: is no known field; remove it, or use one of vpcRef, vpcAttachmentRef, vipAddresses, protocol, port, backends, region, affinity, ringSize, onAllDown, healthCheck"
)]
#[case(
    "weight: 2",
    "wieght: 2",
    "18: spec.backends[1].wieght: is no known field; remove it, or use one of address, port, weight, drained"
)]
#[case(
    "weight: 2",
    "drained: yes",
    "18: spec.backends[1].drained: yes is neither true nor false; write true or false"
)]
#[case(
    "name: web",
    "name: Web",
    "4: metadata.name: Web holds 'W', which an RFC 1123 name may not; name the object with lower-case letters, digits, `-` and `.`"
)]
#[case(
    "namespace: tenant-a",
    "namespace: tenant.a",
    "5: metadata.namespace: tenant.a holds '.', which an RFC 1123 name may not; name the namespace with lower-case letters, digits and `-`, or leave it out for `default`"
)]
#[case(
    "kind: NetworkRule",
    "kind: NetworkRole",
    "2: kind: NetworkRole is not known here; write NetworkRule, VPCEndpoint, BGPRouter, NAT66Shard or ServiceVIPBinding"
)]
#[case(
    "v1alpha1",
    "v1",
    "1: apiVersion: network.datumapis.com/v1 is not known; write apiVersion: network.datumapis.com/v1alpha1"
)]
#[case("  port: 443\n  b", "  port: 443\n  port: 443\n  b", "13: port: is written twice; keep one of them")]
#[case(
    "  protocol",
    "  healthCheck: { type: tcp, interval: 10, timeout: 11s }\n  protocol",
    "11: spec.healthCheck.interval: 10 is no duration; write it like 10s or 1m30s"
)]
#[case(
    "  protocol",
    "  healthCheck: { type: tcp, interval: 10s, timeout: 11s }\n  protocol",
    "11: spec.healthCheck.timeout: 11s is longer than the interval 10s; give at most the interval"
)]
#[case(
    "  protocol",
    "  healthCheck: { type: udp }\n  protocol",
    "11: spec.healthCheck.udp: is missing for type udp; say what to send: a backend answers nothing to an empty datagram"
)]
#[case(
    "  protocol",
    "  healthCheck: { type: http, http: { path: healthz, statuses: [200, 20] } }\n  protocol",
    "11: spec.healthCheck.http.path: healthz is no path of a request; begin it with / and escape spaces|11: spec.healthCheck.http.statuses[1]: 20 is no HTTP status; give a number from 100 to 599"
)]
#[case(
    "fd00::1\"\n      port: 443\n    - address: \"fd00::2",
    "10.0.0.1\"\n      port: 443\n    - address: \"::ffff:10.0.0.1",
    "16: spec.backends[1].address: ::ffff:10.0.0.1 is the address of spec.backends[0] again; name each backend once"
)]
fn a_bad_rule_is_refused_with_line_field_value_and_remedy(
    #[case] from: &str,
    #[case] to: &str,
    #[case] want: &str,
) {
    assert_eq!(problems(RULE, from, to), want.split('|').collect::<Vec<_>>());
}

#[rstest]
#[case(
    "  sid: \"2001:db8:ff01:11:e001::\"\n",
    "",
    "7: spec.sid: is missing, and so are function and argument; give either sid, or function and argument"
)]
#[case(
    "  sid:",
    "  argument: 1\n  sid:",
    "12: spec.sid: 2001:db8:ff01:11:e001:: is given beside function or argument; give either sid, or function and argument"
)]
#[case(
    "sid: \"2001:db8:ff01:11:e001::\"",
    "function: End.DT46",
    "7: spec.argument: is missing beside function; give either sid, or function and argument"
)]
#[case("sid: \"2001:db8:ff01:11:e001::\"", "{function: End.DT46", "11: cannot be read: ")]
#[case(
    "sid: \"2001:db8:ff01:11:e001::\"",
    "function: End.DT46\n  argument: 4096",
    "12: spec.argument: 4096 does not fit a SID; give a number from 1 to 4095 (12 bits of the SID)"
)]
#[case(
    "sid: \"2001:db8:ff01:11:e001::\"",
    "function: End.DX2\n  argument: 1",
    "11: spec.function: End.DX2 is not known; use one of End.DT46, End.DX46"
)]
#[case(
    "2001:db8:ff01:11:e001::",
    "10.0.0.1",
    "11: spec.sid: 10.0.0.1 is an IPv4 address; give the IPv6 SID that the node's worker decapsulates"
)]
#[case(
    "nodeName: worker1",
    "nodeName: \"\"",
    "10: spec.nodeName: is empty; name the node that holds the address"
)]
#[case(
    "address: \"fd00::1\"",
    "address: [\"fd00::1\"]",
    "9: spec.address: is of the wrong shape; write one value"
)]
fn a_bad_endpoint_is_refused_with_line_field_value_and_remedy(
    #[case] from: &str,
    #[case] to: &str,
    #[case] want: &str,
) {
    let got = problems(ENDPOINT, from, to).join("|");
    // The words of a YAML fault are the library's: only the place is ours.
    assert!(if want.ends_with(": ") { got.starts_with(want) } else { got == want }, "{got}");
}

#[test]
fn a_weight_may_be_any_positive_integer() {
    let parsed = parse(&RULE.replace("weight: 2", &format!("weight: {}", i64::MAX)));
    assert!(parsed.problems.is_empty(), "{:?}", parsed.problems);
    let Some(CheckedObject::Rule(rule)) = parsed.object else { panic!("no rule") };
    assert_eq!(rule.backends[1].weight.get(), i64::MAX as u64);
}

const ROUTER: &str = r#"apiVersion: network.datumapis.com/v1alpha1
kind: BGPRouter
metadata: { name: r1 }
spec:
  targetRef: { kind: Node, name: gw1 }
  roles: [fabric, tenant]
  localASN: 65010
  routerID: 192.0.2.1
  addressFamilies:
    - { afi: ipv6, safi: unicast }
    - { afi: l2vpn, safi: evpn }
  srv6Locator: "2001:db8:ff01::/48"
  nodeID: 17
  listenPort: 179
status: { phase: Ready, roles: [fabric], peers: { total: 2, established: 1 } }
"#;

#[test]
fn a_router_gives_its_nodes_block_and_number() {
    let parsed = parse(ROUTER);
    assert!(parsed.problems.is_empty(), "{:?}", parsed.problems);
    let Some(CheckedObject::Router(router)) = parsed.object else { panic!("no router") };
    assert_eq!((&*router.node, router.locator), ("gw1", Some(("2001:db8:ff01::/48".parse().unwrap(), 17))));
    // One that only reflects routes has no locator.
    let bare = ROUTER.replace("  srv6Locator: \"2001:db8:ff01::/48\"\n  nodeID: 17\n", "");
    let Some(CheckedObject::Router(router)) = parse(&bare).object else { panic!("no router") };
    assert_eq!(router.locator, None);
}

#[rstest]
#[case("kind: Node,", "kind: Pod,", "5: spec.targetRef.kind: Pod is not Node; write Node")]
#[case("[fabric, tenant]", "[]", "6: spec.roles: is empty; give fabric, tenant or transit")]
#[case(
    "localASN: 65010",
    "localASN: 0",
    "7: spec.localASN: 0 is no AS number; give a number from 1 to 4294967295"
)]
#[case(
    "192.0.2.1",
    "192.0.2",
    "8: spec.routerID: 192.0.2 is no router id; give a dotted quad of the node's own, such as 192.0.2.11"
)]
#[case(
    "afi: ipv6, safi: unicast",
    "afi: ipv6, safi: evpn",
    "10: spec.addressFamilies[0].safi: evpn does not go with the afi; write unicast, which ipv4 and ipv6 go with"
)]
#[case(
    "ff01::/48",
    "ff01::/40",
    "12: spec.srv6Locator: 2001:db8:ff01::/40 has length 40, and the SID layout needs 48; give the region's SRv6 block, a /48 such as 2001:db8:ff01::/48"
)]
#[case(
    "nodeID: 17",
    "nodeID: 57344",
    "13: spec.nodeID: 57344 is no node id; give a number from 1 to 57343 (0xdfff)"
)]
#[case(
    "  nodeID: 17\n",
    "",
    "5: spec.nodeID: is missing beside srv6Locator; give the node's number, from 1 to 57343 (0xdfff)"
)]
fn a_routers_fields_are_refused_with_field_value_and_remedy(
    #[case] from: &str,
    #[case] to: &str,
    #[case] want: &str,
) {
    assert_eq!(problems(ROUTER, from, to).join("|"), want);
}

#[test]
fn a_shards_sid_is_read_and_must_be_one() {
    let shard = "apiVersion: network.datumapis.com/v1alpha1\nkind: NAT66Shard\nmetadata: { name: s }\nspec: { targetRef: { kind: Node, \
                 name: gw1 } }\nstatus: { shardAddress: \"2001:db8::9\", shardSID: \"2001:db8:ff09:1:f001::\" }\n";
    let Some(CheckedObject::Shard(read)) = parse(shard).object else { panic!("{:?}", parse(shard).problems) };
    assert_eq!(read.sid, Some("2001:db8:ff09:1:f001::".parse().unwrap()));
    let words = problems(shard, "2001:db8:ff09:1:f001::", "192.0.2.1").join("|");
    assert!(words.contains("status.shardSID: 192.0.2.1 is an IPv4 address"), "{words}");
}

#[test]
fn all_problems_of_an_object_are_told_at_once() {
    let text = RULE
        .replace("fd00::2", "::")
        .replace("weight: 2", "weight: -1")
        .replace("name: web", "name: -web")
        .replace("vpcAttachmentRef: vpc-a-east", "vpcAttachmentRef: \"a b\"");
    let fields: Vec<_> = parse(&text).problems.into_iter().map(|p| p.problem.field).collect();
    let want =
        ["metadata.name", "spec.vpcAttachmentRef", "spec.backends[1].address", "spec.backends[1].weight"];
    assert_eq!(fields, want);
}

/// Lines that bring a rule of two backends to `count`.
fn more_backends(count: usize) -> String {
    let line = |i| ["    - { address: \"fd00::", &format!("{i:x}"), "\", port: 443 }\n"].concat();
    (3..=count).map(line).collect()
}

#[test]
fn few_slots_for_many_backends_is_a_warning_only() {
    let mut text = RULE.replace("  port: 443\n  b", "  port: 443\n  ringSize: 1021\n  b");
    text += &more_backends(11);
    let parsed = parse(&text);
    assert!(parsed.object.is_some());
    assert_eq!(
        parsed.problems[0].to_string(),
        "objects.d/web.yaml:13: spec.ringSize: warning: 1021 slots are few for 11 backends: shares of flows will be uneven; choose 4093 when the rule is made next"
    );
}

#[test]
fn more_than_512_backends_are_refused() {
    let text = RULE.to_string() + &more_backends(513);
    let words: Vec<_> =
        parse(&text).problems.iter().filter(|p| p.is_error()).map(|p| p.problem.to_string()).collect();
    assert_eq!(words, ["spec.backends: has 513 backends; give at most 512"]);
}

#[rstest]
#[case("", "objects.d/web.yaml:1: the file holds no object; write one, or remove the file")]
#[case(
    "# only a comment\n\n",
    "objects.d/web.yaml:1: the file holds no object; write one, or remove the file"
)]
#[case("hello", "objects.d/web.yaml:1: hello is a single value; write `name: value` lines, or {name: value}")]
fn a_text_that_is_no_object_is_refused(#[case] text: &str, #[case] want: &str) {
    let problems: Vec<_> = parse(text).problems.iter().map(ToString::to_string).collect();
    assert_eq!(problems, [want]);
}

#[test]
fn a_second_document_refuses_the_file() {
    let parsed = parse(&format!("{RULE}---\n{ENDPOINT}"));
    assert_eq!(
        parsed.problems[0].problem.to_string(),
        "the file holds more than one document; write one object a file"
    );
    assert!(parsed.object.is_none());
}

#[test]
fn bytes_that_are_no_text_are_refused() {
    let parsed = parse_file(Path::new("x.yaml"), b"\xff\xfe");
    assert_eq!(parsed.problems[0].to_string(), "x.yaml:1: the file is not UTF-8; save it as UTF-8 text");
}

proptest! {
    #[test]
    fn no_bytes_make_the_parser_panic(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        let parsed = parse_file(Path::new("x.yaml"), &bytes);
        prop_assert!(parsed.object.is_some() || !parsed.problems.is_empty());
    }

    /// Damage to a good file reaches deeper than noise does.
    #[test]
    fn no_damage_makes_the_parser_panic(
        at in 0..RULE.len(), cut in 0..60usize, put in "[-:{}\\[\\]\"'&*!|>#%@,a0 \n\t]{0,12}", rule in any::<bool>(),
    ) {
        let base = if rule { RULE } else { ENDPOINT };
        let at = at.min(base.len());
        let text = format!("{}{put}{}", &base[..at], &base[(at + cut).min(base.len())..]);
        let parsed = parse(&text);
        prop_assert_eq!(parsed.object.is_none(), parsed.problems.iter().any(weir_api::FileProblem::is_error));
    }
}
