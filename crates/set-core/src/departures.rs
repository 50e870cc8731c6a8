//! Files that move from here to other sets (docs/design/0018): the copy is made with requests like a client's, and then the
//! entry leads to it, by a transaction of this set and the other one ([`crate::joint`]).
//!
//! The entry of a file whose only name is in a directory of another set is changed there: that set is asked to do so, and asks
//! this one whether the file may go ([`crate::leaving`]). A file of several names goes with a change of this set; the sets
//! of those that are elsewhere hear of it.
//!
//! A file that somebody opens, or that changes while it is copied, stays: it is left for later. One that changes after it was
//! copied, while what clients keep of it runs out, is copied anew a few times.

use crate::arrivals::Arrivals;
use crate::brick::{LocalBrick, Read};
use crate::core::{Cx, Due, Purpose, SetCore};
use crate::departed::{Departed, Rate};
use crate::elsewhere::Asking;
use crate::file_move::{FileMove, is_of_content};
use crate::grants::GRANT;
use crate::io::{Done, Output, ReplyTo};
use crate::load::Load;
use crate::rebalance::Rebalance;
use crate::shown::shows;
use crate::steps::Waits;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use bytes::Bytes;
use core::time::Duration;
use ids::{Fid, SessionId, SetId};
use wire::limits::COPY_NAMES_MAX;
use wire::op::{COPY_NAMES, encode_names};
use wire::{Attr, Body, Change, Errno, Fail, Name, Op};

/// Bytes that are sent in one go.
const SLICE: u32 = 1 << 20;
/// Files that are copied at the same time, at most.
pub(crate) const TOGETHER: usize = 32;

/// How often a file is copied anew that is changed when its copy is complete.
const AGAIN: u32 = 3;

/// How far a file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// The copy is made.
    Arriving,
    /// Data is sent, then the attributes, and extended attributes after them.
    Copying,
    /// The copy gets its attributes again: their time with them.
    Landing,
    /// The copy is complete. What clients may still keep of the file runs out.
    Waiting,
    /// What was done here is brought to disk, so that no name comes back that a file of several names has lost.
    Syncing,
    /// The entry is about to lead to it.
    Leaving,
}

#[derive(Debug)]
struct Copying {
    file: FileMove,
    attr: Attr,
    copy: Fid,
    /// Data before it was sent.
    at: u64,
    /// Extended attributes that are not sent yet, once all data is.
    xattrs: Option<Vec<Name>>,
    /// The copy is told that it is to get several names.
    is_named: bool,
    stage: Stage,
    /// Something about the file has changed since.
    changed: bool,
    /// When something was last sent.
    sent: Duration,
    /// How long what was sent took since the last rest.
    worked: Duration,
    /// What was granted before it began to move has run out then; since then nobody is granted what shows it.
    kept_until: Duration,
    /// A session that may hold it open: its request waits for the move ([`crate::placing`]).
    holder: Option<SessionId>,
    /// How often it may be copied anew, because it was changed: never after its names were.
    again: u32,
}

/// The files that are being moved.
#[derive(Debug, Default)]
pub(crate) struct Departures {
    last: u64,
    tried: u64,
    under_way: BTreeMap<u64, Copying>,
    pub(crate) departed: Departed,
    pub(crate) rate: Rate,
    /// The last file that could not move though nobody used it, and why, unless one has moved since.
    pub(crate) problem: Option<(Fid, Fail)>,
    pub(crate) rebalance: Rebalance,
    /// What goes as this set is busier than others.
    pub(crate) load: Load,
    /// The other way.
    pub(crate) arrivals: Arrivals,
}

impl Departures {
    /// A change was made here.
    pub(crate) fn note(&mut self, change: &Change) {
        if self.under_way.is_empty() {
            return;
        }
        let touched = change.touched();
        for c in self.under_way.values_mut().filter(|c| touched.contains(&c.attr.fid)) {
            c.changed = true;
            if !is_of_content(change) {
                // Somebody may have been granted what its new name leads to.
                c.again = 0;
            }
        }
    }

