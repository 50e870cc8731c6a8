//! Opening and closing a brick.

use crate::attrs::Node;
use crate::error::{JournalError, OpenError, errno, io_errno};
use crate::identity::{FOLDERS, identity_file, own};
use crate::index::Index;
use crate::journal::{Journal, Left};
use crate::listing::Listings;
use crate::lost::SyncedAt;
use crate::lru::Lru;
use crate::memory;
use crate::object::{Opened, S_IFDIR};
use crate::sync::Shared;
use disk_format::{Identity, SealError, State};
use ids::{Epoch, Fid, Lsn};
use namespace::Entry;
use rustix::fs::{FlockOperation, Mode, OFlags};
use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;
use wire::peer::Stamp;
use wire::reply::Room;
use wire::{Change, Errno};

/// Bounds of a brick's memory, descriptors and disk use.
#[derive(Clone, Debug)]
pub struct Options {
    /// Objects kept open.
    pub fd_limit: usize,
    /// Bytes of journal kept; older segments are dropped beyond it.
    pub journal_size: u64,
    /// Bytes after which a new segment of the journal is begun.
    pub segment_size: u64,
    /// Names of directory listings kept in memory.
    pub listing_names: usize,
    /// Objects whose attributes are kept in memory.
    pub nodes: usize,
    /// Names whose objects are kept in memory.
    pub names: usize,
    /// Objects whose changed times and versions may wait to be written.
    pub dirty: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
            fd_limit: 256,
            journal_size: 256 << 20,
            segment_size: 8 << 20,
            listing_names: 256 << 10,
            nodes: 16 << 10,
            names: 32 << 10,
            dirty: 8 << 10,
        }
    }
}

/// What opening a brick found: what the daemon has to heal.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Found {
    /// It was closed in order and nothing is in doubt.
    pub clean: bool,
    /// The machine was started anew since, or the file system mounted anew: what is newer than [`Brick::durable`] may be lost or half there.
    pub rebooted: bool,
    /// The object of the last record, if that record's data did not (all) reach it: its content is in doubt.
    pub incomplete: Option<Fid>,
    /// Bytes of a torn tail that were cut off the journal.
    pub cut: u64,
    /// The index was missing or unreadable and was rebuilt from the tree.
    pub index_rebuilt: bool,
}

/// A brick in use. One thread owns it.
pub struct Brick {
    pub(crate) path: PathBuf,
    pub(crate) identity: Identity,
    pub(crate) options: Options,
    pub(crate) root: Opened,
    pub(crate) orphans: OwnedFd,
    pub(crate) limbo: OwnedFd,
    /// What a healing took out of its place.
    pub(crate) aside: OwnedFd,
    /// What is in doubt: a healing is not finished.
    pub(crate) healing: Option<crate::heal::Doubt>,
    pub(crate) fds: Lru<Fid, Opened>,
    pub(crate) nodes: Lru<Fid, Node>,
    /// By hash of parent and name; `None`: there is no such entry.
    pub(crate) names: Lru<u128, Option<Entry>>,
    pub(crate) seed: u64,
    pub(crate) listings: Listings,
    pub(crate) index: Index,
    pub(crate) journal: Journal,
    /// Objects with times or versions to write, in the order of their first change.
    pub(crate) dirty: VecDeque<Fid>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) room: Option<(Instant, Room)>,
    pub(crate) found: Found,
    /// The last record is being applied again.
    pub(crate) redoing: bool,
    /// The change being applied has changed something, or may have.
    pub(crate) begun: bool,
    /// The last change of the journal, if it was done only in part.
    pub(crate) partial: Option<Change>,
    /// What failed of the work that follows changes.
    pub(crate) late: Option<Errno>,
    /// The journal could not be kept within its bound: said once.
    pub(crate) overgrown: bool,
    // Dropped last: the brick is ours until all else is closed.
    _lock: Lock,
}

const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<Brick>();
};

/// To be called once, early: the mode of what is created is given in full, no umask may cut it.
pub fn init_process() {
    rustix::process::umask(Mode::empty());
}

/// The brick's lock, ours as long as this lives.
pub(crate) struct Lock(OwnedFd);

