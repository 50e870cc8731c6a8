//! The primary's side of a join: finds where the two journals part, and sends what the joining brick missed in slices.

use crate::brick::{JournalPlace, LocalBrick};
use crate::core::{Cx, Due, Later, SetCore};
use crate::io::ReplyTo;
use crate::walks::{PLACED, Waiting};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use bytes::Bytes;
use core::time::Duration;
use ids::{BrickId, Epoch, Lsn};
use replica::Input;
use wire::peer::{PeerBody, Stamp};

/// Changes of the journal that a brick gets which has to compare everything: more than any client waits for.
const TAIL: u64 = 1 << 18;
/// Bytes for a joining brick that may wait for its connection: beyond it, it gets no more missed changes for a while.
const QUEUE: usize = 4 << 20;

/// What a joining brick is being sent.
#[derive(Debug)]
struct CatchUp {
    /// The id of its join that was accepted last: messages that were queued for another join are dropped.
    join_id: u64,
    epoch: Epoch,
    /// The next change to send.
    next: Lsn,
    place: JournalPlace,
    common: Stamp,
    agree: Stamp,
    full: bool,
    /// How many were told of those that a comparison does not meet.
    placed: usize,
}

/// Joining bricks that are being sent what they missed.
#[derive(Debug, Default)]
pub(crate) struct CatchUps(BTreeMap<BrickId, CatchUp>);

