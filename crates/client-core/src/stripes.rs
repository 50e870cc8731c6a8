//! Files whose data lies on several sets (docs/design/0029): which part of an operation goes where, and what follows from the
//! answers.
//!
//! Always true: what is written beyond a file's end counts when its own set has said so, after all pieces have it; and what is
//! read or written by a layout that is over is read or written again by the present one.

mod known;

pub use known::{ContentCall, StripedFiles, Way, by_object, is_before_loss};

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;
use core::time::Duration;

use ids::{Epoch, Fid, SetId};
use wire::stripes::Layout;
use wire::{Attr, Body, Errno, Op};

/// An operation is given up that pieces refuse so often by the layout that the file's set says is the present one.
const REFUSALS: u32 = 12;
/// Ranges that are reserved in one go.
const AT_ONCE: u64 = 256;
/// fallocate(2).
const KEEP_SIZE: u32 = 1;
const PUNCH_HOLE: u32 = 2;
const ZERO: u32 = 0x10;
/// lseek(2).
const SEEK_DATA: u32 = 3;

/// What is known of a striped file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Known {
    /// Where its data lies.
    pub layout: Layout,
    /// It is at least so long, as long as it has this layout.
    pub size: u64,
    /// Before which epoch its set had lost changes when that was told.
    pub lost_before: Epoch,
}

/// What is to be done.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// As pread(2).
    Read {
        /// The first byte.
        offset: u64,
        /// Bytes.
        len: u32,
    },
    /// As pwrite(2).
    Write {
        /// The first byte; without meaning if it appends.
        offset: u64,
        /// Bytes.
        len: u32,
        /// At the end, under this ticket, which is no other's of the session; 0: not.
        append: u64,
        /// Clear setuid and setgid.
        kill_suid: bool,
    },
    /// As fallocate(2).
    Allocate {
        /// How.
        mode: u32,
        /// The first byte.
        offset: u64,
        /// Bytes.
        len: u64,
    },
    /// As lseek(2): all of the file counts as data.
    Seek {
        /// From where on.
        offset: u64,
        /// `SEEK_DATA` or `SEEK_HOLE`.
        whence: u32,
    },
    /// All pieces are brought to disk.
    Sync,
    /// The pieces' attributes are asked for: they are others if the data is.
    Look,
}

/// A question to a set.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Question {
    /// The set.
    pub set: SetId,
    /// What.
    pub op: Op,
    /// The part of the operation's data that goes with it or comes back.
    pub data: Range<usize>,
}

/// What comes next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// Ask all of this at the same time, after this time; then say [`StripedCall::answered`]. What comes back short is zeros.
    Ask(Duration, Vec<Question>),
    /// That is the result.
    End(Result<Answer, Errno>),
}

/// The result of an operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Answer {
    /// So many bytes were read.
    Read(u32),
    /// So many were written.
    Written(u32, Attr),
    /// Data, or a hole, is there.
    Offset(u64),
    /// The generation of the layout, and the attributes of all pieces in their order.
    Looked(u64, Vec<Attr>),
    /// It is done.
    Done,
    /// The file is not striped, or is gone: it is to be asked for as any other.
    Plain,
}

/// A range of a file that lies in one object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part {
    /// The piece, or the file itself.
    pub fid: Fid,
    /// The first byte, in the file and in the object alike.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

/// The next part of a file from `offset` on, up to `end`.
fn part(layout: &Layout, file: Fid, offset: u64, end: u64) -> Part {
    if offset < layout.base {
        return Part { fid: file, offset, len: end.min(layout.base) - offset };
    }
    let unit = offset / layout.unit;
    let many = (layout.pieces.len() as u64).max(1);
    let piece = usize::try_from(unit % many).ok().and_then(|n| layout.pieces.get(n));
    let until = (unit + 1).saturating_mul(layout.unit);
    Part { fid: piece.copied().unwrap_or(file), offset, len: end.min(until) - offset }
}

/// Where a range lies: parts in their order.
pub fn parts(layout: &Layout, file: Fid, range: Range<u64>) -> Vec<Part> {
    let (mut at, mut parts) = (range.start, Vec::new());
    while at < range.end {
        let next = part(layout, file, at, range.end);
        at += next.len;
        parts.push(next);
    }
    parts
}

/// Whether fallocate(2) in this mode makes holes, or zeros, in what the file has, and leaves its length.
fn punches_within(mode: u32) -> bool {
    mode & KEEP_SIZE > 0 && mode & (PUNCH_HOLE | ZERO) > 0
}

