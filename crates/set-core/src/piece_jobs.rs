//! What becomes of the pieces of striped files (docs/design/0029): they are made before their file has a layout, and cut before
//! it is shorter.
//!
//! Always true: pieces are on disk before a layout names them, and cut, on disk, before a file is shorter. A cut that was not
//! confirmed by all pieces begins anew under another generation, so what comes late of the old one does nothing.

use crate::brick::LocalBrick;
use crate::change::Ask;
use crate::core::{Cx, SetCore};
use crate::elsewhere::Asking;
use crate::io::{Output, ReplyTo};
use crate::request::AdmittedRequest;
use crate::stripes::JOBS;
use crate::waiters::Waiter;
use alloc::vec::Vec;
use bytes::Bytes;
use ids::{Fid, OpId, SetId};
use namespace::Decision;
use namespace::stripes::{begin_cut, end_cut};
use replica::Admission;
use wire::stripes::{Cut, CutBy, Layout, PIECE, PieceOf, Stripes};
use wire::{Body, Errno, Fail, Name, Op};

/// What is asked of a piece's set, one after the other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Step {
    /// To make it, and to note whose it is.
    Arrive,
    Mark,
    /// Or to refuse older layouts, and to drop what is too much.
    Fence,
    Trim,
    /// To have that on disk, and whether no power cut came between.
    Sync,
    Check,
}

impl Step {
    fn next(self) -> Option<Step> {
        match self {
            Step::Arrive => Some(Step::Mark),
            Step::Fence => Some(Step::Trim),
            Step::Mark | Step::Trim => Some(Step::Sync),
            Step::Sync => Some(Step::Check),
            Step::Check => None,
        }
    }
}

/// How far a job is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    /// The mark of a cut is brought to disk.
    Marking,
    /// The pieces' sets are asked; so many have to answer.
    Asking(usize),
    /// The layout is about to be the file's.
    Naming,
    /// The file is as long as it is to be, which is brought to disk.
    Ending,
    /// The note of the cut is gone, which is brought to disk: a note that came back would cut what was written since.
    Clearing,
}

#[derive(Debug)]
pub(crate) struct PieceJob {
    set: SetId,
    pub(crate) fid: Fid,
    step: Step,
}

/// A file that becomes striped, or whose pieces are cut.
pub(crate) struct Job<R> {
    pub(crate) file: Fid,
    generation: u64,
    /// Pieces end there.
    end: u64,
    /// Of one that becomes striped.
    unit: Option<u64>,
    stage: Stage,
    pub(crate) pieces: Vec<PieceJob>,
    pub(crate) request: Option<AdmittedRequest<R>>,
}

