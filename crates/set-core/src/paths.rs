//! What lies on this set's bricks at a path that other sets know: names that files of this set have in directories of other
//! sets (docs/design/0016, "Names at their paths"), and directories of this set whose entry another set has (docs/design/0019).
//!
//! The primary asks the sets above, one folder of names or directory after the other, those first that got a name just now or
//! of which another set told, and has what lies elsewhere moved. Folders and what lies in lost+found are looked at every ten
//! seconds. What hangs on copies takes a walk over all directories: it follows when another set has renamed a directory, when
//! copies in lost+found are others, and when the bricks in sync are. What is moved is told twice, as one brick may have had no
//! room or something else in its way. Only how bricks read to people depends on it, and nothing of
//! it is written down: what fails is tried again, each folder or directory for itself, less and less often.

use crate::brick::LocalBrick;
use crate::core::{Cx, Later, Purpose, SetCore};
use crate::elsewhere::Asking;
use crate::io::{Done, ReplyTo};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;
use ids::{Epoch, Fid, SetId};
use wire::limits::DEPTH_MAX;
use wire::name::RESERVED;
use wire::op::Ancestor;
use wire::{Body, Change, Errno, Fail, Name, Op};

/// Between two looks at the folders and at lost+found, and after a walk.
const REST: Duration = Duration::from_secs(10);
/// Before the next look at a folder whose names come to their places, some of them at a time.
const SOON: Duration = Duration::from_secs(1);
/// After a walk so many times as long as it took.
const REST_AFTER_WALK: u32 = 20;
/// After so many tries the rest before the next one doubles, up to some ten minutes.
const IN_VAIN: u32 = 3;
/// Walks for all folders and directories, in each epoch: what gave way in the first comes to its place in the second.
const FOR_ALL: u32 = 2;
/// What may be done in a second: to look at a folder or directory and ask for its path is one of these, to move it some more.
const A_SECOND: u32 = 100;
const MOVE: u32 = 4;
/// Folders and directories that are to be looked at before others, and of those that are tried again.
const KEPT: usize = 4096;
/// A brick with less room may not have been able to move what it was told.
const TIGHT: u64 = 1 << 20;
/// While an answer takes longer, others are looked at that need not ask the same set.
const ANSWER_WAIT: Duration = Duration::from_secs(2);

/// How far it is.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    /// Folders that got names, and directories of which another set told.
    new: BTreeSet<Fid>,
    /// What lies in lost+found, and what a walk found, as far as it was not looked at yet.
    hidden: Vec<Fid>,
    walked: Vec<Fid>,
    /// What could not be asked for, or has been moved and may not have come to its place.
    again: BTreeMap<Fid, Again>,
    /// A listing is under way, and whether it is a walk.
    listing: bool,
    walking: bool,
    /// Disks, or another set, and since when.
    waits: Option<(SetId, Duration)>,
    /// Sets that do not answer. Until then they are not asked; `None`: an answer is still to come.
    away: BTreeMap<SetId, Option<Duration>>,
    /// What may still be done in this second.
    may: u32,
    /// The epoch for which the walks are.
    epoch: Epoch,
    /// Walks to come that are for everything: a brick that was away may not have it where this one has it.
    for_all: u32,
    /// The last walk was.
    all: bool,
    walk_wanted: bool,
    /// When folders are listed again, and when a walk may begin.
    folders_at: Duration,
    walk_at: Duration,
    /// When the last walk began, and what other sets had said of their renames by then.
    walk_begun: Duration,
    renames_seen: u64,
    /// Which copies of other sets' directories lay in lost+found, as a number.
    copies_seen: u64,
    /// More was to be tried again than is kept, and in how many walks one after the other.
    crowded: bool,
    crowded_walks: u32,
}

/// What is to be looked at again.
#[derive(Clone, Copy, Debug)]
struct Again {
    tries: u32,
    at: Duration,
    /// It is told whatever this brick has.
    always: bool,
}

impl Again {
    fn rest(self) -> Duration {
        REST * 2_u32.pow(self.tries.saturating_sub(IN_VAIN).min(6))
    }
}

impl Paths {
    /// A folder got names, or another set told of a directory.
    pub(crate) fn note(&mut self, of: Fid) {
        if self.new.len() < KEPT {
            self.new.insert(of);
        } else {
            self.walk_wanted = true;
        }
    }

