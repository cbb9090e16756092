//! From objects to what this node should deliver, and to the reason for each binding that it will not: pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::Arc;

use weir_api::checked::{CheckedBinding, CheckedEndpoint, CheckedObject, SidSource, Transport};
use weir_api::service_vip_binding::{Delivery as How, EgressKind};
use weir_bpf::worker_abi::Kind;

use crate::config::Locator;
use crate::event::ObjectSet;

/// What this node is.
#[derive(Clone, Debug)]
pub struct Site {
    /// Its name.
    pub node: String,
    /// Its locator.
    pub locator: Locator,
    /// Whether bindings may ask for translation.
    pub translate: bool,
}

/// What a packet is recognised by: function and argument of the SID, and the inner destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Bits 65–80 of the SID.
    pub sid: u16,
    /// VIP.
    pub vip: IpAddr,
}

/// One VIP that is handed to one endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// VPC of the endpoint.
    pub vpc: Arc<str>,
    /// Attachment of the VPC.
    pub attachment: Arc<str>,
    /// The endpoint's own address.
    pub backend: IpAddr,
    /// Host side of its interface.
    pub interface: Arc<str>,
    /// What the interface is.
    pub kind: Kind,
    /// Where the VIP is to be placed.
    pub namespace: Option<Arc<str>>,
    /// VIP and backend address are exchanged at the boundary.
    pub translate: bool,
    /// Protocols and ports of the bindings.
    pub services: BTreeSet<(Transport, u16)>,
    /// The bindings, by `namespace/name`.
    pub bindings: BTreeSet<String>,
}

/// Why a binding is not carried out.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Refusal {
    /// One word, the reason of the condition `Bound`.
    pub reason: String,
    /// One sentence with the remedy.
    pub message: String,
}

impl Refusal {
    pub(crate) fn new(reason: &str, message: impl Into<String>) -> Self {
        Self { reason: reason.into(), message: message.into() }
    }
}

/// What should be.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Deliveries by what their packets are recognised by.
    pub deliveries: BTreeMap<Key, Delivery>,
    /// Bindings of this node that are not carried out.
    pub refused: BTreeMap<String, Refusal>,
}

/// Function and argument of an endpoint's SID on this node.
fn word(endpoint: &CheckedEndpoint, locator: &Locator) -> Result<u16, Refusal> {
    match endpoint.sid {
        SidSource::Composed { function, argument } => Ok(u16::from(function.bits()) << 12 | argument),
        SidSource::Whole(sid) => {
            let low = sid.to_bits() as u64;
            let word = (low >> 48) as u16;
            let own = locator.prefix().contains(&sid) && low << 16 == 0 && matches!(word >> 12, 0xd | 0xe);
            own.then_some(word).ok_or_else(|| {
                let of = locator.prefix();
                let message = format!(
                    "{sid} is no SID of this node (function 0xd or 0xe and an argument in {of}); correct VPCEndpoint {}/{}",
                    endpoint.id.namespace, endpoint.id.name
                );
                Refusal::new("SidForeign", message)
            })
        }
    }
}

/// The whole SID that a word stands for.
pub fn sid_of(locator: &Locator, word: u16) -> Ipv6Addr {
    Ipv6Addr::from_bits(locator.prefix().network().to_bits() | u128::from(word) << 48)
}

struct Planner<'a> {
    site: &'a Site,
    endpoints: Vec<&'a CheckedEndpoint>,
    wanted: Wanted,
    /// Who has each interface.
    interfaces: BTreeMap<Arc<str>, (Arc<str>, Arc<str>, Kind)>,
    /// Address behind each tap.
    taps: BTreeMap<Arc<str>, IpAddr>,
    /// VIP that a translated port of an interface belongs to, by family.
    services: BTreeMap<(Arc<str>, Transport, u16, bool), IpAddr>,
}

/// What a node with these objects should do.
pub fn plan(objects: &ObjectSet, site: &Site) -> Wanted {
    let mut bindings: Vec<&CheckedBinding> = Vec::new();
    let mut endpoints: Vec<&CheckedEndpoint> = Vec::new();
    for loaded in objects.iter() {
        match &loaded.object {
            CheckedObject::Binding(b) if *b.node == *site.node && !b.id.deleted => bindings.push(b),
            CheckedObject::Endpoint(e) if *e.node == *site.node && !e.id.deleted => endpoints.push(e),
            _ => {}
        }
    }
    bindings.sort_by(|a, b| a.id.precedence().cmp(&b.id.precedence()));
    let mut planner = Planner {
        site,
        endpoints,
        wanted: Wanted::default(),
        interfaces: BTreeMap::new(),
        taps: BTreeMap::new(),
        services: BTreeMap::new(),
    };
    for binding in bindings {
        let name = format!("{}/{}", binding.id.namespace, binding.id.name);
        if let Err(refusal) = planner.take(&name, binding) {
            planner.wanted.refused.insert(name, refusal);
        }
    }
    planner.wanted
}

