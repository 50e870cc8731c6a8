//! Files whose data lies on several sets (docs/design/0029): what is done to a piece, and to the file itself.
//!
//! Always true: a piece is read and written only by a layout of its own generation.

use crate::decide::{Context, Decision, fallocate, result_fid, touch, without_suid, write};
use crate::tree_state::TreeState;
use alloc::vec::Vec;
use ids::{Fid, Time};
use wire::codec::Blob;
use wire::stripes::{Cut, CutBy, Layout, PIECE, PieceOf, STRIPES, Stripes};
use wire::{Body, Change, Errno, Name, Op};

/// fallocate(2): the length stays.
const KEEP_SIZE: u32 = 1;

/// Operations that only striped files need. `EINVAL`: it changes nothing.
pub(crate) fn decide_striped(op: &Op, view: &mut dyn TreeState, cx: &Context<'_>) -> Result<Decision, Errno> {
    match op {
        Op::WritePiece { fid, generation, offset } => {
            check_generation(view, *fid, *generation)?;
            write(view, cx, *fid, *offset, false, false)
        }
        Op::AllocatePiece { fid, generation, mode, offset, len } => {
            check_generation(view, *fid, *generation)?;
            // What moves data within a file would move it to other pieces.
            if !allocates(*mode) {
                return Err(Errno::EOPNOTSUPP);
            }
            fallocate(view, cx, *fid, *mode | KEEP_SIZE, *offset, *len)
        }
        Op::Extend { fid, generation, end, append: _, kill_suid } => {
            let stripes = view.stripes(*fid)?.filter(|s| s.layout.generation == *generation);
            stripes.ok_or(Errno::ESTALE)?;
            extend(view, cx, *fid, *end, *kill_suid)
        }
        Op::Stripe { fid, layout } => stripe(view, *fid, layout),
        Op::FencePiece { fid, generation } => fence(view, cx, *fid, *generation),
        Op::TrimPiece { fid, generation, end } => trim(view, cx, *fid, (*generation, *end)),
        _ => Err(Errno::EINVAL),
    }
}

/// Whether fallocate(2) in this mode neither moves data nor does what is not known.
pub fn allocates(mode: u32) -> bool {
    const PUNCH_HOLE: u32 = 2;
    const ZERO: u32 = 0x10;
    matches!(mode & !KEEP_SIZE, 0 | PUNCH_HOLE | ZERO)
}

/// Whether a piece, or what lies in the file itself, is read and written by the layout of this generation.
///
/// # Errors
/// `ESTALE` if it is not; those of the brick.
pub fn check_generation(view: &mut dyn TreeState, fid: Fid, generation: u64) -> Result<(), Errno> {
    let has = match view.piece_of(fid)? {
        Some(piece) => Some(piece.generation),
        None => view.stripes(fid)?.map(|s| s.layout.generation),
    };
    if has == Some(generation) { Ok(()) } else { Err(Errno::ESTALE) }
}

/// The file is at least so long; what was written shows in its times.
fn extend(
    view: &mut dyn TreeState,
    cx: &Context<'_>,
    fid: Fid,
    end: u64,
    kill_suid: bool,
) -> Result<Decision, Errno> {
    let attr = view.attr(fid)?;
    if i64::try_from(end).is_err() {
        return Err(Errno::EFBIG);
    }
    let mode = if kill_suid { without_suid(&attr) } else { None };
    let (time, size) = (touch(&attr, cx.now), (end > attr.size).then_some(end));
    let (uid, gid, atime, mtime) = (None, None, None, Some(time));
    result_fid(fid, Change::SetAttr { fid, mode, uid, gid, size, atime, mtime, time })
}

/// The file becomes striped. What it has by now stays in it.
fn stripe(view: &mut dyn TreeState, fid: Fid, layout: &Layout) -> Result<Decision, Errno> {
    let attr = view.attr(fid)?;
    if attr.mode & 0o170_000 != 0o100_000 || view.stripes(fid)?.is_some() {
        return Err(Errno::EEXIST);
    }
    if view.is_pending(fid)? {
        return Err(Errno::EAGAIN);
    }
    let base = attr.size.checked_next_multiple_of(layout.unit).ok_or(Errno::EFBIG)?;
    let layout = Layout { base, ..layout.clone() };
    if !layout.is_sound() {
        return Err(Errno::EINVAL);
    }
    keep(fid, STRIPES, &Stripes { layout, cut: None }.encode(), attr.ctime)
}

