//! TCP: a server that says who it is and whom it sees, then echoes; a pool of clients that checks both.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures_util::{StreamExt, stream};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

use super::{Sample, retransmissions, samples};
use crate::error::{Error, Result};
use crate::lab::NodeHandle;
use crate::wait::patiently;

/// Connections that a pool opens at the same time.
const AT_ONCE: usize = 64;
/// Longest wait for one connection or one answer.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);

/// A server in a node. Each connection gets one line, `NAME PEER-ADDRESS`, and then its own bytes back. Stops when dropped.
#[derive(Debug)]
pub struct IdentifyServer {
    accepted: Arc<AtomicU64>,
    local: SocketAddr,
    task: JoinHandle<()>,
}

impl IdentifyServer {
    /// Starts it under a name. Must be called inside a tokio runtime, on which it runs.
    pub fn start(node: &NodeHandle, name: &str, on: SocketAddr) -> Result<Self> {
        let listener = node.tcp_listen(on)?;
        let local = listener.local_addr().map_err(|e| Error::system("read address of", "listener", e))?;
        let accepted = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&accepted);
        let name: Arc<str> = name.into();
        let task = tokio::spawn(async move {
            // Connections end with the server.
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    connection = listener.accept() => if let Ok((stream, peer)) = connection {
                        count.fetch_add(1, Ordering::Relaxed);
                        connections.spawn(serve(stream, peer, Arc::clone(&name)));
                    },
                    Some(_) = connections.join_next() => {}
                }
            }
        });
        Ok(Self { accepted, local, task })
    }
    /// Connections accepted so far.
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }
    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }
}

impl IdentifyServer {
    /// Stops it; its address is free again when this returns.
    pub async fn stop(mut self) {
        self.task.abort();
        // Always ends as cancelled.
        let _ = (&mut self.task).await;
    }
}

impl Drop for IdentifyServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn serve(mut stream: TcpStream, peer: SocketAddr, name: Arc<str>) -> io::Result<()> {
    stream.set_nodelay(true)?;
    stream.write_all(format!("{name} {peer}\n").as_bytes()).await?;
    let (mut from, mut to) = stream.split();
    tokio::io::copy(&mut from, &mut to).await?;
    to.shutdown().await
}

/// A client's connection to an [`IdentifyServer`].
#[derive(Debug)]
pub struct Connection {
    backend: String,
    seen_as: SocketAddr,
    stream: BufReader<TcpStream>,
    rounds: u64,
}

impl Connection {
    /// Connects from a node and reads who answers.
    pub async fn open(node: &NodeHandle, to: SocketAddr) -> Result<Self> {
        let from = format!("from node {} to {to}", node.name());
        let failed = |e: io::Error| Error::system("open connection", from.clone(), e);
        let opening = async {
            let stream = node.tcp_connect(to).await?;
            stream.set_nodelay(true).map_err(failed)?;
            let mut stream = BufReader::new(stream);
            let mut line = String::new();
            stream.read_line(&mut line).await.map_err(failed)?;
            Ok((stream, line))
        };
        let (stream, line) = tokio::time::timeout(patiently(ANSWER_WITHIN), opening)
            .await
            .unwrap_or_else(|_| Err(failed(io::ErrorKind::TimedOut.into())))?;
        let (backend, seen_as) = line
            .trim_end()
            .split_once(' ')
            .and_then(|(name, peer)| Some((name.to_owned(), peer.parse().ok()?)))
            .ok_or_else(|| Error::Answer {
                operation: "open connection",
                object: from.clone(),
                problem: format!("the server's line was {line:?}"),
            })?;
        Ok(Self { backend, seen_as, stream, rounds: 0 })
    }

    /// Name of the server that answered.
    pub fn backend(&self) -> &str {
        &self.backend
    }
    /// This client's address as that server saw it.
    pub fn seen_as(&self) -> SocketAddr {
        self.seen_as
    }
    /// This client's own address.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.stream.get_ref().local_addr()
    }
    /// The connection itself.
    pub fn stream(&self) -> &TcpStream {
        self.stream.get_ref()
    }
    /// Segments this end has sent again.
    pub fn retransmissions(&self) -> Result<u64> {
        retransmissions(self.stream.get_ref())
    }

    /// Sends a numbered message and waits for exactly it to come back.
    pub async fn round_trip(&mut self) -> io::Result<()> {
        self.rounds += 1;
        let message = self.rounds.to_be_bytes();
        let mut answer = [0; 8];
        let trip = async {
            self.stream.write_all(&message).await?;
            self.stream.read_exact(&mut answer).await.map(drop)
        };
        tokio::time::timeout(patiently(ANSWER_WITHIN), trip).await??;
        if answer == message {
            Ok(())
        } else {
            Err(io::Error::other(format!("{message:?} came back as {answer:?}")))
        }
    }

    /// Sends `bytes` bytes of a pattern and checks that they come back; returns how long it took.
    pub async fn transfer(&mut self, bytes: usize, within: Duration) -> io::Result<Duration> {
        let start = Instant::now();
        let pattern: Vec<u8> = (0..bytes).map(|i| (i / 251 + i) as u8).collect();
        let mut back = vec![0; bytes];
        let (mut from, mut to) = tokio::io::split(&mut self.stream);
        let both = async { tokio::try_join!(to.write_all(&pattern), from.read_exact(&mut back)) };
        tokio::time::timeout(patiently(within), both).await??;
        match pattern.iter().zip(&back).position(|(sent, got)| sent != got) {
            None => Ok(start.elapsed()),
            Some(at) => Err(io::Error::other(format!("byte {at} of {bytes} came back wrong"))),
        }
    }
}

