//! Assertions over time: `eventually`, `steady` and `never`, each with the last mismatch in its message.
//!
//! A condition returns `Ok` with what it found, or `Err` with what it saw instead; that text ends up in the message.

use std::fmt::Display;
use std::time::{Duration, Instant};

use crate::error::{Error, Result};

/// Time between two looks at a condition.
pub const INTERVAL: Duration = Duration::from_millis(10);

/// Names the factor by which every deadline is longer: for machines that are many times slower, such as emulated ones.
pub const PATIENCE_VARIABLE: &str = "LABKIT_PATIENCE";

/// How long to wait on this machine for what takes at most `within` on an ordinary one.
pub fn patiently(within: Duration) -> Duration {
    static FACTOR: std::sync::LazyLock<u32> = std::sync::LazyLock::new(|| {
        std::env::var(PATIENCE_VARIABLE).ok().and_then(|factor| factor.parse().ok()).unwrap_or(1)
    });
    within * *FACTOR
}

/// Turns a comparison into a condition's answer.
pub fn check(holds: bool, otherwise: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(otherwise()) }
}

fn late<E: Display>(what: &str, within: Duration, last: E) -> Error {
    Error::Timeout { what: what.into(), within, last: last.to_string() }
}

fn broke<E: Display>(what: &str, after: Duration, seen: E) -> Error {
    Error::Answer {
        operation: "hold",
        object: what.into(),
        problem: format!("broke after {:.3} s: {seen}", after.as_secs_f64()),
    }
}

/// Waits until the condition holds, and returns what it found. It is looked at once more when the time is up, which
/// [`patiently`] stretches.
///
/// # Errors
/// [`Error::Timeout`] with the last mismatch.
pub fn eventually<T, E: Display>(
    what: &str,
    within: Duration,
    mut condition: impl FnMut() -> Result<T, E>,
) -> Result<T> {
    let within = patiently(within);
    let deadline = Instant::now() + within;
    loop {
        let over = Instant::now() >= deadline;
        match condition() {
            Ok(found) => return Ok(found),
            Err(last) if over => return Err(late(what, within, last)),
            Err(_) => std::thread::sleep(INTERVAL),
        }
    }
}

/// Requires that the condition holds, at every look, for the whole time.
///
/// # Errors
/// The first mismatch, and when it was.
pub fn steady<T, E: Display>(
    what: &str,
    duration: Duration,
    mut condition: impl FnMut() -> Result<T, E>,
) -> Result<()> {
    let start = Instant::now();
    loop {
        let over = start.elapsed() >= duration;
        if let Err(seen) = condition() {
            return Err(broke(what, start.elapsed(), seen));
        }
        if over {
            return Ok(());
        }
        std::thread::sleep(INTERVAL);
    }
}

/// Requires that the condition does not hold at any look for the whole time.
///
/// # Errors
/// When it held, and what was found.
pub fn never<T: std::fmt::Debug, E>(
    what: &str,
    duration: Duration,
    mut condition: impl FnMut() -> Result<T, E>,
) -> Result<()> {
    steady(&format!("never {what}"), duration, || match condition() {
        Ok(found) => Err(format!("it happened: {found:?}")),
        Err(_) => Ok(()),
    })
}

/// [`eventually`] for an async condition.
///
/// # Errors
/// As [`eventually`]; a look that hangs is cut off at the deadline.
pub async fn eventually_async<T, E: Display>(
    what: &str,
    within: Duration,
    mut condition: impl AsyncFnMut() -> Result<T, E>,
) -> Result<T> {
    let within = patiently(within);
    let deadline = tokio::time::Instant::now() + within;
    let mut last = "nothing: the first look did not end".to_owned();
    loop {
        match tokio::time::timeout_at(deadline, condition()).await {
            Ok(Ok(found)) => return Ok(found),
            Ok(Err(seen)) => last = seen.to_string(),
            Err(_) => return Err(late(what, within, last)),
        }
        tokio::time::sleep(INTERVAL).await;
        if tokio::time::Instant::now() >= deadline {
            return Err(late(what, within, last));
        }
    }
}

/// [`steady`] for an async condition.
///
/// # Errors
/// As [`steady`].
pub async fn steady_async<T, E: Display>(
    what: &str,
    duration: Duration,
    mut condition: impl AsyncFnMut() -> Result<T, E>,
) -> Result<()> {
    let start = Instant::now();
    loop {
        let over = start.elapsed() >= duration;
        if let Err(seen) = condition().await {
            return Err(broke(what, start.elapsed(), seen));
        }
        if over {
            return Ok(());
        }
        tokio::time::sleep(INTERVAL).await;
    }
}

/// [`never`] for an async condition.
///
/// # Errors
/// As [`never`].
pub async fn never_async<T: std::fmt::Debug, E>(
    what: &str,
    duration: Duration,
    mut condition: impl AsyncFnMut() -> Result<T, E>,
) -> Result<()> {
    steady_async(&format!("never {what}"), duration, async || match condition().await {
        Ok(found) => Err(format!("it happened: {found:?}")),
        Err(_) => Ok(()),
    })
    .await
}
