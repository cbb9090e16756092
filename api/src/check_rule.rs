//! Every rule that one `NetworkRule` must hold, all broken ones at once.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::num::NonZeroU64;

use crate::address;
use crate::checked::{CheckedBackend, CheckedHealthCheck, CheckedRule, Transport, Verdicts};
use crate::duration;
use crate::names;
use crate::network_rule::{HealthCheck, HealthCheckType, NetworkRule, NetworkRuleSpec, Protocol};
use crate::object::identity;
use crate::problem::Problem;

/// Most VIPs of a rule.
pub const MAX_VIPS: usize = 8;
/// Most backends of a rule.
pub const MAX_BACKENDS: usize = 512;
/// Sizes a ring may have.
pub const RING_SIZES: [i64; 4] = [1021, 4093, 16381, 65537];

/// Checks a rule. The rule is `None` exactly when a problem is an error.
pub fn check(rule: &NetworkRule) -> (Option<CheckedRule>, Vec<Problem>) {
    let mut problems = Vec::new();
    let spec = &rule.spec;
    names::metadata(&rule.metadata, &mut problems);
    names::reference("spec.vpcRef", &spec.vpc_ref, "VPC", &mut problems);
    names::reference("spec.vpcAttachmentRef", &spec.vpc_attachment_ref, "VPC attachment", &mut problems);
    if let Some(region) = &spec.region
        && let Err(why) = names::label(region)
    {
        problems.push(Problem::error("spec.region", region, why, "name a region, or leave it out"));
    }
    let vips = vips(spec, &mut problems);
    let transport = transport(spec.protocol, &mut problems);
    let port = port(spec, &mut problems);
    let ring_size = ring_size(spec, &mut problems);
    let verdicts = verdicts(rule, &mut problems);
    let backends = backends(spec, &verdicts, &mut problems);
    let health_check = spec.health_check.as_ref().and_then(|h| health_check(h, &mut problems));

    let checked = match (transport, port, ring_size) {
        (Some(transport), Some(port), Some(ring_size)) if !crate::problem::refuses(&problems) => {
            Some(CheckedRule {
                id: identity(&rule.metadata),
                region: spec.region.clone(),
                vips,
                transport,
                port,
                affinity: spec.affinity,
                ring_size,
                on_all_down: spec.on_all_down,
                vpc: spec.vpc_ref.as_str().into(),
                attachment: spec.vpc_attachment_ref.as_str().into(),
                backends,
                health_check,
            })
        }
        _ => None,
    };
    (checked, problems)
}

fn vips(spec: &NetworkRuleSpec, problems: &mut Vec<Problem>) -> Vec<IpAddr> {
    let count = spec.vip_addresses.len();
    if count == 0 {
        let remedy = "give one to eight addresses";
        problems.push(Problem::error("spec.vipAddresses", "", "is empty", remedy));
    } else if count > MAX_VIPS {
        let remedy = "give at most eight addresses and make another rule for the rest";
        problems.push(Problem::error("spec.vipAddresses", "", format!("has {count} addresses"), remedy));
    }
    let mut first = BTreeMap::new();
    for (i, text) in spec.vip_addresses.iter().enumerate() {
        let field = format!("spec.vipAddresses[{i}]");
        let Some(vip) = address::vip(&field, text, problems) else { continue };
        if let Some(earlier) = first.insert(vip, i) {
            let why = format!("is the address of spec.vipAddresses[{earlier}] again");
            problems.push(Problem::error(field, text, why, "give each address once"));
        }
    }
    first.into_keys().collect()
}

fn transport(protocol: Protocol, problems: &mut Vec<Problem>) -> Option<Transport> {
    match protocol {
        Protocol::Tcp => Some(Transport::Tcp),
        Protocol::Udp => Some(Transport::Udp),
        Protocol::Esp | Protocol::Gre | Protocol::Icmp | Protocol::Sctp => {
            problems.push(Problem::error(
                "spec.protocol",
                protocol.name(),
                "is not served yet",
                "use tcp or udp",
            ));
            None
        }
    }
}

fn port(spec: &NetworkRuleSpec, problems: &mut Vec<Problem>) -> Option<u16> {
    let name = spec.protocol.name();
    match (spec.protocol, spec.port) {
        (Protocol::Esp | Protocol::Gre | Protocol::Icmp, Some(port)) => {
            let why = format!("is given, but {name} has no ports");
            problems.push(Problem::error("spec.port", port, why, "leave it out"));
            None
        }
        (Protocol::Esp | Protocol::Gre | Protocol::Icmp, None) => None,
        (Protocol::Tcp | Protocol::Udp | Protocol::Sctp, None) => {
            let why = format!("is missing, and {name} needs one");
            problems.push(Problem::error("spec.port", "", why, "give a port from 1 to 65535"));
            None
        }
        (_, Some(port)) => port_number("spec.port", port, problems),
    }
}

