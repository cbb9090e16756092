//! Drops as they happen, told to everybody who follows.

use std::time::Duration;

use labkit::topology::Process;
use labkit::wait::{check, eventually};
use scenarios::region::{A, Live, PORT, Region, SOON};
use serde_json::Value;

use super::{client, command, hex, paths, vip};

/// Starts `weir show drops --follow` in gateway 1.
fn follow(live: &Live, name: &str, arguments: &[&str]) -> labkit::process::ProcessHandle {
    let (binary, config) = paths(live);
    let all = [&["show", "drops", "--follow"], arguments].concat();
    let command = command(&binary, &config, &all).iter().map(ToString::to_string).collect();
    let process = Process { name: name.into(), command, env: [].into(), ready: None };
    live.gateway(1).unwrap().spawn(&process).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_drop_is_told_to_every_follower_with_its_packet_decoded() {
    let live = Live::ready("told", Region::default()).unwrap();
    let edge = live.sender("edge", "eth1").unwrap();
    let base = || edge.frame().ipv6(client(&live), vip(&live, A));
    let (stray, silent) =
        (base().udp(40_000, 81).payload(b"nobody is here"), base().next_header(47).payload(&[0; 4]));
    let machine = follow(&live, "machine", &["--reason", "no_rule", "--count", "1", "--output", "json"]);
    let person = follow(&live, "person", &["--reason", "unsupported_protocol", "--count", "1"]);
    // Sent again until both have come up and been told.
    eventually("both are told", SOON, || {
        edge.send(&stray).unwrap();
        edge.send(&silent).unwrap();
        check(!machine.is_running() && !person.is_running(), || "they wait".into())
    })
    .unwrap();
    assert!(machine.wait(SOON).unwrap().success() && person.wait(SOON).unwrap().success());
    machine.wait_for_log("layers", SOON).unwrap();
    let log = machine.log();
    let line = log.lines().find_map(|line| line.find('{').map(|at| line[at..].to_owned())).unwrap();
    let told: Value = serde_json::from_str(&line).unwrap_or_else(|e| panic!("{e}: {log}"));
    let frame = stray.bytes();
    assert_eq!((&told["reason"], &told["interface"]), (&"no_rule".into(), &"eth1".into()), "{told:#}");
    assert_eq!((&told["length"], &told["frame"]), (&frame.len().into(), &hex(&frame).into()), "{told:#}");
    assert_eq!(told["layers"][2]["destination port"], "81", "{told:#}");
    assert!(told["layers"][2]["checksum"].as_str().unwrap().ends_with("(right)"), "{told:#}");
    person.wait_for_log("payload", SOON).unwrap();
    let log = person.log();
    for text in ["unsupported_protocol eth1", "next header", "47 (GRE)", &live.region.client()] {
        assert!(log.contains(text), "{text} is not in\n{log}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_flood_of_drops_is_sampled_and_says_what_it_left_out() {
    let live = Live::ready("flood", Region::default()).unwrap();
    let edge = live.sender("edge", "eth1").unwrap();
    let stray = edge.frame().ipv6(client(&live), vip(&live, A)).udp(40_000, PORT + 1).payload(b"flood");
    let follower = follow(&live, "follower", &["--reason", "no_rule", "--output", "json"]);
    let events = || -> Vec<Value> {
        let log = follower.log();
        let json = |line: &str| serde_json::from_str(&line[line.find('{')?..]).ok();
        log.lines().filter_map(json).collect()
    };
    eventually("it follows", SOON, || {
        edge.send(&stray).unwrap();
        check(!events().is_empty(), || "no event yet".into())
    })
    .unwrap();
    const FLOOD: usize = 2000;
    for _ in 0..FLOOD {
        edge.send(&stray).unwrap();
    }
    let left_out = || events().iter().map(|event| event["unsampled"].as_u64().unwrap()).sum::<u64>();
    eventually("what was left out is told", SOON, || {
        // A bucket refills with time.
        std::thread::park_timeout(Duration::from_millis(100));
        edge.send(&stray).unwrap();
        check(left_out() > 0, || format!("{} events", events().len()))
    })
    .unwrap();
    let shown = events().len();
    assert!(shown < FLOOD / 4, "{shown} events of {FLOOD} drops are no sample");
}
