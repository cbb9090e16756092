//! Rules that this region's gateways must leave alone.

use std::time::Duration;

use labkit::wait::{check, eventually, steady};
use scenarios::region::{A, Live, Region, SOON, rule_on};
use weir::dataplane::bpf::encode_owner;

#[tokio::test(flavor = "multi_thread")]
async fn another_regions_rule_and_a_refused_vip_are_neither_served_nor_announced() {
    let live = Live::up("elsewhere", Region { gateways: 1, ..Region::default() }).unwrap();
    live.prepare_gateway(1).unwrap();
    let objects = live.objects(1).unwrap();
    let vip = "2001:db8:1aa::99";
    let elsewhere = rule_on(&live.region, A, "elsewhere", "tcp", 443, &[1])
        .replace(&live.region.vip(A), vip)
        .replace("region: region-1", "region: region-2");
    objects.put("elsewhere.yaml", &elsewhere).unwrap();
    live.run_gateway(1, None).unwrap();
    live.wait_ready().unwrap();
    for (kind, status, reason) in [
        ("Accepted", "True", "Valid"),
        ("Loaded", "False", "OtherRegion"),
        ("Advertised", "False", "OtherRegion"),
    ] {
        let message = live.wait_condition(1, "tenant-a/elsewhere", kind, status, reason).unwrap();
        assert!(status == "True" || message == "region region-2 serves it", "{message}");
    }
    let mapped = "::ffff:203.0.113.9";
    let refused = rule_on(&live.region, A, "mapped", "tcp", 443, &[1]).replace(&live.region.vip(A), mapped);
    objects.put("mapped.yaml", &refused).unwrap();
    let problem = eventually("the mapped VIP is refused", SOON, || {
        let status = live.status(1).map_err(|e| e.to_string())?;
        let problem = status["sources"][0]["problems"][0].as_str().map(str::to_owned);
        problem.ok_or_else(|| status["sources"].to_string())
    })
    .unwrap();
    let place = objects.directory().join("mapped.yaml");
    assert_eq!(
        problem,
        format!(
            "{}:9: spec.vipAddresses[0]: ::ffff:203.0.113.9 is an IPv4 address written as IPv6 (::ffff:0:0/96); write it as IPv4",
            place.display()
        )
    );
    assert_eq!(live.rule_status(1, "tenant-a/mapped").unwrap(), serde_json::Value::Null);
    let maps = live.maps(1).unwrap();
    steady("neither is served nor announced", Duration::from_secs(1), || {
        for address in [vip, "203.0.113.9"] {
            let address = address.parse().unwrap();
            check(maps.find(&encode_owner(address)).is_none(), || format!("{address} is in the maps"))?;
            let hops = live.edge_hops(address).map_err(|e| e.to_string())?;
            check(hops.is_empty(), || format!("{address}: {hops:?}"))?;
        }
        Ok::<_, String>(())
    })
    .unwrap();
    let told = live.status(1).unwrap()["routes"].to_string();
    assert!(!told.contains(vip) && !told.contains("203.0.113.9"), "{told}");
    // The rule's own region serves it.
    objects.put("elsewhere.yaml", &elsewhere.replace("region: region-2", "region: region-1")).unwrap();
    live.node("edge").unwrap().wait_route(&format!("{vip}/128"), 1, SOON).unwrap();
}
