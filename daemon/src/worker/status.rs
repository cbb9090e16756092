//! What a worker says of itself, kept in a file that readers may open at any time.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use weir_api::FileProblem;

/// A worker's status.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerStatus {
    /// Node.
    pub node: String,
    /// Objects are read, programs attached, every binding of this node is in effect or its refusal told.
    pub ready: bool,
    /// Why it is not ready.
    pub reasons: Vec<String>,
    /// Bindings of this node by `namespace/name`.
    pub bindings: BTreeMap<String, Bound>,
    /// What is wrong with files of objects.
    pub problems: Vec<FileProblem>,
}

/// The condition `Bound` of a binding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bound {
    /// True once verified.
    pub bound: bool,
    /// One word.
    pub reason: String,
    /// One sentence.
    pub message: String,
}

impl WorkerStatus {
    /// Writes the file anew, by rename.
    ///
    /// # Errors
    /// What the file system refused.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        if let Some(directory) = path.parent() {
            std::fs::create_dir_all(directory)?;
        }
        let fresh = path.with_extension("new");
        std::fs::write(&fresh, serde_json::to_vec_pretty(self)?)?;
        std::fs::rename(&fresh, path)
    }

    /// Reads the file.
    ///
    /// # Errors
    /// When it cannot be read, or holds something else.
    pub fn read(path: &Path) -> io::Result<Self> {
        Ok(serde_json::from_slice(&std::fs::read(path)?)?)
    }
}
