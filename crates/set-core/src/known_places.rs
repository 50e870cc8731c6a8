//! What a set keeps of places, for clients whose keys are for what lies beneath a directory ([`crate::beneath`]): by which names
//! their sessions know files, and where directories are.
//!
//! Always true: nothing here grows with the number of files, and what was found of directories counts for [`KNOWN_FOR`].

use alloc::collections::BTreeMap;
use core::time::Duration;
use ids::{Epoch, Fid, SessionId, SetId};
use namespace::beneath::{FileName, Side};
use wire::Name;
use wire::op::EntryName;

/// How long it counts what was found of a directory.
pub(crate) const KNOWN_FOR: Duration = Duration::from_secs(1);
/// Directories of which it is kept.
const DIRECTORIES: usize = 4096;
/// Names that are kept of a session; the oldest goes.
const NAMES: usize = 1024;
/// Sessions of which names are kept.
const SESSIONS: usize = 4096;
/// Requests of all sessions, and of one, that wait for other sets.
const WAITING: (usize, usize) = (64, 8);

/// A file by which name it was told to a session, or shown by it.
#[derive(Debug, Default)]
struct GivenNames {
    /// The directory that the session's key is for.
    root: Fid,
    by_file: BTreeMap<Fid, (u64, FileName)>,
    by_age: BTreeMap<u64, Fid>,
    last: u64,
}

impl GivenNames {
    fn note(&mut self, fid: Fid, name: FileName) {
        self.forget(fid);
        self.last += 1;
        self.by_age.insert(self.last, fid);
        self.by_file.insert(fid, (self.last, name));
        if self.by_file.len() > NAMES
            && let Some((_, oldest)) = self.by_age.pop_first()
        {
            self.by_file.remove(&oldest);
        }
    }

    fn forget(&mut self, fid: Fid) {
        if let Some((age, _)) = self.by_file.remove(&fid) {
            self.by_age.remove(&age);
        }
    }
}

/// What is known of places.
#[derive(Debug, Default)]
pub(crate) struct Beneath {
    given: BTreeMap<SessionId, GivenNames>,
    /// Where directories are as this set sees it, by the key's directory; as of that many moves, that epoch and that time.
    near: BTreeMap<(Fid, Fid), Side>,
    near_of: Option<(u64, Epoch, Duration)>,
    /// Whether directories lie beneath the key's one, as the set has said that has the entry; until then.
    far: BTreeMap<(Fid, Fid, SetId), (bool, Duration)>,
    /// How many requests wait for other sets.
    waiting: BTreeMap<SessionId, usize>,
}

impl Beneath {
    /// A session was told that this name leads to that file, if names of it are kept.
    pub(crate) fn note_found(
        &mut self,
        session: SessionId,
        fid: Fid,
        (dir, name, home): (Fid, &Name, SetId),
    ) {
        if let Some(names) = self.given.get_mut(&session) {
            names.note(fid, FileName { at: EntryName { dir, name: name.clone() }, home });
        }
    }

    /// The session is gone for good.
    pub(crate) fn end(&mut self, session: SessionId) {
        self.given.remove(&session);
    }

    /// This brick does not lead any more. Who waits for an answer still does.
    pub(crate) fn forget_all(&mut self) {
        *self = Beneath { waiting: core::mem::take(&mut self.waiting), ..Beneath::default() };
    }

    /// Names of the session, whose key is for that directory, are kept from now on.
    pub(crate) fn keep_names(&mut self, session: SessionId, root: Fid) {
        if self.given.len() >= SESSIONS && !self.given.contains_key(&session) {
            self.given.clear();
        }
        self.given.entry(session).or_default().root = root;
    }

    /// Whether the session has asked something here, with a key for that directory.
    pub(crate) fn is_known(&self, session: SessionId, root: Fid) -> bool {
        self.given.get(&session).is_some_and(|names| names.root == root)
    }

    pub(crate) fn name_of(&self, session: SessionId, fid: Fid) -> Option<FileName> {
        self.given.get(&session)?.by_file.get(&fid).map(|(_, name)| name.clone())
    }

    pub(crate) fn forget_name(&mut self, session: SessionId, fid: Fid) {
        if let Some(names) = self.given.get_mut(&session) {
            names.forget(fid);
        }
    }

    /// Drops what this set has seen itself, if that may be another way by now.
    pub(crate) fn refresh(&mut self, now: Duration, moves: u64, epoch: Epoch) {
        let holds = |(m, e, since)| (m, e) == (moves, epoch) && now < since + KNOWN_FOR;
        if !self.near_of.is_some_and(holds) || self.near.len() >= DIRECTORIES {
            self.near.clear();
            self.near_of = Some((moves, epoch, now));
        }
    }

