//! The `weir` program: parses the command line and does what it says.

use std::process::ExitCode;

use clap::Parser as _;
use weir::cli::Cli;

fn main() -> ExitCode {
    Cli::parse().run(&mut std::io::stdout().lock()).into()
}
