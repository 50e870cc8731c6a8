//! Existing data becomes a brick where it lies: `mortar volume create VOL BRICK... --adopt` (docs/design/0020).
//!
//! A directory that is to be adopted has `.mortar/adopting`, which says as which brick. Whoever opens that brick then looks
//! at all that lies in the directory, tags each object in place, brings everything to disk, and writes the identity last.
//! After a crash it is done again from the beginning, and what has its tag is left alone.
//!
//! Always true: an object's fid is its inode number, in the epoch before the first one. So all names of a file agree, and it
//! gets the same fid again after a crash. The journal begins after the largest of these numbers: no change gives one of them
//! once more, and a brick that joins finds that the journal does not reach back to its own beginning, and compares everything.

mod survey;
mod tags;

use crate::OpenError;
use crate::error::{FormatError, Obstacle};
use crate::identity::{
    FOLDERS, IDENTITY, check_around, check_file_system, make_folder, own, read_identity, read_small,
    write_durably,
};
use crate::lost::SyncedAt;
use crate::object::{OpenObject, S_IFDIR};
use crate::open::{Site, lock};
use disk_format::{Identity, SegmentHead, State};
use file_system::{File, FileSystem, Host, Opening};
use ids::{Epoch, Fid, Lsn};
use std::path::Path;
use wire::Errno;
use wire::name::RESERVED;
use wire::peer::Stamp;

/// Its name in `.mortar`: the identity that the brick will have.
const ADOPTING: &[u8] = b"adopting";
/// The epoch of the stamp that the journal begins after.
const EPOCH: Epoch = Epoch(1);
/// Inode numbers that are lsns: the numbers that users see have 44 bits for one, and changes need some as well.
const MAX_INO: u64 = 1 << 43;

/// The fid of an adopted object.
fn fid_of(identity: &Identity, ino: u64) -> Fid {
    Fid { set: identity.set, epoch: Epoch(0), lsn: Lsn(ino) }
}

/// What is being adopted.
struct Adoption<'a> {
    path: &'a Path,
    root: OpenObject,
    identity: &'a Identity,
}

impl Adoption<'_> {
    fn io(&self, at: &Path, doing: &'static str, errno: Errno) -> FormatError {
        match errno {
            Errno::EROFS => FormatError::ReadOnly { path: self.path.to_path_buf() },
            errno => FormatError::Io { path: self.path.join(at), doing, errno },
        }
    }

    fn own(&self, doing: &'static str) -> impl Fn(Errno) -> FormatError {
        move |errno| self.io(Path::new(".mortar"), doing, errno)
    }
}

/// Whether the directory at `path` can be adopted, as far as can be said while `go_on` answers true. Changes nothing.
/// `is_leftover`: whether the brick that an interrupted command was to make of it is nobody's.
///
/// # Errors
/// The object that is in the way, and what to do about it.
pub fn check_adoptable(
    path: &Path,
    is_leftover: impl Fn(&Identity) -> bool,
    go_on: &dyn Fn() -> bool,
) -> Result<(), FormatError> {
    check_around(path)?;
    if !path.symlink_metadata().is_ok_and(|m| m.is_dir()) {
        return Err(FormatError::NotDirectory { path: path.to_path_buf() });
    }
    let io = |errno| FormatError::Io { path: path.to_path_buf(), doing: "open", errno };
    let root = OpenObject::top(Host.open_dir(path).map_err(io)?);
    check_owner(path, &root, is_leftover)?;
    check_file_system(path, &root)?;
    survey::look(path, &root, go_on).map(drop)
}

/// Nobody has it: it is no brick, none is made of it, and no brick lost its identity.
fn check_owner(
    path: &Path,
    root: &OpenObject,
    is_leftover: impl Fn(&Identity) -> bool,
) -> Result<(), FormatError> {
    let at = || path.to_path_buf();
    match read_identity(path) {
        Err(e) => return Err(FormatError::Leftover { path: at(), why: e.to_string() }),
        Ok(Some(i)) => {
            return Err(FormatError::AlreadyBrick { path: at(), brick: i.brick, volume: i.volume_name });
        }
        Ok(None) => {}
    }
    let meta = match root.open_at(RESERVED, S_IFDIR) {
        Err(Errno::ENOENT) => return Ok(()),
        other => other.map_err(|errno| FormatError::Io { path: own(path), doing: "open", errno })?,
    };
    if let Some(i) = wanted(&meta).filter(|i| !is_leftover(i)) {
        return Err(FormatError::AlreadyBrick { path: at(), brick: i.brick, volume: i.volume_name });
    }
    check_unused(path, &meta)
}

/// A brick that was in use has an index: it lost its identity, and is not to be tagged anew.
fn check_unused(path: &Path, meta: &File) -> Result<(), FormatError> {
    match meta.stat_at(b"index.redb") {
        Err(Errno::ENOENT) => Ok(()),
        _ => Err(FormatError::Leftover {
            path: path.to_path_buf(),
            why: "its identity is missing, and it was in use".into(),
        }),
    }
}

/// As which brick the directory with this `.mortar` is to be adopted.
fn wanted(meta: &File) -> Option<Identity> {
    Identity::decode(&read_small(meta, ADOPTING).ok()??).ok()
}

/// Notes in the directory that it is to be adopted as this brick. What is known of an earlier adoption goes.
///
/// # Errors
/// Why it cannot be adopted.
pub fn begin_adoption(path: &Path, identity: &Identity) -> Result<(), FormatError> {
    check_around(path)?;
    begin_adoption_on(&Host, path, identity)
}

