//! From a request to a change.
//!
//! Permission bits are checked by the client's kernel (`default_permissions`), or by [`crate::permission`]; here are the rules
//! that need the truth: existence, types, emptiness, loops, inheritance of groups.

use crate::departures::decide_departure;
use crate::files::{check_unmarked, decide_joint, is_empty, link, unlink};
use crate::hand_over::decide_hand_over;
use crate::rename::rename;
use crate::stripes::decide_striped;
use crate::transaction::{Mark, Prepared, end_mark};
use crate::tree_state::{Entry, TreeState};
use crate::xattrs::{remove_xattr, set_xattr};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use ids::{Epoch, Fid, Lsn, OpId, SetId, Time};
use wire::limits::{IO_MAX, TARGET_MAX};
use wire::name::RESERVED;
use wire::op::{Ancestor, EntryName, Node, SetAttr, SetTime, Successor};
use wire::{Attr, Body, Change, Errno, Name, Op};

const S_ISUID: u32 = 0o4000;
const S_ISGID: u32 = 0o2000;
pub(crate) const MODE_BITS: u32 = 0o7777;

/// What the primary adds to a request: its identity in the order, the time, and what only it knows.
pub struct Context<'a> {
    /// The set that decides.
    pub set: SetId,
    /// Its present epoch.
    pub epoch: Epoch,
    /// The position that the change will have.
    pub lsn: Lsn,
    /// The primary's present time.
    pub now: Time,
    /// The set on which a new directory shall live, and its fid there if it was placed already.
    pub placed: Option<(SetId, Fid)>,
    /// Bytes of the request's payload.
    pub payload: &'a [u8],
    /// Whether any session has the object open.
    pub is_open: &'a dyn Fn(Fid) -> bool,
    /// The request's name.
    pub op: OpId,
    /// The transaction about a file's names that this decides.
    pub tx: OpId,
    /// The transaction that holds a marked directory, if it is known.
    pub holder: &'a dyn Fn(Fid) -> Option<OpId>,
    /// What homes have agreed to, or what is gone there: of a file, that of just these names.
    pub agreed: &'a [Need],
    /// The file that another set has agreed to give a name here.
    pub incoming: Option<&'a Attr>,
    /// Whether a name in the directory waits for the end of a transaction.
    pub holds_names: &'a dyn Fn(Fid) -> bool,
    /// Whether the file is a copy that arrives from another set, and that nobody knows of but who makes it.
    pub is_arriving: &'a dyn Fn(Fid) -> bool,
    /// Whether the file is still as it was when its copy on another set was made, the second one.
    pub is_copied: &'a dyn Fn(Fid, Fid) -> bool,
    /// Whether this primary is giving the directory to that set, by that transaction, and may still do so.
    pub is_given: &'a dyn Fn(Fid, OpId, SetId) -> bool,
    /// Whether this primary has seen the directory taken by that transaction, all of it, and has led without a break since: a loss of
    /// memory may have taken some of it.
    pub has_taken: &'a dyn Fn(Fid, OpId) -> bool,
    /// What lies above directories of other sets, from each of them up to the root, as those sets say under the lock.
    pub above: &'a BTreeMap<Fid, Vec<Fid>>,
}

/// What the home of a file has to agree to before its names change (docs/design/0016).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Need {
    /// The home.
    pub home: SetId,
    /// The file; `None`: what `drop` leads to there.
    pub fid: Option<Fid>,
    /// The name that it is to lose.
    pub drop: Option<EntryName>,
    /// The name that it is to get.
    pub add: Option<EntryName>,
    /// The file goes with the name, if this is what it was copied to.
    pub copy: Option<Fid>,
    /// Its part in an exchange with another set.
    pub exchange: Option<InExchange>,
}

impl Need {
    /// A change of names, and nothing more.
    pub fn of_names(home: SetId, fid: Option<Fid>, drop: Option<EntryName>, add: Option<EntryName>) -> Need {
        Need { home, fid, drop, add, copy: None, exchange: None }
    }
}

/// What a set has to agree to beside a change of names, in an exchange of names of two sets (docs/design/0019).
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum InExchange {
    /// It has the entry `drop`, which leads to this when the transaction has committed.
    Source(Successor),
    /// It is the home of what goes there: whether that has come about is told by the entry of this set.
    Target(SetId),
}

/// What is to be done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Decision {
    /// Carry out this change; the object that the answer is about, if it is about one.
    Change(Change, Option<Fid>),
    /// Nothing to change: answer this.
    Answer(Body),
    /// The directory that the name leads to and that is to go lives on another set, which has to agree first.
    RemoveElsewhere(Entry),
    /// A directory moves beneath this one of another set: what lies above it has to be asked for first, under the lock.
    AskAbove(Fid, SetId),
    /// The home of a file has to agree first.
    AskHome(Need),
}

