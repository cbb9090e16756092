//! What the configuration means for each part of the gateway.

use std::collections::BTreeSet;
use std::time::Duration;

use weir_bpf::abi;

use crate::config::{self, Config, Locator, XdpMode};
use crate::dataplane::Limits;
use crate::dataplane::bpf::{self, Interface, Mode, Params};
use crate::flow::HashKey;
use crate::resolve::Site;
use crate::route::plan::PlanSettings;
use crate::route::{self, PeerConfig, SpeakerConfig};
use crate::source::file::NAME as FILES;
use crate::state::Settings;
use crate::status::BUILD;

/// Keys whose new value a running gateway does not take over.
pub(super) fn needs_restart(new: &Config, old: &Config) -> Vec<&'static str> {
    let marks = |config: &Config| {
        config.bgp.as_ref().map(|bgp| (bgp.asn, bgp.communities.clone(), bgp.large_communities.clone()))
    };
    // These two are asked for anew with each session.
    let timers = |config: &Config| config::Timers {
        hold_time: Duration::ZERO,
        connect_retry: Duration::ZERO,
        ..config.timers
    };
    [
        ("node", new.node != old.node),
        ("region", new.region != old.region),
        ("locator", new.locator != old.locator),
        ("hashKeyFile", new.hash_key.expose() != old.hash_key.expose()),
        ("uplinks", new.uplinks != old.uplinks),
        ("fabric", new.fabric != old.fabric),
        ("objects", new.objects != old.objects),
        ("bgp.asn or communities", marks(new) != marks(old)),
        ("admin", new.admin != old.admin),
        ("metrics", new.metrics != old.metrics),
        ("pins", new.pins != old.pins),
        ("limits", new.limits != old.limits),
        ("timers", timers(new) != timers(old)),
        ("xdpMode", new.xdp_mode != old.xdp_mode),
        ("icmpRate", new.icmp_rate != old.icmp_rate),
        ("dropSamples", new.drop_samples != old.drop_samples),
        ("drainMarker", new.drain_marker != old.drain_marker),
    ]
    .into_iter()
    .filter_map(|(key, changed)| changed.then_some(key))
    .collect()
}

/// The configuration's interfaces, each once with all its roles.
pub fn interfaces(config: &Config) -> Vec<Interface> {
    let mut interfaces: Vec<Interface> = Vec::new();
    let roles = [(&config.uplinks, abi::ROLE_UPLINK), (&config.fabric, abi::ROLE_FABRIC)];
    for (names, role) in roles {
        for name in names {
            match interfaces.iter_mut().find(|i| i.name == *name) {
                Some(interface) => interface.role |= role,
                None => interfaces.push(Interface { name: name.clone(), role }),
            }
        }
    }
    interfaces
}

/// The program's constants as the configuration has them; `role` is each interface's own.
pub fn constants(config: &Config, locator: Locator) -> abi::Config {
    let key = HashKey::from_region_key(config.hash_key.expose());
    let half = |octets: [u8; 16], at: usize| u64::from_ne_bytes(std::array::from_fn(|i| octets[at + i]));
    let source = locator.source().octets();
    let self_test = locator.self_test_sid().octets();
    abi::Config {
        nh: key.nh,
        fin: key.fin,
        src_hi: half(source, 0),
        src_lo: half(source, 8),
        selftest_lo: half(self_test, 8),
        role: 0,
        icmp_rate: config.icmp_rate,
        heartbeat_jiffies: bpf::jiffies(config.timers.heartbeat),
        build: BUILD,
    }
}

pub(super) fn params(config: &Config, locator: Locator, interfaces: &[Interface]) -> Params {
    let limits = &config.limits;
    Params {
        pins: config.pins.clone(),
        interfaces: interfaces.to_vec(),
        limits: Limits {
            vips: limits.vips,
            backends: limits.backends,
            ring_slots: limits.ring_slots,
            next_hops: limits.next_hops,
            fragments: limits.fragments,
        },
        mode: match config.xdp_mode {
            XdpMode::Native => Mode::Native,
            XdpMode::Generic => Mode::Generic,
        },
        constants: constants(config, locator),
        watch: abi::Watch { drop_samples: config.drop_samples, pad: 0 },
    }
}

pub(super) fn settings(config: &Config, locator: Locator) -> Settings {
    Settings {
        site: Site { region: config.region.clone(), block: locator.block },
        sources: BTreeSet::from([FILES.to_owned()]),
        graceful_shutdown: config.timers.graceful_shutdown,
        drain: config.timers.drain,
    }
}

pub(super) fn plan_settings(config: &Config, locator: Locator) -> PlanSettings {
    let bgp = config.bgp.as_ref();
    PlanSettings {
        region: config.region.clone(),
        locator: Some(locator.prefix()),
        region_community: route::LargeCommunity::of_region(bgp.map_or(0, |b| b.asn), &config.region),
        communities: bgp
            .map(|b| b.communities.iter().map(|(a, n)| u32::from(*a) << 16 | u32::from(*n)).collect())
            .unwrap_or_default(),
        large: bgp
            .map(|b| b.large_communities.iter().map(|&(a, f, v)| route::LargeCommunity(a, f, v)).collect())
            .unwrap_or_default(),
        drain_time: config.timers.drain,
    }
}

pub(super) fn speaker(config: &Config) -> SpeakerConfig {
    let peers = config.bgp.iter().flat_map(|bgp| &bgp.peers).map(|peer| PeerConfig {
        name: peer.name.clone(),
        address: peer.address,
        port: peer.port,
        local_address: peer.local_address.unwrap_or(match peer.address {
            std::net::IpAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
            std::net::IpAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
        }),
        next_hop_ipv4: peer.next_hop_ipv4,
        next_hop_ipv6: peer.next_hop_ipv6,
        asn: peer.asn,
        role: match peer.role {
            config::PeerRole::Upstream => route::PeerRole::Upstream,
            config::PeerRole::Fabric | config::PeerRole::FabricWithVips => route::PeerRole::Fabric,
        },
        password: peer.password.as_ref().and_then(|p| route::Password::new(p.expose().clone())),
        gtsm: peer.gtsm,
        export_vips: peer.role == config::PeerRole::FabricWithVips,
        max_prefixes: 10_000,
    });
    let bgp = config.bgp.as_ref();
    SpeakerConfig {
        asn: bgp.map_or(0, |b| b.asn),
        router_id: bgp.map_or(std::net::Ipv4Addr::UNSPECIFIED, |b| b.router_id),
        hold_time: u16::try_from(config.timers.hold_time.as_secs()).unwrap_or(u16::MAX),
        connect_retry: config.timers.connect_retry,
        restart_time: bgp.map(|b| u16::try_from(b.restart_time.as_secs()).unwrap_or(4095)),
        send_hold_time: None,
        peers: peers.collect(),
    }
}