    /// The bricks in sync are others: everything is told.
    fn begin_epoch(&mut self, epoch: Epoch) {
        let Paths { listing, walking, walk_begun, renames_seen, copies_seen, .. } = *self;
        let new = core::mem::take(&mut self.new);
        // A walk that is under way ends.
        let under_way = Paths { listing, walking, walk_begun, ..Paths::default() };
        let (for_all, walk_wanted) = (FOR_ALL, true);
        *self = Paths { new, epoch, for_all, walk_wanted, renames_seen, copies_seen, ..under_way };
    }

    /// A walk begins. `renames`: what other sets say of theirs; if they renamed some, what could not have its place may have it now.
    fn begin_walk(&mut self, now: Duration, renames: u64) {
        self.all = self.for_all > 0;
        self.for_all = self.for_all.saturating_sub(1);
        self.walk_wanted = self.for_all > 0;
        self.crowded_walks = if self.crowded { self.crowded_walks.saturating_add(1) } else { 0 };
        self.crowded = false;
        if renames != self.renames_seen {
            self.again.retain(|_, again| again.always);
        }
        (self.walk_begun, self.renames_seen) = (now, renames);
        (self.listing, self.walking) = (true, true);
    }

    /// What is to be looked at next, and whether its place is told whatever this brick has.
    fn next(&mut self, now: Duration) -> Option<(Fid, bool)> {
        if let Some(of) = self.new.pop_first() {
            return Some((of, self.again.get(&of).is_some_and(|again| again.always)));
        }
        while let Some(of) = self.hidden.pop() {
            if !self.again.contains_key(&of) {
                return Some((of, false));
            }
        }
        if let Some((of, again)) = self.again.iter_mut().find(|(_, again)| again.at <= now) {
            again.tries = again.tries.saturating_add(1);
            again.at = now + again.rest();
            return Some((*of, again.always));
        }
        while let Some(of) = self.walked.pop() {
            match self.again.get_mut(&of) {
                Some(again) => again.always |= self.all,
                None => return Some((of, self.all)),
            }
        }
        None
    }

    /// It is to be looked at again: it could not be asked for, or is moved now.
    fn try_again(&mut self, of: Fid, always: bool, now: Duration) {
        let known = self.again.len();
        match self.again.get_mut(&of) {
            Some(again) => again.always |= always,
            None if known < KEPT => {
                let first = Again { tries: 1, at: now, always };
                self.again.insert(of, Again { at: now + first.rest(), ..first });
            }
            // The next walk finds it.
            None => (self.walk_wanted, self.crowded) = (true, true),
        }
    }

    /// A walk has ended. `found`: `None` if it failed.
    fn end_walk(&mut self, found: Option<Vec<Fid>>, now: Duration) {
        if found.is_none() {
            self.walk_wanted = true;
            self.for_all = self.for_all.max(self.all.into());
        }
        let took = now.saturating_sub(self.walk_begun);
        let rest = REST * 2_u32.pow(self.crowded_walks.min(6));
        self.walk_at = now + rest.max(took * REST_AFTER_WALK);
        self.walked = found.unwrap_or_default();
    }

    /// Whether that set may be asked now.
    fn may_ask(&self, set: SetId, now: Duration) -> bool {
        self.away.get(&set).is_none_or(|until| until.is_some_and(|until| until <= now))
    }

    /// Whether no answer has to be waited for. `own`: this set, which is asked again all the same.
    fn goes_on(&mut self, now: Duration, own: SetId) -> bool {
        match self.waits {
            Some((_, since)) if now < since + ANSWER_WAIT => return false,
            Some((set, _)) if set != own => _ = self.away.insert(set, None),
            _ => {}
        }
        self.waits = None;
        true
    }

    /// A set has answered.
    fn answered(&mut self, set: SetId) {
        if self.waits.is_some_and(|(asked, _)| asked == set) {
            self.waits = None;
        }
        self.away.remove(&set);
    }
}

/// Which of these are directories of other sets, as a number that does not depend on their order.
fn copies(found: &[Fid], own: SetId) -> u64 {
    let others = found.iter().filter(|fid| fid.set != own && !fid.is_names());
    let number = |fid: &Fid| fid.lsn.0 << 20 ^ u64::from(fid.epoch.0) << 10 ^ u64::from(fid.set.0);
    others.map(number).fold(0, u64::wrapping_add)
}

/// What is to lie at a directory's path, which is asked for.
#[derive(Debug)]
pub(crate) struct PathAsked {
    /// A folder of names, or a directory of this set.
    of: Fid,
    /// Its place is told whatever this brick has.
    always: bool,
    /// The directory that is asked about, and the set that is asked.
    asked: Fid,
    set: SetId,
    /// What is known: from the directory upwards.
    path: Vec<Ancestor>,
    /// How many sets have answered.
    sets: usize,
}

