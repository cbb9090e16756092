//! A background process in a node: its own process group, its output in a log with timestamps, signals, waits.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, killpg};
use nix::sys::wait::{Id, WaitPidFlag, waitid};
use nix::unistd::Pid;

use crate::error::{Error, Result};
use crate::wait;

/// Lines of a log that an error shows.
const TAIL: usize = 20;

/// Longest wait for what an ended process has written to be in its log.
const LAST_WORDS: Duration = Duration::from_millis(500);

/// How a process's output gets into its log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Logging {
    /// Through this process, each line with the seconds since `.0`.
    Timestamped(Instant),
    /// Straight into the file, so that the process can outlive this one.
    Direct,
}

/// A process started in a node. Clones share it; dropping the handle leaves the process to the lab.
#[derive(Clone, Debug)]
pub struct ProcessHandle {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    label: String,
    command: String,
    pid: Pid,
    log: PathBuf,
    status: Mutex<Option<ExitStatus>>,
    ended: Condvar,
    /// All of its output is in the log.
    logged: Arc<AtomicBool>,
}

impl ProcessHandle {
    /// Starts a prepared command. `label` is `node/name`.
    pub(crate) fn start(label: String, mut command: Command, log: PathBuf, logging: Logging) -> Result<Self> {
        let line = command_line(&command);
        let failed = |e: io::Error| Error::system("start process", format!("{label} ({line})"), e);
        let file = OpenOptions::new().create(true).append(true).open(&log).map_err(failed)?;
        command.stdin(Stdio::null()).process_group(0);
        let logged = Arc::new(AtomicBool::new(logging == Logging::Direct));
        let child = match logging {
            Logging::Direct => {
                command.stdout(file.try_clone().map_err(failed)?).stderr(file);
                command.spawn().map_err(failed)?
            }
            Logging::Timestamped(epoch) => {
                let (reader, writer) = io::pipe().map_err(failed)?;
                command.stdout(writer.try_clone().map_err(failed)?).stderr(writer);
                let child = command.spawn().map_err(failed)?;
                // The command still holds our writing ends; the log would never see the end of the output.
                drop(command);
                let done = Arc::clone(&logged);
                thread::Builder::new()
                    .name(format!("log {label}"))
                    .spawn(move || {
                        copy_log(reader, file, epoch);
                        done.store(true, Ordering::Release);
                    })
                    .map_err(failed)?;
                child
            }
        };
        let shared = Arc::new(Shared {
            pid: Pid::from_raw(child.id() as i32),
            label,
            command: line,
            log,
            status: Mutex::new(None),
            ended: Condvar::new(),
            logged,
        });
        let for_waiter = Arc::clone(&shared);
        thread::Builder::new()
            .name(format!("wait {}", shared.label))
            .spawn(move || for_waiter.reap(child))
            .map_err(|e| Error::system("watch process", &*shared.label, e))?;
        Ok(Self { shared })
    }

    /// `node/name`.
    pub fn label(&self) -> &str {
        &self.shared.label
    }
    /// The command line it was started with.
    pub fn command(&self) -> &str {
        &self.shared.command
    }
    /// Process id.
    pub fn pid(&self) -> i32 {
        self.shared.pid.as_raw()
    }
    /// Exit status, once it has ended.
    pub fn status(&self) -> Option<ExitStatus> {
        *self.shared.lock()
    }
    /// Whether it has not ended.
    pub fn is_running(&self) -> bool {
        self.status().is_none()
    }

