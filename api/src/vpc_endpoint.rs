//! `VPCEndpoint`: the platform's word on where an address of a VPC lives; a tenant never names a SID.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::meta::{Condition, Metadata};

/// An endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VPCEndpoint {
    /// [`crate::API_VERSION`].
    pub api_version: String,
    /// `VPCEndpoint`.
    pub kind: String,
    /// Name and namespace.
    pub metadata: Metadata,
    /// Where it is.
    pub spec: VPCEndpointSpec,
    /// What was observed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<VPCEndpointStatus>,
}

/// Where an endpoint is. Exactly one of `sid` and (`function`, `argument`) is given.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct VPCEndpointSpec {
    /// VPC.
    pub vpc_ref: String,
    /// Attachment of the VPC.
    pub vpc_attachment_ref: String,
    /// Address inside the VPC; (VPC, address) is unique.
    pub address: String,
    /// Node that holds it.
    pub node_name: String,
    /// SID that leads to it, whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sid: Option<String>,
    /// Function of the SID on the node's locator.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub function: Option<Function>,
    /// Argument of the SID, 1–4095 (12 bits).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4095))]
    pub argument: Option<i64>,
}

/// Endpoint behaviour (RFC 8986).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Function {
    /// Decapsulate and look up in a tenant's table (RFC 8986 section 4.8).
    #[serde(rename = "End.DT46")]
    EndDt46,
    /// Decapsulate and cross-connect to one endpoint: End.DX4 or End.DX6 by the inner packet's version.
    #[serde(rename = "End.DX46")]
    EndDx46,
}

impl Function {
    /// The four function bits of the SID.
    pub const fn bits(self) -> u8 {
        match self {
            Self::EndDt46 => 0xe,
            Self::EndDx46 => 0xd,
        }
    }
}

/// What was observed about an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct VPCEndpointStatus {
    /// `metadata.generation` the status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Conditions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
