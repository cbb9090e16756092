//! `weir capture`: a pcapng file of what a gateway received for a VIP, and of what it sent.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use super::node::NodeArgs;
use super::{Exit, Failure};
use crate::admin::{CaptureRequest, Client};
use crate::frame::{CaptureReader, Captured, Direction};

/// Arguments of `weir capture`.
#[derive(Debug, clap::Args)]
#[command(after_help = format!("The daemon puts a second build of its program in place, which also copies the VIP's frames out, and puts the plain one
back at the end, however that comes about. No packet is lost over it. What XDP sends is seen by no other tool on
this host. With --port, packets whose port stands in no TCP or UDP header right behind the IP header (ICMP errors,
fragments, extension headers) are captured too.

Each frame says whether it was received or sent, on which interface, and what became of it. Ends with 1 when no
frame was captured. The summary goes to standard error.

Examples:
  weir capture --vip 2001:db8:100::1 --port 443 --count 100 --write flows.pcapng
  weir capture --vip 2001:db8:100::1 --seconds 60 --write - | tcpdump -r - -n

{}", super::EXIT_CODES))]
pub(super) struct Args {
    /// VIP
    #[arg(long, value_name = "ADDRESS")]
    vip: IpAddr,
    /// Only packets to this port of it
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// End after so many received frames
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// End after so many seconds
    #[arg(
        long,
        value_name = "SECONDS",
        default_value_t = 10,
        value_parser = clap::value_parser!(u32).range(1..=i64::from(CaptureRequest::LONGEST))
    )]
    seconds: u32,
    /// File to write, as pcapng; - writes to standard output
    #[arg(long, short, value_name = "FILE")]
    write: PathBuf,
    #[command(flatten)]
    node: NodeArgs,
}

pub(super) fn run(args: &Args, out: &mut dyn Write) -> Result<Exit, Failure> {
    let admin = args.node.resolve()?.admin;
    let request = CaptureRequest {
        vip: args.vip,
        port: args.port.unwrap_or(0),
        seconds: args.seconds,
        count: args.count.unwrap_or(0),
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let mut download = Client::new(&admin).capture(&request).await?;
        let mut file;
        let to: &mut dyn Write = if args.write == Path::new("-") {
            out
        } else {
            file = std::fs::File::create(&args.write)
                .map_err(|e| Failure::Usage(format!("write {}: {e}", args.write.display())))?;
            &mut file
        };
        let (mut reader, mut summary) = (CaptureReader::default(), Summary::default());
        while let Some(part) = download.next().await? {
            to.write_all(&part)?;
            to.flush()?;
            reader.push(&part)?.iter().for_each(|frame| summary.add(frame));
        }
        let text = summary.text(reader.lost);
        let _ = write!(std::io::stderr(), "{text}");
        Ok(if summary.received == 0 { Exit::Problems } else { Exit::Fine })
    })
}

/// What a capture holds.
#[derive(Debug, Default)]
pub struct Summary {
    received: u64,
    sent: u64,
    reasons: BTreeMap<String, u64>,
}

impl Summary {
    /// Counts a frame.
    pub fn add(&mut self, frame: &Captured) {
        if frame.direction == Some(Direction::Sent) {
            self.sent += 1;
            return;
        }
        self.received += 1;
        let unknown = || "no word of what became of it".to_owned();
        *self.reasons.entry(frame.comment.clone().unwrap_or_else(unknown)).or_default() += 1;
    }

    /// For people.
    pub fn text(&self, lost: u64) -> String {
        let mut text = format!("{} received, {} sent, {lost} lost\n", self.received, self.sent);
        for (reason, count) in &self.reasons {
            text.push_str(&format!("  {count}  {reason}\n"));
        }
        text
    }
}
