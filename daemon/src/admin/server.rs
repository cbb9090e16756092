//! The daemon's half: a socket that is never taken from a living daemon, and the requests it answers.

use std::future::Future;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::Router;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use futures_util::{FutureExt as _, stream};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{broadcast, mpsc, oneshot, watch};

use super::{AdminCommand, Answer, CaptureRequest};
use crate::inspect::{DropLine, DroppedFrame};
use crate::status::NodeStatus;

/// Longest time for which a request waits for the daemon.
const ANSWER_WITHIN: Duration = Duration::from_secs(30);

/// How long requests may take once the server is told to stop.
const PATIENCE: Duration = Duration::from_secs(1);

/// Why the socket could not be served.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdminError {
    /// Another daemon answers there.
    #[error(
        "listen on {}: another daemon answers there; stop it, or give this one another socket (`admin` in the configuration)",
        socket.display()
    )]
    InUse {
        /// The socket.
        socket: PathBuf,
    },
    /// Something else has that name.
    #[error("listen on {}: it exists and is no socket; remove it, or set `admin` to another path", socket.display())]
    NoSocket {
        /// The path.
        socket: PathBuf,
    },
    /// The file system or the kernel refused.
    #[error("{operation} {}: {source}; check the path given as `admin` and the rights to its directory", path.display())]
    Io {
        /// What was tried.
        operation: &'static str,
        /// On what.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
}

/// A listening socket. Dropping it removes the socket, unless another daemon has put its own there.
#[derive(Debug)]
pub struct Server {
    listener: UnixListener,
    _socket: Bound,
}

#[derive(Debug)]
struct Bound {
    path: PathBuf,
    inode: u64,
}

#[derive(Clone)]
struct Shared {
    status: watch::Receiver<Arc<NodeStatus>>,
    commands: mpsc::Sender<AdminCommand>,
}

impl Server {
    /// Listens on a socket of mode 0660. Its directory is created; a socket on which nobody answers is replaced.
    pub async fn bind(socket: &Path) -> Result<Self, AdminError> {
        let io = |operation, path: &Path| {
            let path = path.to_path_buf();
            move |source| AdminError::Io { operation, path, source }
        };
        let directory = socket.parent().filter(|d| !d.as_os_str().is_empty()).unwrap_or(Path::new("."));
        std::fs::create_dir_all(directory).map_err(io("create the directory", directory))?;
        match std::fs::symlink_metadata(socket) {
            Ok(found) if !found.file_type().is_socket() => {
                return Err(AdminError::NoSocket { socket: socket.into() });
            }
            Ok(_) if UnixStream::connect(socket).await.is_ok() => {
                return Err(AdminError::InUse { socket: socket.into() });
            }
            _ => {}
        }
        // Its mode is right before it has its name, and the old one is replaced without a gap.
        let mut fresh = socket.as_os_str().to_owned();
        fresh.push(format!(".{}", std::process::id()));
        let fresh = PathBuf::from(fresh);
        let _ = std::fs::remove_file(&fresh);
        let listener = UnixListener::bind(&fresh).map_err(io("listen on", &fresh))?;
        let mode = std::fs::Permissions::from_mode(0o660);
        std::fs::set_permissions(&fresh, mode).map_err(io("set the mode of", &fresh))?;
        std::fs::rename(&fresh, socket).map_err(io("put the socket at", socket))?;
        let inode = std::fs::symlink_metadata(socket).map_err(io("look at", socket))?.ino();
        Ok(Self { listener, _socket: Bound { path: socket.into(), inode } })
    }

