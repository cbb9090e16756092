//! A scenario as a list of declared steps: run in order; when one fails, write captures down, heal, then diagnose.
//!
//! ```
//! use labkit::step::{Scenario, Silent};
//!
//! let report = Scenario::<Vec<&str>>::new("a gateway dies")
//!     .step("traffic runs", |step| {
//!         step.state.push("traffic");
//!         step.connections(1);
//!         Ok(())
//!     })
//!     .step("kill it", |step| {
//!         step.mark("gw1 killed");
//!         Ok(())
//!     })
//!     .run(&mut Vec::new(), &mut Silent);
//! assert!(report.passed());
//! ```
//!
//! Steps are ordinary functions on the caller's thread. A step that has something asynchronous to do blocks on its own
//! runtime; a future asynchronous step would be one more kind of [`Scenario::step`], with the same record.

use std::any::Any;
use std::error::Error;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use crate::capture::Tap;
use crate::pcap;
use crate::report::{
    CaptureReport, Diagram, Mark, Outcome, PacketReport, ScenarioReport, Series, StepReport,
};

/// Why a step failed.
pub type Failure = Box<dyn Error + Send + Sync>;

/// Decoded frames of each capture in a report; the pcap file has them all.
const DECODED: usize = 12;

type Action<S> = Box<dyn FnOnce(&mut Step<'_, S>) -> Result<(), Failure>>;
type Heal<S> = Box<dyn FnMut(&mut S) -> Result<(), Failure>>;
type Diagnose<S> = Box<dyn FnMut(&mut S) -> Result<String, Failure>>;

/// A scenario under declaration; `S` is what its steps share, such as a running lab.
#[must_use = "a scenario does nothing until `run`"]
pub struct Scenario<S> {
    name: String,
    parameters: Vec<(String, String)>,
    diagram: Option<Diagram>,
    folder: Option<PathBuf>,
    steps: Vec<(String, Action<S>)>,
    heal: Vec<(String, Heal<S>)>,
    diagnose: Vec<(String, Diagnose<S>)>,
}

/// Follows a run as it happens.
pub trait Observer {
    /// A scenario with these steps begins.
    fn scenario_started(&mut self, _name: &str, _steps: &[&str]) {}
    /// A step begins.
    fn step_started(&mut self, _name: &str) {}
    /// A step has something to say.
    fn message(&mut self, _text: &str) {}
    /// A step ended.
    fn step_ended(&mut self, _step: &StepReport) {}
    /// The scenario ended.
    fn scenario_ended(&mut self, _scenario: &ScenarioReport) {}
}

/// An observer that shows nothing.
#[derive(Debug, Clone, Copy)]
pub struct Silent;

impl Observer for Silent {}

/// What a running step works with, and where it writes down what it did.
pub struct Step<'a, S> {
    /// What the scenario's steps share.
    pub state: &'a mut S,
    record: &'a mut StepReport,
    run: &'a mut Run,
    observer: &'a mut dyn Observer,
}

/// What a run gathers beside its steps.
struct Run {
    started: Instant,
    series: Vec<Series>,
    marks: Vec<Mark>,
    taps: Vec<Tap>,
}

impl<S> Step<'_, S> {
    /// Writes a message into the report and shows it.
    pub fn say(&mut self, text: impl Into<String>) {
        let text = text.into();
        self.observer.message(&text);
        self.record.messages.push(text);
    }

    /// Counts connections made.
    pub fn connections(&mut self, count: u64) {
        *self.record.connections.get_or_insert(0) += count;
    }

    /// Counts what was lost; counting 0 says that losses were looked for.
    pub fn lost(&mut self, count: u64) {
        *self.record.lost.get_or_insert(0) += count;
    }

    /// Marks this moment in the pictures over time; returns a handle for [`Step::mark_healed`].
    pub fn mark(&mut self, label: impl Into<String>) -> MarkId {
        let at = self.now();
        self.run.marks.push(Mark { at, until: None, label: label.into() });
        MarkId(self.run.marks.len() - 1)
    }

    /// Says that what a mark stands for is over.
    pub fn mark_healed(&mut self, id: MarkId) {
        let now = self.now();
        if let Some(mark) = self.run.marks.get_mut(id.0) {
            mark.until = Some(now);
        }
    }

    /// Seconds since the scenario's start: the time base of series and marks.
    pub fn now(&self) -> f64 {
        self.run.started.elapsed().as_secs_f64()
    }

    /// When the scenario started.
    pub fn started(&self) -> Instant {
        self.run.started
    }

    /// Adds a quantity over time, with times since the scenario's start.
    pub fn series(&mut self, series: Series) {
        self.run.series.push(series);
    }

    /// Keeps a capture's recent frames as a pcap file if this or a later step fails.
    pub fn keep(&mut self, tap: Tap) {
        self.run.taps.push(tap);
    }
}

/// Names a mark that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MarkId(usize);

