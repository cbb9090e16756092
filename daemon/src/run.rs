//! The gateway's main loop: events in, decisions out, one owner of the truth.
//!
//! ```text
//! source ─┐                        ┌─► datapath thread ─► maps
//! routes ─┼─► Event ─► State ─► Desired ─► AnnounceState ─► RoutePlan ─► BGP
//! admin ──┘                        └─► NodeStatus ─► admin socket, metrics
//! ```

mod capture;
mod datapath;
mod drops;
mod readiness;
mod report;
pub mod selftest;
mod setup;
mod signals;
mod sysctl;
#[cfg(test)]
mod tests;
mod worker;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};

use self::datapath::{Ask, Datapath, Health, SelfTest};
pub use self::setup::{constants, interfaces};
use self::setup::{needs_restart, params, plan_settings, settings, speaker};
use self::signals::{Signal, Signals};
use crate::admin::{self, AdminCommand};
use crate::config::{self, Config, ConfigError, Locator};
use crate::dataplane::bpf::Bpf;
use crate::dataplane::nexthop::Monitor;
use crate::dataplane::{self};
use crate::desired::{Desired, DrainStage};
use crate::event::{self, Event};
use crate::inspect::PinnedSet;
use crate::maglev::Seed;
use crate::metrics;
use crate::model::VipKey;
use crate::resolve;
use crate::route::bgp::{Bgp, Start};
use crate::route::{self, AnnounceState, Decision, Fitness, Forwarding, Leave, SpeakerConfig};
use crate::source::{self, file::FileSource};
use crate::state::State;
use crate::status::{NodeStatus, VERSION};

pub use self::worker::{detach as detach_worker, worker};

/// Least time between two reports; a burst of changes is one.
const REPORT: Duration = Duration::from_millis(200);

/// When nothing is due.
const FAR: Duration = Duration::from_hours(1);

