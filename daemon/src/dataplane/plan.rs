//! Which rules changed: the pure difference between what should be and what was loaded last.

use std::collections::BTreeSet;
use std::sync::Arc;

use crate::desired::Desired;
use crate::model::{ObjectName, Rule, Rules, VipKey};

/// What one pass has to do, in this order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Keys to hide now: unwanted, and allowed to go.
    pub remove: Vec<VipKey>,
    /// Rules to load or to load anew.
    pub load: Vec<Arc<Rule>>,
    /// Rules that are gone; their keys stay until they are in `remove`.
    pub forget: Vec<ObjectName>,
}

impl Plan {
    /// Nothing to do.
    pub fn is_empty(&self) -> bool {
        self.remove.is_empty() && self.load.is_empty() && self.forget.is_empty()
    }
}

/// Compares `desired` with the rules loaded last and the keys that are there. Before all sources have been read nothing is
/// removed: "not seen yet" is not "deleted". Unchanged rules cost one pointer comparison.
pub fn diff(desired: &Desired, current: &Rules, keys: impl Iterator<Item = VipKey>) -> Plan {
    let mut plan = Plan::default();
    // Both are in the order of names: one pass over both, where a look-up a rule would compare names a dozen times.
    let mut loaded = current.iter().peekable();
    for (name, rule) in &desired.rules {
        while let Some((gone, _)) = loaded.next_if(|(now, _)| *now < name) {
            plan.forget.push(gone.clone());
        }
        let now = loaded.next_if(|(now, _)| *now == name);
        if !now.is_some_and(|(_, now)| Arc::ptr_eq(now, rule) || now == rule) {
            plan.load.push(Arc::clone(rule));
        }
    }
    plan.forget.extend(loaded.map(|(gone, _)| gone.clone()));
    if !desired.synced {
        plan.forget.clear();
        return plan;
    }
    if desired.unload.is_empty() {
        return plan;
    }
    let wanted: BTreeSet<VipKey> =
        desired.rules.values().flat_map(|rule| rule.keys().collect::<Vec<_>>()).collect();
    plan.remove = keys.filter(|key| desired.unload.contains(key) && !wanted.contains(key)).collect();
    plan
}
