//! Interfaces that cannot be used as they are: the gateway says why, and changes nothing.

use scenarios::egress::Foreign;
use scenarios::region::{Live, Region, SOON};

fn prepared(name: &str) -> Live {
    let live = Live::up(name, Region { gateways: 1, ..Region::default() }).unwrap();
    live.prepare_gateway(1).unwrap();
    live
}

#[tokio::test(flavor = "multi_thread")]
async fn a_foreign_xdp_program_is_named_and_left_alone() {
    let live = prepared("foreign");
    let gateway = live.gateway(1).unwrap();
    let foreign = Foreign::attach(&gateway, "eth1").unwrap();
    for _ in 0..2 {
        let process = live.run_gateway(1, None).unwrap();
        let ended = process.wait(SOON).unwrap();
        assert!(!ended.success());
        let wanted = format!(
            "attach XDP to eth1: program \"egress\" (id {}) is attached already and is not ours; let its owner use a slot of the \
             shared root, or remove it (ip link set dev eth1 xdp off)",
            foreign.id
        );
        // The log quotes it as JSON.
        process.wait_for_log(&wanted.replace('"', "\\\""), SOON).unwrap();
        let shown = gateway.run(["ip", "-d", "link", "show", "dev", "eth1"]).unwrap();
        assert!(shown.contains(&format!("id {} ", foreign.id)), "{shown}");
    }
    drop(foreign);
    live.run_gateway(1, None).unwrap();
    live.wait_ready().unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn an_interface_without_native_xdp_is_refused_unless_generic_is_asked_for() {
    let live = prepared("generic");
    live.edit_config(1, "uplinks: [eth1]", "uplinks: [eth1, lo]").unwrap();
    let process = live.run_gateway(1, None).unwrap();
    assert!(!process.wait(SOON).unwrap().success());
    let log = process.wait_for_log("attach XDP to lo: native mode is not supported here", SOON).unwrap();
    assert!(log.contains("or set `xdpMode: generic`"), "{log}");
    live.edit_config(1, "uplinks: [eth1, lo]", "xdpMode: generic\nuplinks: [eth1, lo]").unwrap();
    live.run_gateway(1, None).unwrap();
    live.wait_ready().unwrap();
    let shown = live.gateway(1).unwrap().run(["ip", "link", "show", "dev", "lo"]).unwrap();
    assert!(shown.contains("xdpgeneric"), "{shown}");
}
