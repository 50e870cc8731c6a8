//! Files that live on another set than their directory (docs/design/0016).
//!
//! The set of the directory has a stub: an empty file whose tag says who the file is, where it lives and of what kind it is.
//! All names that a file has in this set's directories are links of one stub. The home of the file keeps the same names in
//! folders in lost+found, one for each directory of another set, so that the links of the file are those of its inode.

use crate::folders::hidden_name;
use crate::making::{NewObject, make};
use crate::object::{OpenObject, S_IFDIR, S_IFMT, S_IFREG, tag_at};
use crate::open::Brick;
use crate::tree::At;
use disk_format::tag::{INTENT, Meant, Version, encode_intent, stub_flags};
use ids::{Fid, SetId, Time};
use namespace::{Entry, TreeState};
use wire::op::{COPY_NAMES, EntryName, Intent, Leaving, Node, TAKEN, encode_names};
use wire::{Change, Errno, Name};

/// The permission bits of a stub, by which whoever looks at a brick tells it from a file.
pub const STUB_MODE: u32 = 0o1000;

/// Who a stub stands for: the file, its home, and its kind as type bits.
pub(crate) type Who = (Fid, SetId, u32);

pub(crate) fn new_stub((fid, home, kind): Who, (version, time): (Version, Time)) -> NewObject<'static> {
    let (node, flags) = (&Node::File, stub_flags(kind));
    NewObject { fid, home, node, mode: STUB_MODE, uid: 0, gid: 0, time, flags, version }
}

impl Brick {
    /// Makes a stub under a name that is free.
    pub(crate) fn make_stub(
        &mut self,
        parent: Fid,
        name: &[u8],
        who: Who,
        at: (Version, Time),
    ) -> Result<(), Errno> {
        self.create(parent, name, &new_stub(who, at))
    }

    /// [`wire::Change::Enter`].
    pub(crate) fn enter_stub(
        &mut self,
        (parent, name): (Fid, &Name),
        who: Who,
        replaced: Option<(Fid, bool)>,
        at: (Version, Time),
    ) -> Result<(), Errno> {
        if who.2 == S_IFDIR {
            return self.enter_copy((parent, name), who, replaced, at);
        }
        let name = name.as_bytes();
        let known = self.is_known(who.0)?;
        match (self.find(parent, name)?, replaced) {
            (At::Free, None) => {}
            (At::Free, Some(_)) if self.progress.is_replaying() => {}
            (At::Entry(e), _) if e.fid == who.0 && self.progress.is_replaying() => return Ok(()),
            // A kill left the stub half made: that is finished.
            (At::Unknown, None) if self.progress.is_replaying() && !known => {}
            (At::Unknown, _) => self.quarantine(parent, name)?,
            (At::Entry(e), Some(out)) if e.fid == out.0 => {
                return self.put_stub_over((parent, name), who, out, at);
            }
            (other, _) => return self.diverged(parent, name, other),
        }
        if !known {
            return self.make_stub(parent, name, who, at);
        }
        let dir = self.open_dir(parent)?;
        self.open_fid(who.0)?.link(&dir, name)?;
        self.invalidate_attrs(who.0);
        self.entered(parent, name, Entry { fid: who.0, home: who.1, kind: who.2 });
        Ok(())
    }

    /// A stub takes the place of a file. It is ready in lost+found before, so that the name leads to one of the two at any
    /// time, and to the old one if there is no room for the stub.
    pub(crate) fn put_stub_over(
        &mut self,
        (parent, name): (Fid, &[u8]),
        who: Who,
        (out, orphan): (Fid, bool),
        at: (Version, Time),
    ) -> Result<(), Errno> {
        let dir = self.open_dir(parent)?;
        let last = self.last_name(out)?;
        let mut done = self.have_hidden_stub(who, at);
        if done.is_ok() && orphan {
            done = self.prepare_orphan(out);
            // It gets another name later (docs/design/0019), and must be there until then.
            if done.is_ok() && self.is_pending(out)? {
                done = self.synced(self.folders.orphans().sync());
            }
        }
        if let Err(e) = done.and_then(|()| self.folders.lost_found().release(who.0, &dir, name)) {
            // What cannot be taken back now is by the next opening.
            let _ = self.drop_hidden_stub(who.0);
            if orphan {
                self.give_up_orphan(out);
            }
            return Err(e);
        }
        if last.is_some() && !orphan {
            self.forget(out);
        } else {
            self.invalidate_attrs(out);
        }
        self.left(parent, name);
        self.invalidate_attrs(who.0);
        self.entered(parent, name, Entry { fid: who.0, home: who.1, kind: who.2 });
        Ok(())
    }

    /// The stub has a name in lost+found.
    fn have_hidden_stub(&mut self, who: Who, at: (Version, Time)) -> Result<(), Errno> {
        self.drop_hidden_stub(who.0)?;
        let open = if self.is_known(who.0)? {
            let open = self.open_fid(who.0)?;
            self.folders.lost_found().link_here(&open, who.0)?;
            open
        } else {
            let what = new_stub(who, at);
            let open = make(self.folders.lost_found(), hidden_name(who.0).as_bytes(), &what)?;
            self.finish_hidden(&what, &open)?;
            open
        };
        // Its tag has to be there before the name that it takes: a power cut that left the name without it would have taken
        // the file that gave way for nothing.
        self.synced(open.sync())
    }

