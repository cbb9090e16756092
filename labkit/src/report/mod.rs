//! Reports of a run: JSON for machines, JUnit for CI, one HTML page and a table for people, live progress.
//!
//! All start from [`Report`]. [`write_all`] leaves the three files in a folder, beside the kept captures.

mod chart;
mod diagram;
mod html;
mod json;
mod junit;
mod model;
mod progress;
mod table;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

pub use diagram::draw;
pub use html::html;
pub use json::{json, summary};
pub use junit::junit;
pub use model::{
    CaptureReport, Diagram, DiagramLink, DiagramNode, Mark, Outcome, PacketReport, Report, ScenarioReport,
    Series, StepReport,
};
pub use progress::Progress;
pub use table::table;

/// A report that could not be written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The file system refused.
    #[error("write report {path}: {cause}")]
    Io {
        /// File or folder.
        path: PathBuf,
        /// The system's answer.
        cause: io::Error,
    },
    /// The report could not be put into a form.
    #[error("write report as {form}: {cause}")]
    Form {
        /// JSON, JUnit or chart.
        form: &'static str,
        /// The writer's answer.
        cause: String,
    },
}

/// The files of a written report.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// The page.
    pub html: PathBuf,
    /// The data.
    pub json: PathBuf,
    /// For CI.
    pub junit: PathBuf,
}

/// Writes `report.html`, `report.json` and `junit.xml` into a folder, which is created if need be.
pub fn write_all(report: &Report, folder: &Path) -> Result<Files, Error> {
    fs::create_dir_all(folder).map_err(|cause| Error::Io { path: folder.to_owned(), cause })?;
    let write = |name: &str, text: String| {
        let path = folder.join(name);
        fs::write(&path, text).map_err(|cause| Error::Io { path: path.clone(), cause })?;
        Ok::<_, Error>(path)
    };
    Ok(Files {
        html: write("report.html", html(report)?)?,
        json: write("report.json", json(report)?)?,
        junit: write("junit.xml", junit(report)?)?,
    })
}
