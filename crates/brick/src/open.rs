//! Opening and closing a brick.

use crate::attrs::Node;
use crate::error::{JournalError, OpenError};
use crate::folders::Folders;
use crate::fresh::Fresh;
use crate::identity::{FOLDERS, IDENTITY, identity_file, make_folder, own, read_small};
use crate::index::Index;
use crate::index_file::IndexFile;
use crate::journal::{Journal, Left, OpenedJournal};
use crate::listing::Listings;
use crate::lost::{Changed, SyncedAt};
use crate::lru::Lru;
use crate::object::{OpenObject, S_IFDIR, S_IFREG};
use crate::partial::Progress;
use crate::stale::{StaleMark, StaleSet, add_stale, read_stale_set};
use crate::sync::Shared;
use disk_format::{Identity, SealError, State};
use file_system::{File, FileSystem, Host, Opening, UNKNOWN_BOOT_ID, is_memory_lost};
use ids::{Epoch, Fid, Lsn};
use namespace::Entry;
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use wire::Errno;
use wire::name::RESERVED;
use wire::peer::Stamp;
use wire::reply::Room;

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
    /// What this opening's random numbers are drawn from. `None`: the machine's. With the same seed, file system and calls a
    /// brick does the same.
    pub seed: Option<u64>,
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
            seed: None,
        }
    }
}

/// What opening a brick found: what the daemon has to heal.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Found {
    /// It was closed in order and nothing is stale.
    pub clean: bool,
    /// The machine was started anew since, or the file system mounted anew: what is newer than [`Brick::durable`] may be lost or half there.
    pub rebooted: bool,
    /// Something was stale before: what an earlier life of the brick found lost, or a healing that was not finished.
    pub marked: bool,
    /// The object of the last record, if that record's data did not (all) reach it: its content is stale.
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
    pub(crate) root: OpenObject,
    pub(crate) folders: Folders,
    /// What is stale: a healing is not finished.
    pub(crate) stale: StaleMark,
    pub(crate) fds: Lru<Fid, OpenObject>,
    pub(crate) nodes: Lru<Fid, Node>,
    /// By hash of parent and name; `None`: there is no such entry.
    pub(crate) names: Lru<u128, Option<Entry>>,
    pub(crate) seed: u64,
    /// Random numbers that were given.
    pub(crate) nonces: AtomicU64,
    pub(crate) listings: Listings,
    pub(crate) index: Index,
    pub(crate) walks: crate::placed::Walks,
    pub(crate) journal: Journal,
    /// Objects with times or versions to write, in the order of their first change.
    pub(crate) dirty: VecDeque<Fid>,
    pub(crate) flushing: crate::attrs::Flushing,
    pub(crate) shared: Arc<Shared>,
    /// The room, and the second of the file system's clock in which it was asked for.
    pub(crate) room: Option<(i64, Room)>,
    pub(crate) lengths: crate::validate::Lengths,
    pub(crate) found: Found,
    pub(crate) progress: Progress,
    /// The journal could not be kept within its bound: said once.
    pub(crate) overgrown: bool,
    // Dropped last: the brick is ours until all else is closed.
    _lock: Lock,
}

const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<Brick>();
};

/// A random number of the machine's.
fn draw_seed() -> u64 {
    std::hash::BuildHasher::hash_one(&std::hash::RandomState::new(), 0)
}

/// The brick's lock, ours as long as this lives.
pub(crate) struct Lock(File);

impl Drop for Lock {
    /// Said and not left to the closing: a child process that is being started has a copy of the descriptor.
    fn drop(&mut self) {
        self.0.unlock();
    }
}

/// Takes the brick's lock.
pub(crate) fn lock(at: &Site) -> Result<Lock, OpenError> {
    let file = at.meta.open_own(b"lock", Opening::AtHand(0o600)).map_err(|e| at.io("lock", e))?;
    match file.lock() {
        Ok(true) => Ok(Lock(file)),
        Ok(false) => Err(OpenError::Locked { path: at.path.clone() }),
        Err(e) => Err(at.io("lock", e)),
    }
}

/// Where a brick lies: what is open before it is known whose it is.
pub(crate) struct Site {
    pub(crate) path: PathBuf,
    pub(crate) root: OpenObject,
    /// The folder `.mortar`.
    pub(crate) meta: Arc<File>,
}

impl Site {
    pub(crate) fn open(fs: &dyn FileSystem, path: &Path) -> Result<Site, OpenError> {
        let failed = |e| match e {
            Errno::ENOENT => OpenError::NotBrick { path: path.to_path_buf() },
            errno => OpenError::Io { path: path.to_path_buf(), doing: "open", errno },
        };
        let root = OpenObject::new(fs.open_dir(path).map_err(failed)?, S_IFDIR);
        let meta = Arc::new(root.open_at(RESERVED, S_IFDIR).map_err(failed)?);
        Ok(Site { path: path.to_path_buf(), root, meta })
    }

