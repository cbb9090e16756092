//! Traffic of both tenants: TCP connections in use and paced, numbered UDP packets, with an account of what was lost.

use std::time::{Duration, Instant};

use anyhow::ensure;
use labkit::traffic::{Pool, Pulse, Sample, UdpFlow};
use labkit::wait::eventually;

use crate::region::{A, Family, Live, SOON, TENANTS, Tenant};

/// Bytes of a UDP packet's payload.
const PAYLOAD: usize = 64;
/// Width of the intervals in which traffic is recorded; a picture gathers many of them.
const GRAIN: Duration = Duration::from_millis(5);

/// How much traffic a tenant has.
#[derive(Clone, Copy, Debug)]
pub struct Amount {
    /// TCP connections.
    pub connections: usize,
    /// Time between two messages of a connection.
    pub beat: Duration,
    /// UDP flows, each with a port of its own.
    pub flows: usize,
    /// Time between two packets of a flow.
    pub pace: Duration,
}

/// Traffic that runs.
#[derive(Debug)]
pub struct Load {
    began: Instant,
    connections: usize,
    pulses: Vec<(Tenant, Pulse)>,
    flows: Vec<(Tenant, UdpFlow)>,
}

/// What a tenant's traffic was over time, since its load began.
#[derive(Clone, Debug)]
pub struct Track {
    /// Whose.
    pub tenant: Tenant,
    /// TCP messages.
    pub messages: Vec<Sample>,
    /// UDP packets.
    pub packets: Vec<Sample>,
}

/// What became of a load.
#[derive(Clone, Debug)]
pub struct Account {
    /// When it began.
    pub began: Instant,
    /// TCP connections it had.
    pub connections: u64,
    /// Those that broke, each with why.
    pub broken: Vec<String>,
    /// TCP messages that were sent.
    pub messages: u64,
    /// TCP segments that clients sent again.
    pub retransmissions: u64,
    /// UDP packets that were sent.
    pub packets: u64,
    /// Those lost on the way out or back.
    pub lost: u64,
    /// Longest time between the first and the last lost packet of a flow.
    pub outage: Duration,
    /// Traffic over time, a tenant each.
    pub tracks: Vec<Track>,
}

/// The family that a tenant's clients use in the demo: one of each.
pub fn family(tenant: Tenant) -> Family {
    if tenant == A { Family::Ipv6 } else { Family::Ipv4 }
}

/// Opens connections of a tenant and checks that its own pods, and all of them, answer and see the client's address.
///
/// # Errors
/// A connection that did not come about, or came about elsewhere.
pub async fn open(live: &Live, tenant: Tenant, connections: usize) -> anyhow::Result<Pool> {
    let pool =
        Pool::open(&live.node("client")?, live.service_of(tenant, family(tenant)), connections).await?;
    let client = live.region.client_of(family(tenant));
    for connection in pool.connections() {
        let (pod, seen) = (connection.backend(), connection.seen_as().ip().to_string());
        ensure!(pod.ends_with(tenant.letter), "tenant {}'s client reached pod {pod}", tenant.letter);
        ensure!(seen == client, "pod {pod} saw {seen}, the client is {client}");
    }
    Ok(pool)
}

impl Load {
    /// Starts traffic of both tenants; the amount is a tenant's.
    ///
    /// # Errors
    /// What could not be started, see [`open`].
    pub async fn start(live: &Live, amount: impl Fn(Tenant) -> Amount) -> anyhow::Result<Self> {
        let mut pools = Vec::new();
        for tenant in TENANTS {
            pools.push((tenant, open(live, tenant, amount(tenant).connections).await?));
        }
        Self::with(live, pools, amount).await
    }

    /// Starts traffic on connections that are open.
    ///
    /// # Errors
    /// What could not be started.
    pub async fn with(
        live: &Live,
        pools: Vec<(Tenant, Pool)>,
        amount: impl Fn(Tenant) -> Amount,
    ) -> anyhow::Result<Self> {
        let client = live.node("client")?;
        let began = Instant::now();
        let connections = pools.iter().map(|(_, pool)| pool.connections().len()).sum();
        let pulses =
            pools.into_iter().map(|(tenant, pool)| (tenant, pool.pulse(amount(tenant).beat))).collect();
        let mut flows = Vec::new();
        for tenant in TENANTS {
            let Amount { flows: count, pace, .. } = amount(tenant);
            for _ in 0..count {
                let service = live.service_of(tenant, family(tenant));
                flows.push((tenant, UdpFlow::start(&client, service, pace, PAYLOAD).await?));
            }
        }
        Ok(Self { began, connections, pulses, flows })
    }

    /// Waits until as many more messages are answered as make `rounds` on each connection.
    ///
    /// # Errors
    /// How many were.
    pub fn go_on(&self, rounds: u64) -> anyhow::Result<()> {
        let answered = || self.pulses.iter().map(|(_, pulse)| pulse.answered()).sum::<u64>();
        let wanted = answered() + rounds * self.connections as u64;
        eventually("connections go on", SOON, || {
            let now = answered();
            if now >= wanted { Ok(()) } else { Err(format!("{now} messages answered, {wanted} wanted")) }
        })?;
        Ok(())
    }

    /// Ends it and accounts for everything.
    ///
    /// # Errors
    /// A flow that could not be accounted for.
    pub async fn stop(self, live: &Live) -> anyhow::Result<Account> {
        let servers = live.udp_servers();
        let mut account = Account {
            began: self.began,
            connections: 0,
            broken: Vec::new(),
            messages: 0,
            retransmissions: 0,
            packets: 0,
            lost: 0,
            outage: Duration::ZERO,
            tracks: TENANTS.map(|tenant| Track { tenant, messages: Vec::new(), packets: Vec::new() }).into(),
        };
        for (tenant, pulse) in self.pulses {
            let report = pulse.stop().await;
            account.connections += report.connections as u64;
            account.messages += report.messages;
            account.retransmissions += report.retransmissions;
            account.track(tenant, |track| track.messages.extend(report.samples(GRAIN)));
            account.broken.extend(report.broken);
        }
        // Side by side: each waits a moment for what is under way.
        let ended = futures_util::future::join_all(
            self.flows.into_iter().map(async |(tenant, flow)| (tenant, flow.stop(&servers).await)),
        );
        for (tenant, report) in ended.await {
            let report = report?;
            account.packets += report.sent;
            account.lost += report.lost();
            account.outage = account.outage.max(report.outage());
            account.track(tenant, |track| track.packets.extend(report.samples(GRAIN)));
        }
        Ok(account)
    }
}

impl Account {
    fn track(&mut self, tenant: Tenant, add: impl FnOnce(&mut Track)) {
        if let Some(track) = self.tracks.iter_mut().find(|track| track.tenant == tenant) {
            add(track);
        }
    }

    /// One line on it.
    pub fn summary(&self) -> String {
        let lost = match (self.lost, self.outage.as_millis()) {
            (0, _) => "none lost".to_owned(),
            // Packets of one moment, such as those on their way to a gateway that went.
            (lost, 0) => format!("{lost} lost, all at once"),
            (lost, outage) => format!("{lost} lost, {outage} ms from a flow's first to its last"),
        };
        format!(
            "{} connections, {} messages, {} TCP segments sent again; {} UDP packets, {lost}",
            self.connections, self.messages, self.retransmissions, self.packets
        )
    }
}
