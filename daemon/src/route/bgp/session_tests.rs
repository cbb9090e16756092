//! Tests of a session without a network: a scripted peer on the other side of its message queue.

use std::collections::BTreeSet;

use bytes::BytesMut;
use ipnet::IpNet;
use proptest::prelude::*;
use rustbgpd_wire::{
    Afi, BgpCodec, BgpCodecError, Capability, GracefulRestartFamily, OpenMessage, Safi, decode_message,
};
use tokio_util::codec::Decoder;

use super::*;
use crate::route::bgp::test_support::{peer, speaker};
use crate::route::{PeerRole, PeerState};

/// What the scripted peer's OPEN says about graceful restart.
#[derive(Clone, Copy)]
enum Helper {
    None,
    Plain,
    WithNotification,
}

struct Bench {
    session: Session,
    queue: Option<mpsc::Receiver<Bytes>>,
    now: Instant,
    written: u64,
}

impl Bench {
    fn new(restarting: Restarting) -> Self {
        Self::of(peer(), restarting)
    }

    fn of(peer: PeerConfig, restarting: Restarting) -> Self {
        let now = Instant::now();
        let session = Session::new(Arc::new(speaker()), Arc::new(peer), restarting, now);
        Self { session, queue: None, now, written: 0 }
    }

    fn connect(&mut self) {
        self.session.tick(self.now);
        assert_eq!(self.session.effects(), [Effect::Dial]);
        let (sender, queue) = mpsc::channel(QUEUE);
        self.queue = Some(queue);
        self.written = 0;
        self.session.connected("2001:db8:11::2".parse().unwrap(), sender, self.now);
    }

    fn establish(&mut self, helper: Helper) {
        self.connect();
        self.session.received(Message::Open(open(helper)), self.now);
        self.session.received(Message::Keepalive, self.now);
        assert_eq!(self.session.status().0.state, PeerState::Established);
    }

    /// Messages sent since the last call, as the peer decodes them; they count as written.
    fn sent(&mut self) -> Vec<Message> {
        let mut messages = Vec::new();
        loop {
            let queue = self.queue.as_mut().unwrap();
            let Ok(mut bytes) = queue.try_recv() else { return messages };
            messages.push(decode_message(&mut bytes, 4096).unwrap());
            self.written += 1;
            self.session.progressed(self.written);
        }
    }

    fn settled(&self) -> u64 {
        self.session.status().1.revision
    }
}

fn open(helper: Helper) -> OpenMessage {
    let mut capabilities = vec![
        Capability::MultiProtocol { afi: Afi::Ipv6, safi: Safi::Unicast },
        Capability::FourOctetAs { asn: 65000 },
    ];
    let family = GracefulRestartFamily { afi: Afi::Ipv6, safi: Safi::Unicast, forwarding_preserved: false };
    if !matches!(helper, Helper::None) {
        capabilities.push(Capability::GracefulRestart {
            restart_state: false,
            notification: matches!(helper, Helper::WithNotification),
            restart_time: 120,
            // FRR lists no family unless told to restart itself, and helps all the same.
            families: if matches!(helper, Helper::Plain) { Vec::new() } else { vec![family] },
        });
    }
    OpenMessage { version: 4, my_as: 65000, hold_time: 9, bgp_identifier: [10, 0, 0, 1].into(), capabilities }
}

fn plan(revision: u64, vips: u32, end_of_rib: EndOfRib) -> RoutePlan {
    let attributes = Arc::new(RouteAttributes::default());
    let base = u128::from("2001:db8:b::".parse::<std::net::Ipv6Addr>().unwrap());
    let vips = (0..vips)
        .map(|n| IpNet::from(IpAddr::from(std::net::Ipv6Addr::from(base + u128::from(n)))))
        .map(|p| (p, Arc::clone(&attributes)))
        .collect();
    let node = Routes::from([("2001:db8:ff01:1::/64".parse().unwrap(), attributes)]);
    RoutePlan {
        revision,
        vips: Arc::new(vips),
        node: Arc::new(node),
        end_of_rib,
        forwarding: Forwarding::Preserved,
    }
}

