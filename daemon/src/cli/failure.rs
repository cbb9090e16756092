//! How a command ends: its exit status, and the errors that lead to one.

use std::io;

use crate::admin::ClientError;
use crate::config::ConfigError;
use crate::inspect;

/// Exit status of `weir`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0: fine.
    Fine,
    /// 1: problems were found, or what was asked for was not found.
    Problems,
    /// 2: wrong usage, or something could not be read.
    Usage,
    /// 3: the daemon cannot be reached.
    Unreachable,
}

impl From<Exit> for std::process::ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(match exit {
            Exit::Fine => 0,
            Exit::Problems => 1,
            Exit::Usage => 2,
            Exit::Unreachable => 3,
        })
    }
}

/// Why a command could not do its work.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The configuration is unreadable or refused.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The maps cannot be read.
    #[error(transparent)]
    Maps(#[from] inspect::Error),
    /// The daemon does not do what it is asked.
    #[error(transparent)]
    Daemon(#[from] ClientError),
    /// The data plane refuses.
    #[error(transparent)]
    Dataplane(#[from] crate::dataplane::Error),
    /// A file holds no frames.
    #[error(transparent)]
    Frames(#[from] crate::frame::FileError),
    /// The gateway ended with an error.
    #[error(transparent)]
    Gateway(#[from] crate::run::Error),
    /// Output cannot be written.
    #[error("write the output: {0}")]
    Write(#[from] io::Error),
    /// Values cannot be written in the form asked for.
    #[error("write the output as {form}: {cause}")]
    Form {
        /// `json` or `yaml`.
        form: &'static str,
        /// Why.
        cause: String,
    },
    /// The command line is well-formed but cannot be followed.
    #[error("{0}")]
    Usage(String),
}

impl Failure {
    /// The exit status for it.
    pub const fn exit(&self) -> Exit {
        match self {
            Self::Daemon(error) if error.unreachable() => Exit::Unreachable,
            Self::Gateway(crate::run::Error::Config(_)) => Exit::Usage,
            Self::Daemon(_) | Self::Gateway(_) => Exit::Problems,
            _ => Exit::Usage,
        }
    }
}

/// Runs a request to the daemon on a runtime of its own.
pub(super) fn block_on<T>(future: impl Future<Output = Result<T, ClientError>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(future)?)
}