/// A cut begins: its change.
///
/// # Errors
/// `ESTALE` if the file is not striped; those of the brick.
pub fn begin_cut(
    view: &mut dyn TreeState,
    fid: Fid,
    (generation, end): (u64, u64),
    then: Option<CutBy>,
) -> Result<Change, Errno> {
    let stripes = view.stripes(fid)?.ok_or(Errno::ESTALE)?;
    let cut = Some(Cut { generation, end, then });
    change(fid, STRIPES, &Stripes { cut, ..stripes }.encode(), view.attr(fid)?.ctime)
}

/// A cut is over: its change.
///
/// # Errors
/// `ESTALE` if none is under way, or another one; those of the brick.
pub fn end_cut(view: &mut dyn TreeState, fid: Fid, generation: u64) -> Result<Change, Errno> {
    let stripes = view.stripes(fid)?.ok_or(Errno::ESTALE)?;
    stripes.cut.filter(|cut| cut.generation == generation).ok_or(Errno::ESTALE)?;
    let layout = Layout { generation, ..stripes.layout };
    change(fid, STRIPES, &Stripes { layout, cut: None }.encode(), view.attr(fid)?.ctime)
}

fn fence(view: &mut dyn TreeState, cx: &Context<'_>, fid: Fid, generation: u64) -> Result<Decision, Errno> {
    let piece = view.piece_of(fid)?.ok_or(Errno::ESTALE)?;
    if piece.generation == generation {
        return Ok(Decision::Answer(Body::Done));
    }
    if piece.generation > generation {
        return Err(Errno::ESTALE);
    }
    keep(fid, PIECE, &PieceOf { generation, ..piece }.encode(), cx.now)
}

fn trim(
    view: &mut dyn TreeState,
    cx: &Context<'_>,
    fid: Fid,
    (generation, end): (u64, u64),
) -> Result<Decision, Errno> {
    let piece = view.piece_of(fid)?.filter(|piece| piece.generation == generation);
    piece.ok_or(Errno::ESTALE)?;
    let attr = view.attr(fid)?;
    if attr.size <= end {
        return Ok(Decision::Answer(Body::Done));
    }
    // Without a time each brick would give its own.
    let (size, time) = (Some(end), touch(&attr, cx.now));
    let (mode, uid, gid, atime, mtime) = (None, None, None, None, Some(time));
    result_fid(fid, Change::SetAttr { fid, mode, uid, gid, size, atime, mtime, time })
}

/// Whether a piece is cut.
///
/// # Errors
/// `ESTALE` if it is not, or is no piece; those of the brick.
pub fn check_cut(view: &mut dyn TreeState, fid: Fid, generation: u64, end: u64) -> Result<(), Errno> {
    let piece = view.piece_of(fid)?.is_some_and(|piece| piece.generation == generation);
    if piece && view.attr(fid)?.size <= end { Ok(()) } else { Err(Errno::ESTALE) }
}

/// Whether a file has this piece.
///
/// # Errors
/// `ESTALE` if it has not, or is not there; those of the brick.
pub fn check_piece(view: &mut dyn TreeState, file: Fid, piece: Fid) -> Result<(), Errno> {
    view.attr(file)?;
    let has = view.stripes(file)?.is_some_and(|s| s.layout.pieces.contains(&piece));
    if has { Ok(()) } else { Err(Errno::ESTALE) }
}

fn change(fid: Fid, name: &str, value: &[u8], time: Time) -> Result<Change, Errno> {
    let name = Name::new(name.as_bytes()).map_err(|_| Errno::EINVAL)?;
    Ok(Change::SetXattr { fid, name, value: Blob(Vec::from(value)), time })
}

fn keep(fid: Fid, name: &str, value: &[u8], time: Time) -> Result<Decision, Errno> {
    result_fid(fid, change(fid, name, value, time)?)
}
