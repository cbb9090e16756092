//! A rule that does not fit is not announced, says why, and is served once there is room.

use std::time::Duration;

use anyhow::Result;
use labkit::wait::{check, eventually, steady};
use scenarios::region::{A, B, FAMILIES, Live, Region, SOON};
use weir::model::Protocol;

/// Time in which an announcement that is not to come would have come.
const A_WHILE: Duration = Duration::from_secs(2);

/// A gateway of its own, prepared with other limits.
fn limited(name: &str, limits: &str) -> Result<Live> {
    let live = Live::up(name, Region { gateways: 1, ..Region::default() })?;
    live.prepare_gateway(1)?;
    live.edit_config(1, "vips: 64, backends: 256, ringSlots: 524288", limits)?;
    Ok(live)
}

/// Waits until tenant A is served, and requires that the edge hears of it alone.
fn only_a_is_announced(live: &Live) -> Result<()> {
    for family in FAMILIES {
        live.node("edge")?.wait_route(&live.region.vip_route(A, family), 1, SOON)?;
    }
    steady("the edge has no route to the VIPs that are not loaded", A_WHILE, || {
        FAMILIES.iter().try_for_each(|family| {
            let hops = live.edge_hops(live.vip_of(B, *family)).map_err(|e| e.to_string())?;
            check(hops.is_empty(), || format!("{hops:?}"))
        })
    })?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_whose_ring_does_not_fit_is_not_announced_until_there_is_room() {
    // 5000 blocks of 16 slots: one ring of 65537 slots and the self-test's.
    let live = limited("ring-full", "vips: 64, backends: 256, ringSlots: 80000").unwrap();
    let objects = live.objects(1).unwrap();
    for tenant in [A, B] {
        for protocol in ["tcp", "udp"] {
            let rule =
                scenarios::region::rule(&live.region, tenant, &format!("web-{protocol}"), protocol, &[1, 2]);
            let rule = rule.replace("  backends:\n", "  ringSize: 65537\n  backends:\n");
            objects.put(&format!("rule-{}-{protocol}.yaml", tenant.letter), &rule).unwrap();
        }
    }
    let watch = live.node("edge").unwrap().watch_routes().unwrap();
    live.run_gateway(1, None).unwrap();
    for rule in ["tenant-b/web-tcp", "tenant-b/web-udp"] {
        let message = live.wait_condition(1, rule, "Loaded", "False", "LimitReached").unwrap();
        // The self-test's ring may or may not be there already.
        let words = [13_424, 14_448].map(|free| {
            format!(
                "load into map rings: 65552 more entries are needed and {free} of 80000 are free; remove rules, or raise \
                 `limits.ringSlots` (now 80000) and restart the gateway"
            )
        });
        assert!(words.contains(&message), "{message}");
        live.wait_condition(1, rule, "Advertised", "False", "NotLoaded").unwrap();
    }
    live.wait_condition(1, "tenant-a/web-tcp", "Advertised", "True", "Advertised").unwrap();
    only_a_is_announced(&live).unwrap();
    let status = live.status(1).unwrap();
    assert_eq!(status["ready"], false, "{status}");
    let reasons = status["reasons"].as_array().unwrap();
    let reason = reasons.iter().find(|r| r["id"] == "not-loaded").unwrap_or_else(|| panic!("{status}"));
    assert!(reason["text"].as_str().unwrap().contains("tenant-b/web-tcp"), "{reason}");

    for protocol in ["tcp", "udp"] {
        objects.remove(&format!("rule-a-{protocol}.yaml")).unwrap();
    }
    live.node("edge").unwrap().wait_route(&format!("{}/128", live.vip(B)), 1, SOON).unwrap();
    live.wait_gateway_ready(1).unwrap();
    let mut pool =
        labkit::traffic::Pool::open(&live.node("client").unwrap(), live.service(B), 20).await.unwrap();
    assert_eq!(pool.verify().await, 0);
    // It came only after the other had gone from the edge.
    let events = watch.events();
    let at = |vip, change| {
        let to = ipnet::IpNet::from(live.vip(vip));
        events.iter().position(|e| e.route.to == to && e.change == change)
    };
    use labkit::netlink::RouteChange::{Added, Removed};
    assert!(at(A, Removed).unwrap() < at(B, Added).unwrap(), "{events:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rule_with_more_vips_than_fit_is_refused_whole() {
    // Keys: the self-test's, both VIPs of A's two rules, both of B's first.
    let live = limited("vips-full", "vips: 7, backends: 256, ringSlots: 524288").unwrap();
    live.run_gateway(1, None).unwrap();
    let message = live.wait_condition(1, "tenant-b/web-udp", "Loaded", "False", "LimitReached").unwrap();
    assert!(message.contains("2 more entries are needed and 0 of 7 are free"), "{message}");
    assert!(message.contains("raise `limits.vips` (now 7)"), "{message}");
    live.wait_condition(1, "tenant-b/web-tcp", "Advertised", "True", "Advertised").unwrap();
    let maps = live.maps(1).unwrap();
    let find = |family, protocol| {
        let address = live.vip_of(B, family);
        let key = weir::model::VipKey { address, protocol, port: scenarios::region::PORT };
        maps.find(&weir::dataplane::bpf::encode_key(key))
    };
    for family in FAMILIES {
        assert!(find(family, Protocol::Tcp).is_some());
        assert_eq!(find(family, Protocol::Udp), None);
    }
    live.objects(1).unwrap().remove("rule-a-tcp.yaml").unwrap();
    eventually("the freed entry serves the waiting rule", SOON, || {
        FAMILIES.iter().all(|f| find(*f, Protocol::Udp).is_some()).then_some(()).ok_or("not loaded")
    })
    .unwrap();
    live.wait_condition(1, "tenant-b/web-udp", "Loaded", "True", "Loaded").unwrap();
}
