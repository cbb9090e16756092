//! The packet path as seen on the links: errors made and steered, echo, what is dropped, the outer header, next hops.

mod fabric_mtu;
mod fragments;
mod neighbours;
mod outer;
mod steering;
mod too_big;
mod unmatched;
mod vlan;

use std::net::{IpAddr, Ipv6Addr};

use scenarios::region::{Family, Live, Tenant};

/// Addresses that packets carry: the client's, and a tenant's VIP.
fn client_and_vip(live: &Live, tenant: Tenant) -> (Ipv6Addr, Ipv6Addr) {
    (live.region.client().parse().unwrap(), live.region.vip(tenant).parse().unwrap())
}

/// The same of a family.
fn ends(live: &Live, tenant: Tenant, family: Family) -> (IpAddr, IpAddr) {
    (live.region.client_of(family).parse().unwrap(), live.vip_of(tenant, family))
}
