//! What a monitoring system reads over HTTP: `/metrics`, `/readyz` and `/healthz`.
//!
//! | request | answer |
//! | --- | --- |
//! | `GET /metrics` | Prometheus text, or OpenMetrics text when `Accept` asks for it; counters are read at that moment |
//! | `GET /readyz` | 200 `ready`, or 503 with one reason a line |
//! | `GET /healthz` | 200 while the process answers |

mod scrape;
#[cfg(test)]
mod tests;

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use futures_util::FutureExt as _;
use tokio::net::TcpListener;
use tokio::sync::watch;

pub use scrape::{Format, Scrape, text};

use crate::inspect::Counters;
use crate::status::NodeStatus;

/// How long requests may take once the server is told to stop.
const PATIENCE: Duration = Duration::from_secs(1);

/// Why the address could not be served.
#[derive(Debug, thiserror::Error)]
#[error("serve metrics on {address}: {source}; set `metrics` to a free address of this node")]
pub struct BindError {
    /// The configured address.
    pub address: SocketAddr,
    /// The kernel's answer.
    pub source: io::Error,
}

/// Where the figures come from.
#[derive(Clone)]
pub struct Sources {
    /// What the daemon says of itself.
    pub status: watch::Receiver<Arc<NodeStatus>>,
    /// Counters of the data plane.
    pub counters: Arc<dyn Counters>,
    /// When the data plane last got a heartbeat; `None` before the first.
    pub heartbeat: Arc<dyn Fn() -> Option<Instant> + Send + Sync>,
}

/// Listens on an address.
pub async fn bind(address: SocketAddr) -> Result<TcpListener, BindError> {
    TcpListener::bind(address).await.map_err(|source| BindError { address, source })
}

/// Answers requests until `stop` is done; whoever is slow then is left after a second.
pub async fn serve(
    listener: TcpListener,
    sources: Sources,
    stop: impl Future<Output = ()> + Send + 'static,
) -> io::Result<()> {
    let router = Router::new()
        .route("/metrics", get(metrics))
        .route("/readyz", get(readyz))
        .route("/healthz", get(async || "ok\n"))
        .with_state(sources);
    let stop = stop.shared();
    tokio::select! {
        served = axum::serve(listener, router).with_graceful_shutdown(stop.clone()) => served,
        () = async { stop.await; tokio::time::sleep(PATIENCE).await } => Ok(()),
    }
}

async fn readyz(State(sources): State<Sources>) -> (StatusCode, String) {
    let status = Arc::clone(&sources.status.borrow());
    if status.ready {
        return (StatusCode::OK, "ready\n".into());
    }
    let lines =
        std::iter::once("not ready".to_string()).chain(status.reasons.iter().map(ToString::to_string));
    (StatusCode::SERVICE_UNAVAILABLE, lines.collect::<Vec<_>>().join("\n") + "\n")
}

async fn metrics(State(sources): State<Sources>, headers: HeaderMap) -> Response {
    let format = match headers.get(header::ACCEPT).and_then(|accept| accept.to_str().ok()) {
        Some(accept) if accept.contains("application/openmetrics-text") => Format::OpenMetrics,
        _ => Format::Prometheus,
    };
    let status = Arc::clone(&sources.status.borrow());
    let heartbeat_age = (sources.heartbeat)().map(|beat| beat.elapsed());
    let counters = Arc::clone(&sources.counters);
    // Thousands of system calls: not on a thread that others wait for.
    let image = tokio::task::spawn_blocking(move || counters.image()).await;
    let image = match image {
        Ok(Ok(image)) => Some(image),
        Ok(Err(error)) => {
            tracing::warn!(%error, "counters cannot be read");
            None
        }
        Err(error) => {
            tracing::error!(%error, "reading counters failed");
            None
        }
    };
    match text(Scrape { status, image, heartbeat_age }, format) {
        Ok(text) => ([(header::CONTENT_TYPE, format.content_type())], text).into_response(),
        Err(error) => {
            (StatusCode::INTERNAL_SERVER_ERROR, format!("write metrics: {error}\n")).into_response()
        }
    }
}
