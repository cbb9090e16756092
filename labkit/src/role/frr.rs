//! FRR in a node: its daemons as background processes with sockets of their own, configured and asked through `vtysh`.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::unistd::{Group, User, chown};
use serde_json::Value;

use crate::error::{Error, Result};
use crate::lab::NodeHandle;
use crate::process::ProcessHandle;
use crate::topology::{FrrDaemon, FrrRole};
use crate::wait::{self, check};

/// Directories that hold FRR's daemons on Debian, Fedora and Nix.
const DAEMON_DIRS: [&str; 3] = ["/usr/lib/frr", "/usr/libexec/frr", "/run/current-system/sw/libexec/frr"];
/// Names that FRR's own packages give.
const USER: &str = "frr";
const VTY_GROUP: &str = "frrvty";
/// Longest wait for a daemon to answer.
const READY_WITHIN: Duration = Duration::from_secs(20);

/// A node's FRR. Made from any node whose role it is.
#[derive(Clone, Debug)]
pub struct Frr {
    node: NodeHandle,
}

/// Starts a node's daemons, loads its configuration, and waits until each answers.
pub(crate) fn start(node: &NodeHandle, role: &FrrRole) -> Result<()> {
    let frr = Frr::of(node);
    let dir = frr.dir();
    let failed = |e: std::io::Error| Error::system("prepare directory of FRR", dir.display().to_string(), e);
    fs::create_dir_all(&dir).map_err(failed)?;
    let config = dir.join("frr.conf");
    fs::write(&config, &role.config).map_err(failed)?;
    // Each daemon begins without configuration; all of it comes through vtysh, which tells every daemon its part.
    fs::write(dir.join("empty.conf"), "").map_err(failed)?;
    fs::write(dir.join("vtysh.conf"), "service integrated-vtysh-config\n").map_err(failed)?;
    let owner = owner()?;
    for path in [dir.clone(), config, dir.join("empty.conf"), dir.join("vtysh.conf")] {
        chown(&path, Some(owner.0), Some(owner.1)).map_err(|e| failed(e.into()))?;
    }
    frr.start_daemon(FrrDaemon::Zebra)?;
    // The others would only try zebra again after seconds if they came first.
    frr.wait_ready(FrrDaemon::Zebra)?;
    let mut daemons = role.daemons.clone();
    daemons.sort();
    daemons.dedup();
    daemons.retain(|daemon| *daemon != FrrDaemon::Zebra);
    for daemon in &daemons {
        frr.start_daemon(*daemon)?;
    }
    for daemon in &daemons {
        frr.wait_ready(*daemon)?;
    }
    frr.load("frr.conf")
}

fn owner() -> Result<(nix::unistd::Uid, nix::unistd::Gid)> {
    let missing = |what: &str| Error::Answer {
        operation: "find",
        object: what.into(),
        problem: "FRR's daemons run as it; install the package frr".into(),
    };
    let user = User::from_name(USER).ok().flatten().ok_or_else(|| missing("user frr"))?;
    let group = Group::from_name(VTY_GROUP).ok().flatten().ok_or_else(|| missing("group frrvty"))?;
    Ok((user.uid, group.gid))
}

fn program(daemon: FrrDaemon) -> Result<PathBuf> {
    let from_environment = std::env::var("LABKIT_FRR_DIR").ok();
    let dirs = from_environment.as_deref().into_iter().chain(DAEMON_DIRS);
    let known: Vec<String> = dirs.map(|dir| format!("{dir}/{}", daemon.program())).collect();
    match known.iter().find(|path| Path::new(path).exists()) {
        Some(path) => Ok(path.into()),
        None => Err(Error::Answer {
            operation: "find FRR daemon",
            object: daemon.program().into(),
            problem: format!(
                "none of {} exists; install the package frr, or set LABKIT_FRR_DIR",
                known.join(", ")
            ),
        }),
    }
}

impl Frr {
    /// The FRR of a node.
    pub fn of(node: &NodeHandle) -> Self {
        Self { node: node.clone() }
    }

    /// Directory with its configuration and sockets; `vtysh --vty_socket DIR` asks it by hand.
    pub fn dir(&self) -> PathBuf {
        self.node.dir().join("frr")
    }

    /// Starts one daemon, as at the lab's start or after it was killed. It has no configuration yet: see [`Frr::load`].
    pub fn start_daemon(&self, daemon: FrrDaemon) -> Result<ProcessHandle> {
        let dir = self.dir();
        let socket = dir.join(format!("{}.vty", daemon.program()));
        // What a killed daemon left would look like an answer.
        match fs::remove_file(&socket) {
            Err(e) if e.kind() != std::io::ErrorKind::NotFound => {
                return Err(Error::system("delete", socket.display().to_string(), e));
            }
            _ => {}
        }
        let mut command = self.node.command(program(daemon)?);
        command
            .args(["--log", "stdout", "--log-level", "info", "-P", "0", "-f"])
            .arg(dir.join("empty.conf"))
            .arg("-i")
            .arg(dir.join(format!("{}.pid", daemon.program())))
            .arg("-z")
            .arg(dir.join("zserv.api"))
            .arg("--vty_socket")
            .arg(&dir);
        self.node.spawn_command(daemon.program(), command)
    }

