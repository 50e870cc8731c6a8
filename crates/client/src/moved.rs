//! Files that go on as others while they are open ([`client_core::moved`]).

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{PoisonError, RwLock};

use client_core::moved::{Moved, file_of};
use ids::Fid;
use wire::{Body, Call, Errno, Op};

use crate::call::{Client, Core};
use crate::files::Object;

/// What all threads know of them.
#[derive(Debug, Default)]
pub(crate) struct MovedFiles {
    /// Whether there are any: mostly there are none.
    any: AtomicBool,
    files: RwLock<Moved>,
}

impl MovedFiles {
    /// Looks something up; `None` if no file has moved.
    fn look<T>(&self, look: impl FnOnce(&Moved) -> T) -> Option<T> {
        let any = self.any.load(Ordering::Acquire);
        any.then(|| look(&self.files.read().unwrap_or_else(PoisonError::into_inner)))
    }

    fn change<T>(&self, change: impl FnOnce(&mut Moved) -> T) -> T {
        let mut files = self.files.write().unwrap_or_else(PoisonError::into_inner);
        let result = change(&mut files);
        self.any.store(!files.is_empty(), Ordering::Release);
        result
    }
}

impl Core {
    /// Has a request about a file that moved go to where it lives; whether that is another file than was named.
    pub(crate) fn redirect(&self, call: &mut Call) -> bool {
        let set = self.moved.look(|files| files.redirect(&mut call.op)).flatten();
        set.inspect(|set| call.set = *set).is_some()
    }

    /// The fid by which a file was first met.
    pub(crate) fn first(&self, fid: Fid) -> Fid {
        self.moved.look(|files| files.first(fid)).unwrap_or(fid)
    }

    /// An answer, with the names of files by which they are known here.
    pub(crate) fn restore(&self, mut body: Body) -> Body {
        self.moved.look(|files| files.restore(&mut body));
        body
    }

    /// The file that was asked for goes on as another one, which is asked next.
    pub(crate) fn file_moved(&self, call: &mut Call, copy: Fid) -> Result<(), Errno> {
        let set = call.set;
        let (asked, alone) = match &mut call.op {
            // Another set may have to be asked, or two.
            Op::Link { fid, .. } => (fid, Err(Errno::ESTALE)),
            Op::CopyRange { to, .. } => (to, Err(Errno::EXDEV)),
            op => (file_of(op).ok_or(Errno::EIO)?, Ok(())),
        };
        let ((from, _), (to, _)) = (self.find(set)?, self.find(copy.set)?);
        let lost_before = self.current().by_map.lost_before(set);
        let file = std::mem::replace(asked, copy);
        call.set = copy.set;
        self.moved.change(|files| {
            if !files.note(file, copy) {
                return;
            }
            let (count, lost) = from.state().leave(file, lost_before);
            if lost {
                files.note_lost(copy);
            }
            to.state().arrive(copy, count);
        });
        alone
    }
}

impl Client {
    /// What a file is now, and the set that answers for it.
    pub(crate) fn now(&self, object: Object) -> Object {
        let now = self.core.moved.look(|files| files.now(object.fid)).filter(|fid| *fid != object.fid);
        now.map_or(object, |fid| Object { fid, home: fid.set })
    }

    /// Whether changes of a file were lost before it moved, as it was synced now: that is told once.
    pub(crate) fn has_lost(&self, object: Object) -> bool {
        let any = self.core.moved.look(|_| ()).is_some();
        any && self.core.moved.change(|files| files.take_lost(object.fid))
    }

    /// Whoever uses the client knows the object no more: by which name it was first met does not matter any more.
    pub fn forget(&self, object: Object) {
        self.forget_name(object);
        self.core.striped.forget(self.now(object).fid);
        self.core.homes.forget(object.fid);
        if self.core.moved.look(|files| files.now(object.fid) != object.fid) == Some(true) {
            self.core.moved.change(|files| files.forget(object.fid));
        }
    }
}
