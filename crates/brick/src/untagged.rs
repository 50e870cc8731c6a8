//! What a power cut left without its tag.
//!
//! An object gets its tag after it was made, so that the entry may be there and the tag lost. What has no tag and changed
//! since the last sync of everything is nobody's: it was not synced, and goes to lost+found before it is in anybody's way.
//!
//! A directory may be such a thing, with this set's own objects in it. A directory among them may have been on disk for long
//! (it had just been moved beneath a new copy of another set's directory), and is served in lost+found itself. A file that
//! has other names keeps only those: its links are counted by the kernel, and users would see one that they cannot find. A
//! file without any goes to lost+found with the directory, and is made anew where another brick has it.

use crate::far_entry::{intent, kept_entry, write_kept};
use crate::far_names::bring_names_out;
use crate::folders::hidden_name;
use crate::index::Index;
use crate::object::{OpenObject, S_IFDIR, S_IFMT, tag_at};
use crate::open::Site;
use crate::place::move_to_lost_found;
use disk_format::Tag;
use disk_format::tag::{XATTR, encode_intent};
use file_system::{File, Handle, Renaming, Times};
use ids::{Lsn, SetId};
use wire::{Errno, Name};

/// An entry without a tag: the handle of its directory, and its name there.
pub(crate) type Untagged = (Handle, Vec<u8>);

/// Moves the set's own directories that lie beneath such as lost their tags to lost+found, each by its fid, and names of its
/// files there to their folders. Whether there were any. One that the index has elsewhere is a copy that somebody made with its tag.
/// Second copies of other sets' directories are treated likewise, and lose their tags.
///
/// They are on disk there before what they lay in leaves its place: after another power cut nobody looks into it.
pub(crate) fn bring_out(
    at: &Site,
    untagged: &[Untagged],
    (set, known): (SetId, Option<&Index>),
) -> Result<bool, Errno> {
    if untagged.is_empty() {
        return Ok(false);
    }
    let lost_found = at.meta.open_at(b"limbo", S_IFDIR)?;
    let mut any = false;
    let device = at.root.stat()?.dev;
    let mut todo: Vec<(Handle, Option<Vec<u8>>, Option<Tag>)> =
        untagged.iter().map(|(dir, name)| (*dir, Some(name.clone()), None)).collect();
    while let Some((handle, only, copy_of)) = todo.pop() {
        let dir = at.root.open_handle(&handle, S_IFDIR)?;
        // Of a directory that was met without a tag all is looked at, of the one above it only that.
        let names = only.as_ref().map_or_else(|| crate::scan::names(&dir), |name| Ok(vec![name.clone()]))?;
        for name in names {
            let stat = dir.stat_at(&name)?;
            // What is mounted there is nobody's here.
            if stat.mode & S_IFMT != S_IFDIR || stat.dev != device {
                continue;
            }
            let tag = match tag_at(&dir, &name) {
                Ok(tag) => tag,
                // It cannot be read: a check of the brick tells.
                Err(_) => continue,
            };
            let Some(tag) = tag.filter(|tag| tag.home == set) else {
                todo.push((dir.handle_at(&name)?, None, tag));
                if let Some(copy) = tag {
                    let open = dir.open_at(&name, S_IFDIR)?;
                    any |= bring_names_out(at, &open, (copy.fid, set))?;
                    // It is looked into no more, and must not be taken for the copy that it was.
                    open.remove_xattr(XATTR.as_bytes())?;
                }
                continue;
            };
            let elsewhere = known.map_or(Ok(None), |index| index.get(tag.fid))?;
            let here = dir.handle_at(&name)?;
            if elsewhere.is_some_and(|e| e.handle != here && at.root.open_handle(&e.handle, e.kind).is_ok()) {
                continue;
            }
            if let Some(above) = &copy_of {
                let name_here = Name::new(&name).map_err(|_| Errno::EIO)?;
                let kept = intent(above.home, above.fid, &name_here);
                let open = OpenObject::new(dir.open_at(&name, S_IFDIR)?, S_IFDIR);
                // Its entry may have moved to another set than had the copy.
                let moved =
                    kept_entry(&open, set)?.is_some_and(|(owner, _)| owner != above.home && owner != set);
                if !moved {
                    write_kept(&open, &encode_intent(&kept), (&at.path, tag.fid))?;
                }
            }
            match dir.rename(&name, &lost_found, hidden_name(tag.fid).as_bytes(), Renaming::NoReplace) {
                Ok(()) => any = true,
                Err(Errno::EEXIST | Errno::EBUSY | Errno::EXDEV | Errno::EPERM) => continue,
                Err(e) => return Err(e),
            }
            let name = String::from_utf8_lossy(&name);
            tracing::warn!(brick = %at.path.display(), fid = %tag.fid, %name, "a power cut took the tag of the copy above a directory: it goes to .mortar/limbo, where it is served");
        }
    }
    if any {
        at.root.sync_all()?;
    }
    Ok(any)
}

