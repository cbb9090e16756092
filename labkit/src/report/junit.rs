//! The report as JUnit XML: a suite a scenario, a test case a step; a step that was not reached counts as skipped.

use std::time::Duration;

use quick_junit::{NonSuccessKind, Report as Junit, TestCase, TestCaseStatus, TestSuite};

use super::Error;
use super::model::{Outcome, Report, ScenarioReport, StepReport};

/// JUnit XML.
pub fn junit(report: &Report) -> Result<String, Error> {
    let mut document = Junit::new(report.title.as_str());
    document.set_time(duration(report.seconds));
    for scenario in &report.scenarios {
        document.add_test_suite(suite(scenario));
    }
    document.to_string().map_err(|e| Error::Form { form: "JUnit", cause: e.to_string() })
}

fn suite(scenario: &ScenarioReport) -> TestSuite {
    let mut suite = TestSuite::new(scenario.name.as_str());
    suite.set_time(duration(scenario.seconds));
    for (name, value) in &scenario.parameters {
        suite.add_property((name.as_str(), value.as_str()));
    }
    for step in &scenario.steps {
        suite.add_test_case(case(scenario, step));
    }
    suite
}

fn case(scenario: &ScenarioReport, step: &StepReport) -> TestCase {
    let status = match step.outcome {
        Outcome::Passed => TestCaseStatus::success(),
        Outcome::NotReached => {
            let mut status = TestCaseStatus::skipped();
            status.set_message("not reached: a step before it failed");
            status
        }
        Outcome::Failed => {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
            let error = step.error.as_deref().unwrap_or("failed");
            status.set_message(error.lines().next().unwrap_or_default());
            let mut text = error.to_owned();
            for (title, diagnosis) in &step.diagnosis {
                text = format!("{text}\n\n== {title}\n{diagnosis}");
            }
            status.set_description(text);
            status
        }
    };
    let mut case = TestCase::new(step.name.as_str(), status);
    case.set_classname(scenario.name.as_str());
    case.set_time(duration(step.seconds));
    if !step.messages.is_empty() {
        case.set_system_out(step.messages.join("\n"));
    }
    case
}

fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}
