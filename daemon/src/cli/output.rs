//! How results are written: tables for people, JSON and YAML for machines.

use std::io::{IsTerminal as _, Write};

use comfy_table::{ContentArrangement, Table, TableStyle};
use serde::Serialize;

use super::Failure;

/// Form of the result on standard output.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// For people; may change between versions.
    #[default]
    Table,
    /// For machines.
    Json,
    /// For machines and people.
    Yaml,
}

/// A list that can be shown as a table.
pub trait Rows: Serialize {
    /// Column titles.
    fn header(&self) -> Vec<&'static str>;
    /// One line an item, as many cells as titles.
    fn rows(&self) -> Vec<Vec<String>>;
    /// Said in place of a table without lines.
    fn nothing(&self) -> &'static str;
}

/// Writes a list in a form.
pub fn list(out: &mut dyn Write, format: Format, rows: &impl Rows) -> Result<(), Failure> {
    match format {
        Format::Table => out.write_all(table(rows).as_bytes())?,
        Format::Json | Format::Yaml => data(out, format, rows)?,
    }
    Ok(())
}

/// Writes a value as JSON (also for [`Format::Table`]) or YAML.
pub fn data(out: &mut dyn Write, format: Format, value: &impl Serialize) -> Result<(), Failure> {
    if format == Format::Yaml {
        let text = serde_saphyr::to_string(value)
            .map_err(|e| Failure::Form { form: "yaml", cause: e.to_string() })?;
        out.write_all(text.as_bytes())?;
        if !text.ends_with('\n') {
            writeln!(out)?;
        }
    } else {
        let text = serde_json::to_string_pretty(value)
            .map_err(|e| Failure::Form { form: "json", cause: e.to_string() })?;
        writeln!(out, "{text}")?;
    }
    Ok(())
}

/// The table's text. Only a terminal gets lines cut to its width.
pub(super) fn table(rows: &impl Rows) -> String {
    let lines = rows.rows();
    if lines.is_empty() {
        return format!("{}\n", rows.nothing());
    }
    aligned(Some(rows.header()), lines)
}

/// Names and values, one pair a line.
pub(super) fn pairs(pairs: Vec<(&str, String)>) -> String {
    aligned(None, pairs.into_iter().map(|(name, value)| vec![name.into(), value]).collect())
}

fn aligned(header: Option<Vec<&'static str>>, lines: Vec<Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(TableStyle::new());
    if std::io::stdout().is_terminal() {
        table.set_content_arrangement(ContentArrangement::Dynamic);
    } else {
        table.force_no_tty();
    }
    if let Some(header) = header {
        table.set_header(header);
    }
    table.add_rows(lines);
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let mut text = String::new();
    for line in table.lines() {
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// `1 backend`, `2 backends`.
pub(super) fn count(n: usize, one: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{n} {one}s") }
}
