//! Fragments: a datagram in pieces reaches one backend, by what its first piece told or without it.

use std::net::SocketAddr;
use std::time::Duration;

use labkit::capture::Capture;
use labkit::packet::matcher;
use labkit::wait::eventually;
use scenarios::packets::build::{FRAGMENT, UDP, fragment};
use scenarios::region::{A, Live, Region, SOON, rule};
use weir::dataplane::bpf::encode_fragments;
use weir::model::Protocol;
use weir_bpf::abi::Reason;

use super::client_and_vip;

/// Bytes of a datagram that no link takes whole.
const LARGE: usize = 4000;

/// Writes tenant A's UDP rule with an affinity and waits until fragments are led to it, or no longer.
fn affinity(live: &Live, affinity: &str) {
    let workers: Vec<u16> = (1..=live.region.workers).collect();
    let text = rule(&live.region, A, "web-udp", "udp", &workers);
    let text = text.replace("  protocol: udp\n", &format!("  protocol: udp\n  affinity: {affinity}\n"));
    live.objects(1).unwrap().put("rule-a-udp.yaml", &text).unwrap();
    let maps = live.maps(1).unwrap();
    let key = encode_fragments(live.vip(A), Protocol::Udp);
    eventually("fragments are led as the affinity allows", SOON, || {
        let led = maps.find(&key).is_some();
        if led == (affinity != "None") { Ok(()) } else { Err(format!("led: {led}")) }
    })
    .unwrap();
}

/// Sends a large datagram from each of some ports of the client; each must come back whole.
async fn exchange(live: &Live, flow: u64) {
    let client = live.node("client").unwrap();
    for number in 0..8u64 {
        let socket = client.udp_bind(SocketAddr::new(live.region.client().parse().unwrap(), 0)).unwrap();
        let mut sent = [flow.to_be_bytes(), number.to_be_bytes()].concat();
        sent.resize(LARGE, 0x5a);
        socket.send_to(&sent, live.service(A)).await.unwrap();
        let mut got = vec![0; 65_536];
        let answer = tokio::time::timeout(Duration::from_secs(20), socket.recv_from(&mut got)).await;
        let (length, from) = answer.expect("an answer in 20 seconds").unwrap();
        assert_eq!((length, from), (LARGE, live.service(A)));
        assert!(got[..length] == sent[..], "the datagram came back changed");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_datagram_in_fragments_reaches_one_backend_whether_its_ports_are_hashed_or_not() {
    let live = Live::ready("fragments", Region { gateways: 1, ..Region::default() }).unwrap();
    let (client, vip) = client_and_vip(&live, A);
    let count = |reason| live.reasons(1).unwrap()[&reason];
    affinity(&live, "None");
    exchange(&live, 1).await;
    assert_eq!((count(Reason::FragmentUnknown), count(Reason::Fragment)), (0, 0));

    // The rest of a datagram before its first fragment: with ports to be hashed there is nothing to go by.
    let edge = live.sender("edge", "eth1").unwrap();
    let rest = |hops| {
        let bytes = [fragment(UDP, 185, false), b"the rest".to_vec()].concat();
        edge.frame().ipv6(client, vip).hop_limit(hops).next_header(FRAGMENT).payload(&bytes)
    };
    edge.send(&rest(64)).unwrap();
    eventually("the fragment is counted", SOON, || match count(Reason::FragmentUnknown) {
        1 => Ok(()),
        n => Err(format!("{n} unknown fragments")),
    })
    .unwrap();

    affinity(&live, "ClientIP");
    exchange(&live, 2).await;
    let got: Vec<usize> =
        live.udp_servers().iter().map(|server| server.received(2)).filter(|n| *n != 0).collect();
    assert_eq!(got, [8], "one client, one backend");
    let pods = live.capture_pods(&[A]).unwrap();
    edge.send(&rest(64)).unwrap();
    // The worker's kernel takes one hop off.
    let arrives = matcher::ip_exactly(&rest(63).bytes()[14..]);
    let pod = eventually("the fragment reaches a pod", SOON, || {
        let holds = |capture: &Capture| {
            capture.tap().frames().iter().any(|f| arrives.check(&matcher::Seen::new(&f.bytes)).is_ok())
        };
        pods.iter().find(|(_, capture)| holds(capture)).map(|(pod, _)| pod.clone()).ok_or("none has it")
    })
    .unwrap();
    let of_client = live.udp_servers().into_iter().find(|server| server.received(2) != 0).unwrap();
    assert_eq!(pod, of_client.name(), "the client's backend");
    assert_eq!(count(Reason::FragmentUnknown), 1);

    affinity(&live, "None");
    edge.send(&rest(64)).unwrap();
    eventually("the fragment is counted", SOON, || match count(Reason::FragmentUnknown) {
        2 => Ok(()),
        n => Err(format!("{n} unknown fragments")),
    })
    .unwrap();
}
