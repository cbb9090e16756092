//! A gateway that leaves for good: routers are asked to turn away, then told that it is gone, and only then it stops serving.

use std::time::Instant;

use labkit::ProcessHandle;
use labkit::wait::{check, eventually};
use nix::sys::signal::Signal;
use scenarios::region::{A, FAMILIES, Family, Live, Region, SOON};

use super::{Traffic, forwarded, forwards_more, paths, pinned, pins};

/// What an onlooker saw first of a family's VIP, and when.
#[derive(Debug)]
struct Seen {
    family: Family,
    shutdown_community: Option<Instant>,
    withdrawn: Option<Instant>,
    detached: Option<Instant>,
}

impl Seen {
    fn of(family: Family) -> Self {
        Self { family, shutdown_community: None, withdrawn: None, detached: None }
    }

    /// Looks once: at the edge's path through gateway 1 and at what gateway 1 has pinned.
    fn look(&mut self, live: &Live) {
        // The pins first: had they gone before the route, the route would be seen after them.
        let link = pins(live, 1).join("root-v1/eth1/link");
        let detached = (!link.exists()).then(Instant::now);
        let paths = paths(live, A, self.family);
        let path = paths.get(&live.region.gateway_uplink(1));
        match path {
            None => self.withdrawn = self.withdrawn.or(Some(Instant::now())),
            Some(_) => assert_eq!(self.withdrawn, None, "a withdrawn route came back: {paths:?}"),
        }
        assert!(detached.is_none() || path.is_none(), "detached while the route was there: {paths:?}");
        self.detached = self.detached.or(detached);
        if path.is_some_and(|path| path["community"].to_string().contains("graceful-shutdown")) {
            self.shutdown_community = self.shutdown_community.or(Some(Instant::now()));
        }
    }
}

fn watch_leaving(live: &Live, process: &ProcessHandle) {
    let mut seen = FAMILIES.map(Seen::of);
    eventually("the drained gateway ends", SOON, || {
        let status = process.status();
        for seen in &mut seen {
            seen.look(live);
        }
        check(status.is_some(), || format!("it runs: {seen:?}"))
    })
    .unwrap();
    let status = process.status().unwrap();
    assert!(status.success(), "{status}: {}", live.log(1));
    for seen in seen {
        let order = [seen.shutdown_community, seen.withdrawn, seen.detached];
        assert!(order.iter().all(Option::is_some), "{seen:?}");
        assert!(order.is_sorted(), "GRACEFUL_SHUTDOWN, then withdraw, then detach: {seen:?}");
    }
    assert_eq!(pinned(&pins(live, 1)), Vec::<std::path::PathBuf>::new(), "nothing stays pinned");
}

fn assert_carried_on(live: &Live) {
    live.wait_paths(1).unwrap();
    forwards_more(live, 2, forwarded(live, 2), 500);
    assert_eq!(live.status(2).unwrap()["ready"], true);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drained_gateway_withdraws_before_it_detaches_and_nothing_is_lost() {
    let live = Live::ready("drain", Region::default()).unwrap();
    let gateway = live.gateway(1).unwrap();
    let traffic = Traffic::start(&live).await;
    forwards_more(&live, 1, forwarded(&live, 1), 200);
    let process = gateway.process("weir").unwrap();
    let socket = gateway.dir().join("admin.sock").display().to_string();
    live.weir(1, &["drain", "--admin", &socket]).unwrap();
    watch_leaving(&live, &process);
    assert_carried_on(&live);

    // It may come back as if nothing had been.
    live.run_gateway(1, None).unwrap();
    live.wait_ready().unwrap();
    forwards_more(&live, 1, forwarded(&live, 1), 200);
    traffic.stop(&live).await.assert_lossless(&live);
}

#[tokio::test(flavor = "multi_thread")]
async fn sigterm_with_the_drain_marker_drains() {
    let live = Live::ready("marker", Region::default()).unwrap();
    let gateway = live.gateway(1).unwrap();
    let traffic = Traffic::start(&live).await;
    forwards_more(&live, 1, forwarded(&live, 1), 200);
    gateway.write_file("drain", "").unwrap();
    let process = gateway.process("weir").unwrap();
    process.signal(Signal::SIGTERM).unwrap();
    watch_leaving(&live, &process);
    assert_carried_on(&live);
    traffic.stop(&live).await.assert_lossless(&live);
}
