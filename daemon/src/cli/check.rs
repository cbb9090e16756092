//! `weir check`: every problem of a configuration and its objects, without touching the system.

use std::io::Write;
use std::path::PathBuf;

use super::output::{self, Format};
use super::{Exit, Failure};
use crate::check::{self, Report};

/// Arguments of `weir check`.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("Exit status 0 when nothing is refused (there may be warnings), 1 when something is, 2 when the configuration or
the objects' directory cannot be read at all.

Example:
  weir check --config /etc/weir/weir.yaml --output json

{}", super::EXIT_CODES))]
pub(super) struct Args {
    /// Configuration file
    #[arg(long, value_name = "FILE", env = "WEIR_CONFIG", hide_env_values = true, default_value = super::node::DEFAULT_CONFIG)]
    config: PathBuf,
    /// Form of the result
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<Exit, Failure> {
    let report = check::check(&args.config);
    match args.output {
        Format::Table => out.write_all(text(&report).as_bytes())?,
        Format::Json | Format::Yaml => output::data(out, args.output, &report)?,
    }
    Ok(match report.exit_code() {
        0 => Exit::Fine,
        1 => Exit::Problems,
        _ => Exit::Usage,
    })
}

/// One problem a line, then a summary.
fn text(report: &Report) -> String {
    let mut lines: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
    let errors = report.problems.iter().filter(|problem| problem.is_error()).count();
    let warnings = report.problems.len() - errors;
    let rules = output::count(report.rules, "rule");
    let (errors, warnings) = (output::count(errors, "error"), output::count(warnings, "warning"));
    lines.push(format!("{errors}, {warnings}; {rules} would be served\n"));
    lines.join("\n")
}
