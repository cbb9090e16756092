//! The worker's pinned maps as [`Tables`], and what they tell of themselves.

use std::fs;
use std::net::IpAddr;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use aya::maps::{Array, HashMap, Map, MapData, PerCpuArray, PerCpuValues};
use aya::util::nr_cpus;
use bytemuck::Zeroable as _;
use sha2::{Digest as _, Sha256};
use weir_bpf::worker_abi::{
    Binding, Bucket, Counter, Endpoint, INTERFACE_LEN, Meta, NAME_LEN, Params, PortKey, Reason, SidKey,
    SourceKey, WORKER_LAYOUT_VERSION,
};

use super::apply::{AnyKey, Tables};
use super::image::{Facts, Image};
use super::unmapped;
use crate::config::WorkerLimits;
use crate::dataplane::Error;
use crate::dataplane::bpf::mmap::Mapped;
use crate::dataplane::bpf::pins::{ARRAY, HASH, MMAPABLE, MapSpec, PERCPU_ARRAY};
use crate::dataplane::bpf::sys;

const SID: usize = size_of::<SidKey>();
const SOURCE: usize = size_of::<SourceKey>();
const SERVICE: usize = size_of::<PortKey>();
const COUNTER: usize = size_of::<Counter>();
const META: usize = size_of::<Meta>();

/// All maps, in the sizes that the limits ask for.
pub(super) fn specs(limits: WorkerLimits) -> Vec<MapSpec> {
    let (bindings, endpoints) = (limits.bindings, limits.endpoints);
    let twice = bindings.saturating_mul(2);
    vec![
        // Each binding may be the only one of its SID, which is an entry too.
        MapSpec::new::<SidKey, u32>("w_sids", HASH, 0, twice),
        MapSpec::new::<SourceKey, u32>("w_sources", HASH, 0, twice),
        MapSpec::new::<PortKey, u32>("w_services", HASH, 0, twice),
        MapSpec::new::<u32, u32>("w_ports", HASH, 0, endpoints),
        MapSpec::new::<u32, Binding>("w_bindings", ARRAY, MMAPABLE, bindings),
        MapSpec::new::<u32, Endpoint>("w_endpoints", ARRAY, MMAPABLE, endpoints),
        MapSpec::new::<u32, Params>("w_params", ARRAY, MMAPABLE, 1),
        MapSpec::new::<u32, Counter>("w_in", PERCPU_ARRAY, 0, bindings),
        MapSpec::new::<u32, Counter>("w_out", PERCPU_ARRAY, 0, bindings),
        MapSpec::new::<u32, u64>("w_reasons", PERCPU_ARRAY, 0, Reason::ALL.len() as u32),
        MapSpec::new::<u32, Bucket>("w_buckets", PERCPU_ARRAY, 0, 1),
        MapSpec::new::<u32, Meta>("w_meta", ARRAY, 0, bindings),
    ]
}

/// Directory that the maps of this build and these limits have below a pin path.
pub fn directory(pins: &Path, limits: WorkerLimits) -> PathBuf {
    let mut hash = Sha256::new();
    for spec in specs(limits) {
        hash.update(format!("{spec:?}"));
    }
    let digest = hash.finalize();
    let tag = u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]);
    pins.join(format!("worker-v{WORKER_LAYOUT_VERSION}-{tag:08x}"))
}

/// All sets of a worker's maps below a pin path, whatever their layout.
///
/// # Errors
/// When the path cannot be read.
pub fn sets(pins: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = fs::read_dir(pins).map_err(|e| Error::io("list", pins, e))?;
    let mut sets = Vec::new();
    for entry in entries {
        let path = entry.map_err(|e| Error::io("list", pins, e))?.path();
        if path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("worker-v")) {
            sets.push(path);
        }
    }
    sets.sort();
    Ok(sets)
}

/// Limits that a set was made with.
///
/// # Errors
/// When it cannot be read.
pub fn limits_of(set: &Path) -> Result<WorkerLimits, Error> {
    let entries = |name: &str| {
        let path = set.join(name);
        let map = aya::maps::MapInfo::from_pin(&path).map_err(|e| Error::pin("open", &path, e))?;
        Ok::<_, Error>(map.max_entries())
    };
    Ok(WorkerLimits { bindings: entries("w_bindings")?, endpoints: entries("w_endpoints")? })
}

