//! `ServiceVIPBinding`: the platform's word that a VIP is delivered to an endpoint on a node; `weir worker` carries it out.
//!
//! The public fields mean what they mean everywhere. Weir adds what a node cannot find out by itself: which VPC the backend's
//! address is of (two tenants may use the same), the host side of the endpoint's interface, the network namespace behind it,
//! and how the VIP gets there.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::meta::{Condition, Metadata};
use crate::network_rule::Protocol;

/// A binding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServiceVIPBinding {
    /// [`crate::API_VERSION`].
    pub api_version: String,
    /// `ServiceVIPBinding`.
    pub kind: String,
    /// Name and namespace.
    pub metadata: Metadata,
    /// What is bound to what.
    pub spec: ServiceVIPBindingSpec,
    /// What was observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<ServiceVIPBindingStatus>,
}

/// What is bound to what.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ServiceVIPBindingSpec {
    /// The node that carries it out.
    pub target_ref: TargetRef,
    /// The VIP, IPv6 or IPv4.
    pub vip_address: String,
    /// Port of the rule, 1–65535; left out where the protocol has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub port: Option<i64>,
    /// Protocol of the rule.
    pub protocol: Protocol,
    /// The endpoint's own address inside its VPC.
    pub backend_address: String,
    /// The backend's port: the rule's, since ports are never changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65535))]
    pub backend_port: Option<i64>,
    /// What the endpoint's interface is.
    pub egress_kind: EgressKind,
    /// VPC of the endpoint (Weir's addition). Without it the backend's address must be of one VPC only on this node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vpc_ref: Option<String>,
    /// Attachment of that VPC (Weir's addition); needed where one VPC has the address in two attachments.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub vpc_attachment_ref: Option<String>,
    /// Host side of the endpoint's veth, or its tap (Weir's addition); without it the binding waits for one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub interface: Option<String>,
    /// Path of the endpoint's network namespace (Weir's addition): where `Bind` places the VIP. Without it the endpoint holds
    /// the VIP already, as guests behind a tap do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_namespace: Option<String>,
    /// How the VIP gets to the endpoint (Weir's addition).
    #[serde(default)]
    pub delivery: Delivery,
}

/// An object of the cluster.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TargetRef {
    /// `Node`.
    pub kind: String,
    /// Its name.
    pub name: String,
}

/// What an endpoint's interface is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum EgressKind {
    /// A veth whose other end is in the endpoint's network namespace.
    Veth,
    /// A tap, behind which is a virtual machine.
    Tap,
}

/// How a VIP gets to its endpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Delivery {
    /// The endpoint holds the VIP as an address.
    #[default]
    Bind,
    /// VIP and backend address are exchanged at the boundary, for guests that cannot be configured; off unless the worker's
    /// configuration allows it.
    Translate,
}

/// What was observed about a binding.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct ServiceVIPBindingStatus {
    /// `metadata.generation` the status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Conditions; `Bound` is true once verified, not once written.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
