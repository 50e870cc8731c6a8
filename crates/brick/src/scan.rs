//! Passes over directories and over the whole tree.

use crate::error::errno;
use crate::handle::Handle;
use crate::object::{S_IFDIR, S_IFMT, Stat, stat_at, tag_at};
use crate::tree::DIR_FLAGS;
use disk_format::Tag;
use rustix::fs::{FileType, Mode, RawDir};
use std::ffi::OsStr;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use wire::Errno;
use wire::name::RESERVED;

fn type_bits(t: FileType) -> u32 {
    match t {
        FileType::Unknown => 0,
        t => t.as_raw_mode(),
    }
}

/// Calls `each` with every name in `dir` (without `.` and `..`), its type bits (0 if unknown) and inode number, until it
/// answers false. Opens the directory anew: passes do not disturb each other.
pub(crate) fn names(dir: BorrowedFd<'_>, each: &mut dyn FnMut(&[u8], u32, u64) -> bool) -> Result<(), Errno> {
    let fd = rustix::fs::openat(dir, ".", DIR_FLAGS, Mode::empty()).map_err(errno)?;
    let mut buf = vec![MaybeUninit::<u8>::uninit(); 32 << 10];
    let mut raw = RawDir::new(&fd, &mut buf);
    while let Some(e) = raw.next() {
        let e = match e {
            Err(rustix::io::Errno::INTR) => continue,
            other => other.map_err(errno)?,
        };
        let name = e.file_name().to_bytes();
        if name != b"." && name != b".." && !each(name, type_bits(e.file_type()), e.ino()) {
            break;
        }
    }
    Ok(())
}

/// One object that a pass over the tree met.
pub(crate) struct Seen<'a> {
    pub(crate) path: &'a Path,
    pub(crate) dir: BorrowedFd<'a>,
    pub(crate) name: &'a [u8],
    pub(crate) tag: Result<Option<Tag>, Errno>,
    pub(crate) stat: Stat,
}

/// Walks the whole tree of a brick, orphans and limbo included, one open directory at a time.
pub(crate) fn walk(
    root: &OwnedFd,
    each: &mut dyn FnMut(&Seen<'_>) -> Result<(), Errno>,
) -> Result<(), Errno> {
    let handle = |name: &[u8]| -> Result<Handle, Errno> {
        let meta = rustix::fs::openat(root, RESERVED, DIR_FLAGS, Mode::empty()).map_err(errno)?;
        Handle::of(meta.as_fd(), name)
    };
    let mut todo: Vec<(Handle, PathBuf)> = vec![
        (handle(b"aside")?, PathBuf::from(".mortar/aside")),
        (handle(b"limbo")?, PathBuf::from(".mortar/limbo")),
        (handle(b"orphans")?, PathBuf::from(".mortar/orphans")),
        (Handle::of(root.as_fd(), b"")?, PathBuf::new()),
    ];
    while let Some((at, path)) = todo.pop() {
        let dir = match at.open(root.as_fd(), DIR_FLAGS) {
            Err(Errno::ESTALE) => continue,
            other => other?,
        };
        let mut list = Vec::new();
        names(dir.as_fd(), &mut |name, _, _| {
            list.push(name.to_vec());
            true
        })?;
        let top = path.as_os_str().is_empty();
        for name in list.into_iter().filter(|n| !(top && n == RESERVED)) {
            let stat = match stat_at(dir.as_fd(), &name) {
                Err(Errno::ENOENT) => continue,
                other => other?,
            };
            let full = path.join(OsStr::from_bytes(&name));
            let tag = tag_at(dir.as_fd(), &name);
            let tagged = matches!(tag, Ok(Some(_)));
            each(&Seen { path: &full, dir: dir.as_fd(), name: &name, tag, stat })?;
            // What is not ours is not looked into: lost+found, or whatever was copied in.
            if stat.mode & S_IFMT == S_IFDIR && tagged {
                todo.push((Handle::of(dir.as_fd(), &name)?, full));
            }
        }
    }
    Ok(())
}
