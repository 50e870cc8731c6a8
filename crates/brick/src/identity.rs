//! Making a brick of a directory, and the folder `.mortar` in it.

use crate::error::{FormatError, io_errno};
use crate::object::{OpenObject, S_IFDIR, S_IFREG};
use crate::open::Site;
use disk_format::tag::{Tag, Version};
use disk_format::{Identity, SealError, Top};
use file_system::{File, FileSystem, Host, Opening, Renaming, Times};
use ids::Time;
use std::path::{Path, PathBuf};
use wire::Errno;
use wire::name::RESERVED;

/// The folders in `.mortar`.
pub(crate) const FOLDERS: [&str; 4] = ["journal", "orphans", "limbo", "aside"];

/// Its name in `.mortar`.
pub(crate) const IDENTITY: &[u8] = b"identity";

/// `BRICK/.mortar`.
pub(crate) fn own(path: &Path) -> PathBuf {
    path.join(".mortar")
}

/// The file that says whose the brick is.
pub(crate) fn identity_file(path: &Path) -> PathBuf {
    own(path).join("identity")
}

/// What the brick at `path` says it is; `None` if there is none.
///
/// # Errors
/// What is wrong with its identity file.
pub fn read_identity(path: &Path) -> Result<Option<Identity>, SealError> {
    match std::fs::read(identity_file(path)) {
        Ok(bytes) => Identity::decode(&bytes).map(Some),
        Err(_) => Ok(None),
    }
}

/// Writes `bytes` to a file in `dir` so that it is either there whole, after a power cut too, or not at all.
pub(crate) fn write_durably(dir: &File, name: &[u8], bytes: &[u8]) -> Result<(), Errno> {
    let new = [name, b".new"].concat();
    let file = dir.open_own(&new, Opening::Emptied(0o600))?;
    file.write_all(0, bytes)?;
    file.sync()?;
    dir.rename(&new, dir, name, Renaming::Replace)?;
    dir.sync()
}

/// The content of a small file in `dir`; `None` if there is none.
pub(crate) fn read_small(dir: &File, name: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
    match dir.open_at(name, S_IFREG) {
        Ok(file) => file.read_whole().map(Some),
        Err(Errno::ENOENT) => Ok(None),
        Err(e) => Err(e),
    }
}

/// Makes the directory at `path` a brick. A missing directory is created, its parent must exist. `made`: since when the
/// volume has its root, the same for all bricks of a set.
///
/// # Errors
/// Why it cannot be one, in one line.
pub fn format(path: &Path, identity: &Identity, made: Time) -> Result<(), FormatError> {
    let missing = path.symlink_metadata().is_err();
    let done = make_brick(path, identity, made);
    if done.is_err() && missing {
        // Only ever an empty directory, or one with our own folder in it: what we made goes again.
        let _ = std::fs::remove_dir_all(own(path));
        let _ = std::fs::remove_dir(path);
    }
    done
}

fn make_brick(path: &Path, identity: &Identity, made: Time) -> Result<(), FormatError> {
    let io = |doing, e: Errno| match e {
        Errno::EROFS => FormatError::ReadOnly { path: path.to_path_buf() },
        errno => FormatError::Io { path: path.to_path_buf(), doing, errno },
    };
    check_around(path)?;
    match std::fs::symlink_metadata(path) {
        Ok(m) if !m.is_dir() => return Err(FormatError::NotDirectory { path: path.to_path_buf() }),
        Ok(_) => check_inside(path)?,
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            std::fs::create_dir(path).map_err(|e| io("create the directory", io_errno(&e)))?;
        }
        Err(e) => return Err(io("look at it", io_errno(&e))),
    }
    format_on(&Host, path, identity, made)
}

