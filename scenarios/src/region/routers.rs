//! FRR configurations of the internet router and of the spine.

use super::{FAMILIES, Family, Ipv4Routes, Region};

/// Password of all BGP sessions of the lab.
pub const BGP_PASSWORD: &str = "lab-only-password";

impl Region {
    /// AS of the internet router.
    pub fn edge_as(&self) -> u32 {
        64900 + 100 * u32::from(self.number)
    }
    /// AS of the spine.
    pub fn spine_as(&self) -> u32 {
        self.edge_as() + 1
    }
    /// AS of the region's gateways.
    pub fn gateway_as(&self) -> u32 {
        65010 + u32::from(self.number)
    }

    fn router(&self, asn: u32, id: u8, peers: &[String], ipv4: bool) -> String {
        // A link that goes takes its next-hop objects out of the kernel's groups without zebra noticing; when it comes back,
        // the group that zebra remembers (FRR 8.4) still lacks it. Next hops inside the routes have no such memory.
        // With IPv6 next hops of IPv4 routes the objects must stay: inside a route, FRR 8.4 can only write 169.254.0.1 for them.
        let objects = match self.ipv4_routes {
            Ipv4Routes::NextHop => "no zebra nexthop kernel enable\n",
            Ipv4Routes::Extended => "",
        };
        let mut text = format!(
            "{objects}router bgp {asn}\n bgp router-id 192.0.2.{id}\n no bgp ebgp-requires-policy\n no bgp default ipv4-unicast\n bgp \
             graceful-restart-disable\n"
        );
        // Helpers keep a restarting gateway's routes; the router itself does not restart in these labs.
        text = text.replace(
            "bgp graceful-restart-disable",
            &format!("bgp graceful-restart restart-time {}", self.restart_time),
        );
        for peer in peers {
            text += &format!(
                " neighbor {peer} remote-as {}\n neighbor {peer} password {BGP_PASSWORD}\n neighbor {peer} ttl-security hops 1\n \
                 neighbor {peer} timers connect 1\n neighbor {peer} passive\n",
                self.gateway_as()
            );
        }
        if ipv4 && self.ipv4_routes == Ipv4Routes::Extended {
            for peer in peers {
                text += &format!(" neighbor {peer} capability extended-nexthop\n");
            }
        }
        for family in FAMILIES.into_iter().filter(|f| ipv4 || *f == Family::Ipv6) {
            text += &format!(" address-family {} unicast\n", family.pick("ipv4", "ipv6"));
            for peer in peers {
                text += &format!("  neighbor {peer} activate\n");
            }
            text += "  maximum-paths 16\n exit-address-family\n";
        }
        text + "exit\n"
    }

    /// The internet router: VIPs from the gateways, equal-cost paths.
    pub fn edge_config(&self) -> String {
        let peers: Vec<String> = (1..=self.gateways).map(|n| self.gateway_uplink(n)).collect();
        self.router(self.edge_as(), 1, &peers, true)
    }

    /// The spine: the gateways' locators.
    pub fn spine_config(&self) -> String {
        let peers: Vec<String> = (1..=self.gateways).map(|n| self.gateway_fabric(n)).collect();
        self.router(self.spine_as(), 2, &peers, false)
    }
}
