//! What this speaker says in its OPEN: the capabilities it implements, and truthful restart flags.

use rustbgpd_fsm::PeerConfig as FsmConfig;
use rustbgpd_wire::{Afi, Capability, OpenMessage, Safi};

use crate::route::config::{PeerConfig, SpeakerConfig};
use crate::route::{Forwarding, RestartFlags};

/// Families offered to every peer. IPv4 is in place for IPv4 VIPs; over an IPv6 session it needs RFC 8950.
pub(super) const FAMILIES: [(Afi, Safi); 2] = [(Afi::Ipv6, Safi::Unicast), (Afi::Ipv4, Safi::Unicast)];

/// The state machine's view of a peer.
pub(super) fn fsm_config(speaker: &SpeakerConfig, peer: &PeerConfig) -> FsmConfig {
    let mut config = FsmConfig::new(speaker.asn, peer.asn, speaker.router_id);
    config.families = FAMILIES.to_vec();
    config.hold_time = speaker.hold_time;
    config.graceful_restart = speaker.restart_time.is_some();
    config.gr_restart_time = speaker.restart_time.unwrap_or(0).min(4095);
    config
}

/// Whether this is still the time after a restart, for one peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Restarting {
    /// State was adopted from the process before, and the peer has not been established since.
    Yes,
    /// No.
    No,
}

/// Flags for an OPEN that is about to be sent.
pub(super) fn flags(restarting: Restarting, forwarding: Forwarding) -> RestartFlags {
    RestartFlags { restarted: restarting == Restarting::Yes, forwarding: forwarding == Forwarding::Preserved }
}

/// Makes the state machine's OPEN say what is true. It always clears R and F and offers extended messages and enhanced
/// route refresh, which this speaker does not implement.
pub(super) fn shape(open: &mut OpenMessage, flags: RestartFlags) {
    open.capabilities
        .retain(|c| !matches!(c, Capability::EnhancedRouteRefresh | Capability::ExtendedMessage));
    for capability in &mut open.capabilities {
        if let Capability::GracefulRestart { restart_state, notification, families, .. } = capability {
            *restart_state = flags.restarted;
            // RFC 8538: a NOTIFICATION does not delete routes, so a peer's operator may reset the session unharmed.
            *notification = true;
            for family in families {
                family.forwarding_preserved = flags.forwarding;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use rustbgpd_fsm::{Action, Event, Session};
    use rustbgpd_wire::{Message, decode_message, encode_message};

    use super::*;
    use crate::route::bgp::test_support::{peer, speaker};

    /// The OPEN as the peer decodes it.
    fn open_of(restart_time: Option<u16>, restarting: Restarting, forwarding: Forwarding) -> OpenMessage {
        let mut config = speaker();
        config.restart_time = restart_time;
        let mut fsm = Session::new(fsm_config(&config, &peer()));
        fsm.handle_event(Event::ManualStart);
        let actions = fsm.handle_event(Event::TcpConnectionConfirmed);
        let mut open = actions
            .into_iter()
            .find_map(|a| if let Action::SendOpen(open) = a { Some(open) } else { None })
            .unwrap();
        shape(&mut open, flags(restarting, forwarding));
        let mut wire = encode_message(&Message::Open(open)).unwrap().freeze();
        let Message::Open(open) = decode_message(&mut wire, 4096).unwrap() else { panic!("not an OPEN") };
        open
    }

    #[test]
    fn restart_flags_say_what_is_true_for_each_family() {
        for (restarting, r) in [(Restarting::Yes, true), (Restarting::No, false)] {
            for (forwarding, f) in [
                (Forwarding::Preserved, true),
                (Forwarding::NotPreserved, false),
                (Forwarding::Unknown, false),
            ] {
                let open = open_of(Some(60), restarting, forwarding);
                let mut seen = 0;
                for capability in &open.capabilities {
                    if let Capability::GracefulRestart {
                        restart_state,
                        notification,
                        restart_time,
                        families,
                    } = capability
                    {
                        seen += 1;
                        assert_eq!((*restart_state, *notification, *restart_time), (r, true, 60));
                        assert_eq!(families.len(), 2);
                        assert!(families.iter().all(|family| family.forwarding_preserved == f));
                    }
                }
                assert_eq!(seen, 1);
            }
        }
    }

    #[test]
    fn without_a_restart_time_graceful_restart_is_not_offered() {
        let open = open_of(None, Restarting::Yes, Forwarding::Preserved);
        assert!(!open.capabilities.iter().any(|c| matches!(c, Capability::GracefulRestart { .. })));
    }

    #[test]
    fn only_what_is_implemented_is_offered() {
        let open = open_of(Some(60), Restarting::No, Forwarding::Preserved);
        let mut codes: Vec<_> = open.capabilities.iter().map(Capability::code).collect();
        codes.sort_unstable();
        // Multiprotocol twice, route refresh, extended next hop, graceful restart, 4-octet AS.
        assert_eq!(codes, [1, 1, 2, 5, 64, 65]);
        assert_eq!(open.bgp_identifier, Ipv4Addr::new(192, 0, 2, 11));
        assert_eq!(open.hold_time, 9);
    }
}
