//! A gateway between an FRR and a BIRD router, and the speaker running in it.
#![allow(clippy::unwrap_used, reason = "helpers of tests")]

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use labkit::role::frr::Frr;
use labkit::topology::{FrrDaemon, Process, Ready, Topology};
use labkit::wait::{check, eventually};
use labkit::{Lab, NodeHandle};
use tokio::sync::oneshot;
use weir::route::bgp::{Bgp, Start};
use weir::route::{
    EndOfRib, Forwarding, Handle, LargeCommunity, Leave, Password, PeerConfig, PeerRole, PeerState,
    PeerStatus, RouteAttributes, RoutePlan, SpeakerConfig,
};

/// Generous: only a hang is longer.
pub(crate) const SOON: Duration = Duration::from_secs(30);
/// The gateway's address towards FRR, and FRR's.
pub(crate) const FRR: (&str, &str) = ("2001:db8:11::2", "2001:db8:11::1");
/// The gateway's address towards BIRD, and BIRD's.
pub(crate) const BIRD: (&str, &str) = ("2001:db8:12::2", "2001:db8:12::1");
/// The same for sessions over IPv4, and for next hops of IPv4 routes.
pub(crate) const FRR_V4: (&str, &str) = ("192.0.2.2", "192.0.2.1");
pub(crate) const BIRD_V4: (&str, &str) = ("192.0.2.6", "192.0.2.5");
/// The password of both sessions.
pub(crate) const PASSWORD: &str = "correct-horse";
/// The gateway's locator.
pub(crate) const LOCATOR: &str = "2001:db8:ff01:1::/64";

/// How the gateway and its routers come to speak of both families.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    /// Over IPv6; IPv4 routes have IPv6 next hops (RFC 8950).
    Ipv6,
    /// Over IPv6 with routers that lack RFC 8950: IPv4 routes have the configured next hop.
    Ipv6WithNextHop,
    /// Over IPv4; IPv6 routes have the configured next hop.
    Ipv4,
}

impl Transport {
    /// The gateway's address towards a router and the router's own, of the session.
    pub(crate) fn ends(self, router: &str) -> (&'static str, &'static str) {
        match (self, router) {
            (Self::Ipv4, "frr") => FRR_V4,
            (Self::Ipv4, _) => BIRD_V4,
            (_, "frr") => FRR,
            _ => BIRD,
        }
    }
    /// The next hop that a router must see on routes of a family.
    pub(crate) fn next_hop(self, router: &str, ipv4: bool) -> IpAddr {
        let v4 = if router == "frr" { FRR_V4 } else { BIRD_V4 };
        let v6 = if router == "frr" { FRR } else { BIRD };
        let ends = if ipv4 && self != Self::Ipv6 { v4 } else { v6 };
        ends.0.parse().unwrap()
    }
}

/// FRR's side of the session.
pub(crate) fn frr_config(transport: Transport) -> String {
    let gw = transport.ends("frr").0;
    let extended = match transport {
        Transport::Ipv6 => format!("neighbor {gw} capability extended-nexthop\n "),
        _ => String::new(),
    };
    format!(
        "router bgp 65000\n bgp router-id 10.0.0.1\n no bgp ebgp-requires-policy\n no bgp default ipv4-unicast\n \
         bgp graceful-restart notification\n \
         neighbor {gw} remote-as 65010\n neighbor {gw} password {PASSWORD}\n neighbor {gw} ttl-security hops 1\n \
         neighbor {gw} timers 3 9\n neighbor {gw} timers connect 1\n {extended}\
         address-family ipv4 unicast\n  neighbor {gw} activate\n exit-address-family\n \
         address-family ipv6 unicast\n  neighbor {gw} activate\n  neighbor {gw} soft-reconfiguration inbound\n \
         exit-address-family\nexit\n"
    )
}

