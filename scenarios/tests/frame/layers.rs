//! The layer rule: which module of the daemon may know which, where `kube`, `aya` and `unsafe` may stand, how long a file
//! may be, and which crate may depend on which.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::source::Source;

/// Most lines a source file may have; 300 is the aim.
const LONGEST: usize = 800;

/// Crates whose sources are looked at.
const CRATES: [&str; 5] = ["api", "bpf", "daemon", "labkit", "scenarios"];

/// What modules of one layer may know of each other.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Peers {
    /// They are one vocabulary.
    Known,
    /// They meet only in `Event`, `Desired` and `Applied`.
    Unknown,
}

/// The daemon's modules from the bottom up: a module may know its own layer (if `Peers::Known`) and those before it.
const LAYERS: &[(&[&str], Peers)] = &[
    (&["model"], Peers::Unknown),
    (&["event", "desired", "maglev", "flow", "frame", "config", "status"], Peers::Known),
    (&["resolve"], Peers::Unknown),
    (&["state"], Peers::Unknown),
    (
        &["source", "health", "dataplane", "route", "controller", "admission", "aybak", "portal", "record"],
        Peers::Unknown,
    ),
    // The worker shares roots, pins and sources with the gateway.
    (&["worker"], Peers::Unknown),
    (&["check", "inspect", "preflight"], Peers::Unknown),
    (&["admin", "metrics"], Peers::Unknown),
    (&["run"], Peers::Unknown),
    (&["cli"], Peers::Unknown),
];

/// Where a crate may be named below `daemon/src/`: paths that begin so.
const HOMES: &[(&[&str], &[&str])] = &[
    (
        &["kube", "k8s_openapi"],
        &[
            "daemon/src/source/",
            "daemon/src/controller/",
            "daemon/src/admission/",
            "daemon/src/portal/",
            "daemon/src/cli/",
            "daemon/src/aybak/nodes.rs",
            "daemon/src/aybak/apply.rs",
        ],
    ),
    (&["aya"], &["daemon/src/dataplane/bpf", "daemon/src/worker/", "daemon/src/health/path.rs"]),
];

/// Where `unsafe` may stand: paths that begin so.
const UNSAFE_HOMES: &[&str] = &[
    "bpf/src/native",
    "daemon/src/dataplane/bpf",
    "daemon/src/worker/",
    "daemon/src/health/path.rs",
    "daemon/src/route/sockopt.rs",
    // Entering namespaces, packet sockets, ethtool's ioctl, and what loads the lab's own XDP and tc programs.
    "labkit/src/netns",
    "labkit/src/packet_socket",
    "labkit/src/ethtool",
    "labkit/src/xdp",
    "labkit/src/tc",
    // TCP_INFO, and the packet socket that sends held packets again.
    "labkit/src/traffic/tcp_info.rs",
    "labkit/src/fault/resend.rs",
];

/// Which of the workspace's crates each may depend on.
const DEPENDENCIES: &[(&str, &[&str])] = &[
    ("weir-api", &[]),
    ("weir-bpf", &[]),
    ("weir", &["weir-api", "weir-bpf"]),
    ("labkit", &[]),
    ("scenarios", &["labkit", "weir", "weir-api", "weir-bpf"]),
];

/// Everything in the tree at `root` that breaks a rule, one line each, sorted.
fn violations(root: &Path) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for krate in CRATES {
        for source in Source::below(root, krate)? {
            if source.path.contains("/target/") {
                continue;
            }
            modules(&source, &mut found);
            homes(&source, &mut found);
            length(&source.path, source.lines, &mut found);
        }
        for file in c_files(&root.join(krate))? {
            let path = file.strip_prefix(root).unwrap_or(&file).to_string_lossy().into_owned();
            length(&path, std::fs::read_to_string(&file)?.lines().count(), &mut found);
        }
    }
    dependencies(root, &mut found)?;
    found.sort();
    found.dedup();
    Ok(found)
}

fn layer(module: &str) -> Option<usize> {
    LAYERS.iter().position(|(names, _)| names.contains(&module))
}

fn modules(source: &Source, found: &mut Vec<String>) {
    if !source.path.starts_with("daemon/src/") || source.path == "daemon/src/lib.rs" {
        return;
    }
    let module = source.module();
    // `main.rs` is above everything: it calls the command line and nothing else is needed.
    let own = module.first().map_or("main", String::as_str);
    let here = if own == "main" { Some(LAYERS.len()) } else { layer(own) };
    let Some(here) = here else {
        found.push(format!(
            "{}: module {own} has no place in LAYERS (scenarios/tests/frame/layers.rs)",
            source.path
        ));
        return;
    };
    for named in source.paths("weir") {
        if named.segments[0] != "crate" || named.segments.len() < 2 {
            continue;
        }
        let other = named.segments[1].as_str();
        // Items of the crate's root and macros have no layer.
        let Some(there) = layer(other) else { continue };
        let allowed = other == own || there < here || there == here && LAYERS[there].1 == Peers::Known;
        if !allowed {
            let why =
                if there == here { "they meet only in Event, Desired and Applied" } else { "it lies above" };
            found.push(format!("{}:{}: {own} must not know {other}: {why}", source.path, named.line));
        }
    }
}

fn homes(source: &Source, found: &mut Vec<String>) {
    for named in source.paths("") {
        let krate = named.segments[0].as_str();
        if source.path.starts_with("daemon/src/") {
            for (names, homes) in HOMES {
                if names.contains(&krate) && !homes.iter().any(|home| source.path.starts_with(home)) {
                    found.push(format!("{}:{}: {krate} outside its homes", source.path, named.line));
                }
            }
        }
        if source.path.starts_with("labkit/")
            && ["weir", "weir_api", "weir_bpf", "scenarios"].contains(&krate)
        {
            found.push(format!("{}:{}: labkit must not know {krate}", source.path, named.line));
        }
    }
    if !UNSAFE_HOMES.iter().any(|home| source.path.starts_with(home)) {
        for line in source.unsafe_lines() {
            found.push(format!("{}:{line}: unsafe outside its homes", source.path));
        }
    }
}

