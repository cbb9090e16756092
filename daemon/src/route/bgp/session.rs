//! One peer's session without its socket: what the state machine, the timers and the plan make of each input.
//!
//! Everything here is synchronous; `driver.rs` feeds it and carries out its [`Effect`]s.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use rustbgpd_fsm::{Action, Event, NegotiatedSession, Session as Fsm, SessionState, TimerType};
use rustbgpd_wire::notification::{cease_subcode, encode_shutdown_communication};
use rustbgpd_wire::{
    Capability, DecodeError, Message, NotificationCode, NotificationMessage, encode_message,
};
use tokio::sync::mpsc;
use tokio::time::Instant;
use tracing::{info, warn};

use super::backoff::Backoff;
use super::import::{Context, Import};
use super::io::QUEUE;
use super::open::{self, Restarting};
use super::rib::{self, AdjRibOut, Encoding};
use super::settle::{LeaveStage, Settled, Settlement};
use super::status;
use crate::route::plan::GRACEFUL_SHUTDOWN;
use crate::route::{
    EndOfRib, Forwarding, PeerConfig, PeerRestart, PeerStatus, RestartFlags, RouteAttributes, RoutePlan,
    Routes, SpeakerConfig,
};

/// Queue places kept for KEEPALIVE and NOTIFICATION while UPDATEs fill the rest.
const RESERVED: usize = 8;
/// ConnectRetry timer while a dial is under way; the dial itself gives up earlier.
const CONNECT_TIMER: Duration = Duration::from_secs(15);
/// A session that lasted this long was no flap: the next dial comes soon.
const PROVEN: Duration = Duration::from_secs(10);

/// What the driver has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// Dial the peer.
    Dial,
    /// Close the connection or give up the dial.
    Close,
}

#[derive(Debug, Default)]
struct Timers {
    connect_retry: Option<Instant>,
    hold: Option<Instant>,
    keepalive: Option<Instant>,
}

/// What exists only while the session is established.
#[derive(Debug)]
struct Established {
    negotiated: NegotiatedSession,
    since: Instant,
    since_wall: SystemTime,
    rib: AdjRibOut,
    end_of_rib_sent: bool,
}

/// Whether the peer keeps our routes while we restart: it has the graceful-restart capability at all (RFC 4724 section 3). One
/// that lists no family, as FRR does unless told to restart itself, is a helper all the same; the state machine's own
/// `peer_gr_capable` asks whether the peer's routes would be kept, which is another question.
fn keeps_routes(negotiated: &NegotiatedSession) -> bool {
    negotiated.peer_capabilities.iter().any(|c| matches!(c, Capability::GracefulRestart { .. }))
}

/// One peer's session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) speaker: Arc<SpeakerConfig>,
    pub(super) peer: Arc<PeerConfig>,
    fsm: Fsm,
    restarting: Restarting,
    backoff: Backoff,
    timers: Timers,
    /// When to leave Idle, which the state machine never does by itself.
    start_at: Option<Instant>,
    out: Option<mpsc::Sender<Bytes>>,
    local: IpAddr,
    queued: u64,
    settlement: Settlement,
    plan: RoutePlan,
    stage: LeaveStage,
    established: Option<Established>,
    import: Import,
    effects: Vec<Effect>,
    status: PeerStatus,
    cause_known: bool,
}

impl Session {
    /// A session in Idle that starts once a plan says whether forwarding was preserved.
    pub(super) fn new(
        speaker: Arc<SpeakerConfig>,
        peer: Arc<PeerConfig>,
        restarting: Restarting,
        now: Instant,
    ) -> Self {
        let retention = speaker
            .restart_time
            .filter(|_| restarting == Restarting::Yes)
            .map(|seconds| Duration::from_secs(seconds.into()));
        Self {
            fsm: Fsm::new(open::fsm_config(&speaker, &peer)),
            restarting,
            backoff: Backoff::up_to(speaker.connect_retry),
            timers: Timers::default(),
            start_at: Some(now),
            out: None,
            local: peer.local_address,
            queued: 0,
            settlement: Settlement::new(retention, now),
            plan: RoutePlan::default(),
            stage: LeaveStage::Stay,
            established: None,
            import: Import::new(peer.max_prefixes, 0),
            effects: Vec::new(),
            status: status::initial(&peer),
            cause_known: false,
            speaker,
            peer,
        }
    }

