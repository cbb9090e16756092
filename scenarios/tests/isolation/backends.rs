//! A backend that goes, by its endpoint or by the shared verdict, takes its own flows along and nobody else's.

use std::collections::BTreeMap;

use labkit::traffic::{Connection, Pool};
use labkit::wait::eventually;
use scenarios::region::{A, FAMILIES, Family, Live, Region, SOON, endpoint, rule};
use weir::model::Protocol;

use super::wait_condition;

const FLOWS: std::ops::Range<u16> = 10_000..10_300;

/// Where flows go: each client port on the wire, and each slot of the whole ring in the maps.
#[derive(Debug, PartialEq)]
struct Flows {
    ports: BTreeMap<(Family, u16), u16>,
    slots: Vec<u16>,
}

impl Flows {
    fn of(live: &Live) -> Self {
        let mut ports = BTreeMap::new();
        let ring = live.ring(1, A, Protocol::Udp).unwrap();
        for family in FAMILIES {
            let of = |gateway| live.workers_of_family(gateway, A, family, FLOWS).unwrap();
            let workers = of(1);
            assert_eq!(workers, of(2), "both gateways send every flow to one pod");
            ports.extend(workers.into_iter().map(|(port, worker)| ((family, port), worker)));
            for gateway in 1..=2 {
                let same = live.ring_of(gateway, live.vip_of(A, family), Protocol::Udp).unwrap();
                assert_eq!(ring, same, "both gateways have one ring, whichever VIP of the rule leads to it");
            }
        }
        assert_eq!(ring.len(), 4093);
        let sids: Vec<std::net::Ipv6Addr> = (1..=3).map(|w| live.region.sid(w, A).parse().unwrap()).collect();
        let slots = ring.iter().map(|sid| sids.iter().position(|s| s == sid).unwrap() as u16 + 1).collect();
        Self { ports, slots }
    }

    /// All flows, with where each goes here and there.
    fn beside<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = (u16, u16)> {
        let ports = self.ports.values().copied().zip(other.ports.values().copied());
        ports.chain(self.slots.iter().copied().zip(other.slots.iter().copied()))
    }

    /// Requires that exactly the flows of a worker left it, and that none of the others moved.
    fn only_left(&self, after: &Self, gone: u16) {
        assert_eq!(self.ports.keys().collect::<Vec<_>>(), after.ports.keys().collect::<Vec<_>>());
        let strayed = self.beside(after).filter(|(was, is)| *was != gone && was != is).count();
        assert_eq!(strayed, 0, "flows moved though their pod is well");
        assert!(self.beside(after).all(|(_, is)| is != gone), "flows are still sent to worker {gone}");
        let left = self.ports.values().filter(|w| **w == gone).count();
        assert!(left > 50, "{left} of {} flows were on worker {gone}", self.ports.len());
    }
}

/// Connections to the service by the pod that they reached.
async fn pools(live: &Live) -> BTreeMap<String, Vec<Connection>> {
    let client = live.node("client").unwrap();
    let mut pools: BTreeMap<String, Vec<Connection>> = BTreeMap::new();
    for n in 0..80 {
        let service = live.service_of(A, FAMILIES[n % 2]);
        let connection = Connection::open(&client, service).await.unwrap();
        pools.entry(connection.backend().to_owned()).or_default().push(connection);
    }
    assert_eq!(pools.len(), 3, "all pods have connections");
    pools
}

