//! The gateway's configuration: a documented YAML file becomes a [`Config`] that cannot hold a bad value.
//!
//! Nothing is read but the file and the key files it names. Paths in it are relative to its own directory.

mod raw;
mod read;
mod secret;
#[cfg(test)]
mod tests;
pub mod worker;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ipnet::Ipv6Net;
use weir_api::FileProblem;

pub use secret::Secret;
pub use worker::{WorkerConfig, WorkerLimits};

/// A gateway's configuration.
#[derive(Clone, Debug)]
pub struct Config {
    /// `node`: this node's name.
    pub node: String,
    /// `region`: the region this node serves and announces.
    pub region: String,
    /// `locator`: this node's part of the region's SRv6 block; left out, the node's BGPRouter object says it.
    pub locator: Option<Locator>,
    /// `hashKeyFile`: 32 bytes, the same on every gateway of the region.
    pub hash_key: Secret<[u8; 32]>,
    /// `uplinks`: interfaces on the internet side.
    pub uplinks: Vec<String>,
    /// `fabric`: interfaces on the SRv6 side; one may be an uplink too.
    pub fabric: Vec<String>,
    /// `objects` (default `/etc/weir/objects.d`): directory of objects, watched.
    pub objects: PathBuf,
    /// `bgp`; without it nothing is announced.
    pub bgp: Option<Bgp>,
    /// `admin` (default `/run/weir/gateway.sock`): socket of `weir show`, `drain` and the like.
    pub admin: PathBuf,
    /// `metrics` (default `[::1]:9464`): address of `/metrics` and `/readyz`.
    pub metrics: SocketAddr,
    /// `pins` (default `/sys/fs/bpf/weir`): directory on a bpffs that holds maps, programs and links.
    pub pins: PathBuf,
    /// `limits`: sizes of the maps.
    pub limits: Limits,
    /// `timers`.
    pub timers: Timers,
    /// `xdpMode` (default `native`).
    pub xdp_mode: XdpMode,
    /// `icmpRate` (default 1000): Packet Too Big and echo replies a CPU may send in a second; 0 sends none.
    pub icmp_rate: u32,
    /// `dropSamples` (default 10): events that a CPU writes in a second for one reason to drop; 0 writes none.
    pub drop_samples: u32,
    /// `drainMarker` (default `/etc/weir/drain`): while this file exists, SIGTERM means leaving for good.
    pub drain_marker: PathBuf,
}

/// This node's locator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Locator {
    /// `prefix`: the region's SRv6 block, a /48.
    pub block: Ipv6Net,
    /// `nodeID`: 1–0xdfff, unique in the region.
    pub node_id: u16,
}

impl Locator {
    /// The node's /64: its SIDs, and the sources of its outer headers, lie in it.
    pub fn prefix(&self) -> Ipv6Net {
        let bits = self.block.network().to_bits() | u128::from(self.node_id) << 64;
        // A length of 64 is never out of range; the block stands in for what cannot happen.
        Ipv6Net::new(Ipv6Addr::from_bits(bits), 64).unwrap_or(self.block)
    }

    /// Source of outer headers. Its last 16 bits are 0 and take hash bits; bit 16 keeps it from ever being the
    /// subnet-router anycast address (RFC 4291 section 2.6.1).
    pub fn source(&self) -> Ipv6Addr {
        Ipv6Addr::from_bits(self.prefix().network().to_bits() | 1 << 16)
    }

    /// SID at which this node's own self-test frames arrive: function 0xf.
    pub fn self_test_sid(&self) -> Ipv6Addr {
        weir_api::sid::compose(self.block, self.node_id, 0xf, 0)
    }
}

/// Sizes of the data plane's maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// `vips` (default 4096): VIP, protocol and port.
    pub vips: u32,
    /// `backends` (default 16384): backends, each counted once however many rules name it.
    pub backends: u32,
    /// `ringSlots` (default 16777216): slots of all rings.
    pub ring_slots: u32,
    /// `nextHops` (default 4096): next hops to nodes.
    pub next_hops: u32,
    /// `fragments` (default 16384): datagrams whose first fragment is remembered.
    pub fragments: u32,
}

