//! A gateway on which forwarding cannot be enabled says so and draws no traffic; a later fault takes nothing away.

use std::time::Duration;

use labkit::process::ProcessHandle;
use labkit::topology::Process;
use labkit::wait::{check, eventually, steady};
use scenarios::region::{A, Live, Region, SOON, weir_binary};

const A_WHILE: Duration = Duration::from_secs(2);

/// Starts a gateway that may not write kernel settings, as in a container without a writable /proc/sys.
fn run_without_sysctls(live: &Live) -> ProcessHandle {
    let weir = weir_binary(None).unwrap();
    let script = format!(
        "mount --bind /proc/sys /proc/sys && mount -o remount,ro,bind /proc/sys && exec {} gateway --config weir.yaml",
        weir.display()
    );
    let command = ["unshare", "-m", "sh", "-ec", &script].map(Into::into).into();
    let process = Process { name: "weir".into(), command, env: [].into(), ready: None };
    live.gateway(1).unwrap().spawn(&process).unwrap()
}

fn readyz(live: &Live) -> String {
    live.gateway(1)
        .unwrap()
        .run(["curl", "-sS", "--max-time", "5", "-w", "%{http_code}", "http://[::1]:9464/readyz"])
        .unwrap()
}

/// Waits until every way of asking says that forwarding is what is missing, and on which interfaces.
fn says_forwarding(live: &Live, interfaces: &[&str]) {
    let reasons = eventually("the status says that forwarding is off", SOON, || {
        let status = live.status(1).map_err(|e| e.to_string())?;
        let all = status["reasons"].as_array().cloned().unwrap_or_default();
        let reasons: Vec<_> = all.into_iter().filter(|r| r["id"] == "forwarding").collect();
        if reasons.len() == interfaces.len() && status["ready"] == false {
            Ok(reasons)
        } else {
            Err(status.to_string())
        }
    })
    .unwrap();
    for (reason, interface) in reasons.iter().zip(interfaces) {
        let text = format!(
            "IPv6 forwarding cannot be enabled on {interface}: /proc/sys/net/ipv6/conf/{interface}/forwarding cannot be written: \
             Read-only file system (os error 30)"
        );
        assert_eq!(reason["text"], text.as_str());
        let remedy = reason["remedy"].as_str().unwrap();
        assert!(remedy.contains(&format!("net.ipv6.conf.{interface}.forwarding=1")), "{remedy}");
    }
    let answer = readyz(live);
    assert!(answer.ends_with("503") && answer.contains("forwarding: "), "{answer}");
    let url = "http://[::1]:9464/metrics";
    let metrics = live.gateway(1).unwrap().run(["curl", "-sS", "--max-time", "5", url]).unwrap();
    assert!(metrics.contains("weir_ready 0\n"), "{metrics}");
    assert!(metrics.contains("weir_not_ready_reason{reason=\"forwarding\"}"), "{metrics}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_cannot_enable_forwarding_is_not_ready_and_announces_no_vip() {
    let live = Live::up("forwarding", Region { gateways: 1, ..Region::default() }).unwrap();
    live.prepare_gateway(1).unwrap();
    let process = run_without_sysctls(&live);
    process.wait_for_log("forwarding cannot be enabled", SOON).unwrap();
    says_forwarding(&live, &["eth1", "eth2"]);
    // Its sessions are up, its rules are loaded, its self-test passes: only forwarding keeps the VIPs back.
    live.wait_condition(1, "tenant-a/web-tcp", "Loaded", "True", "Loaded").unwrap();
    let locator = live.region.gateway_locator(1);
    live.node("spine").unwrap().wait_route(&locator, 1, SOON).unwrap();
    live.frr("edge").unwrap().wait_established(&live.region.gateway_uplink(1), SOON).unwrap();
    let message =
        live.wait_condition(1, "tenant-a/web-tcp", "Advertised", "False", "GatewayNotReady").unwrap();
    assert!(message.contains("see its own reasons"), "{message}");
    let no_route = || {
        let hops = live.edge_hops(live.vip(A)).map_err(|e| e.to_string())?;
        check(hops.is_empty(), || format!("{hops:?}"))
    };
    steady("no VIP is announced", A_WHILE, no_route).unwrap();

    // The remedy that it names, by somebody who may.
    for interface in ["eth1", "eth2"] {
        live.gateway(1).unwrap().set_sysctl(&format!("net.ipv6.conf.{interface}.forwarding"), "1").unwrap();
    }
    live.wait_ready().unwrap();
    let answer = readyz(&live);
    assert!(answer.ends_with("200"), "{answer}");

    // A later fault makes it not ready; the VIPs stay, for the other gateways may have the same.
    live.gateway(1).unwrap().set_sysctl("net.ipv6.conf.eth1.forwarding", "0").unwrap();
    says_forwarding(&live, &["eth1"]);
    steady("the VIP stays announced", A_WHILE, || {
        let hops = live.edge_hops(live.vip(A)).map_err(|e| e.to_string())?;
        check(hops.len() == 1, || format!("{hops:?}"))
    })
    .unwrap();
    live.gateway(1).unwrap().set_sysctl("net.ipv6.conf.eth1.forwarding", "1").unwrap();
    live.wait_gateway_ready(1).unwrap();
}
