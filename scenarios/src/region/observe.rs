//! Packets into a running region and out of it: frames on its links, what each gateway counted, which backend a flow takes.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use anyhow::Context as _;
use labkit::capture::{Capture, Options};
use labkit::expect::expect;
use labkit::inject::Injector;
use labkit::packet::matcher::{self, Matcher};
use labkit::packet::{Ethernet, MacAddr, Packet, Tcp, Udp};
use weir::dataplane::bpf::encode_key;
use weir::model::{Protocol, VipKey};
use weir_bpf::abi::Reason;

use super::{Family, Live, PORT, SOON, TENANTS, Tenant};

/// How many packets left a gateway for each reason.
pub type Reasons = BTreeMap<Reason, u64>;

/// A link's end from which frames are sent: [`Live::sender`].
#[derive(Debug)]
pub struct Sender {
    injector: Injector,
    from: MacAddr,
    to: MacAddr,
}

impl Sender {
    /// Starts a frame from this end to the other.
    pub fn frame(&self) -> Packet<Ethernet> {
        Packet::eth(self.from, self.to)
    }
    /// Starts a frame as the other end would send it here.
    pub fn answer(&self) -> Packet<Ethernet> {
        Packet::eth(self.to, self.from)
    }
    /// A TCP packet from this end, in the addresses' family.
    ///
    /// # Panics
    /// When the addresses are of two families.
    pub fn tcp(&self, from: IpAddr, to: IpAddr, ports: (u16, u16)) -> Packet<Tcp> {
        match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                self.frame().ipv4(from, to).dont_fragment().tcp(ports.0, ports.1)
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => self.frame().ipv6(from, to).tcp(ports.0, ports.1),
            _ => panic!("{from} and {to} are of two families"),
        }
    }
    /// A UDP packet from this end, in the addresses' family; of IPv4 one that must not be fragmented.
    ///
    /// # Panics
    /// When the addresses are of two families.
    pub fn udp(&self, from: IpAddr, to: IpAddr, ports: (u16, u16)) -> Packet<Udp> {
        match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => {
                self.frame().ipv4(from, to).dont_fragment().udp(ports.0, ports.1)
            }
            (IpAddr::V6(from), IpAddr::V6(to)) => self.frame().ipv6(from, to).udp(ports.0, ports.1),
            _ => panic!("{from} and {to} are of two families"),
        }
    }
    /// A router's error that says what fits, about a packet of which the bytes from the IP header on are given: Packet Too Big, or
    /// fragmentation needed.
    ///
    /// # Panics
    /// When the addresses are of two families.
    pub fn too_big(&self, from: IpAddr, to: IpAddr, mtu: u32, quote: &[u8]) -> Packet {
        match (from, to) {
            (IpAddr::V4(from), IpAddr::V4(to)) => self.frame().ipv4(from, to).icmpv4(3, 4, mtu).quote(quote),
            (IpAddr::V6(from), IpAddr::V6(to)) => {
                self.frame().ipv6(from, to).packet_too_big(mtu).quote(quote)
            }
            _ => panic!("{from} and {to} are of two families"),
        }
    }
    /// Sends a frame and returns its bytes.
    ///
    /// # Errors
    /// When the interface does not take it.
    pub fn send<T>(&self, packet: &Packet<T>) -> anyhow::Result<Vec<u8>> {
        Ok(self.injector.send_packet(packet)?)
    }
}

/// The packet, or the one inside its outer header, goes to this address.
pub fn addressed_to(address: IpAddr) -> Matcher {
    match address {
        IpAddr::V4(address) => matcher::ipv4_dst(address),
        IpAddr::V6(address) => matcher::inner_dst(address),
    }
}

impl Live {
    /// Sends frames out of a node's interface, addressed to the other end of its link.
    ///
    /// # Errors
    /// When there is no such interface.
    pub fn sender(&self, node: &str, interface: &str) -> anyhow::Result<Sender> {
        let near = self.node(node)?;
        let mut links = self.lab.topology().links_of(near.name());
        let (_, far, _) = links
            .find(|(end, _, _)| end.interface == interface)
            .with_context(|| format!("{node} has no link {interface}"))?;
        let mac = |node: &labkit::NodeHandle, interface: &str| {
            node.mac(interface).map(MacAddr::from).context("a link's end has no MAC address")
        };
        Ok(Sender {
            injector: Injector::open(near.netns(), interface)?,
            from: mac(&near, interface)?,
            to: mac(&self.lab.node(&far.node)?, &far.interface)?,
        })
    }

    /// Captures what arrives at a node's interface. Frames that XDP takes are not seen on their way in.
    ///
    /// # Errors
    /// When there is no such interface.
    pub fn capture(&self, node: &str, interface: &str) -> anyhow::Result<Capture> {
        Ok(Capture::open(self.node(node)?.netns(), interface)?)
    }

    /// Captures what arrives and what leaves.
    ///
    /// # Errors
    /// When there is no such interface.
    pub fn capture_both_ways(&self, node: &str, interface: &str) -> anyhow::Result<Capture> {
        let options = Options { leaving: true, ..Options::default() };
        Ok(Capture::open_with(self.node(node)?.netns(), interface, options)?)
    }

    /// Captures what arrives at the pods of some tenants, by pod.
    ///
    /// # Errors
    /// When a capture cannot be opened.
    pub fn capture_pods(&self, tenants: &[Tenant]) -> anyhow::Result<BTreeMap<String, Capture>> {
        let mut captures = BTreeMap::new();
        for tenant in TENANTS.iter().filter(|t| tenants.contains(t)) {
            for worker in 1..=self.region.workers {
                let pod = self.region.pod(worker, *tenant);
                captures.insert(pod.clone(), Capture::open(self.lab.node(&pod)?.netns(), "eth0")?);
            }
        }
        Ok(captures)
    }

