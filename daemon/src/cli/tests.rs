//! Tables of made-up figures, explanations over tables in memory, and whole command lines.

use std::path::Path;

use clap::{CommandFactory as _, Parser as _};
use weir_bpf::abi::{Affinity, Backend, NextHop, VipWord, pack_nh};

use super::output::{self, Format};
use super::show::{Backends, Exits, Rings, Vips};
use super::show_daemon::{Peers, Routes, node_text};
use super::{Cli, Exit, explain};
use crate::flow::{Flow, HashKey, MemTables};
use crate::inspect::fixture::{backend_id, image, status};
use crate::inspect::{self, DigestCheck, RingMember, RingRow};
use crate::model::VipKey;

fn list(format: Format, rows: &impl output::Rows) -> String {
    let mut out = Vec::new();
    output::list(&mut out, format, rows).unwrap();
    String::from_utf8(out).unwrap()
}

/// Runs a command line; gives its exit status and what it wrote.
fn weir(args: &[&str]) -> (Exit, String) {
    let mut out = Vec::new();
    let exit = Cli::try_parse_from(std::iter::once(&"weir").chain(args)).unwrap().run(&mut out);
    (exit, String::from_utf8(out).unwrap())
}

fn rings() -> Rings {
    let vip = |last: u8| VipKey {
        address: format!("2001:db8:100::{last:x}").parse().unwrap(),
        ..image().vips[0].key
    };
    let member = |vpc: Option<&str>, index, slots| RingMember { backend: vpc.map(backend_id), index, slots };
    let ring = |ring, check, vips, members, empty_slots| RingRow {
        ring,
        slots: 1021,
        digest: "ab".repeat(16),
        check,
        vips,
        members,
        empty_slots,
    };
    Rings(vec![
        ring(
            0,
            DigestCheck::Equal,
            vec![vip(1), vip(3)],
            vec![member(Some("vpc-a"), 1, 511), member(None, 7, 510)],
            0,
        ),
        ring(1024, DigestCheck::Differs("cd".repeat(16)), vec![vip(2)], vec![], 1021),
        ring(2048, DigestCheck::Unchecked, vec![vip(4)], vec![member(Some("vpc-b"), 2, 1021)], 0),
    ])
}

#[test]
fn tables_for_people() {
    let image = image();
    insta::assert_snapshot!("vips", list(Format::Table, &Vips(image.vips)));
    insta::assert_snapshot!("backends", list(Format::Table, &Backends(image.backends)));
    insta::assert_snapshot!("rings", list(Format::Table, &rings()));
    insta::assert_snapshot!("drops", list(Format::Table, &Exits(image.exits)));
    insta::assert_snapshot!("routes", list(Format::Table, &Routes(status().routes)));
    insta::assert_snapshot!("peers", list(Format::Table, &Peers(status().peers)));
    insta::assert_snapshot!("node", node_text(&status()));
}

#[test]
fn empty_lists_say_what_is_missing() {
    assert_eq!(list(Format::Table, &Vips(Vec::new())), "no VIP is loaded\n");
    assert_eq!(list(Format::Json, &Vips(Vec::new())), "[]\n");
}

#[test]
fn yaml_and_json_hold_the_same() {
    insta::assert_snapshot!("backends.yaml", list(Format::Yaml, &Backends(image().backends)));
    let same = |yaml: String, json: String| {
        let yaml: serde_json::Value = serde_saphyr::from_str(&yaml).unwrap();
        assert_eq!(yaml, serde_json::from_str::<serde_json::Value>(&json).unwrap());
    };
    same(list(Format::Yaml, &Backends(image().backends)), list(Format::Json, &Backends(image().backends)));
    same(list(Format::Yaml, &rings()), list(Format::Json, &rings()));
    same(list(Format::Yaml, &Vips(image().vips)), list(Format::Json, &Vips(image().vips)));
}

