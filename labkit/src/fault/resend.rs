//! Sends packets that the impairing program held back, through a packet socket.
#![allow(unsafe_code, reason = "a link-layer socket address has no safe constructor")]

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use aya::maps::{MapData, RingBuf};
use nix::net::if_::if_nametoindex;
use socket2::{Domain, SockAddr, Socket, Type};

use crate::error::{Error, Result};
use crate::lab::NodeHandle;

/// `COPY_MARK` of `bpf/impair.bpf.c`: packets with it are let by.
const COPY_MARK: u32 = 0x6c6b_6370;
/// Time between two looks at what is held.
const PACE: Duration = Duration::from_micros(500);

/// A thread that sends what is held back.
#[derive(Debug)]
pub(super) struct Resender {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Resender {
    pub(super) fn start(
        node: &NodeHandle,
        interface: &str,
        mut held: RingBuf<MapData>,
        hold: Duration,
    ) -> Result<Self> {
        let object = format!("{}:{interface}", node.name());
        let failed = |e: std::io::Error| Error::system("open packet socket on", &*object, e);
        let (socket, to) = node
            .netns()
            .run(|| -> std::io::Result<_> {
                let socket = Socket::new(Domain::PACKET, Type::RAW, None)?;
                socket.set_mark(COPY_MARK)?;
                Ok((socket, link_address(if_nametoindex(interface)?)?))
            })?
            .map_err(failed)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let run = move || {
            let mut waiting: VecDeque<(Instant, Vec<u8>)> = VecDeque::new();
            loop {
                let last = stopped.load(Ordering::Acquire);
                while let Some(item) = held.next() {
                    // `struct held_packet`: a length, then the frame.
                    if let Some((length, frame)) = item.split_first_chunk::<4>() {
                        let length = u32::from_ne_bytes(*length) as usize;
                        waiting.push_back((Instant::now() + hold, frame[..length.min(frame.len())].to_vec()));
                    }
                }
                while waiting.front().is_some_and(|(due, _)| last || *due <= Instant::now()) {
                    if let Some((_, frame)) = waiting.pop_front()
                        && let Err(error) = socket.send_to(&frame, &to)
                    {
                        tracing::warn!(%error, "a held packet could not be sent");
                    }
                }
                if last {
                    return;
                }
                thread::sleep(PACE);
            }
        };
        let thread = thread::Builder::new().name("labkit resend".into()).spawn(run).map_err(failed)?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Sends what is left and ends.
    pub(super) fn finish(mut self) -> Result<()> {
        self.end()
    }

    fn end(&mut self) -> Result<()> {
        self.stop.store(true, Ordering::Release);
        match self.thread.take().map(JoinHandle::join) {
            None | Some(Ok(())) => Ok(()),
            Some(Err(_)) => Err(Error::Answer {
                operation: "send",
                object: "held packets".into(),
                problem: "the sending thread panicked".into(),
            }),
        }
    }
}

impl Drop for Resender {
    fn drop(&mut self) {
        // Already ended after `finish`; a panic of the thread has been printed by then.
        let _ = self.end();
    }
}

/// The address "out of this interface" (packet(7)).
fn link_address(index: u32) -> std::io::Result<SockAddr> {
    // SAFETY: `sockaddr_ll` is plain data that fits the storage; it is written whole, and its length is set.
    let ((), address) = unsafe {
        SockAddr::try_init(|storage, length| {
            let mut address: libc::sockaddr_ll = std::mem::zeroed();
            address.sll_family = libc::AF_PACKET as u16;
            address.sll_ifindex = index as i32;
            storage.cast::<libc::sockaddr_ll>().write(address);
            *length = size_of::<libc::sockaddr_ll>() as libc::socklen_t;
            Ok(())
        })
    }?;
    Ok(address)
}
