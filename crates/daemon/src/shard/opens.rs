//! Which sessions have which files open: a file lives as long as somebody holds it, even without a name.
//!
//! Kept in memory by the primary only. Clients state their opens again to a new primary, which therefore waits a while
//! before it drops a nameless file that nobody claims.

use ids::{Fid, SessionId};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::time::Duration;

/// How long a new primary keeps nameless files for clients to claim.
pub(crate) const CLAIM_TIME: Duration = Duration::from_secs(60);

/// Opens by file and by session.
#[derive(Debug, Default)]
pub(crate) struct Opens {
    by_file: HashMap<Fid, BTreeSet<SessionId>>,
    by_session: HashMap<SessionId, HashSet<Fid>>,
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
        let mut free: Vec<Fid> = files.into_iter().filter(|f| self.remove(session, *f)).collect();
        free.sort();
        free
    }

    pub(crate) fn is_open(&self, fid: Fid) -> bool {
        self.by_file.contains_key(&fid)
    }

    pub(crate) fn clear(&mut self) {
        self.by_file.clear();
        self.by_session.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ids::{Epoch, Lsn, SetId};

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
}
