//! The lines of the image: what people and machines are shown of a VIP, a backend, a next hop, a reason.

use serde::{Deserialize, Serialize};
use weir_bpf::abi::{Affinity, Counter, Reason};

use super::Total;
use crate::dataplane::tables::VipEntry;
use crate::maglev::Digest;
use crate::model::{BackendId, ObjectName, Sid, VipKey};

/// One loaded (VIP, protocol, port).
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct VipRow {
    /// What a packet must match.
    #[serde(flatten)]
    pub key: VipKey,
    /// Rule that it serves.
    pub rule: ObjectName,
    /// What of a packet is hashed.
    pub affinity: &'static str,
    /// First slot of its ring.
    pub ring: u32,
    /// Slots in its ring; 0 when none is loaded and its packets are dropped.
    pub slots: u32,
    /// Digest of the ring, as it was recorded when the ring was written.
    pub digest: String,
    /// Index in the maps.
    pub index: u32,
    /// Sent for it.
    #[serde(flatten)]
    pub total: Total,
}

impl VipRow {
    /// The row of a table's entry.
    pub fn new(key: VipKey, entry: &VipEntry, total: Counter) -> Self {
        Self {
            key,
            rule: entry.rule.clone(),
            affinity: affinity_name(entry.word.affinity()),
            ring: entry.word.base(),
            slots: entry.word.size(),
            digest: Digest(entry.ring.digest).to_string(),
            index: entry.index,
            total: total.into(),
        }
    }
}

/// The affinity as objects spell it.
pub(super) const fn affinity_name(affinity: Affinity) -> &'static str {
    match affinity {
        Affinity::None => "None",
        Affinity::ClientIp => "ClientIP",
        Affinity::ClientIpAndProtocol => "ClientIPAndProtocol",
    }
}

/// One backend.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BackendRow {
    /// Who it is.
    #[serde(flatten)]
    pub id: BackendId,
    /// Node that holds it.
    pub node: String,
    /// Destination of the outer header.
    pub sid: Sid,
    /// Index in the maps.
    pub index: u32,
    /// Next hops among which its flows are shared; none: its packets are dropped.
    pub next_hops: Vec<HopRow>,
    /// MTU learned for the path to its SID, bytes of the outer packet.
    pub path_mtu: Option<u32>,
    /// Sent to it.
    #[serde(flatten)]
    pub total: Total,
}

/// A next hop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HopRow {
    /// Interface to transmit on.
    pub interface: String,
    /// Destination MAC address.
    pub mac: String,
    /// Bytes of the largest outer packet.
    pub mtu: u32,
}

/// What became of a packet, in one word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Exit {
    /// Sent to a backend, or a backend's reply to its client.
    Sent,
    /// Answered by the gateway itself.
    Answered,
    /// Left to the next program or the kernel.
    Left,
    /// Dropped.
    Dropped,
    /// For the gateway itself: its self-test frame, the fabric's word on a path.
    Own,
}

impl Exit {
    /// The word.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Answered => "answered",
            Self::Left => "left",
            Self::Dropped => "dropped",
            Self::Own => "own",
        }
    }
}

/// What became of a packet that counted this reason.
pub const fn exit_of(reason: Reason) -> Exit {
    match reason {
        Reason::Forwarded | Reason::IcmpSteered | Reason::ReplyForwarded => Exit::Sent,
        Reason::EchoReply | Reason::PacketTooBig => Exit::Answered,
        Reason::NotIp | Reason::NotForHost | Reason::Malformed | Reason::NotVip => Exit::Left,
        Reason::SelfTest | Reason::FabricPtb => Exit::Own,
        _ => Exit::Dropped,
    }
}

/// Packets that left the program for one reason.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExitRow {
    /// The reason's name.
    pub reason: &'static str,
    /// What became of them.
    pub outcome: Exit,
    /// How many.
    pub packets: u64,
    /// One line for people.
    pub meaning: &'static str,
}

impl ExitRow {
    /// The row of a reason.
    pub const fn new(reason: Reason, packets: u64) -> Self {
        Self { reason: reason.name(), outcome: exit_of(reason), packets, meaning: reason.help() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_s_outcome_is_what_its_help_says() {
        for reason in Reason::ALL {
            let (help, exit) = (reason.help(), exit_of(*reason));
            assert_eq!(help.starts_with("dropped: "), exit == Exit::Dropped, "{}", reason.name());
            assert_eq!(help.starts_with("left to the next slot"), exit == Exit::Left, "{}", reason.name());
        }
    }
}