/// Requires that every connection still works and that none has ever had to send again.
async fn go_on(pools: &mut BTreeMap<String, Vec<Connection>>, except: &str) -> usize {
    let mut counted = 0;
    for (pod, connections) in pools.iter_mut().filter(|(pod, _)| *pod != except) {
        for connection in connections {
            connection.round_trip().await.unwrap_or_else(|e| panic!("a connection to {pod}: {e}"));
            assert_eq!(connection.retransmissions().unwrap(), 0, "a connection to {pod} lost a segment");
            counted += 1;
        }
    }
    counted
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backend_without_endpoint_leaves_the_rest_serving_and_gets_exactly_its_flows_back() {
    let live = Live::ready("unresolved", Region::default()).unwrap();
    let before = Flows::of(&live);
    let mut pools = pools(&live).await;

    live.remove("vpce-a-2.yaml").unwrap();
    for n in 1..=2 {
        let condition = wait_condition(&live, n, A, "BackendsResolved", "False");
        let message = condition["message"].as_str().unwrap_or_default();
        assert!(message.contains(&live.region.pod_address(2)), "{condition}");
    }
    before.only_left(&Flows::of(&live), 2);
    let kept = go_on(&mut pools, "w2-a").await;
    assert!(kept >= 20, "{kept} connections went on");
    for family in FAMILIES {
        let fresh = Pool::open(&live.node("client").unwrap(), live.service_of(A, family), 40).await.unwrap();
        assert_eq!(fresh.by_backend().into_keys().collect::<Vec<_>>(), ["w1-a", "w3-a"]);
    }
    // The rule's status says it, the VIP stays announced.
    live.wait_paths(2).unwrap();

    live.put("vpce-a-2.yaml", &endpoint(&live.region, 2, A)).unwrap();
    for n in 1..=2 {
        wait_condition(&live, n, A, "BackendsResolved", "True");
    }
    assert_eq!(Flows::of(&live), before, "the table is the one from before");
    go_on(&mut pools, "w2-a").await;
}

/// Writes the shared verdict into the rules' status, for both protocols.
fn verdict(live: &Live, unhealthy: &[u16]) {
    for protocol in ["tcp", "udp"] {
        let mut text = rule(&live.region, A, &format!("web-{protocol}"), protocol, &[1, 2, 3]);
        text += "status:\n  backends:\n";
        for worker in 1..=3 {
            let health = if unhealthy.contains(&worker) { "Unhealthy" } else { "Healthy" };
            text += &format!(
                "    - {{ address: \"{}\", health: {health}, verdictGeneration: 1 }}\n",
                live.region.pod_address(worker)
            );
        }
        live.put(&format!("rule-a-{protocol}.yaml"), &text).unwrap();
    }
}

/// Waits until both gateways have done what a verdict asks.
fn wait_unhealthy(live: &Live, count: u64) {
    for n in 1..=2 {
        eventually("the verdict is in the maps", SOON, || {
            let status = live.status(n).map_err(|e| e.to_string())?;
            for name in ["web-tcp", "web-udp"] {
                let rule = super::rule(live, n, A, name).map_err(|e| e.to_string())?;
                if rule["backends"]["unhealthy"] != count || status["applied"] != status["generation"] {
                    return Err(rule.to_string());
                }
            }
            Ok(())
        })
        .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_unhealthy_verdict_moves_that_backends_flows_and_no_survivors() {
    let live = Live::ready("verdict", Region::default()).unwrap();
    let before = Flows::of(&live);
    let mut pools = pools(&live).await;
    let total: usize = pools.values().map(Vec::len).sum();

    verdict(&live, &[1]);
    wait_unhealthy(&live, 1);
    let one_down = Flows::of(&live);
    before.only_left(&one_down, 1);
    let survivors = go_on(&mut pools, "w1-a").await;
    assert_eq!(survivors, total - pools["w1-a"].len());

    // A second death moves only its own flows once more: those of the first do not move again.
    verdict(&live, &[1, 3]);
    wait_unhealthy(&live, 2);
    let two_down = Flows::of(&live);
    one_down.only_left(&two_down, 3);
    assert!(two_down.beside(&two_down).all(|(worker, _)| worker == 2));

    // Back in another order than they went: each gets its own flows again.
    verdict(&live, &[3]);
    wait_unhealthy(&live, 1);
    let back = Flows::of(&live);
    before.only_left(&back, 3);
    verdict(&live, &[]);
    wait_unhealthy(&live, 0);
    assert_eq!(Flows::of(&live), before, "the table is the one from before");
    pools.remove("w1-a");
    pools.remove("w3-a");
    assert!(go_on(&mut pools, "").await > 0, "w2-a was never touched");
}
