//! A gateway's maps and program without its daemon: two tenants with the same private addresses, loaded and pinned.

use std::collections::BTreeMap;
use std::net::Ipv6Addr;
use std::num::NonZeroU64;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use weir::cli::{Cli, Exit};
use weir::dataplane::Limits;
use weir::dataplane::apply::Reconciler;
use weir::dataplane::bpf::{Maps, Mode, Params, TestOutcome, TestRig};
use weir::desired::Desired;
use weir::flow::HashKey;
use weir::maglev::Seed;
use weir::model::{
    Affinity, Backend, BackendId, Drain, Endpoint, Health, ObjectName, OnAllDown, Protocol, RingSize, Rule,
    Sid,
};
use weir_bpf::abi::{Config, NextHop, ROLE_UPLINK};

const REGION: &str = "us-east";
pub(super) const VIP_A: &str = "2001:db8:100::a";
pub(super) const VIP_B: &str = "2001:db8:100::b";
const KEY: [u8; 32] = [0x3c; 32];
const LIMITS: Limits = Limits { vips: 64, backends: 64, ring_slots: 1 << 16, next_hops: 64, fragments: 1024 };

/// What is loaded, and where.
pub(super) struct Gateway {
    pub(super) rig: TestRig,
    pub(super) pins: PathBuf,
    reconciler: Reconciler<Maps>,
    /// The region's key.
    pub(super) key_file: tempfile::NamedTempFile,
    uplink: u32,
}

/// A backend of a tenant. Tenants use the same addresses; nodes and SIDs tell them apart.
fn backend(tenant: u16, n: u16) -> Backend {
    let sid = Ipv6Addr::new(0x2001, 0xdb8, 0xff01, 10 + n, 0xe000 + tenant, 0, 0, 0);
    Backend {
        id: BackendId {
            vpc: format!("vpc-{tenant}").into(),
            attachment: "att".into(),
            address: format!("fd00::{n:x}").parse().unwrap(),
        },
        weight: NonZeroU64::new(u64::from(n)).unwrap(),
        drain: Drain::No,
        health: Health::Healthy,
        endpoint: Some(Endpoint { node: format!("worker{n}").into(), sid: Sid(sid) }),
    }
}

fn rule(tenant: u16, name: &str, vip: &str, protocol: Protocol, port: u16, affinity: Affinity) -> Rule {
    Rule {
        name: ObjectName { namespace: format!("tenant-{tenant}").into(), name: name.into() },
        region: REGION.into(),
        vips: vec![vip.parse().unwrap()],
        protocol,
        port,
        affinity,
        ring_size: RingSize::S1021,
        on_all_down: OnAllDown::Keep,
        backends: (1..=3).map(|n| backend(tenant, n)).collect(),
    }
}

impl Gateway {
    /// Loads the program, attached to nothing, and the rules. To be called inside the network namespace whose interface
    /// numbers are given. The third backend of tenant 2 has no next hop; those of the second each have two.
    pub(super) fn load(pins: &Path, uplink: u32, fabric: u32) -> Self {
        let key = HashKey::from_region_key(&KEY);
        let constants = Config {
            nh: key.nh,
            fin: key.fin,
            src_hi: u64::from_ne_bytes([0x20, 0x01, 0x0d, 0xb8, 0xff, 0x01, 0, 1]),
            src_lo: u64::from_ne_bytes([0, 0, 0, 0, 0, 1, 0, 0]),
            selftest_lo: u64::from_ne_bytes([0xf0, 0, 0, 0, 0, 0, 0, 0]),
            role: ROLE_UPLINK,
            icmp_rate: 1000,
            heartbeat_jiffies: 0,
            build: weir::status::BUILD,
        };
        let params = Params {
            pins: pins.into(),
            interfaces: Vec::new(),
            limits: LIMITS,
            mode: Mode::Native,
            constants,
            watch: weir_bpf::abi::Watch::default(),
        };
        let rig = TestRig::load(&params).unwrap();
        let maps = Maps::open(rig.maps.directory(), LIMITS).unwrap();
        let mut reconciler = Reconciler::new(maps, Seed::from_region_key(&KEY)).unwrap();
        let rules = [
            rule(1, "web", VIP_A, Protocol::Tcp, 443, Affinity::None),
            rule(1, "dns", VIP_A, Protocol::Udp, 53, Affinity::ClientIpAndProtocol),
            rule(2, "web", VIP_B, Protocol::Tcp, 443, Affinity::None),
            rule(2, "sticky", VIP_B, Protocol::Tcp, 80, Affinity::ClientIp),
        ];
        let rules: BTreeMap<_, _> = rules.into_iter().map(|r| (r.name.clone(), Arc::new(r))).collect();
        let applied =
            reconciler.apply(&Desired { generation: 1, synced: true, rules, ..Desired::default() }).unwrap();
        assert_eq!((applied.loaded.len(), applied.refused.len()), (4, 0));
        let hop = |last: u8| NextHop {
            macs: [2, 0, 0, 0, 0, last, 2, 0, 0, 0, 1, 0],
            ifindex: fabric,
            mtu: 1500,
            flags: 0,
        };
        let hops = reconciler.sids().into_iter().map(|sid| {
            let [.., tenant, n] = [sid.0.segments()[4] & 0xfff, sid.0.segments()[3] - 10];
            let hops = match (tenant, n) {
                (2, 3) => Vec::new(),
                (_, 2) => vec![hop(0x21), hop(0x22)],
                (_, n) => vec![hop(n as u8)],
            };
            (sid, hops)
        });
        let hops: Vec<_> = hops.collect();
        reconciler.next_hops(hops).unwrap();
        let key_file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(key_file.path(), KEY).unwrap();
        Self { rig, pins: pins.into(), reconciler, key_file, uplink }
    }

    /// The maps, to spoil them.
    pub(super) fn maps(&mut self) -> &mut Maps {
        self.reconciler.dataplane()
    }

    /// Runs a frame that came in on the uplink.
    pub(super) fn send(&mut self, frame: &[u8]) -> TestOutcome {
        self.rig.run(self.uplink, frame).unwrap()
    }

    /// Runs a command line of `weir` on these pins; no daemon runs.
    pub(super) fn weir(&self, args: &[&str]) -> (Exit, String) {
        use clap::Parser as _;
        let (pins, key) = (self.pins.to_str().unwrap(), self.key_file.path().to_str().unwrap());
        let mut line = vec!["weir"];
        line.extend(args);
        line.extend(["--pins", pins, "--admin", "/nonexistent.sock"]);
        if args[0] == "explain" && !args.contains(&"--hash-key-file") {
            line.extend(["--hash-key-file", key]);
        }
        let mut out = Vec::new();
        let exit = Cli::try_parse_from(line).unwrap().run(&mut out);
        (exit, String::from_utf8(out).unwrap())
    }

    /// The same as JSON.
    pub(super) fn json(&self, args: &[&str]) -> (Exit, serde_json::Value) {
        let (exit, text) = self.weir(&[args, &["--output", "json"]].concat());
        (exit, serde_json::from_str(&text).unwrap_or_else(|e| panic!("{args:?}: {e}: {text}")))
    }
}
