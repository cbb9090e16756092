//! What a running gateway takes over from a changed configuration.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use super::setup::needs_restart;
use crate::config::{Config, Secret};

fn config() -> Config {
    let directory = tempfile::tempdir().unwrap();
    let key = directory.path().join("key");
    std::fs::write(&key, [7; 32]).unwrap();
    std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
    let path = directory.path().join("weir.yaml");
    let text = "node: gw1\nregion: r\nlocator: { prefix: \"2001:db8:ff01::/48\", nodeID: 1 }\nhashKeyFile: key\nuplinks: [eth1]\n\
                fabric: [eth2]\nobjects: /o\nbgp:\n  asn: 65010\n  routerID: 192.0.2.1\n  peers:\n    - { name: tor, address: \
                \"2001:db8::1\", localAddress: \"2001:db8::2\", asn: 65000, role: upstream }\nadmin: /a\nmetrics: \"[::1]:9464\"\n";
    std::fs::write(&path, text).unwrap();
    Config::load(&path).unwrap()
}

#[test]
fn what_a_running_gateway_cannot_take_over_is_named_key_by_key() {
    let old = config();
    let changed = |change: fn(&mut Config)| {
        let mut new = old.clone();
        change(&mut new);
        needs_restart(&new, &old).join(", ")
    };
    assert_eq!(changed(|_| {}), "");
    assert_eq!(changed(|c| c.bgp.as_mut().unwrap().peers[0].asn = 65001), "", "peers are followed");
    assert_eq!(changed(|c| c.timers.hold_time = Duration::from_secs(30)), "", "said in the next OPEN");
    assert_eq!(changed(|c| c.region = "s".into()), "region");
    assert_eq!(changed(|c| c.timers.drain = Duration::from_secs(30)), "timers");
    assert_eq!(changed(|c| c.hash_key = Secret::new([8; 32])), "hashKeyFile");
    assert_eq!(changed(|c| c.bgp.as_mut().unwrap().communities.push((65010, 7))), "bgp.asn or communities");
    assert_eq!(
        changed(|c| {
            c.fabric.push("eth3".into());
            c.limits.vips += 1;
        }),
        "fabric, limits"
    );
}