/// Why the gateway could not run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The configuration is refused.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The data plane could not be set up.
    #[error("set up the data plane: {0}")]
    Dataplane(#[from] dataplane::Error),
    /// The admin socket could not be opened.
    #[error("open the admin socket: {0}")]
    Admin(#[from] admin::AdminError),
    /// The metrics address could not be opened.
    #[error(transparent)]
    Metrics(#[from] metrics::BindError),
    /// Nothing says which part of the SRv6 block is this node's, or two things differ.
    #[error("find this node's locator: {0}")]
    Locator(String),
    /// The process could not be set up.
    #[error("start: {0}")]
    Io(#[from] std::io::Error),
}

/// Runs a gateway until it is told to stop: for a restart, with everything left in place, or for good.
pub fn gateway(config: &Path) -> Result<(), Error> {
    // The region's key and the peers' passwords must not end in a core dump.
    nix::sys::prctl::set_dumpable(false).map_err(std::io::Error::from)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(run(config.into()))
}

/// How the main loop ended.
enum End {
    /// Routers keep our routes, the kernel keeps our programs.
    Restart,
    /// Everything goes.
    Leave,
}

async fn run(path: PathBuf) -> Result<(), Error> {
    let config = Config::load(&path)?;
    info!(version = VERSION, node = %config.node, region = %config.region, "gateway starts");
    let mut signals = Signals::listen()?;
    let locator = locate(&config)?;
    info!(locator = %locator.prefix(), "this node's part of the SRv6 block");
    let interfaces = interfaces(&config);
    let unset = sysctl::ensure(interfaces.iter().map(|i| i.name.as_str()));
    for setting in &unset {
        error!(interface = %setting.interface, reason = %setting.reason, "forwarding cannot be enabled");
    }
    // The objects are read while the kernel makes room for the maps: either takes a good part of a start.
    let (events_in, mut events) = mpsc::channel(1024);
    let source = FileSource::new(&config.objects, config.timers.settle, config.timers.rescan);
    let rescan = source.rescan_handle();
    let stop = CancellationToken::new();
    let files = tokio::spawn(source.run(events_in.clone(), stop.clone()));
    sysctl::ensure_ipv4(config.fabric.iter().filter(|f| !config.uplinks.contains(f)).map(String::as_str));
    let mut bpf = Bpf::open(&params(&config, locator, &interfaces))?;
    let maps = bpf.take_maps().ok_or_else(|| lost("maps"))?;
    let adopted = bpf.adopted();
    let forwarding = if datapath::forwarded(&bpf) { Forwarding::Preserved } else { Forwarding::NotPreserved };
    let readers = maps.directory().to_path_buf();

    let (health_in, health) = watch::channel(Health::default());
    let (sids_in, mut sids) = watch::channel(BTreeSet::new());
    let self_test = selftest::rule(&config.node, &config.region, locator.self_test_sid());
    let uplink = config.uplinks.first().cloned().unwrap_or_default();
    let seed = Seed::from_region_key(config.hash_key.expose());
    let outputs = datapath::Outputs { events: events_in.clone(), health: health_in, sids: sids_in };
    let datapath = Datapath::start(bpf, maps, seed, datapath::Probe { rule: self_test, uplink }, outputs)?;
    let drops = drops::follow(&readers, stop.clone())?;
    let fabric: BTreeSet<String> = config.fabric.iter().cloned().collect();
    let (monitor, mut next_hops) = Monitor::spawn(fabric);

    let start = if adopted { Start::Restarted } else { Start::Fresh };
    let speaker = speaker(&config);
    let advertiser = route::Handle::spawn(Bgp::new(speaker, start));
    let mut routes = advertiser.status();

    let first = Arc::new(NodeStatus::starting(&config.node, &config.region));
    let (status_in, status) = watch::channel(first);
    let (commands_in, mut commands) = mpsc::channel(16);
    let server = admin::Server::bind(&config.admin).await?;
    let admin = tokio::spawn(server.serve(status.clone(), commands_in, stop.clone().cancelled_owned()));
    let beats = health.clone();
    let sources = metrics::Sources {
        status: status.clone(),
        counters: Arc::new(PinnedSet { directory: readers }),
        heartbeat: Arc::new(move || beats.borrow().beat),
    };
    let listener = metrics::bind(config.metrics).await?;
    let metrics = tokio::spawn(metrics::serve(listener, sources, stop.clone().cancelled_owned()));

    let mut health_changes = health.clone();
    let mut core = Core {
        state: State::new(settings(&config, locator)),
        announce: AnnounceState::new(plan_settings(&config, locator)),
        decision: None,
        forwarding,
        fitness: match forwarding {
            Forwarding::Preserved => Fitness::Proven,
            Forwarding::NotPreserved | Forwarding::Unknown => Fitness::Unproven,
        },
        asked: None,
        health,
        unset,
        config,
        locator,
        route_changes: monitor.route_changes(),
        reported: report::Rules::default(),
    };
    core.step(&routes.borrow_and_update().clone(), &advertiser, &datapath);
    // The service runs from here on; whether it may be sent traffic is another question, which `/readyz` answers.
    sd_notify::notify(false, &[sd_notify::NotifyState::Ready, sd_notify::NotifyState::Status("starting")])
        .ok();

    let mut report_at = tokio::time::Instant::now();
    let mut second = tokio::time::interval(Duration::from_secs(1));
    let (mut announced_ready, mut unreported, mut leaving) = (false, false, None);
    let end = loop {
        let report_due = unreported.then(|| report_at.into_std());
        let deadline = [core.next_deadline(), report_due].into_iter().flatten().min();
        let deadline = deadline.unwrap_or_else(|| Instant::now() + FAR);
        let event = tokio::select! {
            Some(event) = events.recv() => event,
            changed = routes.changed() => {
                if changed.is_err() { break End::Restart }
                core.peers(&routes.borrow().clone());
                Event::Tick
            }
            changed = health_changes.changed() => {
                if changed.is_err() { break End::Restart }
                Event::Tick
            }
            Some(update) = next_hops.recv() => {
                datapath.ask(Ask::NextHops(update));
                continue;
            }
            changed = sids.changed() => {
                if changed.is_ok() { monitor.watch(sids.borrow_and_update().clone()); }
                continue;
            }
            Some(command) = commands.recv() => match command {
                AdminCommand::Drain(answer) => {
                    leaving = Some(answer);
                    Event::Drain
                }
                AdminCommand::Drops(answer) => {
                    let follower = drops.upgrade().map(|tell| tell.subscribe());
                    let _ = answer.send(follower.ok_or_else(|| "drops are no longer read; see the log".into()));
                    continue;
                }
                AdminCommand::Capture(request, answer) => {
                    tokio::spawn(capture::run(request, datapath.asks(), stop.clone(), answer));
                    continue;
                }
                AdminCommand::Reload(answer) => {
                    let outcome = core.reload(&path, &advertiser).await;
                    rescan.ask();
                    let _ = answer.send(outcome);
                    Event::Tick
                }
            },
            signal = signals.next() => match signal {
                Signal::Reload => {
                    if let Err(error) = core.reload(&path, &advertiser).await {
                        error!(%error, "configuration not read again");
                    }
                    rescan.ask();
                    Event::Tick
                }
                Signal::Terminate if signals::leaving_for_good(&core.config.drain_marker) => {
                    info!("asked to stop while the host goes or its drain marker is set: draining");
                    Event::Drain
                }
                Signal::Terminate => Event::Shutdown,
            },
            _ = second.tick() => {
                core.unset = sysctl::ensure(core.config.uplinks.iter().chain(&core.config.fabric).map(String::as_str));
                Event::Tick
            }
            () = tokio::time::sleep_until(deadline.into()) => Event::Tick,
        };
        core.state.apply(event, Instant::now());
        let snapshot = routes.borrow().clone();
        core.step(&snapshot, &advertiser, &datapath);
        if core.state.desired().drain == DrainStage::Detached
            && core.decision.as_ref().is_some_and(|d| d.may_detach)
        {
            break End::Leave;
        }
        if core.state.finished() && core.state.desired().drain == DrainStage::None {
            break End::Restart;
        }
        let now = tokio::time::Instant::now();
        unreported = now < report_at && leaving.is_none();
        if !unreported {
            report_at = now + REPORT;
            let report = core.report(&snapshot);
            if report.ready != announced_ready {
                announced_ready = report.ready;
                signals::say_ready(&report);
            }
            status_in.send_if_modified(|current| {
                let changed = **current != report;
                if changed {
                    *current = Arc::new(report);
                }
                changed
            });
        }
        if let Some(answer) = leaving.take() {
            // Whoever asks for the status after this answer sees a gateway that leaves.
            let _ = answer.send(Ok("the gateway leaves for good".into()));
        }
    };
    // Whoever still has an event to tell, or a command, must not wait for a reader.
    drop((events, commands));
    match end {
        End::Restart => {
            info!("stopping for a restart: routes and programs stay");
            advertiser.restart().await;
            datapath.leave_running();
        }
        End::Leave => {
            info!("leaving for good: routes are withdrawn, programs go");
            let leave = Leave {
                reason: "drained".into(),
                shutdown_wait: core.config.timers.graceful_shutdown,
                withdraw_wait: core.config.timers.drain,
            };
            advertiser.leave(leave).await;
            let (answer, done) = oneshot::channel();
            datapath.ask(Ask::Detach(answer));
            match done.await {
                Ok(Ok(())) => info!("detached"),
                Ok(Err(error)) => error!(%error, "not detached"),
                Err(_) => error!("not detached: the data plane's thread has ended"),
            }
        }
    }
    // Only now: `weir drain --wait` takes the end of the admin socket for the end of all that was attached.
    stop.cancel();
    let _ = tokio::join!(files, admin, metrics);
    info!("gateway ends");
    Ok(())
}

/// This node's locator, from the configuration or from the objects as they are now.
pub fn locate(config: &Config) -> Result<Locator, Error> {
    let routers = source::files::mentioning(&config.objects, "BGPRouter");
    resolve::locate(&config.node, config.locator, &routers).map_err(Error::Locator)
}

fn lost(what: &'static str) -> dataplane::Error {
    dataplane::Error::Load { program: what, reason: "taken twice".into() }
}

/// What tells apart what the datapath thread was last asked to hold.
struct Asked {
    generation: u64,
    synced: bool,
    unload: BTreeSet<VipKey>,
}

/// State and what is decided from it.
struct Core {
    config: Config,
    locator: Locator,
    state: State,
    announce: AnnounceState,
    decision: Option<Decision>,
    forwarding: Forwarding,
    fitness: Fitness,
    asked: Option<Asked>,
    health: watch::Receiver<Health>,
    unset: Vec<sysctl::Unset>,
    route_changes: Arc<std::sync::atomic::AtomicU64>,
    reported: report::Rules,
}

impl Core {
    /// Decides anew and tells those who act.
    fn step(
        &mut self,
        routes: &route::RouteStatus,
        advertiser: &route::Handle<SpeakerConfig>,
        datapath: &Datapath,
    ) {
        self.prove();
        // What changed goes to the data plane at once, which removes nothing by itself; what may be unloaded is decided after.
        let desired = self.state.desired();
        let known = self
            .asked
            .as_ref()
            .is_some_and(|asked| asked.generation == desired.generation && asked.synced == desired.synced);
        if !known {
            self.ask(BTreeSet::new(), datapath);
        }
        let input = route::Input {
            desired: self.state.desired(),
            applied: self.state.applied(),
            settled: routes.settled,
            forwarding: self.forwarding,
            fitness: self.fitness,
        };
        let decision = self.announce.step(input, Instant::now());
        advertiser.follow(decision.plan.clone());
        let current = decision.generation == self.state.desired().generation;
        let unload = if current { &decision.may_unload } else { &BTreeSet::new() };
        if self.asked.as_ref().is_none_or(|asked| asked.unload != *unload) {
            self.ask(unload.clone(), datapath);
        }
        self.decision = Some(decision);
    }

    /// A gateway that has just been started draws traffic from its first whole self-test on.
    fn prove(&mut self) {
        if self.fitness == Fitness::Unproven
            && self.unset.is_empty()
            && self.health.borrow().self_test == SelfTest::Returned
        {
            info!("packets get through: VIPs may be announced");
            self.fitness = Fitness::Proven;
        }
    }

    fn ask(&mut self, unload: BTreeSet<VipKey>, datapath: &Datapath) {
        let desired = self.state.desired();
        self.asked =
            Some(Asked { generation: desired.generation, synced: desired.synced, unload: unload.clone() });
        datapath.hold(Desired { unload, ..desired.clone() });
    }

    fn next_deadline(&self) -> Option<Instant> {
        let step = self.decision.as_ref().and_then(|decision| decision.next_step);
        [self.state.next_deadline(), step].into_iter().flatten().min()
    }

    fn peers(&mut self, routes: &route::RouteStatus) {
        for peer in routes.peers.values() {
            let role = match peer.role {
                route::PeerRole::Upstream => config::PeerRole::Upstream,
                route::PeerRole::Fabric => config::PeerRole::Fabric,
            };
            let established = peer.state == route::PeerState::Established;
            let status = event::PeerStatus {
                name: peer.name.clone(),
                role,
                established,
                synced: established && peer.end_of_rib_sent,
                carries: peer.carries,
            };
            self.state.apply(Event::Peer(status), Instant::now());
        }
    }

    /// Reads the configuration again: peers follow at once; the rest needs a restart, which loses no packet.
    async fn reload(
        &mut self,
        path: &Path,
        advertiser: &route::Handle<SpeakerConfig>,
    ) -> Result<String, String> {
        let new = Config::load(path).map_err(|error| error.to_string())?;
        let later = needs_restart(&new, &self.config);
        advertiser.configure(speaker(&new)).await;
        // Readiness asks for the peers that there are now; what is marked on their routes was settled at the start.
        self.config.bgp = new.bgp;
        if later.is_empty() {
            return Ok("configuration and objects are read again".into());
        }
        let keys = later.join(", ");
        warn!(%keys, "changed, and used only after a restart of the gateway, which loses no packet");
        Ok(format!("peers and objects follow; restart the gateway for {keys}"))
    }

    fn report(&mut self, routes: &route::RouteStatus) -> NodeStatus {
        let health = self.health.borrow_and_update().clone();
        let reasons =
            readiness::reasons(&self.config, self.locator, &self.state, &health, routes, &self.unset);
        let plan = self.announce.plan();
        let mut report =
            report::node(&self.config, &self.state, &health, routes, plan, reasons, &mut self.reported);
        report.work.route_changes = self.route_changes.load(std::sync::atomic::Ordering::Relaxed);
        report
    }
}
