//! Watches a directory of objects: changes within a few milliseconds of quiet are one transaction.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::files::Files;
use crate::event::{Event, SourceStatus};

/// Name of this source in [`SourceStatus`].
pub const NAME: &str = "files";
/// However busy the directory is, a transaction ends after this many quiet times.
const LONGEST: u32 = 20;

/// Why the source stopped.
#[derive(Debug, thiserror::Error)]
pub enum FileSourceError {
    /// A worker thread failed.
    #[error("read objects in {directory}: {cause}")]
    Scan {
        /// The directory.
        directory: String,
        /// Why.
        cause: tokio::task::JoinError,
    },
}

/// A watched directory.
#[derive(Debug)]
pub struct FileSource {
    files: Files,
    settle: Duration,
    rescan_every: Duration,
    rescan: Arc<Notify>,
}

/// Asks a running [`FileSource`] to read everything anew, as SIGHUP does.
#[derive(Clone, Debug)]
pub struct Rescan(Arc<Notify>);

impl Rescan {
    /// Asks; returns at once.
    pub fn ask(&self) {
        self.0.notify_one();
    }
}

/// What the watch saw.
enum Seen {
    /// A file of this name changed.
    Name(String),
    /// Something that calls for reading everything.
    Doubt,
}

/// What a transaction has to look at.
#[derive(Default)]
struct Changes {
    names: BTreeSet<String>,
    doubt: bool,
}

impl Changes {
    fn add(&mut self, seen: Seen) {
        match seen {
            Seen::Name(name) => {
                self.names.insert(name);
            }
            Seen::Doubt => self.doubt = true,
        }
    }
}

impl FileSource {
    /// Watches `directory`; changes are taken after `settle` of quiet, and everything is read anew every `rescan_every`.
    pub fn new(directory: &Path, settle: Duration, rescan_every: Duration) -> Self {
        Self { files: Files::new(directory), settle, rescan_every, rescan: Arc::new(Notify::new()) }
    }

    /// A handle that asks for a full reading.
    pub fn rescan_handle(&self) -> Rescan {
        Rescan(Arc::clone(&self.rescan))
    }

    /// Reads and watches until `stop` or until nobody listens. The objects are told before the status that calls them
    /// complete.
    ///
    /// # Errors
    /// When a reading thread fails, which no file can cause.
    pub async fn run(
        mut self,
        events: mpsc::Sender<Event>,
        stop: CancellationToken,
    ) -> Result<(), FileSourceError> {
        let (seen, mut watched) = mpsc::unbounded_channel();
        let mut watcher = watch(self.files.directory(), &seen);
        let mut first = true;
        let mut changes = Changes { doubt: true, ..Changes::default() };
        loop {
            if changes.doubt && !first {
                // The directory itself may have been replaced, which ends a watch without a word.
                watcher = watch(self.files.directory(), &seen);
            }
            let (files, changed) = self.look(changes).await?;
            self.files = files;
            if changed || first {
                let (objects, problems) = self.files.snapshot();
                let status = SourceStatus { source: NAME.into(), synced: self.files.synced(), problems };
                for event in [Event::Objects(objects), Event::Source(status)] {
                    if events.send(event).await.is_err() {
                        return Ok(());
                    }
                }
                first = false;
            }
            changes = Changes::default();
            // A directory that cannot be watched (it may not exist yet) is looked at more often.
            let pause = if watcher.is_some() {
                self.rescan_every
            } else {
                self.rescan_every.min(Duration::from_secs(1))
            };
            tokio::select! {
                () = stop.cancelled() => return Ok(()),
                () = self.rescan.notified() => changes.doubt = true,
                () = tokio::time::sleep(pause) => changes.doubt = true,
                seen = watched.recv() => match seen {
                    Some(seen) => changes.add(seen),
                    None => return Ok(()),
                },
            }
            self.settle(&mut changes, &mut watched).await;
        }
    }

    /// Collects what else changes until it has been quiet for a while.
    async fn settle(&self, changes: &mut Changes, watched: &mut mpsc::UnboundedReceiver<Seen>) {
        let end = Instant::now() + self.settle * LONGEST;
        while let Ok(Some(seen)) =
            tokio::time::timeout_at((Instant::now() + self.settle).min(end), watched.recv()).await
        {
            changes.add(seen);
            if Instant::now() >= end {
                break;
            }
        }
    }

    /// Reads what changed, on a thread that may block.
    async fn look(&mut self, changes: Changes) -> Result<(Files, bool), FileSourceError> {
        let directory = self.files.directory().display().to_string();
        let mut files = std::mem::replace(&mut self.files, Files::new(""));
        tokio::task::spawn_blocking(move || {
            let mut changed = files.refresh(changes.names.iter().map(String::as_str));
            if changes.doubt {
                changed |= files.rescan();
            }
            (files, changed)
        })
        .await
        .map_err(|cause| FileSourceError::Scan { directory, cause })
    }
}

/// Starts a watch; `None` when the directory cannot be watched.
fn watch(directory: &Path, seen: &mpsc::UnboundedSender<Seen>) -> Option<RecommendedWatcher> {
    let (tell, home) = (seen.clone(), directory.to_path_buf());
    let handler = move |event: notify::Result<notify::Event>| match event {
        Ok(event) => classify(&home, &event).into_iter().for_each(|s| drop(tell.send(s))),
        Err(_) => drop(tell.send(Seen::Doubt)),
    };
    let mut watcher = notify::recommended_watcher(handler).ok()?;
    watcher.watch(directory, RecursiveMode::NonRecursive).ok()?;
    Some(watcher)
}

/// Which files an event of the watch is about. Editors' temporary files are about nothing.
fn classify(directory: &Path, event: &notify::Event) -> Vec<Seen> {
    if event.need_rescan() || event.paths.is_empty() {
        return vec![Seen::Doubt];
    }
    if matches!(event.kind, EventKind::Access(_)) {
        return Vec::new();
    }
    let one = |path: &std::path::PathBuf| {
        // Cluster volumes swing a link named `..data`, which changes all files at once.
        let name = path.file_name().and_then(|n| n.to_str()).unwrap_or("..");
        if path == directory || name.starts_with("..") {
            return Some(Seen::Doubt);
        }
        Files::wanted(OsStr::new(name)).then(|| Seen::Name(name.to_string()))
    };
    event.paths.iter().filter_map(one).collect()
}

#[cfg(test)]
mod tests;
