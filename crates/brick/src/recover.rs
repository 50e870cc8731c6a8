//! Recovery after opening: brings memory and index up to date with the journal, and applies the last record again.
//!
//! A server that is killed leaves the page cache whole: every record but the last is applied. What is lost are times and
//! versions that waited in memory and index entries not committed; both come back from the records. The last record may be
//! applied in part, so it is applied again, unless it was synced: a power cut before may have changed the tree since, and
//! users have seen what it left. After a power cut nothing beyond the durable position is certain and nothing is applied
//! again: the set heals what is newer.

use crate::arrivals::strip_left;
use crate::effects::effects;
use crate::error::OpenError;
use crate::folders::hidden_fid;
use crate::index::{Index, Located};
use crate::marks::is_marked;
use crate::nodes::Effect;
use crate::object::{S_IFMT, tag_at};
use crate::open::Brick;
use crate::tree::At;
use disk_format::Record;
use disk_format::tag::{ORPHAN, PENDING, Version};
use file_system::File;
use ids::{Fid, Lsn, Time};
use std::collections::BTreeMap;
use wire::{Change, Errno, Name};

/// Fills an empty index from the tree; how many objects there are.
pub(crate) fn scan_into(index: &mut Index, root: &File) -> Result<usize, Errno> {
    let mut count = 0;
    crate::scan::walk(root, &mut |seen| {
        if let Ok(Some(tag)) = seen.tag {
            let handle = seen.dir.handle_at(seen.name)?;
            index.put(tag.fid, Located { handle, kind: seen.stat.mode & S_IFMT });
            count += 1;
        }
        Ok(())
    })?;
    Ok(count)
}

/// The times that objects have after some changes, as far as these say so.
#[derive(Default)]
struct KnownTimes {
    now: BTreeMap<Fid, Effect>,
    /// What they had before a change that was done in part: they need not have them any more.
    before: BTreeMap<Fid, Effect>,
}

impl KnownTimes {
    fn after(records: &[Record]) -> KnownTimes {
        let mut known = KnownTimes::default();
        for r in records {
            if let Change::Touch { .. } | Change::Partial { .. } = r.change {
                let uncertain = r.change.touched().into_iter();
                known.before.extend(uncertain.filter_map(|fid| known.now.remove_entry(&fid)));
            }
            for (fid, e) in effects(&r.change).into_iter().filter(|(_, e)| e.mtime.or(e.atime).is_some()) {
                let now = known.now.entry(fid).or_default();
                (now.mtime, now.atime) = (e.mtime.or(now.mtime), e.atime.or(now.atime));
                if e.mtime.is_some() {
                    known.before.remove(&fid);
                }
            }
        }
        known
    }
}

/// The names that a change gave to objects.
pub(crate) fn given(change: &Change) -> Vec<(Fid, &Name)> {
    match change {
        Change::Create { parent, name, .. }
        | Change::Link { parent, name, .. }
        | Change::Enter { parent, name, .. }
        | Change::Swap { parent, name, .. }
        | Change::Depart { parent, name, .. }
        | Change::ComeHome { parent, name, .. } => vec![(*parent, name)],
        Change::EndFile { add: Some(add), .. } => vec![(add.dir, &add.name)],
        Change::DepartAll { names, .. } | Change::EndCopy { names, .. } | Change::Redirect { names, .. } => {
            names.iter().map(|place| (place.dir, &place.name)).collect()
        }
        Change::Rename { to_parent, to_name, .. } => vec![(*to_parent, to_name)],
        Change::Exchange { parent, name, to_parent, to_name, .. } => {
            vec![(*parent, name), (*to_parent, to_name)]
        }
        Change::PrepareMkdir { path, name, .. } | Change::Relocate { path, name, .. } => {
            let parents = path.iter().map(|a| a.fid);
            let names = path.iter().map(|a| &a.name).chain([name]);
            // The first name hangs on the root, which the caller knows; the rest on the one before.
            std::iter::once(Fid::default()).chain(parents).zip(names).collect()
        }
        Change::TakeDir { fid, path, name, dir, .. } => {
            let parents = std::iter::once(Fid::default()).chain(path.iter().map(|a| a.fid));
            let above = parents.zip(path.iter().map(|a| &a.name).chain([name]));
            above.chain(dir.entries.iter().map(|entry| (*fid, &entry.name))).collect()
        }
        _ => vec![],
    }
}

