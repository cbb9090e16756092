//! Routes and policy rules, read from and written in the language of iproute2.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::{FromStr, SplitWhitespace};

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};

/// A route, written as `ip route add` takes it, for instance
/// `2001:db8::/32 nexthop via 2001:db8:1::1 nexthop via 2001:db8:2::1`, `unreachable ::/0 table 100`,
/// `2001:db8:a::1/128 encap seg6 mode encap.red segs 2001:db8:f::1 dev eth0` or
/// `2001:db8:f::1/128 encap seg6local action End.DT6 table 100 dev eth0`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Route {
    /// Destination.
    pub to: IpNet,
    /// What happens to matching packets.
    pub kind: RouteKind,
    /// Routing table; the main one when absent.
    pub table: Option<u32>,
    /// Metric; the kernel's default when absent.
    pub metric: Option<u32>,
    /// Preferred source address.
    pub src: Option<IpAddr>,
}

/// What a route does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RouteKind {
    /// Sends to one of these next hops; never empty.
    Unicast(Vec<NextHop>),
    /// Delivers to this host (`local`), on this device.
    Local(String),
    /// Drops with an ICMP error.
    Unreachable,
    /// Drops silently.
    Blackhole,
}

/// One next hop of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// Neighbour; absent when the destination is on the link.
    pub via: Option<IpAddr>,
    /// Device; may be absent when `via` decides it.
    pub dev: Option<String>,
    /// Encapsulation or decapsulation.
    pub encap: Option<Encap>,
    /// Relative weight, at least 1.
    pub weight: u8,
}

impl Default for NextHop {
    fn default() -> Self {
        Self { via: None, dev: None, encap: None, weight: 1 }
    }
}

/// A lightweight tunnel on a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Encap {
    /// Push an SRv6 outer header (RFC 8986 section 5).
    Seg6 {
        /// With or without a segment routing header for one segment.
        mode: Seg6Mode,
        /// Segments in the order they are visited.
        segments: Vec<Ipv6Addr>,
    },
    /// Act as an SRv6 endpoint (RFC 8986 section 4).
    Seg6Local(Seg6Local),
}

/// How SRv6 encapsulates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seg6Mode {
    /// `encap`: H.Encaps.
    Encap,
    /// `encap.red`: H.Encaps.Red; no segment routing header when there is one segment.
    EncapRed,
}

/// An SRv6 endpoint behaviour.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Seg6Local {
    /// End: to the next segment.
    End,
    /// End.DT6: decapsulate, look up in a table.
    EndDt6 {
        /// Table.
        table: u32,
    },
    /// End.DX6: decapsulate, send to an IPv6 neighbour.
    EndDx6 {
        /// Neighbour.
        nh6: Ipv6Addr,
    },
    /// End.DX4: decapsulate, send to an IPv4 neighbour.
    EndDx4 {
        /// Neighbour.
        nh4: Ipv4Addr,
    },
}

/// A policy rule, written as `ip rule add` takes it: `from 2001:db8::/32 iif eth0 table 100 priority 10`. A rule with no
/// address is for IPv6; `-4` in front makes it one for IPv4.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Rule {
    /// For IPv4 rather than IPv6.
    pub ipv4: bool,
    /// Source prefix.
    pub from: Option<IpNet>,
    /// Destination prefix.
    pub to: Option<IpNet>,
    /// Interface the packet came in on.
    pub iif: Option<String>,
    /// Firewall mark.
    pub fwmark: Option<u32>,
    /// Table to look up.
    pub table: u32,
    /// Order of evaluation, lowest first; the kernel picks one when absent.
    pub priority: Option<u32>,
}

impl Route {
    /// Devices the route names.
    pub fn devices(&self) -> impl Iterator<Item = &str> {
        let (hops, local): (&[NextHop], Option<&String>) = match &self.kind {
            RouteKind::Unicast(hops) => (hops, None),
            RouteKind::Local(dev) => (&[], Some(dev)),
            RouteKind::Unreachable | RouteKind::Blackhole => (&[], None),
        };
        hops.iter().filter_map(|hop| hop.dev.as_deref()).chain(local.map(String::as_str))
    }
}

/// Words of a route or rule, with errors that name the word.
struct Words<'a>(std::iter::Peekable<SplitWhitespace<'a>>);

impl<'a> Words<'a> {
    fn new(text: &'a str) -> Self {
        Self(text.split_whitespace().peekable())
    }
    fn value<T: FromStr>(&mut self, after: &str) -> Result<T, String> {
        let word = self.0.next().ok_or_else(|| format!("nothing follows {after:?}"))?;
        word.parse().map_err(|_| format!("{word:?} cannot stand after {after:?}"))
    }
}

