//! Affinity over the wire: what a rule's affinity holds together lands on one backend, on either gateway and in both families,
//! errors about it and fragments included. Tenant A asks for `ClientIP`, tenant B for `ClientIPAndProtocol`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use labkit::expect::expect;
use labkit::packet::matcher::{self, Matcher};
use labkit::packet::{Layers, flags};
use labkit::traffic::{Pool, UdpFlow};
use scenarios::region::{
    A, B, Family, Live, PORT, Region, SOON, Sender, TENANTS, Tenant, addressed_to, rule,
};
use weir_bpf::abi::Reason;

/// Clients that packets come from, and ports of each.
const CLIENTS: u8 = 48;
const PORTS: std::ops::Range<u16> = 40_000..40_008;
const UDP: u8 = 17;

fn up() -> Live {
    let live = Live::up("affinity", Region::default()).unwrap();
    for n in 1..=2 {
        live.prepare_gateway(n).unwrap();
        for (tenant, affinity) in [(A, "ClientIP"), (B, "ClientIPAndProtocol")] {
            for protocol in ["tcp", "udp"] {
                let text = rule(&live.region, tenant, &format!("web-{protocol}"), protocol, &[1, 2, 3]);
                let text = text.replace("  backends:\n", &format!("  affinity: {affinity}\n  backends:\n"));
                let name = format!("rule-{}-{protocol}.yaml", tenant.letter);
                live.objects(n).unwrap().put(&name, &text).unwrap();
            }
        }
        live.run_gateway(n, None).unwrap();
    }
    live.wait_ready().unwrap();
    live
}

fn client(family: Family, n: u8) -> IpAddr {
    match family {
        Family::Ipv4 => Ipv4Addr::new(198, 51, 100, 16 + n).into(),
        Family::Ipv6 => Ipv6Addr::new(0x2001, 0xdb8, 0x1c0, 0, 0, 0, 0x77, n.into()).into(),
    }
}

/// Source of the packet inside its outer header.
fn inside(layers: &Layers) -> IpAddr {
    let ipv4 = layers.ipv4().map(|ip| IpAddr::from(ip.src));
    ipv4.unwrap_or_else(|| layers.inner_ipv6().unwrap().src.into())
}

/// SIDs by client and protocol.
type Sent = BTreeMap<(IpAddr, bool), BTreeSet<Ipv6Addr>>;

/// Sends from every client, by every port, over TCP and UDP, through one gateway.
fn send(live: &Live, gateway: u16, tenant: Tenant, family: Family) -> Sent {
    let vip = live.vip_of(tenant, family);
    let link = format!("eth{gateway}");
    let wire = live.capture("spine", &link).unwrap();
    let edge = live.sender("edge", &link).unwrap();
    for from in (0..CLIENTS).map(|n| client(family, n)) {
        for port in PORTS {
            edge.send(&edge.udp(from, vip, (port, PORT)).payload(b"which")).unwrap();
            edge.send(&edge.tcp(from, vip, (port, PORT)).flags(flags::SYN)).unwrap();
        }
    }
    let ours = addressed_to(vip).and(Matcher::new("from a client", |seen| {
        let ports = seen.layers().udp().map(|u| u.src).or(seen.layers().tcp().map(|t| t.src));
        if ports.is_some_and(|port| PORTS.contains(&port)) { Ok(()) } else { Err("another port".into()) }
    }));
    let frames = expect(&wire).within(SOON).packets(usize::from(CLIENTS) * PORTS.len() * 2, ours).unwrap();
    let mut sent = Sent::new();
    for frame in frames {
        let layers = frame.layers();
        let key = (inside(&layers), layers.tcp().is_some());
        sent.entry(key).or_default().insert(layers.ipv6().unwrap().dst);
    }
    assert_eq!(sent.len(), 2 * usize::from(CLIENTS));
    sent
}

/// Each client's packets of a protocol go to one SID, told by both gateways alike.
fn held_together(live: &Live, tenant: Tenant, family: Family) -> BTreeMap<(IpAddr, bool), Ipv6Addr> {
    let sent = send(live, 1, tenant, family);
    assert_eq!(sent, send(live, 2, tenant, family), "both gateways");
    let scattered: Vec<_> = sent.iter().filter(|(_, sids)| sids.len() != 1).collect();
    assert!(scattered.is_empty(), "ports of one client went to several backends: {scattered:?}");
    let one: BTreeMap<_, _> = sent.into_iter().map(|(key, sids)| (key, *sids.first().unwrap())).collect();
    assert_eq!(one.values().collect::<BTreeSet<_>>().len(), 3, "the clients are on all backends");
    let other = |&(from, tcp): &(IpAddr, bool)| one[&(from, !tcp)];
    let parted = one.iter().filter(|(key, sid)| other(key) != **sid).count();
    if tenant == A {
        assert_eq!(parted, 0, "ClientIP: TCP and UDP of one client go together");
    } else {
        assert!(parted > 0, "ClientIPAndProtocol: some client's TCP and UDP go apart");
    }
    one
}

