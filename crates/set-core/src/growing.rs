//! How striped files get longer (docs/design/0029): appends one after the other, and writes at positions that lie beyond the end.
//!
//! Always true: bytes of an append are written over only by what comes after it, and the other way round. Whoever wrote pieces
//! beyond the end while the file was appended to has to write again, by a layout with a new generation; and so has whoever
//! began under an earlier primary, or an append that was given up.

use crate::brick::LocalBrick;
use crate::core::{Cx, SetCore};
use crate::io::ReplyTo;
use crate::request::AdmittedRequest;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use bytes::Bytes;
use core::time::Duration;
use ids::{Fid, SessionId};
use wire::stripes::Layout;
use wire::{Attr, Body, Errno, Fail};

/// Files of which it is remembered how they grow, at most.
const REMEMBERED: usize = 16_384;
/// After so long nobody waits any more for a session that appends.
const APPENDING: Duration = Duration::from_secs(10);
/// So long a write that has to be done again goes before appends.
const WRITING: Duration = Duration::from_secs(1);

/// Who appends to a file.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Appending {
    by: (SessionId, u64),
    until: Duration,
}

/// How a file has grown since it has its generation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Grown {
    Not,
    /// By appends; it had so many bytes before the first.
    Appends(u64),
    /// By writes at positions; nobody appends before that time.
    Writes(Duration),
    /// A write at a position has to be done again, by the generation that is about to be.
    Again,
}

/// What makes a file longer, or may have been written beyond its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Growth {
    /// Pieces are written as far as that.
    Written(u64),
    /// This set does it at one moment: there is no data in pieces.
    AtOnce,
}

/// Whether a file may grow.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum May {
    Go,
    /// Not before somebody's append is over.
    Wait,
    /// Not before the pieces refuse what was begun by the present layout.
    Fence,
}

/// How all files grow. Of a file that is not noted nobody knows who has begun to write.
#[derive(Debug, Default)]
pub(crate) struct Growing {
    appends: BTreeMap<Fid, Appending>,
    grown: BTreeMap<Fid, Grown>,
}

impl Growing {
    /// The file has a new generation: nothing is under way.
    pub(crate) fn note_fenced(&mut self, now: Duration, file: Fid) {
        if self.grown.len() >= REMEMBERED {
            self.grown.clear();
        }
        let grown = match self.grown.get(&file) {
            Some(Grown::Again) => Grown::Writes(now + WRITING),
            _ => Grown::Not,
        };
        self.grown.insert(file, grown);
    }

    /// Nobody knows what may still be written by the present layout.
    pub(crate) fn forget(&mut self, file: Fid) {
        self.grown.remove(&file);
    }

    /// Whether that session appends just now to a file with this end.
    pub(crate) fn appends(&self, file: Fid, session: SessionId) -> bool {
        self.appends.get(&file).is_some_and(|holder| holder.by.0 == session)
    }

    /// Whether somebody's append is under way. One that took too long is given up, and fenced before anything else happens.
    fn is_appended(&mut self, now: Duration, file: Fid) -> bool {
        let Some(holder) = self.appends.get(&file) else { return false };
        if now >= holder.until {
            self.appends.remove(&file);
            self.forget(file);
            return false;
        }
        true
    }

    /// Whether a file may grow without an append, or have been written where an append may have gone.
    pub(crate) fn may_grow(&mut self, now: Duration, file: Fid, growth: Growth) -> May {
        let is_appended = self.is_appended(now, file);
        match (self.grown.get_mut(&file), growth) {
            (Some(Grown::Appends(since)), Growth::Written(end)) if end <= *since => May::Go,
            _ if is_appended => May::Wait,
            (None | Some(Grown::Again), _) => May::Fence,
            (Some(Grown::Appends(_)), Growth::Written(_)) => {
                self.forget(file);
                May::Fence
            }
            (Some(grown @ (Grown::Not | Grown::Writes(_))), Growth::Written(_)) => {
                *grown = Grown::Writes(Duration::ZERO);
                May::Go
            }
            (Some(_), _) => May::Go,
        }
    }

    /// Whether one more append fits beside those under way. Those that took too long are given up first.
    fn has_room(&mut self, now: Duration) -> bool {
        if self.appends.len() < REMEMBERED {
            return true;
        }
        let late: Vec<Fid> =
            self.appends.iter().filter(|(_, a)| now >= a.until).map(|(fid, _)| *fid).collect();
        for fid in late {
            self.is_appended(now, fid);
        }
        self.appends.len() < REMEMBERED
    }