impl<'a> Planner<'a> {
    fn take(&mut self, name: &str, binding: &CheckedBinding) -> Result<(), Refusal> {
        let endpoint = self.endpoint(binding)?;
        let sid = word(endpoint, &self.site.locator)?;
        self.alone(endpoint, sid)?;
        if self.site.locator.block.contains(&match binding.vip {
            IpAddr::V6(vip) => vip,
            IpAddr::V4(_) => Ipv6Addr::UNSPECIFIED,
        }) {
            let message = format!("{} lies in the region's SRv6 block; give another VIP", binding.vip);
            return Err(Refusal::new("VIPInBlock", message));
        }
        let translate = binding.delivery == How::Translate;
        if translate && !self.site.translate {
            let message = "delivery: Translate is off on this node; set `translate: true` in worker.yaml, or use delivery: Bind";
            return Err(Refusal::new("TranslateDisabled", message));
        }
        let Some(interface) = binding.interface.clone() else {
            let message = "the endpoint's interface is not known; give spec.interface";
            return Err(Refusal::new("NoInterface", message));
        };
        let kind = match binding.egress {
            EgressKind::Veth => Kind::Veth,
            EgressKind::Tap => Kind::Tap,
        };
        let owner = (Arc::clone(&endpoint.vpc), Arc::clone(&endpoint.attachment), kind);
        if let Some(other) = self.interfaces.get(&interface).filter(|o| **o != owner) {
            let message = format!(
                "{interface} is an endpoint's of {}/{}; one interface belongs to one attachment",
                other.0, other.1
            );
            return Err(Refusal::new("InterfaceConflict", message));
        }
        if kind == Kind::Tap
            && let Some(other) = self.taps.get(&interface).filter(|o| **o != endpoint.address)
        {
            let message = format!("{interface} leads to {other} already; give each guest a tap of its own");
            return Err(Refusal::new("InterfaceConflict", message));
        }
        let service = (Arc::clone(&interface), binding.transport, binding.port, binding.vip.is_ipv4());
        if translate && let Some(other) = self.services.get(&service).filter(|o| **o != binding.vip) {
            let message = format!(
                "replies from port {} of {interface} are translated to {other} already; give the other VIP another port",
                binding.port
            );
            return Err(Refusal::new("ServiceConflict", message));
        }
        let key = Key { sid, vip: binding.vip };
        let fresh = Delivery {
            vpc: Arc::clone(&endpoint.vpc),
            attachment: Arc::clone(&endpoint.attachment),
            backend: endpoint.address,
            interface: Arc::clone(&interface),
            kind,
            namespace: binding.namespace.clone().filter(|_| !translate),
            translate,
            services: BTreeSet::new(),
            bindings: BTreeSet::new(),
        };
        let delivery = self.wanted.deliveries.entry(key).or_insert_with(|| fresh.clone());
        let same =
            Delivery { services: BTreeSet::new(), bindings: BTreeSet::new(), ..delivery.clone() } == fresh;
        if !same {
            let other = delivery.bindings.first().cloned().unwrap_or_default();
            let message = format!(
                "{} is delivered under SID {} as {other} says; give this endpoint a SID of its own (function End.DX46), or make both \
                 bindings say the same",
                binding.vip,
                sid_of(&self.site.locator, sid)
            );
            return Err(Refusal::new("DeliveryConflict", message));
        }
        delivery.services.insert((binding.transport, binding.port));
        delivery.bindings.insert(name.to_owned());
        if kind == Kind::Tap {
            self.taps.insert(Arc::clone(&interface), endpoint.address);
        }
        if translate {
            self.services.insert(service, binding.vip);
        }
        self.interfaces.insert(interface, owner);
        Ok(())
    }

    /// The one endpoint of this node that a binding means.
    fn endpoint(&self, binding: &CheckedBinding) -> Result<&'a CheckedEndpoint, Refusal> {
        let meant = |e: &&&CheckedEndpoint| {
            e.address == binding.backend
                && binding.vpc.as_ref().is_none_or(|vpc| *vpc == e.vpc)
                && binding.attachment.as_ref().is_none_or(|a| *a == e.attachment)
        };
        let mut found = self.endpoints.iter().filter(meant);
        match (found.next(), found.next()) {
            (Some(endpoint), None) => Ok(endpoint),
            (None, _) => {
                let vpc = binding.vpc.as_deref().map_or_else(String::new, |vpc| format!(" in VPC {vpc}"));
                let message = format!("no VPCEndpoint on this node has address {}{vpc}", binding.backend);
                Err(Refusal::new("NoEndpoint", message))
            }
            (Some(one), Some(other)) => {
                let message = format!(
                    "{} is an address of {}/{} and of {}/{} here; give spec.vpcRef and spec.vpcAttachmentRef",
                    binding.backend, one.vpc, one.attachment, other.vpc, other.attachment
                );
                Err(Refusal::new("AmbiguousEndpoint", message))
            }
        }
    }

    /// A cross-connect leads to one endpoint, a table belongs to one VPC.
    fn alone(&self, endpoint: &CheckedEndpoint, sid: u16) -> Result<(), Refusal> {
        let clashes = |other: &&&CheckedEndpoint| {
            word(other, &self.site.locator) == Ok(sid)
                && (other.vpc != endpoint.vpc || sid >> 12 == 0xd && other.address != endpoint.address)
        };
        let Some(other) = self.endpoints.iter().find(clashes) else { return Ok(()) };
        let message = format!(
            "SID {} is also that of VPCEndpoint {}/{}; give each endpoint of function End.DX46, and each VPC, its own",
            sid_of(&self.site.locator, sid),
            other.id.namespace,
            other.id.name
        );
        Err(Refusal::new("SidConflict", message))
    }
}
