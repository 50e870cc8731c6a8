//! Files of a set that is fuller than others move there, until they are alike (docs/design/0018).
//!
//! A set that is to be emptied is fuller than any other one: all files leave it that can.
//!
//! Nothing of it is written down: whoever is primary goes over the directories of its set, one page after the other, and
//! decides by the rooms of that moment. After a pass it rests.

use crate::brick::{DirPage, LocalBrick};
use crate::core::{Cx, Due, Purpose, SetCore};
use crate::departures::TOGETHER;
use crate::file_move::FileMove;
use crate::hand_over::{HAND_OVER, MOST};
use crate::io::{Done, ReplyTo};
use crate::maintenance::RECENT;
use crate::rebalance_settings::{RebalanceSettings, RebalanceState};
use crate::turns::rested;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::slice::from_ref;
use core::time::Duration;
use ids::{Fid, SetId};
use namespace::placement::{self, SetRoom};
use wire::limits::COPY_NAMES_MAX;
use wire::op::EntryName;
use wire::{Attr, Errno};

/// Between two passes.
const REST: Duration = Duration::from_secs(30);
/// The same in a set that is to be emptied, when nothing can move.
const QUIET: Duration = Duration::from_secs(300);
/// About how many bytes of a directory's entries are looked at in one go.
const PAGE: usize = 16 << 10;

/// Names of files of several names that are remembered in a pass before no more files are; four times as many at most.
const NAMES: usize = 1 << 16;

/// How many bytes a directory counts at least that goes with all that is in it: it gets new files there.
const DIRECTORY: u64 = 1 << 20;
/// Directories of which it is remembered that they stay, at most.
const STAY: usize = 4096;

/// After which time what has moved is taken to be in the figures of rooms.
const KNOWN: Duration = Duration::from_secs(3);

/// What is read to find files.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Look {
    /// Directories that are not beneath others of this set.
    Walk,
    /// Names of a directory.
    Names,
    /// What a page of them leads to.
    Page,
}

/// How far a pass has come.
#[derive(Debug, Default)]
pub(crate) struct Rebalance {
    /// Bytes that may move before the rooms are looked at anew, and when that is.
    bytes: u64,
    known_at: Duration,
    /// The next pass begins then.
    rests_until: Duration,
    /// The next file begins then, as clients go first.
    next_at: Duration,
    /// A pass is under way.
    passes: bool,
    /// It is for files that follow a directory.
    pub(crate) follows: bool,
    /// What was tried before it, and how many directories had gone.
    tried: u64,
    given: u64,
    /// The last pass found nothing that could move.
    pub(crate) idle: bool,
    /// Work on the brick is under way.
    looks: bool,
    /// Directories to look at.
    dirs: Vec<Fid>,
    /// The directory that is being looked at, and after which entry.
    at: Option<(Fid, u64)>,
    /// Files that may move.
    files: Vec<Found>,
    /// Directories that may go with all that is in them, and the lengths of its files.
    handed: Vec<(Fid, u64)>,
    /// Directories that did not: their files move one by one.
    stay: BTreeSet<Fid>,
    /// Directories that did not as a set was busy: the next pass tries them once more.
    busy: BTreeSet<Fid>,
    /// Files of several names, some of which were not met yet.
    linked: BTreeMap<Fid, Found>,
    /// How many of their names were.
    noted: usize,
}

/// A file that may move: its length, and its names.
#[derive(Debug, Default)]
struct Found {
    size: u64,
    names: Vec<EntryName>,
}

impl Rebalance {
    /// This brick leads no more, or nothing is to move.
    pub(crate) fn clear(&mut self) {
        // Work that is under way ends by itself.
        *self = Rebalance { looks: self.looks, ..Rebalance::default() };
    }

    /// A directory did not go. It is the next one that is looked at, for its files: of very many not all are remembered.
    pub(crate) fn note_stays(&mut self, dir: Fid) {
        if self.stay.len() >= STAY {
            self.stay.clear();
        }
        self.stay.insert(dir);
        if self.passes {
            self.dirs.push(dir);
        }
    }