    /// Whether the file is as it was copied, all of it.
    pub(crate) fn is_copied(&self, fid: Fid, copy: Fid) -> bool {
        let mut all = self.under_way.values();
        all.any(|c| (c.attr.fid, c.copy, c.stage, c.changed) == (fid, copy, Stage::Leaving, false))
    }

    /// Whether one more may begin, of so many at the same time. Those that only wait are not counted, up to a bound.
    pub(crate) fn may_begin(&self, together: usize) -> bool {
        self.working() < together && self.under_way.len() < TOGETHER
    }

    /// How many files are being moved and do not only wait.
    pub(crate) fn working(&self) -> usize {
        self.under_way.values().filter(|c| c.stage != Stage::Waiting).count()
    }

    /// What the move of that number waits for.
    pub(crate) fn waits_for(&self, number: u64) -> Option<Waits> {
        Some(match self.under_way.get(&number)?.stage {
            Stage::Arriving => Waits::Copy,
            Stage::Copying | Stage::Landing | Stage::Waiting => Waits::Data,
            Stage::Syncing => Waits::NamesToDisk,
            Stage::Leaving => Waits::Leaves,
        })
    }

    /// How many files are being moved.
    pub(crate) fn on_their_way(&self) -> usize {
        self.under_way.len()
    }

    /// How many files were begun so far, or may be free to go soon.
    pub(crate) fn tried(&self) -> u64 {
        self.tried
    }

    /// A directory was begun that may go with all that is in it.
    pub(crate) fn note_tried(&mut self) {
        self.tried += 1;
    }

    /// Whether the answer may show a file that is about to leave.
    pub(crate) fn are_shown_by(&self, op: &Op) -> bool {
        let shown = |c: &Copying, dir, name: &Name| shows(op, c.attr.fid, (dir, name));
        let by_others = |c: &Copying| c.file.also.iter().any(|p| shown(c, p.dir, &p.name));
        self.under_way.values().any(|c| shown(c, c.file.parent, &c.file.name) || by_others(c))
    }

    /// No more is copied. What is about to get its entry does.
    pub(crate) fn give_up(&mut self) {
        let given_up = self.under_way.values_mut().filter(|c| c.stage != Stage::Leaving);
        given_up.for_each(|c| (c.changed, c.again) = (true, 0));
    }

    /// What has moved so far counts no more.
    pub(crate) fn count_anew(&mut self) {
        self.departed = Departed::default();
        self.rate = Rate::default();
        self.problem = None;
    }

    /// Once a second: how fast it is.
    pub(crate) fn sample(&mut self, now: Duration) {
        self.rate.sample(now, self.departed);
    }

    /// This brick leads no more.
    pub(crate) fn clear(&mut self) {
        self.under_way.clear();
        self.count_anew();
        self.rebalance.clear();
        self.load.clear();
        self.arrivals.clear();
    }

    /// Whether a file is being moved that has a name in the directory.
    pub(crate) fn are_in(&self, dir: Fid) -> bool {
        let in_it = |c: &Copying| c.file.parent == dir || c.file.also.iter().any(|place| place.dir == dir);
        self.under_way.values().any(in_it)
    }

    pub(crate) fn moves(&self, fid: Fid) -> bool {
        self.under_way.values().any(|c| c.attr.fid == fid)
    }

    /// Whether the file moves while a request of its holder waits.
    pub(crate) fn leaves_its_holder(&self, fid: Fid) -> bool {
        self.under_way.values().any(|c| c.attr.fid == fid && c.holder.is_some())
    }

    /// The same, and its entry is about to lead to the copy.
    pub(crate) fn is_leaving_its_holder(&self, fid: Fid) -> bool {
        let leaves = |c: &Copying| c.attr.fid == fid && c.holder.is_some() && c.stage == Stage::Leaving;
        self.under_way.values().any(leaves)
    }

