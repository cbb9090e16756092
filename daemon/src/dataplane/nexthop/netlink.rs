//! The task that follows the kernel's routes, neighbours and links, and tells where each SID in use leads.
//!
//! It subscribes, reads everything, then reacts to messages; it reads everything again when messages were lost,
//! after changes that the kernel tells incompletely, and once in a while in any case.

use std::collections::{BTreeMap, BTreeSet};
use std::net::Ipv6Addr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt, TryStreamExt};
use netlink_packet_route::neighbour::{
    NeighbourAttribute, NeighbourExtFlags, NeighbourFlags, NeighbourState,
};
use netlink_packet_route::route::{RouteHeader, RouteMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use rtnetlink::packet_core::{NetlinkMessage, NetlinkPayload};
use rtnetlink::sys::protocols::NETLINK_ROUTE;
use rtnetlink::sys::{AsyncSocket, AsyncSocketExt, SocketAddr, TokioSocket};
use rtnetlink::{Handle, MulticastGroup};
use tokio::sync::mpsc;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, sleep_until};
use tokio_util::task::AbortOnDropHandle;

use super::fib::{Fib, FibEvent, Upkeep};
use super::message;
use super::watch::{Changes, Watch};
use crate::model::Sid;

/// Longest time between two full reads.
const RESYNC: Duration = Duration::from_mins(2);
/// Quiet time before a full read that a change calls for: a link's change brings a burst of others.
const SETTLE: Duration = Duration::from_millis(100);
/// How often unresolved neighbours, and those that the kernel does not keep resolved by itself, are asked for.
const PROBE: Duration = Duration::from_secs(3);
/// Wait before the sockets are opened again after a failure.
const RETRY: Duration = Duration::from_secs(1);
/// Receive buffer for events in bytes (the kernel doubles it and caps it at `net.core.rmem_max`).
const EVENT_BUFFER: usize = 1 << 20;

/// Why the kernel's tables could not be followed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No socket.
    #[error("open netlink socket: {0} (the daemon needs CAP_NET_ADMIN and AF_NETLINK)")]
    Socket(#[from] std::io::Error),
    /// A full read failed.
    #[error("read {table} from the kernel: {cause}")]
    Dump {
        /// What was read.
        table: &'static str,
        /// The kernel's answer.
        cause: rtnetlink::Error,
    },
    /// The socket's task ended.
    #[error("netlink socket was closed")]
    Closed,
}

/// Where SIDs lead now: the watched ones that were added or moved since the update before.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NextHopUpdate {
    /// Resolution of each; empty `hops` when there is no way to it now.
    pub changed: Changes,
}

/// Handle of the task; the task ends when it is dropped.
#[derive(Debug)]
pub struct Monitor {
    sids: mpsc::UnboundedSender<BTreeSet<Sid>>,
    route_changes: Arc<AtomicU64>,
    _task: AbortOnDropHandle<()>,
}

impl Monitor {
    /// Starts the task on the current tokio runtime, in the network namespace of the threads that run it. Packets may
    /// leave on `interfaces` only. Failures are logged and tried again.
    pub fn spawn(interfaces: BTreeSet<String>) -> (Self, mpsc::Receiver<NextHopUpdate>) {
        let (sids, watched) = mpsc::unbounded_channel();
        let (updates, receiver) = mpsc::channel(1);
        let route_changes = Arc::new(AtomicU64::new(0));
        let task = Task {
            watch: Watch::new(interfaces),
            watched,
            updates,
            waiting: Changes::new(),
            route_changes: Arc::clone(&route_changes),
        };
        (Self { sids, route_changes, _task: AbortOnDropHandle::new(tokio::spawn(task.run())) }, receiver)
    }

    /// Counts the changes of routes that the kernel has told, whether or not they concern a SID.
    pub fn route_changes(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.route_changes)
    }

    /// Sets the SIDs to watch. Each new one is told once, even when it leads nowhere; one that goes is not told again.
    pub fn watch(&self, sids: BTreeSet<Sid>) {
        // The task lives as long as this handle or the receiver of its updates, and without those it is not needed.
        let _ = self.sids.send(sids);
    }
}

struct Task {
    watch: Watch,
    /// Each set in turn, so that a SID that goes and comes back is told again.
    watched: mpsc::UnboundedReceiver<BTreeSet<Sid>>,
    updates: mpsc::Sender<NextHopUpdate>,
    /// What the receiver has not taken yet; a later resolution of a SID replaces the earlier.
    waiting: Changes,
    route_changes: Arc<AtomicU64>,
}

impl Task {
    async fn run(mut self) {
        loop {
            match self.session().await {
                Ok(()) => return,
                Err(error) => tracing::warn!(%error, retry = ?RETRY, "next hops are not followed"),
            }
            sleep(RETRY).await;
        }
    }

