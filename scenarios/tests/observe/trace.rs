//! `weir trace` beside the wire: the same backend, the same bytes, and nothing counted.

use labkit::expect::expect;
use labkit::packet::matcher;
use labkit::wait::{check, eventually};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore as _, SeedableRng as _};
use scenarios::region::{A, B, Live, PORT, Region, SOON, TENANTS};
use serde_json::Value;
use weir::dataplane::Dataplane as _;
use weir::frame::{CaptureWriter, Captured};
use weir_bpf::abi::{Counter, Reason};

use super::{client, command, hex, paths, vip};

const FLOWS: usize = 60;

/// What the tenants' VIPs and their backends have counted in gateway 1.
fn totals(live: &Live) -> Vec<Counter> {
    let maps = live.maps(1).unwrap();
    let tables = maps.read_back().unwrap();
    let vips = tables
        .vips
        .iter()
        .filter(|(key, _)| TENANTS.iter().any(|t| live.vip(*t) == key.address))
        .map(|(_, e)| e.index);
    let backends = tables.backends.iter().filter(|(id, _)| &*id.vpc != "weir").map(|(_, e)| e.index);
    vips.map(|i| maps.vip_total(i)).chain(backends.map(|i| maps.backend_total(i))).collect()
}

/// Runs `weir trace` in gateway 1 on a file of these frames: its exit status and what it says of each.
fn trace(live: &Live, frames: &[Vec<u8>]) -> (Option<i32>, Vec<Value>) {
    let mut writer = CaptureWriter::new().unwrap();
    for bytes in frames {
        let (at, length) = (std::time::Duration::ZERO, bytes.len());
        let captured =
            Captured { at, interface: None, direction: None, comment: None, bytes: bytes.clone(), length };
        writer.add(&captured).unwrap();
    }
    let node = live.gateway(1).unwrap();
    let file = node.write_file("frames.pcapng", writer.take()).unwrap().display().to_string();
    let (binary, config) = paths(live);
    let arguments = ["trace", "--interface", "eth1", "--pcap", &file, "--output", "json"];
    let output = node.exec(command(&binary, &config, &arguments)).unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let traced: Value = serde_json::from_str(&text)
        .unwrap_or_else(|e| panic!("{e}: {text} {}", String::from_utf8_lossy(&output.stderr)));
    (output.status.code(), traced.as_array().unwrap().clone())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_traced_packet_is_what_the_wire_then_shows_and_counts_nothing() {
    // 1400 of the fabric: a packet of 1400 is too big for it.
    let live = Live::ready("traced-wire", Region { fabric_mtu: 1400, ..Region::default() }).unwrap();
    let edge = live.sender("edge", "eth1").unwrap();
    let mut random = ChaCha8Rng::seed_from_u64(0x7ace);
    let mut sent: Vec<Vec<u8>> = Vec::new();
    for flow in 0..FLOWS {
        let (source, tenant) = (1024 + (random.next_u32() % 60_000) as u16, [A, B][flow % 2]);
        let frame = edge.frame().ipv6(client(&live), vip(&live, tenant));
        let payload = vec![0x5a; (random.next_u32() % 900) as usize];
        // The flow's number makes each frame one of its kind.
        let payload = [&(flow as u32).to_be_bytes()[..], &payload].concat();
        sent.push(match random.next_u32() % 2 {
            // Too short for the pods to answer: the client would say that it has no such port.
            0 => frame.udp(source, PORT).payload(&payload[..4]).bytes(),
            _ => frame.tcp(source, PORT).payload(&payload).bytes(),
        });
    }
    let base = || edge.frame().ipv6(client(&live), vip(&live, A));
    let no_rule = base().udp(40_000, 81).payload(b"nothing here").bytes();
    let mut truncated = base().udp(40_000, PORT).payload(b"short").bytes();
    truncated[18..20].copy_from_slice(&400_u16.to_be_bytes());
    let too_big = base().udp(40_001, PORT).payload(&[0x77; 1352]).bytes();
    let refused =
        [(no_rule, Reason::NoRule), (truncated, Reason::Truncated), (too_big, Reason::PacketTooBig)];
    let all: Vec<Vec<u8>> = sent.iter().cloned().chain(refused.iter().map(|(f, _)| f.clone())).collect();

    let reasons = || refused.each_ref().map(|(_, reason)| live.reasons(1).unwrap()[reason]);
    let before = (totals(&live), reasons());
    let (exit, traced) = trace(&live, &all);
    let (again, twice) = trace(&live, &all);
    assert_eq!((exit, again, &traced), (Some(1), Some(1), &twice), "traces leave nothing behind");
    assert_eq!((totals(&live), reasons()), before, "traces are billed to nobody");
    assert_eq!(traced.len(), all.len());
    for one in &traced {
        assert_eq!(one["oracle"], "agrees", "{one:#}");
    }

    // Now for real.
    let fabric = live.capture("spine", "eth1").unwrap();
    let uplink = live.capture("edge", "eth1").unwrap();
    let injector = labkit::inject::Injector::open(live.node("edge").unwrap().netns(), "eth1").unwrap();
    for frame in &all {
        injector.send(frame).unwrap();
    }
    let encapsulated = matcher::inner_dst(vip(&live, A)).or(matcher::inner_dst(vip(&live, B)));
    let frames = expect(&fabric).within(SOON).packets(FLOWS, encapsulated).unwrap();
    let mut on_wire: Vec<String> = frames.iter().map(|frame| hex(&frame.bytes)).collect();
    let mut told: Vec<String> =
        traced[..FLOWS].iter().map(|t| t["sent_hex"].as_str().unwrap().to_owned()).collect();
    on_wire.sort();
    told.sort();
    let differ = told.iter().zip(&on_wire).find(|(told, wire)| told != wire);
    assert!(differ.is_none(), "the bytes told are not those on the wire: {differ:?}");
    let mut backends = std::collections::BTreeSet::new();
    for one in &traced[..FLOWS] {
        let (sid, outer) = (one["backend"]["sid"].as_str().unwrap(), &one["sent"][1]);
        assert_eq!(outer["destination"], sid, "{one:#}");
        let inner = &one["sent"][2];
        assert!(inner["destination"] == live.region.vip(A) || inner["destination"] == live.region.vip(B));
        assert!(one["sent"][3]["checksum"].as_str().unwrap().ends_with("(right)"), "{one:#}");
        assert_eq!((&one["outcome"], &one["leaves"]), (&"sent".into(), &"eth2".into()), "{one:#}");
        assert!(one["ring"]["slot"].as_u64().unwrap() < one["ring"]["slots"].as_u64().unwrap(), "{one:#}");
        backends.insert(one["backend"]["id"].to_string());
    }
    assert_eq!(backends.len(), 6, "flows of two tenants over three workers: {backends:?}");
    let answer = expect(&uplink).within(SOON).packet(matcher::icmp_type(2)).unwrap();
    assert_eq!(traced[FLOWS + 2]["sent_hex"], hex(&answer.bytes), "Packet Too Big, byte for byte");
    eventually("each is counted once", SOON, || {
        let now = reasons();
        check(now == before.1.map(|n| n + 1), || format!("{now:?}, before {before:?}"))
    })
    .unwrap();
    for (one, (_, reason)) in traced[FLOWS..].iter().zip(&refused) {
        assert_eq!((&one["reason"], &one["meaning"]), (&reason.name().into(), &reason.help().into()));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_packet_described_in_words_or_hex_is_traced_for_people() {
    let live = Live::ready("traced-words", Region::default()).unwrap();
    let node = live.gateway(1).unwrap();
    let (binary, config) = paths(&live);
    let (to, from) =
        (format!("[{}]:{PORT}", live.region.vip(A)), format!("[{}]:40000", live.region.client()));
    let trace = |arguments: &[&str]| {
        let output = node.exec(command(&binary, &config, &[&["trace"], arguments].concat())).unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    let (exit, text, errors) = trace(&["--vip", &to, "--client", &from]);
    assert_eq!(exit, Some(0), "{text}{errors}");
    for line in [
        "verdict   sent (XDP_REDIRECT on eth2)",
        "reason    forwarded: ",
        "flags             SYN",
        "says the same",
    ] {
        assert!(text.contains(line), "{line} is not in\n{text}");
    }
    // The backend is the one that `explain` names.
    let explained = live.weir(1, &["explain", "--vip", &to, "--client", &from, "--config", &config]).unwrap();
    let backend = |text: &str| text.lines().find(|l| l.starts_with("backend")).unwrap_or_default().to_owned();
    let words = |line: String| line.split_whitespace().map(ToOwned::to_owned).collect::<Vec<_>>();
    assert_eq!(words(backend(&text)), words(backend(&explained)));

    let edge = live.sender("edge", "eth1").unwrap();
    let stray = edge.frame().ipv6(client(&live), vip(&live, A)).udp(1, 81).payload(b"x").bytes();
    let (exit, text, _) = trace(&["--hex", &hex(&stray), "--interface", "eth1"]);
    assert_eq!(exit, Some(1), "{text}");
    assert!(text.contains("dropped (XDP_DROP)") && text.contains("no_rule"), "{text}");
    let (exit, _, errors) = trace(&["--hex", "0200", "--interface", "eth1"]);
    assert_eq!(exit, Some(2), "{errors}");
    assert!(errors.contains("an Ethernet header has 14"), "{errors}");
    let (exit, _, errors) = trace(&["--hex", &hex(&stray), "--interface", "lo"]);
    assert_eq!(exit, Some(2), "{errors}");
    assert!(errors.contains("eth1, eth2"), "{errors}");
}
