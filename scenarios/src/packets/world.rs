//! The fixed tables that every packet case meets, made of the shared layout's types and numbers alone.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};

use weir::flow::{HashKey, MemTables};
use weir_bpf::abi::{Affinity, Backend, Config, NextHop, ROLE_FABRIC, ROLE_UPLINK, VipWord, pack_nh};

use super::build::{ESP, GRE, TCP, UDP};

/// Tenant A's VIP.
pub const VIP_A: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x64, 0, 0, 0, 0, 0xa);
/// Tenant B's VIP, with bytes that a sign extension would spoil.
pub const VIP_B: Ipv6Addr = Ipv6Addr::new(0x2600, 0x1f00, 0x8000, 0xff80, 0, 0, 0x80ff, 0xb);
/// An address that is ours and has no rule.
pub const VIP_BARE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x64, 0, 0, 0, 0, 0xc);
/// An address that is not ours.
pub const FOREIGN: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x64, 0, 0, 0, 0, 0xd);
/// A client.
pub const CLIENT: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xc, 0, 0, 0, 0, 0x1234);
/// Another client.
pub const CLIENT_2: Ipv6Addr = Ipv6Addr::new(0x2a01, 0x80ff, 0, 0, 0xffff, 0, 0xff00, 0x8080);
/// A router on the internet.
pub const ROUTER: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0x99, 0, 0, 0, 0, 1);
/// Tenant A's IPv4 VIP.
pub const VIP4_A: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 10);
/// Tenant B's IPv4 VIP, with bytes that a sign extension would spoil.
pub const VIP4_B: Ipv4Addr = Ipv4Addr::new(198, 51, 128, 255);
/// An IPv4 address that is ours and has no rule.
pub const VIP4_BARE: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 12);
/// An IPv4 address that is not ours.
pub const FOREIGN4: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 13);
/// An IPv4 client.
pub const CLIENT4: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 77);
/// Another IPv4 client.
pub const CLIENT4_2: Ipv4Addr = Ipv4Addr::new(100, 255, 128, 1);
/// A router of the IPv4 internet.
pub const ROUTER4: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 1);
/// The self-test SID of this node.
pub const SELF_TEST: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xff01, 1, 0xf000, 0, 0, 0xff);
/// Another address in the region's SRv6 block.
pub const IN_BLOCK: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0xff01, 0x8000, 0xe000, 0, 0, 7);

/// First 14 bytes of the outer source.
pub const OUTER_SOURCE: [u8; 14] = [0x20, 0x01, 0x0d, 0xb8, 0xff, 0x01, 0, 0x01, 0xe0, 0, 0, 0x80, 0, 0];

/// Interface numbers: whatever they are where the cases run.
#[derive(Clone, Copy, Debug)]
pub struct Ports {
    /// The uplink; it carries both roles in [`Ingress::Both`].
    pub uplink: u32,
    /// The fabric interface.
    pub fabric: u32,
}

/// Where a frame comes in, and so which configuration the program has.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Ingress {
    /// Uplink role.
    Uplink,
    /// Fabric role.
    Fabric,
    /// Both roles, on the uplink's port.
    Both,
    /// Uplink role with no token for generated ICMP.
    Quiet,
}

impl Ingress {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Uplink, Self::Fabric, Self::Both, Self::Quiet];
}

/// A rule of the world, by its name.
#[derive(Clone, Debug)]
pub struct Rule {
    /// Index of the VIP.
    pub vip: u32,
    /// Its address; IPv4 as mapped.
    pub address: Ipv6Addr,
    /// Its port, 0 of a protocol without ports.
    pub port: u16,
    /// Its protocol.
    pub protocol: u8,
    /// What is hashed.
    pub affinity: Affinity,
    /// Slots in its ring.
    pub size: u32,
    /// Backend indices; slot `i` holds the one at `i` modulo their number.
    pub backends: Vec<u32>,
}

/// Tables, interface numbers and configuration.
#[derive(Clone, Debug)]
pub struct World {
    /// What the maps hold.
    pub tables: MemTables,
    /// Rules by name.
    pub rules: BTreeMap<&'static str, Rule>,
    /// Interface numbers.
    pub ports: Ports,
    key: HashKey,
}

impl Default for World {
    fn default() -> Self {
        Self::new(Ports { uplink: 7, fabric: 8 })
    }
}

