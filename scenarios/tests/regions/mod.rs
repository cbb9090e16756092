//! Two regions whose fabrics are joined: a VIP is known in its own region only, by the gateways' filters and the routers'
//! policy that Weir ships.
//!
//! ```text
//! client ── edge ── gw1 ── spine ══ spine-2 ── gw1-2 ── edge-2 ── client-2
//!            └───────────────┘         └──────────────────┘
//! ```
//!
//! All routers re-export what they learn. Five settings are tried one after the other; in two of them the VIP leaks.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use labkit::Lab;
use labkit::capture::Capture;
use labkit::expect::expect;
use labkit::packet::matcher;
use labkit::role::frr::Frr;
use labkit::topology::{FrrDaemon, Topology};
use labkit::wait::eventually;
use nix::sys::signal::Signal;
use scenarios::region::{
    A, BGP_PASSWORD, FAMILIES, Family, Ipv4Routes, Live, PORT, Region, SOON, addressed_to,
};
use weir::route::LargeCommunity;

/// Route maps of a router: peer group, name, direction.
type Maps = &'static [(&'static str, &'static str, &'static str)];
const EDGE: Maps = &[
    ("GATEWAYS", "FROM-GATEWAYS", "in"),
    ("GATEWAYS", "TO-GATEWAYS", "out"),
    ("FABRIC", "FROM-FABRIC", "in"),
    ("FABRIC", "TO-FABRIC", "out"),
];
const SPINE: Maps = &[
    ("GATEWAYS", "FROM-GATEWAYS", "in"),
    ("GATEWAYS", "TO-GATEWAYS", "out"),
    ("MESH", "MESH", "in"),
    ("MESH", "MESH", "out"),
    ("UPSTREAM", "UPSTREAM", "in"),
    ("UPSTREAM", "UPSTREAM", "out"),
];

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples")
}

fn example(name: &str) -> String {
    std::fs::read_to_string(examples().join(name)).unwrap()
}

/// A shipped example with a site's values in the place of its own; each of its values must be there.
fn adapted(name: &str, values: &[(&str, String)]) -> String {
    values.iter().fold(example(name), |text, (own, site)| {
        assert!(text.contains(own), "{name} has no {own}");
        text.replace(own, site)
    })
}

fn region(number: u16) -> Region {
    let ipv4_routes = Ipv4Routes::Extended;
    Region { number, gateways: 1, workers: 1, ipv4_routes, ..Region::default() }
}

fn mesh_address(number: u16) -> String {
    format!("2001:db8:fab::{number}")
}

/// What the lab adds to an example: impatience, the right to announce networks that are not there, and a fabric that carries IPv4.
fn additions(asn: u32, groups: &[&str]) -> String {
    let mut text = format!("router bgp {asn}\n no bgp network import-check\n neighbor GATEWAYS passive\n");
    for group in groups {
        text += &format!(" neighbor {group} timers connect 1\n");
    }
    for group in groups.iter().chain(&["GATEWAYS"]) {
        text += &format!(" neighbor {group} capability extended-nexthop\n");
    }
    text += " address-family ipv4 unicast\n";
    for group in groups.iter().chain(&["GATEWAYS"]) {
        text += &format!("  neighbor {group} activate\n");
    }
    text + " exit-address-family\nexit\n"
}

fn edge_config(r: &Region) -> String {
    let n = r.number;
    let community = LargeCommunity::of_region(r.gateway_as(), &r.region()).to_string();
    let values = [
        ("65010:1:2623427234", community),
        ("2001:db8:64::/48", format!("2001:db8:{n}aa::/48")),
        ("203.0.113.0/24 ge 32", format!("203.0.113.{}/25 ge 32", 128 * (n - 1))),
        ("router bgp 65000", format!("router bgp {}", r.edge_as())),
        ("router-id 192.0.2.1", format!("router-id 192.0.2.{n}1")),
        ("GATEWAYS remote-as 65010", format!("GATEWAYS remote-as {}", r.gateway_as())),
        ("FABRIC remote-as 65001", format!("FABRIC remote-as {}", r.spine_as())),
        ("change-me", BGP_PASSWORD.into()),
        ("2001:db8:11::2", r.gateway_uplink(1)),
        ("2001:db8:19::2", format!("2001:db8:{n}90::2")),
    ];
    adapted("frr-upstream.conf", &values) + &additions(r.edge_as(), &["FABRIC"])
}

fn spine_config(r: &Region, other: &Region) -> String {
    let n = r.number;
    let community = LargeCommunity::of_region(r.gateway_as(), &r.region()).to_string();
    let values = [
        ("65010:1:2623427234", community),
        ("2001:db8:ff01::/48", r.block()),
        ("router bgp 65001", format!("router bgp {}", r.spine_as())),
        ("router-id 192.0.2.2", format!("router-id 192.0.2.{n}2")),
        ("GATEWAYS remote-as 65010", format!("GATEWAYS remote-as {}", r.gateway_as())),
        ("MESH remote-as 65101", format!("MESH remote-as {}", other.spine_as())),
        ("UPSTREAM remote-as 65000", format!("UPSTREAM remote-as {}", r.edge_as())),
        ("change-me", BGP_PASSWORD.into()),
        ("2001:db8:21::2", r.gateway_fabric(1)),
        ("2001:db8:29::2", mesh_address(other.number)),
        ("2001:db8:19::1", format!("2001:db8:{n}90::1")),
    ];
    adapted("frr-fabric.conf", &values) + &additions(r.spine_as(), &["MESH", "UPSTREAM"])
}

