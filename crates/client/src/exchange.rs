//! Carries exchanges with servers out: one step of [`client_core::exchange`] after the other, on sockets.

use std::sync::Arc;
use std::time::Instant;

use client_core::call::{Ended, Fate};
use client_core::exchange::{Exchange, Failure, Message, SLOW_ANSWER, Step};
use ids::{Fid, OpId};
use wire::{Call, DecodeError, Kind, Op, Reply, Wire};

use crate::call::Core;
use crate::conn::{Broken, Expect};
use crate::layer::Request;
use crate::map::Route;
use crate::payload::Payload;
use crate::server_link::{Lent, ServerLink};
use crate::wait::Waiting;

/// How an exchange ended.
pub(crate) struct Outcome {
    pub how: Ended,
    /// The last answer, or why there was none; `None`: nothing was sent.
    pub last: Option<Result<Reply, Broken>>,
}

/// An exchange under way.
pub(crate) struct Running<'a, 'b, 'c> {
    core: &'a Core,
    route: &'a Route,
    peer: &'a Arc<ServerLink>,
    /// What the exchange is for, if it is for a request.
    request: Option<&'a mut Request<'b, 'c>>,
    lent: Option<Lent>,
    /// The frame of the request, and when it was sent.
    asked: Option<(u64, Instant)>,
    /// The frames of opens and releases that were not answered yet.
    missing: Vec<u64>,
}