fn port_number(field: &str, port: i64, problems: &mut Vec<Problem>) -> Option<u16> {
    let number = u16::try_from(port).ok().filter(|&p| p != 0);
    if number.is_none() {
        problems.push(Problem::error(field, port, "is no port", "give a port from 1 to 65535"));
    }
    number
}

fn ring_size(spec: &NetworkRuleSpec, problems: &mut Vec<Problem>) -> Option<u32> {
    if !RING_SIZES.contains(&spec.ring_size) {
        let remedy = "choose 1021, 4093, 16381 or 65537";
        problems.push(Problem::error("spec.ringSize", spec.ring_size, "is no ring size", remedy));
        return None;
    }
    let wanted = spec.backends.len() as i64 * 100;
    if wanted > spec.ring_size {
        let why =
            format!("slots are few for {} backends: shares of flows will be uneven", spec.backends.len());
        let remedy = match RING_SIZES.iter().find(|&&s| s >= wanted) {
            Some(size) => format!("choose {size} when the rule is made next"),
            None => "accept it, or split the rule".to_string(),
        };
        problems.push(Problem::warning("spec.ringSize", spec.ring_size, why, remedy));
    }
    u32::try_from(spec.ring_size).ok()
}

fn verdicts(rule: &NetworkRule, problems: &mut Vec<Problem>) -> Verdicts {
    let mut verdicts = Verdicts::new();
    for (i, b) in rule.status.iter().flat_map(|s| &s.backends).enumerate() {
        let field = format!("status.backends[{i}].address");
        let Some(address) = address::parse(&b.address) else {
            let remedy = "write the address of one of the rule's backends";
            problems.push(Problem::error(field, &b.address, "is no IP address", remedy));
            continue;
        };
        if verdicts.insert(address, b.health).is_some() {
            let remedy = "give one verdict for each backend";
            problems.push(Problem::error(field, &b.address, "has a verdict already", remedy));
        }
    }
    verdicts
}

fn backends(spec: &NetworkRuleSpec, verdicts: &Verdicts, problems: &mut Vec<Problem>) -> Vec<CheckedBackend> {
    let count = spec.backends.len();
    if count == 0 {
        problems.push(Problem::error("spec.backends", "", "is empty", "give at least one backend"));
    } else if count > MAX_BACKENDS {
        let remedy = format!("give at most {MAX_BACKENDS}");
        problems.push(Problem::error("spec.backends", "", format!("has {count} backends"), remedy));
    }
    let mut first: BTreeMap<IpAddr, usize> = BTreeMap::new();
    let mut checked = BTreeMap::new();
    for (i, b) in spec.backends.iter().enumerate() {
        let at = |name: &str| format!("spec.backends[{i}].{name}");
        backend_port(spec, b.port, &at("port"), problems);
        let weight = u64::try_from(b.weight).ok().and_then(NonZeroU64::new);
        if weight.is_none() {
            let remedy = "set `drained: true` to give a backend no new flow";
            problems.push(Problem::error(at("weight"), b.weight, "is no weight: it is less than 1", remedy));
        }
        let Some(address) = address::backend(&at("address"), &b.address, problems) else { continue };
        if let Some(earlier) = first.insert(address, i) {
            let why = format!("is the address of spec.backends[{earlier}] again");
            problems.push(Problem::error(at("address"), &b.address, why, "name each backend once"));
        }
        let health = verdicts.get(&address).copied().unwrap_or_default();
        if let Some(weight) = weight {
            checked.insert(address, CheckedBackend { address, weight, drained: b.drained, health });
        }
    }
    checked.into_values().collect()
}

fn backend_port(spec: &NetworkRuleSpec, port: Option<i64>, field: &str, problems: &mut Vec<Problem>) {
    match (spec.port, port) {
        (_, Some(port)) if !(1..=65535).contains(&port) => {
            port_number(field, port, problems);
        }
        (Some(rule), Some(port)) if rule != port => {
            let why = format!("differs from the rule's port {rule}: direct server return rewrites nothing");
            let remedy = format!("let the backend listen on {rule} (or make a rule for {port})");
            problems.push(Problem::error(field, port, why, remedy));
        }
        (Some(rule), None) => {
            problems.push(Problem::error(field, "", "is missing", format!("write port: {rule}, the rule's")));
        }
        _ => {}
    }
}

