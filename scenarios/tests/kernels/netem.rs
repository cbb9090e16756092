//! The kernel's own network emulator between routers and gateways: loss, delay, reordering and duplicates at once.

use std::time::Duration;

use labkit::skip::skip;
use labkit::traffic::{Connection, Pool};
use scenarios::region::{A, B, Live, Region};

/// The test, for skips.
const TEST: &str = "kernels::netem::connections_survive_loss_delay_and_reordering_on_the_way_to_the_gateways";

/// What happens to packets.
const NETEM: &str = "netem delay 20ms 5ms loss 3% duplicate 1% reorder 20% 50%";

#[tokio::test(flavor = "multi_thread")]
async fn connections_survive_loss_delay_and_reordering_on_the_way_to_the_gateways() {
    if let Err(reason) = super::kernel_takes(&format!("tc qdisc add dev lo root {NETEM}")) {
        return skip(TEST, format!("no netem in this kernel: {reason}"));
    }
    let live = Live::ready("netem", Region { workers: 2, ..Region::default() }).unwrap();
    let edge = live.node("edge").unwrap();
    for interface in ["eth1", "eth2"] {
        edge.sh(&format!("tc qdisc add dev {interface} root {NETEM}")).unwrap();
    }
    let client = live.node("client").unwrap();
    for tenant in [A, B] {
        let mut pool = Pool::open(&client, live.service(tenant), 20).await.unwrap();
        let served: Vec<String> = pool.connections().iter().map(|c| c.backend().to_owned()).collect();
        assert!(served.iter().all(|name| name.ends_with(tenant.letter)), "{served:?}");
        for round in 0..5 {
            assert_eq!(pool.verify().await, 0, "round {round}");
        }
        // A connection that another pod got packets of would be reset; its bytes come back in order.
        let mut bulk = Connection::open(&client, live.service(tenant)).await.unwrap();
        bulk.transfer(200_000, Duration::from_mins(1)).await.unwrap();
    }
    let mut dropped = 0;
    for interface in ["eth1", "eth2"] {
        let text = edge.sh(&format!("tc -s -j qdisc show dev {interface} root")).unwrap();
        let queues: serde_json::Value = serde_json::from_str(&text).unwrap();
        dropped += queues[0]["drops"].as_u64().unwrap_or_else(|| panic!("{text}"));
    }
    assert!(dropped > 0, "netem lost nothing, so nothing was shown");
}
