//! Endpoints that the worker does not configure: translated ones, and guests behind a tap.

use labkit::traffic::{Connection, IdentifyServer};
use labkit::wait::eventually;
use scenarios::region::{A, Live, PORT, SOON};
use weir_bpf::worker_abi::Reason;

use super::region;

/// Waits until a binding's condition has this reason.
fn wait_reason(live: &Live, binding: &str, reason: &str) -> String {
    eventually(&format!("{binding} is {reason}"), SOON, || {
        let status = live.worker_status(1).map_err(|e| e.to_string())?;
        match status.bindings.get(binding) {
            Some(bound) if bound.reason == reason => Ok(bound.message.clone()),
            other => Err(format!("{other:?}")),
        }
    })
    .unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_that_cannot_be_configured_is_served_by_translation_once_it_is_allowed() {
    let live = Live::ready("wtranslate", region(1)).unwrap();
    let pod = live.pod(1, A).unwrap();
    let node = live.lab.node(&live.region.pod(1, A)).unwrap();
    let vip = live.region.vip(A);
    let objects = live.worker_objects(1).unwrap();
    objects.remove("bind-a-udp6.yaml").unwrap();
    let text = pod.binding("a-tcp6", &vip, "tcp");
    objects
        .put(
            "bind-a-tcp6.yaml",
            &(text.replace("  networkNamespace", "  delivery: Translate\n  networkNamespace")),
        )
        .unwrap();
    let message = wait_reason(&live, "platform/a-tcp6", "TranslateDisabled");
    assert!(message.contains("translate: true"), "{message}");
    let lo = node.sh("ip -o -6 addr show dev lo").unwrap();
    assert!(!lo.contains(&vip), "the VIP is not the guest's: {lo}");

    let worker = live.worker(1).unwrap();
    let config = worker.read_file("worker.yaml").unwrap();
    worker.replace_file("worker.yaml", config + "translate: true\n").unwrap();
    worker.process("weir-worker").unwrap().signal(nix::sys::signal::Signal::SIGHUP).unwrap();
    wait_reason(&live, "platform/a-tcp6", "Bound");

    let on = std::net::SocketAddr::new(pod.address.parse().unwrap(), PORT);
    let _server = IdentifyServer::start(&node, "guest", on).unwrap();
    let client = live.node("client").unwrap();
    let mut connection = Connection::open(&client, live.service(A)).await.unwrap();
    assert_eq!(connection.backend(), "guest");
    assert_eq!(connection.seen_as().ip().to_string(), live.region.client());
    connection.transfer(100_000, SOON).await.unwrap();
    assert_eq!(connection.retransmissions().unwrap(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guest_behind_a_tap_is_reached_by_its_own_neighbour_address() {
    let live = Live::ready("wtap", region(1)).unwrap();
    let pod = live.pod(1, A).unwrap();
    let node = live.lab.node(&live.region.pod(1, A)).unwrap();
    let vip = live.region.vip(A);
    let objects = live.worker_objects(1).unwrap();
    for (protocol, family, vip) in [
        ("tcp", 6, &vip),
        ("udp", 6, &vip),
        ("tcp", 4, &live.region.vip4(A)),
        ("udp", 4, &live.region.vip4(A)),
    ] {
        let name = format!("a-{protocol}{family}");
        let text = pod.binding(&name, vip, protocol).replace("veth", "tap");
        let text: String =
            text.lines().filter(|l| !l.contains("networkNamespace")).map(|l| format!("{l}\n")).collect();
        objects.put(&format!("bind-{name}.yaml"), &text).unwrap();
    }
    let held = eventually("the endpoint's own to hold", SOON, || {
        let status = live.worker_status(1).map_err(|e| e.to_string())?;
        let bound = &status.bindings["platform/a-tcp6"];
        if bound.bound && bound.message.contains("own to hold") { Ok(()) } else { Err(format!("{bound:?}")) }
    });
    held.unwrap();
    // The guest holds the VIP by its own doing. A frame for another MAC than its own it would not take.
    node.add_address("lo", format!("{vip}/128").parse().unwrap()).unwrap();
    let client = live.node("client").unwrap();
    let before = live.worker_total(1, Reason::Delivered).unwrap();
    let mut connection = Connection::open(&client, live.service(A)).await.unwrap();
    assert_eq!(connection.backend(), live.region.pod(1, A));
    connection.transfer(100_000, SOON).await.unwrap();
    assert!(live.worker_total(1, Reason::Delivered).unwrap() > before);
    let neighbours = live.worker(1).unwrap().sh("ip -6 neigh show dev pod-a").unwrap();
    assert!(neighbours.contains(&pod.address), "{neighbours}");
}
