//! The gateway's administrative interface: HTTP over a Unix socket, its server in the daemon and its client in the CLI.
//!
//! | request | answer |
//! | --- | --- |
//! | `GET /v1/status` | 200 [`NodeStatus`](crate::status::NodeStatus) |
//! | `POST /v1/drain` | 202 [`Answer`]: the gateway has begun to leave for good |
//! | `GET /v1/drops` | 200, then a [`DropLine`](crate::inspect::DropLine) a line, as JSON, for as long as the client reads |
//! | `POST /v1/capture?`[`CaptureRequest`] | 200, then a pcapng file as frames come; 422 when it is refused |
//! | `POST /v1/reload` | 200 [`Answer`]: configuration and objects were read again; 422 when they are refused |
//!
//! Whoever may write to the socket may do all of it: mode 0660, so owner and group.

mod client;
mod server;
#[cfg(test)]
mod tests;

use std::net::IpAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::sync::{broadcast, mpsc, oneshot};

use crate::inspect::DroppedFrame;

pub use client::{Client, ClientError, Download, Drops};
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
    /// Tell of drops as they happen.
    Drops(oneshot::Sender<Result<broadcast::Receiver<Arc<DroppedFrame>>, String>>),
    /// Capture until the request's end is reached or nobody receives any more. Answered when it has begun, with the parts of
    /// a pcapng file.
    Capture(CaptureRequest, oneshot::Sender<Result<mpsc::Receiver<Vec<u8>>, String>>),
}

/// What is to be captured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaptureRequest {
    /// VIP to which packets go.
    pub vip: IpAddr,
    /// Its port; 0 for all.
    #[serde(default)]
    pub port: u16,
    /// Longest time, seconds.
    pub seconds: u32,
    /// Most frames that come in; 0 for all in the time.
    #[serde(default)]
    pub count: u64,
}

impl CaptureRequest {
    /// Longest time that may be asked for: a day.
    pub const LONGEST: u32 = 86_400;

    /// The request's path and query.
    fn path(&self) -> String {
        let Self { vip, port, seconds, count } = self;
        format!("/v1/capture?vip={vip}&port={port}&seconds={seconds}&count={count}")
    }
}

/// Body of the answer to a command, and of every refusal.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// One sentence.
    pub message: String,
}
