//! Which plan a peer is known to have followed: what was written to it, and what it may keep of sessions before.

use std::collections::VecDeque;
use std::time::Duration;

use tokio::time::Instant;

use super::io::QUEUE;

/// How far the speaker is with leaving for good; applied on top of the plan.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum LeaveStage {
    /// It stays.
    #[default]
    Stay,
    /// All routes carry GRACEFUL_SHUTDOWN.
    Shutdown,
    /// All routes are withdrawn.
    Withdrawn,
}

/// A plan revision and a stage of leaving that went with it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Settled {
    /// See [`RouteStatus::settled`](crate::route::RouteStatus::settled).
    pub(super) revision: u64,
    /// The stage that was sent with it.
    pub(super) stage: LeaveStage,
}

/// What a peer may hold of sessions before the current one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Retained {
    /// Nothing.
    Nothing,
    /// Routes kept by graceful restart: without a session at the latest until then, with one until End-of-RIB.
    Until(Instant),
}

/// One peer's account.
#[derive(Debug)]
pub(super) struct Settlement {
    settled: Settled,
    /// What will be settled once that many messages of the session are written.
    marks: VecDeque<(u64, Settled)>,
    written: u64,
    retained: Retained,
}

impl Settlement {
    /// A peer that may keep routes of a process before for `retention`.
    pub(super) fn new(retention: Option<Duration>, now: Instant) -> Self {
        let mut new = Self {
            settled: Settled::default(),
            marks: VecDeque::new(),
            written: 0,
            retained: Retained::Nothing,
        };
        new.lost(retention, now);
        new
    }

    /// What is settled.
    pub(super) fn settled(&self) -> Settled {
        self.settled
    }

    /// A connection begins.
    pub(super) fn connected(&mut self) {
        self.written = 0;
        self.marks.clear();
    }

    /// The session is lost; the peer may keep its routes for `retention`.
    pub(super) fn lost(&mut self, retention: Option<Duration>, now: Instant) {
        self.marks.clear();
        self.retained = retention.map_or(Retained::Nothing, |time| Retained::Until(now + time));
    }

    /// The peer was told to forget everything.
    pub(super) fn forgotten(&mut self) {
        self.retained = Retained::Nothing;
    }

    /// The session has sent all routes of `what`, as message `at` of the session the last. Without End-of-RIB, routes that
    /// the peer kept stay, so nothing is settled.
    pub(super) fn sent(&mut self, at: u64, what: Settled, end_of_rib_sent: bool) {
        if end_of_rib_sent {
            self.retained = Retained::Nothing;
        }
        let last = self.marks.back().map_or(self.settled, |&(_, settled)| settled);
        if self.retained != Retained::Nothing || last == what {
            return;
        }
        if self.marks.len() > QUEUE {
            self.marks.pop_front();
        }
        self.marks.push_back((at, what));
        self.written(self.written);
    }

    /// That many messages of the session were handed to TCP.
    pub(super) fn written(&mut self, count: u64) {
        self.written = count;
        while let Some(&(at, settled)) = self.marks.front()
            && at <= count
        {
            self.settled = settled;
            self.marks.pop_front();
        }
    }

    /// Without a session: a peer that keeps nothing of ours has nothing to be told of `what`.
    pub(super) fn down(&mut self, what: Settled, now: Instant) {
        if matches!(self.retained, Retained::Until(end) if end <= now) {
            self.retained = Retained::Nothing;
        }
        if self.retained == Retained::Nothing {
            self.settled = what;
        }
    }

    /// When a peer without a session will have forgotten.
    pub(super) fn retained_until(&self) -> Option<Instant> {
        match self.retained {
            Retained::Nothing => None,
            Retained::Until(end) => Some(end),
        }
    }
}
