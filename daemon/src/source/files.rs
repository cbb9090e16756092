//! The files of a directory and the last good version of each: no waiting, no time, only what is read when asked.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir_api::checked::Kind;
use weir_api::object::{self, MAX_FILE_BYTES};
use weir_api::{FileProblem, Problem};

use crate::event::{Loaded, ObjectSet};

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
    /// Names of the files whose good version has this key: the first in order has the say.
    owners: BTreeMap<Key, BTreeSet<String>>,
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
        for name in &names {
            let stamp = stamp(&self.directory.join(name));
            let known = self.files.get(name).is_some_and(|f| f.stamp.is_some() && f.stamp == stamp);
            if !known {
                changed |= self.read(name);
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
        for ((kind, namespace, name), files) in &self.owners {
            let mut files = files.iter();
            let Some(first) = files.next() else { continue };
            objects.extend(self.files.get(first).and_then(|f| f.good.clone()));
            for other in files {
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
        (ObjectSet::new(objects), problems)
    }

    /// Reads one file; tells whether object or problems changed.
    fn read(&mut self, name: &str) -> bool {
        let path = self.directory.join(name);
        // The stamp is taken before the bytes: a write in between is seen at the next look.
        let before = stamp(&path);
        let bytes = match read_bounded(&path) {
            Ok(bytes) => bytes,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return self.remove(name),
            Err(e) => {
                let why = format!("the file cannot be read: {e}");
                let problem = Problem::error("", "", why, "make it a readable regular file").at(&path, 0);
                let file = self.files.entry(name.to_string()).or_default();
                let changed = file.problems.as_slice() != std::slice::from_ref(&problem);
                (file.stamp, file.content, file.problems) = (None, None, vec![problem]);
                return changed;
            }
        };
        let file = self.files.entry(name.to_string()).or_default();
        file.stamp = before;
        let content = Some(hash(&bytes));
        if file.content == content {
            return false;
        }
        file.content = content;
        self.parses += 1;
        let parsed = object::parse_file(&path, &bytes);
        file.problems = parsed.problems;
        let Some(object) = parsed.object else { return true };
        let new = Arc::new(Loaded { origin: path.display().to_string(), object });
        let old = file.good.replace(Arc::clone(&new));
        if let Some(old) = old {
            self.disown(&old, name);
        }
        self.owners.entry(key(&new)).or_default().insert(name.to_string());
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
        if let Some(files) = self.owners.get_mut(&key) {
            files.remove(name);
            if files.is_empty() {
                self.owners.remove(&key);
            }
        }
    }
}

fn key(loaded: &Loaded) -> Key {
    let (kind, namespace, name) = loaded.key();
    (kind, namespace.to_string(), name.to_string())
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
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