/// The fixture's gateway in memory: the first VIP's ring leads to backends 1 and 2 in turn.
fn tables() -> MemTables {
    let mut tables = MemTables::new();
    let hop = |last, mtu| NextHop {
        macs: [2, 0, 0, 0, 0, last, 2, 0, 0, 0, 0, 9],
        ifindex: 4_000_001,
        mtu,
        flags: 0,
    };
    let first = tables.add_next_hop(hop(1, 1500));
    tables.add_next_hop(hop(2, 1500));
    let sid = |n: u16| std::net::Ipv6Addr::new(0x2001, 0xdb8, 0xff01, n, 0xe001, 0, 0, 0).octets();
    let near =
        tables.add_backend(Backend { sid: sid(1), nh: pack_nh(first, 2), pmtu: 1400, ..Backend::default() });
    let far = tables.add_backend(Backend { sid: sid(2), ..Backend::default() });
    let base = tables.add_ring(&[near, far].into_iter().cycle().take(1021).collect::<Vec<_>>());
    let vip = "2001:db8:100::1".parse().unwrap();
    tables.words.insert(0, VipWord::new(base, 1021, Affinity::None));
    tables.vip_index.insert(crate::flow::port_key(vip, 443, 6), 0);
    tables.own(vip);
    let vip = crate::model::mapped("192.0.2.1".parse().unwrap());
    tables.vip_index.insert(crate::flow::port_key(vip, 443, 6), 0);
    tables.own(vip);
    tables
}

fn explained(client_port: u16, vip: &str, vip_port: u16) -> String {
    let key = HashKey::from_region_key(&[7; 32]);
    let identity = |index| (index == 1).then(|| (backend_id("vpc-a"), "w1".to_string()));
    let vip: std::net::IpAddr = vip.parse().unwrap();
    let client = if vip.is_ipv4() { "203.0.113.7" } else { "2001:db8:c::7" };
    let flow = Flow {
        client: crate::model::mapped(client.parse().unwrap()),
        client_port,
        vip: crate::model::mapped(vip),
        vip_port,
        protocol: 6,
    };
    explain::text(&inspect::explain(&key, &tables(), &image(), identity, flow))
}

#[test]
fn explanations_say_where_a_flow_goes_or_why_it_does_not() {
    let sent = (40_000..).map(|port| explained(port, "2001:db8:100::1", 443));
    let sent = sent.take(64).find(|text| text.contains("encapsulated and sent")).unwrap();
    insta::assert_snapshot!("explain_sent", sent);
    let lost = (40_000..).map(|port| explained(port, "2001:db8:100::1", 443));
    let lost = lost.take(64).find(|text| text.contains("dropped: ")).unwrap();
    insta::assert_snapshot!("explain_no_next_hop", lost);
    insta::assert_snapshot!("explain_no_rule", explained(1, "2001:db8:100::1", 80));
    insta::assert_snapshot!("explain_not_vip", explained(1, "2001:db8:100::9", 443));
    let sent = (40_000..).map(|port| explained(port, "192.0.2.1", 443));
    let sent = sent.take(64).find(|text| text.contains("encapsulated and sent")).unwrap();
    insta::assert_snapshot!("explain_ipv4", sent);
    insta::assert_snapshot!("explain_ipv4_not_vip", explained(1, "192.0.2.9", 443));
}

#[test]
fn the_command_line_is_well_formed() {
    Cli::command().debug_assert();
}

#[test]
fn every_verb_documents_examples_and_exit_status() {
    for verb in Cli::command().get_subcommands_mut() {
        let help = verb.render_help().to_string();
        assert!(help.contains("Example") && help.contains("Exit status"), "{help}");
        assert!(help.contains("3  the daemon cannot be reached"), "{help}");
    }
    insta::assert_snapshot!("help", Cli::command().term_width(100).render_help().to_string());
}

#[test]
fn completions_know_every_verb_and_kind() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let (exit, script) = weir(&["completions", shell]);
        assert_eq!(exit, Exit::Fine);
        for word in
            ["gateway", "explain", "drops", "hash-key-file", "WEIR", "drain", "trace", "capture", "follow"]
        {
            let found = script.to_lowercase().contains(&word.to_lowercase());
            assert!(found, "{shell} script lacks {word}");
        }
    }
}

