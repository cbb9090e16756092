//! The words Weir thinks in: rules, backends, SIDs, VIPs. Plain data, no I/O, no time.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::num::NonZeroU64;
use std::sync::Arc;

pub use weir_bpf::abi::Affinity;

/// Transport protocol that the data plane serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Protocol {
    /// TCP, protocol 6.
    Tcp,
    /// UDP, protocol 17.
    Udp,
}

impl Protocol {
    /// IP protocol number (IANA).
    pub const fn number(self) -> u8 {
        match self {
            Self::Tcp => 6,
            Self::Udp => 17,
        }
    }
    /// The protocol of an IP protocol number, when it is served.
    pub const fn from_number(number: u8) -> Option<Self> {
        match number {
            6 => Some(Self::Tcp),
            17 => Some(Self::Udp),
            _ => None,
        }
    }
}

impl fmt::Display for Protocol {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Tcp => "tcp",
            Self::Udp => "udp",
        })
    }
}

/// `namespace/name` of an object. Cheap to clone: tables and plans hold each name many times.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct ObjectName {
    /// Namespace; the tenant's, for a rule.
    pub namespace: Arc<str>,
    /// Name inside the namespace.
    pub name: Arc<str>,
}

impl fmt::Display for ObjectName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

/// What a packet must match: destination address, protocol, port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct VipKey {
    /// VIP.
    pub address: IpAddr,
    /// Protocol.
    pub protocol: Protocol,
    /// Port.
    pub port: u16,
}

impl fmt::Display for VipKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.address {
            IpAddr::V4(a) => write!(f, "{a}:{}/{}", self.port, self.protocol),
            IpAddr::V6(a) => write!(f, "[{a}]:{}/{}", self.port, self.protocol),
        }
    }
}

/// A backend's identity. Its order, not any list's, is the order in which a ring is built.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct BackendId {
    /// VPC reference.
    pub vpc: Arc<str>,
    /// VPC attachment reference.
    pub attachment: Arc<str>,
    /// Address inside the VPC; two VPCs may use the same.
    pub address: IpAddr,
}

impl fmt::Display for BackendId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.vpc, self.attachment, self.address)
    }
}

/// SRv6 segment identifier: where the outer header leads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize)]
pub struct Sid(pub Ipv6Addr);

impl fmt::Display for Sid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Where a backend lives: from the platform's `VPCEndpoint`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// Node that holds it.
    pub node: Arc<str>,
    /// Its SID.
    pub sid: Sid,
}

/// Health as the shared objects state it; never one gateway's own view.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize)]
pub enum Health {
    /// Serves.
    Healthy,
    /// Must get no new flow.
    Unhealthy,
    /// No verdict: treated as serving.
    #[default]
    Unknown,
}

/// Whether the operator has asked that a backend gets no new flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize)]
pub enum Drain {
    /// In use.
    #[default]
    No,
    /// Leaves: its weight stays in the base ring, its slots go to others.
    Yes,
}

/// What a rule does when none of its backends can serve.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OnAllDown {
    /// Keep sending to all that are not drained and can be resolved.
    #[default]
    Keep,
    /// Drop.
    Drop,
    /// Drop, and withdraw the VIP.
    Withdraw,
}

/// Slots in a rule's ring: a class fixed when the rule is made, never derived from the backends' count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum RingSize {
    /// 1021 slots.
    S1021,
    /// 4093 slots.
    #[default]
    S4093,
    /// 16381 slots.
    S16381,
    /// 65537 slots.
    S65537,
}

impl RingSize {
    /// Number of slots, a prime.
    pub const fn slots(self) -> u32 {
        match self {
            Self::S1021 => 1021,
            Self::S4093 => 4093,
            Self::S16381 => 16381,
            Self::S65537 => 65537,
        }
    }
    /// The class of a number of slots.
    pub const fn from_slots(slots: u32) -> Option<Self> {
        match slots {
            1021 => Some(Self::S1021),
            4093 => Some(Self::S4093),
            16381 => Some(Self::S16381),
            65537 => Some(Self::S65537),
            _ => None,
        }
    }
}

/// One backend of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Who it is.
    pub id: BackendId,
    /// Relative share of new flows.
    pub weight: NonZeroU64,
    /// Operator's drain flag.
    pub drain: Drain,
    /// Shared verdict.
    pub health: Health,
    /// Where it is; `None` when no `VPCEndpoint` says.
    pub endpoint: Option<Endpoint>,
}

/// A validated rule of this region with its backends looked up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The object's name.
    pub name: ObjectName,
    /// Region that announces its VIPs.
    pub region: String,
    /// Public addresses, sorted, unique.
    pub vips: Vec<IpAddr>,
    /// Protocol.
    pub protocol: Protocol,
    /// Port of the VIP and of every backend.
    pub port: u16,
    /// Session affinity.
    pub affinity: Affinity,
    /// Ring class.
    pub ring_size: RingSize,
    /// All-down policy.
    pub on_all_down: OnAllDown,
    /// Backends in the order of their identity, unique.
    pub backends: Vec<Backend>,
}

impl Rule {
    /// Keys under which packets find this rule.
    pub fn keys(&self) -> impl Iterator<Item = VipKey> + '_ {
        self.vips.iter().map(|&address| VipKey { address, protocol: self.protocol, port: self.port })
    }
}

/// The rules to serve, by name. Cheap to clone.
pub type Rules = BTreeMap<ObjectName, Arc<Rule>>;

/// Address families of which routes or packets can be had.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Families {
    /// IPv4.
    pub ipv4: bool,
    /// IPv6.
    pub ipv6: bool,
}

impl Families {
    /// Whether an address is of one of them.
    pub const fn contain(self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(_) => self.ipv4,
            IpAddr::V6(_) => self.ipv6,
        }
    }
}

impl fmt::Display for Families {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.ipv4, self.ipv6) {
            (true, true) => "IPv4 IPv6",
            (true, false) => "IPv4",
            (false, true) => "IPv6",
            (false, false) => "",
        })
    }
}

/// IPv6 form of an address as maps hold it: IPv4 as `::ffff:a.b.c.d`.
pub fn mapped(address: IpAddr) -> Ipv6Addr {
    match address {
        IpAddr::V4(a) => a.to_ipv6_mapped(),
        IpAddr::V6(a) => a,
    }
}

/// The address that [`mapped`] was given.
pub fn unmapped(address: Ipv6Addr) -> IpAddr {
    address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4)
}
