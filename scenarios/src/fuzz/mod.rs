//! What is fuzzed: a function for each parser of bytes that come from outside. It may not panic, and where there is an oracle it
//! may not disagree with it. `fuzz/` gives these to libFuzzer; tests run the corpus that is checked in through them.

pub mod differ;

use std::path::{Path, PathBuf};

/// A name, which is its program's and its corpus directory's, and the function.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: &[Target] = &[
    ("packet", differ::packet),
    ("bgp", weir::route::bgp::rehearse),
    ("objects", objects),
    ("config", config),
    ("frames", frames),
];

/// Directory of the corpus that is checked in.
pub fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus")
}

/// A file of an object: it is accepted, or its problems name a line that it has.
///
/// # Panics
/// When it is neither.
pub fn objects(bytes: &[u8]) {
    let parsed = weir_api::object::parse_file(Path::new("object.yaml"), bytes);
    let refused = parsed.problems.iter().any(|p| p.problem.severity == weir_api::Severity::Error);
    assert_eq!(parsed.object.is_none(), refused, "{:?}", parsed.problems);
    let lines = bytes.split(|byte| *byte == b'\n').count();
    for problem in &parsed.problems {
        assert!(problem.line <= lines as u64 + 1, "a file of {lines} lines: {problem}");
    }
}

/// A gateway's configuration.
///
/// # Panics
/// When it is refused without a problem.
pub fn config(bytes: &[u8]) {
    // Key files beside it do not exist.
    if let Err(problems) = weir::config::Config::parse(Path::new("/nonexistent/weir.yaml"), bytes) {
        assert!(!problems.is_empty());
    }
}

/// What `weir trace` reads, a capture or hexadecimal digits, and what decodes the frames for people.
pub fn frames(bytes: &[u8]) {
    if let Ok(text) = std::str::from_utf8(bytes) {
        // Either is an answer; only a panic would not be.
        let _ = weir::frame::read_hex(text);
    }
    for captured in weir::frame::read(bytes).unwrap_or_default() {
        weir::frame::decode(&captured.bytes, captured.length);
    }
    weir::frame::decode(bytes, bytes.len());
}
