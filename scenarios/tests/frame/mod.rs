//! What must hold for the repository itself: its ledger, its layers, its flake, its documents.

mod docs;
mod layers;
mod ledger;
mod nix;
mod source;

use std::io::Write as _;
use std::path::PathBuf;

/// Root of the repository.
pub(crate) fn root() -> PathBuf {
    let manifest = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().expect("the crate lies in the repository's root").to_path_buf()
}

/// Says that a test cannot run here and why, and counts it: `verify` fails on a skip that nobody expects.
fn skip(test: &str, reason: &str) {
    let line = format!("SKIP {test}: {reason}\n");
    print!("{line}");
    if let Some(list) = std::env::var_os("WEIR_SKIPS") {
        let file = std::fs::OpenOptions::new().create(true).append(true).open(list);
        file.and_then(|mut file| file.write_all(line.as_bytes()))
            .expect("WEIR_SKIPS names a file to append to");
    }
}
