//! Files whose data lies on several sets (docs/design/0029), as the set of such a file sees them: they become striped when they
//! grow large, and their pieces are cut when they get shorter.
//!
//! Always true: who does not know that a file is striped is told nothing of its content, and nobody is while it is cut
//! ([`crate::piece_jobs`]).

use crate::brick::LocalBrick;
use crate::core::{Cx, SetCore};
use crate::growing::{Growing, Growth};
use crate::io::ReplyTo;
use crate::piece_jobs::Job;
use crate::placing::length_after;
use crate::request::AdmittedRequest;
use crate::waiters::Waiter;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use bytes::Bytes;
use ids::{Fid, SetId};
use namespace::placement::Turns;
use wire::limits::STRIPES_MAX;
use wire::op::SetAttr;
use wire::stripes::CutBy;
use wire::{Body, Errno, Fail, Op, Reply};

/// Files that become striped, or are cut, at the same time, at most.
pub(crate) const JOBS: usize = 64;
/// Turns that are taken for a piece, at most.
const TURNS: usize = 8;
/// Files of which it is remembered whether they are striped, at most.
const REMEMBERED: usize = 16_384;

/// How files are striped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct StripeSettings {
    /// Pieces of a file, at most.
    pub count: u64,
    /// Bytes of a unit.
    pub unit: u64,
}

/// What a file is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FileKind {
    Plain,
    Striped,
    Piece,
}

/// See the module.
pub(crate) struct Striping<R> {
    known: BTreeMap<Fid, FileKind>,
    last: u64,
    pub(crate) jobs: BTreeMap<u64, Job<R>>,
    pub(crate) growing: Growing,
    turns: Turns,
}

impl<R> Default for Striping<R> {
    fn default() -> Self {
        let (known, jobs) = (BTreeMap::new(), BTreeMap::new());
        Striping { known, last: 0, jobs, growing: Growing::default(), turns: Turns::default() }
    }
}

impl<R> Striping<R> {
    /// A change touches what is kept of that file.
    pub(crate) fn forget(&mut self, fid: Fid) {
        self.known.remove(&fid);
    }

    /// A file was made.
    pub(crate) fn note_new(&mut self, fid: Fid) {
        if self.known.len() < REMEMBERED {
            self.known.insert(fid, FileKind::Plain);
        }
    }

    /// Whether that piece is being made for a file.
    pub(crate) fn makes(&self, piece: Fid) -> bool {
        self.jobs.values().any(|job| job.pieces.iter().any(|p| p.fid == piece))
    }

    pub(crate) fn is_at_work(&self, file: Fid) -> bool {
        self.jobs.values().any(|job| job.file == file)
    }

