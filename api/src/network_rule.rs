//! `NetworkRule`: public addresses, a protocol and port, and the backends in a VPC that serve them.
//!
//! Addresses, ports and times are kept as written: what does not parse must become a problem of that field,
//! not a failure to read the object.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::meta::{Condition, Metadata};

/// A rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NetworkRule {
    /// [`crate::API_VERSION`].
    pub api_version: String,
    /// `NetworkRule`.
    pub kind: String,
    /// Name and namespace.
    pub metadata: Metadata,
    /// What is asked for.
    pub spec: NetworkRuleSpec,
    /// What was observed; the health verdicts in it are an input of every gateway.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<NetworkRuleStatus>,
}

/// What a rule asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NetworkRuleSpec {
    /// VPC of the backends.
    pub vpc_ref: String,
    /// Attachment of that VPC to this region.
    pub vpc_attachment_ref: String,
    /// One to eight public addresses.
    #[schemars(length(min = 1, max = 8))]
    pub vip_addresses: Vec<String>,
    /// Protocol; `tcp` and `udp` are served.
    pub protocol: Protocol,
    /// Port of the VIPs and of every backend, 1–65535; left out where the protocol has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i64>,
    /// One to 512 backends.
    #[schemars(length(min = 1, max = 512))]
    pub backends: Vec<Backend>,
    /// Region that announces the VIPs; by default the VPC attachment's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// What of a packet picks the backend.
    #[serde(default)]
    pub affinity: Affinity,
    /// Slots in the ring: 1021, 4093, 16381 or 65537; at least 100 × the backends it will ever hold.
    #[serde(default = "default_ring_size")]
    pub ring_size: i64,
    /// What happens when no backend can serve.
    #[serde(default)]
    pub on_all_down: OnAllDown,
    /// How backends are probed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub health_check: Option<HealthCheck>,
}

/// Default of `spec.ringSize`.
const fn default_ring_size() -> i64 {
    4093
}

/// Default of `spec.backends[].weight`.
const fn default_weight() -> i64 {
    1
}

/// Transport protocol of a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP (6).
    Tcp,
    /// UDP (17).
    Udp,
    /// ESP (50); not served yet.
    Esp,
    /// GRE (47); not served yet.
    Gre,
    /// ICMP (1 and 58); not served yet.
    Icmp,
    /// SCTP (132); not served yet.
    Sctp,
}

impl Protocol {
    /// Name as objects write it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
            Self::Esp => "esp",
            Self::Gre => "gre",
            Self::Icmp => "icmp",
            Self::Sctp => "sctp",
        }
    }
}

/// What of a packet picks the backend.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Affinity {
    /// The 5-tuple.
    #[default]
    None,
    /// The client's address.
    ClientIP,
    /// The client's address and the protocol.
    ClientIPAndProtocol,
}

/// What happens when no backend of a rule can serve.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum OnAllDown {
    /// Keep sending to all: a verdict may be wrong.
    #[default]
    Keep,
    /// Drop.
    Drop,
    /// Drop, and withdraw the VIPs.
    Withdraw,
}

/// One backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Backend {
    /// Address inside the VPC.
    pub address: String,
    /// Must be the rule's port: direct server return rewrites nothing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i64>,
    /// Relative share of new flows, at least 1.
    #[serde(default = "default_weight")]
    #[schemars(range(min = 1))]
    pub weight: i64,
    /// Gets no new flow, while its place in the ring is kept.
    #[serde(default)]
    pub drained: bool,
}

/// How backends are probed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HealthCheck {
    /// Kind of probe.
    #[serde(rename = "type")]
    pub kind: HealthCheckType,
    /// Time between probes, such as `10s`; default 5s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interval: Option<String>,
    /// Time a probe may take, at most `interval`; default 2s.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout: Option<String>,
    /// Good probes until a backend is healthy, 1–100; default 2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healthy_threshold: Option<i64>,
    /// Failed probes until it is not, 1–100; default 3.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub unhealthy_threshold: Option<i64>,
    /// For `udp`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub udp: Option<UdpCheck>,
    /// For `http` and `https`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub http: Option<HttpCheck>,
}

/// Kind of probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum HealthCheckType {
    /// A connection is accepted.
    Tcp,
    /// A datagram is answered.
    Udp,
    /// An HTTP request is answered with one of the statuses.
    Http,
    /// The same over TLS.
    Https,
    /// A TLS handshake completes.
    Tls,
    /// No probe: backends count as healthy.
    None,
}

/// What a UDP probe sends and wants back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct UdpCheck {
    /// Payload of the probe.
    pub send: String,
    /// Start of the answer's payload; empty accepts any answer.
    #[serde(default)]
    pub expect: String,
}

/// What an HTTP probe asks and wants back.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct HttpCheck {
    /// Path, default `/`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// `Host` header; default the VIP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// Statuses that count as healthy, 100–599; default 200.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub statuses: Vec<i64>,
}

/// What was observed about a rule.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NetworkRuleStatus {
    /// `metadata.generation` the status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// `Accepted`, `Loaded`, `Advertised`, `ReplyPath`, `BackendsResolved`, `TablesAgree`, `LimitReached`.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
    /// Shared health verdicts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub backends: Vec<BackendStatus>,
}

/// The shared verdict on one backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BackendStatus {
    /// Address of the backend.
    pub address: String,
    /// Verdict.
    pub health: Health,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Since when (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<String>,
    /// Counts verdicts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict_generation: Option<i64>,
}

/// A verdict.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Health {
    /// Serves.
    Healthy,
    /// Must get no new flow.
    Unhealthy,
    /// No verdict: treated as serving.
    #[default]
    Unknown,
}