    /// Where this set has seen the directory.
    pub(crate) fn near(&self, root: Fid, dir: Fid) -> Option<Side> {
        self.near.get(&(root, dir)).copied()
    }

    pub(crate) fn note_near(&mut self, root: Fid, dir: Fid, near: Side) {
        self.near.insert((root, dir), near);
    }

    /// Where a directory is as that set has said, or whom to ask.
    pub(crate) fn far(&self, now: Duration, key: (Fid, Fid, SetId)) -> Side {
        match self.far.get(&key) {
            Some((inside, until)) if now < *until => {
                if *inside {
                    Side::Inside
                } else {
                    Side::Outside
                }
            }
            _ => Side::Ask(key.1, key.2),
        }
    }

    pub(crate) fn note_far(&mut self, now: Duration, key: (Fid, Fid, SetId), known: (bool, Duration)) {
        if self.far.len() >= DIRECTORIES {
            self.far.retain(|_, (_, until)| now < *until);
        }
        if self.far.len() >= DIRECTORIES {
            self.far.clear();
        }
        self.far.insert(key, known);
    }

    /// Whether one more request of the session may wait.
    pub(crate) fn begin_to_wait(&mut self, session: SessionId) -> bool {
        let (all, own) = (self.waiting.values().sum::<usize>(), self.waiting.get(&session).copied());
        let fits = all < WAITING.0 && own.unwrap_or(0) < WAITING.1;
        if fits {
            *self.waiting.entry(session).or_default() += 1;
        }
        fits
    }

    pub(crate) fn end_to_wait(&mut self, session: SessionId) {
        if let Some(own) = self.waiting.get_mut(&session) {
            *own -= 1;
            if *own == 0 {
                self.waiting.remove(&session);
            }
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

    fn name(s: &str) -> Name {
        Name::new(s.as_bytes()).unwrap_or_else(|_| unreachable!("a name"))
    }

    #[test]
    fn names_are_kept_of_sessions_that_need_them_and_the_oldest_go() {
        let (one, other) = (SessionId(1), SessionId(2));
        let mut b = Beneath::default();
        b.keep_names(one, fid(9));
        for n in 0..=NAMES as u64 {
            for session in [one, other] {
                b.note_found(session, fid(n), (fid(9), &name("a"), SetId(1)));
            }
        }
        assert!(b.name_of(one, fid(0)).is_none() && b.name_of(one, fid(1)).is_some());
        assert!(b.name_of(other, fid(1)).is_none(), "nothing is kept of it");
        b.forget_name(one, fid(1));
        assert!(b.name_of(one, fid(1)).is_none());
        assert!(b.is_known(one, fid(9)) && !b.is_known(one, fid(8)) && !b.is_known(other, fid(9)));
        b.end(one);
        assert!(b.given.is_empty());
    }

    #[test]
    fn what_was_found_counts_for_a_second() {
        let (mut b, now) = (Beneath::default(), Duration::from_secs(7));
        let (inside, outside) = ((fid(1), fid(2), SetId(2)), (fid(1), fid(3), SetId(2)));
        b.note_far(now, inside, (true, now + KNOWN_FOR));
        b.note_far(now, outside, (false, now + KNOWN_FOR));
        assert_eq!((b.far(now, inside), b.far(now, outside)), (Side::Inside, Side::Outside));
        let later = now + KNOWN_FOR;
        assert_eq!(b.far(later, inside), Side::Ask(fid(2), SetId(2)));
        assert_eq!(b.far(now, (fid(4), fid(2), SetId(2))), Side::Ask(fid(2), SetId(2)), "of another key");
        // What this set sees itself: until a directory moves, a new epoch, or as long.
        let near = |b: &mut Beneath| b.near.insert((fid(1), fid(2)), Side::Inside);
        for (now, moves, epoch, kept) in [
            (now, 1, 1, false),
            (now, 1, 1, true),
            (now, 2, 1, false),
            (now, 2, 2, false),
            (later, 2, 2, false),
        ] {
            b.refresh(now, moves, Epoch(epoch));
            assert_eq!(near(&mut b).is_some(), kept, "{now:?} {moves} {epoch}");
        }
    }

    #[test]
    fn few_requests_wait_for_other_sets() {
        let mut b = Beneath::default();
        let begun = |b: &mut Beneath, s| (0..WAITING.0).filter(|_| b.begin_to_wait(SessionId(s))).count();
        assert_eq!(begun(&mut b, 1), WAITING.1);
        let all: usize = (2..40).map(|s| begun(&mut b, s)).sum();
        assert_eq!(all, WAITING.0 - WAITING.1);
        b.end_to_wait(SessionId(1));
        assert_eq!(begun(&mut b, 50), 1);
    }
}
