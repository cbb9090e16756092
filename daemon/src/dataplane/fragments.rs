//! Entries that lead fragments to a VIP's only rule for a protocol, where no port is needed to find the backend.
//!
//! The program looks one up for a fragment that has no ports. It is there exactly while one key of the VIP and protocol is loaded and
//! its word's affinity leaves the ports out: it comes after that key, and goes before it, before a second one, and before the word
//! hashes ports.

use std::collections::BTreeSet;
use std::net::IpAddr;

use super::apply::Reconciler;
use super::{Dataplane, Error};
use crate::model::{Affinity, Protocol, VipKey};

/// Whose fragments: a VIP's, of one protocol.
pub(super) type Fragments = (IpAddr, Protocol);

impl<D: Dataplane> Reconciler<D> {
    /// The VIP index that fragments may be led to.
    fn wanted(&self, (address, protocol): Fragments) -> Option<u32> {
        let key = |port| VipKey { address, protocol, port };
        let mut entries = self.tables.vips.range(key(0)..=key(u16::MAX)).map(|(_, entry)| entry);
        let only = entries.next().filter(|_| entries.next().is_none())?;
        (only.word.size() != 0 && only.word.affinity() != Affinity::None).then_some(only.index)
    }

    /// Takes an entry back, if there is one.
    pub(super) fn unlead(&mut self, of: Fragments) -> Result<(), Error> {
        self.unsure.insert(of);
        if self.tables.fragments.contains_key(&of) {
            self.dataplane.delete_fragments(of.0, of.1)?;
            self.tables.fragments.remove(&of);
            self.garbage.hidden_keys = true;
        }
        Ok(())
    }

    /// Brings the entries of what has changed to what its keys ask for. A fault leaves the rest for the next time.
    pub(super) fn lead_fragments(&mut self) -> Result<(), Error> {
        let changed: BTreeSet<Fragments> = self.unsure.clone();
        for of in &changed {
            if self.tables.fragments.get(of).copied() != self.wanted(*of) {
                self.unlead(*of)?;
            }
        }
        self.collect()?;
        for of in changed {
            if let (None, Some(index)) = (self.tables.fragments.get(&of), self.wanted(of)) {
                self.dataplane.insert_fragments(of.0, of.1, index)?;
                self.tables.fragments.insert(of, index);
            }
            self.unsure.remove(&of);
        }
        Ok(())
    }
}
