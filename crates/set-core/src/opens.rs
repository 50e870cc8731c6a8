//! Which sessions have which files open: a file lives as long as somebody holds it, even without a name.
//!
//! Kept in memory by the primary only. Clients state their opens again to a new primary. For [`CLAIM_TIME`] it therefore
//! takes each file that was made before it began for open: such a file stays when it loses its last name, and is dropped
//! afterwards if nobody has claimed it. Nobody can hold a file that this primary made itself without its knowledge.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::time::Duration;
use ids::{Epoch, Fid, SessionId};

/// How long a new primary keeps nameless files for clients to claim.
pub const CLAIM_TIME: Duration = Duration::from_secs(60);

/// The time in which sessions tell a new primary what they hold open.
#[derive(Debug)]
struct Grace {
    until: Duration,
    /// The primary's first epoch: files made in it are its own.
    began: Epoch,
}

/// Opens by file and by session.
#[derive(Debug, Default)]
pub(crate) struct Opens {
    by_file: BTreeMap<Fid, BTreeSet<SessionId>>,
    by_session: BTreeMap<SessionId, BTreeSet<Fid>>,
    grace: Option<Grace>,
    /// Files that came from other sets: until when a session that holds one open may tell so.
    arrived: BTreeMap<Fid, Duration>,
}

impl Opens {
    pub(crate) fn add(&mut self, session: SessionId, fid: Fid) {
        self.by_file.entry(fid).or_default().insert(session);
        self.by_session.entry(session).or_default().insert(fid);
    }

    /// True if nobody holds the file any more.
    pub(crate) fn remove(&mut self, session: SessionId, fid: Fid) -> bool {
        if let Some(files) = self.by_session.get_mut(&session) {
            files.remove(&fid);
            if files.is_empty() {
                self.by_session.remove(&session);
            }
        }
        let Some(holders) = self.by_file.get_mut(&fid) else { return true };
        holders.remove(&session);
        if holders.is_empty() {
            self.by_file.remove(&fid);
            return true;
        }
        false
    }

    /// The session is gone: the files that nobody holds any more.
    pub(crate) fn end(&mut self, session: SessionId) -> Vec<Fid> {
        let files = self.by_session.remove(&session).unwrap_or_default();
        files.into_iter().filter(|f| self.remove(session, *f)).collect()
    }

    /// This brick leads from epoch `began` on: what sessions hold open of older files is not known yet.
    pub(crate) fn begin(&mut self, now: Duration, began: Epoch) {
        self.grace = Some(Grace { until: now + CLAIM_TIME, began });
    }

    /// Whether sessions may still claim files.
    pub(crate) fn is_grace(&self, now: Duration) -> bool {
        self.grace_until(now).is_some()
    }

    /// Until when sessions may still claim files.
    pub(crate) fn grace_until(&self, now: Duration) -> Option<Duration> {
        self.grace.as_ref().map(|g| g.until).filter(|until| now < *until)
    }

    /// How many files are held open.
    pub(crate) fn files(&self) -> usize {
        self.by_file.len()
    }

    /// How many sessions hold each file open.
    pub(crate) fn by_file(&self) -> impl Iterator<Item = (Fid, usize)> {
        self.by_file.iter().map(|(fid, sessions)| (*fid, sessions.len()))
    }

    /// How many files each session holds open.
    pub(crate) fn by_session(&self) -> impl Iterator<Item = (SessionId, usize)> {
        self.by_session.iter().map(|(session, files)| (*session, files.len()))
    }

    /// Whether a session holds the file open.
    pub(crate) fn is_open(&self, fid: Fid) -> bool {
        self.by_file.contains_key(&fid)
    }

    /// Whether this session holds the file open.
    pub(crate) fn holds(&self, session: SessionId, fid: Fid) -> bool {
        self.by_file.get(&fid).is_some_and(|holders| holders.contains(&session))
    }

    /// Whether a session holds the file open, or may do so and has not said it yet.
    pub(crate) fn may_be_open(&self, now: Duration, fid: Fid) -> bool {
        self.may_be_open_besides(now, fid, None)
    }

    /// The same of sessions other than this one.
    pub(crate) fn may_be_open_besides(&self, now: Duration, fid: Fid, one: Option<SessionId>) -> bool {
        let unknown = |g: &Grace| now < g.until && fid.epoch < g.began;
        let is_other = |holders: &BTreeSet<SessionId>| holders.iter().any(|holder| Some(*holder) != one);
        self.by_file.get(&fid).is_some_and(is_other)
            || self.grace.as_ref().is_some_and(unknown)
            || self.arrived.get(&fid).is_some_and(|until| now < *until)
    }

    /// A file came from another set: a session that holds it open tells so here.
    pub(crate) fn arrive(&mut self, now: Duration, fid: Fid) {
        self.arrived.retain(|_, until| now < *until);
        self.arrived.insert(fid, now + CLAIM_TIME);
    }

    pub(crate) fn clear(&mut self) {
        *self = Opens::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ids::{Lsn, SetId};

    #[test]
    fn a_file_is_free_when_the_last_holder_lets_go() {
        let fid = Fid { set: SetId(1), epoch: Epoch(1), lsn: Lsn(1) };
        let mut o = Opens::default();
        o.add(SessionId(1), fid);
        o.add(SessionId(2), fid);
        assert!(!o.remove(SessionId(1), fid));
        assert!(o.is_open(fid));
        assert_eq!(o.end(SessionId(2)), [fid]);
        assert!(!o.is_open(fid));
    }

    #[test]
    fn a_new_primary_takes_older_files_for_open_for_a_while() {
        let made = |epoch| Fid { set: SetId(1), epoch: Epoch(epoch), lsn: Lsn(1) };
        let (start, later) = (Duration::from_secs(5), Duration::from_secs(5) + CLAIM_TIME);
        let mut o = Opens::default();
        assert!(!o.may_be_open(start, made(3)));
        o.begin(start, Epoch(4));
        assert!(o.is_grace(start) && o.may_be_open(start, made(3)));
        assert!(!o.may_be_open(start, made(4)), "its own file");
        o.add(SessionId(1), made(3));
        assert!(o.remove(SessionId(1), made(3)));
        assert!(o.may_be_open(start, made(3)), "another one may hold it");
        assert!(!o.is_grace(later) && !o.may_be_open(later, made(3)));
        o.begin(later, Epoch(6));
        o.clear();
        assert!(!o.is_grace(later));
    }
}
