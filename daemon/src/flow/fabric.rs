//! Step 3a of the packet path: what a router of the fabric says about a packet that this node encapsulated.

use std::net::Ipv6Addr;

use weir_bpf::abi::Config;

use super::parse::{Family, ICMPV6, IPV6_LEN, Ip};

/// The SID that a Packet Too Big for this node's outer source speaks of, and the bytes that fit.
pub(super) fn packet_too_big(config: &Config, ip: Ip<'_>) -> Option<(Ipv6Addr, u32)> {
    let source = [config.src_hi.to_ne_bytes(), config.src_lo.to_ne_bytes()].concat();
    if ip.destination().octets()[..14] != source[..14] || ip.protocol() != ICMPV6 {
        return None;
    }
    let message = ip.whole()?.get(IPV6_LEN..)?;
    let (head, quote) = message.split_at_checked(8)?;
    let mtu = u32::from_be_bytes(head[4..].try_into().ok()?);
    let quoted = Ip::new(Family::V6, quote)?;
    let right = head[0] == 2
        && (1280..=0xffff).contains(&mtu)
        && matches!(quoted.protocol(), 41 | 4)
        && quoted.source() == ip.destination()
        && quoted.destination().octets()[..6] == source[..6];
    right.then(|| (quoted.destination(), mtu))
}
