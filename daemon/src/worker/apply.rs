//! Carries out the difference of two images, in the only order in which no packet meets a record that is not its own.

use std::collections::BTreeMap;

use weir_bpf::worker_abi::{Binding, Endpoint, Params, PortKey, SidKey, SourceKey};

use super::image::{Facts, Image};
use crate::dataplane::Error;

/// A key of one of the hash maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AnyKey {
    /// Of `w_sids`.
    Sid(SidKey),
    /// Of `w_services`.
    Service(PortKey),
    /// Of `w_sources`.
    Source(SourceKey),
    /// Of `w_ports`.
    Port(u32),
}

/// Single operations on the worker's maps; order and safety are [`apply`]'s.
pub trait Tables {
    /// Adds a key, which must be new.
    fn insert(&mut self, key: AnyKey, value: u32) -> Result<(), Error>;
    /// Removes a key.
    fn delete(&mut self, key: AnyKey) -> Result<(), Error>;
    /// Writes a record that no key leads to; its counters start at 0.
    fn put_binding(&mut self, index: u32, binding: &Binding, facts: &Facts) -> Result<(), Error>;
    /// Writes what user space keeps about a binding.
    fn put_facts(&mut self, index: u32, binding: &Binding, facts: &Facts) -> Result<(), Error>;
    /// Forgets a record that no key leads to.
    fn clear_binding(&mut self, index: u32) -> Result<(), Error>;
    /// Writes an endpoint that no binding leads to.
    fn put_endpoint(&mut self, index: u32, endpoint: &Endpoint) -> Result<(), Error>;
    /// Points an endpoint at another interface, by one store.
    fn set_ifindex(&mut self, index: u32, ifindex: u32) -> Result<(), Error>;
    /// Writes what may change while the programs run.
    fn put_params(&mut self, params: &Params) -> Result<(), Error>;
    /// Returns once no CPU can still use what was removed before.
    fn wait_for_readers(&mut self) -> Result<(), Error>;
}

/// Makes the maps hold `to`; they hold `from`.
///
/// # Errors
/// The first operation that failed; what was done until then stands, and reading the maps back tells it.
pub fn apply(tables: &mut impl Tables, from: &Image, to: &Image) -> Result<(), Error> {
    let (old, new) = (keys(from), keys(to));
    let gone: Vec<AnyKey> =
        old.iter().filter(|(key, value)| new.get(key) != Some(value)).map(|(key, _)| *key).collect();
    for key in &gone {
        tables.delete(*key)?;
    }
    let unused = from.bindings.keys().any(|i| !to.bindings.contains_key(i));
    if !gone.is_empty() || unused {
        tables.wait_for_readers()?;
    }
    for index in from.bindings.keys().filter(|i| !to.bindings.contains_key(i)) {
        tables.clear_binding(*index)?;
    }
    for (index, (endpoint, _)) in &to.endpoints {
        match from.endpoints.get(index) {
            Some((held, _)) if held == endpoint => {}
            Some((held, _)) if Endpoint { ifindex: endpoint.ifindex, ..*held } == *endpoint => {
                tables.set_ifindex(*index, endpoint.ifindex)?;
            }
            _ => tables.put_endpoint(*index, endpoint)?,
        }
    }
    for (index, (binding, facts)) in &to.bindings {
        match from.bindings.get(index) {
            Some((held, known)) if held == binding => {
                if known != facts {
                    tables.put_facts(*index, binding, facts)?;
                }
            }
            _ => tables.put_binding(*index, binding, facts)?,
        }
    }
    // What guards an endpoint's packets stands before the first packet comes for it.
    for (key, value) in new.iter().rev().filter(|(key, value)| old.get(key) != Some(value)) {
        tables.insert(*key, *value)?;
    }
    Ok(())
}

/// All keys, those that lead packets to endpoints first, as their order says.
fn keys(image: &Image) -> BTreeMap<AnyKey, u32> {
    let sids = image.sids.iter().map(|(k, v)| (AnyKey::Sid(*k), *v));
    let services = image.services.iter().map(|(k, v)| (AnyKey::Service(*k), *v));
    let sources = image.sources.iter().map(|(k, v)| (AnyKey::Source(*k), *v));
    let ports = image.ports.iter().map(|(k, v)| (AnyKey::Port(*k), *v));
    sids.chain(services).chain(sources).chain(ports).collect()
}