impl Drop for Lock {
    /// Said and not left to the closing: a child process that is being started has a copy of the descriptor.
    fn drop(&mut self) {
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

/// Takes the brick's lock.
pub(crate) fn lock(path: &Path) -> Result<Lock, OpenError> {
    let io =
        |e: rustix::io::Errno| OpenError::Io { path: path.to_path_buf(), doing: "lock", errno: errno(e) };
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC;
    let fd = rustix::fs::open(own(path).join("lock"), flags, Mode::RUSR | Mode::WUSR).map_err(io)?;
    match rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(Lock(fd)),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(OpenError::Locked { path: path.to_path_buf() }),
        Err(e) => Err(io(e)),
    }
}

/// Reads and checks the identity.
pub(crate) fn identify(path: &Path) -> Result<Identity, OpenError> {
    let file = identity_file(path);
    match std::fs::read(&file) {
        Ok(bytes) => Identity::decode(&bytes).map_err(|source| OpenError::Sealed { file, source }),
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            Err(OpenError::NotBrick { path: path.to_path_buf() })
        }
        Err(e) => Err(OpenError::Io { path: file, doing: "read", errno: io_errno(&e) }),
    }
}

pub(crate) fn open_dir(path: &Path) -> Result<OwnedFd, OpenError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOATIME;
    rustix::fs::open(path, flags, Mode::empty()).map_err(|e| OpenError::Io {
        path: path.to_path_buf(),
        doing: "open",
        errno: errno(e),
    })
}

/// The state as last written. A damaged one says that nothing is sure, and so does a missing one if there is a journal:
/// both come from power cuts.
pub(crate) fn read_state(path: &Path) -> Result<State, OpenError> {
    let file = own(path).join("state");
    let with =
        |boot| State { boot, durable: Stamp { epoch: Epoch(0), lsn: Lsn(0) }, flushed: Lsn(0), clean: false };
    let (new, lost) = (with([0; 16]), with(memory::UNKNOWN));
    match std::fs::read(&file) {
        Ok(bytes) => match State::decode(&bytes) {
            Ok(s) => Ok(s),
            Err(source @ SealError::Newer { .. }) => Err(OpenError::Sealed { file, source }),
            Err(e) => {
                tracing::warn!(file = %file.display(), error = %e, "the state of the brick is unknown");
                Ok(lost)
            }
        },
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            let journal = std::fs::read_dir(own(path).join("journal"));
            Ok(if journal.is_ok_and(|mut j| j.next().is_some()) { lost } else { new })
        }
        Err(e) => Err(OpenError::Io { path: file, doing: "read", errno: io_errno(&e) }),
    }
}

impl Brick {
    /// Opens the brick at `path`, which must be the one expected (pool, volume, set and brick are compared), applies the
    /// end of its journal again as far as needed, and rebuilds the index if it is lost.
    ///
    /// # Errors
    /// Why it cannot be used, with the remedy where there is one.
    pub fn open(path: &Path, expected: &Identity, options: Options) -> Result<Brick, OpenError> {
        let identity = identify(path)?;
        let key = |i: &Identity| (i.pool, i.volume, i.set, i.brick);
        if key(&identity) != key(expected) {
            return Err(OpenError::OtherBrick {
                path: path.to_path_buf(),
                found: identity.brick,
                volume: identity.volume_name,
                expected: expected.brick,
            });
        }
        let lock = lock(path)?;
        Brick::open_locked(path, identity, options, lock)
    }

