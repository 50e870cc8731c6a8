//! Carries on directories that another set is to answer for ([`crate::hand_over`]), a group of them together.
//!
//! While clients are active little is done at the same time, and after each piece of work it rests, as for files that move
//! ([`crate::rebalance`]).

use crate::brick::LocalBrick;
use crate::core::{Cx, Due, SetCore};
use crate::elsewhere::Asking;
use crate::grants::GRANT;
use crate::hand_over::{GATHER, Giving, HAND_OVER, MOST, Stage, Step};
use crate::io::ReplyTo;
use alloc::vec::Vec;
use core::time::Duration;
use ids::{Fid, OpId, SetId};
use wire::codec::Blob;
use wire::op::{Ancestor, HandedDir, HandedEntry};
use wire::{Attr, Body, Errno, Fail, Name, Op};

/// About how many bytes of names a directory may have that goes.
const NAMES: usize = 16 << 10;
/// How many bytes of extended attributes: ext4 has 4 KiB for all, and the other set writes beside the directory where it comes from.
const XATTRS: usize = 2 << 10;
/// Directories whose new set has not got them by then stay.
const LONGEST: Duration = Duration::from_secs(5);
/// So many go together at least, if there are so many.
const GROUP: usize = 8;

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// Begins to give a directory to another set. Whether it may go.
    pub(crate) fn begin_giving(&mut self, cx: &mut Cx<'_, B, R>, fid: Fid, to: SetId) -> bool {
        let led = self.settings.sets.contains(&(to, true)) && to != self.set;
        let may = self.is_primary() && !self.settings.read_only && self.settings.level >= HAND_OVER && led;
        if !may || self.hand_over.on_their_way() >= MOST || self.hand_over.gives(fid) {
            return false;
        }
        let Ok(Some((path, name, dir))) = self.handed(fid) else { return false };
        let (tx, parent) = (cx.outside.next_id(), path.last().map_or(self.brick.root().0, |above| above.fid));
        let predecessors = self.primary_since.map_or(Duration::ZERO, |since| since + GRANT);
        let kept_until = self.grants.outstanding().max(predecessors);
        let take = Op::TakeDir { fid, tx, from: self.set, path, name: name.clone(), dir };
        let (epoch, now, size) = (self.replica.view().epoch, cx.at.now, self.together(cx, to).max(GROUP));
        let giving = Giving { fid, tx, place: (parent, name), take: take.clone(), step: Step::Asked(now) };
        tracing::debug!("{}: directory {fid} goes to set {to}", self.settings.name);
        self.hand_over.join(giving, (to, epoch), (now, kept_until), size);
        self.timers.set(now + GATHER, Due::HandOver);
        self.ask(cx, Asking::HandedOver(tx), to, take, Some(cx.outside.next_id()));
        true
    }

    /// What another set has to know of a directory to answer for it; `None` if it has to stay.
    #[allow(clippy::type_complexity, reason = "it is one message's content")]
    fn handed(&mut self, fid: Fid) -> Result<Option<(Vec<Ancestor>, Name, HandedDir)>, Errno> {
        let attr = self.brick.attr(fid)?;
        if !attr.is_dir() || fid.is_root() || fid.is_names() || self.brick.is_pending(fid)? {
            return Ok(None);
        }
        let at = self.brick.location_of(fid)?;
        let (epoch, parent) = (self.replica.view().epoch, at.parent);
        let is_entry = self.brick.attr(parent).is_ok()
            && self.brick.lookup(parent, &at.name)?.is_some_and(|e| e.fid == fid && e.home == self.set);
        let is_meant =
            self.transactions.is_in(epoch, fid) || self.transactions.is_about(epoch, parent, &at.name);
        let waits = is_meant || self.pending.holds_names(fid) || self.departures.are_in(fid);
        if !is_entry || waits {
            return Ok(None);
        }
        let path = self.path_of(parent)?;
        let page = self.brick.readdir(fid, 0, true, NAMES)?;
        let mut entries = Vec::new();
        for e in page.entries {
            if e.kind == 0o040_000 || self.brick.is_pending(e.fid)? {
                return Ok(None);
            }
            entries.push(HandedEntry { name: e.name, fid: e.fid, home: e.home, kind: e.kind });
        }
        let mut xattrs = Vec::new();
        for name in self.brick.listxattr(fid)? {
            let value = self.brick.xattr(fid, &name)?.unwrap_or_default();
            xattrs.push((name, Blob(value)));
        }
        let many = xattrs.iter().map(|(name, value)| name.as_bytes().len() + value.0.len()).sum::<usize>();
        if !page.end || page.marked || many > XATTRS {
            return Ok(None);
        }
        let Attr { mode, uid, gid, atime, mtime, ctime, .. } = attr;
        let dir = HandedDir { mode: mode & 0o7777, uid, gid, atime, mtime, ctime, xattrs, entries };
        Ok(Some((path, at.name, dir)))
    }

    /// The other set, or this one, has done what a directory needs next, or not.
    pub(crate) fn on_handed_over(&mut self, cx: &mut Cx<'_, B, R>, tx: OpId, answer: Result<Body, Fail>) {
        let Some((group, giving)) = self.hand_over.group_of(tx) else { return };
        if let (Stage::Taking, Step::Asked(at)) = (group.stage, giving.step) {
            let to = group.to;
            self.rest_of_giving(cx, to, cx.at.now.saturating_sub(at));
        }
        if self.goes_on(cx, tx, answer) {
            self.hand_over.note_done(cx.at.now, tx);
        }
        self.hand_over_on(cx);
    }

    /// A group is on the disks of the other set, or of this one, or is not.
    pub(crate) fn on_handed_over_on_disk(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        number: u64,
        answer: &Result<Body, Fail>,
    ) {
        let Some(group) = self.hand_over.group(number) else { return };
        let (stage, to, since) = (group.stage, group.to, group.since);
        let all = group.transactions();
        self.rest_of_giving(cx, to, cx.at.now.saturating_sub(since));
        for tx in all {
            if self.goes_on(cx, tx, answer.clone()) && stage == Stage::OnDisk {
                self.end_gone(cx, tx, Some(true));
            }
        }
        match stage {
            _ if self.hand_over.group(number).is_none() => {}
            Stage::Syncing => self.sync_group(cx, number, Stage::Saving, self.set),
            Stage::Saving => self.ask_each(cx, number, Stage::Confirming),
            _ => {}
        }
        self.hand_over_on(cx);
    }

    /// A directory has gone; as [`SetCore::end_giving`].
    fn end_gone(&mut self, cx: &mut Cx<'_, B, R>, tx: OpId, outcome: Option<bool>) {
        self.departures.departed.directories += 1;
        if let Some((_, giving)) = self.hand_over.group_of(tx) {
            let dir = giving.fid;
            self.departures.load.note_went(dir);
        }
        self.end_giving(cx, tx, outcome);
    }

    /// Whether a directory goes on its way after this answer. If not it was ended.
    fn goes_on(&mut self, cx: &mut Cx<'_, B, R>, tx: OpId, answer: Result<Body, Fail>) -> bool {
        let epoch = self.replica.view().epoch;
        let Some((group, giving)) = self.hand_over.group_of(tx) else { return false };
        let (fid, may, begun_in) = (giving.fid, group.stage >= Stage::Giving, group.epoch);
        let given = may && self.brick.attr(fid) == Err(Errno::ESTALE);
        match answer {
            // That set asks, as it is not told.
            Err(_) if given => self.end_gone(cx, tx, None),
            // The change may have failed on this brick alone, or in part: that set asks who leads when it is certain.
            Err(fail) => self.keep_dir(cx, tx, &fail, (!may).then_some(false)),
            Ok(_) if epoch != begun_in && !given => {
                self.keep_dir(cx, tx, &Fail::Busy, (!may).then_some(false))
            }
            Ok(_) => return true,
        }
        false
    }

    /// So much was spent on directories that go to that set: what is done next for them waits.
    fn rest_of_giving(&mut self, cx: &Cx<'_, B, R>, to: SetId, spent: Duration) {
        let at = self.rested_from_move(cx, to, spent, self.hand_over.next_at.max(cx.at.now));
        self.hand_over.next_at = at;
        if at > cx.at.now {
            self.timers.set(at, Due::HandOver);
        }
    }

    /// Does what is next for all that are under way, and begins with more.
    pub(crate) fn hand_over_on(&mut self, cx: &mut Cx<'_, B, R>) {
        for number in self.hand_over.numbers() {
            self.hand_over.leave_slow_ones(cx.at.now, number);
            self.group_on(cx, number);
        }
        self.give_more(cx);
    }

    /// Does what is next for a group.
    fn group_on(&mut self, cx: &mut Cx<'_, B, R>, number: u64) {
        let Some(group) = self.hand_over.group(number) else { return };
        let (now, to, kept_until) = (cx.at.now, group.to, group.kept_until);
        let (stage, is_done) = (group.stage, group.is_done());
        match stage {
            Stage::Taking if is_done && !self.gathers_more(cx, number) && self.may_work(cx, to) => {
                self.sync_group(cx, number, Stage::Syncing, to);
            }
            Stage::Confirming if is_done => {
                self.enter_stage(now, number, Stage::Waiting);
                self.timers.set(kept_until, Due::HandOver);
                self.group_on(cx, number);
            }
            Stage::Waiting if now >= kept_until && self.may_work(cx, to) => {
                self.enter_stage(now, number, Stage::Giving);
                self.group_on(cx, number);
            }
            Stage::Giving if is_done => self.sync_group(cx, number, Stage::OnDisk, self.set),
            Stage::Giving => self.give_next(cx, number),
            _ => {}
        }
    }

    /// Whether more directories may join a group before it goes on.
    fn gathers_more(&mut self, cx: &Cx<'_, B, R>, number: u64) -> bool {
        let Some(group) = self.hand_over.group(number) else { return false };
        let to = group.to;
        let size = self.together(cx, to).max(GROUP);
        let more = self.hand_over.on_their_way() < MOST && self.may_find_directories();
        more && self.hand_over.group(number).is_some_and(|group| group.gathers(cx.at.now, size))
    }

    /// Whether a group may go on: after a rest, and not beside too many others.
    fn may_work(&self, cx: &Cx<'_, B, R>, to: SetId) -> bool {
        cx.at.now >= self.hand_over.next_at && self.hand_over.working() < self.together(cx, to)
    }

    fn enter_stage(&mut self, now: Duration, number: u64, stage: Stage) {
        if let Some(group) = self.hand_over.group(number) {
            group.enter(stage, now);
        }
    }

    fn sync_group(&mut self, cx: &mut Cx<'_, B, R>, number: u64, stage: Stage, set: SetId) {
        self.enter_stage(cx.at.now, number, stage);
        self.ask(cx, Asking::HandedOverOnDisk(number), set, Op::SyncFs, None);
    }

    /// A group comes into a stage in which the other set is asked about each directory again.
    fn ask_each(&mut self, cx: &mut Cx<'_, B, R>, number: u64, stage: Stage) {
        self.enter_stage(cx.at.now, number, stage);
        let Some(group) = self.hand_over.group(number) else { return };
        let (to, mut asks) = (group.to, Vec::new());
        for giving in &mut group.dirs {
            giving.step = Step::Asked(cx.at.now);
            asks.push((giving.tx, giving.take.clone()));
        }
        for (tx, take) in asks {
            self.ask(cx, Asking::HandedOver(tx), to, take, Some(cx.outside.next_id()));
        }
    }

    /// What clients may have kept of a group has run out: its directories are given away, so many at the same time.
    fn give_next(&mut self, cx: &mut Cx<'_, B, R>, number: u64) {
        let Some(group) = self.hand_over.group(number) else { return };
        let to = group.to;
        let together = self.together(cx, to);
        let Some(group) = self.hand_over.group(number) else { return };
        let asked = group.dirs.iter().filter(|giving| matches!(giving.step, Step::Asked(_))).count();
        let todo = group.dirs.iter_mut().filter(|giving| giving.step == Step::Todo);
        let mut given = Vec::new();
        for giving in todo.take(together.saturating_sub(asked)) {
            giving.step = Step::Asked(cx.at.now);
            given.push((giving.fid, giving.tx));
        }
        for (fid, tx) in given {
            let name = cx.outside.next_id();
            self.ask(cx, Asking::HandedOver(tx), self.set, Op::GiveDir { fid, tx, to }, Some(name));
        }
    }

    /// It stays. `outcome`: what the other set is told, if that is certain.
    fn keep_dir(&mut self, cx: &mut Cx<'_, B, R>, tx: OpId, why: &Fail, outcome: Option<bool>) {
        if let Some((_, giving)) = self.hand_over.group_of(tx) {
            let fid = giving.fid;
            tracing::debug!("{}: directory {fid} stays: {why:?}", self.settings.name);
            self.departures.load.note_stays(fid);
            match why {
                Fail::Busy => self.departures.rebalance.note_busy(fid),
                _ => self.departures.rebalance.note_stays(fid),
            }
        }
        self.end_giving(cx, tx, outcome);
    }

    /// Nothing more is done about it here. The other set is told what came of it, if that is certain.
    fn end_giving(&mut self, cx: &mut Cx<'_, B, R>, tx: OpId, outcome: Option<bool>) {
        let Some((Giving { fid, .. }, to)) = self.hand_over.end(tx) else { return };
        if let Some(keep) = outcome {
            self.ask(cx, Asking::TakingEnded(to, fid), to, Op::EndTaking { fid, tx, keep }, None);
        }
        if self.hand_over.on_their_way() == 0 {
            self.timers.set(self.hand_over.next_at.max(cx.at.now), Due::Rebalance);
        }
    }

    /// A set was told whether it has a directory, or was not, and will ask.
    pub(crate) fn on_taking_ended(&self, set: SetId, fid: Fid, answer: &Result<Body, Fail>) {
        if let Err(fail) = answer {
            tracing::debug!("{}: tell set {set} whether it has {fid}: {fail:?}", self.settings.name);
        }
    }

    /// Once a second: what takes too long is given up.
    pub(crate) fn look_at_giving(&mut self, cx: &mut Cx<'_, B, R>) {
        for number in self.hand_over.numbers() {
            let Some(group) = self.hand_over.group(number) else { continue };
            if cx.at.now < group.begun + LONGEST || group.stage >= Stage::Giving {
                continue;
            }
            for tx in group.transactions() {
                self.keep_dir(cx, tx, &Fail::Busy, Some(false));
            }
        }
        self.hand_over_on(cx);
    }
}
