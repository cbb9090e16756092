//! Placeholder until the gateway's main loop is merged here.

use std::path::Path;

/// Why the gateway ended.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// This build holds no gateway.
    #[error("run the gateway: this build has no main loop yet; use a complete build")]
    Missing,
}

/// Runs the gateway until it is told to stop.
pub fn gateway(_config: &Path) -> Result<(), Error> {
    Err(Error::Missing)
}