fn bird_config(transport: Transport) -> String {
    let (gw, own) = transport.ends("bird");
    let extended = if transport == Transport::Ipv6 { "extended next hop on; " } else { "" };
    format!(
        "router id 10.0.0.2;\nlog stderr all;\nprotocol device {{}}\n\
         protocol kernel {{ ipv6 {{ export all; import none; }}; }}\n\
         protocol kernel {{ ipv4 {{ export all; import none; }}; }}\n\
         protocol bgp edge {{ local {own} as 65000; neighbor {gw} as 65010; password \"{PASSWORD}\"; ttl security yes; \
         graceful restart on; hold time 9; startup hold time 5; error wait time 1, 2; connect delay time 1; \
         ipv6 {{ import all; export none; }}; ipv4 {{ {extended}import all; export none; }}; }}\n"
    )
}

/// `gw` with `frr` on eth0 and `bird` on eth1.
pub(crate) fn topology(name: &str, transport: Transport) -> Topology {
    let [frr, frr_v4, bird, bird_v4] = [FRR, FRR_V4, BIRD, BIRD_V4]
        .map(|ends| [ends.0, ends.1].map(|a| format!("{a}/{}", if a.contains(':') { 64 } else { 30 })));
    Topology::build(name, |t| {
        t.node("gw")
            .address("eth0", &frr[0])
            .address("eth0", &frr_v4[0])
            .address("eth1", &bird[0])
            .address("eth1", &bird_v4[0]);
        t.node("frr")
            .address("eth0", &frr[1])
            .address("eth0", &frr_v4[1])
            .frr(&[FrrDaemon::Bgpd], frr_config(transport));
        let bird = t.node("bird").address("eth0", &bird[1]).address("eth0", &bird_v4[1]);
        let _ = bird.file("bird.conf", bird_config(transport)).process(Process {
            name: "bird".into(),
            command: ["bird", "-f", "-c", "bird.conf", "-s", "bird.ctl", "-P", "bird.pid"]
                .map(String::from)
                .to_vec(),
            env: BTreeMap::default(),
            ready: Some(Ready::log("Started")),
        });
        t.link("gw:eth0", "frr:eth0", 1500);
        t.link("gw:eth1", "bird:eth0", 1500);
    })
    .unwrap()
}

/// The lab and its nodes.
pub(crate) struct Routers {
    _lab: Lab,
    pub(crate) gw: NodeHandle,
    pub(crate) frr: NodeHandle,
    pub(crate) bird: NodeHandle,
}

impl Routers {
    pub(crate) fn up(name: &str) -> Self {
        Self::over(name, Transport::Ipv6)
    }
    pub(crate) fn over(name: &str, transport: Transport) -> Self {
        let lab = Lab::up(&topology(name, transport)).unwrap();
        let node = |name| lab.node(name).unwrap();
        Self { gw: node("gw"), frr: node("frr"), bird: node("bird"), _lab: lab }
    }
    pub(crate) fn vtysh(&self) -> Frr {
        Frr::of(&self.frr)
    }
    /// What BIRD's own client prints.
    pub(crate) fn birdc(&self, command: &str) -> String {
        self.bird.run(["birdc", "-s", "bird.ctl"].into_iter().chain(command.split(' '))).unwrap()
    }
}

fn peer(name: &str, (local, address): (&str, &str)) -> PeerConfig {
    PeerConfig {
        name: name.into(),
        address: address.parse().unwrap(),
        port: 179,
        local_address: local.parse().unwrap(),
        next_hop_ipv4: None,
        next_hop_ipv6: None,
        asn: 65000,
        role: PeerRole::Upstream,
        password: Password::new(PASSWORD),
        gtsm: true,
        export_vips: false,
        max_prefixes: 100,
    }
}

/// Both routers as upstream peers.
pub(crate) fn config() -> SpeakerConfig {
    config_over(Transport::Ipv6)
}

/// As [`config`], over another transport.
pub(crate) fn config_over(transport: Transport) -> SpeakerConfig {
    let peer = |name: &str, v4: &str, v6: &str| PeerConfig {
        next_hop_ipv4: (transport == Transport::Ipv6WithNextHop).then(|| v4.parse().unwrap()),
        next_hop_ipv6: (transport == Transport::Ipv4).then(|| v6.parse().unwrap()),
        ..peer(name, transport.ends(name))
    };
    SpeakerConfig {
        asn: 65010,
        router_id: Ipv4Addr::new(192, 0, 2, 11),
        hold_time: 9,
        connect_retry: Duration::from_secs(5),
        restart_time: Some(20),
        send_hold_time: None,
        peers: vec![peer("frr", FRR_V4.0, FRR.0), peer("bird", BIRD_V4.0, BIRD.0)],
    }
}

