//! Log lines: one event a line on standard error, for people on a terminal and JSON for machines.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

use super::Failure;

/// Form of log lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line.
    Json,
}

/// Starts logging for the whole process; once started, later calls change nothing.
pub(super) fn start(format: Option<LogFormat>, filter: &str) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(filter).map_err(|e| {
        Failure::Usage(format!(
            "read the log filter {filter:?}: {e}; give one such as `info` or `weir=debug`"
        ))
    })?;
    let terminal = std::io::stderr().is_terminal();
    let format = format.unwrap_or(if terminal { LogFormat::Text } else { LogFormat::Json });
    let builder =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_ansi(terminal);
    // Only a library's own tests start it twice; then the first one stays.
    let _ = match format {
        LogFormat::Text => builder.try_init(),
        LogFormat::Json => builder.json().flatten_event(true).with_current_span(false).try_init(),
    };
    Ok(())
}
