//! Names that objects get and lose: links, unlinks, and directories that go.

use crate::object::OpenObject;
use crate::open::Brick;
use crate::tree::At;
use ids::Fid;
use namespace::Entry;
use wire::Errno;

impl Brick {
    pub(crate) fn unlink(&mut self, parent: Fid, name: &[u8], fid: Fid, orphan: bool) -> Result<(), Errno> {
        match self.find(parent, name)? {
            At::Entry(e) if e.fid == fid => {}
            other => return self.diverged(parent, name, other),
        }
        let dir = self.dir_of_name(parent, name)?;
        self.push_out(&dir, name, fid, orphan)?;
        self.file_left(parent, name);
        Ok(())
    }

    /// Takes a file's name away; the file too, if it was the last and nobody has it open.
    pub(crate) fn push_out(
        &mut self,
        dir: &OpenObject,
        name: &[u8],
        fid: Fid,
        orphan: bool,
    ) -> Result<(), Errno> {
        if orphan {
            self.folders.orphans().receive(dir, name, fid)?;
            self.invalidate_attrs(fid);
            return Ok(());
        }
        let last = self.last_name(fid)?;
        dir.unlink(name)?;
        if last.is_some() {
            self.forget(fid)
        } else {
            self.invalidate_attrs(fid)
        }
        Ok(())
    }

    pub(crate) fn rmdir(&mut self, parent: Fid, name: &[u8], fid: Fid) -> Result<(), Errno> {
        match self.find(parent, name)? {
            At::Entry(e) if e.fid == fid => {}
            other => return self.diverged(parent, name, other),
        }
        self.remove_dir(parent, name, fid)
    }

    /// Removes a directory; one that is not empty (copies of other sets' directories, things that are not ours) goes to
    /// lost+found.
    pub(crate) fn remove_dir(&mut self, parent: Fid, name: &[u8], fid: Fid) -> Result<(), Errno> {
        let dir = self.open_to_move(parent, &[fid])?;
        let mut removed = dir.remove_dir(name);
        if matches!(removed, Err(Errno::ENOTEMPTY | Errno::EEXIST)) {
            self.quarantine_remains(fid)?;
            removed = dir.remove_dir(name);
        }
        match removed {
            Ok(()) => self.forget(fid),
            Err(Errno::ENOTEMPTY | Errno::EEXIST) => {
                self.folders.lost_found().receive(&dir, name, fid)?;
                tracing::info!(brick = %self.path.display(), %fid, "a removed directory still holds something: kept in lost+found");
            }
            Err(e) => return Err(e),
        }
        self.left(parent, name);
        Ok(())
    }

    pub(crate) fn link(&mut self, fid: Fid, parent: Fid, name: &[u8]) -> Result<(), Errno> {
        let open = self.open_fid(fid)?;
        let home = self.load(fid)?.tag().home;
        match self.find(parent, name)? {
            At::Free => {}
            At::Unknown => self.quarantine(parent, name)?,
            At::Entry(e) if e.fid == fid && self.progress.is_replaying() => return Ok(()),
            other => return self.diverged(parent, name, other),
        }
        let dir = self.dir_of_name(parent, name)?;
        open.link(&dir, name)?;
        self.invalidate_attrs(fid);
        self.entered(parent, name, Entry { fid, home, kind: open.kind });
        Ok(())
    }
}
