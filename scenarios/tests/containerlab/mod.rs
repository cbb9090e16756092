//! The scenarios' topologies as containerlab files, which are checked in under `containerlab/`.
//!
//! `INSTA_UPDATE=always cargo test -p scenarios containerlab` writes them anew.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::BTreeMap;
use std::path::Path;

use labkit::Topology;
use labkit::containerlab::{Rendered, read, render};
use scenarios::region::Region;

/// Image that all nodes run: iproute2, nftables, ethtool, FRR and `weir`.
const IMAGE: &str = "weir-lab:latest";

fn region() -> Topology {
    let region = Region::default();
    Topology::build("region", |t| region.build(t)).unwrap()
}

/// All files of a rendering by their path under `containerlab/`.
fn files(topology: &Topology) -> BTreeMap<String, String> {
    let Rendered { yaml, mut files } = render(topology, IMAGE).unwrap();
    files.insert(format!("{}.clab.yml", topology.name), yaml);
    files
}

/// Files of a topology that are there, by their path under the folder.
fn checked_in(folder: &Path, topology: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut pending = vec![folder.join(topology), folder.join(format!("{topology}.clab.yml"))];
    while let Some(path) = pending.pop() {
        if let Ok(entries) = std::fs::read_dir(&path) {
            pending.extend(entries.map(|entry| entry.unwrap().path()));
        } else if let Ok(text) = std::fs::read_to_string(&path) {
            found.insert(path.strip_prefix(folder).unwrap().display().to_string(), text);
        }
    }
    found
}

#[test]
fn the_containerlab_files_are_the_region_that_scenarios_run() {
    let folder = crate::frame::root().join("containerlab");
    let topology = region();
    let rendered = files(&topology);
    if std::env::var("INSTA_UPDATE").is_ok_and(|update| update == "always") {
        std::fs::remove_dir_all(folder.join(&topology.name)).ok();
        for (path, text) in &rendered {
            let path = folder.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
    }
    let found = checked_in(&folder, &topology.name);
    let again = "INSTA_UPDATE=always cargo test -p scenarios containerlab";
    assert_eq!(found.keys().collect::<Vec<_>>(), rendered.keys().collect::<Vec<_>>(), "write them: {again}");
    for (path, text) in &rendered {
        assert!(
            found[path] == *text,
            "containerlab/{path} is not what the topology renders to; write it: {again}"
        );
    }
    let mut files = found;
    let yaml = files.remove("region.clab.yml").unwrap();
    assert_eq!(read(&Rendered { yaml, files }).unwrap(), topology);
}
