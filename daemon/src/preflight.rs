//! `weir check`'s look at the host: whether a gateway with this configuration can do its job here. Changes nothing.

use std::collections::BTreeMap;
use std::fmt;
use std::net::IpAddr;

use futures_util::TryStreamExt as _;
use netlink_packet_route::address::AddressAttribute;
use netlink_packet_route::link::{LinkAttribute, LinkFlags, LinkXdp};
use serde::Serialize;
use weir_bpf::abi::{ENCAP_LEN, MIN_FABRIC_MTU};

use crate::config::Config;
use crate::dataplane::bpf::{Pins, Root};

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// As it should be.
    Fine,
    /// The gateway works, but not as well as it could.
    Warning,
    /// The gateway cannot work.
    Error,
}

/// One thing looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What was looked at, such as `interface eth1`.
    pub subject: String,
    /// How it is.
    pub severity: Severity,
    /// What was seen.
    pub text: String,
    /// What to do about it; empty when all is well.
    pub remedy: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let label = match self.severity {
            Severity::Fine => "fine",
            Severity::Warning => "warning",
            Severity::Error => "error",
        };
        write!(f, "{label}: {}: {}", self.subject, self.text)?;
        if self.remedy.is_empty() { Ok(()) } else { write!(f, "; {}", self.remedy) }
    }
}

/// An interface as netlink tells it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Link {
    /// Bytes of the largest IP packet.
    pub mtu: u32,
    /// Set up.
    pub up: bool,
    /// Id of its XDP program.
    pub xdp: Option<u32>,
}

/// What of the host matters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// Interfaces by name.
    pub links: BTreeMap<String, Link>,
    /// Addresses of the host.
    pub addresses: Vec<IpAddr>,
    /// Interfaces whose XDP program is the shared root of our own pins.
    pub ours: Vec<String>,
    /// Why the pin path cannot be used.
    pub pins: Option<String>,
    /// Effective capabilities (capabilities(7)), as the kernel's bit mask.
    pub capabilities: u64,
    /// Interfaces whose `forwarding` can neither be found on nor be turned on.
    pub stuck_forwarding: Vec<String>,
}

const CAP_NET_ADMIN: u32 = 12;
const CAP_SYS_ADMIN: u32 = 21;
const CAP_BPF: u32 = 39;

impl Host {
    /// Looks at this host.
    ///
    /// # Errors
    /// When netlink does not answer.
    pub fn look(config: &Config) -> std::io::Result<Self> {
        let (links, addresses) = std::thread::spawn(netlink)
            .join()
            .map_err(|_| std::io::Error::other("the thread that asks netlink failed"))??;
        let pins = Pins::existing(&config.pins);
        let ours = pins.as_ref().map_or_else(
            |_| Vec::new(),
            |pins| {
                interfaces(config)
                    .filter(|i| Root::open(pins, i).is_ok_and(|r| r.attached()))
                    .cloned()
                    .collect()
            },
        );
        let status = std::fs::read_to_string("/proc/self/status")?;
        let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
        let stuck = interfaces(config).filter(|interface| {
            let path = format!("/proc/sys/net/ipv6/conf/{interface}/forwarding");
            let on = std::fs::read_to_string(&path).is_ok_and(|value| value.trim() == "1");
            // Opening for writing changes nothing and fails where a write would.
            !on && std::fs::OpenOptions::new().write(true).open(&path).is_err()
        });
        Ok(Self {
            addresses,
            ours,
            // Not there yet is fine: the gateway makes it.
            pins: pins.err().filter(|_| config.pins.exists()).map(|e| e.to_string()),
            capabilities: mask.and_then(|m| u64::from_str_radix(m.trim(), 16).ok()).unwrap_or(0),
            stuck_forwarding: stuck.cloned().collect(),
            links,
        })
    }
}

fn interfaces(config: &Config) -> impl Iterator<Item = &String> {
    let shared = |name: &&String| !config.uplinks.contains(name);
    config.uplinks.iter().chain(config.fabric.iter().filter(shared))
}

type Seen = (BTreeMap<String, Link>, Vec<IpAddr>);

