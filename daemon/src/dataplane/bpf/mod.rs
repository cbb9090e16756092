//! The kernel's data plane: programs loaded, pinned, adopted and replaced without losing a packet.
//!
//! A restart finds its maps by the tag of their directory, adopts them and replaces the program in the slot. A build with
//! another layout, or other limits, finds none: it fills a new set while the old program serves from the old one, then flips.

mod capture;
mod events;
mod live;
mod maps;
pub(crate) mod mmap;
pub(crate) mod pins;
mod root;
pub(crate) mod sys;

use std::path::{Path, PathBuf};
use std::time::Duration;

use aya::programs::{ProgramInfo, TestRun as _, TestRunAttrs, TestRunOptions, Xdp};
use aya::{Ebpf, EbpfLoader};
pub use capture::{CaptureFrames, CaptureRing, RawFrame};
pub use events::{DropEvents, RawDrop, wall_clock};
pub use live::{LiveProgram, TraceRun};
pub use maps::{Maps, encode_fragments, encode_key, encode_owner};
pub use pins::{Pins, memory};
pub use root::{Mode, Root, attached_program};
use weir_bpf::abi;

use super::{Dataplane, Error, Limits, chain};

/// An interface and its roles ([`abi::ROLE_UPLINK`] | [`abi::ROLE_FABRIC`]).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Name.
    pub name: String,
    /// Role bits.
    pub role: u32,
}

/// What a gateway loads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    /// Pin path on a BPF file system.
    pub pins: PathBuf,
    /// Interfaces that carry the program.
    pub interfaces: Vec<Interface>,
    /// Sizes of the maps.
    pub limits: Limits,
    /// How XDP runs.
    pub mode: Mode,
    /// The program's constants; `role` is set for each interface.
    pub constants: abi::Config,
    /// What is watched: the program's other constants.
    pub watch: abi::Watch,
}

/// What is attached to one interface.
struct Attachment {
    root: Root,
    object: Ebpf,
}

/// Programs and maps of this gateway.
pub struct Bpf {
    pins: Pins,
    attachments: Vec<Attachment>,
    directory: PathBuf,
    maps: Option<Maps>,
    /// Sets of maps that the programs in the slots use now, when they are not this build's.
    replaced: Vec<PathBuf>,
    active: bool,
    adopted: bool,
    params: Params,
    capture: Option<capture::Capture>,
}

/// One interface as `weir show node` and readiness see it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct InterfaceStatus {
    /// Name.
    pub name: String,
    /// The pinned link is attached to the interface as it is now.
    pub attached: bool,
    /// The program in our slot is the one this daemon loaded.
    pub in_slot: bool,
}

impl Bpf {
    /// Attaches roots, adopts or makes maps, loads the programs. With maps of this layout, or none at all, the programs are
    /// put in their slots at once; else [`Bpf::activate`] does it when the new maps are filled.
    pub fn open(params: &Params) -> Result<Self, Error> {
        let pins = Pins::open(&params.pins)?;
        let lock = pins.lock()?;
        let directory = pins.maps(&params.limits);
        let complete = pins::specs(&params.limits).iter().all(|spec| directory.join(spec.name).exists());
        let found = if complete {
            // Before anything is loaded, since aya would adopt a pin of any layout.
            Some(Maps::open(&directory, params.limits)?)
        } else {
            pins::remove_dir(&directory)?;
            std::fs::create_dir(&directory).map_err(|e| Error::io("create", &directory, e))?;
            None
        };
        let mut attachments = Vec::new();
        for interface in &params.interfaces {
            let root = Root::ensure(&pins, &interface.name, params.mode)?;
            let object = load(&directory, &root, params, interface.role)?;
            attachments.push(Attachment { root, object });
        }
        let maps = match found {
            Some(maps) => maps,
            None => Maps::open_new(&directory, params.limits)?,
        };
        let mut replaced = pins.map_sets()?;
        replaced.retain(|set| *set != directory && attachments.iter().any(|a| serves(set, &a.root)));
        let adopted = complete && attachments.iter().all(|a| serves(&directory, &a.root));
        let active = false;
        let (maps, params, capture) = (Some(maps), params.clone(), None);
        let mut this =
            Self { pins, attachments, directory, maps, replaced, active, adopted, params, capture };
        drop(lock);
        if this.replaced.is_empty() {
            this.activate()?;
        }
        Ok(this)
    }

    /// Maps and programs of an earlier daemon were found serving and taken over.
    pub fn adopted(&self) -> bool {
        self.adopted || !self.replaced.is_empty()
    }