impl Brick {
    pub(crate) fn recover(&mut self, position: Option<Lsn>, flushed: Lsn) -> Result<(), OpenError> {
        let path = self.path.clone();
        let io = |doing| {
            let path = path.clone();
            move |errno| OpenError::Io { path, doing, errno }
        };
        let last = self.journal.last().lsn;
        if position.is_none() {
            let root = self.root.share();
            let count = scan_into(&mut self.index, &root).map_err(io("scan the tree of"))?;
            self.found.index_rebuilt = last > Lsn(0);
            if self.found.index_rebuilt {
                tracing::warn!(brick = %self.path.display(), count, "rebuilt the index from the tree");
            }
        }
        if !self.found.clean {
            self.put_swaps_right().map_err(io("put right what waited for an entry in"))?;
        }
        self.learn_hidden().map_err(io("read the orphans of"))?;
        if self.stale.is_set() {
            // Records beyond the mark may not be in the tree: all they touch will be compared.
            if !self.found.clean {
                let named = self.learn_places().map_err(io("look for what was healed in"))?;
                if self.stale.set().is_some_and(|s| s.versions_valid_to == Lsn(0)) {
                    self.keep_named(&named).map_err(io("look for orphans in"))?;
                }
            }
            return self.restore_times_before_healing(flushed, io("restore times in"));
        }
        let known = position.unwrap_or(last).min(flushed).min(last);
        if self.found.clean && known == last {
            return Ok(());
        }
        // One record more: the last may be applied in part even if all is written.
        let from = Lsn(known.0.min(last.0.saturating_sub(1))).next().max(self.journal.first());
        let records = self.journal.iterate(from).collect::<Result<Vec<_>, _>>()?;
        self.learn(&records).map_err(io("look up what changed in"))?;
        if records.iter().any(|r| r.change.is_invalidation()) {
            // What such a change made before it failed, copies of directories above its own place, no record says.
            let root = self.root.share();
            scan_into(&mut self.index, &root).map_err(io("scan the tree of"))?;
        }
        self.restore_effects(&records).map_err(io("restore times in"))?;
        self.forget_what_went(&records).map_err(io("look up what changed in"))?;
        let killed = !self.found.clean && !self.found.rebooted;
        if killed {
            // The tag has the change already, but data may have been written again since, which moves the kernel's times.
            self.restore_all_times(KnownTimes::after(&records)).map_err(io("restore times in"))?;
        }
        if let Some(r) = records.last().filter(|r| killed && r.stamp.lsn > self.durable().lsn) {
            self.redo(r);
            // Doing it again moved the kernel's times, and nothing in the journal would tell a next recovery so.
            self.flush_attrs().map_err(io("write times in"))?;
        }
        Ok(())
    }

    /// Tags say what the changes did to the objects. The last change to one that was flushed is in its tag already.
    fn restore_effects(&mut self, records: &[Record]) -> Result<(), Errno> {
        let own = self.identity.set;
        for r in records {
            for (fid, mut e) in effects(&r.change) {
                if e.set & ORPHAN != 0 && !self.lies_among_orphans(fid)? {
                    // A power cut left it its name; after a kill the last record is applied again.
                    e.set &= !ORPHAN;
                }
                if e.ended && self.found.rebooted && r.stamp.lsn > self.durable().lsn {
                    // The names may not be on disk: whether the transaction has ended is asked once more.
                    e = Effect { clear: 0, ended: false, ..e };
                }
                if let Change::TakeDir { .. } = r.change
                    && self.is_known(fid)?
                    && self.load(fid)?.tag().home != own
                {
                    // It was given back, by a change that a power cut took the record of.
                    e.set &= !PENDING;
                }
                if e.clear & PENDING != 0
                    && self.found.rebooted
                    && self.is_known(fid)?
                    && matches!(self.taken_by(fid), Ok(Some(_)))
                {
                    // The change is not on disk, or another one came after it, of which a power cut took the record.
                    e.clear &= !PENDING;
                }
                self.touch(fid, Version::from(&r.stamp), e)?;
            }
        }
        Ok(())
    }

