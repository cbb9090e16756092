//! The BGP speaker against real routers: FRR and BIRD in network namespaces, judged by their kernels' routes.

mod families;
mod lab;

use std::time::Duration;

use self::lab::{BIRD, FRR, LOCATOR, Routers, SOON, Speaker, Transport, config, config_over, plan, vip};
use labkit::topology::FrrDaemon;
use labkit::wait::{check, eventually, never, steady};
use rstest::rstest;
use rustbgpd_wire::{Afi, Capability, Message, OpenMessage, Safi, encode_message};
use tokio::io::AsyncWriteExt;
use weir::route::bgp::Start;
use weir::route::{EndOfRib, Forwarding, Leave, Password, PeerRole, PeerState};

/// Longer than a SYN's first retries and both routers' dialling.
const A_WHILE: Duration = Duration::from_secs(7);

#[test]
fn a_vip_reaches_both_kernels_over_md5_and_gtsm_and_goes_when_withdrawn() {
    let routers = Routers::up("bgpvip");
    let speaker = Speaker::start(&routers.gw, config(), Start::Fresh);
    speaker.handle.follow(plan(1, [1, 2], EndOfRib::Send));
    speaker.until_established();
    for node in [&routers.frr, &routers.bird] {
        node.wait_route(&vip(1), 1, SOON).unwrap();
        node.wait_route(&vip(2), 1, SOON).unwrap();
        node.wait_no_route(LOCATOR, SOON).unwrap();
    }
    let paths = routers.vtysh().wait_bgp_paths(&vip(1), 1, SOON).unwrap();
    assert_eq!(paths[0]["aspath"]["string"], "65010");
    assert_eq!(paths[0]["largeCommunity"]["string"], "65010:1:7", "{}", paths[0]);
    assert!(routers.birdc("show route all").contains("(65010, 1, 7)"));
    let frr = speaker.peer("frr").unwrap();
    assert_eq!((frr.advertised, frr.hold_time), (2, Some(9)));
    assert!(frr.graceful_restart.unwrap().notification);
    assert!(!speaker.peer("bird").unwrap().graceful_restart.unwrap().notification);

    speaker.handle.follow(plan(2, [2], EndOfRib::Send));
    speaker.until_settled(2);
    for node in [&routers.frr, &routers.bird] {
        node.wait_no_route(&vip(1), SOON).unwrap();
        node.wait_route(&vip(2), 1, SOON).unwrap();
    }

    // FRR asks for everything again and gets it.
    let received = |routers: &Routers| {
        let answer = routers.vtysh().json(&format!("show bgp neighbors {} json", FRR.0)).unwrap();
        answer[FRR.0]["messageStats"]["updatesRecv"].as_u64().unwrap()
    };
    let before = received(&routers);
    routers
        .vtysh()
        .configure(&format!(
            "router bgp 65000\n address-family ipv6 unicast\n  no neighbor {} soft-reconfiguration inbound\n",
            FRR.0
        ))
        .unwrap();
    routers.vtysh().vtysh(&format!("clear bgp ipv6 unicast {} soft in", FRR.0)).unwrap();
    eventually("a route refresh is answered", SOON, || {
        let now = received(&routers);
        check(now > before, || format!("{now} updates"))
    })
    .unwrap();
    assert_eq!(speaker.peer("frr").unwrap().established_count, 1);
}

