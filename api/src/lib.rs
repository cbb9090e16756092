//! The objects Weir is told what to do with: their fields, defaults and rules, with no I/O.
//!
//! - [`meta`], [`network_rule`], [`vpc_endpoint`], [`service_vip_binding`], [`bgp_router`], [`nat66_shard`]: the kinds as they are
//!   written, in files or in a cluster.
//! - [`checked`]: the same after every rule of one object held, in types that cannot hold a bad value.
//! - [`object`]: from the text of a file to a checked object, or to problems that name line, field and remedy.

pub mod address;
pub mod bgp_router;
pub mod check_binding;
pub mod check_endpoint;
pub mod check_router;
pub mod check_rule;
pub mod checked;
pub mod duration;
pub mod locate;
pub mod meta;
pub mod names;
pub mod nat66_shard;
pub mod network_rule;
pub mod object;
pub mod problem;
pub mod service_vip_binding;
pub mod sid;
pub mod vpc_endpoint;

pub use bgp_router::BGPRouter;
pub use checked::{CheckedBinding, CheckedEndpoint, CheckedObject, CheckedRule};
pub use nat66_shard::NAT66Shard;
pub use network_rule::NetworkRule;
pub use problem::{FileProblem, Problem, Severity};
pub use service_vip_binding::ServiceVIPBinding;
pub use vpc_endpoint::VPCEndpoint;

/// Group and version of every kind.
pub const API_VERSION: &str = "network.datumapis.com/v1alpha1";
