//! A gateway with ten thousand rules: how soon they are loaded, what memory they take, how soon a change is in the data path.

use std::net::{IpAddr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use labkit::process::ProcessHandle;
use labkit::topology::{Process, Topology};
use labkit::{Lab, NodeHandle};
use weir::dataplane::bpf::{Maps, Pins, encode_key, open_set, serving_set};
use weir::model::{Protocol, VipKey};
use weir_bpf::abi::VipWord;

use super::Line;
use crate::region::{Gateway, Objects};

/// Rules, each with a VIP of its own.
const RULES: u32 = 10_000;
/// Backends of each rule, drawn from all endpoints, so that hardly two rules can share a ring.
const BACKENDS: u32 = 8;
/// Endpoints that the rules share; the last is a backend of every rule.
const ENDPOINTS: u32 = 65;
/// Number of the endpoint that every rule has.
const SHARED: u32 = ENDPOINTS - 1;
/// How often that one moves.
const MOVES: u32 = 5;
const PORT: u16 = 443;
/// Changes that are timed.
const CHANGES: u32 = 31;
/// Longest wait for anything.
const PATIENCE: Duration = Duration::from_mins(2);
/// Time between two changes: the daemon has done with one before the next comes.
const PAUSE: Duration = Duration::from_millis(400);

/// Most seconds from the start until all is loaded.
const LOAD: f64 = 3.0;
/// Most anonymous memory, MB of a million bytes.
const MEMORY: f64 = 80.0;
/// Most seconds from the rename of one endpoint until every rule's ring leads to its new place.
const MOVE: f64 = 1.0;
/// Most milliseconds from the rename until the data path follows.
const CHANGE: f64 = 20.0;

/// Starts the gateway beside this program, loads, changes, measures.
///
/// # Errors
/// What could not be set up or did not come about.
pub fn run() -> anyhow::Result<Vec<Line>> {
    let topology = Topology::build("scale", |t| {
        let hop = "2001:db8:12::1";
        t.node("gw")
            .address("eth1", "2001:db8:11::2/64")
            .address("eth2", "2001:db8:12::2/64")
            .route(&format!("2001:db8:ff01::/48 via {hop}"));
        t.node("peer").address("eth1", "2001:db8:11::1/64").address("eth2", &format!("{hop}/64"));
        t.link("gw:eth1", "peer:eth1", 1500).own_xdp("gw");
        t.link("gw:eth2", "peer:eth2", 9000).own_xdp("gw");
    })?;
    let lab = Lab::up(&topology)?;
    let gw = lab.node("gw")?;
    let pins = gw.bpffs()?.join("weir");
    let objects = Objects::at(gw.dir().join("objects.d"));
    prepare(&gw, &objects, &pins)?;

    let begin = Instant::now();
    let process = gw.spawn(&Process {
        name: "weir".into(),
        command: [&binary()?.display().to_string(), "gateway", "--config", "weir.yaml"]
            .map(Into::into)
            .into(),
        env: [("RUST_LOG".to_owned(), "warn".to_owned())].into(),
        ready: None,
    })?;
    let maps = loaded(&process, &pins, begin)?;
    let load = begin.elapsed();
    std::thread::park_timeout(PAUSE);
    let memory = anonymous(process.pid())?;

    let mut times = Vec::new();
    for n in 0..CHANGES {
        // Rules from all over the directory.
        let number = (n * 7919) % RULES;
        times.push(change(&objects, &maps, number, n + 1).with_context(|| process.log_tail(20))?);
        std::thread::park_timeout(PAUSE);
    }
    times.sort_unstable();
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let mut moves = Vec::new();
    for n in 1..=MOVES {
        moves.push(shared_moves(&objects, &maps, n).with_context(|| process.log_tail(20))?.as_secs_f64());
        std::thread::park_timeout(PAUSE);
    }
    moves.sort_unstable_by(f64::total_cmp);
    let after = anonymous(process.pid())?;
    Ok(vec![
        Line::new(
            format!("one backend of {RULES} rules moved, in every ring, slowest of {MOVES}"),
            moves[moves.len() - 1],
            "s",
            Some(MOVE),
        ),
        Line::new(
            format!("{RULES} rules x {BACKENDS} backends, start to all loaded"),
            load.as_secs_f64(),
            "s",
            Some(LOAD),
        ),
        Line::new("RssAnon once loaded", memory, "MB", Some(MEMORY)),
        Line::new(format!("RssAnon after {CHANGES} changes"), after, "MB", Some(MEMORY)),
        Line::new("one changed rule in the data path, fastest", ms(times[0]), "ms", None),
        Line::new(
            "one changed rule in the data path, median",
            ms(times[times.len() / 2]),
            "ms",
            Some(CHANGE),
        ),
        Line::new("one changed rule in the data path, slowest", ms(times[times.len() - 1]), "ms", None),
    ])
}

/// The daemon that was built with this program.
fn binary() -> anyhow::Result<PathBuf> {
    let path = std::env::current_exe().context("find this program")?.with_file_name("weir");
    ensure!(path.exists(), "{} is missing: run `just bench`, which builds it", path.display());
    Ok(path)
}

fn prepare(gw: &NodeHandle, objects: &Objects, pins: &Path) -> anyhow::Result<()> {
    for (name, secret) in Gateway::secrets() {
        let path = gw.write_file(name, secret)?;
        std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600))?;
    }
    let dir = gw.dir().display();
    let config = format!(
        "node: gw1\nregion: bench\nlocator: {{ prefix: \"2001:db8:ff01::/48\", nodeID: 1 }}\nhashKeyFile: {dir}/hash-key\nuplinks: \
         [eth1]\nfabric: [eth2]\nobjects: {dir}/objects.d\npins: {}\nlimits: {{ vips: 32768, backends: 1024, ringSlots: 67108864, \
         nextHops: 256 }}\nadmin: {dir}/admin.sock\nmetrics: \"[::1]:9464\"\n",
        pins.display(),
    );
    gw.write_file("weir.yaml", config)?;
    for n in 0..ENDPOINTS {
        objects.put(&format!("endpoint-{n}.yaml"), &endpoint(n, 0))?;
    }
    for n in 0..RULES {
        objects.put(&format!("rule-{n:05}.yaml"), &rule(n, 0))?;
    }
    Ok(())
}

