//! Telling routers which addresses this node serves: what to announce, and the ways to announce it.
//!
//! ```text
//! Desired, Applied ─► plan::AnnounceState::step ─► RoutePlan ─► Advertiser (bgp) ─► routers
//!                            ▲       │                              │
//!                            │       └─► may_unload ─► data plane   │
//!                            └────────── RouteStatus.settled ◄──────┘
//! ```
//!
//! `plan` is pure; an [`Advertiser`] is a task that follows the newest plan and reports what it has told whom.
//! Nothing learned from a router is ever announced again: a plan holds only what this node serves itself.

use std::collections::BTreeMap;
use std::future::Future;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::model::Families;

pub mod bgp;
pub mod config;
pub mod plan;
pub mod sockopt;

pub use config::{LargeCommunity, Password, PeerConfig, PeerRole, SpeakerConfig};
pub use plan::{
    AnnounceState, Decision, EndOfRib, Fitness, Forwarding, Input, RouteAttributes, RoutePlan, Routes,
};

/// A way to tell routers about routes. Follows `plan` until told to stop, and keeps `status` current.
pub trait Advertiser: Send + 'static {
    /// What it takes to talk to the routers; may be replaced while running.
    type Config: Send + 'static;

    /// Runs until a stopping [`Command`] has been carried out, or until `commands` or `plan` closes, which stops it as
    /// [`Command::Restart`] does.
    fn run(
        self,
        plan: watch::Receiver<RoutePlan>,
        commands: mpsc::Receiver<Command<Self::Config>>,
        status: watch::Sender<RouteStatus>,
    ) -> impl Future<Output = ()> + Send;
}

/// What an [`Advertiser`] can be asked to do, apart from following the plan.
#[derive(Clone, Debug)]
pub enum Command<C> {
    /// Use another configuration. Peers whose own settings are unchanged keep their sessions.
    Configure(Box<C>),
    /// Stop so that routers keep the routes while this process is replaced (RFC 4724): no withdraw, no NOTIFICATION.
    Restart,
    /// Stop for good: routers move traffic away first, then lose the routes.
    Leave(Leave),
}

/// How to leave for good. Steps that the plan has already taken (a drain) cost no time.
#[derive(Clone, Debug)]
pub struct Leave {
    /// Words for the router's operator (RFC 9003), at most 128 bytes of them are sent.
    pub reason: String,
    /// How long routes carry GRACEFUL_SHUTDOWN (RFC 8326) before they are withdrawn.
    pub shutdown_wait: Duration,
    /// How long sessions stay open after the withdraw.
    pub withdraw_wait: Duration,
}

/// What an advertiser has told its routers, as a snapshot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteStatus {
    /// The highest plan revision R such that no router holds a route of ours that plan R does not contain, as far as it
    /// can be known here: its withdraws were written to every established session, and no session that is down can have
    /// routes retained by graceful restart. 0 until the first plan is settled.
    pub settled: u64,
    /// Peers by name.
    pub peers: BTreeMap<String, PeerStatus>,
}

/// One peer's session, as a snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerStatus {
    /// The peer's name in the configuration.
    pub name: String,
    /// What it gets.
    pub role: PeerRole,
    /// Its address.
    pub address: IpAddr,
    /// Its AS number.
    pub asn: u32,
    /// Where the session stands.
    pub state: PeerState,
    /// Since when the session is established.
    pub established_since: Option<SystemTime>,
    /// How often the session has reached `Established` since the peer's configuration took effect.
    pub established_count: u64,
    /// Families of which this session carries routes: negotiated, and with a next hop.
    pub carries: Families,
    /// Routes sent and not withdrawn in this session.
    pub advertised: u64,
    /// Routes of the plan that this session cannot carry: family not negotiated, or no next hop of that family.
    pub unsendable: u64,
    /// Prefixes the peer announces to us at the moment, all of them refused by the import policy.
    pub received: u64,
    /// Routes refused by the import policy since the peer's configuration took effect.
    pub received_dropped: u64,
    /// The peer announces more prefixes than `max_prefixes`; `received` stopped counting there.
    pub received_over_limit: bool,
    /// The peer's graceful-restart capability, when it has it.
    pub graceful_restart: Option<PeerRestart>,
    /// Hold time in force, seconds.
    pub hold_time: Option<u16>,
    /// What our OPEN of this session said about restart (R) and preserved forwarding (F).
    pub sent_flags: RestartFlags,
    /// End-of-RIB was sent in this session.
    pub end_of_rib_sent: bool,
    /// See [`RouteStatus::settled`], for this peer alone.
    pub settled: u64,
    /// Why the last session ended or did not come up; kept while established.
    pub last_error: Option<String>,
}

