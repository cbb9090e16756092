//! Reports: what each form must hold, from one sample of a failed and one of a passed scenario.
#![allow(clippy::unwrap_used, reason = "helpers of a test fail it")]

use std::path::PathBuf;

use labkit::report::{
    self, CaptureReport, Diagram, DiagramLink, DiagramNode, Mark, Outcome, PacketReport, Report,
    ScenarioReport, Series, StepReport,
};

fn node(name: &str, role: &str) -> DiagramNode {
    DiagramNode { name: name.into(), role: role.into(), rank: None }
}

fn link(a: (&str, &str), b: (&str, &str)) -> DiagramLink {
    let end = |(node, interface): (&str, &str)| (node.to_owned(), interface.to_owned());
    DiagramLink { a: end(a), b: end(b) }
}

/// Two clients, an edge router, two gateways, a spine, three workers, a second region's router.
fn diagram() -> Diagram {
    Diagram {
        nodes: vec![
            node("client1", "client"),
            node("client2", "client"),
            node("internet", "edge router (FRR)"),
            node("gw1", "gateway"),
            node("gw2", "gateway"),
            node("spine", "spine (FRR)"),
            node("worker1", "worker"),
            node("worker2", "worker"),
            node("worker3", "worker"),
        ],
        links: vec![
            link(("client1", "eth1"), ("internet", "eth1")),
            link(("client2", "eth1"), ("internet", "eth2")),
            link(("internet", "eth3"), ("gw1", "eth1")),
            link(("internet", "eth4"), ("gw2", "eth1")),
            link(("gw1", "eth2"), ("spine", "eth1")),
            link(("gw2", "eth2"), ("spine", "eth2")),
            link(("spine", "eth3"), ("worker1", "eth1")),
            link(("spine", "eth4"), ("worker2", "eth1")),
            link(("spine", "eth5"), ("worker3", "eth1")),
        ],
    }
}

fn step(name: &str, outcome: Outcome, at: f64, seconds: f64) -> StepReport {
    StepReport { name: name.into(), outcome, at, seconds, ..StepReport::default() }
}

fn sample() -> Report {
    let wave = |base: f64, dip: f64| {
        let points = (0..220).map(|n| {
            let t = f64::from(n) / 10.0;
            let down = if (9.0..10.2).contains(&t) { dip } else { 0.0 };
            (t, (base + 12.0 * (t * 2.7).sin() - down).round())
        });
        points.collect()
    };
    let passed = ScenarioReport {
        name: "A gateway dies".into(),
        parameters: vec![("seed".into(), "42".into()), ("gateways".into(), "2".into())],
        seconds: 22.0,
        steps: vec![
            StepReport {
                connections: Some(180),
                lost: Some(0),
                messages: vec!["both gateways announce 2001:db8:100::80/128".into()],
                ..step("two tenants reach their backends", Outcome::Passed, 0.2, 8.0)
            },
            StepReport {
                connections: Some(240),
                lost: Some(0),
                ..step("gw1 is killed", Outcome::Passed, 8.8, 6.1)
            },
            StepReport {
                connections: Some(150),
                lost: Some(0),
                ..step("gw1 returns", Outcome::Passed, 15.0, 6.5)
            },
        ],
        series: vec![
            Series { name: "tenant a".into(), unit: "connections/s".into(), points: wave(160.0, 40.0) },
            Series { name: "tenant b".into(), unit: "connections/s".into(), points: wave(90.0, 25.0) },
        ],
        marks: vec![
            Mark { at: 9.0, until: Some(15.0), label: "gw1: kill -9, uplink down".into() },
            Mark { at: 18.0, until: None, label: "gw2: upgraded".into() },
        ],
        diagram: Some(diagram()),
    };
    let failed = ScenarioReport {
        name: "Packet Too Big over a <1400> byte fabric".into(),
        seconds: 3.0,
        steps: vec![
            step("fabric links at 1400", Outcome::Passed, 0.0, 0.4),
            StepReport {
                error: Some("expect on client1-eth1: packet too big, mtu = 1360: 0 of 1 within 2s; last mismatch: icmp.mtu: expected 1360, got 1400".into()),
                diagnosis: vec![("routes of gw1".into(), "default via fe80::1 dev eth1\n2001:db8:ff01::/48 dev eth2".into())],
                captures: vec![CaptureReport {
                    name: "client1-eth1".into(),
                    file: "packet-too-big-client1-eth1.pcap".into(),
                    frames: 40,
                    packets: vec![PacketReport {
                        number: 39,
                        at: 1.204_118,
                        bytes: 1294,
                        decoded: "ethernet   dst=02:00:00:00:00:02 src=02:00:00:00:00:01 ethertype=ipv6(0x86dd)\nipv6       src=2001:db8:100::80 dst=2001:db8:1::2 payload_length=1240 next_header=icmpv6(58) hop_limit=64\nicmpv6     type=packet-too-big(2) code=0 mtu=1400 checksum=0x1f2e".into(),
                    }],
                }],
                ..step("an oversize packet gets its error", Outcome::Failed, 0.4, 2.6)
            },
            step("a bulk transfer completes", Outcome::NotReached, 0.0, 0.0),
        ],
        ..ScenarioReport::default()
    };
    Report {
        title: "First light".into(),
        started: 1_767_225_600,
        seconds: 25.0,
        facts: vec![("kernel".into(), "6.18.5".into())],
        scenarios: vec![passed, failed],
    }
}

