//! One object under all of its names: what interrupted healings made twice, and what power cuts left twice, becomes one again.

use crate::folders::hidden_name;
use crate::index::Index;
use crate::object::{S_IFDIR, S_IFREG, tag_at, tag_of};
use crate::open::{Brick, Site};
use crate::scan::{Seen, walk};
use disk_format::tag::PENDING;
use file_system::{File, Handle, Renaming, Times};
use ids::Fid;
use std::collections::BTreeMap;
use wire::Errno;
use wire::reply::DirEntry;

/// A stub that has gone and was made again under another name is the new one only. A power cut may have left both: one of
/// them gets the names of both. Answers which: the index is to know those. `changed`: the stubs with names that changed since
/// the last sync of everything; one that did not is where the index has it.
pub(crate) fn unite_stubs(
    at: &Site,
    changed: &[(Fid, Handle)],
    index: &Index,
) -> Result<BTreeMap<Fid, Handle>, Errno> {
    let kept = doubled(&at.root, changed, index)?;
    if kept.is_empty() {
        return Ok(kept);
    }
    walk(&at.root, &mut |seen| {
        let Ok(Some(tag)) = &seen.tag else { return Ok(()) };
        let wanted = kept.get(&tag.fid).filter(|_| seen.is_entry() && tag.stub_kind().is_some());
        match wanted {
            Some(stub) if seen.dir.handle_at(seen.name)? != *stub => give_name(at, seen, (tag.fid, stub)),
            _ => Ok(()),
        }
    })?;
    Ok(kept)
}

/// Of which files there are several stubs, and which of them stays: one that is marked, as nothing else says that a
/// transaction has to end, or the newest.
fn doubled(root: &File, changed: &[(Fid, Handle)], index: &Index) -> Result<BTreeMap<Fid, Handle>, Errno> {
    let mut stubs: BTreeMap<Fid, Vec<Handle>> = BTreeMap::new();
    for (fid, handle) in changed {
        let known = index.get(*fid)?.map(|known| known.handle);
        let all = stubs.entry(*fid).or_default();
        for one in known.into_iter().chain([*handle]) {
            if !all.contains(&one) {
                all.push(one);
            }
        }
    }
    let mut kept = BTreeMap::new();
    for (fid, all) in stubs.into_iter().filter(|(_, all)| all.len() > 1) {
        let mut there = Vec::new();
        for handle in all {
            let open = match root.open_handle(&handle, S_IFREG) {
                Err(Errno::ESTALE | Errno::ENOENT) => continue,
                other => other?,
            };
            let tag = tag_of(&open)?.filter(|tag| tag.fid == fid && tag.stub_kind().is_some());
            there.extend(tag.map(|tag| ((tag.flags & PENDING, tag.version.lsn), handle)));
        }
        if there.len() > 1 {
            kept.extend(there.into_iter().max_by_key(|(how, _)| *how).map(|(_, handle)| (fid, handle)));
        }
    }
    Ok(kept)
}

/// The name leads to one of the two at any time. The times of its directory stay: they are users'.
fn give_name(at: &Site, seen: &Seen<'_>, (fid, stub): (Fid, &Handle)) -> Result<(), Errno> {
    let lost_found = at.meta.open_at(b"limbo", S_IFDIR)?;
    let hidden = hidden_name(fid);
    // Stubs are there only while they take a place.
    if tag_at(&lost_found, hidden.as_bytes()).is_ok_and(|tag| tag.is_some_and(|t| t.stub_kind().is_some())) {
        lost_found.unlink(hidden.as_bytes())?;
    }
    let before = seen.dir.stat()?.mtime;
    at.root.open_handle(stub, S_IFREG)?.link(&lost_found, hidden.as_bytes())?;
    lost_found.rename(hidden.as_bytes(), seen.dir, seen.name, Renaming::Replace)?;
    seen.dir.set_times(Times { atime: before, mtime: before })
}

impl Brick {
    /// Whether a name leads to something that has an object's tag and is not the object. An interrupted healing made it: a
    /// kill may keep what was made from the index, and the next healing made it anew under another name.
    pub(crate) fn is_double(&mut self, dir: &File, name: &[u8], fid: Fid) -> Result<bool, Errno> {
        let Some(known) = self.index.get(fid)? else { return Ok(false) };
        let here = match dir.handle_at(name) {
            Err(Errno::ENOENT) => return Ok(false),
            other => other?,
        };
        Ok(known.handle != here && self.is_known(fid)?)
    }

    /// A file with several names is one file under all of them.
    pub(crate) fn unite(&mut self, dir: Fid, e: &DirEntry) -> Result<(), Errno> {
        let linked = e.kind != S_IFDIR && e.attr.as_ref().is_some_and(|a| a.nlink > 1);
        let parent = self.dir_of_name(dir, e.name.as_bytes())?;
        if !linked || !self.is_double(&parent, e.name.as_bytes(), e.fid)? {
            return Ok(());
        }
        parent.unlink(e.name.as_bytes())?;
        self.link_again(e, dir)
    }
}
