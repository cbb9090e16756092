//! `weir explain`: which backend a flow goes to and why, from the pinned maps and the region's hash key.

use std::io::Write;
use std::net::SocketAddr;
use std::path::PathBuf;

use super::node::NodeArgs;
use super::output::{self, Format};
use super::{Exit, Failure};
use crate::flow::{Flow, HashKey};
use crate::inspect::{self, Counters as _, ExplainedFlow};
use crate::model::{Protocol, mapped};

/// Arguments of `weir explain`.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("A flow that is sent to no backend ends with exit status 1 and says why.

Examples:
  weir explain --vip '[2001:db8:100::1]:443' --client '[2001:db8:c::7]:40000'
  weir explain --vip 192.0.2.1:443 --client 203.0.113.7:40000
  weir explain --vip '[2001:db8:100::1]:53' --client '[2001:db8:c::7]:5353' --protocol udp \\
    --hash-key-file /etc/weir/hash-key --pins /sys/fs/bpf/weir --output yaml

{}", super::EXIT_CODES))]
pub(super) struct Args {
    /// VIP and port
    #[arg(long, value_name = "ADDRESS:PORT")]
    vip: SocketAddr,
    /// Client's address and port
    #[arg(long, value_name = "ADDRESS:PORT")]
    client: SocketAddr,
    /// Protocol
    #[arg(long, value_enum, default_value_t)]
    protocol: Transport,
    /// The region's hash key [default: the file that the configuration names]
    #[arg(long, value_name = "FILE")]
    hash_key_file: Option<PathBuf>,
    #[command(flatten)]
    node: NodeArgs,
    /// Form of the result
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,
}

#[derive(Clone, Copy, Debug, Default, clap::ValueEnum)]
pub(super) enum Transport {
    #[default]
    Tcp,
    Udp,
}

impl From<Transport> for crate::frame::Transport {
    fn from(transport: Transport) -> Self {
        match transport {
            Transport::Tcp => Self::Tcp,
            Transport::Udp => Self::Udp,
        }
    }
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<Exit, Failure> {
    let node = args.node.resolve()?;
    let Some(key) = node.region_key(args.hash_key_file.as_deref())? else {
        return Err(Failure::Usage(
            "explain a flow: its backend depends on the region's hash key; name it with --hash-key-file or --config"
                .into(),
        ));
    };
    if args.vip.is_ipv4() != args.client.is_ipv4() {
        return Err(Failure::Usage(format!(
            "explain a flow from {} to {}: they are of two families, and no packet is; give a client of the VIP's family",
            args.client, args.vip
        )));
    }
    let key = HashKey::from_region_key(&key);
    let maps = inspect::open(&node.pins)?;
    let image = maps.image()?;
    let protocol = match args.protocol {
        Transport::Tcp => Protocol::Tcp,
        Transport::Udp => Protocol::Udp,
    };
    let flow = Flow {
        client: mapped(args.client.ip()),
        client_port: args.client.port(),
        vip: mapped(args.vip.ip()),
        vip_port: args.vip.port(),
        protocol: protocol.number(),
    };
    let identity = |index| maps.identity(index).ok().flatten();
    let explained = inspect::explain(&key, &maps, &image, identity, flow);
    match args.output {
        Format::Table => out.write_all(text(&explained).as_bytes())?,
        Format::Json | Format::Yaml => output::data(out, args.output, &explained)?,
    }
    let sent = explained.outcome == inspect::Exit::Sent;
    Ok(if sent { Exit::Fine } else { Exit::Problems })
}

/// The explanation for people, in the order in which the program looks things up.
pub fn text(flow: &ExplainedFlow) -> String {
    let backend = flow.backend.as_ref();
    let identity = |b: &inspect::ExplainedBackend| {
        let name = b.id.as_ref().map_or_else(|| "unknown".into(), ToString::to_string);
        format!("{name} (index {})", b.index)
    };
    let hashed = match flow.affinity {
        Some("None") => "client address, both ports, protocol",
        Some("ClientIP") => "client address",
        Some("ClientIPAndProtocol") => "client address, protocol",
        _ => "",
    };
    let others = flow.equal_next_hops.len();
    let hop = flow.next_hop.as_ref().map(|hop| {
        let shared = if others > 1 { format!(", one of {others}") } else { String::new() };
        format!("{} {} (MTU {}){shared}", hop.interface, hop.mac, hop.mtu)
    });
    let larger = if flow.client.starts_with('[') {
        "get Packet Too Big"
    } else {
        "get fragmentation needed, or are dropped if they do not forbid fragmentation"
    };
    let optional = |value: Option<String>| value.unwrap_or_default();
    let mut pairs = vec![
        ("client", flow.client.clone()),
        ("VIP", flow.vip.clone()),
        ("rule", optional(flow.rule.as_ref().map(ToString::to_string))),
        ("affinity", optional(flow.affinity.map(|affinity| format!("{affinity}: {hashed}")))),
        ("hash", optional(flow.hash.clone())),
        ("slot", optional(flow.ring.as_ref().map(|ring| format!("{} of {}", ring.slot, ring.slots)))),
        (
            "ring",
            optional(flow.ring.as_ref().map(|ring| format!("{} (first slot {})", ring.digest, ring.base))),
        ),
        ("backend", optional(backend.map(identity))),
        ("node", optional(backend.and_then(|b| b.node.clone()))),
        ("SID", optional(backend.map(|b| b.sid.to_string()))),
        ("next hop", optional(hop)),
        ("MTU", optional(flow.mtu.map(|mtu| mtu.to_string()))),
        ("largest packet", optional(flow.largest_packet.map(|n| format!("{n} bytes; larger ones {larger}")))),
        ("outcome", flow.meaning.into()),
        ("hint", optional(flow.hint.clone())),
    ];
    pairs.retain(|(_, value)| !value.is_empty());
    output::pairs(pairs)
}
