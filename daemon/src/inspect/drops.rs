//! Sampled drops in words: what `weir show drops --follow` is sent.

use serde::{Deserialize, Serialize};
use weir_bpf::abi::{DROP_BYTES, Reason};

use crate::dataplane::bpf::{RawDrop, interface_name};

/// A dropped frame.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DroppedFrame {
    /// When, RFC 3339 with milliseconds.
    pub at: String,
    /// Reason's name.
    pub reason: String,
    /// Interface that it came in on.
    pub interface: String,
    /// Bytes of the frame.
    pub length: u32,
    /// Drops for the same reason on the same CPU since its last event that were not sampled.
    pub unsampled: u32,
    /// The frame's first bytes, hexadecimal.
    pub frame: String,
}

impl From<&RawDrop> for DroppedFrame {
    fn from(raw: &RawDrop) -> Self {
        let event = &raw.event;
        let held = (event.length as usize).min(DROP_BYTES);
        let name = Reason::ALL.get(event.reason as usize).map(|reason| reason.name());
        Self {
            at: humantime::format_rfc3339_millis(raw.at).to_string(),
            reason: name.map_or_else(|| format!("reason {}", event.reason), ToOwned::to_owned),
            interface: interface_name(event.ifindex)
                .unwrap_or_else(|| format!("interface {}", event.ifindex)),
            length: event.length,
            unsampled: event.unsampled,
            frame: event.bytes[..held].iter().map(|b| format!("{b:02x}")).collect(),
        }
    }
}

/// A line of the stream of drops.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum DropLine {
    /// A dropped frame.
    Dropped(DroppedFrame),
    /// The reader was too slow.
    Missed {
        /// Events that it has not been sent.
        missed: u64,
    },
}
