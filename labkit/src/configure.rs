//! Puts into a node what its topology asks for: settings, addresses, routes, rules, files, nftables.

use std::fs;
use std::io::Write;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;
use std::process::Stdio;
use std::sync::{Mutex, OnceLock, PoisonError};

use aya::programs::{ProgramFd, Xdp as XdpProgram};

use crate::error::{CommandError, Error, Result};
use crate::ethtool;
use crate::netlink::Netlink;
use crate::netns::Netns;
use crate::topology::{Endpoint, Node, Topology, TxChecksum, Xdp};

/// The pass-through XDP program, compiled by the build script.
static PASS: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/pass.bpf.o"));

/// Sets a kernel setting of the calling thread's namespace by its dotted name.
pub(crate) fn write_sysctl(name: &str, value: &str) -> Result<()> {
    let path = Path::new("/proc/sys").join(name.replace('.', "/"));
    fs::write(&path, value).map_err(|e| Error::system("set", format!("{name} to {value:?}"), e))
}

/// Reads a kernel setting of the calling thread's namespace.
pub(crate) fn read_sysctl(name: &str) -> Result<String> {
    let path = Path::new("/proc/sys").join(name.replace('.', "/"));
    let text = fs::read_to_string(&path).map_err(|e| Error::system("read", name, e))?;
    Ok(text.trim_end().to_owned())
}

/// Readies a node's ends of links, which exist, and sets them up. No address needs the other end yet.
pub(crate) fn set_up_ends(topology: &Topology, node: &Node, ns: &Netns) -> Result<()> {
    let ends: Vec<&Endpoint> = topology.links_of(&node.name).map(|(near, _, _)| near).collect();
    let pass = if ends.iter().any(|end| end.xdp == Xdp::PassThrough) { Some(pass_through()?) } else { None };
    Netlink::with(ns, async |netlink| {
        netlink.set_up("lo").await?;
        for end in &ends {
            if end.tx_checksum == TxChecksum::Software {
                ethtool::tx_checksum_off(&end.interface)?;
            }
            if let (Xdp::PassThrough, Some(pass)) = (end.xdp, pass) {
                netlink.set_xdp(&end.interface, pass.as_fd().as_raw_fd()).await?;
            }
            netlink.set_up(&end.interface).await?;
        }
        Ok(())
    })
}

/// Configures one node once all ends of its links are up. `dir` is its own directory.
pub(crate) fn configure(topology: &Topology, node: &Node, ns: &Netns, dir: &Path) -> Result<()> {
    for (path, content) in &node.files {
        write_file(&dir.join(path), content.as_bytes())?;
    }
    Netlink::with(ns, async |netlink| {
        for (near, _, _) in topology.links_of(&node.name) {
            netlink.wait_operational(&near.interface).await?;
        }
        for (name, value) in &node.sysctls {
            write_sysctl(name, value)?;
        }
        for address in &node.addresses {
            netlink.request_address(&address.interface, address.address).await?;
        }
        let addresses: Vec<IpAddr> = node.addresses.iter().map(|address| address.address.addr()).collect();
        netlink.wait_local(&addresses).await?;
        for rule in &node.rules {
            netlink.add_rule(rule).await?;
        }
        for route in &node.routes {
            netlink.add_route(route).await?;
        }
        Ok(())
    })?;
    node.nftables.as_deref().map_or(Ok(()), |rules| load_nftables(&node.name, ns, rules))
}

/// Writes a file and the directories above it.
pub(crate) fn write_file(path: &Path, content: &[u8]) -> Result<()> {
    let failed = |e| Error::system("write", path.display().to_string(), e);
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(failed)?;
    }
    fs::write(path, content).map_err(failed)
}

/// The pass-through program, loaded once a process. Interfaces hold it by themselves.
fn pass_through() -> Result<&'static ProgramFd> {
    static LOADED: OnceLock<ProgramFd> = OnceLock::new();
    static LOADING: Mutex<()> = Mutex::new(());
    // Nodes are configured side by side: one loads, the others wait for it.
    let _loading = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(fd) = LOADED.get() {
        return Ok(fd);
    }
    let fd = load_pass_through().map_err(|cause| Error::Bpf {
        operation: "load BPF program",
        object: "labkit_pass".into(),
        cause,
    })?;
    Ok(LOADED.get_or_init(|| fd))
}

fn load_pass_through() -> Result<ProgramFd, Box<dyn std::error::Error + Send + Sync>> {
    // Without the kernel's types, which it does not need and which take long to read.
    let mut object = aya::EbpfLoader::new().btf(None).load(PASS)?;
    let program: &mut XdpProgram =
        object.program_mut("labkit_pass").ok_or("not in the object")?.try_into()?;
    program.load()?;
    Ok(program.fd()?.try_clone()?)
}

/// Loads an nftables rule set with the `nft` program.
pub(crate) fn load_nftables(node: &str, ns: &Netns, rules: &str) -> Result<()> {
    let failed = |status: String, stdout, stderr| {
        Error::from(Box::new(CommandError {
            node: node.into(),
            command: "nft -f - (package nftables)".into(),
            status,
            stdout,
            stderr,
        }))
    };
    let not_run = |e: std::io::Error| failed(e.to_string(), Vec::new(), rules.into());
    let mut child = ns
        .command("nft")
        .args(["-f", "-"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(not_run)?;
    if let Some(mut stdin) = child.stdin.take() {
        stdin.write_all(rules.as_bytes()).map_err(not_run)?;
    }
    let output = child.wait_with_output().map_err(not_run)?;
    if output.status.success() {
        Ok(())
    } else {
        Err(failed(output.status.to_string(), output.stdout, output.stderr))
    }
}
