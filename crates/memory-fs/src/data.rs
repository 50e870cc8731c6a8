//! Data of files: writing, shaping and finding it.

use crate::file::{FILE_MAX, MemoryFile};
use crate::op::{Op, PAGE};
use file_system::{File, Object};
use wire::Errno;

const KEEP_SIZE: u32 = 1;
const PUNCH_HOLE: u32 = 2;
const COLLAPSE: u32 = 8;
const ZERO_RANGE: u32 = 0x10;
const INSERT: u32 = 0x20;

impl MemoryFile {
    /// See [`File::write`].
    pub(crate) fn put(&self, offset: u64, data: &[u8]) -> Result<usize, Errno> {
        let mut d = self.lock_disk()?;
        self.regular(&d)?;
        if data.is_empty() {
            return Ok(0);
        }
        if offset >= FILE_MAX {
            return Err(Errno::EFBIG);
        }
        d.check_write()?;
        let len = (data.len() as u64).min(FILE_MAX - offset);
        let mut room = d.room() / PAGE;
        let (mut at, end) = (offset, offset + len);
        while at < end {
            let n = (PAGE - at % PAGE).min(end - at);
            let node = self.node(&d)?;
            if !node.pages.contains_key(&(at / PAGE)) {
                if room == 0 {
                    break;
                }
                room -= 1;
            }
            let extends = at + n > node.size;
            let from = usize::try_from(at - offset).unwrap_or(0);
            let part = data.get(from..from + usize::try_from(n).unwrap_or(0)).unwrap_or_default();
            d.perform(Op::Write { ino: self.ino, offset: at, data: part.to_vec(), extends });
            at += n;
        }
        if at == offset {
            return Err(Errno::ENOSPC);
        }
        self.touch(&mut d, self.ino);
        Ok(usize::try_from(at - offset).unwrap_or(0))
    }

    /// See [`File::allocate`].
    pub(crate) fn shape(&self, mode: u32, offset: u64, len: u64) -> Result<(), Errno> {
        let mut d = self.lock_disk()?;
        let size = self.regular(&d)?.size;
        let ino = self.ino;
        if len == 0 {
            return Err(Errno::EINVAL);
        }
        let end = offset.checked_add(len).filter(|e| *e <= FILE_MAX).ok_or(Errno::EFBIG)?;
        let whole = offset.is_multiple_of(PAGE) && len.is_multiple_of(PAGE);
        let op = match mode {
            0 | KEEP_SIZE => None,
            m if m == PUNCH_HOLE | KEEP_SIZE => {
                Some(Op::Punch { ino, offset, len: end.min(size).saturating_sub(offset) })
            }
            ZERO_RANGE => Some(Op::Punch { ino, offset, len }),
            m if m == ZERO_RANGE | KEEP_SIZE => {
                Some(Op::Punch { ino, offset, len: end.min(size).saturating_sub(offset) })
            }
            COLLAPSE if whole && end < size => Some(Op::Collapse { ino, offset, len }),
            INSERT if whole && offset < size => Some(Op::Insert { ino, offset, len }),
            COLLAPSE | INSERT => return Err(Errno::EINVAL),
            _ => return Err(Errno::EOPNOTSUPP),
        };
        d.check_write()?;
        if mode & (PUNCH_HOLE | COLLAPSE | INSERT) == 0 && len > d.room() {
            return Err(Errno::ENOSPC);
        }
        op.into_iter().for_each(|op| d.perform(op));
        if matches!(mode, 0 | ZERO_RANGE) && end > size {
            d.perform(Op::Size { ino, size: end });
        }
        self.touch(&mut d, ino);
        Ok(())
    }

    /// See [`File::copy_range`].
    pub(crate) fn copy_to(&self, offset: u64, to: &File, to_offset: u64, len: u64) -> Result<u64, Errno> {
        let other: &MemoryFile = to.as_other()?;
        let overlaps = other.ino == self.ino
            && offset < to_offset.saturating_add(len)
            && to_offset < offset.saturating_add(len);
        if overlaps {
            return Err(Errno::EINVAL);
        }
        let data = self.read(offset, usize::try_from(len).map_err(|_| Errno::EINVAL)?, false)?;
        other.write(to_offset, &data).map(|n| n as u64)
    }

    /// See [`File::next_data`].
    pub(crate) fn data_from(&self, offset: u64) -> Result<Option<u64>, Errno> {
        let d = self.lock_disk()?;
        let node = self.regular(&d)?;
        let page = node.pages.range(offset / PAGE..).next().map(|(n, _)| (n * PAGE).max(offset));
        Ok(page.filter(|at| *at < node.size))
    }

    /// See [`File::next_hole`].
    pub(crate) fn hole_from(&self, offset: u64) -> Result<Option<u64>, Errno> {
        let d = self.lock_disk()?;
        let node = self.regular(&d)?;
        if offset >= node.size {
            return Ok(None);
        }
        let mut page = offset / PAGE;
        while node.pages.contains_key(&page) {
            page += 1;
        }
        Ok(Some((page * PAGE).max(offset).min(node.size)))
    }
}
