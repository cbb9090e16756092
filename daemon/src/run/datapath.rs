//! The thread that owns programs and maps. It follows the newest `Desired`, points backends at next hops, keeps the
//! heartbeat, runs the self-test, and tells what it holds. Blocking is its trade: readers are waited for here.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot, watch};
use weir_bpf::abi::NextHop;

use super::selftest;
use crate::dataplane::Error;
use crate::dataplane::apply::Reconciler;
use crate::dataplane::bpf::{Bpf, CaptureRing, InterfaceStatus, Maps};
use crate::dataplane::nexthop::NextHopUpdate;
use crate::dataplane::pathmtu::PathMtus;
use crate::desired::Desired;
use crate::event::Event;
use crate::maglev::Seed;
use crate::model::{Rule, Sid};

/// Time between heartbeats and looks at link and slot.
const BEAT: Duration = Duration::from_secs(1);
/// Time between looks at what the fabric's routers have said of path MTUs.
const LEARN: Duration = Duration::from_millis(250);
/// Time between self-tests once one has come back.
const RETEST: Duration = Duration::from_secs(5);
/// Time between self-tests until then: a gateway that has just been started waits for the first one.
const TEST_AGAIN: Duration = Duration::from_millis(250);
/// How long a self-test frame may take.
const RETURN: Duration = Duration::from_millis(500);
/// How long new maps wait for their next hops before the programs are switched to them all the same.
const SETTLE: Duration = Duration::from_secs(5);

/// How long a capture may be overdue before it is ended here.
const OVERDUE: Duration = Duration::from_secs(5);

/// What the thread is asked to do.
pub(super) enum Ask {
    /// Hold this; the self-test's rule is in it.
    Desired(Box<Desired>),
    /// SIDs lead elsewhere.
    NextHops(NextHopUpdate),
    /// Put the program that captures in the slots.
    Capture(CaptureFor, oneshot::Sender<Result<CaptureRing, Error>>),
    /// Put the plain one back; answered with the number of frames that were lost.
    EndCapture(oneshot::Sender<Result<u64, Error>>),
    /// End; programs, maps and links stay.
    Stop,
    /// Leave the interfaces and end.
    Detach(oneshot::Sender<Result<(), Error>>),
}

/// What is captured, and for how long at most.
pub(super) struct CaptureFor {
    pub(super) vip: IpAddr,
    pub(super) port: u16,
    pub(super) time: Duration,
}

/// How the data plane does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Health {
    pub(super) interfaces: Vec<InterfaceStatus>,
    /// This build's programs are in their slots.
    pub(super) active: bool,
    /// When the program last got a heartbeat.
    pub(super) beat: Option<Instant>,
    /// When the last self-test frame came back.
    pub(super) self_test: SelfTest,
    /// The last thing that failed, until a pass succeeds.
    pub(super) error: Option<String>,
    /// Rings built since the start.
    pub(super) ring_builds: u64,
    /// Writes into the maps since the start.
    pub(super) map_writes: u64,
}

/// State of the self-test.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum SelfTest {
    /// None has been sent.
    #[default]
    Pending,
    /// The last one came back.
    Returned,
    /// The last one did not.
    Lost,
}

/// What the self-test needs.
pub(super) struct Probe {
    /// The rule that leads the reserved VIP to this node.
    pub(super) rule: Rule,
    /// Interface that the frame comes in on.
    pub(super) uplink: String,
}

/// Where the thread tells what it knows.
pub(super) struct Outputs {
    /// What the maps hold.
    pub(super) events: mpsc::Sender<Event>,
    /// How it does.
    pub(super) health: watch::Sender<Health>,
    /// SIDs whose next hops it needs.
    pub(super) sids: watch::Sender<BTreeSet<Sid>>,
}

/// A handle on the thread.
pub(super) struct Datapath {
    asks: Sender<Ask>,
    self_test: Arc<Rule>,
    thread: JoinHandle<()>,
}

