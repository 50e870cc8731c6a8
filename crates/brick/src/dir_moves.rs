//! Directories that move to a directory of another set (docs/design/0019).
//!
//! Its home marks the directory, and the intent beside it says where it is, and where it is to be. As long as it lies where it
//! was the mark is that of a move that may come about or not. When the other set has the entry the directory goes to lost+found:
//! there the intent says which entry leads to it, as it does beside every directory there, and the mark is that of a directory
//! whose entry has just been made. The other set gets a copy.
//!
//! Of a directory whose entry was another set's the place says nothing: there the intent does not say any more which entry it is
//! to leave when it has left that. What that set has, a copy, is marked as a stub is, and goes.

use crate::far_entry::{intent, leaves_elsewhere, write_kept};
use crate::folders::hidden_name;
use crate::making::NewObject;
use crate::object::OpenObject;
use crate::open::Brick;
use crate::stubs::Who;
use crate::tree::At;
use disk_format::Tag;
use disk_format::tag::{INTENT, Meant, Version, encode_intent};
use file_system::File;
use ids::{Fid, SetId, Time};
use wire::op::{EntryName, Intent, Node, TAKEN};
use wire::{Change, Errno, Name};

/// What is meant with a directory that a change moves out of its set's entries: the directory, where it lies, and the intent.
fn meant(change: &Change) -> Option<(Fid, EntryName, Intent)> {
    let Change::MoveOut { parent, name, fid, tx, to, to_dir, to_name, .. } = change else { return None };
    let drop = EntryName { dir: *parent, name: name.clone() };
    let add = EntryName { dir: *to_dir, name: to_name.clone() };
    let intent = Intent { tx: *tx, coordinator: *to, drop: Some(drop.clone()), add: Some(add) };
    Some((*fid, drop, intent))
}

impl Brick {
    /// What the mark of a directory of this set means, if it is to move and has not; or that of a copy, which is to go.
    pub(crate) fn move_of(&mut self, fid: Fid) -> Result<Option<Intent>, Errno> {
        let Some(meant) = self.open_fid(fid)?.meant()? else { return Ok(None) };
        let own = self.identity.set;
        if self.load(fid)?.tag().home != own {
            return Ok(Some(meant.intent));
        }
        if leaves_elsewhere(&meant, own).is_some() {
            let is_home = self.is_own_entry(fid)?;
            return Ok((!is_home).then_some(meant.intent));
        }
        let intent = meant.intent;
        let Some(drop) = &intent.drop else { return Ok(None) };
        let there = match self.leads_to(drop, fid) {
            Err(Errno::ESTALE | Errno::ENOENT) => false,
            other => other?,
        };
        Ok(there.then_some(intent))
    }

    /// [`Change::MoveOut`].
    pub(crate) fn move_out(&mut self, change: &Change) -> Result<(), Errno> {
        let (fid, EntryName { dir: parent, name }, intent) = meant(change).ok_or(Errno::EINVAL)?;
        match self.find(parent, name.as_bytes())? {
            At::Entry(e) if e.fid == fid => {}
            other => return self.diverged(parent, name.as_bytes(), other),
        }
        // The directory that it leaves may be one that another set has made.
        let from = Some(self.identity.set).filter(|own| *own != parent.set);
        self.have_kept(fid, Meant { intent, successor: None, ended: None, from })?;
        let dir = self.open_to_move(parent, &[fid])?;
        self.wait_in_lost_found((&dir, parent, name.as_bytes()), fid)
    }

    /// [`Change::MoveOn`].
    pub(crate) fn move_on(&mut self, change: &Change) -> Result<(), Errno> {
        let Change::MoveOn { fid, tx, to, to_dir, to_name, .. } = change else { return Err(Errno::EINVAL) };
        let add = Some(EntryName { dir: *to_dir, name: to_name.clone() });
        let intent = Intent { tx: *tx, coordinator: *to, drop: None, add };
        self.have_kept(*fid, Meant { intent, successor: None, ended: None, from: None })?;
        let at = self.location(*fid)?;
        let Some(parent) = at.parent else { return Ok(()) };
        self.keep_times_of(&[parent])?;
        self.wait_in_lost_found((&at.dir, parent, &at.name), *fid)
    }

    /// That is kept beside a directory from now on, if there is room for it.
    fn have_kept(&mut self, fid: Fid, meant: Meant) -> Result<(), Errno> {
        let (open, meant) = (self.loaded(fid)?, meant.encode());
        let there = open.whole_xattr(INTENT.as_bytes())?.as_ref() == Some(&meant);
        if there || write_kept(&open, &meant, (&self.path, fid))? { Ok(()) } else { Err(Errno::ENOSPC) }
    }

    /// A directory goes to lost+found until it is told its path.
    pub(crate) fn wait_in_lost_found(
        &mut self,
        (dir, parent, name): (&File, Fid, &[u8]),
        fid: Fid,
    ) -> Result<(), Errno> {
        self.folders.lost_found().receive(dir, name, fid)?;
        self.shared.fresh().moved(fid, self.journal.last().lsn);
        self.invalidate_attrs(fid);
        self.left(parent, name);
        Ok(())
    }

