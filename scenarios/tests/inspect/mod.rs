//! `weir show` and `weir explain` against pinned maps of this kernel, with no daemon, and against what the program does.

mod gateway;

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::path::Path;

use gateway::{Gateway, VIP_A, VIP_B};
use labkit::Lab;
use labkit::topology::Topology;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{RngCore as _, SeedableRng as _};
use scenarios::packets::build::{self, SYN, TCP, UDP};
use serde_json::Value;
use weir::cli::Exit;
use weir::inspect::{Counters as _, PinnedSet};
use weir_bpf::abi::Reason;

const XDP_DROP: u32 = 1;
const XDP_PASS: u32 = 2;
const XDP_REDIRECT: u32 = 4;

/// Runs a test in a node with an uplink and a fabric interface, on a BPF file system of its own.
fn in_a_gateway(name: &str, test: impl FnOnce(Gateway) + Send) {
    on_a_node(name, |pins| {
        let index = |name: &str| nix::net::if_::if_nametoindex(name).unwrap();
        test(Gateway::load(pins, index("eth1"), index("eth2")));
    });
}

fn on_a_node(name: &str, test: impl FnOnce(&Path) + Send) {
    let topology = Topology::build(name, |t| {
        t.node("gw");
        t.node("peer");
        t.link("gw:eth1", "peer:eth1", 1500).own_xdp("gw");
        t.link("gw:eth2", "peer:eth2", 1500).own_xdp("gw");
    })
    .unwrap();
    let lab = Lab::up(&topology).unwrap();
    let gw = lab.node("gw").unwrap();
    let pins = gw.bpffs().unwrap();
    gw.netns().run(|| test(&pins)).unwrap();
}

/// A flow of a client.
#[derive(Clone, Copy, Debug)]
struct Flow {
    client: Ipv6Addr,
    client_port: u16,
    vip: Ipv6Addr,
    port: u16,
    protocol: u8,
}

impl Flow {
    fn random(random: &mut ChaCha8Rng) -> Self {
        let mut pick = |choices: &[u16]| choices[random.next_u32() as usize % choices.len()];
        // Mostly what the rules serve; some ports, protocols and addresses that they do not.
        let vip = [VIP_A, VIP_A, VIP_A, VIP_B, VIP_B, VIP_B, "2001:db8:100::c"];
        let vip = vip[usize::from(pick(&[0, 1, 2, 3, 4, 5, 6]))].parse().unwrap();
        let (protocol, port) = match pick(&[0, 1, 2, 3, 4]) {
            0 | 1 => (TCP, 443),
            2 => (UDP, 53),
            3 => (TCP, 80),
            _ => (TCP, 8443),
        };
        let low = u128::from(random.next_u64());
        let client = Ipv6Addr::from_bits(0x2001_0db8_000c << 80 | low);
        Self { client, client_port: random.next_u32() as u16, vip, port, protocol }
    }

    fn frame(&self) -> Vec<u8> {
        let ip = build::ip(self.client, self.vip);
        let ports = (self.client_port, self.port);
        build::frame(&match self.protocol {
            TCP => ip.tcp(ports, SYN, &[]),
            _ => ip.udp(ports, b"question"),
        })
    }

    fn explain(&self, gateway: &Gateway) -> (Exit, Value) {
        let (vip, client) =
            (format!("[{}]:{}", self.vip, self.port), format!("[{}]:{}", self.client, self.client_port));
        let protocol = if self.protocol == TCP { "tcp" } else { "udp" };
        gateway.json(&["explain", "--vip", &vip, "--client", &client, "--protocol", protocol])
    }
}

/// What the outer header and the link header of a sent frame say.
fn outer(frame: &[u8]) -> (String, String, u64) {
    let mac = frame[..6].iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(":");
    let sid = Ipv6Addr::from(<[u8; 16]>::try_from(&frame[38..54]).unwrap());
    let label = u32::from_be_bytes(frame[14..18].try_into().unwrap()) & 0xf_ffff;
    (mac, sid.to_string(), u64::from(label))
}

