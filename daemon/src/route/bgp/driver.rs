//! The task of one peer: carries bytes, timers and the plan between the network and its [`Session`].

use std::future::pending;

use futures_util::StreamExt;
use rustbgpd_wire::{BgpCodecError, Message};
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};
use tracing::debug;

use super::io::{self, Connection, DialError, Progress};
use super::open::Restarting;
use super::session::{Effect, Session};
use super::settle::LeaveStage;
use super::{Board, BoardEntry};
use crate::route::RoutePlan;

/// What the supervisor wants of a peer's task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Control {
    /// Keep the session up, with this stage of leaving on top of the plan.
    Run(LeaveStage),
    /// End without a NOTIFICATION.
    Abandon,
    /// End because another configuration takes over.
    Reset(String),
    /// End for good.
    Leave(String),
}

type Dial = JoinHandle<Result<TcpStream, DialError>>;

struct Driver {
    session: Session,
    connection: Option<Connection>,
    progress: Option<watch::Receiver<Progress>>,
    dial: Option<Dial>,
    closing: Vec<JoinHandle<()>>,
    board: watch::Sender<Board>,
}

/// Runs a peer until `control` says to end or its sender is gone; returns when the connection is closed, with whether R is
/// still due.
pub(super) async fn run(
    session: Session,
    mut plan: watch::Receiver<RoutePlan>,
    mut control: watch::Receiver<Control>,
    board: watch::Sender<Board>,
) -> Restarting {
    let mut driver =
        Driver { session, connection: None, progress: None, dial: None, closing: Vec::new(), board };
    plan.mark_changed();
    control.mark_changed();
    loop {
        let now = Instant::now();
        if driver.session.keepalive_due(now) {
            driver.session.tick(now);
        }
        driver.carry_out();
        driver.publish();
        tokio::select! {
            biased;
            changed = control.changed() => {
                let wish = if changed.is_ok() { control.borrow_and_update().clone() } else { Control::Abandon };
                if driver.obey(wish, &plan) {
                    break;
                }
            }
            changed = plan.changed() => {
                if changed.is_err() {
                    driver.session.abandon();
                    break;
                }
                driver.follow(&mut plan, &control);
            }
            dialled = finished(&mut driver.dial) => driver.dialled(dialled),
            () = progress(&mut driver.progress) => driver.progressed(),
            message = next(&mut driver.connection) => driver.received(message),
            () = at(driver.session.next_tick()) => driver.session.tick(Instant::now()),
        }
    }
    driver.carry_out();
    driver.abort_dial();
    driver.publish();
    for closing in driver.closing {
        // A panic there would have been reported already; the connection is closed either way.
        let _ = closing.await;
    }
    driver.session.restarting()
}

impl Driver {
    /// Returns whether the task ends.
    fn obey(&mut self, wish: Control, plan: &watch::Receiver<RoutePlan>) -> bool {
        let now = Instant::now();
        match wish {
            Control::Run(stage) => {
                let plan = plan.borrow().clone();
                self.session.follow(plan, stage, Instant::now());
                return false;
            }
            Control::Abandon => self.session.abandon(),
            Control::Reset(reason) => self.session.reset(&reason, now),
            Control::Leave(reason) => self.session.leave(&reason, now),
        }
        true
    }

    fn follow(&mut self, plan: &mut watch::Receiver<RoutePlan>, control: &watch::Receiver<Control>) {
        let Control::Run(stage) = *control.borrow() else { return };
        let plan = plan.borrow_and_update().clone();
        self.session.follow(plan, stage, Instant::now());
    }

    fn dialled(&mut self, result: Result<TcpStream, String>) {
        let now = Instant::now();
        let connected = result.and_then(|stream| {
            let local =
                stream.local_addr().map_err(|error| format!("read the session's address: {error}"))?;
            Ok((stream, local.ip()))
        });
        match connected {
            Ok((stream, local)) => {
                let send_hold = self.session.speaker.send_hold();
                let (connection, sender, progress) = Connection::new(stream, send_hold);
                self.connection = Some(connection);
                self.progress = Some(progress);
                self.session.connected(local, sender, now);
            }
            Err(cause) => {
                debug!(peer = self.session.peer.name, cause, "BGP dial failed");
                self.session.disconnected(cause, now);
            }
        }
    }

    fn progressed(&mut self) {
        let Some(progress) = &mut self.progress else { return };
        let progress = progress.borrow_and_update().clone();
        self.session.progressed(progress.written);
        if let Some(cause) = progress.failed {
            self.session.disconnected(cause, Instant::now());
        }
    }

    fn received(&mut self, message: Option<Result<Message, BgpCodecError>>) {
        let now = Instant::now();
        match message {
            Some(Ok(message)) => self.session.received(message, now),
            Some(Err(BgpCodecError::Decode(error))) => self.session.undecodable(error, now),
            Some(Err(error)) => self.session.disconnected(format!("read from the peer: {error}"), now),
            None => self.session.disconnected("the peer closed the connection".into(), now),
        }
    }

    fn carry_out(&mut self) {
        for effect in self.session.effects() {
            match effect {
                Effect::Dial => {
                    let peer = self.session.peer.clone();
                    self.abort_dial();
                    self.dial = Some(tokio::spawn(io::dial(peer)));
                }
                Effect::Close => {
                    self.abort_dial();
                    self.progress = None;
                    self.closing.retain(|closing| !closing.is_finished());
                    self.closing.extend(self.connection.take().map(Connection::close));
                }
            }
        }
    }

    fn abort_dial(&mut self) {
        if let Some(dial) = self.dial.take() {
            dial.abort();
        }
    }

    fn publish(&self) {
        let (status, settled) = self.session.status();
        self.board.send_if_modified(|board| {
            let entry = BoardEntry { status, settled };
            let name = &entry.status.name;
            if board.get(name) == Some(&entry) {
                return false;
            }
            board.insert(name.clone(), entry);
            true
        });
    }
}

async fn finished(dial: &mut Option<Dial>) -> Result<TcpStream, String> {
    let Some(handle) = dial else { return pending().await };
    let result = handle.await;
    *dial = None;
    match result {
        Ok(Ok(stream)) => Ok(stream),
        Ok(Err(error)) => Err(error.to_string()),
        Err(error) => Err(format!("dial: {error}")),
    }
}

async fn progress(progress: &mut Option<watch::Receiver<Progress>>) {
    let Some(progress) = progress else { return pending().await };
    if progress.changed().await.is_err() {
        // The writer has stopped; the reading side sees why.
        pending::<()>().await;
    }
}

async fn next(connection: &mut Option<Connection>) -> Option<Result<Message, BgpCodecError>> {
    match connection {
        Some(connection) => connection.reader.next().await,
        None => pending().await,
    }
}

async fn at(instant: Option<Instant>) {
    match instant {
        Some(instant) => sleep_until(instant).await,
        None => pending().await,
    }
}
