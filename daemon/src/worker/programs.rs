//! The worker's programs: in a slot of each fabric interface's shared root, and on tcx links that outlive the daemon.
//!
//! ```text
//! <pins>/worker-v1-<tag>/<map>             maps
//! <pins>/worker-links/deliver-<interface>  tcx link behind the fabric interface's XDP
//! <pins>/worker-links/reply-<interface>    tcx link at an endpoint's host side
//! ```

use std::collections::BTreeMap;
use std::fs;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use aya::programs::links::{FdLink, PinnedLink};
use aya::programs::tc::{SchedClassifierLink, TcAttachOptions};
use aya::programs::{LinkOrder, SchedClassifier, TcAttachType, TestRun as _, TestRunOptions, Xdp};
use aya::util::KernelVersion;
use aya::{Ebpf, EbpfLoader};
use weir_bpf::worker_abi::{self as abi, SLOT_WORKER};

use super::maps::{self, Maps, specs};
use crate::config::WorkerLimits;
use crate::dataplane::bpf::pins::{pin_name, remove_dir};
use crate::dataplane::bpf::sys;
use crate::dataplane::bpf::{Mode, Pins, Root};
use crate::dataplane::{Error, chain};

/// What a worker loads.
#[derive(Clone, Debug)]
pub struct Load {
    /// Pin path on a BPF file system.
    pub pins: PathBuf,
    /// Fabric interfaces.
    pub fabric: Vec<String>,
    /// Sizes of the maps.
    pub limits: WorkerLimits,
    /// How XDP runs.
    pub mode: Mode,
    /// The programs' constants.
    pub constants: abi::Config,
}

/// Programs and links of this worker.
pub struct Programs {
    pins: Pins,
    path: PathBuf,
    directory: PathBuf,
    fabric: Vec<(Root, Ebpf)>,
    /// Endpoints' interfaces that carry the reply program, with the index each was attached at.
    guarded: BTreeMap<String, u32>,
    attached: bool,
}

fn load_error(program: &'static str, e: &dyn std::error::Error) -> Error {
    Error::Load { program, reason: chain(e) }
}

/// Says whether the kernel has what the worker needs: tcx links came with 6.6.
///
/// # Errors
/// Names the version and the remedy.
pub fn supported() -> Result<(), Error> {
    if KernelVersion::current().is_ok_and(|now| now >= KernelVersion::new(6, 6, 0)) {
        return Ok(());
    }
    let now = KernelVersion::current().map_or_else(|_| "unknown".into(), |v| format!("{v:?}"));
    let reason = format!(
        "this kernel ({now}) has no tcx links, which came with Linux 6.6; use a newer kernel, or deliver by the kernel's own \
         End.DT46 in a VRF"
    );
    Err(Error::Load { program: "deliver", reason })
}

impl Programs {
    /// Adopts or makes the maps and loads the programs; nothing is attached before [`Programs::attach`]. Programs of an
    /// earlier worker go on meanwhile.
    ///
    /// # Errors
    /// What could not be loaded.
    pub fn load(load: &Load) -> Result<(Self, Maps), Error> {
        supported()?;
        let pins = Pins::open(&load.pins)?;
        let _lock = pins.lock()?;
        let directory = maps::directory(&load.pins, load.limits);
        let complete = specs(load.limits).iter().all(|spec| directory.join(spec.name).exists());
        if complete {
            // Before anything is loaded, since aya would adopt a pin of any layout.
            Maps::open(&directory, load.limits)?;
        } else {
            remove_dir(&directory)?;
            fs::create_dir(&directory).map_err(|e| Error::io("create", &directory, e))?;
        }
        let links = load.pins.join("worker-links");
        fs::create_dir_all(&links).map_err(|e| Error::io("create", &links, e))?;
        let mut fabric = Vec::new();
        for interface in &load.fabric {
            let root = Root::ensure(&pins, interface, load.mode)?;
            let object = object(&directory, Some(root.directory()), load.limits, load.constants)?;
            fabric.push((root, object));
        }
        let maps = Maps::open(&directory, load.limits)?;
        let path = load.pins.clone();
        Ok((Self { pins, path, directory, fabric, guarded: BTreeMap::new(), attached: false }, maps))
    }

    fn link(&self, name: &str, interface: &str) -> PathBuf {
        self.path.join("worker-links").join(format!("{name}-{}", pin_name(interface)))
    }

