//! Reads sampled drops and tells everybody who follows: the ring buffer has one reader, and people are many.

use std::path::Path;
use std::sync::Arc;

use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;
use tracing::error;

use crate::dataplane;
use crate::dataplane::bpf::DropEvents;
use crate::inspect::DroppedFrame;

/// Events that a follower may be behind.
const BACKLOG: usize = 4096;

/// Starts reading the events of a set of maps, until `stop`. Those that nobody follows are forgotten.
pub(super) fn follow(
    directory: &Path,
    stop: CancellationToken,
) -> Result<broadcast::WeakSender<Arc<DroppedFrame>>, dataplane::Error> {
    let mut events = DropEvents::open(directory)?;
    let (tell, _) = broadcast::channel(BACKLOG);
    // Followers end with the task, which alone holds the channel open.
    let followers = tell.downgrade();
    tokio::spawn(async move {
        loop {
            let found = tokio::select! {
                found = events.next() => found,
                () = stop.cancelled() => return,
            };
            match found {
                Ok(found) => {
                    for raw in &found {
                        if tell.receiver_count() > 0 {
                            // Nobody may be left by now.
                            let _ = tell.send(Arc::new(DroppedFrame::from(raw)));
                        }
                    }
                }
                Err(error) => {
                    error!(%error, "sampled drops are no longer read");
                    return;
                }
            }
        }
    });
    Ok(followers)
}
