//! Another build takes over under traffic: the same layout of the maps, then another.

use std::path::PathBuf;

use scenarios::region::{Live, Region, SOON};
use weir::dataplane::Dataplane as _;
use weir::dataplane::bpf::Pins;

use super::{Traffic, digests, forwarded, forwards_more, is_vip, maps, pins, vip_events};

fn version(live: &Live) -> String {
    live.status(1).unwrap()["version"].as_str().unwrap_or_default().to_owned()
}

/// Packets counted for the region's VIPs and for their backends.
fn totals(live: &Live) -> (u64, u64) {
    let maps = maps(live, 1);
    let tables = maps.read_back().unwrap();
    let vips = tables.vips.iter().filter(|(key, _)| is_vip(live, key.address));
    let backends = tables.backends.values();
    (
        vips.map(|(_, entry)| maps.vip_total(entry.index).packets).sum(),
        backends.map(|entry| maps.backend_total(entry.index).packets).sum(),
    )
}

fn sets(live: &Live) -> Vec<PathBuf> {
    Pins::existing(&pins(live, 1)).unwrap().map_sets().unwrap()
}

/// Replaces gateway 1's daemon by another build; counters must carry on.
fn replace(live: &Live, build: Option<&str>) {
    let before = (totals(live), forwarded(live, 1));
    live.gateway(1).unwrap().process("weir").unwrap().terminate(SOON).unwrap();
    live.run_gateway(1, build).unwrap();
    live.wait_gateway_ready(1).unwrap();
    let after = (totals(live), forwarded(live, 1));
    assert!(
        after.0.0 >= before.0.0 && after.0.1 >= before.0.1 && after.1 >= before.1,
        "{before:?} {after:?}"
    );
    forwards_more(live, 1, after.1, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_loses_no_packet_moves_no_route_and_keeps_the_counters() {
    let live = Live::ready("upgrade", Region::default()).unwrap();
    let watch = live.node("edge").unwrap().watch_routes().unwrap();
    let traffic = Traffic::start(&live).await;
    forwards_more(&live, 1, forwarded(&live, 1), 200);
    let (old, set) = (version(&live), sets(&live));
    for build in [Some("next"), None, Some("next")] {
        replace(&live, build);
        assert_eq!(version(&live) != old, build.is_some(), "version {}", version(&live));
        assert_eq!(sets(&live), set, "the same maps go on");
    }
    assert_eq!(vip_events(&live, &watch), Vec::<String>::new());
    traffic.stop(&live).await.assert_lossless(&live);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upgrade_to_another_map_layout_loses_no_packet_and_leaves_only_the_new_maps() {
    let live = Live::ready("layout", Region::default()).unwrap();
    let watch = live.node("edge").unwrap().watch_routes().unwrap();
    let traffic = Traffic::start(&live).await;
    forwards_more(&live, 1, forwarded(&live, 1), 200);
    let (old, old_sets) = (version(&live), sets(&live));
    assert_eq!(old_sets.len(), 1);
    replace(&live, Some("next-layout"));
    assert_ne!(version(&live), old);
    let new_sets = sets(&live);
    assert_eq!(new_sets.len(), 1, "{new_sets:?}");
    assert_ne!(new_sets, old_sets, "another layout has maps of its own");
    assert_eq!(digests(&live, 1), digests(&live, 2), "rings are the same under both layouts");
    // And back.
    replace(&live, None);
    assert_eq!((version(&live), sets(&live)), (old, old_sets));
    assert_eq!(vip_events(&live, &watch), Vec::<String>::new());
    traffic.stop(&live).await.assert_lossless(&live);
}
