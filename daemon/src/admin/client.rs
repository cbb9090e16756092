//! The command line's half: asks a daemon over its socket, and says what to do when that fails.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use super::Answer;
use crate::status::NodeStatus;

/// Longest time for one request, the server's own limit included.
const WITHIN: Duration = Duration::from_secs(35);

/// Why a daemon did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ClientError {
    /// Nobody answers on the socket.
    #[error(
        "ask the daemon on {}: {cause}; start `weir gateway`, or name its socket with --admin or --config",
        socket.display()
    )]
    Unreachable {
        /// The socket.
        socket: PathBuf,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// The caller may not use the socket.
    #[error("ask the daemon on {}: {cause}; run this as root or as a member of the socket's group", socket.display())]
    Forbidden {
        /// The socket.
        socket: PathBuf,
        /// The kernel's answer.
        cause: io::Error,
    },
    /// It answers, but not in time or not as this protocol says.
    #[error("ask the daemon on {}: {cause}; see its log, and whether it is of this version ({})", socket.display(), crate::status::VERSION)]
    Broken {
        /// The socket.
        socket: PathBuf,
        /// What went wrong.
        cause: String,
    },
    /// The daemon refuses.
    #[error("the daemon on {} refuses: {message}", socket.display())]
    Refused {
        /// The socket.
        socket: PathBuf,
        /// Its words.
        message: String,
    },
}

impl ClientError {
    /// The daemon did not answer at all.
    pub const fn unreachable(&self) -> bool {
        !matches!(self, Self::Refused { .. })
    }
}

/// Talks to the daemon on one socket.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
}

impl Client {
    /// A client of the daemon on this socket; nothing is opened yet.
    pub fn new(socket: &Path) -> Self {
        Self { socket: socket.into() }
    }

    /// What the daemon says of itself.
    pub async fn status(&self) -> Result<NodeStatus, ClientError> {
        self.ask(Method::GET, "/v1/status").await
    }

    /// Tells the daemon to leave for good; it does so after it has answered.
    pub async fn drain(&self) -> Result<String, ClientError> {
        self.ask::<Answer>(Method::POST, "/v1/drain").await.map(|answer| answer.message)
    }

    /// Tells the daemon to read its configuration and objects again.
    pub async fn reload(&self) -> Result<String, ClientError> {
        self.ask::<Answer>(Method::POST, "/v1/reload").await.map(|answer| answer.message)
    }

    fn broken(&self, cause: impl std::fmt::Display) -> ClientError {
        ClientError::Broken { socket: self.socket.clone(), cause: cause.to_string() }
    }

    async fn ask<T: DeserializeOwned>(&self, method: Method, path: &str) -> Result<T, ClientError> {
        let stream = UnixStream::connect(&self.socket).await.map_err(|cause| {
            let socket = self.socket.clone();
            if cause.kind() == io::ErrorKind::PermissionDenied {
                ClientError::Forbidden { socket, cause }
            } else {
                ClientError::Unreachable { socket, cause }
            }
        })?;
        let (status, body) = match tokio::time::timeout(WITHIN, exchange(stream, method, path)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => return Err(self.broken(error)),
            Err(_) => return Err(self.broken(format!("no answer within {} seconds", WITHIN.as_secs()))),
        };
        if status.is_success() {
            return serde_json::from_slice(&body).map_err(|e| self.broken(format!("unexpected answer: {e}")));
        }
        match serde_json::from_slice::<Answer>(&body) {
            Ok(Answer { message }) => Err(ClientError::Refused { socket: self.socket.clone(), message }),
            Err(_) => Err(self.broken(format!("answer {status}"))),
        }
    }
}

async fn exchange(stream: UnixStream, method: Method, path: &str) -> hyper::Result<(StatusCode, Bytes)> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // The connection ends with its only request; an error of it is an error of the request, too.
    tokio::spawn(connection);
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.method_mut() = method;
    // Both are constants of this module; a path that does not parse asks for the root and is refused.
    *request.uri_mut() = path.parse().unwrap_or_default();
    request.headers_mut().insert(header::HOST, header::HeaderValue::from_static("weir"));
    let response = sender.send_request(request).await?;
    let status = response.status();
    Ok((status, response.into_body().collect().await?.to_bytes()))
}
