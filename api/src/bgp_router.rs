//! `BGPRouter`: a router of a node. Weir reads the node's SRv6 locator and number from it (`uFMT 48+16`).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::meta::{Condition, Metadata};

/// A router.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BGPRouter {
    /// [`crate::API_VERSION`].
    pub api_version: String,
    /// `BGPRouter`.
    pub kind: String,
    /// Name and namespace.
    pub metadata: Metadata,
    /// What it is.
    pub spec: BGPRouterSpec,
    /// What was observed; not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<BGPRouterStatus>,
}

/// What a router is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BGPRouterSpec {
    /// Node that it runs on.
    pub target_ref: TargetRef,
    /// What it does; at least one.
    #[schemars(length(min = 1))]
    pub roles: Vec<RouterRole>,
    /// AS number, 1–4294967295.
    #[serde(rename = "localASN")]
    #[schemars(range(min = 1, max = 4_294_967_295_i64))]
    pub local_asn: i64,
    /// BGP identifier, a dotted quad.
    #[serde(rename = "routerID")]
    pub router_id: String,
    /// What it speaks; at least one.
    #[schemars(length(min = 1))]
    pub address_families: Vec<AddressFamily>,
    /// The region's SRv6 block, a /48.
    #[serde(default, rename = "srv6Locator", skip_serializing_if = "Option::is_none")]
    pub srv6_locator: Option<String>,
    /// The node's number in SIDs; given together with the locator.
    #[serde(default, rename = "nodeID", skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 57_343))]
    pub node_id: Option<i64>,
    /// TCP port that it listens on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65_535))]
    pub listen_port: Option<i64>,
}

/// A node that an object is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TargetRef {
    /// `Node`.
    pub kind: String,
    /// Its name.
    pub name: String,
}

/// What a router does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum RouterRole {
    /// Carries the SRv6 fabric.
    Fabric,
    /// Carries tenants' routes.
    Tenant,
    /// Carries routes between others.
    Transit,
}

/// An address family of BGP (RFC 4760).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct AddressFamily {
    /// Address family.
    pub afi: Afi,
    /// Subsequent address family: unicast for the IP families, evpn for l2vpn.
    pub safi: Safi,
}

/// Address family identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Afi {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
    /// Layer-2 VPN.
    L2vpn,
}

/// Subsequent address family identifier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Safi {
    /// Unicast.
    Unicast,
    /// EVPN (RFC 7432).
    Evpn,
}

/// What was observed about a router.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct BGPRouterStatus {
    /// `metadata.generation` the status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// One word.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub phase: Option<String>,
    /// Roles in force.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub roles: Vec<RouterRole>,
    /// Its sessions in figures.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peers: Option<PeerCount>,
    /// Conditions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}

/// Sessions in figures.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct PeerCount {
    /// All.
    pub total: i64,
    /// Those that are established.
    pub established: i64,
}