    /// A directory did not go as a set was busy, and may go in the next pass, if it is the first time.
    pub(crate) fn note_busy(&mut self, dir: Fid) {
        if self.busy.len() >= STAY {
            self.busy.clear();
        }
        if !self.busy.insert(dir) {
            self.note_stays(dir);
        }
    }

    /// A name of a file was met; the file, if it was the last one of its names.
    fn meet(&mut self, attr: &Attr, name: EntryName) -> Option<Found> {
        let size = attr.size;
        let links = usize::try_from(attr.nlink).unwrap_or(usize::MAX);
        if links <= 1 {
            return Some(Found { size, names: [name].into() });
        }
        // Names of files that are known count on: the first files that are met get complete, and leave room for others.
        let room = if self.linked.contains_key(&attr.fid) { 4 * NAMES } else { NAMES };
        if links > COPY_NAMES_MAX || self.noted >= room {
            return None;
        }
        self.noted += 1;
        let found = self.linked.entry(attr.fid).or_default();
        found.size = size;
        found.names.push(name);
        if found.names.len() < links {
            return None;
        }
        let found = self.linked.remove(&attr.fid)?;
        self.noted = self.noted.saturating_sub(found.names.len());
        Some(found)
    }
}

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// The volume's options may have changed, from these.
    pub(crate) fn on_rebalance_settings(&mut self, before: RebalanceSettings) {
        let now = self.settings.rebalance;
        let (was, is) = (before.state, now.state);
        if before.moves() && !now.moves() {
            self.departures.give_up();
        }
        if before.drains != now.drains {
            self.departures.rebalance.clear();
        }
        if was == RebalanceState::Off && is == RebalanceState::On {
            self.departures.count_anew();
        }
    }

    /// Begins to move what should, or looks for it.
    pub(crate) fn rebalance_on(&mut self, cx: &mut Cx<'_, B, R>) {
        if !self.settings.rebalance.moves() || !self.is_primary() {
            return self.departures.rebalance.clear();
        }
        let r = &self.departures.rebalance;
        if cx.at.now < r.rests_until.max(r.next_at) {
            return;
        }
        let (own, rooms) = self.rooms_of_moves(cx);
        let by_room = self.emptiest(own, &rooms);
        let follows = by_room.is_none();
        let Some((to, bytes)) = by_room.or_else(|| self.follow_to(own, &rooms)) else { return };
        if cx.at.now >= self.departures.rebalance.known_at {
            let r = &mut self.departures.rebalance;
            (r.bytes, r.known_at) = (bytes, cx.at.now + KNOWN);
        }
        self.hand_over_on(cx);
        let together = self.together(cx, to).saturating_sub(self.hand_over.working());
        while cx.at.now >= self.hand_over.next_at
            && self.departures.may_begin(together)
            && self.departures.rebalance.bytes > 0
        {
            let Some(Found { size, mut names }) = self.departures.rebalance.files.pop() else { break };
            let Some(EntryName { dir, name }) = names.pop() else { continue };
            let to = self.home_of_name(dir, own, &rooms).unwrap_or(to);
            self.departures.rebalance.bytes = self.departures.rebalance.bytes.saturating_sub(size);
            self.begin_departure(cx, FileMove { parent: dir, name, also: names, to });
        }
        let r = &self.departures.rebalance;
        if r.files.is_empty() && r.bytes > 0 && r.handed.len() < TOGETHER {
            self.look_for_files(cx, follows);
        }
    }

    /// Begins to give away the next directory that was found, if one may begin.
    pub(crate) fn give_more(&mut self, cx: &mut Cx<'_, B, R>) {
        let r = &self.departures.rebalance;
        let is_time = cx.at.now >= r.next_at.max(self.hand_over.next_at);
        let may = self.settings.rebalance.moves() && self.is_primary() && is_time && r.bytes > 0;
        if !may || r.handed.is_empty() || self.hand_over.on_their_way() >= MOST {
            return;
        }
        let (own, rooms) = self.rooms_of_moves(cx);
        let Some((to, _)) = self.emptiest(own, &rooms) else { return };
        if self.hand_over.working() + self.departures.working() >= self.together(cx, to) {
            return;
        }
        let Some((dir, bytes)) = self.departures.rebalance.handed.pop() else { return };
        if self.begin_giving(cx, dir, to) {
            let r = &mut self.departures.rebalance;
            r.bytes = r.bytes.saturating_sub(bytes.max(DIRECTORY));
            self.departures.note_tried();
        } else {
            self.departures.rebalance.note_stays(dir);
        }
        // Another one may begin, in its turn.
        self.timers.set(cx.at.now, Due::Rebalance);
    }

    /// Whether directories may be found that can begin to go now.
    pub(crate) fn may_find_directories(&self) -> bool {
        let r = &self.departures.rebalance;
        let looks = r.looks || r.at.is_some() || !r.dirs.is_empty();
        let may = self.settings.rebalance.moves() && r.bytes > 0;
        may && (!r.handed.is_empty() || r.passes && looks && r.files.is_empty())
    }

    /// How much is moved at the same time.
    pub(crate) fn together(&self, cx: &Cx<'_, B, R>, to: SetId) -> usize {
        let active = cx.at.now < cx.outside.last_call() + RECENT || is_asked(cx, to);
        self.settings.rebalance.throttle.together(active)
    }

    /// The rooms of this set and of all that are led.
    pub(crate) fn rooms_of_moves(&self, cx: &Cx<'_, B, R>) -> (Option<SetRoom>, Vec<SetRoom>) {
        let led = self.settings.sets.iter().filter(|(_, led)| *led);
        (cx.outside.room(self.set), led.filter_map(|(set, _)| cx.outside.room(*set)).collect())
    }

    /// The one of these sets to which files are to move, and how many bytes of them.
    fn emptiest(&self, own: Option<SetRoom>, rooms: &[SetRoom]) -> Option<(SetId, u64)> {
        match self.settings.rebalance.drains {
            true => placement::roomiest(self.set, rooms),
            false => own.and_then(|own| placement::emptier(&own, rooms)),
        }
    }

    /// The set of the directory for which this is the folder of names, if files may move there: they come home.
    fn home_of_name(&mut self, dir: Fid, own: Option<SetRoom>, rooms: &[SetRoom]) -> Option<SetId> {
        let home = Some(self.set_of(dir.without_names())).filter(|_| dir.is_names())?;
        let room = from_ref(rooms.iter().find(|room| room.set == home)?);
        match self.departures.rebalance.follows {
            true => placement::idler(&own?, room).map(|(set, _)| set),
            false => self.emptiest(own, room).map(|(set, _)| set),
        }
    }

    /// The next page of a directory, or the next directory. `follows`: of those only that went by load.
    fn look_for_files(&mut self, cx: &mut Cx<'_, B, R>, follows: bool) {
        let (tried, given) = (self.departures.tried(), self.departures.departed.directories);
        let went = self.departures.load.followed().filter(|_| follows);
        let r = &mut self.departures.rebalance;
        if r.looks {
            return;
        }
        if !r.passes {
            (r.passes, r.looks, r.tried, r.given) = (true, went.is_none(), tried, given);
            (r.linked, r.noted, r.follows) = (BTreeMap::new(), 0, went.is_some());
            if let Some((dir, _)) = went {
                r.dirs.push(dir.names());
                return self.timers.set(cx.at.now, Due::Rebalance);
            }
            let work = self.brick.begin_placed();
            return self.start(cx, Purpose::Rebalance(Look::Walk), Ok(work));
        }
        r.at = r.at.or_else(|| r.dirs.pop().map(|dir| (dir, 0)));
        let Some((dir, after)) = r.at else {
            // Those that do not go are looked at for their files.
            if !r.handed.is_empty() || self.hand_over.on_their_way() > 0 {
                return;
            }
            // Files that somebody may have open since before this brick led could go as soon as that is known.
            let known = self.opens.grace_until(cx.at.now);
            r.idle = r.tried == tried;
            let followed = core::mem::take(&mut r.follows);
            let rest = match (self.settings.rebalance.drains, r.idle) {
                _ if followed => KNOWN,
                (true, true) => QUIET,
                (true, false) => KNOWN,
                // Files of directories that went can follow them.
                (false, _) if r.given != given => KNOWN,
                (false, _) => REST,
            };
            (r.passes, r.rests_until) = (false, known.unwrap_or(Duration::MAX).min(cx.at.now + rest));
            if followed {
                self.departures.load.end_following();
            }
            return;
        };
        let names = self.brick.begin_list(dir).map(|work| (work, Look::Names));
        let work =
            names.or_else(|| self.brick.begin_page(dir, after, true, PAGE).map(|work| (work, Look::Page)));
        match work {
            Some((work, look)) => {
                self.departures.rebalance.looks = true;
                self.start(cx, Purpose::Rebalance(look), Ok(work));
            }
            None => {
                self.take_files(dir, after);
                let at = self.rested_for(cx, Duration::ZERO, self.settings.rebalance.throttle.rest());
                self.timers.set(at, Due::Rebalance);
            }
        }
    }

    /// Directories, names, or what they lead to, were read.
    pub(crate) fn on_looked(&mut self, cx: &mut Cx<'_, B, R>, look: Look, found: Result<Done, Errno>) {
        let r = &mut self.departures.rebalance;
        r.looks = false;
        match look {
            Look::Walk if !r.passes => return,
            Look::Walk => {
                if let Ok(Done::Placed(found)) = found {
                    // Folders of names in other sets' directories are among them.
                    r.dirs = found;
                }
                let (root, home) = self.brick.root();
                r.dirs.extend((home == self.set).then_some(root));
            }
            Look::Page => {
                if let Some((dir, after)) = r.at {
                    self.take_files(dir, after);
                }
            }
            Look::Names => {}
        }
        self.rebalance_on(cx);
    }

    /// So much was spent on a move to that set: when work on moves goes on that begins now. Clients of both servers go first.
    pub(crate) fn rested_from_move(
        &self,
        cx: &Cx<'_, B, R>,
        to: SetId,
        spent: Duration,
        from: Duration,
    ) -> Duration {
        let active = self.clients_are_active(cx) || is_asked(cx, to);
        if active { rested(from, spent, self.settings.rebalance.throttle.rest()) } else { cx.at.now }
    }

    /// The move goes on after a rest.
    pub(crate) fn go_on_later(&mut self, cx: &Cx<'_, B, R>, number: u64, (to, spent): (SetId, Duration)) {
        let at = self.rested_from_move(cx, to, spent, cx.at.now);
        self.timers.set(at, Due::Departure(number));
    }

    /// The next file begins after a rest: for what was spent on this one, and on all others that were under way meanwhile.
    pub(crate) fn begin_next_later(&mut self, cx: &Cx<'_, B, R>, (to, spent): (SetId, Duration)) {
        let from = self.departures.rebalance.next_at.max(cx.at.now);
        let at = self.rested_from_move(cx, to, spent, from);
        self.departures.rebalance.next_at = at;
        self.timers.set(at, Due::Rebalance);
    }

    fn take_files(&mut self, dir: Fid, after: u64) {
        let (level, set, large) = (self.settings.level, self.set, self.settings.large);
        let r = &mut self.departures.rebalance;
        r.at = None;
        // What is gone, or no directory of this set, has nothing that could move.
        let Ok(DirPage { entries, end, .. }) = self.brick.readdir(dir, after, true, PAGE) else { return };
        r.at = entries.last().filter(|_| !end).map(|e| (dir, e.cookie));
        if after == 0
            && end
            && level >= HAND_OVER
            && !dir.is_names()
            && !dir.is_root()
            && !r.stay.contains(&dir)
        {
            let lengths = entries.iter().filter(|e| e.home == set).filter_map(|e| e.attr.as_ref());
            let bytes = lengths.map(|attr| attr.size).sum::<u64>();
            if entries.iter().all(|e| e.kind != 0o040_000) {
                return r.handed.push((dir, bytes));
            }
        }
        let mut files = Vec::new();
        for e in entries.into_iter().filter(|e| e.home == self.set) {
            match e.attr {
                Some(attr) if attr.is_dir() => r.dirs.push(e.fid),
                // Large files are spread over all sets.
                Some(attr) if r.follows && large.is_some_and(|large| attr.size >= large) => {}
                Some(attr) if e.kind == 0o100_000 && attr.size > 0 => {
                    files.extend(r.meet(&attr, EntryName { dir, name: e.name }));
                }
                _ => {}
            }
        }
        // The largest goes first.
        files.sort_by_key(|file| file.size);
        r.files.extend(files);
    }
}

