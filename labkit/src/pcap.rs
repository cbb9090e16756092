//! Captured frames as pcap files, for any tool that reads them.

use std::fs::File;
use std::io::{BufReader, BufWriter, Write};
use std::path::Path;
use std::time::SystemTime;

use pcap_file::pcap::{PcapHeader, PcapPacket, PcapReader, PcapWriter};
use pcap_file::{DataLink, Endianness, PcapError, TsResolution};

use crate::capture::Frame;

/// A pcap file that could not be written or read.
#[derive(Debug, thiserror::Error)]
#[error("{operation} pcap file {path}: {cause}")]
pub struct Error {
    operation: &'static str,
    path: String,
    cause: PcapError,
}

/// Snapshot length in the file's header; frames are never longer.
const SNAPSHOT: u32 = 1 << 18;

/// Writes frames to a file, with time stamps in nanoseconds. An old file is replaced.
pub fn write<F: AsRef<Frame>>(path: &Path, frames: &[F]) -> Result<(), Error> {
    let failed = |cause: PcapError| Error { operation: "write", path: path.display().to_string(), cause };
    let header = PcapHeader {
        datalink: DataLink::ETHERNET,
        ts_resolution: TsResolution::NanoSecond,
        endianness: Endianness::native(),
        snaplen: SNAPSHOT,
        ..PcapHeader::default()
    };
    let file = File::create(path).map_err(|e| failed(PcapError::IoError(e)))?;
    let mut writer = PcapWriter::with_header(BufWriter::new(file), header).map_err(failed)?;
    for frame in frames {
        let frame = frame.as_ref();
        let at = frame.at.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        let length = (frame.bytes.len() + frame.cut) as u32;
        writer.write_packet(&PcapPacket::new(at, length, &frame.bytes)).map_err(failed)?;
    }
    writer.into_writer().flush().map_err(|e| failed(PcapError::IoError(e)))
}

/// Reads a file's frames as (time since the epoch, bytes).
pub fn read(path: &Path) -> Result<Vec<(std::time::Duration, Vec<u8>)>, Error> {
    let failed = |cause: PcapError| Error { operation: "read", path: path.display().to_string(), cause };
    let file = File::open(path).map_err(|e| failed(PcapError::IoError(e)))?;
    let mut reader = PcapReader::new(BufReader::new(file)).map_err(failed)?;
    let mut frames = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let packet = packet.map_err(failed)?;
        frames.push((packet.timestamp, packet.data.into_owned()));
    }
    Ok(frames)
}
