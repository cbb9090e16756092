//! What a worker does not let in, and what it does not let out.

use std::net::Ipv6Addr;

use labkit::expect::expect;
use labkit::packet::{Packet, matcher};
use scenarios::region::{A, B, Live, PORT, SOON, Sender, TENANTS};
use weir_bpf::worker_abi::Reason;

use super::region;

/// In every forged packet, so that it is known wherever it turns up.
const MARK: &[u8] = b"forged packet";

fn v6(text: &str) -> Ipv6Addr {
    text.trim_end_matches("/64").parse().unwrap()
}

fn contains(bytes: &[u8]) -> bool {
    bytes.windows(MARK.len()).any(|window| window == MARK)
}

/// A packet for a VIP inside an outer header of the sender's choice.
fn encapsulated(live: &Live, from: &Sender, source: Ipv6Addr, sid: &str, vip: &str) -> Packet {
    let client = v6(&live.region.client());
    from.frame().ipv6(source, v6(sid)).ipv6(client, v6(vip)).udp(666, PORT).payload(MARK)
}

#[tokio::test(flavor = "multi_thread")]
async fn encapsulation_from_elsewhere_or_for_another_tenant_is_dropped_and_counted() {
    let live = Live::ready("forged", region(1)).unwrap();
    let pods = live.capture_pods(&TENANTS).unwrap();
    let fabric = live.sender("edge", "eth9").unwrap();
    let region = &live.region;
    let gateway = Ipv6Addr::from_bits(v6(&region.gateway_locator(1)).to_bits() | 1 << 16);
    let strangers = [v6(&region.client()), v6(&region.gateway_locator(9)), v6(&region.worker_locator(2))];

    let before = live.worker_total(1, Reason::ForeignSource).unwrap();
    for source in strangers {
        for tenant in TENANTS {
            fabric
                .send(&encapsulated(&live, &fabric, source, &region.sid(1, tenant), &region.vip(tenant)))
                .unwrap();
        }
    }
    live.wait_worker_total(1, Reason::ForeignSource, before + 6).unwrap();

    // A gateway's source opens nobody else's table, and no table opens for what is not bound in it.
    let before = live.worker_total(1, Reason::NotBound).unwrap();
    for (tenant, vip) in
        [(A, region.vip(B)), (B, region.vip(A)), (A, region.pod_address(1)), (B, region.second_address(1))]
    {
        fabric.send(&encapsulated(&live, &fabric, gateway, &region.sid(1, tenant), &vip)).unwrap();
    }
    live.wait_worker_total(1, Reason::NotBound, before + 4).unwrap();

    // A SID that nobody uses is the stack's, which knows no way for it either.
    let before = live.worker_total(1, Reason::UnknownSid).unwrap();
    let unknown = region.sid(1, A).replace("e001", "e007");
    fabric.send(&encapsulated(&live, &fabric, gateway, &unknown, &region.vip(A))).unwrap();
    live.wait_worker_total(1, Reason::UnknownSid, before + 1).unwrap();

    // What is right gets there: all before it has been seen, and nothing of it is in a pod.
    for tenant in TENANTS {
        let good = fabric.frame().ipv6(gateway, v6(&region.sid(1, tenant)));
        let good = good.ipv6(v6(&region.client()), v6(&region.vip(tenant))).udp(667, PORT).payload(b"good");
        fabric.send(&good).unwrap();
        expect(&pods[&region.pod(1, tenant)]).within(SOON).packet(matcher::udp_ports(667, PORT)).unwrap();
    }
    for (name, pod) in &pods {
        assert!(pod.tap().frames().iter().all(|frame| !contains(&frame.bytes)), "{name} got a forged packet");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pod_sends_only_as_itself_or_a_vip_bound_to_it() {
    let live = Live::ready("spoof", region(1)).unwrap();
    let region = &live.region;
    let client = v6(&region.client());
    let at_client = live.capture("client", "eth0").unwrap();
    let fabric = live.capture_both_ways("w1", "eth0").unwrap();
    let pod = live.sender("w1-a", "eth0").unwrap();

    let spoofed = [region.vip(B), region.client(), region.gateway_fabric(1), "2001:db8:1ff::7".into()];
    let before = live.worker_total(1, Reason::SpoofedSource).unwrap();
    for source in &spoofed {
        pod.send(&pod.frame().ipv6(v6(source), client).udp(PORT, 668).payload(MARK)).unwrap();
    }
    let other: std::net::Ipv4Addr = region.vip4(B).parse().unwrap();
    pod.send(&pod.frame().ipv4(other, "198.51.100.7".parse().unwrap()).udp(PORT, 668).payload(MARK)).unwrap();
    live.wait_worker_total(1, Reason::SpoofedSource, before + 5).unwrap();

    // Nor may it speak to the region's block, by its VIP or as itself.
    let before = live.worker_total(1, Reason::IntoBlock).unwrap();
    for source in [region.vip(A), region.pod_address(1)] {
        let outer = pod.frame().ipv6(v6(&source), v6(&region.sid(1, B)));
        pod.send(&outer.ipv6(client, v6(&region.vip(B))).udp(666, PORT).payload(MARK)).unwrap();
    }
    live.wait_worker_total(1, Reason::IntoBlock, before + 2).unwrap();

    let before = live.worker_total(1, Reason::ReplyDirect).unwrap();
    pod.send(&pod.frame().ipv6(v6(&region.vip(A)), client).udp(PORT, 669).payload(b"an answer")).unwrap();
    expect(&at_client).within(SOON).packet(matcher::udp_ports(PORT, 669)).unwrap();
    live.wait_worker_total(1, Reason::ReplyDirect, before + 1).unwrap();
    for wire in [&at_client, &fabric] {
        assert!(wire.tap().frames().iter().all(|frame| !contains(&frame.bytes)), "{}", wire.name());
    }
}
