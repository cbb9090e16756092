//! Where kernel objects are pinned, and whether what is pinned is what this build expects.
//!
//! ```text
//! <pins>/maps-<tag>/<map>            one set of maps; the tag states layout version and limits
//! <pins>/maps-<tag>/lb-<interface>   the program that uses them on an interface
//! <pins>/maps-<tag>/{capture-<interface>,captures}   while somebody captures: the program in the slot, what it writes to
//! <pins>/root-v1/<interface>/{slots,program,link}   shared with other owners, frozen
//! ```

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use aya::maps::MapData;
use sha2::{Digest as _, Sha256};
use weir_bpf::abi::{
    Backend, BackendMeta, Bucket, Counter, EVENT_RING, Fragment, FragmentKey, LAYOUT_VERSION,
    LEARNED_ENTRIES, Learned, Name, NextHop, ROOT_SLOTS, ROOT_VERSION, Reason, RingBlock, RingMeta, Sampler,
    Shared, SidBytes, VipKey, VipMeta,
};

use super::sys;
use crate::dataplane::{Error, Limits};

pub(crate) const HASH: u32 = 1;
pub(crate) const ARRAY: u32 = 2;
const PROG_ARRAY: u32 = 3;
pub(crate) const PERCPU_ARRAY: u32 = 6;
const LRU_HASH: u32 = 9;
const RINGBUF: u32 = 27;
const NO_PREALLOC: u32 = 1;
pub(crate) const MMAPABLE: u32 = 1 << 10;

/// An interface's name as bpffs takes it: dots are reserved there, and VLAN interfaces have them.
pub(crate) fn pin_name(interface: &str) -> String {
    interface.replace('~', "~t").replace('.', "~d")
}

/// What a pinned map must be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct MapSpec {
    /// Name in the object and of the pin.
    pub name: &'static str,
    kind: u32,
    key: u32,
    value: u32,
    flags: u32,
    /// Entries.
    pub entries: u32,
}

/// All maps of a set, in the sizes that the limits ask for.
pub(super) fn specs(limits: &Limits) -> Vec<MapSpec> {
    fn spec<K, V>(name: &'static str, kind: u32, flags: u32, entries: u32) -> MapSpec {
        MapSpec::new::<K, V>(name, kind, flags, entries)
    }
    let reasons = Reason::ALL.len() as u32;
    // A backend may be alone in its VPC, on its attachment and on its node.
    let names = limits.backends.saturating_mul(3).saturating_add(limits.vips);
    vec![
        // Each key may be the only one of its address, whose ownership is an entry too, and lead the address's fragments.
        spec::<VipKey, u32>("vip_index", HASH, 0, limits.vips.saturating_mul(3)),
        spec::<u32, u64>("vip_state", ARRAY, MMAPABLE, limits.vips),
        spec::<u32, RingBlock>("rings", ARRAY, MMAPABLE, limits.ring_blocks()),
        spec::<u32, Backend>("backends", ARRAY, MMAPABLE, limits.backends),
        spec::<u32, NextHop>("nexthops", ARRAY, MMAPABLE, limits.next_hops),
        spec::<u32, Shared>("state", ARRAY, MMAPABLE, 1),
        spec::<u32, Counter>("vip_counters", PERCPU_ARRAY, 0, limits.vips),
        spec::<u32, Counter>("backend_counters", PERCPU_ARRAY, 0, limits.backends),
        spec::<u32, u64>("reasons", PERCPU_ARRAY, 0, reasons),
        spec::<u32, Bucket>("buckets", PERCPU_ARRAY, 0, 1),
        spec::<u32, Sampler>("samplers", PERCPU_ARRAY, 0, reasons),
        spec::<(), ()>("events", RINGBUF, 0, EVENT_RING),
        spec::<u32, VipMeta>("vip_meta", ARRAY, 0, limits.vips),
        // While rings are replaced, the old ones are noted too.
        spec::<u32, RingMeta>("ring_meta", HASH, NO_PREALLOC, limits.vips.saturating_mul(2)),
        spec::<u32, BackendMeta>("backend_meta", ARRAY, 0, limits.backends),
        spec::<u32, Counter>("vip_carried", ARRAY, 0, limits.vips),
        spec::<u32, Counter>("backend_carried", ARRAY, 0, limits.backends),
        spec::<u32, u64>("reason_carried", ARRAY, 0, reasons),
        // Backends of one table share a SID.
        spec::<SidBytes, u64>("reply_sources", HASH, 0, limits.backends),
        spec::<u64, Name>("names", HASH, NO_PREALLOC, names),
        spec::<FragmentKey, Fragment>("fragments", LRU_HASH, 0, limits.fragments),
        spec::<[u8; 16], Learned>("learned", LRU_HASH, 0, LEARNED_ENTRIES),
    ]
}

/// Bytes of kernel memory that a set of maps takes when it is made, on a machine with so many CPUs; `docs/limits.md` has it as
/// a formula. Names and notes of rings add what is in use.
pub fn memory(limits: &Limits, cpus: u32) -> u64 {
    specs(limits).iter().map(|spec| spec.bytes(u64::from(cpus))).sum()
}

/// The root's slot array.
pub(super) fn slots_spec() -> MapSpec {
    MapSpec { name: "slots", kind: PROG_ARRAY, key: 4, value: 4, flags: 0, entries: ROOT_SLOTS }
}

