//! Pieces of striped files (docs/design/0029), as the set of a piece sees them: objects without a name, which stay as long as
//! their file's set says that the file has them.
//!
//! Always true: a piece goes only after its file's set has said for [`ALONE_FOR`] that no file has it, and has that on disk.

use crate::brick::LocalBrick;
use crate::core::{Cx, SetCore};
use crate::elsewhere::Asking;
use crate::io::ReplyTo;
use crate::request::AdmittedRequest;
use crate::stripes::FileKind;
use alloc::collections::{BTreeMap, BTreeSet};
use bytes::Bytes;
use core::time::Duration;
use ids::Fid;
use namespace::stripes::{check_cut, check_generation, check_piece};
use wire::limits::IO_MAX;
use wire::{Body, Change, Errno, Fail, Op};

/// So long a file has to be without its piece: an object that its set does not find by its number may be found by its name.
const ALONE_FOR: Duration = Duration::from_secs(30);
/// Between two times that all pieces are asked for.
const PASS: Duration = Duration::from_secs(10);
/// Pieces that are asked for at the same time, at most.
const TOGETHER: usize = 32;
/// Pieces without a file that are remembered, at most.
const REMEMBERED: usize = 16_384;

/// What is known of the files that this set's pieces belong to.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    asked: BTreeSet<Fid>,
    /// Since when their files do not have them.
    alone: BTreeMap<Fid, Duration>,
    /// All pieces that are met now are asked for.
    passes: bool,
    next_pass: Duration,
}

impl Pieces {
    /// All nameless objects are listed anew.
    pub(crate) fn begin_listing(&mut self, now: Duration) {
        self.passes = now >= self.next_pass;
        if self.passes {
            self.next_pass = now + PASS;
        }
    }

    /// Whether one more piece may be asked for.
    pub(crate) fn may_ask(&self) -> bool {
        !self.passes || self.asked.len() < TOGETHER
    }
}

impl<B: LocalBrick, R: ReplyTo> SetCore<B, R> {
    /// Answers what is read of a piece, and what sets ask each other about one; any other request.
    pub(crate) fn serve_piece(
        &mut self,
        cx: &mut Cx<'_, B, R>,
        request: AdmittedRequest<R>,
    ) -> Option<AdmittedRequest<R>> {
        let (fid, answer) = match request.op {
            Op::ReadPiece { fid, generation, offset, len } => {
                let answer = check_generation(&mut self.brick, fid, generation);
                if answer.is_ok() {
                    self.serve_data(cx, fid, offset, len.min(IO_MAX), request.to);
                    return None;
                }
                (fid, answer.map(|()| Body::Done))
            }
            Op::PieceAttr { fid, generation } => {
                let answer = check_generation(&mut self.brick, fid, generation);
                (fid, answer.and_then(|()| self.brick.attr(fid)).map(|attr| Body::Attr { attr }))
            }
            Op::CheckCut { fid, generation, end } => {
                (fid, check_cut(&mut self.brick, fid, generation, end).map(|()| Body::Done))
            }
            Op::CheckPiece { file, piece } if self.striping.makes(piece) => (file, Ok(Body::Done)),
            Op::CheckPiece { file, piece } => {
                (file, check_piece(&mut self.brick, file, piece).map(|()| Body::Done))
            }
            _ => return Some(request),
        };
        let answer = answer.map(|body| (body, Bytes::new()));
        self.reply_when_committed(cx, request.to, [fid].into(), answer);
        None
    }

    /// Whether a nameless object is a piece. If that cannot be seen it may be one.
    pub(crate) fn may_be_piece(&mut self, fid: Fid) -> bool {
        !matches!(
            self.kind_of(fid),
            Ok(FileKind::Plain | FileKind::Striped) | Err(Errno::ESTALE | Errno::ENOENT)
        )
    }

    /// Asks whether its file has a piece still.
    pub(crate) fn check_piece(&mut self, cx: &mut Cx<'_, B, R>, piece: Fid) {
        if !self.pieces.passes || self.pieces.asked.contains(&piece) {
            return;
        }
        if let Ok(Some(of)) = self.brick.piece_of(piece) {
            self.pieces.asked.insert(piece);
            let op = Op::CheckPiece { file: of.file, piece };
            self.ask(cx, Asking::PieceChecked(piece), of.file.set, op, None);
        }
    }

    /// Its file's set has answered.
    pub(crate) fn on_piece_checked(&mut self, cx: &mut Cx<'_, B, R>, piece: Fid, answer: Result<Body, Fail>) {
        let gone = matches!(answer, Err(Fail::Errno { errno }) if matches!(Errno(errno), Errno::ESTALE | Errno::ENOENT));
        if !gone {
            self.pieces.asked.remove(&piece);
            if answer.is_ok() {
                self.pieces.alone.remove(&piece);
            }
            return;
        }
        if self.pieces.alone.len() >= REMEMBERED {
            self.pieces.alone.clear();
        }
        let since = *self.pieces.alone.entry(piece).or_insert(cx.at.now);
        match self.brick.piece_of(piece) {
            Ok(Some(of)) if cx.at.now >= since + ALONE_FOR => {
                self.ask(cx, Asking::PieceGone(piece), of.file.set, Op::SyncFs, None);
            }
            _ => drop(self.pieces.asked.remove(&piece)),
        }
    }

    /// Its file's set has on disk that no file has it.
    pub(crate) fn on_piece_gone(&mut self, cx: &mut Cx<'_, B, R>, piece: Fid, answer: &Result<Body, Fail>) {
        self.pieces.asked.remove(&piece);
        self.pieces.alone.remove(&piece);
        let arrives = self.departures.arrivals.are_under_way(cx.at.now, piece);
        if answer.is_ok() && !arrives && self.is_primary() && self.brick.is_orphan(piece) {
            self.order_own(cx, Change::DropOrphan { fid: piece });
        }
    }
}
