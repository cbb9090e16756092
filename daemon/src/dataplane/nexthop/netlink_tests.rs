//! The task against a real kernel, in network namespaces of its own. Needs root and iproute2.

use std::net::Ipv6Addr;
use std::process::Command;
use std::thread;
use std::time::Duration;

use nix::sched::{CloneFlags, unshare};
use tokio::time::timeout;

use super::super::fib::{Resolution, ResolvedHop};
use super::*;

const LONG: Duration = Duration::from_secs(30);
const SID: &str = "2001:db8:ff01:2:e001::";

/// Two namespaces joined by two links: ea, eb here and ea1, eb1 in the peer.
struct Lab {
    /// Path of the peer's namespace; its thread ends when the sender is dropped.
    peer: String,
    _alive: std::sync::mpsc::Sender<()>,
}

impl Lab {
    /// Puts the calling thread into a namespace of its own; commands started from it are there too.
    fn enter() -> Self {
        let (alive, end) = std::sync::mpsc::channel::<()>();
        let (tell, told) = std::sync::mpsc::channel();
        thread::spawn(move || {
            unshare(CloneFlags::CLONE_NEWNET).unwrap();
            let tid = nix::unistd::gettid();
            tell.send(format!("/proc/{}/task/{tid}/ns/net", std::process::id())).unwrap();
            let _ = end.recv();
        });
        let peer = told.recv().unwrap();
        unshare(CloneFlags::CLONE_NEWNET).unwrap();
        let tid = peer.split('/').nth(4).unwrap().to_owned();
        let lab = Self { peer, _alive: alive };
        // keep_addr_on_down: else addresses, and with them routes, would have to be set again after a link flap.
        let sysctls = "sysctl -qw net.ipv6.conf.all.keep_addr_on_down=1 net.ipv6.conf.default.accept_dad=0 \
                       net.ipv6.conf.default.accept_ra=0";
        here(sysctls);
        lab.there(sysctls);
        for link in ["ea", "eb"] {
            here(&format!(
                "ip link add {link} type veth peer name {link}1 netns {tid} && \
                 ip -6 addr add fd00:{link}::1/64 dev {link} nodad && ip link set {link} up"
            ));
            lab.there(&format!(
                "ip -6 addr add fd00:{link}::2/64 dev {link}1 nodad && ip link set {link}1 up"
            ));
        }
        lab
    }

    fn there(&self, script: &str) -> String {
        run(Command::new("nsenter").arg(format!("--net={}", self.peer)).args(["sh", "-ec", script]), script)
    }

    /// The next hop over a link as the kernel's own tools tell it.
    fn hop(&self, link: &str) -> ResolvedHop {
        let show = |text: String| -> (u32, [u8; 6], u32) {
            let fields: Vec<&str> = text.split_whitespace().collect();
            let mac: Vec<u8> = fields[1].split(':').map(|b| u8::from_str_radix(b, 16).unwrap()).collect();
            (fields[0].parse().unwrap(), mac.try_into().unwrap(), fields[2].parse().unwrap())
        };
        // Not from /sys: a mount of it shows the namespace that it was made in.
        let ip = |l: &str| {
            format!(
                "ip -o link show dev {l} | sed -E 's/^([0-9]+): .* mtu ([0-9]+) .* link.ether ([0-9a-f:]+) .*/\\1 \\3 \\2/'"
            )
        };
        let (ifindex, own, mtu) = show(here(&ip(link)));
        let (_, peer, _) = show(self.there(&ip(&format!("{link}1"))));
        let mut macs = [0; 12];
        macs[..6].copy_from_slice(&peer);
        macs[6..].copy_from_slice(&own);
        ResolvedHop { ifindex, macs, mtu }
    }
}

fn here(script: &str) -> String {
    run(Command::new("sh").args(["-ec", script]), script)
}

