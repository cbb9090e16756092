//! The report as JSON: the whole model, headed by a short summary that scripts can rely on.

use serde::Serialize;

use super::Error;
use super::model::{Outcome, Report};

/// What scripts read: `{"result":"pass|fail","steps":[{"name","pass","connections","lost","seconds"}]}`.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    result: &'static str,
    steps: Vec<StepSummary>,
}

#[derive(Debug, Clone, PartialEq, Serialize)]
struct StepSummary {
    name: String,
    pass: bool,
    connections: u64,
    lost: u64,
    seconds: f64,
}

#[derive(Serialize)]
struct Document<'a> {
    #[serde(flatten)]
    summary: Summary,
    report: &'a Report,
}

/// The summary of a report. Steps that count nothing say 0.
pub fn summary(report: &Report) -> Summary {
    let steps = report.steps().map(|step| StepSummary {
        name: step.name.clone(),
        pass: step.outcome == Outcome::Passed,
        connections: step.connections.unwrap_or(0),
        lost: step.lost.unwrap_or(0),
        seconds: (step.seconds * 1e3).round() / 1e3,
    });
    Summary { result: if report.passed() { "pass" } else { "fail" }, steps: steps.collect() }
}

/// The summary and, under `report`, the whole model.
pub fn json(report: &Report) -> Result<String, Error> {
    let document = Document { summary: summary(report), report };
    serde_json::to_string_pretty(&document)
        .map(|text| text + "\n")
        .map_err(|e| Error::Form { form: "JSON", cause: e.to_string() })
}
