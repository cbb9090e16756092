//! What realises a topology's nodes and links. Addresses, routes and programs are put in the same way over any fabric.

mod netns;

use std::collections::BTreeMap;
use std::fmt::Debug;

use crate::error::{Error, Result};
use crate::netns::Netns;
use crate::state::Record;

pub use netns::NetnsFabric;

/// Makes nodes with their links, and takes them away.
pub trait Fabric: Debug + Send + Sync {
    /// Short name, kept in the lab's state so that it can be cleaned up by another process.
    fn name(&self) -> &'static str;

    /// Makes all nodes and links of the lab: every link's ends exist, with their MTU and up or down. Returns each node's namespace.
    ///
    /// # Errors
    /// What was made until then stays; the caller takes the lab down.
    fn up(&self, record: &Record) -> Result<BTreeMap<String, Netns>>;

    /// Takes everything away; what is not there is fine.
    fn down(&self, record: &Record) -> Result<()>;
}

/// The fabric that a lab's state names.
pub fn by_name(name: &str) -> Result<Box<dyn Fabric>> {
    match name {
        "netns" => Ok(Box::new(NetnsFabric)),
        _ => Err(Error::Unknown { kind: "fabric", name: name.into(), known: vec!["netns".into()] }),
    }
}
