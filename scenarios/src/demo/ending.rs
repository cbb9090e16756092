//! The end of the demo: the report's files, the table, and the exit status that both agree with.

use std::io::Write;
use std::path::Path;

use labkit::report::{Report, table, write_all};

use super::NEXT;
use super::story::Story;
use crate::region::weir_binary;

/// Exit status when a step failed.
pub const FAILED: u8 = 1;

/// Writes the report's files, prints the table and where the files are, and returns the exit status.
///
/// # Errors
/// What could not be written.
pub fn tell(report: &Report, folder: &Path, out: &mut dyn Write) -> anyhow::Result<u8> {
    let files = write_all(report, folder)?;
    writeln!(out, "\n{}\n", table(report))?;
    writeln!(out, "report  {}", files.html.display())?;
    writeln!(out, "data    {}", files.json.display())?;
    Ok(if report.passed() { 0 } else { FAILED })
}

/// What was run where.
pub fn facts(story: &Story) -> Vec<(String, String)> {
    let version = |build| {
        let binary = weir_binary(build).ok()?;
        let output = std::process::Command::new(binary).arg("--version").output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        Some(text.strip_prefix("weir ").unwrap_or(&text).to_owned()).filter(|text| !text.is_empty())
    };
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let mut facts = vec![
        ("kernel".to_owned(), kernel.trim().to_owned()),
        ("processors".to_owned(), std::thread::available_parallelism().map_or(0, usize::from).to_string()),
    ];
    facts.extend(version(None).map(|version| ("weir".to_owned(), version)));
    facts.extend(version(Some(NEXT)).map(|version| ("upgraded to".to_owned(), version)));
    facts.extend(story.live().ok().map(|live| ("lab".to_owned(), live.lab.name().to_owned())));
    facts
}
