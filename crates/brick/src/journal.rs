//! The journal's files: appending, reading, cutting and dropping.
//!
//! Owns: `.mortar/journal/`. Invariant: the records of all segments, in order of their names, have lsns without gaps,
//! beginning after the oldest segment's base. Appending goes to the page cache; [`crate::SyncJob`] makes it durable.

mod again;
mod part;
mod records;
mod tear;
mod unsynced;

pub use records::Records;
pub(crate) use unsynced::Unsynced;

use crate::error::JournalError;
use crate::object::{S_IFDIR, S_IFREG};
use disk_format::journal::{HEAD, HeadError, Rest, classify};
use disk_format::{Record, RecordError, SegmentHead};
use file_system::{File, Opening};
use ids::{BrickId, Fid, Lsn, OpId};
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use wire::peer::Stamp;
use wire::{Change, Errno};

pub(crate) struct Journal {
    dir: Arc<File>,
    path: PathBuf,
    brick: BrickId,
    segment_size: u64,
    /// First lsn and bytes of each segment.
    segments: BTreeMap<Lsn, u64>,
    current: Arc<File>,
    /// The change before the current segment.
    base: Stamp,
    last: Stamp,
    /// Where the last record begins, and the stamp before it: for taking it back.
    before_last: Option<(u64, Stamp)>,
    /// The current segment's file may be longer than its records: it is cut before anything is appended.
    overhang: bool,
    /// A segment that was made, and whose head could not be written: it is removed before another one is begun.
    headless: Option<Lsn>,
    unsynced: Arc<Unsynced>,
    buffer: Vec<u8>,
}

/// What opening found.
pub(crate) struct OpenedJournal {
    pub(crate) journal: Journal,
    /// Bytes of a torn tail that were cut off.
    pub(crate) cut: u64,
    /// Segments that are none of the journal's, for [`Journal::remove_leftovers`].
    pub(crate) leftovers: Vec<Lsn>,
}

/// How the brick was left.
pub(crate) struct Left<'a> {
    /// Everything up to here is on disk.
    pub(crate) durable: Stamp,
    /// Set if what was not on disk may be lost: what to do with objects that only lost records named. It runs before those
    /// records are cut off.
    pub(crate) lost: Option<&'a mut dyn FnMut(Vec<Fid>) -> Result<(), JournalError>>,
}

fn name(first: Lsn) -> String {
    format!("{:016x}.seg", first.0)
}

impl Journal {
    fn file(&self, first: Lsn) -> PathBuf {
        self.path.join(name(first))
    }

    fn io(&self, first: Lsn, e: Errno) -> JournalError {
        JournalError::Io { file: self.file(first), errno: e }
    }

    /// Opens the journal, or begins one. After a power cut what is missing beyond the durable position is no damage: the
    /// journal ends there.
    pub(crate) fn open(
        dir: File,
        path: PathBuf,
        brick: BrickId,
        segment_size: u64,
        left: Left<'_>,
    ) -> Result<OpenedJournal, JournalError> {
        let none = Stamp { epoch: ids::Epoch(0), lsn: Lsn(0) };
        let begins = if left.lost.is_some() { left.durable.clone() } else { none.clone() };
        let io = |e: Errno| JournalError::Io { file: path.clone(), errno: e };
        // No segment is current before they are read.
        let none_yet = dir.open_at(b".", S_IFDIR).map_err(io)?;
        let dir = Arc::new(dir);
        let unsynced = Arc::new(Unsynced::new(dir.clone()));
        let mut j = Journal {
            dir,
            path,
            brick,
            segment_size,
            segments: BTreeMap::new(),
            current: Arc::new(none_yet),
            base: none.clone(),
            last: none.clone(),
            before_last: None,
            overhang: false,
            headless: None,
            unsynced,
            buffer: Vec::new(),
        };
        j.list()?;
        // Whoever made the folder, or a segment in it, may have been killed before it was synced.
        j.unsynced.folder_changed();
        let mut cut = 0;
        let consistent_to = left.lost.is_some().then_some(left.durable.lsn);
        if let Some(stale) = left.lost
            && let Some(tear) = j.find_tear(&left.durable)?
        {
            stale(tear.touched.clone())?;
            j.cut_tear(&tear)?;
            cut = tear.bytes;
        }
        let empty_last =
            |j: &Journal| j.segments.last_key_value().filter(|(_, n)| **n < HEAD as u64).map(|(l, _)| *l);
        // A segment that was being begun when everything stopped.
        if let Some(first) = empty_last(&j) {
            j.remove(first)?;
        }
        let Some(first) = j.segments.keys().next_back().copied() else {
            j.begin_segment(begins, Lsn(0))?;
            return Ok(OpenedJournal { journal: j, cut, leftovers: vec![] });
        };
        let leftovers = j.check_chain(consistent_to.is_some())?;
        if let Some(torn) = j.take_up(first, consistent_to)? {
            cut = torn;
        }
        j.note_unsynced(left.durable.lsn)?;
        Ok(OpenedJournal { journal: j, cut, leftovers })
    }