#[rstest]
#[case::over_ipv6("bgpauth", Transport::Ipv6)]
#[case::over_ipv4("bgpauth4", Transport::Ipv4)]
fn a_wrong_password_or_a_missing_hop_limit_never_gets_a_session(
    #[case] name: &str,
    #[case] transport: Transport,
) {
    let routers = Routers::over(name, transport);
    let mut wrong = config_over(transport);
    wrong.peers[0].password = Password::new("incorrect-horse");
    wrong.peers[1].gtsm = false;
    let speaker = Speaker::start(&routers.gw, wrong, Start::Fresh);
    speaker.handle.follow(plan(1, [1], EndOfRib::Send));
    // Judged by the routers. BIRD asks for the hop limit only once it has accepted, so what it was sent until then counts: our side
    // may see its KEEPALIVE and believe in a session, to which BIRD never agrees.
    never("a router has a session or a route", A_WHILE, || {
        let frr = routers.vtysh().bgp_state(transport.ends("frr").0).unwrap();
        let bird = routers.birdc("show protocols edge");
        let routes =
            [&routers.frr, &routers.bird].map(|node| node.wait_route(&vip(1), 1, Duration::ZERO).is_ok());
        let up = frr == "Established" || bird.contains("Established") || routes.contains(&true);
        check(up, || format!("{frr} {bird} {routes:?}"))
    })
    .unwrap();
    let error = speaker.until("frr", "says why", |s| s.last_error.is_some()).last_error.unwrap();
    assert!(error.contains("wrong password"), "{error}");

    // The same speaker with the right settings, by a change of configuration.
    wait_for_configure(&speaker, config_over(transport));
    speaker.until_established();
}

fn wait_for_configure(speaker: &Speaker, config: weir::route::SpeakerConfig) {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(speaker.handle.configure(config));
}

#[test]
fn a_killed_and_restarted_speaker_causes_no_route_event_at_either_router() {
    let routers = Routers::up("bgpkill");
    let speaker = Speaker::start(&routers.gw, config(), Start::Fresh);
    speaker.handle.follow(plan(1, [1, 2, 3], EndOfRib::Send));
    speaker.until_established();
    for n in 1..=3 {
        routers.frr.wait_route(&vip(n), 1, SOON).unwrap();
        routers.bird.wait_route(&vip(n), 1, SOON).unwrap();
    }
    let watches = [routers.frr.watch_routes().unwrap(), routers.bird.watch_routes().unwrap()];
    let events = |n| -> Vec<_> {
        let prefix = vip(n).parse().unwrap();
        watches.iter().flat_map(|w| w.events_for(prefix)).collect()
    };
    speaker.kill();
    let speaker = Speaker::start(&routers.gw, config(), Start::Restarted);
    // The data plane has only two of the three so far, and the sources are not synced.
    speaker.handle.follow(plan(1, [1, 2], EndOfRib::Withhold));
    speaker.until_established();
    for name in ["frr", "bird"] {
        let status = speaker.peer(name).unwrap();
        assert!(status.sent_flags.restarted && status.sent_flags.forwarding, "{status:?}");
        assert!(!status.end_of_rib_sent);
    }
    steady("stale routes stay while End-of-RIB is withheld", Duration::from_secs(4), || {
        let events = [events(1), events(2), events(3)];
        check(events.iter().all(Vec::is_empty), || format!("{events:?}"))
    })
    .unwrap();
    assert_eq!(speaker.handle.status().borrow().settled, 0, "the routers still hold what plan 1 lacks");

    speaker.handle.follow(plan(2, [1, 2], EndOfRib::Send));
    for node in [&routers.frr, &routers.bird] {
        node.wait_no_route(&vip(3), SOON).unwrap();
    }
    speaker.until_settled(2);
    assert!(events(1).is_empty() && events(2).is_empty());

    // A stop for an upgrade is as harmless.
    speaker.restart();
    let speaker = Speaker::start(&routers.gw, config(), Start::Restarted);
    speaker.handle.follow(plan(1, [1, 2], EndOfRib::Send));
    speaker.until_established();
    speaker.until_settled(1);
    steady("no route event after the restart", Duration::from_secs(2), || {
        let events = [events(1), events(2)];
        check(events.iter().all(Vec::is_empty), || format!("{events:?}"))
    })
    .unwrap();

    // Without preserved forwarding the routers must let go: this test can fail.
    speaker.kill();
    let speaker = Speaker::start(&routers.gw, config(), Start::Restarted);
    let mut interrupted = plan(1, [], EndOfRib::Withhold);
    interrupted.forwarding = Forwarding::NotPreserved;
    speaker.handle.follow(interrupted);
    speaker.until_established();
    for node in [&routers.frr, &routers.bird] {
        node.wait_no_route(&vip(1), SOON).unwrap();
    }
}