    /// One set of sockets; returns when nobody listens any more.
    async fn session(&mut self) -> Result<(), Error> {
        let mut sockets = Sockets::open()?;
        let updates = self.updates.clone();
        let mut neighbours = Neighbours { handle: sockets.handle.clone(), asked: BTreeMap::new() };
        let mut resync_at = Instant::now();
        let mut probe = interval(PROBE);
        probe.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut synced = false;
        loop {
            tokio::select! {
                () = updates.closed() => return Ok(()),
                () = sleep_until(resync_at) => {
                    let fib = dump(&sockets.handle).await?;
                    let changes = self.watch.replace(fib);
                    self.tell(changes);
                    resync_at = Instant::now() + RESYNC;
                    synced = true;
                }
                sids = self.watched.recv(), if synced => {
                    let Some(sids) = sids else { return Ok(()) };
                    let changes = self.watch.set(&sids);
                    self.tell(changes);
                }
                // Before the first full read messages wait in their queue: they may be older or newer than it, and
                // the last one about each thing says how it stands.
                batch = events(&mut sockets.events), if synced => {
                    let batch = batch?;
                    if batch.lost || self.link_flapped(&batch.events) {
                        resync_at = resync_at.min(Instant::now() + SETTLE);
                    }
                    let route = |e: &&FibEvent| matches!(e, FibEvent::Route(..) | FibEvent::RouteGone(..));
                    let routes = batch.events.iter().filter(route).count() as u64;
                    self.route_changes.fetch_add(routes, Ordering::Relaxed);
                    let changes = self.watch.apply(batch.events);
                    self.tell(changes);
                }
                () = hint(&sockets.objects), if synced => resync_at = resync_at.min(Instant::now() + SETTLE),
                permit = updates.reserve(), if !self.waiting.is_empty() => {
                    let Ok(permit) = permit else { return Ok(()) };
                    permit.send(NextHopUpdate { changed: std::mem::take(&mut self.waiting) });
                    continue;
                }
                _ = probe.tick(), if synced => neighbours.forget_answers(),
            }
            neighbours.keep(&self.watch).await;
        }
    }

    /// Whether one of our interfaces goes up or down: with a link the kernel drops routes, and marks hops of others
    /// dead or alive, of which it may tell nothing (`skip_notify_on_dev_down`).
    fn link_flapped(&self, events: &[FibEvent]) -> bool {
        events.iter().any(|event| match event {
            FibEvent::Link(ifindex, link) => {
                self.watch.may_use(link)
                    && self.watch.fib().link(*ifindex).is_none_or(|old| old.up != link.up)
            }
            FibEvent::LinkGone(ifindex) => self.watch.allowed().contains(ifindex),
            _ => false,
        })
    }

    fn tell(&mut self, changes: Changes) {
        self.waiting.extend(changes);
        // Not those that have gone out of use meanwhile.
        self.waiting.retain(|sid, _| self.watch.watches(*sid));
    }
}

/// Messages that were there to read.
#[derive(Default)]
struct Batch {
    events: Vec<FibEvent>,
    /// Whether others were lost, so that the mirror may now differ from the kernel.
    lost: bool,
}

/// Unsolicited messages of a socket.
type Events = BoxStream<'static, (NetlinkMessage<RouteNetlinkMessage>, SocketAddr)>;

/// The sockets of a session and the tasks that read them.
struct Sockets {
    /// For requests: apart from events, so that lost events lose no answer.
    handle: Handle,
    events: Events,
    /// Gets a datagram for each change of a next hop object, of which rtnetlink knows no messages.
    objects: TokioSocket,
    _tasks: [AbortOnDropHandle<()>; 2],
}

impl Sockets {
    fn open() -> Result<Self, Error> {
        let groups = [MulticastGroup::Link, MulticastGroup::Neigh, MulticastGroup::Ipv6Route];
        let (mut event_socket, _, events) = rtnetlink::new_multicast_connection(&groups)?;
        event_socket.socket_mut().socket_mut().set_rx_buf_sz(EVENT_BUFFER)?;
        let (request_socket, handle, _) = rtnetlink::new_connection_with_strict_check()?;
        let mut objects = TokioSocket::new(NETLINK_ROUTE)?;
        objects.socket_mut().bind_auto()?;
        objects.socket_mut().add_membership(MulticastGroup::Nexthop as u32)?;
        let spawn = |task| AbortOnDropHandle::new(tokio::spawn(task));
        let tasks = [spawn(event_socket), spawn(request_socket)];
        Ok(Self { handle, events: events.boxed(), objects, _tasks: tasks })
    }
}

/// Reads links, neighbours and the IPv6 main table.
async fn dump(handle: &Handle) -> Result<Fib, Error> {
    let mut fib = Fib::default();
    let dump = |table| move |cause| Error::Dump { table, cause };
    let mut links = std::pin::pin!(handle.link().get().execute());
    while let Some(m) = links.try_next().await.map_err(dump("links"))? {
        message::event(RouteNetlinkMessage::NewLink(m), 0).map(|e| fib.apply(e));
    }
    let neighbours = handle.neighbours().get().set_address_family(AddressFamily::Inet6).execute();
    let mut neighbours = std::pin::pin!(neighbours);
    while let Some(m) = neighbours.try_next().await.map_err(dump("neighbours"))? {
        message::event(RouteNetlinkMessage::NewNeighbour(m), 0).map(|e| fib.apply(e));
    }
    let mut request = RouteMessage::default();
    request.header.address_family = AddressFamily::Inet6;
    request.header.table = RouteHeader::RT_TABLE_MAIN;
    let mut routes = std::pin::pin!(handle.route().get(request).execute());
    while let Some(m) = routes.try_next().await.map_err(dump("IPv6 routes"))? {
        message::event(RouteNetlinkMessage::NewRoute(m), 0).map(|e| fib.apply(e));
    }
    Ok(fib)
}

