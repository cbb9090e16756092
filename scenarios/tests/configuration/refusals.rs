//! Bad configurations through the program itself: `weir check` and `weir gateway` say the same, exactly, and touch nothing.

use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output};

use scenarios::region::{Gateway, Region, weir_binary};

/// A configuration that is good but for one change.
fn directory(from: &str, to: &str) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (name, secret) in Gateway::secrets() {
        let path = dir.path().join(name);
        std::fs::write(&path, secret).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    }
    std::fs::create_dir(dir.path().join("objects.d")).unwrap();
    let config = Gateway { number: 1 }.config(&Region::default(), dir.path(), &dir.path().join("pins"));
    assert!(config.contains(from), "{from}");
    std::fs::write(dir.path().join("weir.yaml"), config.replacen(from, to, 1)).unwrap();
    dir
}

fn weir(dir: &tempfile::TempDir, verb: &[&str]) -> Output {
    let config = dir.path().join("weir.yaml");
    Command::new(weir_binary(None).unwrap()).args(verb).arg("--config").arg(config).output().unwrap()
}

#[test]
fn a_good_configuration_is_fine() {
    let output = weir(&directory("", ""), &["check", "--offline"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(
        (output.status.code(), text.as_str()),
        (Some(0), "0 errors, 0 warnings; 0 rules would be served\n")
    );
}

#[rstest::rstest]
#[case(
    "node: gw1",
    "nodes: gw1",
    "1: nodes: is no known field; remove it, or use one of node, region, locator, hashKeyFile, uplinks, fabric, objects, bgp, admin, metrics, pins, limits, timers, xdpMode, icmpRate, dropSamples, drainMarker"
)]
#[case(
    "nodeID: 1 ",
    "nodeID: 70000 ",
    "3: locator.nodeID: 70000 is no node id; give this node a number of its own from 1 to 57343 (0xdfff)"
)]
#[case(
    "/48",
    "/64",
    "3: locator.prefix: 2001:db8:ff01::/64 has length 64, and the SID layout needs 48; give the region's SRv6 block, a /48 such as 2001:db8:ff01::/48"
)]
#[case(
    "hash-key",
    "no-such-key",
    "4: hashKeyFile: DIR/no-such-key cannot be read: No such file or directory (os error 2); create it, readable by weir alone"
)]
#[case("uplinks: [eth1]", "uplinks: []", "5: uplinks: is empty; name the interfaces on the internet side")]
#[case("vips: 64", "vips: 0", "9: limits.vips: 0 is out of bounds; give a number from 1 to 1048576")]
#[case(
    "drain: 1s",
    "drain: soon",
    "10: timers.drain: soon is no duration; write it like 10s or 1m30s, from 0s to 10m"
)]
#[case("asn: 65011", "asn: 0", "13: bgp.asn: 0 is no AS number; give a number from 1 to 4294967295")]
#[case(
    "role: upstream",
    "role: transit",
    "17: bgp.peers[0].role: transit is no role; write upstream or fabric"
)]
#[case(
    "metrics: \"[::1]:9464\"",
    "metrics: nine",
    "20: metrics: nine is no address with port; write it like [::1]:9464 or 192.0.2.1:9464"
)]
fn a_bad_configuration_is_refused_by_check_and_by_the_gateway_itself(
    #[case] from: &str,
    #[case] to: &str,
    #[case] wanted: &str,
) {
    let dir = directory(from, to);
    let wanted = format!("{}:{wanted}", dir.path().join("weir.yaml").display());
    let wanted = wanted.replace("DIR", &dir.path().display().to_string());
    let output = weir(&dir, &["check", "--offline"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!((output.status.code(), text.lines().next()), (Some(1), Some(wanted.as_str())), "{text}");
    let output = weir(&dir, &["gateway"]);
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        output.status.code().is_some_and(|code| code != 0) && text.contains(&wanted),
        "{}: {text}",
        output.status
    );
    assert!(!dir.path().join("pins").exists(), "nothing was touched");
}
