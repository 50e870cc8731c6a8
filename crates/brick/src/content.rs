//! What is in files, and their modes, owners and lengths. A brick of an arbiter keeps lengths and no data.

use crate::object::OpenObject;
use crate::open::Brick;
use ids::Fid;
use wire::Errno;

impl Brick {
    pub(crate) fn set_attr(
        &mut self,
        fid: Fid,
        mode: Option<u32>,
        owner: (Option<u32>, Option<u32>),
        size: Option<u64>,
    ) -> Result<(), Errno> {
        let before = self.fresh(fid)?.1;
        let open = self.open_fid(fid)?;
        if let Some(size) = size {
            open.truncate(size)?;
        }
        let mut mode = mode;
        if owner != (None, None) {
            open.chown(owner.0, owner.1)?;
            // The kernel drops setuid and setgid; whether they go is the change's to say.
            if !open.is_dir() && before.mode & 0o6000 != 0 {
                mode = mode.or(Some(before.mode));
            }
        }
        mode.map_or(Ok(()), |m| open.chmod(m))
    }

    pub(crate) fn file(&mut self, fid: Fid) -> Result<OpenObject, Errno> {
        let open = self.loaded(fid)?;
        if open.is_file() { Ok(open) } else { Err(Errno::EINVAL) }
    }

    pub(crate) fn write(&mut self, fid: Fid, offset: u64, len: u32, mut data: &[u8]) -> Result<(), Errno> {
        let open = self.file(fid)?;
        if self.identity.arbiter {
            self.progress.begins();
            return if len == 0 { Ok(()) } else { self.grow(fid, &open, offset.saturating_add(len.into())) };
        }
        let mut at = offset;
        while !data.is_empty() {
            match open.write(at, data)? {
                0 => return Err(Errno::ENOSPC),
                n => {
                    self.progress.begins();
                    data = data.get(n..).unwrap_or_default();
                    at += n as u64;
                }
            }
        }
        Ok(())
    }

    /// Makes the file at least `size` bytes long.
    fn grow(&mut self, fid: Fid, open: &OpenObject, size: u64) -> Result<(), Errno> {
        if self.fresh(fid)?.1.size < size {
            open.truncate(size)?;
        }
        Ok(())
    }

    pub(crate) fn fallocate(&mut self, fid: Fid, mode: u32, offset: u64, len: u64) -> Result<(), Errno> {
        const KEEP_SIZE: u32 = 1;
        const PUNCH_HOLE: u32 = 2;
        const COLLAPSE: u32 = 8;
        const ZERO: u32 = 0x10;
        const INSERT: u32 = 0x20;
        let open = self.file(fid)?;
        let allocated =
            if self.identity.arbiter { Err(Errno::ENOSPC) } else { open.allocate(mode, offset, len) };
        if allocated != Err(Errno::ENOSPC) {
            return allocated;
        }
        // An arbiter keeps lengths only. A full disk reserves nothing: the file reads as it does on the other bricks, and
        // the brick stays. The primary has looked for the room; it went to others meanwhile, or is another brick's.
        let size = self.fresh(fid)?.1.size;
        if !self.identity.arbiter {
            match mode & !KEEP_SIZE {
                0 => {}
                ZERO => open.allocate(PUNCH_HOLE | KEEP_SIZE, offset, len)?,
                _ => return allocated,
            }
        }
        let to = match mode {
            COLLAPSE => size.saturating_sub(len),
            INSERT => size.saturating_add(len),
            m if m & KEEP_SIZE != 0 => size,
            _ => size.max(offset.saturating_add(len)),
        };
        if to == size { Ok(()) } else { open.truncate(to) }
    }

    pub(crate) fn copy_range(&mut self, from: (Fid, u64), to: (Fid, u64), len: u64) -> Result<(), Errno> {
        let source = self.file(from.0)?;
        let target = self.file(to.0)?;
        if self.identity.arbiter {
            return self.grow(to.0, &target, to.1.saturating_add(len));
        }
        let (mut at, mut to_at, mut left) = (from.1, to.1, len);
        while left > 0 {
            let n = match source.copy_range(at, &target, to_at, left) {
                Ok(n) => n,
                Err(Errno::EXDEV | Errno::EINVAL | Errno::EOPNOTSUPP | Errno::ENOSYS) => {
                    let some = usize::try_from(left.min(1 << 20)).unwrap_or(1 << 20);
                    let data = source.read(at, some, false)?;
                    self.write(to.0, to_at, 0, &data)?;
                    data.len() as u64
                }
                Err(e) => return Err(e),
            };
            if n == 0 {
                break;
            }
            at += n;
            to_at += n;
            left -= n;
        }
        Ok(())
    }
}
