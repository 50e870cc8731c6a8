//! Files whose data lies on several sets: each part of an operation is done at one moment, all of it is not.
//!
//! What is taken for right although a file on one set would not do it:
//! - A read learns the length at one moment, and each unit's bytes at others.
//! - The bytes of a write at a position are there unit by unit, and the file is longer last. If the file gets shorter, or an
//!   append comes between, such a write is tried again, and what each try wrote is visible meanwhile.
//! - The times of the file show last that room was reserved, or a hole made.
//! - What was written at a position beyond the end, and was not answered, may show in parts when the file grows.

use crate::content::pieces;
use crate::emit::Emitter;
use crate::inode::{Ask, Told};
use crate::names::Obj;
use ids::{Fid, SetId};
use std::collections::BTreeMap;
use std::ops::Range;
use wire::{Body, Op};

/// Where the data of such a file lies.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct Parted {
    /// From here on in units.
    pub base: u64,
    /// Bytes of a unit. What is before the base lies together.
    pub unit: u64,
    /// The sets that have units, whether or not the file's own is among them, and since when.
    pub sets: BTreeMap<SetId, u64>,
    /// The set of unit n is the one at n modulo their number; empty: there were several layouts.
    pub order: Vec<SetId>,
    /// When a client was first told of the layout.
    pub told: Option<u64>,
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

    /// Whether a write that began then brought something to this set for certain.
    pub(crate) fn surely_wrote(&self, set: SetId, begun: u64, op: &Op, len: u64) -> bool {
        let Op::Write { offset, append: false, .. } = *op else { return false };
        let written = offset.max(self.base)..offset.saturating_add(len);
        let of = |part: &Range<u64>| {
            let unit = usize::try_from(part.start / self.unit.max(1)).unwrap_or(0);
            unit.checked_rem(self.order.len()).and_then(|n| self.order.get(n)) == Some(&set)
        };
        self.told.is_some_and(|told| told < begun) && self.parts(written).iter().any(of)
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
        let place = if append { self.crosses_base(n, fid)? } else { offset };
        let (payload, mut end) = (&r.payload, place.saturating_add(r.payload.len() as u64));
        if let Some((_, Ok((Body::Written { len, .. }, _)))) = &r.answer {
            // An append that was cut off: the rest was not written.
            end = end.min(place.saturating_add(u64::from(*len)));
        }
        let again = if append { 0 } else { self.tries(n) - 1 };
        for part in parted.parts(place..end) {
            let data = data_of(payload, place, &part);
            // What lies in the file itself makes it longer at once.
            let ask = |torn| match part.start < parted.base {
                true => Ask::Write { at: Some(part.start), data: data.clone(), kill_suid: false, torn },
                false => Ask::Part { at: part.start, data: data.clone(), torn },
            };
            for torn in std::iter::repeat_n(true, again).chain([false]) {
                self.ask_of(n, obj, ask(torn), Some(Told::Done), None);
            }
        }
        Some(self.ask_of(n, obj, Ask::Grow { end, kill_suid }, Some(Told::Done), None))
    }

    /// Room that is reserved, or a hole: the file's times show that at last, after the units have it, and what lies in the file
    /// itself shows it at first.
    pub(crate) fn parted_allocation(&mut self, n: usize, obj: Obj, fid: Fid, told: Option<Told>) {
        let Op::Fallocate { offset, .. } = self.records[n].op else { return };
        let Some(base) = self.excuses.parted.get(&fid).map(|parted| parted.base) else { return };
        if offset < base {
            self.touched(n, obj, told.clone());
        }
        self.touched(n, obj, told);
    }

    /// How often a write at a position was tried.
    fn tries(&self, n: usize) -> usize {
        self.excuses.placed.get(&n).map_or(1, Vec::len).max(1)
    }

    /// What may show some time of a write that nobody knows of. Of an append nothing shows beside what lies in the file itself:
    /// before the file grows otherwise the pieces lose what it has left there. `torn`: unless it failed for a fault.
    pub(crate) fn strays(&mut self, n: usize, obj: Obj, fid: Fid, torn: bool) {
        let r = &self.records[n];
        let Op::Write { offset, append, .. } = r.op else { return };
        let Some(parted) = self.excuses.parted.get(&fid) else { return };
        let tried = || self.excuses.placed.get(&n).cloned().unwrap_or_default();
        let places = if append { tried() } else { vec![offset; self.tries(n)] };
        let (payload, len) = (&r.payload, r.payload.len() as u64);
        for place in places {
            self.own_part(n, obj, fid, place);
            for part in parted.parts(place..place.saturating_add(len)).into_iter().filter(|_| torn || !append)
            {
                let ask = Ask::Part { at: part.start, data: data_of(payload, place, &part), torn: true };
                self.ask_of(n, obj, ask, None, None);
            }
        }
    }

    /// What of a write lies in the file itself makes it longer at once, also if the rest is never done.
    fn own_part(&mut self, n: usize, obj: Obj, fid: Fid, place: u64) {
        let (payload, end) =
            (&self.records[n].payload, place.saturating_add(self.records[n].payload.len() as u64));
        let Some(base) = self.excuses.parted.get(&fid).map(|parted| parted.base) else { return };
        if place < base && base < end {
            let data = data_of(payload, place, &(place..base));
            let ask = Ask::Write { at: Some(place), data, kill_suid: false, torn: false };
            self.ask_of(n, obj, ask, None, None);
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