    /// The session that may hold the file open.
    pub(crate) fn holder(&self, fid: Fid, copy: Fid) -> Option<SessionId> {
        self.under_way.values().find(|c| (c.attr.fid, c.copy) == (fid, copy))?.holder
    }
}

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// Begins to move a file, if it may go.
    pub(crate) fn begin_departure(&mut self, cx: &mut Cx<'_, B, R>, file: FileMove) {
        let Some(attr) = self.may_depart(cx, &file) else { return };
        let predecessors = self.primary_since.map_or(Duration::ZERO, |since| since + GRANT);
        let kept_until = self.grants.outstanding().max(predecessors);
        self.depart_with(cx, (file, attr), None, kept_until);
    }

    /// A file that was changed after it had been copied is copied anew at once: nobody has been granted anything about it
    /// meanwhile, so that this takes no longer than the copy. Otherwise no file would move that is changed each second.
    fn depart_again(&mut self, cx: &mut Cx<'_, B, R>, number: u64) {
        let Some(before) = self.departures.under_way.remove(&number) else { return };
        let Some(attr) = self.may_depart(cx, &before.file) else { return };
        let number = self.depart_with(cx, (before.file, attr), None, before.kept_until);
        if let Some(c) = self.departures.under_way.get_mut(&number) {
            c.again = before.again.saturating_sub(1);
        }
    }

    /// What a file is like that may go now. It counts as tried, or as left.
    fn may_depart(&mut self, cx: &Cx<'_, B, R>, file: &FileMove) -> Option<Attr> {
        let led = self.settings.sets.contains(&(file.to, true)) && file.to != self.set;
        if !self.is_primary() || self.settings.read_only || !led || !self.departures.may_begin(TOGETHER) {
            return None;
        }
        let entry = self.brick.lookup(file.parent, &file.name).ok()??;
        if entry.home != self.set || entry.kind != 0o100_000 || self.departures.moves(entry.fid) {
            return None;
        }
        let attr = self.brick.attr(entry.fid).ok()?;
        let names = 1 + file.also.len();
        let stays = usize::try_from(attr.nlink) != Ok(names)
            || file.is_scattered() && !self.are_led(file)
            || names > COPY_NAMES_MAX
            || !file.fits_beside_a_copy()
            || self.may_be_striped(attr.fid)
            || self.striping.is_at_work(attr.fid)
            || self.opens.is_open(attr.fid);
        if stays || self.opens.may_be_open(cx.at.now, attr.fid) || self.is_held(cx.at.now, &attr) {
            self.departures.departed.left += 1;
            self.departures.tried += u64::from(!stays);
            return None;
        }
        self.departures.tried += 1;
        Some(attr)
    }

    /// Whether all sets that have names of the file can be told that it goes: nobody is answered about it until they are.
    fn are_led(&mut self, file: &FileMove) -> bool {
        let by_set = self.by_set(file.names().iter());
        by_set.keys().all(|set| *set == self.set || self.settings.sets.contains(&(*set, true)))
    }

    /// Begins to move a file that may go, also if that session holds it open; the number of the move.
    pub(crate) fn depart_with(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        (file, attr): (FileMove, Attr),
        holder: Option<SessionId>,
        kept_until: Duration,
    ) -> u64 {
        let (to, copy, sent, worked) = (file.to, Fid::default(), cx.at.now, Duration::ZERO);
        let (at, xattrs, stage, changed) = (0, None, Stage::Arriving, false);
        let (is_named, again) = (file.also.is_empty(), AGAIN);
        self.departures.last += 1;
        let number = self.departures.last;
        let copying = Copying {
            file,
            attr,
            copy,
            at,
            xattrs,
            is_named,
            stage,
            changed,
            sent,
            worked,
            kept_until,
            holder,
            again,
        };
        self.departures.under_way.insert(number, copying);
        self.ask(cx, Asking::Departing(number), to, Op::Arrive, None);
        number
    }

    /// The other set has answered, or this one has let the file go.
    pub(crate) fn on_departing(&mut self, cx: &mut Cx<'_, B, R>, number: u64, answer: Result<Body, Fail>) {
        let Some(c) = self.departures.under_way.get_mut(&number) else { return };
        c.worked += cx.at.now.saturating_sub(c.sent);
        let to = c.file.to;
        match (c.stage, answer) {
            (_, Err(fail)) if c.holder.is_some() => return self.stay(cx, number, &fail),
            (_, Err(fail)) => {
                self.stay(cx, number, &fail);
                return self.rebalance_on(cx);
            }
            (Stage::Arriving, Ok(Body::Attr { attr })) => {
                (c.copy, c.stage) = (attr.fid, Stage::Copying);
            }
            (Stage::Copying, Ok(_)) if c.holder.is_some() => {}
            (Stage::Copying, Ok(_)) => {
                let spent = core::mem::take(&mut c.worked);
                return self.go_on_later(cx, number, (to, spent));
            }
            (Stage::Landing, Ok(_)) if cx.at.now < c.kept_until => {
                c.stage = Stage::Waiting;
                let (spent, until) = (core::mem::take(&mut c.worked), c.kept_until);
                self.timers.set(until, Due::Departure(number));
                return self.begin_next_later(cx, (to, spent));
            }
            (Stage::Landing, Ok(_)) => c.stage = Stage::Waiting,
            (Stage::Syncing, Ok(_)) => {}
            (Stage::Leaving, Ok(_)) if c.holder.is_some() => {
                let (fid, copy) = (c.attr.fid, c.copy);
                self.departures.under_way.remove(&number);
                return self.on_moved(cx, number, fid, copy);
            }
            (Stage::Leaving, Ok(_)) => {
                let departed = &mut self.departures.departed;
                departed.files += 1;
                departed.linked += u64::from(!c.file.also.is_empty());
                departed.bytes += c.attr.size;
                self.departures.problem = None;
                let (spent, gone) = (c.worked, c.file.is_scattered().then_some(c.attr.fid));
                self.departures.under_way.remove(&number);
                gone.into_iter().for_each(|fid| self.end_leaving(cx, fid));
                return self.begin_next_later(cx, (to, spent));
            }
            (Stage::Arriving | Stage::Waiting, Ok(_)) => {
                return self.stay(cx, number, &Fail::from(Errno::EIO));
            }
        }
        self.go_on_departing(cx, number);
    }

    /// The file stays.
    fn stay(&mut self, cx: &mut Cx<'_, B, R>, number: u64, why: &Fail) {
        let Some(c) = self.departures.under_way.remove(&number) else { return };
        tracing::debug!(
            "{}: {} stays, set {} does not get it: {why:?}",
            self.settings.name,
            c.attr.fid,
            c.file.to
        );
        if c.holder.is_some() {
            return self.on_stayed(cx, number, why);
        }
        self.departures.departed.left += 1;
        if !matches!(why, Fail::Busy) && *why != Fail::from(Errno::EBUSY) {
            self.departures.problem = Some((c.attr.fid, why.clone()));
        }
    }

    /// Sends what comes next of a file.
    pub(crate) fn go_on_departing(&mut self, cx: &mut Cx<'_, B, R>, number: u64) {
        if let Err(e) = self.send_next(cx, number) {
            self.stay(cx, number, &e.into());
        }
    }

    fn send_next(&mut self, cx: &mut Cx<'_, B, R>, number: u64) -> Result<(), Errno> {
        let Some(c) = self.departures.under_way.get_mut(&number) else { return Ok(()) };
        if c.changed {
            if c.stage != Stage::Waiting || c.holder.is_some() || c.again == 0 {
                return Err(Errno::EBUSY);
            }
            self.depart_again(cx, number);
            return Ok(());
        }
        c.sent = cx.at.now;
        let fid = c.attr.fid;
        if c.stage == Stage::Waiting && !c.file.also.is_empty() {
            c.stage = Stage::Syncing;
            self.ask(cx, Asking::Departing(number), self.set, Op::SyncFs, None);
            return Ok(());
        }
        if matches!(c.stage, Stage::Waiting | Stage::Syncing) {
            c.stage = Stage::Leaving;
            self.ask_to_leave(cx, number);
            return Ok(());
        }
        while c.at < c.attr.size {
            match self.brick.hole(fid, c.at, B::HOLE)? {
                Some((_, true)) => c.at = c.attr.size,
                Some((len, false)) => c.at += len.max(1),
                None => {
                    let left = u32::try_from(c.attr.size - c.at).unwrap_or(SLICE).min(SLICE);
                    let len = self.brick.data_before_hole(fid, c.at, left)?.max(1);
                    match self.brick.read(fid, c.at, len)? {
                        Read::Data(data) => self.send_copy(cx, number, data),
                        Read::Work(work) => self.start(cx, Purpose::Departing(number), Ok(work)),
                    }
                    return Ok(());
                }
            }
        }
        let (to, copy) = (c.file.to, c.copy);
        let Attr { mode, uid, gid, size, atime, mtime, ctime, .. } = c.attr;
        let land = Op::Land { fid: copy, mode: mode & 0o7777, uid, gid, size, atime, mtime, ctime };
        let Some(names) = c.xattrs.take() else {
            // A change of owner takes some of them away: it goes before them.
            c.xattrs = Some(self.brick.listxattr(fid)?);
            self.ask(cx, Asking::Departing(number), to, land, None);
            return Ok(());
        };
        if names.is_empty() && !c.is_named {
            c.is_named = true;
            c.xattrs = Some(names);
            let name = Name::new(COPY_NAMES.as_bytes()).map_err(|_| Errno::EINVAL)?;
            let (op, value) = (Op::SetXattr { fid: copy, name, flags: 0 }, encode_names(&c.file.entries()));
            self.ask_with(cx, Asking::Departing(number), to, op, value.into());
            return Ok(());
        }
        let Some((name, rest)) = names.split_first() else {
            c.stage = Stage::Landing;
            self.ask(cx, Asking::Departing(number), to, land, None);
            return Ok(());
        };
        c.xattrs = Some(rest.to_vec());
        let value = self.brick.xattr(fid, name)?.unwrap_or_default();
        let op = Op::SetXattr { fid: copy, name: name.clone(), flags: 0 };
        self.ask_with(cx, Asking::Departing(number), to, op, value.into());
        Ok(())
    }

    /// The copy is complete: the set with the entry is asked to have it lead there.
    fn ask_to_leave(&mut self, cx: &mut Cx<'_, B, R>, number: u64) {
        let Some(c) = self.departures.under_way.get(&number) else { return };
        let (fid, copy, to, home) = (c.attr.fid, c.copy, c.file.to, self.set);
        let (set, op) = match c.file.clone() {
            FileMove { parent, name, also, .. } if also.is_empty() && parent.is_names() => {
                let parent = parent.without_names();
                (self.set_of(parent), Op::Retarget { parent, name, fid, home, to, copy })
            }
            FileMove { parent, name, also, .. } if also.is_empty() => {
                (home, Op::Depart { parent, name, fid, to, copy })
            }
            file => (home, Op::DepartAll { fid, to, copy, names: file.names() }),
        };
        let asked_by = self.asked_by(number);
        self.ask(cx, Asking::Departing(number), set, op, asked_by);
    }

    /// Data of a file was read.
    pub(crate) fn on_departing_data(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        number: u64,
        read: Result<Done, Errno>,
    ) {
        match read {
            Ok(Done::Data(data)) => self.send_copy(cx, number, data),
            Ok(_) => self.stay(cx, number, &Fail::from(Errno::EIO)),
            Err(e) => self.stay(cx, number, &e.into()),
        }
    }

    fn send_copy(&mut self, cx: &mut Cx<'_, B, R>, number: u64, data: Bytes) {
        let Some(c) = self.departures.under_way.get_mut(&number) else { return };
        if data.is_empty() {
            // It has become shorter.
            return self.stay(cx, number, &Fail::from(Errno::EBUSY));
        }
        let op = Op::Write { fid: c.copy, offset: c.at, append: false, kill_suid: false };
        c.at += data.len() as u64;
        let to = c.file.to;
        self.ask_with(cx, Asking::Departing(number), to, op, data);
    }

    /// Asks the primary of another set, with data.
    fn ask_with(&mut self, cx: &mut Cx<'_, B, R>, asking: Asking<R>, set: SetId, op: Op, payload: Bytes) {
        let id = self.asks.issue(asking);
        cx.out.push(Output::Ask { id, set, op, name: None, payload });
    }
}
