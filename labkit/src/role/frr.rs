//! FRR in a node.
use crate::error::Result;
use crate::lab::NodeHandle;
use crate::topology::FrrRole;

pub(crate) fn start(_node: &NodeHandle, _role: &FrrRole) -> Result<()> {
    Ok(())
}
