//! A session that hears scripted bytes, without a network: for fuzzing what a peer may send.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use ipnet::IpNet;
use rustbgpd_wire::{Afi, BgpCodec, BgpCodecError, Capability, Message, OpenMessage, Safi, decode_message};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::codec::Decoder as _;

use super::io::QUEUE;
use super::open::Restarting;
use super::session::{Effect, Session};
use super::settle::LeaveStage;
use crate::route::{
    EndOfRib, Forwarding, PeerConfig, PeerRole, RouteAttributes, RoutePlan, Routes, SpeakerConfig,
};

/// Routes that the session remembers of its peer at most.
const MAX_PREFIXES: u32 = 100;

fn peer(asn: u32) -> PeerConfig {
    PeerConfig {
        name: "rehearsal".into(),
        address: std::net::Ipv6Addr::LOCALHOST.into(),
        port: 179,
        local_address: std::net::Ipv6Addr::LOCALHOST.into(),
        asn,
        role: PeerRole::Upstream,
        password: None,
        gtsm: false,
        export_vips: false,
        max_prefixes: MAX_PREFIXES,
        next_hop_ipv4: None,
        next_hop_ipv6: None,
    }
}

fn plan() -> RoutePlan {
    let attributes = Arc::new(RouteAttributes::default());
    let vips: Routes = (1..=3u128)
        .map(|n| {
            (
                IpNet::from(std::net::IpAddr::from(std::net::Ipv6Addr::from(0x2001_0db8 << 96 | n))),
                Arc::clone(&attributes),
            )
        })
        .collect();
    RoutePlan {
        revision: 1,
        vips: Arc::new(vips),
        node: Arc::default(),
        end_of_rib: EndOfRib::Send,
        forwarding: Forwarding::Preserved,
    }
}

/// Lets a session with three routes to tell hear a peer's bytes. The first one's bits say: the peer is of the same AS (0),
/// the session is established already (1), this speaker has just restarted (2).
///
/// # Panics
/// When the session sends what is no BGP message, or remembers more than it may.
pub fn rehearse(bytes: &[u8]) {
    let Some((flags, stream)) = bytes.split_first() else { return };
    let asn = if flags & 1 == 0 { 65000 } else { 65010 };
    let speaker = SpeakerConfig {
        asn: 65010,
        router_id: std::net::Ipv4Addr::new(192, 0, 2, 11),
        hold_time: 9,
        connect_retry: std::time::Duration::from_secs(10),
        restart_time: Some(60),
        send_hold_time: None,
        peers: Vec::new(),
    };
    let now = Instant::now();
    let restarting = if flags & 4 == 0 { Restarting::No } else { Restarting::Yes };
    let mut session = Session::new(Arc::new(speaker), Arc::new(peer(asn)), restarting, now);
    session.follow(plan(), LeaveStage::Stay, now);
    session.tick(now);
    let (sender, mut queue) = mpsc::channel::<Bytes>(QUEUE);
    session.connected(std::net::Ipv6Addr::LOCALHOST.into(), sender, now);
    if flags & 2 != 0 {
        let capabilities = vec![
            Capability::MultiProtocol { afi: Afi::Ipv6, safi: Safi::Unicast },
            Capability::MultiProtocol { afi: Afi::Ipv4, safi: Safi::Unicast },
            Capability::FourOctetAs { asn },
        ];
        let id = std::net::Ipv4Addr::new(10, 0, 0, 1);
        let open =
            OpenMessage { version: 4, my_as: asn as u16, hold_time: 9, bgp_identifier: id, capabilities };
        session.received(Message::Open(open), now);
        session.received(Message::Keepalive, now);
    }
    session.effects();

    let (mut codec, mut buffer, mut written) = (BgpCodec::new(), BytesMut::from(stream), 0);
    loop {
        match codec.decode(&mut buffer) {
            Ok(Some(message)) => session.received(message, now),
            Err(BgpCodecError::Decode(error)) => session.undecodable(error, now),
            Ok(None) | Err(_) => session.disconnected("the bytes have ended".into(), now),
        }
        while let Ok(mut sent) = queue.try_recv() {
            let decoded = decode_message(&mut sent, rustbgpd_wire::MAX_MESSAGE_LEN);
            assert!(decoded.is_ok(), "the session sent {decoded:?}");
            written += 1;
            session.progressed(written);
        }
        let (status, _) = session.status();
        assert!(status.received <= u64::from(MAX_PREFIXES), "{status:?}");
        // The driver would close the connection now, and nothing more would be heard.
        if session.effects().contains(&Effect::Close) || buffer.is_empty() {
            return;
        }
        if status.state == crate::route::PeerState::Idle {
            return;
        }
    }
}
