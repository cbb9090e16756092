//! The files of a directory and the last good version of each: no waiting, no time, only what is read when asked.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_api::checked::{CheckedObject, Kind};
use weir_api::locate::Fields;
use weir_api::object::{self, MAX_FILE_BYTES};
use weir_api::{FileProblem, Problem};

use crate::event::{Loaded, ObjectSet};

/// Files that are parsed before the first of them is taken in; bounds what waits.
const TOGETHER: usize = 512;
/// Fewer files than this are not worth a thread.
const WORTH_A_THREAD: usize = 32;

/// Kind, namespace and name.
type Key = (Kind, String, String);

/// What is known of one file.
#[derive(Debug, Default)]
struct FileState {
    /// When unchanged, the file need not be read again on a rescan.
    stamp: Option<Stamp>,
    /// Hash of the bytes last parsed.
    content: Option<u64>,
    /// The last version that was accepted.
    good: Option<Arc<Loaded>>,
    /// What is wrong with the present one.
    problems: Vec<FileProblem>,
}

/// A file that holds an object.
#[derive(Debug)]
struct Owner {
    file: String,
    object: Arc<Loaded>,
}

/// What was found in a file.
struct Found {
    stamp: Option<Stamp>,
    content: std::io::Result<Content>,
}

enum Content {
    /// Byte for byte what was parsed last.
    Same,
    New {
        hash: u64,
        parsed: Box<object::Parsed>,
    },
}

/// What tells that a file was replaced or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    device: u64,
    inode: u64,
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

/// The directory's files, by name.
#[derive(Debug)]
pub struct Files {
    directory: PathBuf,
    files: BTreeMap<String, FileState>,
    /// Files whose good version has this key, in order of their names: the first has the say.
    owners: BTreeMap<Key, Vec<Owner>>,
    /// What is wrong with the directory itself.
    trouble: Option<FileProblem>,
    /// The directory was listed at least once.
    listed: bool,
    /// Every file of the first complete reading has had a good version at some time.
    complete: bool,
    parses: u64,
}

impl Files {
    /// Nothing is read yet.
    pub fn new(directory: impl Into<PathBuf>) -> Self {
        Self {
            directory: directory.into(),
            files: BTreeMap::new(),
            owners: BTreeMap::new(),
            trouble: None,
            listed: false,
            complete: false,
            parses: 0,
        }
    }

    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// How often a text was parsed since the start.
    pub const fn parses(&self) -> u64 {
        self.parses
    }

    /// Whether a file of this name holds an object: `*.yaml` or `*.yml`, not hidden. Editors' temporary files are not.
    pub fn wanted(name: &OsStr) -> bool {
        let path = Path::new(name);
        let suffix = path.extension().is_some_and(|e| e == "yaml" || e == "yml");
        suffix && name.to_str().is_some_and(|n| !n.starts_with(['.', '#', '~']))
    }

    /// Reads the directory anew: each file that is new or whose stamp changed. Files that are gone take their objects
    /// with them; a directory that cannot be read takes nothing. Tells whether anything changed.
    pub fn rescan(&mut self) -> bool {
        let listed = std::fs::read_dir(&self.directory).and_then(|entries| {
            entries.map(|entry| entry.map(|e| e.file_name())).collect::<Result<Vec<_>, _>>()
        });
        let names: BTreeSet<String> = match listed {
            Ok(names) => {
                names.into_iter().filter(|n| Self::wanted(n)).filter_map(|n| n.into_string().ok()).collect()
            }
            Err(e) => {
                let problem = Problem::error(
                    "",
                    "",
                    format!("the objects' directory cannot be read: {e}"),
                    "create it",
                );
                let trouble = Some(problem.at(&self.directory, 0));
                let changed = self.trouble != trouble;
                self.trouble = trouble;
                return changed;
            }
        };
        let mut changed = self.trouble.take().is_some();
        let gone: Vec<String> = self.files.keys().filter(|n| !names.contains(*n)).cloned().collect();
        for name in &gone {
            changed |= self.remove(name);
        }
        let unknown = |name: &&String| {
            let stamp = stamp(&self.directory.join(name));
            !self.files.get(*name).is_some_and(|f| f.stamp.is_some() && f.stamp == stamp)
        };
        let unknown: Vec<String> = names.iter().filter(unknown).cloned().collect();
        for names in unknown.chunks(TOGETHER) {
            for (name, found) in names.iter().zip(self.inspect_all(names)) {
                changed |= self.take(name, found);
            }
        }
        self.listed = true;
        changed | self.completes()
    }