    /// Whether an append may begin at that end of the file.
    fn may_append(&mut self, now: Duration, (file, end): (Fid, u64), by: (SessionId, u64)) -> May {
        let resent = self.appends.get(&file).is_some_and(|holder| holder.by == by && now < holder.until);
        if !resent && (self.is_appended(now, file) || !self.has_room(now)) {
            return May::Wait;
        }
        match self.grown.get(&file) {
            None | Some(Grown::Again) => return May::Fence,
            Some(Grown::Writes(until)) if now < *until => return May::Wait,
            Some(Grown::Writes(_) | Grown::Not) => drop(self.grown.insert(file, Grown::Appends(end))),
            Some(Grown::Appends(_)) => {}
        }
        self.appends.insert(file, Appending { by, until: now + APPENDING });
        May::Go
    }

    /// An append is over; `end`: 0 if it came to nothing. Whether it was that session's until now.
    fn ends(&mut self, file: Fid, by: (SessionId, u64), end: u64) -> bool {
        let held = self.appends.get(&file).is_some_and(|holder| holder.by == by);
        if held {
            self.appends.remove(&file);
        }
        if end == 0 {
            // Some of it may lie in pieces, or come yet.
            self.forget(file);
        }
        held
    }
}

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// The request, if the file may grow by it now.
    pub(crate) fn grow(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        attr: &Attr,
        growth: Growth,
        request: AdmittedRequest<R>,
    ) -> Option<AdmittedRequest<R>> {
        match self.striping.growing.may_grow(cx.at.now, attr.fid, growth) {
            May::Go => return Some(request),
            May::Wait => {}
            May::Fence => {
                self.fence(cx, attr);
                if matches!(growth, Growth::Written(_)) {
                    self.striping.growing.grown.insert(attr.fid, Grown::Again);
                }
            }
        }
        self.refuse(cx, request.to, Fail::Busy);
        None
    }

    /// An append is over, or what was written at positions is.
    pub(crate) fn extend(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        attr: &Attr,
        (end, append): (u64, u64),
        request: AdmittedRequest<R>,
    ) -> Option<AdmittedRequest<R>> {
        match (append, end) {
            // Nothing was written beyond the end.
            (0, 0) => Some(request),
            (0, _) => self.grow(cx, attr, Growth::Written(end), request),
            _ if self.striping.growing.ends(attr.fid, (request.session, append), end) => Some(request),
            _ => {
                // Its time is over, and others may have written there.
                self.refuse(cx, request.to, Errno::ESTALE.into());
                None
            }
        }
    }

    /// One session at a time appends.
    pub(crate) fn append(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        by: (SessionId, u64),
        (layout, attr): (Layout, Attr),
        request: AdmittedRequest<R>,
    ) {
        match self.striping.growing.may_append(cx.at.now, (attr.fid, attr.size), by) {
            May::Go => {
                let fid = attr.fid;
                let told = Ok((Body::Stripes { layout, attr }, Bytes::new()));
                return self.reply_when_committed(cx, request.to, [fid].into(), told);
            }
            May::Wait => {}
            May::Fence => self.fence(cx, &attr),
        }
        self.refuse(cx, request.to, Fail::Busy);
    }

    /// Has the pieces refuse what was begun by the present layout, and drop what lies beyond the end.
    fn fence(&mut self, cx: &mut Cx<'_, B, R>, attr: &Attr) {
        self.striping.growing.forget(attr.fid);
        self.cut(cx, attr.fid, (attr.size, None), None);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ids::{Epoch, Lsn, SetId};

    const FILE: Fid = Fid { set: SetId(1), epoch: Epoch(1), lsn: Lsn(4) };

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn by(session: u64) -> (SessionId, u64) {
        (SessionId(session), 1)
    }

    fn fenced() -> Growing {
        let mut growing = Growing::default();
        growing.note_fenced(at(0), FILE);
        growing
    }

    #[test]
    fn a_primary_that_knows_nothing_fences_first() {
        for growth in [Growth::Written(10), Growth::AtOnce] {
            let mut growing = Growing::default();
            assert_eq!(growing.may_grow(at(0), FILE, growth), May::Fence);
            growing.note_fenced(at(0), FILE);
            assert_eq!(growing.may_grow(at(0), FILE, growth), May::Go);
        }
        assert_eq!(Growing::default().may_append(at(0), (FILE, 0), by(8)), May::Fence);
    }

    #[test]
    fn what_was_written_where_an_append_went_is_written_again() {
        let mut growing = fenced();
        assert_eq!(growing.may_append(at(0), (FILE, 100), by(8)), May::Go);
        assert_eq!(growing.may_append(at(1), (FILE, 100), by(8)), May::Go, "the same again");
        assert_eq!(growing.may_append(at(1), (FILE, 100), by(9)), May::Wait);
        assert_eq!(growing.may_grow(at(1), FILE, Growth::Written(101)), May::Wait);
        assert_eq!(
            growing.may_grow(at(1), FILE, Growth::Written(100)),
            May::Go,
            "it ends before all appends"
        );
        assert_eq!(growing.may_grow(at(1), FILE, Growth::AtOnce), May::Wait);
        assert!(growing.ends(FILE, by(8), 120) && !growing.ends(FILE, by(8), 120));
        assert_eq!(growing.may_grow(at(2), FILE, Growth::Written(100)), May::Go);
        assert_eq!(growing.may_grow(at(2), FILE, Growth::AtOnce), May::Go);
        assert_eq!(growing.may_append(at(2), (FILE, 120), by(9)), May::Go);
        assert!(growing.ends(FILE, by(9), 130));
        assert_eq!(growing.may_grow(at(3), FILE, Growth::Written(101)), May::Fence, "once for all");
        growing.note_fenced(at(0), FILE);
        assert_eq!(growing.may_grow(at(3), FILE, Growth::Written(200)), May::Go);
        assert_eq!(growing.may_append(at(3), (FILE, 200), by(8)), May::Go, "what was told is done");
    }

    #[test]
    fn an_append_that_is_given_up_is_fenced() {
        for growth in [Growth::Written(10), Growth::AtOnce] {
            let mut growing = fenced();
            growing.may_append(at(0), (FILE, 100), by(8));
            assert_eq!(growing.may_grow(at(11), FILE, growth), May::Fence);
        }
        let mut growing = fenced();
        growing.may_append(at(0), (FILE, 100), by(8));
        assert_eq!(growing.may_append(at(11), (FILE, 100), by(9)), May::Fence);
        // The file got shorter than it was before all appends.
        growing.note_fenced(at(0), FILE);
        assert_eq!(growing.may_append(at(11), (FILE, 100), by(9)), May::Go);
        growing.note_fenced(at(0), FILE);
        assert!(growing.ends(FILE, by(9), 110));
        assert_eq!(growing.may_append(at(11), (FILE, 20), by(8)), May::Go);
        assert!(growing.ends(FILE, by(8), 40));
        assert_eq!(growing.may_grow(at(11), FILE, Growth::Written(30)), May::Fence);
        // It failed.
        growing.note_fenced(at(0), FILE);
        assert_eq!(growing.may_append(at(12), (FILE, 100), by(9)), May::Go);
        assert!(growing.ends(FILE, by(9), 0));
        assert_eq!(growing.may_grow(at(12), FILE, Growth::AtOnce), May::Fence);
    }

    #[test]
    fn many_appends_at_a_time_are_bounded_and_late_ones_are_given_up() {
        let mut growing = Growing::default();
        let file = |n: usize| Fid { lsn: Lsn(n as u64), ..FILE };
        let begin = |growing: &mut Growing, now, n| {
            growing.note_fenced(at(now), file(n));
            growing.may_append(at(now), (file(n), 0), by(8))
        };
        (0..REMEMBERED).for_each(|n| assert_eq!(begin(&mut growing, 0, n), May::Go));
        assert_eq!(begin(&mut growing, 9, REMEMBERED), May::Wait);
        assert_eq!(begin(&mut growing, 10, REMEMBERED), May::Go);
        assert_eq!(growing.appends.len(), 1);
    }

    /// Else a stream of appends would have the write done again for ever.
    #[test]
    fn a_write_that_is_done_again_goes_first() {
        let again = || {
            let mut growing = fenced();
            growing.grown.insert(FILE, Grown::Again);
            assert_eq!(growing.may_grow(at(4), FILE, Growth::Written(120)), May::Fence);
            growing.note_fenced(at(4), FILE);
            growing
        };
        let mut growing = again();
        assert_eq!(growing.may_append(at(4), (FILE, 100), by(8)), May::Wait);
        assert_eq!(growing.may_grow(at(4), FILE, Growth::Written(120)), May::Go);
        assert_eq!(growing.may_append(at(4), (FILE, 120), by(8)), May::Go);
        let mut growing = again();
        assert_eq!(growing.may_append(at(5), (FILE, 100), by(8)), May::Go, "it does not come");
    }
}