/// An endpoint; another `place` is another node.
fn endpoint(n: u32, place: u32) -> String {
    format!(
        "apiVersion: network.datumapis.com/v1alpha1\nkind: VPCEndpoint\nmetadata:\n  namespace: platform\n  name: endpoint-{n}\nspec:\n  \
         vpcRef: tenant\n  vpcAttachmentRef: default\n  address: \"fd00:10::{n:x}\"\n  nodeName: worker-{n}\n  sid: \
         \"2001:db8:ff01:{:x}:e001::\"\n",
        0x100 + n + 0x1000 * place
    )
}

/// Rule `n`; another `version` has other backends.
fn rule(n: u32, version: u32) -> String {
    let mut drawn = vec![SHARED];
    let mut state = n + version * RULES;
    while drawn.len() < BACKENDS as usize {
        state = state.wrapping_mul(0x9e37_79b1).wrapping_add(0x7f4a_7c15);
        // The high bits are the ones that all of the state has gone into.
        let endpoint = (state >> 20) % SHARED;
        if !drawn.contains(&endpoint) {
            drawn.push(endpoint);
        }
    }
    let line = |endpoint: &u32| format!("    - {{ address: \"fd00:10::{endpoint:x}\", port: {PORT} }}\n");
    let backends: String = drawn.iter().map(line).collect();
    format!(
        "apiVersion: network.datumapis.com/v1alpha1\nkind: NetworkRule\nmetadata:\n  namespace: tenant\n  name: rule-{n:05}\nspec:\n  \
         vpcRef: tenant\n  vpcAttachmentRef: default\n  vipAddresses: [\"{}\"]\n  protocol: tcp\n  port: {PORT}\n  region: bench\n  \
         backends:\n{backends}",
        vip(n)
    )
}

fn vip(n: u32) -> Ipv6Addr {
    Ipv6Addr::new(0x2001, 0xdb8, 0x64, 0, 0, 0, (n >> 16) as u16, n as u16)
}

fn key(n: u32) -> weir_bpf::abi::VipKey {
    encode_key(VipKey { address: IpAddr::V6(vip(n)), protocol: Protocol::Tcp, port: PORT })
}