    /// Reads the segment that is appended to from now on. Answers how many bytes of a torn tail were cut off.
    fn take_up(&mut self, first: Lsn, consistent_to: Option<Lsn>) -> Result<Option<u64>, JournalError> {
        let bytes = self.load(first)?;
        let head = self.head(first, &bytes)?;
        self.base = head.base.clone();
        self.last = head.base;
        let mut at = HEAD;
        while at < bytes.len() {
            match self.next_record(first, &bytes, at) {
                Ok((r, n)) => {
                    self.before_last = Some((at as u64, self.last.clone()));
                    self.last = r.stamp;
                    at += n;
                }
                Err(e) => {
                    let rest = bytes.get(at..).unwrap_or_default();
                    let torn = classify(rest, self.last.lsn) == Rest::Torn;
                    let newer = matches!(Record::decode(rest), Err(RecordError::Content(_)));
                    if newer || !torn && consistent_to.is_none_or(|s| self.last.lsn < s) {
                        return Err(e);
                    }
                    break;
                }
            }
        }
        self.current = Arc::new(self.open_file(first)?);
        let cut = (at < bytes.len()).then(|| (bytes.len() - at) as u64);
        if let Some(cut) = cut {
            self.current.truncate(at as u64).map_err(|e| self.io(first, e))?;
            tracing::warn!(file = %self.file(first).display(), offset = at, cut, "cut a torn tail off the journal");
        }
        self.segments.insert(first, at as u64);
        Ok(cut)
    }

    /// A process that was killed may have left complete segments in the page cache only.
    fn note_unsynced(&self, durable: Lsn) -> Result<(), JournalError> {
        for (first, next) in self.segments.keys().zip(self.segments.keys().skip(1)) {
            if *next > durable.next() {
                self.unsynced.add(Arc::new(self.open_file(*first)?));
            }
        }
        Ok(())
    }

    fn list(&mut self) -> Result<(), JournalError> {
        let io = |errno| JournalError::Io { file: self.path.clone(), errno };
        let mut found = Vec::new();
        let mut look = |name: &[u8], _: u32, _: u64| {
            let hex = std::str::from_utf8(name).ok().and_then(|text| text.strip_suffix(".seg"));
            if let Some(first) = hex.and_then(|hex| u64::from_str_radix(hex, 16).ok()) {
                found.push((Lsn(first), name.to_vec()));
            }
            true
        };
        self.dir.list(&mut look).map_err(io)?;
        self.segments.clear();
        for (first, name) in found {
            self.segments.insert(first, self.dir.stat_at(&name).map_err(io)?.size);
        }
        Ok(())
    }

    fn open_file(&self, first: Lsn) -> Result<File, JournalError> {
        self.dir.open_at(name(first).as_bytes(), S_IFREG).map_err(|e| self.io(first, e))
    }

    fn load(&self, first: Lsn) -> Result<Vec<u8>, JournalError> {
        let len = self.segments.get(&first).copied().unwrap_or(0);
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        self.open_file(first)?.read(0, len, false).map_err(|e| self.io(first, e))
    }

    fn head(&self, first: Lsn, bytes: &[u8]) -> Result<SegmentHead, JournalError> {
        let damaged = |why: String| JournalError::Damaged { file: self.file(first), offset: 0, why };
        let head = SegmentHead::decode(bytes).map_err(|e: HeadError| damaged(e.to_string()))?;
        if head.brick != self.brick {
            return Err(damaged(format!("it belongs to brick {}", head.brick)));
        }
        if head.base.lsn.next() != first {
            return Err(damaged("its name and its head differ".into()));
        }
        Ok(head)
    }

    fn next_record(&self, first: Lsn, bytes: &[u8], at: usize) -> Result<(Record, usize), JournalError> {
        let rest = bytes.get(at..).unwrap_or_default();
        Record::decode(rest).map_err(|e: RecordError| JournalError::Damaged {
            file: self.file(first),
            offset: at as u64,
            why: e.to_string(),
        })
    }

