//! Every rule that one `ServiceVIPBinding` must hold, all broken ones at once.

use std::net::{IpAddr, Ipv6Addr};

use crate::address;
use crate::checked::{CheckedBinding, Transport};
use crate::names;
use crate::network_rule::Protocol;
use crate::object::identity;
use crate::problem::Problem;
use crate::service_vip_binding::{Delivery, EgressKind, ServiceVIPBinding, ServiceVIPBindingSpec};

/// Longest name of an interface (`IFNAMSIZ` less its end).
pub const MAX_INTERFACE: usize = 15;
/// Longest path of a network namespace.
pub const MAX_NAMESPACE: usize = 127;

/// Checks a binding. The binding is `None` exactly when a problem is an error.
pub fn check(binding: &ServiceVIPBinding) -> (Option<CheckedBinding>, Vec<Problem>) {
    let mut problems = Vec::new();
    let spec = &binding.spec;
    names::metadata(&binding.metadata, &mut problems);
    if spec.target_ref.kind != "Node" {
        let remedy = "write kind: Node";
        problems.push(Problem::error("spec.targetRef.kind", &spec.target_ref.kind, "is no node", remedy));
    }
    if let Err(why) = names::subdomain(&spec.target_ref.name) {
        let remedy = "name the node that holds the endpoint";
        problems.push(Problem::error("spec.targetRef.name", &spec.target_ref.name, why, remedy));
    }
    let vip = vip(&spec.vip_address, &mut problems);
    let backend = address::backend("spec.backendAddress", &spec.backend_address, &mut problems);
    if let (Some(vip), Some(backend)) = (vip, backend)
        && vip == backend
    {
        let remedy = "give the endpoint's own address inside its VPC";
        problems.push(Problem::error("spec.backendAddress", backend, "is the VIP itself", remedy));
    }
    let transport = transport(spec.protocol, &mut problems);
    let port = ports(spec, &mut problems);
    for (field, value, what) in [
        ("spec.vpcRef", &spec.vpc_ref, "VPC"),
        ("spec.vpcAttachmentRef", &spec.vpc_attachment_ref, "VPC attachment"),
    ] {
        if let Some(value) = value {
            names::reference(field, value, what, &mut problems);
        }
    }
    if spec.vpc_attachment_ref.is_some() && spec.vpc_ref.is_none() {
        let remedy = "name the VPC too, or leave both out";
        problems.push(Problem::error("spec.vpcRef", "", "is missing beside vpcAttachmentRef", remedy));
    }
    interface(spec, &mut problems);
    namespace(spec, &mut problems);
    if spec.delivery == Delivery::Translate
        && let (Some(vip), Some(backend)) = (vip, backend)
        && vip.is_ipv4() != backend.is_ipv4()
    {
        let why = format!("cannot be exchanged with {vip}, which is of the other family");
        problems.push(Problem::error("spec.backendAddress", backend, why, "use delivery: Bind"));
    }
    let checked = match (vip, backend, transport, port) {
        (Some(vip), Some(backend), Some(transport), Some(port)) if !crate::problem::refuses(&problems) => {
            Some(CheckedBinding {
                id: identity(&binding.metadata),
                node: spec.target_ref.name.as_str().into(),
                vip,
                transport,
                port,
                backend,
                egress: spec.egress_kind,
                vpc: spec.vpc_ref.as_deref().map(Into::into),
                attachment: spec.vpc_attachment_ref.as_deref().map(Into::into),
                interface: spec.interface.as_deref().map(Into::into),
                namespace: spec.network_namespace.as_deref().map(Into::into),
                delivery: spec.delivery,
            })
        }
        _ => None,
    };
    (checked, problems)
}

fn vip(text: &str, problems: &mut Vec<Problem>) -> Option<IpAddr> {
    let remedy = "give one unicast address that routers may carry";
    let why = match text.parse::<IpAddr>() {
        Err(_) => "is no IP address",
        Ok(IpAddr::V6(a)) if a.to_ipv4_mapped().is_some() => {
            "is an IPv4 address written as IPv6 (::ffff:0:0/96)"
        }
        Ok(address) if unroutable(address) => "is no address that routers may carry",
        Ok(address) => return Some(address),
    };
    problems.push(Problem::error("spec.vipAddress", text, why, remedy));
    None
}

fn unroutable(address: IpAddr) -> bool {
    let special = address.is_unspecified() || address.is_loopback() || address.is_multicast();
    special
        || match address {
            IpAddr::V4(a) => a.is_link_local() || a.is_broadcast() || a.octets()[0] == 0,
            IpAddr::V6(a) => Ipv6Addr::is_unicast_link_local(&a),
        }
}

fn transport(protocol: Protocol, problems: &mut Vec<Problem>) -> Option<Transport> {
    match protocol {
        Protocol::Tcp => Some(Transport::Tcp),
        Protocol::Udp => Some(Transport::Udp),
        Protocol::Esp | Protocol::Gre | Protocol::Icmp | Protocol::Sctp => {
            let remedy = "use tcp or udp";
            problems.push(Problem::error("spec.protocol", protocol.name(), "is not served yet", remedy));
            None
        }
    }
}

fn ports(spec: &ServiceVIPBindingSpec, problems: &mut Vec<Problem>) -> Option<u16> {
    let mut read = |field: &str, port: Option<i64>| {
        let remedy = "give a port from 1 to 65535";
        let Some(port) = port else {
            problems.push(Problem::error(field, "", "is missing, and the protocol needs one", remedy));
            return None;
        };
        let number = u16::try_from(port).ok().filter(|&p| p != 0);
        if number.is_none() {
            problems.push(Problem::error(field, port, "is no port", remedy));
        }
        number
    };
    let (port, backend) = (read("spec.port", spec.port), read("spec.backendPort", spec.backend_port));
    match (port, backend) {
        (Some(port), Some(backend)) if port != backend => {
            let why = format!("differs from the VIP's port {port}, and ports are never changed");
            let remedy = format!("let the backend listen on {port}");
            problems.push(Problem::error("spec.backendPort", backend, why, remedy));
            None
        }
        (Some(port), Some(_)) => Some(port),
        _ => None,
    }
}

fn interface(spec: &ServiceVIPBindingSpec, problems: &mut Vec<Problem>) {
    let Some(name) = &spec.interface else { return };
    let bad = |c: char| c == '/' || c == ':' || c.is_whitespace() || c.is_control();
    if name.is_empty() || name.len() > MAX_INTERFACE || name == "." || name == ".." || name.contains(bad) {
        let remedy = "give a name as `ip link` shows it, at most 15 characters";
        problems.push(Problem::error("spec.interface", name, "is no interface name", remedy));
    }
}

fn namespace(spec: &ServiceVIPBindingSpec, problems: &mut Vec<Problem>) {
    let Some(path) = &spec.network_namespace else { return };
    let remedy = "give a path such as /run/netns/pod1 or /proc/4711/ns/net";
    let why = if !path.starts_with('/') {
        "is no absolute path".into()
    } else if path.len() > MAX_NAMESPACE {
        format!("has {} bytes, more than {MAX_NAMESPACE}", path.len())
    } else if path.chars().any(char::is_control) {
        "holds control characters".into()
    } else if spec.egress_kind == EgressKind::Tap {
        "is given for a tap, whose guest has none on this node".into()
    } else {
        return;
    };
    problems.push(Problem::error("spec.networkNamespace", path, why, remedy));
}