impl Datapath {
    /// Starts the thread.
    pub(super) fn start(
        bpf: Bpf,
        maps: Maps,
        seed: Seed,
        probe: Probe,
        outputs: Outputs,
    ) -> Result<Self, Error> {
        let reconciler = Reconciler::new(maps, seed)?;
        tracing::info!(adopted = bpf.adopted(), vips = reconciler.tables().vips.len(), "data plane attached");
        let (asks, inbox) = channel();
        let self_test = Arc::new(probe.rule);
        let worker = Worker {
            bpf,
            reconciler,
            self_test: Arc::clone(&self_test),
            uplink: probe.uplink,
            out: outputs,
            state: Health::default(),
            desired: Box::default(),
            staged_since: None,
            sent: None,
            next_test: Instant::now(),
            next_beat: Instant::now(),
            next_learned: Instant::now(),
            path_mtus: PathMtus::default(),
            capture_until: None,
        };
        let spawn = std::thread::Builder::new().name("datapath".into()).spawn(move || worker.run(&inbox));
        let thread = spawn.map_err(|e| Error::Load { program: "datapath thread", reason: e.to_string() })?;
        Ok(Self { asks, self_test, thread })
    }

    /// Asks the thread to hold what is desired, and the self-test's rule.
    pub(super) fn hold(&self, mut desired: Desired) {
        desired.rules.insert(self.self_test.name.clone(), Arc::clone(&self.self_test));
        self.ask(Ask::Desired(Box::new(desired)));
    }

    /// Hands something over; a thread that has ended takes nothing.
    pub(super) fn ask(&self, ask: Ask) {
        let _ = self.asks.send(ask);
    }

    /// A way to ask from elsewhere.
    pub(super) fn asks(&self) -> Sender<Ask> {
        self.asks.clone()
    }

    /// Ends the thread; programs, maps and links stay.
    pub(super) fn leave_running(self) {
        self.ask(Ask::Stop);
        let _ = self.thread.join();
    }
}

struct Worker {
    bpf: Bpf,
    reconciler: Reconciler<Maps>,
    self_test: Arc<Rule>,
    uplink: String,
    out: Outputs,
    state: Health,
    desired: Box<Desired>,
    /// Since when new maps are filled but not in use.
    staged_since: Option<Instant>,
    /// A self-test frame on its way: when it was sent, and the count before.
    sent: Option<(Instant, u64)>,
    next_test: Instant,
    next_beat: Instant,
    next_learned: Instant,
    path_mtus: PathMtus,
    /// When a capture ends that nobody has ended.
    capture_until: Option<Instant>,
}