/// Takes the names of this set's files away that lie beneath such directories. The index forgets a file that has no other.
///
/// It is on disk before the directory leaves its place: nobody looks into it there.
pub(crate) fn release_names(at: &Site, untagged: &[Untagged], index: &mut Index) -> Result<(), Errno> {
    let device = at.root.stat()?.dev;
    let mut todo = Vec::new();
    for (handle, name) in untagged {
        todo.extend(untagged_dir(&at.root.open_handle(handle, S_IFDIR)?, name, device)?);
    }
    while let Some(handle) = todo.pop() {
        let dir = at.root.open_handle(&handle, S_IFDIR)?;
        let mut any = false;
        for name in crate::scan::names(&dir)? {
            todo.extend(untagged_dir(&dir, &name, device)?);
            any |= release_name(&dir, &name, index)?;
        }
        if any {
            dir.sync()?;
        }
    }
    Ok(())
}

/// The handle of what has this name, if it is a directory without a tag, and none that somebody has mounted there.
fn untagged_dir(dir: &File, name: &[u8], device: u64) -> Result<Option<Handle>, Errno> {
    let stat = dir.stat_at(name)?;
    let is_one = stat.mode & S_IFMT == S_IFDIR && stat.dev == device && tag_at(dir, name) == Ok(None);
    if is_one { dir.handle_at(name).map(Some) } else { Ok(None) }
}

/// Whether it took a name away. What the index has elsewhere is a copy that somebody made with its tag.
pub(crate) fn release_name(dir: &File, name: &[u8], index: &mut Index) -> Result<bool, Errno> {
    let stat = dir.stat_at(name)?;
    let Ok(Some(tag)) = tag_at(dir, name) else { return Ok(false) };
    let here = dir.handle_at(name)?;
    let is_ours = index.get(tag.fid)?.is_some_and(|known| known.handle == here);
    if stat.mode & S_IFMT == S_IFDIR || !is_ours {
        return Ok(false);
    }
    if stat.nlink > 1 {
        dir.unlink(name)?;
        return Ok(true);
    }
    index.remove(tag.fid);
    Ok(false)
}

/// Moves what lost its tag to lost+found. The times of its directory stay: they are users'.
pub(crate) fn quarantine(at: &Site, untagged: &[Untagged], last: Lsn) -> Result<(), Errno> {
    if untagged.is_empty() {
        return Ok(());
    }
    let lost_found = at.meta.open_at(b"limbo", S_IFDIR)?;
    let mut number = 0;
    for (handle, name) in untagged {
        let dir = at.root.open_handle(handle, S_IFDIR)?;
        let before = dir.stat()?.mtime;
        let to = match move_to_lost_found(&dir, name, &lost_found, (last, &mut number)) {
            // A mount, or a file that may not be moved: somebody put it there.
            Err(Errno::EBUSY | Errno::EXDEV | Errno::EPERM) => continue,
            moved => moved?,
        };
        dir.set_times(Times { atime: before, mtime: before })?;
        let name = String::from_utf8_lossy(name);
        tracing::warn!(brick = %at.path.display(), %name, to, "what a power cut left without its tag goes to .mortar/limbo");
    }
    Ok(())
}