#[test]
fn explain_agrees_with_the_program_on_random_flows_of_two_tenants() {
    const FLOWS: usize = 200;
    in_a_gateway("explain", |mut gateway| {
        let seed = 0x77e1_2026;
        let mut random = ChaCha8Rng::seed_from_u64(seed);
        let mut outcomes: BTreeMap<String, usize> = BTreeMap::new();
        let mut sids: BTreeMap<String, usize> = BTreeMap::new();
        for _ in 0..FLOWS {
            let flow = Flow::random(&mut random);
            let (exit, said) = flow.explain(&gateway);
            let sent = gateway.send(&flow.frame());
            let context = format!("seed {seed:#x}, {flow:?}: {said:#}");
            *outcomes.entry(said["reason"].as_str().unwrap().into()).or_default() += 1;
            match said["outcome"].as_str().unwrap() {
                "sent" => {
                    assert_eq!((sent.action, exit), (XDP_REDIRECT, Exit::Fine), "{context}");
                    let (mac, sid, label) = outer(&sent.frame);
                    assert_eq!(said["backend"]["sid"], sid, "{context}");
                    assert_eq!(said["next_hop"]["mac"], mac, "{context}");
                    assert_eq!(said["next_hop"]["interface"], "eth2", "{context}");
                    assert_eq!(said["flow_label"], label, "{context}");
                    *sids.entry(sid).or_default() += 1;
                }
                "dropped" => assert_eq!((sent.action, exit), (XDP_DROP, Exit::Problems), "{context}"),
                "left" => assert_eq!((sent.action, exit), (XDP_PASS, Exit::Problems), "{context}"),
                other => panic!("{other}: {context}"),
            }
        }
        // What the program counted is what was explained.
        for reason in Reason::ALL {
            let counted = gateway.rig.maps.reason_total(*reason) as usize;
            assert_eq!(counted, outcomes.get(reason.name()).copied().unwrap_or(0), "{}", reason.name());
        }
        for reason in ["forwarded", "no_rule", "not_vip", "no_next_hop"] {
            assert!(outcomes.contains_key(reason), "seed {seed:#x}: no flow was {reason}: {outcomes:?}");
        }
        assert_eq!(sids.len(), 5, "seed {seed:#x}: {sids:?}");
    });
}

#[test]
fn explain_names_rule_and_backend_of_the_right_tenant() {
    in_a_gateway("explain-names", |gateway| {
        for (vip, tenant) in [(VIP_A, 1), (VIP_B, 2)] {
            let client: Ipv6Addr = "2001:db8:c::7".parse().unwrap();
            let flow =
                Flow { client, client_port: 40_000, vip: vip.parse().unwrap(), port: 443, protocol: TCP };
            let (_, said) = flow.explain(&gateway);
            assert_eq!(said["rule"]["namespace"], format!("tenant-{tenant}"), "{said:#}");
            assert_eq!(said["backend"]["id"]["vpc"], format!("vpc-{tenant}"), "{said:#}");
            let node = said["backend"]["node"].as_str().unwrap();
            let address = said["backend"]["id"]["address"].as_str().unwrap();
            assert_eq!(node.trim_start_matches("worker"), address.trim_start_matches("fd00::"), "{said:#}");
        }
    });
}

#[test]
fn show_tells_what_is_pinned_and_counted_without_a_daemon() {
    in_a_gateway("show", |mut gateway| {
        let client: Ipv6Addr = "2001:db8:c::7".parse().unwrap();
        let flow = |client_port, vip: &str, port| Flow {
            client,
            client_port,
            vip: vip.parse().unwrap(),
            port,
            protocol: TCP,
        };
        let mut sent = 0;
        for port in 1000..1050 {
            let frame = flow(port, VIP_A, 443).frame();
            sent += frame.len() as u64 - 14;
            assert_eq!(gateway.send(&frame).action, XDP_REDIRECT);
        }
        for port in 1000..1007 {
            assert_eq!(gateway.send(&flow(port, VIP_A, 444).frame()).action, XDP_DROP);
        }

        let (exit, vips) = gateway.json(&["show", "vips"]);
        assert_eq!(exit, Exit::Fine);
        let vips = vips.as_array().unwrap();
        let line =
            |v: &Value| format!("{} {}/{} {}", v["address"], v["protocol"], v["port"], v["rule"]["name"]);
        assert_eq!(
            vips.iter().map(line).collect::<Vec<_>>(),
            [
                "\"2001:db8:100::a\" \"tcp\"/443 \"web\"",
                "\"2001:db8:100::a\" \"udp\"/53 \"dns\"",
                "\"2001:db8:100::b\" \"tcp\"/80 \"sticky\"",
                "\"2001:db8:100::b\" \"tcp\"/443 \"web\"",
            ]
        );
        assert_eq!((&vips[0]["packets"], &vips[0]["bytes"]), (&50.into(), &sent.into()));
        assert_eq!(vips[3]["packets"], 0);
        assert_eq!(vips[1]["affinity"], "ClientIPAndProtocol");
        // Equal inputs share a ring; affinity is no input of a ring.
        assert_eq!(vips[0]["digest"], vips[1]["digest"]);
        assert_ne!(vips[0]["digest"], vips[2]["digest"]);

        let (_, backends) = gateway.json(&["show", "backends"]);
        let backends = backends.as_array().unwrap();
        assert_eq!(backends.len(), 6);
        let packets = |vpc: &str| -> u64 {
            let of = backends.iter().filter(|b| b["vpc"] == vpc);
            of.map(|b| b["packets"].as_u64().unwrap()).sum()
        };
        assert_eq!((packets("vpc-1"), packets("vpc-2")), (50, 0));
        let hops: Vec<usize> = backends.iter().map(|b| b["next_hops"].as_array().unwrap().len()).collect();
        assert_eq!(hops, [1, 2, 1, 1, 2, 0]);
        assert_eq!(backends[0]["next_hops"][0]["interface"], "eth2");

        let (_, drops) = gateway.json(&["show", "drops"]);
        assert_eq!(drops.as_array().unwrap().len(), 1, "{drops:#}");
        assert_eq!((&drops[0]["reason"], &drops[0]["packets"]), (&"no_rule".into(), &7.into()));
        let (_, all) = gateway.json(&["show", "drops", "--all"]);
        assert_eq!(all.as_array().unwrap().len(), Reason::ALL.len());

        // What `/metrics` reads.
        let image = PinnedSet { directory: gateway.rig.maps.directory().into() }.image().unwrap();
        assert_eq!((image.vips[0].total.packets, image.backends.len(), image.owned), (50, 6, 2));

        let (_, table) = gateway.weir(&["show", "vips"]);
        assert!(table.lines().any(|l| l.starts_with("[2001:db8:100::a]:443/tcp  tenant-1/web")), "{table}");
        assert_eq!(gateway.weir(&["show", "node"]).0, Exit::Unreachable);
    });
}