/// Prefixes announced and withdrawn, and End-of-RIB markers.
fn updates(messages: &[Message]) -> (BTreeSet<String>, BTreeSet<String>, usize) {
    let (mut add, mut del, mut markers) = (BTreeSet::new(), BTreeSet::new(), 0);
    for message in messages {
        let Message::Update(update) = message else { continue };
        let parsed = update.parse(true, false, &[]).unwrap();
        let before = add.len() + del.len();
        for attribute in &parsed.attributes {
            match attribute {
                rustbgpd_wire::PathAttribute::MpReachNlri(r) => {
                    add.extend(r.announced.iter().map(|e| e.prefix.to_string()));
                }
                rustbgpd_wire::PathAttribute::MpUnreachNlri(r) => {
                    del.extend(r.withdrawn.iter().map(|e| e.prefix.to_string()));
                }
                _ => {}
            }
        }
        markers += usize::from(before == add.len() + del.len());
    }
    (add, del, markers)
}

fn restart_bit(messages: &[Message]) -> Option<bool> {
    messages.iter().find_map(|m| match m {
        Message::Open(open) => open.capabilities.iter().find_map(|c| match c {
            Capability::GracefulRestart { restart_state, .. } => Some(*restart_state),
            _ => None,
        }),
        _ => None,
    })
}

#[tokio::test]
async fn no_open_is_sent_before_it_is_known_whether_forwarding_was_preserved() {
    let mut bench = Bench::new(Restarting::Yes);
    bench.session.tick(bench.now);
    assert_eq!(bench.session.effects(), []);
    bench.session.follow(plan(1, 0, EndOfRib::Withhold), LeaveStage::Stay, bench.now);
    bench.connect();
}

#[tokio::test]
async fn the_restart_bit_is_set_until_the_first_established_and_never_again() {
    let mut bench = Bench::new(Restarting::Yes);
    bench.session.follow(plan(1, 1, EndOfRib::Withhold), LeaveStage::Stay, bench.now);
    bench.connect();
    assert_eq!(restart_bit(&bench.sent()), Some(true));
    bench.session.disconnected("reset".into(), bench.now);
    // Not established yet: still restarting.
    let mut expected = true;
    for _ in 0..2 {
        bench.now += Duration::from_secs(20);
        bench.session.effects();
        bench.session.tick(bench.now);
        assert_eq!(bench.session.effects(), [Effect::Dial]);
        let (sender, queue) = mpsc::channel(QUEUE);
        bench.queue = Some(queue);
        bench.session.connected("2001:db8:11::2".parse().unwrap(), sender, bench.now);
        assert_eq!(restart_bit(&bench.sent()), Some(expected));
        bench.session.received(Message::Open(open(Helper::Plain)), bench.now);
        bench.session.received(Message::Keepalive, bench.now);
        bench.session.disconnected("reset".into(), bench.now);
        expected = false;
    }
}

#[tokio::test]
async fn end_of_rib_follows_the_routes_and_waits_to_be_allowed() {
    for helper in [Helper::None, Helper::Plain] {
        let mut bench = Bench::new(Restarting::Yes);
        bench.session.follow(plan(1, 2, EndOfRib::Withhold), LeaveStage::Stay, bench.now);
        bench.establish(helper);
        let (add, _, markers) = updates(&bench.sent());
        assert_eq!((add.len(), markers), (2, 0), "routes do not wait for anything from the peer");
        bench.session.follow(plan(2, 3, EndOfRib::Send), LeaveStage::Stay, bench.now);
        let (add, _, markers) = updates(&bench.sent());
        assert_eq!((add.len(), markers), (1, 1));
        bench.session.follow(plan(3, 4, EndOfRib::Send), LeaveStage::Stay, bench.now);
        assert_eq!(updates(&bench.sent()).2, 0, "once a session");
    }
}

#[tokio::test]
async fn a_revision_is_settled_when_its_last_update_is_written() {
    let mut bench = Bench::new(Restarting::No);
    bench.session.follow(plan(1, 1000, EndOfRib::Send), LeaveStage::Stay, bench.now);
    bench.establish(Helper::Plain);
    bench.sent();
    assert_eq!(bench.settled(), 1);
    bench.session.follow(plan(2, 0, EndOfRib::Send), LeaveStage::Stay, bench.now);
    assert_eq!(bench.settled(), 1, "queued is not written");
    let (_, del, _) = updates(&bench.sent());
    assert_eq!(del.len(), 1000);
    assert_eq!(bench.settled(), 2);
}

