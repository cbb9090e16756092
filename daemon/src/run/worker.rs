//! The worker's main loop: objects in, maps, programs and placed VIPs out.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};
use weir_bpf::worker_abi::{self as abi, Params, Prefix, Reply, WORKER_ENCAP_LEN};

use super::signals::{Signal, Signals};
use super::{Error, sysctl};
use crate::config::worker::ReplyPath;
use crate::config::{WorkerConfig, XdpMode};
use crate::dataplane;
use crate::dataplane::bpf::Mode;
use crate::event::{Event, ObjectSet};
use crate::source::file::FileSource;
use crate::status::{BUILD, VERSION};
use crate::worker::apply::{Tables as _, apply};
use crate::worker::image::{Image, target};
use crate::worker::maps::Maps;
use crate::worker::place;
use crate::worker::plan::{Key, Refusal, Site, Wanted, plan};
use crate::worker::programs::{Load, Programs};
use crate::worker::status::{Bound, WorkerStatus};

/// How often interfaces and namespaces are looked at again.
const LOOK: Duration = Duration::from_millis(500);
/// How long a VIP that was seen in effect is taken to be so.
const CONFIRM: Duration = Duration::from_secs(5);

/// Runs a worker until it is told to stop; what is pinned goes on without it.
///
/// # Errors
/// What could not be set up.
pub fn worker(config: &Path) -> Result<(), Error> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(run(config.into()))
}

/// Takes everything away that a worker has attached, pinned and placed.
///
/// # Errors
/// What could not be removed.
pub fn detach(config: &Path) -> Result<(), Error> {
    let config = WorkerConfig::load(config)?;
    let (programs, maps) = Programs::load(&load(&config))?;
    for (binding, facts) in maps.read_back()?.bindings.values() {
        if facts.placed != 0 {
            let vip = crate::worker::unmapped(binding.vip);
            if let Err(error) = place::remove(Path::new(&facts.netns), vip, facts.placed) {
                warn!(%error, "VIP not removed");
            }
        }
    }
    programs.detach()?;
    let _ = std::fs::remove_file(&config.status);
    Ok(())
}

fn half(octets: [u8; 16]) -> u64 {
    u64::from_ne_bytes(std::array::from_fn(|i| octets[i]))
}

fn load(config: &WorkerConfig) -> Load {
    Load {
        pins: config.pins.clone(),
        fabric: config.fabric.clone(),
        limits: config.limits,
        mode: match config.xdp_mode {
            XdpMode::Native => Mode::Native,
            XdpMode::Generic => Mode::Generic,
        },
        constants: abi::Config {
            source: config.locator.source().octets(),
            locator_hi: half(config.locator.prefix().network().octets()),
            build: u64::from(BUILD),
        },
    }
}

async fn params(config: &WorkerConfig) -> Params {
    let mut fabric_mtu = u32::MAX;
    for interface in &config.fabric {
        fabric_mtu = fabric_mtu.min(place::mtu(interface).await.unwrap_or(u32::MAX));
    }
    // An interface that is not there has no MTU; attaching says so.
    let fabric_mtu = config.path_mtu.unwrap_or(if fabric_mtu == u32::MAX { 1500 } else { fabric_mtu });
    let mut gateways = [Prefix::NONE; abi::GATEWAYS];
    for (slot, net) in gateways.iter_mut().zip(&config.gateways) {
        *slot = Prefix { hi: half(net.network().octets()), mask: half(net.netmask().octets()) };
    }
    let (reply, reply_sid) = match config.reply {
        ReplyPath::Direct => (Reply::Direct, [0; 16]),
        ReplyPath::Edge(sid) => (Reply::Edge, sid.octets()),
    };
    let encapsulated = fabric_mtu - WORKER_ENCAP_LEN;
    Params {
        gateways,
        reply_sid,
        reply: reply as u32,
        fabric_ifindex: config.fabric.first().and_then(|i| place::ifindex(i)).unwrap_or(0),
        fabric_mtu,
        to_pod_max: if reply == Reply::Edge { encapsulated } else { fabric_mtu },
        from_pod_max: encapsulated,
        icmp_rate: config.icmp_rate,
    }
}

