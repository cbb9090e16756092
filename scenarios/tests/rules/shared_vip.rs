//! Rules that share a VIP: it stays while one of them is served, and goes with the last.

use std::time::Duration;

use labkit::wait::{check, eventually, steady};
use scenarios::region::{A, Live, Region, SOON, endpoint, rule_on};

const A_WHILE: Duration = Duration::from_secs(2);

fn alone(name: &str) -> Live {
    let live = Live::up(name, Region { gateways: 1, ..Region::default() }).unwrap();
    live.prepare_gateway(1).unwrap();
    let objects = live.objects(1).unwrap();
    for protocol in ["tcp", "udp"] {
        objects.remove(&format!("rule-a-{protocol}.yaml")).unwrap();
    }
    live
}

fn hops(live: &Live, wanted: usize) -> Result<(), String> {
    let hops = live.edge_hops(live.vip(A)).map_err(|e| e.to_string())?;
    check(hops.len() == wanted, || format!("{hops:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vip_of_two_rules_is_withdrawn_with_the_last_of_them() {
    let live = alone("shared-vip");
    let objects = live.objects(1).unwrap();
    let put = |port: u16| {
        let rule = rule_on(&live.region, A, &format!("port-{port}"), "tcp", port, &[1, 2, 3]);
        objects.put(&format!("port-{port}.yaml"), &rule).unwrap();
    };
    put(443);
    put(80);
    live.run_gateway(1, None).unwrap();
    live.wait_gateway_ready(1).unwrap();
    eventually("announced", SOON, || hops(&live, 1)).unwrap();
    let watch = live.node("edge").unwrap().watch_routes().unwrap();
    // Either may go and come back as often as it likes.
    for _ in 0..20 {
        objects.remove("port-443.yaml").unwrap();
        put(443);
        objects.remove("port-80.yaml").unwrap();
        put(80);
    }
    objects.remove("port-443.yaml").unwrap();
    let maps = live.maps(1).unwrap();
    let find = |port| {
        let (address, protocol) = (live.vip(A), weir::model::Protocol::Tcp);
        maps.find(&weir::dataplane::bpf::encode_key(weir::model::VipKey { address, protocol, port }))
    };
    eventually("the removed rule is unloaded", SOON, || check(find(443).is_none(), || "loaded".into()))
        .unwrap();
    assert!(find(80).is_some());
    steady("the VIP stays announced for the other rule", A_WHILE, || hops(&live, 1)).unwrap();
    assert_eq!(watch.events_for(ipnet::IpNet::from(live.vip(A))).len(), 0, "{:?}", watch.events());
    objects.remove("port-80.yaml").unwrap();
    eventually("withdrawn with the last rule", SOON, || hops(&live, 0)).unwrap();
    eventually("unloaded", SOON, || check(find(80).is_none(), || "loaded".into())).unwrap();
    let owner = weir::dataplane::bpf::encode_owner(live.vip(A));
    eventually("the address is given up", SOON, || check(maps.find(&owner).is_none(), || "owned".into()))
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_backend_a_rule_keeps_drops_or_withdraws_as_it_says() {
    let live = alone("all-down");
    let objects = live.objects(1).unwrap();
    let put = |policy: &str| {
        let rule = rule_on(&live.region, A, "web", "udp", scenarios::region::PORT, &[1, 2]);
        objects
            .put("web.yaml", &rule.replace("  backends:", &format!("  onAllDown: {policy}\n  backends:")))
            .unwrap();
    };
    let endpoints = |there: bool| {
        for worker in 1..=2 {
            let name = format!("vpce-a-{worker}.yaml");
            if there {
                objects.put(&name, &endpoint(&live.region, worker, A)).unwrap();
            } else {
                objects.remove(&name).unwrap();
            }
        }
    };
    put("withdraw");
    live.run_gateway(1, None).unwrap();
    live.wait_gateway_ready(1).unwrap();
    eventually("announced", SOON, || hops(&live, 1)).unwrap();
    endpoints(false);
    eventually("withdraw: nothing serves", SOON, || hops(&live, 0)).unwrap();
    live.wait_condition(1, "tenant-a/web", "Advertised", "False", "AllBackendsDown").unwrap();
    put("drop");
    eventually("drop: announced all the same", SOON, || hops(&live, 1)).unwrap();
    let maps = live.maps(1).unwrap();
    let dropped = || maps.reason_total(weir_bpf::abi::Reason::NoBackend);
    let before = dropped();
    let client = live.node("client").unwrap();
    let send = async || {
        let pace = Duration::from_millis(5);
        let flow = labkit::traffic::UdpFlow::start(&client, live.service(A), pace, 64).await.unwrap();
        tokio::time::sleep(Duration::from_millis(200)).await;
        flow.stop(&live.udp_servers()).await.unwrap()
    };
    let report = send().await;
    assert_eq!(report.lost_out.len() as u64, report.sent, "nobody is there");
    assert_eq!(dropped() - before, report.sent, "each was dropped for want of a backend");
    endpoints(true);
    live.wait_condition(1, "tenant-a/web", "BackendsResolved", "True", "AllResolved").unwrap();
    live.wait_gateway_ready(1).unwrap();
    let report = send().await;
    assert_eq!((report.lost(), report.sent > 0), (0, true), "{report:?}");
    // Keep: drained or unhealthy backends are still sent to.
    put("keep");
    let unhealthy = |policy: &str| {
        let rule = rule_on(&live.region, A, "web", "udp", scenarios::region::PORT, &[1, 2]);
        let rule = rule.replace("  backends:", &format!("  onAllDown: {policy}\n  backends:"));
        let status: String = (1..=2)
            .map(|w| format!("    - {{ address: \"{}\", health: Unhealthy }}\n", live.region.pod_address(w)))
            .collect();
        objects.put("web.yaml", &format!("{rule}status:\n  backends:\n{status}")).unwrap();
    };
    unhealthy("keep");
    eventually("both are unhealthy", SOON, || {
        let rule = live.rule_status(1, "tenant-a/web").map_err(|e| e.to_string())?;
        check(rule["backends"]["unhealthy"] == 2, || rule.to_string())
    })
    .unwrap();
    live.wait_gateway_ready(1).unwrap();
    let report = send().await;
    assert_eq!((report.lost(), report.sent > 0), (0, true), "keep: {report:?}");
    assert!(hops(&live, 1).is_ok());
    unhealthy("withdraw");
    eventually("withdraw: none is healthy", SOON, || hops(&live, 0)).unwrap();
}
