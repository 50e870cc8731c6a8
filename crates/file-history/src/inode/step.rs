//! What POSIX says about each question.

use super::{Ask, Call, Inode, Inodes, NewAttr, Seen, Told};
use crate::choice::{Choice, Shown};
use crate::content::Piece;
use wire::Errno;

const S_ISUID: u32 = 0o4000;
const S_ISGID: u32 = 0o2000;

/// The permission bits after a write by somebody unprivileged.
fn without_suid(mode: u32) -> u32 {
    let mode = mode & !S_ISUID;
    if mode & 0o010 == 0 { mode } else { mode & !S_ISGID }
}

fn length(data: &[Piece]) -> u64 {
    data.iter().map(|(len, _)| len).sum()
}

/// What an answer must be, if it is known.
fn is(told: Option<&Told>, right: &Told) -> bool {
    told.is_none_or(|told| told == right)
}

impl Inodes {
    pub(super) fn outcome(&self, state: &[Inode], call: &Call, told: Option<&Told>) -> Option<Vec<Inode>> {
        let mut next = state.to_vec();
        let fits = match &call.ask {
            Ask::Lose => {
                next.iter_mut().for_each(Inode::lose);
                true
            }
            Ask::Copy { from, from_offset, offset, len } => {
                let source = state.get(*from)?.clone();
                let target = next.get_mut(call.of)?;
                self.copy(target, source, *from == call.of, (*from_offset, *offset, *len), told)
            }
            ask => self.one(next.get_mut(call.of)?, ask, told),
        };
        fits.then_some(next)
    }

    fn one(&self, inode: &mut Inode, ask: &Ask, told: Option<&Told>) -> bool {
        match ask {
            Ask::Observe => matches!(told, Some(Told::Attr(seen)) if observe(inode, seen)),
            Ask::SetAttr(new) => is(told, &Told::Done) && self.set_attr(inode, new),
            Ask::Write { at, data, kill_suid, torn } => {
                is(told, &Told::Done) && self.write(inode, *at, data, *kill_suid, *torn)
            }
            Ask::Part { at, data, torn } => {
                inode.mtime = None;
                if *torn {
                    inode.content.perhaps(*at, data, self.tracked);
                } else {
                    inode.content.write(*at, data, self.tracked);
                }
                is(told, &Told::Done)
            }
            Ask::Grow { end, kill_suid } => {
                let empty = Vec::new();
                inode.size.set(|size| size.max(*end), self.tracked);
                is(told, &Told::Done) && self.write(inode, Some(*end), &empty, *kill_suid, false)
            }
            Ask::Read { offset, len } => {
                matches!(told, Some(Told::Data(data)) if read(inode, *offset, *len, data))
            }
            Ask::GetXattr(_) | Ask::ListXattr | Ask::SetXattr { .. } | Ask::RemoveXattr(_) => {
                self.xattr(inode, ask, told)
            }
            Ask::Fallocate { mode, offset, len, parted } => {
                self.fallocate(inode, (*mode, *offset, *len), *parted, told)
            }
            Ask::Seek { offset, whence } => seek(inode, *offset, *whence, told),
            Ask::Sync { vouches } => {
                if *vouches {
                    inode.settle();
                }
                inode.sync();
                !(*vouches && inode.lost)
            }
            Ask::Copy { .. } | Ask::Lose => false,
        }
    }

    fn kill_suid(&self, inode: &mut Inode) {
        inode.mode.map(self.tracked, |m| without_suid(*m));
    }

    fn set_attr(&self, inode: &mut Inode, new: &NewAttr) -> bool {
        let tracked = self.tracked;
        if new.mode.is_some() {
            inode.mode.set(new.mode, tracked);
        } else if new.kill_suid {
            self.kill_suid(inode);
        }
        if new.uid.is_some() || new.gid.is_some() {
            // A change of the owner may clear these bits, as Linux does it for files.
            let less: Vec<Option<u32>> =
                inode.mode.values().flatten().map(|m| Some(without_suid(*m))).collect();
            inode.mode.change_perhaps(less, tracked);
        }
        if new.uid.is_some() {
            inode.uid.set(new.uid, tracked);
        }
        if new.gid.is_some() {
            inode.gid.set(new.gid, tracked);
        }
        if let Some(size) = new.size {
            inode.size.set(|_| size, tracked);
            inode.content.zero(size, u64::MAX, tracked);
        }
        if new.mtime.is_some() || new.touch || new.size.is_some() {
            inode.mtime = new.mtime;
        }
        true
    }

