//! The demo's steps, one function each.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use labkit::fault::link_down;
use labkit::lab::RouteWatch;
use labkit::step::Step as LabStep;
use labkit::wait::{eventually, steady};
use nix::sys::signal::Signal;

use super::load::{Account, Amount, Load, family, open};
use super::story::Story;
use super::{NEXT, picture};
use crate::region::{A, Live, SOON, TENANTS, Tenant, rule};

type Step<'a> = LabStep<'a, Story>;

/// The gateway that dies, is killed and drains; the other one serves on.
const VICTIM: u16 = 2;
/// How long a killed daemon stays away.
const AWAY: Duration = Duration::from_secs(1);
/// Messages on each connection after something was done, before the account is closed.
const ROUNDS: u64 = 15;

/// Traffic from the first clients to the end of the story. Tenants differ, so that their lines in the picture do.
fn base_amount(tenant: Tenant) -> Amount {
    let (connections, flows) = if tenant == A { (60, 6) } else { (40, 4) };
    Amount { connections, beat: Duration::from_millis(100), flows, pace: Duration::from_millis(10) }
}

/// Traffic of one step, beside the base.
fn step_amount(_: Tenant) -> Amount {
    Amount { connections: 40, beat: Duration::from_millis(50), flows: 4, pace: Duration::from_millis(5) }
}

/// What a step promises not to lose.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Promise {
    Connections,
    Packets,
}

/// Starts a step's traffic; every connection is a new one.
fn start(step: &mut Step<'_>) -> anyhow::Result<Load> {
    let load = step.state.runtime.block_on(Load::start(step.state.live()?, step_amount))?;
    load.go_on(2)?;
    Ok(load)
}

/// Ends a load, writes down what was lost, and fails the step if it is what must not be.
fn close(step: &mut Step<'_>, load: Load, promise: Promise) -> anyhow::Result<Account> {
    let account = step.state.runtime.block_on(load.stop(step.state.live()?))?;
    let broken = account.broken.len() as u64;
    step.lost(if promise == Promise::Packets { account.lost + broken } else { broken });
    step.say(account.summary());
    ensure!(broken == 0, "{broken} connections broke, the first: {}", account.broken[0]);
    if promise == Promise::Packets {
        ensure!(account.lost == 0, "{} of {} UDP packets were lost", account.lost, account.packets);
    }
    Ok(account)
}

/// Opens new connections of both tenants while something is wrong, and uses each.
fn new_connections(step: &mut Step<'_>, each: usize) -> anyhow::Result<()> {
    for tenant in TENANTS {
        let story = &*step.state;
        let unanswered = story.runtime.block_on(async {
            let mut pool = open(story.live()?, tenant, each).await?;
            anyhow::Ok(pool.verify().await)
        })?;
        step.connections(each as u64);
        step.lost(unanswered as u64);
        ensure!(unanswered == 0, "{unanswered} of {each} new connections of tenant {} broke", tenant.letter);
    }
    step.say(format!("{} new connections meanwhile", 2 * each));
    Ok(())
}

/// A watch over the router's routes to the VIPs, which must not change.
struct Still {
    watch: RouteWatch,
}

impl Still {
    fn at_edge(live: &Live) -> anyhow::Result<Self> {
        Ok(Self { watch: live.node("edge")?.watch_routes()? })
    }
    fn check(&self, live: &Live) -> anyhow::Result<()> {
        for (_, _, service) in live.services() {
            let events = self.watch.events_for(ipnet::IpNet::from(service.ip()));
            ensure!(events.is_empty(), "the router's routes changed: {events:?}");
        }
        Ok(())
    }
}

pub(super) fn lab(step: &mut Step<'_>) -> anyhow::Result<()> {
    let story = &mut *step.state;
    let options = labkit::Lab::options().keep(story.keep);
    let live = Live::up_with(options, &story.topology, story.region.clone())?;
    let timings = live.lab.timings();
    let (nodes, links) = (story.topology.nodes.len(), story.topology.links.len());
    let made = (timings.fabric + timings.configure).as_millis();
    story.live = Some(live);
    step.say(format!(
        "{nodes} namespaces and {links} links in {made} ms, FRR on two routers in {} ms",
        timings.roles.as_millis()
    ));
    Ok(())
}