    /// Reads the files of these names, or notes that they are gone. Tells whether anything changed.
    pub fn refresh<'a>(&mut self, names: impl IntoIterator<Item = &'a str>) -> bool {
        let mut changed = false;
        for name in names {
            if Self::wanted(OsStr::new(name)) {
                changed |= self.read(name);
            }
        }
        changed | self.completes()
    }

    /// Whether with this the first reading is complete: files that were bad at the start are good now, or gone.
    fn completes(&mut self) -> bool {
        let first = !self.complete && self.listed && self.files.values().all(|f| f.good.is_some());
        self.complete |= first;
        first
    }

    /// Whether the directory could be read the last time.
    pub const fn readable(&self) -> bool {
        self.trouble.is_none()
    }

    /// Whether everything was read once and each file had a good version; stays true.
    pub const fn synced(&self) -> bool {
        self.complete
    }

    /// The objects that count, and all that is wrong.
    pub fn snapshot(&self) -> (ObjectSet, Vec<FileProblem>) {
        let mut problems: Vec<FileProblem> = self.trouble.iter().cloned().collect();
        problems.extend(self.files.values().flat_map(|f| f.problems.iter().cloned()));
        let mut objects = Vec::with_capacity(self.owners.len());
        for ((kind, namespace, name), owners) in &self.owners {
            let Some((Owner { file: first, object }, others)) = owners.split_first() else { continue };
            objects.push(Arc::clone(object));
            for Owner { file: other, .. } in others {
                let what = format!("{} {namespace}/{name}", kind.name());
                let why = format!("{what} is in {first} already, which has the say");
                let problem = Problem::error(
                    "metadata.name",
                    "",
                    why,
                    "remove one of the two files, or rename one object",
                );
                problems.push(problem.at(self.directory.join(other), 1));
            }
        }
        (ObjectSet::sorted(objects), problems)
    }

    /// Reads one file; tells whether object or problems changed.
    fn read(&mut self, name: &str) -> bool {
        let found = self.inspect(name);
        self.take(name, found)
    }

    /// What is in these files, read and parsed on all CPUs.
    fn inspect_all(&self, names: &[String]) -> Vec<Found> {
        let threads = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
        let share = names.len().div_ceil(threads).max(WORTH_A_THREAD);
        let all = |part: &[String]| part.iter().map(|name| self.inspect(name)).collect::<Vec<_>>();
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                names.chunks(share).map(|part| (part, scope.spawn(move || all(part)))).collect();
            threads.into_iter().flat_map(|(part, t)| t.join().unwrap_or_else(|_| all(part))).collect()
        })
    }

    fn inspect(&self, name: &str) -> Found {
        let path = self.directory.join(name);
        // The stamp is taken before the bytes: a write in between is seen at the next look.
        let stamp = stamp(&path);
        let known = self.files.get(name).and_then(|file| file.content);
        let known_good = self.files.get(name).and_then(|file| file.good.as_deref());
        let content = read_bounded(&path).map(|bytes| {
            let hash = hash(&bytes);
            if known == Some(hash) {
                return Content::Same;
            }
            let parsed = immutable(known_good, &path, &bytes, object::parse_file(&path, &bytes));
            Content::New { hash, parsed: Box::new(parsed) }
        });
        Found { stamp, content }
    }

    /// Takes in what was found in a file; tells whether object or problems changed.
    fn take(&mut self, name: &str, found: Found) -> bool {
        let content = match found.content {
            Ok(content) => content,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return self.remove(name),
            Err(e) => {
                let why = format!("the file cannot be read: {e}");
                let problem = Problem::error("", "", why, "make it a readable regular file")
                    .at(self.directory.join(name), 0);
                let file = self.files.entry(name.to_string()).or_default();
                let changed = file.problems.as_slice() != std::slice::from_ref(&problem);
                (file.stamp, file.content, file.problems) = (None, None, vec![problem]);
                return changed;
            }
        };
        let file = self.files.entry(name.to_string()).or_default();
        file.stamp = found.stamp;
        let Content::New { hash, parsed } = content else { return false };
        file.content = Some(hash);
        self.parses += 1;
        file.problems = parsed.problems;
        let Some(object) = parsed.object else { return true };
        let origin = self.directory.join(name).display().to_string();
        let new = Arc::new(Loaded { origin, object });
        let old = file.good.replace(Arc::clone(&new));
        if let Some(old) = old {
            self.disown(&old, name);
        }
        let owners = self.owners.entry(key(&new)).or_default();
        let at = owners.partition_point(|owner| *owner.file < *name);
        owners.insert(at, Owner { file: name.to_string(), object: new });
        true
    }

    fn remove(&mut self, name: &str) -> bool {
        let Some(file) = self.files.remove(name) else { return false };
        if let Some(good) = &file.good {
            self.disown(good, name);
        }
        true
    }

    fn disown(&mut self, loaded: &Loaded, name: &str) {
        let key = key(loaded);
        if let Some(owners) = self.owners.get_mut(&key) {
            owners.retain(|owner| owner.file != name);
            if owners.is_empty() {
                self.owners.remove(&key);
            }
        }
    }
}

