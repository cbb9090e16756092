//! Background processes: logs with timestamps, waits that explain themselves, kill, terminate, pause and resume.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::time::Duration;

use common::SOON;
use labkit::topology::{Process, Ready, Topology};
use labkit::{Lab, fault, wait};

fn alone(name: &str) -> Topology {
    Topology::build(name, |t| {
        t.node("n");
    })
    .unwrap()
}

fn shell(name: &str, script: &str) -> Process {
    let command = ["sh", "-c", script].map(str::to_owned).to_vec();
    Process { name: name.into(), command, env: [("WORD".into(), "hello".into())].into(), ready: None }
}

#[test]
fn output_is_logged_with_timestamps_and_waited_for() {
    let lab = Lab::up(&alone("log")).unwrap();
    let n = lab.node("n").unwrap();
    let process = n.spawn(&shell("talker", "echo $WORD from $LABKIT_NODE; echo oops >&2; exit 4")).unwrap();
    assert_eq!(process.wait(SOON).unwrap().code(), Some(4));
    let line = process.wait_for_log("oops", SOON).unwrap();
    let (stamp, _) = line.trim_start().split_once(' ').unwrap();
    assert!(stamp.parse::<f64>().unwrap() < 600.0, "{line}");
    assert!(process.log_contains("hello from n"));
    let error = process.wait_for_log("never said", SOON).unwrap_err().to_string();
    assert!(error.contains("it ended: exit status: 4") && error.contains("oops"), "{error}");
    assert!(process.log_path().starts_with(lab.logs()));
}

#[test]
fn a_process_is_killed_terminated_and_found_by_name() {
    let lab = Lab::up(&alone("kill")).unwrap();
    let n = lab.node("n").unwrap();
    // Its children are in its group and go with it.
    let process = n.spawn(&shell("tree", "sleep 1000 & echo $! started; wait")).unwrap();
    let line = process.wait_for_log("started", SOON).unwrap();
    let child: i32 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    let error = process.wait(Duration::from_millis(50)).unwrap_err().to_string();
    assert!(error.contains("end of n/tree") && error.contains("it runs"), "{error}");
    assert_eq!(n.process("tree").unwrap().pid(), process.pid());
    assert!(process.kill().unwrap().code().is_none());
    assert!(!process.is_running());
    wait::eventually("its child is gone", SOON, || {
        let state = std::fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        wait::check(state.is_empty() || state.contains(") Z"), || state)
    })
    .unwrap();
    let polite = n
        .spawn(&shell("polite", "trap 'echo bye; exit 5' TERM; echo on; while :; do sleep 0.01; done"))
        .unwrap();
    polite.wait_for_log("on", SOON).unwrap();
    assert_eq!(polite.terminate(SOON).unwrap().code(), Some(5));
    polite.wait_for_log("bye", SOON).unwrap();
    assert!(n.process("nobody").unwrap_err().to_string().contains("n/polite"));
    let error = n
        .spawn(&Process { command: vec!["no-such-program".into()], ..shell("x", "") })
        .unwrap_err()
        .to_string();
    assert!(error.contains("n/x (no-such-program)"), "{error}");
}

#[test]
fn a_paused_process_stands_still_until_it_is_healed() {
    let lab = Lab::up(&alone("pause")).unwrap();
    let n = lab.node("n").unwrap();
    let process = n.spawn(&shell("ticker", "while :; do echo tick; sleep 0.01; done")).unwrap();
    process.wait_for_log("tick", SOON).unwrap();
    let ticks = || process.log().lines().count();
    let fault = fault::pause(&process).unwrap();
    // The log is written by another thread: let it drain what was said before.
    let mut before = ticks();
    wait::eventually("the log stands still", SOON, || {
        std::thread::sleep(Duration::from_millis(50));
        let now = ticks();
        wait::check(std::mem::replace(&mut before, now) == now, || format!("{now} ticks"))
    })
    .unwrap();
    wait::steady("no more ticks", Duration::from_millis(200), || {
        wait::check(ticks() == before, || ticks().to_string())
    })
    .unwrap();
    fault.heal().unwrap();
    wait::eventually("it ticks again", SOON, || wait::check(ticks() > before, || ticks().to_string()))
        .unwrap();
}

#[test]
fn processes_of_the_topology_are_ready_when_the_lab_is_up() {
    let mut topology = alone("ready");
    topology.nodes[0]
        .processes
        .push(Process { ready: Some(Ready::log("now")), ..shell("late", "sleep 0.2; echo now; sleep 1000") });
    let lab = Lab::up(&topology).unwrap();
    assert!(lab.node("n").unwrap().process("late").unwrap().log_contains("now"));
    drop(lab);
    topology.nodes[0].processes[0].ready = Some(Ready { log: "never".into(), within_ms: 300 });
    let error = Lab::up(&topology).unwrap_err().to_string();
    assert!(error.contains("\"never\" in the log of n/late"), "{error}");
}
