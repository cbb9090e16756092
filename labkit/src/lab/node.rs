//! One node of a running lab: who it is, its commands, processes and files.

use std::ffi::OsStr;
use std::net::IpAddr;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Output, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;

use super::Inner;
use crate::configure;
use crate::error::{CommandError, Error, Result};
use crate::netns::Netns;
use crate::process::{ProcessHandle, command_line};
use crate::topology::{Node, Process, Topology};

/// Longest time a command may take when it is not given another.
const COMMAND_WITHIN: Duration = Duration::from_mins(1);

/// A node of a running lab. Clones mean the same node.
#[derive(Clone, Debug)]
pub struct NodeHandle {
    lab: Arc<Inner>,
    name: String,
}

impl NodeHandle {
    pub(super) fn new(lab: &Arc<Inner>, name: &str) -> Result<Self> {
        match lab.nodes.get_key_value(name) {
            Some((name, _)) => Ok(Self { lab: Arc::clone(lab), name: name.clone() }),
            None => {
                let known = lab.nodes.keys().cloned().collect();
                Err(Error::Unknown { kind: "node", name: name.into(), known })
            }
        }
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// Its network namespace.
    pub fn netns(&self) -> &Netns {
        &self.lab.nodes[&self.name].ns
    }
    /// Its own directory; commands and processes start there.
    pub fn dir(&self) -> &Path {
        &self.lab.nodes[&self.name].dir
    }
    /// A directory of its own in the lab's BPF file system, made on first use.
    pub fn bpffs(&self) -> Result<PathBuf> {
        let path = crate::state::bpffs_of(&self.lab.dir.path).join(&self.name);
        std::fs::create_dir_all(&path)
            .map_err(|e| Error::system("create directory", path.display().to_string(), e))?;
        Ok(path)
    }
    /// The whole topology it is part of.
    pub fn topology(&self) -> &Topology {
        &self.lab.record.topology
    }
    /// What the topology says of it.
    pub fn spec(&self) -> Option<&Node> {
        self.topology().node(&self.name)
    }
    /// The MAC address of one of its interfaces, as the topology gives it.
    pub fn mac(&self, interface: &str) -> Option<[u8; 6]> {
        self.topology().mac(&self.name, interface)
    }
    /// The first address of one of its interfaces in the topology.
    pub fn address(&self, interface: &str) -> Option<IpAddr> {
        self.topology().address(&self.name, interface)
    }

    /// A command that will run in the node, in its directory. Its environment names lab and node.
    pub fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = self.netns().command(program);
        command
            .current_dir(self.dir())
            .env("LABKIT_LAB", &self.lab.record.lab)
            .env("LABKIT_NODE", &self.name);
        command
    }

    /// Runs a command to its end, whatever its exit status; at most a minute.
    pub fn exec<A: AsRef<OsStr>>(&self, argv: impl IntoIterator<Item = A>) -> Result<Output> {
        self.exec_within(COMMAND_WITHIN, argv)
    }

    /// Runs a command to its end; it is killed after `within`, which is an error.
    pub fn exec_within<A: AsRef<OsStr>>(
        &self,
        within: Duration,
        argv: impl IntoIterator<Item = A>,
    ) -> Result<Output> {
        let command = self.prepare(argv);
        let line = command_line(&command);
        self.capture(command, &line, within)
    }