    /// Whether this build's programs are in the slots.
    pub fn active(&self) -> bool {
        self.active
    }

    /// The maps, for a reconciler to own.
    pub fn take_maps(&mut self) -> Option<Maps> {
        self.maps.take()
    }

    /// Puts the programs in their slots, then lets maps of another layout go with their totals kept.
    pub fn activate(&mut self) -> Result<(), Error> {
        if self.active {
            return Ok(());
        }
        let lock = self.pins.lock()?;
        for attachment in &mut self.attachments {
            let program = program(&mut attachment.object, "lb")?;
            let name = format!("lb-{}", pins::pin_name(attachment.root.interface()));
            let (path, fresh) = (self.directory.join(&name), self.directory.join(format!("new-{name}")));
            let _ = std::fs::remove_file(&fresh);
            program.pin(&fresh).map_err(|e| Error::pin("pin", &fresh, e))?;
            std::fs::rename(&fresh, &path).map_err(|e| Error::io("rename the pin", &path, e))?;
            let fd = program.fd().map_err(|e| Error::Load { program: "lb", reason: chain(&e) })?;
            attachment.root.set(abi::SLOT_LB, fd)?;
            // Of a daemon that ended while it captured.
            let _ = std::fs::remove_file(capture::pin(&self.directory, attachment.root.interface()));
        }
        self.active = true;
        drop(lock);
        Ok(())
    }

    /// After [`Bpf::activate`]: adds the totals of replaced maps to the new ones and removes their pins.
    pub fn retire_replaced(&mut self, maps: &mut Maps) -> Result<(), Error> {
        if self.replaced.is_empty() || !self.active {
            return Ok(());
        }
        maps.wait_for_readers()?;
        for set in std::mem::take(&mut self.replaced) {
            match open_set(&set) {
                Ok(old) => maps.carry_from(&old)?,
                Err(error) => tracing::warn!(set = %set.display(), %error, "totals of the old maps are lost"),
            }
            pins::remove_dir(&set)?;
        }
        Ok(())
    }

    /// Link and slot of every interface, read from the kernel.
    pub fn status(&self) -> Vec<InterfaceStatus> {
        let status = |a: &Attachment| InterfaceStatus {
            name: a.root.interface().into(),
            attached: a.root.attached(),
            in_slot: serves(&self.directory, &a.root),
        };
        self.attachments.iter().map(status).collect()
    }

    /// Tells the programs that somebody keeps their next hops fresh.
    pub fn heartbeat(&mut self) -> Result<(), Error> {
        self.attachments.first_mut().map_or(Ok(()), |attachment| beat(&mut attachment.object))
    }

    /// Sends one frame through the live program of an interface, as if it had come in there (`BPF_F_TEST_XDP_LIVE_FRAMES`).
    pub fn send_through(&mut self, interface: &str, frame: &[u8]) -> Result<(), Error> {
        let ifindex = sys::interface_index(interface)
            .map_err(|_| Error::NoInterface { interface: interface.into() })?;
        let Some(attachment) = self.attachments.iter_mut().find(|a| a.root.interface() == interface) else {
            return Err(Error::NoInterface { interface: interface.into() });
        };
        let program = program(&mut attachment.object, "lb")?;
        // struct xdp_md: data, data_end, data_meta, ingress_ifindex, rx_queue_index, egress_ifindex
        let context: [u32; 6] = [0, frame.len() as u32, 0, ifindex, 0, 0];
        let mut options = TestRunOptions::new();
        options.data_in = Some(frame);
        options.ctx_in = Some(bytemuck::bytes_of(&context));
        options.attrs = TestRunAttrs::new().xdp_live_frames(1);
        program.test_run(options).map(drop).map_err(|e| Error::Load { program: "lb", reason: chain(&e) })
    }

    /// Leaves the interfaces and removes all that is pinned; the shared root stays while another owner uses it.
    pub fn detach(self) -> Result<(), Error> {
        let _lock = self.pins.lock()?;
        for attachment in self.attachments {
            attachment.root.leave(abi::SLOT_LB)?;
        }
        for set in &self.replaced {
            pins::remove_dir(set)?;
        }
        pins::remove_dir(&self.directory)
    }
}

/// Runs one frame through a freshly loaded program: for packet cases and `weir trace`.
pub struct TestRig {
    object: Ebpf,
    /// The maps that the program uses.
    pub maps: Maps,
}

