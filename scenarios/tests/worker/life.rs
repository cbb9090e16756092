//! The worker's own life: killed, restarted, told less, sent away; and pods that come again.

use std::net::IpAddr;
use std::time::Duration;

use labkit::traffic::{Pool, UdpFlow};
use labkit::wait::eventually;
use scenarios::region::{A, Live, SOON, TENANTS};
use weir_bpf::worker_abi::Reason;

use super::region;

/// Addresses on `lo` of a node, as the kernel lists them.
fn on_lo(live: &Live, node: &str) -> String {
    live.lab.node(node).unwrap().sh("ip -o addr show dev lo").unwrap()
}

/// Waits until a worker has taken this many packets more out of their headers.
fn takes_more(live: &Live, more: u64) {
    let before = live.worker_total(1, Reason::Decapsulated).unwrap();
    eventually("the worker goes on", SOON, || {
        let now = live.worker_total(1, Reason::Decapsulated).unwrap();
        if now >= before + more { Ok(()) } else { Err(format!("{before} before, {now} now")) }
    })
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_killed_and_restarted_three_times_loses_no_packet() {
    let live = Live::ready("wkill", region(1)).unwrap();
    let client = live.node("client").unwrap();
    let (mut flows, mut pulses) = (Vec::new(), Vec::new());
    for tenant in TENANTS {
        for _ in 0..4 {
            flows.push(
                UdpFlow::start(&client, live.service(tenant), Duration::from_millis(5), 200).await.unwrap(),
            );
        }
        let pool = Pool::open(&client, live.service(tenant), 20).await.unwrap();
        pulses.push(pool.pulse(Duration::from_millis(50)));
    }
    for _ in 0..3 {
        live.worker(1).unwrap().process("weir-worker").unwrap().kill().unwrap();
        takes_more(&live, 200);
        let process = live.run_worker(1).unwrap();
        process.wait_for_log("\"ready\":true", SOON).unwrap();
        takes_more(&live, 200);
    }
    let servers = live.udp_servers();
    for flow in flows {
        let report = flow.stop(&servers).await.unwrap();
        assert!(report.sent > 0);
        assert_eq!(report.lost(), 0, "of {}: {}", report.sent, live.worker_reasons(1));
    }
    for pulse in pulses {
        let report = pulse.stop().await;
        assert_eq!((report.broken, report.retransmissions, report.connections), (vec![], 0, 20));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_binding_that_goes_takes_its_vip_along_and_leaves_the_others() {
    let live = Live::ready("wgone", region(1)).unwrap();
    let pod = live.region.pod(1, A);
    let (vip, vip4) = (live.region.vip(A), live.region.vip4(A));
    let before = on_lo(&live, &pod);
    assert!(before.contains(&format!("{vip}/128")) && before.contains(&format!("{vip4}/32")), "{before}");

    // TCP and UDP share the address: it stays for the one that stays.
    let objects = live.worker_objects(1).unwrap();
    let bindings = |n| {
        eventually("bindings", SOON, || {
            let status = live.worker_status(1).map_err(|e| e.to_string())?;
            if status.bindings.len() == n { Ok(()) } else { Err(format!("{status:?}")) }
        })
        .unwrap();
    };
    objects.remove("bind-a-tcp6.yaml").unwrap();
    bindings(11);
    assert!(on_lo(&live, &pod).contains(&vip));
    objects.remove("bind-a-udp6.yaml").unwrap();
    bindings(10);
    eventually("the VIP is gone", SOON, || {
        let now = on_lo(&live, &pod);
        if now.contains(&format!("{vip}/")) { Err(now) } else { Ok(()) }
    })
    .unwrap();
    assert!(on_lo(&live, &pod).contains(&vip4), "the others stay");
    let dropped = live.worker_total(1, Reason::NotBound).unwrap();
    live.workers_of(1, A, 7000..7010).unwrap();
    live.wait_worker_total(1, Reason::NotBound, dropped + 10).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn detach_leaves_nothing_pinned_and_no_vip_placed() {
    let live = Live::ready("wdetach", region(1)).unwrap();
    let worker = live.worker(1).unwrap();
    let shown = live.weir_worker(1, &["worker", "show"]).unwrap();
    assert!(
        shown.contains(&live.region.vip(A)) && shown.contains("vpc-a/default") && shown.contains("pod-a2"),
        "{shown}"
    );
    let bindings = live.weir_worker(1, &["worker", "bindings"]).unwrap();
    assert!(bindings.contains("platform/a2-tcp6") && !bindings.contains("False"), "{bindings}");
    live.weir_worker(1, &["worker", "drops", "--all"]).unwrap();

    let status = worker.process("weir-worker").unwrap().terminate(SOON).unwrap();
    assert!(status.success(), "{}", live.worker_log(1));
    takes_something(&live);
    live.weir_worker(1, &["worker", "detach"]).unwrap();
    let pins = worker.bpffs().unwrap().join("weir");
    let left: Vec<_> = std::fs::read_dir(&pins)
        .unwrap()
        .map(|e| e.unwrap().file_name())
        .filter(|n| n != "root-v1")
        .collect();
    assert!(left.is_empty(), "{left:?}");
    assert_eq!(std::fs::read_dir(pins.join("root-v1")).unwrap().count(), 0);
    let lo = on_lo(&live, &live.region.pod(1, A));
    assert!(!lo.contains(&live.region.vip(A)) && !lo.contains(&live.region.vip4(A)), "{lo}");
    let routes = live.lab.node(&live.region.pod(1, A)).unwrap().sh("ip -4 route").unwrap();
    assert_eq!(routes.trim(), "", "the IPv4 default route is gone, too");
}

/// A worker that was stopped goes on delivering.
fn takes_something(live: &Live) {
    let before = live.worker_total(1, Reason::Delivered).unwrap();
    live.workers_of(1, A, 7100..7110).unwrap();
    live.wait_worker_total(1, Reason::Delivered, before + 10).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vip_that_is_lost_or_an_interface_that_is_made_anew_is_bound_again() {
    let live = Live::ready("wagain", region(1)).unwrap();
    let pod = live.lab.node(&live.region.pod(1, A)).unwrap();
    let vip: IpAddr = live.vip(A);
    pod.del_address("lo", vip.into()).unwrap();
    eventually("the VIP is back", SOON, || {
        let now = on_lo(&live, pod.name());
        if now.contains(&format!("{vip}/128")) { Ok(()) } else { Err(now) }
    })
    .unwrap();

    // As a pod's restart does: a new pair of interfaces under the old names.
    let worker = live.worker(1).unwrap();
    worker.sh("ip link del pod-a").unwrap();
    eventually("the binding is not in effect", SOON, || {
        let status = live.worker_status(1).map_err(|e| e.to_string())?;
        let bound = &status.bindings["platform/a-udp6"];
        if bound.reason == "InterfaceMissing" { Ok(()) } else { Err(format!("{bound:?}")) }
    })
    .unwrap();
    let dropped = live.worker_total(1, Reason::NoEndpoint).unwrap();
    live.workers_of(1, A, 7200..7210).unwrap();
    live.wait_worker_total(1, Reason::NoEndpoint, dropped + 10).unwrap();

    let make = format!(
        "ip link add pod-a type veth peer name new0 && ip link set pod-a up && ip addr add fe80::1/64 dev pod-a nodad && ip link set new0 \
         netns {}",
        pod.netns().name()
    );
    worker.sh(&make).unwrap();
    pod.sh("ip link set new0 name eth0 && ip link set eth0 up && ip addr add fe80::2/64 dev eth0 nodad")
        .unwrap();
    live.wait_worker_ready(1).unwrap();
    let at_pod = labkit::capture::Capture::open(pod.netns(), "eth0").unwrap();
    live.workers_of(1, A, 7300..7310).unwrap();
    labkit::expect::expect(&at_pod)
        .within(SOON)
        .packets(10, labkit::packet::matcher::udp("to the VIP", |udp| (7300..7310).contains(&udp.src)))
        .unwrap();
}
