//! Settings that the speaker's tests share.

use std::net::Ipv4Addr;

use crate::route::{PeerConfig, PeerRole, SpeakerConfig};

pub(super) fn peer() -> PeerConfig {
    PeerConfig {
        name: "tor1".into(),
        address: "2001:db8:11::1".parse().unwrap(),
        port: 179,
        local_address: "2001:db8:11::2".parse().unwrap(),
        next_hop_ipv4: None,
        next_hop_ipv6: None,
        asn: 65000,
        role: PeerRole::Upstream,
        password: None,
        gtsm: false,
        export_vips: false,
        max_prefixes: 1000,
    }
}

pub(super) fn speaker() -> SpeakerConfig {
    SpeakerConfig {
        asn: 65010,
        router_id: Ipv4Addr::new(192, 0, 2, 11),
        hold_time: 9,
        connect_retry: std::time::Duration::from_secs(10),
        restart_time: Some(60),
        send_hold_time: None,
        peers: vec![peer()],
    }
}
