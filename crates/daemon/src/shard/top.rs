//! Which files and directories of a set are asked for most. Counted only while somebody looks.

use crate::metrics::{Counted, Heavy};
use ids::Fid;
use std::time::Duration;
use wire::Op;

/// Objects of each kind that are kept apart; others share counters.
const KEPT: usize = 256;
/// Objects that are told.
const TOLD: usize = 20;
/// Nobody looks any more.
const WATCHED: Duration = Duration::from_secs(30);

/// What is counted of one set.
#[derive(Debug)]
pub(super) struct Top {
    looked: Duration,
    files: Heavy<Fid>,
    bytes: Heavy<Fid>,
    directories: Heavy<Fid>,
}

/// What was counted, with those that count most.
#[derive(Clone, Debug, Default)]
pub(crate) struct TopReport {
    pub(crate) files: Vec<TopObject>,
    pub(crate) bytes: Vec<TopObject>,
    pub(crate) directories: Vec<TopObject>,
}

/// One object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct TopObject {
    pub(crate) fid: Fid,
    /// Its path in the volume, if it is known.
    pub(crate) path: Option<String>,
    pub(crate) count: u64,
    /// By how much the count may be too large.
    pub(crate) error: u64,
}

impl Top {
    pub(super) fn new(now: Duration) -> Top {
        let heavy = || Heavy::new(KEPT);
        Top { looked: now, files: heavy(), bytes: heavy(), directories: heavy() }
    }

    /// Whether nobody has looked for a while.
    pub(super) fn is_over(&self, now: Duration) -> bool {
        now.saturating_sub(self.looked) > WATCHED
    }

    /// A request with that much data.
    pub(super) fn note(&mut self, op: &Op, bytes: usize) {
        match object(op) {
            Some(Object::File(fid)) => self.files.add(fid, 1),
            Some(Object::Directory(fid)) => self.directories.add(fid, 1),
            None => {}
        }
        match op {
            Op::Read { fid, len, .. } => self.bytes.add(*fid, u64::from(*len)),
            Op::Write { fid, .. } => self.bytes.add(*fid, bytes as u64),
            _ => {}
        }
    }

    /// What was counted; `path` is the path of an object.
    pub(super) fn report(&mut self, now: Duration, mut path: impl FnMut(Fid) -> Option<String>) -> TopReport {
        self.looked = now;
        let mut told = |heavy: &Heavy<Fid>| {
            let all = heavy.top(TOLD).into_iter();
            all.map(|Counted { key, count, error }| TopObject { fid: key, path: path(key), count, error })
                .collect()
        };
        TopReport { files: told(&self.files), bytes: told(&self.bytes), directories: told(&self.directories) }
    }
}

/// What a request is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Object {
    File(Fid),
    Directory(Fid),
}

impl Object {
    pub(super) fn fid(self) -> Fid {
        match self {
            Object::File(fid) | Object::Directory(fid) => fid,
        }
    }
}

/// What a client's request is about; `None`: nothing that people would look for.
pub(super) fn object(op: &Op) -> Option<Object> {
    match op {
        Op::Lookup { parent, .. }
        | Op::Create { parent, .. }
        | Op::Unlink { parent, .. }
        | Op::Rmdir { parent, .. }
        | Op::Rename { parent, .. }
        | Op::Link { parent, .. }
        | Op::MoveIn { to_parent: parent, .. }
        | Op::LinkIn { parent, .. } => Some(Object::Directory(*parent)),
        Op::ReadDir { fid, .. } => Some(Object::Directory(*fid)),
        Op::Fsync { fid } | Op::CopyRange { from: fid, .. } => Some(Object::File(*fid)),
        op => op.object().map(Object::File),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ids::{Epoch, Lsn, SetId};

    fn fid(n: u64) -> Fid {
        Fid { set: SetId(1), epoch: Epoch(1), lsn: Lsn(n) }
    }

    #[test]
    fn files_count_by_requests_and_by_bytes() {
        let at = Duration::from_secs;
        let mut top = Top::new(at(1));
        top.note(&Op::Read { fid: fid(1), offset: 0, len: 4096 }, 0);
        top.note(&Op::GetAttr { fid: fid(2) }, 0);
        top.note(&Op::GetAttr { fid: fid(2) }, 0);
        top.note(&Op::Write { fid: fid(2), offset: 0, append: false, kill_suid: false }, 10);
        top.note(&Op::ReadDir { fid: fid(3), cookie: 0, plus: true }, 0);
        top.note(&Op::SyncFs, 0);
        let report = top.report(at(20), |f| (f == fid(1)).then(|| "/a".to_owned()));
        let counts = |all: &[TopObject]| all.iter().map(|o| (o.fid.lsn.0, o.count)).collect::<Vec<_>>();
        assert_eq!(counts(&report.files), [(2, 3), (1, 1)]);
        assert_eq!(counts(&report.bytes), [(1, 4096), (2, 10)]);
        assert_eq!(counts(&report.directories), [(3, 1)]);
        assert_eq!(report.bytes[0].path.as_deref(), Some("/a"));
        assert!(!top.is_over(at(50)) && top.is_over(at(51)));
    }
}
