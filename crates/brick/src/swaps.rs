//! Entries that lead to something else from now on, where one of the two is a directory (docs/design/0019).
//!
//! What comes is made ready in the folder where what goes is to lie, under the name that that is to have there: among the orphans for
//! a file of this set that loses its last name, in lost+found for all else. Then the two change places in one rename. So the entry
//! leads to one of the two at any time, also after a power cut, and what goes has its place by that: a directory of this set as
//! every one that waits for its path. What lies in these folders under another's name at an opening was left by a process that did
//! not come so far, and goes back.

use crate::folders::{hidden_fid, hidden_name};
use crate::making::{NewObject, make};
use crate::object::{S_IFDIR, S_IFMT, open_at, tag_at};
use crate::open::Brick;
use crate::place::move_to_lost_found;
use crate::stubs::new_stub;
use crate::tree::At;
use disk_format::Tag;
use disk_format::tag::Version;
use file_system::{File, Renaming};
use ids::{Fid, Time};
use namespace::Entry;
use std::sync::Arc;
use wire::change::Replaced;
use wire::op::{EntryName, Node, Successor};
use wire::{Change, Errno, Name};

/// What comes to an entry, and where it waits for that.
struct Coming<'a> {
    next: &'a Successor,
    theirs: Option<&'a EntryName>,
    /// The folder, and the name of what goes there.
    folder: Arc<File>,
    place: String,
    at: (Version, Time),
}

impl Brick {
    /// [`Change::Swap`].
    pub(crate) fn swap(&mut self, change: &Change, version: Version) -> Result<(), Errno> {
        let Change::Swap { parent, name, out, next, theirs, time, .. } = change else {
            return Err(Errno::EINVAL);
        };
        let theirs = theirs.as_ref();
        match self.find(*parent, name.as_bytes())? {
            At::Entry(e) if e.fid == next.fid && self.progress.is_replaying() => {
                return self.end_swap(out, theirs);
            }
            At::Entry(e) if e.fid == out.fid => {}
            other => return self.diverged(*parent, name.as_bytes(), other),
        }
        let folders = &self.folders;
        let folder = if out.orphan { folders.orphans() } else { folders.lost_found() }.share();
        let place = hidden_name(out.fid);
        let coming = Coming { next, theirs, folder, place, at: (version, *time) };
        self.progress.begins_later();
        if let Err(e) = self.change_places((*parent, name), out.fid, &coming) {
            if self.put_right(&coming.folder, coming.place.as_bytes()).is_err() {
                self.progress.begins();
            }
            self.names.clear();
            self.listings.clear();
            return Err(e);
        }
        self.progress.begins();
        self.left(*parent, name.as_bytes());
        self.invalidate_attrs(next.fid);
        self.invalidate_attrs(out.fid);
        if out.dir {
            self.shared.fresh().moved(out.fid, self.journal.last().lsn);
        }
        let Successor { fid, home, kind } = *next;
        self.moved_to(*parent, name.as_bytes(), Entry { fid, home, kind });
        self.end_swap(out, theirs)
    }

    /// What comes is on disk where it waits, and then the entry leads to it.
    fn change_places(
        &mut self,
        (parent, name): (Fid, &Name),
        out: Fid,
        coming: &Coming<'_>,
    ) -> Result<(), Errno> {
        let Coming { folder, place, next, .. } = coming;
        self.clear_place(folder, place.as_bytes())?;
        if next.is_dir() {
            self.have_directory_ready(parent, coming)?;
        } else {
            self.have_file_ready(coming)?;
        }
        self.synced(folder.sync())?;
        let dir = self.open_to_move(parent, &[out, next.fid])?;
        dir.rename(name.as_bytes(), folder, place.as_bytes(), Renaming::Exchange)
    }

    /// Nothing of an earlier attempt lies there.
    fn clear_place(&mut self, folder: &File, place: &[u8]) -> Result<(), Errno> {
        match tag_at(folder, place) {
            Err(Errno::ENOENT) => Ok(()),
            Ok(None) if folder.stat_at(place)?.mode & S_IFMT == S_IFDIR => folder.remove_dir(place),
            Ok(Some(tag)) if tag.stub_kind().is_none() => self.put_right(folder, place),
            Ok(_) => folder.unlink(place),
            Err(e) => Err(e),
        }
    }

