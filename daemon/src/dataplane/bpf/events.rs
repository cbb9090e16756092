//! The ring buffers that programs write to: sampled drops.
#![allow(unsafe_code, reason = "tokio waits for a descriptor and asks its owner to promise that it stays")]

use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use aya::maps::{Map, MapData, RingBuf};
use tokio::io::unix::AsyncFd;
use weir_bpf::abi::{DropEvent, EVENT_RING};

use super::pins::{MapSpec, specs};
use super::sys;
use crate::dataplane::{Error, Limits};

/// The ring buffer `events` of a set of maps. It has one reader: whoever takes an event takes it from all others.
pub struct DropEvents {
    ring: AsyncFd<RingBuf<MapData>>,
}

/// A sampled drop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawDrop {
    /// What the program wrote.
    pub event: DropEvent,
    /// When, by this host's clock.
    pub at: SystemTime,
}

impl DropEvents {
    /// Opens the ring buffer of the set in `directory`. Needs a tokio runtime.
    pub fn open(directory: &Path) -> Result<Self, Error> {
        // Its size does not depend on limits.
        let limits = Limits::default();
        let spec: MapSpec = specs(&limits)
            .into_iter()
            .find(|spec| spec.name == "events" && spec.entries == EVENT_RING)
            .ok_or(Error::Map { operation: "open", map: "events", reason: "not in the layout".into() })?;
        let map = Map::from_map_data(spec.open(directory)?).map_err(|e| Error::map("open", "events", e))?;
        let ring = RingBuf::try_from(map).map_err(|e| Error::map("map into memory the", "events", e))?;
        Ok(Self { ring: asynchronous("events", ring)? })
    }

    /// Waits until there is something and hands it over, oldest first.
    pub async fn next(&mut self) -> io::Result<Vec<RawDrop>> {
        let mut ready = self.ring.readable_mut().await?;
        let mut found = Vec::new();
        while let Some(item) = ready.get_inner_mut().next() {
            if item.len() == size_of::<DropEvent>() {
                let event: DropEvent = bytemuck::pod_read_unaligned(&item);
                found.push(RawDrop { event, at: wall_clock(event.at_ns) });
            }
        }
        ready.clear_ready();
        Ok(found)
    }
}

/// A ring buffer that tokio waits for.
pub(super) fn asynchronous(
    name: &'static str,
    ring: RingBuf<MapData>,
) -> Result<AsyncFd<RingBuf<MapData>>, Error> {
    // SAFETY: the ring buffer owns its map's descriptor and gives no other for as long as it lives.
    let registered = unsafe { AsyncFd::register_with_interest(ring, tokio::io::Interest::READABLE) };
    registered.map_err(|e| Error::map("wait for", name, io::Error::from(e)))
}

/// A time of the programs' clock (`CLOCK_MONOTONIC`) by the wall clock as it is set now.
pub fn wall_clock(monotonic_ns: u64) -> SystemTime {
    let now = SystemTime::now();
    let passed = sys::monotonic_ns().saturating_sub(monotonic_ns);
    now.checked_sub(Duration::from_nanos(passed)).unwrap_or(now)
}