impl World {
    /// The world with these interface numbers.
    pub fn new(ports: Ports) -> Self {
        let key = HashKey::from_region_key(&[0x5a; 32]);
        let mut world = Self { tables: MemTables::new(), rules: BTreeMap::new(), ports, key };
        world.fill();
        world
    }
    /// Key of the flow hash.
    pub fn key(&self) -> &HashKey {
        &self.key
    }
    /// Number of the interface a frame comes in on.
    pub fn ifindex(&self, ingress: Ingress) -> u32 {
        if ingress == Ingress::Fabric { self.ports.fabric } else { self.ports.uplink }
    }
    /// Constants of the program on that interface.
    pub fn config(&self, ingress: Ingress) -> Config {
        let half =
            |at: usize| u64::from_ne_bytes(std::array::from_fn(|i| *OUTER_SOURCE.get(at + i).unwrap_or(&0)));
        let mut selftest = [0; 8];
        selftest.copy_from_slice(&SELF_TEST.octets()[8..]);
        Config {
            nh: self.key.nh,
            fin: self.key.fin,
            src_hi: half(0),
            src_lo: half(8),
            selftest_lo: u64::from_ne_bytes(selftest),
            role: match ingress {
                Ingress::Uplink | Ingress::Quiet => ROLE_UPLINK,
                Ingress::Fabric => ROLE_FABRIC,
                Ingress::Both => ROLE_UPLINK | ROLE_FABRIC,
            },
            icmp_rate: if ingress == Ingress::Quiet { 0 } else { 1_000_000 },
            heartbeat_jiffies: 0,
            build: 0,
        }
    }
    /// The rule of that name.
    ///
    /// # Panics
    /// When there is none: a case is misspelt.
    pub fn rule(&self, name: &str) -> &Rule {
        self.rules.get(name).unwrap_or_else(|| panic!("the world has no rule {name:?}"))
    }

