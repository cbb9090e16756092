//! What needs a kernel with modules, VRF and netem: `just kernels` runs these on such kernels, elsewhere they may be skipped.

mod netem;
mod vrf;

use labkit::Lab;
use labkit::topology::Topology;

/// Whether this kernel takes a shell script's commands in a fresh node; else what it says.
fn kernel_takes(script: &str) -> Result<(), String> {
    let topology = Topology::build("probe", |t| {
        t.node("probe");
    });
    let lab = Lab::up(&topology.unwrap()).unwrap();
    lab.node("probe").unwrap().sh(script).map(drop).map_err(|e| e.to_string())
}
