//! The first look at a directory that is to be adopted: whether everything in it can be a volume's.

use super::{MAX_INO, obstacle};
use crate::error::{FormatError, Obstacle};
use crate::identity::IDENTITY;
use crate::object::{OpenObject, S_IFDIR, S_IFMT, Stat, tag_at};
use crate::scan::names;
use file_system::{File, Handle};
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use wire::Errno;
use wire::name::RESERVED;

/// An object that a walk met.
pub(super) struct Met<'a> {
    /// From the brick's top.
    pub(super) path: &'a Path,
    pub(super) dir: &'a File,
    pub(super) name: &'a [u8],
    pub(super) stat: Stat,
}

impl Met<'_> {
    pub(super) fn kind(&self) -> u32 {
        self.stat.mode & S_IFMT
    }
}

/// Walks over all that lies beneath the top directory, tagged or not, one open directory at a time.
pub(super) fn walk(
    brick: &Path,
    root: &OpenObject,
    each: &mut dyn FnMut(&Met<'_>) -> Result<(), FormatError>,
) -> Result<(), FormatError> {
    let io = |at: &Path, doing, errno| FormatError::Io { path: brick.join(at), doing, errno };
    let top = root.handle().map_err(|e| io(Path::new(""), "find", e))?;
    let mut todo: Vec<(Handle, PathBuf)> = vec![(top, PathBuf::new())];
    while let Some((at, path)) = todo.pop() {
        let dir = match root.open_handle(&at, S_IFDIR) {
            // Removed meanwhile.
            Err(Errno::ESTALE) => continue,
            other => other.map_err(|e| io(&path, "open", e))?,
        };
        let names = names(&dir).map_err(|e| io(&path, "list", e))?;
        let is_top = path.as_os_str().is_empty();
        for name in names.into_iter().filter(|n| !(is_top && n == RESERVED)) {
            let full = path.join(OsStr::from_bytes(&name));
            let stat = match dir.stat_at(&name) {
                Err(Errno::ENOENT) => continue,
                other => other.map_err(|e| io(&full, "look at", e))?,
            };
            let met = Met { path: &full, dir: &dir, name: &name, stat };
            each(&met)?;
            if met.kind() == S_IFDIR {
                let handle = dir.handle_at(&name).map_err(|e| io(&full, "find", e))?;
                todo.push((handle, full));
            }
        }
    }
    Ok(())
}

/// A file with several names: how many it has, and how many of them were met.
struct Linked {
    links: u32,
    met: u32,
    path: PathBuf,
}

/// Looks at everything as long as `go_on` answers true.
pub(super) fn look(brick: &Path, root: &OpenObject, go_on: &dyn Fn() -> bool) -> Result<(), FormatError> {
    let top = root.stat().map_err(|errno| FormatError::Io {
        path: brick.to_path_buf(),
        doing: "look at",
        errno,
    })?;
    if root.is_on_host()
        && let Some(point) = mounted_below(brick)
    {
        return Err(FormatError::CannotAdopt { path: point, why: Obstacle::OtherFileSystem });
    }
    let mut linked: HashMap<u64, Linked> = HashMap::new();
    let mut stopped = false;
    let walked = walk(brick, root, &mut |met| {
        if !go_on() {
            stopped = true;
            return Err(obstacle(brick, met.path, Obstacle::Changed));
        }
        look_at(brick, met, top.dev)?;
        if met.kind() != S_IFDIR && met.stat.nlink > 1 {
            let new = || Linked { links: met.stat.nlink, met: 0, path: met.path.to_path_buf() };
            linked.entry(met.stat.ino).or_insert_with(new).met += 1;
        }
        Ok(())
    });
    if stopped {
        return Ok(());
    }
    walked?;
    let mut outside: Vec<&Linked> = linked.values().filter(|l| l.met < l.links).collect();
    outside.sort_by(|a, b| a.path.cmp(&b.path));
    match outside.first() {
        Some(l) => Err(obstacle(brick, &l.path, Obstacle::LinkedOutside { links: l.links, within: l.met })),
        None => Ok(()),
    }
}

/// Whether one object can be a volume's.
fn look_at(brick: &Path, met: &Met<'_>, device: u64) -> Result<(), FormatError> {
    if met.stat.dev != device {
        return Err(obstacle(brick, met.path, Obstacle::OtherFileSystem));
    }
    if met.stat.ino == 0 || met.stat.ino >= MAX_INO {
        return Err(obstacle(brick, met.path, Obstacle::InodeNumber { ino: met.stat.ino }));
    }
    if met.kind() == S_IFDIR {
        let is_brick = met.name == RESERVED
            && met.dir.open_at(met.name, S_IFDIR).and_then(|dir| dir.stat_at(IDENTITY)).is_ok();
        if is_brick {
            let inner = brick.join(met.path.parent().unwrap_or(met.path));
            return Err(FormatError::Around { path: brick.to_path_buf(), inner });
        }
    } else if let Ok(Some(tag)) = tag_at(met.dir, met.name)
        && tag.stub_kind().is_some()
    {
        return Err(obstacle(brick, met.path, Obstacle::Stub { home: tag.home }));
    }
    Ok(())
}

/// A file system that is mounted somewhere beneath the directory: one of the same device shows in no inode.
fn mounted_below(brick: &Path) -> Option<PathBuf> {
    let brick = brick.canonicalize().ok()?;
    let mounts = std::fs::read("/proc/self/mountinfo").ok()?;
    let points = mounts.split(|b| *b == b'\n').filter_map(|line| line.split(|b| *b == b' ').nth(4));
    points.map(unescaped).find(|point| *point != brick && point.starts_with(&brick))
}

/// A path as `mountinfo` writes it: blanks and the like are a backslash and three octal digits.
fn unescaped(text: &[u8]) -> PathBuf {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, tail)) = rest.split_first() {
        let digits = tail.get(..3).and_then(|d| std::str::from_utf8(d).ok());
        match digits.and_then(|d| u8::from_str_radix(d, 8).ok()).filter(|_| *first == b'\\') {
            Some(byte) => {
                out.push(byte);
                rest = tail.get(3..).unwrap_or_default();
            }
            None => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    PathBuf::from(OsString::from_vec(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blanks_in_mount_points_are_read() {
        assert_eq!(unescaped(b"/a\\040b/c"), Path::new("/a b/c"));
        assert_eq!(unescaped(b"/a\\134"), Path::new("/a\\"));
        assert_eq!(unescaped(b"/a\\0"), Path::new("/a\\0"));
    }
}