impl<'a, 'b, 'c> Running<'a, 'b, 'c> {
    pub(crate) fn new(
        core: &'a Core,
        (route, peer): (&'a Route, &'a Arc<ServerLink>),
        request: Option<&'a mut Request<'b, 'c>>,
    ) -> Running<'a, 'b, 'c> {
        Running { core, route, peer, request, lent: None, asked: None, missing: Vec::new() }
    }

    /// Carries it out, for a call that began at `start`.
    pub(crate) fn run(mut self, mut exchange: Exchange, start: Instant) -> Outcome {
        let (core, route, begun) = (self.core, self.route, Instant::now());
        let target = exchange.target();
        let still = || {
            // The server may be cut off, and the watched one with it: it may be the same.
            if begun.elapsed() >= SLOW_ANSWER {
                core.watcher.wake();
            }
            core.still(&target)
        };
        let (mut step, mut last) = (exchange.first(), None);
        loop {
            let waiting = Waiting { until: start + exchange.deadline(), still: &still };
            let result = match step {
                Step::Connect => self.connect(&mut exchange, &waiting),
                Step::Send { what, finished } => self.send(what, finished, &waiting).map(|()| Step::Wait),
                Step::Wait => self.receive(&waiting).map(|reply| {
                    let next = exchange.answered(&reply, || route.state.state());
                    last = Some(Ok(reply));
                    next
                }),
                Step::Handshake => {
                    core.watcher.wake();
                    let handshake_done = self.peer.answers_handshake(route.state.set, &core.intent, &waiting);
                    handshake_done.map(|()| exchange.handshake_done(start.elapsed())).map_err(Failed::from)
                }
                Step::End { how, fate } => {
                    self.dispose(fate);
                    return Outcome { how, last };
                }
            };
            step = result.unwrap_or_else(|(failure, why)| {
                let what = self.request.as_ref().map_or("maintenance", |r| r.call.op.name());
                tracing::debug!(set = %route.state.set, server = self.peer.address, "{what}: {why}");
                last = Some(Err(why));
                exchange.failed(failure, start.elapsed(), || route.state.state())
            });
        }
    }

    fn connect(&mut self, exchange: &mut Exchange, waiting: &Waiting<'_>) -> Result<Step, Failed> {
        let lent = self.peer.lend(self.route.state.set, &self.core.intent, waiting)?;
        let next = exchange.connected(lent.used, lent.era, || self.route.state.state());
        self.lent = Some(lent);
        Ok(next)
    }

    fn send(&mut self, what: Message, finished: u64, waiting: &Waiting<'_>) -> Result<(), Failed> {
        let sent = match what {
            Message::Request => self.send_request(finished, waiting),
            Message::Opens(files) => {
                tracing::info!(set = %self.route.state.set, files = files.len(), "tells the primary what is open");
                let core = self.core;
                self.send_all(&files, |fid| core.opening(fid), finished, waiting)
            }
            Message::Releases(files) => self.send_all(&files, |fid| Op::Release { fid }, finished, waiting),
        };
        sent.map_err(stalled)
    }

    fn send_request(&mut self, finished: u64, waiting: &Waiting<'_>) -> Result<(), Broken> {
        let (Some(lent), Some(request)) = (&mut self.lent, &mut self.request) else {
            unreachable!("a request is sent on a connection");
        };
        request.call.epoch = self.route.epoch;
        request.call.finished = finished;
        let sent = Instant::now();
        crate::grant::ask();
        let id = lent.conn.send((Kind::Call, self.core.user()), &request.call, request.payload, waiting)?;
        self.asked = Some((id, sent));
        Ok(())
    }

    /// Sends several at once.
    fn send_all(
        &mut self,
        files: &[Fid],
        op: impl Fn(Fid) -> Op,
        finished: u64,
        waiting: &Waiting<'_>,
    ) -> Result<(), Broken> {
        let Some(lent) = &mut self.lent else { unreachable!("what is sent has a connection") };
        let id = OpId { session: self.core.intent.session, seq: 0 };
        let (set, epoch) = (self.route.state.set, self.route.epoch);
        for fid in files {
            let call = Call { set, epoch, id, finished, op: op(*fid) };
            self.missing.push(lent.conn.queue((Kind::Call, 0), &call, &[]));
        }
        lent.conn.flush(&[], waiting)
    }

    fn receive(&mut self, waiting: &Waiting<'_>) -> Result<Reply, Failed> {
        let Some(lent) = &mut self.lent else { unreachable!("what is received has a connection") };
        lent.conn.readable(waiting)?;
        self.receive_rest(waiting).map_err(stalled)
    }

    /// Receives an answer that has begun to come.
    fn receive_rest(&mut self, waiting: &Waiting<'_>) -> Result<Reply, Broken> {
        let Some(lent) = &mut self.lent else { unreachable!("what is received has a connection") };
        let (Some((id, sent)), Some(request)) = (self.asked, &mut self.request) else {
            let head = lent.conn.receive(Expect::Stream, &mut Payload::new(), waiting)?;
            let at = self.missing.iter().position(|id| *id == head.id);
            self.missing.swap_remove(at.ok_or(DecodeError::Bounds("answer"))?);
            return Ok(Reply::from_bytes(lent.conn.body())?);
        };
        let expect = match request.call.op {
            Op::Read { .. } | Op::ReadLink { .. } | Op::GetXattr { .. } => Expect::Data,
            _ => Expect::Message,
        };
        let head = lent.conn.receive(expect, request.into, waiting)?;
        if head.kind != Kind::Reply || head.id != id {
            return Err(DecodeError::Bounds("answer").into());
        }
        crate::grant::note(sent, head.grant);
        Ok(Reply::from_bytes(lent.conn.body())?)
    }

    fn dispose(&mut self, fate: Option<Fate>) {
        match (self.lent.take(), fate) {
            (Some(lent), Some(Fate::PutBack)) => self.peer.put_back(lent),
            (Some(lent), Some(Fate::GiveUp)) => self.peer.give_up(lent),
            (Some(lent), Some(Fate::Broke)) => self.peer.broke(lent),
            (lent, Some(Fate::Close) | None) => drop(lent),
            (None, Some(_)) => unreachable!("the connection of an exchange is kept until its end"),
        }
    }
}

/// A step that failed, and why in full.
type Failed = (Failure, Broken);

impl From<Broken> for Failed {
    fn from(why: Broken) -> Failed {
        let failure = match &why {
            Broken::Io(_) => Failure::Broke,
            Broken::Protocol(_) | Broken::Refused(_) => Failure::Unusable,
            Broken::TimedOut => Failure::TimedOut,
            Broken::Moved => Failure::Moved,
            Broken::Interrupted => Failure::Interrupted,
            Broken::Stopped => Failure::Stopped,
        };
        (failure, why)
    }
}

/// A message was half sent or half received.
fn stalled(why: Broken) -> Failed {
    match Failed::from(why) {
        (Failure::TimedOut, why) => (Failure::Stalled, why),
        other => other,
    }
}
