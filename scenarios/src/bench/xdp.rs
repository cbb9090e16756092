//! What a packet costs: the load balancer beside the controls, in interleaved rounds on one CPU.

use std::path::Path;

use anyhow::ensure;
use comfy_table::{Cell, CellAlignment, Table};
use serde::Serialize;
use weir::model::RingSize;

use super::subjects::{Controls, Family, Shape, Weir, frame};
use super::trampoline::{Load, Trampoline, XDP_TX};
use super::{Line, cpu};

/// Numbers of flows that are tried.
pub const FLOWS: [u32; 2] = [1, 65_536];
/// Packets of one subject in one round: long enough for the kernel's clock, short enough for many rounds.
const PACKETS: u32 = 262_144;
/// Most that the load balancer may cost, net of `tx`, as a multiple of its family's least forwarder.
const AT_MOST: [(Family, f64); 2] = [(Family::V6, 1.25), (Family::V4, 1.35)];
/// Most that a packet may cost in big tables, as a multiple of its cost in the smallest.
const GROWTH: f64 = 1.3;

/// One subject's cost at one number of flows.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cost {
    /// A control's name, or what the load balancer did.
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

/// A subject behind its trampoline, with the times of its rounds.
struct Timed {
    subject: String,
    load: Load,
    family: Family,
    trampoline: Trampoline,
    times: Vec<f64>,
}

impl Timed {
    fn cost(mut self) -> Cost {
        self.times.sort_by(f64::total_cmp);
        let (min_ns, median_ns) = (self.times[0], self.times[self.times.len() / 2]);
        Cost { subject: self.subject, flows: self.load.flows, family: self.family.name(), min_ns, median_ns }
    }
}

/// Runs the subjects in turn.
fn rounds(subjects: &mut [Timed], rounds: usize) -> anyhow::Result<()> {
    for timed in &mut *subjects {
        timed.trampoline.time(PACKETS)?;
    }
    for round in 0..rounds {
        // Each round begins with another subject, so that none always follows the same one.
        let count = subjects.len();
        for k in 0..count {
            let timed = &mut subjects[(k + round) % count];
            timed.times.push(timed.trampoline.time(PACKETS)?);
        }
    }
    Ok(())
}

/// Packets that went through the load balancer, and those that it counted, must be the same.
fn all_counted(weir: &Weir, timed: &[Timed], subject: &str) -> anyhow::Result<()> {
    // One packet was run when the tables were filled.
    let mut packets = 1;
    for t in timed.iter().filter(|t| t.subject == subject) {
        packets += t.trampoline.packets()?;
    }
    let counted = weir.forwarded();
    ensure!(counted == packets, "{subject}: {packets} packets were sent and {counted} counted as forwarded");
    Ok(())
}

/// Times all subjects on the calling thread; pins maps below `bpffs`.
///
/// # Errors
/// What could not be loaded, or packets that fared otherwise than they should.
pub fn run(bpffs: &Path, count: usize) -> anyhow::Result<Vec<Cost>> {
    let mut controls = Controls::load()?;
    println!("xdp: {count} rounds of {PACKETS} packets a subject, {}", cpu::claim()?);
    let mut costs = Vec::new();
    for (family, _) in AT_MOST {
        let mut weirs = Vec::new();
        for (name, redirect) in [("weir", false), ("weir redirect", true)] {
            let shape = Shape { redirect, ..Shape::one(family) };
            let pins = bpffs.join(format!("{}{redirect}", family.name()));
            weirs.push((name, shape, Weir::load(&pins, shape)?));
        }
        let mut subjects = Vec::new();
        for flows in FLOWS {
            let mut add = |subject: &str, program, verdict| -> anyhow::Result<()> {
                let load = Load { flows, vips: 1, verdict };
                let trampoline = Trampoline::new(&program, &frame(family), load)?;
                subjects.push(Timed { subject: subject.into(), load, family, trampoline, times: Vec::new() });
                Ok(())
            };
            for name in ["tx", "adjust", family.minimal()] {
                add(name, controls.program(name)?, XDP_TX)?;
            }
            for (name, shape, weir) in &mut weirs {
                add(name, weir.program()?, shape.verdict())?;
            }
        }
        rounds(&mut subjects, count)?;
        for (name, _, weir) in &weirs {
            all_counted(weir, &subjects, name)?;
        }
        costs.extend(subjects.into_iter().map(Timed::cost));
    }
    Ok(costs)
}