    fn begin_segment(&mut self, base: Stamp, previous: Lsn) -> Result<(), JournalError> {
        self.remove_headless()?;
        let first = base.lsn.next();
        let head = SegmentHead { brick: self.brick, base: base.clone(), previous }.encode();
        let opened = self.dir.open_own(name(first).as_bytes(), Opening::Emptied(0o600));
        let file = opened.map_err(|e| self.io(first, e))?;
        if let Err(e) = file.write_all(0, &head) {
            if !self.segments.contains_key(&first) {
                self.headless = Some(first);
                // If that fails it is done before another one is begun, or when the journal is closed or opened.
                let _ = self.remove_headless();
            }
            return Err(self.io(first, e));
        }
        self.segments.insert(first, head.len() as u64);
        self.current = Arc::new(file);
        self.base = base.clone();
        self.last = base;
        self.before_last = None;
        self.overhang = false;
        self.unsynced.folder_changed();
        Ok(())
    }

    fn remove(&mut self, first: Lsn) -> Result<(), JournalError> {
        match self.dir.unlink(name(first).as_bytes()) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(e) => return Err(self.io(first, e)),
        }
        self.segments.remove(&first);
        self.unsynced.folder_changed();
        Ok(())
    }

    /// Removes the segment whose head could not be written.
    fn remove_headless(&mut self) -> Result<(), JournalError> {
        if let Some(first) = self.headless {
            self.remove(first)?;
            self.headless = None;
        }
        Ok(())
    }

    /// Appends a record. True if a new segment was begun for it.
    pub(crate) fn append(
        &mut self,
        stamp: &Stamp,
        op: OpId,
        data_crc: u64,
        result_fid: Option<Fid>,
        change: &Change,
    ) -> Result<bool, JournalError> {
        if stamp.lsn != self.last.lsn.next() || stamp.epoch < self.last.epoch {
            tracing::error!(last = %self.last.lsn, new = %stamp.lsn, "a change out of order was refused");
            return Err(JournalError::OutOfReach(stamp.lsn));
        }
        let mut first = self.base.lsn.next();
        let mut len = self.segments.get(&first).copied().unwrap_or(0);
        self.cut_overhang(len)?;
        let rolled = len >= self.segment_size;
        if rolled {
            let complete = self.current.clone();
            self.begin_segment(self.last.clone(), first)?;
            self.unsynced.add(complete);
            first = self.base.lsn.next();
            len = HEAD as u64;
        }
        self.buffer.clear();
        Record::put(stamp, op, data_crc, result_fid, change, &mut self.buffer);
        if let Err(e) = self.current.write_all(len, &self.buffer) {
            self.overhang = true;
            // If that fails it is done before the next record, or when the journal is opened.
            let _ = self.cut_overhang(len);
            return Err(self.io(first, e));
        }
        self.segments.insert(first, len + self.buffer.len() as u64);
        self.before_last = Some((len, std::mem::replace(&mut self.last, stamp.clone())));
        Ok(rolled)
    }

    /// Leaves nothing beyond the last record: a brick that was closed in order has no record or segment that was being written.
    pub(crate) fn trim(&mut self) -> Result<(), JournalError> {
        self.remove_headless()?;
        let len = self.segments.get(&self.base.lsn.next()).copied().unwrap_or(HEAD as u64);
        self.cut_overhang(len)
    }

    /// Cuts off what lies beyond the records of the current segment.
    fn cut_overhang(&mut self, len: u64) -> Result<(), JournalError> {
        if self.overhang {
            let first = self.base.lsn.next();
            self.current.truncate(len).map_err(|e| self.io(first, e))?;
            self.overhang = false;
        }
        Ok(())
    }

    /// Takes the last record back: it could not be applied. After an error the record is still there.
    pub(crate) fn take_back(&mut self) -> Result<(), JournalError> {
        let first = self.base.lsn.next();
        let Some((len, stamp)) = self.before_last.clone() else {
            return Err(JournalError::OutOfReach(self.last.lsn));
        };
        self.current.truncate(len).map_err(|e| self.io(first, e))?;
        self.segments.insert(first, len);
        self.last = stamp;
        self.before_last = None;
        self.overhang = false;
        Ok(())
    }

    /// Writes another change over the last record, with the same stamp and from no operation. It must not need more bytes:
    /// there may be no room for any.
    pub(crate) fn replace_last(&mut self, change: &Change) -> Result<(), JournalError> {
        let first = self.base.lsn.next();
        let Some((at, _)) = self.before_last.clone() else {
            return Err(JournalError::OutOfReach(self.last.lsn));
        };
        self.buffer.clear();
        Record::put(&self.last, OpId::default(), 0, None, change, &mut self.buffer);
        let end = at + self.buffer.len() as u64;
        let old = self.segments.get(&first).copied().unwrap_or(0);
        assert!(end <= old, "a record is replaced by one that is not longer");
        self.current.write_all(at, &self.buffer).map_err(|e| self.io(first, e))?;
        self.segments.insert(first, end);
        self.overhang = end < old;
        // If that fails it is done before the next record, or when the journal is opened.
        let _ = self.cut_overhang(end);
        Ok(())
    }

    pub(crate) fn last(&self) -> Stamp {
        self.last.clone()
    }

    /// The oldest lsn that the journal still holds (one past the last, if it holds none).
    pub(crate) fn first(&self) -> Lsn {
        self.segments.keys().next().copied().unwrap_or(Lsn(1))
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.segments.values().sum()
    }

    pub(crate) fn unsynced(&self) -> Arc<Unsynced> {
        self.unsynced.clone()
    }

    pub(crate) fn current(&self) -> Arc<File> {
        self.current.clone()
    }

    /// The stamp at a position: `None` if the journal does not reach there.
    pub(crate) fn stamp_at(&self, lsn: Lsn) -> Result<Option<Stamp>, JournalError> {
        if lsn == self.last.lsn {
            return Ok(Some(self.last()));
        }
        if lsn > self.last.lsn || lsn.next() < self.first() {
            return Ok(None);
        }
        if self.segments.contains_key(&lsn.next()) {
            let bytes = self.load(lsn.next())?;
            return self.head(lsn.next(), &bytes).map(|h| Some(h.base));
        }
        self.iterate(lsn).next().transpose().map(|r| r.map(|r| r.stamp))
    }

    /// Cuts off everything after `lsn`.
    pub(crate) fn truncate_after(&mut self, lsn: Lsn) -> Result<(), JournalError> {
        if lsn >= self.last.lsn {
            return Ok(());
        }
        let stamp = self.stamp_at(lsn)?.ok_or(JournalError::OutOfReach(lsn))?;
        let later: Vec<Lsn> = self.segments.range(lsn.next()..).map(|(l, _)| *l).collect();
        let Some(&home) = self.segments.range(..=lsn).next_back().map(|(l, _)| l) else {
            // The cut lies right at the journal's beginning.
            return self.reset(stamp);
        };
        let bytes = self.load(home)?;
        let head = self.head(home, &bytes)?;
        let mut at = HEAD;
        while at < bytes.len() {
            let (r, n) = self.next_record(home, &bytes, at)?;
            if r.stamp.lsn > lsn {
                break;
            }
            at += n;
        }
        for l in later.into_iter().rev() {
            self.remove(l)?;
        }
        let file = self.open_file(home)?;
        file.truncate(at as u64).map_err(|e| self.io(home, e))?;
        self.segments.insert(home, at as u64);
        self.current = Arc::new(file);
        self.base = head.base;
        self.last = stamp;
        self.before_last = None;
        self.overhang = false;
        Ok(())
    }

    /// Begins anew after `stamp`: the brick holds everything up to there, however it came to it. The newest segment stays
    /// until there is another: a journal without any would begin at the first position.
    pub(crate) fn reset(&mut self, stamp: Stamp) -> Result<(), JournalError> {
        let mut old: Vec<Lsn> = self.segments.keys().copied().collect();
        let newest = old.pop();
        for l in old {
            self.remove(l)?;
        }
        let first = stamp.lsn.next();
        self.begin_segment(stamp, Lsn(0))?;
        newest.filter(|l| *l != first).map_or(Ok(()), |l| self.remove(l))
    }

    /// Drops whole segments that hold only changes before `lsn`; the current one stays.
    pub(crate) fn drop_before(&mut self, lsn: Lsn) -> Result<(), JournalError> {
        loop {
            let mut firsts = self.segments.keys();
            match (firsts.next().copied(), firsts.next().copied()) {
                (Some(first), Some(second)) if second <= lsn => self.remove(first)?,
                _ => return Ok(()),
            }
        }
    }

    /// Drops the oldest segment if it holds only changes up to `safe`.
    pub(crate) fn drop_oldest(&mut self, safe: Lsn) -> Result<bool, JournalError> {
        let second = self.segments.keys().nth(1).copied();
        match second {
            Some(second) if second <= safe.next() => self.drop_before(second).map(|()| true),
            _ => Ok(false),
        }
    }
}