    /// The entry of another set's directory goes, as it has one of a third set: so does the copy, or it waits in lost+found with
    /// what hangs on it. That is on disk at once: the directory may come back here, and then nothing of this one must. And the
    /// end of its mark, which is noted after that, is never there without it.
    pub(crate) fn drop_copy(&mut self, dir: &OpenObject, name: &[u8], fid: Fid) -> Result<(), Errno> {
        match dir.remove_dir(name) {
            Ok(()) => self.forget(fid),
            Err(Errno::ENOTEMPTY | Errno::EEXIST) => {
                self.folders.lost_found().receive(dir, name, fid)?;
                self.synced(self.folders.lost_found().sync())?;
                self.invalidate_attrs(fid);
            }
            Err(e) => return Err(e),
        }
        self.synced(dir.sync())
    }

    /// [`Change::PrepareRmdir`]: what is beside the directory of an earlier transaction, which had it move and came to nothing, says
    /// only which entry leads to it.
    pub(crate) fn prepare_rmdir(&mut self, fid: Fid) -> Result<(), Errno> {
        let open = self.loaded(fid)?;
        // Left of a transaction by which this set was to answer for it.
        open.remove_xattr(TAKEN.as_bytes())?;
        let own = self.identity.set;
        let Some(beside) = open.meant()? else { return Ok(()) };
        let Some((from, place)) = leaves_elsewhere(&beside, own) else { return Ok(()) };
        let kept = intent(from, place.dir, &place.name);
        open.set_xattr(INTENT.as_bytes(), &encode_intent(&kept))
    }

    /// A directory of this set comes back to an entry of its own set.
    fn enter_own(
        &mut self,
        (parent, name): (Fid, &[u8]),
        fid: Fid,
        replaced: Option<(Fid, bool)>,
    ) -> Result<(), Errno> {
        if !self.is_known(fid)? {
            return Err(Errno::EIO);
        }
        match (self.find(parent, name)?, replaced) {
            (At::Entry(e), _) if e.fid == fid && self.progress.is_replaying() => return Ok(()),
            (At::Entry(e), Some((out, _))) if e.fid == out => {
                self.progress.begins();
                return self.put_copy_over((parent, name), fid, out);
            }
            (At::Free, Some(_)) if !self.progress.is_replaying() => {
                return self.diverged(parent, name, At::Free);
            }
            (At::Free, _) => {}
            (At::Unknown, _) => self.quarantine(parent, name)?,
            (other, _) => return self.diverged(parent, name, other),
        }
        self.progress.begins();
        self.bring_copy(fid, parent, name)
    }

    /// [`Change::Enter`] of a directory: the entry is a copy of it. There may be one already, above directories of this set that
    /// lie beneath it: that one comes here.
    pub(crate) fn enter_copy(
        &mut self,
        (parent, name): (Fid, &Name),
        (fid, home, _): Who,
        replaced: Option<(Fid, bool)>,
        (version, time): (Version, Time),
    ) -> Result<(), Errno> {
        let name = name.as_bytes();
        if home == self.identity.set {
            self.progress.begins_later();
            return self.enter_own((parent, name), fid, replaced);
        }
        let (node, flags) = (&Node::Dir, 0);
        let what = NewObject { fid, home, node, mode: 0o755, uid: 0, gid: 0, time, flags, version };
        self.progress.begins_later();
        self.have_home(fid, home)?;
        match (self.find(parent, name)?, replaced) {
            (At::Entry(e), Some((out, _))) if e.fid == out => {
                self.have_copy_ready(&what)?;
                self.progress.begins();
                self.put_copy_over((parent, name), fid, out)
            }
            (At::Free, Some(_)) if !self.progress.is_replaying() => self.diverged(parent, name, At::Free),
            _ => self.create(parent, name, &what),
        }
    }

    /// What is here of a directory of another set, if anything, is to be an entry, and says which set answers for the directory: it
    /// may have changed since the copy was made. On disk first: that set is asked whether the directory may go, and the one that
    /// has it no more would say that it has gone.
    pub(crate) fn have_home(&mut self, fid: Fid, home: SetId) -> Result<(), Errno> {
        if !self.is_known(fid)? {
            return Ok(());
        }
        let tag = *self.load(fid)?.tag();
        if tag.home == home || tag.home == self.identity.set {
            return Ok(());
        }
        let open = self.open_dir(fid)?;
        open.set_tag(&Tag { home, ..tag })?;
        self.synced(open.sync())?;
        self.forget_whose(fid);
        Ok(())
    }

    /// There is a copy, if need be in lost+found: on a full disk none is made, and nothing is changed.
    fn have_copy_ready(&mut self, what: &NewObject<'_>) -> Result<(), Errno> {
        if self.is_known(what.fid)? {
            return Ok(());
        }
        let made = self.make_in_lost_found(what);
        if made.is_err() {
            // What cannot be removed now is nobody's.
            let _ = self.folders.lost_found().remove_dir(hidden_name(what.fid).as_bytes());
            self.forget(what.fid);
        }
        made
    }

    /// A copy takes the place of an empty directory, in one go if it can be.
    fn put_copy_over(&mut self, (parent, name): (Fid, &[u8]), fid: Fid, out: Fid) -> Result<(), Errno> {
        match self.bring_copy(fid, parent, name) {
            Ok(()) => {
                self.forget(out);
                Ok(())
            }
            // It holds what is nobody's.
            Err(Errno::ENOTEMPTY | Errno::EEXIST) => {
                self.remove_dir(parent, name, out)?;
                self.bring_copy(fid, parent, name)
            }
            Err(e) => Err(e),
        }
    }
}
