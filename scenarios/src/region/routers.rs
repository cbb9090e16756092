//! FRR configurations of the internet router and of the spine.

use super::Region;

/// Password of all BGP sessions of the lab.
pub(crate) const BGP_PASSWORD: &str = "lab-only-password";

/// AS of the internet router.
pub(crate) const EDGE_AS: u32 = 65000;
/// AS of the spine.
pub(crate) const SPINE_AS: u32 = 65001;

impl Region {
    /// AS of the region's gateways.
    pub fn gateway_as(&self) -> u32 {
        65010 + u32::from(self.number)
    }

    fn router(&self, asn: u32, id: u8, peers: &[String]) -> String {
        // A link that goes takes its next-hop objects out of the kernel's groups without zebra noticing; when it comes back,
        // the group that zebra remembers (FRR 8.4) still lacks it. Next hops inside the routes have no such memory.
        let mut text = format!(
            "no zebra nexthop kernel enable\nrouter bgp {asn}\n bgp router-id 192.0.2.{id}\n no bgp ebgp-requires-policy\n no bgp default ipv4-unicast\n bgp \
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
        text += " address-family ipv6 unicast\n";
        for peer in peers {
            text += &format!("  neighbor {peer} activate\n");
        }
        text + "  maximum-paths 16\n exit-address-family\nexit\n"
    }

    /// The internet router: VIPs from the gateways, equal-cost paths.
    pub fn edge_config(&self) -> String {
        let peers: Vec<String> = (1..=self.gateways).map(|n| self.gateway_uplink(n)).collect();
        self.router(EDGE_AS, 1, &peers)
    }

    /// The spine: the gateways' locators.
    pub fn spine_config(&self) -> String {
        let peers: Vec<String> = (1..=self.gateways).map(|n| self.gateway_fabric(n)).collect();
        self.router(SPINE_AS, 2, &peers)
    }
}
