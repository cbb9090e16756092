//! `weir show`: what the pinned maps hold, and what the daemon says of itself. The maps need no daemon.

use std::io::Write;
use std::path::PathBuf;

use clap::Subcommand;

use super::node::NodeArgs;
use super::output::{self, Format, Rows};
use super::{Exit, Failure, follow, show_daemon};
use crate::inspect::{
    self, BackendRow, Counters as _, DigestCheck, Exit as PacketExit, ExitRow, HopRow, RingRow, VipRow,
};
use crate::maglev::Seed;

/// Arguments of `weir show`.
#[derive(Debug, clap::Args)]
#[command(
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = format!("vips, backends, rings and drops are read from the pinned maps, with or without a daemon;
routes, peers, node and drops --follow are the daemon's own words.

Examples:
  weir show vips
  weir show backends --output json
  weir show rings --config /etc/weir/weir.yaml
  weir show drops --pins /sys/fs/bpf/weir --all
  weir show drops --follow --reason no_rule --output json

{}", super::EXIT_CODES)
)]
pub(super) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// VIPs that are loaded, with their rules, rings and counters
    Vips(Common),
    /// Backends, their SIDs, next hops and counters
    Backends(Common),
    /// Rings: who holds how many slots, and whether the slots have the digest on record
    Rings(RingArgs),
    /// Packets by the reason for which they were dropped
    Drops(DropArgs),
    /// Routes of this node and the peers that have been told
    Routes(Common),
    /// BGP peers
    Peers(Common),
    /// The gateway itself: readiness, interfaces, sources, rules
    Node(Common),
}

/// What every kind of `show` takes.
#[derive(Debug, clap::Args)]
struct Common {
    #[command(flatten)]
    node: NodeArgs,
    /// Form of the result
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,
}

#[derive(Debug, clap::Args)]
struct RingArgs {
    #[command(flatten)]
    common: Common,
    /// The region's hash key, which digests depend on [default: the file that the configuration names]
    #[arg(long, value_name = "FILE")]
    hash_key_file: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct DropArgs {
    #[command(flatten)]
    common: Common,
    /// Every reason for which a packet left the program, not only those that dropped one
    #[arg(long, conflicts_with = "follow")]
    all: bool,
    /// Dropped packets as it happens, decoded: a sample, `dropSamples` a second, CPU and reason
    #[arg(long, short)]
    follow: bool,
    /// With --follow, only these reasons
    #[arg(long, value_name = "REASON", requires = "follow", value_parser = follow::reason_name)]
    reason: Vec<String>,
    /// With --follow, end after so many
    #[arg(long, value_name = "N", requires = "follow", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<Exit, Failure> {
    match &args.what {
        What::Vips(common) => {
            let image = inspect::open(&common.node.resolve()?.pins)?.image()?;
            output::list(out, common.output, &Vips(image.vips))?;
        }
        What::Backends(common) => {
            let image = inspect::open(&common.node.resolve()?.pins)?.image()?;
            output::list(out, common.output, &Backends(image.backends))?;
        }
        What::Rings(args) => return rings(args, out),
        What::Drops(args) if args.follow => {
            let wanted = follow::Wanted { reasons: &args.reason, count: args.count };
            return follow::run(&args.common.node.resolve()?.admin, args.common.output, &wanted, out);
        }
        What::Drops(args) => {
            let mut exits = inspect::open(&args.common.node.resolve()?.pins)?.image()?.exits;
            if !args.all {
                exits.retain(|exit| exit.outcome == PacketExit::Dropped && exit.packets > 0);
            }
            output::list(out, args.common.output, &Exits(exits))?;
        }
        What::Routes(common) => {
            return show_daemon::routes(&common.node.resolve()?.admin, common.output, out);
        }
        What::Peers(common) => {
            return show_daemon::peers(&common.node.resolve()?.admin, common.output, out);
        }
        What::Node(common) => {
            return show_daemon::node(&common.node.resolve()?.admin, common.output, out);
        }
    }
    Ok(Exit::Fine)
}

fn rings(args: &RingArgs, out: &mut dyn Write) -> Result<Exit, Failure> {
    let node = args.common.node.resolve()?;
    let maps = inspect::open(&node.pins)?;
    let image = maps.image()?;
    let seed = node.region_key(args.hash_key_file.as_deref())?.map(|key| Seed::from_region_key(&key));
    let rings = inspect::rings(&maps, &image, seed)?;
    let differs = rings.iter().any(|ring| matches!(ring.check, DigestCheck::Differs(_)));
    output::list(out, args.common.output, &Rings(rings))?;
    Ok(if differs { Exit::Problems } else { Exit::Fine })
}

/// `show vips`.
#[derive(Debug, serde::Serialize)]
#[serde(transparent)]
pub struct Vips(pub Vec<VipRow>);

impl Rows for Vips {
    fn header(&self) -> Vec<&'static str> {
        vec!["VIP", "RULE", "AFFINITY", "SLOTS", "RING DIGEST", "PACKETS", "BYTES"]
    }
    fn rows(&self) -> Vec<Vec<String>> {
        let row = |vip: &VipRow| {
            let (slots, digest) = match vip.slots {
                0 => ("not loaded".into(), String::new()),
                slots => (slots.to_string(), vip.digest.clone()),
            };
            let total = [vip.total.packets.to_string(), vip.total.bytes.to_string()];
            let [packets, bytes] = total;
            vec![
                vip.key.to_string(),
                vip.rule.to_string(),
                vip.affinity.into(),
                slots,
                digest,
                packets,
                bytes,
            ]
        };
        self.0.iter().map(row).collect()
    }
    fn nothing(&self) -> &'static str {
        "no VIP is loaded"
    }
}

