//! The report as one HTML page that needs nothing else: style and drawings are inside.

use maud::{DOCTYPE, Markup, PreEscaped, html as markup};

use super::model::{Outcome, Report, ScenarioReport, Series, StepReport};
use super::{Error, chart, diagram};

/// Colours of series in the order in which a chart draws them, as the style sheet names them.
const COLOURS: [&str; 4] = ["--s1", "--s2", "--s3", "--s4"];

/// The page.
pub fn html(report: &Report) -> Result<String, Error> {
    let scenarios = report.scenarios.iter().map(scenario).collect::<Result<Vec<_>, _>>()?;
    let page = markup! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                title { (report.title) }
                style { (PreEscaped(include_str!("style.css"))) }
            }
            body {
                main {
                    h1 { (report.title) (badge(report.passed())) }
                    ul class="facts" {
                        li { b { (utc(report.started)) } }
                        li { b { (format!("{:.1} s", report.seconds)) } }
                        @for (name, value) in &report.facts { li { (name) " " b { (value) } } }
                    }
                    @for scenario in scenarios { (scenario) }
                }
            }
        }
    };
    Ok(page.into_string())
}

fn badge(passed: bool) -> Markup {
    let text = if passed { "passed" } else { "failed" };
    markup! { span class={ "badge " (text) } { (text) } }
}

fn class(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Passed => "passed",
        Outcome::Failed => "failed",
        Outcome::NotReached => "not_reached",
    }
}

fn scenario(scenario: &ScenarioReport) -> Result<Markup, Error> {
    let charts = charts(scenario)?;
    Ok(markup! {
        section {
            h2 { (scenario.name) (badge(scenario.passed())) }
            @if !scenario.parameters.is_empty() {
                ul class="facts" {
                    @for (name, value) in &scenario.parameters { li { (name) " " b { (value) } } }
                }
            }
            @if let Some(drawing) = &scenario.diagram {
                div class="card" { h3 { "Topology" } (diagram::draw(drawing)) }
            }
            (steps(scenario))
            @if let Some(failed) = scenario.failure() { (failure(failed)) }
            @for chart in charts { (chart) }
        }
    })
}

fn steps(scenario: &ScenarioReport) -> Markup {
    let total = scenario.seconds.max(0.001);
    let count = |n: Option<u64>| n.map_or("–".to_owned(), |n| n.to_string());
    let sum = |get: fn(&StepReport) -> Option<u64>| {
        count(scenario.steps.iter().filter_map(get).reduce(|a, b| a + b))
    };
    markup! {
        div class="card" {
            table {
                thead {
                    tr {
                        th class="number" { "#" } th { "Step" } th { "Result" }
                        th class="number" { "Connections" } th class="number" { "Lost" }
                        th class="number" { "Seconds" } th class="when" { "When" }
                    }
                }
                tbody {
                    @for (n, step) in scenario.steps.iter().enumerate() {
                        tr {
                            td class="number dim" { (n + 1) }
                            td {
                                (step.name)
                                @if !step.messages.is_empty() {
                                    ul class="messages" { @for text in &step.messages { li { (text) } } }
                                }
                            }
                            td { span class={ "badge " (class(step.outcome)) } { (step.outcome.text()) } }
                            td class="number" { (count(step.connections)) }
                            td class="number" { (count(step.lost)) }
                            @if step.outcome == Outcome::NotReached {
                                td class="number" { "–" } td {}
                            } @else {
                                td class="number" { (format!("{:.2}", step.seconds)) }
                                td {
                                    div class="track" {
                                        i class=(class(step.outcome)) style=(format!(
                                            "left:{:.2}%;width:{:.2}%",
                                            step.at / total * 100.0,
                                            step.seconds / total * 100.0,
                                        )) {}
                                    }
                                }
                            }
                        }
                    }
                }
                tfoot {
                    tr {
                        td {} td { "all" } td {}
                        td class="number" { (sum(|step| step.connections)) }
                        td class="number" { (sum(|step| step.lost)) }
                        td class="number" { (format!("{:.2}", scenario.seconds)) }
                        td {}
                    }
                }
            }
        }
    }
}

fn failure(step: &StepReport) -> Markup {
    markup! {
        div class="card failure" {
            h3 { "Why “" (step.name) "” failed" }
            pre { (step.error.as_deref().unwrap_or("no error was recorded")) }
            @for (title, text) in &step.diagnosis {
                details open { summary { (title) } pre { (text) } }
            }
            @for capture in &step.captures {
                details open {
                    summary {
                        (capture.name) " "
                        span class="dim" {
                            (capture.frames) " frames in " a href=(capture.file) { (capture.file) }
                            @if capture.packets.len() < capture.frames { ", the last " (capture.packets.len()) }
                        }
                    }
                    @for packet in &capture.packets {
                        pre {
                            span class="dim" {
                                "frame " (packet.number) " · " (format!("{:.6} s", packet.at)) " · "
                                (packet.bytes) " bytes\n"
                            }
                            (packet.decoded)
                        }
                    }
                }
            }
        }
    }
}

/// One chart a unit.
fn charts(scenario: &ScenarioReport) -> Result<Vec<Markup>, Error> {
    let mut units: Vec<&str> = Vec::new();
    for series in &scenario.series {
        if !units.contains(&series.unit.as_str()) {
            units.push(&series.unit);
        }
    }
    units
        .into_iter()
        .map(|unit| {
            let lines: Vec<&Series> = scenario.series.iter().filter(|s| s.unit == unit).collect();
            let svg = chart::chart(&lines, &scenario.marks, scenario.seconds)?;
            Ok(markup! {
                div class="card" {
                    h3 { "Over time: " (unit) }
                    (PreEscaped(svg))
                    ul class="legend" {
                        @for (line, colour) in lines.iter().zip(COLOURS.iter().cycle()) {
                            li { i style={ "background:var(" (colour) ")" } {} (line.name) }
                        }
                        @for (n, mark) in scenario.marks.iter().enumerate() {
                            li class="mark" {
                                i { (n + 1) } (mark.label) " "
                                span class="dim" {
                                    (format!("{:.1}", mark.at))
                                    @if let Some(until) = mark.until { (format!("–{until:.1}")) }
                                    " s"
                                }
                            }
                        }
                    }
                }
            })
        })
        .collect()
}

/// Seconds since the epoch as a date and time of day in UTC (days to civil date by the proleptic Gregorian calendar).
fn utc(seconds: u64) -> String {
    let (days, rest) = (seconds / 86_400, seconds % 86_400);
    let leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let (mut year, mut day) = (1970, days);
    while day >= 365 + u64::from(leap(year)) {
        day -= 365 + u64::from(leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 0;
    while day >= lengths[month] {
        day -= lengths[month];
        month += 1;
    }
    let (hour, minute, second) = (rest / 3600, rest / 60 % 60, rest % 60);
    format!("{year}-{:02}-{:02} {hour:02}:{minute:02}:{second:02} UTC", month + 1, day + 1)
}

#[cfg(test)]
mod tests {
    use super::utc;

    #[test]
    fn times_are_written_as_dates() {
        assert_eq!(utc(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(utc(951_782_399), "2000-02-28 23:59:59 UTC");
        assert_eq!(utc(951_782_400), "2000-02-29 00:00:00 UTC");
        assert_eq!(utc(1_767_225_599), "2025-12-31 23:59:59 UTC");
    }
}
