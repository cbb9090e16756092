//! Frames in files: pcap and pcapng read, pcapng written, hex dumps read.

use std::borrow::Cow;
use std::io::Cursor;
use std::time::Duration;

use pcap_file::pcap::PcapReader;
use pcap_file::pcapng::blocks::enhanced_packet::{EnhancedPacketBlock, EnhancedPacketOption};
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::pcapng::blocks::interface_statistics::{InterfaceStatisticsBlock, InterfaceStatisticsOption};
use pcap_file::pcapng::{Block, PcapNgBlock as _, PcapNgParser, PcapNgWriter};
use pcap_file::{DataLink, PcapError};

/// Why bytes are no frames.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// Neither format, or broken.
    #[error("read the capture: {0}; give a pcap or pcapng file, as tcpdump and Wireshark write them")]
    Format(PcapError),
    /// Frames of another link layer.
    #[error("read the capture: its link layer is {0:?}; capture on an Ethernet interface")]
    Link(DataLink),
    /// No hex dump.
    #[error("read the hex dump: {0}; give the frame from its Ethernet header on, two digits a byte")]
    Hex(String),
}

/// Which way a captured frame went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// It came in.
    Received,
    /// It was sent.
    Sent,
}

/// A frame of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// Time since 1970.
    pub at: Duration,
    /// Interface's name, where the file tells it.
    pub interface: Option<String>,
    /// Which way it went, where the file tells it.
    pub direction: Option<Direction>,
    /// What the file says of it.
    pub comment: Option<String>,
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Bytes that it had on the wire.
    pub length: usize,
}

/// Direction in the two lowest bits of `epb_flags`.
const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// Reads all frames of a pcap or pcapng file.
pub fn read(bytes: &[u8]) -> Result<Vec<Captured>, FileError> {
    // A pcapng file begins with a section header block.
    if bytes.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]) { read_pcapng(bytes) } else { read_pcap(bytes) }
}

fn read_pcap(bytes: &[u8]) -> Result<Vec<Captured>, FileError> {
    let mut reader = PcapReader::new(Cursor::new(bytes)).map_err(FileError::Format)?;
    let link = reader.header().datalink;
    if link != DataLink::ETHERNET {
        return Err(FileError::Link(link));
    }
    let mut frames = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let packet = packet.map_err(FileError::Format)?;
        frames.push(Captured {
            at: packet.timestamp,
            interface: None,
            direction: None,
            comment: None,
            length: packet.orig_len as usize,
            bytes: packet.data.into_owned(),
        });
    }
    Ok(frames)
}

fn read_pcapng(bytes: &[u8]) -> Result<Vec<Captured>, FileError> {
    let mut reader = CaptureReader::default();
    let frames = reader.push(bytes)?;
    if reader.unread.is_empty() { Ok(frames) } else { Err(FileError::Format(PcapError::IncompleteBuffer)) }
}

/// Reads a pcapng file in parts, as they come.
#[derive(Default)]
pub struct CaptureReader {
    parser: Option<PcapNgParser>,
    interfaces: Vec<Option<String>>,
    unread: Vec<u8>,
    /// Frames that the file says were lost.
    pub lost: u64,
}

impl CaptureReader {
    /// The frames that have become whole with this part.
    pub fn push(&mut self, part: &[u8]) -> Result<Vec<Captured>, FileError> {
        self.unread.extend_from_slice(part);
        let bytes = std::mem::take(&mut self.unread);
        let (mut rest, mut frames) = (&bytes[..], Vec::new());
        if self.parser.is_none() {
            match PcapNgParser::new(rest) {
                Ok((after, parser)) => (rest, self.parser) = (after, Some(parser)),
                Err(PcapError::IncompleteBuffer) => {}
                Err(error) => return Err(FileError::Format(error)),
            }
        }
        if let Some(mut parser) = self.parser.take() {
            while !rest.is_empty() {
                match parser.next_block(rest) {
                    Ok((after, block)) => {
                        rest = after;
                        self.block(block, &mut frames)?;
                    }
                    Err(PcapError::IncompleteBuffer) => break,
                    Err(error) => return Err(FileError::Format(error)),
                }
            }
            self.parser = Some(parser);
        }
        self.unread = rest.to_vec();
        Ok(frames)
    }

    fn block(&mut self, block: Block<'_>, frames: &mut Vec<Captured>) -> Result<(), FileError> {
        match block {
            Block::SectionHeader(_) => self.interfaces.clear(),
            Block::InterfaceDescription(interface) => {
                if interface.linktype != DataLink::ETHERNET {
                    return Err(FileError::Link(interface.linktype));
                }
                self.interfaces.push(interface.options.iter().find_map(|option| match option {
                    InterfaceDescriptionOption::IfName(name) => Some(name.to_string()),
                    _ => None,
                }));
            }
            Block::InterfaceStatistics(statistics) => {
                for option in &statistics.options {
                    if let InterfaceStatisticsOption::IsbIfDrop(lost) = option {
                        self.lost += lost;
                    }
                }
            }
            Block::EnhancedPacket(packet) => frames.push(enhanced(&packet, &self.interfaces)),
            Block::SimplePacket(packet) => frames.push(Captured {
                at: Duration::ZERO,
                interface: None,
                direction: None,
                comment: None,
                length: packet.original_len as usize,
                bytes: packet.data.into_owned(),
            }),
            _ => {}
        }
        Ok(())
    }
}

