//! The worker's configuration: `worker.yaml` becomes a [`WorkerConfig`] that cannot hold a bad value.

use std::net::Ipv6Addr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::Ipv6Net;
use serde::Deserialize;
use weir_api::{FileProblem, names};
use weir_bpf::worker_abi::GATEWAYS;

use super::raw::RawLocator;
use super::read::{self, Reader};
use super::{ConfigError, Locator, XdpMode};

/// A worker's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerConfig {
    /// `node`: this node's name, which bindings and endpoints name.
    pub node: String,
    /// `region`.
    pub region: String,
    /// `locator`: this node's part of the region's SRv6 block.
    pub locator: Locator,
    /// `fabric`: interfaces on which encapsulated packets arrive.
    pub fabric: Vec<String>,
    /// `gateways`: prefixes that outer sources may have, at most 64 bits long. All others' packets to a SID are dropped.
    pub gateways: Vec<Ipv6Net>,
    /// `replyPath` (default `direct`) and `replySID`.
    pub reply: ReplyPath,
    /// `pathMTU`: largest IP packet on the whole way to gateways and edges; the fabric interfaces' smallest when left out.
    pub path_mtu: Option<u32>,
    /// `translate` (default false): whether bindings with `delivery: Translate` are carried out.
    pub translate: bool,
    /// `objects` (default `/etc/weir/objects.d`).
    pub objects: PathBuf,
    /// `pins` (default `/sys/fs/bpf/weir`).
    pub pins: PathBuf,
    /// `status` (default `/run/weir/worker.json`): file in which the worker keeps what it has verified.
    pub status: PathBuf,
    /// `limits`.
    pub limits: WorkerLimits,
    /// `settle` (default 5ms): quiet time after which file changes are one transaction.
    pub settle: Duration,
    /// `rescan` (default 30s): time between full readings of the objects' directory.
    pub rescan: Duration,
    /// `xdpMode` (default `native`).
    pub xdp_mode: XdpMode,
    /// `icmpRate` (default 1000): errors a CPU may send to endpoints in a second; 0 sends none.
    pub icmp_rate: u32,
}

/// Which way replies go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplyPath {
    /// By this node's routes.
    Direct,
    /// In an outer header to this SID of an edge node.
    Edge(Ipv6Addr),
}

/// Sizes of the worker's maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerLimits {
    /// `bindings` (default 4096): VIPs delivered, each SID's counted.
    pub bindings: u32,
    /// `endpoints` (default 1024): interfaces of endpoints.
    pub endpoints: u32,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Raw {
    node: Option<String>,
    region: Option<String>,
    locator: Option<RawLocator>,
    fabric: Option<Vec<String>>,
    gateways: Option<Vec<String>>,
    reply_path: Option<String>,
    #[serde(rename = "replySID")]
    reply_sid: Option<String>,
    #[serde(rename = "pathMTU")]
    path_mtu: Option<i64>,
    #[serde(default)]
    translate: bool,
    objects: Option<String>,
    pins: Option<String>,
    status: Option<String>,
    #[serde(default)]
    limits: RawLimits,
    settle: Option<String>,
    rescan: Option<String>,
    xdp_mode: Option<String>,
    icmp_rate: Option<i64>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct RawLimits {
    bindings: Option<i64>,
    endpoints: Option<i64>,
}

impl WorkerConfig {
    /// Reads and checks a configuration.
    ///
    /// # Errors
    /// A file that cannot be read, or all that is wrong in it.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let bytes =
            std::fs::read(path).map_err(|cause| ConfigError::Unreadable { path: path.into(), cause })?;
        Self::parse(path, &bytes).map_err(|problems| ConfigError::Invalid { problems })
    }

    /// Checks a configuration's text. `path` names it in problems and is what other paths are relative to.
    ///
    /// # Errors
    /// All that is wrong.
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Self, Vec<FileProblem>> {
        read::read(path, bytes, make)
    }
}

fn make(reader: &mut Reader<'_>, raw: Raw) -> Option<WorkerConfig> {
    let node = reader.name("node", raw.node, "name this node", names::subdomain);
    let region = reader.name("region", raw.region, "name the region this node is in", names::label);
    let remedy = "write locator: { prefix: the region's /48, nodeID: a number }";
    let locator = reader.required("locator", raw.locator, remedy).and_then(|raw| reader.locator(raw));
    let fabric = reader.interfaces("fabric", raw.fabric, "name the interfaces on the SRv6 side");
    let gateways = gateways(reader, raw.gateways);
    let reply = reply(reader, raw.reply_path.as_deref(), raw.reply_sid);
    let path_mtu = raw.path_mtu.map(|mtu| reader.number("pathMTU", Some(mtu), 1500, 1320..=65_535));
    let xdp_mode = match raw.xdp_mode.as_deref() {
        None | Some("native") => XdpMode::Native,
        Some("generic") => XdpMode::Generic,
        Some(other) => {
            reader.refuse("xdpMode", other, "is no mode", "write native or generic");
            XdpMode::Native
        }
    };
    let ms = Duration::from_millis;
    Some(WorkerConfig {
        objects: reader.path("objects", raw.objects, "/etc/weir/objects.d"),
        pins: reader.path("pins", raw.pins, "/sys/fs/bpf/weir"),
        status: reader.path("status", raw.status, "/run/weir/worker.json"),
        limits: WorkerLimits {
            bindings: reader.number("limits.bindings", raw.limits.bindings, 4096, 1..=1 << 18),
            endpoints: reader.number("limits.endpoints", raw.limits.endpoints, 1024, 1..=1 << 16),
        },
        settle: reader.duration("settle", raw.settle.as_ref(), ms(5), [ms(1), ms(10_000)]),
        rescan: reader.duration("rescan", raw.rescan.as_ref(), ms(30_000), [ms(1_000), ms(3_600_000)]),
        icmp_rate: reader.number("icmpRate", raw.icmp_rate, 1000, 0..=1_000_000),
        node: node?,
        region: region?,
        locator: locator?,
        fabric: fabric?,
        gateways: gateways?,
        reply: reply?,
        path_mtu,
        translate: raw.translate,
        xdp_mode,
    })
}

