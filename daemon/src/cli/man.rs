//! `weir man`: manual pages, from the command line's own definition.

use std::io::Write;
use std::path::PathBuf;

use clap::CommandFactory as _;

use super::{Cli, Exit, Failure};

/// Arguments of `weir man`.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("Examples:
  weir man | man -l -
  weir man --dir /usr/share/man/man1

{}", super::EXIT_CODES))]
pub(super) struct Args {
    /// Write one page a verb into this directory, which is created, and not weir(1) to standard output
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<Exit, Failure> {
    if let Some(dir) = &args.dir {
        let write =
            || std::fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(Cli::command(), dir));
        write().map_err(|e| {
            Failure::Usage(format!(
                "write manual pages to {}: {e}; give a directory to write to",
                dir.display()
            ))
        })?;
    } else {
        clap_mangen::Man::new(Cli::command()).render(out)?;
    }
    Ok(Exit::Fine)
}