#[test]
fn man_pages_are_written_one_a_verb() {
    let (exit, page) = weir(&["man"]);
    assert_eq!(exit, Exit::Fine);
    assert!(page.contains(".TH weir 1") && page.contains("the daemon cannot be reached"), "{page}");
    let dir = tempfile::tempdir().unwrap();
    let into = dir.path().join("man1");
    let (exit, _) = weir(&["man", "--dir", into.to_str().unwrap()]);
    assert_eq!(exit, Exit::Fine);
    let mut pages: Vec<String> =
        std::fs::read_dir(&into).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    pages.sort();
    insta::assert_snapshot!("man_pages", pages.join("\n"));
    let vips = std::fs::read_to_string(into.join("weir-show-vips.1")).unwrap();
    assert!(vips.contains("Pin path of the gateway"), "{vips}");
    let (exit, _) = weir(&["man", "--dir", "/proc/no/such"]);
    assert_eq!(exit, Exit::Usage);
}

#[test]
fn exit_status_tells_unreachable_from_unreadable() {
    let dir = tempfile::tempdir().unwrap();
    let path = |name: &str| dir.path().join(name).to_str().unwrap().to_string();
    let socket = path("none.sock");
    for kind in ["node", "peers", "routes"] {
        assert_eq!(weir(&["show", kind, "--admin", &socket]).0, Exit::Unreachable, "{kind}");
    }
    assert_eq!(weir(&["drain", "--admin", &socket]).0, Exit::Unreachable);
    assert_eq!(weir(&["show", "drops", "--follow", "--admin", &socket]).0, Exit::Unreachable);
    let capture = ["capture", "--vip", "2001:db8::1", "--write", "/dev/null", "--admin", &socket];
    assert_eq!(weir(&capture).0, Exit::Unreachable);
    assert_eq!(weir(&["trace", "--hex", "00", "--pins", &path("pins")]).0, Exit::Usage);
    for bad in [
        &["weir", "trace"][..],
        &["weir", "trace", "--hex", "00", "--pcap", "x"],
        &["weir", "trace", "--vip", "[2001:db8::1]:1"],
        &["weir", "show", "drops", "--reason", "no_rule"],
        &["weir", "show", "drops", "--follow", "--reason", "forwarded"],
        &["weir", "capture", "--vip", "2001:db8::1", "--write", "x", "--seconds", "0"],
    ] {
        assert!(Cli::try_parse_from(bad).is_err(), "{bad:?}");
    }
    for kind in ["vips", "backends", "rings", "drops"] {
        assert_eq!(weir(&["show", kind, "--pins", &path("pins")]).0, Exit::Usage, "{kind}");
    }
    let flow = ["explain", "--vip", "[2001:db8::1]:443", "--client", "[2001:db8::2]:1"];
    assert_eq!(weir(&[&flow[..], &["--hash-key-file", &path("no-key")]].concat()).0, Exit::Usage);
    assert_eq!(weir(&["show", "vips", "--config", &path("weir.yaml")]).0, Exit::Usage);
    assert_eq!(weir(&["--log", "==", "man"]).0, Exit::Usage);
    assert!(Cli::try_parse_from(["weir", "explain", "--vip", "nonsense"]).is_err());
}

