//! Clients reach the pods they should, and each pod only what is bound to it.

use std::collections::BTreeMap;

use labkit::traffic::Connection;
use scenarios::region::{A, B, Live, TENANTS, Tenant, rule_on, second_endpoint};
use weir_bpf::worker_abi::Reason;

use super::region;

/// Opens connections; how many each pod answered.
async fn visit(live: &Live, tenant: Tenant, count: usize) -> BTreeMap<String, usize> {
    let client = live.node("client").unwrap();
    let mut pods = BTreeMap::new();
    for _ in 0..count {
        let mut connection = Connection::open(&client, live.service(tenant)).await.unwrap();
        assert_eq!(connection.seen_as().ip().to_string(), live.region.client(), "the client's own address");
        connection.round_trip().await.unwrap();
        *pods.entry(connection.backend().to_owned()).or_default() += 1;
    }
    pods
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_reach_pods_of_two_tenants_with_equal_addresses_through_the_worker() {
    let live = Live::ready("worker", region(2)).unwrap();
    let pods = live.capture_pods(&TENANTS).unwrap();
    for tenant in TENANTS {
        let served = visit(&live, tenant, 30).await;
        let wanted: Vec<String> = (1..=2).map(|n| live.region.pod(n, tenant)).collect();
        assert_eq!(served.keys().cloned().collect::<Vec<_>>(), wanted, "{tenant:?}");
    }
    for tenant in [A, B] {
        let other = if tenant == A { live.vip(B) } else { live.vip(A) };
        for n in 1..=2 {
            let name = live.region.pod(n, tenant);
            let to = |frame: &labkit::capture::Frame| {
                frame.layers().ipv6().map(|ip| std::net::IpAddr::from(ip.dst))
            };
            assert!(
                pods[&name].tap().frames().iter().all(|f| to(f) != Some(other)),
                "{name} got the other's"
            );
        }
    }
    for n in 1..=2 {
        let maps = live.worker_maps(n).unwrap();
        let taken = maps.reason_total(Reason::Decapsulated);
        assert!(taken > 0);
        assert_eq!(maps.reason_total(Reason::Delivered), taken, "{}", live.worker_reasons(n));
        let dropped = Reason::ALL.iter().filter(|r| r.help().starts_with("dropped"));
        for reason in dropped {
            assert_eq!(maps.reason_total(*reason), 0, "{}: {}", reason.name(), live.worker_reasons(n));
        }
        let (mut received, mut sent) = (0, 0);
        for row in maps.rows().unwrap() {
            received += row.received.packets;
            sent += row.sent.packets;
        }
        assert_eq!((received, sent), (taken, maps.reason_total(Reason::ReplyDirect)));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn several_backends_of_one_vip_on_one_node_are_told_apart() {
    let live = Live::ready("several", region(1)).unwrap();
    live.put("vpce-a2-1.yaml", &second_endpoint(&live.region, 1)).unwrap();
    let both = rule_on(&live.region, A, "web-tcp", "tcp", 8080, &[1])
        + &format!("    - {{ address: \"{}\", port: 8080 }}\n", live.region.second_address(1));
    live.put("rule-a-tcp.yaml", &both).unwrap();
    labkit::wait::eventually("two backends in the ring", scenarios::region::SOON, || {
        let ring = live.ring(1, A, weir::model::Protocol::Tcp).map_err(|e| e.to_string())?;
        let sids: std::collections::BTreeSet<_> = ring.into_iter().collect();
        if sids.len() == 2 { Ok(()) } else { Err(format!("{sids:?}")) }
    })
    .unwrap();
    let served = visit(&live, A, 40).await;
    let wanted = [live.region.pod(1, A), live.region.second_pod(1)];
    assert_eq!(served.keys().cloned().collect::<Vec<_>>(), wanted, "each by its own SID");
    assert!(served.values().all(|n| *n >= 5), "{served:?}");
}
