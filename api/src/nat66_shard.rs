//! `NAT66Shard`: a shard of the egress tier. Weir only reads it, to keep its SID out of routers' locators.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bgp_router::TargetRef;
use crate::meta::{Condition, Metadata};

/// A shard.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NAT66Shard {
    /// [`crate::API_VERSION`].
    pub api_version: String,
    /// `NAT66Shard`.
    pub kind: String,
    /// Name and namespace.
    pub metadata: Metadata,
    /// Where it is.
    pub spec: NAT66ShardSpec,
    /// What was given to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<NAT66ShardStatus>,
}

/// Where a shard is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct NAT66ShardSpec {
    /// Node that it runs on.
    pub target_ref: TargetRef,
}

/// What was given to a shard.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct NAT66ShardStatus {
    /// `metadata.generation` the status speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
    /// Public address.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub shard_address: Option<String>,
    /// SID that leads to it.
    #[serde(skip_serializing_if = "Option::is_none", rename = "shardSID")]
    pub shard_sid: Option<String>,
    /// Conditions.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<Condition>,
}
