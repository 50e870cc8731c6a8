//! What the client keeps for each set: numbers of changes under way, and files held open.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ids::{Fid, SetId};

use crate::unsynced::Unsynced;

/// Locks, whatever a thread that panicked left: the data here is valid between any two statements.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Numbers of a session's changes of one set.
#[derive(Debug, Default)]
pub(crate) struct Seqs {
    last: u64,
    /// Ascending: numbers are given in order.
    outstanding: Vec<u64>,
}

impl Seqs {
    fn begin(&mut self) -> u64 {
        self.last += 1;
        self.outstanding.push(self.last);
        self.last
    }

    fn end(&mut self, seq: u64) {
        let at = self.outstanding.binary_search(&seq);
        assert!(at.is_ok(), "a change ends once");
        if let Ok(at) = at {
            self.outstanding.remove(at);
        }
    }

    /// The largest number up to which all are finished.
    fn finished(&self) -> u64 {
        self.outstanding.first().map_or(self.last, |seq| seq - 1)
    }
}

/// One file that the client holds open, or is about to close.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    /// Open handles.
    count: u32,
    /// The set knows.
    stated: bool,
    /// A release is on its way: whoever opens the file anew has to wait for its end.
    releasing: bool,
}

/// What an opener has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Opening {
    /// Nothing: the set knows that the session holds the file open.
    Stated,
    /// Tell the set.
    State,
    /// Try again a moment later.
    Wait,
}

/// The client's memory of one set; lives as long as the client.
pub(crate) struct SetState {
    /// The set.
    pub set: SetId,
    seqs: Mutex<Seqs>,
    held: Mutex<HashMap<Fid, Held>>,
    unsynced: Mutex<Unsynced>,
    /// The view and connection era in which the set last learned of all open files (see [`SetState::mark`]).
    stated: AtomicU64,
    /// A thread is telling it.
    stating: AtomicBool,
}

impl SetState {
    pub(crate) fn new(set: SetId) -> SetState {
        SetState {
            set,
            seqs: Mutex::default(),
            held: Mutex::default(),
            unsynced: Mutex::default(),
            stated: AtomicU64::new(0),
            stating: AtomicBool::new(false),
        }
    }

    /// A number for a change; it counts as under way until the ticket is dropped.
    pub(crate) fn begin(&self) -> Ticket<'_> {
        Ticket { set: self, seq: lock(&self.seqs).begin() }
    }

    /// The largest number up to which all changes are finished.
    pub(crate) fn finished(&self) -> u64 {
        lock(&self.seqs).finished()
    }

    /// What was changed and not synced.
    pub(crate) fn unsynced(&self) -> MutexGuard<'_, Unsynced> {
        lock(&self.unsynced)
    }

    /// Counts an open file before the set is told.
    pub(crate) fn open(&self, fid: Fid) -> Opening {
        let mut held = lock(&self.held);
        let h = held.entry(fid).or_default();
        if h.releasing {
            return Opening::Wait;
        }
        h.count += 1;
        if h.stated { Opening::Stated } else { Opening::State }
    }

    /// The set knows of the open file.
    pub(crate) fn opened(&self, fid: Fid) {
        if let Some(h) = lock(&self.held).get_mut(&fid) {
            h.stated = true;
        }
    }

    /// Counts a file that was opened as it was made.
    pub(crate) fn created(&self, fid: Fid) {
        let mut held = lock(&self.held);
        let h = held.entry(fid).or_default();
        h.count += 1;
        h.stated = true;
    }

    /// An open failed: nothing is held.
    pub(crate) fn not_opened(&self, fid: Fid) {
        let mut held = lock(&self.held);
        if let Some(h) = held.get_mut(&fid) {
            h.count = h.count.saturating_sub(1);
            if h.count == 0 && !h.stated {
                held.remove(&fid);
            }
        }
    }

    /// Counts a close; whether it was the last, so that the set should hear of it.
    pub(crate) fn close(&self, fid: Fid) -> bool {
        let mut held = lock(&self.held);
        let Some(h) = held.get_mut(&fid) else { return false };
        h.count = h.count.saturating_sub(1);
        h.count == 0
    }

    /// Whether the file is still closed, so that its release goes out now; [`SetState::released`] has to follow.
    pub(crate) fn releasing(&self, fid: Fid) -> bool {
        let mut held = lock(&self.held);
        let Some(h) = held.get_mut(&fid) else { return false };
        if h.count > 0 || h.releasing {
            return false;
        }
        h.releasing = true;
        true
    }

    /// A release was answered.
    pub(crate) fn released(&self, fid: Fid) {
        let gone = lock(&self.held).remove(&fid);
        assert!(gone.is_none_or(|h| h.count == 0), "nobody opens a file while its release is on its way");
    }

    /// A release may or may not have been heard; whether the file is still closed, so that it has to be sent again.
    pub(crate) fn not_released(&self, fid: Fid) -> bool {
        let mut held = lock(&self.held);
        let Some(h) = held.get_mut(&fid) else { return false };
        h.releasing = false;
        h.stated = false;
        h.count == 0
    }

    /// How many files are held open.
    pub(crate) fn open_files(&self) -> usize {
        lock(&self.held).values().filter(|h| h.count > 0).count()
    }

    /// Whether the set may have forgotten (or never heard) which files are open: its view changed, or a connection broke.
    pub(crate) fn needs_stating(&self, mark: u64) -> bool {
        self.stated.load(Ordering::Acquire) != mark
    }

    /// Claims the task of telling; `None` if another thread has it.
    pub(crate) fn claim_stating(&self) -> Option<Stating<'_>> {
        let got = self.stating.compare_exchange(false, true, Ordering::AcqRel, Ordering::Acquire);
        got.is_ok().then_some(Stating(self))
    }
}