#[test]
fn leaving_marks_then_withdraws_then_closes() {
    let routers = Routers::up("bgpleave");
    let speaker = Speaker::start(&routers.gw, config(), Start::Fresh);
    speaker.handle.follow(plan(1, [1], EndOfRib::Send));
    speaker.until_established();
    routers.frr.wait_route(&vip(1), 1, SOON).unwrap();
    routers.bird.wait_route(&vip(1), 1, SOON).unwrap();

    let leave = Leave {
        reason: "maintenance of gw1".into(),
        shutdown_wait: Duration::from_secs(3),
        withdraw_wait: Duration::from_secs(3),
    };
    let leaving = std::thread::spawn(move || speaker.leave(leave));
    eventually("FRR sees GRACEFUL_SHUTDOWN", SOON, || {
        let paths = routers.vtysh().bgp_paths(&vip(1)).map_err(|e| e.to_string())?;
        let seen = paths.first().is_some_and(|p| p["community"]["string"].to_string().contains("graceful"));
        check(seen, || format!("{paths:?}"))
    })
    .unwrap();
    assert!(routers.birdc("show route all").contains("(65535,0)"));
    for node in [&routers.frr, &routers.bird] {
        node.wait_no_route(&vip(1), SOON).unwrap();
    }
    assert_eq!(
        routers.vtysh().bgp_state(FRR.0).unwrap(),
        "Established",
        "withdrawn before the session closes"
    );
    assert!(routers.birdc("show protocols edge").contains("Established"));
    leaving.join().unwrap();
    eventually("FRR has lost the session by a Hard Reset", SOON, || {
        let answer =
            routers.vtysh().json(&format!("show bgp neighbors {} json", FRR.0)).map_err(|e| e.to_string())?;
        let neighbor = &answer[FRR.0];
        let told = neighbor["lastNotificationHardReset"] == true
            && neighbor["lastNotificationReason"] == "Cease/Administrative Shutdown"
            && neighbor["lastShutdownDescription"] == "maintenance of gw1";
        check(told, || neighbor.to_string())
    })
    .unwrap();
    routers.bird.process("bird").unwrap().wait_for_log("Administrative shutdown", SOON).unwrap();
    assert!(routers.bird.process("bird").unwrap().log_contains("maintenance of gw1"));
}

#[test]
fn ten_thousand_vips_are_installed_and_survive_a_kill() {
    let routers = Routers::up("bgpmany");
    let speaker = Speaker::start(&routers.gw, config(), Start::Fresh);
    speaker.handle.follow(plan(1, 0..10_000, EndOfRib::Send));
    speaker.until_settled(1);
    let count = || {
        let routes = routers.frr.routes(labkit::lab::MAIN_TABLE).map_err(|e| e.to_string())?;
        Ok::<_, String>(routes.iter().filter(|r| format!("{r}").contains("2001:db8:f00::")).count())
    };
    eventually("FRR's kernel has 10000 routes", SOON, || {
        let routes = count()?;
        check(routes == 10_000, || format!("{routes}"))
    })
    .unwrap();
    let watch = routers.frr.watch_routes().unwrap();
    speaker.kill();
    let speaker = Speaker::start(&routers.gw, config(), Start::Restarted);
    speaker.handle.follow(plan(1, 0..10_000, EndOfRib::Send));
    speaker.until_settled(1);
    steady("no route event", Duration::from_secs(3), || {
        let events = watch.events();
        check(events.is_empty(), || format!("{} events, first {:?}", events.len(), events.first()))
    })
    .unwrap();
    speaker.handle.follow(plan(2, [], EndOfRib::Send));
    eventually("all are withdrawn", SOON, || {
        let routes = count()?;
        check(routes == 0, || format!("{routes}"))
    })
    .unwrap();
}

