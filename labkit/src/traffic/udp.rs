//! UDP: numbered packets at a fixed pace to servers that send them back, so that loss is counted each way.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::sys::socket::{setsockopt, sockopt::RcvBufForce};
use tokio::net::UdpSocket;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use super::{Sample, samples};
use crate::error::{Error, Result};
use crate::lab::NodeHandle;

/// Bytes of flow id and number at the start of each packet.
const HEADER: usize = 16;
/// A flow that stops waits for what is under way, until nothing has come for this long.
const QUIET: Duration = Duration::from_millis(700);
/// Receive buffer, bytes: a busy machine must not make a socket lose what the network has delivered.
const RECEIVE_BUFFER: usize = 32 << 20;

type Seen = HashMap<u64, HashSet<u64>>;

/// Sends back what it gets and remembers which numbers of which flows came. Stops when dropped.
#[derive(Debug)]
pub struct UdpServer {
    name: String,
    seen: Arc<Mutex<Seen>>,
    task: JoinHandle<()>,
}

impl UdpServer {
    /// Starts it in a node. Must be called inside a tokio runtime, on which it runs.
    pub fn start(node: &NodeHandle, name: &str, on: SocketAddr) -> Result<Self> {
        let socket = bind(node, on)?;
        let seen = Arc::new(Mutex::new(Seen::new()));
        let remember = Arc::clone(&seen);
        let task = tokio::spawn(async move {
            let mut buffer = vec![0; 65_536];
            loop {
                // An ICMP error about an earlier answer shows here; it concerns nobody.
                let Ok((length, from)) = socket.recv_from(&mut buffer).await else { continue };
                if let Some((flow, number)) = numbers(&buffer[..length]) {
                    lock(&remember).entry(flow).or_default().insert(number);
                    let _ = socket.send_to(&buffer[..length], from).await;
                }
            }
        });
        Ok(Self { name: name.into(), seen, task })
    }
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }
    /// How many packets of a flow came, each number once.
    pub fn received(&self, flow: u64) -> usize {
        lock(&self.seen).get(&flow).map_or(0, HashSet::len)
    }
}

impl UdpServer {
    /// Stops it; its address is free again when this returns.
    pub async fn stop(mut self) {
        self.task.abort();
        // Always ends as cancelled.
        let _ = (&mut self.task).await;
    }
}

impl Drop for UdpServer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn bind(node: &NodeHandle, on: SocketAddr) -> Result<UdpSocket> {
    let socket = node.udp_bind(on)?;
    setsockopt(&socket, RcvBufForce, &RECEIVE_BUFFER)
        .map_err(|e| Error::system("enlarge the receive buffer of", format!("UDP socket on {on}"), e))?;
    Ok(socket)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn numbers(packet: &[u8]) -> Option<(u64, u64)> {
    let (flow, rest) = packet.split_first_chunk::<8>()?;
    let (number, _) = rest.split_first_chunk::<8>()?;
    Some((u64::from_be_bytes(*flow), u64::from_be_bytes(*number)))
}

/// One flow (one source port) of numbered packets from a node, running in the background.
#[derive(Debug)]
pub struct UdpFlow {
    id: u64,
    stop: watch::Sender<()>,
    sender: JoinHandle<Vec<Duration>>,
    back: Arc<Mutex<HashSet<u64>>>,
    receiver: JoinHandle<()>,
}

/// What became of a flow's packets. The numbers count from 0.
#[derive(Clone, Debug)]
pub struct UdpReport {
    /// Packets sent.
    pub sent: u64,
    /// Numbers that no server got.
    pub lost_out: Vec<u64>,
    /// Numbers that a server got but whose answer did not come back.
    pub lost_back: Vec<u64>,
    /// Packets that each server got.
    pub by_server: Vec<(String, u64)>,
    /// When each packet was sent, since the flow began.
    sent_at: Vec<Duration>,
}

impl UdpReport {
    /// Packets lost either way.
    pub fn lost(&self) -> u64 {
        (self.lost_out.len() + self.lost_back.len()) as u64
    }
    /// Packets by interval of their sending.
    pub fn samples(&self, interval: Duration) -> Vec<Sample> {
        let lost: HashSet<u64> = self.lost_out.iter().chain(&self.lost_back).copied().collect();
        let event = |(number, at): (usize, &Duration)| (*at, lost.contains(&(number as u64)));
        samples(interval, self.sent_at.iter().enumerate().map(event))
    }
    /// Time between the sending of the first and of the last lost packet; zero when at most one was lost.
    pub fn outage(&self) -> Duration {
        let times =
            || self.lost_out.iter().chain(&self.lost_back).filter_map(|n| self.sent_at.get(*n as usize));
        match (times().min(), times().max()) {
            (Some(first), Some(last)) => last.saturating_sub(*first),
            _ => Duration::ZERO,
        }
    }
}

impl UdpFlow {
    /// Starts a flow of packets of `payload` bytes (at least 16), one each `pace`. Must be called inside a tokio runtime.
    pub async fn start(node: &NodeHandle, to: SocketAddr, pace: Duration, payload: usize) -> Result<Self> {
        let any: SocketAddr = if to.is_ipv6() {
            (std::net::Ipv6Addr::UNSPECIFIED, 0).into()
        } else {
            (std::net::Ipv4Addr::UNSPECIFIED, 0).into()
        };
        let socket = bind(node, any)?;
        let object = format!("from node {} to {to}", node.name());
        socket.connect(to).await.map_err(|e| Error::system("start UDP flow", object, e))?;
        let socket = Arc::new(socket);
        let id = rand::random();
        let (stop, stopped) = watch::channel(());
        let back = Arc::new(Mutex::new(HashSet::new()));
        let receiver = tokio::spawn(receive(Arc::clone(&socket), id, Arc::clone(&back)));
        let sender = tokio::spawn(send(socket, id, pace, payload.max(HEADER), stopped));
        Ok(Self { id, stop, sender, back, receiver })
    }

