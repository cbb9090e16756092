//! The plan over written objects, and images carried out on maps in memory that watch what packets could meet.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use proptest::prelude::*;
use weir_api::object::parse_file;
use weir_bpf::worker_abi::{Binding, Endpoint, OWN_ADDRESS, OWN_SID, Params, PortKey, SidKey, SourceKey};

use super::apply::{AnyKey, Tables, apply};
use super::image::{Facts, Image, sid_key, target};
use super::plan::{Key, Site, Wanted, plan};
use super::{mapped, unmapped};
use crate::config::{Locator, WorkerLimits};
use crate::dataplane::Error;
use crate::event::{Loaded, ObjectSet};

const LIMITS: WorkerLimits = WorkerLimits { bindings: 32, endpoints: 8 };

fn site() -> Site {
    let locator = Locator { block: "2001:db8:ff01::/48".parse().unwrap(), node_id: 0x11 };
    Site { node: "w1".into(), locator, translate: false }
}

fn endpoint(name: &str, vpc: &str, address: &str, sid: &str) -> String {
    format!(
        "apiVersion: network.datumapis.com/v1alpha1\nkind: VPCEndpoint\nmetadata: {{ name: {name}, namespace: platform }}\nspec:\n  \
         vpcRef: {vpc}\n  vpcAttachmentRef: east\n  address: \"{address}\"\n  nodeName: w1\n  {sid}\n"
    )
}

/// A binding of `2001:db8:aa::<vip>` to a backend; `rest` is further lines of the spec.
fn binding(name: &str, vip: &str, backend: &str, rest: &str) -> String {
    format!(
        "apiVersion: network.datumapis.com/v1alpha1\nkind: ServiceVIPBinding\nmetadata: {{ name: {name}, namespace: platform }}\nspec:\n  \
         targetRef: {{ kind: Node, name: w1 }}\n  vipAddress: \"{vip}\"\n  port: 80\n  protocol: tcp\n  backendAddress: \"{backend}\"\n  \
         backendPort: 80\n{rest}"
    )
}

fn objects(texts: &[String]) -> ObjectSet {
    let read = |text: &String| {
        let parsed = parse_file(Path::new("o.yaml"), text.as_bytes());
        let object = parsed.object.unwrap_or_else(|| panic!("{:?}\n{text}", parsed.problems));
        Arc::new(Loaded { origin: "o.yaml".into(), object })
    };
    ObjectSet::new(texts.iter().map(read).collect())
}

fn reasons(wanted: &Wanted) -> Vec<(&str, &str)> {
    wanted.refused.iter().map(|(name, r)| (name.as_str(), r.reason.as_str())).collect()
}

const VETH: &str = "  egressKind: veth\n";

#[test]
fn two_tenants_with_equal_addresses_get_deliveries_of_their_own() {
    let wanted = plan(
        &objects(&[
            endpoint("a", "vpc-a", "fd00::1", "function: End.DT46\n  argument: 1"),
            endpoint("b", "vpc-b", "fd00::1", "sid: \"2001:db8:ff01:11:e002::\""),
            binding("a", "2001:db8:aa::a", "fd00::1", &format!("{VETH}  vpcRef: vpc-a\n  interface: pa\n")),
            binding("b", "2001:db8:aa::b", "fd00::1", &format!("{VETH}  vpcRef: vpc-b\n  interface: pb\n")),
            binding("x", "2001:db8:aa::c", "fd00::1", &format!("{VETH}  interface: pb\n")),
        ]),
        &site(),
    );
    let found: Vec<_> =
        wanted.deliveries.iter().map(|(k, d)| (k.sid, k.vip.to_string(), &*d.vpc, &*d.interface)).collect();
    assert_eq!(
        found,
        [(0xe001, "2001:db8:aa::a".into(), "vpc-a", "pa"), (0xe002, "2001:db8:aa::b".into(), "vpc-b", "pb")]
    );
    assert_eq!(reasons(&wanted), [("platform/x", "AmbiguousEndpoint")]);
}