    /// Takes the stub's name in lost+found away; without any name nothing is known of it.
    fn drop_hidden_stub(&mut self, fid: Fid) -> Result<(), Errno> {
        match self.folders.lost_found().remove(fid) {
            Ok(()) => {}
            Err(Errno::ENOENT) => return Ok(()),
            Err(e) => return Err(e),
        }
        self.forget_if_gone(fid)
    }

    /// A name of the object was taken away; without any nothing is known of it.
    pub(crate) fn forget_if_gone(&mut self, fid: Fid) -> Result<(), Errno> {
        self.invalidate_attrs(fid);
        let links = match self.fresh(fid) {
            Err(Errno::ESTALE | Errno::ENOENT) => 0,
            other => other?.1.nlink,
        };
        if links == 0 {
            self.forget(fid);
        }
        Ok(())
    }

    /// Stubs are in lost+found only while they take the place of a file: one that is there at an opening was left by a process
    /// that did not finish that.
    pub(crate) fn drop_left_stub(&mut self, name: &[u8], fid: Fid) -> Result<bool, Errno> {
        let dir = self.folders.lost_found();
        if dir.stat_at(name)?.mode & S_IFMT != S_IFREG {
            return Ok(false);
        }
        let left = tag_at(dir, name)?.map_or(dir.stat_at(name)?.size == 0, |tag| tag.stub_kind().is_some());
        if left {
            dir.unlink(name)?;
            self.forget_if_gone(fid)?;
        }
        Ok(left)
    }

    /// [`wire::Change::PrepareLeave`] and [`wire::Change::Leave`].
    pub(crate) fn mark_leaver(&mut self, change: &Change) -> Result<(), Errno> {
        let (fid, names, intent) = mark_of_leaver(change, self.identity.set).ok_or(Errno::EINVAL)?;
        let open = self.loaded(fid)?;
        // Before the mark: without it the mark would let users change what is copied.
        open.set_xattr(COPY_NAMES.as_bytes(), &names)?;
        open.set_xattr(INTENT.as_bytes(), &encode_intent(&intent))
    }

    /// [`wire::Change::PrepareFile`], and the other changes that mark what is to lose a name.
    pub(crate) fn prepare_file(&mut self, change: &Change) -> Result<(), Errno> {
        let (fid, intent, successor, from) = match change {
            Change::PrepareFile { fid, intent } => (*fid, intent, None, None),
            Change::PrepareExchange { fid, intent, successor } => (*fid, intent, Some(successor), None),
            Change::PrepareMove { fid, intent, from } => (*fid, intent, None, Some(*from)),
            Change::PrepareSwap { fid, intent, successor, from } => {
                (*fid, intent, Some(successor), Some(*from))
            }
            _ => return Err(Errno::EINVAL),
        };
        let open = self.loaded(fid)?;
        if open.is_dir() {
            // Left of a transaction by which this set was to answer for it.
            open.remove_xattr(TAKEN.as_bytes())?;
        }
        // The names that it was to get when it arrived, it has had.
        if !self.lies_among_orphans(fid)? {
            open.remove_xattr(COPY_NAMES.as_bytes())?;
        }
        let meant = Meant { intent: intent.clone(), successor: successor.cloned(), ended: None, from };
        open.set_xattr(INTENT.as_bytes(), &meant.encode())
    }

    /// [`wire::Change::EndFile`].
    pub(crate) fn end_file(
        &mut self,
        fid: Fid,
        (drop, add): (Option<&EntryName>, Option<&EntryName>),
        orphan: bool,
        at: (Version, Time),
    ) -> Result<(), Errno> {
        if let Some(add) = add {
            self.have_folder_of_names(add.dir, at)?;
        }
        match (drop, add) {
            (Some(drop), Some(add)) => self.move_name(fid, drop, add)?,
            (None, Some(add)) if self.lies_among_orphans(fid)? => self.name_arrived(fid, add)?,
            (None, Some(add)) => self.link(fid, add.dir, add.name.as_bytes())?,
            (Some(drop), None) => self.drop_name(fid, drop, orphan)?,
            (None, None) => self.keep_arrived(fid)?,
        }
        if let Some(drop) = drop {
            self.drop_folder_of_names(drop.dir)?;
        }
        self.end_intent(fid, at.0)
    }

    /// What was meant stays beside the object: the mark goes from the disk later, and must not be there without it.
    pub(crate) fn end_intent(&mut self, fid: Fid, at: Version) -> Result<(), Errno> {
        let open = match self.open_fid(fid) {
            // It has lost its last name.
            Err(Errno::ESTALE | Errno::ENOENT) => return Ok(()),
            other => other?,
        };
        match open.meant()? {
            Some(meant) => open.set_xattr(INTENT.as_bytes(), &Meant { ended: Some(at), ..meant }.encode()),
            None => Ok(()),
        }
    }

