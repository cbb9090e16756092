//! A client's first packet to a VIP, made from addresses, ports and a size.

use std::net::IpAddr;

use etherparse::PacketBuilder;

/// Both ends of a flow, and its protocol.
#[derive(Clone, Copy, Debug)]
pub struct Endpoints {
    /// Client's address, of the VIP's family.
    pub client: IpAddr,
    /// Client's port.
    pub client_port: u16,
    /// VIP.
    pub vip: IpAddr,
    /// Its port.
    pub port: u16,
    /// Protocol.
    pub transport: Transport,
}

/// A transport protocol.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Transport {
    /// A SYN.
    #[default]
    Tcp,
    /// A datagram.
    Udp,
}

/// The frame that the client's packet comes in; `destination` is the interface's MAC address, `size` bytes of IP packet at
/// least. `None` when the addresses are of two families, or the size is more than an IP packet can have.
pub fn build(ends: &Endpoints, destination: [u8; 6], size: usize) -> Option<Vec<u8>> {
    const SOURCE: [u8; 6] = [2, 0, 0, 0, 0, 1];
    const HOPS: u8 = 64;
    let frame = PacketBuilder::ethernet2(SOURCE, destination);
    let (head, packet) = match (ends.client, ends.vip) {
        (IpAddr::V6(client), IpAddr::V6(vip)) => (40, frame.ipv6(client.octets(), vip.octets(), HOPS)),
        (IpAddr::V4(client), IpAddr::V4(vip)) => (20, frame.ipv4(client.octets(), vip.octets(), HOPS)),
        _ => return None,
    };
    let mut bytes = Vec::new();
    match ends.transport {
        Transport::Tcp => {
            let payload = vec![0x5a; size.saturating_sub(head + 20)];
            packet.tcp(ends.client_port, ends.port, 1, 65_535).syn().write(&mut bytes, &payload).ok()?;
        }
        Transport::Udp => {
            let payload = vec![0x5a; size.saturating_sub(head + 8)];
            packet.udp(ends.client_port, ends.port).write(&mut bytes, &payload).ok()?;
        }
    }
    Some(bytes)
}
