//! The shared root of an interface: attached once by whoever comes first, kept across restarts, removed by whoever leaves last.

use std::fs;
use std::os::fd::AsFd as _;
use std::path::PathBuf;

use aya::EbpfLoader;
use aya::maps::{Map, MapData, ProgramArray};
use aya::programs::links::FdLink;
use aya::programs::{ProgramFd, ProgramInfo, Xdp, XdpMode};
use weir_bpf::abi::ROOT_SLOTS;

use super::pins::{Pins, slots_spec};
use super::sys;
use crate::dataplane::{Error, chain};

/// How the kernel runs XDP on an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// In the driver.
    Native,
    /// After the driver made an skb: slow, and only when asked for.
    Generic,
}

/// The root of one interface.
pub struct Root {
    interface: String,
    directory: PathBuf,
    slots: ProgramArray<MapData>,
    /// The same array, for reading ids.
    array: MapData,
}

impl Root {
    /// Adopts the root that is attached, or attaches one. The caller holds the lock of the pins.
    pub fn ensure(pins: &Pins, interface: &str, mode: Mode) -> Result<Self, Error> {
        let ifindex = sys::interface_index(interface)
            .map_err(|_| Error::NoInterface { interface: interface.into() })?;
        let directory = pins.root(interface);
        fs::create_dir_all(&directory).map_err(|e| Error::io("create", &directory, e))?;
        let link = directory.join("link");
        if link.exists() {
            let fd = sys::open_pin(&link).map_err(|e| Error::io("open", &link, e))?;
            let (attached, _) = sys::xdp_link(fd.as_fd()).map_err(|e| Error::io("read", &link, e))?;
            if attached == ifindex {
                return Self::open(pins, interface);
            }
            // The interface was made anew: its old link is dead, but owners of slots may live on in the array.
            fs::remove_file(&link).map_err(|e| Error::io("unpin the dead link", &link, e))?;
        }
        Self::attach(pins, interface, ifindex, mode)?;
        Self::open(pins, interface)
    }

    /// Opens the slots of a root that is there.
    pub fn open(pins: &Pins, interface: &str) -> Result<Self, Error> {
        let directory = pins.root(interface);
        let map = slots_spec().open(&directory)?;
        let array = slots_spec().open(&directory)?;
        let map = Map::from_map_data(map).map_err(|e| Error::map("open", "slots", e))?;
        let slots = ProgramArray::try_from(map).map_err(|e| Error::map("open", "slots", e))?;
        Ok(Self { interface: interface.into(), directory, slots, array })
    }

    fn attach(pins: &Pins, interface: &str, ifindex: u32, mode: Mode) -> Result<(), Error> {
        let directory = pins.root(interface);
        let load = |e: &dyn std::error::Error| Error::Load { program: "root", reason: chain(e) };
        let slots = directory.join("slots");
        let mut object = EbpfLoader::new()
            .btf(None)
            .map_pin_path("slots", slots.as_path())
            .load(weir_bpf::root_object())
            .map_err(|e| load(&e))?;
        let missing = Error::Load { program: "root", reason: "not in the object".into() };
        let program: &mut Xdp =
            object.program_mut("root").ok_or(missing)?.try_into().map_err(|e| load(&e))?;
        program.load().map_err(|e| load(&e))?;
        let flag = match mode {
            Mode::Native => XdpMode::Driver,
            Mode::Generic => XdpMode::Skb,
        };
        let id = match program.attach_to_if_index(ifindex, flag) {
            Ok(id) => id,
            Err(error) => return Err(refusal(interface, ifindex, mode, &error)),
        };
        let link = program.take_link(id).map_err(|e| load(&e))?;
        let link: FdLink = link.try_into().map_err(|_| Error::NoNativeXdp {
            interface: interface.into(),
            reason: "the kernel gave no link that can be pinned".into(),
        })?;
        let path = directory.join("program");
        let _ = fs::remove_file(&path);
        program.pin(&path).map_err(|e| Error::pin("pin", &path, e))?;
        let path = directory.join("link");
        link.pin(&path).map_err(|e| Error::pin("pin", &path, e))?;
        Ok(())
    }

