//! BGP speaker: supervises one task a peer, applies configuration changes, and stops in the way it is told.
//!
//! | file | job |
//! | --- | --- |
//! | `driver` | the task of one peer |
//! | `session` | what each input means for a peer's session; no I/O |
//! | `settle` | which plan a peer is known to have followed |
//! | `open` | capabilities and restart flags |
//! | `rib` | Adj-RIB-Out and UPDATEs |
//! | `import` | received routes: counted and refused |
//! | `io` | TCP: options, dialling, a bounded writer, closing |
//! | `backoff` | when to dial again |
//! | `status` | words for states and ends |

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};
use tracing::{info, warn};

use self::driver::Control;
use self::open::Restarting;
use self::session::Session;
use self::settle::{LeaveStage, Settled};
use super::{Advertiser, Command, Leave, PeerConfig, PeerStatus, RoutePlan, RouteStatus, SpeakerConfig};

pub use rehearse::rehearse;

mod backoff;
mod driver;
mod import;
mod io;
mod open;
mod rehearse;
mod rib;
mod session;
mod settle;
mod status;

/// How long a step of leaving waits for peers that do not take what they are sent.
const FLUSH: Duration = Duration::from_secs(5);

/// How this process came up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// Nothing was there before.
    Fresh,
    /// State of a process before was adopted: each peer is told R until it is first established.
    Restarted,
}

/// What every peer's task last reported.
type Board = BTreeMap<String, BoardEntry>;

#[derive(Clone, Debug, PartialEq, Eq)]
struct BoardEntry {
    status: PeerStatus,
    settled: Settled,
}

/// The in-process BGP speaker.
#[derive(Debug)]
pub struct Bgp {
    config: SpeakerConfig,
    start: Start,
}

impl Bgp {
    /// A speaker that has not started; see [`Handle::spawn`](super::Handle::spawn).
    pub fn new(config: SpeakerConfig, start: Start) -> Self {
        Self { config, start }
    }
}

impl Advertiser for Bgp {
    type Config = SpeakerConfig;

    async fn run(
        self,
        plan: watch::Receiver<RoutePlan>,
        mut commands: mpsc::Receiver<Command<SpeakerConfig>>,
        status: watch::Sender<RouteStatus>,
    ) {
        let restarting = if self.start == Start::Restarted { Restarting::Yes } else { Restarting::No };
        let (board, board_rx) = watch::channel(Board::new());
        let mut speaker =
            Speaker { tasks: BTreeMap::new(), refused: BTreeMap::new(), plan, board, board_rx, status };
        speaker.configure(self.config, restarting).await;
        let mut plan = speaker.plan.clone();
        loop {
            speaker.publish();
            tokio::select! {
                command = commands.recv() => match command {
                    Some(Command::Configure(config)) => speaker.configure(*config, Restarting::No).await,
                    Some(Command::Leave(leave)) => return speaker.leave(leave).await,
                    Some(Command::Restart) | None => return speaker.end(&Control::Abandon).await,
                },
                changed = plan.changed() => if changed.is_err() {
                    return speaker.end(&Control::Abandon).await;
                },
                // The speaker holds a sender, so this never fails.
                _ = speaker.board_rx.changed() => {}
            }
        }
    }
}

struct Task {
    speaker: Arc<SpeakerConfig>,
    peer: Arc<PeerConfig>,
    control: watch::Sender<Control>,
    handle: JoinHandle<Restarting>,
}

struct Speaker {
    tasks: BTreeMap<String, Task>,
    /// Peers of the configuration that are not used, with the reason.
    refused: BTreeMap<String, PeerStatus>,
    plan: watch::Receiver<RoutePlan>,
    board: watch::Sender<Board>,
    board_rx: watch::Receiver<Board>,
    status: watch::Sender<RouteStatus>,
}

impl Speaker {
    /// Starts, resets and ends sessions until they are those of `config`. Sessions of unchanged peers are not touched.
    async fn configure(&mut self, config: SpeakerConfig, restarting: Restarting) {
        let (peers, refused) = usable(&config.peers);
        self.refused = refused;
        let speaker = Arc::new(SpeakerConfig { peers: Vec::new(), ..config });

        let names: BTreeSet<_> = peers.iter().map(|p| p.name.clone()).collect();
        let removed: Vec<_> = self.tasks.keys().filter(|name| !names.contains(*name)).cloned().collect();
        for name in removed {
            info!(peer = name, "BGP peer removed from the configuration");
            self.end_one(&name, Control::Leave("peer removed from the configuration".into())).await;
            self.board.send_modify(|board| {
                board.remove(&name);
            });
        }
        for peer in peers {
            let mut restarting = restarting;
            if let Some(task) = self.tasks.get(&peer.name) {
                if *task.peer == peer && task.speaker == speaker {
                    continue;
                }
                info!(peer = peer.name, "BGP session reset: its configuration changed");
                let same_router = task.peer.address == peer.address;
                let control = if same_router {
                    Control::Reset("configuration changed".into())
                } else {
                    Control::Leave("peer address changed".into())
                };
                restarting = self.end_one(&peer.name, control).await;
            }
            self.start(Arc::clone(&speaker), Arc::new(peer), restarting);
        }
    }

