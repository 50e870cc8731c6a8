//! Opening and closing a brick.

use crate::bound::Bound;
use crate::error::{JournalError, OpenError};
use crate::far_names::UnplacedNames;
use crate::folders::Folders;
use crate::fresh::Fresh;
use crate::identity::{FOLDERS, IDENTITY, identity_file, make_folder, own, read_small};
use crate::index::Index;
use crate::index_file::IndexFile;
use crate::journal::{Journal, Left, OpenedJournal};
use crate::known_names::KnownNames;
use crate::listing::Listings;
use crate::lost::{Changed, SyncedAt};
use crate::marks::Marks;
use crate::nodes::Nodes;
use crate::nonces::{Nonces, draw_seed};
use crate::object::{OpenObject, S_IFDIR, S_IFREG};
use crate::open_objects::OpenObjects;
use crate::page::ReadPages;
use crate::partial::Progress;
use crate::room::LastRoom;
use crate::stale::{StaleMark, StaleSet, add_stale, read_stale_set};
use crate::state_file::Shared;
use disk_format::{Identity, SealError, State};
use file_system::{File, FileSystem, Host, Opening, UNKNOWN_BOOT_ID, is_memory_lost};
use ids::{BrickId, Epoch, Fid, Lsn, SetId};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wire::Errno;
use wire::name::RESERVED;
use wire::peer::Stamp;

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

/// A brick in use. One thread owns it. Each part keeps its fields to itself; the map is in the crate's words.
pub struct Brick {
    pub(crate) path: PathBuf,
    pub(crate) identity: Identity,
    pub(crate) root: OpenObject,
    pub(crate) folders: Folders,
    /// What is stale: a healing is not finished.
    pub(crate) stale: StaleMark,
    pub(crate) marks: Marks,
    pub(crate) fds: OpenObjects,
    pub(crate) nodes: Nodes,
    pub(crate) names: KnownNames,
    pub(crate) unplaced: UnplacedNames,
    pub(crate) nonces: Nonces,
    pub(crate) listings: Listings,
    pub(crate) read_pages: ReadPages,
    pub(crate) index: Index,
    pub(crate) walks: crate::placed::Walks,
    pub(crate) journal: Journal,
    pub(crate) flushing: crate::attrs::Flushing,
    pub(crate) shared: Arc<Shared>,
    pub(crate) room: LastRoom,
    pub(crate) lengths: crate::validate::Lengths,
    pub(crate) found: Found,
    pub(crate) progress: Progress,
    pub(crate) bound: Bound,
    // Dropped last: the brick is ours until all else is closed.
    _lock: Lock,
}

const _: () = {
    const fn is_send<T: Send>() {}
    is_send::<Brick>();
};

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
        let root = OpenObject::top(fs.open_dir(path).map_err(failed)?);
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

fn make_folders(at: &Site) -> Result<(), OpenError> {
    FOLDERS.iter().try_for_each(|f| {
        let path = own(&at.path).join(f);
        make_folder(&at.meta, f.as_bytes()).map_err(|errno| OpenError::Io { path, doing: "create", errno })
    })
}

/// What a power cut lost is stale. Written down before the new boot id is: another crash must not make what was lost look
/// whole.
fn mark_lost(at: &Site, consistent_to: Lsn, objects: Vec<Fid>) -> Result<(), Errno> {
    let lost = StaleSet { from: consistent_to, objects, versions_valid_to: Lsn(0) };
    add_stale(&at.meta, lost)
}

/// Opens the journal. After a power cut (`rebooted`) what only lost records named is stale.
fn open_journal(
    at: &Site,
    brick: BrickId,
    segment_size: u64,
    state: &State,
    rebooted: bool,
) -> Result<OpenedJournal, OpenError> {
    let mut stale = |objects| {
        let failed = |errno| JournalError::Io { file: own(&at.path).join("heal"), errno };
        mark_lost(at, state.durable.lsn, objects).map_err(failed)
    };
    let lost: Option<&mut dyn FnMut(Vec<Fid>) -> _> = if rebooted { Some(&mut stale) } else { None };
    let left = Left { durable: state.durable.clone(), lost };
    let dir = own(&at.path).join("journal");
    let mut opened = Journal::open(at.folder("journal")?, dir, brick, segment_size, left)?;
    drop_leftovers(at, &mut opened)?;
    Ok(opened)
}

