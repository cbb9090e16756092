//! IPv4 in a region: addresses of clients, uplinks and VIPs, and the way to pods that have none of their own.
//!
//! Only the internet's side has IPv4 addresses: clients 198.51.100.0/24, uplinks 192.0.2.0/24, VIPs 203.0.113.0/24. Spine, workers
//! and pods route IPv4 over IPv6 next hops.

use labkit::topology::TopologyBuilder;

use super::{Region, TENANTS, Tenant};

/// Address family of a client and of the VIP that it speaks to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// IPv4.
    Ipv4,
    /// IPv6.
    Ipv6,
}

/// Both families.
pub const FAMILIES: [Family; 2] = [Family::Ipv6, Family::Ipv4];

impl Family {
    /// One of two values, by family.
    pub fn pick<T>(self, ipv4: T, ipv6: T) -> T {
        match self {
            Self::Ipv4 => ipv4,
            Self::Ipv6 => ipv6,
        }
    }
    /// `v4` or `v6`, for names of labs.
    pub fn short(self) -> &'static str {
        self.pick("v4", "v6")
    }
}

/// How gateways tell their internet router of IPv4 VIPs over an IPv6 session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Ipv4Routes {
    /// With IPv4 next hops from the configuration (`nextHopIPv4`).
    #[default]
    NextHop,
    /// With IPv6 next hops (RFC 8950).
    Extended,
}

impl Region {
    /// A tenant's IPv4 VIP in this region.
    pub fn vip4(&self, tenant: Tenant) -> String {
        format!("203.0.113.{}", 100 * self.number + tenant.number)
    }
    /// A tenant's VIP of a family.
    pub fn vip_of(&self, tenant: Tenant, family: Family) -> String {
        family.pick(self.vip4(tenant), self.vip(tenant))
    }
    /// Its host route.
    pub fn vip_route(&self, tenant: Tenant, family: Family) -> String {
        format!("{}/{}", self.vip_of(tenant, family), family.pick(32, 128))
    }
    fn client_net4(&self, host: u8) -> String {
        format!("198.51.100.{}", 128 * (self.number - 1) + u16::from(host))
    }
    /// The client's address of a family.
    pub fn client_of(&self, family: Family) -> String {
        family.pick(self.client_net4(2), self.client())
    }
    fn uplink4(&self, gateway: u16, host: u16) -> String {
        format!("192.0.2.{}", 128 * (self.number - 1) + 4 * gateway + host)
    }
    /// Address of the edge router on the link to a gateway.
    pub fn edge_uplink_of(&self, gateway: u16, family: Family) -> String {
        family.pick(self.uplink4(gateway, 1), self.edge_uplink(gateway))
    }
    /// A gateway's address on its uplink.
    pub fn gateway_uplink_of(&self, gateway: u16, family: Family) -> String {
        family.pick(self.uplink4(gateway, 2), self.gateway_uplink(gateway))
    }
    /// The next hop that the edge router has towards a gateway for VIPs of a family.
    pub fn next_hop(&self, gateway: u16, family: Family) -> String {
        match self.ipv4_routes {
            Ipv4Routes::NextHop => self.gateway_uplink_of(gateway, family),
            Ipv4Routes::Extended => self.gateway_uplink(gateway),
        }
    }

    /// Gives clients and routers IPv4, and everything behind the gateways a way back to clients.
    pub(super) fn add_ipv4(&self, t: &mut TopologyBuilder) {
        let (client, edge, spine) = (self.name("client"), self.name("edge"), self.name("spine"));
        t.node(&client)
            .address("eth0", &format!("{}/25", self.client_net4(2)))
            .route(&format!("default via {}", self.client_net4(1)));
        t.node(&edge)
            .sysctl("net.ipv4.conf.all.ignore_routes_with_linkdown", 1)
            // Flows, not hosts, are spread over equal-cost paths, as routers do.
            .sysctl("net.ipv4.fib_multipath_hash_policy", 1)
            .address("eth0", &format!("{}/25", self.client_net4(1)));
        t.node(&spine)
            .sysctl("net.ipv4.conf.all.ignore_routes_with_linkdown", 1)
            .route(&format!("0.0.0.0/0 via inet6 {}:1 dev eth9", self.net("9", 0)));
        for n in 1..=self.gateways {
            t.node(&edge).address(&format!("eth{n}"), &format!("{}/30", self.uplink4(n, 1)));
            t.node(&self.name(&format!("gw{n}"))).address("eth1", &format!("{}/30", self.uplink4(n, 2)));
        }
    }

    /// Takes IPv4 out of its outer headers on a worker by the kernel's means. `End.DT46` wants a VRF, which not every kernel has:
    /// so what holds IPv4 is marked, and the mark leads the same SID to `End.DX4`, which sends everything to the one pod.
    pub(super) fn ipv4_worker(&self, t: &mut TopologyBuilder, n: u16) {
        const MARK: u32 = 4;
        let (worker, net) = (self.name(&format!("w{n}")), self.net("3", n));
        let mut node = t
            .node(&worker)
            .route(&format!("0.0.0.0/0 via inet6 {net}:1 dev eth0"))
            .rule(&format!("fwmark {MARK} table {MARK} priority {MARK}"));
        for tenant in TENANTS {
            let (sid, vip, letter) = (self.sid(n, tenant), self.vip4(tenant), tenant.letter);
            node = node
                .route(&format!("{sid}/128 encap seg6local action End.DX4 nh4 {vip} dev eth0 table {MARK}"))
                .route(&format!("{vip}/32 via inet6 fe80::2 dev pod-{letter}"));
        }
        for tenant in TENANTS {
            t.node(&self.pod(n, tenant))
                .address("lo", &format!("{}/32", self.vip4(tenant)))
                .route("0.0.0.0/0 via inet6 fe80::1 dev eth0");
        }
    }

    /// The nftables rule that marks what holds IPv4.
    pub(super) fn mark_ipv4(&self, n: u16) -> String {
        format!("ip6 daddr {} ip6 nexthdr 4 meta mark set 4", self.worker_locator(n))
    }
}
