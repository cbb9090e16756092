//! A gateway that dies: with its links, which routers see at once, or with its links up, which only BGP's timers tell.

use std::time::Duration;

use labkit::traffic::{Pool, UdpReport};
use scenarios::region::{Live, Region, SOON};

use super::{Traffic, forwarded, forwards_more, region};

#[tokio::test(flavor = "multi_thread")]
async fn when_a_gateway_dies_connections_go_on_and_new_ones_succeed() {
    let live = Live::ready("death", Region { restart_time: 3, ..Region::default() }).unwrap();
    let client = live.node("client").unwrap();
    let gateway = live.gateway(1).unwrap();
    let traffic = Traffic::start(&live).await;
    forwards_more(&live, 1, forwarded(&live, 1), 100);

    gateway.process("weir").unwrap().kill().unwrap();
    let faults = ["eth1", "eth2"].map(|port| labkit::fault::link_down(&gateway, port).unwrap());
    live.wait_paths(1).unwrap();
    for (_, _, service) in live.services() {
        let mut fresh = Pool::open(&client, service, 40).await.unwrap();
        assert_eq!(fresh.by_backend().len(), usize::from(live.region.workers));
        assert_eq!(fresh.verify().await, 0);
    }
    let outcome = traffic.stop(&live).await;
    outcome.assert_no_connection_lost();

    // When routers have given it up it may come back, and nothing is lost.
    for (tenant, family, _) in live.services() {
        let prefix = live.region.vip_route(tenant, family);
        live.frr("edge").unwrap().wait_bgp_paths(&prefix, 1, SOON).unwrap();
    }
    let traffic = Traffic::start(&live).await;
    for fault in faults {
        fault.heal().unwrap();
    }
    live.run_gateway(1, None).unwrap();
    live.wait_ready().unwrap();
    forwards_more(&live, 1, forwarded(&live, 1), 100);
    traffic.stop(&live).await.assert_lossless(&live);
}

#[tokio::test(flavor = "multi_thread")]
async fn when_a_gateway_vanishes_with_its_links_up_loss_ends_within_hold_and_restart_time() {
    let (hold, restart) = (Duration::from_secs(3), Duration::from_secs(3));
    let region = Region { restart_time: 3, ..region("holdTime: 3s") };
    let live = Live::ready("vanish", region).unwrap();
    let traffic = Traffic::start(&live).await;
    forwards_more(&live, 1, forwarded(&live, 1), 100);

    let silence = labkit::fault::silence(&live.lab, "gw1").unwrap();
    live.wait_paths(1).unwrap();
    forwards_more(&live, 2, forwarded(&live, 2), 2000);
    let outcome = traffic.stop(&live).await;
    outcome.assert_no_connection_lost();
    let outage = outcome.flows.iter().map(UdpReport::outage).max().unwrap();
    assert!(outcome.lost() > 0, "the fault bites");
    // Slack for the router to act, not for another timer: its own default restart time is 120 s.
    let slack = Duration::from_secs(4);
    assert!(outage < hold + restart + slack, "loss for {outage:?}");

    let traffic = Traffic::start(&live).await;
    forwards_more(&live, 2, forwarded(&live, 2), 1000);
    silence.heal().unwrap();
    live.wait_paths(2).unwrap();
    forwards_more(&live, 1, forwarded(&live, 1), 100);
    traffic.stop(&live).await.assert_lossless(&live);
    live.wait_ready().unwrap();
}
