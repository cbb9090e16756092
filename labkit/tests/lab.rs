//! Labs as they are meant to be used: traffic through real kernels' routing, apart from each other, gone at the end.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::path::Path;

use common::{SOON, routed, tcp_exchange};
use labkit::topology::{RouteKind, Topology};
use labkit::{Error, Lab, wait};

#[tokio::test]
async fn tcp_through_a_router_shows_the_clients_address() {
    let lab = Lab::up(&routed("plain")).unwrap();
    let (client, server) = (lab.node("client").unwrap(), lab.node("server").unwrap());
    let peer = tcp_exchange(&client, &server, "[2001:db8:2::2]").await.unwrap();
    assert_eq!(Some(peer.ip()), client.address("eth0"));
}

#[tokio::test]
async fn a_burst_of_packets_waits_for_a_late_reader() {
    let lab = Lab::up(&routed("burst")).unwrap();
    let (client, server) = (lab.node("client").unwrap(), lab.node("server").unwrap());
    let to: std::net::SocketAddr = "[2001:db8:2::2]:7".parse().unwrap();
    let reader = server.udp_bind(to).unwrap();
    let writer = client.udp_bind("[::]:0".parse().unwrap()).unwrap();
    let (count, mut buffer) = (600, [0; 64]);
    for _ in 0..count {
        writer.send_to(&[0; 64], to).await.unwrap();
    }
    for n in 0..count {
        let read = tokio::time::timeout(SOON, reader.recv_from(&mut buffer)).await;
        read.unwrap_or_else(|_| panic!("only {n} of {count} packets waited")).unwrap();
    }
}

#[tokio::test]
async fn without_forwarding_nothing_passes_the_router() {
    let lab = Lab::up(&routed("closed")).unwrap();
    lab.node("router").unwrap().set_sysctl("net.ipv6.conf.all.forwarding", "0").unwrap();
    let (client, server) = (lab.node("client").unwrap(), lab.node("server").unwrap());
    assert!(tcp_exchange(&client, &server, "[2001:db8:2::2]").await.is_err());
}

#[test]
fn links_have_their_mtu_mac_checksums_and_xdp() {
    let topology = Topology::build("links", |t| {
        t.node("a").address("eth0", "2001:db8::1/64");
        t.node("b").address("eth0", "2001:db8::2/64");
        t.link("a:eth0", "b:eth0", 9000).own_xdp("b").checksum_offload("b");
    })
    .unwrap();
    let lab = Lab::up(&topology).unwrap();
    let (a, b) = (lab.node("a").unwrap(), lab.node("b").unwrap());
    let show = |node: &labkit::NodeHandle| node.run(["ip", "-d", "link", "show", "eth0"]).unwrap();
    let (at_a, at_b) = (show(&a), show(&b));
    assert!(at_a.contains("mtu 9000") && at_a.contains("link/ether 02:00:00:01:00:01"), "{at_a}");
    assert!(at_b.contains("mtu 9000") && at_b.contains("link/ether 02:00:00:02:00:01"), "{at_b}");
    assert!(at_a.contains("prog/xdp"), "pass-through program missing: {at_a}");
    assert!(!at_b.contains("xdp"), "{at_b}");
    let features = |node: &labkit::NodeHandle| node.run(["ethtool", "-k", "eth0"]).unwrap();
    assert!(features(&a).contains("tx-checksumming: off"));
    assert!(features(&b).contains("tx-checksumming: on"));
    // No address of its own making, none that waits for its check.
    let addresses = a.netlink(async |netlink| netlink.addresses("eth0").await).unwrap();
    assert_eq!(
        addresses.iter().map(ToString::to_string).collect::<Vec<_>>(),
        ["2001:db8::1/64", "fe80::ff:fe01:1/64"]
    );
    assert!(!a.run(["ip", "-6", "address"]).unwrap().contains("tentative"));
}