#[tokio::test]
async fn routes_that_a_restart_left_behind_keep_revisions_unsettled_until_end_of_rib() {
    let mut bench = Bench::new(Restarting::Yes);
    bench.session.follow(plan(1, 1, EndOfRib::Withhold), LeaveStage::Stay, bench.now);
    assert_eq!(bench.settled(), 0, "the router may still hold what the process before announced");
    bench.establish(Helper::Plain);
    bench.sent();
    assert_eq!(bench.settled(), 0);
    bench.session.follow(plan(2, 1, EndOfRib::Send), LeaveStage::Stay, bench.now);
    bench.sent();
    assert_eq!(bench.settled(), 2);
}

#[tokio::test]
async fn a_lost_session_settles_nothing_until_the_peer_has_forgotten_the_routes() {
    let mut bench = Bench::new(Restarting::No);
    bench.session.follow(plan(1, 1, EndOfRib::Send), LeaveStage::Stay, bench.now);
    bench.establish(Helper::Plain);
    bench.sent();
    bench.session.disconnected("reset".into(), bench.now);
    bench.session.follow(plan(2, 0, EndOfRib::Send), LeaveStage::Stay, bench.now);
    bench.now += Duration::from_secs(68);
    bench.session.tick(bench.now);
    assert_eq!(bench.settled(), 1);
    bench.now += Duration::from_secs(1);
    bench.session.disconnected("refused".into(), bench.now);
    bench.session.tick(bench.now);
    assert_eq!(bench.settled(), 2, "restart time 60 s and hold time 9 s have passed");
}

#[tokio::test]
async fn without_graceful_restart_a_lost_session_holds_nothing_back() {
    let mut bench = Bench::new(Restarting::No);
    bench.session.follow(plan(1, 1, EndOfRib::Send), LeaveStage::Stay, bench.now);
    bench.establish(Helper::None);
    bench.session.disconnected("reset".into(), bench.now);
    bench.session.follow(plan(2, 0, EndOfRib::Send), LeaveStage::Stay, bench.now);
    assert_eq!(bench.settled(), 2);
}

#[tokio::test]
async fn leaving_is_a_hard_reset_only_for_a_peer_that_would_keep_the_routes() {
    for (helper, subcode, data) in [
        (Helper::WithNotification, 9, b"\x06\x02\x05moved".as_slice()),
        (Helper::Plain, 2, b"\x05moved"),
        (Helper::None, 2, b"\x05moved"),
    ] {
        let mut bench = Bench::new(Restarting::No);
        bench.session.follow(plan(1, 1, EndOfRib::Send), LeaveStage::Stay, bench.now);
        bench.establish(helper);
        bench.sent();
        bench.session.leave("moved", bench.now);
        let sent = bench.sent();
        let [Message::Notification(n)] = sent.as_slice() else { panic!("{sent:?}") };
        assert_eq!((n.code.as_u8(), n.subcode, &n.data[..]), (6, subcode, data));
        assert_eq!(bench.session.effects(), [Effect::Close]);
        bench.now += Duration::from_mins(1);
        bench.session.tick(bench.now);
        assert_eq!(bench.session.effects(), [], "it does not come back");
    }
}

#[tokio::test]
async fn a_restart_sends_no_notification() {
    let mut bench = Bench::new(Restarting::No);
    bench.session.follow(plan(1, 1, EndOfRib::Send), LeaveStage::Stay, bench.now);
    bench.establish(Helper::WithNotification);
    bench.sent();
    bench.session.abandon();
    assert_eq!(bench.sent(), []);
    assert_eq!(bench.session.effects(), [Effect::Close]);
}