/// Decides an operation that changes something.
///
/// # Errors
/// The errno that POSIX gives for it; `EXDEV` for what would need two sets and is not built yet.
pub fn decide(op: &Op, view: &mut dyn TreeState, cx: &Context<'_>) -> Result<Decision, Errno> {
    match op {
        Op::Create { parent, name, node, mode, umask, uid, gid, open: _ } => {
            create(view, cx, *parent, name, node, Creds { mode: *mode, umask: *umask, uid: *uid, gid: *gid })
        }
        Op::Unlink { parent, name } => unlink(view, cx, *parent, name),
        Op::Rmdir { parent, name } => rmdir(view, cx, *parent, name),
        Op::Rename { parent, name, to_parent, to_name, flags } => {
            let (from, to) = (NameIn { dir: *parent, name }, NameIn { dir: *to_parent, name: to_name });
            rename(view, cx, from, to, *flags)
        }
        Op::Link { fid, parent, name } => link(view, cx, *fid, *parent, name),
        Op::SetAttr { fid, set } => set_attr(view, cx, *fid, set),
        Op::Write { fid, offset, append, kill_suid } => write(view, cx, *fid, *offset, *append, *kill_suid),
        Op::Fallocate { fid, mode, offset, len } => fallocate(view, cx, *fid, *mode, *offset, *len),
        Op::SetXattr { fid, name, flags } => set_xattr(view, cx, *fid, name, *flags),
        Op::RemoveXattr { fid, name } => remove_xattr(view, cx, *fid, name),
        Op::CopyRange { from, from_offset, to, to_offset, len } => {
            copy_range(view, cx, (*from, *from_offset), (*to, *to_offset), *len)
        }
        Op::PrepareMkdir { path, name, mode, uid, gid } => {
            prepare_mkdir(cx, (path.clone(), name.clone()), *mode, (*uid, *gid))
        }
        Op::PrepareRmdir { fid, by: _ } => prepare_rmdir(view, cx, *fid),
        Op::EndTransaction { fid, tx, keep } => match view.attr(*fid) {
            Err(Errno::ESTALE | Errno::ENOENT) => Ok(Decision::Answer(Body::Done)),
            Err(e) => Err(e),
            Ok(_) if view.intent(*fid)?.is_some() => Ok(Decision::Answer(Body::Done)),
            Ok(_) if !mark(view, cx, *fid)?.is_ended_by(*tx) => Ok(Decision::Answer(Body::Done)),
            Ok(_) => Ok(Decision::Change(end_mark(view, *fid, *keep)?, None)),
        },
        Op::PrepareFile { .. }
        | Op::PrepareExchange { .. }
        | Op::EndFile { .. }
        | Op::MoveIn { .. }
        | Op::LinkIn { .. } => decide_joint(op, view, cx),
        Op::Arrive
        | Op::Land { .. }
        | Op::Depart { .. }
        | Op::DepartAll { .. }
        | Op::Retarget { .. }
        | Op::Redirect { .. }
        | Op::PrepareLeave { .. } => decide_departure(op, view, cx),
        Op::TakeDir { .. } | Op::GiveDir { .. } | Op::EndTaking { .. } => decide_hand_over(op, view, cx),
        // Who tells it may have an old path of what lies above: its set asks for the path itself.
        Op::Relocate { fid, .. } => view.attr(*fid).map(|_| Decision::Answer(Body::Done)),
        other => decide_striped(other, view, cx),
    }
}

/// A directory whose entry another set is about to remove: marked, if it is empty.
fn prepare_rmdir(view: &mut dyn TreeState, cx: &Context<'_>, dir: Fid) -> Result<Decision, Errno> {
    if !view.attr(dir)?.is_dir() {
        return Err(Errno::ENOTDIR);
    }
    match mark(view, cx, dir)?.prepare(cx.op) {
        Prepared::Done => Ok(Decision::Answer(Body::Done)),
        Prepared::Wait => Err(Errno::EAGAIN),
        Prepared::Mark => {
            is_empty(view, cx, dir)?;
            Ok(Decision::Change(Change::PrepareRmdir { fid: dir }, None))
        }
    }
}

fn prepare_mkdir(
    cx: &Context<'_>,
    (path, name): (Vec<Ancestor>, Name),
    mode: u32,
    (uid, gid): (u32, u32),
) -> Result<Decision, Errno> {
    let fid = Fid { set: cx.set, epoch: cx.epoch, lsn: cx.lsn };
    let (mode, time) = (mode & MODE_BITS, cx.now);
    result_fid(fid, Change::PrepareMkdir { path, name, fid, mode, uid, gid, time })
}

/// The mark of a directory.
fn mark(view: &mut dyn TreeState, cx: &Context<'_>, dir: Fid) -> Result<Mark, Errno> {
    Ok(if view.is_pending(dir)? { Mark::Held((cx.holder)(dir)) } else { Mark::Free })
}

