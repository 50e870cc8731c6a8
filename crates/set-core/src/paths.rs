//! What lies on this set's bricks at a path that other sets know: names that files of this set have in directories of other
//! sets (docs/design/0016, "Names at their paths"), and directories of this set whose entry another set has (docs/design/0019).
//!
//! The primary asks the sets above, one folder of names or directory after the other, those folders first that got a name just
//! now, and has what lies elsewhere moved. Folders and directories in lost+found are looked at every ten seconds. What hangs on
//! copies takes a walk over all directories: it follows when another set has renamed a directory, when copies in lost+found are
//! others, and when the bricks in sync are. Only how bricks read to people depends on it: what fails is tried in the next pass, and nothing of it is written down.

use crate::brick::LocalBrick;
use crate::core::{Cx, Later, Purpose, SetCore};
use crate::elsewhere::Asking;
use crate::io::{Done, ReplyTo};
use alloc::boxed::Box;
use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use core::time::Duration;
use ids::{Epoch, Fid, SetId};
use namespace::beneath::is_absent;
use wire::limits::DEPTH_MAX;
use wire::op::Ancestor;
use wire::{Body, Change, Errno, Fail, Name, Op};

/// Between two passes over all folders; after one that found something to move, once, a shorter time.
const REST: Duration = Duration::from_secs(10);
const SHORT_REST: Duration = Duration::from_secs(2);
/// After a walk so many times as long as it took.
const REST_AFTER_WALK: u32 = 20;
/// After so many walks that only had to repeat the one before the rest doubles, up to some ten minutes.
const IN_VAIN: u32 = 3;
/// Passes for all folders and directories, in each epoch: what gave way in the first comes to its place in the second.
const FOR_ALL: u32 = 2;
/// Folders and directories that are looked at in a second.
const A_SECOND: u32 = 20;
/// Folders that got names and are to be looked at before others.
const NEW: usize = 4096;

/// How far it is.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    /// Folders that got names.
    new: BTreeSet<Fid>,
    /// Those that are left of a pass.
    left: Vec<Fid>,
    listing: bool,
    /// Another set is asked, or disks.
    asks: bool,
    /// How many more may be looked at in this second.
    may: u32,
    /// The epoch in which the pass began.
    epoch: Epoch,
    /// Passes that are for everything, this one included: a brick that was away may not have it where this one has it.
    for_all: u32,
    /// The pass found something to move.
    moved: bool,
    /// It found that more is to be looked at, or could not ask for all paths.
    incomplete: bool,
    rested_shortly: bool,
    /// Walks that followed each other only because the one before found something to move.
    in_vain: u32,
    rests_until: Duration,
    /// When the last walk began, and what other sets had said of their renames by then.
    walk_begun: Duration,
    renames_seen: u64,
    /// Which copies of other sets' directories lay in lost+found, as a number.
    copies_seen: u64,
}

/// Which of these are directories of other sets, as a number that does not depend on their order.
fn copies(found: &[Fid], own: SetId) -> u64 {
    let others = found.iter().filter(|fid| fid.set != own && !fid.is_names());
    let number =
        |fid: &Fid| (fid.lsn.0 << 20 ^ u64::from(fid.epoch.0) << 10 ^ u64::from(fid.set.0)).rotate_left(7);
    others.map(number).fold(0, u64::wrapping_add)
}

/// What is to lie at a directory's path, which is asked for.
#[derive(Debug)]
pub(crate) struct PathAsked {
    /// A folder of names, or a directory of this set.
    of: Fid,
    /// The directory that is asked about.
    asked: Fid,
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
}

impl PathAsked {
    /// What an answer says: where the names belong, or whom to ask next.
    fn learn(&mut self, path: Vec<Ancestor>, other: Option<(Fid, SetId)>) -> Option<(Fid, SetId)> {
        let fits = path.first().map_or(other.map(|(dir, _)| dir), |a| Some(a.fid)) == Some(self.asked);
        self.sets += 1;
        if !fits || self.sets.max(self.path.len() + path.len()) > DEPTH_MAX {
            self.path.clear();
            return None;
        }
        self.path.extend(path);
        if let Some((dir, _)) = other {
            self.asked = dir;
        }
        other
    }