fn prefix(word: &str) -> Result<IpNet, String> {
    let wrong = || format!("{word:?} is not a prefix");
    let net = if word.contains('/') {
        word.parse::<IpNet>().map_err(|_| wrong())?
    } else {
        IpNet::from(word.parse::<IpAddr>().map_err(|_| wrong())?)
    };
    Ok(net.trunc())
}

fn any(ipv4: bool) -> IpNet {
    if ipv4 { IpNet::V4(Ipv4Net::default()) } else { IpNet::V6(Ipv6Net::default()) }
}

impl FromStr for Route {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = Words::new(text);
        let kind = match words.0.peek() {
            Some(&word @ ("unreachable" | "blackhole" | "local" | "unicast")) => {
                words.0.next();
                word
            }
            _ => "unicast",
        };
        let to = words.0.next().ok_or("a route needs a destination")?;
        let to = if to == "default" { None } else { Some(prefix(to)?) };
        let (mut table, mut metric, mut src) = (None, None, None);
        let mut hops = vec![NextHop::default()];
        let mut multipath = false;
        while let Some(word) = words.0.next() {
            let Some(hop) = hops.last_mut() else { break };
            match word {
                "via" => {
                    // iproute2 wants the family of a next hop of the other family spelled out.
                    words.0.next_if(|w| matches!(*w, "inet" | "inet6"));
                    hop.via = Some(words.value(word)?);
                }
                "dev" => hop.dev = Some(words.value(word)?),
                "weight" if multipath => hop.weight = words.value(word)?,
                "encap" => hop.encap = Some(encap(&mut words)?),
                "nexthop" => {
                    if multipath {
                        hops.push(NextHop::default());
                    }
                    multipath = true;
                }
                "table" => table = Some(words.value(word)?),
                "metric" => metric = Some(words.value(word)?),
                "src" => src = Some(words.value(word)?),
                _ => return Err(format!("word {word:?} is not understood")),
            }
        }
        let bare = hops == [NextHop::default()];
        let ipv4_via = hops.iter().find_map(|hop| hop.via).map(|via| via.is_ipv4());
        let to = match (to, ipv4_via) {
            (Some(to), _) => to,
            (None, Some(ipv4)) => any(ipv4),
            (None, None) => return Err("\"default\" has no family here: write ::/0 or 0.0.0.0/0".into()),
        };
        let kind = match kind {
            "unreachable" if bare => RouteKind::Unreachable,
            "blackhole" if bare => RouteKind::Blackhole,
            "unreachable" | "blackhole" => return Err(format!("an {kind} route has no next hop")),
            "local" => match hops.remove(0) {
                NextHop { via: None, dev: Some(dev), encap: None, weight: 1 } => RouteKind::Local(dev),
                _ => return Err("a local route has \"dev\" and no other next hop".into()),
            },
            _ if hops.iter().any(|hop| hop.via.is_none() && hop.dev.is_none()) => {
                return Err("every next hop needs \"via\" or \"dev\"".into());
            }
            _ => RouteKind::Unicast(hops),
        };
        Ok(Self { to, kind, table, metric, src })
    }
}

fn encap(words: &mut Words<'_>) -> Result<Encap, String> {
    match words.value::<String>("encap")?.as_str() {
        "seg6" => {
            let mut mode = Seg6Mode::Encap;
            if words.0.next_if_eq(&"mode").is_some() {
                mode = match words.value::<String>("mode")?.as_str() {
                    "encap" => Seg6Mode::Encap,
                    "encap.red" => Seg6Mode::EncapRed,
                    other => return Err(format!("seg6 mode {other:?} is neither encap nor encap.red")),
                };
            }
            words.0.next_if_eq(&"segs").ok_or("seg6 needs \"segs\"")?;
            let list: String = words.value("segs")?;
            let segments: Result<Vec<Ipv6Addr>, _> = list.split(',').map(str::parse).collect();
            let segments = segments.map_err(|_| format!("{list:?} is not a list of IPv6 segments"))?;
            Ok(Encap::Seg6 { mode, segments })
        }
        "seg6local" => {
            words.0.next_if_eq(&"action").ok_or("seg6local needs \"action\"")?;
            let action: String = words.value("action")?;
            let mut parameter = |name: &str| match words.0.next() {
                Some(word) if word == name => Ok(()),
                _ => Err(format!("{action} needs {name:?}")),
            };
            Ok(Encap::Seg6Local(match action.as_str() {
                "End" => Seg6Local::End,
                "End.DT6" => {
                    parameter("table")?;
                    Seg6Local::EndDt6 { table: words.value("table")? }
                }
                "End.DX6" => {
                    parameter("nh6")?;
                    Seg6Local::EndDx6 { nh6: words.value("nh6")? }
                }
                "End.DX4" => {
                    parameter("nh4")?;
                    Seg6Local::EndDx4 { nh4: words.value("nh4")? }
                }
                _ => {
                    return Err(format!(
                        "seg6local action {action:?} is none of End, End.DT6, End.DX6, End.DX4"
                    ));
                }
            }))
        }
        other => Err(format!("encap {other:?} is neither seg6 nor seg6local")),
    }
}

