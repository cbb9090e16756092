//! Words for a session's state and its ends.

use rustbgpd_fsm::SessionState;
use rustbgpd_wire::NotificationMessage;
use rustbgpd_wire::notification::{description, extract_shutdown_communication};

use crate::model::Families;
use crate::route::{PeerConfig, PeerState, PeerStatus, RestartFlags};

/// A peer that has not been dialled.
pub(super) fn initial(peer: &PeerConfig) -> PeerStatus {
    PeerStatus {
        name: peer.name.clone(),
        role: peer.role,
        address: peer.address,
        asn: peer.asn,
        state: PeerState::Idle,
        established_since: None,
        established_count: 0,
        carries: Families::default(),
        advertised: 0,
        unsendable: 0,
        received: 0,
        received_dropped: 0,
        received_over_limit: false,
        graceful_restart: None,
        hold_time: None,
        sent_flags: RestartFlags::default(),
        end_of_rib_sent: false,
        settled: 0,
        last_error: None,
    }
}

/// The state machine's state under its name here.
pub(super) fn state(state: SessionState) -> PeerState {
    match state {
        SessionState::Idle => PeerState::Idle,
        SessionState::Connect => PeerState::Connect,
        SessionState::Active => PeerState::Active,
        SessionState::OpenSent => PeerState::OpenSent,
        SessionState::OpenConfirm => PeerState::OpenConfirm,
        SessionState::Established => PeerState::Established,
    }
}

/// One line for a NOTIFICATION, with the operator's words if it has any (RFC 9003).
pub(super) fn describe(verb: &str, notification: &NotificationMessage) -> String {
    let code = notification.code;
    let subcode = notification.subcode;
    let words = match extract_shutdown_communication(notification) {
        Ok(Some(words)) if !words.is_empty() => format!(": {words:?}"),
        _ => String::new(),
    };
    format!("{verb} NOTIFICATION {}/{subcode} ({}){words}", code.as_u8(), description(code, subcode))
}