    fn open_locked(
        path: &Path,
        identity: Identity,
        options: Options,
        lock: Lock,
    ) -> Result<Brick, OpenError> {
        for f in FOLDERS {
            match std::fs::create_dir(own(path).join(f)) {
                Err(e) if e.kind() != std::io::ErrorKind::AlreadyExists => {
                    return Err(OpenError::Io {
                        path: own(path).join(f),
                        doing: "create",
                        errno: io_errno(&e),
                    });
                }
                _ => {}
            }
        }
        let root = Opened { fd: Arc::new(open_dir(path)?), kind: S_IFDIR };
        let io = |doing, errno| OpenError::Io { path: path.to_path_buf(), doing, errno };
        let tag = root.tag().map_err(|e| io("read the tag of", e))?;
        if tag.is_none_or(|t| t.fid != identity.root) {
            return Err(io("compare the tag with the identity of", Errno::ESTALE));
        }
        let mut state = read_state(path)?;
        let life = memory::life(&root.fd);
        let witnessed = memory::is_witnessed(&own(path).join("state"));
        let rebooted = !state.clean && memory::is_lost(state.boot, life, witnessed);
        let healing = crate::heal::read_mark(path).map_err(|e| io("read the mark of healing of", e))?;
        // Written down before the new life is: another crash must not make what was lost look whole.
        let sure = state.durable.lsn;
        let mark_lost = |objects| {
            let lost = crate::heal::Doubt { from: sure, objects, trust: Lsn(0) };
            crate::heal::add_mark(path, lost)
        };
        let dir = own(path).join("journal");
        let file = own(path).join("heal");
        let mut in_doubt =
            |objects| mark_lost(objects).map_err(|errno| JournalError::Io { file: file.clone(), errno });
        let lost: Option<&mut dyn FnMut(Vec<Fid>) -> _> = if rebooted { Some(&mut in_doubt) } else { None };
        let left = Left { durable: state.durable.clone(), lost };
        let opened = Journal::open(open_dir(&dir)?, dir, identity.brick, options.segment_size, left)?;
        let file = own(path).join("index.redb");
        let (index, position) =
            Index::open(&file, identity.brick).map_err(|why| OpenError::Index { file, why })?;
        let found = Found {
            clean: state.clean && opened.cut == 0,
            rebooted,
            incomplete: None,
            cut: opened.cut,
            index_rebuilt: false,
        };
        let start = if rebooted { state.flushed.min(state.durable.lsn) } else { state.flushed };
        state.boot = life;
        state.clean = false;
        let synced = SyncedAt::open(path).map_err(|e| io("open .mortar/synced of", e))?;
        let doubt = if rebooted {
            let since = synced.get().map_err(|e| io("read .mortar/synced of", e))?;
            let changed = crate::lost::changed_since(&root, identity.set, since)
                .map_err(|e| io("look for what changed last in", e))?;
            tracing::warn!(brick = %path.display(), objects = changed.len(), "changes that were not synced may be lost");
            mark_lost(changed).map_err(|e| io("mark what is in doubt in", e))?;
            crate::heal::read_mark(path).map_err(|e| io("read the mark of healing of", e))?
        } else {
            None
        };
        let shared = Shared::open(path, state, position.unwrap_or(Lsn(0)), synced)?;
        let mut brick = Brick {
            path: path.to_path_buf(),
            identity,
            root,
            orphans: open_dir(&own(path).join("orphans"))?,
            limbo: open_dir(&own(path).join("limbo"))?,
            aside: open_dir(&own(path).join("aside"))?,
            healing,
            fds: Lru::new(),
            nodes: Lru::new(),
            names: Lru::new(),
            seed: std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0),
            listings: Listings::new(options.listing_names),
            options,
            index,
            journal: opened.journal,
            dirty: VecDeque::new(),
            shared: Arc::new(shared),
            room: None,
            found,
            redoing: false,
            begun: false,
            partial: None,
            late: None,
            overgrown: false,
            _lock: lock,
        };
        brick.recover(position, start)?;
        brick.healing = doubt.or(brick.healing);
        if let Some(fid) = brick.found.incomplete {
            // The next opening may find nothing strange: the record may be durable by then, its data is not.
            let sure = Lsn(brick.last().lsn.0.saturating_sub(1));
            let half = crate::heal::Doubt { from: sure, objects: vec![fid], trust: sure };
            crate::heal::add_mark(path, half).map_err(|e| io("mark what is in doubt in", e))?;
            brick.healing = crate::heal::read_mark(path).map_err(|e| io("read the mark of healing of", e))?;
        }
        Ok(brick)
    }

    /// What opening found.
    pub fn found(&self) -> &Found {
        &self.found
    }

    /// Whose it is.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes everything out and closes the brick in order.
    ///
    /// # Errors
    /// The kernel's, if something could not be brought to disk; the brick is closed all the same.
    pub fn close(mut self) -> Result<(), Errno> {
        self.shut()
    }
}
