//! `weir worker`: runs the worker; what it has loaded, counted and verified.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::PathBuf;

use clap::Subcommand;
use weir_bpf::worker_abi::Reason;

use super::output::{self, Format, Rows};
use super::{Exit, Failure};
use crate::config::WorkerConfig;
use crate::worker::maps::{self, Maps, Row};
use crate::worker::status::{Bound, WorkerStatus};

/// Configuration file when none is named.
const DEFAULT_CONFIG: &str = "/etc/weir/worker.yaml";

/// Arguments of `weir worker`.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("Signals:
  SIGHUP   read configuration and objects again
  SIGTERM  stop; what is pinned goes on delivering

Examples:
  weir worker --config /etc/weir/worker.yaml
  weir worker show
  weir worker drops --all
  weir worker detach

{}", super::EXIT_CODES))]
pub(super) struct Args {
    /// Configuration file
    #[arg(long, global = true, value_name = "FILE", env = "WEIR_WORKER_CONFIG", hide_env_values = true, default_value = DEFAULT_CONFIG)]
    config: PathBuf,
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Debug, Subcommand)]
enum What {
    /// What is delivered to which endpoint, with counters
    Show {
        /// Form of the result
        #[arg(long, short, value_enum, default_value_t)]
        output: Format,
    },
    /// Bindings of this node and whether each is in effect
    Bindings {
        /// Form of the result
        #[arg(long, short, value_enum, default_value_t)]
        output: Format,
    },
    /// Packets by the reason for which they left
    Drops {
        /// Every reason, not only those that dropped one
        #[arg(long)]
        all: bool,
        /// Form of the result
        #[arg(long, short, value_enum, default_value_t)]
        output: Format,
    },
    /// Take away all that the worker has attached, pinned and placed
    Detach,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<Exit, Failure> {
    let open = || -> Result<Maps, Failure> {
        let config = WorkerConfig::load(&args.config)?;
        let set = maps::sets(&config.pins).map_err(usage)?.into_iter().next_back();
        let none = || {
            Failure::Usage(format!(
                "no worker's maps are pinned below {}; start weir worker",
                config.pins.display()
            ))
        };
        Maps::open_set(&set.ok_or_else(none)?).map_err(usage)
    };
    match &args.what {
        None => crate::run::worker(&args.config)?,
        Some(What::Show { output }) => {
            output::list(out, *output, &Deliveries(open()?.rows().map_err(usage)?))?;
        }
        Some(What::Bindings { output }) => {
            let config = WorkerConfig::load(&args.config)?;
            let status = WorkerStatus::read(&config.status).map_err(|e| {
                Failure::Usage(format!("read {}: {e}; start weir worker", config.status.display()))
            })?;
            let unbound = status.bindings.values().any(|b| !b.bound);
            output::list(out, *output, &Bindings(status.bindings))?;
            return Ok(if unbound { Exit::Problems } else { Exit::Fine });
        }
        Some(What::Drops { all, output }) => {
            let maps = open()?;
            let row = |reason: &Reason| ReasonRow {
                reason: reason.name(),
                packets: maps.reason_total(*reason),
                meaning: reason.help(),
            };
            let mut rows: Vec<ReasonRow> = Reason::ALL.iter().map(row).collect();
            if !all {
                rows.retain(|row| row.packets > 0 && row.meaning.starts_with("dropped"));
            }
            output::list(out, *output, &Reasons(rows))?;
        }
        Some(What::Detach) => crate::run::detach_worker(&args.config)?,
    }
    Ok(Exit::Fine)
}

fn usage(error: crate::dataplane::Error) -> Failure {
    Failure::Usage(error.to_string())
}

/// `worker show`.
#[derive(Debug, serde::Serialize)]
#[serde(transparent)]
struct Deliveries(Vec<Row>);

impl Rows for Deliveries {
    fn header(&self) -> Vec<&'static str> {
        vec!["VIP", "SID", "VPC", "BACKEND", "INTERFACE", "IN", "IN BYTES", "OUT", "OUT BYTES"]
    }
    fn rows(&self) -> Vec<Vec<String>> {
        let row = |r: &Row| {
            let interface =
                if r.present { r.interface.clone() } else { format!("{} (missing)", r.interface) };
            vec![
                r.vip.to_string(),
                r.sid.clone(),
                r.vpc.clone(),
                r.backend.to_string(),
                interface,
                r.received.packets.to_string(),
                r.received.bytes.to_string(),
                r.sent.packets.to_string(),
                r.sent.bytes.to_string(),
            ]
        };
        self.0.iter().map(row).collect()
    }
    fn nothing(&self) -> &'static str {
        "nothing is delivered on this node"
    }
}

/// `worker bindings`.
#[derive(Debug, serde::Serialize)]
#[serde(transparent)]
struct Bindings(BTreeMap<String, Bound>);

impl Rows for Bindings {
    fn header(&self) -> Vec<&'static str> {
        vec!["BINDING", "BOUND", "REASON", "MESSAGE"]
    }
    fn rows(&self) -> Vec<Vec<String>> {
        let row = |(name, b): (&String, &Bound)| {
            let bound = if b.bound { "True" } else { "False" };
            vec![name.clone(), bound.into(), b.reason.clone(), b.message.clone()]
        };
        self.0.iter().map(row).collect()
    }
    fn nothing(&self) -> &'static str {
        "no binding names this node"
    }
}

/// One line of `worker drops`.
#[derive(Debug, serde::Serialize)]
struct ReasonRow {
    reason: &'static str,
    packets: u64,
    meaning: &'static str,
}

/// `worker drops`.
#[derive(Debug, serde::Serialize)]
#[serde(transparent)]
struct Reasons(Vec<ReasonRow>);

impl Rows for Reasons {
    fn header(&self) -> Vec<&'static str> {
        vec!["REASON", "PACKETS", "MEANING"]
    }
    fn rows(&self) -> Vec<Vec<String>> {
        self.0.iter().map(|r| vec![r.reason.into(), r.packets.to_string(), r.meaning.into()]).collect()
    }
    fn nothing(&self) -> &'static str {
        "no packet has been dropped"
    }
}
