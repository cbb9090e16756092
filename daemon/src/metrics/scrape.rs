//! The figures of one scrape and their text form. Names and labels are part of the interface: dashboards read them.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{
    DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue, NoLabelSet, prometheus_text,
    text as openmetrics_text,
};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::Registry;

use crate::desired::DrainStage;
use crate::inspect::{BackendRow, Image, VipRow};
use crate::status::NodeStatus;

/// Text form of an exposition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Prometheus' own, version 0.0.4.
    Prometheus,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl Format {
    /// MIME type.
    pub const fn content_type(self) -> &'static str {
        match self {
            Self::Prometheus => "text/plain; version=0.0.4; charset=utf-8",
            Self::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
        }
    }
}

/// All that one scrape shows.
#[derive(Clone, Debug)]
pub struct Scrape {
    /// What the daemon says of itself.
    pub status: Arc<NodeStatus>,
    /// What the maps hold; `None` when they cannot be read.
    pub image: Option<Image>,
    /// Time since the data plane's last heartbeat; `None` before the first.
    pub heartbeat_age: Option<Duration>,
}

/// Writes a scrape.
pub fn text(scrape: Scrape, format: Format) -> Result<String, fmt::Error> {
    let mut registry = Registry::with_prefix("weir");
    registry.register_collector(Box::new(scrape));
    let mut text = String::new();
    match format {
        Format::Prometheus => prometheus_text::encode(&mut text, &registry)?,
        Format::OpenMetrics => openmetrics_text::encode(&mut text, &registry)?,
    }
    Ok(text)
}

type Labels = Vec<(&'static str, String)>;

fn gauges<V: EncodeGaugeValue>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: impl IntoIterator<Item = (Labels, V)>,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    values.into_iter().try_for_each(|(labels, value)| {
        if labels.is_empty() {
            metric.encode_gauge(&value)
        } else {
            metric.encode_family(&labels)?.encode_gauge(&value)
        }
    })
}

fn counters<V: EncodeCounterValue>(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: impl IntoIterator<Item = (Labels, V)>,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Counter)?;
    values.into_iter().try_for_each(|(labels, value)| {
        if labels.is_empty() {
            metric.encode_counter::<NoLabelSet, V, u64>(&value, None)
        } else {
            metric.encode_family(&labels)?.encode_counter::<NoLabelSet, V, u64>(&value, None)
        }
    })
}

fn info(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    values: impl IntoIterator<Item = Labels>,
) -> fmt::Result {
    let mut metric = encoder.encode_descriptor(name, help, None, MetricType::Info)?;
    values.into_iter().try_for_each(|labels| metric.encode_info(&labels))
}

fn one<V>(value: V) -> [(Labels, V); 1] {
    [(Labels::new(), value)]
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let encoder = &mut encoder;
        node(encoder, &self.status)?;
        if let Some(age) = self.heartbeat_age {
            let help = "Seconds since the data plane was last told that its next hops are fresh";
            gauges(encoder, "heartbeat_age_seconds", help, one(age.as_secs_f64()))?;
        }
        let readable = u64::from(self.image.is_some());
        gauges(
            encoder,
            "maps_readable",
            "Whether the pinned maps could be read for this scrape",
            one(readable),
        )?;
        self.image.as_ref().map_or(Ok(()), |image| maps(encoder, image))
    }
}

