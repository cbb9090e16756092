//! What can go wrong in a lab: operation, object, cause, and what to do where there is something to do.

use std::fmt;
use std::io;
use std::time::Duration;

use crate::topology::TopologyError;

/// Result of a lab operation.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// A failed lab operation. Its debug form is its message, so that `unwrap` in a test shows what happened.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A system call or file operation failed.
    #[error("{operation} {object}: {cause}")]
    System {
        /// What was tried.
        operation: &'static str,
        /// On what.
        object: String,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// A netlink request could not be made, or its answer was not understood.
    #[error("{operation} {object}: {cause}")]
    Netlink {
        /// What was tried.
        operation: &'static str,
        /// On what.
        object: String,
        /// The kernel's answer.
        cause: rtnetlink::Error,
    },
    /// The kernel refused a BPF program.
    #[error("{operation} {object}: {cause}")]
    Bpf {
        /// What was tried.
        operation: &'static str,
        /// On what.
        object: String,
        /// The loader's answer.
        cause: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A topology has mistakes.
    #[error(transparent)]
    Topology(#[from] TopologyError),
    /// A command run in a node failed.
    #[error(transparent)]
    Command(#[from] Box<CommandError>),
    /// A condition did not come true in time.
    #[error("{what}: not within {within:?}; last seen: {last}")]
    Timeout {
        /// What was waited for.
        what: String,
        /// How long.
        within: Duration,
        /// The last mismatch.
        last: String,
    },
    /// Something named does not exist.
    #[error("there is no {kind} {name:?}{}", candidates(known))]
    Unknown {
        /// Kind of thing: node, lab, process …
        kind: &'static str,
        /// Name that was asked for.
        name: String,
        /// Names that exist.
        known: Vec<String>,
    },
    /// A program gave an answer that could not be understood.
    #[error("{operation} {object}: {problem}")]
    Answer {
        /// What was tried.
        operation: &'static str,
        /// On what.
        object: String,
        /// What was wrong with the answer.
        problem: String,
    },
}

fn candidates(known: &[String]) -> String {
    if known.is_empty() { String::new() } else { format!(" (there are: {})", known.join(", ")) }
}

/// A command that could not be run, or that failed.
#[derive(thiserror::Error)]
#[error(
    "node {node}: {command}: {status}\n--- stdout\n{}--- stderr\n{}",
    String::from_utf8_lossy(stdout),
    String::from_utf8_lossy(stderr)
)]
pub struct CommandError {
    /// Node it ran in.
    pub node: String,
    /// The command line.
    pub command: String,
    /// Exit status, signal, or why it could not start.
    pub status: String,
    /// All of its standard output.
    pub stdout: Vec<u8>,
    /// All of its standard error.
    pub stderr: Vec<u8>,
}

impl Error {
    /// A failed system call.
    pub(crate) fn system(
        operation: &'static str,
        object: impl Into<String>,
        cause: impl Into<io::Error>,
    ) -> Self {
        Self::System { operation, object: object.into(), cause: cause.into() }
    }
    /// A failed netlink request.
    pub(crate) fn netlink(
        operation: &'static str,
        object: impl Into<String>,
        cause: rtnetlink::Error,
    ) -> Self {
        match cause {
            // What the kernel refused is an error number like that of any system call.
            rtnetlink::Error::NetlinkError(refusal) => Self::system(operation, object, refusal.to_io()),
            cause => Self::Netlink { operation, object: object.into(), cause },
        }
    }
    /// A failed BPF operation.
    pub(crate) fn bpf(
        operation: &'static str,
        object: impl Into<String>,
        cause: impl std::error::Error + Send + Sync + 'static,
    ) -> Self {
        Self::Bpf { operation, object: object.into(), cause: Box::new(cause) }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Debug for CommandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}
