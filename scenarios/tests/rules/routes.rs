//! Routes that lead to no backend cost nothing: shown by the counters of a running gateway.

use std::fmt::Write as _;
use std::time::Duration;

use labkit::traffic::UdpFlow;
use labkit::wait::{check, eventually};
use scenarios::region::{A, B, Live, Region, SOON, rule};

/// Routes added, and as many removed.
const ROUTES: u32 = 5_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Work {
    rings: u64,
    writes: u64,
    routes: u64,
}

fn work(live: &Live) -> Work {
    let status = live.status(1).unwrap();
    let of = |name: &str| status["work"][name].as_u64().unwrap_or_else(|| panic!("{status}"));
    Work { rings: of("ring_builds"), writes: of("map_writes"), routes: of("route_changes") }
}

/// Changes that are made before the daemon has seen them all: what overruns its socket makes it read everything anew.
const AT_ONCE: u32 = 250;

/// `ip -batch` over routes that cover no SID, in portions that the daemon keeps up with.
fn unrelated(live: &Live, verb: &str) {
    let gateway = live.gateway(1).unwrap();
    let via = live.region.spine_fabric(1);
    for first in (0..ROUTES).step_by(AT_ONCE as usize) {
        let lines = (first..first + AT_ONCE).fold(String::new(), |mut text, n| {
            let _ = writeln!(text, "route {verb} 2001:db8:d:{n:x}::/64 via {via}");
            text
        });
        let file = gateway.write_file("routes", lines).unwrap();
        let before = work(live).routes;
        gateway.run(["ip", "-6", "-batch", &file.display().to_string()]).unwrap();
        eventually("the daemon has seen the changes", SOON, || {
            let now = work(live).routes;
            check(now >= before + u64::from(AT_ONCE), || format!("{before}, now {now}"))
        })
        .unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_thousand_unrelated_route_changes_build_no_ring_and_write_no_map() {
    let live = Live::ready("unrelated", Region { gateways: 1, ..Region::default() }).unwrap();
    let client = live.node("client").unwrap();
    let flow = UdpFlow::start(&client, live.service(A), Duration::from_millis(5), 64).await.unwrap();
    let before = work(&live);
    assert!(before.rings > 0 && before.writes > 0, "what was loaded was counted: {before:?}");
    for verb in ["add", "del"] {
        unrelated(&live, verb);
    }
    let after = eventually("the daemon has seen all changes", SOON, || {
        let now = work(&live);
        check(now.routes >= before.routes + 2 * u64::from(ROUTES), || format!("{before:?} {now:?}"))
            .map(|()| now)
    })
    .unwrap();
    assert_eq!((after.rings, after.writes), (before.rings, before.writes), "{before:?} {after:?}");
    let report = flow.stop(&live.udp_servers()).await.unwrap();
    assert_eq!(report.lost(), 0, "{report:?}");
    let url = "http://[::1]:9464/metrics";
    let metrics = live.gateway(1).unwrap().run(["curl", "-sS", "--max-time", "5", url]).unwrap();
    for line in [
        format!("weir_ring_builds_total {}\n", after.rings),
        format!("weir_map_writes_total {}\n", after.writes),
    ] {
        assert!(metrics.contains(&line), "{line} is not in\n{metrics}");
    }

    // A route to a worker is a matter of next hops alone.
    let (via, worker) = (live.region.spine_fabric(1), live.region.worker_locator(1));
    let gateway = live.gateway(1).unwrap();
    gateway.run(["ip", "-6", "route", "add", &worker, "via", &via, "mtu", "1500"]).unwrap();
    let moved = eventually("a related change is written", SOON, || {
        let now = work(&live);
        check(now.writes > after.writes, || format!("{now:?}")).map(|()| now)
    })
    .unwrap();
    assert_eq!(moved.rings, after.rings, "no ring depends on routes");
    // And a rule is one of rings.
    live.objects(1).unwrap().put("rule-b-tcp.yaml", &rule(&live.region, B, "web-tcp", "tcp", &[1])).unwrap();
    eventually("a changed rule is built", SOON, || {
        let now = work(&live);
        check(now.rings > moved.rings, || format!("{now:?}"))
    })
    .unwrap();
}
