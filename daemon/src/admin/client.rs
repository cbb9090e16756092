//! The command line's half: asks a daemon over its socket, and says what to do when that fails.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;

use super::{Answer, CaptureRequest};
use crate::inspect::DropLine;
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

    /// Drops, from now on.
    pub async fn drops(&self) -> Result<Drops, ClientError> {
        let download = self.download(Method::GET, "/v1/drops").await?;
        Ok(Drops { download, unread: Vec::new() })
    }

    /// Captures frames; the parts of a pcapng file come as the daemon writes them. Dropping the download ends the capture.
    pub async fn capture(&self, request: &CaptureRequest) -> Result<Download, ClientError> {
        self.download(Method::POST, &request.path()).await
    }

    fn broken(&self, cause: impl std::fmt::Display) -> ClientError {
        ClientError::Broken { socket: self.socket.clone(), cause: cause.to_string() }
    }

    async fn connect(&self) -> Result<UnixStream, ClientError> {
        UnixStream::connect(&self.socket).await.map_err(|cause| {
            let socket = self.socket.clone();
            if cause.kind() == io::ErrorKind::PermissionDenied {
                ClientError::Forbidden { socket, cause }
            } else {
                ClientError::Unreachable { socket, cause }
            }
        })
    }

    /// Sends a request and waits for the beginning of its answer.
    async fn send(&self, method: Method, path: &str) -> Result<Response<Incoming>, ClientError> {
        let stream = self.connect().await?;
        match tokio::time::timeout(WITHIN, begin(stream, method, path)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(error)) => Err(self.broken(error)),
            Err(_) => Err(self.broken(format!("no answer within {} seconds", WITHIN.as_secs()))),
        }
    }

    fn refused(&self, status: StatusCode, body: &[u8]) -> ClientError {
        match serde_json::from_slice::<Answer>(body) {
            Ok(Answer { message }) => ClientError::Refused { socket: self.socket.clone(), message },
            Err(_) => self.broken(format!("answer {status}")),
        }
    }

    async fn ask<T: DeserializeOwned>(&self, method: Method, path: &str) -> Result<T, ClientError> {
        let (status, body) = self.send(method, path).await?.into_parts();
        let body = body.collect().await.map_err(|e| self.broken(e))?.to_bytes();
        if status.status.is_success() {
            return serde_json::from_slice(&body).map_err(|e| self.broken(format!("unexpected answer: {e}")));
        }
        Err(self.refused(status.status, &body))
    }

    async fn download(&self, method: Method, path: &str) -> Result<Download, ClientError> {
        let (status, body) = self.send(method, path).await?.into_parts();
        if status.status.is_success() {
            return Ok(Download { client: self.clone(), body });
        }
        let body = body.collect().await.map_err(|e| self.broken(e))?.to_bytes();
        Err(self.refused(status.status, &body))
    }
}

/// An answer that comes in parts for as long as it is read.
#[derive(Debug)]
pub struct Download {
    client: Client,
    body: Incoming,
}

impl Download {
    /// The next part; `None` when the daemon has ended it.
    pub async fn next(&mut self) -> Result<Option<Bytes>, ClientError> {
        while let Some(frame) = self.body.frame().await {
            if let Ok(data) = frame.map_err(|e| self.client.broken(e))?.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }
}

/// Drops as they happen.
#[derive(Debug)]
pub struct Drops {
    download: Download,
    unread: Vec<u8>,
}

impl Drops {
    /// The next line; `None` when the daemon ends.
    pub async fn next(&mut self) -> Result<Option<DropLine>, ClientError> {
        loop {
            if let Some(end) = self.unread.iter().position(|b| *b == b'\n') {
                let line: Vec<u8> = self.unread.drain(..=end).collect();
                let read = serde_json::from_slice(&line);
                return read
                    .map(Some)
                    .map_err(|e| self.download.client.broken(format!("unexpected line: {e}")));
            }
            match self.download.next().await? {
                Some(part) => self.unread.extend_from_slice(&part),
                None => return Ok(None),
            }
        }
    }
}

async fn begin(stream: UnixStream, method: Method, path: &str) -> hyper::Result<Response<Incoming>> {
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    // The connection ends with its only request; an error of it is an error of the request, too.
    tokio::spawn(connection);
    let mut request = Request::new(Empty::<Bytes>::new());
    *request.method_mut() = method;
    // All are made by this module; a path that does not parse asks for the root and is refused.
    *request.uri_mut() = path.parse().unwrap_or_default();
    request.headers_mut().insert(header::HOST, header::HeaderValue::from_static("weir"));
    sender.send_request(request).await
}
