//! The command line: one verb group a file. `main` parses and calls [`Cli::run`].

pub mod capture;
mod check;
mod completions;
mod drain;
pub mod explain;
mod failure;
pub mod follow;
mod gateway;
mod logging;
mod man;
mod node;
pub mod output;
pub mod show;
mod show_daemon;
#[cfg(test)]
mod tests;
pub mod trace;
mod worker;

use std::io::Write;

use clap::{Parser, Subcommand};

pub use failure::{Exit, Failure};
pub use logging::LogFormat;

use crate::status::VERSION;

const EXIT_CODES: &str = "Exit status:
  0  fine
  1  problems were found, or what was asked for was not found
  2  wrong usage, or something could not be read
  3  the daemon cannot be reached";

/// A regional layer-4 load balancer for bare-metal and edge clusters
#[derive(Debug, Parser)]
#[command(
    name = "weir",
    version = VERSION,
    after_help = format!("Examples:
  weir check --config /etc/weir/weir.yaml && weir gateway --config /etc/weir/weir.yaml
  weir show vips
  weir explain --vip '[2001:db8:100::1]:443' --client '[2001:db8:c::7]:40000'

{EXIT_CODES}"),
    propagate_version = true,
    subcommand_required = true,
    arg_required_else_help = true
)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    verb: Verb,
    /// Form of log lines on standard error [default: text on a terminal, else json]
    #[arg(long, global = true, value_enum, env = "WEIR_LOG_FORMAT", hide_env_values = true)]
    log_format: Option<LogFormat>,
    /// Which log lines to write, such as `info` or `weir=debug`
    #[arg(
        long,
        global = true,
        value_name = "FILTER",
        env = "WEIR_LOG",
        hide_env_values = true,
        default_value = "info"
    )]
    log: String,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Run a gateway: load the data plane, serve VIPs, announce them
    Gateway(gateway::Args),
    /// Run a worker: take packets out of their outer headers, deliver them, let replies out
    Worker(worker::Args),
    /// Show what is loaded, announced and counted
    Show(show::Args),
    /// Say which backend a flow goes to, and why
    Explain(explain::Args),
    /// Run a frame through the live program: verdict, backend, and the frame that would be sent
    Trace(trace::Args),
    /// Write what a gateway received for a VIP, and what it sent, to a file
    Capture(capture::Args),
    /// Check a configuration, its objects and this host; changes nothing
    Check(check::Args),
    /// Tell the gateway to leave for good: move traffic away, withdraw, detach
    Drain(drain::Args),
    /// Write a completion script for a shell
    Completions(completions::Args),
    /// Write manual pages
    Man(man::Args),
}

impl Cli {
    /// Does what the command line asks, writing to `out`; log lines and errors go to standard error.
    pub fn run(self, out: &mut dyn Write) -> Exit {
        let done = logging::start(self.log_format, &self.log).and_then(|()| match self.verb {
            Verb::Gateway(args) => gateway::run(&args),
            Verb::Worker(args) => worker::run(&args, out),
            Verb::Show(args) => show::run(&args, out),
            Verb::Explain(args) => explain::run(&args, out),
            Verb::Trace(args) => trace::run(&args, out),
            Verb::Capture(args) => capture::run(&args, out),
            Verb::Check(args) => check::run(&args, out),
            Verb::Drain(args) => drain::run(&args, out),
            Verb::Completions(args) => completions::run(&args, out),
            Verb::Man(args) => man::run(&args, out),
        });
        match done {
            Ok(exit) => exit,
            // Who closed our output has read all it wanted.
            Err(Failure::Write(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => Exit::Fine,
            // A daemon's last words belong to its log.
            Err(failure @ Failure::Gateway(_)) => {
                tracing::error!(error = %failure, "gateway failed");
                failure.exit()
            }
            Err(failure) => {
                let _ = writeln!(std::io::stderr(), "weir: {failure}");
                failure.exit()
            }
        }
    }
}