fn run(command: &mut Command, script: &str) -> String {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn sid() -> Sid {
    Sid(SID.parse().unwrap())
}

/// Runs a test in a lab, on a runtime whose only thread is in the lab's namespace.
fn in_lab<F: Future<Output = ()>>(test: impl FnOnce(Lab) -> F + Send + 'static) {
    let body = move || {
        let lab = Lab::enter();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(test(lab));
    };
    if let Err(panic) = thread::spawn(body).join() {
        std::panic::resume_unwind(panic);
    }
}

fn monitor() -> (Monitor, Follow) {
    let (monitor, updates) = Monitor::spawn(["ea", "eb"].map(str::to_owned).into());
    (monitor, Follow { updates, now: Changes::new() })
}

/// What the task has told so far.
struct Follow {
    updates: mpsc::Receiver<NextHopUpdate>,
    now: Changes,
}

impl Follow {
    /// Waits until the SID's hops are these and none is pending.
    async fn until(&mut self, what: &str, hops: &[ResolvedHop]) {
        let mut hops = hops.to_vec();
        hops.sort();
        let want = Resolution { hops, pending: Vec::new() };
        let wait = async {
            while self.now.get(&sid()) != Some(&want) {
                self.now.extend(self.updates.recv().await.expect("the task lives").changed);
            }
        };
        let done = timeout(LONG, wait).await.is_ok();
        let kernel = || here("ip -6 route; ip -6 neigh; ip link");
        assert!(done, "{what}: want {want:#?}\ntold {:#?}\n{}", self.now, kernel());
    }
}

/// Waits until a command prints something that passes.
async fn eventually(script: &str, passes: impl Fn(&str) -> bool) {
    let wait = async {
        while !passes(&here(script)) {
            sleep(Duration::from_millis(20)).await;
        }
    };
    assert!(timeout(LONG, wait).await.is_ok(), "{script}: {}", here(script));
}

#[test]
fn follows_routes_links_and_multipath_without_any_traffic() {
    in_lab(|lab| async move {
        let (monitor, mut follow) = monitor();
        monitor.watch([sid()].into());
        follow.until("no route", &[]).await;

        let (a, b) = (lab.hop("ea"), lab.hop("eb"));
        assert_eq!(a.mtu, 1500);
        here("ip -6 route add 2001:db8:ff01:2::/64 via fd00:ea::2");
        follow.until("a route", &[a]).await;
        here("ip -6 route append 2001:db8:ff01:2::/64 via fd00:eb::2");
        follow.until("a second gateway", &[a, b]).await;
        here("ip link set ea down");
        follow.until("link down", &[b]).await;
        here("ip link set ea up");
        follow.until("link up again", &[a, b]).await;
        lab.there("ip link set eb1 down");
        follow.until("carrier lost", &[a]).await;
        lab.there("ip link set eb1 up");
        follow.until("carrier back", &[a, b]).await;
        here("ip -6 route replace 2001:db8:ff01:2::/64 via fd00:eb::2");
        follow.until("route replaced", &[b]).await;
        here("ip link set eb mtu 1400");
        follow.until("link's MTU", &[ResolvedHop { mtu: 1400, ..b }]).await;
        here("ip link set eb mtu 1500 && ip -6 route replace 2001:db8:ff01:2::/64 via fd00:eb::2 mtu 1380");
        follow.until("route's MTU", &[ResolvedHop { mtu: 1380, ..b }]).await;
        here(
            "ip -6 route replace 2001:db8:ff01:2::/64 nexthop via fd00:ea::2 weight 2 nexthop via fd00:eb::2",
        );
        follow.until("weights", &[a, a, b]).await;
        here("ip -6 route del 2001:db8:ff01:2::/64 via fd00:ea::2 dev ea");
        follow.until("a gateway removed", &[b]).await;
        here("ip -6 route add unreachable 2001:db8:ff01:2:e000::/68");
        follow.until("unreachable", &[]).await;
        here("ip -6 route del unreachable 2001:db8:ff01:2:e000::/68");
        follow.until("reachable again", &[b]).await;
        here("ip -6 route del 2001:db8:ff01:2::/64");
        follow.until("route gone", &[]).await;
        here("ip -6 route add 2001:db8::/32 dev eb && ip -6 route replace 2001:db8::/32 via fd00:ea::2");
        follow.until("an on-link route replaced", &[a]).await;
        here("ip -6 route add 2001:db8:ff01::/48 encap seg6 mode encap segs fd00::1 via fd00:eb::2 dev eb");
        follow.until("an encapsulating route is not for us", &[]).await;
    });
}

#[test]
fn routes_that_went_untold_with_their_link_are_noticed() {
    in_lab(|lab| async move {
        let (a, b) = (lab.hop("ea"), lab.hop("eb"));
        here(
            "sysctl -qw net.ipv6.route.skip_notify_on_dev_down=1 && ip -6 route add 2001:db8::/32 via fd00:eb::2 && \
             ip -6 route add 2001:db8:ff01:2::/64 via fd00:ea::2",
        );
        let (monitor, mut follow) = monitor();
        monitor.watch([sid()].into());
        follow.until("the longer prefix", &[a]).await;
        here("ip link set ea down");
        follow.until("link down", &[b]).await;
        // The route is not there any more; that nothing is told about it shows in what the next change brings.
        here("ip link set ea up");
        eventually("ip -6 route show 2001:db8:ff01:2::/64; ip -6 route show dev ea", |out| {
            !out.contains("2001:db8:ff01:2") && out.contains("fd00:ea::/64")
        })
        .await;
        here("ip link set eb mtu 1400");
        follow.until("the shorter prefix", &[ResolvedHop { mtu: 1400, ..b }]).await;
        here("ip -6 route add 2001:db8:ff01:2::/64 via fd00:ea::2");
        follow.until("the longer prefix again", &[a]).await;
    });
}

#[test]
fn follows_next_hop_objects() {
    in_lab(|lab| async move {
        let (a, b) = (lab.hop("ea"), lab.hop("eb"));
        here(
            "ip nexthop add id 1 via fd00:ea::2 dev ea && ip nexthop add id 2 via fd00:eb::2 dev eb && \
             ip nexthop add id 10 group 1/2 && ip -6 route add 2001:db8:ff01:2::/64 nhid 10",
        );
        let (monitor, mut follow) = monitor();
        monitor.watch([sid()].into());
        follow.until("a group", &[a, b]).await;
        here("ip nexthop replace id 10 group 2");
        follow.until("a smaller group", &[b]).await;
        here("ip nexthop replace id 2 via fd00:ea::2 dev ea");
        follow.until("a member changed", &[a]).await;
        here("ip nexthop replace id 2 via fd00:eb::2 dev eb && ip nexthop replace id 10 group 1/2");
        follow.until("a group again", &[a, b]).await;
        here("ip nexthop del id 1");
        follow.until("a member removed", &[b]).await;
    });
}

#[test]
fn neighbours_in_use_are_managed_and_let_go_afterwards() {
    in_lab(|lab| async move {
        let (monitor, mut follow) = monitor();
        here("ip -6 route add 2001:db8:ff01:2::/64 via fd00:ea::2");
        // An entry that the operator made stays as it is.
        let b = lab.hop("eb");
        here(
            "ip -6 route add 2001:db8:ff01:3::/64 via fd00:eb::9 && \
             ip -6 neigh add fd00:eb::9 dev eb lladdr 02:00:00:00:00:09 nud permanent",
        );
        monitor.watch([sid(), Sid("2001:db8:ff01:3::1".parse().unwrap())].into());
        follow.until("resolved", &[lab.hop("ea")]).await;
        let other = Sid("2001:db8:ff01:3::1".parse::<Ipv6Addr>().unwrap());
        let mut macs = b.macs;
        macs[..6].copy_from_slice(&[2, 0, 0, 0, 0, 9]);
        assert_eq!(follow.now[&other].hops, [ResolvedHop { macs, ..b }]);
        eventually("ip -6 neigh show fd00:ea::2", |out| out.contains("managed")).await;
        let permanent = here("ip -6 neigh show fd00:eb::9");
        assert!(permanent.contains("PERMANENT") && !permanent.contains("managed"), "{permanent}");

        // Someone who empties the cache, or takes the mark away, does not stop it for long.
        here("ip -6 neigh flush dev ea");
        eventually("ip -6 neigh show fd00:ea::2", |out| out.contains("managed")).await;
        follow.until("resolved again", &[lab.hop("ea")]).await;
        here(
            "ip -6 neigh replace fd00:ea::2 dev ea lladdr $(ip -6 neigh show fd00:ea::2 | sed -E 's/.*lladdr ([^ ]+).*/\\1/') nud stale",
        );
        eventually("ip -6 neigh show fd00:ea::2", |out| out.contains("managed")).await;

        monitor.watch([other].into());
        eventually("ip -6 neigh show fd00:ea::2", |out| !out.contains("managed")).await;
    });
}

#[test]
fn a_neighbour_let_go_before_the_kernel_told_of_its_mark_loses_it_all_the_same() {
    in_lab(|lab| async move {
        here(
            "ip -6 route add 2001:db8:ff01:2::/64 via fd00:ea::2 && ip -6 route add 2001:db8:ff01:3::/64 via fd00:eb::2",
        );
        let other = Sid("2001:db8:ff01:3::1".parse::<Ipv6Addr>().unwrap());
        let (monitor, mut follow) = monitor();
        // Both sets are taken in one after the other, before any message about what the first of them asked for.
        monitor.watch([sid()].into());
        monitor.watch([other].into());
        let hop = lab.hop("eb");
        let told = async {
            while follow.now.get(&other).is_none_or(|r| r.hops != [hop]) {
                follow.now.extend(follow.updates.recv().await.expect("the task lives").changed);
            }
        };
        timeout(LONG, told).await.expect("the second set is followed");
        eventually("ip -6 neigh show fd00:ea::2", |out| !out.contains("managed")).await;
    });
}

#[test]
fn a_new_mac_is_found_without_any_traffic() {
    in_lab(|lab| async move {
        // Short times, so that the kernel's upkeep is soon due.
        here(
            "sysctl -qw net.ipv6.neigh.ea.base_reachable_time_ms=400 net.ipv6.neigh.ea.delay_first_probe_time=1 \
             net.ipv6.neigh.ea.retrans_time_ms=100 && ip -6 route add 2001:db8:ff01:2::/64 via fd00:ea::2",
        );
        let (monitor, mut follow) = monitor();
        monitor.watch([sid()].into());
        let old = lab.hop("ea");
        follow.until("resolved", &[old]).await;
        lab.there("ip link set ea1 address 02:00:00:00:00:77");
        let new = lab.hop("ea");
        assert_ne!(old, new);
        follow.until("new MAC", &[new]).await;
    });
}

#[test]
fn unrelated_routes_are_not_told() {
    in_lab(|lab| async move {
        let (monitor, mut follow) = monitor();
        here("ip -6 route add 2001:db8:ff01:2::/64 via fd00:ea::2");
        monitor.watch([sid()].into());
        follow.until("resolved", &[lab.hop("ea")]).await;
        here(
            "for i in $(seq 300); do echo route add 2001:db8:1:$i::/64 via fd00:eb::2; done | ip -6 -batch - && \
             for i in $(seq 300); do echo route del 2001:db8:1:$i::/64; done | ip -6 -batch - && \
             ip -6 route replace 2001:db8:ff01:2::/64 via fd00:eb::2",
        );
        // The next word is about the one change that matters.
        let update = timeout(LONG, follow.updates.recv()).await.unwrap().unwrap();
        assert_eq!(update.changed.keys().collect::<Vec<_>>(), [&sid()]);
        assert_ne!(update.changed[&sid()], follow.now[&sid()]);
    });
}

#[test]
fn lost_messages_are_made_good_by_reading_all_again() {
    in_lab(|lab| async move {
        let (monitor, mut follow) = monitor();
        here("ip -6 route add 2001:db8:ff01:2::/64 via fd00:ea::2");
        monitor.watch([sid()].into());
        follow.until("resolved", &[lab.hop("ea")]).await;
        // The task's thread waits here, so its socket overflows, and the change that matters comes last.
        here(
            "for i in $(seq 20000); do printf 'route add 2001:db8:%x:%x::/64 via fd00:eb::2\\n' $((i / 1000 + 16)) $i; \
             done | ip -6 -batch - && ip -6 route replace 2001:db8:ff01:2::/64 via fd00:eb::2",
        );
        follow.until("after an overflow", &[lab.hop("eb")]).await;
    });
}
