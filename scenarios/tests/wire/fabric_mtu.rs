//! A router inside the fabric has a smaller link further on: its word lowers that backend's MTU, and no other's.

use std::time::Duration;

use labkit::expect::expect;
use labkit::packet::matcher;
use labkit::traffic::Connection;
use labkit::wait::{check, eventually, steady};
use scenarios::region::{A, Live, PORT, Region, SOON};
use weir::dataplane::Dataplane as _;
use weir_bpf::abi::Reason;

use super::client_and_vip;

/// MTU of the spine's links to the workers; the gateways' own links take 1600.
const NARROW: u32 = 1400;

/// MTU set for each loaded backend of tenant A, by worker.
fn path_mtus(live: &Live) -> std::collections::BTreeMap<u16, u32> {
    let maps = live.maps(1).unwrap();
    let tables = maps.read_back().unwrap();
    (1..=live.region.workers)
        .filter_map(|worker| {
            let sid: std::net::Ipv6Addr = live.region.sid(worker, A).parse().unwrap();
            let entry = tables.backends.values().find(|entry| entry.sid.0 == sid)?;
            Some((worker, maps.backend(entry.index).pmtu))
        })
        .collect()
}

fn narrow(live: &Live, worker: u16) {
    let mtu = NARROW.to_string();
    let port = format!("eth{}", 10 + worker);
    live.node("spine").unwrap().run(["ip", "link", "set", &port, "mtu", &mtu]).unwrap();
    live.node(&format!("w{worker}")).unwrap().run(["ip", "link", "set", "eth0", "mtu", &mtu]).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bulk_transfer_completes_over_a_router_whose_next_link_is_smaller() {
    let live = Live::ready("fabric-mtu", Region { gateways: 1, ..Region::default() }).unwrap();
    for worker in 1..=live.region.workers {
        narrow(&live, worker);
    }
    let client = live.node("client").unwrap();
    let mut connection = Connection::open(&client, live.service(A)).await.unwrap();
    connection.transfer(4 << 20, Duration::from_mins(1)).await.unwrap();
    let reasons = live.reasons(1).unwrap();
    assert!(reasons[&Reason::FabricPtb] > 0, "the spine said nothing: {reasons:?}");
    assert!(reasons[&Reason::PacketTooBig] > 0, "the client was told nothing: {reasons:?}");
    let route = client.run(["ip", "-6", "route", "get", &live.region.vip(A)]).unwrap();
    assert!(route.contains(&format!("mtu {}", NARROW - 40)), "{route}");
    // One connection has taught the MTU of one worker's path.
    let lowered: Vec<u32> = path_mtus(&live).into_values().filter(|mtu| *mtu != 0).collect();
    assert_eq!(lowered, [NARROW]);
    let shown = live.weir(1, &["show", "backends", "--output", "json", "--config", "weir.yaml"]).unwrap();
    assert!(shown.contains(&format!("\"path_mtu\": {NARROW}")), "{shown}");
}

#[tokio::test(flavor = "multi_thread")]
async fn only_the_fabrics_word_about_a_backends_sid_is_believed_and_never_below_1320() {
    let live = Live::ready("fabric-word", Region { gateways: 1, ..Region::default() }).unwrap();
    let (client, vip) = client_and_vip(&live, A);
    let fabric = live.sender("spine", "eth1").unwrap();
    let uplink = live.sender("edge", "eth1").unwrap();
    let wire = live.capture("spine", "eth1").unwrap();
    // What the gateway itself sent, as a router would quote it.
    uplink.send(&uplink.frame().ipv6(client, vip).udp(40_100, PORT).payload(&[7; 400])).unwrap();
    let ours = matcher::inner_dst(vip).and(matcher::udp("the probe", |udp| udp.src == 40_100));
    let sent = expect(&wire).within(SOON).packet(ours).unwrap();
    let outer = sent.bytes[14..].to_vec();
    let (source, sid) = {
        let address =
            |at: usize| std::net::Ipv6Addr::from(<[u8; 16]>::try_from(&outer[at..at + 16]).unwrap());
        (address(8), address(24))
    };
    let worker =
        (1..=3).find(|w| live.region.sid(*w, A).parse::<std::net::Ipv6Addr>().unwrap() == sid).unwrap();
    let router: std::net::Ipv6Addr = live.region.spine_fabric(1).parse().unwrap();
    let none = std::collections::BTreeMap::from([(1, 0), (2, 0), (3, 0)]);

    // From the internet side, and about a SID of nobody's: nothing comes of it.
    uplink.send(&uplink.frame().ipv6(router, source).packet_too_big(1400).quote(&outer)).unwrap();
    let mut nobody = outer.clone();
    nobody[24 + 6..24 + 8].copy_from_slice(&[0x7f, 0xff]);
    fabric.send(&fabric.frame().ipv6(router, source).packet_too_big(1400).quote(&nobody)).unwrap();
    eventually("both were counted", SOON, || {
        let reasons = live.reasons(1).map_err(|e| e.to_string())?;
        check(reasons[&Reason::Srv6Block] >= 1 && reasons[&Reason::FabricPtb] >= 1, || format!("{reasons:?}"))
    })
    .unwrap();
    steady("no backend's MTU is lowered", Duration::from_secs(1), || {
        let now = path_mtus(&live);
        check(now == none, || format!("{now:?}"))
    })
    .unwrap();

    fabric.send(&fabric.frame().ipv6(router, source).packet_too_big(1290).quote(&outer)).unwrap();
    let mut lowered = none;
    lowered.insert(worker, 1320);
    eventually("the backend's MTU is the least that can be signalled", SOON, || {
        let now = path_mtus(&live);
        check(now == lowered, || format!("{now:?}"))
    })
    .unwrap();

    // A daemon that is started anew reads what was noted.
    let process = live.gateway(1).unwrap().process("weir").unwrap();
    assert!(process.terminate(SOON).unwrap().success());
    live.run_gateway(1, None).unwrap();
    live.wait_ready().unwrap();
    steady("it stays lowered", Duration::from_secs(1), || {
        let now = path_mtus(&live);
        check(now == lowered, || format!("{now:?}"))
    })
    .unwrap();
}