#[test]
fn each_binding_that_cannot_be_carried_out_is_told_why() {
    let with = |rest: &str| format!("{VETH}{rest}");
    let wanted = plan(
        &objects(&[
            endpoint("a1", "vpc-a", "fd00::1", "function: End.DT46\n  argument: 1"),
            endpoint("a2", "vpc-a", "fd00::2", "function: End.DT46\n  argument: 1"),
            endpoint("a3", "vpc-a", "fd00::3", "function: End.DX46\n  argument: 3"),
            endpoint("a4", "vpc-a", "fd00::4", "function: End.DX46\n  argument: 3"),
            endpoint("a5", "vpc-a", "fd00::5", "sid: \"2001:db8:ff01:12:e001::\""),
            endpoint("b1", "vpc-b", "fd00::6", "function: End.DT46\n  argument: 2"),
            binding("01", "2001:db8:aa::a", "fd00::1", &with("  interface: p1\n")),
            binding("02", "2001:db8:aa::a", "fd00::2", &with("  interface: p2\n")),
            binding("03", "2001:db8:aa::a", "fd00::3", &with("  interface: p3\n")),
            binding("05", "2001:db8:aa::a", "fd00::5", &with("  interface: p5\n")),
            binding("06", "2001:db8:aa::b", "fd00::6", &with("  interface: p1\n")),
            binding("07", "2001:db8:aa::b", "fd00::6", VETH),
            binding("08", "2001:db8:aa::b", "fd00::9", &with("  interface: p9\n")),
            binding("09", "2001:db8:aa::b", "fd00::6", &with("  interface: p6\n  delivery: Translate\n")),
            binding("10", "2001:db8:ff01::b", "fd00::6", &with("  interface: p6\n")),
            binding("11", "2001:db8:aa::b", "fd00::6", &with("  interface: p6\n")),
        ]),
        &site(),
    );
    assert_eq!(
        reasons(&wanted),
        [
            ("platform/02", "DeliveryConflict"),
            ("platform/03", "SidConflict"),
            ("platform/05", "SidForeign"),
            ("platform/06", "InterfaceConflict"),
            ("platform/07", "NoInterface"),
            ("platform/08", "NoEndpoint"),
            ("platform/09", "TranslateDisabled"),
            ("platform/10", "VIPInBlock"),
        ]
    );
    assert_eq!(wanted.deliveries.len(), 2);
    let text = &wanted.refused["platform/02"].message;
    assert!(text.contains("2001:db8:ff01:11:e001::") && text.contains("End.DX46"), "{text}");
}

/// Maps in memory that refuse what would let a packet meet another's record.
#[derive(Default)]
struct Memory {
    keys: BTreeMap<AnyKey, u32>,
    bindings: BTreeMap<u32, Binding>,
    endpoints: BTreeMap<u32, Endpoint>,
    /// Keys deleted since readers were last waited for: a packet may still follow them.
    lingering: BTreeMap<AnyKey, u32>,
    /// Fails the operation after this many.
    fails_after: Option<usize>,
}

impl Memory {
    fn tick(&mut self) -> Result<(), Error> {
        match &mut self.fails_after {
            Some(0) => Err(Error::Map { operation: "write", map: "w_sids", reason: "asked to fail".into() }),
            Some(n) => {
                *n -= 1;
                Ok(())
            }
            None => Ok(()),
        }
    }
    /// Whether a packet could come to this binding.
    fn reachable(&self, index: u32) -> bool {
        let leads = |(key, value): (&AnyKey, &u32)| {
            matches!(key, AnyKey::Sid(_) | AnyKey::Source(_) | AnyKey::Service(_)) && *value == index
        };
        // The entry that only says "ours" leads nowhere.
        let real = |(key, _): &(&AnyKey, &u32)| !matches!(key, AnyKey::Sid(k) if k.pad == OWN_SID);
        self.keys.iter().chain(&self.lingering).filter(real).any(leads)
    }
    fn check(&self) {
        for (key, index) in &self.keys {
            match key {
                AnyKey::Sid(SidKey { vip, sid, pad }) if *pad != OWN_SID => {
                    let record = self.bindings.get(index).expect("a SID leads to a record");
                    assert_eq!((record.vip, record.sid), (*vip, *sid), "a packet meets its own record");
                    assert!(self.endpoints.contains_key(&record.endpoint));
                    let own = SourceKey { addr: record.backend, endpoint: record.endpoint };
                    assert!(self.keys.contains_key(&AnyKey::Source(own)), "guarded before packets come");
                }
                AnyKey::Source(SourceKey { addr, endpoint }) if *index != OWN_ADDRESS => {
                    let record = self.bindings.get(index).expect("a source leads to a record");
                    assert_eq!(
                        (record.vip, record.endpoint),
                        (*addr, *endpoint),
                        "nobody sends as another's VIP"
                    );
                }
                _ => {}
            }
        }
    }
}