pub(super) fn gateways(step: &mut Step<'_>) -> anyhow::Result<()> {
    let live = step.state.live()?;
    for n in 1..=live.region.gateways {
        live.start_gateway(n)?;
    }
    step.state.wait_all()?;
    let live = step.state.live()?;
    let mut routes = Vec::new();
    for tenant in TENANTS {
        let prefix = live.region.vip_route(tenant, family(tenant));
        let route = live.node("edge")?.wait_route(&prefix, usize::from(live.region.gateways), SOON)?;
        routes.push(format!("edge: {route}"));
    }
    for route in routes {
        step.say(route);
    }
    Ok(())
}

pub(super) fn clients(step: &mut Step<'_>) -> anyhow::Result<()> {
    let mut pools = Vec::new();
    for tenant in TENANTS {
        let story = &*step.state;
        let pool = story.runtime.block_on(open(story.live()?, tenant, base_amount(tenant).connections))?;
        let pods: Vec<String> =
            pool.by_backend().into_iter().map(|(pod, count)| format!("{pod} {count}")).collect();
        ensure!(pods.len() == usize::from(story.region.workers), "not all pods serve: {pods:?}");
        step.connections(pool.connections().len() as u64);
        step.say(format!(
            "tenant {} over {}: {}",
            tenant.letter,
            family(tenant).pick("IPv4", "IPv6"),
            pods.join(", ")
        ));
        pools.push((tenant, pool));
    }
    step.lost(0);
    let story = &mut *step.state;
    let base = story.runtime.block_on(Load::with(story.live()?, pools, base_amount))?;
    let before = sent_to_gateways(story.live()?)?;
    base.go_on(10)?;
    let after = sent_to_gateways(story.live()?)?;
    story.base = Some(base);
    // Without a share for the one that will die, its death would show nothing.
    let shares: Vec<u64> = before.iter().zip(&after).map(|(before, after)| after - before).collect();
    ensure!(shares.iter().all(|share| *share > 100), "a gateway gets hardly a packet: {shares:?}");
    let shares: Vec<String> = shares.iter().enumerate().map(|(n, s)| format!("gw{} {s}", n + 1)).collect();
    step.say(format!("packets meanwhile: {}", shares.join(", ")));
    Ok(())
}

/// Packets that the router has sent to each gateway.
fn sent_to_gateways(live: &Live) -> anyhow::Result<Vec<u64>> {
    let edge = live.node("edge")?;
    let sent = |n: u16| {
        let text = edge.run(["ip", "-j", "-s", "link", "show", &format!("eth{n}")])?;
        let links: serde_json::Value = serde_json::from_str(&text)?;
        links[0]["stats64"]["tx"]["packets"].as_u64().with_context(|| format!("packets sent in {text}"))
    };
    (1..=live.region.gateways).map(sent).collect()
}

pub(super) fn death(step: &mut Step<'_>) -> anyhow::Result<()> {
    let load = start(step)?;
    step.connections(80);
    let gateway = step.state.live()?.gateway(VICTIM)?;
    let mark = step.mark(format!("gw{VICTIM} dies"));
    gateway.process("weir")?.kill()?;
    for interface in ["eth1", "eth2"] {
        let fault = link_down(&gateway, interface)?;
        step.state.faults.push(fault);
    }
    step.state.live()?.wait_paths(1)?;
    new_connections(step, 40)?;
    load.go_on(ROUNDS)?;
    step.mark_healed(mark);
    close(step, load, Promise::Connections)?;
    Ok(())
}

pub(super) fn recovery(step: &mut Step<'_>) -> anyhow::Result<()> {
    let load = start(step)?;
    step.connections(80);
    step.mark(format!("gw{VICTIM} is back"));
    // The fabric first: what the router sends as soon as the uplink is there must find its way on.
    step.state.heal()?;
    step.state.live()?.run_gateway(VICTIM, None)?;
    step.state.wait_all()?;
    load.go_on(ROUNDS)?;
    close(step, load, Promise::Connections)?;
    Ok(())
}

pub(super) fn kill(step: &mut Step<'_>) -> anyhow::Result<()> {
    let still = Still::at_edge(step.state.live()?)?;
    let load = start(step)?;
    step.connections(80);
    let process = step.state.live()?.gateway(VICTIM)?.process("weir")?;
    let mark = step.mark(format!("daemon of gw{VICTIM} killed (-9)"));
    process.signal(Signal::SIGKILL)?;
    process.wait(SOON)?;
    let live = step.state.live()?;
    // Nobody is there to tell the program or the router anything.
    steady("routes while the daemon is away", AWAY, || still.check(live))?;
    live.run_gateway(VICTIM, None)?;
    step.state.wait_all()?;
    step.mark_healed(mark);
    load.go_on(ROUNDS)?;
    still.check(step.state.live()?)?;
    close(step, load, Promise::Packets)?;
    step.say("no route event at the router");
    Ok(())
}