impl fmt::Display for Encap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Seg6 { mode, segments } => {
                let mode = if *mode == Seg6Mode::Encap { "encap" } else { "encap.red" };
                write!(f, "encap seg6 mode {mode} segs ")?;
                for (i, segment) in segments.iter().enumerate() {
                    write!(f, "{}{segment}", if i == 0 { "" } else { "," })?;
                }
                Ok(())
            }
            Self::Seg6Local(Seg6Local::End) => f.write_str("encap seg6local action End"),
            Self::Seg6Local(Seg6Local::EndDt6 { table }) => {
                write!(f, "encap seg6local action End.DT6 table {table}")
            }
            Self::Seg6Local(Seg6Local::EndDx6 { nh6 }) => {
                write!(f, "encap seg6local action End.DX6 nh6 {nh6}")
            }
            Self::Seg6Local(Seg6Local::EndDx4 { nh4 }) => {
                write!(f, "encap seg6local action End.DX4 nh4 {nh4}")
            }
        }
    }
}

impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.kind {
            RouteKind::Unicast(hops) => {
                write!(f, "{}", self.to)?;
                for hop in hops {
                    if hops.len() > 1 {
                        f.write_str(" nexthop")?;
                    }
                    if let Some(encap) = &hop.encap {
                        write!(f, " {encap}")?;
                    }
                    match hop.via {
                        Some(via @ IpAddr::V6(_)) if matches!(self.to, IpNet::V4(_)) => {
                            write!(f, " via inet6 {via}")?;
                        }
                        Some(via) => write!(f, " via {via}")?,
                        None => {}
                    }
                    if let Some(dev) = &hop.dev {
                        write!(f, " dev {dev}")?;
                    }
                    if hop.weight != 1 {
                        write!(f, " weight {}", hop.weight)?;
                    }
                }
            }
            RouteKind::Local(dev) => write!(f, "local {} dev {dev}", self.to)?,
            RouteKind::Unreachable => write!(f, "unreachable {}", self.to)?,
            RouteKind::Blackhole => write!(f, "blackhole {}", self.to)?,
        }
        if let Some(table) = self.table {
            write!(f, " table {table}")?;
        }
        if let Some(metric) = self.metric {
            write!(f, " metric {metric}")?;
        }
        if let Some(src) = self.src {
            write!(f, " src {src}")?;
        }
        Ok(())
    }
}

impl FromStr for Rule {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut words = Words::new(text);
        let flag4 = words.0.next_if_eq(&"-4").is_some();
        let (mut from, mut to, mut iif, mut fwmark, mut table, mut priority) =
            (None, None, None, None, None, None);
        while let Some(word) = words.0.next() {
            match word {
                "from" if words.0.next_if_eq(&"all").is_some() => {}
                "from" => from = Some(prefix(&words.value::<String>(word)?)?),
                "to" => to = Some(prefix(&words.value::<String>(word)?)?),
                "iif" => iif = Some(words.value(word)?),
                "fwmark" => fwmark = Some(words.value(word)?),
                "table" | "lookup" => table = Some(words.value(word)?),
                "priority" | "pref" => priority = Some(words.value(word)?),
                _ => return Err(format!("word {word:?} is not understood")),
            }
        }
        let families = [from, to].into_iter().flatten().map(|net: IpNet| matches!(net, IpNet::V4(_)));
        let ipv4 = families.clone().next().unwrap_or(flag4);
        if families.into_iter().any(|family| family != ipv4) {
            return Err("the prefixes are of two families".into());
        }
        let table = table.ok_or("a rule needs \"table\"")?;
        Ok(Self { ipv4, from, to, iif, fwmark, table, priority })
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ipv4 && self.from.is_none() && self.to.is_none() {
            f.write_str("-4 ")?;
        }
        match self.from {
            Some(from) => write!(f, "from {from}")?,
            None => f.write_str("from all")?,
        }
        if let Some(to) = self.to {
            write!(f, " to {to}")?;
        }
        if let Some(iif) = &self.iif {
            write!(f, " iif {iif}")?;
        }
        if let Some(fwmark) = self.fwmark {
            write!(f, " fwmark {fwmark}")?;
        }
        write!(f, " table {}", self.table)?;
        if let Some(priority) = self.priority {
            write!(f, " priority {priority}")?;
        }
        Ok(())
    }
}

macro_rules! as_text {
    ($($name:ty)*) => { $(
        impl TryFrom<String> for $name {
            type Error = String;
            fn try_from(text: String) -> Result<Self, String> {
                text.parse()
            }
        }
        impl From<$name> for String {
            fn from(value: $name) -> Self {
                value.to_string()
            }
        }
    )* };
}
as_text!(Route Rule);