fn enhanced(packet: &EnhancedPacketBlock<'_>, interfaces: &[Option<String>]) -> Captured {
    let (mut direction, mut comment) = (None, None);
    for option in &packet.options {
        match option {
            EnhancedPacketOption::Flags(flags) => {
                direction = match flags & 3 {
                    INBOUND => Some(Direction::Received),
                    OUTBOUND => Some(Direction::Sent),
                    _ => None,
                };
            }
            EnhancedPacketOption::Comment(text) => comment = Some(text.to_string()),
            _ => {}
        }
    }
    Captured {
        at: packet.timestamp,
        interface: interfaces.get(packet.interface_id as usize).cloned().flatten(),
        direction,
        comment,
        bytes: packet.data.to_vec(),
        length: packet.original_len as usize,
    }
}

/// Writes a pcapng file piece by piece: [`CaptureWriter::take`] gives what has come together since the last time.
pub struct CaptureWriter {
    writer: PcapNgWriter<Vec<u8>>,
    interfaces: Vec<String>,
}

impl CaptureWriter {
    /// Begins a file.
    pub fn new() -> Result<Self, FileError> {
        let writer = PcapNgWriter::new(Vec::new()).map_err(FileError::Format)?;
        Ok(Self { writer, interfaces: Vec::new() })
    }

    /// Adds a frame; an interface is described when its first one comes.
    pub fn add(&mut self, frame: &Captured) -> Result<(), FileError> {
        let name = frame.interface.clone().unwrap_or_default();
        let number = match self.interfaces.iter().position(|known| *known == name) {
            Some(number) => number,
            None => self.describe(&name)?,
        };
        let mut options = Vec::new();
        if let Some(comment) = &frame.comment {
            options.push(EnhancedPacketOption::Comment(Cow::Borrowed(comment)));
        }
        if let Some(direction) = frame.direction {
            let flags = if direction == Direction::Received { INBOUND } else { OUTBOUND };
            options.push(EnhancedPacketOption::Flags(flags));
        }
        let block = EnhancedPacketBlock {
            interface_id: number as u32,
            timestamp: frame.at,
            original_len: frame.length as u32,
            data: Cow::Borrowed(&frame.bytes),
            options,
        };
        self.writer.write_block(&block.into_block()).map(drop).map_err(FileError::Format)
    }

    /// Notes frames that were lost, if there were any: in the statistics of an interface.
    pub fn lost(&mut self, frames: u64) -> Result<(), FileError> {
        if frames == 0 {
            return Ok(());
        }
        if self.interfaces.is_empty() {
            self.describe("")?;
        }
        let options = vec![InterfaceStatisticsOption::IsbIfDrop(frames)];
        let block = InterfaceStatisticsBlock { interface_id: 0, timestamp: 0, options };
        self.writer.write_block(&block.into_block()).map(drop).map_err(FileError::Format)
    }

    fn describe(&mut self, name: &str) -> Result<usize, FileError> {
        let options = vec![
            InterfaceDescriptionOption::IfName(Cow::Borrowed(name)),
            // Nanoseconds.
            InterfaceDescriptionOption::IfTsResol(9),
        ];
        let block = InterfaceDescriptionBlock { linktype: DataLink::ETHERNET, snaplen: 0, options };
        self.writer.write_block(&block.into_block()).map_err(FileError::Format)?;
        self.interfaces.push(name.into());
        Ok(self.interfaces.len() - 1)
    }

    /// The file's bytes since the last call.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(self.writer.get_mut())
    }
}

/// Reads a hex dump: digits alone, with blanks or colons between bytes, or lines of tcpdump -xx, xxd and Wireshark with
/// their offsets and texts.
pub fn read_hex(text: &str) -> Result<Vec<u8>, FileError> {
    let mut digits = String::new();
    for line in text.lines() {
        let line = line.trim();
        let (offset, body) = match line.split_once(char::is_whitespace) {
            Some((first, rest)) if first.ends_with(':') => (true, rest.trim_start()),
            Some((first, rest)) if is_offset(first, rest) => (true, rest.trim_start()),
            _ => (false, line),
        };
        // Behind two blanks stands the line as text.
        let body = if offset { body.split("  ").next().unwrap_or(body) } else { body };
        digits.extend(body.chars().filter(|c| !c.is_whitespace() && *c != ':'));
    }
    let digits = digits.strip_prefix("0x").unwrap_or(&digits);
    if let Some(other) = digits.chars().find(|c| !c.is_ascii_hexdigit()) {
        return Err(FileError::Hex(format!("{other:?} is no hexadecimal digit")));
    }
    if digits.is_empty() || !digits.len().is_multiple_of(2) {
        return Err(FileError::Hex(format!("{} digits are no whole number of bytes", digits.len())));
    }
    let byte = |at: usize| u8::from_str_radix(&digits[at..at + 2], 16).unwrap_or_default();
    Ok((0..digits.len()).step_by(2).map(byte).collect())
}

/// `0010  86 dd …`: an offset without a colon, and single bytes behind it.
fn is_offset(first: &str, rest: &str) -> bool {
    let hex = |text: &str| text.chars().all(|c| c.is_ascii_hexdigit());
    let next = rest.split_whitespace().next();
    first.len() >= 4 && hex(first) && rest.starts_with(' ') && next.is_some_and(|n| n.len() == 2 && hex(n))
}
