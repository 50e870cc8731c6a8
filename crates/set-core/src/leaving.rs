//! Files of this set that leave it and have names in directories of other sets (docs/design/0018). Nothing is answered about
//! such a file while it is marked, whoever leads: entries may lead to the copy already, and others may change that.
//!
//! Of a file whose only name is there the set of the directory decides, with a change of its entry, after this one has agreed.
//!
//! A file of several names goes with a change of this set. The mark says then where it went and which names it has, and stays
//! until all of them lead there: each set that has some is told, then the copy's, and at last this one changes its own. All of
//! that can be said again, by whoever finds the mark.

use crate::brick::LocalBrick;
use crate::core::{Cx, SetCore};
use crate::elsewhere::Asking;
use crate::io::ReplyTo;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;
use ids::{Fid, OpId, SessionId, SetId};
use wire::op::{EntryName, Leaving};
use wire::{Body, Errno, Fail, Name, Op};

/// What is still to be told, the last first.
pub(crate) type Telling = Vec<(SetId, Op)>;

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// The set of a directory, as far as it is known here: it may have changed since. Mostly it is the one that made it.
    pub(crate) fn set_of(&mut self, dir: Fid) -> SetId {
        let (root, home) = self.brick.root();
        if dir == root { home } else { self.brick.attr_of_any(dir).map_or(dir.set, |here| here.home) }
    }

    /// Whether the operation reads, opens or changes a file that is marked to leave, or a copy that has arrived and waits for its
    /// name. The entry of such a copy may have been seen before that is on disk, and a power cut of its set may take it back: the
    /// copy goes then, and the file of before is served again. So nobody syncs the copy either, but who has marked it.
    pub(crate) fn is_about_a_moving_file(&mut self, now: Duration, session: SessionId, op: &Op) -> bool {
        if self.pending.marked_files() == 0 {
            return false;
        }
        match op {
            Op::Release { .. } => false,
            Op::Fsync { fid } => {
                !self.pending.is_marked_by(*fid, session)
                    && self.waits_for_names(now, *fid)
                    && self.awaits_name(*fid)
            }
            Op::CopyRange { from, to, .. } => [from, to].into_iter().any(|fid| self.is_held_back(now, *fid)),
            op => op.object().is_some_and(|fid| self.is_held_back(now, fid)),
        }
    }

    fn is_held_back(&mut self, now: Duration, fid: Fid) -> bool {
        self.waits_for_names(now, fid) && (self.is_leaving(fid) || self.awaits_name(fid))
    }

    /// Whether a marked file is a copy that has no name yet.
    fn awaits_name(&mut self, fid: Fid) -> bool {
        self.brick.attr(fid).is_ok_and(|attr| !attr.is_dir() && attr.nlink == 0)
            && self.brick.intent(fid).is_ok_and(|i| i.is_some_and(|i| i.drop.is_none() && i.add.is_some()))
    }

    /// Whether a marked file is marked to leave.
    fn is_leaving(&mut self, fid: Fid) -> bool {
        // A copy that is to get several names has them beside it too, and keeps being made.
        let drops = self.brick.intent(fid).is_ok_and(|intent| intent.is_some_and(|i| i.add.is_none()));
        drops && self.brick.names_of_copy(fid).is_ok_and(|names| !names.is_empty())
    }

    /// Names by the sets that have the entries.
    pub(crate) fn by_set<'a>(
        &mut self,
        names: impl Iterator<Item = &'a EntryName>,
    ) -> BTreeMap<SetId, Vec<EntryName>> {
        let mut by_set: BTreeMap<SetId, Vec<EntryName>> = BTreeMap::new();
        for EntryName { dir, name } in names {
            let (dir, name) = (dir.without_names(), name.clone());
            by_set.entry(self.set_of(dir)).or_default().push(EntryName { dir, name });
        }
        by_set
    }

    /// Tells all sets of a file that has left for good, unless somebody does.
    pub(crate) fn end_leaving(&mut self, cx: &mut Cx<'_, B, R>, fid: Fid) {
        if self.waits_for_names(cx.at.now, fid) && self.pending.begin_to_ask(fid) {
            self.send_leaver(cx, fid);
        }
    }

    /// Begins to tell them. False if the file's mark says nothing of that kind.
    pub(crate) fn send_leaver(&mut self, cx: &mut Cx<'_, B, R>, fid: Fid) -> bool {
        let (Ok(Some(intent)), Ok(Some(leaving))) = (self.brick.intent(fid), self.brick.leaving(fid)) else {
            return false;
        };
        let steps = self.telling((fid, intent.tx), leaving);
        self.send_next_step(cx, fid, steps);
        true
    }

    fn telling(&mut self, (fid, tx): (Fid, OpId), leaving: Leaving) -> Telling {
        let Leaving { to, copy, names } = leaving;
        let (home, commit, by) = (self.set, true, SessionId(0));
        // That it has gone is on disk before anybody hears of it, and each step before the next one: what is said last is said
        // by nobody again.
        let mut steps: Telling = [(home, Op::SyncFs)].into();
        let elsewhere = self.by_set(names.iter().filter(|place| place.dir.is_names()));
        for (set, names) in elsewhere {
            // One directory at a time: that set may have to ask another one about it.
            let mut by_dir: BTreeMap<Fid, Vec<EntryName>> = BTreeMap::new();
            names.into_iter().for_each(|place| by_dir.entry(place.dir).or_default().push(place));
            for names in by_dir.into_values() {
                steps.push((set, Op::Redirect { fid, home, to, copy, names }));
            }
            steps.push((set, Op::SyncFs));
        }
        steps.push((to, Op::EndFile { fid: copy, tx, commit, by }));
        steps.push((to, Op::SyncFs));
        steps.push((home, Op::Redirect { fid, home, to, copy, names }));
        steps.reverse();
        steps
    }

    fn send_next_step(&mut self, cx: &mut Cx<'_, B, R>, fid: Fid, mut steps: Telling) {
        match steps.pop() {
            Some((set, op)) => self.ask(cx, Asking::Leaving(fid, steps), set, op, None),
            None => self.pending.file_asked(fid),
        }
    }

    /// One was told, or not: then all are told again later.
    pub(crate) fn on_told_of_leaver(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        fid: Fid,
        steps: Telling,
        answer: Result<Body, Fail>,
    ) {
        match answer {
            Ok(_) => self.send_next_step(cx, fid, steps),
            Err(fail) => {
                tracing::debug!("{}: tell that {fid} has left: {fail:?}", self.settings.name);
                self.pending.file_asked(fid);
                self.note_room_for(cx.at.now, fid, &fail);
            }
        }
    }

    /// Whether the name, of any set's directory, is that of a file of this set which goes to this copy.
    pub(crate) fn is_on_its_way(&mut self, dir: Fid, name: &Name, copy: Fid) -> Result<bool, Errno> {
        let is_own = self.brick.attr(dir).is_ok();
        let dir = if is_own { dir } else { dir.names() };
        let fid = match self.brick.entry(dir, name) {
            Ok(Some(e)) if e.home == self.set && !e.is_dir() => e.fid,
            Ok(_) | Err(Errno::ESTALE | Errno::ENOENT | Errno::ENOTDIR) => return Ok(false),
            Err(e) => return Err(e),
        };
        Ok(self.brick.leaving(fid)?.is_some_and(|leaving| leaving.copy == copy))
    }
}
