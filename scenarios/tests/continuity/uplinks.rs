//! Two uplinks of one gateway: VIPs are announced on each, and a link that goes moves its traffic to the other.

use labkit::topology::Topology;
use labkit::traffic::Pool;
use labkit::wait::{check, eventually};
use labkit::{Lab, fault};
use scenarios::region::{A, Live, Region, SOON};

const ROUTER: &str = "2001:db8:150::1";
const GATEWAY: &str = "2001:db8:150::2";

fn up() -> Live {
    let region = Region { gateways: 1, ..Region::default() };
    let topology = Topology::build("uplinks", |t| {
        region.build(t);
        t.node("edge").address("eth31", &format!("{ROUTER}/64"));
        t.node("gw1").address("eth3", &format!("{GATEWAY}/64"));
        t.link("edge:eth31", "gw1:eth3", 1500).own_xdp("gw1");
    })
    .unwrap();
    let live = Live::up_with(Lab::options(), &topology, region).unwrap();
    let (own, theirs) = (live.region.edge_as(), live.region.gateway_as());
    let password = scenarios::region::BGP_PASSWORD;
    live.frr("edge")
        .unwrap()
        .configure(&format!(
            "router bgp {own}\n neighbor {GATEWAY} remote-as {theirs}\n neighbor {GATEWAY} password {password}\n neighbor {GATEWAY} \
             ttl-security hops 1\n neighbor {GATEWAY} timers connect 1\n neighbor {GATEWAY} passive\n address-family ipv6 unicast\n  \
             neighbor {GATEWAY} activate\n exit-address-family\nexit\n"
        ))
        .unwrap();
    live.prepare_gateway(1).unwrap();
    live.edit_config(1, "uplinks: [eth1]", "uplinks: [eth1, eth3]").unwrap();
    let dir = live.gateway(1).unwrap().dir().display().to_string();
    let peer = format!(
        "  peers:\n    - {{ name: edge-2, address: \"{ROUTER}\", localAddress: \"{GATEWAY}\", asn: {own}, role: upstream, passwordFile: \
         {dir}/bgp-password, gtsm: true }}\n"
    );
    live.edit_config(1, "  peers:\n", &peer).unwrap();
    live
}

/// Frames that an uplink's other end has sent to the gateway so far.
fn sent(live: &Live, interface: &str) -> u64 {
    let text = live.node("edge").unwrap().run(["ip", "-j", "-s", "link", "show", "dev", interface]).unwrap();
    let links: serde_json::Value = serde_json::from_str(&text).unwrap();
    links[0]["stats64"]["tx"]["packets"].as_u64().unwrap_or_else(|| panic!("{text}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_with_two_uplinks_announces_on_each_and_a_link_that_goes_moves_its_traffic() {
    let live = up();
    live.run_gateway(1, None).unwrap();
    live.wait_gateway_ready(1).unwrap();
    live.wait_paths(2).unwrap();
    let status = live.status(1).unwrap();
    let attached = status["interfaces"].as_array().unwrap().iter().filter(|i| i["attached"] == true).count();
    assert_eq!(attached, 3, "both uplinks and the fabric: {status}");

    let client = live.node("client").unwrap();
    let before = [sent(&live, "eth1"), sent(&live, "eth31")];
    let mut pool = Pool::open(&client, live.service(A), 60).await.unwrap();
    assert_eq!(pool.verify().await, 0);
    let grown = [sent(&live, "eth1") - before[0], sent(&live, "eth31") - before[1]];
    assert!(grown.iter().all(|n| *n > 30), "the flows are spread over both: {grown:?}");

    for (down, left) in [("eth1", GATEWAY.to_owned()), ("eth31", live.region.gateway_uplink(1))] {
        let fault = fault::link_down(&live.node("edge").unwrap(), down).unwrap();
        eventually("the edge sends over the link that is left", SOON, || {
            let hops = live.edge_hops(live.vip(A)).map_err(|e| e.to_string())?;
            check(hops == [left.parse::<std::net::IpAddr>().unwrap()], || format!("{hops:?}"))
        })
        .unwrap();
        // Which uplink a packet comes in on makes no difference to where its flow goes.
        assert_eq!(pool.verify().await, 0, "connections while {down} is down");
        let mut more = Pool::open(&client, live.service(A), 20).await.unwrap();
        assert_eq!(more.verify().await, 0);
        fault.heal().unwrap();
        live.wait_paths(2).unwrap();
    }
    assert_eq!(pool.verify().await, 0);
}
