//! Where Mortar answers otherwise than Linux, and why: the whole list.

use crate::answer::Answer;
use crate::attributes::{xattr_len, xattrs};
use crate::kernel::{Kernel, S_IFLNK, S_IFREG};
use ids::Fid;
use wire::limits::IO_MAX;
use wire::op::SetAttr;
use wire::{Errno, Name, Op};

/// Bytes of the longest file that every brick can hold: ext4's bound with blocks of 4 KiB.
const FILE_MAX: u64 = (1 << 44) - 4096;
/// Bytes of the block in which ext4 keeps an object's attributes, and what its head and Mortar's own attribute take of it.
const ATTR_BLOCK: usize = 4096;
const ATTR_TAKEN: usize = 36 + 96;
/// What the root's second attribute takes: owner and mode that its users see.
const TOP_TAKEN: usize = 16 + 20 + 16;

/// Something that Mortar does in another way than Linux.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Difference {
    /// `.mortar` in the root.
    ReservedName,
    /// Attributes that begin with `trusted.mortar.`.
    OwnAttributes,
    /// Attributes that do not fit in one block.
    AttributesInOneBlock,
    /// Permission bits of symbolic links.
    LinkMode,
    /// Setgid without the group's right to execute.
    SetgidKept,
    /// A removed directory, link or device that somebody has open.
    RemovedDirectory,
    /// Files longer than ext4's.
    LongFile,
    /// Collapsing, inserting and zeroing ranges.
    Reshaped,
}

impl Difference {
    /// All of them.
    pub const ALL: [Difference; 8] = [
        Difference::ReservedName,
        Difference::OwnAttributes,
        Difference::AttributesInOneBlock,
        Difference::LinkMode,
        Difference::SetgidKept,
        Difference::RemovedDirectory,
        Difference::LongFile,
        Difference::Reshaped,
    ];

    /// What Mortar does, and why.
    pub fn reason(self) -> &'static str {
        match self {
            Difference::ReservedName => "EPERM: the folder is the brick's own",
            Difference::OwnAttributes => "EPERM: they hold what the brick knows of an object",
            Difference::AttributesInOneBlock => "ENOSPC: ext4 keeps an object's attributes in one block",
            Difference::LinkMode => {
                "nothing happens: the kernel that mounts refuses it (EOPNOTSUPP) and never asks"
            }
            Difference::SetgidKept => {
                "a write by somebody outside the file's group keeps it: FUSE's protocol says only that \
                 setuid and setgid are to be cleared, and clears setgid only beside the right to execute"
            }
            Difference::RemovedDirectory => {
                "ESTALE: only regular files are kept for those who have them open; clients' kernels open all else but \
                 directories without a word to the server"
            }
            Difference::LongFile => "EFBIG: ext4 holds no longer files",
            Difference::Reshaped => "tmpfs cannot do it (EOPNOTSUPP); ext4 and XFS can",
        }
    }

    /// Mortar's own answer to an operation that Linux would answer in another way. What needs more than another answer
    /// (`SetgidKept`, `RemovedDirectory`, `Reshaped`) is where the operation is carried out.
    pub(crate) fn of(
        kernel: &mut Kernel,
        op: &Op,
        payload: &[u8],
    ) -> Option<(Difference, Result<Answer, Errno>)> {
        let refused = |difference, errno| Some((difference, Err(errno)));
        match op {
            Op::Create { parent, name, .. } if kernel.is_reserved(*parent, name) => {
                refused(Difference::ReservedName, Errno::EPERM)
            }
            Op::Link { fid, parent, name } if kernel.is_here(*fid) && kernel.is_reserved(*parent, name) => {
                refused(Difference::ReservedName, Errno::EPERM)
            }
            Op::Rename { parent, to_parent, to_name, flags, .. } if *flags < 3 && kernel.is_here(*parent) => {
                let reserved = kernel.is_reserved(*to_parent, to_name);
                reserved.then_some((Difference::ReservedName, Err(Errno::EPERM)))
            }
            Op::SetXattr { name, .. } | Op::RemoveXattr { name, .. }
                if name.as_bytes().starts_with(b"trusted.mortar.") =>
            {
                refused(Difference::OwnAttributes, Errno::EPERM)
            }
            Op::SetXattr { fid, name, flags }
                if kernel.may_set_xattr(*fid, name, *flags)
                    && kernel.is_beyond_block(*fid, name, payload.len()) =>
            {
                refused(Difference::AttributesInOneBlock, Errno::ENOSPC)
            }
            Op::SetAttr { fid, set: set @ SetAttr { mode: Some(_), size: None, .. } }
                if kernel.object(*fid).is_ok_and(|o| o.kind == S_IFLNK) =>
            {
                let set = SetAttr { mode: None, ..set.clone() };
                Some((Difference::LinkMode, kernel.set_attr(*fid, &set)))
            }
            op if kernel.is_long(op, payload) => refused(Difference::LongFile, Errno::EFBIG),
            _ => None,
        }
    }
}

impl Kernel {
    fn is_reserved(&self, parent: Fid, name: &Name) -> bool {
        parent == self.root && name.as_bytes() == wire::name::RESERVED
    }

    /// Whether the attribute fits no more beside the others.
    fn is_beyond_block(&self, fid: Fid, name: &Name, len: usize) -> bool {
        let cost = |name: usize, value: usize| 16 + name.next_multiple_of(4) + value.next_multiple_of(4);
        let Ok(object) = self.object(fid) else { return false };
        let others = xattrs(object).unwrap_or_default();
        let others = others.iter().filter(|n| *n != name);
        let sum: usize = others.map(|n| cost(n.as_bytes().len(), xattr_len(object, n))).sum();
        let taken = if fid == self.root { ATTR_TAKEN + TOP_TAKEN } else { ATTR_TAKEN };
        taken + sum + cost(name.as_bytes().len(), len) > ATTR_BLOCK
    }

    /// Whether the operation makes a regular file longer than Mortar's files can be.
    fn is_long(&self, op: &Op, payload: &[u8]) -> bool {
        let size = |fid: Fid| match self.object(fid) {
            Ok(o) if o.kind == S_IFREG => o.stat().ok().and_then(|s| u64::try_from(s.st_size).ok()),
            _ => None,
        };
        let (fid, end) = match op {
            Op::Write { fid, offset, append, .. } => {
                let at = if *append { size(*fid).unwrap_or(0) } else { *offset };
                (*fid, at.saturating_add(payload.len() as u64))
            }
            Op::SetAttr { fid, set: SetAttr { size: Some(size), .. } } => (*fid, *size),
            Op::Fallocate { fid, mode, offset, len }
                if matches!(mode, 0 | 1 | 3 | 0x10 | 0x11) && *len > 0 =>
            {
                (*fid, offset.saturating_add(*len))
            }
            Op::Fallocate { fid, mode: 0x20, offset, len } => match size(*fid) {
                Some(size) if offset < &size && (offset | len).is_multiple_of(65536) => {
                    (*fid, size.saturating_add(*len))
                }
                _ => return false,
            },
            Op::CopyRange { from, from_offset, to, to_offset, len } => {
                let there = size(*from).unwrap_or(0).saturating_sub(*from_offset);
                match there.min(*len).min(u64::from(IO_MAX) * 64) {
                    0 => return false,
                    len => (*to, to_offset.saturating_add(len)),
                }
            }
            _ => return false,
        };
        end > FILE_MAX && size(fid).is_some()
    }
}
