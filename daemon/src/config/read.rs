//! From the configuration as written to a [`Config`], or to every problem it has.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::de::DeserializeOwned;
use weir_api::locate::Fields;
use weir_api::object::{self, Unread};
use weir_api::{FileProblem, Problem, check_router, duration, names, sid};

use super::raw::{Raw, RawBgp, RawLimits, RawLocator, RawPeer, RawTimers};
use super::{Bgp, Config, Limits, Locator, Peer, PeerRole, Secret, Timers, XdpMode, secret};

/// Collects problems while fields are read; a field that cannot be read is `None`.
pub(super) struct Reader<'a> {
    directory: &'a Path,
    problems: Vec<Problem>,
}

pub(super) fn parse(path: &Path, bytes: &[u8]) -> Result<Config, Vec<FileProblem>> {
    read(path, bytes, |reader: &mut Reader<'_>, raw| reader.config(raw))
}

/// Reads a configuration of any shape; all its problems are told at once.
pub(super) fn read<R: DeserializeOwned + Default, C>(
    path: &Path,
    bytes: &[u8],
    make: impl FnOnce(&mut Reader<'_>, R) -> Option<C>,
) -> Result<C, Vec<FileProblem>> {
    let text = object::text(bytes).map_err(|p| vec![p.at(path, 1)])?;
    let raw: R = match object::parse_yaml(text) {
        Ok(raw) => raw,
        // An empty file is a configuration in which everything is missing.
        Err(_) if text.trim().is_empty() => R::default(),
        Err(Unread { problem, line }) => return Err(vec![problem.at(path, line)]),
    };
    let directory = path.parent().unwrap_or(Path::new(""));
    let mut reader = Reader { directory, problems: Vec::new() };
    let config = make(&mut reader, raw);
    match config {
        Some(config) if reader.problems.is_empty() => Ok(config),
        _ => {
            let fields = Fields::of(text);
            let mut problems: Vec<_> = reader
                .problems
                .into_iter()
                .map(|p| {
                    let line = fields.line(&p.field);
                    p.at(path, line)
                })
                .collect();
            problems.sort_by_key(|p| p.line);
            Err(problems)
        }
    }
}

impl Reader<'_> {
    pub(super) fn refuse(
        &mut self,
        field: &str,
        value: impl Display,
        why: impl Into<String>,
        remedy: impl Into<String>,
    ) {
        self.problems.push(Problem::error(field, value, why, remedy));
    }

    pub(super) fn required<T>(&mut self, field: &str, value: Option<T>, remedy: &str) -> Option<T> {
        if value.is_none() {
            self.refuse(field, "", "is missing", remedy);
        }
        value
    }

    fn config(&mut self, raw: Raw) -> Option<Config> {
        let node = self.name("node", raw.node, "name this node", names::subdomain);
        let region = self.name("region", raw.region, "name the region this node serves", names::label);
        let given = raw.locator.is_some();
        let locator = raw.locator.and_then(|raw| self.locator(raw));
        let hash_key = self.hash_key(raw.hash_key_file);
        let uplinks = self.interfaces("uplinks", raw.uplinks, "name the interfaces on the internet side");
        let fabric = self.interfaces("fabric", raw.fabric, "name the interfaces on the SRv6 side");
        let bgp = raw.bgp.map(|bgp| self.bgp(bgp));
        let metrics = self.metrics(raw.metrics);
        let limits = self.limits(&raw.limits);
        let timers = self.timers(&raw.timers);
        let xdp_mode = match raw.xdp_mode.as_deref() {
            None | Some("native") => XdpMode::Native,
            Some("generic") => XdpMode::Generic,
            Some(other) => {
                self.refuse("xdpMode", other, "is no mode", "write native or generic");
                XdpMode::Native
            }
        };
        let icmp_rate = self.number("icmpRate", raw.icmp_rate, 1000, 0..=1_000_000);
        let drop_samples = self.number("dropSamples", raw.drop_samples, 10, 0..=100_000);
        let objects = self.path("objects", raw.objects, "/etc/weir/objects.d");
        let admin = self.path("admin", raw.admin, "/run/weir/gateway.sock");
        let pins = self.path("pins", raw.pins, "/sys/fs/bpf/weir");
        let drain_marker = self.path("drainMarker", raw.drain_marker, "/etc/weir/drain");
        Some(Config {
            node: node?,
            region: region?,
            locator: if given { Some(locator?) } else { None },
            hash_key: hash_key?,
            uplinks: uplinks?,
            fabric: fabric?,
            objects,
            bgp: bgp.flatten(),
            admin,
            metrics: metrics?,
            pins,
            limits,
            timers,
            xdp_mode,
            icmp_rate,
            drop_samples,
            drain_marker,
        })
    }

    pub(super) fn name(
        &mut self,
        field: &str,
        value: Option<String>,
        remedy: &str,
        check: fn(&str) -> Result<(), String>,
    ) -> Option<String> {
        let value = self.required(field, value, remedy)?;
        match check(&value) {
            Ok(()) => Some(value),
            Err(why) => {
                self.refuse(field, value, why, remedy);
                None
            }
        }
    }

    /// A path, relative to the configuration's directory.
    pub(super) fn path(&mut self, field: &str, value: Option<String>, default: &str) -> PathBuf {
        let value = value.unwrap_or_else(|| default.to_string());
        if value.is_empty() {
            self.refuse(field, "", "is empty", format!("give a path, or leave it out for {default}"));
        }
        self.directory.join(value)
    }

    pub(super) fn locator(&mut self, raw: RawLocator) -> Option<Locator> {
        let remedy = "give the region's SRv6 block, a /48 such as 2001:db8:ff01::/48";
        let text = self.required("locator.prefix", raw.prefix, remedy);
        let block = text.and_then(|text| match check_router::block(&text) {
            Ok(block) => Some(block),
            Err((why, remedy)) => {
                self.refuse("locator.prefix", text, why, remedy);
                None
            }
        });
        let remedy = "give this node a number of its own from 1 to 57343 (0xdfff)";
        let id = self.required("locator.nodeID", raw.node_id, remedy)?;
        let node_id = u16::try_from(id).ok().filter(|id| sid::NODE_IDS.contains(id));
        if node_id.is_none() {
            self.refuse("locator.nodeID", id, "is no node id", remedy);
        }
        Some(Locator { block: block?, node_id: node_id? })
    }

    fn hash_key(&mut self, file: Option<String>) -> Option<Secret<[u8; 32]>> {
        let file = self.required("hashKeyFile", file, "name the file of the region's 32-byte key")?;
        match secret::hash_key(&self.directory.join(&file)) {
            Ok(key) => Some(key),
            Err((why, remedy)) => {
                self.refuse("hashKeyFile", file, why, remedy);
                None
            }
        }
    }

    pub(super) fn interfaces(
        &mut self,
        field: &str,
        names: Option<Vec<String>>,
        remedy: &str,
    ) -> Option<Vec<String>> {
        let names = self.required(field, names, remedy)?;
        if names.is_empty() {
            self.refuse(field, "", "is empty", remedy);
        }
        for (i, name) in names.iter().enumerate() {
            let at = format!("{field}[{i}]");
            let bad = |c: char| c.is_whitespace() || c.is_control() || c == '/' || c == ':';
            if name.is_empty() || name.len() > 15 || name == "." || name == ".." || name.contains(bad) {
                self.refuse(
                    &at,
                    name,
                    "is no interface name",
                    "give a name as `ip link` shows it, at most 15 characters",
                );
            } else if let Some(earlier) = names[..i].iter().position(|n| n == name) {
                self.refuse(&at, name, format!("is {field}[{earlier}] again"), "name each interface once");
            }
        }
        Some(names)
    }

    fn metrics(&mut self, text: Option<String>) -> Option<SocketAddr> {
        let text = text.unwrap_or_else(|| "[::1]:9464".into());
        match text.parse() {
            Ok(address) => Some(address),
            Err(_) => {
                self.refuse(
                    "metrics",
                    text,
                    "is no address with port",
                    "write it like [::1]:9464 or 192.0.2.1:9464",
                );
                None
            }
        }
    }

    pub(super) fn number(
        &mut self,
        field: &str,
        value: Option<i64>,
        default: u32,
        range: std::ops::RangeInclusive<u32>,
    ) -> u32 {
        let Some(value) = value else { return default };
        match u32::try_from(value).ok().filter(|v| range.contains(v)) {
            Some(value) => value,
            None => {
                let remedy = format!("give a number from {} to {}", range.start(), range.end());
                self.refuse(field, value, "is out of bounds", remedy);
                default
            }
        }
    }

    fn limits(&mut self, raw: &RawLimits) -> Limits {
        Limits {
            vips: self.number("limits.vips", raw.vips, 4096, 1..=1 << 20),
            backends: self.number("limits.backends", raw.backends, 16384, 1..=1 << 22),
            ring_slots: self.number("limits.ringSlots", raw.ring_slots, 1 << 24, 65_552..=1 << 30),
            // An index has 24 bits.
            next_hops: self.number("limits.nextHops", raw.next_hops, 4096, 1..=(1 << 24) - 1),
            fragments: self.number("limits.fragments", raw.fragments, 16384, 1024..=1 << 22),
        }
    }

    pub(super) fn duration(
        &mut self,
        field: &str,
        text: Option<&String>,
        default: Duration,
        range: [Duration; 2],
    ) -> Duration {
        let Some(text) = text else { return default };
        let bounds = format!("from {} to {}", duration::format(range[0]), duration::format(range[1]));
        match duration::parse(text) {
            Err(_) => {
                self.refuse(field, text, "is no duration", format!("write it like 10s or 1m30s, {bounds}"));
            }
            Ok(d) if d < range[0] || d > range[1] => {
                self.refuse(field, text, "is out of bounds", format!("give a time {bounds}"));
            }
            Ok(d) => return d,
        }
        default
    }

    /// A time that BGP carries in whole seconds.
    fn seconds(&mut self, field: &str, text: Option<&String>, default: u64, range: [u64; 2]) -> Duration {
        let before = self.problems.len();
        let d = self.duration(field, text, Duration::from_secs(default), range.map(Duration::from_secs));
        if self.problems.len() == before && d.subsec_nanos() != 0 {
            self.refuse(field, duration::format(d), "is no whole number of seconds", "give whole seconds");
        }
        d
    }

    fn timers(&mut self, raw: &RawTimers) -> Timers {
        let ms = Duration::from_millis;
        // 0 would be legal (RFC 4271) and would never notice a router that has gone.
        let hold_time = self.seconds("timers.holdTime", raw.hold_time.as_ref(), 9, [3, 65_535]);
        let long = [ms(0), ms(600_000)];
        Timers {
            drain: self.duration("timers.drain", raw.drain.as_ref(), ms(5_000), long),
            graceful_shutdown: self.duration(
                "timers.gracefulShutdown",
                raw.graceful_shutdown.as_ref(),
                ms(5_000),
                long,
            ),
            settle: self.duration("timers.settle", raw.settle.as_ref(), ms(5), [ms(1), ms(10_000)]),
            rescan: self.duration(
                "timers.rescan",
                raw.rescan.as_ref(),
                ms(30_000),
                [ms(1_000), ms(3_600_000)],
            ),
            hold_time,
            connect_retry: self.duration(
                "timers.connectRetry",
                raw.connect_retry.as_ref(),
                ms(5_000),
                [ms(100), ms(120_000)],
            ),
            heartbeat: self.duration(
                "timers.heartbeat",
                raw.heartbeat.as_ref(),
                ms(3_000),
                [ms(500), ms(60_000)],
            ),
        }
    }

    fn asn(&mut self, field: &str, value: Option<i64>, remedy: &str) -> Option<u32> {
        let value = self.required(field, value, remedy)?;
        let asn = u32::try_from(value).ok().filter(|&a| a != 0);
        if asn.is_none() {
            self.refuse(field, value, "is no AS number", "give a number from 1 to 4294967295");
        }
        asn
    }

    fn bgp(&mut self, raw: RawBgp) -> Option<Bgp> {
        let asn = self.asn("bgp.asn", raw.asn, "give this node's AS number");
        let remedy = "give a dotted quad of this node's own, such as 192.0.2.11";
        let router_id = self.required("bgp.routerID", raw.router_id, remedy).and_then(|text| {
            let id = text.parse::<Ipv4Addr>().ok().filter(|id| !id.is_unspecified());
            if id.is_none() {
                self.refuse("bgp.routerID", text, "is no router id", remedy);
            }
            id
        });
        let restart_time = self.seconds(
            "bgp.gracefulRestart.restartTime",
            raw.graceful_restart.restart_time.as_ref(),
            60,
            [1, 4095],
        );
        let communities =
            self.communities("bgp.communities", &raw.communities, "write it like 65010:100", |[a, b]| {
                Some((u16::try_from(a).ok()?, u16::try_from(b).ok()?))
            });
        let large = &raw.large_communities;
        let large_communities =
            self.communities("bgp.largeCommunities", large, "write it like 65010:1:100", |[a, b, c]| {
                Some((a, b, c))
            });
        let mut peers = Vec::new();
        let mut names = BTreeMap::new();
        let mut addresses = BTreeMap::new();
        for (i, raw) in raw.peers.into_iter().enumerate() {
            let (name, address) = (raw.name.clone(), raw.address.clone());
            let peer = self.peer(i, raw);
            if let Some(earlier) = name.as_ref().and_then(|n| names.insert(n.clone(), i)) {
                let why = format!("is the name of bgp.peers[{earlier}] too");
                self.refuse(
                    &format!("bgp.peers[{i}].name"),
                    name.unwrap_or_default(),
                    why,
                    "give each peer a name of its own",
                );
            }
            let canonical = address.as_deref().and_then(weir_api::address::parse);
            if let Some(earlier) = canonical.and_then(|a| addresses.insert(a, i)) {
                let why =
                    format!("is the address of bgp.peers[{earlier}] too: two sessions with one router flap");
                self.refuse(
                    &format!("bgp.peers[{i}].address"),
                    address.unwrap_or_default(),
                    why,
                    "name each router once",
                );
            }
            peers.extend(peer);
        }
        Some(Bgp { asn: asn?, router_id: router_id?, restart_time, communities, large_communities, peers })
    }

    fn communities<const N: usize, T>(
        &mut self,
        field: &str,
        texts: &[String],
        remedy: &str,
        make: fn([u32; N]) -> Option<T>,
    ) -> Vec<T> {
        let mut all = Vec::new();
        for (i, text) in texts.iter().enumerate() {
            let numbers: Option<Vec<u32>> = text.split(':').map(|n| n.parse().ok()).collect();
            match numbers.and_then(|n| <[u32; N]>::try_from(n).ok()).and_then(make) {
                Some(community) => all.push(community),
                None => self.refuse(&format!("{field}[{i}]"), text, "is no community", remedy),
            }
        }
        all
    }

    fn peer(&mut self, i: usize, raw: RawPeer) -> Option<Peer> {
        let at = |name: &str| format!("bgp.peers[{i}].{name}");
        let name = self.name(&at("name"), raw.name, "name the peer", names::subdomain);
        let address = self.peer_address(&at("address"), raw.address.as_deref(), "give the router's address");
        let address = address.or_else(|| {
            if raw.address.is_none() {
                self.refuse(&at("address"), "", "is missing", "give the router's address");
            }
            None
        });
        let local_address =
            self.peer_address(&at("localAddress"), raw.local_address.as_deref(), "give this node's address");
        if let (Some(address), Some(local)) = (address, local_address) {
            if address == local {
                self.refuse(
                    &at("localAddress"),
                    local,
                    "is the peer's own address",
                    "give this node's address",
                );
            } else if address.is_ipv4() != local.is_ipv4() {
                let why = format!("is of another family than {address}");
                self.refuse(&at("localAddress"), local, why, "give this node's address of the peer's family");
            }
        }
        let next_hop_ipv4 =
            self.next_hop(&at("nextHopIPv4"), raw.next_hop_ipv4.as_deref(), address, |a| match a {
                IpAddr::V4(a) => Some(a),
                IpAddr::V6(_) => None,
            });
        let next_hop_ipv6 =
            self.next_hop(&at("nextHopIPv6"), raw.next_hop_ipv6.as_deref(), address, |a| match a {
                IpAddr::V4(_) => None,
                IpAddr::V6(a) => Some(a),
            });
        let port = self.number(&at("port"), raw.port, 179, 1..=65_535);
        let asn = self.asn(&at("asn"), raw.asn, "give the peer's AS number");
        let role = self.required(&at("role"), raw.role, "write role: upstream or role: fabric");
        let role = match (role.as_deref(), raw.export_vips) {
            (Some("upstream"), false) => Some(PeerRole::Upstream),
            (Some("upstream"), true) => {
                let remedy = "leave it out: an upstream peer always gets the VIPs";
                self.refuse(&at("exportVIPs"), "true", "is for fabric peers", remedy);
                None
            }
            (Some("fabric"), false) => Some(PeerRole::Fabric),
            (Some("fabric"), true) => Some(PeerRole::FabricWithVips),
            (Some(other), _) => {
                self.refuse(&at("role"), other, "is no role", "write upstream or fabric");
                None
            }
            (None, _) => None,
        };
        let password = raw.password_file.map(|file| {
            secret::password(&self.directory.join(&file))
                .map_err(|(why, remedy)| self.refuse(&at("passwordFile"), file, why, remedy))
                .ok()
        });
        let password = match password {
            Some(None) => return None,
            Some(some) => some,
            None => None,
        };
        let port = port as u16;
        Some(Peer {
            name: name?,
            address: address?,
            local_address,
            next_hop_ipv4,
            next_hop_ipv6,
            port,
            asn: asn?,
            role: role?,
            password,
            gtsm: raw.gtsm,
        })
    }

    /// A next hop of one family, as `of_family` tells: an address of this node, so never the peer's own.
    fn next_hop<T>(
        &mut self,
        field: &str,
        text: Option<&str>,
        peer: Option<IpAddr>,
        of_family: fn(IpAddr) -> Option<T>,
    ) -> Option<T> {
        let remedy = "give this node's address of that family on the router's link";
        let address = self.peer_address(field, text, remedy)?;
        if peer == Some(address) {
            self.refuse(field, address, "is the peer's own address", remedy);
            return None;
        }
        let next_hop = of_family(address);
        if next_hop.is_none() {
            self.refuse(field, address, "is of the other family", remedy);
        }
        next_hop
    }

    fn peer_address(&mut self, field: &str, text: Option<&str>, remedy: &str) -> Option<IpAddr> {
        let text = text?;
        match weir_api::address::parse(text) {
            None => self.refuse(field, text, "is no IP address", remedy),
            Some(a) if a.is_unspecified() || a.is_multicast() => {
                self.refuse(field, text, "is no unicast address", remedy);
            }
            Some(IpAddr::V6(a)) if a.is_unicast_link_local() => {
                let remedy = "give a global or unique local address";
                self.refuse(
                    field,
                    text,
                    "is link-local, which needs an interface and is not supported",
                    remedy,
                );
            }
            Some(a) => return Some(a),
        }
        None
    }
}
