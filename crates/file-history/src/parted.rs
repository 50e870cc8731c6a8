//! Files whose data lies on several sets: each part of an operation is done at one moment, all of it is not.
//!
//! What is taken for right although a file on one set would not do it:
//! - A read learns the length at one moment, and each unit's bytes at others.
//! - The bytes of a write are there unit by unit, and the file is longer last. A write that was cut off by another one that
//!   makes the file shorter is done again, with other parts of it visible meanwhile.
//! - What was written beyond the end, and was not answered, or was answered after it had been done again elsewhere, may show in
//!   parts when the file grows.

use crate::content::pieces;
use crate::emit::Emitter;
use crate::inode::{Ask, Told};
use crate::names::Obj;
use ids::{Fid, SetId};
use std::collections::BTreeSet;
use std::ops::Range;
use wire::{Body, Op};

/// Where the data of such a file lies.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Parted {
    /// From here on in units.
    pub base: u64,
    /// Bytes of a unit. What is before the base lies together.
    pub unit: u64,
    /// The sets that have units, whether or not the file's own is among them.
    pub sets: BTreeSet<SetId>,
}

impl Parted {
    /// A range in its parts. Where the base is another one than it once was they are smaller than need be.
    fn parts(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let (mut parts, mut at) = (Vec::new(), range.start);
        while at < range.end {
            let unit = self.unit.max(1);
            let end = (at / unit).saturating_add(1).saturating_mul(unit).min(range.end);
            parts.push(at..end);
            at = end;
        }
        parts
    }
}

/// A part of the data of an operation that begins at `offset`.
fn data_of(payload: &[u8], offset: u64, part: &Range<u64>) -> Vec<crate::content::Piece> {
    let at = |position: u64| usize::try_from(position - offset).unwrap_or(usize::MAX);
    pieces(payload.get(at(part.start)..at(part.end)).unwrap_or_default())
}

impl Emitter<'_> {
    /// A read that was answered with data.
    pub(crate) fn parted_read(&mut self, n: usize, obj: Obj, parted: &Parted, (offset, len): (u64, u64)) {
        let Some((_, Ok((_, data)))) = &self.records[n].answer else { return };
        let end = offset.saturating_add(data.len() as u64);
        for part in parted.parts(offset..end) {
            let told = Told::Data(data_of(data, offset, &part));
            let ask = Ask::Read { offset: part.start, len: part.end - part.start };
            self.ask_of(n, obj, ask, Some(told), None);
        }
        if end < offset.saturating_add(len) {
            let ask = Ask::Read { offset: end, len: 1 };
            self.ask_of(n, obj, ask, Some(Told::Data(Vec::new())), None);
        }
    }

    /// A write that was done, in its parts: the position of its last question, or `None` if it is one like any other.
    pub(crate) fn parted_write(&mut self, n: usize, obj: Obj, fid: Fid) -> Option<usize> {
        let r = &self.records[n];
        let Op::Write { offset, append, kill_suid, .. } = r.op else { return None };
        let parted = self.excuses.parted.get(&fid)?;
        self.strays(n, obj, fid, true);
        let place = if append { self.crosses_base(n, fid)? } else { offset };
        let (payload, mut end) = (&r.payload, place.saturating_add(r.payload.len() as u64));
        if let Some((_, Ok((Body::Written { len, .. }, _)))) = &r.answer {
            // An append that was cut off: the rest was not written.
            end = end.min(place.saturating_add(u64::from(*len)));
        }
        for part in parted.parts(place..end) {
            let data = data_of(payload, place, &part);
            // What lies in the file itself makes it longer at once.
            let ask = if part.start < parted.base {
                Ask::Write { at: Some(part.start), data: data.clone(), kill_suid: false, torn: false }
            } else {
                Ask::Part { at: part.start, data: data.clone(), torn: false }
            };
            let early = Ask::Part { at: part.start, data, torn: true };
            self.ask_of(n, obj, early, Some(Told::Done), None);
            self.ask_of(n, obj, ask, Some(Told::Done), None);
        }
        Some(self.ask_of(n, obj, Ask::Grow { end, kill_suid }, Some(Told::Done), None))
    }

    /// What may show some time of a write that nobody knows of, or of an append that was done at another place in the end.
    pub(crate) fn strays(&mut self, n: usize, obj: Obj, fid: Fid, is_done: bool) {
        let r = &self.records[n];
        let Op::Write { offset, append, .. } = r.op else { return };
        let Some(parted) = self.excuses.parted.get(&fid) else { return };
        let tried = || self.excuses.placed.get(&n).cloned().unwrap_or_default();
        let places = if append { tried() } else { vec![offset] };
        let done = if append { usize::from(is_done) } else { places.len() * usize::from(is_done) };
        let strays = places.len().saturating_sub(done);
        let (payload, len) = (&r.payload, r.payload.len() as u64);
        for place in places.into_iter().take(strays) {
            for part in parted.parts(place..place.saturating_add(len)) {
                let ask = Ask::Part { at: part.start, data: data_of(payload, place, &part), torn: true };
                self.ask_of(n, obj, ask, None, None);
            }
        }
    }

    /// Where an append went that shows in two steps, as some of it lies before the base: the position.
    pub(crate) fn crosses_base(&self, n: usize, fid: Fid) -> Option<u64> {
        let (r, parted) = (&self.records[n], self.excuses.parted.get(&fid)?);
        let place = *self.excuses.placed.get(&n)?.last()?;
        let end = place.saturating_add(r.payload.len() as u64);
        (place < parted.base && parted.base < end).then_some(place)
    }
}
