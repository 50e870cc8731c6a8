//! Copies of another set's directory that a power cut left twice.
//!
//! A copy goes with the last name in it, and another one is made where the directory is by then. Both may be on disk after a power
//! cut: the removal of the old one was lost. The index knows one of them, and names in the other one would be found by nobody,
//! nor be taken away.

use crate::far_names::{far_names, is_far_name};
use crate::folders::{hidden_fid, hidden_name};
use crate::index::Index;
use crate::marks::is_marked;
use crate::object::{OpenObject, S_IFDIR, S_IFMT, open_at, tag_at, tag_of};
use crate::open::Site;
use crate::place::move_to_lost_found;
use crate::scan::{LOST_FOUND, Seen, walk};
use crate::untagged::{Untagged, release_name};
use disk_format::Tag;
use file_system::{File, Renaming, Times};
use ids::{Fid, Lsn, SetId};
use std::collections::BTreeSet;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use wire::Errno;

/// Which directories of other sets were met, by a walk over the tree.
#[derive(Default)]
pub(crate) struct Copies {
    met: BTreeSet<Fid>,
    twice: BTreeSet<Fid>,
    /// Those with names in their folders of names.
    folders_with_names: BTreeSet<Fid>,
}

/// Whether it is a copy that may have to go. The end of a healing sees to those in the heal trash.
fn is_copy(seen: &Seen<'_>, tag: &Tag, own: SetId) -> bool {
    tag.home != own && seen.stat.mode & S_IFMT == S_IFDIR && !seen.path.starts_with(".mortar/aside")
}

/// The directory whose folder of names in lost+found has this entry.
fn of_folder(seen: &Seen<'_>) -> Option<Fid> {
    let above = seen.path.parent()?;
    let folder = hidden_fid(above.file_name()?.as_bytes()).filter(|fid| fid.is_names())?;
    (above.parent()? == Path::new(LOST_FOUND)).then(|| folder.without_names())
}

impl Copies {
    pub(crate) fn meet(&mut self, seen: &Seen<'_>, tag: &Tag, own: SetId) {
        self.folders_with_names.extend(of_folder(seen));
        if is_copy(seen, tag, own) && !self.met.insert(tag.fid) {
            self.twice.insert(tag.fid);
        }
    }

    /// The folders of names for the directories that have several.
    pub(crate) fn folders(&self) -> impl Iterator<Item = Fid> {
        self.twice.iter().map(|fid| fid.names())
    }

    /// The copies that go, those beneath others first. One that is an entry of this set's own directory stays: it comes and goes
    /// with that entry. Else the first one stays, which lies in the tree if any does.
    pub(crate) fn seconds(&self, root: &OpenObject, own: SetId) -> Result<Vec<Untagged>, Errno> {
        if self.twice.is_empty() {
            return Ok(Vec::new());
        }
        let (mut found, mut stay) = (Vec::new(), BTreeSet::new());
        walk(root, &mut |seen| {
            let Ok(Some(tag)) = &seen.tag else { return Ok(()) };
            if !self.twice.contains(&tag.fid) || !is_copy(seen, tag, own) {
                return Ok(());
            }
            if tag_of(seen.dir)?.is_some_and(|above| above.home == own) {
                stay.insert(tag.fid);
            } else {
                found.push((tag.fid, (seen.dir.handle()?, seen.name.to_vec())));
            }
            Ok(())
        })?;
        found.retain(|(fid, _)| !stay.insert(*fid));
        Ok(found.into_iter().rev().map(|(_, copy)| copy).collect())
    }