#[tokio::test]
async fn equal_cost_routes_use_both_next_hops() {
    let topology = Topology::build("ecmp", |t| {
        t.node("client")
            .address("eth1", "2001:db8:1::2/64")
            .address("eth2", "2001:db8:2::2/64")
            .route("2001:db8:a::/64 nexthop via 2001:db8:1::1 nexthop via 2001:db8:2::1")
            .sysctl("net.ipv6.fib_multipath_hash_policy", 1);
        for i in 1..=2 {
            t.node(&format!("r{i}"))
                .forwarding()
                .address("eth0", &format!("2001:db8:{i}::1/64"))
                .address("eth1", &format!("2001:db8:1{i}::1/64"))
                .route(&format!("2001:db8:a::/64 via 2001:db8:1{i}::2"));
            t.link(&format!("client:eth{i}"), &format!("r{i}:eth0"), 1500);
            t.link(&format!("r{i}:eth1"), &format!("server:eth{i}"), 1500);
            t.node("server")
                .address(&format!("eth{i}"), &format!("2001:db8:1{i}::2/64"))
                .route(&format!("2001:db8:{i}::/64 via 2001:db8:1{i}::1"));
        }
        t.node("server").address("lo", "2001:db8:a::1/128");
    })
    .unwrap();
    let lab = Lab::up(&topology).unwrap();
    let (client, server) = (lab.node("client").unwrap(), lab.node("server").unwrap());
    let routes = client.routes(254).unwrap();
    let route = routes.iter().find(|route| route.to.to_string() == "2001:db8:a::/64").unwrap();
    let RouteKind::Unicast(hops) = &route.kind else { panic!("{route}") };
    assert_eq!(hops.len(), 2, "{route}");
    let listener = server.tcp_listen("[2001:db8:a::1]:7".parse().unwrap()).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    // The hash takes the source port; that one way is never taken in 64 tries has a chance of 1 in 2^63.
    for _ in 0..64 {
        let _stream = client.tcp_connect("[2001:db8:a::1]:7".parse().unwrap()).await.unwrap();
        seen.insert(listener.accept().await.unwrap().1.ip().to_string());
    }
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), ["2001:db8:1::2", "2001:db8:2::2"]);
}

#[tokio::test]
async fn srv6_carries_to_a_table_that_ends_in_unreachable() {
    let topology = Topology::build("srv6", |t| {
        t.node("client")
            .address("eth0", "2001:db8:1::2/64")
            .route("2001:db8:a::/64 encap seg6 mode encap.red segs 2001:db8:f::100 via 2001:db8:1::1")
            .route("2001:db8:f::/48 via 2001:db8:1::1");
        t.node("worker")
            .forwarding()
            .sysctl("net.ipv6.conf.all.seg6_enabled", 1)
            .sysctl("net.ipv6.conf.eth0.seg6_enabled", 1)
            .address("eth0", "2001:db8:1::1/64")
            .address("pod0", "2001:db8:3::1/64")
            .route("2001:db8:f::100/128 encap seg6local action End.DT6 table 100 dev eth0")
            .route("2001:db8:a::1/128 via 2001:db8:3::2 table 100")
            .route("unreachable ::/0 table 100");
        t.node("pod")
            .address("eth0", "2001:db8:3::2/64")
            .address("lo", "2001:db8:a::1/128")
            .route("default via 2001:db8:3::1");
        t.link("client:eth0", "worker:eth0", 1500);
        t.link("worker:pod0", "pod:eth0", 1500);
    })
    .unwrap();
    let lab = Lab::up(&topology).unwrap();
    let (client, pod) = (lab.node("client").unwrap(), lab.node("pod").unwrap());
    let peer = tcp_exchange(&client, &pod, "[2001:db8:a::1]").await.unwrap();
    assert_eq!(Some(peer.ip()), client.address("eth0"), "the pod sees the client itself");
    let table = lab.node("worker").unwrap().routes(100).unwrap();
    assert_eq!(table.iter().filter(|route| route.kind == RouteKind::Unreachable).count(), 1, "{table:?}");
    // What the table does not hold is refused at once, by an error from the worker.
    let error = client.tcp_connect("[2001:db8:a::2]:7".parse().unwrap()).await.unwrap_err().to_string();
    assert!(error.contains("No route to host") || error.contains("unreachable"), "{error}");
}

