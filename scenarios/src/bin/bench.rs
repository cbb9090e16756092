//! `just bench`: measures, prints tables and writes `target/bench/*.json`.

use clap::{Parser, ValueEnum};
use labkit::Lab;
use labkit::topology::Topology;
use scenarios::bench::{Line, ring, scale, table, write, xdp};

/// Measures packets, rings and a daemon with ten thousand rules.
#[derive(Parser)]
struct Arguments {
    /// What to measure; everything when nothing is named.
    what: Vec<What>,
    /// Interleaved rounds of the packet benchmark.
    #[arg(long, default_value_t = 40)]
    rounds: usize,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// Nanoseconds a packet.
    Xdp,
    /// Ring build and heal.
    Ring,
    /// Nanoseconds a packet with few and with many VIPs and backends.
    Sizes,
    /// Ten thousand rules.
    Scale,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let wanted = |what| arguments.what.is_empty() || arguments.what.contains(&what);
    let mut lines: Vec<Line> = Vec::new();
    if wanted(What::Xdp) {
        lines.extend(packets(arguments.rounds.max(1))?);
    }
    if wanted(What::Sizes) {
        let measured = in_lab(|bpffs| xdp::sizes(bpffs, arguments.rounds.max(1)))?;
        println!("wrote {}", write("sizes.json", &measured)?.display());
        lines.extend(measured);
    }
    if wanted(What::Ring) {
        lines.extend(ring::run()?);
    }
    if wanted(What::Scale) {
        let measured = scale::run()?;
        println!("wrote {}", write("scale.json", &measured)?.display());
        lines.extend(measured);
    }
    println!("{}", table(&lines));
    Ok(())
}

fn packets(rounds: usize) -> anyhow::Result<Vec<Line>> {
    let costs = in_lab(|bpffs| xdp::run(bpffs, rounds))?;
    println!("{}\nwrote {}", xdp::table(&costs), write("xdp.json", &costs)?.display());
    Ok(xdp::lines(&costs))
}

/// Runs something in a namespace of its own, with a BPF file system that goes with it.
fn in_lab<T: Send>(measure: impl FnOnce(&std::path::Path) -> anyhow::Result<T> + Send) -> anyhow::Result<T> {
    let topology = Topology::build("bench", |t| {
        t.node("host");
    })?;
    let lab = Lab::up(&topology)?;
    let host = lab.node("host")?;
    let bpffs = host.bpffs()?;
    host.netns().run(|| measure(&bpffs))?
}