impl<S> Scenario<S> {
    /// A scenario without steps.
    pub fn new(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            parameters: Vec::new(),
            diagram: None,
            folder: None,
            steps: Vec::new(),
            heal: Vec::new(),
            diagnose: Vec::new(),
        }
    }

    /// Notes a parameter, such as a seed, in the report.
    pub fn parameter(mut self, name: &str, value: impl ToString) -> Self {
        self.parameters.push((name.to_owned(), value.to_string()));
        self
    }

    /// What is drawn in the report.
    pub fn diagram(mut self, diagram: impl Into<Diagram>) -> Self {
        self.diagram = Some(diagram.into());
        self
    }

    /// Where captures of a failed step are written; without it they are not.
    pub fn folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.folder = Some(folder.into());
        self
    }

    /// Declares the next step. A panic in it, such as a failed assertion, fails the step and not the run.
    pub fn step(
        mut self,
        name: impl Into<String>,
        action: impl FnOnce(&mut Step<'_, S>) -> Result<(), Failure> + 'static,
    ) -> Self {
        self.steps.push((name.into(), Box::new(action)));
        self
    }

    /// What to do first when a step fails: undo faults, so that the diagnosis sees the product's own state.
    pub fn heal(
        mut self,
        name: impl Into<String>,
        action: impl FnMut(&mut S) -> Result<(), Failure> + 'static,
    ) -> Self {
        self.heal.push((name.into(), Box::new(action)));
        self
    }

    /// What to find out after healing when a step fails; the text goes into the report under `name`.
    pub fn diagnose(
        mut self,
        name: impl Into<String>,
        action: impl FnMut(&mut S) -> Result<String, Failure> + 'static,
    ) -> Self {
        self.diagnose.push((name.into(), Box::new(action)));
        self
    }

    /// Runs the steps until one fails. The report has them all.
    pub fn run(mut self, state: &mut S, observer: &mut dyn Observer) -> ScenarioReport {
        let names: Vec<&str> = self.steps.iter().map(|(name, _)| name.as_str()).collect();
        observer.scenario_started(&self.name, &names);
        let mut run =
            Run { started: Instant::now(), series: Vec::new(), marks: Vec::new(), taps: Vec::new() };
        let began = SystemTime::now();
        let mut steps = Vec::with_capacity(self.steps.len());
        let mut failed = false;
        for (name, action) in std::mem::take(&mut self.steps) {
            let mut record = StepReport { name, ..StepReport::default() };
            if failed {
                steps.push(record);
                continue;
            }
            observer.step_started(&record.name);
            record.at = run.started.elapsed().as_secs_f64();
            let result = guarded(|| {
                action(&mut Step { state, record: &mut record, run: &mut run, observer: &mut *observer })
            });
            record.seconds = run.started.elapsed().as_secs_f64() - record.at;
            match result {
                Ok(()) => record.outcome = Outcome::Passed,
                Err(error) => {
                    failed = true;
                    record.outcome = Outcome::Failed;
                    record.error = Some(chain(error.as_ref()));
                    self.after_failure(state, &mut record, &run, began);
                }
            }
            observer.step_ended(&record);
            steps.push(record);
        }
        let report = ScenarioReport {
            name: self.name,
            parameters: self.parameters,
            seconds: run.started.elapsed().as_secs_f64(),
            steps,
            series: run.series,
            marks: run.marks,
            diagram: self.diagram,
        };
        observer.scenario_ended(&report);
        report
    }

    fn after_failure(&mut self, state: &mut S, record: &mut StepReport, run: &Run, began: SystemTime) {
        // Frames first: healing sends some of its own, which would push those of the failure out of the rings.
        if let Some(folder) = &self.folder {
            for (n, tap) in run.taps.iter().enumerate() {
                let file =
                    format!("{}-{}-{n}-{}.pcap", slug(&self.name), slug(&record.name), slug(tap.name()));
                match write_capture(folder, &file, tap, began) {
                    Ok(capture) => record.captures.push(capture),
                    Err(e) => record.diagnosis.push((format!("capture {}", tap.name()), chain(e.as_ref()))),
                }
            }
        }
        for (name, heal) in &mut self.heal {
            if let Err(e) = guarded(|| heal(state)) {
                record.diagnosis.push((format!("heal {name}"), chain(e.as_ref())));
            }
        }
        for (name, diagnose) in &mut self.diagnose {
            let text =
                guarded(|| diagnose(state)).unwrap_or_else(|e| format!("failed: {}", chain(e.as_ref())));
            record.diagnosis.push((name.clone(), text));
        }
    }
}

/// Runs `action`; a panic becomes a failure with its text.
fn guarded<T>(action: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    catch_unwind(AssertUnwindSafe(action)).unwrap_or_else(|panic| Err(panic_text(panic.as_ref()).into()))
}

fn panic_text(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic without text".into())
}

/// An error and what caused it, outermost first.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let inner_text = inner.to_string();
        // Many errors already say what their source says.
        if !text.contains(&inner_text) {
            text = format!("{text}: {inner_text}");
        }
        cause = inner.source();
    }
    text
}

fn write_capture(folder: &Path, file: &str, tap: &Tap, began: SystemTime) -> Result<CaptureReport, Failure> {
    let frames = tap.frames();
    fs::create_dir_all(folder).map_err(|e| format!("create folder {}: {e}", folder.display()))?;
    pcap::write(&folder.join(file), &frames)?;
    let packets = frames.iter().skip(frames.len().saturating_sub(DECODED)).map(|frame| PacketReport {
        number: frame.number,
        at: match frame.at.duration_since(began) {
            Ok(after) => after.as_secs_f64(),
            Err(before) => -before.duration().as_secs_f64(),
        },
        bytes: frame.bytes.len(),
        decoded: frame.layers().to_string(),
    });
    Ok(CaptureReport {
        name: tap.name().to_owned(),
        file: file.to_owned(),
        frames: frames.len(),
        packets: packets.collect(),
    })
}

/// A name as part of a file name.
fn slug(name: &str) -> String {
    let plain: String =
        name.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    plain.split('-').filter(|part| !part.is_empty()).collect::<Vec<_>>().join("-")
}
