//! `weir gateway`: runs the daemon.

use std::path::PathBuf;

use super::{Exit, Failure};

/// Arguments of `weir gateway`.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("Signals:
  SIGHUP   read configuration and objects again
  SIGTERM  stop for a restart: XDP stays attached, routers keep the routes (graceful restart);
           leave for good when the host shuts down or the drain marker exists

Example:
  weir gateway --config /etc/weir/weir.yaml

{}", super::EXIT_CODES))]
pub(super) struct Args {
    /// Configuration file
    #[arg(long, value_name = "FILE", env = "WEIR_CONFIG", hide_env_values = true, default_value = super::node::DEFAULT_CONFIG)]
    config: PathBuf,
}

pub(super) fn run(args: &Args) -> Result<Exit, Failure> {
    crate::run::gateway(&args.config)?;
    Ok(Exit::Fine)
}
