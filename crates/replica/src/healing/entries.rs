//! A page of a directory's names, as the primary has them.

use super::{DIR, HealSession, HealTarget};
use ids::Fid;
use wire::Errno;
use wire::codec::Blob;
use wire::reply::DirEntry;

impl HealSession {
    pub(super) fn take_entries<P: HealTarget>(
        &mut self,
        brick: &mut P,
        fid: Fid,
        (after, upto): (u64, Option<u64>),
        entries: &[DirEntry],
        targets: &[(Fid, Blob)],
    ) -> Result<(), Errno> {
        let made = match brick.take_entries(fid, after, upto, entries, targets) {
            // Of a directory that is here the page was taken over in part only, if something else is gone.
            Err(Errno::ESTALE | Errno::ENOENT) if !brick.is_known(fid)? => {
                self.dirty_set.got_nothing(fid);
                if fid.is_names() {
                    // It went with the last name that this brick had in it, and the primary has others: all of it comes anew.
                    self.dirty_set.mark_dir(fid);
                }
                return Ok(());
            }
            other => other?,
        };
        self.absent.after_page();
        let own = brick.set();
        for e in entries {
            let was_missing = self.missing.remove(e.fid);
            // What is in another set's directory is that set's. A copy may be marked, as a stub may.
            let dir = e.kind == DIR && e.home == own;
            if was_missing {
                if dir { self.dirty_set.mark_dir(e.fid) } else { self.dirty_set.mark_file(e.fid, false) }
            } else if self.full {
                self.dirty_set.mark_met(e.fid, dir);
            }
        }
        for m in made {
            self.missing.remove(m.fid);
            if m.dir { self.dirty_set.mark_dir(m.fid) } else { self.dirty_set.mark_file(m.fid, true) }
        }
        self.dirty_set.got_entries(fid, after, upto);
        Ok(())
    }
}