fn node(encoder: &mut DescriptorEncoder<'_>, status: &NodeStatus) -> fmt::Result {
    let build = vec![
        ("version", status.version.clone()),
        ("node", status.node.clone()),
        ("region", status.region.clone()),
        ("layout", weir_bpf::abi::LAYOUT_VERSION.to_string()),
    ];
    info(encoder, "build", "The daemon's version, node and region, and its maps' layout", [build])?;
    gauges(encoder, "ready", "Whether the gateway is ready", one(u64::from(status.ready)))?;
    let reasons = status.reasons.iter().map(|reason| (vec![("reason", reason.id.clone())], 1_u64));
    // A reason may come twice with different objects; a series may not.
    let reasons: BTreeMap<Labels, u64> = reasons.collect();
    gauges(encoder, "not_ready_reason", "What keeps the gateway from being ready", reasons)?;
    let draining = u64::from(status.drain != DrainStage::None);
    gauges(encoder, "draining", "Whether the gateway leaves for good", one(draining))?;
    gauges(encoder, "generation", "Generation of what should be", one(status.generation))?;
    gauges(encoder, "applied_generation", "Generation that the data plane holds", one(status.applied))?;

    let mut conditions: BTreeMap<Labels, u64> = BTreeMap::new();
    for condition in status.rules.iter().flat_map(|rule| &rule.conditions) {
        let labels =
            vec![("condition", condition.kind.to_string()), ("status", condition.status.to_string())];
        *conditions.entry(labels).or_default() += 1;
    }
    gauges(encoder, "rules", "Rules by condition and its status", conditions)?;
    let problems = status.sources.iter().map(|s| (vec![("source", s.name.clone())], s.problems.len() as u64));
    gauges(encoder, "source_problems", "Problems and warnings in the source's objects", problems)?;

    let label =
        |peer: &crate::status::PeerStatus| vec![("peer", peer.name.clone()), ("role", peer.role.clone())];
    let peers = || status.peers.iter();
    let established = peers().map(|peer| (label(peer), u64::from(peer.established)));
    gauges(encoder, "peer_established", "Whether the BGP session is established", established)?;
    let sent = peers().map(|peer| (label(peer), peer.advertised));
    gauges(encoder, "peer_advertised_routes", "Routes sent to the peer and not withdrawn", sent)?;
    let total = peers().filter(|peer| peer.established).count() as u64;
    gauges(encoder, "peers_established", "BGP sessions that are established", one(total))?;
    let told = status.routes.iter().filter(|route| !route.peers.is_empty()).count() as u64;
    gauges(encoder, "routes_advertised", "Routes of which at least one peer has been told", one(told))?;
    let help = "SIDs of backends to which this node knows no next hop";
    gauges(encoder, "unreachable_sids", help, one(status.unreachable.len() as u64))?;
    let work = &status.work;
    counters(encoder, "ring_builds", "Rings built since the daemon's start", one(work.ring_builds))?;
    counters(encoder, "map_writes", "Writes into the maps since the daemon's start", one(work.map_writes))?;
    let help = "Changes of routes that the kernel has told since the daemon's start";
    counters(encoder, "route_changes", help, one(work.route_changes))
}

fn maps(encoder: &mut DescriptorEncoder<'_>, image: &Image) -> fmt::Result {
    let vip = |row: &VipRow| {
        vec![
            ("vip", row.key.address.to_string()),
            ("port", row.key.port.to_string()),
            ("protocol", row.key.protocol.to_string()),
            ("rule", row.rule.to_string()),
        ]
    };
    let help = "Packets sent to backends for this VIP";
    counters(encoder, "vip_packets", help, image.vips.iter().map(|v| (vip(v), v.total.packets)))?;
    let help = "Bytes of the inner IP packets sent to backends for this VIP";
    counters(encoder, "vip_bytes", help, image.vips.iter().map(|v| (vip(v), v.total.bytes)))?;
    let rings = image.vips.iter().filter(|row| row.slots != 0).map(|row| {
        let ring = [("digest", row.digest.clone()), ("slots", row.slots.to_string())];
        vip(row).into_iter().chain(ring).collect()
    });
    info(encoder, "ring", "Digest of the VIP's ring: equal on every gateway that sends alike", rings)?;

    let backend = |row: &BackendRow| {
        vec![
            ("vpc", row.id.vpc.to_string()),
            ("attachment", row.id.attachment.to_string()),
            ("address", row.id.address.to_string()),
            ("node", row.node.clone()),
        ]
    };
    let backends = || image.backends.iter();
    let help = "Packets sent to this backend";
    counters(encoder, "backend_packets", help, backends().map(|b| (backend(b), b.total.packets)))?;
    let help = "Bytes of the inner IP packets sent to this backend";
    counters(encoder, "backend_bytes", help, backends().map(|b| (backend(b), b.total.bytes)))?;

    let exits = image.exits.iter().map(|exit| {
        (vec![("outcome", exit.outcome.name().into()), ("reason", exit.reason.into())], exit.packets)
    });
    counters(encoder, "packets", "Packets by what became of them and why; each is counted once", exits)?;
    let help = "Self-test frames that came back through the program";
    counters(encoder, "self_test_frames", help, one(image.self_test_frames))?;

    let help = "Sampled drops that were not told to anybody, since the daemon had not read those before";
    counters(encoder, "drop_events_lost", help, one(image.drop_events_lost))?;

    let used = [
        ("vips", image.vips.len() as u64 + u64::from(image.owned), image.limits.vips),
        ("backends", image.backends.len() as u64, image.limits.backends),
    ];
    let entries = used.iter().map(|(map, used, _)| (vec![("map", (*map).into())], *used));
    gauges(encoder, "map_entries", "Entries in use", entries)?;
    let capacity = used.iter().map(|(map, _, limit)| (vec![("map", (*map).into())], u64::from(*limit)));
    gauges(encoder, "map_capacity", "Entries that fit", capacity)
}
