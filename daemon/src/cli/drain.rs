//! `weir drain`: tells the daemon to leave for good, and can wait until it has.

use std::io::Write;
use std::path::Path;
use std::time::Duration;

use super::node::NodeArgs;
use super::{Exit, Failure, failure};
use crate::admin::{Client, ClientError};
use crate::desired::DrainStage;

/// Time between two looks at a draining daemon.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Arguments of `weir drain`.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("Routes get the community GRACEFUL_SHUTDOWN, are withdrawn after a while, and after another while the program is
detached and the daemon ends. Connections go on over the other gateways.

Examples:
  weir drain
  weir drain --wait --admin /run/weir/gateway.sock

{}", super::EXIT_CODES))]
pub(super) struct Args {
    #[command(flatten)]
    node: NodeArgs,
    /// Return when the gateway is detached, and not already when it has begun
    #[arg(long)]
    wait: bool,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<Exit, Failure> {
    let admin = args.node.resolve()?.admin;
    let client = Client::new(&admin);
    let message = failure::block_on(client.drain())?;
    writeln!(out, "{message}")?;
    if args.wait {
        let end = failure::block_on(detached(&client, &admin))?;
        writeln!(out, "{end}")?;
    }
    Ok(Exit::Fine)
}

/// Waits until the daemon has ended, which it does when all is detached. [`DrainStage::Detached`] is not enough: it says that
/// detaching may begin.
async fn detached(client: &Client, socket: &Path) -> Result<&'static str, ClientError> {
    let mut looks = tokio::time::interval(LOOK_EVERY);
    loop {
        looks.tick().await;
        match client.status().await {
            Ok(status) if status.drain == DrainStage::None => {
                let message = "it no longer drains; it may have been restarted".into();
                return Err(ClientError::Refused { socket: socket.into(), message });
            }
            Ok(_) => {}
            Err(error) if error.unreachable() => return Ok("the daemon has ended"),
            Err(error) => return Err(error),
        }
    }
}
