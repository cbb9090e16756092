//! The self-test: a frame to a reserved VIP whose one backend is this node's own self-test SID. It goes through the live
//! program, out to the fabric and back, or the gateway is not ready.

use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU64;

use crate::model::{
    Affinity, Backend, BackendId, Drain, Endpoint, Health, ObjectName, OnAllDown, Protocol, RingSize, Rule,
    Sid, VipKey,
};

/// The reserved VIP and its client, of the discard-only prefix (RFC 6666): never routed, never announced.
pub const VIP: Ipv6Addr = Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 1);
const CLIENT: Ipv6Addr = Ipv6Addr::new(0x100, 0, 0, 0, 0, 0, 0, 2);
/// The discard port (RFC 863).
const PORT: u16 = 9;

/// Key of the reserved VIP.
pub const KEY: VipKey = VipKey { address: IpAddr::V6(VIP), protocol: Protocol::Udp, port: PORT };

/// The rule that leads the reserved VIP to this node.
pub fn rule(node: &str, region: &str, sid: Ipv6Addr) -> Rule {
    let id = BackendId { vpc: "weir".into(), attachment: "self-test".into(), address: IpAddr::V6(sid) };
    Rule {
        // No object has an empty namespace: no tenant's rule can take this name, and all come after it when room is short.
        name: ObjectName { namespace: "".into(), name: "self-test".into() },
        region: region.into(),
        vips: vec![IpAddr::V6(VIP)],
        protocol: Protocol::Udp,
        port: PORT,
        affinity: Affinity::None,
        ring_size: RingSize::S1021,
        on_all_down: OnAllDown::Keep,
        backends: vec![Backend {
            id,
            weight: NonZeroU64::MIN,
            drain: Drain::No,
            health: Health::Unknown,
            endpoint: Some(Endpoint { node: node.into(), sid: Sid(sid) }),
        }],
    }
}

/// The frame, as a client's would come in.
pub(super) fn frame() -> Vec<u8> {
    const PAYLOAD: &[u8] = b"weir self-test";
    let length = (8 + PAYLOAD.len()) as u16;
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x86, 0xdd, 0x60, 0, 0, 0];
    frame.extend(length.to_be_bytes());
    frame.extend([17, 64]);
    frame.extend(CLIENT.octets());
    frame.extend(VIP.octets());
    frame.extend([PORT.to_be_bytes(), PORT.to_be_bytes(), length.to_be_bytes(), [0, 0]].concat());
    frame.extend(PAYLOAD);
    frame
}
