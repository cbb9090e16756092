//! What the live program makes of one frame, in the words of rules and backends, beside what the packet path in Rust says.

use serde::Serialize;
use weir_bpf::abi::{Config, NextHop, Reason, Trace};

use super::{Exit, ExplainedBackend, ExplainedRing, HopRow, Image, exit_of};
use crate::dataplane::bpf::{LiveProgram, Maps, TraceRun, interface_name};
use crate::flow::{self, NextHops, Surroundings};
use crate::frame::{self, Layer};
use crate::model::{ObjectName, Sid, VipKey};

const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const XDP_TX: u32 = 3;
const XDP_REDIRECT: u32 = 4;

/// A frame and what became of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TracedFrame {
    /// Its number among those given, from 1.
    pub frame: usize,
    /// Interface that it came in on.
    pub interface: String,
    /// Bytes of the frame.
    pub length: usize,
    /// What became of it.
    pub outcome: Exit,
    /// What the program returned.
    pub verdict: &'static str,
    /// Interface that it would leave through.
    pub leaves: Option<String>,
    /// Reason that it would count.
    pub reason: &'static str,
    /// The reason in words.
    pub meaning: &'static str,
    /// Programs that get what is left, in their order, before the kernel.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub next_programs: Vec<String>,
    /// VIP, protocol and port that it hit.
    pub vip: Option<VipKey>,
    /// Rule that the VIP serves.
    pub rule: Option<ObjectName>,
    /// The slot, as the program reported it.
    pub ring: Option<ExplainedRing>,
    /// The backend, as the program reported it.
    pub backend: Option<ExplainedBackend>,
    /// The next hop: its MAC is the sent frame's destination.
    pub next_hop: Option<HopRow>,
    /// Bytes of the largest outer packet that the hop or the path takes.
    pub mtu: Option<u32>,
    /// What the packet path in Rust says of the same maps.
    pub oracle: Oracle,
    /// The frame as it came.
    pub received: Vec<Layer>,
    /// The frame that would be sent.
    pub sent: Option<Vec<Layer>>,
    /// Its bytes, hexadecimal.
    pub sent_hex: Option<String>,
}

/// The packet path in Rust beside the program.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Oracle {
    /// Not asked: its constants, the region's key among them, are the configuration's.
    Unasked,
    /// Verdict, reason and bytes are equal.
    Agrees,
    /// They are but for the next hop, which the program had from the kernel: the daemon's heartbeat is lost.
    OtherHop,
    /// They are not: what differs.
    Differs(String),
}

/// Runs a frame through the live program and puts names to what it reports. `constants` are those of the interface's program.
pub fn trace(
    program: &LiveProgram,
    maps: &Maps,
    image: &Image,
    constants: Option<&Config>,
    number: usize,
    bytes: &[u8],
) -> Result<TracedFrame, super::Error> {
    let run = program.run(bytes)?;
    let trace = run.trace;
    let reason = Reason::ALL.get(trace.reason as usize).copied().unwrap_or(Reason::Internal);
    let sent = matches!(run.action, XDP_TX | XDP_REDIRECT);
    let some = |index: u32| (index != Trace::NONE).then_some(index);
    let row = some(trace.vip).and_then(|index| image.vips.iter().find(|row| row.index == index));
    let ring = some(trace.slot).zip(row).map(|(slot, row)| ExplainedRing {
        base: row.ring,
        slots: row.slots,
        slot: slot.wrapping_sub(row.ring),
        digest: row.digest.clone(),
    });
    let backend = match some(trace.backend).filter(|index| *index != 0) {
        Some(index) => {
            let (id, node) = maps.identity(index)?.unzip();
            Some(ExplainedBackend { id, node, sid: Sid(maps.backend(index).sid.into()), index })
        }
        None => None,
    };
    let leaves = (sent && trace.ifindex != 0)
        .then(|| interface_name(trace.ifindex).unwrap_or_else(|| format!("interface {}", trace.ifindex)));
    let outcome = exit_of(reason);
    let next_hop = leaves.clone().filter(|_| outcome == Exit::Sent).map(|interface| HopRow {
        interface,
        mac: run.frame[..6].iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(":"),
        mtu: trace.mtu,
    });
    let others = program.others().iter().filter(|_| outcome == Exit::Left);
    Ok(TracedFrame {
        frame: number,
        interface: program.interface().into(),
        length: bytes.len(),
        outcome,
        verdict: match run.action {
            XDP_DROP => "XDP_DROP",
            XDP_PASS => "XDP_PASS",
            XDP_TX => "XDP_TX",
            XDP_REDIRECT => "XDP_REDIRECT",
            _ => "XDP_ABORTED",
        },
        leaves,
        reason: reason.name(),
        meaning: reason.help(),
        next_programs: others.map(|(slot, name)| format!("{name} (slot {slot})")).collect(),
        vip: row.map(|row| row.key),
        rule: row.map(|row| row.rule.clone()),
        ring,
        backend,
        next_hop,
        mtu: Some(trace.mtu).filter(|mtu| *mtu != 0),
        oracle: constants.map_or(Oracle::Unasked, |constants| {
            ask_oracle(constants, maps, program.ifindex(), bytes, &run, reason)
        }),
        received: frame::decode(bytes, bytes.len()),
        sent: sent.then(|| frame::decode(&run.frame, run.frame.len())),
        sent_hex: sent.then(|| run.frame.iter().map(|b| format!("{b:02x}")).collect()),
    })
}

fn ask_oracle(
    constants: &Config,
    maps: &Maps,
    ifindex: u32,
    bytes: &[u8],
    run: &TraceRun,
    reason: Reason,
) -> Oracle {
    // Its token bucket is full, and the program's may be empty; replies are let out by the kernel's routes.
    let own = [Reason::RateLimited, Reason::ReplyForwarded, Reason::ReplyRefused, Reason::ReplyNoRoute];
    if own.contains(&reason) {
        return Oracle::Unasked;
    }
    let said = compare(constants, maps, NextHops::Table, ifindex, bytes, run, reason);
    let (Oracle::Differs(_), Ok(macs)) = (&said, <[u8; 12]>::try_from(&run.frame[..12])) else { return said };
    let hop = NextHop { macs, ifindex: run.trace.ifindex, mtu: run.trace.mtu, flags: 0 };
    let answer = |_| Some(hop).filter(|hop| hop.ifindex != 0);
    match compare(constants, maps, NextHops::Fib(&answer), ifindex, bytes, run, reason) {
        Oracle::Agrees => Oracle::OtherHop,
        _ => said,
    }
}

fn compare(
    constants: &Config,
    maps: &Maps,
    next_hops: NextHops<'_>,
    ifindex: u32,
    bytes: &[u8],
    run: &TraceRun,
    reason: Reason,
) -> Oracle {
    let mut around = Surroundings { next_hops, fragments: maps.fragments(), ..Surroundings::default() };
    let decision = flow::decide(constants, maps, &mut around, ifindex, bytes);
    if decision.reason != reason {
        return Oracle::Differs(format!("it says {}: {}", decision.reason.name(), decision.reason.help()));
    }
    let (said, backend) = (decision.trail.backend_index.unwrap_or(0), run.trace.backend);
    if backend != Trace::NONE && said != backend {
        return Oracle::Differs(format!("it says backend index {said}"));
    }
    match decision.frame_out {
        Some(frame) if frame != run.frame => {
            let at = frame.iter().zip(&run.frame).take_while(|(a, b)| a == b).count();
            Oracle::Differs(format!("the frame that is sent differs from byte {at} on"))
        }
        _ => Oracle::Agrees,
    }
}