    pub(crate) fn io(&self, doing: &'static str, errno: Errno) -> OpenError {
        OpenError::Io { path: self.path.clone(), doing, errno }
    }

    /// Opens a folder in `.mortar`.
    pub(crate) fn folder(&self, name: &str) -> Result<File, OpenError> {
        let path = own(&self.path).join(name);
        let opened = self.meta.open_at(name.as_bytes(), S_IFDIR);
        opened.map_err(|errno| OpenError::Io { path, doing: "open", errno })
    }

    /// Reads a file in `.mortar`; `None` if there is none.
    fn read(&self, name: &[u8], file: &Path) -> Result<Option<Vec<u8>>, OpenError> {
        let read = read_small(&self.meta, name);
        read.map_err(|errno| OpenError::Io { path: file.to_path_buf(), doing: "read", errno })
    }
}

/// Reads and checks the identity.
pub(crate) fn identify(at: &Site) -> Result<Identity, OpenError> {
    let file = identity_file(&at.path);
    match at.read(IDENTITY, &file)? {
        Some(bytes) => Identity::decode(&bytes).map_err(|source| OpenError::Sealed { file, source }),
        None => Err(OpenError::NotBrick { path: at.path.clone() }),
    }
}

/// The state as last written. A damaged one says that nothing is certain, and so does a missing one if there is a journal:
/// both come from power cuts.
pub(crate) fn read_state(at: &Site) -> Result<State, OpenError> {
    let file = own(&at.path).join("state");
    let with =
        |boot| State { boot, durable: Stamp { epoch: Epoch(0), lsn: Lsn(0) }, flushed: Lsn(0), clean: false };
    let (new, lost) = (with([0; 16]), with(UNKNOWN_BOOT_ID));
    match at.read(b"state", &file)? {
        Some(bytes) => match State::decode(&bytes) {
            Ok(s) => Ok(s),
            Err(source @ SealError::Newer { .. }) => Err(OpenError::Sealed { file, source }),
            Err(e) => {
                tracing::warn!(file = %file.display(), error = %e, "the state of the brick is unknown");
                Ok(lost)
            }
        },
        None => {
            let mut used = false;
            let mut look = |_: &[u8], _: u32, _: u64| {
                used = true;
                false
            };
            let listed = at.meta.open_at(b"journal", S_IFDIR).and_then(|journal| journal.list(&mut look));
            Ok(if listed.is_ok() && used { lost } else { new })
        }
    }
}

/// The directory is the root that the identity names.
fn check_root(at: &Site, identity: &Identity) -> Result<(), OpenError> {
    match at.root.tag().map_err(|e| at.io("read the tag of", e))? {
        Some(tag) if tag.fid == identity.root => Ok(()),
        _ => Err(at.io("compare the tag with the identity of", Errno::ESTALE)),
    }
}

/// A power cut left segments of the journal that had been removed. What is stale may be said by others that are gone.
fn drop_leftovers(at: &Site, opened: &mut OpenedJournal) -> Result<(), OpenError> {
    if !opened.leftovers.is_empty() {
        tracing::warn!(brick = %at.path.display(), segments = ?opened.leftovers, "a power cut left parts of a journal");
        let all = StaleSet::all();
        add_stale(&at.meta, all).map_err(|e| at.io("mark what is stale in", e))?;
        opened.journal.remove_leftovers(&opened.leftovers)?;
    }
    Ok(())
}

impl Brick {
    /// Opens the brick at `path`, which must be the one expected (pool, volume, set and brick are compared), applies the
    /// end of its journal again as far as needed, and rebuilds the index if it is lost.
    ///
    /// # Errors
    /// Why it cannot be used, with the remedy where there is one.
    pub fn open(path: &Path, expected: &Identity, options: Options) -> Result<Brick, OpenError> {
        Brick::open_on(&Host, path, expected, options)
    }

    /// Like [`Brick::open`], on any file system.
    ///
    /// # Errors
    /// As [`Brick::open`].
    pub fn open_on(
        fs: &dyn FileSystem,
        path: &Path,
        expected: &Identity,
        options: Options,
    ) -> Result<Brick, OpenError> {
        let at = Site::open(fs, path)?;
        let identity = identify(&at)?;
        let key = |i: &Identity| (i.pool, i.volume, i.set, i.brick);
        if key(&identity) != key(expected) {
            return Err(OpenError::OtherBrick {
                path: path.to_path_buf(),
                found: identity.brick,
                volume: identity.volume_name,
                expected: expected.brick,
            });
        }
        let lock = lock(&at)?;
        Brick::open_locked(at, identity, options, lock)
    }