    /// Sends a signal to the process and everything it has started in its group; to an ended one, nothing.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        // The lock keeps the process from being reaped, and its id from being used by another, meanwhile.
        let status = self.shared.lock();
        if status.is_some() {
            return Ok(());
        }
        killpg(self.shared.pid, signal).map_err(|e| Error::system("signal process", &*self.shared.label, e))
    }

    /// SIGKILL, and waits until it is gone.
    pub fn kill(&self) -> Result<ExitStatus> {
        self.signal(Signal::SIGKILL)?;
        self.wait(Duration::from_secs(5))
    }

    /// SIGTERM, and waits at most `within` until it is gone.
    pub fn terminate(&self, within: Duration) -> Result<ExitStatus> {
        self.signal(Signal::SIGTERM)?;
        self.wait(within)
    }

    /// SIGSTOP, and waits until it stands still.
    pub fn pause(&self) -> Result<()> {
        self.signal(Signal::SIGSTOP)?;
        self.wait_for_state(&format!("pause {}", self.label()), |state| state == 'T')
    }

    /// SIGCONT, and waits until it goes on.
    pub fn resume(&self) -> Result<()> {
        self.signal(Signal::SIGCONT)?;
        self.wait_for_state(&format!("resume {}", self.label()), |state| state != 'T')
    }

    fn wait_for_state(&self, what: &str, right: impl Fn(char) -> bool) -> Result<()> {
        let path = format!("/proc/{}/stat", self.pid());
        wait::eventually(what, Duration::from_secs(5), || {
            let text = fs::read_to_string(&path).map_err(|e| format!("{path}: {e}"))?;
            // The name in parentheses may itself hold spaces; the state is the first word behind it.
            let state = text.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next()).unwrap_or('?');
            wait::check(right(state), || format!("its state is {state}"))
        })
    }

    /// Waits until it has ended, and then until its last words are in the log; not long, since something that it has started
    /// may live on and hold its output open.
    ///
    /// # Errors
    /// It still runs after `within`; the message shows the end of its log.
    pub fn wait(&self, within: Duration) -> Result<ExitStatus> {
        let status = self.wait_for_end(within)?;
        let begin = Instant::now();
        while !self.shared.logged.load(Ordering::Acquire) && begin.elapsed() < wait::patiently(LAST_WORDS) {
            thread::sleep(Duration::from_millis(1));
        }
        Ok(status)
    }

    fn wait_for_end(&self, within: Duration) -> Result<ExitStatus> {
        let within = wait::patiently(within);
        let status = self.shared.lock();
        let (status, _) = self
            .shared
            .ended
            .wait_timeout_while(status, within, |status| status.is_none())
            .unwrap_or_else(PoisonError::into_inner);
        status.ok_or_else(|| Error::Timeout {
            what: format!("end of {} ({})", self.label(), self.command()),
            within,
            last: format!("it runs; its log ends:\n{}", self.log_tail(TAIL)),
        })
    }

    /// Path of its log.
    pub fn log_path(&self) -> &Path {
        &self.shared.log
    }
    /// All of its log so far.
    pub fn log(&self) -> String {
        fs::read(&self.shared.log)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }
    /// Its log's last lines.
    pub fn log_tail(&self, lines: usize) -> String {
        let log = self.log();
        let all: Vec<&str> = log.lines().collect();
        all[all.len().saturating_sub(lines)..].join("\n")
    }
    /// Whether a line of its log contains `text`.
    pub fn log_contains(&self, text: &str) -> bool {
        self.log().lines().any(|line| line.contains(text))
    }

    /// Waits until a line of its log contains `text`, and returns that line.
    ///
    /// # Errors
    /// The text did not come in time, or the process ended without it; the message shows the end of its log.
    pub fn wait_for_log(&self, text: &str, within: Duration) -> Result<String> {
        let deadline = Instant::now() + within;
        loop {
            // In this order: what it wrote before it ended must be found.
            let status = self.status();
            let ended = status.is_some() && self.shared.logged.load(Ordering::Acquire);
            let over = ended || Instant::now() >= deadline;
            if let Some(line) = self.log().lines().find(|line| line.contains(text)) {
                return Ok(line.to_owned());
            }
            if over {
                let state = status.map_or("it runs".to_owned(), |status| format!("it ended: {status}"));
                return Err(Error::Timeout {
                    what: format!("{text:?} in the log of {}", self.label()),
                    within,
                    last: format!("{state}; its log ends:\n{}", self.log_tail(TAIL)),
                });
            }
            thread::sleep(wait::INTERVAL);
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Option<ExitStatus>> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the end, then collects the status under the lock.
    fn reap(&self, mut child: Child) {
        while let Err(nix::Error::EINTR) =
            waitid(Id::Pid(self.pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOWAIT)
        {}
        let mut status = self.lock();
        // A status that cannot be had any more is reported as a plain failure.
        *status = Some(child.wait().unwrap_or_else(|_| ExitStatus::from_raw(1 << 8)));
        self.ended.notify_all();
    }
}

fn copy_log(from: impl io::Read, mut to: File, epoch: Instant) {
    let mut reader = BufReader::new(from);
    let mut line = Vec::new();
    loop {
        line.clear();
        match reader.read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        if line.last() != Some(&b'\n') {
            line.push(b'\n');
        }
        let mut stamped = format!("{:11.6} ", epoch.elapsed().as_secs_f64()).into_bytes();
        stamped.extend_from_slice(&line);
        // One write a line, so that a reader sees whole lines. A full disk loses log, not the lab.
        let _ = to.write_all(&stamped);
    }
}

/// A command as a person would type it.
pub(crate) fn command_line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    let quote = |word: &std::ffi::OsStr| {
        let word = word.to_string_lossy();
        let plain = !word.is_empty()
            && word.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_./:=,@%+[]".contains(&b));
        if plain { word.into_owned() } else { format!("'{}'", word.replace('\'', r"'\''")) }
    };
    words.map(quote).collect::<Vec<_>>().join(" ")
}