/// The n-th VIP's prefix.
pub(crate) fn vip(n: u32) -> String {
    format!("2001:db8:f00::{:x}:{:x}/128", n >> 16, n & 0xffff)
}

/// The n-th IPv4 VIP's prefix.
pub(crate) fn vip_v4(n: u32) -> String {
    format!("203.0.113.{n}/32")
}

/// A plan that announces VIPs and the locator.
pub(crate) fn plan(revision: u64, vips: impl IntoIterator<Item = u32>, end_of_rib: EndOfRib) -> RoutePlan {
    plan_of(revision, vips.into_iter().map(vip).collect(), end_of_rib)
}

/// A plan that announces these prefixes as VIPs, and the locator.
pub(crate) fn plan_of(revision: u64, vips: Vec<String>, end_of_rib: EndOfRib) -> RoutePlan {
    let large = BTreeSet::from([LargeCommunity(65010, 1, 7)]);
    let attributes = Arc::new(RouteAttributes { communities: BTreeSet::new(), large });
    let routes = |prefixes: Vec<String>| {
        Arc::new(prefixes.iter().map(|p| (p.parse().unwrap(), Arc::clone(&attributes))).collect())
    };
    RoutePlan {
        revision,
        vips: routes(vips),
        node: routes(vec![LOCATOR.into()]),
        end_of_rib,
        forwarding: Forwarding::Preserved,
    }
}

/// A speaker on a thread inside the gateway.
pub(crate) struct Speaker {
    pub(crate) handle: Handle<SpeakerConfig>,
    stop: oneshot::Sender<()>,
    thread: thread::JoinHandle<()>,
}

impl Speaker {
    pub(crate) fn start(gw: &NodeHandle, config: SpeakerConfig, start: Start) -> Self {
        let netns = gw.netns().clone();
        let (handle_tx, handle_rx) = std::sync::mpsc::channel();
        let (stop, stopped) = oneshot::channel();
        let thread = thread::spawn(move || {
            netns.enter().unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async move {
                handle_tx.send(Handle::spawn(Bgp::new(config, start))).unwrap();
                let _ = stopped.await;
            });
        });
        Self { handle: handle_rx.recv().unwrap(), stop, thread }
    }

    /// Ends every task where it stands, as `kill -9` does: the kernel closes the sockets.
    pub(crate) fn kill(self) {
        self.stop.send(()).unwrap();
        self.thread.join().unwrap();
    }

    /// Stops for a restart.
    pub(crate) fn restart(self) {
        wait(self.handle.restart());
        self.stop.send(()).unwrap();
        self.thread.join().unwrap();
    }

    /// Leaves for good.
    pub(crate) fn leave(self, leave: Leave) {
        wait(self.handle.leave(leave));
        self.stop.send(()).unwrap();
        self.thread.join().unwrap();
    }

    pub(crate) fn peer(&self, name: &str) -> Option<PeerStatus> {
        self.handle.status().borrow().peers.get(name).cloned()
    }

    /// Waits until a peer's status is as wanted, and returns it.
    pub(crate) fn until(&self, name: &str, what: &str, holds: impl Fn(&PeerStatus) -> bool) -> PeerStatus {
        eventually(&format!("peer {name}: {what}"), SOON, || {
            let status = self.peer(name).ok_or("no status")?;
            if holds(&status) { Ok(status) } else { Err(format!("{status:?}")) }
        })
        .unwrap()
    }

    pub(crate) fn until_established(&self) {
        for name in ["frr", "bird"] {
            self.until(name, "established", |s| s.state == PeerState::Established);
        }
    }

    /// Waits until a plan's revision is settled.
    pub(crate) fn until_settled(&self, revision: u64) {
        eventually(&format!("revision {revision} is settled"), SOON, || {
            let settled = self.handle.status().borrow().settled;
            check(settled >= revision, || format!("{settled} is"))
        })
        .unwrap();
    }
}

fn wait(future: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future);
}
