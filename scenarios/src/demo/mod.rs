//! The demo: a region comes up, clients of two tenants use it, things break, nothing is lost; told live, in a table and
//! in a report.
//!
//! [`story`] declares the steps, [`load`] is the traffic, [`picture`] draws it over time, [`ending`] writes the report and
//! decides the exit status, [`explore`] is what `--keep` leaves.

pub mod ending;
pub mod explore;
pub mod load;
pub mod picture;
mod steps;
pub mod story;

use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Instant, SystemTime};

use anyhow::Context as _;
use labkit::report::{Progress, Report};

use crate::region::{target_dir, weir_binary};
use story::Story;

/// The build that gateways are upgraded to.
pub const NEXT: &str = "next";

/// Real traffic through a VIP, while things break.
///
/// Brings up a region in network namespaces (clients, an internet router, two gateways, a spine, three workers, pods of two
/// tenants), keeps TCP connections and numbered UDP packets going, kills and upgrades gateways, and counts what is lost.
/// Needs root. Ends with status 0 if every step passed.
#[derive(Clone, Debug, clap::Parser)]
#[command(name = "demo", version)]
pub struct Arguments {
    /// Leave the lab up at the end, with both gateways and servers in all pods, and print how to enter it
    #[arg(long)]
    pub keep: bool,
    /// Folder of report.html, report.json and junit.xml [default: target/demo]
    #[arg(long, value_name = "FOLDER")]
    pub report: Option<PathBuf>,
    /// Serve in a pod of a kept lab, as NAME on an address
    #[arg(long, num_args = 2, value_names = ["NAME", "ADDRESS"], hide = true)]
    pub serve: Option<Vec<String>>,
}

/// Runs the demo and says how it went.
///
/// # Errors
/// What kept it from running at all, or its report from being written. A step that fails is no error but a status.
pub fn run(arguments: &Arguments) -> anyhow::Result<ExitCode> {
    if let Some([name, address]) = arguments.serve.as_deref() {
        explore::serve(name, address)?;
        return Ok(ExitCode::SUCCESS);
    }
    // Said before anything is made, and not in the middle of the story.
    weir_binary(None)?;
    weir_binary(Some(NEXT))?;
    labkit::lab::clean_up_on_interrupt()?;
    let runtime = tokio::runtime::Runtime::new().context("start the runtime of clients and servers")?;
    let _inside = runtime.enter();

    let (began, started) = (Instant::now(), SystemTime::now());
    let mut story = Story::new(arguments.keep)?;
    let scenario = story::scenario(&story).run(&mut story, &mut Progress::new());
    let mut report = Report {
        title: "Weir: real traffic through a VIP, while things break".into(),
        started: started.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs()),
        seconds: began.elapsed().as_secs_f64(),
        facts: ending::facts(&story),
        scenarios: vec![scenario],
    };
    let ended = story.end(arguments.keep);
    report.seconds = began.elapsed().as_secs_f64();

    let folder = arguments.report.clone().unwrap_or_else(|| target_dir().join("demo"));
    let mut out = std::io::stdout().lock();
    let code = ending::tell(&report, &folder, &mut out)?;
    // Only now: the report is worth most when the end, too, goes wrong.
    write!(out, "{}", ended?)?;
    Ok(ExitCode::from(code))
}
