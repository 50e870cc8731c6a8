//! Operations on what one object contains.

use super::answers::Behind;
use super::{Emitter, Outcome};
use crate::Violation;
use crate::content::pieces;
use crate::inode::{Ask, NewAttr, Told};
use crate::names::{Obj, S_IFDIR, S_IFREG};
use wire::limits::{IO_MAX, XATTR_VALUE_MAX};
use wire::op::{SetAttr, SetTime};
use wire::{Body, Errno, Name, Op};

/// Whether the model knows all that may change this attribute.
fn is_checked(name: &Name) -> bool {
    [&b"user."[..], b"trusted."].iter().any(|p| name.as_bytes().starts_with(p))
}

fn is_too_far(offset: u64, len: u64) -> bool {
    offset.checked_add(len).is_none_or(|end| i64::try_from(end).is_err())
}

fn new_attr(set: &SetAttr) -> NewAttr {
    NewAttr {
        mode: set.mode.map(|m| m & 0o7777),
        uid: set.uid,
        gid: set.gid,
        size: set.size,
        mtime: match &set.mtime {
            Some(SetTime::At { time }) => Some(*time),
            _ => None,
        },
        touch: matches!(set.mtime, Some(SetTime::Now)),
        kill_suid: set.kill_suid,
    }
}