    pub(crate) fn begin(&mut self, job: Job<R>) -> u64 {
        self.last += 1;
        self.jobs.insert(self.last, job);
        self.last
    }
}

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// What a file is.
    pub(crate) fn kind_of(&mut self, fid: Fid) -> Result<FileKind, Errno> {
        if let Some(kind) = self.striping.known.get(&fid) {
            return Ok(*kind);
        }
        let kind = if self.brick.piece_of(fid)?.is_some() {
            FileKind::Piece
        } else if self.brick.stripes(fid)?.is_some() {
            FileKind::Striped
        } else {
            FileKind::Plain
        };
        if self.striping.known.len() >= REMEMBERED {
            self.striping.known.clear();
        }
        self.striping.known.insert(fid, kind);
        Ok(kind)
    }

    /// Whether a file is striped. If that cannot be seen it may be.
    pub(crate) fn may_be_striped(&mut self, fid: Fid) -> bool {
        self.kind_of(fid) != Ok(FileKind::Plain)
    }

    /// Looks at requests about the content of striped files and pieces: the request, if it is for others to answer.
    pub(crate) fn look_at_stripes(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        request: AdmittedRequest<R>,
    ) -> Option<AdmittedRequest<R>> {
        let answer = match &request.op {
            Op::Read { fid, .. }
            | Op::Write { fid, .. }
            | Op::Fallocate { fid, .. }
            | Op::Lseek { fid, .. }
            | Op::SetAttr { fid, set: SetAttr { size: Some(_), .. } }
            | Op::Stripes { fid }
            | Op::Append { fid, .. }
            | Op::Extend { fid, .. }
            | Op::ReadPiece { fid, .. }
            | Op::PieceAttr { fid, .. }
            | Op::WritePiece { fid, .. }
            | Op::AllocatePiece { fid, .. } => self.kind_of(*fid),
            Op::CopyRange { from, to, .. } => match self.kind_of(*from) {
                Ok(FileKind::Plain) => self.kind_of(*to),
                other => other,
            },
            _ => return Some(request),
        };
        let piece = matches!(
            request.op,
            Op::ReadPiece { .. } | Op::PieceAttr { .. } | Op::WritePiece { .. } | Op::AllocatePiece { .. }
        );
        let answer = match answer {
            Ok(FileKind::Plain) if !request.op.is_about_stripes() => return Some(request),
            Ok(FileKind::Piece) if piece => return Some(request),
            Ok(FileKind::Striped) => return self.look_at_striped(cx, request),
            // It says what it has always said.
            Err(Errno::ESTALE | Errno::ENOENT) if !request.op.is_about_stripes() => return Some(request),
            Ok(FileKind::Plain | FileKind::Piece) => Errno::ESTALE,
            Err(e) => e,
        };
        self.reply_when_all_committed(
            cx,
            Waiter { reply: Reply::errno(answer.0), ..Waiter::done(request.to) },
        );
        None
    }

    fn look_at_striped(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        request: AdmittedRequest<R>,
    ) -> Option<AdmittedRequest<R>> {
        let (Op::Read { fid, .. }
        | Op::Write { fid, .. }
        | Op::Fallocate { fid, .. }
        | Op::Lseek { fid, .. }
        | Op::CopyRange { to: fid, .. }) = &request.op
        else {
            let fid = request.op.object()?;
            return self.look_at_whole(cx, fid, request);
        };
        if let Err(Errno::ESTALE | Errno::ENOENT) = self.brick.attr(*fid) {
            return Some(request);
        }
        // Who knows what a striped file is asks for its layout; others must not take what lies here for all.
        let reply = Reply::errno(Errno::EOPNOTSUPP.0);
        self.reply_when_all_committed(cx, Waiter { reply, ..Waiter::done(request.to) });
        None
    }

    /// A request of somebody who knows that the file is striped, or its new length.
    fn look_at_whole(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        fid: Fid,
        request: AdmittedRequest<R>,
    ) -> Option<AdmittedRequest<R>> {
        let seen = self.brick.stripes(fid).and_then(|s| Ok((s.ok_or(Errno::ESTALE)?, self.brick.attr(fid)?)));
        let (stripes, attr) = match seen {
            Ok(seen) => seen,
            Err(e) => {
                let reply = Reply::errno(e.0);
                self.reply_when_all_committed(cx, Waiter { reply, ..Waiter::done(request.to) });
                return None;
            }
        };
        if stripes.cut.is_some() || self.striping.is_at_work(fid) {
            self.resume_cut(cx, fid);
            self.refuse(cx, request.to, Fail::Busy);
            return None;
        }
        match &request.op {
            Op::SetAttr { set, .. } if set.size.is_some_and(|size| size < attr.size) => {
                let (end, then) = (set.size.unwrap_or(0), CutBy { op: request.id, set: set.clone() });
                self.cut(cx, fid, (end, Some(then)), Some(request));
                None
            }
            Op::Append { ticket, .. } => {
                let by = (request.session, *ticket);
                self.append(cx, by, (stripes.layout, attr), request);
                None
            }
            Op::Extend { generation, append: 0, .. } if *generation != stripes.layout.generation => {
                Some(request)
            }
            Op::Extend { end, append, .. } => {
                let (end, append) = (*end, *append);
                self.extend(cx, &attr, (end, append), request)
            }
            Op::SetAttr { set, .. } if set.size.is_some_and(|size| size > attr.size) => {
                self.grow(cx, &attr, Growth::AtOnce, request)
            }
            // What lies in the file itself makes it longer at once.
            Op::WritePiece { offset, .. }
                if offset.saturating_add(request.payload.len() as u64) > attr.size =>
            {
                // An append begins where the file ends.
                let appends = *offset == attr.size && self.striping.growing.appends(fid, request.session);
                if appends { Some(request) } else { self.grow(cx, &attr, Growth::AtOnce, request) }
            }
            Op::Stripes { .. } => {
                let told = Ok((Body::Stripes { layout: stripes.layout, attr }, Bytes::new()));
                self.reply_when_committed(cx, request.to, [fid].into(), told);
                None
            }
            _ => Some(request),
        }
    }

    /// Has a file become striped that a request would have grow large; otherwise the request.
    pub(crate) fn stripe_first(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        request: AdmittedRequest<R>,
    ) -> Option<AdmittedRequest<R>> {
        let (Some(settings), Some(large)) = (self.settings.stripes, self.settings.large) else {
            return Some(request);
        };
        let Some((fid, length, _)) = length_after(&request.op, request.payload.len()) else {
            return Some(request);
        };
        let Ok(attr) = self.brick.attr(fid) else { return Some(request) };
        let end = length.end(attr.size);
        if attr.size >= large || end < large || !request.is_trusted {
            return Some(request);
        }
        if self.striping.is_at_work(fid) {
            self.refuse(cx, request.to, Fail::Busy);
            return None;
        }
        let sets = self.sets_for_pieces(cx, settings.count);
        let may = attr.mode & 0o170_000 == 0o100_000
            && sets.len() > 1
            && self.striping.jobs.len() < JOBS
            && !self.departures.arrivals.are_under_way(cx.at.now, fid)
            && !self.departures.moves(fid)
            && !self.is_held(cx.at.now, &attr)
            && !self.may_be_striped(fid);
        if !may {
            return Some(request);
        }
        let (left, generation) = (sets.len(), self.next_generation(0));
        let number = self.striping.begin(Job::to_make(fid, (generation, settings.unit), sets, request));
        (0..left).for_each(|n| self.ask_of_piece(cx, number, n));
        None
    }

    /// The sets that get the pieces of the next file, by turns in proportion to their room.
    fn sets_for_pieces(&mut self, cx: &Cx<'_, B, R>, count: u64) -> Vec<SetId> {
        let mut rooms = self.rooms(cx);
        rooms.retain(|room| room.writable && room.available > 0);
        let many = usize::try_from(count).unwrap_or(STRIPES_MAX).min(STRIPES_MAX).min(rooms.len());
        let mut sets: Vec<SetId> = Vec::new();
        let mut tries = many * TURNS;
        while sets.len() < many && tries > 0 {
            tries -= 1;
            if let Some(set) = self.striping.turns.next(self.set, &rooms).filter(|set| !sets.contains(set)) {
                sets.push(set);
            }
        }
        // One that has nearly all room has most turns.
        rooms.sort_by_key(|room| core::cmp::Reverse(room.available));
        let others: Vec<SetId> =
            rooms.iter().map(|room| room.set).filter(|set| !sets.contains(set)).collect();
        sets.extend(others.into_iter().take(many - sets.len()));
        sets
    }

    /// This brick leads no more.
    pub(crate) fn clear_striping(&mut self, cx: &mut Cx<'_, B, R>) {
        let epoch = self.replica.view().epoch;
        // Answers to what was asked for these jobs may come later: none has the number of a later one.
        let anew = Striping { last: self.striping.last, ..Striping::default() };
        let jobs = core::mem::replace(&mut self.striping, anew).jobs;
        for request in jobs.into_values().filter_map(|job| job.request) {
            self.refuse(cx, request.to, Fail::WrongView { epoch });
        }
    }
}