    /// A mark on disk that a change has ended: it goes from there when what that change did is on disk too.
    pub(crate) fn end_known_mark(&mut self, fid: Fid, open: &OpenObject) -> Result<(), Errno> {
        let Some(at) = open.meant()?.and_then(|meant| meant.ended) else { return Ok(()) };
        if let Some(node) = self.nodes.peek(fid) {
            node.end_mark(at.lsn);
            self.nodes.keeps_mark(fid);
        }
        Ok(())
    }

    pub(crate) fn leads_to(&mut self, place: &EntryName, fid: Fid) -> Result<bool, Errno> {
        Ok(matches!(self.find(place.dir, place.name.as_bytes())?, At::Entry(e) if e.fid == fid))
    }

    fn move_name(&mut self, fid: Fid, drop: &EntryName, add: &EntryName) -> Result<(), Errno> {
        if self.progress.is_replaying() && self.leads_to(add, fid)? {
            return Ok(());
        }
        self.rename((drop.dir, &drop.name), fid, (add.dir, &add.name), None)
    }

    /// [`wire::Change::Rename`]. Of a name in a folder of names: the file gets an entry in a directory of this set for it.
    pub(crate) fn rename_entry(
        &mut self,
        from: (Fid, &Name),
        fid: Fid,
        to: (Fid, &Name),
        replaced: Option<(Fid, bool)>,
    ) -> Result<(), Errno> {
        if !from.0.is_names() {
            return self.rename(from, fid, to, replaced);
        }
        let entry = EntryName { dir: to.0, name: to.1.clone() };
        if !(self.progress.is_replaying() && self.leads_to(&entry, fid)?) {
            self.rename(from, fid, to, replaced)?;
        }
        self.drop_folder_of_names(from.0)
    }

    pub(crate) fn drop_name(&mut self, fid: Fid, drop: &EntryName, orphan: bool) -> Result<(), Errno> {
        if self.progress.is_replaying() && !self.is_known(drop.dir)? {
            return Ok(());
        }
        if !self.leads_to(drop, fid)? {
            let found = self.find(drop.dir, drop.name.as_bytes())?;
            return self.diverged(drop.dir, drop.name.as_bytes(), found);
        }
        let dir = self.dir_of_name(drop.dir, drop.name.as_bytes())?;
        if self.open_fid(fid)?.is_dir() {
            self.drop_copy(&dir, drop.name.as_bytes(), fid)?;
        } else {
            self.push_out(&dir, drop.name.as_bytes(), fid, orphan)?;
        }
        self.left(drop.dir, drop.name.as_bytes());
        Ok(())
    }

    /// The folder for names in a directory of another set; a directory of this set is there.
    pub(crate) fn have_folder_of_names(
        &mut self,
        dir: Fid,
        (version, time): (Version, Time),
    ) -> Result<(), Errno> {
        if !dir.is_names() || self.is_known(dir)? {
            return Ok(());
        }
        let what = NewObject {
            fid: dir,
            home: self.identity.set,
            node: &Node::Dir,
            mode: 0o700,
            uid: 0,
            gid: 0,
            time,
            flags: 0,
            version,
        };
        self.make_in_lost_found(&what)
    }

    /// A folder that holds no name any more goes.
    pub(crate) fn drop_folder_of_names(&mut self, dir: Fid) -> Result<(), Errno> {
        if !dir.is_names() || !self.is_known(dir)? || !self.is_empty(dir)? {
            return Ok(());
        }
        match self.folders.lost_found().remove_dir(hidden_name(dir).as_bytes()) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(Errno::ENOTEMPTY | Errno::EEXIST) => return Ok(()),
            Err(e) => return Err(e),
        }
        self.forget(dir);
        self.drop_unused_copy(dir)
    }
}

/// The file that a change marks to leave this set; what is beside it then, in [`COPY_NAMES`] and as its intent.
pub(crate) fn mark_of_leaver(change: &Change, own: SetId) -> Option<(Fid, Vec<u8>, Intent)> {
    match change {
        Change::PrepareLeave { fid, intent } => Some((*fid, names_to_leave(intent), intent.clone())),
        Change::Leave { fid, tx, to, copy, names } => {
            let leaving = Leaving { to: *to, copy: *copy, names: names.clone() };
            let intent = Intent { tx: *tx, coordinator: own, drop: None, add: None };
            Some((*fid, leaving.encode(), intent))
        }
        _ => None,
    }
}

/// What is beside a file that leaves with the name that it drops.
fn names_to_leave(intent: &Intent) -> Vec<u8> {
    let place = |drop: &EntryName| EntryName { dir: drop.dir.without_names(), name: drop.name.clone() };
    encode_names(&intent.drop.iter().map(place).collect::<Vec<_>>())
}

/// The folder's name in lost+found is that of its fid.
pub(crate) fn is_folder_of_names(fid: Fid, name: &[u8]) -> bool {
    fid.is_names() && name == hidden_name(fid).as_bytes()
}