/// What a test run answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestOutcome {
    /// XDP action.
    pub action: u32,
    /// The frame as it stands after the run.
    pub frame: Vec<u8>,
    /// Time of one run.
    pub duration: Duration,
}

impl TestRig {
    /// Loads program and maps under a pin path of the caller's, attached to nothing.
    pub fn load(params: &Params) -> Result<Self, Error> {
        let pins = Pins::open(&params.pins)?;
        let directory = pins.maps(&params.limits);
        pins::remove_dir(&directory)?;
        std::fs::create_dir_all(&directory).map_err(|e| Error::io("create", &directory, e))?;
        let role = params.interfaces.first().map_or(params.constants.role, |i| i.role);
        let object = load_object(&directory, None, params, role)?;
        let maps = Maps::open(&directory, params.limits)?;
        Ok(Self { object, maps })
    }

    /// Runs a frame that came in on an interface of this network namespace (0: none given, the kernel takes loopback).
    pub fn run(&mut self, ingress: u32, frame: &[u8]) -> Result<TestOutcome, Error> {
        let program = program(&mut self.object, "lb")?;
        let context: [u32; 6] = [0, frame.len() as u32, 0, ingress, 0, 0];
        let mut out = vec![0; frame.len() + 512];
        let mut options = TestRunOptions::new();
        options.data_in = Some(frame);
        options.data_out = Some(&mut out);
        if ingress != 0 {
            options.ctx_in = Some(bytemuck::bytes_of(&context));
        }
        let result =
            program.test_run(options).map_err(|e| Error::Load { program: "lb", reason: chain(&e) })?;
        out.truncate(result.data_size_out as usize);
        Ok(TestOutcome { action: result.return_value, frame: out, duration: result.duration })
    }

    /// Runs a frame as `weir trace` does: no counter and no state changes.
    pub fn trace(&mut self, ingress: u32, frame: &[u8]) -> Result<TraceRun, Error> {
        let program = program(&mut self.object, "lb")?;
        let fd = program.fd().map_err(|e| Error::Load { program: "lb", reason: chain(&e) })?;
        live::trace(std::os::fd::AsFd::as_fd(fd), ingress, frame)
    }

    /// Sets the heartbeat, as a daemon would.
    pub fn beat(&mut self) -> Result<(), Error> {
        beat(&mut self.object)
    }

    /// What the verifier and the JIT made of the program.
    pub fn info(&mut self) -> Result<ProgramInfo, Error> {
        program(&mut self.object, "lb")?.info().map_err(|e| Error::Load { program: "lb", reason: chain(&e) })
    }

    /// The program, for a caller's own program array.
    pub fn program(&mut self) -> Result<&mut Xdp, Error> {
        program(&mut self.object, "lb")
    }
}

fn program<'a>(object: &'a mut Ebpf, name: &'static str) -> Result<&'a mut Xdp, Error> {
    let missing = Error::Load { program: name, reason: "not in the object".into() };
    let program = object.program_mut(name).ok_or(missing)?;
    program
        .try_into()
        .map_err(|e: aya::programs::ProgramError| Error::Load { program: name, reason: chain(&e) })
}

fn beat(object: &mut Ebpf) -> Result<(), Error> {
    let mut options = TestRunOptions::new();
    let frame = [0; 64];
    options.data_in = Some(&frame);
    program(object, "beat")?
        .test_run(options)
        .map(drop)
        .map_err(|e| Error::Load { program: "beat", reason: chain(&e) })
}

fn load(directory: &Path, root: &Root, params: &Params, role: u32) -> Result<Ebpf, Error> {
    load_object(directory, Some(root.directory()), params, role)
}

fn load_object(directory: &Path, root: Option<&Path>, params: &Params, role: u32) -> Result<Ebpf, Error> {
    load_with(EbpfLoader::new(), weir_bpf::lb_object(), directory, root, params, role)
}

/// Loads a build of the load balancer on the maps of a set; `loader` knows already what only this build has.
fn load_with(
    loader: EbpfLoader<'_>,
    object: &[u8],
    directory: &Path,
    root: Option<&Path>,
    params: &Params,
    role: u32,
) -> Result<Ebpf, Error> {
    let constants = abi::Config { role, ..params.constants };
    // Behind what it borrows, so that it goes first.
    let mut loader = loader;
    // The programs relocate nothing against the kernel's types; reading those takes longer than all the rest.
    loader.btf(None);
    loader.override_global("weir_cfg", bytemuck::bytes_of(&constants), true);
    loader.override_global("weir_watch", bytemuck::bytes_of(&params.watch), true);
    for spec in pins::specs(&params.limits) {
        loader.map_max_entries(spec.name, spec.entries);
        loader.map_pin_path(spec.name, directory.join(spec.name));
    }
    if let Some(root) = root {
        loader.map_pin_path("slots", root.join("slots"));
    }
    let mut object = loader.load(object).map_err(|e| Error::Load { program: "lb", reason: chain(&e) })?;
    for name in ["lb", "beat"] {
        program(&mut object, name)?.load().map_err(|e| Error::Load { program: name, reason: chain(&e) })?;
    }
    Ok(object)
}

