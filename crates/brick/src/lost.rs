//! Objects that a power cut may have left with changes of which no record is left.
//!
//! The kernel brings file data, directories and the journal to disk in any order. A change may so be in the tree while its
//! record is lost, and if it had not reached another brick yet then nothing names the object. But whatever changes an
//! object moves its change time, which nobody can set. `.mortar/synced` keeps the time at which the last sync of everything
//! began: as its own modification time, which the kernel writes in one piece. All that is newer is stale.
//!
//! A time that is still to come says nothing: the clock was set back, and everything is stale. If the clock has passed that
//! time again, what was made meanwhile seems older than it is. It is known all the same: the index that was committed with
//! the last sync of everything lacks it.
//!
//! Not covered: data written over other data in place, if the kernel writes it out before it logs the change time (within
//! some seconds, when memory is short); and changes to what was there at that sync, if the clock was set back between it and
//! the power cut, and has passed its time again when the brick is opened.

use crate::arrivals::strip_left;
use crate::doubles::unite_stubs;
use crate::effects::effects;
use crate::error::OpenError;
use crate::far_names::may_be_stale;
use crate::folders::hidden_name;
use crate::index::{Index, Located};
use crate::journal::Journal;
use crate::marks::is_marked;
use crate::object::{OpenObject, S_IFDIR, S_IFMT, S_IFREG, tag_of};
use crate::open::Site;
use crate::scan::Seen;
use crate::second_copies::{self, Copies};
use crate::untagged::{Untagged, bring_out, quarantine, release_names};
use disk_format::tag::ORPHAN;
use file_system::{File, Handle, Times};
use ids::{Fid, Lsn, SetId, Time};
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use wire::{Change, Errno};

/// Its name in `.mortar`.
const FILE: &[u8] = b"synced";
/// File systems with small inodes keep whole seconds.
const GRAIN: i64 = 1;

/// The file whose modification time says since when objects may have changed without a record.
pub(crate) struct SyncedAt {
    meta: Arc<File>,
}

impl SyncedAt {
    /// Makes the file in `.mortar` if it is missing. A new one says that everything may have changed.
    pub(crate) fn open(meta: Arc<File>) -> Result<SyncedAt, Errno> {
        let at = SyncedAt { meta };
        match at.meta.make_file(FILE, 0o600) {
            Ok(made) => {
                at.set(Time::default())?;
                made.sync()?;
            }
            Err(Errno::EEXIST) => {}
            Err(e) => return Err(e),
        }
        Ok(at)
    }

    /// The time; 0 if none was noted.
    pub(crate) fn get(&self) -> Result<Time, Errno> {
        self.meta.stat_at(FILE).map(|s| s.mtime)
    }

    /// Everything that changed before `time` is on disk, with its record. A file that is gone (the brick was released) is
    /// left so: without it everything may have changed.
    pub(crate) fn set(&self, time: Time) -> Result<(), Errno> {
        match self.meta.set_times_at(FILE, Times { atime: time, mtime: time }) {
            Err(Errno::ENOENT) => Ok(()),
            other => other,
        }
    }
}

/// What a walk over the whole tree found to be changed since a time.
#[derive(Default)]
pub(crate) struct Changed {
    /// The set's objects.
    pub(crate) objects: Vec<Fid>,
    /// Where all of them are, copies of other sets' directories included. The index may not know them: the records of
    /// what made them can be lost.
    pub(crate) places: Vec<(Fid, Located)>,
    /// Files whose tags say that they have no name, and that have one.
    pub(crate) named_orphans: Vec<Fid>,
    /// The set's files and stubs whose tags say that their names wait for the end of a transaction, changed or not.
    pub(crate) marked: Vec<Fid>,
    /// The copies of other sets' directories that changed. What one had when it was this set's may be in it still.
    pub(crate) changed_copies: Vec<Fid>,
    /// The stubs that changed.
    stubs: Vec<(Fid, Handle)>,
    /// Those that are entries of directories.
    entered: Vec<(Fid, Handle)>,
    /// Entries without a tag.
    untagged: Vec<Untagged>,
    /// Copies of other sets' directories.
    copies: Copies,
}

/// What changed since the last sync of everything; the index knows it afterwards.
pub(crate) fn look(
    at: &Site,
    set: SetId,
    synced: &SyncedAt,
    last: Lsn,
    index: &mut Index,
) -> Result<Changed, OpenError> {
    let noted = synced.get().map_err(|e| at.io("read .mortar/synced of", e))?;
    let since = if noted > at.root.now() { Time::default() } else { noted };
    let known = (!index.is_new()).then_some(&*index);
    let look = || changed_since(&at.root, set, since, known);
    let failed = |e| at.io("look for what changed last in", e);
    let mut changed = look().map_err(failed)?;
    let copies = std::mem::take(&mut changed.copies);
    let seconds = copies.seconds(&at.root, set).map_err(failed)?;
    let nobodys = [changed.untagged.as_slice(), &seconds].concat();
    let any =
        bring_out(at, &nobodys, (set, known)).map_err(|e| at.io("bring directories to lost+found in", e))?;
    let left = second_copies::clear(at, &seconds, last).map_err(|e| at.io("remove second copies from", e))?;
    if any || !seconds.is_empty() {
        changed = look().map_err(failed)?;
        changed.objects.extend(copies.folders());
    }
    tracing::warn!(brick = %at.path.display(), objects = changed.objects.len(), "changes that were not synced may be lost");
    let united = unite_stubs(at, &changed.entered, index).map_err(|e| at.io("unite stubs in", e))?;
    // What lies in the tree itself is walked through first: it goes before a second one that was moved to the heal trash.
    for (fid, place) in changed.places.iter().rev() {
        index.put(*fid, *place);
    }
    for (fid, handle) in united {
        index.put(fid, Located { handle, kind: S_IFREG });
    }
    // The tree may have lost what the index has, and the journal the records that removed it.
    // What became a stub is there, and another one.
    let stubs = &changed.stubs;
    index.forget_gone(&at.root, stubs).map_err(|e| at.io("look for what is gone from", e))?;
    release_names(at, &[changed.untagged.as_slice(), &left].concat(), index)
        .map_err(|e| at.io("take names from what has no tag in", e))?;
    copies.drop_shadowed(at, (set, last), index).map_err(|e| at.io("take names from second copies in", e))?;
    quarantine(at, &changed.untagged, last).map_err(|e| at.io("clear what has no tag out of", e))?;
    Ok(changed)
}