    /// Interface.
    pub fn interface(&self) -> &str {
        &self.interface
    }

    /// Directory of the root's pins.
    pub fn directory(&self) -> &std::path::Path {
        &self.directory
    }

    /// Whether the link is attached to the interface as it is now.
    pub fn attached(&self) -> bool {
        let Ok(ifindex) = sys::interface_index(&self.interface) else { return false };
        let Ok(link) = sys::open_pin(&self.directory.join("link")) else { return false };
        sys::xdp_link(link.as_fd()).is_ok_and(|(attached, _)| attached == ifindex)
    }

    /// Id of the program in a slot.
    pub fn program(&self, slot: u32) -> Option<u32> {
        sys::program_in_slot(self.array.fd().as_fd(), slot).ok().flatten()
    }

    /// Puts a program into a slot: the next packet runs it.
    pub fn set(&mut self, slot: u32, program: &ProgramFd) -> Result<(), Error> {
        self.slots.set(slot, program, 0).map_err(|e| Error::map("write a slot of", "slots", e))
    }

    /// Empties a slot, and removes the root when it was the last one. The caller holds the lock of the pins.
    pub fn leave(mut self, slot: u32) -> Result<(), Error> {
        if self.program(slot).is_some() {
            self.slots.clear_index(&slot).map_err(|e| Error::map("empty a slot of", "slots", e))?;
        }
        if (0..ROOT_SLOTS).any(|s| self.program(s).is_some()) {
            return Ok(());
        }
        // The link goes first: without its array a root that still runs would find its slots emptied.
        for name in ["link", "program", "slots"] {
            let path = self.directory.join(name);
            if path.exists() {
                fs::remove_file(&path).map_err(|e| Error::io("unpin", &path, e))?;
            }
        }
        fs::remove_dir(&self.directory).map_err(|e| Error::io("remove", &self.directory, e))
    }
}

/// Why the kernel would not attach: another program, or a driver that cannot.
fn refusal(interface: &str, ifindex: u32, mode: Mode, error: &aya::programs::ProgramError) -> Error {
    let reason = chain(error);
    let occupied = reason.contains("os error 16") || reason.contains("os error 17");
    match attached_program(ifindex) {
        Some(id) if occupied => {
            let name = aya::programs::loaded_programs()
                .filter_map(Result::ok)
                .find(|p: &ProgramInfo| p.id() == id)
                .and_then(|p| p.name_as_str().map(ToOwned::to_owned))
                .unwrap_or_default();
            Error::ForeignProgram { interface: interface.into(), program: format!("\"{name}\" (id {id})") }
        }
        _ if mode == Mode::Native => Error::NoNativeXdp { interface: interface.into(), reason },
        _ => Error::Load { program: "root", reason },
    }
}

/// Id of the XDP program on an interface, as netlink tells it.
pub fn attached_program(ifindex: u32) -> Option<u32> {
    // A thread of its own: callers may or may not be inside a runtime.
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build().ok()?;
        runtime.block_on(async {
            use futures_util::TryStreamExt as _;
            use netlink_packet_route::link::{LinkAttribute, LinkXdp};
            let (connection, handle, _) = rtnetlink::new_connection().ok()?;
            let task = tokio::spawn(connection);
            let link = handle.link().get().match_index(ifindex).execute().try_next().await.ok().flatten()?;
            task.abort();
            link.attributes.into_iter().find_map(|attribute| match attribute {
                LinkAttribute::Xdp(parts) => parts.into_iter().find_map(|part| match part {
                    LinkXdp::ProgId(id) => Some(id),
                    _ => None,
                }),
                _ => None,
            })
        })
    })
    .join()
    .ok()
    .flatten()
}