impl Tables for Memory {
    fn insert(&mut self, key: AnyKey, value: u32) -> Result<(), Error> {
        self.tick()?;
        assert!(!self.lingering.contains_key(&key), "used again before its readers have left");
        assert!(self.keys.insert(key, value).is_none(), "{key:?} was there");
        self.check();
        Ok(())
    }
    fn delete(&mut self, key: AnyKey) -> Result<(), Error> {
        self.tick()?;
        let value = self.keys.remove(&key).expect("deleted what is there");
        self.lingering.insert(key, value);
        Ok(())
    }
    fn put_binding(&mut self, index: u32, binding: &Binding, facts: &Facts) -> Result<(), Error> {
        self.tick()?;
        assert!(!self.reachable(index), "a record in use was rewritten");
        assert!(index < LIMITS.bindings);
        self.bindings.insert(index, *binding);
        self.put_facts(index, binding, facts)
    }
    fn put_facts(&mut self, _: u32, _: &Binding, _: &Facts) -> Result<(), Error> {
        self.tick()
    }
    fn clear_binding(&mut self, index: u32) -> Result<(), Error> {
        self.tick()?;
        assert!(!self.reachable(index), "a record in use was cleared");
        self.bindings.remove(&index);
        Ok(())
    }
    fn put_endpoint(&mut self, index: u32, endpoint: &Endpoint) -> Result<(), Error> {
        self.tick()?;
        let used = self.bindings.iter().any(|(i, b)| b.endpoint == index && self.reachable(*i));
        assert!(!used, "an endpoint in use was rewritten");
        assert!(index < LIMITS.endpoints && index > 0);
        self.endpoints.insert(index, *endpoint);
        Ok(())
    }
    fn set_ifindex(&mut self, index: u32, ifindex: u32) -> Result<(), Error> {
        self.tick()?;
        self.endpoints.get_mut(&index).expect("there").ifindex = ifindex;
        Ok(())
    }
    fn put_params(&mut self, _: &Params) -> Result<(), Error> {
        self.tick()
    }
    fn wait_for_readers(&mut self) -> Result<(), Error> {
        self.tick()?;
        self.lingering.clear();
        Ok(())
    }
}

fn keys(image: &Image) -> BTreeMap<AnyKey, u32> {
    let sids = image.sids.iter().map(|(k, v)| (AnyKey::Sid(*k), *v));
    let sources = image.sources.iter().map(|(k, v)| (AnyKey::Source(*k), *v));
    let services = image.services.iter().map(|(k, v)| (AnyKey::Service(*k), *v));
    let ports = image.ports.iter().map(|(k, v)| (AnyKey::Port(*k), *v));
    sids.chain(sources).chain(services).chain(ports).collect()
}

/// A node's objects: which of six endpoints have which of four VIPs bound, and how their SIDs are.
fn world(choice: &[(u8, u8, bool)]) -> ObjectSet {
    let mut texts: Vec<String> = (1..=6)
        .map(|e| {
            let sid = if e <= 3 {
                "function: End.DT46\n  argument: 1".into()
            } else {
                format!("function: End.DX46\n  argument: {e}")
            };
            endpoint(&format!("e{e}"), "vpc-a", &format!("fd00::{e}"), &sid)
        })
        .collect();
    for (n, (e, vip, translate)) in choice.iter().enumerate() {
        let delivery = if *translate { "  delivery: Translate\n" } else { "" };
        let rest = format!("{VETH}  interface: p{e}\n{delivery}");
        texts.push(binding(&format!("b{n}"), &format!("2001:db8:aa::{vip}"), &format!("fd00::{e}"), &rest));
    }
    objects(&texts)
}

