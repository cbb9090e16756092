//! A daemon that ends and starts again while its programs go on: killed, or asked to stop.

use std::time::Duration;

use labkit::wait::{check, eventually, steady};
use scenarios::region::{Live, Region, SOON};

use super::{Traffic, forwarded, forwards_more, neighbour, paths, pinned, pins, region, vip_events};

/// The restart flag and the families' forwarding flags that a router saw in a gateway's last OPEN.
fn restart_flags(live: &Live, n: u16) -> (bool, bool) {
    let seen = neighbour(live, "edge", &live.region.gateway_uplink(n));
    let info = &seen["gracefulRestartInfo"];
    let [ipv4, ipv6] = ["ipv4Unicast", "ipv6Unicast"].map(|family| info[family]["fBit"] == true);
    assert_eq!(ipv4, ipv6, "one program forwards both families: {info}");
    (info["rBit"] == true, ipv6)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_killed_and_restarted_three_times_loses_no_packet_and_moves_no_route() {
    let live = Live::ready("kill", Region::default()).unwrap();
    let edge = live.node("edge").unwrap();
    assert_eq!(restart_flags(&live, 1), (false, false), "a first start has not restarted");
    let watch = edge.watch_routes().unwrap();
    let traffic = Traffic::start(&live).await;
    for _ in 0..3 {
        let before = forwarded(&live, 1);
        live.gateway(1).unwrap().process("weir").unwrap().kill().unwrap();
        forwards_more(&live, 1, before, 200);
        live.run_gateway(1, None).unwrap();
        live.wait_gateway_ready(1).unwrap();
        assert_eq!(restart_flags(&live, 1), (true, true), "R and F of the OPEN after a restart");
        forwards_more(&live, 1, forwarded(&live, 1), 200);
    }
    assert_eq!(vip_events(&live, &watch), Vec::<String>::new());
    traffic.stop(&live).await.assert_lossless(&live);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_daemon_dead_for_longer_than_its_heartbeat_loses_no_packet() {
    let heartbeat = Duration::from_secs(1);
    let live = Live::ready("heartbeat", region("heartbeat: 1s")).unwrap();
    let watch = live.node("edge").unwrap().watch_routes().unwrap();
    let traffic = Traffic::start(&live).await;
    live.gateway(1).unwrap().process("weir").unwrap().kill().unwrap();
    let before = forwarded(&live, 1);
    steady("no route changes while the daemon is dead", heartbeat * 3, || {
        let events = vip_events(&live, &watch);
        check(events.is_empty(), || events.join("; "))
    })
    .unwrap();
    forwards_more(&live, 1, before, 500);
    live.run_gateway(1, None).unwrap();
    live.wait_gateway_ready(1).unwrap();
    forwards_more(&live, 1, forwarded(&live, 1), 200);
    traffic.stop(&live).await.assert_lossless(&live);
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_keeps_routes_and_programs_and_sends_no_cease_until_the_daemon_is_back() {
    let live = Live::ready("sigterm", Region::default()).unwrap();
    let watch = live.node("edge").unwrap().watch_routes().unwrap();
    let traffic = Traffic::start(&live).await;
    let before = pinned(&pins(&live, 1));
    let status = live.gateway(1).unwrap().process("weir").unwrap().terminate(SOON).unwrap();
    assert!(status.success(), "{status}: {}", live.log(1));
    let address = live.region.gateway_uplink(1);
    live.frr("edge").unwrap().wait_bgp_state(&address, "Active", SOON).unwrap();
    let seen = neighbour(&live, "edge", &address);
    assert_eq!(seen["lastNotificationReason"], serde_json::Value::Null, "{seen}");
    assert!(seen["lastResetDueTo"].as_str().unwrap_or_default().contains("closed the session"), "{seen}");
    assert_eq!(pinned(&pins(&live, 1)), before, "what is pinned stays");
    live.wait_paths(2).unwrap();
    forwards_more(&live, 1, forwarded(&live, 1), 300);

    live.run_gateway(1, None).unwrap();
    live.wait_gateway_ready(1).unwrap();
    assert_eq!(restart_flags(&live, 1), (true, true));
    eventually("the edge holds no stale route", SOON, || {
        let services = live.services().into_iter();
        let paths: Vec<_> = services.map(|(tenant, family, _)| paths(&live, tenant, family)).collect();
        let fresh = |path: &serde_json::Value| path["stale"] != true;
        check(paths.iter().all(|of| of.len() == 2 && of.values().all(fresh)), || format!("{paths:?}"))
    })
    .unwrap();
    assert_eq!(vip_events(&live, &watch), Vec::<String>::new());
    traffic.stop(&live).await.assert_lossless(&live);
}
