//! A `weir gateway` in a node: its configuration, its process, its answers.

use std::path::PathBuf;

use anyhow::Context as _;

use super::{Family, Ipv4Routes, Region, routers::BGP_PASSWORD, target_dir};

/// A gateway of a region.
#[derive(Clone, Debug)]
pub struct Gateway {
    /// Number in the region, from 1.
    pub number: u16,
}

/// The built `weir` program; `build` is `None` for the plain one, or the name of another build (`next`, `next-layout`).
///
/// # Errors
/// When it was not built.
pub fn weir_binary(build: Option<&str>) -> anyhow::Result<PathBuf> {
    let target = target_dir();
    let path = match build {
        None => target.join("debug/weir"),
        Some(build) => target.join(build).join("weir"),
    };
    let remedy = "build it with `just build`";
    path.canonicalize().with_context(|| format!("find the program {}: {remedy}", path.display()))
}

impl Gateway {
    /// The gateway's `weir.yaml`; paths are in the node's own directory.
    pub fn config(&self, region: &Region, directory: &std::path::Path, pins: &std::path::Path) -> String {
        let n = self.number;
        let dir = directory.display();
        format!(
            "node: gw{n}\nregion: {region_name}\nlocator: {{ prefix: \"{block}\", nodeID: {n} }}\nhashKeyFile: {dir}/hash-key\nuplinks: \
             [eth1]\nfabric: [eth2]\nobjects: {dir}/objects.d\npins: {pins}\nlimits: {{ vips: 64, backends: 256, ringSlots: 524288, \
             nextHops: 64 }}\ntimers: {{ {timers} }}\ndrainMarker: {dir}/drain\nbgp:\n  asn: {asn}\n  routerID: 192.0.2.{id}\n  \
             gracefulRestart: {{ restartTime: {restart}s }}\n  peers:\n    - {{ name: edge, address: \"{edge}\", localAddress: \
             \"{uplink}\",{next_hop} asn: {edge_as}, role: upstream, passwordFile: {dir}/bgp-password, gtsm: true }}\n    - {{ name: spine, address: \
             \"{spine}\", localAddress: \"{fabric}\", asn: {spine_as}, role: fabric, passwordFile: {dir}/bgp-password, gtsm: true }}\nadmin: \
             {dir}/admin.sock\nmetrics: \"[::1]:9464\"\n",
            region_name = region.region(),
            block = region.block(),
            pins = pins.display(),
            timers = region.timers,
            asn = region.gateway_as(),
            edge_as = region.edge_as(),
            spine_as = region.spine_as(),
            id = 10 + n,
            restart = region.restart_time,
            edge = region.edge_uplink(n),
            uplink = region.gateway_uplink(n),
            next_hop = match region.ipv4_routes {
                Ipv4Routes::NextHop =>
                    format!(" nextHopIPv4: {},", region.gateway_uplink_of(n, Family::Ipv4)),
                Ipv4Routes::Extended => String::new(),
            },
            spine = region.spine_fabric(n),
            fabric = region.gateway_fabric(n),
        )
    }
    /// Secrets beside the configuration, by file name.
    pub fn secrets() -> [(&'static str, Vec<u8>); 2] {
        [("hash-key", (0..32).map(|i| 0xa0 ^ i).collect()), ("bgp-password", BGP_PASSWORD.into())]
    }
}