/// Times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timers {
    /// `drain` (default 5s): from withdrawing routes until what they led to is unloaded.
    pub drain: Duration,
    /// `gracefulShutdown` (default 5s): from GRACEFUL_SHUTDOWN (RFC 8326) until routes are withdrawn.
    pub graceful_shutdown: Duration,
    /// `settle` (default 5ms): quiet time after which file changes are one transaction.
    pub settle: Duration,
    /// `rescan` (default 30s): time between full readings of the objects' directory, should the kernel have lost a change.
    pub rescan: Duration,
    /// `holdTime` (default 9s): BGP hold time; at least 3s, whole seconds.
    pub hold_time: Duration,
    /// `connectRetry` (default 5s): longest time between attempts to reach a peer.
    pub connect_retry: Duration,
    /// `heartbeat` (default 3s): time without the daemon after which the data plane asks the kernel's FIB itself.
    pub heartbeat: Duration,
}

/// How XDP programs are attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum XdpMode {
    /// In the driver.
    #[default]
    Native,
    /// In the kernel's generic path: slow, for drivers without XDP.
    Generic,
}

/// BGP speaker.
#[derive(Clone, Debug)]
pub struct Bgp {
    /// `asn`: 1–4294967295.
    pub asn: u32,
    /// `routerID`: dotted quad, not 0.0.0.0.
    pub router_id: Ipv4Addr,
    /// `gracefulRestart.restartTime` (default 60s): whole seconds up to 4095 (RFC 4724).
    pub restart_time: Duration,
    /// `communities`: `ASN:NN`, put on every VIP (RFC 1997).
    pub communities: Vec<(u16, u16)>,
    /// `largeCommunities`: `A:B:C`, put on every VIP (RFC 8092).
    pub large_communities: Vec<(u32, u32, u32)>,
    /// `peers`.
    pub peers: Vec<Peer>,
}

/// A BGP neighbour.
#[derive(Clone, Debug)]
pub struct Peer {
    /// `name`, unique.
    pub name: String,
    /// `address`, unique.
    pub address: IpAddr,
    /// `localAddress`: source the session is bound to; the kernel's choice when left out.
    pub local_address: Option<IpAddr>,
    /// `nextHopIPv4`: next hop of IPv4 VIPs, this node's address on the router's link. Without it they carry the session's
    /// own address, which on an IPv6 session takes a router with RFC 8950.
    pub next_hop_ipv4: Option<Ipv4Addr>,
    /// `nextHopIPv6`: next hop of IPv6 routes, for an IPv4 session. Without it they carry the session's own address.
    pub next_hop_ipv6: Option<Ipv6Addr>,
    /// `port` (default 179).
    pub port: u16,
    /// `asn` of the neighbour.
    pub asn: u32,
    /// `role`.
    pub role: PeerRole,
    /// `passwordFile`: key of TCP-MD5 (RFC 2385), its first line, 1–80 bytes.
    pub password: Option<Secret<Vec<u8>>>,
    /// `gtsm` (default false): packets must have come one hop (RFC 5082).
    pub gtsm: bool,
}

/// What a neighbour is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PeerRole {
    /// To the internet: VIPs of this region.
    Upstream,
    /// To the fabric: this node's locator.
    Fabric,
    /// To the fabric, with `exportVIPs`: locator and VIPs.
    FabricWithVips,
}

/// Why a configuration was not loaded.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file itself cannot be read.
    #[error("read configuration {}: {cause}; give a readable file with --config", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        cause: std::io::Error,
    },
    /// It was read and is refused.
    #[error("{}", problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Invalid {
        /// All that is wrong.
        problems: Vec<FileProblem>,
    },
}

/// Reads a hash key file by itself: 32 raw bytes, or 64 hexadecimal digits.
pub fn read_hash_key(path: &Path) -> Result<Secret<[u8; 32]>, ConfigError> {
    secret::hash_key(path).map_err(|(why, remedy)| {
        let problem = weir_api::Problem::error("", "", why, remedy);
        ConfigError::Invalid { problems: vec![problem.at(path, 0)] }
    })
}

impl Config {
    /// Reads and checks a configuration and the key files it names.
    pub fn load(path: &Path) -> Result<Self, ConfigError> {
        let bytes =
            std::fs::read(path).map_err(|cause| ConfigError::Unreadable { path: path.into(), cause })?;
        Self::parse(path, &bytes).map_err(|problems| ConfigError::Invalid { problems })
    }

    /// Checks a configuration's text. `path` names it in problems and is what other paths are relative to.
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Self, Vec<FileProblem>> {
        read::parse(path, bytes)
    }
}
