//! What goes on while gateways die, restart, change build and leave: traffic with every packet accounted for.

mod capture;
mod death;
mod drain;
mod paths;
mod readiness;
mod restart;
mod upgrade;
mod uplinks;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use ipnet::IpNet;
use labkit::lab::RouteWatch;
use labkit::traffic::{Pool, Pulse, PulseReport, UdpFlow, UdpReport};
use scenarios::region::{Family, Live, Region, SOON, Tenant};
use serde_json::Value;
use weir::dataplane::Dataplane as _;
use weir::dataplane::bpf::{Maps, Pins, serving_set};
use weir::model::VipKey;
use weir_bpf::abi::Reason;

/// Between two packets of a UDP flow.
const PACE: Duration = Duration::from_millis(5);
/// Flows and connections a service, that is a tenant's VIP of a family: enough that equal-cost paths all get some.
const FLOWS: usize = 4;
const CONNECTIONS: usize = 16;

/// Traffic of the client to both tenants over both families, from before a fault until after it.
struct Traffic {
    flows: Vec<UdpFlow>,
    pulses: Vec<Pulse>,
}

/// What became of it.
struct Outcome {
    flows: Vec<UdpReport>,
    pulses: Vec<PulseReport>,
}

impl Traffic {
    async fn start(live: &Live) -> Self {
        let client = live.node("client").unwrap();
        let (mut flows, mut pulses) = (Vec::new(), Vec::new());
        for (_, _, service) in live.services() {
            for _ in 0..FLOWS {
                flows.push(UdpFlow::start(&client, service, PACE, 200).await.unwrap());
            }
            let pool = Pool::open(&client, service, CONNECTIONS).await.unwrap();
            pulses.push(pool.pulse(Duration::from_millis(50)));
        }
        Self { flows, pulses }
    }

    async fn stop(self, live: &Live) -> Outcome {
        let servers = live.udp_servers();
        let mut outcome = Outcome { flows: Vec::new(), pulses: Vec::new() };
        let flows = self.flows.into_iter().map(|flow| flow.stop(&servers));
        outcome.flows = futures_util::future::try_join_all(flows).await.unwrap();
        for pulse in self.pulses {
            outcome.pulses.push(pulse.stop().await);
        }
        outcome
    }
}

impl Outcome {
    fn sent(&self) -> u64 {
        self.flows.iter().map(|flow| flow.sent).sum()
    }
    fn lost(&self) -> u64 {
        self.flows.iter().map(UdpReport::lost).sum()
    }
    fn broken(&self) -> Vec<&String> {
        self.pulses.iter().flat_map(|pulse| &pulse.broken).collect()
    }
    fn retransmissions(&self) -> u64 {
        self.pulses.iter().map(|pulse| pulse.retransmissions).sum()
    }

    /// Not one packet was lost, not one segment sent twice.
    fn assert_lossless(&self, live: &Live) {
        let lost: Vec<_> = self.flows.iter().map(|flow| (&flow.lost_out, &flow.lost_back)).collect();
        assert!(self.sent() > 0 && self.pulses.iter().all(|pulse| pulse.messages > 0), "no traffic");
        assert!(
            self.lost() == 0,
            "{} of {} UDP packets lost, out and back by flow: {lost:?}; the kernels' and gateways' counts of drops: {}",
            self.lost(),
            self.sent(),
            drops(live)
        );
        assert_eq!(self.broken(), Vec::<&String>::new());
        assert_eq!(self.retransmissions(), 0, "TCP segments sent again");
        let connections: usize = self.pulses.iter().map(|pulse| pulse.connections).sum();
        assert_eq!(connections, CONNECTIONS * live.services().len());
    }

    fn assert_no_connection_lost(&self) {
        assert_eq!(self.broken(), Vec::<&String>::new());
    }
}

/// Where packets were dropped, as far as anyone counts.
fn drops(live: &Live) -> String {
    let script = "awk 'NR > 2 && $5 + $13 { print $1, \"rx dropped\", $5, \"tx dropped\", $13 }' /proc/net/dev; \
                  awk '/^(Ip6(In|Out)(Discards|NoRoutes)|Udp6(InErrors|RcvbufErrors|NoPorts))/ && $2' /proc/net/snmp6; \
                  awk '/^(Ip|Udp):/ && (++n % 2 == 0)' /proc/net/snmp; \
                  awk '$2 != \"00000000\" { print \"backlog dropped\", $2 }' /proc/net/softnet_stat";
    let mut found = vec![String::new()];
    for node in live.lab.nodes() {
        let lines = node.sh(script).unwrap_or_else(|e| e.to_string());
        found.extend(lines.lines().map(|line| format!("{}: {line}", node.name())));
    }
    for n in 1..=live.region.gateways {
        let Ok(maps) = try_maps(live, n) else { continue };
        let totals = Reason::ALL.iter().map(|reason| (reason.name(), maps.reason_total(*reason)));
        found.extend(totals.filter(|(_, t)| *t != 0).map(|(name, total)| format!("gw{n}: {name} {total}")));
    }
    found.join("\n  ")
}