    /// A directory that is here comes, or a copy is made. It may hang above the entry on this brick, as copies do not follow renames.
    fn have_directory_ready(&mut self, parent: Fid, coming: &Coming<'_>) -> Result<(), Errno> {
        let Coming { next, folder, place, at: (version, time), .. } = coming;
        let (fid, home, own) = (next.fid, next.home, self.identity.set);
        if !self.is_known(fid)? {
            if home == own {
                return Err(Errno::EIO);
            }
            let (node, version, time) = (&Node::Dir, *version, *time);
            let what = NewObject { fid, home, node, mode: 0o755, uid: 0, gid: 0, time, flags: 0, version };
            folder.make_dir(place.as_bytes(), what.mode)?;
            let open = open_at(folder, place.as_bytes(), S_IFDIR)?;
            self.finish_hidden(&what, &open)?;
            return self.synced(open.sync());
        }
        if home != own {
            self.have_home(fid, home)?;
        }
        while self.is_beneath(parent, fid)? {
            if !self.disentangle(parent, fid)? {
                return Err(Errno::EIO);
            }
        }
        let from = self.location(fid)?;
        self.keep_times_of(from.parent.as_slice())?;
        if let Some(above) = from.parent
            && !self.keep_entry(above, &from.name, fid)?
        {
            return Err(Errno::ENOSPC);
        }
        from.dir.rename(&from.name, folder, place.as_bytes(), Renaming::Replace)?;
        if let Some(above) = from.parent {
            self.left(above, &from.name);
        }
        self.invalidate_attrs(fid);
        Ok(())
    }

    /// A file of this set comes from a folder of names, or a stub of another one's has one more name, or is made.
    fn have_file_ready(&mut self, coming: &Coming<'_>) -> Result<(), Errno> {
        let Coming { next, theirs, folder, place, at } = coming;
        let Successor { fid, home, kind } = **next;
        if home == self.identity.set {
            let EntryName { dir, name } = theirs.ok_or(Errno::EIO)?;
            match self.find(*dir, name.as_bytes())? {
                At::Entry(e) if e.fid == fid => {}
                other => return self.diverged(*dir, name.as_bytes(), other).and(Err(Errno::EIO)),
            }
            let from = self.dir_of_name(*dir, name.as_bytes())?;
            from.rename(name.as_bytes(), folder, place.as_bytes(), Renaming::Replace)?;
            self.file_left(*dir, name.as_bytes());
            self.invalidate_attrs(fid);
            return Ok(());
        }
        let open = if self.is_known(fid)? {
            let open = self.open_fid(fid)?;
            open.link(folder, place.as_bytes())?;
            open
        } else {
            let what = new_stub((fid, home, kind), *at);
            let open = make(folder, place.as_bytes(), &what)?;
            self.finish_hidden(&what, &open)?;
            open
        };
        self.invalidate_attrs(fid);
        self.synced(open.sync())
    }

    /// What has gone is where it is to be, if it is this set's. What was here of another set's goes with its entry, on disk at once:
    /// the directory may come back here, and then nothing of this one must.
    fn end_swap(&mut self, out: &Replaced, theirs: Option<&EntryName>) -> Result<(), Errno> {
        if let Some(EntryName { dir, .. }) = theirs {
            self.drop_folder_of_names(*dir)?;
        }
        if !self.is_known(out.fid)? {
            return Ok(());
        }
        let own = self.identity.set;
        let is_own = self.load(out.fid)?.tag().home == own;
        if is_own && (out.dir || out.orphan) {
            return Ok(());
        }
        let gone = if out.dir {
            self.folders.lost_found().remove_dir(hidden_name(out.fid).as_bytes())
        } else {
            self.folders.lost_found().remove(out.fid)
        };
        match gone {
            Ok(()) if out.dir => self.forget(out.fid),
            Ok(()) => self.forget_if_gone(out.fid)?,
            // Directories of this set hang on it, or it was done before.
            Err(Errno::ENOTEMPTY | Errno::EEXIST | Errno::ENOENT) => {}
            Err(e) => return Err(e),
        }
        self.synced(self.folders.lost_found().sync())
    }