#[test]
fn check_prints_problems_and_a_summary() {
    let dir = tempfile::tempdir().unwrap();
    let config = dir.path().join("weir.yaml");
    std::fs::write(&config, "node: gw1\n").unwrap();
    let (exit, text) = weir(&["check", "--offline", "--config", config.to_str().unwrap()]);
    assert_eq!(exit, Exit::Problems);
    assert!(text.contains("weir.yaml") && text.contains("region"), "{text}");
    assert!(text.ends_with("; 0 rules would be served\n"), "{text}");
    let (_, json) = weir(&["check", "--offline", "--config", config.to_str().unwrap(), "--output", "json"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert!(json["problems"].as_array().is_some_and(|p| !p.is_empty()), "{json}");
    let (exit, _) = weir(&["check", "--offline", "--config", Path::new("/none/weir.yaml").to_str().unwrap()]);
    assert_eq!(exit, Exit::Usage);
}

mod with_a_daemon {
    use std::sync::Arc;

    use tokio::sync::{mpsc, watch};

    use super::{Exit, status, weir};
    use crate::admin::{AdminCommand, Server};
    use crate::desired::DrainStage;
    use crate::status::NodeStatus;

    /// A daemon on a thread of its own; it drains as far as it is let.
    struct Daemon {
        _dir: tempfile::TempDir,
        socket: String,
        stages: std::sync::mpsc::Sender<DrainStage>,
    }

    fn daemon(status: NodeStatus) -> Daemon {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("gateway.sock");
        let socket = path.to_str().unwrap().to_string();
        let (up, is_up) = std::sync::mpsc::channel();
        let (stages, next) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_multi_thread();
            let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
            runtime.block_on(async {
                let server = Server::bind(&path).await.unwrap();
                let (status, shown) = watch::channel(Arc::new(status));
                let (commands, mut asked) = mpsc::channel(1);
                tokio::spawn(server.serve(shown, commands, std::future::pending()));
                up.send(()).unwrap();
                let Some(AdminCommand::Drain(reply)) = asked.recv().await else { return };
                let stage = |stage| status.send_modify(|s| Arc::make_mut(s).drain = stage);
                stage(DrainStage::GracefulShutdown);
                reply.send(Ok("the gateway leaves".into())).unwrap();
                // Ends when the test does.
                while let Ok(next) = next.recv() {
                    stage(next);
                }
            });
        });
        is_up.recv().unwrap();
        Daemon { _dir: dir, socket, stages }
    }

    #[test]
    fn node_peers_and_routes_are_shown_and_not_ready_is_a_problem() {
        let running = daemon(status());
        let socket = &running.socket;
        let (exit, text) = weir(&["show", "node", "--admin", socket]);
        assert_eq!(exit, Exit::Problems);
        assert!(text.contains("eth2 (fabric): NOT ATTACHED"), "{text}");
        let (exit, text) = weir(&["show", "peers", "--admin", socket]);
        assert_eq!(exit, Exit::Fine);
        assert!(text.contains("tor1"), "{text}");
        let (_, json) = weir(&["show", "node", "--admin", socket, "--output", "json"]);
        assert_eq!(serde_json::from_str::<NodeStatus>(&json).unwrap(), status());
        let (_, yaml) = weir(&["show", "routes", "--admin", socket, "-o", "yaml"]);
        assert!(yaml.contains("prefix: "), "{yaml}");
        let running = daemon(NodeStatus { ready: true, ..status() });
        assert_eq!(weir(&["show", "node", "--admin", &running.socket]).0, Exit::Fine);
    }

    fn stage(daemon: &Daemon) -> DrainStage {
        let (_, json) = weir(&["show", "node", "--admin", &daemon.socket, "--output", "json"]);
        serde_json::from_str::<NodeStatus>(&json).unwrap().drain
    }

    /// `weir drain --wait` on a thread, once the daemon drains.
    fn waiting(daemon: &Daemon) -> std::thread::JoinHandle<(Exit, String)> {
        let socket = daemon.socket.clone();
        let command = std::thread::spawn(move || weir(&["drain", "--admin", &socket, "--wait"]));
        while stage(daemon) == DrainStage::None {}
        // Many more looks than the command needs to end, did it not wait.
        for _ in 0..50 {
            assert_eq!(stage(daemon), DrainStage::GracefulShutdown);
        }
        assert!(!command.is_finished(), "{:?}", command.join());
        command
    }

    #[test]
    fn drain_waits_until_the_daemon_has_ended() {
        let daemon = daemon(status());
        let command = waiting(&daemon);
        daemon.stages.send(DrainStage::Withdrawn).unwrap();
        daemon.stages.send(DrainStage::Detached).unwrap();
        while stage(&daemon) != DrainStage::Detached {}
        for _ in 0..50 {
            assert_eq!(stage(&daemon), DrainStage::Detached);
        }
        assert!(!command.is_finished(), "it may still be detaching: {:?}", command.join());
        let Daemon { stages, _dir, .. } = daemon;
        drop(stages);
        let (exit, text) = command.join().unwrap();
        assert_eq!((exit, text.as_str()), (Exit::Fine, "the gateway leaves\nthe daemon has ended\n"));
    }

    #[test]
    fn a_daemon_that_no_longer_drains_ends_the_wait_as_a_problem() {
        let daemon = daemon(status());
        let command = waiting(&daemon);
        daemon.stages.send(DrainStage::None).unwrap();
        assert_eq!(command.join().unwrap(), (Exit::Problems, "the gateway leaves\n".into()));
    }
}

