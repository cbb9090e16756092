//! Topologies as containerlab files: one by eye, and every one reads back as it was.
#![allow(clippy::unwrap_used, reason = "helpers of a test fail it")]

use labkit::containerlab::{Rendered, read, render};
use labkit::topology::{FrrDaemon, Process, Ready, Topology};

fn small() -> Topology {
    Topology::build("small", |t| {
        t.node("client").address("eth0", "2001:db8:1::2/64").route("::/0 via 2001:db8:1::1");
        t.node("router")
            .forwarding()
            .address("eth0", "2001:db8:1::1/64")
            .address("eth1", "192.0.2.1/24")
            .sysctl("net.ipv6.conf.eth0.accept_ra", 0)
            .frr(&[FrrDaemon::Bgpd], "router bgp 65000\n");
        t.link("client:eth0", "router:eth0", 1500);
        t.link("router:eth1", "client:eth1", 9000).own_xdp("router").checksum_offload("client");
    })
    .unwrap()
}

fn large() -> Topology {
    let process = Process {
        name: "server".into(),
        command: vec!["server".into(), "--listen".into(), "[::]:80".into()],
        env: [("RUST_LOG".to_owned(), "debug, \"quoted\": yes".to_owned())].into(),
        ready: Some(Ready::log("listening")),
    };
    Topology::build("large", |t| {
        for name in ["zeta", "alpha", "no", "on"] {
            t.node(name).address("eth0", "2001:db8::1/64");
        }
        t.node("alpha")
            .route("2001:db8:a::1/128 encap seg6 mode encap.red segs 2001:db8:f::1 dev eth0")
            .route("unreachable ::/0 table 100")
            .route("192.0.2.80/32 via inet6 2001:db8::3 dev eth0")
            .rule("from 2001:db8::/32 iif eth0 table 100 priority 10")
            .rule("-4 from all fwmark 7 table 9")
            .sysctl("net.ipv6.conf.all.seg6_enabled", 1)
            .nftables("table inet filter {\n}\n")
            .file("etc/server.yaml", "listen: \"[::]:80\"\n")
            .process(process);
        t.link("zeta:eth0", "alpha:eth0", 1500).own_xdp("alpha");
        t.link("no:eth0", "on:eth0", 1400);
    })
    .unwrap()
}

#[test]
fn a_small_topology_renders_as_reviewed() {
    insta::assert_snapshot!(render(&small(), "weir-lab:latest").unwrap().yaml);
}

#[test]
fn a_rendered_topology_reads_back_equal_nodes_in_order() {
    for topology in [small(), large()] {
        let rendered = render(&topology, "image").unwrap();
        assert_eq!(read(&rendered).unwrap(), topology);
    }
}

#[test]
fn every_node_is_confined_and_every_link_has_its_mtu() {
    let yaml = render(&large(), "image").unwrap().yaml;
    for line in [
        "privileged: false",
        "image-pull-policy: Never",
        "network-mode: none",
        "restart-policy: \"no\"",
        "- SYS_ADMIN",
    ] {
        assert_eq!(yaml.matches(line).count(), 4, "{line} in\n{yaml}");
    }
    assert!(yaml.contains("skip-when-unused: true"));
    assert_eq!(yaml.matches("mtu: ").count(), 2);
}

#[test]
fn files_lie_beside_the_topology_and_are_bound() {
    let rendered = render(&large(), "image").unwrap();
    assert_eq!(
        rendered.files.keys().collect::<Vec<_>>(),
        ["large/alpha/files/etc/server.yaml", "large/alpha/nftables.conf"]
    );
    assert!(rendered.yaml.contains("large/alpha/files/etc/server.yaml:/lab/etc/server.yaml:ro"));
}

#[test]
fn what_labkit_does_not_write_is_refused_by_name() {
    let good = render(&small(), "image").unwrap();
    let broken = |from: &str, to: &str| {
        assert!(good.yaml.contains(from), "{from}");
        let changed = Rendered { yaml: good.yaml.replacen(from, to, 1), files: good.files.clone() };
        read(&changed).unwrap_err().to_string()
    };
    let cases = [
        ("ip address add 2001:db8:1::2/64 dev eth0 nodad", "reboot", "exec \"reboot\": not a command"),
        ("kind: linux", "kind: linux\n      ports: []", "node \"client\": unknown field `ports`"),
        ("client:eth0", "client", "link end \"client\""),
        ("router/frr.conf", "router/other.conf", "there is no file \"small/router/other.conf\""),
        ("bgpd", "ospfd", "FRR daemon \"ospfd\" is unknown"),
        ("mtu: 1500", "mtu: 100", "MTU 100"),
    ];
    for (from, to, wanted) in cases {
        let error = broken(from, to);
        assert!(error.contains(wanted), "{from} → {to}: {error}");
    }
}