impl Emitter<'_> {
    pub(super) fn file(&mut self, n: usize, outcome: Outcome) -> Result<(), Violation> {
        let r = &self.records[n];
        let fid = match &r.op {
            Op::CopyRange { to, .. } => Some(*to),
            op => op.object(),
        };
        let Some(fid) = fid else { return Ok(()) };
        let obj = self.table.object(fid);
        if let Some(right) = self.must_not(n, obj) {
            return match outcome {
                Outcome::Unknown { .. } => Ok(()),
                Outcome::Failed(e) if right.contains(&e) => Ok(()),
                Outcome::Failed(e @ (Errno::ESTALE | Errno::ENOENT)) => {
                    if !matches!(self.records[n].op, Op::CopyRange { .. }) {
                        self.was_gone(n, obj, e);
                    }
                    Ok(())
                }
                _ => self.wrong(n, &format!("the answer should be {right:?}")),
            };
        }
        let exdev = matches!(outcome, Outcome::Failed(Errno::EXDEV));
        let Some(ask) = self.question(n).filter(|_| !(exdev && self.copies_parted(n))) else { return Ok(()) };
        let unknown = match outcome {
            Outcome::Unknown { .. } => true,
            Outcome::Failed(e @ (Errno::ESTALE | Errno::ENOENT)) => {
                // It may have been done before the object went.
                if !matches!(self.records[n].op, Op::CopyRange { .. }) {
                    self.was_gone(n, obj, e);
                }
                true
            }
            Outcome::Failed(Errno::EXDEV) if matches!(ask, Ask::Copy { .. }) => {
                // The source is gone. A server can't tell that from one of another set.
                if let Ask::Copy { from, .. } = ask {
                    self.was_gone(n, from, Errno::ESTALE);
                }
                return Ok(());
            }
            // A client that does not hold such a file open asks nobody whether it is still there.
            Outcome::Done if matches!(ask, Ask::Read { .. }) && self.excuses.parted.contains_key(&fid) => {
                false
            }
            Outcome::Done | Outcome::Failed(_) => {
                self.was_there(n, obj);
                false
            }
        };
        if unknown {
            self.strays(n, obj, fid, matches!(outcome, Outcome::Unknown { torn: true }));
            self.parted_allocation(n, obj, fid, None);
            self.perhaps(n, obj, ask, &outcome);
            return Ok(());
        }
        let told = self.told_of(n, &outcome)?;
        if self.is_parted_read(n, obj, fid, (&ask, &told)) {
            return Ok(());
        }
        let asked = self.done_in_parts(n, obj, fid, &told);
        let asked = asked.unwrap_or_else(|| self.ask_of(n, obj, ask, Some(told), None));
        if let Some((_, Ok((Body::Attr { attr } | Body::Written { attr, .. }, _)))) = &self.records[n].answer
        {
            if attr.fid != fid {
                return self.wrong(n, "the attributes are those of another object");
            }
            self.attributes(n, attr, Behind { names: None, inode: Some(asked) })?;
        }
        Ok(())
    }

    /// Whether the copy is one between files of which one has parts on several sets: its client has to copy the data.
    fn copies_parted(&self, n: usize) -> bool {
        let parted = &self.excuses.parted;
        matches!(&self.records[n].op, Op::CopyRange { from, to, .. } if parted.contains_key(from) || parted.contains_key(to))
    }

    /// A change of a file that has parts on several sets.
    fn done_in_parts(&mut self, n: usize, obj: Obj, fid: ids::Fid, told: &Told) -> Option<usize> {
        if *told != Told::Done {
            return None;
        }
        self.parted_allocation(n, obj, fid, Some(Told::Done));
        self.parted_write(n, obj, fid)
    }

    /// A read of such a file, which is asked for in its parts.
    fn is_parted_read(&mut self, n: usize, obj: Obj, fid: ids::Fid, (ask, told): (&Ask, &Told)) -> bool {
        let parted = self.excuses.parted.get(&fid);
        let (Ask::Read { offset, len }, Told::Data(_), Some(parted)) = (ask, told, parted) else {
            return false;
        };
        self.parted_read(n, obj, parted, (*offset, *len));
        true
    }

    /// It was done or not.
    fn perhaps(&mut self, n: usize, obj: Obj, ask: Ask, outcome: &Outcome) {
        if !ask.changes() {
            return;
        }
        let ask = match (ask, outcome) {
            (Ask::Write { at, data, kill_suid, .. }, Outcome::Unknown { torn }) => {
                Ask::Write { at, data, kill_suid, torn: *torn }
            }
            (ask, _) => ask,
        };
        self.ask_of(n, obj, ask, None, None);
    }

    /// Some of the data of a write may have been there before it was done.
    pub(super) fn written_in_part(&mut self, n: usize, obj: Obj) {
        if let Some(Ask::Write { at, data, kill_suid, .. }) = self.question(n) {
            self.ask_of(n, obj, Ask::Write { at, data, kill_suid, torn: true }, Some(Told::Done), None);
        }
    }

    /// The errors that are right whatever the state is, if the operation can't be done.
    fn must_not(&self, n: usize, obj: Obj) -> Option<Vec<Errno>> {
        let r = &self.records[n];
        let kind = self.table.objects[obj].kind?;
        let size = r.payload.len() as u64;
        let wants_file = matches!(
            r.op,
            Op::Read { .. }
                | Op::Write { .. }
                | Op::Fallocate { .. }
                | Op::Lseek { .. }
                | Op::CopyRange { .. }
        ) || matches!(&r.op, Op::SetAttr { set, .. } if set.size.is_some());
        if wants_file && kind != S_IFREG {
            let mut right = vec![if kind == S_IFDIR { Errno::EISDIR } else { Errno::EINVAL }];
            match &r.op {
                Op::Lseek { .. } => right.push(Errno::EINVAL),
                Op::CopyRange { from, to, .. } => {
                    right.extend(self.must_not_copy(*from, *to).unwrap_or_default())
                }
                _ => {}
            }
            return Some(right);
        }
        match &r.op {
            Op::SetAttr { set, .. } if set.size.is_some_and(|s| i64::try_from(s).is_err()) => {
                Some(vec![Errno::EFBIG])
            }
            Op::Write { .. } if size > u64::from(IO_MAX) => Some(vec![Errno::EINVAL]),
            Op::Write { offset, append: false, .. } if is_too_far(*offset, size) => Some(vec![Errno::EFBIG]),
            Op::Fallocate { offset, len, .. } if *len == 0 || is_too_far(*offset, *len) => {
                Some(vec![Errno::EINVAL, Errno::EFBIG])
            }
            Op::Fallocate { mode, .. } if !matches!(mode, 0 | 1 | 3 | 8 | 0x10 | 0x11 | 0x20) => {
                Some(vec![Errno::EOPNOTSUPP, Errno::EINVAL])
            }
            Op::Lseek { whence, .. } if !matches!(whence, 3 | 4) => Some(vec![Errno::EINVAL]),
            Op::CopyRange { from, to, .. } => self.must_not_copy(*from, *to),
            Op::SetXattr { name, flags, .. } if is_checked(name) => {
                let special = !matches!(kind, S_IFREG | S_IFDIR);
                if name.as_bytes().starts_with(b"trusted.mortar.")
                    || (special && name.as_bytes().starts_with(b"user."))
                {
                    Some(vec![Errno::EPERM, Errno::EOPNOTSUPP])
                } else if r.payload.len() > XATTR_VALUE_MAX {
                    Some(vec![Errno::ERANGE])
                } else {
                    (*flags > 2).then(|| vec![Errno::EINVAL])
                }
            }
            Op::RemoveXattr { name, .. } if name.as_bytes().starts_with(b"trusted.mortar.") => {
                Some(vec![Errno::EPERM, Errno::EOPNOTSUPP])
            }
            _ => None,
        }
    }

    fn must_not_copy(&self, from: ids::Fid, to: ids::Fid) -> Option<Vec<Errno>> {
        let source = self.table.objects.iter().find(|o| o.fid == Some(from));
        match source.and_then(|o| o.kind) {
            _ if from.set != to.set => Some(vec![Errno::EXDEV]),
            Some(S_IFREG) | None => None,
            Some(S_IFDIR) => Some(vec![Errno::EISDIR]),
            Some(_) => Some(vec![Errno::EINVAL]),
        }
    }

    /// What is asked of the object; `None` if it is not checked.
    fn question(&mut self, n: usize) -> Option<Ask> {
        let r = &self.records[n];
        let text = |name: &Name| format!("{name}");
        Some(match &r.op {
            Op::SetAttr { set, .. } => Ask::SetAttr(new_attr(set)),
            Op::Read { offset, len, .. } => Ask::Read { offset: *offset, len: u64::from(*len.min(&IO_MAX)) },
            Op::Write { offset, append, kill_suid, .. } => Ask::Write {
                at: (!append).then_some(*offset),
                data: pieces(&r.payload),
                kill_suid: *kill_suid,
                torn: false,
            },
            Op::GetXattr { name, .. } if is_checked(name) => Ask::GetXattr(text(name)),
            Op::ListXattr { .. } => Ask::ListXattr,
            Op::SetXattr { name, flags, .. } if is_checked(name) => {
                Ask::SetXattr { name: text(name), flags: *flags, value: r.payload.to_vec() }
            }
            Op::RemoveXattr { name, .. } if is_checked(name) => Ask::RemoveXattr(text(name)),
            Op::Fallocate { fid, mode, offset, len } => {
                let parted = self.excuses.parted.contains_key(fid);
                Ask::Fallocate { mode: *mode, offset: *offset, len: *len, parted }
            }
            Op::Lseek { offset, whence, .. } => Ask::Seek { offset: *offset, whence: *whence },
            Op::CopyRange { from, from_offset, to_offset, len, .. } => {
                let (from_offset, offset, len) = (*from_offset, *to_offset, *len);
                let from = self.table.object(*from);
                Ask::Copy { from, from_offset, offset, len }
            }
            _ => return None,
        })
    }

    fn told_of(&self, n: usize, outcome: &Outcome) -> Result<Told, Violation> {
        let r = &self.records[n];
        if let Outcome::Failed(e) = outcome {
            return Ok(Told::Not(*e));
        }
        let Some((_, Ok((body, data)))) = &r.answer else { return Ok(Told::Done) };
        Ok(match (&r.op, body) {
            (Op::Read { .. }, Body::Data) => Told::Data(pieces(data)),
            (Op::GetXattr { .. }, Body::Data) => Told::Value(data.to_vec()),
            (Op::ListXattr { .. }, Body::Names { names }) => {
                Told::Names(names.iter().filter(|n| is_checked(n)).map(|n| format!("{n}")).collect())
            }
            (Op::Lseek { .. } | Op::CopyRange { .. }, Body::Offset { offset }) => Told::Offset(*offset),
            (Op::CopyRange { .. }, Body::Written { len, .. }) => Told::Offset(u64::from(*len)),
            (Op::Write { .. }, Body::Written { len, .. }) if *len as usize == r.payload.len() => Told::Done,
            (Op::Write { fid, append: true, .. }, Body::Written { len, .. })
                if *len as usize <= r.payload.len() && self.crosses_base(n, *fid).is_some() =>
            {
                Told::Done
            }
            (Op::SetAttr { .. }, Body::Attr { .. } | Body::Done) => Told::Done,
            // It was done before another set came to answer for the directory, and is told when it is asked for again: what the
            // directory is like that set knows.
            (Op::SetAttr { fid, .. }, Body::Elsewhere { fid: told, kind: S_IFDIR, .. }) if fid == told => {
                Told::Done
            }
            (Op::SetXattr { .. } | Op::RemoveXattr { .. } | Op::Fallocate { .. }, _) => Told::Done,
            _ => return self.wrong(n, "the answer is not one of this operation"),
        })
    }
}