/// Files without a name that are not here, and of whose end no record tells: it may have been lost.
pub(crate) fn missing_orphans(at: &Site, journal: &Journal) -> Result<Vec<Fid>, OpenError> {
    let mut orphans = BTreeSet::new();
    for record in journal.iterate(journal.first()) {
        let change = record?.change;
        if let Change::DropOrphan { fid }
        | Change::EndFile { fid, add: Some(_), .. }
        | Change::EndCopy { fid, .. }
        | Change::ComeHome { copy: fid, .. }
        | Change::Redirect { copy: fid, .. } = change
        {
            orphans.remove(&fid);
        }
        orphans.extend(effects(&change).into_iter().filter(|(_, e)| e.set & ORPHAN != 0).map(|(fid, _)| fid));
    }
    let folder = at.folder("orphans")?;
    let is_missing = |fid: &Fid| folder.stat_at(hidden_name(*fid).as_bytes()) == Err(Errno::ENOENT);
    Ok(orphans.into_iter().filter(is_missing).collect())
}

/// Not in the brick's own folder, beneath which only directories in lost+found are served, nor the folder that mkfs makes.
fn is_in_tree(seen: &Seen<'_>) -> bool {
    seen.is_entry() && seen.path != Path::new("lost+found")
}

/// Whether it is a directory that the set is to answer for: its folder of names went with the change by which it came, whose record
/// may be lost.
fn has_come(seen: &Seen<'_>) -> Result<bool, Errno> {
    let is_dir = seen.stat.mode & S_IFMT == S_IFDIR;
    Ok(is_dir && OpenObject::new(seen.dir.open_at(seen.name, S_IFDIR)?, S_IFDIR).taken()?.is_some())
}

/// What changed since `time`, or is not known to the index, by a walk over the whole tree.
fn changed_since(root: &OpenObject, set: SetId, time: Time, known: Option<&Index>) -> Result<Changed, Errno> {
    let from = time.sec.saturating_sub(GRAIN);
    let mut found = Changed::default();
    if let Some(tag) = root.tag()? {
        let changed = root.stat()?.ctime.sec >= from;
        if tag.home != set && may_be_stale(root, root, (tag.fid, set), changed)? {
            found.objects.push(tag.fid.names());
        }
        found.objects.extend((tag.home == set && changed).then_some(tag.fid));
    }
    crate::scan::walk(root, &mut |seen| {
        let tag = match &seen.tag {
            Ok(Some(tag)) => tag,
            Ok(None) if seen.stat.ctime.sec >= from && is_in_tree(seen) => {
                found.untagged.push((seen.dir.handle()?, seen.name.to_vec()));
                return Ok(());
            }
            _ => return Ok(()),
        };
        if tag.flags & ORPHAN != 0 && seen.is_entry() {
            found.named_orphans.push(tag.fid);
        }
        if is_marked(tag) {
            found.marked.push(tag.fid);
        }
        found.copies.meet(seen, tag, set);
        let made = |index: &Index| index.get(tag.fid).map(|at| at.is_none());
        if tag.home != set && seen.stat.mode & S_IFMT == S_IFDIR {
            // Names of files may have come or gone here.
            let (copy, changed) = (seen.dir.open_at(seen.name, S_IFDIR)?, seen.stat.ctime.sec >= from);
            if may_be_stale(root, &copy, (tag.fid, set), changed)? {
                found.objects.push(tag.fid.names());
            }
            // The mark of an entry may be there without its record, or the other way round; and so may be that it became a copy.
            found.objects.extend(changed.then_some(tag.fid));
            found.changed_copies.extend(changed.then_some(tag.fid));
        }
        if seen.stat.ctime.sec >= from || known.map_or(Ok(false), made)? {
            if tag.home == set {
                found.objects.push(tag.fid);
                found.objects.extend(has_come(seen)?.then_some(tag.fid.names()));
            }
            let handle = seen.dir.handle_at(seen.name)?;
            if tag.stub_kind().is_some() {
                // It may have become one, and its directory not have changed.
                strip_left(seen);
                let above = tag_of(seen.dir)?.filter(|above| above.home == set);
                found.objects.extend(above.map(|above| above.fid));
                // Its mark may be there without its record, or the other way round.
                found.objects.push(tag.fid);
                found.stubs.push((tag.fid, handle));
                found.entered.extend(seen.is_entry().then_some((tag.fid, handle)));
            }
            found.places.push((tag.fid, Located { handle, kind: seen.stat.mode & S_IFMT }));
        }
        Ok(())
    })?;
    Ok(found)
}
