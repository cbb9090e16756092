//! Settings of the BGP speaker and its peers: plain data, validated where the configuration file is read.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// What a peer is to this node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PeerRole {
    /// A router towards the internet: gets VIPs, never the locator.
    Upstream,
    /// A router of the SRv6 fabric: gets the node's locator, and VIPs only if asked for.
    Fabric,
}

impl fmt::Display for PeerRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Upstream => "upstream",
            Self::Fabric => "fabric",
        })
    }
}

/// A TCP-MD5 key (RFC 2385), never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(Vec<u8>);

impl Password {
    /// Longest key that Linux takes (`TCP_MD5SIG_MAXKEYLEN`), in bytes.
    pub const MAX: usize = 80;

    /// A key of 1 to 80 bytes; `None` for any other length.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Option<Self> {
        let bytes = bytes.into();
        (1..=Self::MAX).contains(&bytes.len()).then_some(Self(bytes))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(hidden)")
    }
}

/// A large community (RFC 8092): `global administrator:function:value`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LargeCommunity(pub u32, pub u32, pub u32);

impl LargeCommunity {
    /// The community that marks a region's routes unless `bgp.regionCommunity` sets another: `ASN:1:V`, where V is the
    /// first four bytes of the SHA-256 of the region's name, most significant byte first. In a shell:
    /// `printf %s us-east | sha256sum | cut -c1-8`, read as hexadecimal.
    pub fn of_region(asn: u32, region: &str) -> Self {
        let digest = Sha256::digest(region.as_bytes());
        Self(asn, 1, u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]))
    }
}

impl fmt::Display for LargeCommunity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", self.0, self.1, self.2)
    }
}

/// A text that is not a large community.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "parse large community {0:?}: not three numbers below 4294967296 with colons between (write 65010:1:7)"
)]
pub struct LargeCommunityError(String);

impl FromStr for LargeCommunity {
    type Err = LargeCommunityError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut parts = text.split(':').map(str::parse::<u32>);
        match (parts.next(), parts.next(), parts.next(), parts.next()) {
            (Some(Ok(a)), Some(Ok(b)), Some(Ok(c)), None) => Ok(Self(a, b, c)),
            _ => Err(LargeCommunityError(text.to_owned())),
        }
    }
}

/// One router to talk to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerConfig {
    /// Unique name.
    pub name: String,
    /// Address to dial; unique among the peers.
    pub address: IpAddr,
    /// TCP port to dial, 179 as a rule.
    pub port: u16,
    /// Source address, and the next hop of what is announced unless one of the two below is set for the family.
    pub local_address: IpAddr,
    /// Next hop of IPv4 routes, in the NEXT_HOP attribute (RFC 4271). Without it they carry the session's own address: on an
    /// IPv6 session that takes a router with RFC 8950.
    pub next_hop_ipv4: Option<Ipv4Addr>,
    /// Next hop of IPv6 routes. Without it they carry the session's own address, and an IPv4 session carries none.
    pub next_hop_ipv6: Option<Ipv6Addr>,
    /// AS number; equal to the speaker's for iBGP.
    pub asn: u32,
    /// What it gets.
    pub role: PeerRole,
    /// TCP-MD5 key.
    pub password: Option<Password>,
    /// Packets leave with, and must arrive with, TTL or hop limit 255 (GTSM, RFC 5082).
    pub gtsm: bool,
    /// A fabric peer gets VIPs as well. No effect on upstream peers.
    pub export_vips: bool,
    /// How many prefixes of the peer are remembered for counting. All are refused anyway, so going over it is reported
    /// and does not end the session: ending it would take the VIPs down for a mistake in what the router exports.
    pub max_prefixes: u32,
}

/// The speaker's own settings and its peers. A change of anything but `peers` resets every session, since all of it is
/// said in OPEN; a change of one peer resets that peer's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpeakerConfig {
    /// AS number of this node.
    pub asn: u32,
    /// BGP identifier.
    pub router_id: Ipv4Addr,
    /// Hold time offered, seconds: at least 3 (RFC 4271 section 4.2).
    pub hold_time: u16,
    /// Longest wait between attempts to reach a peer. Far below RFC 4271's two minutes: a gateway without its router serves
    /// nobody.
    pub connect_retry: Duration,
    /// Graceful restart (RFC 4724): how long routers keep routes while this process is away, seconds, at most 4095.
    /// `None` offers no graceful restart. It bounds the blackhole of a host that dies with its links up: keep it short.
    pub restart_time: Option<u16>,
    /// Close a session whose peer takes no data for this long (RFC 9687). `None`: the RFC's default, the greater of
    /// eight minutes and twice the hold time.
    pub send_hold_time: Option<Duration>,
    /// Routers.
    pub peers: Vec<PeerConfig>,
}

impl SpeakerConfig {
    /// The send hold time in force (RFC 9687 section 6).
    pub fn send_hold(&self) -> Duration {
        self.send_hold_time.unwrap_or_else(|| {
            Duration::from_secs(rustbgpd_fsm::default_send_hold_time(self.hold_time).into())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_never_printed() {
        let password = Password::new(*b"s3cret").unwrap();
        assert!(!format!("{password:?}").contains("s3cret"));
        assert!(!format!("{password:?}").contains("115"));
    }

    #[test]
    fn a_password_has_1_to_80_bytes() {
        assert_eq!(Password::new([]), None);
        assert!(Password::new([1; 80]).is_some());
        assert_eq!(Password::new([1; 81]), None);
    }

    #[test]
    fn a_regions_community_is_what_the_documented_shell_line_prints() {
        // printf %s us-east | sha256sum | cut -c1-8
        assert_eq!(LargeCommunity::of_region(65010, "us-east").to_string(), "65010:1:2623427234");
        assert_ne!(LargeCommunity::of_region(65010, "us-east"), LargeCommunity::of_region(65010, "us-west"));
    }

    #[test]
    fn a_large_community_is_three_numbers() {
        assert_eq!("65010:1:7".parse(), Ok(LargeCommunity(65010, 1, 7)));
        for bad in ["", "1:2", "1:2:3:4", "1:2:4294967296", "a:b:c", "1:-2:3"] {
            assert!(bad.parse::<LargeCommunity>().unwrap_err().to_string().contains("65010:1:7"), "{bad}");
        }
    }
}
