//! Kernel settings that the data plane needs: set at start, verified for as long as the gateway runs.

use std::fs;
use std::path::PathBuf;

/// A setting that does not hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unset {
    pub(super) interface: String,
    pub(super) reason: String,
}

/// `bpf_fib_lookup` needs forwarding on the interface a packet comes in on. Never `all`: the kernel itself must not route
/// internet packets to SIDs.
fn forwarding(interface: &str) -> PathBuf {
    // Dots in an interface's name stand as they are in this path.
    PathBuf::from(format!("/proc/sys/net/ipv6/conf/{interface}/forwarding"))
}

/// Turns forwarding on for each interface on which it is off, and tells where it stays off.
pub(super) fn ensure<'a>(interfaces: impl Iterator<Item = &'a str>) -> Vec<Unset> {
    interfaces.filter_map(|interface| ensure_one(interface).err()).collect()
}

fn ensure_one(interface: &str) -> Result<(), Unset> {
    let path = forwarding(interface);
    let unset = |reason: String| Unset { interface: interface.into(), reason };
    let on = || fs::read_to_string(&path).map(|value| value.trim() == "1");
    match on() {
        Ok(true) => return Ok(()),
        Ok(false) => {}
        Err(error) => return Err(unset(format!("{} cannot be read: {error}", path.display()))),
    }
    let written = fs::write(&path, "1");
    match (written, on()) {
        (_, Ok(true)) => {
            tracing::info!(interface, "IPv6 forwarding turned on");
            Ok(())
        }
        (Err(error), _) => Err(unset(format!("{} cannot be written: {error}", path.display()))),
        _ => Err(unset(format!("{} does not keep what is written", path.display()))),
    }
}

/// IPv4 replies that come encapsulated need the same on the fabric's interfaces. There the setting makes the kernel route what
/// comes in as plain IPv4, too, so never on an uplink. Without IPv4 in the kernel there is nothing to route.
pub(super) fn ensure_ipv4<'a>(interfaces: impl Iterator<Item = &'a str>) {
    for interface in interfaces {
        let path = PathBuf::from(format!("/proc/sys/net/ipv4/conf/{interface}/forwarding"));
        let off = fs::read_to_string(&path).is_ok_and(|value| value.trim() == "0");
        if !off {
            continue;
        }
        match fs::write(&path, "1") {
            Ok(()) => tracing::info!(interface, "IPv4 forwarding turned on"),
            Err(error) => {
                tracing::warn!(interface, %error, "IPv4 forwarding cannot be turned on: IPv4 replies find no route");
            }
        }
    }
}