fn gateways(reader: &mut Reader<'_>, texts: Option<Vec<String>>) -> Option<Vec<Ipv6Net>> {
    let remedy = "give the gateways' locators, such as 2001:db8:ff01:1::/64";
    let texts = reader.required("gateways", texts, remedy)?;
    if texts.is_empty() {
        reader.refuse("gateways", "", "is empty: nothing would be delivered", remedy);
    } else if texts.len() > GATEWAYS {
        let why = format!("has {} prefixes", texts.len());
        reader.refuse("gateways", "", why, format!("give at most {GATEWAYS}, or one that covers several"));
    }
    let mut all = Vec::new();
    for (i, text) in texts.iter().enumerate() {
        let at = format!("gateways[{i}]");
        match text.parse::<Ipv6Net>() {
            Err(_) => reader.refuse(&at, text, "is no IPv6 prefix", remedy),
            Ok(net) if net.prefix_len() > 64 || net.prefix_len() < 16 => {
                let why = format!("has length {}", net.prefix_len());
                reader.refuse(&at, text, why, "give a prefix of 16 to 64 bits");
            }
            Ok(net) if net.addr() != net.network() => {
                reader.refuse(&at, text, "has bits beyond its length", format!("write {}", net.trunc()));
            }
            Ok(net) => all.push(net),
        }
    }
    Some(all)
}

fn reply(reader: &mut Reader<'_>, path: Option<&str>, sid: Option<String>) -> Option<ReplyPath> {
    let remedy = "give the edge's reply SID: its locator with function 0xc";
    match (path, sid) {
        (None | Some("direct"), None) => Some(ReplyPath::Direct),
        (None | Some("direct"), Some(sid)) => {
            reader.refuse(
                "replySID",
                sid,
                "is given, but replies go direct",
                "write replyPath: edge, or leave it out",
            );
            None
        }
        (Some("edge"), None) => {
            reader.refuse("replySID", "", "is missing beside replyPath: edge", remedy);
            None
        }
        (Some("edge"), Some(text)) => match text.parse::<Ipv6Addr>() {
            Ok(sid) if !sid.is_unspecified() && !sid.is_multicast() && !sid.is_loopback() => {
                Some(ReplyPath::Edge(sid))
            }
            _ => {
                reader.refuse("replySID", text, "is no SID", remedy);
                None
            }
        },
        (Some(other), _) => {
            reader.refuse("replyPath", other, "is no reply path", "write direct or edge");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "node: w1\nregion: us-east\nlocator: { prefix: \"2001:db8:ff01::/48\", nodeID: 17 }\nfabric: [eth0]\n\
                        gateways: [\"2001:db8:ff01:1::/64\"]\n";

    fn parse(text: &str) -> Result<WorkerConfig, Vec<String>> {
        let words = |p: Vec<FileProblem>| {
            p.iter().map(|p| p.to_string().replace("/etc/weir/worker.yaml:", "")).collect()
        };
        WorkerConfig::parse(Path::new("/etc/weir/worker.yaml"), text.as_bytes()).map_err(words)
    }

    #[test]
    fn a_short_configuration_has_the_documented_defaults() {
        let config = parse(GOOD).unwrap();
        assert_eq!((config.reply, config.path_mtu, config.translate), (ReplyPath::Direct, None, false));
        assert_eq!(config.status, Path::new("/run/weir/worker.json"));
        assert_eq!(config.limits, WorkerLimits { bindings: 4096, endpoints: 1024 });
        assert_eq!(config.locator.prefix().to_string(), "2001:db8:ff01:11::/64");
        let edge =
            parse(&format!("{GOOD}replyPath: edge\nreplySID: \"2001:db8:ff01:1:c000::\"\npathMTU: 1500\n"))
                .unwrap();
        assert_eq!(edge.reply, ReplyPath::Edge("2001:db8:ff01:1:c000::".parse().unwrap()));
    }

    #[test]
    fn all_that_is_wrong_is_told_at_once() {
        let text = "node: w1\nregion: us-east\nlocator: { prefix: \"2001:db8:ff01::/48\", nodeID: 17 }\nfabric: []\n\
                    gateways: [\"2001:db8::1/64\", x, \"2001:db8::/96\"]\nreplyPath: edge\npathMTU: 1280\n";
        assert_eq!(
            parse(text).unwrap_err(),
            [
                "1: replySID: is missing beside replyPath: edge; give the edge's reply SID: its locator with function 0xc",
                "4: fabric: is empty; name the interfaces on the SRv6 side",
                "5: gateways[0]: 2001:db8::1/64 has bits beyond its length; write 2001:db8::/64",
                "5: gateways[1]: x is no IPv6 prefix; give the gateways' locators, such as 2001:db8:ff01:1::/64",
                "5: gateways[2]: 2001:db8::/96 has length 96; give a prefix of 16 to 64 bits",
                "7: pathMTU: 1280 is out of bounds; give a number from 1320 to 65535",
            ]
        );
        assert_eq!(
            parse(&format!("{GOOD}uplinks: [eth1]\n")).unwrap_err()[0].split(';').next(),
            Some("6: uplinks: is no known field")
        );
        assert!(parse("").unwrap_err().len() >= 5);
    }
}