/// One set of pinned maps, opened.
pub struct Maps {
    limits: WorkerLimits,
    sids: HashMap<MapData, [u8; SID], u32>,
    sources: HashMap<MapData, [u8; SOURCE], u32>,
    services: HashMap<MapData, [u8; SERVICE], u32>,
    ports: HashMap<MapData, u32, u32>,
    bindings: Mapped<Binding>,
    endpoints: Mapped<Endpoint>,
    params: Mapped<Params>,
    received: PerCpuArray<MapData, [u8; COUNTER]>,
    sent: PerCpuArray<MapData, [u8; COUNTER]>,
    reasons: PerCpuArray<MapData, u64>,
    meta: Array<MapData, [u8; META]>,
}

fn text(bytes: &[u8]) -> String {
    let length = bytes.iter().position(|b| *b == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..length]).into_owned()
}

fn padded<const N: usize>(text: &str) -> [u8; N] {
    let mut bytes = [0; N];
    let length = text.len().min(N - 1);
    bytes[..length].copy_from_slice(&text.as_bytes()[..length]);
    bytes
}

impl Maps {
    /// Opens the maps pinned in `directory`, each compared with what this build and these limits need.
    ///
    /// # Errors
    /// A map that is not there, or is another.
    pub fn open(directory: &Path, limits: WorkerLimits) -> Result<Self, Error> {
        let specs = specs(limits);
        let take = |name: &'static str| {
            let missing = Error::Map { operation: "open", map: name, reason: "not in the layout".into() };
            specs.iter().find(|spec| spec.name == name).ok_or(missing)?.open(directory)
        };
        fn typed<T, E: std::error::Error>(name: &'static str, map: Result<T, E>) -> Result<T, Error> {
            map.map_err(|e| Error::map("open", name, e))
        }
        macro_rules! open {
            ($kind:ident $name:literal) => {
                typed($name, $kind::try_from(typed($name, Map::from_map_data(take($name)?))?))?
            };
        }
        fn mapped<T: bytemuck::Pod>(
            name: &'static str,
            map: &MapData,
            entries: u32,
        ) -> Result<Mapped<T>, Error> {
            Mapped::new(map.fd().as_fd(), entries).map_err(|e| Error::map("map into memory the", name, e))
        }
        Ok(Self {
            limits,
            sids: open!(HashMap "w_sids"),
            sources: open!(HashMap "w_sources"),
            services: open!(HashMap "w_services"),
            ports: open!(HashMap "w_ports"),
            bindings: mapped("w_bindings", &take("w_bindings")?, limits.bindings)?,
            endpoints: mapped("w_endpoints", &take("w_endpoints")?, limits.endpoints)?,
            params: mapped("w_params", &take("w_params")?, 1)?,
            received: open!(PerCpuArray "w_in"),
            sent: open!(PerCpuArray "w_out"),
            reasons: open!(PerCpuArray "w_reasons"),
            meta: open!(Array "w_meta"),
        })
    }

    /// Opens a set with the limits it was made with.
    ///
    /// # Errors
    /// As [`Maps::open`].
    pub fn open_set(set: &Path) -> Result<Self, Error> {
        Self::open(set, limits_of(set)?)
    }

    /// Reads all that is loaded.
    ///
    /// # Errors
    /// A map that cannot be read.
    pub fn read_back(&self) -> Result<Image, Error> {
        let mut image = Image::default();
        for item in &self.sids {
            let (key, value) = item.map_err(|e| Error::map("read", "w_sids", e))?;
            image.sids.insert(bytemuck::cast(key), value);
        }
        for item in &self.sources {
            let (key, value) = item.map_err(|e| Error::map("read", "w_sources", e))?;
            image.sources.insert(bytemuck::cast(key), value);
        }
        for item in &self.services {
            let (key, value) = item.map_err(|e| Error::map("read", "w_services", e))?;
            image.services.insert(bytemuck::cast(key), value);
        }
        for item in &self.ports {
            let (key, value) = item.map_err(|e| Error::map("read", "w_ports", e))?;
            image.ports.insert(key, value);
        }
        for (index, meta) in (0..).zip(self.meta.iter()) {
            let meta: Meta = bytemuck::cast(meta.map_err(|e| Error::map("read", "w_meta", e))?);
            if meta.used == 0 {
                continue;
            }
            let facts = Facts {
                vpc: text(&meta.vpc),
                attachment: text(&meta.attachment),
                interface: text(&meta.interface),
                netns: text(&meta.netns),
                placed: meta.placed,
            };
            let endpoint = (self.endpoints.read(meta.endpoint), facts.interface.clone());
            image.endpoints.insert(meta.endpoint, endpoint);
            image.bindings.insert(index, (self.bindings.read(index), facts));
        }
        Ok(image)
    }

    /// Packets and bytes handed to the endpoint, and taken from it, for a binding's index.
    pub fn totals(&self, index: u32) -> (Counter, Counter) {
        (sum(&self.received, index), sum(&self.sent, index))
    }

    /// Packets that left for a reason.
    pub fn reason_total(&self, reason: Reason) -> u64 {
        self.reasons.get(&(reason as u32), 0).map_or(0, |values| values.iter().sum())
    }

    /// What may change while the programs run.
    pub fn params(&self) -> Params {
        self.params.read(0)
    }
}

