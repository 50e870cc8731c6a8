//! What a file contains, as runs of bytes that are alike.

use std::sync::Arc;

/// A set of byte values.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Values([u64; 4]);

impl Values {
    fn add(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] |= 1 << (byte & 63);
    }

    fn take(&mut self, byte: u8) {
        self.0[usize::from(byte >> 6)] &= !(1 << (byte & 63));
    }

    fn has(&self, byte: u8) -> bool {
        self.0[usize::from(byte >> 6)] & (1 << (byte & 63)) != 0
    }

    fn join(&mut self, other: Values) {
        self.0.iter_mut().zip(other.0).for_each(|(a, b)| *a |= b);
    }
}

/// One byte, as often as its run is long: what it is, may be since a loss, and was since the last sync.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Byte {
    now: u8,
    maybe: Values,
    since: Values,
}

impl Byte {
    fn may_be(&self, byte: u8) -> bool {
        self.now == byte || self.maybe.has(byte)
    }

    fn set(&mut self, byte: u8, tracked: bool) {
        self.copy(Byte { now: byte, ..Byte::default() }, tracked);
    }

    /// Becomes what another byte is, or may be.
    fn copy(&mut self, of: Byte, tracked: bool) {
        if tracked {
            self.since.add(self.now);
            self.since.join(self.maybe);
            if of.maybe == Values::default() {
                self.since.take(of.now);
            }
        }
        (self.now, self.maybe) = (of.now, of.maybe);
    }

    /// It is perhaps this one instead. A loss then leaves what it was before.
    fn perhaps(&mut self, byte: u8, tracked: bool) {
        if self.now == byte && self.maybe == Values::default() {
            return;
        }
        if tracked {
            self.since.add(self.now);
            self.since.join(self.maybe);
        }
        if self.now != byte {
            self.maybe.add(byte);
        }
    }

    fn is_zero(&self) -> bool {
        *self == Byte::default()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Run {
    /// The first byte behind it.
    end: u64,
    byte: Byte,
}

/// The bytes of a file. Behind the last run are zeros.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub(crate) struct Content(Arc<Vec<Run>>);

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut from = 0;
        for run in self.0.iter() {
            write!(f, "{from}..{}={}", run.end, run.byte.now)?;
            let others = (0..=255).filter(|b| run.byte.maybe.has(*b));
            others.into_iter().try_for_each(|b| write!(f, "|{b}"))?;
            write!(f, " ")?;
            from = run.end;
        }
        Ok(())
    }
}

/// A part of a file that has one value: how long, which.
pub(crate) type Piece = (u64, u8);

/// The runs of some data.
pub(crate) fn pieces(data: &[u8]) -> Vec<Piece> {
    let mut out: Vec<Piece> = Vec::new();
    for chunk in data.chunk_by(|a, b| a == b) {
        let len = u64::try_from(chunk.len()).unwrap_or(u64::MAX);
        out.extend(chunk.first().map(|b| (len, *b)));
    }
    out
}

impl Content {
    /// Changes the bytes of a range; ranges that come out alike are one run again.
    fn change(&mut self, from: u64, to: u64, mut change: impl FnMut(&mut Byte)) {
        if from >= to {
            return;
        }
        let mut out: Vec<Run> = Vec::with_capacity(self.0.len() + 2);
        let mut push = |end: u64, byte: Byte| match out.last_mut() {
            Some(last) if last.byte == byte => last.end = end,
            _ => out.push(Run { end, byte }),
        };
        let mut at = 0;
        let tail = Run { end: u64::MAX, byte: Byte::default() };
        for run in self.0.iter().chain([&tail]) {
            if at >= run.end {
                continue;
            }
            let (begin, end) = (from.clamp(at, run.end), to.clamp(at, run.end));
            if begin > at {
                push(begin, run.byte);
            }
            if end > begin {
                let mut byte = run.byte;
                change(&mut byte);
                push(end, byte);
            }
            if run.end > end {
                push(run.end, run.byte);
            }
            at = run.end;
        }
        while out.last().is_some_and(|r| r.byte.is_zero()) {
            out.pop();
        }
        self.0 = Arc::new(out);
    }