    /// What changes removed is in the index no more.
    fn forget_what_went(&mut self, records: &[Record]) -> Result<(), Errno> {
        // It leaves the index when it is looked for.
        for fid in records.iter().flat_map(|r| r.change.touched()) {
            // What became a stub is there, and another one.
            for fid in [fid, fid.without_names()] {
                if !self.is_known(fid)? {
                    self.index.remove(fid);
                }
            }
        }
        if records.iter().any(|r| matches!(r.change, Change::GiveDir { .. }) || r.change.is_invalidation()) {
            // Which stubs went with a directory no record says.
            let root = self.root.share();
            self.index.forget_gone(&root, &[])?;
        }
        Ok(())
    }

    /// Of a brick that is to heal: nobody compares what changed last before the mark, and an opening that was killed may have
    /// written its data again.
    fn restore_times_before_healing(
        &mut self,
        flushed: Lsn,
        io: impl FnOnce(Errno) -> OpenError,
    ) -> Result<(), OpenError> {
        let Some(upto) = self.stale.set().map(|s| s.from) else { return Ok(()) };
        if self.found.clean || self.found.rebooted || upto <= flushed {
            return Ok(());
        }
        let from = flushed.next().max(self.journal.first());
        let mut records = self.journal.iterate(from).collect::<Result<Vec<_>, _>>()?;
        records.retain(|r| r.stamp.lsn <= upto);
        self.restore_all_times(KnownTimes::after(&records)).map_err(io)
    }

    fn restore_all_times(&mut self, known: KnownTimes) -> Result<(), Errno> {
        for (fid, e) in known.before {
            if self.is_written_last(fid)? {
                self.restore_times(fid, Effect { mtime: e.mtime, ..Effect::default() })?;
            }
        }
        known.now.into_iter().try_for_each(|(fid, e)| self.restore_times(fid, e))
    }