#[test]
fn show_rings_finds_slots_that_are_not_those_that_were_built() {
    in_a_gateway("rings", |mut gateway| {
        let key = gateway.key_file.path().to_str().unwrap().to_string();
        let checks = |gateway: &Gateway, key: &str| {
            let (exit, rings) = gateway.json(&["show", "rings", "--hash-key-file", key]);
            let checks = rings.as_array().unwrap().iter().map(|r| r["check"].clone()).collect::<Vec<_>>();
            (exit, rings, checks)
        };
        let (exit, rings, equal) = checks(&gateway, &key);
        assert_eq!((exit, equal), (Exit::Fine, vec!["equal".into(), "equal".into()]), "{rings:#}");
        let slots = |ring: &Value| -> Vec<u64> {
            ring["members"].as_array().unwrap().iter().map(|m| m["slots"].as_u64().unwrap()).collect()
        };
        // Weights 3, 2, 1 of 1021 slots.
        let shares = slots(&rings[0]);
        let near = |share: u64, of: u64| share.abs_diff(1021 * of / 6) <= 2;
        assert!(near(shares[0], 3) && near(shares[1], 2) && near(shares[2], 1), "{shares:?}");
        assert_eq!(shares.iter().sum::<u64>(), 1021);
        // Another region's key is another seed.
        let other = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(other.path(), [1; 32]).unwrap();
        assert_eq!(checks(&gateway, other.path().to_str().unwrap()).0, Exit::Problems);
        let (exit, unknown) = gateway.json(&["show", "rings"]);
        assert_eq!((exit, &unknown[0]["check"]), (Exit::Fine, &"unchecked".into()));

        // One slot of the first ring is given to another backend.
        use weir::dataplane::{Dataplane as _, RingRecord};
        let base = rings[0]["ring"].as_u64().unwrap() as u32;
        let tables = gateway.maps().read_back().unwrap();
        let record: RingRecord = tables.vips.values().find(|v| v.word.base() == base).unwrap().ring;
        let mut slots = gateway.maps().read_ring(base, 1021);
        let other = *slots.iter().find(|s| **s != slots[17]).unwrap();
        slots[17] = other;
        gateway.maps().write_ring(base, &slots, &record).unwrap();
        let (exit, rings, spoilt) = checks(&gateway, &key);
        assert_eq!(exit, Exit::Problems);
        assert!(spoilt[0]["differs"].is_string() && spoilt[1] == "equal", "{rings:#}");
        let (_, table) = gateway.weir(&["show", "rings", "--hash-key-file", &key]);
        assert!(table.contains("DIFFERS"), "{table}");
    });
}

#[test]
fn maps_of_another_layout_are_not_misread() {
    on_a_node("layout", |pins| {
        std::fs::create_dir(pins.join("maps-v999-00000000")).unwrap();
        let error = weir::inspect::open(pins).err().unwrap().to_string();
        assert!(error.contains("maps-v999") && error.contains("another build"), "{error}");
    });
    in_a_gateway("layout-renamed", |gateway| {
        let right = gateway.rig.maps.directory().to_path_buf();
        assert!(weir::inspect::open(&gateway.pins).is_ok());
        std::fs::rename(&right, right.with_file_name("maps-v999-00000000")).unwrap();
        let error = weir::inspect::open(&gateway.pins).err().unwrap().to_string();
        assert!(error.contains("maps-v999") && error.contains("another build"), "{error}");
    });
}