    /// Stops sending, waits a moment for what is under way, and accounts for every packet. `servers` are all those that
    /// packets may have reached.
    pub async fn stop(self, servers: &[&UdpServer]) -> Result<UdpReport> {
        // Fails only when the sender has ended already.
        let _ = self.stop.send(());
        let sent_at = self.sender.await.map_err(|e| Error::Answer {
            operation: "stop",
            object: "UDP flow".into(),
            problem: e.to_string(),
        })?;
        let all = sent_at.len();
        let (mut came, mut last) = (0, Instant::now());
        while came < all && last.elapsed() < QUIET {
            tokio::time::sleep(Duration::from_millis(5)).await;
            let now = lock(&self.back).len();
            if now != came {
                (came, last) = (now, Instant::now());
            }
        }
        self.receiver.abort();
        let got: Vec<(String, HashSet<u64>)> = servers
            .iter()
            .map(|server| {
                (server.name.clone(), lock(&server.seen).get(&self.id).cloned().unwrap_or_default())
            })
            .collect();
        let back = lock(&self.back);
        let arrived = |number: &u64| got.iter().any(|(_, numbers)| numbers.contains(number));
        let (out, home): (Vec<u64>, Vec<u64>) = (0..all as u64).partition(|number| !arrived(number));
        Ok(UdpReport {
            sent: all as u64,
            lost_out: out,
            lost_back: home.into_iter().filter(|number| !back.contains(number)).collect(),
            by_server: got.iter().map(|(name, numbers)| (name.clone(), numbers.len() as u64)).collect(),
            sent_at,
        })
    }
}

async fn send(
    socket: Arc<UdpSocket>,
    id: u64,
    pace: Duration,
    payload: usize,
    mut stopped: watch::Receiver<()>,
) -> Vec<Duration> {
    let start = Instant::now();
    let mut sent_at = Vec::new();
    let mut packet = vec![0; payload];
    packet[..8].copy_from_slice(&id.to_be_bytes());
    // Late ticks are left out: made up for, they would come in a burst that overruns a queue of the lab's own.
    let mut ticks = tokio::time::interval(pace);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    loop {
        tokio::select! {
            _ = stopped.changed() => return sent_at,
            _ = ticks.tick() => {}
        }
        packet[8..HEADER].copy_from_slice(&(sent_at.len() as u64).to_be_bytes());
        // A refused packet (no route, an ICMP error of an earlier one) counts as sent, and so as lost.
        let _ = socket.send(&packet).await;
        sent_at.push(start.elapsed());
    }
}

async fn receive(socket: Arc<UdpSocket>, id: u64, back: Arc<Mutex<HashSet<u64>>>) {
    let mut buffer = vec![0; 65_536];
    loop {
        let Ok(length) = socket.recv(&mut buffer).await else { continue };
        if let Some((flow, number)) = numbers(&buffer[..length])
            && flow == id
        {
            lock(&back).insert(number);
        }
    }
}