/// All pieces are asked at the same time.
fn ask_pieces(layout: &Layout, op: impl Fn(Fid) -> Op) -> Step {
    let ask = |fid: &Fid| Question { set: fid.set, op: op(*fid), data: 0..0 };
    Step::Ask(Duration::ZERO, layout.pieces.iter().map(ask).collect())
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Layout,
    Data,
    /// What of an append lies in the file itself is written after all else, as it makes the file longer.
    Own,
    Extend,
    /// An append was cut off behind what lies in the file itself: that is done, and must not be done again.
    Landed,
    /// It failed like this, and nobody waits for its append any more.
    Release(Errno),
}

/// One operation on a striped file.
#[derive(Debug)]
pub struct StripedCall {
    file: Fid,
    home: SetId,
    what: What,
    layout: Option<Layout>,
    size: u64,
    stage: Stage,
    /// How far ranges are reserved.
    at: u64,
    refused: u32,
    /// The part of an append that lies in the file itself.
    own: Option<Part>,
    /// Where a hole is being punched.
    punching: Vec<Fid>,
    /// Where it is. It is not punched there again: others may have written there by then.
    punched: Vec<Fid>,
}

impl StripedCall {
    /// An operation begins on a file of set `home`, of which that is known.
    pub fn begin((file, home): (Fid, SetId), what: What, known: Option<&Known>) -> (StripedCall, Step) {
        let at = if let What::Allocate { offset, .. } = what { offset } else { 0 };
        let (layout, stage, own) = (None, Stage::Layout, None);
        let (size, refused, punching, punched) = (0, 0, Vec::new(), Vec::new());
        let mut call =
            StripedCall { file, home, what, layout, size, stage, at, refused, own, punching, punched };
        let step = match known {
            Some(known) if call.is_enough(known) => {
                (call.layout, call.size) = (Some(known.layout.clone()), known.size);
                call.go()
            }
            _ => call.ask_layout(),
        };
        (call, step)
    }

    /// What was learnt of the file: its layout, and how long it is at least.
    pub fn learnt(self) -> Option<(Layout, u64)> {
        self.layout.map(|layout| (layout, self.size))
    }

    /// Whether the operation needs nothing that may have changed without a new layout.
    fn is_enough(&self, known: &Known) -> bool {
        match self.what {
            What::Read { offset, len } => offset.saturating_add(len.into()) <= known.size,
            What::Write { append, .. } => append == 0,
            What::Allocate { mode, offset, len } if punches_within(mode) => {
                offset.saturating_add(len) <= known.size
            }
            What::Allocate { .. } | What::Look => true,
            What::Seek { .. } | What::Sync => false,
        }
    }

    fn ask_layout(&mut self) -> Step {
        self.stage = Stage::Layout;
        let fid = self.file;
        let op = match self.what {
            What::Write { append: ticket, .. } if ticket > 0 => Op::Append { fid, ticket },
            _ => Op::Stripes { fid },
        };
        let pause = match self.refused {
            0 => Duration::ZERO,
            n => Duration::from_millis(1 << n.min(7)),
        };
        self.ask_home(pause, op)
    }

    fn ask_home(&self, pause: Duration, op: Op) -> Step {
        Step::Ask(pause, vec![Question { set: self.home, op, data: 0..0 }])
    }

    /// The answers to all questions of the last step, in their order.
    pub fn answered(&mut self, answers: Vec<Result<Body, Errno>>) -> Step {
        if let Stage::Release(errno) = self.stage {
            return Step::End(Err(errno));
        }
        let stale = answers.contains(&Err(Errno::ESTALE));
        let punched = self.punching.drain(..).zip(&answers).filter(|(_, answer)| answer.is_ok());
        self.punched.extend(punched.map(|(fid, _)| fid));
        match self.stage {
            // A server of before does not know the question.
            Stage::Layout if stale || answers.contains(&Err(Errno::EINVAL)) => {
                return Step::End(Ok(Answer::Plain));
            }
            Stage::Extend if stale && self.own.is_some() => {
                self.stage = Stage::Landed;
                return self.ask_home(Duration::ZERO, Op::Stripes { fid: self.file });
            }
            _ if stale && self.stage != Stage::Landed => {
                self.refused += 1;
                return if self.refused < REFUSALS { self.ask_layout() } else { self.fail(Errno::EIO) };
            }
            _ => {}
        }
        if let Some(errno) = answers.iter().find_map(|answer| answer.as_ref().err()) {
            return self.fail(*errno);
        }
        if (self.stage, self.what) == (Stage::Data, What::Look) {
            return self.looked(answers);
        }
        match (self.stage, answers.into_iter().next()) {
            (Stage::Layout, Some(Ok(Body::Stripes { layout, attr }))) if layout.is_sound() => {
                if self.layout.as_ref().is_none_or(|before| before.generation != layout.generation) {
                    self.at = if let What::Allocate { offset, .. } = self.what { offset } else { 0 };
                    self.refused = self.refused.min(1);
                }
                (self.layout, self.size) = (Some(layout), attr.size);
                self.go()
            }
            (Stage::Landed, Some(Ok(Body::Stripes { layout, attr }))) if layout.is_sound() => {
                (self.layout, self.size) = (Some(layout), attr.size);
                let len = self.own.map_or(0, |own| own.len);
                Step::End(u32::try_from(len).map(|len| Answer::Written(len, attr)).map_err(|_| Errno::EIO))
            }
            (Stage::Data, _) if self.own.is_some() => self.ask_own(),
            (Stage::Data | Stage::Own, _) => self.after_data(),
            (Stage::Extend, Some(Ok(Body::Attr { attr }))) => {
                self.size = self.size.max(attr.size);
                Step::End(Ok(match self.what {
                    What::Write { len, .. } => Answer::Written(len, attr),
                    _ => Answer::Done,
                }))
            }
            _ => self.fail(Errno::EIO),
        }
    }

