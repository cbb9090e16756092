//! What should be and what is: plain data that `state`, `dataplane` and `route` exchange.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};

use crate::model::{ObjectName, Rules, VipKey};

/// What this gateway should serve and announce, derived from events alone.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Desired {
    /// Grows with every change; `Applied` names the generation it answers.
    pub generation: u64,
    /// All inputs have been read once (every source synced). Before that nothing is deleted and no End-of-RIB is sent.
    pub synced: bool,
    /// Rules of this region.
    pub rules: Rules,
    /// VIPs that may be announced while loaded: those of `rules`, less the ones whose policy withdraws them now.
    pub announce: BTreeSet<IpAddr>,
    /// Loaded keys that no rule wants any more and whose routes have been gone for the drain time: these may be unloaded.
    pub unload: BTreeSet<VipKey>,
    /// The gateway leaves for good: announce with GRACEFUL_SHUTDOWN, then withdraw all.
    pub drain: DrainStage,
}

/// Steps of leaving for good, in order.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "kebab-case")]
pub enum DrainStage {
    /// Serving.
    #[default]
    None,
    /// All VIPs carry GRACEFUL_SHUTDOWN (RFC 8326).
    GracefulShutdown,
    /// All VIPs are withdrawn, packets are still served.
    Withdrawn,
    /// Nothing arrives any more: detach.
    Detached,
}

/// What the data plane holds, as read back from its maps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Applied {
    /// Generation of the `Desired` this answers; 0 when the maps were only adopted.
    pub generation: u64,
    /// Keys whose index, word and ring are in place.
    pub loaded: BTreeSet<VipKey>,
    /// Rules that are not loaded as they are wanted, each with the reason a tenant can read.
    pub refused: BTreeMap<ObjectName, Refusal>,
    /// SIDs for which no next hop is known here.
    pub unreachable: BTreeSet<Ipv6Addr>,
    /// Rules and VIPs that were asked to go but still serve until their routes are gone.
    pub lingering: BTreeSet<VipKey>,
}

/// Why a rule is not loaded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What kind of thing stands in the way.
    pub cause: RefusalCause,
    /// One sentence with what to do about it.
    pub message: String,
}

/// What keeps a rule from being loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RefusalCause {
    /// A map is full: room or a larger limit helps.
    LimitReached,
    /// A field was changed that may not be.
    Immutable,
    /// An operation failed.
    Fault,
}

impl Applied {
    /// VIPs with at least one key loaded.
    pub fn vips(&self) -> BTreeSet<IpAddr> {
        self.loaded.iter().map(|k| k.address).collect()
    }
}
