//! What this client has changed of late. A page of a directory is told to the kernel in parts: what is told later is as old as the
//! page. For what others change the servers' grants speak ([`crate::grant`]), for what this client changes nobody does.

use std::collections::{HashMap, VecDeque};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use ids::{Fid, SetId};
use wire::reply::DirEntry;
use wire::{Attr, Body, Errno, Name, Op};

use crate::call::Client;
use crate::payload::Payload;
use crate::sets::lock;

/// What a page says is used no longer after it was asked for.
pub const PAGE_AGE: Duration = Duration::from_secs(2);
/// Names and objects that are remembered, at most.
const REMEMBERED: usize = 4096;

/// What a change is about.
#[derive(Default)]
struct Touched {
    names: Vec<(Fid, Name)>,
    objects: Vec<Fid>,
}

impl Touched {
    fn of(op: &Op) -> Touched {
        let mut touched = Touched::default();
        match op {
            Op::Create { parent, name, .. } | Op::Unlink { parent, name } | Op::Rmdir { parent, name } => {
                touched.names.push((*parent, name.clone()));
            }
            Op::Link { fid, parent, name } | Op::LinkIn { fid, parent, name, .. } => {
                touched.names.push((*parent, name.clone()));
                touched.objects.push(*fid);
            }
            Op::Rename { parent, name, to_parent, to_name, .. }
            | Op::MoveIn { parent, name, to_parent, to_name, .. } => {
                touched.names.extend([(*parent, name.clone()), (*to_parent, to_name.clone())]);
            }
            Op::CopyRange { to, .. } => touched.objects.push(*to),
            op => touched.objects.extend(op.object().filter(|_| op.changes())),
        }
        // A directory has other times then.
        touched.objects.extend(touched.names.iter().map(|(dir, _)| *dir));
        touched
    }
}

#[derive(Default)]
struct Remembered {
    names: HashMap<(Fid, Name), Instant>,
    objects: HashMap<Fid, Instant>,
    /// When the last of all these was, and the last about a name.
    last: Option<Instant>,
    last_name: Option<Instant>,
    /// Changes up to then were forgotten.
    forgotten: Option<Instant>,
    /// When a page was asked for last.
    asked: Option<Instant>,
}

impl Remembered {
    /// Somebody may use a page that is older than a change of now.
    fn are_of_use(&self) -> bool {
        self.asked.is_some_and(|asked| asked.elapsed() < PAGE_AGE)
    }

    fn note(&mut self, touched: Touched, now: Instant) {
        let many = |of: &Remembered| of.names.len() + of.objects.len() >= REMEMBERED;
        if many(self) {
            let is_new = |at: &Instant| now.saturating_duration_since(*at) < PAGE_AGE;
            self.names.retain(|_, at| is_new(at));
            self.objects.retain(|_, at| is_new(at));
        }
        if many(self) {
            self.names.clear();
            self.objects.clear();
            self.forgotten = Some(now);
        }
        self.last = Some(now);
        if !touched.names.is_empty() {
            self.last_name = Some(now);
        }
        self.names.extend(touched.names.into_iter().map(|name| (name, now)));
        self.objects.extend(touched.objects.into_iter().map(|object| (object, now)));
    }

    /// Whether attributes may be older than a change. Of which file a name was taken is not known: those with several may have one
    /// less.
    fn is_older(&self, asked: Instant, dir: Fid, name: &Name, attr: &Attr) -> bool {
        let since = |at: Option<&Instant>| at.is_some_and(|at| *at >= asked);
        since(self.forgotten.as_ref())
            || since(self.objects.get(&attr.fid))
            || since(self.names.get(&(dir, name.clone())))
            || (attr.nlink > 1 && !attr.is_dir() && since(self.last_name.as_ref()))
    }
}

/// See the module.
#[derive(Default)]
pub(crate) struct OwnChanges(Mutex<Remembered>);

impl OwnChanges {
    /// A page is asked for now.
    pub(crate) fn page_asked(&self) {
        lock(&self.0).asked = Some(Instant::now());
    }
}