pub(crate) fn result_fid(fid: Fid, change: Change) -> Result<Decision, Errno> {
    Ok(Decision::Change(change, Some(fid)))
}

struct Creds {
    mode: u32,
    umask: u32,
    uid: u32,
    gid: u32,
}

#[derive(Clone, Copy)]
pub(crate) struct NameIn<'a> {
    pub(crate) dir: Fid,
    pub(crate) name: &'a Name,
}

/// A time for a change of an object that is later than all it carries: clients and kernels tell versions by it.
pub(crate) fn touch(attr: &Attr, now: Time) -> Time {
    let last = attr.mtime.max(attr.ctime);
    // A ctime far in the future can only come from a clock that was wrong: do not run after it.
    if now > last || last.sec > now.sec.saturating_add(3600) { now } else { last.next() }
}

/// The directory must be able to take an entry.
pub(crate) fn open_dir(view: &mut dyn TreeState, dir: Fid) -> Result<Attr, Errno> {
    let attr = view.attr(dir)?;
    if !attr.is_dir() {
        return Err(Errno::ENOTDIR);
    }
    if view.is_pending(dir)? {
        return Err(Errno::EAGAIN);
    }
    Ok(attr)
}

/// Nothing of users' gets the name of Mortar's own folder.
pub(crate) fn check_name(at: NameIn<'_>) -> Result<(), Errno> {
    if at.dir.is_root() && at.name.as_bytes() == RESERVED { Err(Errno::EPERM) } else { Ok(()) }
}

pub(crate) fn free_name(view: &mut dyn TreeState, at: NameIn<'_>) -> Result<(), Errno> {
    check_name(at)?;
    match view.entry(at.dir, at.name)? {
        Some(entry) => {
            check_unmarked(view, entry)?;
            Err(Errno::EEXIST)
        }
        None => Ok(()),
    }
}

fn create(
    view: &mut dyn TreeState,
    cx: &Context<'_>,
    parent: Fid,
    name: &Name,
    node: &Node,
    who: Creds,
) -> Result<Decision, Errno> {
    let dir = open_dir(view, parent)?;
    free_name(view, NameIn { dir: parent, name })?;
    if let Node::Symlink { target } = node
        && (target.0.is_empty() || target.0.len() > TARGET_MAX || target.0.contains(&0))
    {
        return Err(Errno::EINVAL);
    }
    let mut mode = who.mode & MODE_BITS;
    let mut gid = who.gid;
    if !matches!(node, Node::Symlink { .. }) && !view.has_default_acl(parent)? {
        mode &= !who.umask;
    }
    if dir.mode & S_ISGID != 0 {
        gid = dir.gid;
        if matches!(node, Node::Dir) {
            mode |= S_ISGID;
        }
    }
    let own = Fid { set: cx.set, epoch: cx.epoch, lsn: cx.lsn };
    let (home, fid) = cx.placed.unwrap_or((cx.set, own));
    assert!(home == cx.set || matches!(node, Node::Dir), "only directories are placed on other sets");
    let time = touch(&dir, cx.now);
    result_fid(
        fid,
        Change::Create {
            parent,
            name: name.clone(),
            fid,
            home,
            node: node.clone(),
            mode,
            uid: who.uid,
            gid,
            time,
        },
    )
}

fn rmdir(view: &mut dyn TreeState, cx: &Context<'_>, parent: Fid, name: &Name) -> Result<Decision, Errno> {
    let dir = view.attr(parent)?;
    let entry = view.entry(parent, name)?.ok_or(Errno::ENOENT)?;
    if !entry.is_dir() {
        check_unmarked(view, entry)?;
        return Err(Errno::ENOTDIR);
    }
    check_unmarked(view, entry)?;
    if entry.home == cx.set {
        is_empty(view, cx, entry.fid)?;
    } else if cx.placed != Some((entry.home, entry.fid)) {
        // `placed` says that the other set has agreed.
        return Ok(Decision::RemoveElsewhere(entry));
    }
    let time = touch(&dir, cx.now);
    Ok(Decision::Change(Change::Rmdir { parent, name: name.clone(), fid: entry.fid, time }, None))
}