pub(super) fn upgrade(step: &mut Step<'_>) -> anyhow::Result<()> {
    let still = Still::at_edge(step.state.live()?)?;
    let load = start(step)?;
    step.connections(80);
    for n in 1..=step.state.region.gateways {
        let mark = step.mark(format!("gw{n} upgraded"));
        let live = step.state.live()?;
        let before = live.status(n)?["version"].as_str().context("a version")?.to_owned();
        live.gateway(n)?.process("weir")?.terminate(SOON)?;
        live.run_gateway(n, Some(NEXT))?;
        let after = format!("{before}+next");
        step.state.wait_version(n, &after)?;
        step.mark_healed(mark);
        step.say(format!("gw{n}: {before} → {after}"));
        load.go_on(ROUNDS)?;
    }
    step.state.wait_all()?;
    still.check(step.state.live()?)?;
    close(step, load, Promise::Packets)?;
    step.say("no route event at the router");
    Ok(())
}

pub(super) fn drain(step: &mut Step<'_>) -> anyhow::Result<()> {
    let load = start(step)?;
    step.connections(80);
    let live = step.state.live()?;
    let gateway = live.gateway(VICTIM)?;
    let socket = gateway.dir().join("admin.sock").display().to_string();
    let process = gateway.process("weir")?;
    let mark = step.mark(format!("gw{VICTIM} drains"));
    step.state.live()?.weir(VICTIM, &["drain", "--admin", &socket])?;
    step.state.live()?.wait_paths(1)?;
    let status = process.wait(SOON)?;
    ensure!(status.success(), "the drained gateway ended with {status}\n{}", process.log_tail(20));
    step.mark_healed(mark);
    new_connections(step, 20)?;
    load.go_on(ROUNDS)?;
    close(step, load, Promise::Connections)?;
    Ok(())
}

pub(super) fn rejoin(step: &mut Step<'_>) -> anyhow::Result<()> {
    step.mark(format!("gw{VICTIM} joins again"));
    step.state.live()?.run_gateway(VICTIM, None)?;
    step.state.wait_all()?;
    new_connections(step, 20)?;
    let base = step.state.base.take().context("there is no traffic from the beginning")?;
    base.go_on(5)?;
    let account = close(step, base, Promise::Connections)?;
    let zero = step.started();
    for line in picture::series(&account, zero) {
        step.series(line);
    }
    Ok(())
}

pub(super) fn pod(step: &mut Step<'_>) -> anyhow::Result<()> {
    let leaving = step.state.region.workers;
    let story = &*step.state;
    let (live, region) = (story.live()?, &story.region);
    let pool = story.runtime.block_on(open(live, A, 60))?;
    let gone = region.pod(leaving, A);
    let on_gone = pool.by_backend().get(&gone).copied().unwrap_or_default();
    let workers: Vec<u16> = (1..=region.workers).collect();
    let entry = format!("address: \"{}\", ", region.pod_address(leaving));
    let text = rule(region, A, "web-tcp", "tcp", &workers);
    let drained = text.replace(&entry, &format!("{entry}drained: true, "));
    ensure!(text != drained, "the rule does not name {gone}");
    for n in 1..=region.gateways {
        live.objects(n)?.put("rule-a-tcp.yaml", &drained)?;
    }
    for n in 1..=region.gateways {
        eventually("pod drained", SOON, || {
            let status = live.status(n).map_err(|e| e.to_string())?;
            let rules = status["rules"].as_array().cloned().unwrap_or_default();
            let seen = rules.iter().any(|rule| rule["backends"]["drained"] == 1)
                && status["applied"] == status["generation"];
            if seen { Ok(()) } else { Err(format!("{rules:?}")) }
        })?;
    }
    let pulse = pool.pulse(Duration::from_millis(50));
    let load = story.runtime.block_on(open(live, A, 40))?;
    let to_gone = load.by_backend().get(&gone).copied().unwrap_or_default();
    let report = story.runtime.block_on(pulse.stop());
    let moved = report.broken.iter().filter(|why| !why.contains(&gone)).count();
    step.connections(100);
    step.lost(moved as u64);
    step.say(format!(
        "{} connections on other pods go on, {moved} moved; {on_gone} were on {gone}; of 40 new ones {to_gone} reach it",
        60 - on_gone
    ));
    ensure!(
        moved == 0 && to_gone == 0,
        "{moved} moved, {to_gone} new ones reach {gone}: {:?}",
        report.broken
    );
    Ok(())
}
