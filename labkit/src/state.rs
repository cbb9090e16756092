//! What is on the machine: one directory a lab under `/run/labkit`, written before anything else is created.

use std::collections::BTreeMap;
use std::fs::{self, File, TryLockError};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};

use crate::error::{Error, Result};
use crate::fabric;
use crate::netns::{self, Netns};
use crate::topology::Topology;
use crate::wait::patiently;

/// Where labs keep their state.
pub const ROOT: &str = "/run/labkit";
/// Longest wait for killed processes to be gone.
const KILL_WAIT: Duration = Duration::from_secs(5);

/// A lab as `state.json` tells of it.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Record {
    /// Name of the lab: topology and id.
    pub lab: String,
    /// Id of the run, unique on this machine while the lab exists.
    pub id: String,
    /// Process that made it.
    pub pid: u32,
    /// Fabric that realised it.
    pub fabric: String,
    /// What was asked for.
    pub topology: Topology,
    /// Namespace of each node, by name under `/run/netns`.
    pub namespaces: BTreeMap<String, String>,
}

/// Whether somebody still runs a lab.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// A process holds the lab's lock.
    Alive,
    /// Nobody does: it was kept, or its process died.
    Gone,
}

/// A lab found on the machine.
#[derive(Clone, Debug)]
pub struct Found {
    /// Name of the lab.
    pub lab: String,
    /// Whether its process lives.
    pub owner: Owner,
    /// Its state; absent when its process died before writing it.
    pub record: Option<Record>,
}

/// A lab's own directory. Its lock is held while this lives.
#[derive(Debug)]
pub(crate) struct LabDir {
    pub(crate) path: PathBuf,
    _lock: File,
}

impl Record {
    /// The lab's directory.
    pub fn dir(&self) -> PathBuf {
        dir_of(&self.lab)
    }
}

/// Directory of a lab.
pub(crate) fn dir_of(lab: &str) -> PathBuf {
    Path::new(ROOT).join(lab)
}
/// Where a lab's BPF file system is mounted.
pub(crate) fn bpffs_of(dir: &Path) -> PathBuf {
    dir.join("bpffs")
}
/// Where a lab's logs are.
pub(crate) fn logs_of(dir: &Path) -> PathBuf {
    dir.join("logs")
}
/// A node's own directory.
pub(crate) fn node_dir_of(dir: &Path, node: &str) -> PathBuf {
    dir.join("nodes").join(node)
}

fn io(operation: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let object = path.display().to_string();
    move |cause| Error::system(operation, object, cause)
}

/// Serialises the making of a lab's directory and lock with `clean`, which must not take it for a dead one in between.
fn lock_root() -> Result<File> {
    let root = Path::new(ROOT);
    fs::create_dir_all(root).map_err(io("create directory (needs root)", root))?;
    let path = root.join(".lock");
    let file = File::create(&path).map_err(io("open", &path))?;
    file.lock().map_err(io("lock", &path))?;
    Ok(file)
}

/// Claims a new lab: picks an id, makes its directory, takes its lock, writes its state.
pub(crate) fn claim(topology: &Topology, fabric: &str) -> Result<(Record, LabDir)> {
    let _root = lock_root()?;
    let (id, lab, path) = loop {
        let id = format!("{:05x}", rand::random::<u32>() & 0xf_ffff);
        let lab = format!("{}-{id}", topology.name);
        let path = dir_of(&lab);
        // An id is taken while any lab has it: namespaces carry the id alone.
        if labs()?.iter().any(|other| other.ends_with(&format!("-{id}"))) {
            continue;
        }
        fs::create_dir(&path).map_err(io("create directory", &path))?;
        break (id, lab, path);
    };
    let lock_path = path.join("lock");
    let lock = File::create(&lock_path).map_err(io("create", &lock_path))?;
    lock.lock().map_err(io("lock", &lock_path))?;
    let namespaces =
        topology.nodes.iter().map(|node| (node.name.clone(), format!("lk{id}-{}", node.name))).collect();
    let record = Record {
        lab,
        id,
        pid: std::process::id(),
        fabric: fabric.into(),
        topology: topology.clone(),
        namespaces,
    };
    let state = path.join("state.json");
    let text = serde_json::to_string_pretty(&record)
        .map_err(|e| Error::system("write", state.display().to_string(), e))?;
    fs::write(&state, text).map_err(io("write", &state))?;
    Ok((record, LabDir { path, _lock: lock }))
}

fn labs() -> Result<Vec<String>> {
    let root = Path::new(ROOT);
    let entries = match fs::read_dir(root) {
        Ok(entries) => entries,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(io("read directory", root)(e)),
    };
    let mut names: Vec<String> = entries
        .filter_map(Result::ok)
        .filter(|entry| entry.path().is_dir())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort();
    Ok(names)
}

