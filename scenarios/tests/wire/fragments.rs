//! Fragments: a datagram in pieces reaches one backend, by what its first piece told or without it.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use labkit::capture::Capture;
use labkit::packet::matcher;
use labkit::wait::eventually;
use scenarios::packets::build::{FRAGMENT, UDP, fragment};
use scenarios::region::{A, FAMILIES, Family, Live, Region, SOON, rule};
use weir::dataplane::bpf::encode_fragments;
use weir::model::Protocol;
use weir_bpf::abi::Reason;

use super::ends;

/// Bytes of a datagram that no link takes whole.
const LARGE: usize = 4000;
/// Datagrams of a flow.
const SENT: usize = 8;

/// Writes tenant A's UDP rule with an affinity and waits until fragments are led to it, or no longer.
fn affinity(live: &Live, affinity: &str) {
    let workers: Vec<u16> = (1..=live.region.workers).collect();
    let text = rule(&live.region, A, "web-udp", "udp", &workers);
    let text = text.replace("  protocol: udp\n", &format!("  protocol: udp\n  affinity: {affinity}\n"));
    live.objects(1).unwrap().put("rule-a-udp.yaml", &text).unwrap();
    let maps = live.maps(1).unwrap();
    for family in FAMILIES {
        let key = encode_fragments(live.vip_of(A, family), Protocol::Udp);
        eventually("fragments are led as the affinity allows", SOON, || {
            let led = maps.find(&key).is_some();
            if led == (affinity != "None") { Ok(()) } else { Err(format!("{family:?}: led: {led}")) }
        })
        .unwrap();
    }
}

/// Sends a large datagram from each of some ports of the client; each must come back whole.
async fn exchange(live: &Live, family: Family, flow: u64) {
    let client = live.node("client").unwrap();
    let (from, service) = (live.region.client_of(family).parse().unwrap(), live.service_of(A, family));
    for number in 0..SENT as u64 {
        let socket = client.udp_bind(SocketAddr::new(from, 0)).unwrap();
        let mut sent = [flow.to_be_bytes(), number.to_be_bytes()].concat();
        sent.resize(LARGE, 0x5a);
        socket.send_to(&sent, service).await.unwrap();
        let mut got = vec![0; 65_536];
        let answer = tokio::time::timeout(Duration::from_secs(20), socket.recv_from(&mut got)).await;
        let (length, from) = answer.expect("an answer in 20 seconds").unwrap();
        assert_eq!((length, from), (LARGE, service));
        assert!(got[..length] == sent[..], "the datagram came back changed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_datagram_in_fragments_reaches_one_backend_whether_its_ports_are_hashed_or_not() {
    let live = Live::ready("fragments", Region { gateways: 1, ..Region::default() }).unwrap();
    let count = |reason| live.reasons(1).unwrap()[&reason];
    let unknown = |wanted: u64| {
        eventually("the fragment is counted", SOON, || match count(Reason::FragmentUnknown) {
            n if n == wanted => Ok(()),
            n => Err(format!("{n} unknown fragments")),
        })
        .unwrap();
    };
    let edge = live.sender("edge", "eth1").unwrap();
    // The rest of a datagram whose first fragment was not seen.
    let rest = |family, hops| match ends(&live, A, family) {
        (IpAddr::V6(client), IpAddr::V6(vip)) => {
            let bytes = [fragment(UDP, 185, false), b"the rest".to_vec()].concat();
            edge.frame().ipv6(client, vip).hop_limit(hops).next_header(FRAGMENT).payload(&bytes)
        }
        (IpAddr::V4(client), IpAddr::V4(vip)) => {
            let header = edge.frame().ipv4(client, vip).ttl(hops).protocol(UDP);
            header.fragmented(185, false).payload(b"the rest")
        }
        other => panic!("{other:?}"),
    };

    affinity(&live, "None");
    for (n, family) in (1..).zip(FAMILIES) {
        exchange(&live, family, n).await;
        assert_eq!((count(Reason::FragmentUnknown), count(Reason::Fragment)), (n - 1, 0));
        // With ports to be hashed there is nothing to go by.
        edge.send(&rest(family, 64)).unwrap();
        unknown(n);
    }
    affinity(&live, "ClientIP");
    for (n, family) in (11..).zip(FAMILIES) {
        exchange(&live, family, n).await;
        let of_client: Vec<_> =
            live.udp_servers().into_iter().filter(|server| server.received(n) != 0).collect();
        assert_eq!(
            of_client.iter().map(|server| server.received(n)).collect::<Vec<_>>(),
            [SENT],
            "one backend"
        );
        let pods = live.capture_pods(&[A]).unwrap();
        edge.send(&rest(family, 64)).unwrap();
        // The worker's kernel takes one hop off.
        let arrives = matcher::ip_exactly(&rest(family, 63).bytes()[14..]);
        let pod = eventually("the fragment reaches a pod", SOON, || {
            let holds = |capture: &Capture| {
                capture.tap().frames().iter().any(|f| arrives.check(&matcher::Seen::new(&f.bytes)).is_ok())
            };
            pods.iter().find(|(_, capture)| holds(capture)).map(|(pod, _)| pod.clone()).ok_or("none has it")
        })
        .unwrap();
        assert_eq!(pod, of_client[0].name(), "the client's backend");
    }
    unknown(2);
    affinity(&live, "None");
    for (n, family) in (3..).zip(FAMILIES) {
        edge.send(&rest(family, 64)).unwrap();
        unknown(n);
    }
}