/// Like [`begin_adoption`], on any file system; looks at nothing around the directory.
///
/// # Errors
/// As [`begin_adoption`].
pub fn begin_adoption_on(fs: &dyn FileSystem, path: &Path, identity: &Identity) -> Result<(), FormatError> {
    let io = |doing| move |errno| FormatError::Io { path: path.to_path_buf(), doing, errno };
    let root = OpenObject::top(fs.open_dir(path).map_err(io("open"))?);
    check_file_system(path, &root)?;
    make_folder(&root, RESERVED).map_err(io("create .mortar in"))?;
    let meta = root.open_at(RESERVED, S_IFDIR).map_err(io("open .mortar in"))?;
    if meta.stat_at(IDENTITY).is_ok() {
        return Err(FormatError::Leftover { path: path.to_path_buf(), why: "it is a brick".into() });
    }
    check_unused(path, &meta)?;
    meta.chmod(0o700).map_err(io("protect .mortar in"))?;
    crate::top::forget_old(&root).map_err(io("set owner and mode of"))?;
    write_durably(&meta, ADOPTING, &identity.encode()).map_err(io("write .mortar/adopting in"))?;
    root.sync().map_err(io("sync"))
}

/// Whether the directory at `path` is to be adopted as this brick, and is none yet.
pub fn is_adopting(fs: &dyn FileSystem, path: &Path, identity: &Identity) -> bool {
    let meta = fs.open_dir(path).and_then(|root| root.open_at(RESERVED, S_IFDIR));
    let key = |i: &Identity| (i.pool, i.volume, i.set, i.brick);
    meta.is_ok_and(|meta| {
        let is_brick = meta.stat_at(IDENTITY) != Err(Errno::ENOENT);
        !is_brick && wanted(&meta).is_some_and(|i| key(&i) == key(identity))
    })
}

/// The directory is not to be adopted any more. Whoever is at it ends soon.
pub(crate) fn give_up(path: &Path, identity: &Identity) -> Result<(), Errno> {
    let meta = Host.open_dir(path).and_then(|root| root.open_at(RESERVED, S_IFDIR));
    let Ok(meta) = meta else { return Ok(()) };
    if wanted(&meta).is_some_and(|i| (i.pool, i.brick) == (identity.pool, identity.brick)) {
        meta.unlink(ADOPTING)?;
        std::fs::remove_dir_all(own(path)).map_err(|e| crate::error::io_errno(&e))?;
    }
    Ok(())
}

/// Adopts the directory at `path`, for which [`begin_adoption`] was called. `told` hears how many objects have their tags.
///
/// # Errors
/// The object that is in the way, and what to do about it. Nothing is tagged as long as one is; all is done again from the
/// beginning when it is called once more.
pub fn adopt_on(
    fs: &dyn FileSystem,
    path: &Path,
    identity: &Identity,
    told: &dyn Fn(u64),
) -> Result<(), OpenError> {
    let at = Site::open(fs, path)?;
    let _lock = lock(&at)?;
    check_unused(path, &at.meta)?;
    let adoption = Adoption { path, root: at.root.clone(), identity };
    survey::look(path, &at.root, &|| true)?;
    let began = at.root.now();
    tags::write(&adoption, &at.meta, told)?;
    // Whoever wrote into the directory meanwhile may have made objects behind our back.
    let last = Lsn(tags::check(&adoption)?);
    at.root.sync_all().map_err(|e| adoption.io(Path::new(""), "sync", e))?;
    for f in FOLDERS {
        make_folder(&at.meta, f.as_bytes()).map_err(adoption.own("create a folder in"))?;
    }
    let synced = SyncedAt::open(at.meta.clone()).and_then(|s| s.set(began));
    synced.map_err(adoption.own("note the sync in"))?;
    begin_state(&at, last).map_err(adoption.own("write the state in"))?;
    begin_journal(&at, identity, last).map_err(adoption.own("begin the journal in"))?;
    // The identity comes last: a brick that has one is whole.
    write_durably(&at.meta, IDENTITY, &identity.encode()).map_err(adoption.own("write the identity in"))?;
    tracing::info!(path = %path.display(), brick = %identity.brick, "adopted");
    match at.meta.unlink(ADOPTING) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(e) => Err(adoption.own("remove `adopting` in")(e).into()),
    }
}

fn begin_state(at: &Site, last: Lsn) -> Result<(), Errno> {
    let durable = Stamp { epoch: EPOCH, lsn: last };
    let state = State { boot: at.root.boot_id(), durable, flushed: last, clean: true };
    let file = at.meta.open_own(b"state", Opening::Emptied(0o600))?;
    file.write_all(0, &state.encode())?;
    file.sync()
}

/// The journal begins after `last`. What an interrupted adoption began goes first.
fn begin_journal(at: &Site, identity: &Identity, last: Lsn) -> Result<(), Errno> {
    let folder = at.meta.open_at(b"journal", S_IFDIR)?;
    crate::scan::clear(&folder)?;
    let base = Stamp { epoch: EPOCH, lsn: last };
    let head = SegmentHead { brick: identity.brick, base, previous: Lsn(0) }.encode();
    write_durably(&folder, format!("{:016x}.seg", last.next().0).as_bytes(), &head)
}

/// It is in the way of an adoption.
fn obstacle(brick: &Path, at: &Path, why: Obstacle) -> FormatError {
    FormatError::CannotAdopt { path: brick.join(at), why }
}