#[test]
fn a_fabric_peer_gets_the_locator_and_vips_only_when_asked_for_and_a_change_resets_it_alone() {
    let routers = Routers::up("bgpfabric");
    let mut fabric = config();
    fabric.peers[0].role = PeerRole::Fabric;
    let speaker = Speaker::start(&routers.gw, fabric.clone(), Start::Fresh);
    speaker.handle.follow(plan(1, [1], EndOfRib::Send));
    speaker.until_settled(1);
    speaker.until_established();
    routers.frr.wait_route(LOCATOR, 1, SOON).unwrap();
    routers.bird.wait_route(&vip(1), 1, SOON).unwrap();
    assert!(routers.vtysh().bgp_paths(&vip(1)).unwrap().is_empty());

    let since = speaker.peer("bird").unwrap().established_since;
    fabric.peers[0].export_vips = true;
    wait_for_configure(&speaker, fabric);
    routers.frr.wait_route(&vip(1), 1, SOON).unwrap();
    routers.frr.wait_route(LOCATOR, 1, SOON).unwrap();
    routers.bird.wait_no_route(LOCATOR, SOON).unwrap();
    assert_eq!(speaker.peer("bird").unwrap().established_since, since, "the other session was left alone");
}

#[test]
fn a_router_that_restarts_is_dialled_until_it_is_back() {
    let routers = Routers::up("bgpback");
    let speaker = Speaker::start(&routers.gw, config(), Start::Fresh);
    speaker.handle.follow(plan(1, [1], EndOfRib::Send));
    speaker.until_established();
    routers.frr.wait_route(&vip(1), 1, SOON).unwrap();
    routers.frr.process("bgpd").unwrap().kill().unwrap();
    let lost = speaker.until("frr", "lost", |s| s.state != PeerState::Established);
    assert!(lost.last_error.is_some(), "{lost:?}");
    let frr = routers.vtysh();
    frr.start_daemon(FrrDaemon::Bgpd).unwrap();
    frr.wait_ready(FrrDaemon::Bgpd).unwrap();
    frr.load("frr.conf").unwrap();
    let back = speaker.until("frr", "back", |s| s.state == PeerState::Established);
    assert_eq!(back.established_count, 2);
    assert!(!back.sent_flags.restarted, "it was the router that restarted");
    routers.frr.wait_route(&vip(1), 1, SOON).unwrap();
}

#[test]
fn a_peer_that_reads_nothing_is_given_up_after_the_send_hold_time() {
    let routers = Routers::up("bgpstuck");
    routers.gw.set_sysctl("net.ipv4.tcp_wmem", "4096 16384 65536").unwrap();
    routers.bird.set_sysctl("net.ipv4.tcp_rmem", "4096 16384 65536").unwrap();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let _inside = runtime.enter();
    let listener = routers.bird.tcp_listen(format!("[{}]:1790", BIRD.1).parse().unwrap()).unwrap();
    let stuck = runtime.spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let open = OpenMessage {
            version: 4,
            my_as: 65000,
            hold_time: 90,
            bgp_identifier: [10, 0, 0, 2].into(),
            capabilities: vec![
                Capability::MultiProtocol { afi: Afi::Ipv6, safi: Safi::Unicast },
                Capability::FourOctetAs { asn: 65000 },
            ],
        };
        for message in [Message::Open(open), Message::Keepalive] {
            stream.write_all(&encode_message(&message).unwrap()).await.unwrap();
        }
        std::future::pending::<()>().await;
        drop(stream);
    });

    let mut config = config();
    config.peers.remove(0);
    config.peers[0].port = 1790;
    config.peers[0].password = None;
    config.peers[0].gtsm = false;
    config.hold_time = 90;
    config.send_hold_time = Some(Duration::from_secs(2));
    let speaker = Speaker::start(&routers.gw, config, Start::Fresh);
    speaker.handle.follow(plan(1, 0..20_000, EndOfRib::Send));
    let gone =
        speaker.until("bird", "given up", |s| s.established_count == 1 && s.established_since.is_none());
    let error = gone.last_error.unwrap();
    assert!(error.contains("send hold timer"), "{error}");
    stuck.abort();
}