/// Makes a directory of any file system a brick. Unlike [`format`] it looks at nothing around the directory nor in it.
///
/// # Errors
/// Why it cannot be one, in one line.
pub fn format_on(
    fs: &dyn FileSystem,
    path: &Path,
    identity: &Identity,
    made: Time,
) -> Result<(), FormatError> {
    let io = |doing, e: Errno| match e {
        Errno::EROFS => FormatError::ReadOnly { path: path.to_path_buf() },
        errno => FormatError::Io { path: path.to_path_buf(), doing, errno },
    };
    let root = OpenObject::top(fs.open_dir(path).map_err(|e| io("open", e))?);
    check_file_system(path, &root)?;
    let tag = Tag {
        flags: 0,
        fid: identity.root,
        home: identity.root_home,
        version: Version::default(),
        ctime: made,
        atime: made,
    };
    make_folder(&root, RESERVED).map_err(|e| io("create .mortar", e))?;
    let meta = root.open_at(RESERVED, S_IFDIR).map_err(|e| io("open .mortar", e))?;
    meta.chmod(0o700).map_err(|e| io("protect .mortar", e))?;
    for f in FOLDERS {
        make_folder(&meta, f.as_bytes()).map_err(|e| io("create .mortar", e))?;
    }
    // All replicas' roots begin alike.
    let top = Top { mode: 0o755, uid: 0, gid: 0 };
    crate::top::begin(&root, top).map_err(|e| io("set owner and mode", e))?;
    root.set_times(Times { atime: made, mtime: made }).map_err(|e| io("set times", e))?;
    root.set_tag(&tag).map_err(|e| io("tag", e))?;
    // The identity comes last: a brick that has one is whole.
    write_durably(&meta, IDENTITY, &identity.encode()).map_err(|e| io("write the identity", e))
}

/// Makes a folder of ours, if it is missing.
pub(crate) fn make_folder(dir: &File, name: &[u8]) -> Result<(), Errno> {
    match dir.make_dir(name, 0o700) {
        Ok(()) | Err(Errno::EEXIST) => Ok(()),
        Err(e) => Err(e),
    }
}

/// Writes the identity again if it is damaged or missing and everything else says that this is the brick expected: the top
/// directory's tag and the journal's newest segment. False if it is not, or cannot be told.
///
/// # Errors
/// One line: it could not be written.
pub fn restore_identity(path: &Path, expected: &Identity) -> Result<bool, String> {
    restore_identity_on(&Host, path, expected)
}

/// Like [`restore_identity`], on any file system.
///
/// # Errors
/// As [`restore_identity`].
pub fn restore_identity_on(fs: &dyn FileSystem, path: &Path, expected: &Identity) -> Result<bool, String> {
    let Ok(at) = Site::open(fs, path) else { return Ok(false) };
    let damaged = match read_small(&at.meta, IDENTITY) {
        Ok(Some(bytes)) => match Identity::decode(&bytes) {
            Ok(_) | Err(SealError::Newer { .. }) => return Ok(false),
            Err(why) => why.to_string(),
        },
        Ok(None) | Err(_) => "it is missing".to_owned(),
    };
    if trace(&at).is_none_or(|(brick, root)| brick != expected.brick || root.fid != expected.root) {
        return Ok(false);
    }
    let file = identity_file(path);
    write_durably(&at.meta, IDENTITY, &expected.encode())
        .map_err(|e| format!("{}: write it again: {e}", file.display()))?;
    tracing::warn!(file = %file.display(), damaged, "written again: top directory and journal are those of the brick");
    Ok(true)
}

/// Whose a brick without a readable identity seems to be, by its journal's newest segment and its top directory.
pub(crate) fn trace(at: &Site) -> Option<(ids::BrickId, Tag)> {
    let journal = at.folder("journal").ok()?;
    let mut newest: Option<Vec<u8>> = None;
    let mut look = |name: &[u8], _: u32, _: u64| {
        if name.ends_with(b".seg") && newest.as_deref().is_none_or(|n| n < name) {
            newest = Some(name.to_vec());
        }
        true
    };
    journal.list(&mut look).ok()?;
    let segment = journal.open_at(&newest?, S_IFREG).ok()?;
    let head = segment.read(0, disk_format::journal::HEAD, false).ok()?;
    let brick = disk_format::SegmentHead::decode(&head).ok()?.brick;
    let tag = at.root.tag().ok()??;
    Some((brick, tag))
}

/// Makes a brick again of the directory of one that lost all it held: of an empty one, but for what an interrupted format
/// left. A missing directory is created, its parent must exist.
///
/// # Errors
/// Why it cannot be one, in one line.
pub fn format_again(
    fs: &dyn FileSystem,
    path: &Path,
    identity: &Identity,
    made: Time,
) -> Result<(), FormatError> {
    let io = |doing, errno| FormatError::Io { path: path.to_path_buf(), doing, errno };
    let mut empty = true;
    let mut look = |name: &[u8], _: u32, _: u64| {
        empty = is_no_obstacle(name);
        empty
    };
    let dir = match fs.open_dir(path) {
        Err(Errno::ENOENT) => make_dir(fs, path).and_then(|()| fs.open_dir(path)),
        other => other,
    };
    dir.map_err(|e| io("open", e))?.list(&mut look).map_err(|e| io("list", e))?;
    if !empty {
        return Err(FormatError::NotEmpty { path: path.to_path_buf() });
    }
    format_on(fs, path, identity, made)
}