    /// Waits until a daemon answers on its socket.
    ///
    /// # Errors
    /// The message holds vtysh's answer, or the end of the daemon's log when it has ended.
    pub fn wait_ready(&self, daemon: FrrDaemon) -> Result<()> {
        let process = self.node.process(daemon.program())?;
        let socket = self.dir().join(format!("{}.vty", daemon.program()));
        let what = format!("{} in node {} answers", daemon.program(), self.node.name());
        wait::eventually(&what, READY_WITHIN, || {
            if let Some(status) = process.status() {
                return Err(format!("it ended: {status}\n{}", process.log_tail(20)));
            }
            std::os::unix::net::UnixStream::connect(&socket).map_err(|e| format!("{}: {e}", socket.display()))
        })?;
        Ok(())
    }

    /// Loads a configuration file of [`Frr::dir`] on top of what runs.
    ///
    /// # Errors
    /// Holds what vtysh said of the lines it did not understand.
    pub fn load(&self, file: &str) -> Result<()> {
        let path = self.dir().join(file);
        self.vtysh_args(["-f".as_ref(), path.as_os_str()]).map(drop)
    }

    /// Runs configuration commands, one a line, as after `configure terminal`.
    pub fn configure(&self, lines: &str) -> Result<()> {
        let path = self.dir().join("change.conf");
        fs::write(&path, lines).map_err(|e| Error::system("write", path.display().to_string(), e))?;
        self.load("change.conf")
    }

    /// What `vtysh -c COMMAND` prints.
    pub fn vtysh(&self, command: &str) -> Result<String> {
        self.vtysh_args(["-c".as_ref(), command.as_ref()])
    }

    fn vtysh_args<const N: usize>(&self, args: [&std::ffi::OsStr; N]) -> Result<String> {
        let dir = self.dir();
        let fixed = [
            "vtysh".as_ref(),
            "--vty_socket".as_ref(),
            dir.as_os_str(),
            "--config_dir".as_ref(),
            dir.as_os_str(),
        ];
        self.node.run(fixed.into_iter().chain(args))
    }

    /// The JSON that a `show … json` command prints.
    pub fn json(&self, command: &str) -> Result<Value> {
        let text = self.vtysh(command)?;
        serde_json::from_str(&text).map_err(|e| Error::Answer {
            operation: "read answer of FRR to",
            object: format!("{command:?} in node {}", self.node.name()),
            problem: format!("{e}: {text}"),
        })
    }

    /// The state of a BGP neighbour as FRR names it: `Idle`, `Active`, `Connect`, `OpenSent`, `OpenConfirm`, `Established`.
    pub fn bgp_state(&self, peer: &str) -> Result<String> {
        let answer = self.json(&format!("show bgp neighbors {peer} json"))?;
        let state = answer.get(peer).and_then(|peer| peer.get("bgpState")).and_then(Value::as_str);
        state.map(str::to_owned).ok_or_else(|| Error::Answer {
            operation: "read state of BGP neighbour",
            object: format!("{peer} in node {}", self.node.name()),
            problem: answer.to_string(),
        })
    }

    /// Waits until a BGP session is established.
    pub fn wait_established(&self, peer: &str, within: Duration) -> Result<()> {
        self.wait_bgp_state(peer, "Established", within)
    }

    /// Waits until a BGP neighbour is in a state.
    pub fn wait_bgp_state(&self, peer: &str, state: &str, within: Duration) -> Result<()> {
        wait::eventually(
            &format!("BGP neighbour {peer} of node {} is {state}", self.node.name()),
            within,
            || {
                let is = self.bgp_state(peer).map_err(|e| e.to_string())?;
                check(is == state, || format!("it is {is}"))
            },
        )
    }

    /// The paths that BGP knows to an IPv6 or IPv4 prefix, as FRR prints them; empty when it knows none.
    pub fn bgp_paths(&self, prefix: &str) -> Result<Vec<Value>> {
        let family = if prefix.contains(':') { "ipv6" } else { "ipv4" };
        let answer = self.json(&format!("show bgp {family} unicast {prefix} json"))?;
        Ok(answer.get("paths").and_then(Value::as_array).cloned().unwrap_or_default())
    }

    /// Waits until BGP knows exactly `count` paths to a prefix.
    pub fn wait_bgp_paths(&self, prefix: &str, count: usize, within: Duration) -> Result<Vec<Value>> {
        wait::eventually(
            &format!("{count} BGP paths to {prefix} in node {}", self.node.name()),
            within,
            || {
                let paths = self.bgp_paths(prefix).map_err(|e| e.to_string())?;
                if paths.len() == count { Ok(paths) } else { Err(format!("{} paths", paths.len())) }
            },
        )
    }
}