    /// Runs a command that must succeed, and returns its standard output.
    ///
    /// # Errors
    /// Holds the command line, its status and all of its output.
    pub fn run<A: AsRef<OsStr>>(&self, argv: impl IntoIterator<Item = A>) -> Result<String> {
        let command = self.prepare(argv);
        let line = command_line(&command);
        let output = self.capture(command, &line, COMMAND_WITHIN)?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            Err(self.failed(&line, output.status.to_string(), output.stdout, output.stderr))
        }
    }

    /// Runs a shell script that must succeed, and returns its standard output.
    ///
    /// # Errors
    /// As [`NodeHandle::run`]; the script stops at the first command that fails.
    pub fn sh(&self, script: &str) -> Result<String> {
        self.run(["sh", "-ec", script])
    }

    fn prepare<A: AsRef<OsStr>>(&self, argv: impl IntoIterator<Item = A>) -> Command {
        let mut argv = argv.into_iter();
        // An empty command line fails when it is run, and says so.
        let mut command = argv.next().map_or_else(|| self.command(""), |program| self.command(program));
        command.args(argv);
        command
    }

    fn failed(&self, line: &str, status: String, stdout: Vec<u8>, stderr: Vec<u8>) -> Error {
        let node = self.name.clone();
        Box::new(CommandError { node, command: line.into(), status, stdout, stderr }).into()
    }

    fn capture(&self, mut command: Command, line: &str, within: Duration) -> Result<Output> {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let not_run =
            |e: std::io::Error| self.failed(line, format!("could not run: {e}"), Vec::new(), Vec::new());
        let child = command.spawn().map_err(not_run)?;
        let group = Pid::from_raw(child.id() as i32);
        let (done, outcome) = channel();
        thread::scope(|scope| {
            // The receiver outlives this thread, so the send cannot fail.
            scope.spawn(move || done.send(child.wait_with_output()));
            match outcome.recv_timeout(within) {
                Ok(output) => output.map_err(not_run),
                Err(RecvTimeoutError::Disconnected) => Err(not_run(std::io::ErrorKind::BrokenPipe.into())),
                Err(RecvTimeoutError::Timeout) => {
                    // Its group has not been waited for: `outcome` says so.
                    let _ = killpg(group, Signal::SIGKILL);
                    let output = outcome.recv().ok().and_then(std::io::Result::ok);
                    let (stdout, stderr) = output.map(|o| (o.stdout, o.stderr)).unwrap_or_default();
                    Err(self.failed(line, format!("killed: it ran longer than {within:?}"), stdout, stderr))
                }
            }
        })
    }

    /// Starts a program in the background. A name used before continues the same log.
    pub fn spawn(&self, process: &Process) -> Result<ProcessHandle> {
        let mut command = self.prepare(&process.command);
        command.envs(&process.env);
        self.spawn_command(&process.name, command)
    }

    /// Starts a prepared [`NodeHandle::command`] in the background, under a name.
    pub fn spawn_command(&self, name: &str, command: Command) -> Result<ProcessHandle> {
        let log = crate::state::logs_of(&self.lab.dir.path).join(format!("{}-{name}.log", self.name));
        let process =
            ProcessHandle::start(format!("{}/{name}", self.name), command, log, self.lab.logging())?;
        self.lab.processes().push(process.clone());
        Ok(process)
    }

    /// The process last started in this node under a name.
    pub fn process(&self, name: &str) -> Result<ProcessHandle> {
        let label = format!("{}/{name}", self.name);
        let processes = self.lab.processes();
        processes.iter().rev().find(|process| process.label() == label).cloned().ok_or_else(|| {
            Error::Unknown {
                kind: "process",
                name: label,
                known: processes.iter().map(|process| process.label().to_owned()).collect(),
            }
        })
    }

    /// Writes a file in the node's directory (or anywhere, with an absolute path).
    pub fn write_file(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> Result<PathBuf> {
        let path = self.dir().join(path);
        configure::write_file(&path, content.as_ref())?;
        Ok(path)
    }

    /// Writes a file beside its place and renames it there, so that a reader sees the old or the new one, whole.
    pub fn replace_file(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) -> Result<PathBuf> {
        let path = self.dir().join(path);
        let mut beside = path.clone().into_os_string();
        beside.push(".labkit-new");
        configure::write_file(Path::new(&beside), content.as_ref())?;
        std::fs::rename(&beside, &path)
            .map_err(|e| Error::system("replace", path.display().to_string(), e))?;
        Ok(path)
    }

    /// Reads a file of the node's directory.
    pub fn read_file(&self, path: impl AsRef<Path>) -> Result<String> {
        let path = self.dir().join(path);
        std::fs::read_to_string(&path).map_err(|e| Error::system("read", path.display().to_string(), e))
    }

    /// Removes a file of the node's directory.
    pub fn remove_file(&self, path: impl AsRef<Path>) -> Result<()> {
        let path = self.dir().join(path);
        std::fs::remove_file(&path).map_err(|e| Error::system("delete", path.display().to_string(), e))
    }

    /// Pings an address once, and tells whether the answer came within a second.
    pub fn ping(&self, to: IpAddr) -> Result<ExitStatus> {
        Ok(self.exec(["ping", "-n", "-c1", "-W1", &to.to_string()])?.status)
    }
}