    /// The runs within a range.
    fn range(&self, from: u64, to: u64) -> Vec<(u64, Byte)> {
        let mut out = Vec::new();
        let mut at = 0;
        let tail = Run { end: u64::MAX, byte: Byte::default() };
        for run in self.0.iter().chain([&tail]) {
            let (begin, end) = (from.max(at), to.min(run.end));
            if begin < end {
                out.push((end - begin, run.byte));
            }
            at = run.end;
        }
        out
    }

    pub(crate) fn write(&mut self, at: u64, pieces: &[Piece], tracked: bool) {
        let mut at = at;
        for (len, value) in pieces {
            self.change(at, at.saturating_add(*len), |b| b.set(*value, tracked));
            at = at.saturating_add(*len);
        }
    }

    /// These bytes were perhaps written.
    pub(crate) fn perhaps(&mut self, at: u64, pieces: &[Piece], tracked: bool) {
        let mut at = at;
        for (len, value) in pieces {
            self.change(at, at.saturating_add(*len), |b| b.perhaps(*value, tracked));
            at = at.saturating_add(*len);
        }
    }

    /// Nobody knows where in the range these pieces are.
    pub(crate) fn somewhere(&mut self, from: u64, to: u64, pieces: &[Piece], tracked: bool) {
        for (_, value) in pieces {
            self.perhaps(from, &[(to.saturating_sub(from), *value)], tracked);
        }
    }

    /// These bytes are there unless something was lost; what was there before may be there still.
    pub(crate) fn likely(&mut self, at: u64, pieces: &[Piece]) {
        let mut at = at;
        for (len, value) in pieces {
            self.change(at, at.saturating_add(*len), |b| {
                if b.now != *value {
                    b.maybe.add(b.now);
                    b.maybe.take(*value);
                    b.now = *value;
                }
            });
            at = at.saturating_add(*len);
        }
    }

    pub(crate) fn zero(&mut self, from: u64, to: u64, tracked: bool) {
        self.change(from, to, |b| {
            if !b.is_zero() {
                b.set(0, tracked);
            }
        });
    }

    /// The file turns out to end here, and what is behind it may show when it grows: it lies on other sets.
    pub(crate) fn hide_from(&mut self, size: u64) {
        self.change(size, u64::MAX, |b| {
            if b.now != 0 {
                b.maybe.add(b.now);
                b.now = 0;
            }
        });
    }

    /// The file turns out to end here: what may be behind it is not.
    pub(crate) fn end_at(&mut self, size: u64) {
        self.change(size, u64::MAX, |b| (b.now, b.maybe) = (0, Values::default()));
    }

    pub(crate) fn sync(&mut self) {
        self.change(0, u64::MAX, |b| b.since = Values::default());
    }

    pub(crate) fn settle(&mut self) {
        self.change(0, u64::MAX, |b| b.maybe = Values::default());
    }

    pub(crate) fn lose(&mut self) {
        self.change(0, u64::MAX, |b| {
            let since = std::mem::take(&mut b.since);
            b.maybe.join(since);
            b.maybe.take(b.now);
        });
    }

    /// These bytes were read. Whether they show that something was lost; `None`: they can't be that.
    pub(crate) fn show(&mut self, at: u64, pieces: &[Piece]) -> Option<bool> {
        let (mut from, mut lost) = (at, false);
        for (len, value) in pieces {
            let to = from + len;
            let there = self.range(from, to);
            if !there.iter().all(|(_, b)| b.may_be(*value)) {
                return None;
            }
            let open = there.iter().any(|(_, b)| b.now != *value || b.maybe != Values::default());
            if open {
                lost |= there.iter().any(|(_, b)| b.now != *value);
                self.change(from, to, |b| (b.now, b.maybe) = (*value, Values::default()));
            }
            from = to;
        }
        Some(lost)
    }

    /// Whether all bytes of the range may be zero; whether they certainly are.
    pub(crate) fn zeros(&self, from: u64, to: u64) -> (bool, bool) {
        let there = self.range(from, to);
        let certain = |b: &Byte| b.now == 0 && b.maybe == Values::default();
        (there.iter().all(|(_, b)| b.may_be(0)), there.iter().all(|(_, b)| certain(b)))
    }

    /// A copy of bytes of another file, or of this one.
    pub(crate) fn copy(&mut self, at: u64, from: &Content, range: std::ops::Range<u64>, tracked: bool) {
        let mut at = at;
        for (len, source) in from.range(range.start, range.end) {
            self.change(at, at + len, |b| b.copy(source, tracked));
            at += len;
        }
    }

