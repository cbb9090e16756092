//! Made-up figures of a gateway with two tenants, for tests of what is shown.

use weir_bpf::abi::{Counter, Reason, VipWord};

use super::{BackendRow, ExitRow, HopRow, Image, Total, VipRow};
use crate::dataplane::tables::VipEntry;
use crate::dataplane::{Limits, RingRecord};
use crate::desired::DrainStage;
use crate::model::{Affinity, BackendId, Families, ObjectName, Protocol, Sid, VipKey};
use crate::status::{
    BackendSummary, Condition, Interface, NodeStatus, NotReady, PeerStatus, RouteStatus, RuleStatus, Source,
    Work,
};

fn name(namespace: &str, name: &str) -> ObjectName {
    ObjectName { namespace: namespace.into(), name: name.into() }
}

pub(crate) fn backend_id(vpc: &str) -> BackendId {
    // Both tenants use the same private address.
    BackendId { vpc: vpc.into(), attachment: "att".into(), address: "fd00::1".parse().unwrap() }
}

/// Two VIPs, one of them not loaded, and two backends, one of them without a next hop.
pub(crate) fn image() -> Image {
    let vip = |last: u8, protocol, index, word, rule, total| {
        let key = VipKey { address: format!("2001:db8:100::{last:x}").parse().unwrap(), protocol, port: 443 };
        let ring = RingRecord { ring_key: [1; 16], digest: [0xab; 16] };
        VipRow::new(key, &VipEntry { index, word, rule, ring }, total)
    };
    let backend = |vpc: &str, node: &str, index, next_hops, packets| BackendRow {
        id: backend_id(vpc),
        node: node.into(),
        sid: Sid(format!("2001:db8:ff01:{index}:e001::").parse().unwrap()),
        index,
        next_hops,
        path_mtu: (index == 1).then_some(1400),
        total: Total { packets, bytes: packets * 100 },
    };
    let hop = |mac: &str| HopRow { interface: "eth2".into(), mac: mac.into(), mtu: 1500 };
    let hops = vec![hop("02:00:00:00:00:01"), hop("02:00:00:00:00:02")];
    Image {
        limits: Limits::default(),
        vips: vec![
            vip(
                1,
                Protocol::Tcp,
                0,
                VipWord::new(0, 1021, Affinity::None),
                name("tenant-a", "web"),
                Counter { packets: 12, bytes: 3456 },
            ),
            vip(2, Protocol::Udp, 1, VipWord(0), name("tenant-b", "quic"), Counter::default()),
        ],
        owned: 2,
        backends: vec![backend("vpc-a", "w1", 1, hops, 12), backend("vpc-b", "w2", 2, Vec::new(), 0)],
        exits: Reason::ALL
            .iter()
            .map(|r| ExitRow::new(*r, if *r == Reason::NoRule { 5 } else { 0 }))
            .collect(),
        self_test_frames: 3,
        drop_events_lost: 3,
    }
}

/// A gateway that is not ready.
pub(crate) fn status() -> NodeStatus {
    let condition = |kind: &'static str, status: &'static str, reason: &'static str, message: &str| {
        Condition { kind: kind.into(), status: status.into(), reason: reason.into(), message: message.into() }
    };
    let rule = |namespace: &str, rule: &str, last: u8, serving, conditions| {
        std::sync::Arc::new(RuleStatus {
            name: name(namespace, rule),
            origin: format!("objects.d/{rule}.yaml"),
            vips: vec![format!("2001:db8:100::{last:x}").parse().unwrap()],
            protocol: Some(Protocol::Tcp),
            port: Some(443),
            backends: BackendSummary {
                configured: 2,
                serving,
                unresolved: 2 - serving,
                ..Default::default()
            },
            conditions,
        })
    };
    let peer = |name: &str, state: &str, established| PeerStatus {
        name: name.into(),
        role: "upstream".into(),
        address: "2001:db8:11::1".parse().unwrap(),
        asn: 65000,
        state: state.into(),
        established,
        established_since: established.then(|| "2026-01-02T03:04:05Z".into()),
        synced: established,
        carries: Families { ipv4: established, ipv6: established },
        advertised: u64::from(established),
        unsendable: 0,
        received: 0,
        hold_time: established.then_some(9),
        restart_time: None,
        last_error: (!established).then(|| "connection refused".into()),
    };
    NodeStatus {
        node: "gw1".into(),
        region: "us-east".into(),
        version: "0.1.0".into(),
        ready: false,
        reasons: vec![NotReady {
            id: "forwarding".into(),
            text: "eth2 does not forward".into(),
            remedy: "set net.ipv6.conf.eth2.forwarding=1".into(),
        }],
        drain: DrainStage::None,
        generation: 9,
        applied: 8,
        interfaces: vec![
            Interface { name: "eth1".into(), roles: vec!["uplink".into()], attached: true, in_slot: true },
            Interface { name: "eth2".into(), roles: vec!["fabric".into()], attached: false, in_slot: false },
        ],
        sources: vec![Source {
            name: "files".into(),
            synced: true,
            problems: vec!["objects.d/b.yaml:3: spec.port: 0 is no port; give 1 to 65535".into()],
        }],
        rules: vec![
            rule(
                "tenant-a",
                "web",
                1,
                2,
                vec![
                    condition("Accepted", "True", "Valid", ""),
                    condition("Advertised", "True", "Advertised", ""),
                ],
            ),
            rule(
                "tenant-b",
                "quic",
                2,
                1,
                vec![
                    condition("Accepted", "True", "Valid", ""),
                    condition("Loaded", "False", "NotLoaded", "map vip_index is full; raise limits.vips"),
                    condition("Advertised", "False", "NotLoaded", "only what is loaded is announced"),
                ],
            ),
        ],
        peers: vec![peer("tor1", "Established", true), peer("tor2", "Active", false)],
        routes: vec![
            RouteStatus {
                prefix: "2001:db8:100::1/128".parse().unwrap(),
                peers: vec!["tor1".into()],
                communities: vec!["65010:100".into(), "65010:1:2".into()],
            },
            RouteStatus {
                prefix: "2001:db8:100::2/128".parse().unwrap(),
                peers: Vec::new(),
                communities: Vec::new(),
            },
        ],
        unreachable: vec!["2001:db8:ff01:2:e001::".parse().unwrap()],
        work: Work { ring_builds: 2, map_writes: 40, route_changes: 700 },
    }
}