    fn fill(&mut self) {
        let Ports { uplink, fabric } = self.ports;
        let mut hop = |ifindex, mtu| {
            let n = self.tables.next_hops.len() as u8;
            let macs = [2, 0xa0, n, 0x80, 0xff, 0x10, 2, 0xb0, n, 0x7f, 0x00, 0x20];
            self.tables.add_next_hop(NextHop { macs, ifindex, mtu, flags: 0 })
        };
        let plain = hop(fabric, 1500);
        let equal = [hop(fabric, 1500), hop(fabric, 1500), hop(uplink, 1500)][0];
        let back = hop(uplink, 1500);
        let (h1400, h1320, h1319, h9000) =
            (hop(fabric, 1400), hop(fabric, 1320), hop(fabric, 1319), hop(fabric, 9000));

        let mut backend = |tenant: u16, nh: u32, pmtu: u32| {
            let n = self.tables.backends.len() as u16;
            let sid = Ipv6Addr::new(0x2001, 0xdb8, 0xff01, 0x100 + n, 0xe000 + tenant, 0, 0xff80, 0);
            self.tables.add_backend(Backend { sid: sid.octets(), nh, pmtu, ..Backend::default() })
        };
        let one = |first| pack_nh(first, 1);
        let tenant_a = vec![backend(1, one(plain), 0), backend(1, one(plain), 0), backend(1, one(plain), 0)];
        let tenant_b = vec![backend(2, one(plain), 0), backend(2, one(plain), 0)];
        let several = backend(1, pack_nh(equal, 3), 0);
        let turned = backend(1, one(back), 0);
        let [b1400, b1320, b1319, b9000] = [h1400, h1320, h1319, h9000].map(|h| backend(1, one(h), 0));
        let unresolved = backend(1, 0, 0);
        let [learned, low, high] =
            [1400, 1319, 9000].map(|pmtu| backend(1, one(if pmtu == 1400 { h9000 } else { plain }), pmtu));

        let (none, client, protocol) = (Affinity::None, Affinity::ClientIp, Affinity::ClientIpAndProtocol);
        self.add("web", VIP_A, 443, TCP, none, 1021, &tenant_a);
        self.add("dns", VIP_A, 53, UDP, none, 65537, &tenant_a);
        self.add("sticky", VIP_A, 80, TCP, client, 4093, &tenant_a);
        self.add("quic", VIP_A, 443, UDP, protocol, 4093, &tenant_a);
        self.add("web-b", VIP_B, 443, TCP, none, 1021, &tenant_b);
        self.add("dns-b", VIP_B, 53, UDP, client, 1021, &tenant_b);
        self.add("equal-cost", VIP_A, 1001, TCP, none, 1021, &[several]);
        self.add("turned", VIP_A, 1002, TCP, none, 1021, &[turned]);
        self.add("mtu-1400", VIP_A, 1003, TCP, none, 1021, &[b1400]);
        self.add("mtu-1400-udp", VIP_A, 1003, UDP, none, 1021, &[b1400]);
        self.add("mtu-1320", VIP_A, 1004, TCP, none, 1021, &[b1320]);
        self.add("mtu-1319", VIP_A, 1005, TCP, none, 1021, &[b1319]);
        self.add("mtu-9000", VIP_A, 1006, TCP, none, 1021, &[b9000]);
        self.add("unresolved", VIP_A, 1007, TCP, none, 1021, &[unresolved]);
        self.add("pmtu-1400", VIP_A, 1008, TCP, none, 1021, &[learned]);
        self.add("pmtu-1319", VIP_A, 1009, TCP, none, 1021, &[low]);
        self.add("pmtu-9000", VIP_A, 1010, TCP, none, 1021, &[high]);
        self.add("not-loaded", VIP_A, 1011, TCP, none, 0, &[]);
        self.add("empty", VIP_A, 1012, TCP, none, 1021, &[0]);
        self.add("half", VIP_A, 1013, UDP, none, 1021, &[tenant_a[0], 0]);
        self.tables.own(VIP_BARE);
        self.add("gre-b", VIP_B, 0, GRE, none, 1021, &tenant_b);

        let (a, b) = (VIP4_A.to_ipv6_mapped(), VIP4_B.to_ipv6_mapped());
        self.add("web4", a, 443, TCP, none, 1021, &tenant_a);
        self.add("dns4", a, 53, UDP, none, 65537, &tenant_a);
        self.add("sticky4", a, 80, TCP, client, 4093, &tenant_a);
        self.add("quic4", a, 443, UDP, protocol, 4093, &tenant_a);
        self.add("equal-cost4", a, 1001, TCP, none, 1021, &[several]);
        self.add("turned4", a, 1002, TCP, none, 1021, &[turned]);
        self.add("mtu-1400-4", a, 1003, TCP, none, 1021, &[b1400]);
        self.add("mtu-1400-udp4", a, 1003, UDP, none, 1021, &[b1400]);
        self.add("mtu-1320-4", a, 1004, TCP, none, 1021, &[b1320]);
        self.add("mtu-1319-4", a, 1005, TCP, none, 1021, &[b1319]);
        self.add("mtu-9000-4", a, 1006, TCP, none, 1021, &[b9000]);
        self.add("unresolved4", a, 1007, TCP, none, 1021, &[unresolved]);
        self.add("pmtu-1400-4", a, 1008, TCP, none, 1021, &[learned]);
        self.add("not-loaded4", a, 1011, TCP, none, 0, &[]);
        self.add("empty4", a, 1012, TCP, none, 1021, &[0]);
        self.add("half4", a, 1013, UDP, none, 1021, &[tenant_a[0], 0]);
        self.add("web-b4", b, 443, TCP, protocol, 1021, &tenant_b);
        self.add("dns-b4", b, 53, UDP, client, 1021, &tenant_b);
        self.add("esp-b4", b, 0, ESP, client, 1021, &tenant_b);
        self.tables.own(VIP4_BARE.to_ipv6_mapped());
        // Each is its VIP's only rule for the protocol, and its affinity leaves the ports out.
        for name in ["dns-b", "web-b4", "dns-b4"] {
            let Rule { address, protocol, vip, .. } = self.rules[name];
            self.tables.lead_fragments(address, protocol, vip);
        }
    }

    #[expect(clippy::too_many_arguments, reason = "one line a rule, read as a table")]
    fn add(
        &mut self,
        name: &'static str,
        address: Ipv6Addr,
        port: u16,
        protocol: u8,
        affinity: Affinity,
        size: u32,
        backends: &[u32],
    ) {
        let slots: Vec<u32> = backends.iter().copied().cycle().take(size as usize).collect();
        // A word without a ring has nothing in it.
        let word =
            if size == 0 { VipWord(0) } else { VipWord::new(self.tables.add_ring(&slots), size, affinity) };
        let vip = self.tables.add_vip(address, port, protocol, word);
        let backends = backends.to_vec();
        self.rules.insert(name, Rule { vip, address, port, protocol, affinity, size, backends });
    }
}