async fn run(path: PathBuf) -> Result<(), Error> {
    let config = WorkerConfig::load(&path)?;
    info!(version = VERSION, node = %config.node, region = %config.region, "worker starts");
    let mut signals = Signals::listen()?;
    let unset = sysctl::ensure(config.fabric.iter().map(String::as_str));
    for setting in &unset {
        error!(interface = %setting.interface, reason = %setting.reason, "forwarding cannot be enabled");
    }
    let (programs, maps) = Programs::load(&load(&config))?;
    let held = maps.read_back()?;
    let mut core = Core {
        objects: ObjectSet::default(),
        status: WorkerStatus { node: config.node.clone(), ..WorkerStatus::default() },
        synced: false,
        told: None,
        confirmed: BTreeMap::new(),
        held,
        programs,
        maps,
        config,
    };
    core.maps.put_params(&params(&core.config).await)?;

    let (events_in, mut events) = mpsc::channel(64);
    let source = FileSource::new(&core.config.objects, core.config.settle, core.config.rescan);
    let rescan = source.rescan_handle();
    let stop = CancellationToken::new();
    let files = tokio::spawn(source.run(events_in, stop.clone()));
    sd_notify::notify(false, &[sd_notify::NotifyState::Ready, sd_notify::NotifyState::Status("starting")])
        .ok();
    let mut look = tokio::time::interval(LOOK);
    look.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            event = events.recv() => match event {
                Some(Event::Objects(objects)) => core.objects = objects,
                Some(Event::Source(status)) => {
                    core.synced |= status.synced;
                    core.status.problems = status.problems;
                }
                Some(_) => continue,
                None => break,
            },
            signal = signals.next() => match signal {
                Signal::Reload => {
                    core.reload(&path);
                    rescan.ask();
                }
                Signal::Terminate => break,
            },
            _ = look.tick() => {}
        }
        let params = params(&core.config).await;
        // Entering namespaces and waiting for readers blocks.
        tokio::task::block_in_place(|| core.step(&params));
    }
    info!("worker ends: what is pinned goes on");
    stop.cancel();
    let _ = files.await;
    Ok(())
}

struct Core {
    config: WorkerConfig,
    objects: ObjectSet,
    synced: bool,
    programs: Programs,
    maps: Maps,
    /// What the maps hold.
    held: Image,
    status: WorkerStatus,
    told: Option<WorkerStatus>,
    /// Namespace and time in which each VIP was last seen in effect.
    confirmed: BTreeMap<(String, IpAddr), ((u64, u64), Instant)>,
}

impl Core {
    /// Takes over what may change while it runs.
    fn reload(&mut self, path: &Path) {
        match WorkerConfig::load(path) {
            Ok(new) => {
                let waits = WorkerConfig {
                    gateways: self.config.gateways.clone(),
                    reply: self.config.reply,
                    path_mtu: self.config.path_mtu,
                    translate: self.config.translate,
                    icmp_rate: self.config.icmp_rate,
                    ..new.clone()
                } != self.config;
                if waits {
                    warn!(
                        "keys other than gateways, replyPath, replySID, pathMTU, translate and icmpRate wait for a restart"
                    );
                }
                self.config.gateways = new.gateways;
                self.config.reply = new.reply;
                self.config.path_mtu = new.path_mtu;
                self.config.translate = new.translate;
                self.config.icmp_rate = new.icmp_rate;
            }
            Err(error) => error!(%error, "configuration not read again"),
        }
    }

    /// Makes this node what the objects say, and tells how far that went.
    fn step(&mut self, params: &Params) {
        if self.synced {
            self.follow(params);
        } else {
            self.status.ready = false;
            self.status.reasons = vec!["objects are not read yet, or one has never been good".into()];
        }
        if self.told.as_ref() != Some(&self.status) {
            if let Err(error) = self.status.write(&self.config.status) {
                warn!(%error, path = %self.config.status.display(), "status not written");
            }
            if self.told.as_ref().map(|t| t.ready) != Some(self.status.ready) {
                info!(ready = self.status.ready, reasons = ?self.status.reasons, "worker");
                let text = if self.status.ready { "ready" } else { "not ready; see weir worker show" };
                sd_notify::notify(false, &[sd_notify::NotifyState::Status(text)]).ok();
            }
            self.told = Some(self.status.clone());
        }
    }

    fn follow(&mut self, params: &Params) {
        let site = Site {
            node: self.config.node.clone(),
            locator: self.config.locator,
            translate: self.config.translate,
        };
        let wanted = plan(&self.objects, &site);
        let mut bound: BTreeMap<String, Bound> = BTreeMap::new();
        for (name, refusal) in &wanted.refused {
            bound.insert(name.clone(), not(refusal));
        }
        let failed = self.carry_out(&wanted, params, &mut bound);
        let mut reasons: Vec<String> = failed.into_iter().collect();
        for (interface, fine) in self.programs.holds() {
            if !fine {
                reasons.push(format!(
                    "{interface}: the worker's programs are not what runs there; restart the worker"
                ));
            }
        }
        self.status.bindings = bound;
        self.status.ready = reasons.is_empty();
        self.status.reasons = reasons;
    }

    fn carry_out(
        &mut self,
        wanted: &Wanted,
        params: &Params,
        bound: &mut BTreeMap<String, Bound>,
    ) -> Option<String> {
        match self.try_carry_out(wanted, params, bound) {
            Ok(()) => None,
            Err(error) => {
                error!(%error, "not carried out; tried again");
                match self.maps.read_back() {
                    Ok(held) => self.held = held,
                    Err(error) => error!(%error, "maps not read back"),
                }
                Some(error.to_string())
            }
        }
    }