    fn start(&mut self, speaker: Arc<SpeakerConfig>, peer: Arc<PeerConfig>, restarting: Restarting) {
        let session = Session::new(Arc::clone(&speaker), Arc::clone(&peer), restarting, Instant::now());
        let (control, control_rx) = watch::channel(Control::Run(LeaveStage::Stay));
        let run = driver::run(session, self.plan.clone(), control_rx, self.board.clone());
        let handle = tokio::spawn(run);
        self.tasks.insert(peer.name.clone(), Task { speaker, peer, control, handle });
    }

    async fn end_one(&mut self, name: &str, control: Control) -> Restarting {
        let Some(task) = self.tasks.remove(name) else { return Restarting::No };
        task.control.send_replace(control);
        task.handle.await.unwrap_or(Restarting::No)
    }

    /// Ends all sessions and waits until their connections are closed.
    async fn end(mut self, control: &Control) {
        for task in self.tasks.values() {
            task.control.send_replace(control.clone());
        }
        for (name, task) in std::mem::take(&mut self.tasks) {
            if let Err(error) = task.handle.await {
                warn!(peer = name, %error, "BGP peer's task failed");
            }
        }
        self.publish();
    }

    async fn leave(mut self, leave: Leave) {
        info!(reason = leave.reason, "BGP speaker leaves");
        let had_routes = self.advertised() > 0;
        self.stage(LeaveStage::Shutdown).await;
        let marked = {
            let plan = self.plan.borrow();
            let mut routes = plan.vips.values().chain(plan.node.values());
            routes.all(|a| a.communities.contains(&super::plan::GRACEFUL_SHUTDOWN))
        };
        // Routes that the plan itself marked have had their time.
        if had_routes && !marked {
            sleep(leave.shutdown_wait).await;
        }
        self.stage(LeaveStage::Withdrawn).await;
        if had_routes {
            sleep(leave.withdraw_wait).await;
        }
        self.end(&Control::Leave(leave.reason)).await;
    }

    fn advertised(&self) -> u64 {
        self.board_rx.borrow().values().map(|entry| entry.status.advertised).sum()
    }

    /// Takes every session to a stage and waits until it was written to all, or `FLUSH` has passed.
    async fn stage(&mut self, stage: LeaveStage) {
        for task in self.tasks.values() {
            task.control.send_replace(Control::Run(stage));
        }
        let mut board = self.board_rx.clone();
        let done = board.wait_for(|board| {
            board.values().all(|e| e.settled.stage >= stage || e.status.established_since.is_none())
        });
        if timeout(FLUSH, done).await.is_err() {
            warn!(?stage, "leave: a BGP peer does not take its routes; going on without it");
        }
        self.publish();
    }

    fn publish(&mut self) {
        let board = self.board_rx.borrow_and_update().clone();
        let planned = self.plan.borrow().revision;
        // A peer whose task has not reported yet counts as told nothing.
        let all_reported = self.tasks.keys().all(|name| board.contains_key(name));
        let settled = board.values().map(|entry| entry.settled.revision).min().unwrap_or(planned);
        let mut peers: BTreeMap<_, _> = board.into_iter().map(|(name, entry)| (name, entry.status)).collect();
        peers.extend(self.refused.clone());
        let new = RouteStatus { settled: if all_reported { settled } else { 0 }, peers };
        self.status.send_if_modified(|current| {
            let changed = *current != new;
            *current = new;
            changed
        });
    }
}

/// Splits peers into those to use and those whose name or address another has already: two sessions to one router
/// would knock each other over.
fn usable(peers: &[PeerConfig]) -> (Vec<PeerConfig>, BTreeMap<String, PeerStatus>) {
    let mut by_address: BTreeMap<(IpAddr, u16), &str> = BTreeMap::new();
    let mut names = BTreeSet::new();
    let (mut used, mut refused) = (Vec::new(), BTreeMap::new());
    for peer in peers {
        let address = (peer.address.to_canonical(), peer.port);
        let other = by_address.get(&address).copied();
        if other.is_none() && names.insert(&peer.name) {
            by_address.insert(address, &peer.name);
            used.push(peer.clone());
            continue;
        }
        let cause = format!(
            "peer {:?} not used: peer {:?} has its name or its address {}; remove one of them",
            peer.name,
            other.unwrap_or(&peer.name),
            peer.address
        );
        warn!("{cause}");
        if other.is_some() && !names.contains(&peer.name) {
            let mut entry = status::initial(peer);
            entry.last_error = Some(cause);
            refused.insert(peer.name.clone(), entry);
        }
    }
    (used, refused)
}

#[cfg(test)]
mod test_support;
#[cfg(test)]
mod tests;
