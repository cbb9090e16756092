//! Real traffic between nodes, counted: TCP connections that know their backend, numbered UDP both ways.

mod tcp;
mod tcp_info;
mod udp;

use std::time::Duration;

pub use tcp::{Connection, IdentifyServer, Pool, Pulse, PulseReport};
pub use tcp_info::retransmissions;
pub use udp::{UdpFlow, UdpReport, UdpServer};

/// What happened in one interval of a measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct Sample {
    /// Start of the interval, since the measurement began.
    #[serde(serialize_with = "as_seconds")]
    pub at: Duration,
    /// Packets or messages sent in it.
    pub sent: u64,
    /// Those of them that were lost, in either direction.
    pub lost: u64,
}

fn as_seconds<S: serde::Serializer>(at: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_f64(at.as_secs_f64())
}

/// Sorts events into intervals: each is when it was sent, and whether it was lost.
pub(crate) fn samples(interval: Duration, events: impl IntoIterator<Item = (Duration, bool)>) -> Vec<Sample> {
    let width = interval.as_nanos().max(1);
    let mut samples: Vec<Sample> = Vec::new();
    for (at, lost) in events {
        let index = (at.as_nanos() / width) as usize;
        while samples.len() <= index {
            samples.push(Sample { at: interval * samples.len() as u32, ..Sample::default() });
        }
        samples[index].sent += 1;
        samples[index].lost += u64::from(lost);
    }
    samples
}
