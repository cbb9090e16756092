//! Frames for people: decoded field by field, made from a few words, read from hex dumps and capture files, written to those.

mod build;
mod decode;
mod file;
#[cfg(test)]
mod tests;
mod transport;

pub use build::{Endpoints, Transport, build};
pub use decode::{Layer, decode};
pub use file::{CaptureReader, CaptureWriter, Captured, Direction, FileError, read, read_hex};