fn topology() -> Topology {
    let regions = [region(1), region(2)];
    Topology::build("regions", |t| {
        for (r, other) in [(&regions[0], &regions[1]), (&regions[1], &regions[0])] {
            r.build(t);
            t.node(&r.name("spine")).address("mesh", &format!("{}/64", mesh_address(r.number)));
            t.node(&r.name("edge")).frr(&[FrrDaemon::Bgpd], edge_config(r));
            t.node(&r.name("spine")).frr(&[FrrDaemon::Bgpd], spine_config(r, other));
        }
        t.link("spine:mesh", "spine-2:mesh", 1600);
    })
    .unwrap()
}

/// Puts a router's policy in force or takes it away whole.
fn policy(router: &Frr, asn: u32, maps: Maps, on: bool) {
    let no = if on { "" } else { "no " };
    let mut text = format!("router bgp {asn}\n {no}bgp ebgp-requires-policy\n");
    for family in ["ipv4", "ipv6"] {
        text += &format!(" address-family {family} unicast\n");
        for (group, map, direction) in maps {
            text += &format!("  {no}neighbor {group} route-map {map} {direction}\n");
        }
        text += " exit-address-family\n";
    }
    router.configure(&(text + "exit\n")).unwrap();
    for family in ["ipv4", "ipv6"] {
        router.vtysh(&format!("clear bgp {family} unicast * soft")).unwrap();
    }
}

struct Regions {
    first: Live,
    second: Live,
    markers: std::cell::Cell<u16>,
}

impl Regions {
    /// The first region's internet router.
    fn edge(&self, on: bool) {
        policy(&self.first.frr("edge").unwrap(), self.first.region.edge_as(), EDGE, on);
    }

    /// Everything but the first region's internet router.
    fn others(&self, on: bool) {
        policy(&self.second.frr("edge").unwrap(), self.second.region.edge_as(), EDGE, on);
        for live in [&self.first, &self.second] {
            policy(&live.frr("spine").unwrap(), live.region.spine_as(), SPINE, on);
        }
    }

    /// Makes the first region's gateway tell the fabric its VIPs, or stop.
    fn export_vips(&self, on: bool) {
        let gateway = self.first.gateway(1).unwrap();
        let text = gateway.read_file("weir.yaml").unwrap().replace("exportVIPs: true, ", "");
        let text = if on { text.replace("role: fabric, ", "role: fabric, exportVIPs: true, ") } else { text };
        gateway.replace_file("weir.yaml", text).unwrap();
        gateway.process("weir").unwrap().signal(Signal::SIGHUP).unwrap();
        let role = if on { "fabric-with-vips" } else { "fabric" };
        eventually("the spine is told by its new role", SOON, || {
            let status = self.first.status(1).map_err(|e| e.to_string())?;
            let mut peers = status["peers"].as_array().into_iter().flatten();
            let done = peers.any(|p| p["name"] == "spine" && p["role"] == role && p["synced"] == true);
            if done { Ok(()) } else { Err(status["peers"].to_string()) }
        })
        .unwrap();
    }

    /// Waits until what the first region's routers and gateway say now has gone all the way: a prefix that its internet
    /// router announces afresh is known to the other's, and the gateway's locator to the other fabric.
    fn settle(&self) {
        let number = self.markers.get() + 1;
        self.markers.set(number);
        let edge = self.first.frr("edge").unwrap();
        let asn = self.first.region.edge_as();
        for (family, marker) in
            [("ipv6", format!("2001:db8:face:{number}::/64")), ("ipv4", format!("198.18.{number}.0/24"))]
        {
            let lines = format!("router bgp {asn}\n address-family {family} unicast\n  network {marker}\n");
            edge.configure(&(lines + " exit-address-family\nexit\n")).unwrap();
            self.second.frr("edge").unwrap().wait_bgp_paths(&marker, 1, SOON).unwrap();
        }
        let locator = self.first.region.gateway_locator(1);
        self.second.frr("spine").unwrap().wait_bgp_paths(&locator, 1, SOON).unwrap();
    }

    /// The paths that the other region's routers know to the first one's VIPs.
    fn known_elsewhere(&self) -> Vec<String> {
        let mut known = Vec::new();
        for router in ["edge", "spine"] {
            for (tenant, family, _) in self.first.services() {
                let vip = self.first.region.vip_route(tenant, family);
                for path in self.second.frr(router).unwrap().bgp_paths(&vip).unwrap() {
                    known.push(format!("{router}-2 to {vip}: {path}"));
                }
            }
        }
        known
    }

