//! What a run found out, as plain data; every writer of this folder starts from it.

use serde::{Deserialize, Serialize};

/// A whole run: one or more scenarios.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// What the page is headed by.
    pub title: String,
    /// When the run began, seconds since the epoch.
    pub started: u64,
    /// How long it took, seconds.
    pub seconds: f64,
    /// Facts worth keeping with the result: kernel, versions, seed.
    #[serde(default)]
    pub facts: Vec<(String, String)>,
    /// In the order they ran.
    pub scenarios: Vec<ScenarioReport>,
}

/// One scenario.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ScenarioReport {
    /// Its name.
    pub name: String,
    /// Parameters it ran with, such as a seed.
    #[serde(default)]
    pub parameters: Vec<(String, String)>,
    /// How long it took, seconds.
    pub seconds: f64,
    /// Every declared step, reached or not.
    pub steps: Vec<StepReport>,
    /// What was measured over time.
    #[serde(default)]
    pub series: Vec<Series>,
    /// When something was broken or done on purpose.
    #[serde(default)]
    pub marks: Vec<Mark>,
    /// What it ran on.
    #[serde(default)]
    pub diagram: Option<Diagram>,
}

/// How a step ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It did what it should.
    Passed,
    /// It did not.
    Failed,
    /// A step before it failed.
    #[default]
    NotReached,
}

impl Outcome {
    /// As people read it.
    pub const fn text(self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Failed => "failed",
            Self::NotReached => "not reached",
        }
    }
}

/// One step.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct StepReport {
    /// Its name.
    pub name: String,
    /// How it ended.
    pub outcome: Outcome,
    /// When it began, seconds since the scenario's start.
    pub at: f64,
    /// How long it took, seconds.
    pub seconds: f64,
    /// Connections that clients made in it; none if it made none.
    pub connections: Option<u64>,
    /// Packets or connections lost in it; none if it did not count them.
    pub lost: Option<u64>,
    /// What it had to say.
    #[serde(default)]
    pub messages: Vec<String>,
    /// Why it failed.
    #[serde(default)]
    pub error: Option<String>,
    /// What was found out after it failed, as (title, text).
    #[serde(default)]
    pub diagnosis: Vec<(String, String)>,
    /// Captures kept because it failed.
    #[serde(default)]
    pub captures: Vec<CaptureReport>,
}

/// A capture of a failed step.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CaptureReport {
    /// Namespace and interface.
    pub name: String,
    /// The pcap file, relative to the report.
    pub file: String,
    /// Frames in the file.
    pub frames: usize,
    /// The last frames, decoded, oldest first.
    pub packets: Vec<PacketReport>,
}

/// A decoded frame.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct PacketReport {
    /// Its number in the capture.
    pub number: u64,
    /// When, seconds since the scenario's start; negative for one from before.
    pub at: f64,
    /// Length in bytes.
    pub bytes: usize,
    /// One line a layer.
    pub decoded: String,
}

/// A quantity over time.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// What it is.
    pub name: String,
    /// Its unit, such as `connections/s`.
    pub unit: String,
    /// (seconds since the scenario's start, value), in order of time.
    pub points: Vec<(f64, f64)>,
}

/// Something that happened on purpose.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// Seconds since the scenario's start.
    pub at: f64,
    /// When it was healed; none for a moment, or if it never was.
    #[serde(default)]
    pub until: Option<f64>,
    /// What it was.
    pub label: String,
}

/// A topology as far as a drawing needs it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Diagram {
    /// Its nodes, in the order they were declared.
    pub nodes: Vec<DiagramNode>,
    /// Its links.
    pub links: Vec<DiagramLink>,
}

/// A node of a drawing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiagramNode {
    /// Name.
    pub name: String,
    /// What it is, such as `gateway`; nodes of one role look alike.
    pub role: String,
    /// The row it stands in, counted from the top. Without one it follows from the distance to the first node.
    #[serde(default)]
    pub rank: Option<usize>,
}

/// A link of a drawing.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiagramLink {
    /// One end, (node, interface).
    pub a: (String, String),
    /// The other end.
    pub b: (String, String),
}

impl Report {
    /// True if there is a scenario and each passed.
    pub fn passed(&self) -> bool {
        !self.scenarios.is_empty() && self.scenarios.iter().all(ScenarioReport::passed)
    }

    /// All steps of all scenarios.
    pub fn steps(&self) -> impl Iterator<Item = &StepReport> {
        self.scenarios.iter().flat_map(|scenario| &scenario.steps)
    }
}

impl ScenarioReport {
    /// True if it has a step and each passed.
    pub fn passed(&self) -> bool {
        !self.steps.is_empty() && self.steps.iter().all(|step| step.outcome == Outcome::Passed)
    }

    /// The step that failed.
    pub fn failure(&self) -> Option<&StepReport> {
        self.steps.iter().find(|step| step.outcome == Outcome::Failed)
    }
}

impl From<&crate::topology::Topology> for Diagram {
    fn from(topology: &crate::topology::Topology) -> Self {
        let node = |node: &crate::topology::Node| DiagramNode {
            name: node.name.clone(),
            role: if node.role.is_plain() { String::new() } else { "router".into() },
            rank: None,
        };
        let end = |end: &crate::topology::Endpoint| (end.node.clone(), end.interface.clone());
        Self {
            nodes: topology.nodes.iter().map(node).collect(),
            links: topology.links.iter().map(|l| DiagramLink { a: end(&l.a), b: end(&l.b) }).collect(),
        }
    }
}

impl Diagram {
    /// Says what a node is.
    #[must_use]
    pub fn role(mut self, node: &str, role: &str) -> Self {
        for found in self.nodes.iter_mut().filter(|n| n.name == node) {
            role.clone_into(&mut found.role);
        }
        self
    }

    /// Says which row a node stands in.
    #[must_use]
    pub fn rank(mut self, node: &str, rank: usize) -> Self {
        for found in self.nodes.iter_mut().filter(|n| n.name == node) {
            found.rank = Some(rank);
        }
        self
    }
}