fn netlink() -> std::io::Result<Seen> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    runtime.block_on(async {
        let (connection, handle, _) = rtnetlink::new_connection()?;
        let task = tokio::spawn(connection);
        let failed = |e: rtnetlink::Error| std::io::Error::other(e.to_string());
        let mut links = BTreeMap::new();
        let mut messages = handle.link().get().execute();
        while let Some(message) = messages.try_next().await.map_err(failed)? {
            let mut link = Link { up: message.header.flags.contains(LinkFlags::Up), ..Link::default() };
            let mut name = String::new();
            for attribute in message.attributes {
                match attribute {
                    LinkAttribute::IfName(text) => name = text,
                    LinkAttribute::Mtu(mtu) => link.mtu = mtu,
                    LinkAttribute::Xdp(parts) => {
                        link.xdp = parts.iter().find_map(|part| match part {
                            LinkXdp::ProgId(id) => Some(*id),
                            _ => None,
                        });
                    }
                    _ => {}
                }
            }
            links.insert(name, link);
        }
        let mut addresses = Vec::new();
        let mut messages = handle.address().get().execute();
        while let Some(message) = messages.try_next().await.map_err(failed)? {
            addresses.extend(message.attributes.into_iter().filter_map(|attribute| match attribute {
                AddressAttribute::Address(address) => Some(address),
                _ => None,
            }));
        }
        task.abort();
        Ok((links, addresses))
    })
}

/// Everything looked at, with what is to be said of it. Pure.
pub fn findings(config: &Config, host: &Host) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut say = |severity, subject: &str, text: String, remedy: String| {
        found.push(Finding { subject: subject.into(), severity, text, remedy });
    };
    let has = |capability: u32| host.capabilities >> capability & 1 == 1;
    let missing: Vec<&str> =
        [("CAP_NET_ADMIN", has(CAP_NET_ADMIN)), ("CAP_BPF", has(CAP_BPF) || has(CAP_SYS_ADMIN))]
            .iter()
            .filter(|(_, held)| !held)
            .map(|(name, _)| *name)
            .collect();
    if missing.is_empty() {
        say(Severity::Fine, "privileges", "CAP_NET_ADMIN and CAP_BPF are held".into(), String::new());
    } else {
        let text = format!("{} missing", missing.join(" and "));
        say(Severity::Error, "privileges", text, "run as root or with these capabilities".into());
    }
    match &host.pins {
        Some(problem) => say(Severity::Error, "pins", problem.clone(), String::new()),
        None => say(Severity::Fine, "pins", format!("{} can be used", config.pins.display()), String::new()),
    }
    for name in interfaces(config) {
        let subject = format!("interface {name}");
        let Some(link) = host.links.get(name) else {
            let remedy = "correct `uplinks` or `fabric`, or run this where the gateway runs".into();
            say(Severity::Error, &subject, "does not exist in this network namespace".into(), remedy);
            continue;
        };
        if !link.up {
            say(Severity::Error, &subject, "is down".into(), format!("ip link set dev {name} up"));
        }
        if let Some(id) = link.xdp.filter(|_| !host.ours.contains(name)) {
            let text = format!("has the XDP program {id}, which is not ours");
            let remedy =
                format!("let its owner use a slot of the shared root, or ip link set dev {name} xdp off");
            say(Severity::Error, &subject, text, remedy);
        }
        if host.stuck_forwarding.contains(name) {
            let remedy =
                format!("set net.ipv6.conf.{name}.forwarding=1, or give the gateway a writable /proc/sys");
            say(Severity::Error, &subject, "forwarding is off and cannot be turned on".into(), remedy);
        }
        say(Severity::Fine, &subject, format!("exists, MTU {}", link.mtu), String::new());
    }
    mtus(config, host, &mut say);
    for peer in config.bgp.iter().flat_map(|bgp| &bgp.peers) {
        let Some(local) = peer.local_address.filter(|a| !host.addresses.contains(a)) else { continue };
        let subject = format!("peer {}", peer.name);
        let text = format!("its localAddress {local} is no address of this host");
        say(Severity::Error, &subject, text, "add the address, or correct localAddress".into());
    }
    found
}

