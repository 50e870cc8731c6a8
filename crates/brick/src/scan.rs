//! Passes over the whole tree, and the removal of trees.

use crate::folders::hidden_fid;
use crate::object::{S_IFDIR, S_IFMT, Stat, tag_at};
use disk_format::Tag;
use file_system::{File, Handle};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use wire::Errno;
use wire::name::RESERVED;

/// The folder for what has no place in the tree, from the brick's root.
pub(crate) const LOST_FOUND: &str = ".mortar/limbo";

/// A folder of names in lost+found says by its name who it is. A power cut may have taken its tag, and left what is in it.
fn is_names_by_name(name: &[u8]) -> bool {
    hidden_fid(name).is_some_and(|fid| fid.is_names())
}

/// One object that a pass over the tree met.
pub(crate) struct Seen<'a> {
    pub(crate) path: &'a Path,
    pub(crate) dir: &'a File,
    pub(crate) name: &'a [u8],
    pub(crate) tag: Result<Option<Tag>, Errno>,
    pub(crate) stat: Stat,
}

impl Seen<'_> {
    /// Whether it is an entry of a directory that is served: in the tree, or in one that waits in lost+found for its place.
    pub(crate) fn is_entry(&self) -> bool {
        let in_lost_found =
            self.path.strip_prefix(LOST_FOUND).is_ok_and(|below| below.components().count() > 1);
        in_lost_found || !self.path.starts_with(".mortar")
    }
}

/// The names in a directory, as the file system lists them.
pub(crate) fn names(dir: &File) -> Result<Vec<Vec<u8>>, Errno> {
    let mut names = Vec::new();
    dir.list(&mut |name, _, _| {
        names.push(name.to_vec());
        true
    })?;
    Ok(names)
}

/// Walks the whole tree of a brick, orphans and lost+found included, one open directory at a time.
pub(crate) fn walk(root: &File, each: &mut dyn FnMut(&Seen<'_>) -> Result<(), Errno>) -> Result<(), Errno> {
    let handle = |name: &[u8]| -> Result<Handle, Errno> { root.open_at(RESERVED, S_IFDIR)?.handle_at(name) };
    let mut todo: Vec<(Handle, PathBuf)> = vec![
        (handle(b"aside")?, PathBuf::from(".mortar/aside")),
        (handle(b"limbo")?, PathBuf::from(LOST_FOUND)),
        (handle(b"orphans")?, PathBuf::from(".mortar/orphans")),
        (root.handle()?, PathBuf::new()),
    ];
    while let Some((at, path)) = todo.pop() {
        let dir = match root.open_handle(&at, S_IFDIR) {
            Err(Errno::ESTALE) => continue,
            other => other?,
        };
        let top = path.as_os_str().is_empty();
        for name in names(&dir)?.into_iter().filter(|n| !(top && n == RESERVED)) {
            let stat = match dir.stat_at(&name) {
                Err(Errno::ENOENT) => continue,
                other => other?,
            };
            let full = path.join(OsStr::from_bytes(&name));
            let tag = tag_at(&dir, &name);
            let tagged = matches!(tag, Ok(Some(_)));
            each(&Seen { path: &full, dir: &dir, name: &name, tag, stat })?;
            let ours = tagged || (path == Path::new(LOST_FOUND) && is_names_by_name(&name));
            // What is not ours is not looked into: lost+found, or whatever was copied in.
            if stat.mode & S_IFMT == S_IFDIR && ours {
                todo.push((dir.handle_at(&name)?, full));
            }
        }
    }
    Ok(())
}

/// Removes all that a directory holds.
pub(crate) fn clear(dir: &File) -> Result<(), Errno> {
    let mut list = Vec::new();
    dir.list(&mut |name, kind, _| {
        list.push((name.to_vec(), kind));
        true
    })?;
    list.into_iter().try_for_each(|(name, kind)| remove(dir, &name, kind))
}

/// Removes what a name leads to, with all that it holds. `kind`: its type bits, 0 if they are not known.
pub(crate) fn remove(dir: &File, name: &[u8], kind: u32) -> Result<(), Errno> {
    let kind = if kind == 0 { dir.stat_at(name)?.mode & S_IFMT } else { kind };
    if kind == S_IFDIR {
        clear(&dir.open_at(name, S_IFDIR)?)?;
        dir.remove_dir(name)
    } else {
        dir.unlink(name)
    }
}
