//! Objects after every rule of one object held, in types that cannot hold a bad value.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ipnet::Ipv6Net;
use serde::{Deserialize, Serialize};

use crate::network_rule::{Affinity, Health, HealthCheckType, OnAllDown};
use crate::service_vip_binding::{Delivery, EgressKind};
use crate::vpc_endpoint::Function;

/// What every checked object keeps of its metadata.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// Namespace.
    pub namespace: String,
    /// Name.
    pub name: String,
    /// When it was made; `None` for a file that does not say, which counts as younger than any that does.
    pub created: Option<SystemTime>,
    /// It is being deleted: treated as gone.
    pub deleted: bool,
}

impl Identity {
    /// Order in which objects win a conflict: the older first, then by namespace and name.
    pub fn precedence(&self) -> (bool, Option<SystemTime>, &str, &str) {
        (self.created.is_none(), self.created, &self.namespace, &self.name)
    }
}

/// Protocol of a rule that is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Transport {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// A rule that holds what it must.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckedRule {
    /// Who it is.
    pub id: Identity,
    /// Region, when the rule says one.
    pub region: Option<String>,
    /// Public addresses, sorted, unique.
    pub vips: Vec<IpAddr>,
    /// Protocol.
    pub transport: Transport,
    /// Port of the VIPs and of every backend.
    pub port: u16,
    /// Affinity.
    pub affinity: Affinity,
    /// Slots in the ring, one of the four classes.
    pub ring_size: u32,
    /// All-down policy.
    pub on_all_down: OnAllDown,
    /// VPC of the backends.
    pub vpc: Arc<str>,
    /// Attachment of the VPC.
    pub attachment: Arc<str>,
    /// Backends by address, unique.
    pub backends: Vec<CheckedBackend>,
    /// Probe, when one is asked for.
    pub health_check: Option<CheckedHealthCheck>,
}

/// A backend of a [`CheckedRule`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckedBackend {
    /// Address inside the VPC.
    pub address: IpAddr,
    /// Share of new flows.
    pub weight: NonZeroU64,
    /// Gets no new flow.
    pub drained: bool,
    /// Shared verdict from `status.backends`.
    pub health: Health,
}

/// A probe's parameters with defaults filled in.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckedHealthCheck {
    /// Kind.
    pub kind: HealthCheckType,
    /// Time between probes.
    pub interval: Duration,
    /// Time a probe may take.
    pub timeout: Duration,
    /// Good probes until healthy.
    pub healthy_threshold: u32,
    /// Failed probes until unhealthy.
    pub unhealthy_threshold: u32,
    /// UDP payload and the start of the wanted answer.
    pub udp: Option<(String, String)>,
    /// HTTP path, `Host` header and good statuses.
    pub http: Option<(String, Option<String>, Vec<u16>)>,
}

/// An endpoint that holds what it must.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckedEndpoint {
    /// Who it is.
    pub id: Identity,
    /// VPC.
    pub vpc: Arc<str>,
    /// Attachment of the VPC.
    pub attachment: Arc<str>,
    /// Address inside the VPC.
    pub address: IpAddr,
    /// Node that holds it.
    pub node: Arc<str>,
    /// How its SID is known.
    pub sid: SidSource,
}

/// A router that holds what it must.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckedRouter {
    /// Who it is.
    pub id: Identity,
    /// Node that it runs on.
    pub node: Arc<str>,
    /// The region's SRv6 block and the node's number in it.
    pub locator: Option<(Ipv6Net, u16)>,
}

/// An egress shard that holds what it must.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckedShard {
    /// Who it is.
    pub id: Identity,
    /// Node that it runs on.
    pub node: Arc<str>,
    /// SID that leads to it.
    pub sid: Option<Ipv6Addr>,
}

/// How an endpoint's SID is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum SidSource {
    /// It was written out.
    Whole(Ipv6Addr),
    /// It is composed on the node's locator.
    Composed {
        /// Function.
        function: Function,
        /// Argument, 12 bits.
        argument: u16,
    },
}

/// A binding that holds what it must.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CheckedBinding {
    /// Who it is.
    pub id: Identity,
    /// Node that carries it out.
    pub node: Arc<str>,
    /// The VIP.
    pub vip: IpAddr,
    /// Protocol.
    pub transport: Transport,
    /// Port of VIP and backend.
    pub port: u16,
    /// The endpoint's own address inside its VPC.
    pub backend: IpAddr,
    /// What the endpoint's interface is.
    pub egress: EgressKind,
    /// VPC, when it is said.
    pub vpc: Option<Arc<str>>,
    /// Attachment of the VPC, when it is said.
    pub attachment: Option<Arc<str>>,
    /// Host side of the endpoint's interface, when it is said.
    pub interface: Option<Arc<str>>,
    /// Path of the endpoint's network namespace, when the VIP is to be placed there.
    pub namespace: Option<Arc<str>>,
    /// How the VIP gets there.
    pub delivery: Delivery,
}

/// A checked object of any kind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum CheckedObject {
    /// A rule.
    Rule(CheckedRule),
    /// An endpoint.
    Endpoint(CheckedEndpoint),
    /// A VIP's delivery to an endpoint.
    Binding(CheckedBinding),
    /// A router.
    Router(CheckedRouter),
    /// An egress shard.
    Shard(CheckedShard),
}

impl CheckedObject {
    /// Kind, as objects write it.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::Rule(_) => Kind::NetworkRule,
            Self::Endpoint(_) => Kind::VPCEndpoint,
            Self::Binding(_) => Kind::ServiceVIPBinding,
            Self::Router(_) => Kind::BGPRouter,
            Self::Shard(_) => Kind::NAT66Shard,
        }
    }
    /// Who it is.
    pub const fn id(&self) -> &Identity {
        match self {
            Self::Rule(r) => &r.id,
            Self::Endpoint(e) => &e.id,
            Self::Binding(b) => &b.id,
            Self::Router(r) => &r.id,
            Self::Shard(s) => &s.id,
        }
    }
}

/// Kinds this crate reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Kind {
    /// `NetworkRule`.
    NetworkRule,
    /// `VPCEndpoint`.
    VPCEndpoint,
    /// `ServiceVIPBinding`.
    ServiceVIPBinding,
    /// `BGPRouter`.
    BGPRouter,
    /// `NAT66Shard`.
    NAT66Shard,
}

impl Kind {
    /// The name objects write.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NetworkRule => "NetworkRule",
            Self::VPCEndpoint => "VPCEndpoint",
            Self::ServiceVIPBinding => "ServiceVIPBinding",
            Self::BGPRouter => "BGPRouter",
            Self::NAT66Shard => "NAT66Shard",
        }
    }
}

/// Verdicts by backend address, canonical.
pub(crate) type Verdicts = BTreeMap<IpAddr, Health>;