/// A region's default, with timers of the gateways.
fn region(timers: &str) -> Region {
    Region { timers: format!("drain: 1s, gracefulShutdown: 1s, {timers}"), ..Region::default() }
}

/// The edge's route events for VIPs since the watch began.
fn vip_events(live: &Live, watch: &RouteWatch) -> Vec<String> {
    let of = |(_, _, service): (Tenant, Family, SocketAddr)| watch.events_for(IpNet::from(service.ip()));
    let events = live.services().into_iter().flat_map(of);
    events.map(|event| format!("{:?} {}", event.change, event.route)).collect()
}

/// The edge's BGP paths to a tenant's VIP of a family, by the gateway that they came from.
fn paths(live: &Live, tenant: Tenant, family: Family) -> BTreeMap<String, Value> {
    let paths = live.frr("edge").unwrap().bgp_paths(&live.region.vip_route(tenant, family)).unwrap();
    let from = |path: &Value| path["peer"]["peerId"].as_str().unwrap_or_default().to_owned();
    paths.into_iter().map(|path| (from(&path), path)).collect()
}

/// What FRR says of a gateway as its neighbour.
fn neighbour(live: &Live, router: &str, address: &str) -> Value {
    let frr = live.frr(router).unwrap();
    frr.json(&format!("show bgp neighbors {address} json")).unwrap()[address].clone()
}

/// The pin path of a gateway.
fn pins(live: &Live, n: u16) -> PathBuf {
    live.gateway(n).unwrap().bpffs().unwrap().join("weir")
}

/// The maps that serve now in a gateway, from its pins alone.
fn try_maps(live: &Live, n: u16) -> Result<Maps, String> {
    let base = Pins::existing(&pins(live, n)).map_err(|e| e.to_string())?;
    let set = serving_set(&base, &["eth1".into(), "eth2".into()]).map_err(|e| e.to_string())?;
    weir::dataplane::bpf::open_set(&set.ok_or("no set of maps")?).map_err(|e| e.to_string())
}

fn maps(live: &Live, n: u16) -> Maps {
    try_maps(live, n).unwrap()
}

/// Packets that a gateway has forwarded, by its own count.
fn forwarded(live: &Live, n: u16) -> u64 {
    maps(live, n).reason_total(Reason::Forwarded)
}

/// Waits until a gateway has forwarded this many packets more than it had.
fn forwards_more(live: &Live, n: u16, before: u64, more: u64) {
    labkit::wait::eventually("packets forwarded", SOON, || {
        let now = try_maps(live, n)?.reason_total(Reason::Forwarded);
        labkit::wait::check(now >= before + more, || format!("{} of {more}", now.saturating_sub(before)))
    })
    .unwrap();
}

/// Digest of each loaded key's ring.
fn digests(live: &Live, n: u16) -> BTreeMap<VipKey, [u8; 16]> {
    let tables = maps(live, n).read_back().unwrap();
    let key = |key: &VipKey| is_vip(live, key.address);
    tables.vips.into_iter().filter(|(k, _)| key(k)).map(|(k, entry)| (k, entry.ring.digest)).collect()
}

/// Everything pinned below a path.
fn pinned(base: &std::path::Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(base) else { return Vec::new() };
    let mut found = Vec::new();
    for path in entries.map(|entry| entry.unwrap().path()) {
        if path.is_dir() { found.extend(pinned(&path)) } else { found.push(path) }
    }
    found
}

/// Reasons for which a gateway says that it is not ready.
fn reasons(live: &Live, n: u16) -> Result<Vec<(String, String)>, String> {
    let status = live.status(n).map_err(|e| e.to_string())?;
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let list = status["reasons"].as_array().cloned().unwrap_or_default();
    Ok(list.iter().map(|reason| (text(&reason["id"]), text(&reason["text"]))).collect())
}

fn is_vip(live: &Live, address: IpAddr) -> bool {
    live.owner(address).is_some()
}
