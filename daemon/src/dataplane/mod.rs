//! The packet path as the rest of the daemon sees it: a plan of what to write, and who writes it.
//!
//! `plan` compares what should be with what the maps hold and lists steps in the only safe order; `apply` runs them on a
//! [`Dataplane`], of which there are two: `bpf`, the kernel's, and `mem`, a fake with faults for tests.

mod ahead;
pub mod apply;
pub mod bpf;
mod fragments;
pub mod hops;
pub mod mem;
pub mod nexthop;
pub mod pathmtu;
pub mod plan;
pub mod tables;
#[cfg(test)]
mod tests;

use std::io;
use std::path::{Path, PathBuf};

pub use tables::{Limits, Tables};
use weir_bpf::abi::{NextHop, VipWord};

use crate::model::{BackendId, ObjectName, Protocol, Sid, VipKey};

/// What failed, on what, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file-system operation on a pin failed.
    #[error("{operation} {path}: {source}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// A bpf operation on a pinned object failed.
    #[error("{operation} {path}: {reason}")]
    Pin {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// The kernel's answer.
        reason: String,
    },
    /// The pin path is not on a BPF file system.
    #[error(
        "pin kernel objects under {path}: not a BPF file system; mount one (mount -t bpf bpf /sys/fs/bpf) or set `pins` to a path on one"
    )]
    NotBpffs {
        /// The configured path.
        path: PathBuf,
    },
    /// A pinned object is not what this build expects.
    #[error("use {path}: {problem}; stop whoever else pins there, or set `pins` to another path")]
    Layout {
        /// The pin.
        path: PathBuf,
        /// The difference.
        problem: String,
    },
    /// The interface does not exist.
    #[error(
        "attach to {interface}: no such interface in this network namespace; correct `uplinks` or `fabric`"
    )]
    NoInterface {
        /// Configured name.
        interface: String,
    },
    /// No load balancer runs on the interface.
    #[error(
        "open the program of {interface}: no load balancer is in its slot; start `weir gateway`, or name an interface that it \
         serves ({served})"
    )]
    NotServing {
        /// Interface.
        interface: String,
        /// Interfaces with a root here.
        served: String,
    },
    /// One capture at a time.
    #[error("capture: another capture runs; wait for its end, or end it")]
    Capturing,
    /// Somebody else's XDP program is attached.
    #[error(
        "attach XDP to {interface}: program {program} is attached already and is not ours; let its owner use a slot of the \
         shared root, or remove it (ip link set dev {interface} xdp off)"
    )]
    ForeignProgram {
        /// Interface.
        interface: String,
        /// Name and id of the program.
        program: String,
    },
    /// The driver refused the program.
    #[error(
        "attach XDP to {interface}: native mode is not supported here ({reason}); use another NIC, lower its MTU, or set `xdpMode: generic`"
    )]
    NoNativeXdp {
        /// Interface.
        interface: String,
        /// The kernel's answer.
        reason: String,
    },
    /// The kernel refused a program.
    #[error("load the program {program}: {reason}")]
    Load {
        /// Program name.
        program: &'static str,
        /// The verifier's answer.
        reason: String,
    },
    /// A map has no room for what a rule, or a next hop, needs.
    #[error(
        "load into map {map}: {needed} more entries are needed and {free} of {configured} are free; remove rules, or raise \
         `{limit}` (now {configured}) and restart the gateway"
    )]
    LimitReached {
        /// Map name.
        map: &'static str,
        /// Field of the configuration that sizes it.
        limit: &'static str,
        /// Its value.
        configured: u32,
        /// Entries that are needed, beside those in use; for `rings`, slots in one run.
        needed: u32,
        /// Entries that are free; for `rings`, slots of the longest run.
        free: u32,
    },
    /// A loaded rule asks for another ring class, which would move nine flows in ten.
    #[error(
        "load rule {rule}: its ring has {loaded} slots and spec.ringSize is now {asked}, which is immutable; set it back, or \
         remove the rule and make it anew"
    )]
    RingSizeChanged {
        /// The rule.
        rule: ObjectName,
        /// Slots of the ring that is loaded.
        loaded: u32,
        /// Slots that are asked for.
        asked: u32,
    },
    /// A map refused an operation.
    #[error("{operation} map {map}: {reason}")]
    Map {
        /// What was tried.
        operation: &'static str,
        /// Map name.
        map: &'static str,
        /// The kernel's answer.
        reason: String,
    },
}