    /// What a gateway's program has counted, read from the pinned maps.
    ///
    /// # Errors
    /// When the maps cannot be read.
    pub fn reasons(&self, n: u16) -> anyhow::Result<Reasons> {
        let maps = self.maps(n)?;
        Ok(Reason::ALL.iter().map(|reason| (*reason, maps.reason_total(*reason))).collect())
    }

    /// The whole ring that a gateway's program uses for a tenant's service: the SID of every slot.
    ///
    /// # Errors
    /// When the maps cannot be read or hold no such service.
    pub fn ring(&self, n: u16, tenant: Tenant, protocol: Protocol) -> anyhow::Result<Vec<Ipv6Addr>> {
        self.ring_of(n, self.vip(tenant), protocol)
    }

    /// The same for a VIP.
    ///
    /// # Errors
    /// As [`Live::ring`].
    pub fn ring_of(&self, n: u16, address: IpAddr, protocol: Protocol) -> anyhow::Result<Vec<Ipv6Addr>> {
        let maps = self.maps(n)?;
        let key = VipKey { address, protocol, port: PORT };
        let index = maps.find(&encode_key(key)).context("the service is not loaded")?;
        let word = maps.word(index);
        let sid = |slot| Ipv6Addr::from(maps.backend(maps.slot(word.base() + slot)).sid);
        Ok((0..word.size()).map(sid).collect())
    }

    /// Lets the gateways' kernels route for others too, as nodes with other duties do: what the program leaves to them is
    /// then not held back by chance.
    ///
    /// # Errors
    /// When the setting cannot be written.
    pub fn route_in_gateways(&self) -> anyhow::Result<()> {
        (1..=self.region.gateways)
            .try_for_each(|n| Ok(self.gateway(n)?.set_sysctl("net.ipv6.conf.all.forwarding", "1")?))
    }

    /// Writes an object for all gateways.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn put(&self, name: &str, text: &str) -> anyhow::Result<()> {
        for n in 1..=self.region.gateways {
            self.objects(n)?.put(name, text)?;
        }
        Ok(())
    }

    /// Removes an object from all gateways.
    ///
    /// # Errors
    /// When a file cannot be removed.
    pub fn remove(&self, name: &str) -> anyhow::Result<()> {
        for n in 1..=self.region.gateways {
            self.objects(n)?.remove(name)?;
        }
        Ok(())
    }

    /// Sends a UDP packet of every client port to a tenant's VIP through one gateway, and tells the SID that each was sent
    /// to, as seen on the wire of the fabric. The pods do not answer packets this short.
    ///
    /// # Errors
    /// When a packet does not come out.
    pub fn assignments(
        &self,
        gateway: u16,
        tenant: Tenant,
        ports: std::ops::Range<u16>,
    ) -> anyhow::Result<BTreeMap<u16, Ipv6Addr>> {
        self.assignments_of(gateway, tenant, Family::Ipv6, ports)
    }

    /// The same for a family.
    ///
    /// # Errors
    /// As [`Live::assignments`].
    pub fn assignments_of(
        &self,
        gateway: u16,
        tenant: Tenant,
        family: Family,
        ports: std::ops::Range<u16>,
    ) -> anyhow::Result<BTreeMap<u16, Ipv6Addr>> {
        let (client, vip) = (self.region.client_of(family).parse()?, self.vip_of(tenant, family));
        let port = format!("eth{gateway}");
        let wire = self.capture("spine", &port)?;
        let sender = self.sender("edge", &port)?;
        for source in ports.clone() {
            sender.send(&sender.udp(client, vip, (source, PORT)).payload(b"which"))?;
        }
        let range = ports.clone();
        let ours = addressed_to(vip)
            .and(matcher::udp("to the service", move |udp| udp.dst == PORT && range.contains(&udp.src)));
        let frames = expect(&wire).within(SOON).packets(ports.len(), ours)?;
        let assigned = frames.iter().filter_map(|frame| {
            let layers = frame.layers();
            Some((layers.udp()?.src, layers.ipv6()?.dst))
        });
        Ok(assigned.collect())
    }

    /// The same for whole workers: which worker's pod each client port is sent to.
    ///
    /// # Errors
    /// As [`Live::assignments`], and when a SID is no worker's.
    pub fn workers_of(
        &self,
        gateway: u16,
        tenant: Tenant,
        ports: std::ops::Range<u16>,
    ) -> anyhow::Result<BTreeMap<u16, u16>> {
        self.workers_of_family(gateway, tenant, Family::Ipv6, ports)
    }

    /// The same for a family.
    ///
    /// # Errors
    /// As [`Live::workers_of`].
    pub fn workers_of_family(
        &self,
        gateway: u16,
        tenant: Tenant,
        family: Family,
        ports: std::ops::Range<u16>,
    ) -> anyhow::Result<BTreeMap<u16, u16>> {
        let sids: BTreeMap<Ipv6Addr, u16> = (1..=self.region.workers)
            .map(|worker| Ok((self.region.sid(worker, tenant).parse()?, worker)))
            .collect::<anyhow::Result<_>>()?;
        let assigned = self.assignments_of(gateway, tenant, family, ports)?;
        assigned
            .into_iter()
            .map(|(port, sid)| {
                Ok((port, *sids.get(&sid).with_context(|| format!("port {port} went to SID {sid}"))?))
            })
            .collect()
    }
}
