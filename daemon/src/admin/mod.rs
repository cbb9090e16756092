//! The gateway's administrative interface: HTTP over a Unix socket, its server in the daemon and its client in the CLI.
//!
//! | request | answer |
//! | --- | --- |
//! | `GET /v1/status` | 200 [`NodeStatus`](crate::status::NodeStatus) |
//! | `POST /v1/drain` | 202 [`Answer`]: the gateway has begun to leave for good |
//! | `POST /v1/reload` | 200 [`Answer`]: configuration and objects were read again; 422 when they are refused |
//!
//! Whoever may write to the socket may do all of it: mode 0660, so owner and group.

mod client;
mod server;
#[cfg(test)]
mod tests;

use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;

pub use client::{Client, ClientError};
pub use server::{AdminError, Server};

/// Where the socket is unless the configuration says otherwise.
pub const DEFAULT_SOCKET: &str = "/run/weir/gateway.sock";

/// What an operator asks the daemon to do. The daemon answers `Ok` or `Err` with a sentence for people.
#[derive(Debug)]
pub enum AdminCommand {
    /// Leave for good. Answered at once; progress is in the status.
    Drain(oneshot::Sender<Result<String, String>>),
    /// Read configuration and objects again. Answered when it is done.
    Reload(oneshot::Sender<Result<String, String>>),
}

/// Body of the answer to a command, and of every refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// One sentence.
    pub message: String,
}