    fn place(mut self) -> Option<PathTo> {
        if self.path.is_empty() {
            return None;
        }
        let name = self.path.remove(0).name;
        self.path.reverse();
        Some(PathTo { of: self.of, path: self.path, name })
    }
}

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// A change was made that may have given a file a name in a directory of another set.
    pub(crate) fn note_new_names(&mut self, change: &Change) {
        let mut note = |dir: Fid| {
            if dir.is_names() && self.paths.new.len() < NEW {
                self.paths.new.insert(dir);
            }
        };
        match change {
            Change::EndFile { add: Some(add), .. } => note(add.dir),
            Change::EndCopy { names, .. } => names.iter().for_each(|place| note(place.dir)),
            _ => {}
        }
    }

    /// A second has passed: some more folders are looked at.
    pub(crate) fn look_at_paths(&mut self, cx: &mut Cx<'_, B, R>) {
        if !self.is_primary() {
            let Paths { listing, asks, .. } = self.paths;
            self.paths = Paths { listing, asks, ..Paths::default() };
            return;
        }
        self.paths.may = A_SECOND;
        self.look_at_next(cx);
    }

    fn look_at_next(&mut self, cx: &mut Cx<'_, B, R>) {
        while self.is_primary() && !self.paths.asks && self.paths.may > 0 {
            let Some(of) = self.paths.new.pop_first().or_else(|| self.paths.left.pop()) else {
                return self.begin_pass(cx);
            };
            self.paths.may -= 1;
            if !of.is_names() && !self.brick.has_entry_elsewhere(of) {
                continue;
            }
            let (dir, root) = (of.without_names(), self.brick.root().0);
            if dir == root {
                // Nothing leads to it, and its place is known.
                let Ok(name) = Name::new(b"root") else { return };
                self.have_at_place(cx, PathTo { of, path: Vec::new(), name });
                continue;
            }
            let asked = Box::new(PathAsked { of, asked: dir, path: Vec::new(), sets: 0 });
            self.ask_for_path(cx, asked, self.set_of(dir));
        }
    }

    /// What the other sets last said of their renames of directories: if it is another number, there were some.
    fn renames_elsewhere(&self, cx: &Cx<'_, B, R>) -> u64 {
        let others = self.settings.sets.iter().filter(|(set, _)| *set != self.set);
        let renames = others.filter_map(|(set, _)| cx.outside.room(*set)).map(|room| room.renames);
        renames.fold(0, u64::wrapping_add)
    }

    /// The next pass begins.
    fn begin_pass(&mut self, cx: &mut Cx<'_, B, R>) {
        let epoch = self.replica.view().epoch;
        let renames = self.renames_elsewhere(cx);
        let paths = &mut self.paths;
        if paths.listing || (cx.at.now < paths.rests_until && epoch == paths.epoch) {
            return;
        }
        let again = paths.moved || paths.incomplete;
        let is_new = epoch != paths.epoch || renames != paths.renames_seen;
        paths.in_vain = if again && !is_new { paths.in_vain.saturating_add(1) } else { 0 };
        paths.for_all = match epoch == paths.epoch {
            false => FOR_ALL,
            // What it could not ask for may lie elsewhere on another brick only.
            true if paths.incomplete => paths.for_all,
            true => paths.for_all.saturating_sub(1),
        };
        paths.epoch = epoch;
        let may_rest_shortly = !paths.rested_shortly && paths.in_vain <= IN_VAIN;
        let shortly = may_rest_shortly && (paths.moved || paths.for_all > 1);
        (paths.moved, paths.incomplete, paths.rested_shortly) = (false, false, shortly);
        // What cannot have its place now is tried less and less often.
        let rest = REST * 2_u32.pow(paths.in_vain.saturating_sub(IN_VAIN).min(6));
        paths.rests_until = cx.at.now + if shortly { SHORT_REST } else { rest };
        let work = if is_new || again || paths.for_all > 0 {
            (paths.walk_begun, paths.renames_seen) = (cx.at.now, renames);
            Ok(Some(self.brick.begin_placed_directories()))
        } else {
            self.brick.begin_folders()
        };
        if let Ok(Some(work)) = work {
            self.paths.listing = true;
            self.start(cx, Purpose::Paths, Ok(work));
        }
    }

    /// What may lie elsewhere than at its path is listed.
    pub(crate) fn on_listed(&mut self, cx: &mut Cx<'_, B, R>, listed: Result<Done, Errno>) {
        self.paths.listing = false;
        let found = match listed {
            Ok(Done::Hidden(found)) => {
                // This set's own directories may hang on a copy that lost its place: only a walk finds them.
                let copies = copies(&found, self.set);
                self.paths.incomplete |= copies != self.paths.copies_seen;
                self.paths.copies_seen = copies;
                found
            }
            Ok(Done::Placed(found)) => {
                let took = cx.at.now.saturating_sub(self.paths.walk_begun);
                self.paths.rests_until = self.paths.rests_until.max(cx.at.now + took * REST_AFTER_WALK);
                found
            }
            _ => return,
        };
        // The folders are taken first: much else may lie in lost+found while a brick is healed.
        let (folders, mut left): (Vec<Fid>, Vec<Fid>) = found.into_iter().partition(|fid| fid.is_names());
        left.extend(folders);
        self.paths.left = left;
        self.look_at_next(cx);
    }

    fn ask_for_path(&mut self, cx: &mut Cx<'_, B, R>, asked: Box<PathAsked>, set: SetId) {
        self.paths.asks = true;
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
        self.paths.asks = false;
        match answer {
            Ok(Body::Path { path, other }) => {
                if let Some((_, set)) = asked.learn(path, other) {
                    return self.ask_for_path(cx, asked, set);
                }
                if let Some(place) = asked.place().filter(|_| self.is_primary()) {
                    self.have_at_place(cx, place);
                }
            }
            Ok(_) => {}
            // One that is gone has no path.
            Err(Fail::Errno { errno }) if is_absent(Errno(errno)) => {}
            Err(fail) => {
                tracing::debug!("set {}: the path of {}: {fail:?}", self.set, asked.asked);
                self.paths.incomplete = true;
            }
        }
        self.look_at_next(cx);
    }

    fn is_at_place(&mut self, place: &PathTo) -> bool {
        // One that is gone has no place.
        self.brick.is_at_path(place.of, &place.path, &place.name).unwrap_or(true)
    }

    fn have_at_place(&mut self, cx: &mut Cx<'_, B, R>, place: PathTo) {
        let there = self.is_at_place(&place);
        if there && self.paths.for_all == 0 {
            return;
        }
        self.paths.moved |= !there;
        self.later.push_back(Later::PutAtPath(place.clone()));
        if place.of.is_names() {
            // Names come into a copy when that is on disk.
            self.paths.asks = true;
            let (set, op) = (self.set, Op::Fsync { fid: place.of });
            self.ask(cx, Asking::CopyOnDisk(Box::new(place)), set, op, None);
        }
    }

    /// The copy is on disk, if it could be made.
    pub(crate) fn on_copy_on_disk(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        place: PathTo,
        answer: &Result<Body, Fail>,
    ) {
        self.paths.asks = false;
        // Another brick may not have had the copy before.
        if answer.is_ok() && self.is_primary() {
            self.later.push_back(Later::PutAtPath(place));
        }
        self.look_at_next(cx);
    }

    /// The brick has all changes before it.
    pub(crate) fn put_at_path(&mut self, cx: &mut Cx<'_, B, R>, PathTo { of: fid, path, name }: PathTo) {
        let still = match fid.is_names() {
            true => self.brick.attr(fid).is_ok(),
            false => self.brick.has_entry_elsewhere(fid),
        };
        if self.is_primary() && still {
            self.order_own(cx, Change::Relocate { fid, path, name });
        }
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
        PathAsked { of: fid(9).names(), asked: fid(9), path: Vec::new(), sets: 0 }
    }

    /// Each set tells as far as it knows, and the next one goes on.
    #[test]
    fn a_path_is_put_together_of_what_sets_tell() {
        let mut a = asked();
        let next = Some((fid(9), SetId(2)));
        assert_eq!(a.learn(Vec::new(), next), next, "its entry is another set's");
        assert_eq!(
            a.learn([entry(9, "d"), entry(8, "c")].into(), Some((fid(7), SetId(3)))),
            Some((fid(7), SetId(3)))
        );
        assert_eq!(a.learn([entry(7, "b"), entry(6, "a")].into(), None), None);
        let place = a.place();
        let place = place.as_ref().map(|p| (p.of, p.path.as_slice(), p.name.as_bytes()));
        let path = [entry(6, "a"), entry(7, "b"), entry(8, "c")];
        assert_eq!(place, Some((fid(9).names(), &path[..], &b"d"[..])));
    }

    /// What is no answer to the question, or has no end, is no path.
    #[test]
    fn what_does_not_fit_is_no_path() {
        for (path, other) in
            [(Vec::from([entry(8, "x")]), None), (Vec::new(), None), (Vec::new(), Some((fid(8), SetId(2))))]
        {
            let mut a = asked();
            assert_eq!(a.learn(path, other), None);
            assert!(a.place().is_none());
        }
        let mut a = asked();
        let asks = (0..).take_while(|_| a.learn(Vec::new(), Some((fid(9), SetId(2)))).is_some()).count();
        assert!(asks <= DEPTH_MAX && a.place().is_none(), "{asks}");
    }
}
