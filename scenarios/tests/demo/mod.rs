//! The demo without its lab: what it declares, and how it ends.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeSet;
use std::process::Command;

use labkit::Topology;
use labkit::report::Report;
use labkit::step::{Scenario, Silent};
use scenarios::demo::ending::{FAILED, tell};
use scenarios::demo::story::{STEPS, diagram};
use scenarios::region::Region;
use serde_json::Value;

/// Runs the end of the demo after a scenario: exit status, what it printed, `report.json`.
fn end(scenario: Scenario<()>) -> (u8, String, Value) {
    let report = Report {
        title: "a demo".into(),
        scenarios: vec![scenario.run(&mut (), &mut Silent)],
        ..Report::default()
    };
    let folder = tempfile::tempdir().unwrap();
    let mut out = Vec::new();
    let status = tell(&report, folder.path(), &mut out).unwrap();
    let json = std::fs::read_to_string(folder.path().join("report.json")).unwrap();
    for file in ["report.html", "junit.xml"] {
        assert!(folder.path().join(file).exists(), "{file}");
    }
    (status, String::from_utf8(out).unwrap(), serde_json::from_str(&json).unwrap())
}

#[test]
fn a_failed_step_fails_the_demo_in_every_form() {
    let scenario = Scenario::new("story")
        .step("first", |step| {
            step.connections(3);
            step.lost(0);
            Ok(())
        })
        .step("second", |step| {
            step.lost(2);
            Err("2 of 9 packets were lost".into())
        })
        .step("third", |_| Ok(()));
    let (status, out, json) = end(scenario);
    assert_eq!(status, FAILED);
    assert_ne!(FAILED, 0);
    assert!(out.contains("second") && out.contains("failed") && out.contains("not reached"), "{out}");
    assert_eq!(json["result"], "fail");
    let steps: Vec<[&Value; 4]> = json["steps"]
        .as_array()
        .unwrap()
        .iter()
        .map(|step| ["name", "pass", "connections", "lost"].map(|key| &step[key]))
        .collect();
    let expected =
        serde_json::json!([["first", true, 3, 0], ["second", false, 0, 2], ["third", false, 0, 0]]);
    assert_eq!(serde_json::to_value(steps).unwrap(), expected);
    assert!(json["steps"].as_array().unwrap().iter().all(|step| step["seconds"].is_number()));
}

#[test]
fn a_story_without_failure_passes() {
    let (status, out, json) = end(Scenario::new("story").step("only", |_| Ok(())));
    assert_eq!((status, &json["result"]), (0, &Value::from("pass")), "{out}");
}

#[test]
fn the_story_shows_what_it_should() {
    let names: Vec<&str> = STEPS.iter().map(|(name, _)| *name).collect();
    for shown in [
        "the lab comes up",
        "equal-cost routes",
        "both tenants",
        "gateway dies",
        "comes back",
        "killed (-9)",
        "another build",
        "drains",
        "alive",
    ] {
        assert!(names.iter().any(|name| name.contains(shown)), "no step shows {shown:?}: {names:#?}");
    }
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{names:#?}");
}

#[test]
fn the_drawing_runs_from_clients_to_pods() {
    let region = Region::default();
    let topology = Topology::build("demo", |t| region.build(t)).unwrap();
    let drawn = diagram(&topology);
    let ranks: BTreeSet<Option<usize>> = drawn.nodes.iter().map(|node| node.rank).collect();
    assert_eq!(ranks, (0..=5).map(Some).collect());
    assert!(drawn.nodes.iter().all(|node| !node.role.is_empty()), "{drawn:#?}");
    assert_eq!(drawn.links.len(), topology.links.len());
}

#[test]
fn help_says_what_the_demo_does_and_how_to_keep_the_lab() {
    let output = Command::new(env!("CARGO_BIN_EXE_demo")).arg("--help").output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success());
    assert!(text.contains("--keep") && text.contains("target/demo"), "{text}");
    assert!(!text.contains("--serve"), "{text}");
}