fn sum(map: &PerCpuArray<MapData, [u8; COUNTER]>, index: u32) -> Counter {
    let mut total = Counter::default();
    if let Ok(values) = map.get(&index, 0) {
        for value in values.iter() {
            let value: Counter = bytemuck::cast(*value);
            total.packets += value.packets;
            total.bytes += value.bytes;
        }
    }
    total
}

fn meta(binding: &Binding, facts: &Facts) -> Meta {
    let mut meta = Meta::zeroed();
    meta.vpc = padded::<NAME_LEN>(&facts.vpc);
    meta.attachment = padded::<NAME_LEN>(&facts.attachment);
    meta.netns = padded::<NAME_LEN>(&facts.netns);
    meta.interface = padded::<INTERFACE_LEN>(&facts.interface);
    (meta.vip, meta.backend, meta.sid) = (binding.vip, binding.backend, binding.sid);
    (meta.used, meta.placed, meta.endpoint) = (1, facts.placed, binding.endpoint);
    meta
}

impl Tables for Maps {
    fn insert(&mut self, key: AnyKey, value: u32) -> Result<(), Error> {
        match key {
            AnyKey::Sid(key) => self
                .sids
                .insert(bytemuck::cast::<_, [u8; SID]>(key), value, 0)
                .map_err(|e| Error::map("insert into", "w_sids", e)),
            AnyKey::Source(key) => self
                .sources
                .insert(bytemuck::cast::<_, [u8; SOURCE]>(key), value, 0)
                .map_err(|e| Error::map("insert into", "w_sources", e)),
            AnyKey::Service(key) => self
                .services
                .insert(bytemuck::cast::<_, [u8; SERVICE]>(key), value, 0)
                .map_err(|e| Error::map("insert into", "w_services", e)),
            AnyKey::Port(key) => {
                self.ports.insert(key, value, 0).map_err(|e| Error::map("insert into", "w_ports", e))
            }
        }
    }

    fn delete(&mut self, key: AnyKey) -> Result<(), Error> {
        match key {
            AnyKey::Sid(key) => {
                self.sids.remove(&bytemuck::cast(key)).map_err(|e| Error::map("delete from", "w_sids", e))
            }
            AnyKey::Source(key) => self
                .sources
                .remove(&bytemuck::cast(key))
                .map_err(|e| Error::map("delete from", "w_sources", e)),
            AnyKey::Service(key) => self
                .services
                .remove(&bytemuck::cast(key))
                .map_err(|e| Error::map("delete from", "w_services", e)),
            AnyKey::Port(key) => self.ports.remove(&key).map_err(|e| Error::map("delete from", "w_ports", e)),
        }
    }

    fn put_binding(&mut self, index: u32, binding: &Binding, facts: &Facts) -> Result<(), Error> {
        for (name, map) in [("w_in", &mut self.received), ("w_out", &mut self.sent)] {
            let cpus = nr_cpus().map_err(|(what, e)| {
                Error::map("count the CPUs for", name, std::io::Error::new(e.kind(), what))
            })?;
            let zeros =
                PerCpuValues::try_from(vec![[0; COUNTER]; cpus]).map_err(|e| Error::map("clear", name, e))?;
            map.set(index, zeros, 0).map_err(|e| Error::map("clear", name, e))?;
        }
        self.bindings.write(index, *binding);
        self.put_facts(index, binding, facts)
    }

