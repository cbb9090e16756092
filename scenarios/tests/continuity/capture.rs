//! A capture under traffic: programs are swapped in and out, the capturing client dies, then the daemon, and no packet is lost.

use labkit::topology::Process;
use labkit::wait::{check, eventually};
use scenarios::region::{A, Live, Region, SOON, weir_binary};

use super::{Traffic, forwarded, forwards_more, pins, vip_events};

/// Pins of programs that capture, in gateway 1.
fn capturing(live: &Live) -> usize {
    let all = super::pinned(&pins(live, 1));
    all.iter()
        .filter(|path| path.file_name().is_some_and(|n| n.to_string_lossy().starts_with("capture-")))
        .count()
}

fn wait_capturing(live: &Live, programs: usize) {
    eventually("programs that capture", SOON, || {
        let now = capturing(live);
        check(now == programs, || format!("{now}, not {programs}"))
    })
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn captures_that_end_in_every_way_lose_no_packet_and_leave_the_plain_program() {
    let live = Live::ready("capture-traffic", Region::default()).unwrap();
    let watch = live.node("edge").unwrap().watch_routes().unwrap();
    let node = live.gateway(1).unwrap();
    let traffic = Traffic::start(&live).await;
    forwards_more(&live, 1, forwarded(&live, 1), 200);
    let binary = weir_binary(None).unwrap().display().to_string();
    let start = |name: &str, more: &[&str]| {
        let vip = live.region.vip(A);
        let all = [
            &[binary.as_str(), "capture", "--config", "weir.yaml", "--vip", &vip, "--write", "c.pcapng"],
            more,
        ];
        let command = all.concat().iter().map(ToString::to_string).collect();
        node.spawn(&Process { name: name.into(), command, env: [].into(), ready: None }).unwrap()
    };

    // By its count.
    let counted = start("counted", &["--count", "200"]);
    assert!(counted.wait(SOON).unwrap().success(), "{}", counted.log());
    wait_capturing(&live, 0);
    let frames = weir::frame::read(&std::fs::read(node.dir().join("c.pcapng")).unwrap()).unwrap();
    assert!(frames.len() > 200, "{} frames", frames.len());

    // By the death of its client.
    let client = start("client", &["--seconds", "600"]);
    wait_capturing(&live, 2);
    forwards_more(&live, 1, forwarded(&live, 1), 200);
    client.kill().unwrap();
    wait_capturing(&live, 0);

    // By the death of the daemon, which is known again by the program that it left in its slots.
    let orphan = start("orphan", &["--seconds", "600"]);
    wait_capturing(&live, 2);
    node.process("weir").unwrap().kill().unwrap();
    let _ = orphan.wait(SOON).unwrap();
    assert_eq!(capturing(&live), 2);
    forwards_more(&live, 1, forwarded(&live, 1), 200);
    live.run_gateway(1, None).unwrap();
    live.wait_gateway_ready(1).unwrap();
    wait_capturing(&live, 0);
    forwards_more(&live, 1, forwarded(&live, 1), 200);
    assert_eq!(vip_events(&live, &watch), Vec::<String>::new());

    // By the daemon's orderly stop, which does not wait for it.
    let _stopped = start("stopped", &["--seconds", "600"]);
    wait_capturing(&live, 2);
    assert!(node.process("weir").unwrap().terminate(SOON).unwrap().success(), "{}", live.log(1));
    assert_eq!(capturing(&live), 0);
    live.run_gateway(1, None).unwrap();
    live.wait_gateway_ready(1).unwrap();
    assert_eq!(vip_events(&live, &watch), Vec::<String>::new());
    traffic.stop(&live).await.assert_lossless(&live);
}