    fn open_locked(at: Site, identity: Identity, options: Options, lock: Lock) -> Result<Brick, OpenError> {
        for f in FOLDERS {
            let path = own(&at.path).join(f);
            make_folder(&at.meta, f.as_bytes()).map_err(|errno| OpenError::Io {
                path,
                doing: "create",
                errno,
            })?;
        }
        let (path, root, meta) = (at.path.as_path(), at.root.clone(), at.meta.clone());
        check_root(&at, &identity)?;
        let mut state = read_state(&at)?;
        let boot_id = root.boot_id();
        let witnessed = meta.open_at(b"state", S_IFREG).is_ok_and(|state| state.has_witness());
        let rebooted = !state.clean && is_memory_lost(state.boot, boot_id, witnessed);
        let healing = read_stale_set(&meta).map_err(|e| at.io("read the mark of healing of", e))?;
        // Written down before the new boot id is: another crash must not make what was lost look whole.
        let consistent_to = state.durable.lsn;
        let mark_lost = |objects| {
            let lost = StaleSet { from: consistent_to, objects, versions_valid_to: Lsn(0) };
            add_stale(&meta, lost)
        };
        let dir = own(path).join("journal");
        let mut stale = |objects| {
            mark_lost(objects).map_err(|e| JournalError::Io { file: own(path).join("heal"), errno: e })
        };
        let lost: Option<&mut dyn FnMut(Vec<Fid>) -> _> = if rebooted { Some(&mut stale) } else { None };
        let left = Left { durable: state.durable.clone(), lost };
        let mut opened =
            Journal::open(at.folder("journal")?, dir, identity.brick, options.segment_size, left)?;
        drop_leftovers(&at, &mut opened)?;
        let file = IndexFile::new(path, meta.clone());
        let (mut index, position) = Index::open(file.clone(), identity.brick)
            .map_err(|why| OpenError::Index { file: file.path().to_path_buf(), why })?;
        let found = Found {
            clean: state.clean && opened.cut == 0,
            rebooted,
            marked: healing.is_some(),
            incomplete: None,
            cut: opened.cut,
            index_rebuilt: false,
        };
        let start = if rebooted { state.flushed.min(state.durable.lsn) } else { state.flushed };
        (state.boot, state.clean) = (boot_id, false);
        let synced = SyncedAt::open(meta.clone()).map_err(|e| at.io("open .mortar/synced of", e))?;
        let changed = if rebooted {
            crate::lost::look(&at, identity.set, &synced, opened.journal.last().lsn, &mut index)?
        } else {
            Changed::default()
        };
        let stale_set = if rebooted {
            mark_lost(changed.objects).map_err(|e| at.io("mark what is stale in", e))?;
            read_stale_set(&meta).map_err(|e| at.io("read the mark of healing of", e))?
        } else {
            None
        };
        let fresh = if found.clean { Fresh::default() } else { Fresh::unknown(opened.journal.last().lsn) };
        let shared = Shared::open((path, &meta), state, position.unwrap_or(Lsn(0)), synced, fresh)?;
        let mut brick = Brick {
            flushing: crate::attrs::Flushing::none(shared.durable_stamp(), root.now()),
            path: path.to_path_buf(),
            identity,
            root,
            folders: Folders::open(&at)?,
            stale: StaleMark::new(meta, healing),
            fds: Lru::new(),
            nodes: Lru::new(),
            names: Lru::new(),
            seed: options.seed.unwrap_or_else(draw_seed),
            nonces: AtomicU64::new(0),
            listings: Listings::new(options.listing_names),
            options,
            index,
            walks: crate::placed::Walks::default(),
            journal: opened.journal,
            dirty: VecDeque::new(),
            shared: Arc::new(shared),
            room: None,
            lengths: crate::validate::Lengths::default(),
            found,
            progress: Progress::default(),
            overgrown: false,
            _lock: lock,
        };
        // A sync of an earlier process may have failed, which nobody wrote down.
        brick.shared.fail();
        brick.write_journal_again(brick.durable().lsn);
        brick.recover(position, start)?;
        brick.keep_named_for_good(&changed.named_orphans).map_err(|e| at.io("look for orphans in", e))?;
        if let Some(stale_set) = stale_set {
            brick.stale.learn(stale_set);
        }
        brick.mark_incomplete_stale().map_err(|e| at.io("mark what is stale in", e))?;
        Ok(brick)
    }

    /// The next opening may find nothing strange about the file of the last record: the record may be durable by then, its
    /// data is not.
    fn mark_incomplete_stale(&mut self) -> Result<(), Errno> {
        let Some(fid) = self.found.incomplete else { return Ok(()) };
        let consistent_to = Lsn(self.last().lsn.0.saturating_sub(1));
        self.stale.add(StaleSet { from: consistent_to, objects: vec![fid], versions_valid_to: consistent_to })
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