/// Whether the program in the slot is one that uses this set of maps: the plain one, or the one that captures.
fn serves(set: &Path, root: &Root) -> bool {
    let plain = set.join(format!("lb-{}", pins::pin_name(root.interface())));
    let ours = [plain, capture::pin(set, root.interface())];
    let mut ids = ours.iter().filter_map(|path| ProgramInfo::from_pin(path).ok()).map(|info| info.id());
    root.program(abi::SLOT_LB).is_some_and(|in_slot| ids.any(|id| id == in_slot))
}

/// Limits that a set of maps was made with, read from the maps.
pub fn limits_of(set: &Path) -> Result<Limits, Error> {
    let entries = |name: &str| {
        let path = set.join(name);
        let map = aya::maps::MapInfo::from_pin(&path).map_err(|e| Error::pin("open", &path, e))?;
        Ok::<_, Error>(map.max_entries())
    };
    Ok(Limits {
        vips: entries("vip_state")?,
        backends: entries("backends")?,
        ring_slots: entries("rings")?.saturating_mul(abi::SLOTS_PER_BLOCK),
        next_hops: entries("nexthops")?,
        fragments: entries("fragments")?,
    })
}

/// Opens a set of maps with the limits it was made with.
pub fn open_set(set: &Path) -> Result<Maps, Error> {
    Maps::open(set, limits_of(set)?)
}

/// The set of maps that serves now, for readers: the one whose program is in a slot, else the newest there is.
pub fn serving_set(pins: &Pins, interfaces: &[String]) -> Result<Option<PathBuf>, Error> {
    let sets = pins.map_sets()?;
    for interface in interfaces {
        if let Ok(root) = Root::open(pins, interface)
            && let Some(set) = sets.iter().find(|set| serves(set, &root))
        {
            return Ok(Some(set.clone()));
        }
    }
    Ok(sets.into_iter().next_back())
}

/// Name of an interface of the calling thread's network namespace, for people.
pub fn interface_name(index: u32) -> Option<String> {
    sys::interface_name(index)
}

/// The kernel's monotonic clock, nanoseconds: the one that `bpf_ktime_get_coarse_ns` reads more coarsely.
pub fn monotonic_ns() -> u64 {
    sys::monotonic_ns()
}

/// A time in the kernel's jiffies, at least one unless it is zero.
pub fn jiffies(time: Duration) -> u32 {
    // 1000 is the highest in use, so that the time is never cut short.
    let hz = u128::from(sys::jiffies_per_second().unwrap_or(1000));
    u32::try_from((time.as_nanos() * hz).div_ceil(1_000_000_000)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    /// Waits until a condition holds, looking every few milliseconds; `false` when the deadline passed.
    fn eventually(deadline: Instant, mut condition: impl FnMut() -> bool) -> bool {
        loop {
            if condition() {
                return true;
            }
            if Instant::now() >= deadline {
                return false;
            }
            std::thread::park_timeout(Duration::from_millis(2));
        }
    }

    /// The kernel's count of jiffies, as root may read it.
    fn now() -> u64 {
        let text = std::fs::read_to_string("/proc/timer_list").unwrap();
        text.lines().find_map(|line| line.strip_prefix("jiffies: ")).unwrap().trim().parse().unwrap()
    }

    #[test]
    fn a_time_in_jiffies_is_what_the_kernel_counts_in_it() {
        assert_eq!(jiffies(Duration::ZERO), 0);
        assert_eq!(jiffies(Duration::from_nanos(1)), 1, "never cut short to none");
        let (start, first) = (Instant::now(), now());
        assert!(eventually(start + Duration::from_secs(20), || now() >= first + 100));
        let (counted, elapsed) = (now() - first, u64::from(jiffies(start.elapsed())));
        // A wrong rate is wrong by more than a busy machine can tear the two readings apart.
        assert!(
            elapsed <= counted * 2 && counted <= elapsed * 2,
            "{counted} counted, {elapsed} by the clock"
        );
    }
}