    fn put_facts(&mut self, index: u32, binding: &Binding, facts: &Facts) -> Result<(), Error> {
        let value: [u8; META] = bytemuck::cast(meta(binding, facts));
        self.meta.set(index, value, 0).map_err(|e| Error::map("write", "w_meta", e))
    }

    fn clear_binding(&mut self, index: u32) -> Result<(), Error> {
        self.bindings.write(index, Binding::default());
        self.meta.set(index, [0; META], 0).map_err(|e| Error::map("write", "w_meta", e))
    }

    fn put_endpoint(&mut self, index: u32, endpoint: &Endpoint) -> Result<(), Error> {
        self.endpoints.write(index, *endpoint);
        Ok(())
    }

    fn set_ifindex(&mut self, index: u32, ifindex: u32) -> Result<(), Error> {
        self.endpoints.store_u32(index, std::mem::offset_of!(Endpoint, ifindex), ifindex);
        Ok(())
    }

    fn put_params(&mut self, params: &Params) -> Result<(), Error> {
        // A prefix that changes matches nothing while it does.
        let held = self.params.read(0);
        for (i, (new, old)) in params.gateways.iter().zip(&held.gateways).enumerate() {
            if new != old {
                let at = std::mem::offset_of!(Params, gateways) + i * size_of_val(new);
                self.params.store_u64(0, at, u64::MAX);
                self.params.store_u64(0, at + 8, new.mask);
                self.params.store_u64(0, at, new.hi);
            }
        }
        let mut now = self.params.read(0);
        now.gateways = params.gateways;
        if now != *params {
            self.params.write(0, *params);
        }
        Ok(())
    }

    fn wait_for_readers(&mut self) -> Result<(), Error> {
        sys::wait_for_readers().map_err(|e| Error::map("wait for the readers of", "w_sids", e))
    }
}

/// One delivery as it is loaded.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize)]
pub struct Row {
    /// VIP.
    pub vip: IpAddr,
    /// Function and argument of the SID, in hexadecimal.
    pub sid: String,
    /// VPC and attachment.
    pub vpc: String,
    /// The endpoint's own address.
    pub backend: IpAddr,
    /// Host side of its interface.
    pub interface: String,
    /// Whether the interface is there.
    pub present: bool,
    /// Packets handed to the endpoint.
    pub received: Total,
    /// Packets with the VIP as source that the endpoint sent.
    pub sent: Total,
}

/// Packets and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Total {
    /// Packets.
    pub packets: u64,
    /// Bytes of their IP packets.
    pub bytes: u64,
}

impl From<Counter> for Total {
    fn from(counter: Counter) -> Self {
        Self { packets: counter.packets, bytes: counter.bytes }
    }
}

impl Maps {
    /// What is loaded, for people, by SID and VIP.
    ///
    /// # Errors
    /// A map that cannot be read.
    pub fn rows(&self) -> Result<Vec<Row>, Error> {
        let image = self.read_back()?;
        let row = |(key, index): (super::plan::Key, u32)| {
            let (binding, facts) = image.bindings.get(&index)?;
            let (received, sent) = self.totals(index);
            Some(Row {
                vip: key.vip,
                sid: format!("{:04x}", key.sid),
                vpc: format!("{}/{}", facts.vpc, facts.attachment),
                backend: unmapped(binding.backend),
                interface: facts.interface.clone(),
                present: image.endpoints.get(&binding.endpoint).is_some_and(|(e, _)| e.ifindex != 0),
                received: received.into(),
                sent: sent.into(),
            })
        };
        let mut rows: Vec<Row> = image.keys().filter_map(row).collect();
        rows.sort_by(|a, b| (&a.sid, a.vip).cmp(&(&b.sid, b.vip)));
        Ok(rows)
    }

    /// The limits the maps have.
    pub fn limits(&self) -> WorkerLimits {
        self.limits
    }
}