mod frames {
    use crate::cli::{capture, follow, trace};
    use crate::frame::{Captured, Direction, Endpoints, Transport, build, decode};
    use crate::inspect::{DroppedFrame, Exit, ExplainedBackend, ExplainedRing, HopRow, Oracle, TracedFrame};
    use crate::model::{BackendId, ObjectName, Protocol, Sid, VipKey};

    fn frame() -> Vec<u8> {
        let ends = Endpoints {
            client: "2001:db8:c::7".parse().unwrap(),
            client_port: 40_000,
            vip: "2001:db8:100::1".parse().unwrap(),
            port: 443,
            transport: Transport::Tcp,
        };
        build(&ends, [2, 0, 0, 0, 0, 9], 0).unwrap()
    }

    #[test]
    fn a_traced_frame_a_drop_and_a_capture_for_people() {
        let frame = frame();
        let outer = [&[0x60, 4, 0xd2, 0x2a, 0, 60, 41, 64][..], &[0x20; 16], &[0x21; 16]].concat();
        let sent = [&frame[..14], &outer, &frame[14..]].concat();
        let id = BackendId {
            vpc: "vpc-a".into(),
            attachment: "default".into(),
            address: "fd00:10::2".parse().unwrap(),
        };
        let traced = TracedFrame {
            frame: 1,
            interface: "eth1".into(),
            length: frame.len(),
            outcome: Exit::Sent,
            verdict: "XDP_REDIRECT",
            leaves: Some("eth2".into()),
            reason: "forwarded",
            meaning: "encapsulated and sent to a backend",
            next_programs: Vec::new(),
            vip: Some(VipKey {
                address: "2001:db8:100::1".parse().unwrap(),
                protocol: Protocol::Tcp,
                port: 443,
            }),
            rule: Some(ObjectName { namespace: "tenant-a".into(), name: "web".into() }),
            ring: Some(ExplainedRing { base: 1024, slots: 1021, slot: 17, digest: "00ff".into() }),
            backend: Some(ExplainedBackend {
                id: Some(id),
                node: Some("w2".into()),
                sid: Sid("2001:db8:ff01:12:e001::".parse().unwrap()),
                index: 3,
            }),
            next_hop: Some(HopRow { interface: "eth2".into(), mac: "02:00:00:00:00:09".into(), mtu: 1600 }),
            mtu: Some(1600),
            oracle: Oracle::Agrees,
            received: decode(&frame, frame.len()),
            sent: Some(decode(&sent, sent.len())),
            sent_hex: None,
        };
        insta::assert_snapshot!("trace", trace::text(&traced));
        let dropped = DroppedFrame {
            at: "2026-01-02T03:04:05.678Z".into(),
            reason: "no_rule".into(),
            interface: "eth1".into(),
            length: 1400,
            unsampled: 12,
            frame: frame.iter().map(|b| format!("{b:02x}")).collect(),
        };
        insta::assert_snapshot!("drop", follow::for_people(&dropped));
        let mut summary = capture::Summary::default();
        let captured = |direction, comment: Option<&str>| Captured {
            at: std::time::Duration::ZERO,
            interface: None,
            direction: Some(direction),
            comment: comment.map(Into::into),
            bytes: Vec::new(),
            length: 0,
        };
        summary.add(&captured(Direction::Received, Some("forwarded: sent")));
        summary.add(&captured(Direction::Sent, Some("forwarded: sent")));
        summary.add(&captured(Direction::Received, None));
        insta::assert_snapshot!("capture", summary.text(4));
    }
}
