//! What the process is told by the kernel and the service manager, and what it tells the latter.

use std::io;
use std::path::Path;

use tokio::signal::unix::{Signal as Stream, SignalKind, signal};
use tracing::{info, warn};

use crate::status::NodeStatus;

/// What a signal asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Signal {
    /// SIGHUP: read again.
    Reload,
    /// SIGTERM or SIGINT: stop.
    Terminate,
}

/// The signals that the gateway listens to.
pub(super) struct Signals {
    hangup: Stream,
    terminate: Stream,
    interrupt: Stream,
}

impl Signals {
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self {
            hangup: signal(SignalKind::hangup())?,
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
        })
    }

    pub(super) async fn next(&mut self) -> Signal {
        tokio::select! {
            _ = self.hangup.recv() => Signal::Reload,
            _ = self.terminate.recv() => Signal::Terminate,
            _ = self.interrupt.recv() => Signal::Terminate,
        }
    }
}

/// Whether a stop is for good: the operator has put the drain marker, or the host is going down.
pub(super) fn leaving_for_good(marker: &Path) -> bool {
    if marker.exists() {
        return true;
    }
    if !Path::new("/run/systemd/system").is_dir() {
        return false;
    }
    let answer = std::process::Command::new("systemctl").arg("is-system-running").output();
    answer.is_ok_and(|output| output.stdout.starts_with(b"stopping"))
}

/// Tells the log and the service manager whether the gateway is ready.
pub(super) fn say_ready(status: &NodeStatus) {
    if status.ready {
        info!("ready");
        sd_notify::notify(false, &[sd_notify::NotifyState::Status("ready")]).ok();
        return;
    }
    for reason in &status.reasons {
        warn!(reason = %reason.id, text = %reason.text, remedy = %reason.remedy, "not ready");
    }
    sd_notify::notify(false, &[sd_notify::NotifyState::Status("not ready; see weir show node")]).ok();
}