impl Error {
    pub(crate) fn io(operation: &'static str, path: &Path, source: io::Error) -> Self {
        Self::Io { operation, path: path.into(), source }
    }
    pub(crate) fn pin(operation: &'static str, path: &Path, source: impl std::error::Error) -> Self {
        Self::Pin { operation, path: path.into(), reason: chain(&source) }
    }
    pub(crate) fn map(operation: &'static str, map: &'static str, source: impl std::error::Error) -> Self {
        Self::Map { operation, map, reason: chain(&source) }
    }
}

/// An error and its causes in one line; aya keeps the kernel's answer in the cause.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        let part = next.to_string();
        if !text.contains(&part) {
            text = format!("{text}: {part}");
        }
        cause = next.source();
    }
    text
}

/// A backend record to publish.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BackendRecord {
    /// Whose.
    pub id: BackendId,
    /// Where packets go.
    pub sid: Sid,
    /// Node that holds it, for people.
    pub node: std::sync::Arc<str>,
}

/// What a VIP index stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VipRecord {
    /// Key that leads to it.
    pub key: VipKey,
    /// Rule it serves.
    pub rule: ObjectName,
}

/// What a ring region holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingRecord {
    /// Digest of the ring's inputs.
    pub ring_key: [u8; 16],
    /// Digest of the ring's contents.
    pub digest: [u8; 16],
}

/// Single operations on the maps. Order and safety are the caller's (`plan`, `apply`).
pub trait Dataplane: Send {
    /// Capacities of the maps.
    fn limits(&self) -> Limits;
    /// Reads all that is loaded.
    fn read_back(&self) -> Result<Tables, Error>;
    /// Writes a backend record at an index that no ring names; its next hop is none until [`Dataplane::set_hops`].
    fn put_backend(&mut self, index: u32, record: &BackendRecord) -> Result<(), Error>;
    /// Forgets a backend record that no CPU can reach any more.
    fn clear_backend(&mut self, index: u32) -> Result<(), Error>;
    /// Writes a ring into a region that no VIP word names. `slots` are backend indices.
    fn write_ring(&mut self, base: u32, slots: &[u32], record: &RingRecord) -> Result<(), Error>;
    /// Reads a ring back.
    fn read_ring(&self, base: u32, slots: u32) -> Vec<u32>;
    /// Writes what a VIP index stands for.
    fn put_vip(&mut self, index: u32, record: &VipRecord) -> Result<(), Error>;
    /// Flips a VIP to another ring, by one store.
    fn set_word(&mut self, index: u32, word: VipWord) -> Result<(), Error>;
    /// Makes a VIP index that no CPU can reach as new: no word, counters 0.
    fn clear_vip(&mut self, index: u32) -> Result<(), Error>;
    /// Lets packets find an index; the key must be new.
    fn insert_key(&mut self, key: VipKey, index: u32) -> Result<(), Error>;
    /// Hides an index from packets.
    fn delete_key(&mut self, key: VipKey) -> Result<(), Error>;
    /// Claims an address, whatever the port.
    fn insert_owner(&mut self, address: std::net::IpAddr) -> Result<(), Error>;
    /// Gives an address up.
    fn delete_owner(&mut self, address: std::net::IpAddr) -> Result<(), Error>;
    /// Lets fragments of a protocol that are sent to an address find an index without ports; there must be no such entry.
    fn insert_fragments(
        &mut self,
        address: std::net::IpAddr,
        protocol: Protocol,
        index: u32,
    ) -> Result<(), Error>;
    /// Takes that back.
    fn delete_fragments(&mut self, address: std::net::IpAddr, protocol: Protocol) -> Result<(), Error>;
    /// Writes a next hop at an index that no backend names.
    fn put_hop(&mut self, index: u32, hop: NextHop) -> Result<(), Error>;
    /// Points a backend at its next hops (`abi::pack_nh`), by one store.
    fn set_hops(&mut self, backend: u32, hops: u32) -> Result<(), Error>;
    /// What a backend's `nh` word is now.
    fn hops_of(&self, backend: u32) -> u32;
    /// Sets the MTU learned for the path to a backend, by one store; 0 for none.
    fn set_path_mtu(&mut self, backend: u32, mtu: u32) -> Result<(), Error>;
    /// What is set.
    fn path_mtu(&self, backend: u32) -> u32;
    /// A next hop record as it is now.
    fn hop(&self, index: u32) -> NextHop;
    /// Returns once no CPU can still use what was hidden or flipped before.
    fn wait_for_readers(&mut self) -> Result<(), Error>;
}