    fn looked(&self, answers: Vec<Result<Body, Errno>>) -> Step {
        let generation = self.generation();
        let attr = |answer| if let Ok(Body::Attr { attr }) = answer { Some(attr) } else { None };
        let attrs: Option<Vec<Attr>> = answers.into_iter().map(attr).collect();
        Step::End(attrs.map(|attrs| Answer::Looked(generation, attrs)).ok_or(Errno::EIO))
    }

    fn fail(&mut self, errno: Errno) -> Step {
        match (self.what, &self.layout) {
            // The file's set waits for the end of the append.
            (What::Write { append, .. }, Some(layout))
                if append > 0 && !matches!(self.stage, Stage::Layout | Stage::Landed) =>
            {
                let (fid, generation, end, kill_suid) = (self.file, layout.generation, 0, false);
                let op = Op::Extend { fid, generation, end, append, kill_suid };
                self.stage = Stage::Release(errno);
                self.ask_home(Duration::ZERO, op)
            }
            _ => Step::End(Err(errno)),
        }
    }

    /// The first byte that is written.
    fn written_from(&self, offset: u64, append: u64) -> u64 {
        if append > 0 { self.size } else { offset }
    }

    /// The layout is known.
    fn go(&mut self) -> Step {
        self.stage = Stage::Data;
        let Some(layout) = self.layout.clone() else { return self.fail(Errno::EIO) };
        let generation = layout.generation;
        match self.what {
            What::Read { offset, len } => {
                let end = offset.saturating_add(len.into()).min(self.size);
                if offset >= end {
                    return Step::End(Ok(Answer::Read(0)));
                }
                let op = |part: &Part, len| {
                    let (fid, offset) = (part.fid, part.offset);
                    Op::ReadPiece { fid, generation, offset, len }
                };
                self.ask_parts(offset, &parts(&layout, self.file, offset..end), op)
            }
            What::Write { offset, len, append, .. } => {
                let from = self.written_from(offset, append);
                match from.checked_add(len.into()).filter(|end| i64::try_from(*end).is_ok()) {
                    None => self.fail(Errno::EFBIG),
                    Some(end) => self.write_parts(&parts(&layout, self.file, from..end), from, append > 0),
                }
            }
            What::Allocate { mode, offset, len } => self.allocate(&layout, mode, offset, len),
            What::Seek { offset, .. } if offset >= self.size => Step::End(Err(Errno::ENXIO)),
            What::Seek { offset, whence: SEEK_DATA } => Step::End(Ok(Answer::Offset(offset))),
            What::Seek { .. } => Step::End(Ok(Answer::Offset(self.size))),
            What::Sync => ask_pieces(&layout, |fid| Op::Fsync { fid }),
            What::Look => ask_pieces(&layout, |fid| Op::PieceAttr { fid, generation }),
        }
    }

    fn generation(&self) -> u64 {
        self.layout.as_ref().map_or(0, |layout| layout.generation)
    }

    fn write_parts(&mut self, parts: &[Part], from: u64, appends: bool) -> Step {
        match parts.split_first() {
            Some((own, others)) if appends && own.fid == self.file => {
                self.own = Some(*own);
                if others.is_empty() { self.ask_own() } else { self.ask_writes(from, others) }
            }
            _ => {
                self.own = None;
                self.ask_writes(from, parts)
            }
        }
    }

