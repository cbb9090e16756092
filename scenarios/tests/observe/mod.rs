//! Watching a gateway: frames traced through the live program, drops as they happen, captures of what XDP took and sent.

mod capture;
mod drops;
mod trace;

use std::net::Ipv6Addr;

use scenarios::region::{Live, Tenant};

fn client(live: &Live) -> Ipv6Addr {
    live.region.client().parse().unwrap()
}

fn vip(live: &Live, tenant: Tenant) -> Ipv6Addr {
    live.region.vip(tenant).parse().unwrap()
}

/// A `weir` command in gateway 1 with its configuration, as an argument vector.
fn command<'a>(binary: &'a str, config: &'a str, arguments: &[&'a str]) -> Vec<&'a str> {
    [&[binary], arguments, &["--config", config]].concat()
}

/// Path of the built program and of gateway 1's configuration.
fn paths(live: &Live) -> (String, String) {
    let binary = scenarios::region::weir_binary(None).unwrap().display().to_string();
    (binary, live.gateway(1).unwrap().dir().join("weir.yaml").display().to_string())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}