    /// Answers requests until `stop` is done; answers that have begun get another second.
    pub async fn serve(
        self,
        status: watch::Receiver<Arc<NodeStatus>>,
        commands: mpsc::Sender<AdminCommand>,
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> io::Result<()> {
        let router = Router::new()
            .route("/v1/status", get(show))
            .route("/v1/drain", post(drain))
            .route("/v1/reload", post(reload))
            .route("/v1/drops", get(drops))
            .route("/v1/capture", post(capture))
            .fallback(async || answer(StatusCode::NOT_FOUND, "no such request"))
            .with_state(Shared { status, commands });
        let stop = stop.shared();
        tokio::select! {
            served = axum::serve(self.listener, router).with_graceful_shutdown(stop.clone()) => served,
            () = async { stop.await; tokio::time::sleep(PATIENCE).await } => Ok(()),
        }
    }
}

impl Drop for Bound {
    fn drop(&mut self) {
        if std::fs::symlink_metadata(&self.path).is_ok_and(|now| now.ino() == self.inode) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

fn answer(status: StatusCode, message: impl Into<String>) -> Response {
    (status, Json(Answer { message: message.into() })).into_response()
}

async fn show(State(shared): State<Shared>) -> Json<NodeStatus> {
    let status = Arc::clone(&shared.status.borrow());
    Json(NodeStatus::clone(&status))
}

async fn drain(State(shared): State<Shared>) -> Response {
    ask(&shared, AdminCommand::Drain, StatusCode::ACCEPTED).await
}

async fn reload(State(shared): State<Shared>) -> Response {
    ask(&shared, AdminCommand::Reload, StatusCode::OK).await
}

async fn drops(State(shared): State<Shared>) -> Response {
    let drops = match ask_for(&shared, AdminCommand::Drops).await {
        Ok(drops) => drops,
        Err(refusal) => return refusal,
    };
    let lines = stream::unfold(drops, async |mut drops| {
        let line = match drops.recv().await {
            Ok(dropped) => DropLine::Dropped(DroppedFrame::clone(&dropped)),
            Err(broadcast::error::RecvError::Lagged(missed)) => DropLine::Missed { missed },
            Err(broadcast::error::RecvError::Closed) => return None,
        };
        let text = serde_json::to_string(&line).map(|text| text + "\n").map_err(io::Error::other);
        Some((text, drops))
    });
    ([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response()
}

async fn capture(State(shared): State<Shared>, Query(request): Query<CaptureRequest>) -> Response {
    if !(1..=CaptureRequest::LONGEST).contains(&request.seconds) {
        let text = format!(
            "capture for {} seconds: from 1 to {} are possible",
            request.seconds,
            CaptureRequest::LONGEST
        );
        return answer(StatusCode::UNPROCESSABLE_ENTITY, text);
    }
    let parts = match ask_for(&shared, |reply| AdminCommand::Capture(request, reply)).await {
        Ok(parts) => parts,
        Err(refusal) => return refusal,
    };
    let parts = stream::unfold(parts, async |mut parts: mpsc::Receiver<Vec<u8>>| {
        parts.recv().await.map(|part| (Ok::<_, io::Error>(part), parts))
    });
    ([(header::CONTENT_TYPE, "application/x-pcapng")], Body::from_stream(parts)).into_response()
}

/// Hands a command to the daemon and waits for its answer in words.
async fn ask(
    shared: &Shared,
    command: impl FnOnce(oneshot::Sender<Result<String, String>>) -> AdminCommand,
    done: StatusCode,
) -> Response {
    match ask_for(shared, command).await {
        Ok(message) => answer(done, message),
        Err(refusal) => refusal,
    }
}

/// Hands a command to the daemon and waits for its answer; what it refuses is a response.
async fn ask_for<T>(
    shared: &Shared,
    command: impl FnOnce(oneshot::Sender<Result<T, String>>) -> AdminCommand,
) -> Result<T, Response> {
    let (reply, answered) = oneshot::channel();
    let exchange = async {
        shared.commands.send(command(reply)).await.map_err(drop)?;
        answered.await.map_err(drop)
    };
    let refusal = match tokio::time::timeout(ANSWER_WITHIN, exchange).await {
        Ok(Ok(Ok(done))) => return Ok(done),
        Ok(Ok(Err(message))) => answer(StatusCode::UNPROCESSABLE_ENTITY, message),
        Ok(Err(())) => answer(StatusCode::SERVICE_UNAVAILABLE, "the gateway is stopping"),
        Err(_) => answer(StatusCode::GATEWAY_TIMEOUT, "the gateway is busy and has not answered"),
    };
    Err(refusal)
}
