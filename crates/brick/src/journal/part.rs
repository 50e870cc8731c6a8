//! The journal read in small parts, by somebody who comes back for the next one: each costs the same wherever it lies.

use super::Journal;
use crate::error::JournalError;
use disk_format::journal::HEAD;
use disk_format::{Record, RecordError};
use ids::Lsn;
use set_core::JournalPlace;

/// Bytes of one part, about: it ends with a whole record, and has one at least.
const PART: usize = 64 << 10;
/// Bytes that give a record's length.
const LENGTH: usize = 4;
/// Bytes of a record before what its length counts.
const RECORD_HEAD: usize = 12;

impl Journal {
    /// Some records from `from` on, which must be within reach; none at the journal's end. `near`: where the part before it
    /// ended, which saves searching.
    pub(crate) fn part(&self, from: Lsn, near: &mut JournalPlace) -> Result<Vec<Record>, JournalError> {
        if from < self.first() {
            return Err(JournalError::OutOfReach(from));
        }
        if from > self.last().lsn {
            return Ok(Vec::new());
        }
        let known = near.next == from && self.segments.get(&near.segment).is_some_and(|len| near.at < *len);
        if known
            && let Ok(records) = self.part_at(near)
            && records.first().is_some_and(|r| r.stamp.lsn == from)
        {
            return Ok(records);
        }
        *near = self.search(from)?;
        let records = self.part_at(near)?;
        match records.first() {
            Some(r) if r.stamp.lsn == from => Ok(records),
            _ => Err(self.damaged(near, format!("change {from} is not where it should be"))),
        }
    }

    fn damaged(&self, at: &JournalPlace, why: String) -> JournalError {
        JournalError::Damaged { file: self.file(at.segment), offset: at.at, why }
    }

    /// Where a record begins: those of a segment follow each other, so that their lengths lead there.
    fn search(&self, from: Lsn) -> Result<JournalPlace, JournalError> {
        let none = JournalPlace::default();
        let Some((segment, _)) = self.segments.range(..=from).next_back() else {
            return Err(self.damaged(&none, format!("no segment has change {from}")));
        };
        let bytes = self.load(*segment)?;
        self.head(*segment, &bytes)?;
        let mut at = HEAD;
        for _ in segment.0..from.0 {
            let length = bytes.get(at..at + LENGTH).and_then(|l| l.try_into().ok()).map(u32::from_le_bytes);
            at += RECORD_HEAD + length.unwrap_or(0) as usize;
        }
        Ok(JournalPlace { next: from, segment: *segment, at: at as u64 })
    }

    /// The records from a place on, and the place behind them.
    fn part_at(&self, near: &mut JournalPlace) -> Result<Vec<Record>, JournalError> {
        let end = self.segments.get(&near.segment).copied().unwrap_or(0);
        let rest = usize::try_from(end.saturating_sub(near.at)).unwrap_or(usize::MAX);
        let file = self.open_file(near.segment)?;
        let mut wanted = PART.min(rest);
        loop {
            let bytes = file.read(near.at, wanted, false).map_err(|e| self.io(near.segment, e))?;
            let (mut records, mut at) = (Vec::new(), 0);
            let why = loop {
                match Record::decode(bytes.get(at..).unwrap_or_default()) {
                    Ok((r, n)) => {
                        at += n;
                        records.push(r);
                    }
                    Err(why) => break why,
                }
            };
            let Some(last) = records.last() else {
                if matches!(why, RecordError::Short) && wanted < rest {
                    wanted = rest;
                    continue;
                }
                return Err(self.damaged(near, why.to_string()));
            };
            let next = last.stamp.lsn.next();
            let at = near.at + at as u64;
            // The next segment's name is the change that it begins with.
            *near = if at >= end {
                JournalPlace { next, segment: next, at: HEAD as u64 }
            } else {
                JournalPlace { next, segment: near.segment, at }
            };
            return Ok(records);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::journal::Left;
    use file_system::FileSystem;
    use ids::{BrickId, Epoch, Fid, OpId, SessionId, SetId};
    use memory_fs::MemoryFs;
    use std::path::Path;
    use wire::codec::Blob;
    use wire::peer::Stamp;
    use wire::{Change, Name};

    fn change(size: usize) -> Change {
        let fid = Fid { set: SetId(1), epoch: Epoch(1), lsn: Lsn(1) };
        let (name, value) = (Name::new(b"user.x").unwrap(), Blob(vec![7; size]));
        Change::SetXattr { fid, name, value, time: ids::Time::default() }
    }

    /// Small records, and some that are longer than a part, in segments of 300,000 bytes.
    fn journal(count: u64) -> Journal {
        let fs = MemoryFs::new(1 << 30);
        fs.make_dirs(Path::new("/j")).unwrap();
        let dir = fs.open_dir(Path::new("/j")).unwrap();
        let none = Stamp { epoch: Epoch(0), lsn: Lsn(0) };
        let left = Left { durable: none, lost: None };
        let opened = Journal::open(dir, "/j".into(), BrickId(1), 300_000, left).unwrap();
        let mut journal = opened.journal;
        for lsn in 1..=count {
            let stamp = Stamp { epoch: Epoch(1), lsn: Lsn(lsn) };
            let op = OpId { session: SessionId(1), seq: lsn };
            let size = if lsn % 500 == 0 { 65_000 } else { 50 + usize::try_from(lsn).unwrap() % 100 };
            journal.append(&stamp, op, 0, None, &change(size)).unwrap();
        }
        journal
    }

    fn all(journal: &Journal, from: u64) -> Vec<Record> {
        journal.iterate(Lsn(from)).map(Result::unwrap).collect()
    }

    #[test]
    fn parts_make_up_the_whole_and_each_is_short() {
        let journal = journal(5000);
        assert!(journal.segments.len() > 3);
        for from in [1, 499, 500, 501, 2345, 5000] {
            let (mut near, mut records) = (JournalPlace::default(), Vec::new());
            let mut next = Lsn(from);
            while next <= Lsn(5000) {
                let part = journal.part(next, &mut near).unwrap();
                let bytes: usize = part.iter().map(|r| r.change.touched().len() * 150).sum();
                assert!(!part.is_empty() && (part.len() == 1 || bytes < 2 * PART), "{} records", part.len());
                next = part.last().unwrap().stamp.lsn.next();
                assert_eq!(near.next, next, "the next part begins where this one ends");
                records.extend(part);
            }
            assert_eq!(records, all(&journal, from), "from {from} on");
            assert!(journal.part(next, &mut near).unwrap().is_empty());
        }
        assert!(matches!(
            journal.part(Lsn(0), &mut JournalPlace::default()),
            Err(JournalError::OutOfReach(_))
        ));
    }

    /// The journal may have been cut and written anew since: where the last part ended is a hint only.
    #[test]
    fn a_place_that_is_wrong_does_no_harm() {
        let journal = journal(2000);
        let (segment, _) = journal.segments.first_key_value().unwrap();
        for at in [0, 1, HEAD as u64, HEAD as u64 + 5, 200_000] {
            let mut near = JournalPlace { next: Lsn(700), segment: *segment, at };
            let part = journal.part(Lsn(700), &mut near).unwrap();
            assert_eq!(part.first().map(|r| r.stamp.lsn), Some(Lsn(700)));
        }
    }
}
