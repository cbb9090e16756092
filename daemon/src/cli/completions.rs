//! `weir completions`: a shell's completion script, from the command line's own definition.

use std::io::Write;

use clap::CommandFactory as _;
use clap_complete::Shell;

use super::{Cli, Exit, Failure};

/// Arguments of `weir completions`.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("Examples:
  weir completions bash > /usr/share/bash-completion/completions/weir
  weir completions zsh > /usr/share/zsh/site-functions/_weir

{}", super::EXIT_CODES))]
pub(super) struct Args {
    /// Shell
    shell: Shell,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<Exit, Failure> {
    // The generator panics when it cannot write: give it memory.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Cli::command(), "weir", &mut script);
    out.write_all(&script)?;
    Ok(Exit::Fine)
}
