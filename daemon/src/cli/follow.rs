//! `weir show drops --follow`: sampled drops as they happen, decoded.

use std::io::Write;
use std::path::Path;

use serde::Serialize;
use weir_bpf::abi::Reason;

use super::output::{self, Format};
use super::trace::layers;
use super::{Exit, Failure};
use crate::admin::Client;
use crate::frame::{self, Layer};
use crate::inspect::{DropLine, DroppedFrame};

/// What of the stream is shown.
#[derive(Debug)]
pub(super) struct Wanted<'a> {
    /// Reasons; all when empty.
    pub(super) reasons: &'a [String],
    /// End after so many.
    pub(super) count: Option<u64>,
}

/// A drop with its frame decoded.
#[derive(Debug, Serialize)]
struct Decoded<'a> {
    #[serde(flatten)]
    dropped: &'a DroppedFrame,
    meaning: &'static str,
    layers: Vec<Layer>,
}

/// A reason's name, as `weir show drops` spells it.
pub(super) fn reason_name(text: &str) -> Result<String, String> {
    let known = Reason::ALL.iter().filter(|reason| reason.help().starts_with("dropped: "));
    if known.clone().any(|reason| reason.name() == text) {
        return Ok(text.into());
    }
    Err(format!(
        "no reason for a drop; the reasons are {}",
        known.map(|r| r.name()).collect::<Vec<_>>().join(", ")
    ))
}

/// Follows until the daemon ends, or the count is reached.
pub(super) fn run(
    admin: &Path,
    format: Format,
    wanted: &Wanted<'_>,
    out: &mut dyn Write,
) -> Result<Exit, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut drops = Client::new(admin).drops().await?;
        let mut shown = 0;
        while let Some(line) = drops.next().await? {
            match line {
                DropLine::Missed { missed } => {
                    let _ = writeln!(
                        std::io::stderr(),
                        "weir: {missed} drops were not read in time and are not shown"
                    );
                }
                DropLine::Dropped(dropped)
                    if wanted.reasons.is_empty() || wanted.reasons.contains(&dropped.reason) =>
                {
                    write(out, format, &dropped)?;
                    out.flush()?;
                    shown += 1;
                    if wanted.count.is_some_and(|count| shown >= count) {
                        return Ok(Exit::Fine);
                    }
                }
                DropLine::Dropped(_) => {}
            }
        }
        let _ = writeln!(std::io::stderr(), "weir: the daemon has ended");
        Ok(Exit::Unreachable)
    })
}

fn write(out: &mut dyn Write, format: Format, dropped: &DroppedFrame) -> Result<(), Failure> {
    let bytes = frame::read_hex(&dropped.frame).unwrap_or_default();
    let known = Reason::ALL.iter().find(|reason| reason.name() == dropped.reason);
    let decoded = Decoded {
        dropped,
        meaning: known.map_or("", |reason| reason.help()),
        layers: frame::decode(&bytes, dropped.length as usize),
    };
    match format {
        Format::Table => out.write_all(text(&decoded).as_bytes())?,
        // A line each, so that a reader knows where one ends.
        Format::Json => {
            let text = serde_json::to_string(&decoded)
                .map_err(|e| Failure::Form { form: "json", cause: e.to_string() })?;
            writeln!(out, "{text}")?;
        }
        Format::Yaml => {
            writeln!(out, "---")?;
            output::data(out, format, &decoded)?;
        }
    }
    Ok(())
}

/// One drop for people.
pub fn for_people(dropped: &DroppedFrame) -> String {
    let mut text = Vec::new();
    // Memory takes everything.
    let _ = write(&mut text, Format::Table, dropped);
    String::from_utf8_lossy(&text).into_owned()
}

fn text(decoded: &Decoded<'_>) -> String {
    let dropped = decoded.dropped;
    let more = match dropped.unsampled {
        0 => String::new(),
        n => format!(", {n} more before it"),
    };
    let Decoded { meaning, .. } = decoded;
    let DroppedFrame { at, reason, interface, length, .. } = dropped;
    format!("{at} {reason} {interface} {length} bytes{more}: {meaning}\n{}", layers(&decoded.layers))
}