/// After a power cut: marks as stale what may have changed without a record. Answers what else was found, and all that is
/// stale now.
fn mark_changed(
    at: &Site,
    set: SetId,
    (consistent_to, journal): (Lsn, &Journal),
    (synced, index): (&SyncedAt, &mut Index),
) -> Result<(Changed, Option<StaleSet>), OpenError> {
    let mut changed = crate::lost::look(at, set, synced, journal.last().lsn, index)?;
    let mut objects = std::mem::take(&mut changed.objects);
    objects.extend(crate::lost::missing_orphans(at, journal)?);
    mark_lost(at, consistent_to, objects).map_err(|e| at.io("mark what is stale in", e))?;
    let stale_set = read_stale_set(&at.meta).map_err(|e| at.io("read the mark of healing of", e))?;
    Ok((changed, stale_set))
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
        make_folders(&at)?;
        let (path, root, meta) = (at.path.as_path(), at.root.clone(), at.meta.clone());
        check_root(&at, &identity)?;
        let (mut state, boot_id) = (read_state(&at)?, root.boot_id());
        let witnessed = meta.open_at(b"state", S_IFREG).is_ok_and(|state| state.has_witness());
        let rebooted = !state.clean && is_memory_lost(state.boot, boot_id, witnessed);
        let in_memory = !rebooted || state.boot == UNKNOWN_BOOT_ID;
        let healing = read_stale_set(&meta).map_err(|e| at.io("read the mark of healing of", e))?;
        let consistent_to = state.durable.lsn;
        let opened = open_journal(&at, identity.brick, options.segment_size, &state, rebooted)?;
        let file = IndexFile::new(path, meta.clone());
        let (mut index, position) = Index::open(file.clone(), identity.brick)
            .map_err(|why| OpenError::Index { file: file.path().to_path_buf(), why })?;
        let found = Found {
            clean: state.clean && opened.cut == 0,
            rebooted,
            marked: healing.is_some(),
            cut: opened.cut,
            ..Found::default()
        };
        let start = if rebooted { state.flushed.min(state.durable.lsn) } else { state.flushed };
        (state.boot, state.clean) = (boot_id, false);
        let synced = SyncedAt::open(meta.clone()).map_err(|e| at.io("open .mortar/synced of", e))?;
        let (changed, stale_set) = if rebooted {
            mark_changed(&at, identity.set, (consistent_to, &opened.journal), (&synced, &mut index))?
        } else {
            (Changed::default(), None)
        };
        let fresh = if found.clean { Fresh::default() } else { Fresh::unknown(opened.journal.last().lsn) };
        let shared = Shared::open((path, &meta), state, position.unwrap_or(Lsn(0)), synced, fresh)?;
        let seed = options.seed.unwrap_or_else(draw_seed);
        let mut brick = Brick {
            flushing: crate::attrs::Flushing::none(shared.durable_stamp(), root.now()),
            path: path.to_path_buf(),
            identity,
            root,
            folders: Folders::open(&at)?,
            stale: StaleMark::new(meta, healing),
            marks: Marks::open(&at, &changed.marked)?,
            fds: OpenObjects::new(options.fd_limit),
            nodes: Nodes::new(options.nodes, options.dirty),
            names: KnownNames::new(options.names, seed),
            unplaced: UnplacedNames::default(),
            nonces: Nonces::new(seed),
            listings: Listings::new(options.listing_names),
            read_pages: ReadPages::default(),
            index,
            walks: crate::placed::Walks::default(),
            journal: opened.journal,
            shared: Arc::new(shared),
            room: LastRoom::default(),
            lengths: crate::validate::Lengths::default(),
            found,
            progress: Progress::default(),
            bound: Bound::new(options.journal_size),
            _lock: lock,
        };
        let top_is_lost = crate::top::close_brick(&brick.path, &brick.root);
        // A sync of an earlier process may have failed, which nobody wrote down.
        brick.shared.fail();
        brick.write_journal_again(brick.durable().lsn);
        brick.recover(position, start)?;
        brick.make_good(&at, &changed)?;
        brick.learn_lost(&at, stale_set, consistent_to)?;
        let marked = brick.mark_incomplete_stale().and_then(|()| brick.mark_top_stale(top_is_lost));
        marked.map_err(|e| at.io("mark what is stale in", e))?;
        brick.write_at_opening(in_memory).map_err(|e| at.io("write again what was not synced in", e))?;
        Ok(brick)
    }

    /// What a power cut left half done is as it is to be.
    fn make_good(&mut self, at: &Site, changed: &Changed) -> Result<(), OpenError> {
        let io = |doing| move |e| at.io(doing, e);
        self.strip_copies(&changed.changed_copies).map_err(io("clear copies of directories in"))?;
        self.keep_named_for_good(&changed.named_orphans).map_err(io("look for orphans in"))
    }

    /// What a power cut may have taken. Who found it may have been killed before it had learnt that.
    fn learn_lost(&mut self, at: &Site, lost: Option<StaleSet>, durable: Lsn) -> Result<(), OpenError> {
        let Some(lost) = lost.or_else(|| self.stale.unversioned()) else { return Ok(()) };
        self.bring_marks_back(at, &lost.objects, durable)?;
        self.stale.learn(lost);
        Ok(())
    }

    /// The next opening may find nothing strange about the file of the last record: the record may be durable by then, its
    /// data is not.
    fn mark_incomplete_stale(&mut self) -> Result<(), Errno> {
        let Some(fid) = self.found.incomplete else { return Ok(()) };
        let consistent_to = Lsn(self.last().lsn.0.saturating_sub(1));
        self.stale.add(StaleSet { from: consistent_to, objects: vec![fid], versions_valid_to: consistent_to })
    }

    fn mark_top_stale(&mut self, is_lost: bool) -> Result<(), Errno> {
        if !is_lost {
            return Ok(());
        }
        let (last, root) = (self.last().lsn, self.identity.root);
        self.stale.add(StaleSet { from: last, objects: vec![root], versions_valid_to: last })
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