/// Whether clients ask the server of another set's primary for something: it said so a short time ago.
fn is_asked<B: LocalBrick, R>(cx: &Cx<'_, B, R>, set: SetId) -> bool {
    cx.outside.room(set).is_some_and(|room| room.asked)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ids::{Epoch, Lsn};
    use wire::Name;

    /// However many directories cannot go, the files of each are looked at in the same pass.
    #[test]
    fn a_directory_that_stays_is_looked_at_for_its_files_next() {
        let mut pass = Rebalance { passes: true, ..Rebalance::default() };
        for n in 0..3 * u64::try_from(STAY).unwrap_or(0) {
            let dir = Fid { set: SetId(1), epoch: Epoch(1), lsn: Lsn(n) };
            pass.note_stays(dir);
            assert!(pass.dirs.pop() == Some(dir) && pass.stay.contains(&dir), "{dir}");
        }
        assert!(pass.stay.len() <= STAY && pass.dirs.is_empty());
        pass.passes = false;
        pass.note_stays(Fid::default());
        assert!(pass.dirs.is_empty(), "the pass has ended");
    }

    /// A set that is away for some seconds does not keep directories from going later.
    #[test]
    fn a_directory_stays_when_its_new_set_was_busy_twice() {
        let mut pass = Rebalance { passes: true, ..Rebalance::default() };
        pass.note_busy(Fid::default());
        assert!(pass.stay.is_empty() && pass.dirs.is_empty(), "the next pass finds it again");
        pass.note_busy(Fid::default());
        assert!(pass.stay.len() == 1 && pass.dirs.len() == 1);
    }

    /// Many more names than are remembered of new files: those of the files that were met first are all taken, so that each
    /// pass moves as many files at least.
    #[test]
    fn a_pass_over_very_many_links_completes_the_files_that_it_met_first() {
        let (home, time) = (SetId(1), ids::Time::default());
        let (mode, uid, gid, nlink, rdev, size, blocks) = (0o100_644, 0, 0, 2, 0, 0, 0);
        let (atime, mtime, ctime, fid) = (time, time, time, Fid::default());
        let attr = Attr { fid, home, mode, uid, gid, nlink, rdev, size, blocks, atime, mtime, ctime };
        let mut pass = Rebalance::default();
        let files = u64::try_from(NAMES).unwrap_or(0) + 1000;
        let mut complete = 0;
        for dir in [1, 2] {
            for n in 0..files {
                let fid = Fid { set: home, epoch: Epoch(1), lsn: Lsn(100 + n) };
                let at = Fid { lsn: Lsn(dir), ..fid };
                let name = Name::new(&alloc::string::ToString::to_string(&n).into_bytes()).ok();
                let place = name.map(|name| EntryName { dir: at, name });
                let attr = Attr { fid, ..attr };
                complete +=
                    place.and_then(|place| pass.meet(&attr, place)).map_or(0, |found| found.names.len());
            }
        }
        assert_eq!(complete, 2 * NAMES);
        assert!(pass.linked.len() <= 1000 && pass.noted <= 1000, "{} {}", pass.linked.len(), pass.noted);
    }
}
