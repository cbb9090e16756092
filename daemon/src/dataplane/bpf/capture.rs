//! The second build of the program, which captures: put in the slots for a while, on the same maps, and taken out again.
//!
//! A slot's update is lossless, and the plain program has no code for it: capturing costs nothing while nobody does.

use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use aya::maps::{Map, MapData, PerCpuArray, RingBuf};
use aya::{Ebpf, EbpfLoader};
use tokio::io::unix::AsyncFd;
use weir_bpf::abi::{self, CaptureCpu, CaptureFilter, CaptureHead};

use super::events::{asynchronous, wall_clock};
use super::{Attachment, Bpf, Params, Root, load_with, pins, program, sys};
use crate::dataplane::{Error, chain};
use crate::model::mapped;

/// Bytes of the ring buffer of a capture, a power of two: some thousand frames of full size.
const RING: u32 = 8 << 20;
/// Name of the ring buffer, in the object and while it is pinned.
const CAPTURES: &str = "captures";
const HEAD: usize = size_of::<CaptureHead>();
const CPU: usize = size_of::<CaptureCpu>();

/// Programs that capture, one an interface.
pub(super) struct Capture {
    objects: Vec<Ebpf>,
}

/// What they write to, not yet waited for.
pub struct CaptureRing(RingBuf<MapData>);

/// What they write to. Needs a tokio runtime.
pub struct CaptureFrames {
    ring: AsyncFd<RingBuf<MapData>>,
}

/// A frame that was captured, or the word that one was not sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawFrame {
    /// What the program wrote.
    pub head: CaptureHead,
    /// The frame's bytes.
    pub bytes: Vec<u8>,
    /// When, by this host's clock.
    pub at: SystemTime,
}

/// Pin of the program that captures on an interface: by it a restarted daemon knows the program in the slot.
pub(super) fn pin(set: &Path, interface: &str) -> PathBuf {
    set.join(format!("capture-{}", pins::pin_name(interface)))
}

impl Bpf {
    /// Captures frames to a VIP, and its replies, on all interfaces. After `time` the programs write nothing, whatever becomes of
    /// this daemon.
    pub fn start_capture(&mut self, vip: IpAddr, port: u16, time: Duration) -> Result<CaptureRing, Error> {
        if self.capture.is_some() {
            return Err(Error::Capturing);
        }
        if !self.active {
            let reason = "the new maps are not in use yet; try again in some seconds".into();
            return Err(Error::Load { program: "lb that captures", reason });
        }
        let filter = CaptureFilter {
            addr: mapped(vip).octets(),
            until_ns: sys::monotonic_ns() + u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 2),
            port: port.to_be_bytes(),
            pad: [0; 6],
        };
        let shared = self.directory.join(CAPTURES);
        let _ = std::fs::remove_file(&shared);
        let begun = self.load_capture(&filter);
        let ring = begun.and_then(|objects| {
            self.capture = Some(Capture { objects });
            self.place_capture()?;
            let data = MapData::from_pin(&shared).map_err(|e| Error::pin("open", &shared, e))?;
            let map = Map::from_map_data(data).map_err(|e| Error::map("open", CAPTURES, e))?;
            let ring = RingBuf::try_from(map).map_err(|e| Error::map("map into memory the", CAPTURES, e))?;
            Ok(CaptureRing(ring))
        });
        let _ = std::fs::remove_file(&shared);
        if ring.is_err() {
            self.end_capture()?;
        }
        ring
    }

    fn load_capture(&self, filter: &CaptureFilter) -> Result<Vec<Ebpf>, Error> {
        let load = |attachment: &Attachment| load(&self.directory, &attachment.root, &self.params, filter);
        self.attachments.iter().map(load).collect()
    }

    fn place_capture(&mut self) -> Result<(), Error> {
        let _lock = self.pins.lock()?;
        let Some(capture) = &mut self.capture else { return Ok(()) };
        for (attachment, object) in self.attachments.iter_mut().zip(&mut capture.objects) {
            let program = program(object, "lb")?;
            let path = pin(&self.directory, attachment.root.interface());
            let _ = std::fs::remove_file(&path);
            program.pin(&path).map_err(|e| Error::pin("pin", &path, e))?;
            let fd =
                program.fd().map_err(|e| Error::Load { program: "lb that captures", reason: chain(&e) })?;
            attachment.root.set(abi::SLOT_LB, fd)?;
        }
        Ok(())
    }

    /// Puts the plain programs back, if there is a capture. Returns how many frames the ring buffer had no room for.
    pub fn end_capture(&mut self) -> Result<u64, Error> {
        let Some(capture) = self.capture.take() else { return Ok(0) };
        let lock = self.pins.lock()?;
        for attachment in &mut self.attachments {
            let program = program(&mut attachment.object, "lb")?;
            let fd = program.fd().map_err(|e| Error::Load { program: "lb", reason: chain(&e) })?;
            attachment.root.set(abi::SLOT_LB, fd)?;
            let _ = std::fs::remove_file(pin(&self.directory, attachment.root.interface()));
        }
        drop(lock);
        // What they were still at is in the ring buffer when the caller reads it for the last time.
        sys::wait_for_readers().map_err(|e| Error::map("wait for readers of", CAPTURES, e))?;
        Ok(capture.objects.iter().map(lost).sum())
    }
}

fn load(directory: &Path, root: &Root, params: &Params, filter: &CaptureFilter) -> Result<Ebpf, Error> {
    let role = params.interfaces.iter().find(|i| i.name == root.interface()).map_or(0, |i| i.role);
    let mut loader = EbpfLoader::new();
    loader.override_global("weir_capture", bytemuck::bytes_of(filter), true);
    loader.map_max_entries(CAPTURES, RING);
    loader.map_pin_path(CAPTURES, directory.join(CAPTURES));
    load_with(loader, weir_bpf::capture_object(), directory, Some(root.directory()), params, role)
}

fn lost(object: &Ebpf) -> u64 {
    let Some(map) = object.map("capture_cpu") else { return 0 };
    let Ok(array) = PerCpuArray::<_, [u8; CPU]>::try_from(map) else { return 0 };
    let lost = |value: &[u8; CPU]| bytemuck::cast::<_, CaptureCpu>(*value).lost;
    array.get(&0, 0).map_or(0, |values| values.iter().map(lost).sum())
}

impl CaptureFrames {
    /// Waits for a capture's frames from now on.
    pub fn new(ring: CaptureRing) -> Result<Self, Error> {
        Ok(Self { ring: asynchronous(CAPTURES, ring.0)? })
    }

    /// Waits until there is something and hands it over, oldest first.
    pub async fn next(&mut self) -> io::Result<Vec<RawFrame>> {
        let mut ready = self.ring.readable_mut().await?;
        let found = drain(ready.get_inner_mut());
        ready.clear_ready();
        Ok(found)
    }

    /// Hands over what is there now.
    pub fn waiting(&mut self) -> Vec<RawFrame> {
        drain(self.ring.get_mut())
    }
}

fn drain(ring: &mut RingBuf<MapData>) -> Vec<RawFrame> {
    let mut found = Vec::new();
    while let Some(item) = ring.next() {
        let Some((head, bytes)) = item.split_at_checked(HEAD) else { continue };
        let head: CaptureHead = bytemuck::pod_read_unaligned(head);
        let bytes = bytes.get(..head.captured as usize).unwrap_or(bytes).to_vec();
        found.push(RawFrame { head, bytes, at: wall_clock(head.at_ns) });
    }
    found
}
