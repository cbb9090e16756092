//! A rule that goes is withdrawn by every gateway before that gateway stops serving it, whenever each learns of it.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use anyhow::Result;
use labkit::netlink::RouteChange;
use labkit::traffic::{Pool, UdpFlow};
use labkit::wait::eventually_async;
use scenarios::region::{A, B, FAMILIES, Family, Live, PORT, Region, SOON};
use weir::dataplane::bpf::{Maps, encode_key};
use weir::model::{Protocol, VipKey};
use weir_bpf::abi::Reason;

/// How much later the second gateway learns of the removal.
const LATE: Duration = Duration::from_secs(3);

/// Keys of a VIP that a gateway's maps hold.
fn keys(maps: &Maps, vip: IpAddr) -> usize {
    let key = |protocol| encode_key(VipKey { address: vip, protocol, port: PORT });
    [Protocol::Tcp, Protocol::Udp].into_iter().filter(|p| maps.find(&key(*p)).is_some()).count()
}

/// Keys of both families' VIPs.
fn all_keys(live: &Live, maps: &Maps) -> usize {
    FAMILIES.map(|family| keys(maps, live.vip_of(A, family))).iter().sum()
}

fn unserved(maps: &Maps) -> u64 {
    maps.reason_total(Reason::NoRule)
        + maps.reason_total(Reason::NotLoaded)
        + maps.reason_total(Reason::NoBackend)
}

/// One look: whatever gateway has let go of a key must have no route through it any more.
fn look(live: &Live, maps: &[Maps]) -> Result<(), String> {
    FAMILIES.iter().try_for_each(|family| look_at(live, maps, *family))
}

fn look_at(live: &Live, maps: &[Maps], family: Family) -> Result<(), String> {
    let vip = live.vip_of(A, family);
    let held: Vec<usize> = maps.iter().map(|m| keys(m, vip)).collect();
    let hops = live.edge_hops(vip).map_err(|e| e.to_string())?;
    for (n, held) in (1..).zip(&held) {
        let via: IpAddr = live.region.next_hop(n, family).parse().unwrap();
        if *held < 2 && hops.contains(&via) {
            return Err(format!("gateway {n} holds {held} of 2 keys while the edge has {hops:?}"));
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_rule_is_withdrawn_before_it_stops_serving_also_when_one_gateway_is_late() {
    let live = Live::ready("removal", Region::default()).unwrap();
    let client = live.node("client").unwrap();
    let maps: Vec<Maps> = (1..=2).map(|n| live.maps(n).unwrap()).collect();
    let before: Vec<u64> = maps.iter().map(unserved).collect();
    let watch = live.node("edge").unwrap().watch_routes().unwrap();

    let mut flows = Vec::new();
    for n in 0..8 {
        let service = live.service_of(A, FAMILIES[n % 2]);
        flows.push(UdpFlow::start(&client, service, Duration::from_millis(5), 64).await.unwrap());
    }
    let started = Instant::now();
    let mut pulses = Vec::new();
    for family in FAMILIES {
        let pool = Pool::open(&client, live.service_of(A, family), 8).await.unwrap();
        pulses.push(pool.pulse(Duration::from_millis(20)));
    }
    let bystander = Pool::open(&client, live.service(B), 8).await.unwrap().pulse(Duration::from_millis(20));

    let remove = |n| {
        let objects = live.objects(n).unwrap();
        for protocol in ["tcp", "udp"] {
            objects.remove(&format!("rule-a-{protocol}.yaml")).unwrap();
        }
    };
    remove(1);
    let late_at = Instant::now() + LATE;
    eventually_async("the first gateway lets go while the other serves", SOON, async || {
        look(&live, &maps)?;
        let (first, second) = (all_keys(&live, &maps[0]), all_keys(&live, &maps[1]));
        if (first, second) == (0, 4) { Ok(()) } else { Err(format!("keys: {first} and {second}")) }
    })
    .await
    .unwrap();
    for (family, pulse) in FAMILIES.into_iter().zip(pulses) {
        let second: IpAddr = live.region.next_hop(2, family).parse().unwrap();
        assert_eq!(live.edge_hops(live.vip_of(A, family)).unwrap(), [second]);
        // Connections that went through the first gateway go on through the second.
        let served = pulse.stop().await;
        assert!(served.broken.is_empty() && served.messages > 0, "{:?}", served.broken);
    }
    tokio::time::sleep_until(late_at.into()).await;
    let told = Instant::now();
    remove(2);
    let mut gone = None;
    let mut broken = None;
    eventually_async("both gateways let go", SOON, async || {
        if let Err(seen) = look(&live, &maps) {
            broken.get_or_insert(seen);
        }
        if FAMILIES.iter().all(|family| live.edge_hops(live.vip_of(A, *family)).unwrap().is_empty()) {
            gone.get_or_insert_with(Instant::now);
        }
        let left: Vec<usize> = maps.iter().map(|m| all_keys(&live, m)).collect();
        if left == [0, 0] { Ok(()) } else { Err(format!("keys left: {left:?}")) }
    })
    .await
    .unwrap();
    assert_eq!(broken, None);
    assert!(gone.is_some(), "the maps were emptied while the edge had a route");

    // What was lost was lost for want of a route at the edge: a tail of each flow, later than the second gateway's news.
    for flow in flows {
        let report = flow.stop(&live.udp_servers()).await.unwrap();
        assert!(report.lost_back.is_empty(), "{:?}", report.lost_back);
        let first = *report.lost_out.first().expect("the flow went on after the removal");
        let tail: Vec<u64> = (first..report.sent).collect();
        assert_eq!(report.lost_out, tail, "packets were lost before the route was gone");
        let samples = report.samples(Duration::from_millis(1));
        let lost_at = samples.iter().find(|s| s.lost > 0).unwrap().at + Duration::from_millis(1);
        assert!(
            started + lost_at >= told,
            "lost {:?} before the second gateway was told",
            told - (started + lost_at)
        );
    }
    for (maps, before) in maps.iter().zip(before) {
        assert_eq!(unserved(maps), before, "packets reached a gateway that served them no more");
    }
    for family in FAMILIES {
        let events = watch.events_for(ipnet::IpNet::from(live.vip_of(A, family)));
        assert_eq!(events.last().map(|e| e.change), Some(RouteChange::Removed), "{events:?}");
    }
    let others = bystander.stop().await;
    assert!(others.broken.is_empty(), "{:?}", others.broken);
    assert_eq!(live.edge_hops(live.vip(B)).unwrap().len(), 2);
    for n in 1..=2 {
        let rules = live.status(n).unwrap()["rules"].to_string();
        assert!(!rules.contains("tenant-a"), "{rules}");
    }
}
