//! Capturing frames on an interface inside a namespace, by a thread of its own, into a ring of recent frames.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::error::{Error, Result};
use crate::netns::Netns;
use crate::packet::{Layers, decode};
use crate::packet_socket::{FRAME_LIMIT, PacketSocket, Received, Use};

/// Frames kept unless asked otherwise.
const KEPT: usize = 4096;

/// How long a capture thread may take to answer; it only ever waits for frames and for us.
const ANSWER: Duration = Duration::from_secs(10);

/// Which way a frame went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// It arrived at the interface.
    Arriving,
    /// It left through the interface.
    Leaving,
}

/// A captured frame, VLAN tags included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Position in the capture, counted from 0 and never reused.
    pub number: u64,
    /// The kernel's time stamp.
    pub at: SystemTime,
    /// Which way it went.
    pub direction: Direction,
    /// The frame, link header first.
    pub bytes: Vec<u8>,
    /// The kernel had not computed the transport checksum (transmit offload): it is wrong in `bytes`.
    pub partial_checksum: bool,
    /// Bytes beyond 64 KiB that are not in `bytes`.
    pub cut: usize,
}

impl Frame {
    /// The frame's layers.
    pub fn layers(&self) -> Layers {
        decode(&self.bytes)
    }
}

/// What to capture, and how much to keep.
#[derive(Debug, Clone, Copy)]
pub struct Options {
    /// Whether frames that leave through the interface are captured too (off by default).
    pub leaving: bool,
    /// Frames kept; the oldest make room.
    pub kept: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self { leaving: false, kept: KEPT }
    }
}

/// A running capture. Ends when dropped; its [`Tap`]s stay readable.
#[derive(Debug)]
pub struct Capture {
    tap: Tap,
    /// The first frame that no expectation has passed yet.
    cursor: Mutex<u64>,
    wake: UnixStream,
    thread: Option<JoinHandle<()>>,
}

/// A view of a capture's recent frames that can be kept while the capture is used elsewhere.
#[derive(Debug, Clone)]
pub struct Tap {
    name: String,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    frames: VecDeque<Arc<Frame>>,
    next: u64,
    /// Frames the kernel had no room for.
    dropped: u64,
    /// Requests to read everything that waits, and the last one that was met.
    asked: u64,
    answered: u64,
    ended: Option<String>,
}

impl Capture {
    /// Captures what arrives at an interface of a namespace, from now on.
    pub fn open(namespace: &Netns, interface: &str) -> Result<Self> {
        Self::open_with(namespace, interface, Options::default())
    }

    /// Captures with options.
    pub fn open_with(namespace: &Netns, interface: &str, options: Options) -> Result<Self> {
        let purpose = if options.leaving { Use::ReceiveAll } else { Use::ReceiveArriving };
        let socket = namespace.run(|| PacketSocket::open(interface, purpose))??;
        Self::start(&format!("{}-{interface}", namespace.name()), socket, options)
    }

    fn start(name: &str, socket: PacketSocket, options: Options) -> Result<Self> {
        let failed = |e| Error::system("start capture on", name, e);
        let (wake, woken) = UnixStream::pair().map_err(failed)?;
        woken.set_nonblocking(true).map_err(failed)?;
        let shared = Arc::new(Shared::default());
        let tap = Tap { name: name.to_owned(), shared: Arc::clone(&shared) };
        let thread = thread::Builder::new()
            .name(format!("capture {name}"))
            .spawn(move || {
                let reason = read_frames(&socket, woken, &shared, options.kept.max(1));
                shared.lock().ended = Some(reason);
                shared.changed.notify_all();
            })
            .map_err(failed)?;
        Ok(Self { tap, cursor: Mutex::new(0), wake, thread: Some(thread) })
    }

    /// Namespace and interface.
    pub fn name(&self) -> &str {
        &self.tap.name
    }

    /// A view of this capture's recent frames.
    pub fn tap(&self) -> Tap {
        self.tap.clone()
    }

    /// Makes expectations look only at frames that arrive after this call.
    pub fn forget(&self) -> Result<()> {
        let next = self.read_waiting()?;
        *self.cursor.lock().unwrap_or_else(PoisonError::into_inner) = next;
        Ok(())
    }