/// `show backends`.
#[derive(Debug, serde::Serialize)]
#[serde(transparent)]
pub struct Backends(pub Vec<BackendRow>);

impl Rows for Backends {
    fn header(&self) -> Vec<&'static str> {
        vec!["BACKEND", "NODE", "SID", "NEXT HOPS", "MTU", "PACKETS", "BYTES"]
    }
    fn rows(&self) -> Vec<Vec<String>> {
        let row = |backend: &BackendRow| {
            let mtu = backend.next_hops.iter().map(|hop| hop.mtu).chain(backend.path_mtu).min();
            vec![
                backend.id.to_string(),
                backend.node.clone(),
                backend.sid.to_string(),
                hops(&backend.next_hops),
                mtu.map_or_else(String::new, |mtu| mtu.to_string()),
                backend.total.packets.to_string(),
                backend.total.bytes.to_string(),
            ]
        };
        self.0.iter().map(row).collect()
    }
    fn nothing(&self) -> &'static str {
        "no backend is loaded"
    }
}

/// Next hops in one cell.
pub(super) fn hops(hops: &[HopRow]) -> String {
    if hops.is_empty() {
        return "none".into();
    }
    hops.iter().map(|hop| format!("{} {}", hop.interface, hop.mac)).collect::<Vec<_>>().join(", ")
}

/// `show rings`.
#[derive(Debug, serde::Serialize)]
#[serde(transparent)]
pub struct Rings(pub Vec<RingRow>);

impl Rows for Rings {
    fn header(&self) -> Vec<&'static str> {
        vec!["RING", "SLOTS", "DIGEST", "CHECK", "VIPS", "BACKEND", "HELD"]
    }
    fn rows(&self) -> Vec<Vec<String>> {
        let mut lines = Vec::new();
        for ring in &self.0 {
            let check = match &ring.check {
                DigestCheck::Equal => "equal".into(),
                DigestCheck::Differs(found) => format!("DIFFERS: the slots have {found}"),
                DigestCheck::Unchecked => "unchecked: give --config or --hash-key-file".into(),
            };
            let vips = ring.vips.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ");
            let mut head =
                vec![ring.ring.to_string(), ring.slots.to_string(), ring.digest.clone(), check, vips];
            let members = ring.members.iter().map(|member| {
                let name = member
                    .backend
                    .as_ref()
                    .map_or_else(|| format!("unknown (index {})", member.index), ToString::to_string);
                (name, member.slots)
            });
            let empty = (ring.empty_slots > 0).then(|| ("no backend".to_string(), ring.empty_slots));
            for (name, slots) in members.chain(empty) {
                head.resize(5, String::new());
                head.extend([name, slots.to_string()]);
                lines.push(std::mem::take(&mut head));
            }
        }
        lines
    }
    fn nothing(&self) -> &'static str {
        "no ring is loaded"
    }
}

/// `show drops`.
#[derive(Debug, serde::Serialize)]
#[serde(transparent)]
pub struct Exits(pub Vec<ExitRow>);

impl Rows for Exits {
    fn header(&self) -> Vec<&'static str> {
        vec!["REASON", "PACKETS", "MEANING"]
    }
    fn rows(&self) -> Vec<Vec<String>> {
        self.0.iter().map(|e| vec![e.reason.into(), e.packets.to_string(), e.meaning.into()]).collect()
    }
    fn nothing(&self) -> &'static str {
        "no packet has been dropped"
    }
}
