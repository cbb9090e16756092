//! The objects that a region's gateways read, as files that are replaced by rename.

use std::path::{Path, PathBuf};

use super::{Region, Tenant};

/// A directory of objects.
#[derive(Clone, Debug)]
pub struct Objects {
    directory: PathBuf,
}

impl Objects {
    /// The objects in a directory.
    pub fn at(directory: impl Into<PathBuf>) -> Self {
        Self { directory: directory.into() }
    }
    /// The directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }
    /// Writes a file by rename.
    pub fn put(&self, name: &str, text: &str) -> std::io::Result<()> {
        std::fs::create_dir_all(&self.directory)?;
        let fresh = self.directory.join(format!(".{name}.new"));
        std::fs::write(&fresh, text)?;
        std::fs::rename(&fresh, self.directory.join(name))
    }
    /// Removes a file.
    pub fn remove(&self, name: &str) -> std::io::Result<()> {
        std::fs::remove_file(self.directory.join(name))
    }
    /// Writes what a region starts with: the endpoints of all pods and a rule a tenant over all its pods, TCP and UDP.
    pub fn put_region(&self, region: &Region) -> std::io::Result<()> {
        for tenant in super::TENANTS {
            for worker in 1..=region.workers {
                self.put(
                    &format!("vpce-{}-{worker}.yaml", tenant.letter),
                    &endpoint(region, worker, tenant),
                )?;
            }
            let workers: Vec<u16> = (1..=region.workers).collect();
            for protocol in ["tcp", "udp"] {
                let name = format!("web-{protocol}");
                self.put(
                    &format!("rule-{}-{protocol}.yaml", tenant.letter),
                    &rule(region, tenant, &name, protocol, &workers),
                )?;
            }
        }
        Ok(())
    }
}

/// Port that the pods serve.
pub const PORT: u16 = 8080;

/// A `VPCEndpoint`: where a tenant's pod on a worker is.
pub fn endpoint(region: &Region, worker: u16, tenant: Tenant) -> String {
    format!(
        "apiVersion: network.datumapis.com/v1alpha1\nkind: VPCEndpoint\nmetadata:\n  namespace: platform\n  name: {}-w{worker}\n\
         spec:\n  vpcRef: {}\n  vpcAttachmentRef: default\n  address: \"{}\"\n  nodeName: w{worker}\n  sid: \"{}\"\n",
        tenant.letter,
        tenant.vpc(),
        region.pod_address(worker),
        region.sid(worker, tenant)
    )
}

/// A `NetworkRule` of a tenant over its pods on some workers, on its VIPs of both families.
pub fn rule(region: &Region, tenant: Tenant, name: &str, protocol: &str, workers: &[u16]) -> String {
    rule_on(region, tenant, name, protocol, PORT, workers)
}

/// As [`rule`], on another port.
pub fn rule_on(
    region: &Region,
    tenant: Tenant,
    name: &str,
    protocol: &str,
    port: u16,
    workers: &[u16],
) -> String {
    let backends: String = workers
        .iter()
        .map(|w| format!("    - {{ address: \"{}\", port: {port} }}\n", region.pod_address(*w)))
        .collect();
    format!(
        "apiVersion: network.datumapis.com/v1alpha1\nkind: NetworkRule\nmetadata:\n  namespace: {}\n  name: {name}\nspec:\n  vpcRef: \
         {}\n  vpcAttachmentRef: default\n  vipAddresses: [\"{}\", \"{}\"]\n  protocol: {protocol}\n  port: {port}\n  region: {}\n  \
         backends:\n{backends}",
        tenant.namespace(),
        tenant.vpc(),
        region.vip(tenant),
        region.vip4(tenant),
        region.region()
    )
}