    /// What to do since the last call.
    pub(super) fn effects(&mut self) -> Vec<Effect> {
        std::mem::take(&mut self.effects)
    }

    /// Whether R is still due, for a session that takes this one's place.
    pub(super) fn restarting(&self) -> Restarting {
        self.restarting
    }

    /// The earliest instant at which [`Self::tick`] has something to do.
    pub(super) fn next_tick(&self) -> Option<Instant> {
        let retained = self.settlement.retained_until().filter(|_| self.established.is_none());
        let start = self.start_at.filter(|_| self.plan.forwarding != Forwarding::Unknown);
        [self.timers.connect_retry, self.timers.hold, self.timers.keepalive, start, retained]
            .into_iter()
            .flatten()
            .min()
    }

    /// Runs what is due, the hold timer last: the caller has read what the peer sent before.
    pub(super) fn tick(&mut self, now: Instant) {
        let due = |timer: &mut Option<Instant>| timer.take_if(|at| *at <= now).is_some();
        if self.plan.forwarding != Forwarding::Unknown && due(&mut self.start_at) {
            self.feed(Event::ManualStart, now);
        }
        if due(&mut self.timers.keepalive) {
            self.feed(Event::KeepaliveTimerExpires, now);
        }
        if due(&mut self.timers.connect_retry) {
            self.feed(Event::ConnectRetryTimerExpires, now);
        }
        if due(&mut self.timers.hold) {
            self.fail("hold timer expired: the peer was silent".into());
            self.feed(Event::HoldTimerExpires, now);
        }
        self.settle_while_down(now);
    }

    /// Whether the keepalive timer is due; it is run before reading, so that a busy peer cannot keep us silent.
    pub(super) fn keepalive_due(&self, now: Instant) -> bool {
        self.timers.keepalive.is_some_and(|at| at <= now)
    }

    /// Follows a plan and a stage of leaving.
    pub(super) fn follow(&mut self, plan: RoutePlan, stage: LeaveStage, now: Instant) {
        self.plan = plan;
        self.stage = stage;
        self.update_rib();
        self.settle_while_down(now);
    }

    /// The dial succeeded.
    pub(super) fn connected(&mut self, local: IpAddr, out: mpsc::Sender<Bytes>, now: Instant) {
        self.local = local;
        self.out = Some(out);
        self.queued = 0;
        self.settlement.connected();
        self.feed(Event::TcpConnectionConfirmed, now);
    }

    /// The dial failed, or the connection broke.
    pub(super) fn disconnected(&mut self, cause: String, now: Instant) {
        self.fail(cause);
        self.out = None;
        self.feed(Event::TcpConnectionFails, now);
    }

    /// The writer has handed `written` messages to TCP.
    pub(super) fn progressed(&mut self, written: u64) {
        self.settlement.written(written);
        self.pump();
    }

    /// The peer sent bytes that are no BGP message.
    pub(super) fn undecodable(&mut self, error: DecodeError, now: Instant) {
        self.fail(format!("decode a message: {error}"));
        self.feed(Event::DecodeError(error), now);
    }

