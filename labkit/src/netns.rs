//! Network namespaces by name, made and entered by threads; nothing forks.
#![allow(unsafe_code, reason = "a child enters its namespace between fork and exec")]

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use std::thread;

use nix::mount::{MntFlags, MsFlags, mount, umount2};
use nix::sched::{CloneFlags, setns, unshare};
use tokio::runtime;
use tokio::task::JoinHandle;

use crate::error::{Error, Result};

/// Where namespaces are kept by name; iproute2 looks here too.
pub const NETNS_DIR: &str = "/run/netns";

/// A handle on a named network namespace. Clones share it; dropping one removes nothing.
#[derive(Clone, Debug)]
pub struct Netns {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    name: String,
    file: File,
    runtime: OnceLock<Background>,
}

/// A runtime whose one thread lives in the namespace.
#[derive(Debug)]
struct Background {
    handle: runtime::Handle,
    _stop: tokio::sync::oneshot::Sender<()>,
}

impl Netns {
    /// Makes a namespace and keeps it under `/run/netns/<name>` until [`Netns::remove`].
    ///
    /// # Errors
    /// A namespace of that name exists, or the caller lacks `CAP_SYS_ADMIN`.
    pub fn create(name: &str) -> Result<Self> {
        let path = Self::path_of(name);
        fs::create_dir_all(NETNS_DIR).map_err(|e| Error::system("create directory", NETNS_DIR, e))?;
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&path)
            .map_err(|e| Error::system("create namespace file", path.display().to_string(), e))?;
        // The new thread leaves the caller's namespace, pins its own by a mount and ends.
        let made = thread::scope(|scope| {
            let pin = || -> nix::Result<()> {
                unshare(CloneFlags::CLONE_NEWNET)?;
                let none: Option<&str> = None;
                mount(Some("/proc/thread-self/ns/net"), &path, none, MsFlags::MS_BIND, none)
            };
            join(scope.spawn(pin))
        });
        if let Err(errno) = made {
            // Best effort: the empty file is of no use to anyone.
            let _ = fs::remove_file(&path);
            return Err(Error::system("create network namespace (needs root)", name, errno));
        }
        Self::open(name)
    }

    /// Opens a namespace that exists under `/run/netns`.
    pub fn open(name: &str) -> Result<Self> {
        let path = Self::path_of(name);
        let file = File::open(&path)
            .map_err(|e| Error::system("open network namespace", path.display().to_string(), e))?;
        Ok(Self { shared: Arc::new(Shared { name: name.into(), file, runtime: OnceLock::new() }) })
    }

    /// Unmounts and deletes `/run/netns/<name>`; absent is fine. The namespace itself goes with its last user.
    pub fn remove(name: &str) -> Result<()> {
        let path = Self::path_of(name);
        match umount2(&path, MntFlags::MNT_DETACH) {
            // EINVAL: the file is there, but nothing is mounted on it.
            Ok(()) | Err(nix::Error::EINVAL | nix::Error::ENOENT) => {}
            Err(errno) => {
                return Err(Error::system("unmount network namespace", path.display().to_string(), errno));
            }
        }
        match fs::remove_file(&path) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => {
                Err(Error::system("delete network namespace", path.display().to_string(), e))
            }
            _ => Ok(()),
        }
    }

    /// Path of a namespace of that name.
    pub fn path_of(name: &str) -> PathBuf {
        Path::new(NETNS_DIR).join(name)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.shared.name
    }

    /// Its path, for `nsenter --net=PATH`.
    pub fn path(&self) -> PathBuf {
        Self::path_of(self.name())
    }

    /// Device and inode: what tells namespaces apart, as in `/proc/PID/ns/net`.
    pub fn id(&self) -> Result<(u64, u64)> {
        let meta = self
            .shared
            .file
            .metadata()
            .map_err(|e| Error::system("stat network namespace", self.name(), e))?;
        Ok((meta.dev(), meta.ino()))
    }

    /// Moves the calling thread into the namespace, for good.
    pub fn enter(&self) -> Result<()> {
        setns(&self.shared.file, CloneFlags::CLONE_NEWNET)
            .map_err(|errno| Error::system("enter network namespace", self.name(), errno))
    }

    /// Runs `f` on a thread that has entered the namespace, and waits for it. Sockets opened there belong to the
    /// namespace for as long as they live, wherever they are used. A panic in `f` goes on in the caller.
    pub fn run<T: Send>(&self, f: impl FnOnce() -> T + Send) -> Result<T> {
        thread::scope(|scope| {
            join(scope.spawn(|| {
                self.enter()?;
                Ok(f())
            }))
        })
    }

    /// Like [`Netns::run`], for an async function: it runs to its end on a runtime of its own inside the namespace.
    pub fn block_on<T: Send>(&self, f: impl AsyncFnOnce() -> T + Send) -> Result<T> {
        self.run(|| {
            let runtime = runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .map_err(|e| Error::system("start runtime in network namespace", self.name(), e))?;
            Ok(runtime.block_on(f()))
        })?
    }

    /// Spawns a future on the namespace's own background thread, started on first use. Everything it opens is inside.
    pub fn spawn<F>(&self, future: F) -> Result<JoinHandle<F::Output>>
    where
        F: Future<Output: Send + 'static> + Send + 'static,
    {
        if let Some(background) = self.shared.runtime.get() {
            return Ok(background.handle.spawn(future));
        }
        let background = self.start_background()?;
        // A second thread may have won the race; the loser's runtime stops when its sender is dropped here.
        Ok(self.shared.runtime.get_or_init(|| background).handle.spawn(future))
    }

    fn start_background(&self) -> Result<Background> {
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let failed = |e: io::Error| Error::system("start runtime in network namespace", self.name(), e);
        let for_blocking = self.shared.file.try_clone().map_err(failed)?;
        let own = self.shared.file.try_clone().map_err(failed)?;
        let runtime = runtime::Builder::new_current_thread()
            .enable_all()
            // Threads for blocking work are started by whoever asks first, which may be outside.
            .on_thread_start(move || {
                if let Err(errno) = setns(&for_blocking, CloneFlags::CLONE_NEWNET) {
                    tracing::error!(%errno, "blocking thread could not enter its network namespace");
                }
            })
            .build()
            .map_err(failed)?;
        let handle = runtime.handle().clone();
        let (entered, has_entered) = std::sync::mpsc::channel();
        thread::Builder::new()
            .name(format!("netns {}", self.name()))
            .spawn(move || {
                let result = setns(&own, CloneFlags::CLONE_NEWNET);
                let inside = result.is_ok();
                // The starter waits for this; should it be gone, there is nobody to tell.
                let _ = entered.send(result);
                if inside {
                    let _ = runtime.block_on(stopped);
                }
                runtime.shutdown_background();
            })
            .map_err(failed)?;
        match has_entered.recv() {
            Ok(Ok(())) => Ok(Background { handle, _stop: stop }),
            Ok(Err(errno)) => Err(failed(errno.into())),
            Err(_) => Err(failed(io::ErrorKind::BrokenPipe.into())),
        }
    }

    /// A command that will run inside the namespace, and in no other new namespace.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        let shared = Arc::clone(&self.shared);
        // SAFETY: between fork and exec only setns(2) is called, which is async-signal-safe; it allocates nothing, and the
        // descriptor stays open as long as the closure, which owns `shared`.
        unsafe {
            command.pre_exec(move || setns(&shared.file, CloneFlags::CLONE_NEWNET).map_err(io::Error::from));
        }
        command
    }

    /// Descriptor number, for netlink attributes that name a namespace; valid while this handle lives.
    pub(crate) fn raw_fd(&self) -> i32 {
        self.shared.file.as_raw_fd()
    }
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.shared.file.as_fd()
    }
}

fn join<T>(thread: thread::ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Mounts a BPF file system of its own on `path`, which is created.
pub(crate) fn mount_bpffs(path: &Path) -> Result<()> {
    fs::create_dir_all(path).map_err(|e| Error::system("create directory", path.display().to_string(), e))?;
    let none: Option<&str> = None;
    mount(Some("bpf"), path, Some("bpf"), MsFlags::empty(), none)
        .map_err(|errno| Error::system("mount BPF file system on", path.display().to_string(), errno))
}

/// Unmounts whatever is mounted on `path`; nothing mounted is fine.
pub(crate) fn unmount(path: &Path) -> Result<()> {
    match umount2(path, MntFlags::MNT_DETACH) {
        Ok(()) | Err(nix::Error::EINVAL | nix::Error::ENOENT) => Ok(()),
        Err(errno) => Err(Error::system("unmount", path.display().to_string(), errno)),
    }
}