    /// A copy of bytes that were perhaps there.
    pub(crate) fn perhaps_copy(
        &mut self,
        at: u64,
        from: &Content,
        range: std::ops::Range<u64>,
        tracked: bool,
    ) {
        let mut at = at;
        for (len, source) in from.range(range.start, range.end) {
            self.perhaps(at, &[(len, source.now)], tracked);
            for value in (0..=255).filter(|v| source.maybe.has(*v)) {
                self.perhaps(at, &[(len, value)], tracked);
            }
            at += len;
        }
    }

    /// Everything from `from` on moves to `to`; what lies between is zeros, or goes.
    pub(crate) fn shift(&mut self, from: u64, to: u64, tracked: bool) {
        let old = self.clone();
        let last = old.0.last().map_or(0, |r| r.end);
        self.zero(from.min(to), u64::MAX, tracked);
        if last > from {
            self.copy(to, &old, from..last, tracked);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_cut_and_joined() {
        let mut c = Content::default();
        c.write(10, &[(10, 7)], false);
        assert_eq!(c.show(0, &[(10, 0), (10, 7), (5, 0)]), Some(false));
        assert_eq!(c.show(0, &[(11, 0)]), None);
        c.write(12, &[(2, 9), (2, 7)], false);
        assert_eq!(c.show(10, &[(2, 7), (2, 9), (6, 7)]), Some(false));
        c.write(12, &[(2, 7)], false);
        let mut again = Content::default();
        again.write(10, &[(10, 7)], false);
        assert_eq!(c, again);
        c.zero(0, 100, false);
        assert_eq!(c, Content::default());
    }

    #[test]
    fn a_loss_leaves_each_byte_what_it_was_at_some_time() {
        let mut c = Content::default();
        c.write(0, &[(10, 1)], true);
        c.sync();
        c.write(0, &[(10, 2)], true);
        c.write(5, &[(5, 3)], true);
        c.lose();
        assert_eq!(c.clone().show(0, &[(10, 0)]), None, "what was synced is there");
        assert_eq!(c.clone().show(0, &[(1, 3)]), None);
        assert_eq!(c.clone().show(0, &[(5, 2), (5, 3)]), Some(false));
        assert_eq!(c.show(0, &[(3, 1), (3, 2), (1, 1), (3, 3)]), Some(true));
        assert_eq!(c.show(0, &[(10, 2)]), None, "it was seen what it is");
    }

    /// The source turns out to be something else than what the copy had before.
    #[test]
    fn a_loss_takes_a_copy_of_what_is_not_certain() {
        let mut source = Content::default();
        source.perhaps(0, &[(4, 7)], false);
        let mut c = Content::default();
        c.copy(0, &source, 0..4, true);
        assert_eq!(c.show(0, &[(4, 7)]), Some(true));
        c.lose();
        assert_eq!(c.show(0, &[(2, 7), (2, 0)]), Some(true));
    }

    #[test]
    fn a_loss_takes_what_was_perhaps_written() {
        let mut c = Content::default();
        c.write(0, &[(4, 1)], true);
        c.sync();
        c.perhaps(0, &[(4, 2)], true);
        assert_eq!(c.show(0, &[(4, 2)]), Some(true), "it was written");
        c.lose();
        assert_eq!(c.clone().show(0, &[(4, 2)]), Some(false));
        assert_eq!(c.clone().show(0, &[(2, 1), (2, 2)]), Some(true));
        assert_eq!(c.clone().show(0, &[(4, 0)]), None, "what was synced is there");
        c.somewhere(0, 4, &[(2, 3)], true);
        c.sync();
        c.lose();
        assert_eq!(c.show(0, &[(4, 1)]), Some(true), "the same as before: nobody has seen which");
    }

    #[test]
    fn bytes_move() {
        let mut c = Content::default();
        c.write(0, &[(4, 1), (4, 2), (4, 3)], false);
        c.shift(8, 4, false);
        assert_eq!(c.show(0, &[(4, 1), (4, 3), (8, 0)]), Some(false));
        c.shift(4, 6, false);
        assert_eq!(c.show(0, &[(4, 1), (2, 0), (4, 3), (8, 0)]), Some(false));
    }
}