    /// The peer sent a message.
    pub(super) fn received(&mut self, message: Message, now: Instant) {
        let event = match message {
            Message::Open(open) => Event::OpenReceived(open),
            Message::Keepalive => Event::KeepaliveReceived,
            Message::Notification(notification) => {
                self.fail(status::describe("received", &notification));
                Event::NotificationReceived(notification)
            }
            Message::Update(update) => match &self.established {
                Some(established) => {
                    let context = Context {
                        asn: self.speaker.asn,
                        internal: self.speaker.asn == self.peer.asn,
                        four_octet_as: established.negotiated.four_octet_as,
                    };
                    self.import.update(&update, context)
                }
                // The state machine answers it as the error it is.
                None => Event::UpdateReceived,
            },
            Message::RouteRefresh(refresh) => {
                let (Some(afi), Some(safi)) = (refresh.afi(), refresh.safi()) else { return };
                if let Some(established) = &mut self.established
                    && safi == rustbgpd_wire::Safi::Unicast
                    && refresh.subtype_raw == 0
                {
                    established.rib.refresh(afi);
                }
                Event::RouteRefreshReceived { afi, safi }
            }
            _ => return,
        };
        if let Event::DecodeError(error) = &event {
            self.fail(format!("decode an UPDATE: {error}"));
        }
        self.feed(event, now);
        self.pump();
    }

    /// Ends the session for good, with Cease/Hard Reset where the peer would keep routes otherwise (RFC 8538).
    pub(super) fn leave(&mut self, reason: &str, now: Instant) {
        self.fail(format!("left: {reason}"));
        self.feed(Event::ManualStop { reason: Some(encode_shutdown_communication(reason)) }, now);
        self.start_at = None;
        self.settlement.forgotten();
    }

    /// Ends the session so that another configuration can take its place. Peers with graceful restart keep the routes:
    /// those that do so after a NOTIFICATION are told why, the others see the connection close.
    pub(super) fn reset(&mut self, reason: &str, now: Instant) {
        let silent = self
            .established
            .as_ref()
            .is_some_and(|e| keeps_routes(&e.negotiated) && !e.negotiated.peer_notification_gr)
            && self.speaker.restart_time.is_some();
        if silent {
            self.disconnected(reason.into(), now);
        } else {
            let reason = Some(encode_shutdown_communication(reason));
            self.feed(Event::AdministrativeReset { reason }, now);
        }
        self.start_at = None;
    }

    /// Drops the connection as a dying process would: no NOTIFICATION.
    pub(super) fn abandon(&mut self) {
        self.out = None;
        self.effects.push(Effect::Close);
    }

    /// A snapshot for the operator.
    pub(super) fn status(&self) -> (PeerStatus, Settled) {
        let mut status = self.status.clone();
        status.state = status::state(self.fsm.state());
        status.received = self.import.received();
        status.received_dropped = self.import.dropped();
        status.received_over_limit = self.import.over_limit();
        status.settled = self.settlement.settled().revision;
        if let Some(established) = &self.established {
            let negotiated = &established.negotiated;
            status.established_since = Some(established.since_wall);
            status.carries = established.rib.carries();
            status.advertised = established.rib.sent() as u64;
            status.unsendable = established.rib.unsendable() as u64;
            status.graceful_restart = keeps_routes(negotiated).then_some(PeerRestart {
                restart_time: negotiated.peer_restart_time,
                notification: negotiated.peer_notification_gr,
                restarted: negotiated.peer_restart_state,
            });
            status.hold_time = Some(negotiated.hold_time);
            status.end_of_rib_sent = established.end_of_rib_sent;
        }
        (status, self.settlement.settled())
    }

    /// Says why the next event ends the session; more than the NOTIFICATION that it may cause can say.
    fn fail(&mut self, cause: String) {
        self.status.last_error = Some(cause);
        self.cause_known = true;
    }

    fn feed(&mut self, event: Event, now: Instant) {
        for action in self.fsm.handle_event(event) {
            self.act(action, now);
        }
        self.cause_known = false;
    }

