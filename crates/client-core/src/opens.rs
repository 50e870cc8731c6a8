//! The files of one set that a client holds open, and what the set knows of them.
//!
//! What must always be true: while a release is on its way nobody opens the file anew, so that a release which comes late
//! ends nothing; and a file that the set may take for open is either held, or waits for its release.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use ids::{Epoch, Fid, ServerId};
use wire::Errno;

use crate::connections::Era;

/// One file that the client holds open, or is about to close.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    /// Open handles.
    count: u32,
    /// Whether the set knows.
    told: Told,
    /// A release is on its way: whoever opens the file anew has to wait for its end.
    releasing: bool,
}

/// Whether a set knows that the session holds a file open.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum Told {
    #[default]
    No,
    /// An open was sent, and nobody waited for its answer.
    Perhaps,
    Yes,
}

/// What somebody who opens a file has to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opening {
    /// Nothing: the set knows that the session holds the file open.
    Known,
    /// Send an open to the set.
    Tell,
    /// Try again a moment later: nothing was counted.
    Wait,
}

/// Under which circumstances a set learned of all open files. If one of them changes, it may have forgotten.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ReclaimMark {
    /// The epoch of the set's view.
    pub epoch: Epoch,
    /// The server of its primary.
    pub server: ServerId,
    /// What has become of connections to that server.
    pub era: Era,
}

/// All files of one set.
#[derive(Debug, Default)]
pub(crate) struct Opens {
    held: BTreeMap<Fid, Held>,
    /// Files with open handles.
    open: usize,
    /// Files that were closed for the last time, whose release was not sent yet.
    closed: BTreeSet<Fid>,
    /// When the set last learned of all open files.
    reclaimed: Option<ReclaimMark>,
    /// Somebody is telling it.
    reclaiming: bool,
    /// Open files that came from other sets, of which this one was not told.
    arrived: BTreeSet<Fid>,
    /// Those of which it is being told.
    telling: BTreeSet<Fid>,
}

impl Opens {
    pub(crate) fn open(&mut self, fid: Fid) -> Opening {
        let h = self.held.entry(fid).or_default();
        if h.releasing {
            return Opening::Wait;
        }
        h.count += 1;
        self.open += usize::from(h.count == 1);
        if h.told == Told::Yes { Opening::Known } else { Opening::Tell }
    }

    pub(crate) fn opened(&mut self, fid: Fid) {
        if let Some(h) = self.held.get_mut(&fid) {
            h.told = Told::Yes;
        }
    }

    pub(crate) fn created(&mut self, fid: Fid) {
        let h = self.held.entry(fid).or_default();
        h.count += 1;
        h.told = Told::Yes;
        self.open += usize::from(h.count == 1);
    }

    pub(crate) fn open_failed(&mut self, fid: Fid, why: Errno) -> bool {
        let Some(h) = self.held.get_mut(&fid) else { return false };
        if h.told == Told::No && matches!(why, Errno::EINTR | Errno::ETIMEDOUT | Errno::ESHUTDOWN) {
            h.told = Told::Perhaps;
        }
        self.close(fid)
    }

    pub(crate) fn close(&mut self, fid: Fid) -> bool {
        let Some(h) = self.held.get_mut(&fid).filter(|h| h.count > 0) else { return false };
        h.count -= 1;
        if h.count > 0 {
            return false;
        }
        self.open -= 1;
        if h.told == Told::No {
            self.held.remove(&fid);
            return false;
        }
        self.closed.insert(fid) && self.closed.len() == 1
    }

    pub(crate) fn take_releases(&mut self, most: usize) -> Vec<Fid> {
        let mut taken = Vec::new();
        if self.reclaiming {
            // An open that is being told again could come in after the release.
            return taken;
        }
        while taken.len() < most
            && let Some(fid) = self.closed.pop_first()
        {
            // It may have been opened again meanwhile.
            if let Some(h) = self.held.get_mut(&fid).filter(|h| h.count == 0 && !h.releasing) {
                h.releasing = true;
                taken.push(fid);
            }
        }
        taken
    }

    pub(crate) fn released(&mut self, fids: &[Fid]) {
        for fid in fids {
            self.release_ended(*fid, Told::No);
        }
    }

    pub(crate) fn release_failed(&mut self, fids: &[Fid]) {
        for fid in fids {
            self.release_ended(*fid, Told::Perhaps);
        }
    }

    fn release_ended(&mut self, fid: Fid, told: Told) {
        let held = self.held.get_mut(&fid).filter(|h| h.releasing);
        assert!(held.is_some(), "a release ends once");
        let Some(h) = held else { return };
        (h.releasing, h.told) = (false, told);
        // Nobody opens a file while its release is on its way, but a server may say that it has made this file just now.
        match (h.count, told) {
            (0, Told::No) => drop(self.held.remove(&fid)),
            (0, _) => drop(self.closed.insert(fid)),
            _ => {}
        }
    }

    pub(crate) fn has_releases(&self) -> bool {
        !self.closed.is_empty()
    }

    pub(crate) fn open_files(&self) -> usize {
        self.open
    }

    pub(crate) fn needs_reclaim(&self, mark: ReclaimMark) -> bool {
        self.reclaimed != Some(mark) || !self.arrived.is_empty()
    }

    /// The files to tell of; `None` if somebody else is telling.
    pub(crate) fn begin_reclaim(&mut self, mark: ReclaimMark) -> Option<Vec<Fid>> {
        if self.reclaiming {
            return None;
        }
        self.reclaiming = true;
        self.telling = core::mem::take(&mut self.arrived);
        let all = self.reclaimed != Some(mark);
        let told = |(fid, h): &(&Fid, &Held)| !h.releasing && (all || self.telling.contains(fid));
        Some(self.held.iter().filter(told).map(|(fid, _)| *fid).collect())
    }

    pub(crate) fn end_reclaim(&mut self, told: Option<ReclaimMark>) {
        assert!(self.reclaiming, "what ends has begun");
        self.reclaiming = false;
        self.reclaimed = told.or(self.reclaimed);
        let mut telling = core::mem::take(&mut self.telling);
        if told.is_none() {
            self.arrived.append(&mut telling);
        }
    }

    /// A file goes on in another set, which hears of it: how many handles are open.
    pub(crate) fn leave(&mut self, fid: Fid) -> u32 {
        self.closed.remove(&fid);
        self.arrived.remove(&fid);
        let Some(h) = self.held.get_mut(&fid) else { return 0 };
        let count = core::mem::take(&mut h.count);
        self.open -= usize::from(count > 0);
        if !h.releasing {
            self.held.remove(&fid);
        }
        count
    }

    /// A file with so many open handles came from another set.
    pub(crate) fn arrive(&mut self, fid: Fid, count: u32) {
        if count == 0 {
            return;
        }
        let h = self.held.entry(fid).or_default();
        self.open += usize::from(h.count == 0);
        h.count += count;
        h.told = Told::Perhaps;
        self.arrived.insert(fid);
    }
}
