//! Live progress: a bar that moves on a terminal, one line a step anywhere else.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use super::model::{Outcome, ScenarioReport, StepReport};
use crate::step::Observer;

/// Shows a run as it happens.
#[derive(Debug)]
pub struct Progress<W = std::io::Stderr> {
    out: W,
    live: bool,
    bar: Option<ProgressBar>,
    step: usize,
    steps: usize,
}

impl Progress {
    /// Shows progress on standard error.
    pub fn new() -> Self {
        let out = std::io::stderr();
        let live = out.is_terminal();
        Self { out, live, bar: None, step: 0, steps: 0 }
    }
}

impl Default for Progress {
    fn default() -> Self {
        Self::new()
    }
}

impl<W: Write> Progress<W> {
    /// Writes plain lines to `out`.
    pub fn plain(out: W) -> Self {
        Self { out, live: false, bar: None, step: 0, steps: 0 }
    }

    /// A line that stays. Progress is for people: where it cannot be written, the run goes on.
    fn line(&mut self, text: &str) {
        match &self.bar {
            Some(bar) => bar.println(text),
            None => {
                let _ = writeln!(self.out, "{text}");
                let _ = self.out.flush();
            }
        }
    }
}

impl<W: Write> Observer for Progress<W> {
    fn scenario_started(&mut self, name: &str, steps: &[&str]) {
        (self.step, self.steps) = (0, steps.len());
        self.line(&format!("{name}: {} steps", steps.len()));
        if self.live {
            let bar = ProgressBar::new(steps.len() as u64);
            // A template that does not parse shows as indicatif's own.
            if let Ok(style) = ProgressStyle::with_template("{spinner} [{pos}/{len}] {msg} {elapsed:.dim}") {
                bar.set_style(style);
            }
            bar.enable_steady_tick(Duration::from_millis(100));
            self.bar = Some(bar);
        }
    }

    fn step_started(&mut self, name: &str) {
        self.step += 1;
        if let Some(bar) = &self.bar {
            bar.set_message(name.to_owned());
        }
    }

    fn message(&mut self, text: &str) {
        self.line(&format!("        {text}"));
    }

    fn step_ended(&mut self, step: &StepReport) {
        let mut text = format!(
            "[{}/{}] {}: {}, {:.1} s",
            self.step,
            self.steps,
            step.name,
            step.outcome.text(),
            step.seconds
        );
        if let Some(connections) = step.connections {
            text = format!("{text}, {connections} connections");
        }
        if let Some(lost) = step.lost {
            text = format!("{text}, {lost} lost");
        }
        self.line(&text);
        if let Some(error) = &step.error {
            self.line(&format!("        {}", error.replace('\n', "\n        ")));
        }
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
    }

    fn scenario_ended(&mut self, scenario: &ScenarioReport) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        let missed = scenario.steps.iter().filter(|step| step.outcome == Outcome::NotReached).count();
        let result = if scenario.passed() { "passed" } else { "failed" };
        let rest = if missed > 0 { format!(", {missed} steps not reached") } else { String::new() };
        self.line(&format!("{}: {result}, {:.1} s{rest}", scenario.name, scenario.seconds));
    }
}
