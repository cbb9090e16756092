//! The `labkit` program: looks at labs on this machine, runs commands in their nodes, removes what dead ones left.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result, bail};
use clap::{Parser, Subcommand};
use comfy_table::{Table, presets};
use labkit::lab::clean_up_on_interrupt;
use labkit::state::{self, Found, Owner};
use labkit::{Lab, Netns, Topology};

/// Network labs on this machine.
#[derive(Debug, Parser)]
#[command(version, about)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Brings up the topology of a YAML file, prints the lab's name, and holds it until Ctrl-C.
    Up {
        /// The file.
        topology: PathBuf,
        /// Leaves the lab in place and returns.
        #[arg(long)]
        keep: bool,
    },
    /// Shows the labs on this machine.
    List,
    /// Removes labs whose process is gone: namespaces, processes, mounts, files.
    Clean {
        /// Every such lab, kept ones included; the default when no lab is named.
        #[arg(long, conflicts_with = "lab")]
        all: bool,
        /// One lab, by its name or the beginning of it.
        lab: Option<String>,
    },
    /// Runs a command in a node of a lab.
    Exec {
        /// The lab, by its name or the beginning of it.
        lab: String,
        /// The node.
        node: String,
        /// The command and its arguments.
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Prints a lab's topology as a graph for Graphviz.
    Graph {
        /// The lab, by its name or the beginning of it.
        lab: String,
    },
}

fn main() -> ExitCode {
    match run(Cli::parse()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("labkit: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run(cli: Cli) -> Result<ExitCode> {
    match cli.verb {
        Verb::Up { topology, keep } => up(&topology, keep)?,
        Verb::List => list()?,
        Verb::Clean { lab: Some(lab), .. } => {
            let found = state::find(&lab)?;
            state::clean(&found)?;
            println!("removed {}", found.lab);
        }
        Verb::Clean { lab: None, .. } => return clean_all(),
        Verb::Exec { lab, node, command } => return exec(&lab, &node, &command),
        Verb::Graph { lab } => graph(&lab)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn up(path: &Path, keep: bool) -> Result<()> {
    let text = std::fs::read_to_string(path).with_context(|| format!("read {}", path.display()))?;
    let topology: Topology =
        serde_saphyr::from_str(&text).with_context(|| format!("read topology {}", path.display()))?;
    clean_up_on_interrupt()?;
    let lab = Lab::options().keep(keep).up(&topology)?;
    println!("{}", lab.name());
    if keep {
        return Ok(());
    }
    loop {
        // The interrupt ends the process.
        std::thread::park();
    }
}

fn list() -> Result<()> {
    let mut table = Table::new();
    table.load_style(presets::NOTHING).set_header(["LAB", "OWNER", "FABRIC", "NODES"]);
    for Found { lab, owner, record } in state::list()? {
        let owner = match (owner, &record) {
            (Owner::Alive, Some(record)) => format!("process {}", record.pid),
            (Owner::Alive, None) => "starting".into(),
            (Owner::Gone, _) => "gone".into(),
        };
        let (fabric, nodes) = record
            .map(|r| (r.fabric, r.namespaces.into_keys().collect::<Vec<_>>().join(" ")))
            .unwrap_or_default();
        table.add_row([lab, owner, fabric, nodes]);
    }
    println!("{table}");
    Ok(())
}

fn clean_all() -> Result<ExitCode> {
    let mut code = ExitCode::SUCCESS;
    for found in state::list()?.into_iter().filter(|found| found.owner == Owner::Gone) {
        match state::clean(&found) {
            Ok(()) => println!("removed {}", found.lab),
            Err(error) => {
                eprintln!("labkit: {}: {error}", found.lab);
                code = ExitCode::FAILURE;
            }
        }
    }
    Ok(code)
}

fn exec(lab: &str, node: &str, command: &[String]) -> Result<ExitCode> {
    let found = state::find(lab)?;
    let record = found.record.with_context(|| format!("lab {} has no state yet", found.lab))?;
    let Some(namespace) = record.namespaces.get(node) else {
        let known: Vec<&str> = record.namespaces.keys().map(String::as_str).collect();
        bail!("lab {} has no node {node:?} (there are: {})", record.lab, known.join(", "));
    };
    let [program, arguments @ ..] = command else { bail!("no command given") };
    let status = Netns::open(namespace)?
        .command(program)
        .args(arguments)
        .current_dir(record.dir().join("nodes").join(node))
        .env("LABKIT_LAB", &record.lab)
        .env("LABKIT_NODE", node)
        .status()
        .with_context(|| format!("run {program:?} in node {node}"))?;
    // A command ended by a signal has no status of its own.
    Ok(status.code().map_or(ExitCode::FAILURE, |code| ExitCode::from(code as u8)))
}

fn graph(lab: &str) -> Result<()> {
    let found = state::find(lab)?;
    let record = found.record.with_context(|| format!("lab {} has no state yet", found.lab))?;
    println!("graph {:?} {{", record.lab);
    for node in &record.topology.nodes {
        println!("  {:?};", node.name);
    }
    for link in &record.topology.links {
        println!(
            "  {:?} -- {:?} [taillabel={:?}, headlabel={:?}, label=\"{}\"];",
            link.a.node, link.b.node, link.a.interface, link.b.interface, link.mtu
        );
    }
    println!("}}");
    Ok(())
}