impl MapSpec {
    /// Bytes before the first element is inserted (`kernel/bpf/arraymap.c`, `kernel/bpf/hashtab.c`).
    fn bytes(&self, cpus: u64) -> u64 {
        /// Head of a hash element, and one bucket.
        const ELEMENT: u64 = 48;
        const BUCKET: u64 = 16;
        let entries = u64::from(self.entries);
        let (key, value) =
            (u64::from(self.key.next_multiple_of(8)), u64::from(self.value.next_multiple_of(8)));
        match self.kind {
            ARRAY => entries * value,
            // A pointer to the CPUs' copies.
            PERCPU_ARRAY => entries * (8 + value * cpus),
            // Its entries are bytes.
            RINGBUF => entries,
            _ => {
                let elements =
                    if self.flags & NO_PREALLOC == 0 { entries * (ELEMENT + key + value) } else { 0 };
                entries.next_power_of_two() * BUCKET + elements
            }
        }
    }

    /// A map with keys of type `K` and values of type `V`.
    pub(crate) fn new<K, V>(name: &'static str, kind: u32, flags: u32, entries: u32) -> Self {
        Self { name, kind, key: size_of::<K>() as u32, value: size_of::<V>() as u32, flags, entries }
    }

    /// Opens the pin in `directory` and compares all that the kernel tells of it; aya would adopt any map.
    pub(crate) fn open(&self, directory: &Path) -> Result<MapData, Error> {
        let path = directory.join(self.name);
        let map = MapData::from_pin(&path).map_err(|e| Error::pin("open", &path, e))?;
        let info = map.info().map_err(|e| Error::pin("read the properties of", &path, e))?;
        let kind = info.map_type().map_or(0, |t| t as u32);
        let found = (kind, info.key_size(), info.value_size(), info.map_flags(), info.max_entries());
        let wanted = (self.kind, self.key, self.value, self.flags, self.entries);
        if found != wanted {
            return Err(Error::Layout {
                path,
                problem: format!(
                    "type, key, value, flags, entries are {found:?}, this build needs {wanted:?}"
                ),
            });
        }
        Ok(map)
    }
}

/// The directories below one pin path.
#[derive(Clone, Debug)]
pub struct Pins {
    base: PathBuf,
}

impl Pins {
    /// Checks that the path exists on a BPF file system and creates it below one.
    pub fn open(base: &Path) -> Result<Self, Error> {
        fs::create_dir_all(base).map_err(|e| Error::io("create the pin directory", base, e))?;
        match sys::is_bpffs(base) {
            Ok(true) => Ok(Self { base: base.into() }),
            Ok(false) => Err(Error::NotBpffs { path: base.into() }),
            Err(e) => Err(Error::io("look at the pin directory", base, e)),
        }
    }

    /// As [`Pins::open`], but changes nothing: for readers.
    pub fn existing(base: &Path) -> Result<Self, Error> {
        match sys::is_bpffs(base) {
            Ok(true) => Ok(Self { base: base.into() }),
            Ok(false) => Err(Error::NotBpffs { path: base.into() }),
            Err(e) => Err(Error::io("look at the pin directory", base, e)),
        }
    }

    /// Directory of the shared root of an interface.
    pub fn root(&self, interface: &str) -> PathBuf {
        self.base.join(format!("root-v{ROOT_VERSION}")).join(pin_name(interface))
    }

    /// Directory that a set of maps of this build and these limits has.
    pub fn maps(&self, limits: &Limits) -> PathBuf {
        let mut hash = Sha256::new();
        for spec in specs(limits) {
            hash.update(format!("{spec:?}"));
        }
        let digest = hash.finalize();
        let tag = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]);
        self.base.join(format!("maps-v{LAYOUT_VERSION}-{tag:08x}"))
    }

    /// All sets of maps, whatever their layout.
    pub fn map_sets(&self) -> Result<Vec<PathBuf>, Error> {
        let entries = fs::read_dir(&self.base).map_err(|e| Error::io("list", &self.base, e))?;
        let mut sets = Vec::new();
        for entry in entries {
            let path = entry.map_err(|e| Error::io("list", &self.base, e))?.path();
            if path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("maps-")) {
                sets.push(path);
            }
        }
        sets.sort();
        Ok(sets)
    }

    /// Interfaces that have a shared root here, by name.
    pub fn interfaces(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.root("")) else { return Vec::new() };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.map(|name| name.replace("~d", ".").replace("~t", "~")).collect();
        names.sort();
        names
    }

    /// The lock that every change of a root or slot takes.
    pub fn lock(&self) -> Result<Lock, Error> {
        let directory = fs::File::open(&self.base).map_err(|e| Error::io("open", &self.base, e))?;
        sys::lock(&directory).map_err(|e| Error::io("lock", &self.base, e))?;
        Ok(Lock { _directory: directory })
    }
}

/// Held while a root or slot changes hands; bpffs takes no lock files, so the directory itself is locked.
#[derive(Debug)]
pub struct Lock {
    _directory: fs::File,
}

/// Removes a directory of pins and the kernel objects that only it kept.
pub(crate) fn remove_dir(directory: &Path) -> Result<(), Error> {
    match fs::read_dir(directory) {
        Ok(entries) => {
            for entry in entries {
                let path = entry.map_err(|e| Error::io("list", directory, e))?.path();
                fs::remove_file(&path).map_err(|e| Error::io("unpin", &path, e))?;
            }
            fs::remove_dir(directory).map_err(|e| Error::io("remove", directory, e))
        }
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(e) => Err(Error::io("list", directory, e)),
    }
}
