//! TCP of one session: dialling with its options set first, a writer that cannot block the session, and closing without
//! losing the last message.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use rustbgpd_wire::BgpCodec;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::codec::FramedRead;

use crate::route::config::PeerConfig;
use crate::route::sockopt;

/// How long a SYN may go unanswered.
const DIAL_TIMEOUT: Duration = Duration::from_secs(5);
/// How long closing waits for the last message to leave, and then for the peer's end of stream.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(1);
/// Messages that may wait for the writer: at most this many times 4096 bytes a peer.
pub(super) const QUEUE: usize = 64;

/// A dial that came to nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum DialError {
    /// A socket option or the source address was refused.
    #[error("{what} for {peer} from {local}: {source}{hint}")]
    Setup { what: &'static str, peer: SocketAddr, local: IpAddr, source: io::Error, hint: &'static str },
    /// The peer or the network said no.
    #[error("dial {peer} from {local}: {source}")]
    Refused { peer: SocketAddr, local: IpAddr, source: io::Error },
    /// No answer.
    #[error("dial {peer} from {local}: no answer within {}s{hint}", DIAL_TIMEOUT.as_secs())]
    Silent { peer: SocketAddr, local: IpAddr, hint: &'static str },
}

/// Connects from the bound source address, with MD5 and GTSM in force from the SYN on.
pub(super) async fn dial(config: Arc<PeerConfig>) -> Result<TcpStream, DialError> {
    let peer = SocketAddr::new(config.address, config.port);
    let local = config.local_address;
    let setup = |what, hint| move |source| DialError::Setup { what, peer, local, source, hint };
    let socket = if peer.is_ipv6() { TcpSocket::new_v6() } else { TcpSocket::new_v4() }
        .map_err(setup("open a socket", ""))?;
    if let Some(key) = &config.password {
        sockopt::set_md5(socket.as_fd(), peer, key)
            .map_err(setup("set the TCP-MD5 key", " (the kernel needs CONFIG_TCP_MD5SIG)"))?;
    }
    if config.gtsm {
        sockopt::set_gtsm(socket.as_fd(), peer).map_err(setup("set GTSM", ""))?;
    }
    socket
        .bind(SocketAddr::new(local, 0))
        .map_err(setup("bind the source address", " (is localAddress on this node?)"))?;
    socket.set_nodelay(true).map_err(setup("set TCP_NODELAY", ""))?;
    match timeout(DIAL_TIMEOUT, socket.connect(peer)).await {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(source)) => Err(DialError::Refused { peer, local, source }),
        Err(_) => {
            let hint = if config.password.is_some() {
                " (a wrong password looks like this: the router drops what is signed otherwise)"
            } else {
                " (a router that expects a password drops what is not signed)"
            };
            Err(DialError::Silent { peer, local, hint })
        }
    }
}

/// How far the writer is.
#[derive(Clone, Debug, Default)]
pub(super) struct Progress {
    /// Messages handed to TCP.
    pub(super) written: u64,
    /// Why it stopped.
    pub(super) failed: Option<String>,
}

/// A connected session's receiving side and its writer task.
#[derive(Debug)]
pub(super) struct Connection {
    /// Messages from the peer.
    pub(super) reader: FramedRead<OwnedReadHalf, BgpCodec>,
    writer: JoinHandle<()>,
}

impl Connection {
    /// Splits a stream. Messages sent to the returned channel are written in order, as the returned progress tells; each
    /// must leave within `send_hold` (RFC 9687). When the channel closes, what is queued is written and the stream shut down.
    pub(super) fn new(
        stream: TcpStream,
        send_hold: Duration,
    ) -> (Self, mpsc::Sender<Bytes>, watch::Receiver<Progress>) {
        let (read, write) = stream.into_split();
        let (sender, queue) = mpsc::channel(QUEUE);
        let (progress_tx, progress) = watch::channel(Progress::default());
        let writer = tokio::spawn(write_all(write, queue, progress_tx, send_hold));
        (Self { reader: FramedRead::new(read, BgpCodec::new()), writer }, sender, progress)
    }

    /// Lets the queue drain, then closes. The sender must have been dropped. Reading on until the peer closes keeps the
    /// kernel from answering unread data with a reset, which could overtake a NOTIFICATION.
    pub(super) fn close(self) -> JoinHandle<()> {
        tokio::spawn(async move {
            let mut writer = self.writer;
            if timeout(CLOSE_TIMEOUT, &mut writer).await.is_err() {
                writer.abort();
                return;
            }
            let mut rest = self.reader.into_inner();
            let mut buffer = [0; 4096];
            let drain = async { while matches!(rest.read(&mut buffer).await, Ok(n) if n > 0) {} };
            // A peer that does not close in time is left to the kernel.
            let _ = timeout(CLOSE_TIMEOUT, drain).await;
        })
    }
}

async fn write_all(
    mut stream: OwnedWriteHalf,
    mut queue: mpsc::Receiver<Bytes>,
    progress: watch::Sender<Progress>,
    send_hold: Duration,
) {
    while let Some(message) = queue.recv().await {
        let failed = match timeout(send_hold, stream.write_all(&message)).await {
            Ok(Ok(())) => None,
            Ok(Err(error)) => Some(format!("write to the peer: {error}")),
            Err(_) => Some(format!(
                "send hold timer expired: the peer took no data for {}s (RFC 9687)",
                send_hold.as_secs()
            )),
        };
        progress.send_modify(|p| {
            p.written += u64::from(failed.is_none());
            p.failed.clone_from(&failed);
        });
        if failed.is_some() {
            return;
        }
    }
    // The peer may have closed already.
    let _ = stream.shutdown().await;
}