#[tokio::test]
async fn a_configuration_reset_never_makes_a_helper_drop_the_routes() {
    for (helper, notifications) in [(Helper::WithNotification, vec![(6, 4)]), (Helper::Plain, vec![])] {
        let mut bench = Bench::new(Restarting::No);
        bench.session.follow(plan(1, 1, EndOfRib::Send), LeaveStage::Stay, bench.now);
        bench.establish(helper);
        bench.sent();
        bench.session.reset("configuration changed", bench.now);
        let got: Vec<_> = bench
            .sent()
            .iter()
            .map(|m| match m {
                Message::Notification(n) => (n.code.as_u8(), n.subcode),
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(got, notifications);
        assert_eq!(bench.session.effects(), [Effect::Close]);
    }
}

#[tokio::test]
async fn a_fabric_peer_gets_the_locator_and_no_vip() {
    let mut fabric = peer();
    fabric.role = PeerRole::Fabric;
    let mut bench = Bench::of(fabric, Restarting::No);
    bench.session.follow(plan(1, 3, EndOfRib::Send), LeaveStage::Stay, bench.now);
    bench.establish(Helper::Plain);
    assert_eq!(updates(&bench.sent()).0, BTreeSet::from(["2001:db8:ff01:1::/64".to_owned()]));
}

#[tokio::test]
async fn stages_of_leaving_mark_and_then_withdraw_every_route() {
    let mut bench = Bench::new(Restarting::No);
    bench.session.follow(plan(1, 2, EndOfRib::Send), LeaveStage::Stay, bench.now);
    bench.establish(Helper::Plain);
    bench.sent();
    bench.session.follow(plan(1, 2, EndOfRib::Send), LeaveStage::Shutdown, bench.now);
    let sent = bench.sent();
    assert_eq!(updates(&sent).0.len(), 2);
    let marked = |m: &Message| match m {
        Message::Update(u) => u
            .parse(true, false, &[])
            .unwrap()
            .attributes
            .iter()
            .any(|a| a.communities().is_some_and(|c| c.contains(&GRACEFUL_SHUTDOWN))),
        _ => false,
    };
    assert!(sent.iter().all(marked));
    assert_eq!(bench.session.status().1.stage, LeaveStage::Shutdown);
    bench.session.follow(plan(1, 2, EndOfRib::Send), LeaveStage::Withdrawn, bench.now);
    assert_eq!(updates(&bench.sent()).1.len(), 2);
    assert_eq!(bench.session.status().1.stage, LeaveStage::Withdrawn);
}

#[tokio::test]
async fn a_silent_peer_is_given_up_at_the_hold_time_and_dialled_again() {
    let mut bench = Bench::new(Restarting::No);
    bench.session.follow(plan(1, 1, EndOfRib::Send), LeaveStage::Stay, bench.now);
    bench.establish(Helper::Plain);
    bench.sent();
    for _ in 0..2 {
        bench.now += Duration::from_secs(3);
        bench.session.tick(bench.now);
        assert_eq!(bench.sent(), [Message::Keepalive]);
    }
    bench.now += Duration::from_secs(3);
    bench.session.tick(bench.now);
    let (status, _) = bench.session.status();
    assert_eq!(status.state, PeerState::Idle);
    assert!(status.last_error.unwrap().contains("hold timer"));
    assert_eq!(bench.session.effects(), [Effect::Close]);
    bench.now += Duration::from_secs(10);
    bench.session.tick(bench.now);
    assert_eq!(bench.session.effects(), [Effect::Dial]);
}

#[tokio::test]
async fn a_peer_out_of_reach_is_dialled_at_least_as_often_as_configured() {
    let mut bench = Bench::new(Restarting::No);
    let longest = Duration::from_secs(2);
    let speaker = SpeakerConfig { connect_retry: longest, ..speaker() };
    bench.session = Session::new(Arc::new(speaker), Arc::new(peer()), Restarting::No, bench.now);
    bench.session.follow(plan(1, 0, EndOfRib::Withhold), LeaveStage::Stay, bench.now);
    bench.session.tick(bench.now);
    for _ in 0..12 {
        assert_eq!(bench.session.effects(), [Effect::Dial]);
        bench.session.disconnected("refused".into(), bench.now);
        bench.session.effects();
        let due = bench.session.next_tick().unwrap();
        assert!(due - bench.now <= longest, "{:?}", due - bench.now);
        bench.now = due;
        bench.session.tick(bench.now);
    }
}

#[tokio::test]
async fn a_peer_that_takes_nothing_fills_no_more_than_the_queue() {
    let mut bench = Bench::new(Restarting::No);
    bench.session.follow(plan(1, 0, EndOfRib::Send), LeaveStage::Stay, bench.now);
    bench.establish(Helper::Plain);
    bench.sent();
    bench.session.follow(plan(2, 60_000, EndOfRib::Send), LeaveStage::Stay, bench.now);
    bench.now += Duration::from_secs(3);
    bench.session.tick(bench.now);
    assert!(bench.queue.as_ref().unwrap().len() <= QUEUE);
    assert_eq!(bench.settled(), 1);
    let sent = bench.sent();
    assert_eq!(updates(&sent).0.len(), 60_000, "all of it comes once the peer reads");
    assert!(sent.contains(&Message::Keepalive), "and the KEEPALIVE had a place of its own");
    assert_eq!(bench.settled(), 2);
}

/// Bytes with a valid header in front, so that bodies are reached.
fn framed() -> impl Strategy<Value = Vec<u8>> {
    (0u8..7, proptest::collection::vec(any::<u8>(), 0..120)).prop_map(|(kind, body)| {
        let mut bytes = vec![0xff; 16];
        bytes.extend_from_slice(&((19 + body.len()) as u16).to_be_bytes());
        bytes.push(kind);
        bytes.extend_from_slice(&body);
        bytes
    })
}

/// An UPDATE whose sections have matching lengths and whose attributes have plausible headers.
fn update() -> impl Strategy<Value = Vec<u8>> {
    let attribute = (any::<u8>(), 0u8..45, proptest::collection::vec(any::<u8>(), 0..40)).prop_map(
        |(flags, kind, value)| {
            let mut bytes = vec![flags & 0xef, kind, value.len() as u8];
            bytes.extend_from_slice(&value);
            bytes
        },
    );
    let attributes = proptest::collection::vec(attribute, 0..6).prop_map(|a| a.concat());
    let nlri = || proptest::collection::vec(any::<u8>(), 0..12);
    (nlri(), attributes, nlri()).prop_map(|(withdrawn, attributes, announced)| {
        let mut body = (withdrawn.len() as u16).to_be_bytes().to_vec();
        body.extend_from_slice(&withdrawn);
        body.extend_from_slice(&(attributes.len() as u16).to_be_bytes());
        body.extend_from_slice(&attributes);
        body.extend_from_slice(&announced);
        let mut bytes = vec![0xff; 16];
        bytes.extend_from_slice(&((19 + body.len()) as u16).to_be_bytes());
        bytes.push(2);
        bytes.extend_from_slice(&body);
        bytes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    /// Whatever a peer sends, in whatever state, the session neither panics nor announces anything new.
    #[test]
    fn foreign_bytes_never_panic_the_session(
        stage in 0u8..3,
        chunks in proptest::collection::vec(
            prop_oneof![proptest::collection::vec(any::<u8>(), 0..200), framed(), update()], 1..8),
    ) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let _guard = runtime.enter();
        let mut bench = Bench::new(Restarting::No);
        bench.session.follow(plan(1, 1, EndOfRib::Send), LeaveStage::Stay, bench.now);
        bench.connect();
        if stage > 0 {
            bench.session.received(Message::Open(open(Helper::Plain)), bench.now);
        }
        if stage > 1 {
            bench.session.received(Message::Keepalive, bench.now);
        }
        for chunk in chunks {
            let (mut codec, mut buffer) = (BgpCodec::new(), BytesMut::from(&chunk[..]));
            loop {
                match codec.decode(&mut buffer) {
                    Ok(Some(message)) => bench.session.received(message, bench.now),
                    Ok(None) => break,
                    Err(BgpCodecError::Decode(error)) => {
                        bench.session.undecodable(error, bench.now);
                        break;
                    }
                    Err(error) => {
                        bench.session.disconnected(error.to_string(), bench.now);
                        break;
                    }
                }
            }
        }
        let ours = BTreeSet::from(["2001:db8:b::/128".to_owned()]);
        prop_assert!(updates(&bench.sent()).0.is_subset(&ours));
    }
}