    pub(crate) fn cursor(&self) -> u64 {
        *self.cursor.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn set_cursor(&self, number: u64) {
        *self.cursor.lock().unwrap_or_else(PoisonError::into_inner) = number;
    }

    /// Waits until every frame that the socket holds now is in the ring; returns the next frame's number.
    pub(crate) fn read_waiting(&self) -> Result<u64> {
        let failed = |problem: String| Error::Answer {
            operation: "capture on",
            object: self.name().to_owned(),
            problem,
        };
        let mut state = self.tap.shared.lock();
        state.asked += 1;
        let wanted = state.asked;
        (&self.wake).write_all(&[0]).map_err(|e| failed(e.to_string()))?;
        let deadline = Instant::now() + ANSWER;
        while state.answered < wanted {
            if let Some(reason) = &state.ended {
                return Err(failed(format!("ended: {reason}")));
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(failed(format!("no answer from its thread within {ANSWER:?}")));
            }
            state = self.tap.shared.wait(state, left);
        }
        Ok(state.next)
    }

    /// Waits for a frame numbered `number` or later until `deadline`; false if none came.
    pub(crate) fn wait_for(&self, number: u64, deadline: Instant) -> bool {
        let mut state = self.tap.shared.lock();
        while state.next <= number && state.ended.is_none() {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            state = self.tap.shared.wait(state, left);
        }
        state.next > number
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        // The thread ends when its end of the pair sees this.
        let _ = self.wake.shutdown(std::net::Shutdown::Both);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

impl Tap {
    /// Namespace and interface.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The frames in the ring, oldest first.
    pub fn frames(&self) -> Vec<Arc<Frame>> {
        self.since(0)
    }

    /// Frames with at least this number that are still in the ring.
    pub fn since(&self, number: u64) -> Vec<Arc<Frame>> {
        self.shared.lock().frames.iter().filter(|frame| frame.number >= number).cloned().collect()
    }

    /// Frames that nobody can look at any more: dropped by the kernel, or pushed out of the ring after `number`.
    pub fn lost_since(&self, number: u64) -> u64 {
        let state = self.shared.lock();
        let oldest = state.frames.front().map_or(state.next, |frame| frame.number);
        state.dropped + oldest.saturating_sub(number)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, state: MutexGuard<'a, State>, most: Duration) -> MutexGuard<'a, State> {
        self.changed.wait_timeout(state, most).unwrap_or_else(PoisonError::into_inner).0
    }
}

/// Reads until woken by a closed pair; returns why it ended.
fn read_frames(socket: &PacketSocket, mut woken: UnixStream, shared: &Shared, kept: usize) -> String {
    let mut buffer = vec![0; FRAME_LIMIT];
    loop {
        let asked = shared.lock().asked;
        loop {
            match socket.receive(&mut buffer) {
                Ok(Some(frame)) => keep(shared, frame, kept),
                Ok(None) => break,
                // The interface is down, perhaps as part of the test; it may come back.
                Err(e) if e.raw_os_error() == Some(libc::ENETDOWN) => {}
                Err(e) => return format!("receive on {}: {e}", socket.interface()),
            }
        }
        let drops = socket.take_drops().unwrap_or_default();
        {
            let mut state = shared.lock();
            state.dropped += drops;
            state.answered = state.answered.max(asked);
        }
        shared.changed.notify_all();
        let mut descriptors =
            [PollFd::new(socket.as_fd(), PollFlags::POLLIN), PollFd::new(woken.as_fd(), PollFlags::POLLIN)];
        match poll(&mut descriptors, PollTimeout::NONE) {
            Ok(_) | Err(nix::errno::Errno::EINTR) => {}
            Err(errno) => return format!("poll on {}: {errno}", socket.interface()),
        }
        let mut requests = [0; 64];
        match woken.read(&mut requests) {
            Ok(0) => return "closed".into(),
            Ok(_) => {}
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(e) => return format!("wake-up: {e}"),
        }
    }
}

fn keep(shared: &Shared, received: Received, kept: usize) {
    let mut state = shared.lock();
    let frame = Frame {
        number: state.next,
        at: received.at,
        direction: if received.outgoing { Direction::Leaving } else { Direction::Arriving },
        bytes: received.bytes,
        partial_checksum: received.partial_checksum,
        cut: received.cut,
    };
    state.next += 1;
    if state.frames.len() == kept {
        state.frames.pop_front();
    }
    state.frames.push_back(Arc::new(frame));
    drop(state);
    shared.changed.notify_all();
}