/// Waits for a message, then takes all that are there.
async fn events(events: &mut Events) -> Result<Batch, Error> {
    let mut batch = Batch::default();
    let mut next = events.next().await;
    loop {
        let (message, _) = next.ok_or(Error::Closed)?;
        let flags = message.header.flags;
        match message.payload {
            NetlinkPayload::InnerMessage(inner) => batch.events.extend(message::event(inner, flags)),
            NetlinkPayload::Overrun(_) => {
                tracing::info!("netlink messages were lost, reading all routes again");
                batch.lost = true;
            }
            _ => {}
        }
        match events.next().now_or_never() {
            Some(message) => next = message,
            None => return Ok(batch),
        }
    }
}

/// Waits for a change of a next hop object: the kernel does not tell which routes it moves.
async fn hint(objects: &TokioSocket) {
    if objects.recv_from_full().await.is_err() {
        // Lost hints ask for the same as one that came; a dead socket shows at the others too.
        sleep(SETTLE).await;
    }
}

/// Asks the kernel to resolve the neighbours in use and to keep them so.
struct Neighbours {
    handle: Handle,
    /// Those asked for, and whether that was since the last probe.
    asked: BTreeMap<(u32, Ipv6Addr), Asked>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Asked {
    Lately,
    Before,
    /// No longer in use. What the kernel tells of the last asking may still be on its way, so that the mark is taken off
    /// whenever it shows until the time between two probes has passed once in full.
    LetGo {
        probes: u8,
    },
}

impl Neighbours {
    /// From now on those that are still not resolved or not kept are asked for again.
    fn forget_answers(&mut self) {
        self.asked.retain(|_, asked| match asked {
            Asked::Lately | Asked::Before => {
                *asked = Asked::Before;
                true
            }
            Asked::LetGo { probes } => {
                *probes += 1;
                *probes < 2
            }
        });
    }

    /// Asks for what is missing, and lets go of what is no longer in use.
    async fn keep(&mut self, watch: &Watch) {
        let wanted = watch.neighbours();
        for &key in wanted.keys() {
            let known = watch.fib().neighbour(key.0, key.1);
            let kept = known.is_some_and(|n| {
                n.upkeep == Upkeep::Permanent || (n.upkeep == Upkeep::Managed && n.mac.is_some())
            });
            if !kept && self.asked.get(&key) != Some(&Asked::Lately) {
                self.asked.insert(key, Asked::Lately);
                self.ask(key).await;
            }
        }
        let unused: Vec<_> = self.asked.keys().filter(|key| !wanted.contains_key(key)).copied().collect();
        for key in unused {
            let asked = self.asked.entry(key).or_insert(Asked::Before);
            if !matches!(asked, Asked::LetGo { .. }) {
                *asked = Asked::LetGo { probes: 0 };
            }
            if let Some(known) = watch.fib().neighbour(key.0, key.1)
                && known.upkeep == Upkeep::Managed
            {
                self.release(key, known.mac).await;
            }
        }
    }

    /// Makes the entry a managed one, which the kernel resolves at once and probes ever after. Kernels before 5.16
    /// know no such entries: there each [`PROBE`] uses it once, as a packet would.
    async fn ask(&self, (ifindex, address): (u32, Ipv6Addr)) {
        let request =
            || self.handle.neighbours().add(ifindex, address.into()).state(NeighbourState::None).replace();
        let mut managed = request();
        managed.message_mut().attributes.push(NeighbourAttribute::ExtFlags(NeighbourExtFlags::Managed));
        let Err(error) = managed.execute().await else { return };
        if let Err(second) = request().flags(NeighbourFlags::Use).execute().await {
            tracing::debug!(ifindex, %address, %error, %second, "neighbour cannot be asked for");
        }
    }

    /// Takes the mark off an entry; one that is not resolved goes.
    async fn release(&self, (ifindex, address): (u32, Ipv6Addr), mac: Option<[u8; 6]>) {
        let entry = self.handle.neighbours().add(ifindex, address.into()).replace();
        let result = if let Some(mac) = mac {
            entry.state(NeighbourState::Stale).link_layer_address(&mac).execute().await
        } else {
            let mut entry = entry;
            let message = std::mem::take(entry.message_mut());
            self.handle.neighbours().del(message).execute().await
        };
        if let Err(error) = result {
            tracing::debug!(ifindex, %address, %error, "neighbour cannot be released");
        }
    }
}

#[cfg(test)]
#[path = "netlink_tests.rs"]
mod tests;