/// A peer's graceful-restart capability (RFC 4724 section 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerRestart {
    /// How long its own restart may take, seconds.
    pub restart_time: u16,
    /// N: it keeps routes when a NOTIFICATION ends the session (RFC 8538).
    pub notification: bool,
    /// R: it has restarted.
    pub restarted: bool,
}

/// Flags of our graceful-restart capability (RFC 4724 section 3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartFlags {
    /// R: this speaker has restarted.
    pub restarted: bool,
    /// F, of every family: packets kept being forwarded.
    pub forwarding: bool,
}

/// Session states (RFC 4271 section 8.2.2).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PeerState {
    /// No attempt is under way.
    #[default]
    Idle,
    /// Dialling.
    Connect,
    /// Waiting to dial again.
    Active,
    /// Our OPEN is out.
    OpenSent,
    /// Both OPENs were accepted.
    OpenConfirm,
    /// Routes are exchanged.
    Established,
}

impl std::fmt::Display for PeerState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Idle => "Idle",
            Self::Connect => "Connect",
            Self::Active => "Active",
            Self::OpenSent => "OpenSent",
            Self::OpenConfirm => "OpenConfirm",
            Self::Established => "Established",
        })
    }
}

/// A running advertiser. Dropping it stops it as [`Handle::restart`] does, without waiting.
#[derive(Debug)]
pub struct Handle<C> {
    plan: watch::Sender<RoutePlan>,
    commands: mpsc::Sender<Command<C>>,
    status: watch::Receiver<RouteStatus>,
    task: JoinHandle<()>,
}

impl<C: Send + 'static> Handle<C> {
    /// Starts an advertiser on the current tokio runtime. It announces nothing and dials nobody until the first plan
    /// says whether packets were forwarded throughout ([`Forwarding`]).
    pub fn spawn<A: Advertiser<Config = C>>(advertiser: A) -> Self {
        let (plan, plan_rx) = watch::channel(RoutePlan::default());
        let (commands, commands_rx) = mpsc::channel(8);
        let (status_tx, status) = watch::channel(RouteStatus::default());
        let task = tokio::spawn(advertiser.run(plan_rx, commands_rx, status_tx));
        Self { plan, commands, status, task }
    }

    /// Hands over the newest plan; an equal one is ignored.
    pub fn follow(&self, plan: RoutePlan) {
        self.plan.send_if_modified(|current| {
            let changed = *current != plan;
            if changed {
                *current = plan;
            }
            changed
        });
    }

    /// Snapshots of what routers were told; `changed()` wakes on every change.
    pub fn status(&self) -> watch::Receiver<RouteStatus> {
        self.status.clone()
    }

    /// Replaces the configuration. Does nothing once the advertiser has stopped.
    pub async fn configure(&self, config: C) {
        // A closed channel means that the task has ended; there is nothing left to configure.
        let _ = self.commands.send(Command::Configure(Box::new(config))).await;
    }

    /// Stops for a restart and waits until the sessions are closed.
    pub async fn restart(self) {
        let _ = self.commands.send(Command::Restart).await;
        let _ = self.task.await;
    }

    /// Leaves for good and waits until every router was told.
    pub async fn leave(self, leave: Leave) {
        let _ = self.commands.send(Command::Leave(leave)).await;
        let _ = self.task.await;
    }
}