fn key(loaded: &Loaded) -> Key {
    let (kind, namespace, name) = loaded.key();
    (kind, namespace.to_string(), name.to_string())
}

/// Refuses a new version of an object that changes what may not change.
fn immutable(old: Option<&Loaded>, path: &Path, bytes: &[u8], mut parsed: object::Parsed) -> object::Parsed {
    let (Some(CheckedObject::Rule(old)), Some(CheckedObject::Rule(new))) =
        (old.map(|loaded| &loaded.object), &parsed.object)
    else {
        return parsed;
    };
    let same = (&old.id.namespace, &old.id.name) == (&new.id.namespace, &new.id.name);
    if !same || old.ring_size == new.ring_size {
        return parsed;
    }
    let why = format!("is immutable and was {}: another ring moves nine flows in ten", old.ring_size);
    let remedy = format!("write {}, or remove the rule and make it anew", old.ring_size);
    let problem = Problem::error("spec.ringSize", new.ring_size, why, remedy);
    let line = std::str::from_utf8(bytes).map_or(1, |text| Fields::of(text).line(&problem.field));
    parsed.object = None;
    parsed.problems.push(problem.at(path, line));
    parsed
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

/// The good objects of the files that mention a word, read now: for what a daemon must know before it can start.
pub fn mentioning(directory: &Path, word: &str) -> Vec<Arc<Loaded>> {
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let mut names: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.file_name())).collect();
    names.retain(|name| Files::wanted(name));
    names.sort();
    let load = |name| {
        let path = directory.join(name);
        let bytes = read_bounded(&path).ok()?;
        bytes.windows(word.len()).any(|window| window == word.as_bytes()).then_some(())?;
        let object = object::parse_file(&path, &bytes).object.filter(|object| !object.id().deleted)?;
        Some(Arc::new(Loaded { origin: path.display().to_string(), object }))
    };
    names.into_iter().filter_map(load).collect()
}

/// At most one byte more than an object may have, so that a huge file cannot fill memory.
fn read_bounded(path: &Path) -> std::io::Result<Vec<u8>> {
    use std::io::Read;
    let metadata = std::fs::metadata(path)?;
    if !metadata.is_file() {
        return Err(std::io::Error::other("it is no regular file"));
    }
    let mut bytes = Vec::with_capacity(metadata.len().min(MAX_FILE_BYTES as u64) as usize);
    std::fs::File::open(path)?.take(MAX_FILE_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// The stamp of a file, unless it was changed so lately that a further change might leave the same one.
fn stamp(path: &Path) -> Option<Stamp> {
    let m = std::fs::metadata(path).ok()?;
    let age = m.modified().ok()?.elapsed().ok()?;
    (age.as_millis() > 100).then_some(Stamp {
        device: m.dev(),
        inode: m.ino(),
        size: m.size(),
        modified: (m.mtime(), m.mtime_nsec()),
        changed: (m.ctime(), m.ctime_nsec()),
    })
}

#[cfg(test)]
pub(crate) mod tests;
