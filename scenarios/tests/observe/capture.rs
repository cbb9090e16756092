//! `weir capture`: what came in and what was sent, byte for byte what the links saw.

use labkit::expect::expect;
use labkit::inject::Injector;
use labkit::packet::matcher;
use labkit::topology::Process;
use labkit::wait::{check, eventually};
use scenarios::region::{A, B, Live, PORT, Region, SOON};
use weir::frame::{Captured, Direction};

use super::{client, command, hex, paths, vip};

/// Starts `weir capture` in gateway 1 and waits until its program is in the slots.
fn capture(live: &Live, name: &str, arguments: &[&str]) -> labkit::process::ProcessHandle {
    let (binary, config) = paths(live);
    let command = command(&binary, &config, &[&["capture"], arguments].concat());
    let command = command.iter().map(ToString::to_string).collect();
    let process = Process { name: name.into(), command, env: [].into(), ready: None };
    let process = live.gateway(1).unwrap().spawn(&process).unwrap();
    wait_in_place(live, true);
    process
}

/// Waits until the program that captures is in the slots, or gone from them.
fn wait_in_place(live: &Live, wanted: bool) {
    eventually("the program that captures comes or goes", SOON, || {
        let maps = live.maps(1).map_err(|e| e.to_string())?;
        let there = ["eth1", "eth2"].map(|i| maps.directory().join(format!("capture-{i}")).exists());
        check(there == [wanted; 2], || format!("{there:?}"))
    })
    .unwrap();
}

fn read(path: &std::path::Path) -> Vec<Captured> {
    weir::frame::read(&std::fs::read(path).unwrap()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_capture_holds_what_came_in_and_what_was_sent_byte_for_byte() {
    let live = Live::ready("capture", Region::default()).unwrap();
    let edge = live.sender("edge", "eth1").unwrap();
    let file = live.gateway(1).unwrap().dir().join("flows.pcapng");
    let (address, path) = (live.region.vip(A), file.display().to_string());
    let port = PORT.to_string();
    const FRAMES: u16 = 20;
    let count = FRAMES.to_string();
    let running =
        capture(&live, "capture", &["--vip", &address, "--port", &port, "--count", &count, "--write", &path]);
    // A second one is refused, and harms nothing.
    let (binary, config) = paths(&live);
    let second = ["capture", "--vip", &address, "--write", "/dev/null"];
    let second = live.gateway(1).unwrap().exec(command(&binary, &config, &second)).unwrap();
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(second.status.code() == Some(1) && said.contains("another capture runs"), "{said}");

    let fabric = live.capture("spine", "eth1").unwrap();
    let injector = Injector::open(live.node("edge").unwrap().netns(), "eth1").unwrap();
    let mut ours = Vec::new();
    for n in 0..FRAMES {
        let frame = |tenant, port| {
            let payload = vec![n as u8; usize::from(n) * 70 + 8];
            // Pods answer with a reset, which nobody answers.
            edge.frame().ipv6(client(&live), vip(&live, tenant)).tcp(3000 + n, port).payload(&payload).bytes()
        };
        // Of another tenant, and to another port: not asked for.
        for other in [frame(B, PORT), frame(A, 81)] {
            injector.send(&other).unwrap();
        }
        ours.push(frame(A, PORT));
        injector.send(ours.last().unwrap()).unwrap();
    }
    assert!(running.wait(SOON).unwrap().success(), "{}", running.log());
    wait_in_place(&live, false);
    let summary = format!("{FRAMES} received, {FRAMES} sent, 0 lost");
    running.wait_for_log(&summary, SOON).unwrap();

    let frames = read(&file);
    let of = |direction| frames.iter().filter(move |f| f.direction == Some(direction));
    let received: Vec<String> = of(Direction::Received).map(|f| hex(&f.bytes)).collect();
    let ours: Vec<String> = ours.iter().map(|f| hex(f)).collect();
    assert!(received == ours, "not as they were sent to the gateway: {} of {}", received.len(), ours.len());
    let on_wire =
        expect(&fabric).within(SOON).packets(FRAMES.into(), matcher::inner_dst(vip(&live, A))).unwrap();
    let on_wire: Vec<String> = on_wire.iter().map(|f| hex(&f.bytes)).collect();
    assert_eq!(
        of(Direction::Sent).map(|f| hex(&f.bytes)).collect::<Vec<_>>(),
        on_wire,
        "as the spine got them"
    );
    assert!(of(Direction::Received).all(|f| f.interface.as_deref() == Some("eth1")));
    assert!(of(Direction::Sent).all(|f| f.interface.as_deref() == Some("eth2")));
    assert!(frames.iter().all(|f| f.comment.as_deref().is_some_and(|c| c.starts_with("forwarded: "))));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_capture_shows_drops_and_answers_and_ends_when_its_client_is_killed() {
    let live = Live::ready("captured-drops", Region::default()).unwrap();
    let edge = live.sender("edge", "eth1").unwrap();
    let file = live.gateway(1).unwrap().dir().join("drops.pcapng");
    let (address, path) = (live.region.vip(A), file.display().to_string());
    let running = capture(&live, "capture", &["--vip", &address, "--count", "2", "--write", &path]);
    let base = || edge.frame().ipv6(client(&live), vip(&live, A));
    let stray = edge.send(&base().udp(40_000, 81).payload(b"nobody")).unwrap();
    let uplink = live.capture("edge", "eth1").unwrap();
    edge.send(&base().echo_request(7, 9).payload(b"are you there")).unwrap();
    let answer = expect(&uplink).within(SOON).packet(matcher::icmp_type(129)).unwrap();
    assert!(running.wait(SOON).unwrap().success(), "{}", running.log());
    let frames = read(&file);
    let reason =
        |f: &Captured| f.comment.as_deref().unwrap_or_default().split(':').next().unwrap().to_owned();
    let reasons: Vec<String> = frames.iter().map(reason).collect();
    assert_eq!(reasons, ["no_rule", "echo_reply", "echo_reply"]);
    assert_eq!((&frames[0].bytes, &frames[2].bytes), (&stray, &answer.bytes));
    wait_in_place(&live, false);

    // A client that is killed says nothing.
    let killed = capture(&live, "killed", &["--vip", &address, "--seconds", "600", "--write", &path]);
    killed.kill().unwrap();
    wait_in_place(&live, false);
    eventually("the plain program is in its slots, and all is well", SOON, || {
        let status = live.status(1).map_err(|e| e.to_string())?;
        check(status["ready"] == true, || status["reasons"].to_string())
    })
    .unwrap();
}
