//! Every input there is: what sources, the data plane, peers and operators tell the state.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use weir_api::FileProblem;
use weir_api::checked::{CheckedObject, Kind};

use crate::config::PeerRole;
use crate::desired::Applied;
use crate::model::Families;

/// One input.
#[derive(Clone, Debug)]
pub enum Event {
    /// All objects as their source now holds them: each object's last good version.
    Objects(ObjectSet),
    /// How a source does.
    Source(SourceStatus),
    /// What the data plane holds.
    Applied(Applied),
    /// How a BGP peer does.
    Peer(PeerStatus),
    /// An operator asks the gateway to leave for good.
    Drain,
    /// The daemon stops to be started again: nothing is withdrawn or unloaded.
    Shutdown,
    /// Time has passed.
    Tick,
}

/// An object and where it was read.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loaded {
    /// File, or URL in a cluster.
    pub origin: String,
    /// The object.
    pub object: CheckedObject,
}

impl Loaded {
    /// Kind, namespace and name: unique in a set, and its order.
    pub fn key(&self) -> (Kind, &str, &str) {
        let id = self.object.id();
        (self.object.kind(), &id.namespace, &id.name)
    }
}

/// Objects sorted by kind, namespace and name, each once. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectSet(Arc<[Arc<Loaded>]>);

impl ObjectSet {
    /// Makes a set in any order; of two objects with one key the first stays.
    pub fn new(mut objects: Vec<Arc<Loaded>>) -> Self {
        if !objects.is_sorted_by(|a, b| a.key() < b.key()) {
            objects.sort_by(|a, b| a.key().cmp(&b.key()));
            objects.dedup_by(|b, a| a.key() == b.key());
        }
        Self(objects.into())
    }

    /// Makes a set of objects that are sorted and unique already.
    pub(crate) fn sorted(objects: Vec<Arc<Loaded>>) -> Self {
        debug_assert!(objects.is_sorted_by(|a, b| a.key() < b.key()), "objects out of order");
        Self(objects.into())
    }

    /// The objects in order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Loaded>> {
        self.0.iter()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Default for ObjectSet {
    fn default() -> Self {
        Self(Arc::new([]))
    }
}

/// How a source of objects does.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SourceStatus {
    /// Its name, such as `files`.
    pub source: String,
    /// Everything has been read once, and each object read has a good version. Never false again once true.
    pub synced: bool,
    /// What is wrong now, warnings included.
    pub problems: Vec<FileProblem>,
}

/// How a BGP peer does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PeerStatus {
    /// Its name in the configuration.
    pub name: String,
    /// What it is told.
    pub role: PeerRole,
    /// The session is in state Established (RFC 4271).
    pub established: bool,
    /// All that it should know was sent, End-of-RIB (RFC 4724) included.
    pub synced: bool,
    /// Families of which the session carries routes.
    pub carries: Families,
}
