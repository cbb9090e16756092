//! What the pinned maps hold as one plain image, for `weir show`, `weir explain` and `/metrics`; needs no running daemon.

mod drops;
mod explain;
#[cfg(test)]
pub(crate) mod fixture;
mod rings;
mod rows;
mod trace;

use std::path::{Path, PathBuf};

use weir_bpf::abi::{Counter, LAYOUT_VERSION, Reason, unpack_nh};

pub use drops::{DropLine, DroppedFrame};
pub use explain::{ExplainedBackend, ExplainedFlow, ExplainedRing, explain};
pub use rings::{DigestCheck, RingMember, RingRow, rings};
pub use rows::{BackendRow, Exit, ExitRow, HopRow, VipRow, exit_of};
pub use trace::{Oracle, TracedFrame, trace};

use crate::dataplane::bpf::{Maps, Pins, interface_name, limits_of, open_set, serving_set};
use crate::dataplane::{self, Dataplane as _, Limits};
use crate::flow::View;

/// Why the maps could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Nothing is pinned there.
    #[error(
        "read the maps under {}: none are pinned there; start `weir gateway`, or name its pin path with --pins or --config",
        pins.display()
    )]
    NoMaps {
        /// The pin path.
        pins: PathBuf,
    },
    /// They were made by a build with another layout, and would be misread.
    #[error(
        "read the maps {}: another build of weir made them (this one reads layout {LAYOUT_VERSION}); use the weir program of the running daemon",
        set.display()
    )]
    OtherLayout {
        /// The set of maps.
        set: PathBuf,
    },
    /// The kernel or the file system refused.
    #[error(transparent)]
    Dataplane(#[from] dataplane::Error),
}

/// All that the maps say, at one moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// Capacities of the maps.
    pub limits: Limits,
    /// Loaded keys in their order.
    pub vips: Vec<VipRow>,
    /// Addresses that are ours whatever the port: how many.
    pub owned: u32,
    /// Backends in the order of their identity.
    pub backends: Vec<BackendRow>,
    /// Packets by the reason for which they left the program, every reason once.
    pub exits: Vec<ExitRow>,
    /// Self-test frames that came back.
    pub self_test_frames: u64,
    /// Sampled drops for which the ring buffer had no room.
    pub drop_events_lost: u64,
}

/// Where counters are read from: the kernel's maps, or a test's figures.
pub trait Counters: Send + Sync {
    /// Reads everything now.
    fn image(&self) -> Result<Image, Error>;
}

impl Counters for Maps {
    fn image(&self) -> Result<Image, Error> {
        let tables = self.read_back()?;
        let vip = |(key, entry): (&_, &_)| VipRow::new(*key, entry, self.vip_total(entry.index));
        let backends = tables.backends.iter().map(|(id, entry)| {
            let record = self.backend(entry.index);
            BackendRow {
                id: id.clone(),
                node: entry.node.to_string(),
                sid: entry.sid,
                index: entry.index,
                next_hops: hops(self, record.nh),
                path_mtu: (record.pmtu != 0).then_some(record.pmtu),
                total: self.backend_total(entry.index).into(),
            }
        });
        let exit = |reason: &Reason| ExitRow::new(*reason, self.reason_total(*reason));
        Ok(Image {
            limits: self.limits(),
            vips: tables.vips.iter().map(vip).collect(),
            owned: tables.owned.len() as u32,
            backends: backends.collect(),
            exits: Reason::ALL.iter().map(exit).collect(),
            self_test_frames: self.shared().selftest_seen,
            drop_events_lost: self.events_lost(),
        })
    }
}

/// Reads one set of maps by the directory of its pins; opens it for each reading and keeps nothing in between.
#[derive(Clone, Debug)]
pub struct PinnedSet {
    /// The directory, as [`Maps::directory`] says it.
    pub directory: PathBuf,
}

impl Counters for PinnedSet {
    fn image(&self) -> Result<Image, Error> {
        open_set(&self.directory)?.image()
    }
}

/// Opens the set of maps that serves below a pin path, for reading.
pub fn open(pins: &Path) -> Result<Maps, Error> {
    let none = || Error::NoMaps { pins: pins.into() };
    if !pins.exists() {
        return Err(none());
    }
    let base = Pins::existing(pins)?;
    let set = serving_set(&base, &base.interfaces())?.ok_or_else(none)?;
    // The directory's name states the whole layout: read nothing that this build would not have made.
    let limits = limits_of(&set).map_err(|_| Error::OtherLayout { set: set.clone() })?;
    if base.maps(&limits) != set {
        return Err(Error::OtherLayout { set });
    }
    Ok(Maps::open(&set, limits)?)
}

/// The next hops among which flows to a backend are shared; none when there is no route.
fn hops(view: &impl View, nh: u32) -> Vec<HopRow> {
    let (first, count) = unpack_nh(nh);
    let indices = first..first + u32::from(count);
    indices.filter(|i| *i != 0).filter_map(|i| view.next_hop(i)).map(hop).collect()
}

fn hop(hop: weir_bpf::abi::NextHop) -> HopRow {
    let interface = interface_name(hop.ifindex).unwrap_or_else(|| format!("interface {}", hop.ifindex));
    let mac = hop.macs[..6].iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(":");
    HopRow { interface, mac, mtu: hop.mtu }
}

/// Packets and bytes of inner IP packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Total {
    /// Packets sent to a backend.
    pub packets: u64,
    /// Bytes of their inner IP packets.
    pub bytes: u64,
}

impl From<Counter> for Total {
    fn from(counter: Counter) -> Self {
        Self { packets: counter.packets, bytes: counter.bytes }
    }
}