#[tokio::test]
async fn two_labs_of_one_topology_do_not_touch() {
    let topology = routed("twin");
    let (one, two) = (Lab::up(&topology).unwrap(), Lab::up(&topology).unwrap());
    assert_ne!(one.name(), two.name());
    one.node("router").unwrap().set_sysctl("net.ipv6.conf.all.forwarding", "0").unwrap();
    let pair = |lab: &Lab| (lab.node("client").unwrap(), lab.node("server").unwrap());
    let (client, server) = pair(&two);
    tcp_exchange(&client, &server, "[2001:db8:2::2]").await.unwrap();
    let (client, server) = pair(&one);
    assert!(tcp_exchange(&client, &server, "[2001:db8:2::2]").await.is_err());
    drop(one);
    let (client, server) = pair(&two);
    tcp_exchange(&client, &server, "[2001:db8:2::2]").await.unwrap();
}

#[test]
fn a_dropped_lab_leaves_nothing() {
    let lab = Lab::up(&routed("gone")).unwrap();
    let client = lab.node("client").unwrap();
    let sleeper = client
        .spawn_command("sleeper", {
            let mut c = client.command("sleep");
            c.arg("1000");
            c
        })
        .unwrap();
    // One that left its process group is found by its namespace.
    client.sh("setsid sleep 1000 >/dev/null 2>&1 &").unwrap();
    let record = lab.record().clone();
    assert!(sleeper.is_running());
    drop(lab);
    assert!(!sleeper.is_running());
    assert_gone(&record);
}

#[test]
fn a_lab_that_fails_to_come_up_leaves_nothing() {
    let mut topology = routed("broken");
    topology.nodes[0].sysctls.insert("net.no.such.setting".into(), "1".into());
    let error = Lab::up(&topology).unwrap_err().to_string();
    assert!(error.contains("set net.no.such.setting to \"1\""), "{error}");
    assert!(!labkit::state::list().unwrap().iter().any(|found| found.lab.starts_with("broken-")));
}

#[test]
fn a_kept_lab_stays_until_it_is_cleaned() {
    let lab = Lab::options().keep(true).up(&routed("kept")).unwrap();
    let record = lab.record().clone();
    drop(lab);
    assert!(record.namespaces.values().all(|name| labkit::netns::Netns::open(name).is_ok()));
    let found = labkit::state::find(&record.lab).unwrap();
    assert_eq!(found.owner, labkit::state::Owner::Gone);
    labkit::state::clean(&found).unwrap();
    assert_gone(&record);
}

#[test]
fn a_lab_in_use_is_not_cleaned() {
    let lab = Lab::up(&routed("busy")).unwrap();
    let found = labkit::state::find(lab.name()).unwrap();
    assert_eq!(found.owner, labkit::state::Owner::Alive);
    let error = labkit::state::clean(&found).unwrap_err().to_string();
    assert!(error.contains(&format!("in use by process {}", std::process::id())), "{error}");
    assert!(lab.node("client").unwrap().run(["true"]).is_ok());
}

