//! What is wrong with an object or a configuration: field, value, problem and remedy, one sentence each.

use std::fmt;
use std::path::PathBuf;

/// Whether a problem refuses the object.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// The object is refused.
    #[default]
    Error,
    /// The object is used; its author should look again.
    Warning,
}

/// One rule that one field breaks.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Problem {
    /// Refusal or warning.
    pub severity: Severity,
    /// Path of the field, such as `spec.backends[2].port`; empty for the whole document.
    pub field: String,
    /// The value as it was written; empty when the field is missing or the value says nothing.
    pub value: String,
    /// What is wrong, as a predicate of the value: `differs from the rule's port 443`.
    pub problem: String,
    /// What to do about it.
    pub remedy: String,
}

impl Problem {
    /// A refusal.
    pub fn error(
        field: impl Into<String>,
        value: impl fmt::Display,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self {
            severity: Severity::Error,
            field: field.into(),
            value: value.to_string(),
            problem: problem.into(),
            remedy: remedy.into(),
        }
    }

    /// A warning.
    pub fn warning(
        field: impl Into<String>,
        value: impl fmt::Display,
        problem: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        Self { severity: Severity::Warning, ..Self::error(field, value, problem, remedy) }
    }

    /// Places the problem in a file.
    pub fn at(self, path: impl Into<PathBuf>, line: u64) -> FileProblem {
        FileProblem { path: path.into(), line, problem: self }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.field.is_empty() {
            write!(f, "{}: ", self.field)?;
        }
        if self.severity == Severity::Warning {
            f.write_str("warning: ")?;
        }
        if !self.value.is_empty() {
            // A value is whatever somebody wrote: never let it break the line or the terminal.
            for c in self.value.chars().take(120) {
                if c.is_control() { write!(f, "{}", c.escape_default())? } else { write!(f, "{c}")? }
            }
            f.write_str(" ")?;
        }
        f.write_str(&self.problem)?;
        if self.remedy.is_empty() { Ok(()) } else { write!(f, "; {}", self.remedy) }
    }
}

/// A [`Problem`] with its place: `objects.d/web.yaml:12: spec.port: …`.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct FileProblem {
    /// The file as it was named.
    pub path: PathBuf,
    /// Line, counted from 1; 0 when the problem has none (a file that cannot be read).
    pub line: u64,
    /// What is wrong.
    #[serde(flatten)]
    pub problem: Problem,
}

impl FileProblem {
    /// Whether the file is refused for it.
    pub fn is_error(&self) -> bool {
        self.problem.severity == Severity::Error
    }
}

impl fmt::Display for FileProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => write!(f, "{}: {}", self.path.display(), self.problem),
            line => write!(f, "{}:{line}: {}", self.path.display(), self.problem),
        }
    }
}

impl std::error::Error for FileProblem {}

/// Whether any of these problems refuses the object.
pub(crate) fn refuses(problems: &[Problem]) -> bool {
    problems.iter().any(|p| p.severity == Severity::Error)
}