    fn write(&self, inode: &mut Inode, at: Option<u64>, data: &[Piece], kill_suid: bool, torn: bool) -> bool {
        let len = length(data);
        inode.mtime = None;
        if kill_suid && !torn {
            self.kill_suid(inode);
        }
        let size = inode.size;
        let from = at.unwrap_or(size.now);
        if torn {
            // Any part of it, and any size up to its end.
            let least = at.unwrap_or(size.least);
            let end = at.unwrap_or(size.most).saturating_add(len);
            if at.is_some() || size.is_certain() {
                inode.content.perhaps(from, data, self.tracked);
            } else {
                inode.content.somewhere(least, end, data, self.tracked);
            }
            inode.size.may_grow(end, self.tracked);
            if kill_suid {
                let less: Vec<Option<u32>> =
                    inode.mode.values().flatten().map(|m| Some(without_suid(*m))).collect();
                inode.mode.change_perhaps(less, self.tracked);
            }
            return true;
        }
        match at {
            Some(at) => {
                let end = at.saturating_add(len);
                inode.content.write(at, data, self.tracked);
                if len > 0 {
                    inode.size.set(|s| s.max(end), self.tracked);
                }
            }
            None => {
                if size.is_certain() {
                    inode.content.write(from, data, self.tracked);
                } else {
                    inode.content.somewhere(size.least, size.most.saturating_add(len), data, self.tracked);
                    inode.content.likely(from, data);
                }
                inode.size.set(|s| s.saturating_add(len), self.tracked);
            }
        }
        true
    }

    fn xattr(&self, inode: &mut Inode, ask: &Ask, told: Option<&Told>) -> bool {
        let (Ask::GetXattr(name) | Ask::SetXattr { name, .. } | Ask::RemoveXattr(name)) = ask else {
            return matches!(told, Some(Told::Names(names)) if list(inode, names));
        };
        let mut slot = inode.xattrs.get(name).cloned().unwrap_or_else(|| Choice::known(None));
        let may_be_there = slot.values().any(|v| v != Some(&None));
        let may_be_missing = slot.may_be(&None);
        let fits = match (ask, told) {
            (Ask::GetXattr(_), Some(Told::Value(value))) => inode.note(slot.show(&Some(value.clone()))),
            (Ask::GetXattr(_) | Ask::RemoveXattr(_), Some(Told::Not(Errno::ENODATA))) => {
                inode.note(slot.show(&None))
            }
            (Ask::SetXattr { flags: 1, .. }, Some(Told::Not(Errno::EEXIST))) => may_be_there,
            (Ask::SetXattr { flags: 2, .. }, Some(Told::Not(Errno::ENODATA))) => inode.note(slot.show(&None)),
            (Ask::SetXattr { flags, value, .. }, None | Some(Told::Done)) => {
                let right = match flags {
                    1 => may_be_missing,
                    2 => may_be_there,
                    _ => true,
                };
                slot.set(Some(Some(value.clone())), self.tracked);
                right
            }
            (Ask::RemoveXattr(_), None | Some(Told::Done)) => {
                slot.set(Some(None), self.tracked);
                may_be_there
            }
            _ => false,
        };
        if slot == Choice::known(None) {
            inode.xattrs.remove(name);
        } else {
            inode.xattrs.insert(name.clone(), slot);
        }
        fits
    }

    fn fallocate(
        &self,
        inode: &mut Inode,
        (mode, offset, len): (u32, u64, u64),
        parted: bool,
        told: Option<&Told>,
    ) -> bool {
        const KEEP_SIZE: u32 = 1;
        const PUNCH: u32 = 3;
        const COLLAPSE: u32 = 8;
        const ZERO: u32 = 0x10;
        const ZERO_KEEP: u32 = 0x11;
        const INSERT: u32 = 0x20;
        /// Every brick can move blocks of this size.
        const BLOCK: u64 = 65536;
        let end = offset.saturating_add(len);
        let moves = matches!(mode, COLLAPSE | INSERT);
        let (least, most) = (inode.size.least, inode.size.most);
        let past = |size: u64| offset >= size || (mode == COLLAPSE && end >= size);
        let uneven = moves && !(offset.is_multiple_of(BLOCK) && len.is_multiple_of(BLOCK));
        match told {
            Some(Told::Not(Errno::EINVAL)) => return uneven || (moves && past(least)),
            // A brick's file system may be unable to do it.
            Some(Told::Not(Errno::EOPNOTSUPP)) => return mode > KEEP_SIZE,
            None | Some(Told::Done) => {}
            Some(_) => return false,
        }
        if uneven || (moves && past(most)) {
            return false;
        }
        inode.mtime = None;
        let tracked = self.tracked;
        match mode {
            0 | ZERO => inode.size.set(|s| s.max(end), tracked),
            COLLAPSE => inode.size.set(|s| s.saturating_sub(len), tracked),
            INSERT => inode.size.set(|s| s.saturating_add(len), tracked),
            _ => {}
        }
        match mode {
            PUNCH | ZERO_KEEP if parted => {
                let within = end.min(inode.size.now.max(offset));
                inode.content.zero(offset, within, tracked);
                inode.content.perhaps(within, &[(end - within, 0)], tracked);
            }
            PUNCH | ZERO | ZERO_KEEP => inode.content.zero(offset, end, tracked),
            COLLAPSE => inode.content.shift(end, offset, tracked),
            INSERT => inode.content.shift(offset, end, tracked),
            _ => {}
        }
        true
    }