/// Where the names of a folder, or a directory, are to lie.
#[derive(Clone, Debug)]
pub(crate) struct PathTo {
    /// The folder of names, or the directory.
    of: Fid,
    path: Vec<Ancestor>,
    name: Name,
    /// The set that answers for the directory.
    home: SetId,
}

impl PathAsked {
    /// Takes an answer. Whether another set is to be asked next.
    fn learn(&mut self, path: Vec<Ancestor>, other: Option<(Fid, SetId)>) -> bool {
        let fits = path.first().map_or(other.map(|(dir, _)| dir), |a| Some(a.fid)) == Some(self.asked);
        self.sets += 1;
        if !fits || self.sets.max(self.path.len() + path.len()) > DEPTH_MAX {
            self.path.clear();
            return false;
        }
        self.path.extend(path);
        if let Some(next) = other {
            (self.asked, self.set) = next;
        }
        other.is_some()
    }

    /// The place, if what was told can be one.
    fn place(mut self) -> Option<PathTo> {
        let fids: BTreeSet<Fid> = self.path.iter().map(|a| a.fid).collect();
        let is_dir = |fid: Fid| !fid.is_root() && !fid.is_names();
        let is_path = fids.len() == self.path.len() && self.path.iter().all(|a| is_dir(a.fid));
        let top = self.path.last()?.name.as_bytes();
        if !is_path || top == RESERVED {
            return None;
        }
        let Ancestor { name, home, .. } = self.path.remove(0);
        self.path.reverse();
        Some(PathTo { of: self.of, path: self.path, name, home })
    }
}

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// A file may have got a name in another set's directory, or a directory is this set's for certain, at a path that may be old.
    pub(crate) fn note_new_names(&mut self, change: &Change) {
        let mut note = |dir: Fid| {
            if dir.is_names() {
                self.paths.note(dir);
            }
        };
        match change {
            Change::EndFile { add: Some(add), .. } => note(add.dir),
            Change::EndCopy { names, .. } => names.iter().for_each(|place| note(place.dir)),
            Change::EndTransaction { fid, keep: true } => self.paths.note(*fid),
            _ => {}
        }
    }

    /// A second has passed: some more folders and directories are looked at.
    pub(crate) fn look_at_paths(&mut self, cx: &mut Cx<'_, B, R>) {
        let epoch = self.replica.view().epoch;
        if !self.is_primary() || self.paths.epoch != epoch {
            self.paths.begin_epoch(epoch);
        }
        // Where there is no other set nothing hangs on one, and nobody could be asked.
        let is_alone = self.settings.sets.iter().all(|(set, _)| *set == self.set);
        if is_alone || !self.is_primary() {
            self.paths.new.clear();
            return;
        }
        self.begin_listing(cx);
        self.paths.may = A_SECOND;
        self.look_at_next(cx);
    }

    /// What the other sets last said of their renames of directories: if it is another number, there were some.
    fn renames_elsewhere(&self, cx: &Cx<'_, B, R>) -> u64 {
        let others = self.settings.sets.iter().filter(|(set, _)| *set != self.set);
        let renames = others.filter_map(|(set, _)| cx.outside.room(*set)).map(|room| room.renames);
        renames.fold(0, u64::wrapping_add)
    }

    /// Lists what is to be looked at, if it is time for that.
    fn begin_listing(&mut self, cx: &mut Cx<'_, B, R>) {
        if self.paths.listing {
            return;
        }
        let (now, renames) = (cx.at.now, self.renames_elsewhere(cx));
        let paths = &mut self.paths;
        paths.walk_wanted |= renames != paths.renames_seen;
        let work = if paths.walk_wanted && paths.walked.is_empty() && now >= paths.walk_at {
            paths.begin_walk(now, renames);
            self.brick.begin_placed_directories()
        } else if paths.hidden.is_empty() && now >= paths.folders_at {
            paths.folders_at = now + REST;
            let Ok(Some(work)) = self.brick.begin_folders() else { return };
            (self.paths.listing, self.paths.walking) = (true, false);
            work
        } else {
            return;
        };
        self.start(cx, Purpose::Paths, Ok(work));
    }

    /// What may lie elsewhere than at its path is listed.
    pub(crate) fn on_listed(&mut self, cx: &mut Cx<'_, B, R>, listed: Result<Done, Errno>) {
        let (paths, now) = (&mut self.paths, cx.at.now);
        let walking = paths.walking;
        (paths.listing, paths.walking) = (false, false);
        let mut found = match listed {
            Ok(Done::Hidden(found)) => {
                // This set's own directories may hang on a copy that lost its place: only a walk finds them.
                let copies = copies(&found, self.set);
                paths.walk_wanted |= copies != paths.copies_seen;
                paths.copies_seen = copies;
                Some(found)
            }
            Ok(Done::Placed(found)) => Some(found),
            failed => {
                tracing::debug!("{}: list what may lie elsewhere: {:?}", self.settings.name, failed.err());
                None
            }
        };
        // The folders are taken first: much else may lie in lost+found while a brick is healed.
        found.iter_mut().for_each(|found| found.sort_unstable_by_key(|fid| fid.is_names()));
        if walking {
            paths.end_walk(found, now);
        } else {
            paths.hidden = found.unwrap_or_default();
        }
        self.look_at_next(cx);
    }

    fn look_at_next(&mut self, cx: &mut Cx<'_, B, R>) {
        let now = cx.at.now;
        while self.paths.may > 0 && self.paths.goes_on(now, self.set) {
            let Some((of, always)) = self.paths.next(now).filter(|_| self.is_primary()) else { return };
            self.paths.may -= 1;
            if !self.is_asked_for(of) {
                self.paths.again.remove(&of);
                continue;
            }
            let (dir, root) = (of.without_names(), self.brick.root().0);
            if dir == root {
                // Nothing leads to it, and its place is known.
                let Ok(name) = Name::new(b"root") else { return };
                let home = self.brick.root().1;
                self.have_at_place(cx, PathTo { of, path: Vec::new(), name, home }, always);
                continue;
            }
            let (set, path) = (self.set_of(dir), Vec::new());
            self.ask_for_path(cx, Box::new(PathAsked { of, always, asked: dir, set, path, sets: 0 }));
        }
    }

    fn ask_for_path(&mut self, cx: &mut Cx<'_, B, R>, asked: Box<PathAsked>) {
        let (set, now) = (asked.set, cx.at.now);
        if !self.paths.may_ask(set, now) {
            return self.paths.try_again(asked.of, asked.always, now);
        }
        self.paths.waits = Some((set, now));
        let op = Op::PathOf { fid: asked.asked };
        self.ask(cx, Asking::Path(asked), set, op, None);
    }

    /// Another set has said what leads to a directory.
    pub(crate) fn on_path(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        mut asked: Box<PathAsked>,
        answer: Result<Body, Fail>,
    ) {
        let (of, always, now) = (asked.of, asked.always, cx.at.now);
        self.paths.answered(asked.set);
        // A set that says what is wrong has answered.
        if let Err(fail) = &answer {
            tracing::debug!("{}: the path of {}: {fail:?}", self.settings.name, asked.asked);
            if !matches!(fail, Fail::Errno { .. }) && asked.set != self.set {
                self.paths.away.insert(asked.set, Some(now + REST));
            }
        }
        let place = match answer {
            Ok(Body::Path { path, other }) => {
                if asked.learn(path, other) {
                    self.ask_for_path(cx, asked);
                    return self.look_at_next(cx);
                }
                asked.place()
            }
            _ => None,
        };
        match place {
            Some(place) if self.is_primary() => self.have_at_place(cx, place, always),
            _ => self.paths.try_again(of, always, now),
        }
        self.look_at_next(cx);
    }

    fn is_at_place(&mut self, place: &PathTo) -> bool {
        // One that is gone has no place.
        self.brick.is_at_path(place.of, &place.path, &place.name).unwrap_or(true)
    }

    fn have_at_place(&mut self, cx: &mut Cx<'_, B, R>, place: PathTo, always: bool) {
        let (of, now) = (place.of, cx.at.now);
        let there = self.is_at_place(&place);
        if there && !always {
            self.paths.again.remove(&of);
            return;
        }
        // Another brick may not have been able to move it when this one was: that is told once more, and until all have room.
        if there && self.replica.available() >= TIGHT {
            self.paths.again.remove(&of);
        } else {
            self.look_again(of, true, now);
        }
        self.paths.may = self.paths.may.saturating_sub(MOVE);
        self.later.push_back(Later::PutAtPath(place.clone()));
        if of.is_names() {
            // Names come into a copy when that is on disk.
            self.paths.waits = Some((self.set, now));
            let (set, op) = (self.set, Op::Fsync { fid: of });
            self.ask(cx, Asking::CopyOnDisk(Box::new(place)), set, op, None);
        }
    }

    /// It is moved, and looked at again: soon, as long as names come to their places.
    fn look_again(&mut self, of: Fid, always: bool, now: Duration) {
        if of.is_names() && self.brick.take_unsettled(of) {
            self.paths.again.insert(of, Again { tries: 0, at: now + SOON, always });
        }
        self.paths.try_again(of, always, now);
    }

    /// The copy is on disk, if it could be made.
    pub(crate) fn on_copy_on_disk(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        place: PathTo,
        answer: &Result<Body, Fail>,
    ) {
        self.paths.answered(self.set);
        // Another brick may not have had the copy before.
        if answer.is_err() {
            self.paths.try_again(place.of, true, cx.at.now);
        } else if self.is_primary() {
            self.later.push_back(Later::PutAtPath(place));
        }
        self.look_at_next(cx);
    }

    /// The brick has all changes before it.
    pub(crate) fn put_at_path(&mut self, cx: &mut Cx<'_, B, R>, place: PathTo) {
        let PathTo { of: fid, mut path, name, home } = place;
        if self.is_primary() && self.is_asked_for(fid) {
            // Who answers for a directory that this set has made is told with it.
            let dir = fid.without_names();
            if fid.is_names() && dir.set == self.set && home != self.set && dir != self.brick.root().0 {
                path.push(Ancestor { fid: dir, home, name: name.clone() });
            }
            self.order_own(cx, Change::Relocate { fid, path, name });
        }
    }

    /// Whether it is still a folder of names, or a directory whose entry another set has.
    fn is_asked_for(&mut self, of: Fid) -> bool {
        if of.is_names() { self.brick.attr(of).is_ok() } else { self.brick.has_entry_elsewhere(of) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ids::Lsn;

    fn fid(n: u64) -> Fid {
        Fid { set: SetId(1), epoch: Epoch(1), lsn: Lsn(n) }
    }

    fn entry(n: u64, s: &str) -> Ancestor {
        let name = Name::new(s.as_bytes()).unwrap_or_else(|_| unreachable!("a name"));
        Ancestor { fid: fid(n), home: SetId(1), name }
    }

    fn asked() -> PathAsked {
        let (of, set) = (fid(9).names(), SetId(1));
        PathAsked { of, always: false, asked: fid(9), set, path: Vec::new(), sets: 0 }
    }

    /// Each set tells as far as it knows, and the next one goes on.
    #[test]
    fn a_path_is_put_together_of_what_sets_tell() {
        let mut a = asked();
        assert!(a.learn(Vec::new(), Some((fid(9), SetId(2)))), "its entry is another set's");
        assert_eq!((a.asked, a.set), (fid(9), SetId(2)));
        assert!(a.learn([entry(9, "d"), entry(8, "c")].into(), Some((fid(7), SetId(3)))));
        assert_eq!((a.asked, a.set), (fid(7), SetId(3)));
        assert!(!a.learn([entry(7, "b"), entry(6, "a")].into(), None));
        let place = a.place();
        let place = place.as_ref().map(|p| (p.of, p.path.as_slice(), p.name.as_bytes()));
        let path = [entry(6, "a"), entry(7, "b"), entry(8, "c")];
        assert_eq!(place, Some((fid(9).names(), &path[..], &b"d"[..])));
    }

    /// What is no answer to the question, has no end, or cannot be the way to a directory, is no path.
    #[test]
    fn what_does_not_fit_is_no_path() {
        for (path, other) in
            [(Vec::from([entry(8, "x")]), None), (Vec::new(), None), (Vec::new(), Some((fid(8), SetId(2))))]
        {
            let mut a = asked();
            assert!(!a.learn(path, other));
            assert!(a.place().is_none());
        }
        let mut a = asked();
        let asks = (0..).take_while(|_| a.learn(Vec::new(), Some((fid(9), SetId(2))))).count();
        assert!(asks <= DEPTH_MAX && a.place().is_none(), "{asks}");
        let root = Ancestor { fid: Fid::root(SetId(1)), ..entry(0, "x") };
        let folder = Ancestor { fid: fid(8).names(), ..entry(8, "x") };
        for above in [root, folder, entry(9, "x"), entry(8, ".mortar")] {
            let mut a = asked();
            assert!(!a.learn([entry(9, "d"), above].into(), None));
            assert!(a.place().is_none());
        }
        let mut a = asked();
        assert!(!a.learn([entry(9, ".mortar"), entry(8, "x")].into(), None));
        assert!(a.place().is_some(), "only in the root is that name the brick's own");
    }
}