/// A router's errors about replies go to the flow's backend, whatever port they quote and whichever gateway gets them.
fn errors_follow(
    live: &Live,
    tenant: Tenant,
    family: Family,
    sids: &BTreeMap<(IpAddr, bool), Ipv6Addr>,
    edges: &[Sender; 2],
) {
    let vip = live.vip_of(tenant, family);
    let router = family.pick("192.0.2.254", "2001:db8:feed::1").parse().unwrap();
    let wires = [1, 2].map(|n| live.capture("spine", &format!("eth{n}")).unwrap());
    for (n, from) in (0..CLIENTS).map(|n| (n, client(family, n))) {
        let edge = &edges[usize::from(n % 2)];
        let port = 50_000 + u16::from(n);
        let udp = edge.udp(vip, from, (PORT, port)).payload(b"reply").bytes();
        let tcp = edge.tcp(vip, from, (PORT, port)).bytes();
        for quote in [udp, tcp] {
            edge.send(&edge.too_big(router, vip, 1300, &quote[14..])).unwrap();
        }
    }
    for wire in &wires {
        let kind = matcher::icmp_type(family.pick(3, 2));
        for error in expect(wire).within(SOON).packets(usize::from(CLIENTS), kind).unwrap() {
            let layers = error.layers();
            let quote = layers.quote().unwrap();
            let ipv4 = quote.ipv4().map(|ip| IpAddr::from(ip.dst));
            let from = ipv4.unwrap_or_else(|| quote.ipv6().unwrap().dst.into());
            assert_eq!(
                layers.ipv6().unwrap().dst,
                sids[&(from, quote.tcp().is_some())],
                "error about {from}"
            );
        }
    }
}

/// A datagram's first fragment comes to one gateway and the rest to the other, in either order: both go to the backend of its
/// client, without state.
fn fragments_follow(
    live: &Live,
    tenant: Tenant,
    family: Family,
    sids: &BTreeMap<(IpAddr, bool), Ipv6Addr>,
    edges: &[Sender; 2],
) {
    let vip = live.vip_of(tenant, family);
    let wires = [1, 2].map(|n| live.capture("spine", &format!("eth{n}")).unwrap());
    let unknown = || [1, 2].map(|n| live.reasons(n).unwrap()[&Reason::FragmentUnknown]);
    let before = unknown();
    let (first, rest) = ([1; 40], [2; 24]);
    for (n, from) in (0..CLIENTS).map(|n| (n, client(family, n))) {
        let [one, other] = [usize::from(n % 2), usize::from((n + 1) % 2)].map(|i| &edges[i]);
        let (head, tail) = match (from, vip) {
            (IpAddr::V4(from), IpAddr::V4(vip)) => {
                let header = |edge: &Sender| edge.frame().ipv4(from, vip).identification(7);
                let head = header(one).fragmented(0, true).udp(60_000, PORT).payload(&first);
                (head, header(other).fragmented(6, false).protocol(UDP).payload(&rest))
            }
            (IpAddr::V6(from), IpAddr::V6(vip)) => {
                let head = one.frame().ipv6(from, vip).fragment(7, 0, true).udp(60_000, PORT).payload(&first);
                let tail =
                    other.frame().ipv6(from, vip).fragment(7, 6, false).next_header(UDP).payload(&rest);
                (head, tail)
            }
            _ => unreachable!(),
        };
        if n % 4 < 2 {
            one.send(&head).unwrap();
            other.send(&tail).unwrap();
        } else {
            other.send(&tail).unwrap();
            one.send(&head).unwrap();
        }
    }
    for wire in &wires {
        let all = expect(wire).within(SOON).packets(usize::from(CLIENTS), addressed_to(vip));
        let all = all.unwrap_or_else(|e| panic!("{e}; {:?} {:?}", live.reasons(1), live.reasons(2)));
        for frame in all {
            let layers = frame.layers();
            let from = inside(&layers);
            assert_eq!(layers.ipv6().unwrap().dst, sids[&(from, false)], "a fragment of {from}: {layers}");
        }
    }
    assert_eq!(unknown(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_affinity_holds_together_lands_on_one_backend_with_its_errors_and_fragments() {
    let live = up();
    let node = live.node("client").unwrap();
    let edges = [1, 2].map(|n| live.sender("edge", &format!("eth{n}")).unwrap());
    for (tenant, family, service) in live.services() {
        let sids = held_together(&live, tenant, family);
        errors_follow(&live, tenant, family, &sids, &edges);
        fragments_follow(&live, tenant, family, &sids, &edges);

        // A real client: all its connections, over both gateways, are on one pod.
        let before = [1, 2].map(|n| live.reasons(n).unwrap()[&Reason::Forwarded]);
        let mut pool = Pool::open(&node, service, 40).await.unwrap();
        assert_eq!(pool.by_backend().len(), 1, "{tenant:?} {family:?}: {:?}", pool.by_backend());
        assert_eq!(pool.verify().await, 0);
        let after = [1, 2].map(|n| live.reasons(n).unwrap()[&Reason::Forwarded]);
        assert!(before.iter().zip(after).all(|(before, after)| after > *before), "{before:?} {after:?}");
        // Datagrams that its kernel cuts in three arrive whole, and so do the answers.
        let mut flows = Vec::new();
        for _ in 0..4 {
            flows.push(UdpFlow::start(&node, service, Duration::from_millis(10), 4000).await.unwrap());
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
        let mut served = BTreeSet::new();
        for flow in flows {
            let report = flow.stop(&live.udp_servers()).await.unwrap();
            assert_eq!((report.lost(), report.sent > 5), (0, true), "{tenant:?} {family:?}: {report:?}");
            served.extend(report.by_server.into_iter().filter(|(_, n)| *n > 0).map(|(name, _)| name));
        }
        assert_eq!(served.len(), 1, "{tenant:?} {family:?}: {served:?}");
        if tenant == A {
            assert_eq!(pool.by_backend().into_keys().collect::<BTreeSet<_>>(), served, "TCP and UDP");
        }
    }
    assert_eq!(live.services().len(), 2 * TENANTS.len());
}