fn health_check(check: &HealthCheck, problems: &mut Vec<Problem>) -> Option<CheckedHealthCheck> {
    use HealthCheckType::{Http, Https, Udp};
    let before = problems.len();
    let mut time = |name: &str, text: &Option<String>, default: &str| {
        let text = text.as_deref().unwrap_or(default);
        let field = format!("spec.healthCheck.{name}");
        match duration::parse(text) {
            Ok(d) if (100..=300_000).contains(&d.as_millis()) => Some(d),
            Ok(_) => {
                problems.push(Problem::error(
                    field,
                    text,
                    "is out of bounds",
                    "give a time from 100ms to 5m",
                ));
                None
            }
            Err(_) => {
                problems.push(Problem::error(field, text, "is no duration", "write it like 10s or 1m30s"));
                None
            }
        }
    };
    let interval = time("interval", &check.interval, "5s");
    let timeout = time("timeout", &check.timeout, "2s");
    if let (Some(interval), Some(timeout)) = (interval, timeout)
        && timeout > interval
    {
        let why = format!("is longer than the interval {}", duration::format(interval));
        let value = duration::format(timeout);
        problems.push(Problem::error("spec.healthCheck.timeout", value, why, "give at most the interval"));
    }
    let mut threshold = |name: &str, value: Option<i64>, default: u32| match value {
        None => default,
        Some(v @ 1..=100) => v as u32,
        Some(v) => {
            let field = format!("spec.healthCheck.{name}");
            problems.push(Problem::error(field, v, "is out of bounds", "give a number from 1 to 100"));
            default
        }
    };
    let healthy_threshold = threshold("healthyThreshold", check.healthy_threshold, 2);
    let unhealthy_threshold = threshold("unhealthyThreshold", check.unhealthy_threshold, 3);
    if check.udp.is_some() && check.kind != Udp {
        problems.push(Problem::error(
            "spec.healthCheck.udp",
            "",
            "is given, but the type is not udp",
            "leave it out, or set type: udp",
        ));
    }
    if check.udp.is_none() && check.kind == Udp {
        let remedy = "say what to send: a backend answers nothing to an empty datagram";
        problems.push(Problem::error("spec.healthCheck.udp", "", "is missing for type udp", remedy));
    }
    let http = matches!(check.kind, Http | Https);
    if check.http.is_some() && !http {
        problems.push(Problem::error(
            "spec.healthCheck.http",
            "",
            "is given, but the type is neither http nor https",
            "leave it out, or set type: http",
        ));
    }
    let http = http.then(|| http_check(check, problems));
    if problems.len() > before {
        return None;
    }
    let udp = check.udp.as_ref().map(|u| (u.send.clone(), u.expect.clone()));
    let (interval, timeout) = (interval?, timeout?);
    Some(CheckedHealthCheck {
        kind: check.kind,
        interval,
        timeout,
        healthy_threshold,
        unhealthy_threshold,
        udp,
        http,
    })
}

fn http_check(check: &HealthCheck, problems: &mut Vec<Problem>) -> (String, Option<String>, Vec<u16>) {
    let http = check.http.as_ref();
    let path = http.and_then(|h| h.path.clone()).unwrap_or_else(|| "/".into());
    let printable = |s: &str| s.chars().all(|c| c.is_ascii_graphic());
    if !path.starts_with('/') || !printable(&path) {
        let why = "is no path of a request";
        problems.push(Problem::error(
            "spec.healthCheck.http.path",
            &path,
            why,
            "begin it with / and escape spaces",
        ));
    }
    let host = http.and_then(|h| h.host.clone());
    if let Some(host) = &host
        && (host.is_empty() || !printable(host))
    {
        let remedy = "give a host name, or leave it out";
        problems.push(Problem::error("spec.healthCheck.http.host", host, "is no host", remedy));
    }
    let mut statuses = Vec::new();
    for (i, &status) in http.iter().flat_map(|h| h.statuses.iter().enumerate()) {
        if (100..=599).contains(&status) {
            statuses.push(status as u16);
        } else {
            let field = format!("spec.healthCheck.http.statuses[{i}]");
            problems.push(Problem::error(
                field,
                status,
                "is no HTTP status",
                "give a number from 100 to 599",
            ));
        }
    }
    if statuses.is_empty() {
        statuses.push(200);
    }
    (path, host, statuses)
}
