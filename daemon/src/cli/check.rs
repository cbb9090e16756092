//! `weir check`: every problem of a configuration and its objects, and whether this host can serve. Changes nothing.

use std::io::Write;
use std::path::PathBuf;

use super::output::{self, Format};
use super::{Exit, Failure};
use crate::check::{self, Report};
use crate::config::Config;
use crate::preflight::{self, Finding, Host, Severity};

/// Arguments of `weir check`.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("Exit status 0 when nothing is refused (there may be warnings), 1 when something is, 2 when the configuration or
the objects' directory cannot be read at all.

Example:
  weir check --config /etc/weir/weir.yaml --output json
  weir check --offline --config weir.yaml        # in a build that holds the files only

{}", super::EXIT_CODES))]
pub(super) struct Args {
    /// Configuration file
    #[arg(long, value_name = "FILE", env = "WEIR_CONFIG", hide_env_values = true, default_value = super::node::DEFAULT_CONFIG)]
    config: PathBuf,
    /// Look at the files alone, not at this host
    #[arg(long)]
    offline: bool,
    /// Form of the result
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<Exit, Failure> {
    let report = check::check(&args.config);
    let host = match Config::load(&args.config) {
        Ok(config) if !args.offline => preflight::findings(&config, &Host::look(&config)?),
        _ => Vec::new(),
    };
    match args.output {
        Format::Table => out.write_all(text(&report, &host).as_bytes())?,
        Format::Json | Format::Yaml => {
            output::data(out, args.output, &Whole { report: &report, host: &host })?;
        }
    }
    let unfit = host.iter().any(|finding| finding.severity == Severity::Error);
    Ok(match report.exit_code().max(u8::from(unfit)) {
        0 => Exit::Fine,
        1 => Exit::Problems,
        _ => Exit::Usage,
    })
}

/// All that was found.
#[derive(serde::Serialize)]
struct Whole<'a> {
    #[serde(flatten)]
    report: &'a Report,
    host: &'a [Finding],
}

/// One problem a line, then a summary.
fn text(report: &Report, host: &[Finding]) -> String {
    let mut lines: Vec<String> = report.problems.iter().map(ToString::to_string).collect();
    lines.extend(host.iter().map(ToString::to_string));
    let of_host = |severity| host.iter().filter(|finding| finding.severity == severity).count();
    let in_files = report.problems.iter().filter(|problem| problem.is_error()).count();
    let errors = in_files + of_host(Severity::Error);
    let warnings = report.problems.len() - in_files + of_host(Severity::Warning);
    let rules = output::count(report.rules, "rule");
    let (errors, warnings) = (output::count(errors, "error"), output::count(warnings, "warning"));
    lines.push(format!("{errors}, {warnings}; {rules} would be served\n"));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_counts_what_is_wrong_with_the_host_too() {
        let finding = |severity| Finding {
            subject: "interface eth1".into(),
            severity,
            text: "is down".into(),
            remedy: String::new(),
        };
        let host = [Severity::Fine, Severity::Error, Severity::Warning, Severity::Error].map(finding);
        let text = text(&Report::default(), &host);
        assert!(text.ends_with("2 errors, 1 warning; 0 rules would be served\n"), "{text}");
    }
}
