//! The `labkit` program: what a killed lab leaves is listed and removed, what lives is left alone, Ctrl-C leaves nothing.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

mod common;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use common::SOON;
use labkit::{state, wait};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn labkit(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_labkit")).args(arguments).output().unwrap()
}

const TOPOLOGY: &str = "
name: hold
nodes:
  - name: a
    addresses: [{ interface: eth0, address: '2001:db8::1/64' }]
    processes: [{ name: sleeper, command: [sleep, '100000'] }]
  - name: b
    addresses: [{ interface: eth0, address: '2001:db8::2/64' }]
links:
  - { a: { node: a, interface: eth0 }, b: { node: b, interface: eth0 }, mtu: 1500 }
";

/// A `labkit up` that holds a lab, running, and its lab's state.
fn hold() -> (Child, state::Record) {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), TOPOLOGY).unwrap();
    let mut child = Command::new(env!("CARGO_BIN_EXE_labkit"))
        .arg("up")
        .arg(file.path())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let record = state::find(line.trim()).unwrap().record.unwrap();
    (child, record)
}

fn signal(child: &Child, signal: Signal) {
    kill(Pid::from_raw(child.id() as i32), signal).unwrap();
}

fn left(record: &state::Record) -> Vec<String> {
    let mut left: Vec<String> = record
        .namespaces
        .values()
        .filter(|name| Path::new("/run/netns").join(name).exists())
        .cloned()
        .collect();
    left.extend(record.dir().exists().then(|| record.dir().display().to_string()));
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    left.extend(mounts.lines().filter(|line| line.contains(&record.lab)).map(str::to_owned));
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let environment = std::fs::read(entry.path().join("environ")).unwrap_or_default();
        if String::from_utf8_lossy(&environment).contains(&format!("LABKIT_LAB={}", record.lab)) {
            left.push(entry.path().display().to_string());
        }
    }
    left
}

#[test]
fn what_a_killed_lab_left_is_cleaned_and_a_living_one_is_not() {
    let (mut dead, gone) = hold();
    let (mut alive, stays) = hold();
    signal(&dead, Signal::SIGKILL);
    dead.wait().unwrap();
    assert!(left(&gone).len() >= 5, "two namespaces, a directory, a mount and a process: {:?}", left(&gone));

    let listed = String::from_utf8(labkit(&["list"]).stdout).unwrap();
    let line = |lab: &str| listed.lines().find(|line| line.contains(lab)).unwrap_or_default().to_owned();
    assert!(line(&gone.lab).contains("gone"), "{listed}");
    assert!(line(&stays.lab).contains(&format!("process {}", alive.id())), "{listed}");

    let refused = labkit(&["clean", &stays.lab]);
    assert!(!refused.status.success());
    assert!(String::from_utf8_lossy(&refused.stderr).contains("in use by process"), "{refused:?}");

    let cleaned = labkit(&["clean", &gone.lab]);
    assert!(cleaned.status.success(), "{cleaned:?}");
    assert_eq!(left(&gone), Vec::<String>::new());

    // The living one still works.
    let output = labkit(&["exec", &stays.lab, "a", "ping", "-c1", "-W2", "2001:db8::2"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(labkit(&["exec", &stays.lab, "a", "sh", "-c", "exit 7"]).status.code(), Some(7));
    assert!(!labkit(&["exec", &stays.lab, "nobody", "true"]).status.success());
    let graph = String::from_utf8(labkit(&["graph", &stays.lab]).stdout).unwrap();
    assert!(graph.contains(r#""a" -- "b""#), "{graph}");

    signal(&alive, Signal::SIGINT);
    assert_eq!(alive.wait().unwrap().code(), Some(130));
    assert_eq!(left(&stays), Vec::<String>::new());
}

#[test]
fn a_bad_topology_file_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), TOPOLOGY.replace("mtu: 1500", "mtu: 150")).unwrap();
    let output = labkit(&["up", file.path().to_str().unwrap()]);
    assert!(!output.status.success());
    assert!(String::from_utf8_lossy(&output.stderr).contains("MTU 150 is not between 1280"), "{output:?}");
}

#[test]
fn a_terminated_process_takes_its_lab_along() {
    let (mut child, record) = hold();
    signal(&child, Signal::SIGTERM);
    assert_eq!(child.wait().unwrap().code(), Some(143));
    wait::eventually("nothing is left", SOON, || {
        let left = left(&record);
        wait::check(left.is_empty(), || format!("{left:?}"))
    })
    .unwrap();
}