impl<R> Job<R> {
    /// A file that a request would have grow large is to have a piece on each of these sets.
    pub(crate) fn to_make(
        file: Fid,
        (generation, unit): (u64, u64),
        sets: Vec<SetId>,
        request: AdmittedRequest<R>,
    ) -> Job<R> {
        let stage = Stage::Asking(sets.len());
        let piece = |set| PieceJob { set, fid: Fid::default(), step: Step::Arrive };
        let pieces = sets.into_iter().map(piece).collect();
        Job { file, generation, end: 0, unit: Some(unit), stage, pieces, request: Some(request) }
    }
}

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// None that a set gave before it lost changes comes again, as the epoch is a newer one then.
    pub(crate) fn next_generation(&self, last: u64) -> u64 {
        let first = u64::from(self.replica.view().epoch.0) << 32;
        first.max(last.saturating_add(1))
    }

    /// Goes on with a cut that an earlier primary has begun, or that failed.
    pub(crate) fn resume_cut(&mut self, cx: &mut Cx<'_, B, R>, fid: Fid) {
        if self.striping.is_at_work(fid) {
            return;
        }
        if let Ok(Some(cut)) = self.brick.stripes(fid).map(|s| s.and_then(|s| s.cut)) {
            self.cut(cx, fid, (cut.end, cut.then), None);
        }
    }

    /// Begins a cut: it is noted first, so that whoever leads next goes on with it.
    pub(crate) fn cut(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        fid: Fid,
        (end, then): (u64, Option<CutBy>),
        request: Option<AdmittedRequest<R>>,
    ) {
        if self.striping.jobs.len() >= JOBS {
            return request.into_iter().for_each(|r| self.refuse(cx, r.to, Fail::Busy));
        }
        let begun = self.brick.stripes(fid).and_then(|stripes| {
            let stripes = stripes.ok_or(Errno::ESTALE)?;
            let before = stripes.cut.map_or(0, |cut| cut.generation).max(stripes.layout.generation);
            let generation = self.next_generation(before);
            let change = begin_cut(&mut self.brick, fid, (generation, end), then)?;
            self.brick.validate(&change)?;
            Ok((generation, stripes.layout.pieces, change))
        });
        let (generation, pieces, change) = match begun {
            Ok(begun) => begun,
            Err(e) => return request.into_iter().for_each(|r| self.refuse(cx, r.to, e.into())),
        };
        self.order_own(cx, change);
        let piece = |fid: Fid| PieceJob { set: fid.set, fid, step: Step::Fence };
        let pieces = pieces.into_iter().map(piece).collect();
        let (unit, stage) = (None, Stage::Marking);
        let number = self.striping.begin(Job { file: fid, generation, end, unit, stage, pieces, request });
        self.ask(cx, Asking::Striping(number), self.set, Op::Fsync { fid }, None);
    }

    /// Asks a piece's set for the next step.
    pub(crate) fn ask_of_piece(&mut self, cx: &mut Cx<'_, B, R>, number: u64, n: usize) {
        let Some(job) = self.striping.jobs.get(&number) else { return };
        let Some(piece) = job.pieces.get(n) else { return };
        let (fid, generation, end, mut payload) = (piece.fid, job.generation, job.end, Bytes::new());
        let op = match piece.step {
            Step::Arrive => Op::Arrive,
            Step::Mark => {
                payload = PieceOf { file: job.file, generation }.encode().into();
                let Ok(name) = Name::new(PIECE.as_bytes()) else { return };
                Op::SetXattr { fid, name, flags: 0 }
            }
            Step::Fence => Op::FencePiece { fid, generation },
            Step::Trim => Op::TrimPiece { fid, generation, end },
            Step::Sync => Op::Fsync { fid },
            Step::Check => Op::CheckCut { fid, generation, end },
        };
        let (id, set) = (self.asks.issue(Asking::Piece(number, n)), piece.set);
        cx.out.push(Output::Ask { id, set, op, name: None, payload });
    }

    /// A piece's set has answered.
    pub(crate) fn on_piece(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        (number, n): (u64, usize),
        answer: Result<Body, Fail>,
    ) {
        let body = match answer {
            Ok(body) => body,
            Err(fail) => return self.give_up_striping(cx, number, &fail),
        };
        let Some(job) = self.striping.jobs.get_mut(&number) else { return };
        let Some(piece) = job.pieces.get_mut(n) else { return };
        if piece.step == Step::Arrive {
            let Body::Attr { attr } = body else {
                return self.give_up_striping(cx, number, &Errno::EIO.into());
            };
            piece.fid = attr.fid;
        }
        if let Some(next) = piece.step.next() {
            piece.step = next;
            return self.ask_of_piece(cx, number, n);
        }
        match job.stage {
            Stage::Asking(left) if left > 1 => job.stage = Stage::Asking(left - 1),
            Stage::Asking(_) => self.on_all_pieces(cx, number),
            Stage::Marking | Stage::Naming | Stage::Ending | Stage::Clearing => {}
        }
    }

    /// All pieces are made, or cut, and on disk.
    fn on_all_pieces(&mut self, cx: &mut Cx<'_, B, R>, number: u64) {
        let Some(job) = self.striping.jobs.get_mut(&number) else { return };
        if let Some(unit) = job.unit {
            job.stage = Stage::Naming;
            let pieces = job.pieces.iter().map(|piece| piece.fid).collect();
            let layout = Layout { generation: job.generation, base: 0, unit, pieces };
            let op = Op::Stripe { fid: job.file, layout };
            return self.ask(cx, Asking::Striping(number), self.set, op, None);
        }
        let fid = job.file;
        job.stage = Stage::Ending;
        let cut = self.brick.stripes(fid).ok().flatten().and_then(|s| s.cut);
        let done = match cut {
            Some(cut) => cut.then.is_none_or(|by| self.shorten(cx, fid, by)),
            None => false,
        };
        if done {
            self.ask(cx, Asking::Striping(number), self.set, Op::Fsync { fid }, None);
        } else {
            self.give_up_striping(cx, number, &Fail::Busy);
        }
    }

    /// Carries out what a cut was for, unless that is done already; false if it cannot be done now. It is answered when it is
    /// on disk: what is noted goes on after a power cut, so nobody may see that it was done, and lost.
    fn shorten(&mut self, cx: &mut Cx<'_, B, R>, fid: Fid, CutBy { op: id, set }: CutBy) -> bool {
        let epoch = self.replica.view().epoch;
        let mut admission = self.replica.admit(cx.at.now, epoch, id, 0);
        let mut id = id;
        if self.replica.is_finished(id) && matches!(admission, Admission::Busy) {
            // Its client was answered, or has given up. While the cut is noted nobody else changes the length.
            if self.brick.attr(fid).is_ok_and(|attr| set.size.is_some_and(|end| attr.size <= end)) {
                return true;
            }
            id = OpId::default();
            admission = self.replica.admit(cx.at.now, epoch, id, 0);
        }
        let op = Op::SetAttr { fid, set };
        let decision = match admission {
            Admission::Go => self.decide(cx, &op, Ask { id, ..Ask::default() }),
            _ => Err(Errno::EAGAIN),
        };
        let Ok(decision @ Decision::Change(..)) = decision else {
            return matches!(admission, Admission::Done(_));
        };
        self.carry_out(cx, id, Ok(decision), Bytes::new(), Waiter::nobody());
        true
    }

    /// Whether a change that a cut needs was carried out: there may be no room for it, for example.
    fn is_carried_out(&mut self, stage: Stage, file: Fid, (generation, end): (u64, u64)) -> bool {
        let cut = |stripes: Stripes| stripes.cut.filter(|cut| cut.generation == generation);
        let noted = self.brick.stripes(file).ok().flatten().and_then(cut);
        match (stage, noted) {
            (Stage::Asking(_) | Stage::Naming, _) => true,
            (Stage::Marking, noted) => noted.is_some(),
            (Stage::Ending, Some(Cut { then: None, .. })) => true,
            (Stage::Ending, Some(_)) => self.brick.attr(file).is_ok_and(|attr| attr.size <= end),
            (Stage::Ending, None) => false,
            (Stage::Clearing, noted) => noted.is_none(),
        }
    }

    /// This set has done what a job needs.
    pub(crate) fn on_striping(&mut self, cx: &mut Cx<'_, B, R>, number: u64, answer: Result<Body, Fail>) {
        if let Err(fail) = answer.and_then(|_| if self.is_primary() { Ok(()) } else { Err(Fail::Busy) }) {
            return self.give_up_striping(cx, number, &fail);
        }
        let Some(job) = self.striping.jobs.get(&number) else { return };
        let (file, generation, end, stage) = (job.file, job.generation, job.end, job.stage);
        if !self.is_carried_out(stage, file, (generation, end)) {
            return self.give_up_striping(cx, number, &Fail::Busy);
        }
        let Some(job) = self.striping.jobs.get_mut(&number) else { return };
        match stage {
            Stage::Marking => {
                let many = job.pieces.len();
                job.stage = Stage::Asking(many);
                (0..many).for_each(|n| self.ask_of_piece(cx, number, n));
            }
            Stage::Asking(_) => {}
            Stage::Naming => {
                self.striping.growing.note_fenced(cx.at.now, file);
                let job = self.striping.jobs.remove(&number);
                self.serve_again(cx, job.and_then(|job| job.request));
            }
            Stage::Ending => {
                job.stage = Stage::Clearing;
                let request = job.request.take();
                match end_cut(&mut self.brick, file, generation) {
                    Ok(change) => self.order_own(cx, change),
                    Err(_) => return self.give_up_striping(cx, number, &Fail::Busy),
                }
                request.into_iter().for_each(|request| self.answer_cut(cx, request));
                self.ask(cx, Asking::Striping(number), self.set, Op::Fsync { fid: file }, None);
            }
            Stage::Clearing => {
                self.striping.jobs.remove(&number);
                self.striping.growing.note_fenced(cx.at.now, file);
            }
        }
    }

    /// The file is shorter, on disk.
    fn answer_cut(&mut self, cx: &mut Cx<'_, B, R>, request: AdmittedRequest<R>) {
        let epoch = self.replica.view().epoch;
        match self.replica.admit(cx.at.now, epoch, request.id, 0) {
            Admission::Done(outcome) => self.answer_again(cx, request, outcome),
            _ => self.refuse(cx, request.to, Fail::Busy),
        }
    }

    /// A job ends without success. A file that is not striped stays so; a cut begins anew with whoever asks next.
    fn give_up_striping(&mut self, cx: &mut Cx<'_, B, R>, number: u64, why: &Fail) {
        let Some(job) = self.striping.jobs.remove(&number) else { return };
        tracing::debug!("{}: striping or cutting {} is given up: {why:?}", self.settings.name, job.file);
        self.striping.growing.forget(job.file);
        let Some(request) = job.request else { return };
        match (job.unit, self.admit_again(cx, request.id)) {
            (_, Err(fail)) => self.refuse(cx, request.to, fail),
            // Nothing is noted, so nothing was done.
            (None, Ok(())) if job.stage == Stage::Marking && !self.has_room(0) => {
                self.refuse(cx, request.to, Errno::ENOSPC.into());
            }
            (None, Ok(())) => self.refuse(cx, request.to, Fail::Busy),
            // If nobody knows whether it was done, what is there says.
            (Some(_), Ok(())) if job.stage == Stage::Naming => self.refuse(cx, request.to, Fail::Busy),
            (Some(_), Ok(())) => self.change_here(cx, request),
        }
    }

    fn serve_again(&mut self, cx: &mut Cx<'_, B, R>, request: Option<AdmittedRequest<R>>) {
        let Some(request) = request else { return };
        match self.admit_again(cx, request.id) {
            Ok(()) => self.serve_change(cx, request),
            Err(fail) => self.refuse(cx, request.to, fail),
        }
    }
}