/// A change under way.
pub(crate) struct Ticket<'a> {
    set: &'a SetState,
    pub seq: u64,
}

impl Drop for Ticket<'_> {
    fn drop(&mut self) {
        lock(&self.set.seqs).end(self.seq);
    }
}

/// The task of telling a set which files are open.
pub(crate) struct Stating<'a>(&'a SetState);

impl Stating<'_> {
    /// The files to tell of.
    pub(crate) fn files(&self) -> Vec<Fid> {
        lock(&self.0.held).iter().filter(|(_, h)| h.count > 0 || !h.releasing).map(|(fid, _)| *fid).collect()
    }

    /// All were told.
    pub(crate) fn done(self, mark: u64) {
        self.0.stated.store(mark, Ordering::Release);
    }
}

impl Drop for Stating<'_> {
    fn drop(&mut self) {
        self.0.stating.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ids::{Epoch, Lsn};

    #[test]
    fn finished_stops_below_the_oldest_change_under_way() {
        let s = SetState::new(SetId(1));
        assert_eq!(s.finished(), 0);
        let (a, b, c) = (s.begin(), s.begin(), s.begin());
        assert_eq!((a.seq, b.seq, c.seq, s.finished()), (1, 2, 3, 0));
        drop(b);
        assert_eq!(s.finished(), 0);
        drop(a);
        assert_eq!(s.finished(), 2);
        drop(c);
        assert_eq!(s.finished(), 3);
    }

    #[test]
    fn the_set_hears_of_first_opens_and_last_closes() {
        let s = SetState::new(SetId(1));
        let fid = Fid { set: SetId(1), epoch: Epoch(1), lsn: Lsn(5) };
        assert_eq!(s.open(fid), Opening::State);
        assert_eq!(s.open(fid), Opening::State, "until the set is known to know");
        s.opened(fid);
        assert_eq!(s.open(fid), Opening::Stated);
        assert!(!s.close(fid) && !s.close(fid));
        assert!(s.close(fid), "the last one");
        assert_eq!(s.open(fid), Opening::Stated, "reopened before the release left");
        assert!(!s.releasing(fid));
        assert!(s.close(fid));
        assert!(s.releasing(fid));
        assert_eq!(s.open(fid), Opening::Wait);
        s.released(fid);
        assert_eq!(s.open(fid), Opening::State);
        s.not_opened(fid);
        assert_eq!(s.open_files(), 0);
    }
}
