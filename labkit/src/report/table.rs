//! The table at the end of a run in a terminal.

use comfy_table::{Cell, CellAlignment, Color, ContentArrangement, Table, presets};

use super::model::{Outcome, Report};

/// One row a step and a sum; colours only where the output is a terminal.
pub fn table(report: &Report) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_FULL_CONDENSED);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(["#", "Step", "Result", "Connections", "Lost", "Seconds"]);
    let number = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
    let count = |n: Option<u64>| number(n.map_or("–".into(), |n| n.to_string()));
    for (n, step) in report.steps().enumerate() {
        let colour = match step.outcome {
            Outcome::Passed => Color::Green,
            Outcome::Failed => Color::Red,
            Outcome::NotReached => Color::Yellow,
        };
        table.add_row([
            number((n + 1).to_string()),
            Cell::new(&step.name),
            Cell::new(step.outcome.text()).fg(colour),
            count(step.connections),
            count(step.lost),
            number(if step.outcome == Outcome::NotReached {
                "–".into()
            } else {
                format!("{:.1}", step.seconds)
            }),
        ]);
    }
    let sum = |get: fn(&super::StepReport) -> Option<u64>| report.steps().filter_map(get).sum::<u64>();
    table.add_row([
        Cell::new(""),
        Cell::new("all"),
        Cell::new(if report.passed() { "passed" } else { "failed" }).fg(if report.passed() {
            Color::Green
        } else {
            Color::Red
        }),
        number(sum(|step| step.connections).to_string()),
        number(sum(|step| step.lost).to_string()),
        number(format!("{:.1}", report.seconds)),
    ]);
    table.to_string()
}
