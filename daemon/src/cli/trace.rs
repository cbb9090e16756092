//! `weir trace`: runs frames through the program that packets run now, and says what becomes of them.

use std::io::{Read as _, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use super::node::NodeArgs;
use super::output::{self, Format, Rows};
use super::{Exit, Failure};
use crate::dataplane::bpf::{LiveProgram, Pins};
use crate::frame::{self, Endpoints, Layer};
use crate::inspect::{self, Counters as _, Oracle, TracedFrame};
use crate::model::unmapped;
use crate::run;

/// Largest file that is read.
const LARGEST: u64 = 256 << 20;

/// Arguments of `weir trace`.
#[derive(Debug, clap::Args)]
#[command(
    group = clap::ArgGroup::new("input").required(true).args(["pcap", "hex", "vip"]),
    after_help = format!("Frames are run by the program in the interface's slot, on the maps that serve now: nothing is sent, counted or
changed. Run it in the gateway's network namespace. With a configuration, the packet path in Rust is asked as
well, and what differs is said.

Ends with 0 when every frame would be sent or answered, with 1 when one would be dropped or left, or when the
two paths differ.

Examples:
  weir trace --vip '[2001:db8:100::1]:443' --client '[2001:db8:c::7]:40000'
  weir trace --vip '[2001:db8:100::1]:53' --client '[2001:db8:c::7]:5353' --protocol udp --size 1500
  weir trace --interface eth1 --pcap clients.pcap
  weir trace --pcap clients.pcapng --packet 3 --output json
  tcpdump -i eth1 -c 1 -xx | tail -n +2 | weir trace --hex -

{}", super::EXIT_CODES)
)]
pub(super) struct Args {
    /// Frames of a pcap or pcapng file; - reads standard input
    #[arg(long, value_name = "FILE")]
    pcap: Option<PathBuf>,
    /// Only this frame of the file, counted from 1
    #[arg(long, value_name = "N", requires = "pcap", value_parser = clap::value_parser!(u32).range(1..))]
    packet: Option<u32>,
    /// One frame in hexadecimal, from its Ethernet header on; - reads standard input
    #[arg(long, value_name = "TEXT")]
    hex: Option<String>,
    /// A client's first packet to this VIP and port
    #[arg(long, value_name = "[ADDRESS]:PORT", requires = "client")]
    vip: Option<SocketAddr>,
    /// The client's address and port
    #[arg(long, value_name = "[ADDRESS]:PORT", requires = "vip")]
    client: Option<SocketAddr>,
    /// Its protocol
    #[arg(long, value_enum, default_value_t)]
    protocol: super::explain::Transport,
    /// Bytes of its IP packet, at least
    #[arg(long, value_name = "BYTES", default_value_t = 0, value_parser = clap::value_parser!(u32).range(0..=65_535))]
    size: u32,
    /// Interface that the frames come in on [default: the first uplink, or the only interface]
    #[arg(long, short, value_name = "NAME")]
    interface: Option<String>,
    #[command(flatten)]
    node: NodeArgs,
    /// Form of the result
    #[arg(long, short, value_enum, default_value_t)]
    output: Format,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<Exit, Failure> {
    let node = args.node.resolve()?;
    let maps = inspect::open(&node.pins)?;
    let pins = Pins::existing(&node.pins)?;
    let uplink = node.config.as_ref().and_then(|config| config.uplinks.first().cloned());
    let known = pins.interfaces();
    let interface = match (&args.interface, uplink, known.as_slice()) {
        (Some(name), _, _) => name.clone(),
        (None, Some(uplink), _) => uplink,
        (None, None, [only]) => only.clone(),
        _ => {
            let text = format!(
                "choose an interface for the frames to come in on: name one of {} with --interface, or the \
                configuration with --config",
                known.join(", ")
            );
            return Err(Failure::Usage(text));
        }
    };
    let program = LiveProgram::open(&pins, &interface)?;
    let frames = frames(args, program.mac())?;
    let constants = node.config.as_ref().and_then(|config| {
        let locator = run::locate(config).ok()?;
        let role = run::interfaces(config).iter().find(|i| i.name == interface).map_or(0, |i| i.role);
        Some(weir_bpf::abi::Config { role, ..run::constants(config, locator) })
    });
    let image = maps.image()?;
    let mut traced = Vec::new();
    for (number, bytes) in &frames {
        traced.push(inspect::trace(&program, &maps, &image, constants.as_ref(), *number, bytes)?);
    }
    match (args.output, traced.as_slice()) {
        (Format::Table, [one]) => out.write_all(text(one).as_bytes())?,
        _ => output::list(out, args.output, &Traced(&traced))?,
    }
    let fine = |t: &TracedFrame| {
        matches!(t.outcome, inspect::Exit::Sent | inspect::Exit::Answered)
            && !matches!(t.oracle, Oracle::Differs(_))
    };
    Ok(if traced.iter().all(fine) { Exit::Fine } else { Exit::Problems })
}

/// The frames that are asked for, with their numbers.
fn frames(args: &Args, mac: [u8; 6]) -> Result<Vec<(usize, Vec<u8>)>, Failure> {
    if let Some(path) = &args.pcap {
        let all = frame::read(&read(path)?)?;
        let found = all.len();
        let numbered = (1..).zip(all.into_iter().map(|captured| captured.bytes));
        let wanted = |number: usize| args.packet.is_none_or(|n| n as usize == number);
        let frames: Vec<_> = numbered.filter(|(number, _)| wanted(*number)).collect();
        if frames.is_empty() {
            let text =
                format!("read {}: it holds {found} frames, and none that was asked for", path.display());
            return Err(Failure::Usage(text));
        }
        return Ok(frames);
    }
    if let Some(hex) = &args.hex {
        let text = match hex.as_str() {
            "-" => String::from_utf8_lossy(&read(Path::new("-"))?).into_owned(),
            text => text.into(),
        };
        return Ok(vec![(1, frame::read_hex(&text)?)]);
    }
    let (Some(vip), Some(client)) = (args.vip, args.client) else {
        return Err(Failure::Usage("make a packet: name --vip and --client".into()));
    };
    let ends = Endpoints {
        client: unmapped(crate::model::mapped(client.ip())),
        client_port: client.port(),
        vip: unmapped(crate::model::mapped(vip.ip())),
        port: vip.port(),
        transport: args.protocol.into(),
    };
    let built = frame::build(&ends, mac, args.size as usize).ok_or_else(|| {
        Failure::Usage(format!(
            "make a packet from {client} to {vip}: both must be of one family, and it must fit an IP packet"
        ))
    })?;
    Ok(vec![(1, built)])
}

fn read(path: &Path) -> Result<Vec<u8>, Failure> {
    let failed = |e: std::io::Error| Failure::Usage(format!("read {}: {e}", path.display()));
    let mut bytes = Vec::new();
    if path == Path::new("-") {
        std::io::stdin().lock().take(LARGEST).read_to_end(&mut bytes).map_err(failed)?;
    } else {
        std::fs::File::open(path).map_err(failed)?.take(LARGEST).read_to_end(&mut bytes).map_err(failed)?;
    }
    Ok(bytes)
}

/// Many frames, one a line.
#[derive(serde::Serialize)]
#[serde(transparent)]
struct Traced<'a>(&'a [TracedFrame]);