impl CatchUps {
    /// What was sent to the brick may have been lost with a connection: changes would show a gap, but nothing tells that some
    /// of what a comparison does not meet is missing. It joins anew.
    pub(crate) fn forget(&mut self, brick: BrickId) {
        self.0.remove(&brick);
    }
}

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// Another brick wants to join.
    pub(crate) fn accept_join(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        to: BrickId,
        join_id: u64,
        (consistent_to, held): (Lsn, Lsn),
        history: &[Stamp],
    ) {
        self.feed(cx, Input::Joining { brick: to, join_id });
        if !self.replica.may_join(to) || self.brick.is_stale() {
            return;
        }
        self.catch_ups.forget(to);
        self.questions.forget(to);
        let common = self.replica.common_with(consistent_to, history);
        let agree = self.replica.common_with(held, history);
        let reaches = self.brick.journal_start() <= common.lsn.next();
        if reaches
            || self.has_walked(cx, to, Waiting { join_id, common: common.clone(), agree: agree.clone() })
        {
            self.begin_catch_up(cx, (to, join_id), common, agree, !reaches);
        }
    }

    /// Begins to send what was missed. If the journal does not reach back to where the other brick was (`full`), everything
    /// is compared; the newest part of the journal goes to it nevertheless, so that it knows resends when it leads.
    pub(crate) fn begin_catch_up(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        (to, join_id): (BrickId, u64),
        common: Stamp,
        agree: Stamp,
        full: bool,
    ) {
        // What both journals hold is not sent again.
        let start = if full { self.tail() } else { Some(agree.clone()) };
        let Some(start) = start else { return };
        let (next, epoch) = (start.lsn.next(), self.replica.view().epoch);
        let accept_join =
            PeerBody::JoinAccepted { join_id, common: common.clone(), agree: agree.lsn, start, full };
        self.say(cx, to, accept_join, Bytes::new());
        self.catch_ups.0.insert(
            to,
            CatchUp { join_id, epoch, next, place: JournalPlace::default(), common, agree, full, placed: 0 },
        );
        self.timers.set(cx.at.now, Due::CatchUp(to, join_id));
    }

    /// Where the newest part of the journal begins, far enough from its beginning, which may be dropped any time.
    fn tail(&self) -> Option<Stamp> {
        let (first, last) = (self.brick.journal_start(), self.brick.last().lsn);
        let quarter = last.0.saturating_sub(first.0) / 4;
        let from = (first.0.saturating_sub(1) + quarter).max(last.0.saturating_sub(TAIL));
        match self.brick.stamp_at(Lsn(from.min(last.0))) {
            Ok(stamp) => Some(stamp),
            Err(e) => {
                tracing::error!("{}: read the journal: {e}", self.settings.name);
                None
            }
        }
    }

    /// The next slice of what a brick missed, unless its connection is full. After the last one it gets every change.
    pub(crate) fn send_slice(&mut self, cx: &mut Cx<'_, B, R>, to: BrickId, join_id: u64) {
        let Some(mut catch_up) = self.catch_ups.0.remove(&to) else { return };
        if catch_up.join_id != join_id {
            self.catch_ups.0.insert(to, catch_up);
            return;
        }
        if !self.is_primary() || self.replica.view().epoch != catch_up.epoch {
            return;
        }
        if self.queued(cx, to) < QUEUE && !self.send_placed(cx, to, &mut catch_up) {
            match self.send_catch_up(cx, to, &mut catch_up) {
                Some(after) if after > self.last().lsn => {
                    return self.send_caught_up(cx, to, join_id, catch_up.full);
                }
                Some(after) => catch_up.next = after,
                // The journal lost its beginning meanwhile.
                None => return self.begin_anew(cx, to, catch_up),
            }
        }
        self.catch_ups.0.insert(to, catch_up);
        self.later.push_back(Later::EndSlice(to, cx.at.now));
    }

    /// The journal does not hold any more what the brick missed.
    fn begin_anew(&mut self, cx: &mut Cx<'_, B, R>, to: BrickId, catch_up: CatchUp) {
        let CatchUp { join_id, common, agree, .. } = catch_up;
        if self.has_walked(cx, to, Waiting { join_id, common: common.clone(), agree: agree.clone() }) {
            self.begin_catch_up(cx, (to, join_id), common, agree, true);
        }
    }

    /// A slice is sent: clients go first for a while.
    pub(crate) fn end_slice(&mut self, cx: &mut Cx<'_, B, R>, to: BrickId, begun: Duration) {
        self.walks.keep(to, cx.at.now);
        if let Some(catch_up) = self.catch_ups.0.get(&to) {
            let at = self.rested(cx, cx.at.now.saturating_sub(begun));
            self.timers.set(at, Due::CatchUp(to, catch_up.join_id));
        }
    }

    /// Tells some of those that a comparison does not meet; false if all that the walk found are told.
    fn send_placed(&self, cx: &mut Cx<'_, B, R>, to: BrickId, catch_up: &mut CatchUp) -> bool {
        let placed = if catch_up.full { self.walks.some_found(to, catch_up.placed) } else { Vec::new() };
        catch_up.placed += placed.len();
        let some = !placed.is_empty();
        if some {
            let join_id = catch_up.join_id;
            self.say(cx, to, PeerBody::Placed { join_id, placed }, Bytes::new());
        }
        some
    }

    /// Sends a slice of the journal; where the next begins. `None` if the journal does not hold it any more.
    fn send_catch_up(&self, cx: &mut Cx<'_, B, R>, to: BrickId, catch_up: &mut CatchUp) -> Option<Lsn> {
        let from = catch_up.next;
        let mut next = from;
        if from < self.brick.journal_start() {
            return None;
        }
        if from <= self.brick.last().lsn {
            let records = match self.brick.some_records(from, &mut catch_up.place) {
                Ok(records) => records,
                Err(e) => {
                    tracing::error!("{}: read the journal for brick {to}: {e}", self.settings.name);
                    return None;
                }
            };
            for r in records {
                if r.stamp.lsn != next {
                    return None;
                }
                next = r.stamp.lsn.next();
                let body =
                    PeerBody::CatchUp { stamp: r.stamp, op: r.op, result_fid: r.result_fid, change: r.body };
                self.say(cx, to, body, Bytes::new());
            }
        }
        Some(next)
    }

    fn send_caught_up(&mut self, cx: &mut Cx<'_, B, R>, to: BrickId, join_id: u64, full: bool) {
        // Without its walk, forgotten meanwhile, the brick has to ask again.
        let Some(mut placed) = (if full { self.walks.take(to) } else { Some([].into()) }) else { return };
        while placed.len() > PLACED {
            let placed = placed.split_off(placed.len() - PLACED);
            self.say(cx, to, PeerBody::Placed { join_id, placed }, Bytes::new());
        }
        let last = self.last();
        self.say(cx, to, PeerBody::CaughtUp { join_id, last, placed }, Bytes::new());
        self.feed(cx, Input::JoinerCaughtUp(to));
    }
}