/// Waits until every rule's key leads to a word with a ring, as a packet would find it.
fn loaded(process: &ProcessHandle, pins: &Path, begin: Instant) -> anyhow::Result<Maps> {
    let interfaces = ["eth1".to_owned(), "eth2".to_owned()];
    let wait = |what: &str| -> anyhow::Result<()> {
        if !process.is_running() || begin.elapsed() > PATIENCE {
            bail!("{what} after {:?}:\n{}", begin.elapsed(), process.log_tail(30));
        }
        std::thread::park_timeout(Duration::from_millis(2));
        Ok(())
    };
    let maps = loop {
        // Pins appear one by one: what cannot be opened yet is tried again.
        let set = Pins::existing(pins).and_then(|pins| serving_set(&pins, &interfaces)).ok().flatten();
        if let Some(maps) = set.and_then(|set| open_set(&set).ok()) {
            break maps;
        }
        wait("no maps are pinned")?;
    };
    let mut number = 0;
    while number < RULES {
        if word(&maps, number).is_some_and(|word| word.size() != 0) {
            number += 1;
        } else {
            wait(&format!("rule {number} is not loaded"))?;
        }
    }
    Ok(maps)
}

fn word(maps: &Maps, number: u32) -> Option<VipWord> {
    maps.find(&key(number)).map(|index| maps.word(index))
}

/// Replaces a rule's file and waits until its VIP leads to another ring.
fn change(objects: &Objects, maps: &Maps, number: u32, version: u32) -> anyhow::Result<Duration> {
    let before = word(maps, number).context("the rule is not loaded")?;
    let (text, name) = (rule(number, version), format!("rule-{number:05}.yaml"));
    let begin = Instant::now();
    objects.put(&name, &text)?;
    while word(maps, number) == Some(before) {
        ensure!(
            begin.elapsed() < PATIENCE,
            "rule {number} was changed and its VIP still leads to the old ring"
        );
        std::thread::park_timeout(Duration::from_micros(200));
    }
    Ok(begin.elapsed())
}

/// Moves the endpoint that every rule has, and waits until no ring leads to the old place. A VIP's ring that leads to both, or
/// to neither, is a fault.
fn shared_moves(objects: &Objects, maps: &Maps, place: u32) -> anyhow::Result<Duration> {
    let sid = |place: u32| {
        let node = (0x100 + SHARED + 0x1000 * place) as u16;
        Ipv6Addr::new(0x2001, 0xdb8, 0xff01, node, 0xe001, 0, 0, 0).octets()
    };
    let (old, new) = (sid(place - 1), sid(place));
    let begin = Instant::now();
    objects.put(&format!("endpoint-{SHARED}.yaml"), &endpoint(SHARED, place))?;
    let mut number = 0;
    while number < RULES {
        ensure!(begin.elapsed() < PATIENCE, "rule {number} still leads to the old place");
        let index = maps.find(&key(number)).context("the rule is not loaded")?;
        let word = maps.word(index);
        let backends: std::collections::BTreeSet<u32> =
            (word.base()..word.base() + word.size()).map(|slot| maps.slot(slot)).collect();
        let sids: Vec<_> = backends.into_iter().map(|backend| maps.backend(backend).sid).collect();
        if maps.word(index) != word {
            continue;
        }
        let leads = [sids.contains(&old), sids.contains(&new)];
        ensure!(
            leads[0] != leads[1],
            "the ring of rule {number} leads to the old place: {}, the new: {}",
            leads[0],
            leads[1]
        );
        if leads[1] {
            number += 1;
        } else {
            std::thread::park_timeout(Duration::from_micros(200));
        }
    }
    Ok(begin.elapsed())
}

/// Anonymous memory of a process, in MB of a million bytes (`RssAnon` of `/proc/PID/status`).
fn anonymous(pid: i32) -> anyhow::Result<f64> {
    let path = format!("/proc/{pid}/status");
    let text = std::fs::read_to_string(&path).with_context(|| format!("read {path}"))?;
    let line = text.lines().find_map(|line| line.strip_prefix("RssAnon:")).context("no RssAnon in it")?;
    let kilobytes: f64 =
        line.trim().trim_end_matches("kB").trim().parse().with_context(|| format!("read {line:?}"))?;
    Ok(kilobytes * 1024.0 / 1e6)
}
