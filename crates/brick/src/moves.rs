//! Renames and exchanges of entries.

use crate::object::OpenObject;
use crate::open::Brick;
use crate::tree::At;
use file_system::Renaming;
use ids::Fid;
use namespace::Entry;
use wire::{Errno, Name};

impl Brick {
    /// An entry gets another name, and may take the place of what has it.
    pub(crate) fn rename(
        &mut self,
        from: (Fid, &Name),
        fid: Fid,
        to: (Fid, &Name),
        replaced: Option<(Fid, bool)>,
    ) -> Result<(), Errno> {
        let (name, to_name) = (from.1.as_bytes(), to.1.as_bytes());
        let source = match self.find(from.0, name)? {
            At::Entry(e) if e.fid == fid => e,
            other => return self.diverged(from.0, name, other),
        };
        let dir = match from.0.is_names() {
            true => self.dir_of_name(from.0, name)?,
            false => self.open_to_move(from.0, &[fid])?,
        };
        let to_dir = self.dir_of_name(to.0, to_name)?;
        let mut prepared = None;
        // Until the name is another file's.
        let last;
        match (self.find(to.0, to_name)?, replaced) {
            (At::Free, None) => {}
            (At::Free, Some(_)) if self.progress.is_replaying() => {}
            (At::Unknown, _) => self.quarantine(to.0, to_name)?,
            (At::Entry(e), Some((out, orphan))) if e.fid == out => {
                if e.is_dir() {
                    // In one go if it can be: on a full disk only that is done or not.
                    match self.rename_apart((&dir, name), (&to_dir, to_name), (fid, to.0)) {
                        Ok(()) => {
                            self.forget(out);
                            self.left(to.0, to_name);
                            self.moved((from.0, name), (to.0, to_name), source);
                            return Ok(());
                        }
                        Err(Errno::ENOTEMPTY | Errno::EEXIST) => self.remove_dir(to.0, to_name, out)?,
                        Err(e) => return Err(e),
                    }
                } else if orphan {
                    self.prepare_orphan(out)?;
                    prepared = Some(out);
                } else {
                    last = self.last_name(out)?;
                    if last.is_some() {
                        self.forget(out);
                    } else {
                        self.invalidate_attrs(out);
                    }
                }
            }
            (other, _) => return self.diverged(to.0, to_name, other),
        }
        if let Err(e) = self.rename_apart((&dir, name), (&to_dir, to_name), (fid, to.0)) {
            if let Some(out) = prepared {
                self.give_up_orphan(out);
            }
            return Err(e);
        }
        self.moved((from.0, name), (to.0, to_name), source);
        Ok(())
    }

    /// A name in the kernel's tree becomes another one. A directory comes into one that may hang beneath it here, as copies do
    /// not follow renames.
    fn rename_apart(
        &mut self,
        (dir, name): (&OpenObject, &[u8]),
        (to_dir, to_name): (&OpenObject, &[u8]),
        (fid, to): (Fid, Fid),
    ) -> Result<(), Errno> {
        let rename = || dir.rename(name, to_dir, to_name, Renaming::Replace);
        match rename() {
            Err(Errno::EINVAL) if self.disentangle(to, fid)? => rename(),
            other => other,
        }
    }

    /// An entry has another name.
    fn moved(&mut self, from: (Fid, &[u8]), to: (Fid, &[u8]), entry: Entry) {
        if entry.is_dir() {
            self.left(from.0, from.1);
        } else {
            self.file_left(from.0, from.1);
        }
        self.moved_to(to.0, to.1, entry);
        if entry.is_dir() {
            self.invalidate_attrs(entry.fid);
        }
    }

    /// Two entries change places.
    pub(crate) fn exchange(&mut self, a: (Fid, &Name, Fid), b: (Fid, &Name, Fid)) -> Result<(), Errno> {
        let (name, to_name) = (a.1.as_bytes(), b.1.as_bytes());
        let (one, two) = match (self.find(a.0, name)?, self.find(b.0, to_name)?) {
            (At::Entry(x), At::Entry(y)) if x.fid == a.2 && y.fid == b.2 => (x, y),
            (other, _) => return self.diverged(a.0, name, other),
        };
        let dir = match a.0.is_names() {
            true => self.dir_of_name(a.0, name)?,
            false => self.open_to_move(a.0, &[a.2, b.2])?,
        };
        let to_dir = self.dir_of_name(b.0, to_name)?;
        let exchange = || dir.rename(name, &to_dir, to_name, Renaming::Exchange);
        match exchange() {
            Err(Errno::EINVAL) if self.disentangle(b.0, a.2)? | self.disentangle(a.0, b.2)? => exchange(),
            other => other,
        }?;
        // One of the two may be a directory.
        self.invalidate_attrs(a.0);
        self.invalidate_attrs(b.0);
        self.moved_to(a.0, name, two);
        self.moved_to(b.0, to_name, one);
        Ok(())
    }
}