#[test]
fn commands_report_everything_when_they_fail() {
    let lab = Lab::up(&routed("commands")).unwrap();
    let client = lab.node("client").unwrap();
    assert_eq!(client.sh("echo $LABKIT_NODE; basename $PWD").unwrap(), "client\nclient\n");
    let Error::Command(error) = client.sh("echo out; echo err >&2; exit 3").unwrap_err() else { panic!() };
    insta::assert_snapshot!(error.to_string(), @r"
    node client: sh -ec 'echo out; echo err >&2; exit 3': exit status: 3
    --- stdout
    out
    --- stderr
    err
    ");
    let error = client.run(["no-such-program", "x y"]).unwrap_err().to_string();
    assert!(error.contains("node client: no-such-program 'x y': could not run: No such file"), "{error}");
    let error =
        client.exec_within(std::time::Duration::from_millis(100), ["sleep", "60"]).unwrap_err().to_string();
    assert!(error.contains("killed: it ran longer than 100ms"), "{error}");
    let error = lab.node("nobody").unwrap_err().to_string();
    assert_eq!(error, r#"there is no node "nobody" (there are: client, router, server)"#);
}

#[test]
fn addresses_and_routes_change_while_the_lab_runs() {
    let lab = Lab::up(&routed("live")).unwrap();
    let (client, server) = (lab.node("client").unwrap(), lab.node("server").unwrap());
    let vip: std::net::IpAddr = "2001:db8:a::1".parse().unwrap();
    assert!(!client.ping(vip).unwrap().success());
    server.add_address("lo", "2001:db8:a::1/128".parse().unwrap()).unwrap();
    let router = lab.node("router").unwrap();
    router.add_route("2001:db8:a::/64 via 2001:db8:2::2").unwrap();
    assert!(client.ping(vip).unwrap().success());
    router.del_route("2001:db8:a::/64 via 2001:db8:2::2").unwrap();
    assert!(!client.ping(vip).unwrap().success());
    router.add_route("2001:db8:a::/64 via 2001:db8:2::2").unwrap();
    server.del_address("lo", "2001:db8:a::1/128".parse().unwrap()).unwrap();
    assert!(!client.ping(vip).unwrap().success());
}

#[test]
fn files_and_nftables_of_the_topology_are_there() {
    let topology = Topology::build("files", |t| {
        t.node("a").file("conf/a.txt", "hello\n").nftables("table inet t { chain c { counter; }; }");
    })
    .unwrap();
    let lab = Lab::up(&topology).unwrap();
    let a = lab.node("a").unwrap();
    assert_eq!(a.sh("cat conf/a.txt").unwrap(), "hello\n");
    assert!(a.run(["nft", "list", "ruleset"]).unwrap().contains("table inet t"));
    a.replace_file("conf/a.txt", "other\n").unwrap();
    assert_eq!(a.read_file("conf/a.txt").unwrap(), "other\n");
    assert_eq!(a.sh("ls conf").unwrap(), "a.txt\n");
    let error = a.load_nftables("nonsense").unwrap_err().to_string();
    assert!(error.contains("syntax error"), "{error}");
    assert!(a.bpffs().unwrap().starts_with(lab.dir()));
}

#[test]
fn eight_nodes_come_up() {
    let topology = Topology::build("eight", |t| {
        for i in 1..8 {
            t.node("hub").forwarding().address(&format!("eth{i}"), &format!("2001:db8:{i}::1/64"));
            t.node(&format!("n{i}"))
                .address("eth0", &format!("2001:db8:{i}::2/64"))
                .route(&format!("default via 2001:db8:{i}::1"));
            t.link(&format!("hub:eth{i}"), &format!("n{i}:eth0"), 1500);
        }
    })
    .unwrap();
    let start = std::time::Instant::now();
    let lab = Lab::up(&topology).unwrap();
    println!("8 nodes, 7 links: up in {:?} ({:?})", start.elapsed(), lab.timings());
    let n1 = lab.node("n1").unwrap();
    wait::eventually("n7 answers n1", SOON, || {
        let status = n1.ping("2001:db8:7::2".parse().unwrap()).map_err(|e| e.to_string())?;
        wait::check(status.success(), || status.to_string())
    })
    .unwrap();
    let start = std::time::Instant::now();
    lab.down().unwrap();
    println!("down in {:?}", start.elapsed());
}

/// Nothing of a lab is left: namespaces, mounts, directory, processes.
fn assert_gone(record: &labkit::state::Record) {
    assert!(!record.dir().exists());
    for name in record.namespaces.values() {
        assert!(!Path::new("/run/netns").join(name).exists(), "{name} is left");
    }
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(&record.lab) && !mounts.contains(&format!("lk{}-", record.id)), "{mounts}");
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        let left = String::from_utf8_lossy(&environment).contains(&format!("LABKIT_LAB={}", record.lab));
        assert!(!left, "process {} is left", entry.path().display());
    }
}