fn make_dir(fs: &dyn FileSystem, path: &Path) -> Result<(), Errno> {
    let (parent, name) = path.parent().zip(path.file_name()).ok_or(Errno::ENOENT)?;
    fs.open_dir(parent)?.make_dir(name.as_encoded_bytes(), 0o755)
}

/// What an interrupted format left is no obstacle to another one, nor the folder that mkfs makes.
pub(crate) fn is_no_obstacle(name: &[u8]) -> bool {
    name == RESERVED || name == b"lost+found"
}

/// No directory above may be a brick.
pub(crate) fn check_around(path: &Path) -> Result<(), FormatError> {
    let no_parent = || FormatError::NoParent { path: path.to_path_buf() };
    let parent = match path.parent() {
        Some(p) if p.as_os_str().is_empty() => Path::new("."),
        Some(p) => p,
        None => return Ok(()),
    };
    let parent = parent.canonicalize().map_err(|_| no_parent())?;
    if !parent.is_dir() {
        return Err(no_parent());
    }
    match parent.ancestors().find(|a| identity_file(a).exists()) {
        Some(outer) => Err(FormatError::Inside { path: path.to_path_buf(), outer: outer.to_path_buf() }),
        None => Ok(()),
    }
}

/// An existing directory must be empty and no brick itself.
pub(crate) fn check_inside(path: &Path) -> Result<(), FormatError> {
    let at = || path.to_path_buf();
    match read_identity(path) {
        Ok(Some(i)) => {
            return Err(FormatError::AlreadyBrick { path: at(), brick: i.brick, volume: i.volume_name });
        }
        Err(e) => return Err(FormatError::Leftover { path: at(), why: e.to_string() }),
        Ok(None) => {}
    }
    let entries = std::fs::read_dir(path).map_err(|e| FormatError::Io {
        path: at(),
        doing: "list",
        errno: io_errno(&e),
    })?;
    let mut others = false;
    for e in entries.flatten() {
        let name = e.file_name();
        if identity_file(&e.path()).exists() {
            return Err(FormatError::Around { path: at(), inner: e.path() });
        }
        others |= !is_no_obstacle(name.as_encoded_bytes());
    }
    if others { Err(FormatError::NotEmpty { path: at() }) } else { Ok(()) }
}

/// Tries what bricks need, on a file without a name or, where there is no such thing, on the directory itself.
pub(crate) fn check_file_system(path: &Path, root: &OpenObject) -> Result<(), FormatError> {
    let at = || path.to_path_buf();
    let unsuitable = |what| FormatError::Unsuitable { path: at(), what };
    let probe = Tag {
        flags: 0,
        fid: ids::Fid::default(),
        home: ids::SetId(0),
        version: Version::default(),
        ctime: Time::default(),
        atime: Time::default(),
    };
    match root.set_tag(&probe) {
        Ok(()) => {}
        Err(Errno::EROFS) => return Err(FormatError::ReadOnly { path: at() }),
        Err(Errno::EPERM) => return Err(FormatError::NotPermitted { path: at() }),
        Err(Errno::EOPNOTSUPP) => return Err(unsuitable("trusted extended attributes")),
        Err(errno) => return Err(FormatError::Io { path: at(), doing: "set an attribute", errno }),
    }
    let _ = root.remove_xattr(disk_format::tag::XATTR.as_bytes());
    let handle = root.handle().map_err(|_| unsuitable("file handles"))?;
    root.open_handle(&handle, S_IFDIR).map_err(|_| unsuitable("opening by file handles"))?;
    let exchange = root.rename(b".mortar-probe-a", root, b".mortar-probe-b", Renaming::Exchange);
    if matches!(exchange, Err(Errno::EINVAL | Errno::ENOSYS)) {
        return Err(unsuitable("exchanging renames"));
    }
    Ok(())
}