impl Client {
    /// Makes one call; the answer's data goes to `into`.
    ///
    /// # Errors
    /// What the file system says; `EINTR`, `ETIMEDOUT` (soft mounts), `EROFS` (no quorum), `ENOTCONN` (the volume is
    /// stopped and the mount soft, or it was deleted), `ESHUTDOWN` (the client ends).
    pub fn call(&self, set: SetId, op: Op, payload: &[u8], into: &mut Payload<'_>) -> Result<Body, Errno> {
        let touched = op.changes().then(|| Touched::of(&op));
        let answer = self.call_one(set, op, payload, into);
        if let Some(touched) = touched {
            let mut own = lock(&self.core.own_changes.0);
            if own.are_of_use() {
                own.note(touched, Instant::now());
            }
        }
        answer
    }

    /// Takes the attributes out of entries of directory `dir`, asked for at `asked`, that this client may have changed since.
    pub fn leave_out_changed(&self, dir: Fid, asked: Instant, entries: &mut VecDeque<DirEntry>) {
        let own = lock(&self.core.own_changes.0);
        if own.last.is_none_or(|last| last < asked) {
            return;
        }
        for entry in entries {
            if entry.attr.as_ref().is_some_and(|attr| own.is_older(asked, dir, &entry.name, attr)) {
                entry.attr = None;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ids::{Epoch, Lsn, Time};

    fn fid(n: u64) -> Fid {
        Fid { set: SetId(1), epoch: Epoch(1), lsn: Lsn(n) }
    }

    fn name(s: &str) -> Name {
        Name::new(s.as_bytes()).unwrap()
    }

    fn attr(n: u64, nlink: u32) -> Attr {
        let (mode, time) = (0o100_644, Time::default());
        let (home, atime, mtime, ctime) = (SetId(1), time, time, time);
        Attr {
            fid: fid(n),
            home,
            mode,
            uid: 0,
            gid: 0,
            nlink,
            rdev: 0,
            size: 0,
            blocks: 0,
            atime,
            mtime,
            ctime,
        }
    }

    /// What is about a name, an object, or a file's other name is older than the change; all else, and what was asked for afterwards, is
    /// not.
    #[test]
    fn attributes_are_older_than_changes_of_them() {
        let (asked, dir) = (Instant::now(), fid(1));
        let later = asked + Duration::from_millis(1);
        let mut own = Remembered::default();
        own.note(Touched::of(&Op::Unlink { parent: dir, name: name("a") }), later);
        let chmod = Op::RemoveXattr { fid: fid(3), name: name("user.x") };
        own.note(Touched::of(&chmod), later);
        let is_older = |asked, n: &str, attr: &Attr| own.is_older(asked, dir, &name(n), attr);
        assert!(is_older(asked, "a", &attr(2, 1)), "by its name");
        assert!(!is_older(asked, "b", &attr(2, 1)));
        assert!(is_older(asked, "b", &attr(3, 1)), "by its number");
        assert!(is_older(asked, "b", &attr(4, 2)), "it may have been the same file");
        assert!(is_older(asked, "b", &Attr { mode: 0o040_755, ..attr(1, 2) }), "its directory");
        assert!(!is_older(later + Duration::from_millis(1), "a", &attr(3, 2)));
    }

    /// A rename touches both names, a look none.
    #[test]
    fn each_name_of_a_change_counts() {
        let (parent, to_parent) = (fid(1), fid(2));
        let rename = Op::Rename { parent, name: name("a"), to_parent, to_name: name("b"), flags: 0 };
        assert_eq!(Touched::of(&rename).names, [(parent, name("a")), (to_parent, name("b"))]);
        let look = Touched::of(&Op::GetAttr { fid: parent });
        assert!(look.names.is_empty() && look.objects.is_empty());
    }

    /// More than is remembered counts as all.
    #[test]
    fn what_is_forgotten_counts_as_changed() {
        let asked = Instant::now();
        let mut own = Remembered::default();
        for n in 0..3 * REMEMBERED as u64 {
            own.note(Touched { names: Vec::new(), objects: vec![fid(n)] }, asked + Duration::from_millis(1));
        }
        assert!(own.objects.len() <= REMEMBERED);
        assert!(own.is_older(asked, fid(1), &name("a"), &attr(0, 1)));
        assert!(!own.is_older(asked + PAGE_AGE, fid(1), &name("a"), &attr(0, 1)));
    }
}