    fn ask_own(&mut self) -> Step {
        self.stage = Stage::Own;
        let own = self.own;
        self.ask_writes(self.size, own.as_slice())
    }

    fn ask_writes(&self, from: u64, parts: &[Part]) -> Step {
        let generation = self.generation();
        self.ask_parts(from, parts, |part, _| Op::WritePiece {
            fid: part.fid,
            generation,
            offset: part.offset,
        })
    }

    /// Questions about parts of an operation that begins at that position.
    fn ask_parts(&self, from: u64, parts: &[Part], op: impl Fn(&Part, u32) -> Op) -> Step {
        let mut questions = Vec::new();
        for part in parts {
            // One operation has less than that.
            let len = u32::try_from(part.len).unwrap_or(u32::MAX);
            let at = usize::try_from(part.offset - from).unwrap_or(usize::MAX);
            let data = at..at.saturating_add(len as usize);
            questions.push(Question { set: self.set_of(part.fid), op: op(part, len), data });
        }
        Step::Ask(Duration::ZERO, questions)
    }

    fn set_of(&self, fid: Fid) -> SetId {
        if fid == self.file { self.home } else { fid.set }
    }

    /// A hole is punched in all pieces at once: where a piece has nothing there is nothing to punch. Zeros are a hole, too.
    fn allocate(&mut self, layout: &Layout, mode: u32, offset: u64, len: u64) -> Step {
        let end = offset.checked_add(len).filter(|end| i64::try_from(*end).is_ok());
        let (Some(end), true) = (end, len > 0) else {
            return Step::End(Err(if len == 0 { Errno::EINVAL } else { Errno::EFBIG }));
        };
        let (generation, keeps) = (layout.generation, mode);
        let (punches, mode) = match mode & !KEEP_SIZE {
            0 => (false, KEEP_SIZE),
            PUNCH_HOLE | ZERO => (true, KEEP_SIZE | PUNCH_HOLE),
            _ => return Step::End(Err(Errno::EOPNOTSUPP)),
        };
        let ranges: Vec<Part> = if punches {
            self.at = end;
            // What lies beyond the end may be an append's that is under way.
            let end = if punches_within(keeps) { end.min(self.size) } else { end };
            if offset >= end {
                return self.after_data();
            }
            let before = (offset < layout.base).then(|| part(layout, self.file, offset, end));
            let from = offset.max(layout.base);
            let of_piece = |fid: &Fid| Part { fid: *fid, offset: from, len: end - from };
            let pieces = layout.pieces.iter().filter(|_| from < end).map(of_piece);
            let mut ranges: Vec<Part> = before.into_iter().chain(pieces).collect();
            if punches_within(keeps) {
                ranges.retain(|part| !self.punched.contains(&part.fid));
                self.punching = ranges.iter().map(|part| part.fid).collect();
            }
            if ranges.is_empty() {
                return self.after_data();
            }
            ranges
        } else {
            let until = self.at.max(layout.base).saturating_add(layout.unit.saturating_mul(AT_ONCE)).min(end);
            let ranges = parts(layout, self.file, self.at..until);
            self.at = until;
            ranges
        };
        let ask = |p: Part| {
            let op = Op::AllocatePiece { fid: p.fid, generation, mode, offset: p.offset, len: p.len };
            Question { set: self.set_of(p.fid), op, data: 0..0 }
        };
        Step::Ask(Duration::ZERO, ranges.into_iter().map(ask).collect())
    }

    /// All pieces have it, or have told it.
    fn after_data(&mut self) -> Step {
        let (end, append, kill_suid) = match self.what {
            What::Read { offset, len } => {
                let read = offset.saturating_add(len.into()).min(self.size).saturating_sub(offset);
                return Step::End(Ok(Answer::Read(u32::try_from(read).unwrap_or(len))));
            }
            What::Sync | What::Seek { .. } | What::Look => return Step::End(Ok(Answer::Done)),
            What::Allocate { offset, len, .. } if self.at < offset.saturating_add(len) => return self.go(),
            What::Allocate { mode, offset, len } => {
                (if mode & KEEP_SIZE == 0 { offset.saturating_add(len) } else { 0 }, 0, false)
            }
            What::Write { offset, len, append, kill_suid } => {
                (self.written_from(offset, append).saturating_add(len.into()), append, kill_suid)
            }
        };
        let Some(layout) = &self.layout else { return self.fail(Errno::EIO) };
        self.stage = Stage::Extend;
        let (fid, generation) = (self.file, layout.generation);
        self.ask_home(Duration::ZERO, Op::Extend { fid, generation, end, append, kill_suid })
    }
}

#[cfg(test)]
mod tests;