fn set_attr(view: &mut dyn TreeState, cx: &Context<'_>, fid: Fid, set: &SetAttr) -> Result<Decision, Errno> {
    let attr = view.attr(fid)?;
    let time = touch(&attr, cx.now);
    let at = |t: &SetTime| match t {
        SetTime::Now => time,
        SetTime::At { time } => *time,
    };
    let mut mode = set.mode.map(|m| m & MODE_BITS);
    if let Some(size) = set.size {
        if attr.is_dir() {
            return Err(Errno::EISDIR);
        }
        if attr.mode & 0o170_000 != 0o100_000 {
            return Err(Errno::EINVAL);
        }
        if i64::try_from(size).is_err() {
            return Err(Errno::EFBIG);
        }
    }
    if set.kill_suid && mode.is_none() {
        mode = without_suid(&attr);
    }
    // A truncation stamps the data even where the caller says nothing of times.
    let mtime = set.mtime.as_ref().map(at).or(set.size.map(|_| time));
    let atime = set.atime.as_ref().map(at);
    result_fid(
        fid,
        Change::SetAttr { fid, mode, uid: set.uid, gid: set.gid, size: set.size, atime, mtime, time },
    )
}

/// The permission bits after a write by somebody unprivileged, if they change.
pub(crate) fn without_suid(attr: &Attr) -> Option<u32> {
    let old = attr.mode & MODE_BITS;
    let mut new = old & !S_ISUID;
    if old & 0o010 != 0 {
        new &= !S_ISGID;
    }
    (new != old && !attr.is_dir()).then_some(new)
}

fn regular(view: &mut dyn TreeState, fid: Fid) -> Result<Attr, Errno> {
    let attr = view.attr(fid)?;
    match attr.mode & 0o170_000 {
        0o100_000 => Ok(attr),
        0o040_000 => Err(Errno::EISDIR),
        _ => Err(Errno::EINVAL),
    }
}

pub(crate) fn write(
    view: &mut dyn TreeState,
    cx: &Context<'_>,
    fid: Fid,
    offset: u64,
    append: bool,
    kill_suid: bool,
) -> Result<Decision, Errno> {
    let attr = regular(view, fid)?;
    let len = u32::try_from(cx.payload.len()).map_err(|_| Errno::EINVAL)?;
    if len > IO_MAX {
        return Err(Errno::EINVAL);
    }
    let offset = if append { attr.size } else { offset };
    if offset.checked_add(u64::from(len)).is_none_or(|end| i64::try_from(end).is_err()) {
        return Err(Errno::EFBIG);
    }
    let mode = if kill_suid { without_suid(&attr) } else { None };
    result_fid(fid, Change::Write { fid, offset, len, mode, time: touch(&attr, cx.now) })
}

pub(crate) fn fallocate(
    view: &mut dyn TreeState,
    cx: &Context<'_>,
    fid: Fid,
    mode: u32,
    offset: u64,
    len: u64,
) -> Result<Decision, Errno> {
    const KEEP_SIZE: u32 = 1;
    const PUNCH_HOLE: u32 = 2;
    const COLLAPSE: u32 = 8;
    const ZERO: u32 = 0x10;
    const INSERT: u32 = 0x20;
    let attr = regular(view, fid)?;
    let end = offset.checked_add(len).filter(|&e| i64::try_from(e).is_ok()).ok_or(Errno::EFBIG)?;
    if len == 0 {
        return Err(Errno::EINVAL);
    }
    match mode {
        0 | KEEP_SIZE | ZERO => {}
        m if m == KEEP_SIZE | PUNCH_HOLE || m == KEEP_SIZE | ZERO => {}
        COLLAPSE | INSERT => {
            // Block sizes of bricks may differ: only what every brick can do is done.
            if !offset.is_multiple_of(65536) || !len.is_multiple_of(65536) {
                return Err(Errno::EINVAL);
            }
            if offset >= attr.size || (mode == COLLAPSE && end >= attr.size) {
                return Err(Errno::EINVAL);
            }
        }
        _ => return Err(Errno::EOPNOTSUPP),
    }
    result_fid(fid, Change::Fallocate { fid, mode, offset, len, time: touch(&attr, cx.now) })
}

fn copy_range(
    view: &mut dyn TreeState,
    cx: &Context<'_>,
    from: (Fid, u64),
    to: (Fid, u64),
    len: u64,
) -> Result<Decision, Errno> {
    let source = match regular(view, from.0) {
        Err(Errno::ESTALE) if from.0.set != cx.set => return Err(Errno::EXDEV),
        other => other?,
    };
    let target = regular(view, to.0)?;
    let len = len.min(source.size.saturating_sub(from.1)).min(u64::from(IO_MAX) * 64);
    if from.0 == to.0 && from.1 < to.1.saturating_add(len) && to.1 < from.1.saturating_add(len) {
        return Err(Errno::EINVAL);
    }
    if to.1.checked_add(len).is_none_or(|end| i64::try_from(end).is_err()) {
        return Err(Errno::EFBIG);
    }
    if len == 0 {
        return Ok(Decision::Answer(Body::Offset { offset: 0 }));
    }
    result_fid(
        to.0,
        Change::CopyRange {
            from: from.0,
            from_offset: from.1,
            to: to.0,
            to_offset: to.1,
            len,
            time: touch(&target, cx.now),
        },
    )
}
