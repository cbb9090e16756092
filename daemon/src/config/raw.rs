//! The configuration as it is written. All fields are optional here, so that all that are missing are told at once.

use serde::Deserialize;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Raw {
    pub(super) node: Option<String>,
    pub(super) region: Option<String>,
    pub(super) locator: Option<RawLocator>,
    pub(super) hash_key_file: Option<String>,
    pub(super) uplinks: Option<Vec<String>>,
    pub(super) fabric: Option<Vec<String>>,
    pub(super) objects: Option<String>,
    pub(super) bgp: Option<RawBgp>,
    pub(super) admin: Option<String>,
    pub(super) metrics: Option<String>,
    pub(super) pins: Option<String>,
    #[serde(default)]
    pub(super) limits: RawLimits,
    #[serde(default)]
    pub(super) timers: RawTimers,
    pub(super) xdp_mode: Option<String>,
    pub(super) icmp_rate: Option<i64>,
    pub(super) drop_samples: Option<i64>,
    pub(super) drain_marker: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RawLocator {
    pub(super) prefix: Option<String>,
    #[serde(rename = "nodeID")]
    pub(super) node_id: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawLimits {
    pub(super) vips: Option<i64>,
    pub(super) backends: Option<i64>,
    pub(super) ring_slots: Option<i64>,
    pub(super) next_hops: Option<i64>,
    pub(super) fragments: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawTimers {
    pub(super) drain: Option<String>,
    pub(super) graceful_shutdown: Option<String>,
    pub(super) settle: Option<String>,
    pub(super) rescan: Option<String>,
    pub(super) hold_time: Option<String>,
    pub(super) connect_retry: Option<String>,
    pub(super) heartbeat: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawBgp {
    pub(super) asn: Option<i64>,
    #[serde(rename = "routerID")]
    pub(super) router_id: Option<String>,
    #[serde(default)]
    pub(super) graceful_restart: RawGracefulRestart,
    #[serde(default)]
    pub(super) communities: Vec<String>,
    #[serde(default)]
    pub(super) large_communities: Vec<String>,
    #[serde(default)]
    pub(super) peers: Vec<RawPeer>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawGracefulRestart {
    pub(super) restart_time: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct RawPeer {
    pub(super) name: Option<String>,
    pub(super) address: Option<String>,
    pub(super) local_address: Option<String>,
    #[serde(rename = "nextHopIPv4")]
    pub(super) next_hop_ipv4: Option<String>,
    #[serde(rename = "nextHopIPv6")]
    pub(super) next_hop_ipv6: Option<String>,
    pub(super) port: Option<i64>,
    pub(super) asn: Option<i64>,
    pub(super) role: Option<String>,
    pub(super) password_file: Option<String>,
    #[serde(default)]
    pub(super) gtsm: bool,
    #[serde(default, rename = "exportVIPs")]
    pub(super) export_vips: bool,
}
