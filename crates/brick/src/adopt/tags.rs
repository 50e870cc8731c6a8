//! Writing the tags of adopted objects.

use super::survey::{Met, walk};
use super::{ADOPTING, Adoption, EPOCH, fid_of, obstacle};
use crate::error::{FormatError, Obstacle};
use crate::object::{OpenObject, S_IFDIR, Stat, open_at, tag_at};
use disk_format::Tag;
use disk_format::tag::{INTENT, Version};
use file_system::{File, S_IFLNK};
use ids::{Fid, Lsn};
use std::path::Path;

/// So many objects are tagged before it is looked whether to go on.
const SLICE: u64 = 1024;

/// Tags everything that has not the tag that it is to have.
pub(super) fn write(adoption: &Adoption<'_>, meta: &File, told: &dyn Fn(u64)) -> Result<(), FormatError> {
    let top = adoption.root.stat().map_err(|e| adoption.io(Path::new(""), "look at", e))?;
    let known = adoption.root.tag().is_ok_and(|t| is_right(adoption, t, adoption.identity.root));
    if !known {
        tag(&adoption.root, adoption, &top, adoption.identity.root)
            .map_err(|e| adoption.io(Path::new(""), "tag", e))?;
    }
    let mut count = 0;
    walk(adoption.path, &adoption.root, &mut |met| {
        if count % SLICE == 0 {
            if meta.stat_at(ADOPTING).is_err() {
                return Err(obstacle(adoption.path, met.path, Obstacle::GivenUp));
            }
            told(count);
        }
        count += 1;
        write_one(adoption, met)
    })
}

fn write_one(adoption: &Adoption<'_>, met: &Met<'_>) -> Result<(), FormatError> {
    let fid = fid_of(adoption.identity, met.stat.ino);
    if tag_at(met.dir, met.name).is_ok_and(|t| is_right(adoption, t, fid)) {
        return Ok(());
    }
    // Of anything but a directory the path is enough: a program that runs cannot be opened for writing.
    let kind = if met.kind() == S_IFDIR { S_IFDIR } else { S_IFLNK };
    let tagged = open_at(met.dir, met.name, kind).and_then(|open| tag(&open, adoption, &met.stat, fid));
    tagged.map_err(|e| adoption.io(met.path, "tag", e))
}

fn is_right(adoption: &Adoption<'_>, tag: Option<Tag>, fid: Fid) -> bool {
    tag.is_some_and(|t| (t.fid, t.home, t.flags) == (fid, adoption.identity.set, 0))
}

fn tag(open: &OpenObject, adoption: &Adoption<'_>, stat: &Stat, fid: Fid) -> Result<(), wire::Errno> {
    // What another volume noted beside it means nothing here.
    open.remove_xattr(INTENT.as_bytes())?;
    open.set_tag(&Tag {
        flags: 0,
        fid,
        home: adoption.identity.set,
        version: Version { epoch: EPOCH, lsn: Lsn(stat.ino) },
        ctime: stat.ctime,
        atime: stat.atime,
    })
}

/// Whether everything has its tag now. The largest inode number.
pub(super) fn check(adoption: &Adoption<'_>) -> Result<u64, FormatError> {
    let mut last = adoption.root.stat().map_err(|e| adoption.io(Path::new(""), "look at", e))?.ino;
    walk(adoption.path, &adoption.root, &mut |met| {
        let fid = fid_of(adoption.identity, met.stat.ino);
        if !tag_at(met.dir, met.name).is_ok_and(|t| is_right(adoption, t, fid)) {
            return Err(obstacle(adoption.path, met.path, Obstacle::Changed));
        }
        last = last.max(met.stat.ino);
        Ok(())
    })?;
    Ok(last)
}