impl Worker {
    fn run(mut self, inbox: &Receiver<Ask>) {
        // Adopted state is told before anything is changed.
        self.tell();
        loop {
            let now = Instant::now();
            self.tick(now);
            let due = self.next_beat.min(self.next_test).min(self.next_learned);
            let wake = self.sent.map_or(due, |_| now + Duration::from_millis(5));
            let first = match inbox.recv_timeout(wake.saturating_duration_since(now)) {
                Ok(ask) => Some(ask),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let (mut newest, mut hops) = (None, BTreeMap::new());
            for ask in first.into_iter().chain(inbox.try_iter()) {
                match ask {
                    Ask::Desired(desired) => newest = Some(desired),
                    Ask::NextHops(update) => hops.extend(update.changed),
                    Ask::Capture(wanted, answer) => {
                        let begun = self.bpf.start_capture(wanted.vip, wanted.port, wanted.time);
                        self.capture_until = begun.is_ok().then(|| Instant::now() + wanted.time + OVERDUE);
                        if let Err(Ok(_)) = answer.send(begun) {
                            self.end_capture();
                        }
                    }
                    Ask::EndCapture(answer) => {
                        self.capture_until = None;
                        let _ = answer.send(self.bpf.end_capture());
                    }
                    Ask::Stop => {
                        self.end_capture();
                        return;
                    }
                    Ask::Detach(answer) => {
                        let Self { bpf, reconciler, .. } = self;
                        drop(reconciler);
                        let _ = answer.send(bpf.detach());
                        return;
                    }
                }
            }
            if let Some(desired) = newest {
                self.desired = desired;
                self.apply();
            }
            if !hops.is_empty() {
                let news = hops.into_iter().map(|(sid, resolution)| {
                    let record = |hop: &crate::dataplane::nexthop::ResolvedHop| NextHop {
                        macs: hop.macs,
                        ifindex: hop.ifindex,
                        mtu: hop.mtu,
                        flags: 0,
                    };
                    (sid, resolution.hops.iter().map(record).collect())
                });
                let outcome = self.reconciler.next_hops(news);
                self.note(outcome);
                self.tell();
            }
        }
    }

    /// Lowers the MTU of backends to which the fabric says that less fits, and forgets what was said long ago.
    fn learn(&mut self) {
        let now = crate::dataplane::bpf::monotonic_ns();
        let told = self.reconciler.dataplane().learned();
        if told.is_empty() && self.path_mtus.is_empty() {
            return;
        }
        let sids = self.reconciler.sids();
        self.path_mtus.update(told, &sids, now);
        if let Err(error) = self.reconciler.path_mtus(&self.path_mtus) {
            tracing::warn!(%error, "path MTU not set");
        }
    }

    fn end_capture(&mut self) {
        self.capture_until = None;
        if let Err(error) = self.bpf.end_capture() {
            tracing::error!(%error, "the program that captures is still in its slot");
        }
    }

    fn apply(&mut self) {
        let outcome = self.reconciler.bring(&self.desired);
        self.note(outcome);
        self.next_learned = Instant::now();
        self.watch_sids();
        self.tell();
        if !self.bpf.active() && self.desired.synced && self.state.error.is_none() {
            self.staged_since.get_or_insert_with(Instant::now);
        }
    }

    fn watch_sids(&mut self) {
        let sids = self.reconciler.sids();
        self.out.sids.send_if_modified(|current| {
            let changed = *current != sids;
            if changed {
                *current = sids;
            }
            changed
        });
    }

    /// Tells what the maps hold, the self-test's own rule left out.
    fn tell(&mut self) {
        let mut applied = self.reconciler.applied(&self.desired);
        applied.loaded.remove(&selftest::KEY);
        applied.lingering.remove(&selftest::KEY);
        applied.refused.remove(&self.self_test.name);
        // The channel closes when the daemon stops.
        let _ = self.out.events.blocking_send(Event::Applied(applied));
    }

    fn note(&mut self, outcome: Result<(), Error>) {
        self.state.error = outcome.err().map(|error| {
            tracing::error!(%error, "data plane not brought up to date");
            error.to_string()
        });
    }

    fn tick(&mut self, now: Instant) {
        if let Some(since) = self.staged_since {
            let settled = self.reconciler.applied(&self.desired).unreachable.is_empty();
            if settled || now >= since + SETTLE {
                self.staged_since = None;
                let outcome =
                    self.bpf.activate().and_then(|()| self.bpf.retire_replaced(self.reconciler.dataplane()));
                if outcome.is_ok() {
                    tracing::info!("switched to the new maps");
                }
                self.note(outcome);
            }
        }
        if let Some((at, before)) = self.sent {
            if self.reconciler.dataplane().shared().selftest_seen > before {
                (self.sent, self.state.self_test) = (None, SelfTest::Returned);
                self.next_test = now + RETEST;
            } else if now >= at + RETURN {
                if self.state.self_test != SelfTest::Lost {
                    tracing::warn!("the self-test frame did not come back");
                }
                (self.sent, self.state.self_test) = (None, SelfTest::Lost);
                self.next_test = now + TEST_AGAIN;
            }
        } else if now >= self.next_test {
            let before = self.reconciler.dataplane().shared().selftest_seen;
            self.next_test = now + TEST_AGAIN;
            if self.bpf.active() && self.reconciler.tables().vips.contains_key(&selftest::KEY) {
                match self.bpf.send_through(&self.uplink, &selftest::frame()) {
                    Ok(()) => self.sent = Some((now, before)),
                    Err(error) => {
                        tracing::warn!(%error, "self-test frame not sent");
                        self.state.self_test = SelfTest::Lost;
                    }
                }
            }
        }
        if self.capture_until.is_some_and(|until| now >= until) {
            tracing::warn!("a capture has not been ended in its time");
            self.end_capture();
        }
        if now >= self.next_beat {
            self.next_beat = now + BEAT;
            match self.bpf.heartbeat() {
                Ok(()) => self.state.beat = Some(now),
                Err(error) => tracing::error!(%error, "heartbeat failed"),
            }
            self.state.interfaces = self.bpf.status();
        }
        if now >= self.next_learned {
            self.next_learned = now + LEARN;
            self.learn();
        }
        self.state.active = self.bpf.active();
        self.state.ring_builds = self.reconciler.ring_builds();
        self.state.map_writes = self.reconciler.dataplane().writes();
        let state = &self.state;
        self.out.health.send_if_modified(|current| {
            let changed = current != state;
            if changed {
                current.clone_from(state);
            }
            changed
        });
    }
}

/// Whether what was adopted was forwarding throughout: every link attached, every slot ours.
pub(super) fn forwarded(bpf: &Bpf) -> bool {
    bpf.adopted() && bpf.status().iter().all(|interface| interface.attached)
}