/// Packets that fit the uplink should fit the fabric once encapsulated.
fn mtus(config: &Config, host: &Host, say: &mut impl FnMut(Severity, &str, String, String)) {
    let mtu = |name: &String| host.links.get(name).map(|link| link.mtu);
    let Some(uplink) = config.uplinks.iter().filter_map(mtu).max() else { return };
    for name in &config.fabric {
        let Some(fabric) = mtu(name) else { continue };
        let subject = format!("MTU of {name}");
        if fabric < MIN_FABRIC_MTU {
            let text =
                format!("{fabric} leaves less than 1280 bytes to an IPv6 packet once {ENCAP_LEN} are added");
            say(Severity::Error, &subject, text, format!("raise it to {} or more", uplink + ENCAP_LEN));
        } else if fabric < uplink + ENCAP_LEN {
            let text = format!("{fabric}: packets over {} bytes get a Packet Too Big", fabric - ENCAP_LEN);
            let remedy =
                format!("raise it to {} (the uplinks' {uplink} and {ENCAP_LEN})", uplink + ENCAP_LEN);
            say(Severity::Warning, &subject, text, remedy);
        } else {
            say(
                Severity::Fine,
                &subject,
                format!("{fabric} holds the uplinks' {uplink} and {ENCAP_LEN}"),
                String::new(),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    fn config() -> Config {
        let directory = tempfile::tempdir().unwrap();
        let key = directory.path().join("key");
        std::fs::write(&key, [7; 32]).unwrap();
        std::fs::set_permissions(&key, std::fs::Permissions::from_mode(0o600)).unwrap();
        let path = directory.path().join("weir.yaml");
        let mut file = std::fs::File::create(&path).unwrap();
        writeln!(
            file,
            "node: gw1\nregion: r\nlocator: {{ prefix: \"2001:db8:ff01::/48\", nodeID: 1 }}\nhashKeyFile: {}\nuplinks: [eth1]\nfabric: \
             [eth2]\nobjects: /o\nbgp:\n  asn: 65010\n  routerID: 192.0.2.1\n  peers:\n    - {{ name: tor, address: \
             \"2001:db8::1\", localAddress: \"2001:db8::2\", asn: 65000, role: upstream }}\nadmin: /a\nmetrics: \"[::1]:9464\"\n",
            key.display()
        )
        .unwrap();
        Config::load(&path).unwrap()
    }

    fn host() -> Host {
        let link = |mtu| Link { mtu, up: true, xdp: None };
        Host {
            links: [("eth1".into(), link(1500)), ("eth2".into(), link(1540))].into(),
            addresses: vec!["2001:db8::2".parse().unwrap()],
            capabilities: 1 << CAP_NET_ADMIN | 1 << CAP_BPF,
            ..Host::default()
        }
    }

    fn problems(host: &Host) -> Vec<String> {
        let found = findings(&config(), host);
        found.iter().filter(|f| f.severity > Severity::Fine).map(ToString::to_string).collect()
    }

    #[test]
    fn a_good_host_has_no_problem() {
        assert_eq!(problems(&host()), Vec::<String>::new());
    }

    #[test]
    fn each_fault_of_a_host_is_named_with_its_remedy() {
        let change = |change: fn(&mut Host)| {
            let mut host = host();
            change(&mut host);
            problems(&host).join("\n")
        };
        let cases = [
            (
                change(|h| {
                    h.links.remove("eth2");
                }),
                "error: interface eth2: does not exist in this network namespace; correct `uplinks` or `fabric`, or run this where the \
                 gateway runs",
            ),
            (
                change(|h| h.links.get_mut("eth1").unwrap().up = false),
                "error: interface eth1: is down; ip link set dev eth1 up",
            ),
            (
                change(|h| h.links.get_mut("eth1").unwrap().xdp = Some(42)),
                "error: interface eth1: has the XDP program 42, which is not ours; let its owner use a slot of the shared root, or ip \
                 link set dev eth1 xdp off",
            ),
            (
                change(|h| h.links.get_mut("eth2").unwrap().mtu = 1500),
                "warning: MTU of eth2: 1500: packets over 1460 bytes get a Packet Too Big; raise it to 1540 (the uplinks' 1500 and 40)",
            ),
            (
                change(|h| h.links.get_mut("eth2").unwrap().mtu = 1319),
                "error: MTU of eth2: 1319 leaves less than 1280 bytes to an IPv6 packet once 40 are added; raise it to 1540 or more",
            ),
            (
                change(|h| h.addresses.clear()),
                "error: peer tor: its localAddress 2001:db8::2 is no address of this host; add the address, or correct localAddress",
            ),
            (
                change(|h| h.capabilities = 1 << CAP_NET_ADMIN),
                "error: privileges: CAP_BPF missing; run as root or with these capabilities",
            ),
            (
                change(|h| h.stuck_forwarding.push("eth1".into())),
                "error: interface eth1: forwarding is off and cannot be turned on; set net.ipv6.conf.eth1.forwarding=1, or give the \
                 gateway a writable /proc/sys",
            ),
        ];
        for (found, wanted) in cases {
            assert_eq!(found, wanted);
        }
    }

    #[test]
    fn our_own_root_is_no_foreign_program() {
        let mut host = host();
        host.links.get_mut("eth1").unwrap().xdp = Some(42);
        host.ours.push("eth1".into());
        assert_eq!(problems(&host), Vec::<String>::new());
    }
}