    fn act(&mut self, action: Action, now: Instant) {
        match action {
            Action::SendOpen(mut open) => {
                let flags = open::flags(self.restarting, self.plan.forwarding);
                open::shape(&mut open, flags);
                self.status.sent_flags =
                    if self.speaker.restart_time.is_some() { flags } else { RestartFlags::default() };
                self.send(&Message::Open(open));
            }
            Action::SendKeepalive => self.send(&Message::Keepalive),
            Action::SendNotification(notification) => {
                let notification = self.harden(notification);
                let text = status::describe("sent", &notification);
                warn!(peer = self.peer.name, "{text}");
                if !self.cause_known {
                    self.status.last_error = Some(text);
                }
                self.send(&Message::Notification(notification));
            }
            Action::StartTimer(timer, seconds) => self.start_timer(timer, seconds, now),
            Action::StopTimer(timer) => {
                if let Some(slot) = self.timer(timer) {
                    *slot = None;
                }
            }
            Action::InitiateTcpConnection => self.effects.push(Effect::Dial),
            Action::CloseTcpConnection => {
                self.out = None;
                self.effects.push(Effect::Close);
            }
            Action::StateChanged { old, new } => self.changed(old, new, now),
            Action::SessionEstablished(negotiated) => self.establish(*negotiated, now),
            _ => {}
        }
    }

    fn timer(&mut self, timer: TimerType) -> Option<&mut Option<Instant>> {
        match timer {
            TimerType::ConnectRetry => Some(&mut self.timers.connect_retry),
            TimerType::Hold => Some(&mut self.timers.hold),
            TimerType::Keepalive => Some(&mut self.timers.keepalive),
            _ => None,
        }
    }

    fn start_timer(&mut self, timer: TimerType, seconds: u32, now: Instant) {
        let wait = match (timer, self.fsm.state()) {
            // The state machine's own retry goes up to five minutes.
            (TimerType::ConnectRetry, SessionState::Active) => self.backoff.fail(),
            (TimerType::ConnectRetry, SessionState::Idle) => return,
            (TimerType::ConnectRetry, _) => CONNECT_TIMER,
            _ => Duration::from_secs(seconds.into()),
        };
        if let Some(slot) = self.timer(timer) {
            *slot = Some(now + wait);
        }
    }

    fn changed(&mut self, old: SessionState, new: SessionState, now: Instant) {
        if old == new {
            return;
        }
        if old == SessionState::Established {
            self.lost(now);
        }
        if new == SessionState::Idle {
            self.timers = Timers::default();
            self.start_at = Some(now + self.backoff.fail());
        }
    }

    fn establish(&mut self, negotiated: NegotiatedSession, now: Instant) {
        info!(
            peer = self.peer.name,
            asn = negotiated.peer_asn,
            hold_time = negotiated.hold_time,
            restart_time = keeps_routes(&negotiated).then_some(negotiated.peer_restart_time),
            "BGP session established"
        );
        // R says "I have restarted" once; a later session would make the peer believe in another restart.
        self.restarting = Restarting::No;
        self.status.established_count += 1;
        self.status.last_error = None;
        self.import = Import::new(self.peer.max_prefixes, self.import.dropped());
        if !keeps_routes(&negotiated) {
            self.settlement.forgotten();
        }
        let encoding = Encoding::new(self.speaker.asn, self.local, &self.peer, &negotiated);
        self.established = Some(Established {
            negotiated,
            since: now,
            since_wall: SystemTime::now(),
            rib: AdjRibOut::new(encoding),
            end_of_rib_sent: false,
        });
        self.update_rib();
    }

    fn lost(&mut self, now: Instant) {
        let Some(established) = self.established.take() else { return };
        let cause = self.status.last_error.as_deref().unwrap_or("closed");
        warn!(peer = self.peer.name, cause, "BGP session lost");
        if now.duration_since(established.since) >= PROVEN {
            self.backoff.succeed();
        }
        let negotiated = &established.negotiated;
        // The peer may notice the loss as late as its hold timer.
        let retention = self
            .speaker
            .restart_time
            .filter(|_| keeps_routes(negotiated))
            .map(|restart| Duration::from_secs(u64::from(restart) + u64::from(negotiated.hold_time)));
        self.settlement.lost(retention, now);
        self.import = Import::new(self.peer.max_prefixes, self.import.dropped());
    }

