//! Which gateway a command is about: where its maps, its socket and its region are found.

use std::path::{Path, PathBuf};

use super::Failure;
use crate::admin::DEFAULT_SOCKET;
use crate::config::{Config, read_hash_key};

/// Configuration file when none is named.
pub(super) const DEFAULT_CONFIG: &str = "/etc/weir/weir.yaml";
const DEFAULT_PINS: &str = "/sys/fs/bpf/weir";

/// Options that say which gateway on this node is meant.
#[derive(Clone, Debug, Default, clap::Args)]
pub(super) struct NodeArgs {
    /// Pin path of the gateway's maps [default: the configuration's, else /sys/fs/bpf/weir]
    #[arg(long, value_name = "PATH", env = "WEIR_PINS", hide_env_values = true)]
    pub pins: Option<PathBuf>,
    /// Socket of the gateway's daemon [default: the configuration's, else /run/weir/gateway.sock]
    #[arg(long, value_name = "SOCKET", env = "WEIR_ADMIN", hide_env_values = true)]
    pub admin: Option<PathBuf>,
    /// The gateway's configuration [default: /etc/weir/weir.yaml, when it is there]
    #[arg(long, value_name = "FILE", env = "WEIR_CONFIG", hide_env_values = true)]
    pub config: Option<PathBuf>,
}

/// The same, looked up.
#[derive(Debug)]
pub(super) struct Node {
    /// Pin path.
    pub(super) pins: PathBuf,
    /// Socket.
    pub(super) admin: PathBuf,
    /// The configuration, when one is named or stands in the default place.
    pub(super) config: Option<Config>,
}

impl Node {
    /// The region's key: of the file given, or the configuration's.
    pub(super) fn region_key(&self, file: Option<&Path>) -> Result<Option<[u8; 32]>, Failure> {
        if let Some(path) = file {
            return Ok(Some(*read_hash_key(path)?.expose()));
        }
        Ok(self.config.as_ref().map(|config| *config.hash_key.expose()))
    }
}

impl NodeArgs {
    /// Reads the configuration, if there is one, and fills in what the command line does not say.
    pub(super) fn resolve(&self) -> Result<Node, Failure> {
        let default = || {
            let path = Path::new(DEFAULT_CONFIG);
            path.exists().then(|| path.to_path_buf())
        };
        let config = match &self.config {
            Some(path) => Some(Config::load(path)?),
            // A file that nobody named may be of no concern here, say when all else is given.
            None => default().and_then(|path| match Config::load(&path) {
                Ok(config) => Some(config),
                Err(error) => {
                    tracing::warn!(%error, "default configuration not used");
                    None
                }
            }),
        };
        let pick = |given: &Option<PathBuf>, from: fn(&Config) -> &PathBuf, default: &str| {
            given
                .clone()
                .or_else(|| config.as_ref().map(|c| from(c).clone()))
                .unwrap_or_else(|| default.into())
        };
        Ok(Node {
            pins: pick(&self.pins, |c| &c.pins, DEFAULT_PINS),
            admin: pick(&self.admin, |c| &c.admin, DEFAULT_SOCKET),
            config,
        })
    }
}
