//! What a packet costs: the load balancer beside the controls, in interleaved rounds on one CPU.

use std::path::Path;

use anyhow::ensure;
use comfy_table::{Cell, CellAlignment, Table};
use serde::Serialize;

use super::subjects::{Controls, Weir, frame};
use super::trampoline::Trampoline;
use super::{Line, cpu};

/// Numbers of flows that are tried.
pub const FLOWS: [u32; 2] = [1, 65_536];
/// Packets of one subject in one round: long enough for the kernel's clock, short enough for many rounds.
const PACKETS: u32 = 262_144;
/// Most that the load balancer may cost, net of `tx`, as a multiple of `minimal`.
pub const AT_MOST: f64 = 1.6;

/// One subject's cost at one number of flows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// `tx`, `adjust`, `minimal` or `weir`.
    pub subject: String,
    /// Flows that the packets come from.
    pub flows: u32,
    /// Address family of the packets.
    pub family: &'static str,
    /// Fastest round, nanoseconds a packet.
    pub min_ns: f64,
    /// Median round, nanoseconds a packet.
    pub median_ns: f64,
}

/// Times all subjects on the calling thread; pins maps below `bpffs`.
///
/// # Errors
/// What could not be loaded, or packets that fared otherwise than they should.
pub fn run(bpffs: &Path, rounds: usize) -> anyhow::Result<Vec<Cost>> {
    let mut controls = Controls::load()?;
    let mut weir = Weir::load(&bpffs.join("bench"))?;
    println!("xdp: {rounds} rounds of {PACKETS} packets a subject, {}", cpu::claim()?);
    let mut costs = Vec::new();
    for flows in FLOWS {
        let mut subjects = Vec::new();
        for name in Controls::NAMES {
            subjects.push((name, Trampoline::new(&controls.program(name)?, &frame(), flows)?, Vec::new()));
        }
        subjects.push(("weir", Trampoline::new(&weir.program()?, &frame(), flows)?, Vec::new()));
        let before = weir.forwarded();
        for (_, trampoline, _) in &mut subjects {
            trampoline.time(PACKETS)?;
        }
        for round in 0..rounds {
            // Each round begins with another subject, so that none always follows the same one.
            let count = subjects.len();
            for k in 0..count {
                let (_, trampoline, times) = &mut subjects[(k + round) % count];
                times.push(trampoline.time(PACKETS)?);
            }
        }
        for (name, trampoline, mut times) in subjects {
            times.sort_by(f64::total_cmp);
            let packets = trampoline.packets()?;
            if name == "weir" {
                let counted = weir.forwarded() - before;
                ensure!(counted == packets, "{packets} packets were sent and {counted} counted as forwarded");
            }
            let (min_ns, median_ns) = (times[0], times[times.len() / 2]);
            costs.push(Cost { subject: name.into(), flows, family: "ipv6", min_ns, median_ns });
        }
    }
    Ok(costs)
}

/// A subject's cost net of `tx`: fastest round and median.
fn net(costs: &[Cost], cost: &Cost) -> (f64, f64) {
    let tx = costs.iter().find(|c| c.subject == "tx" && c.flows == cost.flows);
    tx.map_or((f64::NAN, f64::NAN), |tx| (cost.min_ns - tx.min_ns, cost.median_ns - tx.median_ns))
}

/// The costs with what they are net of `tx`, and as multiples of `minimal`.
pub fn table(costs: &[Cost]) -> Table {
    let mut table = Table::new();
    table.set_header([
        "subject",
        "flows",
        "family",
        "min ns",
        "median ns",
        "min net of tx",
        "x minimal (min)",
        "x minimal (median)",
    ]);
    for cost in costs {
        let minimal = costs.iter().find(|c| c.subject == "minimal" && c.flows == cost.flows);
        let (base, base_median) = minimal.map_or((f64::NAN, f64::NAN), |m| net(costs, m));
        let (min, median) = net(costs, cost);
        let numbers = [cost.min_ns, cost.median_ns, min, min / base, median / base_median];
        let mut row = vec![Cell::new(&cost.subject), Cell::new(cost.flows), Cell::new(cost.family)];
        row.extend(numbers.map(|n| Cell::new(format!("{n:.2}")).set_alignment(CellAlignment::Right)));
        table.add_row(row);
    }
    table
}

/// The bounds.
pub fn lines(costs: &[Cost]) -> Vec<Line> {
    let of = |subject: &str, flows| {
        let cost = costs.iter().find(|c| c.subject == subject && c.flows == flows);
        cost.map_or(f64::NAN, |cost| net(costs, cost).0)
    };
    let line = |flows| {
        let ratio = of("weir", flows) / of("minimal", flows);
        Line::new(format!("weir net of tx, {flows} flows, of minimal"), ratio, "x", Some(AT_MOST))
    };
    FLOWS.map(line).into()
}