    fn try_carry_out(
        &mut self,
        wanted: &Wanted,
        params: &Params,
        bound: &mut BTreeMap<String, Bound>,
    ) -> Result<(), dataplane::Error> {
        self.maps.put_params(params)?;
        let mut wanted = wanted.clone();
        let mut placed: BTreeMap<Key, (String, u8)> = BTreeMap::new();
        let mut failed: BTreeMap<Key, Refusal> = BTreeMap::new();
        for (key, delivery) in &wanted.deliveries {
            let Some(path) = &delivery.namespace else { continue };
            match self.place(path, key.vip) {
                Ok(bits) => drop(placed.insert(*key, (path.to_string(), bits))),
                Err(error) => drop(failed.insert(*key, Refusal::new("NotPlaced", error.to_string()))),
            }
        }
        let still: BTreeSet<(&str, IpAddr)> =
            wanted.deliveries.iter().filter_map(|(k, d)| Some((d.namespace.as_deref()?, k.vip))).collect();
        self.confirmed.retain(|(path, vip), _| still.contains(&(path.as_str(), *vip)));
        let mut present = BTreeMap::new();
        for delivery in wanted.deliveries.values() {
            if let Some(index) = place::ifindex(&delivery.interface) {
                present.insert(delivery.interface.to_string(), index);
            }
        }
        let all = wanted.deliveries.clone();
        wanted.deliveries.retain(|key, _| !failed.contains_key(key));
        let (mut image, refused) = target(&wanted, &present, &self.held, self.config.limits);
        failed.extend(refused);
        let keys: Vec<(Key, u32)> = image.keys().collect();
        for (key, index) in keys {
            if let Some((path, bits)) = placed.get(&key)
                && let Some((_, facts)) = image.bindings.get_mut(&index)
            {
                facts.placed = if facts.netns == *path { facts.placed | bits } else { *bits };
                facts.netns.clone_from(path);
            }
        }
        let interfaces = image.interfaces();
        let stage = image.without_new(&self.held);
        self.programs.release(&interfaces)?;
        self.move_to(stage)?;
        self.programs.guard(&interfaces)?;
        self.move_to(image)?;
        self.programs.attach()?;
        for (key, delivery) in &all {
            let state = match failed.get(key) {
                Some(refusal) => not(refusal),
                None if !present.contains_key(&*delivery.interface) => {
                    let message =
                        format!("{} is not on this node; packets for it are dropped", delivery.interface);
                    not(&Refusal::new("InterfaceMissing", message))
                }
                None => {
                    let how = match (&delivery.namespace, delivery.translate) {
                        (Some(path), _) => format!("{} is in effect in {path}", key.vip),
                        (None, true) => format!("{} is exchanged with {}", key.vip, delivery.backend),
                        (None, false) => format!("{} is the endpoint's own to hold", key.vip),
                    };
                    Bound { bound: true, reason: "Bound".into(), message: how }
                }
            };
            for name in &delivery.bindings {
                bound.insert(name.clone(), state.clone());
            }
        }
        Ok(())
    }

    /// Places a VIP, or has it that it was in effect a short while ago in the same namespace.
    fn place(&mut self, path: &str, vip: IpAddr) -> Result<u8, place::Error> {
        let key = (path.to_owned(), vip);
        let namespace = place::namespace_id(Path::new(path))?;
        if let Some((known, at)) = self.confirmed.get(&key)
            && *known == namespace
            && at.elapsed() < CONFIRM
        {
            return Ok(0);
        }
        self.confirmed.remove(&key);
        let bits = place::place(Path::new(path), vip)?;
        self.confirmed.insert(key, (namespace, Instant::now()));
        Ok(bits)
    }

    /// Makes the maps hold an image, and takes away the VIPs that were placed for what goes.
    fn move_to(&mut self, image: Image) -> Result<(), dataplane::Error> {
        if image == self.held {
            return Ok(());
        }
        let stays = |netns: &str, vip: IpAddr| {
            image.bindings.values().any(|(b, f)| f.netns == netns && crate::worker::unmapped(b.vip) == vip)
        };
        let gone: Vec<(String, IpAddr, u8)> = self
            .held
            .bindings
            .values()
            .map(|(b, f)| (f.netns.clone(), crate::worker::unmapped(b.vip), f.placed))
            .filter(|(netns, vip, placed)| *placed != 0 && !stays(netns, *vip))
            .collect();
        apply(&mut self.maps, &self.held, &image)?;
        self.held = image;
        for (netns, vip, placed) in gone {
            if let Err(error) = place::remove(Path::new(&netns), vip, placed) {
                warn!(%error, "VIP not removed");
            }
        }
        Ok(())
    }
}

fn not(refusal: &Refusal) -> Bound {
    Bound { bound: false, reason: refusal.reason.clone(), message: refusal.message.clone() }
}
