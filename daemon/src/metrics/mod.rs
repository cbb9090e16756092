//! Placeholder until the metrics server is merged.
#[allow(missing_docs)]
pub async fn serve(
    _a: std::net::SocketAddr,
    _s: tokio::sync::watch::Receiver<std::sync::Arc<crate::status::NodeStatus>>,
    _d: &std::path::Path,
    stop: tokio_util::sync::CancellationToken,
) -> std::io::Result<tokio::task::JoinHandle<()>> {
    Ok(tokio::spawn(async move { stop.cancelled().await }))
}