    /// Delivery first, then the decapsulation that relies on it; the maps hold all that is wanted by now.
    ///
    /// # Errors
    /// What could not be attached.
    pub fn attach(&mut self) -> Result<(), Error> {
        if self.attached {
            return Ok(());
        }
        let _lock = self.pins.lock()?;
        for i in 0..self.fabric.len() {
            let interface = self.fabric[i].0.interface().to_owned();
            let path = self.link("deliver", &interface);
            follow(classifier(&mut self.fabric[i].1, "deliver")?, &interface, &path)?;
        }
        for (root, object) in &mut self.fabric {
            let program = xdp(object)?;
            let fd = program.fd().map_err(|e| load_error("decap", &e))?;
            root.set(SLOT_WORKER, fd)?;
        }
        for set in maps::sets(&self.path)? {
            if set != self.directory {
                tracing::info!(set = %set.display(), "maps of another layout or size let go; their counters end here");
                remove_dir(&set)?;
            }
        }
        self.attached = true;
        Ok(())
    }

    /// Puts the reply program on the endpoints' interfaces, each at its index, and takes it from all others.
    ///
    /// # Errors
    /// What could not be attached.
    pub fn guard(&mut self, wanted: &BTreeMap<String, u32>) -> Result<(), Error> {
        let fresh: Vec<_> =
            wanted.iter().filter(|(name, index)| self.guarded.get(*name) != Some(index)).collect();
        for (interface, index) in fresh {
            let path = self.link("reply", interface);
            let Some((_, object)) = self.fabric.first_mut() else { continue };
            follow(classifier(object, "from_endpoint")?, interface, &path)?;
            self.guarded.insert(interface.clone(), *index);
        }
        Ok(())
    }

    /// Takes the reply program from interfaces that are no endpoint's any more.
    ///
    /// # Errors
    /// A pin that cannot be removed.
    pub fn release(&mut self, wanted: &BTreeMap<String, u32>) -> Result<(), Error> {
        self.guarded.retain(|name, _| wanted.contains_key(name));
        let keep: Vec<PathBuf> = wanted.keys().map(|name| self.link("reply", name)).collect();
        unlink(&self.path.join("worker-links"), |path| {
            path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("reply-"))
                && !keep.contains(path)
        })
    }

    /// Whether each fabric interface has root, slot and delivery as this daemon attached them.
    pub fn holds(&mut self) -> Vec<(String, bool)> {
        let links: Vec<PathBuf> =
            self.fabric.iter().map(|(root, _)| self.link("deliver", root.interface())).collect();
        let mut all = Vec::new();
        for ((root, object), link) in self.fabric.iter_mut().zip(links) {
            let own = xdp(object).ok().and_then(|p| p.info().ok()).map(|info| info.id());
            let index = sys::interface_index(root.interface()).unwrap_or(0);
            let delivers = attached_at(&link) == Some(index) && index != 0;
            let fine = root.attached() && own.is_some() && root.program(SLOT_WORKER) == own && delivers;
            all.push((root.interface().to_owned(), fine));
        }
        all
    }

    /// Leaves all interfaces and removes all that is pinned; the shared root stays while another owner uses it.
    ///
    /// # Errors
    /// What could not be removed.
    pub fn detach(self) -> Result<(), Error> {
        let _lock = self.pins.lock()?;
        for (root, _) in self.fabric {
            root.leave(SLOT_WORKER)?;
        }
        leave(&self.path)
    }
}

/// Removes links and maps below a pin path; the slots are left already.
fn leave(pins: &Path) -> Result<(), Error> {
    remove_dir(&pins.join("worker-links"))?;
    for set in maps::sets(pins)? {
        remove_dir(&set)?;
    }
    Ok(())
}

fn unlink(directory: &Path, which: impl Fn(&PathBuf) -> bool) -> Result<(), Error> {
    let entries = fs::read_dir(directory).map_err(|e| Error::io("list", directory, e))?;
    for entry in entries {
        let path = entry.map_err(|e| Error::io("list", directory, e))?.path();
        if which(&path) {
            fs::remove_file(&path).map_err(|e| Error::io("unpin", &path, e))?;
        }
    }
    Ok(())
}

/// Interface that a pinned link is attached to; 0 once that is gone.
fn attached_at(link: &Path) -> Option<u32> {
    let fd = sys::open_pin(link).ok()?;
    sys::tcx_link(fd.as_fd()).ok().map(|(index, _)| index)
}

/// Makes an interface's pinned link run this program: an old link is flipped without a gap, a dead one made anew.
fn follow(program: &mut SchedClassifier, interface: &str, path: &Path) -> Result<(), Error> {
    let index =
        sys::interface_index(interface).map_err(|_| Error::NoInterface { interface: interface.into() })?;
    if path.exists() {
        if attached_at(path) == Some(index) {
            let link = PinnedLink::from_pin(path).map_err(|e| Error::pin("open", path, e))?;
            let link: SchedClassifierLink = FdLink::from(link)
                .try_into()
                .map_err(|e: aya::programs::links::LinkError| Error::pin("open", path, e))?;
            let id = program.attach_to_link(link).map_err(|e| Error::pin("flip the program of", path, e))?;
            // The pin keeps it; the descriptor may go.
            return program.take_link(id).map(drop).map_err(|e| Error::pin("flip the program of", path, e));
        }
        fs::remove_file(path).map_err(|e| Error::io("unpin the dead link", path, e))?;
    }
    let options = TcAttachOptions::TcxOrder(LinkOrder::first());
    let attached = program.attach_with_options(interface, TcAttachType::Ingress, options);
    let id = attached.map_err(|e| Error::pin("attach tcx for", path, e))?;
    let link = program.take_link(id).map_err(|e| Error::pin("attach tcx for", path, e))?;
    let link: FdLink = link
        .try_into()
        .map_err(|e: aya::programs::links::LinkError| Error::pin("attach tcx for", path, e))?;
    link.pin(path).map_err(|e| Error::pin("pin", path, e))?;
    Ok(())
}