    fn copy(
        &self,
        target: &mut Inode,
        source: Inode,
        same: bool,
        (from, to, len): (u64, u64, u64),
        told: Option<&Told>,
    ) -> bool {
        const MOST: u64 = 64 << 20;
        let there = |size: u64| len.min(size.saturating_sub(from)).min(MOST);
        let (least, most) = (there(source.size.least), there(source.size.most));
        let overlaps = |n: u64| same && from < to.saturating_add(n) && to < from.saturating_add(n);
        let n = match told {
            Some(Told::Not(Errno::EINVAL)) => return overlaps(most),
            Some(Told::Offset(n)) => *n,
            None => there(source.size.now),
            Some(_) => return false,
        };
        // Less than is there may be copied, but not nothing.
        if n > most || (n == 0 && least > 0) || overlaps(n) {
            return false;
        }
        if n > 0 {
            target.content.copy(to, &source.content, from..from + n, self.tracked);
            target.size.set(|s| s.max(to + n), self.tracked);
            target.mtime = None;
        }
        if told.is_none() && n < most {
            // What was perhaps there as well was perhaps copied.
            target.content.perhaps_copy(to + n, &source.content, from + n..from + most, self.tracked);
            target.size.may_grow(to + most, self.tracked);
            target.mtime = None;
        }
        true
    }
}

fn observe(inode: &mut Inode, seen: &Seen) -> bool {
    let size = seen.size.is_none_or(|size| inode.narrow(size, size));
    let mode = seen.mode.map_or(Shown::Kept, |mode| inode.mode.show(&mode));
    let shown = [mode, inode.uid.show(&seen.uid), inode.gid.show(&seen.gid)];
    size && inode.mtime.is_none_or(|t| t == seen.mtime) && shown.into_iter().all(|s: Shown| inode.note(s))
}

fn read(inode: &mut Inode, offset: u64, len: u64, data: &[Piece]) -> bool {
    let n = length(data);
    let end = offset.saturating_add(n);
    let size = match n {
        n if n > len => false,
        n if n == len => n == 0 || inode.narrow(end, u64::MAX),
        0 => inode.narrow(0, offset),
        _ => inode.narrow(end, end),
    };
    size && match inode.content.show(offset, data) {
        Some(lost) => {
            inode.lost |= lost;
            true
        }
        None => false,
    }
}

fn list(inode: &mut Inode, names: &[String]) -> bool {
    let Inode { xattrs, lost, .. } = inode;
    for (name, slot) in xattrs.iter_mut() {
        if names.contains(name) {
            if slot.values().all(|v| v == Some(&None)) {
                return false;
            }
        } else {
            match slot.show(&None) {
                Shown::Wrong => return false,
                Shown::Lost => *lost = true,
                Shown::Kept => {}
            }
        }
    }
    names.iter().all(|n| xattrs.contains_key(n))
}

fn seek(inode: &mut Inode, offset: u64, whence: u32, told: Option<&Told>) -> bool {
    const DATA: u32 = 3;
    let (least, most) = (inode.size.least, inode.size.most);
    match told {
        Some(Told::Not(Errno::ENXIO)) => {
            offset >= least || (whence == DATA && inode.content.zeros(offset, most).0)
        }
        Some(Told::Offset(at)) if *at >= offset && offset < most && *at <= most => match whence {
            DATA => *at < most && inode.content.zeros(offset, *at).0,
            _ => *at >= least || inode.content.zeros(*at, *at + 1).0,
        },
        _ => false,
    }
}