/// Connections of one node to one address.
#[derive(Debug)]
pub struct Pool {
    connections: Vec<Connection>,
}

impl Pool {
    /// Opens `count` connections, some at a time.
    ///
    /// # Errors
    /// The first that failed, and how many did.
    pub async fn open(node: &NodeHandle, to: SocketAddr, count: usize) -> Result<Self> {
        let results: Vec<Result<Connection>> = stream::iter((0..count).map(|_| Connection::open(node, to)))
            .buffer_unordered(AT_ONCE)
            .collect()
            .await;
        let failed = results.iter().filter(|result| result.is_err()).count();
        let connections: Result<Vec<Connection>> = results.into_iter().collect();
        connections.map(|connections| Self { connections }).map_err(|first| Error::Answer {
            operation: "open connections",
            object: format!("from node {} to {to}", node.name()),
            problem: format!("{failed} of {count} failed; the first: {first}"),
        })
    }

    /// The connections.
    pub fn connections(&self) -> &[Connection] {
        &self.connections
    }
    /// How many connections each backend has.
    pub fn by_backend(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        for connection in &self.connections {
            *counts.entry(connection.backend.clone()).or_default() += 1;
        }
        counts
    }
    /// Segments sent again by the clients, over all connections.
    pub fn retransmissions(&self) -> Result<u64> {
        self.connections.iter().map(Connection::retransmissions).sum()
    }
    /// Sends a message on every connection, all at once, and returns how many did not get it back.
    pub async fn verify(&mut self) -> usize {
        let trips: Vec<_> = self.connections.iter_mut().map(Connection::round_trip).collect();
        futures_util::future::join_all(trips).await.iter().filter(|trip| trip.is_err()).count()
    }

    /// From now on sends a message on every connection each `interval`, until stopped.
    pub fn pulse(self, interval: Duration) -> Pulse {
        let (stop, stopped) = watch::channel(());
        let start = Instant::now();
        let mut tasks = JoinSet::new();
        let answered = Arc::new(AtomicU64::new(0));
        let count = self.connections.len().max(1);
        for (n, connection) in self.connections.into_iter().enumerate() {
            // Spread over the interval, so that traffic is even, and stays so: a tick that is missed is left out.
            let first = start + interval.mul_f64(n as f64 / count as f64);
            let mut ticks = tokio::time::interval_at(first.into(), interval);
            ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
            tasks.spawn(beat(connection, ticks, start, stopped.clone(), Arc::clone(&answered)));
        }
        Pulse { stop, tasks, answered }
    }
}

struct Beaten {
    backend: String,
    retransmissions: u64,
    longest: Duration,
    broken: Option<String>,
    trips: Vec<(Duration, bool)>,
}

async fn beat(
    mut connection: Connection,
    mut ticks: tokio::time::Interval,
    start: Instant,
    mut stopped: watch::Receiver<()>,
    answered: Arc<AtomicU64>,
) -> Beaten {
    let (mut trips, mut longest, mut broken) = (Vec::new(), Duration::ZERO, None);
    while broken.is_none() {
        tokio::select! {
            _ = stopped.changed() => break,
            _ = ticks.tick() => {}
        }
        let sent = Instant::now();
        broken = connection.round_trip().await.err().map(|e| format!("{} ({})", e, connection.backend));
        answered.fetch_add(u64::from(broken.is_none()), Ordering::Relaxed);
        longest = longest.max(sent.elapsed());
        trips.push((sent.duration_since(start), broken.is_some()));
    }
    let retransmissions = connection.retransmissions().unwrap_or_default();
    Beaten { backend: connection.backend, retransmissions, longest, broken, trips }
}

/// A pool whose connections are in use in the background.
#[derive(Debug)]
pub struct Pulse {
    stop: watch::Sender<()>,
    tasks: JoinSet<Beaten>,
    answered: Arc<AtomicU64>,
}

/// What a [`Pulse`] saw.
#[derive(Clone, Debug, Default)]
pub struct PulseReport {
    /// Connections it had.
    pub connections: usize,
    /// Connections that broke, each with why.
    pub broken: Vec<String>,
    /// Messages sent.
    pub messages: u64,
    /// Segments the clients sent again.
    pub retransmissions: u64,
    /// The longest that a message took to come back.
    pub longest: Duration,
    /// Connections a backend.
    pub by_backend: BTreeMap<String, usize>,
    /// When each message was sent, and whether its connection broke with it.
    trips: Vec<(Duration, bool)>,
}

impl PulseReport {
    /// Messages by interval of their sending.
    pub fn samples(&self, interval: Duration) -> Vec<Sample> {
        samples(interval, self.trips.iter().copied())
    }
}

impl Pulse {
    /// Messages that came back so far, over all connections.
    pub fn answered(&self) -> u64 {
        self.answered.load(Ordering::Relaxed)
    }
    /// Ends it once every message under way is back.
    pub async fn stop(mut self) -> PulseReport {
        // Fails only when every connection has broken already.
        let _ = self.stop.send(());
        let mut report = PulseReport::default();
        while let Some(ended) = self.tasks.join_next().await {
            report.connections += 1;
            match ended {
                Ok(beaten) => {
                    report.broken.extend(beaten.broken);
                    report.messages += beaten.trips.len() as u64;
                    report.retransmissions += beaten.retransmissions;
                    report.longest = report.longest.max(beaten.longest);
                    *report.by_backend.entry(beaten.backend).or_default() += 1;
                    report.trips.extend(beaten.trips);
                }
                Err(error) => report.broken.push(error.to_string()),
            }
        }
        report.trips.sort_unstable();
        report
    }
}
