//! Objects of a live gateway as files: bad ones, rivals, bursts, and how fast a change is in the data path.

use std::time::{Duration, Instant};

use anyhow::Result;
use labkit::traffic::UdpFlow;
use labkit::wait::{check, eventually, steady};
use nix::sys::signal::Signal;
use scenarios::region::{A, Live, Region, SOON, rule, rule_on};
use serde_json::Value;
use weir::dataplane::bpf::encode_key;
use weir::model::{Protocol, VipKey};

fn problems(live: &Live) -> Result<Vec<String>, String> {
    let status = live.status(1).map_err(|e| e.to_string())?;
    let problems = status["sources"][0]["problems"].as_array().cloned().unwrap_or_default();
    Ok(problems.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}

fn alone(name: &str) -> Live {
    Live::ready(name, Region { gateways: 1, ..Region::default() }).unwrap()
}

fn loaded(live: &Live, protocol: Protocol, port: u16) -> bool {
    let key = encode_key(VipKey { address: live.vip(A), protocol, port });
    live.maps(1).unwrap().find(&key).is_some()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_file_keeps_its_last_good_version_and_blocks_no_other() {
    let live = alone("bad-file");
    let objects = live.objects(1).unwrap();
    let client = live.node("client").unwrap();
    let flow = UdpFlow::start(&client, live.service(A), Duration::from_millis(5), 64).await.unwrap();
    let good = rule(&live.region, A, "web-udp", "udp", &[1, 2, 3]);
    objects.put("rule-a-udp.yaml", &good.replace("  region:", "  ringSize: 4000\n  region:")).unwrap();
    let told = eventually("the bad file is told of", SOON, || {
        let problems = problems(&live)?;
        if problems.len() == 1 { Ok(problems) } else { Err(format!("{problems:?}")) }
    })
    .unwrap();
    let place = objects.directory().join("rule-a-udp.yaml");
    let wanted = "spec.ringSize: 4000 is no ring size; choose 1021, 4093, 16381 or 65537";
    assert_eq!(told, [format!("{}:12: {wanted}", place.display())]);
    // Another file is taken meanwhile, and a restart of a gateway with a bad file keeps what it had.
    objects.put("more.yaml", &rule_on(&live.region, A, "more", "tcp", 443, &[1])).unwrap();
    live.wait_condition(1, "tenant-a/more", "Advertised", "True", "Advertised").unwrap();
    assert!(loaded(&live, Protocol::Tcp, 443) && loaded(&live, Protocol::Udp, 8080));
    assert_eq!(live.status(1).unwrap()["ready"], true);
    // The former good one clears it.
    objects.put("rule-a-udp.yaml", &good).unwrap();
    eventually("the problem is cleared", SOON, || {
        let problems = problems(&live)?;
        check(problems.is_empty(), || format!("{problems:?}"))
    })
    .unwrap();
    let report = flow.stop(&live.udp_servers()).await.unwrap();
    assert_eq!((report.lost(), report.sent > 0), (0, true), "{report:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_rules_on_one_vip_and_port_the_same_one_loses_after_every_restart() {
    let live = alone("rivals");
    let objects = live.objects(1).unwrap();
    // The other tenant claims the first one's key; the same address in other letters.
    let rival = rule(&live.region, scenarios::region::B, "rival", "tcp", &[1])
        .replace(&live.region.vip(scenarios::region::B), "2001:0DB8:1AA:0::A");
    objects.put("a-rival.yaml", &rival).unwrap();
    let reason = || {
        let message = live.wait_condition(1, "tenant-b/rival", "Accepted", "False", "Refused").unwrap();
        assert!(
            message.contains("tenant-a/web-tcp") && message.contains("give another address or port"),
            "{message}"
        );
        message
    };
    let first = reason();
    for restart in 0..2 {
        let process = live.gateway(1).unwrap().process("weir").unwrap();
        assert!(process.terminate(SOON).unwrap().success());
        live.run_gateway(1, None).unwrap();
        live.wait_ready().unwrap();
        assert_eq!(reason(), first, "after restart {restart}");
        let maps = live.maps(1).unwrap();
        let key = encode_key(VipKey { address: live.vip(A), protocol: Protocol::Tcp, port: 8080 });
        let index = maps.find(&key).unwrap();
        let tables = weir::dataplane::Dataplane::read_back(&maps).unwrap();
        let entry = tables.vips.values().find(|entry| entry.index == index).unwrap();
        assert_eq!(entry.rule.to_string(), "tenant-a/web-tcp");
    }
    // The winner's end is the loser's turn.
    objects.remove("rule-a-tcp.yaml").unwrap();
    live.wait_condition(1, "tenant-b/rival", "Advertised", "True", "Advertised").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hangup_signal_reads_again_what_no_watch_can_see() {
    let live = Live::up("hangup", Region { gateways: 1, ..Region::default() }).unwrap();
    live.prepare_gateway(1).unwrap();
    live.edit_config(1, "timers: { drain: 1s", "timers: { rescan: 1h, drain: 1s").unwrap();
    live.edit_config(1, "/objects.d", "/objects.link").unwrap();
    // The directory is named through a link, which is turned to another: the watch stays with the old one.
    let node = live.gateway(1).unwrap();
    node.sh("ln -s objects.d objects.link").unwrap();
    let process = live.run_gateway(1, None).unwrap();
    live.wait_ready().unwrap();
    let objects = scenarios::region::Objects::at(node.dir().join("objects.new"));
    objects.put_region(&live.region).unwrap();
    objects.put("more.yaml", &rule_on(&live.region, A, "more", "tcp", 443, &[1])).unwrap();
    node.sh("ln -sT objects.new .link && mv -T .link objects.link").unwrap();
    process.signal(Signal::SIGHUP).unwrap();
    live.wait_condition(1, "tenant-a/more", "Advertised", "True", "Advertised").unwrap();
    // A bad configuration is refused and changes nothing.
    live.edit_config(1, "nodeID: 1", "nodeID: 70000").unwrap();
    process.signal(Signal::SIGHUP).unwrap();
    process.wait_for_log("configuration not read again", SOON).unwrap();
    assert!(process.is_running());
    assert_eq!(live.status(1).unwrap()["ready"], true);
    // The watch is on the new directory now.
    objects.remove("more.yaml").unwrap();
    eventually("the removed rule is unloaded", SOON, || {
        check(!loaded(&live, Protocol::Tcp, 443), || "loaded".into())
    })
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_burst_of_renames_is_few_transactions_and_a_change_is_soon_in_the_data_path() {
    let live = alone("burst");
    let objects = live.objects(1).unwrap();
    let generation = || live.status(1).unwrap()["generation"].as_u64().unwrap();
    let before = generation();
    let ports = 10_000..10_050_u16;
    let file = |port| format!("burst-{port}.yaml");
    for port in ports.clone() {
        let text = rule_on(&live.region, A, &format!("burst-{port}"), "tcp", port, &[1, 2]);
        // One VIP of the two, for the lab's small maps.
        let text = text.replace(&format!(", \"{}\"", live.region.vip4(A)), "");
        std::fs::write(objects.directory().join(format!(".{}", file(port))), text).unwrap();
    }
    for port in ports.clone() {
        std::fs::rename(
            objects.directory().join(format!(".{}", file(port))),
            objects.directory().join(file(port)),
        )
        .unwrap();
    }
    for port in ports {
        live.wait_condition(1, &format!("tenant-a/burst-{port}"), "Loaded", "True", "Loaded").unwrap();
    }
    let transactions = generation() - before;
    assert!((1..=5).contains(&transactions), "50 renames became {transactions} transactions");
    steady("nothing more is to do", Duration::from_millis(500), || {
        let now = generation();
        check(now == before + transactions, || format!("generation {now}"))
    })
    .unwrap();

    let maps = live.maps(1).unwrap();
    let key = encode_key(VipKey { address: live.vip(A), protocol: Protocol::Tcp, port: 8080 });
    let word = || maps.word(maps.find(&key).unwrap());
    let mut slowest = Duration::ZERO;
    for workers in [&[1, 2][..], &[1, 2, 3], &[2, 3], &[1, 2, 3]] {
        let text = rule(&live.region, A, "web-tcp", "tcp", workers);
        let old = word();
        let start = Instant::now();
        objects.put("rule-a-tcp.yaml", &text).unwrap();
        while word() == old {
            assert!(start.elapsed() < SOON, "the change is not in the data path: {}", live.log(1));
            std::thread::yield_now();
        }
        slowest = slowest.max(start.elapsed());
    }
    println!("a changed rule was in the data path within {slowest:?}, of which 5 ms are the time of quiet");
}
