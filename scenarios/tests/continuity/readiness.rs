//! When a gateway says that it is not ready, and what it goes on doing meanwhile.

use std::time::Duration;

use labkit::wait::{check, eventually, steady};
use scenarios::region::{A, Live, Region, SOON, rule};

use super::{Traffic, forwarded, forwards_more, paths, reasons, vip_events};

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_into_bad_files_serves_on_and_withholds_end_of_rib_until_they_are_corrected() {
    let live = Live::ready("bad-files", Region::default()).unwrap();
    let watch = live.node("edge").unwrap().watch_routes().unwrap();
    let traffic = Traffic::start(&live).await;
    let objects = live.objects(1).unwrap();
    live.gateway(1).unwrap().process("weir").unwrap().terminate(SOON).unwrap();
    for protocol in ["tcp", "udp"] {
        let bad = rule(&live.region, A, &format!("web-{protocol}"), protocol, &[1, 2, 3])
            .replace("port: 8080", "port: 99999");
        objects.put(&format!("rule-a-{protocol}.yaml"), &bad).unwrap();
    }
    live.run_gateway(1, None).unwrap();
    let gateway = live.region.gateway_uplink(1);
    let edge = live.frr("edge").unwrap();
    edge.wait_established(&gateway, SOON).unwrap();
    eventually("not ready for the bad files", SOON, || {
        let reasons = reasons(&live, 1)?;
        let found = reasons.iter().any(|(id, text)| id == "not-synced" && text.contains("rule-a-tcp.yaml"));
        check(found, || format!("{reasons:?}"))
    })
    .unwrap();
    let peer = |live: &Live| {
        let peers = live.status(1).unwrap()["peers"].as_array().cloned().unwrap_or_default();
        peers.into_iter().find(|peer| peer["name"] == "edge").unwrap_or_default()
    };
    assert_eq!(peer(&live)["established"], true);
    assert_eq!(peer(&live)["synced"], false, "End-of-RIB is withheld");
    let before = forwarded(&live, 1);
    steady("the edge keeps the routes", Duration::from_secs(2), || {
        let events = vip_events(&live, &watch);
        check(events.is_empty(), || events.join("; "))
    })
    .unwrap();
    for (tenant, family, _) in live.services() {
        let paths = paths(&live, tenant, family);
        assert_eq!(paths.len(), 2, "{paths:?}");
        let path = &paths[&gateway];
        assert_eq!(path["stale"] == true, tenant == A, "only what was not announced again is stale: {path}");
    }
    forwards_more(&live, 1, before, 200);
    assert_eq!(live.status(1).unwrap()["ready"], false);

    objects.put_region(&live.region).unwrap();
    live.wait_gateway_ready(1).unwrap();
    assert_eq!(peer(&live)["synced"], true);
    assert_eq!(vip_events(&live, &watch), Vec::<String>::new());
    traffic.stop(&live).await.assert_lossless(&live);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_self_test_frame_that_does_not_come_back_makes_a_gateway_not_ready_but_it_serves_on() {
    let live = Live::ready("self-test", Region::default()).unwrap();
    let watch = live.node("edge").unwrap().watch_routes().unwrap();
    let traffic = Traffic::start(&live).await;
    let locator = live.region.gateway_locator(1).parse().unwrap();
    let hole = labkit::fault::blackhole(&live.node("spine").unwrap(), locator).unwrap();
    eventually("not ready for the self-test alone", SOON, || {
        let reasons = reasons(&live, 1)?;
        check(matches!(&reasons[..], [(id, _)] if id == "self-test"), || format!("{reasons:?}"))
    })
    .unwrap();
    assert_eq!(live.status(2).unwrap()["ready"], true, "the other gateway's frames come back");
    forwards_more(&live, 1, forwarded(&live, 1), 200);
    hole.heal().unwrap();
    live.wait_gateway_ready(1).unwrap();
    assert_eq!(vip_events(&live, &watch), Vec::<String>::new());
    traffic.stop(&live).await.assert_lossless(&live);
}
