//! Where a flow's packets go and why, in the words of rules and backends.

use serde::Serialize;
use weir_bpf::abi::{ENCAP_LEN, Reason};

use super::rows::affinity_name;
use super::{Exit, HopRow, Image, VipRow, exit_of, hop, hops};
use crate::flow::{self, Flow, HashKey, NextHops, View};
use crate::maglev::Digest;
use crate::model::{BackendId, ObjectName, Protocol, Sid, VipKey, unmapped};

/// What becomes of a flow, and what was looked up on the way there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExplainedFlow {
    /// Client's side.
    pub client: String,
    /// VIP's side.
    pub vip: String,
    /// What becomes of its packets.
    pub outcome: Exit,
    /// The reason that they count.
    pub reason: &'static str,
    /// The reason in words.
    pub meaning: &'static str,
    /// What to look at when they are not sent.
    pub hint: Option<String>,
    /// Rule that the VIP serves.
    pub rule: Option<ObjectName>,
    /// What of a packet is hashed.
    pub affinity: Option<&'static str>,
    /// Hash of the flow, hexadecimal.
    pub hash: Option<String>,
    /// The ring.
    pub ring: Option<ExplainedRing>,
    /// The backend in the slot.
    pub backend: Option<ExplainedBackend>,
    /// The next hop that the flow takes.
    pub next_hop: Option<HopRow>,
    /// Next hops among which flows to this backend are shared.
    pub equal_next_hops: Vec<HopRow>,
    /// Bytes of the largest outer packet.
    pub mtu: Option<u32>,
    /// Bytes of the largest packet that the client may send.
    pub largest_packet: Option<u32>,
    /// Flow label of the outer header.
    pub flow_label: Option<u32>,
}

/// The slot in its ring.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExplainedRing {
    /// First slot of the ring in the maps.
    pub base: u32,
    /// Slots of the ring.
    pub slots: u32,
    /// The flow's slot, counted from the ring's first.
    pub slot: u32,
    /// Digest on record.
    pub digest: String,
}

/// The backend of a flow.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExplainedBackend {
    /// Who it is; `None` when the maps do not say.
    pub id: Option<BackendId>,
    /// Node that holds it.
    pub node: Option<String>,
    /// Destination of the outer header.
    pub sid: Sid,
    /// Index in the maps.
    pub index: u32,
}

/// Explains a flow by the program's own steps on the maps' contents. `identity` says whose a backend index is.
pub fn explain(
    key: &HashKey,
    view: &impl View,
    image: &Image,
    identity: impl Fn(u32) -> Option<(BackendId, String)>,
    flow: Flow,
) -> ExplainedFlow {
    let vip = unmapped(flow.vip);
    let client = unmapped(flow.client);
    let explanation = flow::explain(key, view, NextHops::Table, flow);
    let (reason, trail) = (explanation.reason, explanation.trail);
    let protocol = Protocol::from_number(flow.protocol);
    let vip_key = |protocol| VipKey { address: vip, protocol, port: flow.vip_port };
    let row = trail.vip.and_then(|index| image.vips.iter().find(|row| row.index == index));
    let ring = trail.word.zip(trail.slot).map(|(word, slot)| ExplainedRing {
        base: word.base(),
        slots: word.size(),
        slot: slot.wrapping_sub(word.base()),
        digest: row.map_or_else(|| Digest::default().to_string(), |row| row.digest.clone()),
    });
    let backend = trail.backend.zip(trail.backend_index).map(|(backend, index)| {
        let (id, node) = identity(index).unzip();
        ExplainedBackend { id, node, sid: Sid(backend.sid.into()), index }
    });
    ExplainedFlow {
        client: std::net::SocketAddr::new(client, flow.client_port).to_string(),
        vip: protocol.map_or_else(
            || format!("{vip} protocol {}", flow.protocol),
            |protocol| vip_key(protocol).to_string(),
        ),
        outcome: exit_of(reason),
        reason: reason.name(),
        meaning: reason.help(),
        hint: hint(reason, image, flow),
        rule: row.map(|row| row.rule.clone()),
        affinity: trail.word.filter(|w| w.size() != 0).map(|word| affinity_name(word.affinity())),
        hash: trail.hash.map(|hash| format!("{:08x}{:08x}", hash.h, hash.low)),
        ring,
        equal_next_hops: trail.backend.map_or_else(Vec::new, |backend| hops(view, backend.nh)),
        backend,
        next_hop: trail.next_hop.map(hop),
        mtu: trail.mtu,
        largest_packet: trail.mtu.filter(|_| reason == Reason::Forwarded).map(|mtu| mtu - ENCAP_LEN),
        flow_label: trail.hash.map(flow::FlowHash::flow_label),
    }
}

fn hint(reason: Reason, image: &Image, flow: Flow) -> Option<String> {
    let vip = unmapped(flow.vip);
    let rules = || image.vips.iter().filter(|row| row.key.address == vip);
    let list = |rows: Vec<&VipRow>| {
        rows.iter().map(|row| format!("{} ({})", row.key, row.rule)).collect::<Vec<_>>().join(", ")
    };
    match reason {
        Reason::NoRule => Some(format!("rules of this address: {}", list(rules().collect()))),
        Reason::NotVip => Some("no loaded rule has this address: see `weir show vips` and `weir show node`".into()),
        Reason::NotLoaded => Some("`weir show node` says why the rule is not loaded".into()),
        Reason::NoBackend => Some("no backend of the rule may serve: see `weir show rings`".into()),
        Reason::NoNextHop => Some(
            "this node knows no route to the SID: see `weir show node`, `ip -6 route get SID` and the fabric peers"
                .into(),
        ),
        Reason::FabricMtu => {
            Some("raise the fabric's MTU to at least 1320, better to the uplink's plus 40".into())
        }
        _ => None,
    }
}
