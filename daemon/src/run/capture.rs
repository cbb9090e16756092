//! A capture: the second build of the program is put in the slots, its frames become a pcapng file, and the plain one is put
//! back, whatever ends it: the time, the count, a client that has gone, the daemon's stop.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::Sender;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};
use weir_bpf::abi::{CAPTURE_ENDED, CAPTURE_RECEIVED, Reason};

use super::datapath::{Ask, CaptureFor};
use crate::admin::CaptureRequest;
use crate::dataplane::bpf::{CaptureFrames, CaptureRing, RawFrame, interface_name};
use crate::frame::{CaptureWriter, Captured, Direction, FileError};

/// Parts of the file that wait for a slow client; then the ring buffer fills, and frames are lost and counted.
const PARTS: usize = 64;
/// Frames that came in and wait for the word of what became of them.
const WAITING: usize = 1024;

/// Runs one capture and answers once it has begun.
pub(super) async fn run(
    request: CaptureRequest,
    asks: Sender<Ask>,
    stop: CancellationToken,
    answer: oneshot::Sender<Result<mpsc::Receiver<Vec<u8>>, String>>,
) {
    let time = Duration::from_secs(request.seconds.into());
    let (reply, begun) = oneshot::channel();
    let wanted = CaptureFor { vip: request.vip, port: request.port, time };
    // A thread that has ended drops the reply.
    let _ = asks.send(Ask::Capture(wanted, reply));
    let opened = match begun.await {
        Ok(Ok(ring)) => open(ring),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("the gateway is stopping".into()),
    };
    let (mut frames, mut file) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            let _ = answer.send(Err(error));
            return;
        }
    };
    info!(vip = %request.vip, port = request.port, seconds = request.seconds, "capture begins");
    let (parts, receiver) = mpsc::channel(PARTS);
    if answer.send(Ok(receiver)).is_ok() {
        let deadline = Instant::now() + time;
        let end = follow(&mut frames, &mut file, &parts, request.count, deadline, &stop).await;
        info!(%end, frames = file.received, "capture ends");
    }
    let (reply, ended) = oneshot::channel();
    let _ = asks.send(Ask::EndCapture(reply));
    let lost = match ended.await {
        Ok(Ok(lost)) => lost,
        Ok(Err(error)) => {
            warn!(%error, "capture not ended");
            0
        }
        // The thread has ended, and the capture with it.
        Err(_) => 0,
    };
    if let Ok(part) = file.finish(frames.waiting(), request.count, lost)
        && !part.is_empty()
    {
        // Whoever has gone needs no more of it.
        let _ = parts.send(part).await;
    }
}

fn open(ring: CaptureRing) -> Result<(CaptureFrames, File), String> {
    let frames = CaptureFrames::new(ring).map_err(|e| e.to_string())?;
    Ok((frames, File::new().map_err(|e| e.to_string())?))
}

/// Writes frames until something ends the capture; says what.
async fn follow(
    frames: &mut CaptureFrames,
    file: &mut File,
    parts: &mpsc::Sender<Vec<u8>>,
    count: u64,
    deadline: Instant,
    stop: &CancellationToken,
) -> &'static str {
    // The file's beginning tells the client that the program is in place.
    if parts.send(file.writer.take()).await.is_err() {
        return "the client has gone";
    }
    loop {
        let found = tokio::select! {
            found = frames.next() => found,
            () = parts.closed() => return "the client has gone",
            () = tokio::time::sleep_until(deadline.into()) => return "its time is over",
            () = stop.cancelled() => return "the daemon stops",
        };
        let added =
            found.map_err(|e| e.to_string()).and_then(|f| file.add(f, count).map_err(|e| e.to_string()));
        if let Err(error) = added {
            warn!(%error, "capture cannot go on");
            return "an error";
        }
        let part = file.writer.take();
        if !part.is_empty() && parts.send(part).await.is_err() {
            return "the client has gone";
        }
        if count != 0 && file.received >= count {
            return "its count is reached";
        }
    }
}

/// The file as far as it is written.
struct File {
    writer: CaptureWriter,
    /// Frames that came in.
    received: u64,
    /// Ids of those within the count.
    taken: BTreeSet<u64>,
    /// Those of which it is not yet known what became of them.
    waiting: BTreeMap<u64, Captured>,
    names: BTreeMap<u32, String>,
}

impl File {
    fn new() -> Result<Self, FileError> {
        let writer = CaptureWriter::new()?;
        let (taken, waiting) = (BTreeSet::new(), BTreeMap::new());
        Ok(Self { writer, received: 0, taken, waiting, names: BTreeMap::new() })
    }

    fn add(&mut self, frames: Vec<RawFrame>, count: u64) -> Result<(), FileError> {
        for RawFrame { head, bytes, at } in frames {
            let name = self.names.entry(head.ifindex).or_insert_with(|| {
                interface_name(head.ifindex).unwrap_or_else(|| format!("interface {}", head.ifindex))
            });
            let frame = |direction, comment| Captured {
                at: at.duration_since(std::time::UNIX_EPOCH).unwrap_or_default(),
                interface: Some(name.clone()),
                direction: Some(direction),
                comment,
                length: head.length as usize,
                bytes,
            };
            if head.kind == CAPTURE_RECEIVED {
                if count != 0 && self.received >= count {
                    continue;
                }
                self.received += 1;
                self.taken.insert(head.id);
                self.waiting.insert(head.id, frame(Direction::Received, None));
                // Their second half was lost.
                while self.waiting.len() > WAITING
                    && let Some((id, oldest)) = self.waiting.pop_first()
                {
                    self.taken.remove(&id);
                    self.writer.add(&oldest)?;
                }
                continue;
            }
            if !self.taken.remove(&head.id) {
                continue;
            }
            let reason = Reason::ALL.get(usize::from(head.reason));
            let comment = reason.map(|reason| format!("{}: {}", reason.name(), reason.help()));
            if let Some(received) = self.waiting.remove(&head.id) {
                self.writer.add(&Captured { comment: comment.clone(), ..received })?;
            }
            if head.kind != CAPTURE_ENDED {
                self.writer.add(&frame(Direction::Sent, comment))?;
            }
        }
        Ok(())
    }

    fn finish(&mut self, frames: Vec<RawFrame>, count: u64, lost: u64) -> Result<Vec<u8>, FileError> {
        self.add(frames, count)?;
        for frame in std::mem::take(&mut self.waiting).into_values() {
            self.writer.add(&frame)?;
        }
        self.writer.lost(lost)?;
        Ok(self.writer.take())
    }
}