fn length(path: &str, lines: usize, found: &mut Vec<String>) {
    if lines > LONGEST {
        found.push(format!("{path}: {lines} lines, at most {LONGEST} are allowed"));
    }
}

fn c_files(dir: &Path) -> Result<Vec<std::path::PathBuf>> {
    let mut files = Vec::new();
    let mut pending = vec![dir.to_path_buf()];
    while let Some(dir) = pending.pop() {
        for entry in std::fs::read_dir(&dir).into_iter().flatten() {
            let path = entry?.path();
            if path.is_dir() && !path.ends_with("target") {
                pending.push(path);
            } else if path.extension().is_some_and(|e| e == "c" || e == "h") {
                files.push(path);
            }
        }
    }
    Ok(files)
}

/// The crates' dependencies of every kind, as cargo reads them.
fn dependencies(root: &Path, found: &mut Vec<String>) -> Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--no-deps", "--offline", "--format-version", "1", "--manifest-path"])
        .arg(root.join("Cargo.toml"))
        .output()
        .context("run cargo metadata")?;
    ensure!(output.status.success(), "cargo metadata: {}", String::from_utf8_lossy(&output.stderr));
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout)?;
    let allowed: BTreeMap<&str, &[&str]> = DEPENDENCIES.iter().copied().collect();
    for package in metadata["packages"].as_array().into_iter().flatten() {
        let name = package["name"].as_str().unwrap_or_default();
        let Some(may) = allowed.get(name) else {
            found.push(format!(
                "{name}: crate has no place in DEPENDENCIES (scenarios/tests/frame/layers.rs)"
            ));
            continue;
        };
        for dependency in package["dependencies"].as_array().into_iter().flatten() {
            let on = dependency["name"].as_str().unwrap_or_default();
            if allowed.contains_key(on) && !may.contains(&on) {
                found.push(format!("{name}: must not depend on {on}"));
            }
        }
    }
    Ok(())
}

#[test]
fn the_tree_keeps_its_layers() {
    let root = super::root();
    let found = violations(&root).unwrap();
    assert!(found.is_empty(), "{}", found.join("\n"));
    // The rule was read from real files, the daemon's lowest layer among them.
    let daemon = Source::below(&root, "daemon").unwrap();
    assert!(daemon.iter().any(|s| s.path == "daemon/src/model.rs"));
}

#[test]
fn each_broken_layer_rule_is_named() {
    let tree = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let file = tree.path().join(path);
        std::fs::create_dir_all(file.parent().unwrap()).unwrap();
        std::fs::write(file, text).unwrap();
    };
    write("Cargo.toml", "[workspace]\nresolver = \"3\"\nmembers = [\"daemon\", \"labkit\", \"extra\"]\n");
    let manifest = |name: &str, dependencies: &str| {
        format!("[package]\nname = \"{name}\"\nversion = \"0.1.0\"\nedition = \"2024\"\n{dependencies}")
    };
    write("daemon/Cargo.toml", &manifest("weir", "[dev-dependencies]\nlabkit = { path = \"../labkit\" }\n"));
    write(
        "labkit/Cargo.toml",
        &manifest("labkit", "[build-dependencies]\nweir = { path = \"../daemon\" }\n"),
    );
    write("extra/Cargo.toml", &manifest("extra", ""));
    write("extra/src/lib.rs", "");
    write("daemon/src/lib.rs", "pub mod model;\npub mod route;\n");
    write("daemon/src/main.rs", "fn main() { weir::cli::main() }\n");
    write("daemon/src/model.rs", "use crate::{desired::Desired, model};\n");
    write("daemon/src/desired.rs", "use crate::model; use crate::flow;\n");
    write(
        "daemon/src/route/plan.rs",
        "fn f() {\n    select! { _ = super::super::dataplane::go() => {} }\n}\n",
    );
    write("daemon/src/source/file.rs", "use kube::Client;\nfn f() { aya::load(); unsafe { g() } }\n");
    write("daemon/src/flow.rs", "use k8s_openapi::api;\n");
    write("daemon/src/dataplane/bpf/maps.rs", "use aya::Ebpf;\nunsafe impl Send for X {}\n");
    write("daemon/src/odds.rs", "\n");
    write("labkit/src/lib.rs", "use weir::model;\n");
    write("bpf/c/long.h", &"\n".repeat(801));
    assert_eq!(
        violations(tree.path()).unwrap(),
        [
            "bpf/c/long.h: 801 lines, at most 800 are allowed",
            "daemon/src/flow.rs:1: k8s_openapi outside its homes",
            "daemon/src/model.rs:1: model must not know desired: it lies above",
            "daemon/src/odds.rs: module odds has no place in LAYERS (scenarios/tests/frame/layers.rs)",
            "daemon/src/route/plan.rs:2: route must not know dataplane: they meet only in Event, Desired and Applied",
            "daemon/src/source/file.rs:2: aya outside its homes",
            "daemon/src/source/file.rs:2: unsafe outside its homes",
            "extra: crate has no place in DEPENDENCIES (scenarios/tests/frame/layers.rs)",
            "labkit/src/lib.rs:1: labkit must not know weir",
            "labkit: must not depend on weir",
            "weir: must not depend on labkit",
        ]
    );
}
