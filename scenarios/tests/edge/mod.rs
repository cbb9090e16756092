//! Two gateways behind equal-cost paths.

use scenarios::region::{A, B, Live, Region};

#[tokio::test(flavor = "multi_thread")]
async fn clients_reach_both_tenants_through_two_gateways() {
    let live = Live::ready("edge", Region::default()).unwrap();
    let client = live.node("client").unwrap();
    for tenant in [A, B] {
        let pool = labkit::traffic::Pool::open(&client, live.service(tenant), 60).await.unwrap();
        let by_backend = pool.by_backend();
        assert_eq!(by_backend.len(), 3, "all pods serve: {by_backend:?}");
        assert!(by_backend.keys().all(|name| name.ends_with(tenant.letter)), "{by_backend:?}");
        for connection in pool.connections() {
            assert_eq!(connection.seen_as().ip().to_string(), live.region.client());
        }
    }
}
