//! One CPU for the measuring thread, and nobody else on it where that is allowed.

use std::process::Command;

use anyhow::Context as _;
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::unistd::{Pid, gettid};

/// Pins the calling thread to the last CPU it may use, with a real-time priority if the system gives one. Says what it did.
///
/// # Errors
/// When the thread cannot be pinned.
pub fn claim() -> anyhow::Result<String> {
    let this = Pid::from_raw(0);
    let allowed = sched_getaffinity(this).context("ask for the CPUs of this thread")?;
    let cpu = (0..CpuSet::count()).rev().find(|&cpu| allowed.is_set(cpu).unwrap_or(false)).unwrap_or(0);
    let mut only = CpuSet::new();
    only.set(cpu).context("choose a CPU")?;
    sched_setaffinity(this, &only).with_context(|| format!("pin this thread to CPU {cpu}"))?;
    // chrt, since the system call has no safe wrapper.
    let asked = Command::new("chrt").args(["--fifo", "--pid", "50"]).arg(gettid().to_string()).output();
    let fifo = asked.is_ok_and(|output| output.status.success());
    Ok(format!("CPU {cpu}, {}", if fifo { "SCHED_FIFO" } else { "ordinary priority (SCHED_FIFO refused)" }))
}