    /// Whether data was the last that was written of an object, so that its time is the kernel's: of all that we do after that
    /// nothing leaves the kernel's two times alike.
    fn is_written_last(&mut self, fid: Fid) -> Result<bool, Errno> {
        match self.open_fid(fid).and_then(|open| open.stat()) {
            Ok(stat) => Ok(stat.mtime == stat.ctime),
            Err(Errno::ESTALE | Errno::ENOENT) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// No record says what a healing made or moved, nor what a power cut before it left: the index may not know where it is.
    /// What was moved to the heal trash counts only where there is nothing else. Answers the files whose tags say that they
    /// have no name, and that have one: who found the power cut may have been killed before that was on record.
    fn learn_places(&mut self) -> Result<Vec<Fid>, Errno> {
        let root = self.root.share();
        let (index, marks) = (&mut self.index, &mut self.marks);
        let (mut named, mut stubs) = (Vec::new(), Vec::new());
        crate::scan::walk(&root, &mut |seen| {
            let Ok(Some(tag)) = &seen.tag else { return Ok(()) };
            if tag.flags & ORPHAN != 0 && seen.is_entry() {
                named.push(tag.fid);
            }
            if is_marked(tag) {
                marks.meet(tag.fid);
            }
            let at = Located { handle: seen.dir.handle_at(seen.name)?, kind: seen.stat.mode & S_IFMT };
            let known = index.get(tag.fid)?;
            // One that the index knows was stripped before.
            if tag.stub_kind().is_some() && known != Some(at) {
                strip_left(seen);
                stubs.push((tag.fid, at.handle));
            }
            let other = known.filter(|known| *known != at);
            let heal_trash = seen.path.starts_with(".mortar/aside");
            if heal_trash && other.is_some_and(|o| root.open_handle(&o.handle, o.kind).is_ok()) {
                return Ok(());
            }
            if known != Some(at) {
                index.put(tag.fid, at);
            }
            Ok(())
        })?;
        // A kill at the end of a healing leaves what it had removed.
        self.index.forget_gone(&root, &stubs)?;
        Ok(named)
    }

    /// Orphans and what is in lost+found are found by their names there.
    fn learn_hidden(&mut self) -> Result<(), Errno> {
        let mut found = Vec::new();
        for (n, dir) in self.folders.all().into_iter().enumerate() {
            dir.list(&mut |name, _, _| {
                found.extend(hidden_fid(name).map(|f| (n, name.to_vec(), f)));
                true
            })?;
        }
        for (n, name, fid) in found {
            if n == 1 && self.drop_left_stub(&name, fid)? {
                continue;
            }
            // A folder of names that was removed and made again has the fid that it had. One in the heal trash is an older one.
            if (fid.is_names() && n == 1) || self.index.get(fid)?.is_none() {
                let Some(dir) = self.folders.all().get(n).copied() else { continue };
                if n == 1 && fid.is_names() && tag_at(dir, &name)?.is_none() {
                    // Its name says who it is, if a power cut took the tag.
                    self.have_folder_of_names(fid, (Version::default(), Time::default()))?;
                    continue;
                }
                let kind = dir.stat_at(&name)?.mode & S_IFMT;
                self.index.put(fid, Located { handle: dir.handle_at(&name)?, kind });
            }
            if n == 0 {
                self.adopt_orphan(&name, fid)?;
            }
        }
        Ok(())
    }

    /// Looks up every name that the records gave: what is found there is in the index afterwards. Directories may have
    /// moved in between, so it goes over the records, from either end, until nothing new is found.
    fn learn(&mut self, records: &[Record]) -> Result<(), Errno> {
        if records.iter().any(|r| r.change.is_invalidation()) {
            // What such a change made before it failed, copies above the place that it was about, no record says.
            let root = self.root.share();
            scan_into(&mut self.index, &root)?;
        }
        let mut names: Vec<(Fid, &Name)> = records.iter().flat_map(|r| given(&r.change)).collect();
        names.dedup();
        // Names of files lie in copies of other sets' directories: those have to be known before.
        let (far, near) = names.into_iter().partition(|(dir, _)| dir.is_names());
        self.learn_names(near)?;
        self.learn_names(far)
    }

    fn learn_names(&mut self, mut names: Vec<(Fid, &Name)>) -> Result<(), Errno> {
        let root = self.identity.root;
        loop {
            let before = names.len();
            names.reverse();
            let mut unknown = Vec::new();
            for (parent, name) in names {
                let dir = if parent == Fid::default() { root } else { parent };
                match self.find(dir, name.as_bytes()) {
                    Ok(At::Entry(e)) => self.learn_again((dir, name), e.fid)?,
                    Ok(At::Free | At::Unknown) => {}
                    Err(Errno::ESTALE | Errno::ENOTDIR) => unknown.push((parent, name)),
                    Err(e) => return Err(e),
                }
            }
            if unknown.is_empty() || unknown.len() == before {
                return Ok(());
            }
            names = unknown;
        }
    }

    /// The index may know what was there before under the same number: a copy of a directory that was removed, and made again.
    fn learn_again(&mut self, (dir, name): (Fid, &Name), fid: Fid) -> Result<(), Errno> {
        if self.is_known(fid)? {
            return Ok(());
        }
        self.index.remove(fid);
        self.names.forget(dir, name.as_bytes());
        self.find(dir, name.as_bytes()).map(drop)
    }

    /// Applies the last record again.
    fn redo(&mut self, r: &Record) {
        let stale_set = match &r.change {
            Change::Write { fid, offset, len, .. } if !self.identity.arbiter => {
                let there = self.open_fid(*fid).and_then(|o| o.read(*offset, *len as usize, false));
                there.is_ok_and(|d| disk_format::crc64(&[&d]) != r.data_crc)
            }
            // Shifting data twice would be worse than not at all.
            Change::Fallocate { mode, .. } => mode & 0x28 != 0,
            _ => false,
        };
        if stale_set {
            self.found.incomplete = r.change.touched().first().copied();
            tracing::warn!(brick = %self.path.display(), lsn = %r.stamp.lsn, fid = ?self.found.incomplete, "the data of the last change may not be all there");
            return;
        }
        let payload = self.identity.arbiter.then_some(&[][..]);
        self.progress.set_replaying(true);
        let done = self.perform(&r.stamp, &r.change, payload);
        self.progress.set_replaying(false);
        match done {
            // The object is gone: removed in the meantime, or never made durable.
            Ok(()) | Err(Errno::ESTALE | Errno::ENOENT) => {}
            Err(e) => {
                self.found.incomplete = r.change.touched().last().copied();
                tracing::warn!(brick = %self.path.display(), lsn = %r.stamp.lsn, error = %e, "the last change could not be applied again");
            }
        }
    }
}
