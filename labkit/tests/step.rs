//! Scenarios: the order of what happens, and what a failure leaves behind.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use labkit::capture::Capture;
use labkit::expect::expect;
use labkit::inject::Injector;
use labkit::netns::Netns;
use labkit::packet::{MacAddr, Packet, matcher};
use labkit::pcap;
use labkit::report::{Outcome, Progress};
use labkit::step::{Scenario, Silent};

#[test]
fn a_failing_step_heals_then_diagnoses_and_later_steps_are_not_reached() {
    let mut log: Vec<&'static str> = Vec::new();
    let report = Scenario::new("order")
        .heal("uplink", |log: &mut Vec<&str>| {
            log.push("heal");
            Ok(())
        })
        .diagnose("state", |log: &mut Vec<&str>| Ok(format!("healed first: {}", log.contains(&"heal"))))
        .diagnose("broken", |_| Err("no such table".into()))
        .step("works", |step| {
            step.state.push("works");
            step.connections(2);
            step.connections(3);
            step.lost(0);
            let mark = step.mark("uplink down");
            step.mark_healed(mark);
            Ok(())
        })
        .step("fails", |step| {
            step.state.push("fails");
            Err("backend answered 503".into())
        })
        .step("never", |step| {
            step.state.push("never");
            Ok(())
        })
        .run(&mut log, &mut Silent);
    assert_eq!(log, ["works", "fails", "heal"]);
    let outcomes: Vec<Outcome> = report.steps.iter().map(|step| step.outcome).collect();
    assert_eq!(outcomes, [Outcome::Passed, Outcome::Failed, Outcome::NotReached]);
    assert_eq!((report.steps[0].connections, report.steps[0].lost), (Some(5), Some(0)));
    assert_eq!((report.steps[1].connections, report.steps[1].lost), (None, None));
    assert_eq!(report.steps[1].error.as_deref(), Some("backend answered 503"));
    assert_eq!(
        report.steps[1].diagnosis,
        [
            ("state".to_owned(), "healed first: true".to_owned()),
            ("broken".to_owned(), "failed: no such table".to_owned())
        ]
    );
    assert!(report.marks[0].until.is_some());
    assert!(!report.passed());
}

#[test]
fn a_panic_fails_the_step_with_its_text() {
    let report = Scenario::new("panic")
        .step("asserts", |step: &mut labkit::step::Step<'_, u32>| {
            assert_eq!(*step.state, 2, "two gateways expected");
            Ok(())
        })
        .run(&mut 1, &mut Silent);
    let error = report.failure().and_then(|step| step.error.as_deref()).unwrap();
    assert!(error.contains("two gateways expected"), "{error}");
}

/// A sink that the test can read while the progress writes.
#[derive(Clone, Default)]
struct Shared(Rc<RefCell<Vec<u8>>>);

impl std::io::Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.borrow_mut().write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn progress_without_a_terminal_is_one_line_a_step() {
    let sink = Shared::default();
    Scenario::new("demo")
        .step("first", |step| {
            step.say("hello");
            step.lost(1);
            Ok(())
        })
        .step("second", |_| Err("broken".into()))
        .step("third", |_| Ok(()))
        .run(&mut (), &mut Progress::plain(sink.clone()));
    let text = String::from_utf8(sink.0.take()).unwrap();
    let lines: Vec<&str> = text.lines().map(|line| line.split(", 0.0 s").next().unwrap()).collect();
    assert_eq!(
        lines,
        [
            "demo: 3 steps",
            "        hello",
            "[1/3] first: passed",
            "[2/3] second: failed",
            "        broken",
            "demo: failed"
        ]
    );
    assert!(text.contains("1 lost") && text.ends_with("1 steps not reached\n"), "{text}");
}

#[test]
fn a_failing_step_leaves_readable_pcap_files_and_decoded_packets() {
    let netns = Netns::create(&format!("step{}", std::process::id())).unwrap();
    let ip = |arguments: &[&str]| assert!(netns.command("ip").args(arguments).status().unwrap().success());
    ip(&["link", "add", "left", "type", "veth", "peer", "name", "right"]);
    ip(&["link", "set", "left", "up"]);
    ip(&["link", "set", "right", "up"]);
    let capture = Capture::open(&netns, "right").unwrap();
    let injector = Injector::open(&netns, "left").unwrap();
    let sent = Packet::eth(MacAddr(2, 0, 0, 0, 0, 1), MacAddr(2, 0, 0, 0, 0, 2))
        .ipv6("2001:db8::1".parse().unwrap(), "2001:db8::2".parse().unwrap())
        .udp(4000, 53)
        .bytes();
    let folder = tempfile::tempdir().unwrap();
    let frame = sent.clone();
    let report = Scenario::new("Kept packets")
        .folder(folder.path())
        .step("wrong port", move |step| {
            let capture: &Capture = step.state;
            let tap = capture.tap();
            injector.send(&frame)?;
            expect(capture).within(Duration::from_secs(20)).packet(matcher::udp_ports(4000, 53))?;
            step.keep(tap);
            expect(step.state).within(Duration::from_millis(20)).packet(matcher::udp_ports(4001, 53))?;
            Ok(())
        })
        .run(&mut { capture }, &mut Silent);
    Netns::remove(netns.name()).unwrap();
    let failed = report.failure().unwrap();
    assert!(failed.error.as_deref().unwrap().contains("udp ports = 4001 to 53"), "{:?}", failed.error);
    let kept = &failed.captures[0];
    assert!(kept.file.starts_with("kept-packets-wrong-port-0-"), "{}", kept.file);
    let frames = pcap::read(&folder.path().join(&kept.file)).unwrap();
    assert_eq!(frames.len(), kept.frames);
    assert!(frames.iter().any(|(_, bytes)| *bytes == sent));
    assert!(kept.packets.iter().any(|packet| packet.decoded.contains("udp        src=4000 dst=53")));
}
