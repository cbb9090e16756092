//! Step 7 of the packet path: from a flow to its backend and next hop. `explain` shows each step of it.

use std::net::Ipv6Addr;

use weir_bpf::abi::{Backend, MIN_FABRIC_MTU, NONE, NextHop, Reason, VipWord, unpack_nh};

use super::parse::{TCP, UDP};
use super::{FlowHash, HashKey, View, hash, ownership_key, port_key};

/// A flow as the client sends it. Ports in host order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Client's address.
    pub client: Ipv6Addr,
    /// Client's port.
    pub client_port: u16,
    /// VIP.
    pub vip: Ipv6Addr,
    /// VIP's port.
    pub vip_port: u16,
    /// IP protocol number.
    pub protocol: u8,
}

/// Where next hops come from.
#[derive(Clone, Copy)]
pub enum NextHops<'a> {
    /// The daemon's heartbeat is fresh: the table `nexthops`.
    Table,
    /// It is stale: the kernel's FIB, which answers for a SID.
    Fib(&'a dyn Fn(Ipv6Addr) -> Option<NextHop>),
}

/// What was looked up on the way, as far as the packet got.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Trail {
    /// The flow the packet belongs to; for an ICMP error, the one it quotes.
    pub flow: Option<Flow>,
    /// VIP index.
    pub vip: Option<u32>,
    /// The VIP's word.
    pub word: Option<VipWord>,
    /// The flow's hash.
    pub hash: Option<FlowHash>,
    /// Slot in `rings`.
    pub slot: Option<u32>,
    /// Backend index in that slot.
    pub backend_index: Option<u32>,
    /// That backend.
    pub backend: Option<Backend>,
    /// Index into `nexthops`; `None` too when the FIB answered.
    pub next_hop_index: Option<u32>,
    /// The next hop.
    pub next_hop: Option<NextHop>,
    /// Bytes of the largest outer packet.
    pub mtu: Option<u32>,
    /// What a router of the fabric said of a path: the SID and the bytes of the outer packet that fit.
    pub learned: Option<(Ipv6Addr, u32)>,
}

/// What becomes of a flow's packets that are small enough for its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Explanation {
    /// `Forwarded`, or why not.
    pub reason: Reason,
    /// What was looked up.
    pub trail: Trail,
}

/// Says where a flow's packets go and why, by the same steps as [`decide`].
pub fn explain(key: &HashKey, view: &impl View, next_hops: NextHops<'_>, flow: Flow) -> Explanation {
    let mut trail = Trail { flow: Some(flow), ..Trail::default() };
    let reason = match view.vip_index(&port_key(flow.vip, flow.vip_port, flow.protocol)) {
        Some(vip) => pick(key, view, next_hops, vip, flow, &mut trail).err().unwrap_or(Reason::Forwarded),
        None if view.vip_index(&ownership_key(flow.vip)).is_none() => Reason::NotVip,
        None if matches!(flow.protocol, TCP | UDP) => Reason::NoRule,
        None => Reason::UnsupportedProtocol,
    };
    Explanation { reason, trail }
}

pub(super) struct Pick {
    pub(super) hash: FlowHash,
    pub(super) backend: u32,
    pub(super) sid: [u8; 16],
    pub(super) hop: NextHop,
    pub(super) mtu: u32,
}

/// Step 7 up to the hop's MTU.
pub(super) fn pick(
    key: &HashKey,
    view: &impl View,
    next_hops: NextHops<'_>,
    vip: u32,
    flow: Flow,
    trail: &mut Trail,
) -> Result<Pick, Reason> {
    trail.flow = Some(flow);
    trail.vip = Some(vip);
    let word = view.word(vip).ok_or(Reason::Internal)?;
    trail.word = Some(word);
    if word.size() == 0 {
        return Err(Reason::NotLoaded);
    }
    let hash = hash(key, word.affinity(), flow.client, flow.client_port, flow.vip_port, flow.protocol);
    trail.hash = Some(hash);
    let slot = hash.slot(word.base(), word.size());
    trail.slot = Some(slot);
    let index = view.ring_slot(slot).ok_or(Reason::Internal)?;
    trail.backend_index = Some(index);
    if index == NONE {
        return Err(Reason::NoBackend);
    }
    let backend = view.backend(index).ok_or(Reason::Internal)?;
    trail.backend = Some(backend);
    let hop = match next_hops {
        NextHops::Fib(lookup) => lookup(backend.sid.into()).ok_or(Reason::NoNextHop)?,
        NextHops::Table if backend.nh == 0 => return Err(Reason::NoNextHop),
        NextHops::Table => {
            let (first, count) = unpack_nh(backend.nh);
            let at = first + hash.next_hop(count);
            trail.next_hop_index = Some(at);
            view.next_hop(at).ok_or(Reason::Internal)?
        }
    };
    trail.next_hop = Some(hop);
    let mtu = match backend.pmtu {
        0 => hop.mtu,
        learned => hop.mtu.min(learned),
    };
    trail.mtu = Some(mtu);
    if mtu < MIN_FABRIC_MTU {
        return Err(Reason::FabricMtu);
    }
    Ok(Pick { hash, backend: index, sid: backend.sid, hop, mtu })
}
