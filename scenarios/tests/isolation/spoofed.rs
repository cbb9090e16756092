//! Encapsulation that the internet sends reaches no tenant: not by a gateway, not past it.

use std::net::{IpAddr, Ipv6Addr};

use labkit::expect::expect;
use labkit::packet::{Packet, matcher};
use labkit::wait::eventually;
use scenarios::region::{A, B, FAMILIES, Family, Live, PORT, Region, SOON, Sender};
use weir_bpf::abi::Reason;

/// In every forged packet, so that it is known wherever it turns up.
const MARK: &[u8] = b"forged packet";

fn address(text: &str) -> Ipv6Addr {
    text.trim_end_matches("/64").parse().unwrap()
}

/// A packet for a tenant inside an outer header of the attacker's choice.
fn forged(live: &Live, from: &Sender, source: Ipv6Addr, destination: Ipv6Addr, inner: IpAddr) -> Packet {
    let outer = from.frame().ipv6(source, destination);
    let packet = match inner {
        IpAddr::V4(inner) => {
            outer.ipv4(live.region.client_of(Family::Ipv4).parse().unwrap(), inner).udp(666, PORT)
        }
        IpAddr::V6(inner) => outer.ipv6(address(&live.region.client()), inner).udp(666, PORT),
    };
    packet.payload(MARK)
}

/// Where a forged outer header may point, with the reason that drops it on an uplink (`None`: left to the host).
fn forgeries(live: &Live, gateway: u16) -> Vec<(Ipv6Addr, Ipv6Addr, Option<Reason>)> {
    let region = &live.region;
    let client = address(&region.client());
    let own = address(&region.gateway_locator(gateway));
    let spoofed = Ipv6Addr::from_bits(own.to_bits() | 1 << 16 | 0xbeef);
    let self_test = Ipv6Addr::from_bits(own.to_bits() | 0xf000 << 48);
    let block = Some(Reason::Srv6Block);
    let mut all = vec![
        (client, own, block),
        (client, spoofed, block),
        (client, self_test, block),
        (spoofed, address(&region.vip(A)), block),
        (spoofed, address(&region.gateway_uplink(gateway)), block),
        (client, address(&region.vip(A)), Some(Reason::UnsupportedProtocol)),
        (client, address(&region.gateway_uplink(gateway)), None),
        (client, address(&region.gateway_fabric(gateway)), None),
    ];
    for worker in 1..=region.workers {
        for tenant in [A, B] {
            let sid = address(&region.sid(worker, tenant));
            all.extend([(client, sid, block), (spoofed, sid, block)]);
        }
    }
    all
}

#[tokio::test(flavor = "multi_thread")]
async fn forged_encapsulation_reaches_no_pod_by_a_gateway_or_past_it() {
    let live = Live::ready("spoofed", Region::default()).unwrap();
    live.route_in_gateways().unwrap();
    let pods = live.capture_pods(&[A, B]).unwrap();
    let workers: Vec<_> = (1..=3).map(|n| live.capture(&format!("w{n}"), "eth0").unwrap()).collect();
    let inner =
        [live.region.vip(A), live.region.vip(B), live.region.pod_address(1)].map(|a| IpAddr::V6(address(&a)));
    let inner = inner.into_iter().chain([live.vip_of(A, Family::Ipv4), live.vip_of(B, Family::Ipv4)]);
    let inner: Vec<IpAddr> = inner.collect();

    // As an internet router would hand them to the gateways.
    for n in 1..=2_u16 {
        let uplink = live.sender("edge", &format!("eth{n}")).unwrap();
        let before = live.reasons(n).unwrap();
        let forgeries = forgeries(&live, n);
        for (source, destination, _) in &forgeries {
            for &inner in &inner {
                uplink.send(&forged(&live, &uplink, *source, *destination, inner)).unwrap();
            }
        }
        for reason in [Reason::Srv6Block, Reason::UnsupportedProtocol] {
            let sent = forgeries.iter().filter(|(_, _, r)| *r == Some(reason)).count() * inner.len();
            let wanted = before[&reason] + sent as u64;
            eventually("each forgery is counted", SOON, || {
                let now = live.reasons(n).map_err(|e| e.to_string())?[&reason];
                if now == wanted { Ok(()) } else { Err(format!("{} is {now}, not {wanted}", reason.name())) }
            })
            .unwrap();
        }
    }

    // As a client would send them: the internet router knows no way into the block.
    let client = live.sender("client", "eth0").unwrap();
    for n in 1..=2 {
        for (source, destination, _) in forgeries(&live, n) {
            for family in FAMILIES {
                let inner = live.vip_of(A, family);
                client.send(&forged(&live, &client, source, destination, inner)).unwrap();
            }
        }
    }

    // Past the gateways: a worker lets only gateways in, and counts the others.
    let counter = |n: u16| -> u64 {
        let text = live.node(&format!("w{n}")).unwrap().run(["nft", "list", "table", "ip6", "weir"]).unwrap();
        let after = text.split("counter packets ").nth(1).unwrap();
        after.split(' ').next().unwrap().parse().unwrap()
    };
    let fabric = live.sender("edge", "eth9").unwrap();
    let other_gateway = Ipv6Addr::from_bits(address(&live.region.gateway_locator(99)).to_bits() | 1 << 16);
    for worker in 1..=3 {
        let before = counter(worker);
        for source in [address(&live.region.client()), other_gateway] {
            for tenant in [A, B] {
                let sid = address(&live.region.sid(worker, tenant));
                for family in FAMILIES {
                    let inner = live.vip_of(tenant, family);
                    fabric.send(&forged(&live, &fabric, source, sid, inner)).unwrap();
                }
            }
        }
        eventually("the worker counts them", SOON, || {
            let now = counter(worker);
            if now == before + 8 { Ok(()) } else { Err(format!("{before} before, {now} now")) }
        })
        .unwrap();
    }

    // A real packet to every pod, and all that came before it has been seen.
    for (tenant, family, _) in live.services() {
        for n in 1..=2 {
            let reached = live.workers_of_family(n, tenant, family, 6000..6064).unwrap();
            let all: std::collections::BTreeSet<_> = reached.values().collect();
            assert_eq!(all.len(), 3);
        }
    }
    for (name, pod) in &pods {
        expect(pod).within(SOON).packets(20, matcher::ipv6_src(address(&live.region.client()))).unwrap();
        let client = live.region.client_of(Family::Ipv4).parse().unwrap();
        expect(pod).within(SOON).packets(20, matcher::ipv4_src(client)).unwrap();
        assert_eq!(pod.tap().lost_since(0), 0);
        for frame in pod.tap().frames() {
            assert!(!contains(&frame.bytes, MARK), "{name} got {}", frame.layers());
        }
    }
    // The workers saw those sent past the gateways, twice two of each family, and none of the others.
    for worker in &workers {
        let frames = worker.tap().frames();
        assert_eq!(frames.iter().filter(|f| contains(&f.bytes, MARK)).count(), 8, "{}", worker.name());
    }
}

fn contains(bytes: &[u8], mark: &[u8]) -> bool {
    bytes.windows(mark.len()).any(|window| window == mark)
}