fn xdp(object: &mut Ebpf) -> Result<&mut Xdp, Error> {
    let missing = Error::Load { program: "decap", reason: "not in the object".into() };
    let program = object.program_mut("decap").ok_or(missing)?;
    program.try_into().map_err(|e: aya::programs::ProgramError| load_error("decap", &e))
}

fn classifier<'a>(object: &'a mut Ebpf, name: &'static str) -> Result<&'a mut SchedClassifier, Error> {
    let missing = Error::Load { program: name, reason: "not in the object".into() };
    let program = object.program_mut(name).ok_or(missing)?;
    program.try_into().map_err(|e: aya::programs::ProgramError| load_error(name, &e))
}

fn object(
    directory: &Path,
    root: Option<&Path>,
    limits: WorkerLimits,
    constants: abi::Config,
) -> Result<Ebpf, Error> {
    let mut loader = EbpfLoader::new();
    // The programs relocate nothing against the kernel's types; reading those takes longer than all the rest.
    loader.btf(None);
    loader.override_global("worker_cfg", bytemuck::bytes_of(&constants), true);
    for spec in specs(limits) {
        loader.map_max_entries(spec.name, spec.entries);
        loader.map_pin_path(spec.name, directory.join(spec.name));
    }
    if let Some(root) = root {
        loader.map_pin_path("slots", root.join("slots"));
    }
    let mut object = loader.load(weir_bpf::worker_object()).map_err(|e| load_error("decap", &e))?;
    xdp(&mut object)?.load().map_err(|e| load_error("decap", &e))?;
    for name in ["deliver", "from_endpoint"] {
        classifier(&mut object, name)?.load().map_err(|e| load_error(name, &e))?;
    }
    Ok(object)
}

/// Runs single frames through freshly loaded programs, attached to nothing: for packet cases.
pub struct TestRig {
    object: Ebpf,
    /// The maps that the programs use.
    pub maps: Maps,
}

impl TestRig {
    /// Loads programs and maps under a pin path of the caller's.
    ///
    /// # Errors
    /// What could not be loaded.
    pub fn load(pins: &Path, limits: WorkerLimits, constants: abi::Config) -> Result<Self, Error> {
        Pins::open(pins)?;
        let directory = maps::directory(pins, limits);
        remove_dir(&directory)?;
        fs::create_dir_all(&directory).map_err(|e| Error::io("create", &directory, e))?;
        let object = object(&directory, None, limits, constants)?;
        let maps = Maps::open(&directory, limits)?;
        Ok(Self { object, maps })
    }

    /// Runs a frame through `decap`: XDP action and the frame as it stands after.
    ///
    /// # Errors
    /// When the kernel does not run it.
    pub fn decap(&mut self, frame: &[u8]) -> Result<(u32, Vec<u8>), Error> {
        let mut out = vec![0; frame.len() + 512];
        let mut options = TestRunOptions::new();
        options.data_in = Some(frame);
        options.data_out = Some(&mut out);
        let result = xdp(&mut self.object)?.test_run(options).map_err(|e| load_error("decap", &e))?;
        out.truncate(result.data_size_out as usize);
        Ok((result.return_value, out))
    }

    /// Runs a frame through `from_endpoint` as if it had come from an interface of this network namespace: tc action and the
    /// frame as it stands after.
    ///
    /// # Errors
    /// When the kernel does not run it.
    pub fn reply(&mut self, ifindex: u32, frame: &[u8]) -> Result<(u32, Vec<u8>), Error> {
        // struct __sk_buff as far as `ifindex`, which stands after ten words; the kernel wants the rest zero.
        let mut context = [0_u32; 48];
        context[10] = ifindex;
        let mut out = vec![0; frame.len() + 512];
        let mut options = TestRunOptions::new();
        options.data_in = Some(frame);
        options.data_out = Some(&mut out);
        options.ctx_in = Some(bytemuck::bytes_of(&context));
        let program = classifier(&mut self.object, "from_endpoint")?;
        let result = program.test_run(options).map_err(|e| load_error("from_endpoint", &e))?;
        out.truncate(result.data_size_out as usize);
        Ok((result.return_value, out))
    }
}
