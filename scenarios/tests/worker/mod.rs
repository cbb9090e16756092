//! `weir worker` over the wire: packets out of their outer headers into pods, and only what may go out of them.

mod delivery;
mod edge;
mod guests;
mod ipv4;
mod life;
mod packets;
mod refusal;
mod sizes;

use scenarios::region::{Region, WorkerKind};

/// A small region whose workers run `weir worker`.
fn region(workers: u16) -> Region {
    Region { gateways: 1, workers, worker_kind: WorkerKind::Direct, ..Region::default() }
}