/// The owner of a lab, from its lock.
fn owner_of(path: &Path) -> Result<Owner> {
    let lock = path.join("lock");
    match File::open(&lock) {
        Ok(file) => match file.try_lock() {
            Ok(()) => Ok(Owner::Gone),
            Err(TryLockError::WouldBlock) => Ok(Owner::Alive),
            Err(TryLockError::Error(e)) => Err(io("lock", &lock)(e)),
        },
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(Owner::Gone),
        Err(e) => Err(io("open", &lock)(e)),
    }
}

/// All labs on the machine, by name.
pub fn list() -> Result<Vec<Found>> {
    let _root = lock_root()?;
    labs()?
        .into_iter()
        .map(|lab| {
            let path = dir_of(&lab);
            Ok(Found { owner: owner_of(&path)?, record: read_record(&path)?, lab })
        })
        .collect()
}

/// The lab of that name, or the only one whose name begins so.
pub fn find(name: &str) -> Result<Found> {
    let mut labs = list()?;
    let known: Vec<String> = labs.iter().map(|found| found.lab.clone()).collect();
    let exact = labs.iter().position(|found| found.lab == name);
    let mut begins = (0..labs.len()).filter(|i| labs[*i].lab.starts_with(name));
    let index = exact.or_else(|| begins.next().filter(|_| begins.next().is_none()));
    match index {
        Some(index) => Ok(labs.swap_remove(index)),
        None => Err(Error::Unknown { kind: "lab", name: name.into(), known }),
    }
}

fn read_record(path: &Path) -> Result<Option<Record>> {
    let state = path.join("state.json");
    match fs::read(&state) {
        // A half-written file counts as none: nothing was created before it was whole.
        Ok(text) => Ok(serde_json::from_slice(&text).ok()),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(e) => Err(io("read", &state)(e)),
    }
}

/// Removes what a lab whose process is gone has left: processes, namespaces, mounts, directory.
pub fn clean(found: &Found) -> Result<()> {
    let path = dir_of(&found.lab);
    {
        let _root = lock_root()?;
        if owner_of(&path)? == Owner::Alive {
            let pid = found.record.as_ref().map_or(0, |record| record.pid);
            return Err(Error::Answer {
                operation: "clean lab",
                object: found.lab.clone(),
                problem: format!("it is in use by process {pid}; end that first"),
            });
        }
    }
    match &found.record {
        Some(record) => tear_down(record),
        None => remove_dir(&path),
    }
}

/// Removes everything a lab has on the machine; what is gone already is fine. Goes on after an error and returns the first.
pub(crate) fn tear_down(record: &Record) -> Result<()> {
    let namespaces: Vec<Netns> =
        record.namespaces.values().filter_map(|name| Netns::open(name).ok()).collect();
    let mut result = kill_inside(&namespaces);
    drop(namespaces);
    let mut also = |next: Result<()>| {
        if result.is_ok() {
            result = next;
        }
    };
    also(fabric::by_name(&record.fabric).and_then(|fabric| fabric.down(record)));
    also(remove_dir(&record.dir()));
    result
}

fn remove_dir(path: &Path) -> Result<()> {
    netns::unmount(&bpffs_of(path))?;
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(io("delete directory", path)(e)),
        _ => Ok(()),
    }
}

/// Kills every process whose main thread is in one of the namespaces, and waits until they are gone.
pub(crate) fn kill_inside(namespaces: &[Netns]) -> Result<()> {
    let ids: Vec<(u64, u64)> = namespaces.iter().map(Netns::id).collect::<Result<_>>()?;
    let deadline = Instant::now() + patiently(KILL_WAIT);
    loop {
        let pids = processes_in(&ids)?;
        if pids.is_empty() {
            return Ok(());
        }
        for pid in &pids {
            // It may be gone by itself in the meantime.
            let _ = kill(*pid, Signal::SIGKILL);
        }
        if Instant::now() > deadline {
            return Err(Error::Timeout {
                what: "kill the lab's processes".into(),
                within: patiently(KILL_WAIT),
                last: format!("{pids:?} still run"),
            });
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn processes_in(ids: &[(u64, u64)]) -> Result<Vec<Pid>> {
    use std::os::unix::fs::MetadataExt;
    let proc = Path::new("/proc");
    let mut pids = Vec::new();
    for entry in fs::read_dir(proc).map_err(io("read directory", proc))?.filter_map(Result::ok) {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        // Zombies have no namespace any more and are skipped by this, as are processes that end meanwhile.
        let Ok(meta) = fs::metadata(entry.path().join("ns/net")) else { continue };
        if ids.contains(&(meta.dev(), meta.ino())) && pid as u32 != std::process::id() {
            pids.push(Pid::from_raw(pid));
        }
    }
    Ok(pids)
}