    /// Sends a packet from the other region's client to the first one's VIP; what comes back to the client, and what
    /// reaches the pod, is in the captures.
    fn send(&self, family: Family) -> (Capture, Capture) {
        let pod = self.first.capture("w1-a", "eth0").unwrap();
        let at_client = self.second.capture("client", "eth0").unwrap();
        let from = self.second.sender("client", "eth0").unwrap();
        let client = self.second.region.client_of(family).parse().unwrap();
        let vip = self.first.vip_of(A, family);
        from.send(&from.udp(client, vip, (7, PORT)).payload(b"from elsewhere")).unwrap();
        (at_client, pod)
    }

    /// Waits until the other region has let go of what it had learned.
    fn forgotten(&self) {
        eventually("the other region forgets the VIPs", SOON, || {
            let known = self.known_elsewhere();
            if known.is_empty() { Ok(()) } else { Err(known.join("\n")) }
        })
        .unwrap();
        // The kernel is told a moment later.
        let edge = self.second.node("edge").unwrap();
        eventually("no route to a VIP is left", SOON, || {
            let routes = edge.sh("ip -6 route show; ip -4 route show").map_err(|e| e.to_string())?;
            let left = self.first.services().iter().any(|s| routes.contains(&s.2.ip().to_string()));
            if left { Err(routes) } else { Ok(()) }
        })
        .unwrap();
    }

    fn kept(&self, setting: &str) {
        self.settle();
        let known = self.known_elsewhere();
        assert!(known.is_empty(), "{setting}: {}", known.join("\n"));
        for family in FAMILIES {
            let (at_client, pod) = self.send(family);
            // Its own internet router says that there is no way.
            expect(&at_client).within(SOON).packet(matcher::icmp_type(family.pick(3, 1))).unwrap();
            let arrived = pod.tap().frames();
            assert!(arrived.is_empty(), "{setting}: {}", arrived[0].layers());
        }
    }

    /// `by` are the AS numbers that pass the VIP on, the nearest first.
    fn leaks(&self, setting: &str, by: &[u32]) {
        let wanted = by.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ");
        for family in FAMILIES {
            let vip = self.first.region.vip_route(A, family);
            eventually(&format!("{vip} leaks: {setting}"), SOON, || {
                let paths = self.second.frr("edge").unwrap().bgp_paths(&vip).map_err(|e| e.to_string())?;
                let leaked = paths.iter().any(|path| path["aspath"]["string"] == wanted.as_str());
                if leaked { Ok(()) } else { Err(format!("no path {wanted}: {paths:?}")) }
            })
            .unwrap();
            self.second.node("edge").unwrap().wait_route(&vip, 1, SOON).unwrap();
            let (_, pod) = self.send(family);
            expect(&pod).within(SOON).packet(addressed_to(self.first.vip_of(A, family))).unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_vip_stays_in_its_region_by_router_policy_and_gateway_filters_and_leaks_without_them() {
    let lab = Arc::new(Lab::up(&topology()).unwrap());
    let [first, second] = [1, 2].map(|n| Live::beside(&lab, region(n)).unwrap());
    for live in [&first, &second] {
        live.start_gateway(1).unwrap();
    }
    for live in [&first, &second] {
        live.wait_ready().unwrap();
    }
    let regions = Regions { first, second, markers: 0.into() };
    let [one, two] = [region(1), region(2)];
    let mesh = [two.spine_as(), one.spine_as()];

    regions.kept("as shipped");
    // The gateway tells the fabric nothing of VIPs, though nobody there would stop them.
    regions.others(false);
    regions.kept("the gateways' own filter alone");
    regions.export_vips(true);
    regions.leaks("neither filter nor policy in the fabric", &[mesh[0], mesh[1], one.gateway_as()]);
    // A gateway cannot stop its internet router from passing on what it must tell it.
    regions.export_vips(false);
    regions.edge(false);
    regions.leaks("filter, but no policy anywhere", &[mesh[0], mesh[1], one.edge_as(), one.gateway_as()]);
    regions.export_vips(true);
    regions.leaks("neither filter nor policy anywhere", &[mesh[0], mesh[1], one.gateway_as()]);
    regions.edge(true);
    regions.others(true);
    regions.forgotten();
    regions.kept("policy alone, against a gateway that tells the fabric everything");
}

#[test]
fn the_bird_example_is_accepted_by_bird() {
    let Some(bird) = ["/usr/sbin/bird", "/usr/bin/bird"].into_iter().find(|b| Path::new(b).exists()) else {
        return labkit::skip::skip("the_bird_example_is_accepted_by_bird", "bird is not installed");
    };
    let accepts = |path: &Path| {
        let output = Command::new(bird).arg("-p").arg("-c").arg(path).output().unwrap();
        (output.status.success(), String::from_utf8_lossy(&output.stderr).into_owned())
    };
    let (accepted, problem) = accepts(&examples().join("bird-upstream.conf"));
    assert!(accepted, "{problem}");
    // It does look: the same with a word misspelt is refused.
    let directory = tempfile::tempdir().unwrap();
    let broken = directory.path().join("bird.conf");
    std::fs::write(&broken, example("bird-upstream.conf").replace("import filter", "import filler")).unwrap();
    assert!(!accepts(&broken).0);
}
