//! The smallest data path: one gateway, static routes, a real connection from client to pod and straight back.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::Duration;

use labkit::Lab;
use labkit::topology::Topology;
use scenarios::region::{A, B, Region, Routing, TENANTS, Tenant};
use weir::dataplane::Limits;
use weir::dataplane::apply::Reconciler;
use weir::dataplane::bpf::{Bpf, Interface, Maps, Mode, Params};
use weir::desired::Desired;
use weir::flow::HashKey;
use weir::maglev::Seed;
use weir::model::{
    Affinity, Backend, BackendId, Drain, Endpoint, Health, ObjectName, OnAllDown, Protocol, RingSize, Rule,
    Sid,
};
use weir_bpf::abi::{Config, NextHop, ROLE_FABRIC, ROLE_UPLINK};

fn rule(region: &Region, tenant: Tenant) -> Rule {
    let backends = (1..=region.workers).map(|w| Backend {
        id: BackendId {
            vpc: tenant.vpc().into(),
            attachment: "default".into(),
            address: region.pod_address(w).parse().unwrap(),
        },
        weight: NonZeroU64::MIN,
        drain: Drain::No,
        health: Health::Unknown,
        endpoint: Some(Endpoint {
            node: format!("w{w}").into(),
            sid: Sid(region.sid(w, tenant).parse().unwrap()),
        }),
    });
    Rule {
        name: ObjectName { namespace: tenant.namespace().into(), name: "web".into() },
        region: region.region(),
        vips: vec![region.vip(tenant).parse().unwrap()],
        protocol: Protocol::Tcp,
        port: 8080,
        affinity: Affinity::None,
        ring_size: RingSize::S1021,
        on_all_down: OnAllDown::Keep,
        backends: backends.collect(),
    }
}

fn constants(region: &Region) -> Config {
    let key = HashKey::from_region_key(&[9; 32]);
    let locator: std::net::Ipv6Addr = region.gateway_locator(1).trim_end_matches("/64").parse().unwrap();
    let octets = locator.octets();
    let half = |at: usize| u64::from_ne_bytes(octets[at..at + 8].try_into().unwrap());
    Config {
        nh: key.nh,
        fin: key.fin,
        src_hi: half(0),
        src_lo: half(8),
        selftest_lo: 0,
        role: 0,
        icmp_rate: 1000,
        heartbeat_jiffies: 0,
        build: 0,
    }
}

#[test]
fn a_client_reaches_pods_of_both_tenants_through_one_gateway() {
    let region = Region { gateways: 1, workers: 2, routing: Routing::Static, ..Region::default() };
    let topology = Topology::build("static", |t| region.build(t)).unwrap();
    let lab = Lab::up(&topology).unwrap();
    let gw = lab.node("gw1").unwrap();
    let params = Params {
        pins: gw.bpffs().unwrap().join("weir"),
        interfaces: vec![
            Interface { name: "eth1".into(), role: ROLE_UPLINK },
            Interface { name: "eth2".into(), role: ROLE_FABRIC },
        ],
        limits: Limits { vips: 64, backends: 64, ring_slots: 1 << 16, next_hops: 16, ..Limits::default() },
        mode: Mode::Native,
        constants: constants(&region),
        watch: weir_bpf::abi::Watch::default(),
    };
    let spine_mac = lab.node("spine").unwrap().mac("eth1").unwrap();
    let own_mac = gw.mac("eth2").unwrap();
    let (bpf, mut reconciler) = gw
        .netns()
        .run(|| {
            let mut bpf = Bpf::open(&params)?;
            let maps = bpf.take_maps().unwrap();
            let mut reconciler: Reconciler<Maps> = Reconciler::new(maps, Seed([3; 16]))?;
            let rules: BTreeMap<_, _> =
                TENANTS.iter().map(|t| rule(&region, *t)).map(|r| (r.name.clone(), Arc::new(r))).collect();
            let applied = reconciler.apply(&Desired { synced: true, rules, ..Desired::default() })?;
            assert!(applied.refused.is_empty(), "{applied:?}");
            let mut macs = [0; 12];
            macs[..6].copy_from_slice(&spine_mac);
            macs[6..].copy_from_slice(&own_mac);
            let ifindex = nix::net::if_::if_nametoindex("eth2").unwrap();
            let hop = NextHop { macs, ifindex, mtu: region.fabric_mtu, flags: 0 };
            let sids = reconciler.sids();
            reconciler.next_hops(sids.into_iter().map(|sid| (sid, vec![hop])))?;
            Ok::<_, weir::dataplane::Error>((bpf, reconciler))
        })
        .unwrap()
        .unwrap();

    for tenant in [A, B] {
        let vip: IpAddr = region.vip(tenant).parse().unwrap();
        let servers: Vec<_> = (1..=region.workers)
            .map(|w| {
                let pod = lab.node(&region.pod(w, tenant)).unwrap();
                let listener = pod.netns().run(|| TcpListener::bind((vip, 8080)).unwrap()).unwrap();
                let name = region.pod(w, tenant);
                std::thread::spawn(move || {
                    while let Ok((mut stream, peer)) = listener.accept() {
                        let _ = writeln!(stream, "{name} {}", peer.ip());
                        let mut rest = Vec::new();
                        let _ = stream.read_to_end(&mut rest);
                    }
                })
            })
            .collect();
        let client = lab.node("client").unwrap();
        let mut seen = std::collections::BTreeSet::new();
        for _ in 0..20 {
            let answer = client
                .netns()
                .run(|| {
                    let mut stream =
                        TcpStream::connect_timeout(&SocketAddr::new(vip, 8080), Duration::from_secs(5))?;
                    stream.shutdown(std::net::Shutdown::Write)?;
                    let mut text = String::new();
                    stream.read_to_string(&mut text).map(|_| text)
                })
                .unwrap()
                .unwrap_or_else(|e| panic!("{e}: {:?}", drops(reconciler.dataplane())));
            let (pod, source) = answer.trim().split_once(' ').unwrap();
            assert_eq!(source, region.client(), "the pod sees the client's own address");
            assert!(pod.ends_with(tenant.letter), "tenant {} was served by {pod}", tenant.letter);
            seen.insert(pod.to_owned());
        }
        assert_eq!(seen.len(), 2, "both pods of the tenant serve: {seen:?}");
        drop(servers);
    }
    gw.netns().run(|| bpf.detach()).unwrap().unwrap();
    assert_eq!(
        std::fs::read_dir(gw.bpffs().unwrap().join("weir/root-v1")).unwrap().count(),
        0,
        "nothing stays pinned"
    );
}

fn drops(maps: &Maps) -> Vec<(&'static str, u64)> {
    let all = weir_bpf::abi::Reason::ALL.iter().map(|r| (r.name(), maps.reason_total(*r)));
    all.filter(|(_, n)| *n > 0).collect()
}
