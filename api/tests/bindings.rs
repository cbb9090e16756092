//! `ServiceVIPBinding` as files: what is accepted with which defaults, and what is refused with which words.

use std::path::Path;

use rstest::rstest;
use weir_api::checked::{CheckedObject, Transport};
use weir_api::object::{Parsed, parse_file};
use weir_api::service_vip_binding::{Delivery, EgressKind};

const BINDING: &str = r#"apiVersion: network.datumapis.com/v1alpha1
kind: ServiceVIPBinding
metadata:
  name: web-a1
  namespace: platform
spec:
  targetRef: { kind: Node, name: worker1 }
  vipAddress: "2001:db8:100::1"
  port: 443
  protocol: tcp
  backendAddress: "fd00::1"
  backendPort: 443
  egressKind: veth
"#;

fn parse(text: &str) -> Parsed {
    parse_file(Path::new("b.yaml"), text.as_bytes())
}

fn words(text: &str) -> Vec<String> {
    let parsed = parse(text);
    assert_eq!(parsed.object.is_none(), !parsed.problems.is_empty());
    parsed.problems.iter().map(|p| p.to_string().trim_start_matches("b.yaml:").to_owned()).collect()
}

#[test]
fn a_binding_with_only_the_public_fields_is_accepted() {
    let parsed = parse(BINDING);
    assert!(parsed.problems.is_empty(), "{:?}", parsed.problems);
    let Some(CheckedObject::Binding(b)) = parsed.object else { panic!("no binding") };
    assert_eq!(
        (b.transport, b.port, b.egress, b.delivery),
        (Transport::Tcp, 443, EgressKind::Veth, Delivery::Bind)
    );
    assert_eq!((&*b.node, b.vpc, b.interface, b.namespace), ("worker1", None, None, None));
}

#[test]
fn a_binding_with_every_field_and_an_ipv4_vip_is_accepted() {
    let text = BINDING.replace("2001:db8:100::1", "192.0.2.80")
        + "  vpcRef: vpc-a\n  vpcAttachmentRef: east\n  interface: veth12\n  \
        networkNamespace: /run/netns/pod\n  delivery: Bind\nstatus:\n  conditions: [{ type: Bound, status: \"True\" }]\n";
    let parsed = parse(&text);
    assert!(parsed.problems.is_empty(), "{:?}", parsed.problems);
    let Some(CheckedObject::Binding(b)) = parsed.object else { panic!("no binding") };
    assert_eq!(b.vip.to_string(), "192.0.2.80");
    assert_eq!((b.vpc.as_deref(), b.interface.as_deref()), (Some("vpc-a"), Some("veth12")));
}

#[rstest]
#[case("kind: Node", "kind: Pod", "7: spec.targetRef.kind: Pod is no node; write kind: Node")]
#[case(
    "name: worker1 }",
    "name: \"\" }",
    "7: spec.targetRef.name: is empty; name the node that holds the endpoint"
)]
#[case(
    "2001:db8:100::1",
    "fe80::1",
    "8: spec.vipAddress: fe80::1 is no address that routers may carry; give one unicast address that routers may carry"
)]
#[case(
    "2001:db8:100::1",
    "::ffff:192.0.2.1",
    "8: spec.vipAddress: ::ffff:192.0.2.1 is an IPv4 address written as IPv6 (::ffff:0:0/96); give one unicast address that routers may carry"
)]
#[case(
    "2001:db8:100::1",
    "127.0.0.1",
    "8: spec.vipAddress: 127.0.0.1 is no address that routers may carry; give one unicast address that routers may carry"
)]
#[case(
    "2001:db8:100::1",
    "fd00::1",
    "11: spec.backendAddress: fd00::1 is the VIP itself; give the endpoint's own address inside its VPC"
)]
#[case("  port: 443", "  port: 0", "9: spec.port: 0 is no port; give a port from 1 to 65535")]
#[case(
    "  port: 443\n",
    "",
    "7: spec.port: is missing, and the protocol needs one; give a port from 1 to 65535"
)]
#[case(
    "backendPort: 443",
    "backendPort: 8443",
    "12: spec.backendPort: 8443 differs from the VIP's port 443, and ports are never changed; let the backend listen on 443"
)]
#[case("protocol: tcp", "protocol: gre", "10: spec.protocol: gre is not served yet; use tcp or udp")]
#[case(
    "egressKind: veth",
    "egressKind: bridge",
    "13: spec.egressKind: bridge is not known; use one of veth, tap"
)]
#[case(
    "egressKind: veth",
    "egressKind: veth\n  interface: a/b",
    "14: spec.interface: a/b is no interface name; give a name as `ip link` shows it, at most 15 characters"
)]
#[case(
    "egressKind: veth",
    "egressKind: veth\n  networkNamespace: netns/pod",
    "14: spec.networkNamespace: netns/pod is no absolute path; give a path such as /run/netns/pod1 or /proc/4711/ns/net"
)]
#[case(
    "egressKind: veth",
    "egressKind: tap\n  networkNamespace: /run/netns/vm",
    "14: spec.networkNamespace: /run/netns/vm is given for a tap, whose guest has none on this node; give a path such as /run/netns/pod1 or /proc/4711/ns/net"
)]
#[case(
    "egressKind: veth",
    "egressKind: veth\n  vpcAttachmentRef: east",
    "7: spec.vpcRef: is missing beside vpcAttachmentRef; name the VPC too, or leave both out"
)]
#[case(
    "egressKind: veth",
    "egressKind: veth\n  mac: aa",
    "14: spec.mac: is no known field; remove it, or use one of targetRef, vipAddress, port, protocol, backendAddress, backendPort, egressKind, vpcRef, vpcAttachmentRef, interface, networkNamespace, delivery"
)]
#[case(
    "2001:db8:100::1\"",
    "192.0.2.1\"\n  delivery: Translate",
    "12: spec.backendAddress: fd00::1 cannot be exchanged with 192.0.2.1, which is of the other family; use delivery: Bind"
)]
fn a_bad_binding_is_refused_with_line_field_value_and_remedy(
    #[case] from: &str,
    #[case] to: &str,
    #[case] want: &str,
) {
    assert!(BINDING.contains(from), "{from:?}");
    assert_eq!(words(&BINDING.replacen(from, to, 1)), [want]);
}