    /// After a kill or a power cut: what waited to come to an entry, and did not, goes back.
    pub(crate) fn put_swaps_right(&mut self) -> Result<(), Errno> {
        for folder in [self.folders.orphans().share(), self.folders.lost_found().share()] {
            let mut found = Vec::new();
            folder.list(&mut |name, _, _| {
                found.extend(hidden_fid(name).filter(|fid| !fid.is_names()).map(|fid| (fid, name.to_vec())));
                true
            })?;
            for (fid, place) in found {
                match tag_at(&folder, &place)? {
                    Some(tag) if tag.fid == fid => continue,
                    Some(_) => self.put_right(&folder, &place)?,
                    None => self.drop_half_made(&folder, &place, fid)?,
                }
                self.synced(folder.sync())?;
            }
        }
        Ok(())
    }

    /// A copy that did not get its tag, in the place of what has its name elsewhere. That may have been made since the index was
    /// written, which does not know it then.
    fn drop_half_made(&mut self, folder: &File, place: &[u8], fid: Fid) -> Result<(), Errno> {
        let is_dir = folder.stat_at(place)?.mode & S_IFMT == S_IFDIR;
        let here = folder.handle_at(place)?;
        if !is_dir || self.index.get(fid)?.is_some_and(|known| known.handle == here) {
            return Ok(());
        }
        match folder.remove_dir(place) {
            Err(Errno::ENOTEMPTY | Errno::EEXIST) => self.set_apart(folder, place),
            other => other,
        }
    }

    /// What lies in a folder under another's name goes to where it was, or waits in lost+found under its own.
    fn put_right(&mut self, folder: &File, place: &[u8]) -> Result<(), Errno> {
        let tag = match tag_at(folder, place) {
            Err(Errno::ENOENT) => return Ok(()),
            other => other?,
        };
        let Some(tag) = tag else { return self.clear_place(folder, place) };
        if hidden_fid(place) == Some(tag.fid) {
            return Ok(());
        }
        let kind = folder.stat_at(place)?.mode & S_IFMT;
        self.invalidate_attrs(tag.fid);
        if kind == S_IFDIR {
            let own_name = hidden_name(tag.fid);
            let lost_found = self.folders.lost_found();
            return match folder.rename(place, lost_found, own_name.as_bytes(), Renaming::NoReplace) {
                Err(Errno::EEXIST) => self.set_apart(folder, place),
                other => other,
            };
        }
        if tag.stub_kind().is_some() {
            folder.unlink(place)?;
            return self.forget_if_gone(tag.fid);
        }
        self.put_name_back(folder, place, (&tag, kind))
    }

    /// A file of this set has the name again in a folder of names that its mark says: it was to come from there.
    fn put_name_back(&mut self, folder: &File, place: &[u8], (tag, kind): (&Tag, u32)) -> Result<(), Errno> {
        let meant = open_at(folder, place, kind)?.meant()?;
        let Some(back) = meant.and_then(|meant| meant.intent.drop).filter(|at| at.dir.is_names()) else {
            return self.set_apart(folder, place);
        };
        // It may have gone when it held no name any more, and that be on disk.
        self.have_folder_of_names(back.dir, (Version::default(), Time::default()))?;
        let names = self.folders.lost_found().open_at(hidden_name(back.dir).as_bytes(), S_IFDIR)?;
        let before = names.stat()?.mtime;
        match folder.rename(place, &names, back.name.as_bytes(), Renaming::NoReplace) {
            Err(Errno::EEXIST) => return self.set_apart(folder, place),
            other => other?,
        }
        names.set_times(file_system::Times { atime: before, mtime: before })?;
        self.names.forget(back.dir, back.name.as_bytes());
        self.listings.forget(back.dir);
        tracing::info!(brick = %self.path.display(), fid = %tag.fid, name = %back.name, "a file goes back to the name that an interrupted change took");
        self.synced(names.sync())
    }

    /// It must not be taken for what has its name, and where it belongs is not known.
    fn set_apart(&mut self, folder: &File, place: &[u8]) -> Result<(), Errno> {
        let last = self.journal.last().lsn;
        let to = move_to_lost_found(folder, place, self.folders.lost_found(), (last, &mut 0))?;
        tracing::error!(brick = %self.path.display(), to, "what waited for an entry is set apart in .mortar/limbo");
        Ok(())
    }
}
