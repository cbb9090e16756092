//! Topologies as data: the builder's language round-trips, and mistakes are found before anything is created.

use labkit::topology::{Route, Rule, Topology};

#[test]
fn routes_and_rules_read_back_what_they_write() {
    for text in [
        "::/0 via 2001:db8:1::1",
        "2001:db8::/32 nexthop via 2001:db8:1::1 nexthop via 2001:db8:2::1 dev eth1 weight 3 metric 20",
        "unreachable ::/0 table 100",
        "blackhole 192.0.2.0/24",
        "local 2001:db8:a::1/128 dev lo table 100",
        "2001:db8:a::1/128 encap seg6 mode encap.red segs 2001:db8:f::1 dev eth0",
        "2001:db8:a::1/128 encap seg6 mode encap segs 2001:db8:f::1,2001:db8:f::2 via 2001:db8::1",
        "2001:db8:f::1/128 encap seg6local action End.DT6 table 100 dev eth0",
        "2001:db8:f::2/128 encap seg6local action End.DX6 nh6 2001:db8:9::2 dev eth0",
        "192.0.2.80/32 via inet6 2001:db8:3::1 dev eth0 src 192.0.2.1",
    ] {
        assert_eq!(text.parse::<Route>().unwrap().to_string(), text);
    }
    for text in ["from 2001:db8::/32 iif eth0 table 100 priority 10", "-4 from all fwmark 7 table 9"] {
        assert_eq!(text.parse::<Rule>().unwrap().to_string(), text);
    }
    for wrong in [
        "",
        "unreachable default",
        "2001:db8::/32",
        "unreachable ::/0 via ::1",
        "::/0 via",
        "::/0 via x",
        "::/0 dev eth0 mtu 3",
        "local ::1/128 via ::2",
        "::/0 encap seg6 segs x dev eth0",
        "::/0 encap mpls 3 dev eth0",
    ] {
        assert!(wrong.parse::<Route>().is_err(), "{wrong:?} was taken");
    }
    for wrong in ["from 2001:db8::/32 to 192.0.2.0/24 table 1", "from all", "table x"] {
        assert!(wrong.parse::<Rule>().is_err(), "{wrong:?} was taken");
    }
}

#[test]
fn every_mistake_in_a_topology_is_named_at_once() {
    let error = Topology::build("bad", |t| {
        t.node("a").address("eth7", "2001:db8::1/64").address("eth0", "nonsense").route("default");
        t.node("b").file("../etc/passwd", "").route("2001:db8::/32 dev eth9");
        t.link("a:eth0", "c:eth0", 1500);
        t.link("a:eth0", "b:interface-name-too-long", 100);
        t.link("a", "b:eth0", 1500);
    })
    .unwrap_err();
    insta::assert_snapshot!(error.problems.join("\n"), @r#"
    node "a": address "nonsense": invalid IP address syntax
    node "a": route "default": "default" has no family here: write ::/0 or 0.0.0.0/0
    link end "a": write it as node:interface
    link a:eth0—c:eth0: there is no node "c"
    interface a:eth0 is used by two links
    link a:eth0—b:interface-name-too-long: interface name "interface-name-too-long" must have 1 to 15 letters, digits, '-', '_' or '.', and not be lo
    link a:eth0—b:interface-name-too-long: MTU 100 is not between 1280 and 65535
    node "a": address 2001:db8::1/64: no link ends at interface "eth7"
    node "b": route 2001:db8::/32 dev eth9: no link ends at interface "eth9"
    node "b": file "../etc/passwd" must be a path inside the node's own directory, without '..' or a leading '/'
    "#);
}

#[test]
fn a_topology_survives_serialisation() {
    let topology = Topology::build("pair", |t| {
        t.node("a")
            .forwarding()
            .address("eth0", "2001:db8::1/64")
            .route("default via 2001:db8::2")
            .rule("from all table 7");
        t.node("b").frr(&[labkit::topology::FrrDaemon::Bgpd], "router bgp 65000\n");
        t.link("a:eth0", "b:eth0", 1500).own_xdp("a").checksum_offload("b");
    })
    .unwrap();
    let text = serde_json::to_string(&topology).unwrap();
    assert_eq!(serde_json::from_str::<Topology>(&text).unwrap(), topology);
    assert_eq!(topology.mac("b", "eth0"), Some([2, 0, 0, 2, 0, 1]));
    assert_eq!(topology.mac("b", "eth1"), None);
}
