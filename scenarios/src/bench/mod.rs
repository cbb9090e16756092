//! Benchmarks: what a packet costs, what a ring costs, how the daemon fares with ten thousand rules.

pub mod cpu;
pub mod ring;
pub mod scale;
pub mod subjects;
pub mod trampoline;
pub mod xdp;

use std::path::PathBuf;

use anyhow::Context as _;
use comfy_table::{Cell, CellAlignment, Table};

/// One line with a bound: what was measured, and the most it may be.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Line {
    /// What was measured, in words.
    pub what: String,
    /// The measured value.
    pub value: f64,
    /// Its unit; `x` for a ratio.
    pub unit: &'static str,
    /// The bound, where there is one.
    pub at_most: Option<f64>,
}

impl Line {
    /// A value with its bound.
    pub fn new(what: impl Into<String>, value: f64, unit: &'static str, at_most: Option<f64>) -> Self {
        Self { what: what.into(), value, unit, at_most }
    }
    /// Whether the bound holds.
    pub fn holds(&self) -> bool {
        self.at_most.is_none_or(|bound| self.value <= bound)
    }
}

/// The lines as a table.
pub fn table(lines: &[Line]) -> Table {
    let mut table = Table::new();
    table.set_header(["measured", "value", "unit", "at most", "holds"]);
    for line in lines {
        let bound = line.at_most.map_or(String::new(), |bound| format!("{bound}"));
        let holds = match line.at_most {
            None => "",
            Some(_) if line.holds() => "yes",
            Some(_) => "NO",
        };
        table.add_row([
            Cell::new(&line.what),
            Cell::new(format!("{:.2}", line.value)).set_alignment(CellAlignment::Right),
            Cell::new(line.unit),
            Cell::new(bound).set_alignment(CellAlignment::Right),
            Cell::new(holds),
        ]);
    }
    table
}

/// Writes a result below `target/bench` and says where.
///
/// # Errors
/// What could not be written.
pub fn write(name: &str, value: &impl serde::Serialize) -> anyhow::Result<PathBuf> {
    let directory = crate::region::target_dir().join("bench");
    std::fs::create_dir_all(&directory).with_context(|| format!("create {}", directory.display()))?;
    let path = directory.join(name);
    let text = serde_json::to_string_pretty(value)? + "\n";
    std::fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    Ok(path)
}