impl Rows for Traced<'_> {
    fn header(&self) -> Vec<&'static str> {
        vec!["FRAME", "BYTES", "VIP", "OUTCOME", "REASON", "SLOT", "BACKEND", "LEAVES", "NOTE"]
    }
    fn rows(&self) -> Vec<Vec<String>> {
        let row = |t: &TracedFrame| {
            vec![
                t.frame.to_string(),
                t.length.to_string(),
                t.vip.map(|vip| vip.to_string()).unwrap_or_default(),
                t.outcome.name().into(),
                t.reason.into(),
                t.ring.as_ref().map(|ring| ring.slot.to_string()).unwrap_or_default(),
                backend(t),
                t.leaves.clone().unwrap_or_default(),
                oracle(t),
            ]
        };
        self.0.iter().map(row).collect()
    }
    fn nothing(&self) -> &'static str {
        "no frame"
    }
}

fn backend(traced: &TracedFrame) -> String {
    let name = |b: &inspect::ExplainedBackend| {
        let id = b.id.as_ref().map_or_else(|| "unknown".into(), ToString::to_string);
        format!("{id} (index {})", b.index)
    };
    traced.backend.as_ref().map(name).unwrap_or_default()
}

fn oracle(traced: &TracedFrame) -> String {
    match &traced.oracle {
        Oracle::Differs(how) => format!("the packet path in Rust DIFFERS: {how}; report it"),
        Oracle::OtherHop => "the daemon is away: the kernel was asked for the next hop".into(),
        Oracle::Unasked | Oracle::Agrees => String::new(),
    }
}

/// One frame for people: what became of it, then both frames field by field.
pub fn text(traced: &TracedFrame) -> String {
    let optional = |value: Option<String>| value.unwrap_or_default();
    let backend_of = traced.backend.as_ref();
    let verdict = match &traced.leaves {
        Some(interface) => format!("{} ({} on {interface})", traced.outcome.name(), traced.verdict),
        None => format!("{} ({})", traced.outcome.name(), traced.verdict),
    };
    let agrees =
        (traced.oracle == Oracle::Agrees).then(|| "the packet path in Rust says the same".to_owned());
    let mut pairs = vec![
        ("frame", format!("{} bytes in on {}", traced.length, traced.interface)),
        ("verdict", verdict),
        ("reason", format!("{}: {}", traced.reason, traced.meaning)),
        ("goes to", traced.next_programs.join(", ")),
        ("VIP", optional(traced.vip.map(|vip| vip.to_string()))),
        ("rule", optional(traced.rule.as_ref().map(ToString::to_string))),
        (
            "slot",
            optional(traced.ring.as_ref().map(|r| format!("{} of {} (ring {})", r.slot, r.slots, r.digest))),
        ),
        ("backend", backend(traced)),
        ("node", optional(backend_of.and_then(|b| b.node.clone()))),
        ("SID", optional(backend_of.map(|b| b.sid.to_string()))),
        ("next hop", optional(traced.next_hop.as_ref().map(|hop| format!("{} {}", hop.interface, hop.mac)))),
        ("MTU", optional(traced.mtu.map(|mtu| mtu.to_string()))),
        ("checked", agrees.unwrap_or_else(|| oracle(traced))),
    ];
    pairs.retain(|(_, value)| !value.is_empty());
    let mut text = output::pairs(pairs);
    text.push_str("\nreceived\n");
    text.push_str(&layers(&traced.received));
    if let Some(sent) = &traced.sent {
        text.push_str("\nsent\n");
        text.push_str(&layers(sent));
    }
    text
}

/// Headers field by field, a header a paragraph.
pub(super) fn layers(layers: &[Layer]) -> String {
    let mut text = String::new();
    for layer in layers {
        let pairs = layer.fields.iter().map(|(name, value)| (*name, value.clone())).collect();
        text.push_str(&format!("  {}\n", layer.name));
        for line in output::pairs(pairs).lines() {
            text.push_str(&format!("    {line}\n"));
        }
    }
    text
}