    /// Cease/Administrative Shutdown becomes Cease/Hard Reset for a peer that keeps routes over a NOTIFICATION.
    fn harden(&self, notification: NotificationMessage) -> NotificationMessage {
        let keeps = self.fsm.negotiated().map_or_else(
            || self.established.as_ref().is_some_and(|e| e.negotiated.peer_notification_gr),
            |n| n.peer_notification_gr,
        );
        let shutdown = notification.code == NotificationCode::Cease
            && notification.subcode == cease_subcode::ADMINISTRATIVE_SHUTDOWN;
        if !(keeps && shutdown && self.speaker.restart_time.is_some()) {
            return notification;
        }
        let mut data = vec![NotificationCode::Cease.as_u8(), notification.subcode];
        data.extend_from_slice(&notification.data);
        NotificationMessage::new(NotificationCode::Cease, cease_subcode::HARD_RESET, data.into())
    }

    fn send(&mut self, message: &Message) {
        let Some(out) = &self.out else { return };
        match encode_message(message) {
            // A full queue means that the peer takes nothing; the writer's send hold timer ends that.
            Ok(bytes) => self.queued += u64::from(out.try_send(bytes.freeze()).is_ok()),
            Err(error) => warn!(peer = self.peer.name, %error, "encode a message"),
        }
    }

    fn update_rib(&mut self) {
        let Some(established) = &mut self.established else { return };
        let marked = |a: &RouteAttributes| {
            let mut a = a.clone();
            a.communities.insert(GRACEFUL_SHUTDOWN);
            Arc::new(a)
        };
        let stage = self.stage;
        let routes: Routes = self
            .plan
            .routes_for(self.peer.role, self.peer.export_vips)
            .filter(|_| stage < LeaveStage::Withdrawn)
            .map(|(p, a)| (p, if stage == LeaveStage::Shutdown { marked(a) } else { Arc::clone(a) }))
            .collect();
        established.rib.want(routes);
        self.pump();
    }

    /// Sends what is due as far as the queue has room, and notes what is settled.
    fn pump(&mut self) {
        while let Some(established) = &mut self.established
            && self.out.as_ref().is_some_and(|out| out.capacity() > RESERVED)
        {
            match established.rib.next_update() {
                Ok(Some(update)) => self.send(&Message::Update(update)),
                Ok(None) => {
                    self.finish_revision();
                    break;
                }
                Err(error) => {
                    self.status.last_error = Some(format!("encode routes: {error} (fewer communities help)"));
                    break;
                }
            }
        }
    }

    /// All routes of the plan are queued: send End-of-RIB if it is due, and mark the revision.
    fn finish_revision(&mut self) {
        let Some(established) = &mut self.established else { return };
        let due = self.plan.end_of_rib == EndOfRib::Send && !established.end_of_rib_sent;
        if due {
            established.end_of_rib_sent = true;
            match rib::end_of_rib(&established.negotiated) {
                Ok(markers) => markers.into_iter().for_each(|m| self.send(&Message::Update(m))),
                Err(error) => warn!(peer = self.peer.name, %error, "encode End-of-RIB"),
            }
        }
        let end_of_rib = self.established.as_ref().is_some_and(|e| e.end_of_rib_sent);
        self.settlement.sent(self.queued, self.current(), end_of_rib);
    }

    fn current(&self) -> Settled {
        Settled { revision: self.plan.revision, stage: self.stage }
    }

    fn settle_while_down(&mut self, now: Instant) {
        if self.established.is_none() {
            self.settlement.down(self.current(), now);
        }
    }
}

const _: () = assert!(QUEUE > RESERVED * 2);

#[cfg(test)]
#[path = "session_tests.rs"]
mod tests;
