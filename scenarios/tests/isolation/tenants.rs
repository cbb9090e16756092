//! Two tenants with the same private addresses, under churn: each gets its own pods, always.

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use labkit::traffic::Connection;
use scenarios::region::{A, B, FAMILIES, Live, Region, TENANTS, Tenant, endpoint};

const CONNECTIONS: usize = 200;
const CHANGES: usize = 50;

/// Opens connections one after another; returns those that were answered, each by a pod of the tenant.
async fn visit(live: &Live, tenant: Tenant) -> usize {
    let client = live.node("client").unwrap();
    let mut answered = 0;
    for n in 0..CONNECTIONS {
        let service = live.service_of(tenant, FAMILIES[n % 2]);
        // A connection whose backend goes while it is being opened may break; it may not be answered by another tenant.
        let Ok(mut connection) = Connection::open(&client, service).await else { continue };
        assert!(connection.backend().ends_with(tenant.letter), "{tenant:?} got {}", connection.backend());
        answered += usize::from(connection.round_trip().await.is_ok());
    }
    answered
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_with_the_same_addresses_are_served_and_never_crossed_while_one_changes() {
    let live = Live::ready("tenants", Region::default()).unwrap();
    let pods = live.capture_pods(&TENANTS).unwrap();
    let done = AtomicBool::new(false);
    let (changes, (a, b)) = std::thread::scope(|scope| {
        let churn = scope.spawn(|| {
            let mut changes = 0;
            // Goes on past its count until the connections are through, so that all of them see changes.
            while changes < CHANGES || !done.load(Ordering::Relaxed) {
                let worker = (changes % 3 + 1) as u16;
                let name = format!("vpce-a-{worker}.yaml");
                live.remove(&name).unwrap();
                live.assignments(1, B, 5000..5005).unwrap();
                live.put(&name, &endpoint(&live.region, worker, A)).unwrap();
                live.assignments(2, B, 5000..5005).unwrap();
                changes += 1;
            }
            changes
        });
        let visits = tokio::task::block_in_place(|| {
            tokio::runtime::Handle::current()
                .block_on(async { tokio::join!(visit(&live, A), visit(&live, B)) })
        });
        done.store(true, Ordering::Relaxed);
        (churn.join().unwrap(), visits)
    });
    assert!(changes >= CHANGES);
    assert_eq!(b, CONNECTIONS, "nothing of B changed, so nothing of B broke");
    assert!(
        a >= CONNECTIONS * 3 / 4,
        "A was served throughout: {a} of {CONNECTIONS} answered, {changes} changes"
    );

    for tenant in TENANTS {
        let all = live.services();
        let vips = |mine: bool| -> Vec<IpAddr> {
            all.iter().filter(|s| (s.0 == tenant) == mine).map(|s| s.2.ip()).collect()
        };
        let (own, others) = (vips(true), vips(false));
        for worker in 1..=live.region.workers {
            let pod = &pods[&live.region.pod(worker, tenant)];
            assert_eq!(pod.tap().lost_since(0), 0, "every frame was looked at");
            let mut served = [0; 2];
            for frame in pod.tap().frames() {
                let layers = frame.layers();
                let ipv4 = layers.ipv4().map(|ip| IpAddr::from(ip.dst));
                let Some(destination) = layers.ipv6().map(|ip| IpAddr::from(ip.dst)).or(ipv4) else {
                    continue;
                };
                assert!(!others.contains(&destination), "a pod of {tenant:?} got: {layers}");
                served[usize::from(destination.is_ipv4())] += usize::from(own.contains(&destination));
            }
            assert!(
                served.iter().all(|n| *n > 0),
                "{served:?} packets of both families: a pod of {tenant:?} on worker {worker} lacks some"
            );
        }
    }
}
