//! The joining brick's side of a join. The primary's answers are in [`crate::catch_up`] and
//! [`crate::questions`]; what is healed how is decided in `replica::heal`.

use crate::brick::LocalBrick;
use crate::content::Content;
use crate::core::{Cx, Due, Later, Purpose, SetCore};
use crate::flush::Then;
use crate::healing::Healing;
use crate::io::{Done, ReplyTo};
use crate::questions::PAGE;
use bytes::Bytes;
use core::time::Duration;
use ids::{BrickId, Fid, Lsn};
use replica::healing::{Arriving, HealSession as Inner, Sums};
use replica::{Input, JoinIds, LogEntry, Role};
use wire::Errno;
use wire::peer::{PeerBody, Stamp};

/// How often a brick that is not in sync asks to join.
const ASK_AGAIN: Duration = Duration::from_millis(500);

/// What a brick that is not in sync does about it.
#[derive(Debug, Default)]
pub(crate) struct Target {
    pub(crate) healing: Option<Healing>,
    /// Healings begun: what was begun for an earlier one is void.
    begun: u64,
    join_ids: JoinIds,
    asked: Duration,
    /// A healing ended without an object that the primary has: from here on this brick asks for all changes.
    asks_for_all: bool,
    /// The primary has accepted a join, and this brick has not taken that: what the primary sends from then on does not
    /// follow what is here.
    missed: bool,
}

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// By the clock.
    pub(crate) fn tick_heal(&mut self, cx: &mut Cx<'_, B, R>) {
        let now = cx.at.now;
        match self.replica.role() {
            Role::Primary => self.announce_stale(cx),
            Role::Secondary | Role::Reconciling | Role::Failed => {}
            Role::Idle => {
                self.target.healing = None;
                self.ask_to_join(cx);
            }
            Role::Healing => {
                let busy = self.replica.is_syncing();
                let silent = self.target.healing.as_mut().is_none_or(|h| h.has_waited(now, busy));
                if silent || self.target.missed {
                    self.ask_to_join(cx);
                }
            }
        }
    }

    fn ask_to_join(&mut self, cx: &mut Cx<'_, B, R>) {
        let now = cx.at.now;
        let Some(primary) = self.replica.view().primary.filter(|p| *p != self.me) else { return };
        if now < self.target.asked + ASK_AGAIN {
            return;
        }
        self.target.asked = now;
        let mut held = self.brick.last().lsn;
        if self.brick.is_uncertain() {
            held = held.min(self.brick.durable());
        }
        if self.target.asks_for_all {
            held = Lsn(0);
        }
        let consistent_to = self.brick.consistent_to().min(held);
        let history = self.replica.history();
        let join_id = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        self.target.join_ids.ask(join_id);
        self.say(cx, primary, PeerBody::Join { join_id, consistent_to, held, history }, Bytes::new());
    }

    /// The primary has accepted a join, but not one that this brick can take any more.
    pub(crate) fn miss_acceptance(&mut self) {
        tracing::debug!("{}: brick {} does not take that its join is accepted", self.settings.name, self.me);
        self.target.missed = true;
    }

    /// Whether changes from the primary do not follow what is here.
    pub(crate) fn has_missed_acceptance(&self) -> bool {
        self.target.missed && self.replica.role() == Role::Healing
    }

    /// Whether this brick is being sent what it missed.
    pub(crate) fn is_catching_up(&self) -> bool {
        self.target.healing.as_ref().is_some_and(|h| !h.inner.has_caught_up())
    }

    /// What the primary says about this brick's healing.
    pub(crate) fn on_heal_answer(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        from: BrickId,
        body: PeerBody,
        payload: &[u8],
    ) {
        if self.replica.view().primary != Some(from) {
            return;
        }
        if let Some(h) = &mut self.target.healing {
            h.hear(cx.at.now);
        }
        let done = match body {
            PeerBody::JoinAccepted { join_id, .. } if !self.target.join_ids.answered(join_id) => {
                self.miss_acceptance();
                Ok(())
            }
            PeerBody::Placed { join_id, .. } | PeerBody::CaughtUp { join_id, .. }
                if !self.target.join_ids.answered(join_id) =>
            {
                Ok(())
            }
            PeerBody::JoinAccepted { common, agree, start, full, .. } => {
                self.on_join_accepted(cx, (&common, start), agree, full)
            }
            PeerBody::Placed { placed, .. } => {
                if let Some(h) = &mut self.target.healing {
                    h.walks.add(placed);
                }
                Ok(())
            }
            PeerBody::CaughtUp { last, placed, .. } => self.on_caught_up(last, placed),
            PeerBody::Sums { fid, offset, len, ask, end, sums } => {
                if self.target.healing.as_ref().is_some_and(|h| h.inner.awaits(fid, ask)) {
                    self.on_their_sums(cx, fid, offset, Sums { sums, len, end });
                }
                Ok(())
            }
            answer => match &mut self.target.healing {
                Some(h) => h.inner.take(&mut self.brick, &answer, payload),
                None => Ok(()),
            },
        };
        self.heal_on(cx, done);
    }

    fn heal_on(&mut self, cx: &mut Cx<'_, B, R>, done: Result<(), Errno>) {
        match done {
            Ok(()) => self.ask_more(cx),
            Err(e) => {
                tracing::error!("{}: healing brick {}: {e}", self.settings.name, self.me);
                let lsn = self.last().lsn;
                self.feed(cx, Input::ApplyFailed { lsn, errno: e.0 });
            }
        }
    }

    /// The primary says where the journals part: what this brick has beyond is stale, and goes.
    fn on_join_accepted(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        (common, start): (&Stamp, Stamp),
        agree: Lsn,
        full: bool,
    ) -> Result<(), Errno> {
        if !matches!(self.replica.role(), Role::Idle | Role::Healing)
            || !Inner::fits(&self.brick, &start, full)?
        {
            self.miss_acceptance();
            return Ok(());
        }
        self.target.missed = false;
        let resumed = self.brick.is_stale();
        let inner = Inner::begin(&mut self.brick, (common, &start), agree, full)?;
        tracing::info!(
            "{}: brick {} heals from {} on, full: {full}, after an unfinished healing: {resumed}",
            self.settings.name,
            self.me,
            common.lsn
        );
        self.target.begun += 1;
        let mut healing = Healing::new(cx.at.now, inner);
        if full {
            healing.begin_work();
            let work = self.brick.begin_placed();
            self.start(cx, Purpose::OwnWalk(self.target.begun), Ok(work));
        }
        self.target.healing = Some(healing);
        self.feed(cx, Input::Joined { join_id: self.target.join_ids.current(), start, full });
        Ok(())
    }

    /// This brick has looked for what a comparison does not meet here.
    pub(crate) fn end_own_walk(&mut self, cx: &mut Cx<'_, B, R>, healing: u64, walked: Result<Done, Errno>) {
        if self.target.begun == healing && self.replica.role() == Role::Healing {
            let done = self.on_own_walk(cx.at.now, walked);
            self.heal_on(cx, done);
        }
    }

    /// The primary's checksums are here: ours are worked out and compared.
    fn on_their_sums(&mut self, cx: &mut Cx<'_, B, R>, fid: Fid, offset: u64, there: Sums) {
        if let Some(h) = &mut self.target.healing {
            h.begin_work();
        }
        let work = self.brick.begin_sums(fid, offset, there.len);
        self.start(cx, Purpose::Compare(self.target.begun, fid, offset, there), work);
    }

    /// This brick's checksums are here too.
    pub(crate) fn compare(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        healing: u64,
        at: (Fid, u64),
        there: &Sums,
        here: Result<Sums, Errno>,
    ) {
        if !self.is_healing(healing) {
            return;
        }
        let Some(h) = &mut self.target.healing else { return };
        h.end_work(cx.at.now);
        let done = h.inner.compare(&mut self.brick, at, there, here);
        self.heal_on(cx, done);
    }

    /// Asks for what is dirty, and ends the healing when nothing is.
    fn ask_more(&mut self, cx: &mut Cx<'_, B, R>) {
        let Some(primary) = self.replica.view().primary else { return };
        while let Some(h) = &mut self.target.healing
            && let Some(question) = h.inner.ask(&mut self.brick)
        {
            let PeerBody::AskEntries { fid, after } = question else {
                self.say(cx, primary, question, Bytes::new());
                continue;
            };
            // Names to be compared are read beforehand: what the primary answers has to be taken at once.
            match self.brick.begin_list(fid) {
                Some(work) => {
                    h.begin_work();
                    self.start(cx, Purpose::Prepare(self.target.begun, fid, after), Ok(work));
                }
                None => self.prepare_page(cx, fid, after),
            }
        }
        let Some(h) = &mut self.target.healing else { return };
        if h.inner.looks_at_absent() && !h.looking {
            h.looking = true;
            h.begin_work();
            self.later.push_back(Later::LookAtAbsent(self.target.begun, cx.at.now));
        }
        if h.inner.is_done(&self.brick) && !h.finishing {
            if let Some(fid) = h.inner.lacks().filter(|_| !self.target.asks_for_all) {
                return self.heal_from_the_beginning(fid);
            }
            h.finishing = true;
            self.forget_trash_then(cx, Then::EndHealing(self.target.begun));
        }
    }

    /// All is compared that is known to have changed, and the primary has an object that is not found here: this brick's
    /// index has lost it. The name that leads to it is in a directory that was not compared.
    fn heal_from_the_beginning(&mut self, fid: Fid) {
        tracing::warn!("{}: brick {} does not find {fid}, all is compared", self.settings.name, self.me);
        self.target.asks_for_all = true;
        self.target.healing = None;
        self.target.begun += 1;
    }

    /// Looks again at one object that the primary does not have, in the turn that began then.
    pub(crate) fn look_at_absent(&mut self, cx: &mut Cx<'_, B, R>, healing: u64, begun: Duration) {
        if !self.is_healing(healing) {
            return;
        }
        if self.is_turn_over(cx, begun, Due::Absent(healing)) {
            return;
        }
        let Some(h) = &mut self.target.healing else { return };
        match h.inner.look_at_absent(&mut self.brick) {
            Ok(true) => self.later.push_back(Later::LookAtAbsent(healing, begun)),
            done => {
                h.looking = false;
                h.end_work(cx.at.now);
                self.heal_on(cx, done.map(drop));
            }
        }
    }

    /// The names of a directory are at hand. What those lead to that are compared next is read beforehand as well.
    fn prepare_page(&mut self, cx: &mut Cx<'_, B, R>, fid: Fid, after: u64) {
        let (Some(h), Some(primary)) = (&mut self.target.healing, self.replica.view().primary) else {
            return;
        };
        match self.brick.begin_page(fid, after, true, PAGE) {
            Some(work) => {
                h.begin_work();
                self.start(cx, Purpose::PreparePage(self.target.begun, fid, after), Ok(work));
            }
            None => self.say(cx, primary, PeerBody::AskEntries { fid, after }, Bytes::new()),
        }
    }

    /// The names of a directory were read.
    pub(crate) fn on_names(&mut self, cx: &mut Cx<'_, B, R>, healing: u64, fid: Fid, after: u64) {
        if self.end_work(cx, healing) {
            self.prepare_page(cx, fid, after);
        }
    }

    /// What they lead to was read: the primary is asked for its own names.
    pub(crate) fn on_prepared(&mut self, cx: &mut Cx<'_, B, R>, healing: u64, fid: Fid, after: u64) {
        if self.end_work(cx, healing)
            && let Some(primary) = self.replica.view().primary
        {
            self.say(cx, primary, PeerBody::AskEntries { fid, after }, Bytes::new());
        }
    }

    /// Work has ended on which the healing of that number waited. Whether that one still goes on.
    fn end_work(&mut self, cx: &mut Cx<'_, B, R>, healing: u64) -> bool {
        let goes_on = self.is_healing(healing);
        let h = self.target.healing.as_mut().filter(|_| goes_on);
        h.map(|h| h.end_work(cx.at.now)).is_some()
    }

    /// Whether this brick heals, by the healing of that number.
    fn is_healing(&self, healing: u64) -> bool {
        self.target.begun == healing && self.replica.role() == Role::Healing
    }

    /// Whether all is healed still. If a change of the meantime could not be applied, the healing goes on.
    fn has_healed_all(&mut self, cx: &mut Cx<'_, B, R>) -> bool {
        let Some(h) = &mut self.target.healing else { return false };
        if h.inner.is_done(&self.brick) {
            return true;
        }
        h.finishing = false;
        self.ask_more(cx);
        false
    }

    /// All is healed and on disk: back into the set.
    pub(crate) fn on_healing_synced(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        healing: u64,
        synced: Result<Done, Errno>,
    ) {
        if synced.is_err() {
            self.mark_unsynced_stale();
        }
        if !self.is_healing(healing) {
            return;
        }
        if let Some(h) = &mut self.target.healing {
            h.hear(cx.at.now);
        }
        if !self.has_healed_all(cx) {
            return;
        }
        if synced.is_ok() && !matches!(self.brick.begin_trash(), Ok(None)) {
            // More was moved there meanwhile.
            return self.forget_trash_then(cx, Then::EndHealing(healing));
        }
        match synced {
            // What has come meanwhile is written in slices: all that is known of objects is forgotten at the end.
            Ok(_) => self.flush_then(cx, Then::EndHealed(healing)),
            Err(e) => self.end_healing(cx, healing, Err(e)),
        }
    }

    /// What was healed is on disk, and attributes that changed since are written.
    pub(crate) fn end_healing(&mut self, cx: &mut Cx<'_, B, R>, healing: u64, written: Result<(), Errno>) {
        if !self.is_healing(healing) || !self.has_healed_all(cx) {
            return;
        }
        let Some(h) = &mut self.target.healing else { return };
        if let Err(e) = written.and_then(|()| self.brick.end_heal()) {
            tracing::error!("{}: end the healing of brick {}: {e}", self.settings.name, self.me);
            self.target.healing = None;
            return;
        }
        self.target.asks_for_all = false;
        h.end();
        let (p, taken) = (h.inner.progress(), h.taken(cx.at.now));
        tracing::info!(
            "{}: brick {} has healed {} objects, {} bytes copied, {} found right, in {taken:?}",
            self.settings.name,
            self.me,
            p.done,
            p.bytes,
            p.same,
        );
        self.feed(cx, Input::Healed);
    }

    /// A change of the stream while this brick heals. When all is healed nothing is left to heal what cannot be applied: it
    /// is treated as on a brick in sync.
    pub(crate) fn apply_healing(&mut self, now: Duration, entry: &LogEntry<Content>) -> Result<(), Errno> {
        let Some(h) = &mut self.target.healing else { return self.apply_now(entry) };
        if h.has_ended() {
            h.hear(now);
            return self.apply_now(entry);
        }
        if !h.inner.awaits_primary() {
            h.hear(now);
        }
        let arriving = Arriving {
            stamp: &entry.stamp,
            op: entry.op,
            result_fid: entry.result_fid,
            change: &entry.body.change,
            payload: &entry.body.payload,
        };
        h.inner.apply(&mut self.brick, arriving)
    }
}