proptest! {
    #[test]
    fn no_change_of_bindings_lets_a_packet_meet_anothers_record(
        histories in proptest::collection::vec(
            (proptest::collection::vec((1_u8..=6, 1_u8..=4, any::<bool>()), 0..10), 0_u32..3, proptest::option::of(0_usize..30)),
            1..8,
        )
    ) {
        let mut memory = Memory::default();
        let mut held = Image::default();
        let site = Site { translate: true, ..site() };
        for (choice, generation, fault) in histories {
            let wanted = plan(&world(&choice), &site);
            let present: BTreeMap<String, u32> = (1..=5).map(|e| (format!("p{e}"), 10 * generation + e + 1)).collect();
            let (image, refused) = target(&wanted, &present, &held, LIMITS);
            prop_assert!(refused.is_empty());
            memory.fails_after = fault;
            let stage = image.without_new(&held);
            let done = apply(&mut memory, &held, &stage).and_then(|()| apply(&mut memory, &stage, &image));
            memory.fails_after = None;
            if done.is_err() {
                // As the daemon does: what is there is read back, and the next look goes on from it.
                memory.wait_for_readers().unwrap();
                held = read_back(&memory);
                let (image, _) = target(&wanted, &present, &held, LIMITS);
                apply(&mut memory, &held, &image).unwrap();
                held = image;
            } else {
                held = image;
            }
            memory.check();
            prop_assert_eq!(&memory.keys, &keys(&held));
            for (key, delivery) in &wanted.deliveries {
                let index = held.index_of(*key).expect("every delivery is loaded");
                prop_assert_eq!(unmapped(held.bindings[&index].0.backend), delivery.backend);
            }
        }
    }
}

fn read_back(memory: &Memory) -> Image {
    let mut image = Image::default();
    for (key, value) in &memory.keys {
        match key {
            AnyKey::Sid(k) => drop(image.sids.insert(*k, *value)),
            AnyKey::Source(k) => drop(image.sources.insert(*k, *value)),
            AnyKey::Service(k) => drop(image.services.insert(*k, *value)),
            AnyKey::Port(k) => drop(image.ports.insert(*k, *value)),
        }
    }
    for (index, record) in &memory.bindings {
        let name = unmapped(record.backend).to_string().replace("fd00::", "p");
        image.bindings.insert(*index, (*record, Facts { interface: name.clone(), ..Facts::default() }));
        if let Some(endpoint) = memory.endpoints.get(&record.endpoint) {
            image.endpoints.insert(record.endpoint, (*endpoint, name));
        }
    }
    image
}

#[test]
fn a_limit_that_is_reached_refuses_the_rest_and_loads_no_half() {
    let choice: Vec<(u8, u8, bool)> = (1..=6).map(|e| (e, 1, false)).collect();
    let wanted = plan(&world(&choice), &site());
    let limits = WorkerLimits { bindings: 2, endpoints: 8 };
    let (image, refused) = target(&wanted, &BTreeMap::new(), &Image::default(), limits);
    assert_eq!(image.bindings.len(), 2);
    assert_eq!(refused.len(), wanted.deliveries.len() - 2);
    assert!(refused.values().all(|r| r.reason == "LimitReached" && r.message.contains("limits.bindings")));
    assert!(refused.keys().all(|key| image.index_of(*key).is_none()));
}

#[test]
fn a_translated_port_is_found_by_the_replys_own_tuple() {
    let site = Site { translate: true, ..site() };
    let wanted = plan(&world(&[(1, 1, true)]), &site);
    let (image, _) = target(&wanted, &BTreeMap::from([("p1".into(), 7)]), &Image::default(), LIMITS);
    let key = Key { sid: 0xe001, vip: "2001:db8:aa::1".parse().unwrap() };
    let index = image.sids[&sid_key(key)];
    let service = PortKey { endpoint: image.ports[&7], port: [0, 80], proto: 6, family: 6 };
    assert_eq!(image.services, BTreeMap::from([(service, index)]));
    let own = SourceKey { addr: mapped("fd00::1".parse().unwrap()), endpoint: image.ports[&7] };
    assert_eq!(image.sources, BTreeMap::from([(own, OWN_ADDRESS)]));
}