#[test]
fn json_starts_with_the_summary_that_scripts_read_and_holds_the_whole_model() {
    let text = report::json(&sample()).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(value["result"], "fail");
    let steps = value["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 6);
    assert_eq!(
        steps[1],
        serde_json::json!({"name":"gw1 is killed","pass":true,"connections":240,"lost":0,"seconds":6.1})
    );
    assert_eq!(steps[4]["pass"], false);
    assert_eq!(steps[5]["pass"], false, "a step that was not reached did not pass");
    let back: Report = serde_json::from_value(value["report"].clone()).unwrap();
    assert!(back == sample(), "what was written is what is read back");
    let good = Report { scenarios: vec![sample().scenarios[0].clone()], ..sample() };
    assert!(report::json(&good).unwrap().starts_with("{\n  \"result\": \"pass\""));
}

#[test]
fn a_report_without_steps_did_not_pass() {
    assert!(!Report::default().passed());
    assert!(!Report { scenarios: vec![ScenarioReport::default()], ..Report::default() }.passed());
}

#[test]
fn junit_counts_failures_and_steps_that_were_not_reached() {
    let text = report::junit(&sample()).unwrap();
    assert!(text.contains(r#"tests="6" skipped="1" failures="1""#), "{text}");
    assert!(
        text.contains(r#"<testsuite name="A gateway dies" tests="3" skipped="0" errors="0" failures="0""#),
        "{text}"
    );
    assert!(text.contains("not reached: a step before it failed"), "{text}");
    assert!(
        text.contains("icmp.mtu: expected 1360, got 1400") && text.contains("== routes of gw1"),
        "{text}"
    );
    assert!(text.contains("&lt;1400>") || text.contains("&lt;1400&gt;"), "names are escaped: {text}");
}

#[test]
fn the_page_needs_nothing_else_and_shows_everything() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("report");
    let files = report::write_all(&sample(), &folder).unwrap();
    let page = std::fs::read_to_string(&files.html).unwrap();
    for needle in ["<link", "<script", "src=\"http", "href=\"http", "url(", "@import"] {
        assert!(!page.contains(needle), "the page must not load anything: {needle}");
    }
    for needle in [
        "First light",
        "2026-01-01 00:00:00 UTC",
        "two tenants reach their backends",
        "not reached",
        "&lt;1400&gt;",
        "icmp.mtu: expected 1360, got 1400",
        "routes of gw1",
        "type=packet-too-big(2)",
        "gw1: kill -9, uplink down",
        "spine (FRR)",
        "packet-too-big-client1-eth1.pcap",
    ] {
        assert!(page.contains(needle), "the page lacks {needle:?}");
    }
    assert_eq!(page.matches("class=\"node\"").count(), 9);
    assert_eq!(page.matches("class=\"wire\"").count(), 9);
    assert_eq!(page.matches("class=\"interface\"").count(), 18);
    assert_eq!(page.matches("class=\"chart\"").count(), 1);
    assert!(page.contains("prefers-color-scheme: dark"));
    assert!(files.json.exists() && files.junit.exists());
}

#[test]
fn nodes_of_a_drawing_never_overlap() {
    let mut large = diagram();
    for n in 4..=8 {
        large.nodes.push(node(&format!("worker{n}"), "worker"));
        large.links.push(link(("spine", &format!("eth{}", n + 2)), (&format!("worker{n}"), "eth1")));
    }
    // Links inside a column and across one are drawn too.
    large.links.push(link(("gw1", "sync0"), ("gw2", "sync0")));
    large.links.push(link(("internet", "oob0"), ("spine", "oob0")));
    let large = large.rank("spine", 3);
    let svg = report::draw(&large).into_string();
    let large = Report {
        scenarios: vec![ScenarioReport { diagram: Some(large), ..ScenarioReport::default() }],
        ..Report::default()
    };
    report::write_all(&large, &PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("large-report")).unwrap();
    let number = |rect: &str, name: &str| -> f64 {
        let from = rect.find(&format!(" {name}=\"")).unwrap() + name.len() + 3;
        rect[from..].split('"').next().unwrap().parse().unwrap()
    };
    let boxes: Vec<[f64; 4]> = svg
        .split("<rect")
        .skip(1)
        .map(|rect| ["x", "y", "width", "height"].map(|name| number(rect, name)))
        .collect();
    assert_eq!(boxes.len(), 14);
    let columns: std::collections::BTreeSet<u64> = boxes.iter().map(|place| place[0] as u64).collect();
    assert_eq!(columns.len(), 5, "clients, edge, gateways, spine, workers");
    for (n, [x, y, w, h]) in boxes.iter().enumerate() {
        for [ox, oy, ow, oh] in &boxes[n + 1..] {
            let apart = x + w < *ox || ox + ow < *x || y + h < *oy || oy + oh < *y;
            assert!(apart, "{:?} and {:?} overlap", [x, y, w, h], [ox, oy, ow, oh]);
        }
    }
}

#[test]
fn the_table_has_a_row_a_step_and_a_sum() {
    let text = report::table(&sample());
    for needle in ["gw1 is killed", "not reached", "570", "25.0", "failed"] {
        assert!(text.contains(needle), "{needle} in\n{text}");
    }
}