    /// Names in folders of names that the copies have as well: the copies' count, as they do for whoever looks for them. They came out
    /// of second copies; or the copy went with its last name, the folder was made again with a file of the same name, and a power cut
    /// brought back that copy with what it had.
    ///
    /// A file that has no other name waits among the orphans if it was to get this one, and else goes to lost+found.
    pub(crate) fn drop_shadowed(
        &self,
        at: &Site,
        (own, last): (SetId, Lsn),
        index: &mut Index,
    ) -> Result<(), Errno> {
        let lost_found = at.meta.open_at(b"limbo", S_IFDIR)?;
        let orphans = at.meta.open_at(b"orphans", S_IFDIR)?;
        let root = at.root.tag()?.map(|tag| tag.fid);
        let mut number = 0;
        for fid in self.twice.union(&self.folders_with_names) {
            let opened = match index.get(*fid)? {
                Some(place) => at.root.open_handle(&place.handle, S_IFDIR),
                None if Some(*fid) == root => at.root.open_handle(&at.root.handle()?, S_IFDIR),
                None => continue,
            };
            let folder = lost_found.open_at(hidden_name(fid.names()).as_bytes(), S_IFDIR);
            let (copy, folder) = match (opened, folder) {
                (Ok(copy), Ok(folder)) => (copy, folder),
                (Err(Errno::ESTALE | Errno::ENOENT), _) | (_, Err(Errno::ENOENT)) => continue,
                (Err(e), _) | (_, Err(e)) => return Err(e),
            };
            let before = folder.stat()?.mtime;
            for name in far_names(&folder, false, own)? {
                if !is_far_name(&copy, &name, own)? {
                    continue;
                }
                if copy.handle_at(&name)? == folder.handle_at(&name)? {
                    folder.unlink(&name)?;
                } else if !set_aside(&folder, &name, *fid, &orphans)? && !release_name(&folder, &name, index)?
                {
                    move_to_lost_found(&folder, &name, &lost_found, (last, &mut number))?;
                }
            }
            folder.set_times(Times { atime: before, mtime: before })?;
        }
        Ok(())
    }
}

/// Whether the file was to get the name that it has in the folder of names for a directory, and has no other: it waits for it without
/// a name.
fn set_aside(folder: &File, name: &[u8], of: Fid, orphans: &File) -> Result<bool, Errno> {
    let stat = folder.stat_at(name)?;
    let Ok(Some(tag)) = tag_at(folder, name) else { return Ok(false) };
    if !is_marked(&tag) || stat.nlink > 1 {
        return Ok(false);
    }
    let Ok(Some(intent)) = open_at(folder, name, stat.mode & S_IFMT)?.intent() else { return Ok(false) };
    if !intent.add.is_some_and(|add| add.dir == of.names() && add.name.as_bytes() == name) {
        return Ok(false);
    }
    match folder.rename(name, orphans, hidden_name(tag.fid).as_bytes(), Renaming::NoReplace) {
        Err(Errno::EEXIST) => Ok(false),
        other => other.map(|()| true),
    }
}

/// Removes copies out of which everything was brought, and that are no copies any more. What is not empty goes to lost+found:
/// answers where it lies.
pub(crate) fn clear(at: &Site, copies: &[Untagged], last: Lsn) -> Result<Vec<Untagged>, Errno> {
    let lost_found = at.meta.open_at(b"limbo", S_IFDIR)?;
    let (mut left, mut number) = (Vec::new(), 0);
    for (handle, name) in copies {
        let dir = at.root.open_handle(handle, S_IFDIR)?;
        let moved = match dir.remove_dir(name) {
            Err(Errno::ENOTEMPTY | Errno::EEXIST) => {
                move_to_lost_found(&dir, name, &lost_found, (last, &mut number)).map(Some)
            }
            other => other.map(|()| None),
        };
        let to = match moved {
            Ok(Some(to)) => to,
            // Or somebody has mounted something there.
            Ok(None) | Err(Errno::EBUSY | Errno::EXDEV | Errno::EPERM) => continue,
            Err(e) => return Err(e),
        };
        let name = String::from_utf8_lossy(name);
        tracing::warn!(brick = %at.path.display(), %name, to, "a second copy of a directory of another set goes to .mortar/limbo");
        left.push((lost_found.handle()?, to.into_bytes()));
    }
    Ok(left)
}
