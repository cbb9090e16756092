//! What must not mix: tenants, the internet and the fabric, and the flows of one backend with those of another.

mod backends;
mod spoofed;
mod tenants;

use labkit::wait::eventually;
use scenarios::region::{Live, SOON, Tenant};
use serde_json::Value;

/// A rule of a tenant in a gateway's status.
fn rule(live: &Live, gateway: u16, tenant: Tenant, name: &str) -> anyhow::Result<Value> {
    let status = live.status(gateway)?;
    let rules = status["rules"].as_array().cloned().unwrap_or_default();
    let wanted = format!("{}/{name}", tenant.namespace());
    let found = rules.into_iter().find(|rule| {
        rule["name"] == wanted.as_str()
            || rule["name"]["namespace"] == tenant.namespace().as_str() && rule["name"]["name"] == name
    });
    found.ok_or_else(|| anyhow::anyhow!("gateway {gateway} has no rule {wanted}: {status}"))
}

/// Waits until a gateway's status of a rule has such a condition, and the maps hold what it speaks of.
fn wait_condition(live: &Live, gateway: u16, tenant: Tenant, kind: &str, status: &str) -> Value {
    eventually(&format!("gateway {gateway}: {kind} is {status}"), SOON, || {
        let rule = rule(live, gateway, tenant, "web-udp").map_err(|e| e.to_string())?;
        let all = live.status(gateway).map_err(|e| e.to_string())?;
        let conditions = rule["conditions"].as_array().cloned().unwrap_or_default();
        let found = conditions.into_iter().find(|c| c["type"] == kind && c["status"] == status);
        found.filter(|_| all["applied"] == all["generation"]).ok_or_else(|| rule.to_string())
    })
    .unwrap()
}