/// Times the load balancer with tables of several sizes, on the calling thread; pins maps below `bpffs`.
///
/// # Errors
/// What could not be loaded, or packets that fared otherwise than they should.
pub fn sizes(bpffs: &Path, count: usize) -> anyhow::Result<Vec<Line>> {
    println!("scale: {count} rounds of {PACKETS} packets a size, {}", cpu::claim()?);
    let mut controls = Controls::load()?;
    let mut lines = Vec::new();
    let vips = [1, 1024, 16_384].map(|vips| (format!("{vips} VIPs"), vips, 64));
    let backends = [(1, 16), (16, 1024), (1024, 65_536)];
    let backends = backends.map(|(vips, backends)| (format!("{backends} backends"), vips, backends));
    for (group, shapes) in [vips, backends].into_iter().enumerate() {
        let mut weirs = Vec::new();
        let mut subjects = Vec::new();
        let tx = Load { flows: 65_536, vips: 1, verdict: XDP_TX };
        let trampoline = Trampoline::new(&controls.program("tx")?, &frame(Family::V6), tx)?;
        let times = Vec::new();
        subjects.push(Timed { subject: "tx".into(), load: tx, family: Family::V6, trampoline, times });
        for (name, vips, backends) in shapes {
            let shape =
                Shape { vips, backends, class: RingSize::S1021, redirect: false, ..Shape::one(Family::V6) };
            let mut weir = Weir::load(&bpffs.join(format!("scale{group}-{vips}-{backends}")), shape)?;
            for (what, used) in [("to one of them", 1), ("to all of them in turn", vips)] {
                let load = Load { flows: 65_536, vips: used, verdict: XDP_TX };
                let trampoline = Trampoline::new(&weir.program()?, &frame(Family::V6), load)?;
                let subject = format!("{name}, {what}");
                let times = Vec::new();
                subjects.push(Timed { subject, load, family: Family::V6, trampoline, times });
            }
            weirs.push(weir);
        }
        rounds(&mut subjects, count)?;
        let mut costs = subjects.into_iter().map(Timed::cost);
        let tx = costs.next().map_or(f64::NAN, |cost| cost.min_ns);
        let costs: Vec<_> = costs.map(|cost| (cost.subject, cost.min_ns - tx)).collect();
        for (k, (subject, ns)) in costs.iter().enumerate() {
            // What all of them cost more are misses of the caches: shown, and no bound.
            let bound = (k % 2 == 0).then_some(GROWTH);
            lines.push(Line::new(
                format!("{subject}: {ns:.1} ns net of tx, of the smallest"),
                ns / costs[k % 2].1,
                "x",
                bound,
            ));
        }
    }
    Ok(lines)
}

/// The cost of a subject in the same family at the same number of flows.
fn beside<'a>(costs: &'a [Cost], cost: &Cost, subject: &str) -> Option<&'a Cost> {
    costs.iter().find(|c| c.subject == subject && c.flows == cost.flows && c.family == cost.family)
}

/// A subject's cost net of `tx`: fastest round and median.
fn net(costs: &[Cost], cost: &Cost) -> (f64, f64) {
    let tx = beside(costs, cost, "tx");
    tx.map_or((f64::NAN, f64::NAN), |tx| (cost.min_ns - tx.min_ns, cost.median_ns - tx.median_ns))
}

/// What a cost is net of `tx` and as multiples of its family's least forwarder: fastest rounds and medians.
fn ratios(costs: &[Cost], cost: &Cost) -> (f64, f64) {
    let minimal = if cost.family == Family::V4.name() { Family::V4 } else { Family::V6 }.minimal();
    let (base, base_median) = beside(costs, cost, minimal).map_or((f64::NAN, f64::NAN), |m| net(costs, m));
    let (min, median) = net(costs, cost);
    (min / base, median / base_median)
}

/// The costs with what they are net of `tx`, and as multiples of the least forwarder.
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
        let (min, median) = ratios(costs, cost);
        let numbers = [cost.min_ns, cost.median_ns, net(costs, cost).0, min, median];
        let mut row = vec![Cell::new(&cost.subject), Cell::new(cost.flows), Cell::new(cost.family)];
        row.extend(numbers.map(|n| Cell::new(format!("{n:.2}")).set_alignment(CellAlignment::Right)));
        table.add_row(row);
    }
    table
}

/// The bounds.
pub fn lines(costs: &[Cost]) -> Vec<Line> {
    let own = costs.iter().filter(|cost| cost.subject.starts_with("weir"));
    let line = |cost: &Cost| {
        let bound = AT_MOST.iter().find(|(family, _)| family.name() == cost.family).map(|(_, bound)| *bound);
        let what = format!("{} {}, net of tx, {} flows, of minimal", cost.subject, cost.family, cost.flows);
        Line::new(what, ratios(costs, cost).0, "x", bound)
    };
    own.map(line).collect()
}
