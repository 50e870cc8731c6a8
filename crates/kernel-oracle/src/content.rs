//! Data of files.

use crate::answer::Answer;
use crate::attributes::clearing;
use crate::credentials::errno;
use crate::kernel::{Kernel, Object, S_IFDIR, S_IFREG};
use ids::Fid;
use rustix::fd::OwnedFd;
use rustix::fs::{FallocateFlags, OFlags, SeekFrom};
use wire::Errno;
use wire::limits::IO_MAX;

const KEEP_SIZE: u32 = 1;
const COLLAPSE: u32 = 8;
const ZERO: u32 = 0x10;
const INSERT: u32 = 0x20;

fn read_all(fd: &OwnedFd, offset: u64, len: usize) -> Result<Vec<u8>, Errno> {
    let mut data = vec![0; len];
    let mut done = 0;
    while done < len {
        match rustix::io::pread(fd, &mut data[done..], offset + done as u64).map_err(errno)? {
            0 => break,
            n => done += n,
        }
    }
    data.truncate(done);
    Ok(data)
}

fn write_all(fd: &OwnedFd, offset: u64, data: &[u8]) -> Result<(), Errno> {
    let mut done = 0;
    while done < data.len() {
        done += rustix::io::pwrite(fd, &data[done..], offset + done as u64).map_err(errno)?;
    }
    Ok(())
}

fn size(object: &Object) -> Result<u64, Errno> {
    Ok(u64::try_from(object.stat()?.st_size).unwrap_or(0))
}

/// What the file holds from `from` on, and where, without the holes. Only for files with little data.
fn pieces(fd: &OwnedFd, from: u64) -> Result<Vec<(u64, Vec<u8>)>, Errno> {
    let mut pieces = Vec::new();
    let mut at = from;
    while let Ok(data) = rustix::fs::seek(fd, SeekFrom::Data(at)) {
        at = rustix::fs::seek(fd, SeekFrom::Hole(data)).map_err(errno)?;
        pieces.push((data, read_all(fd, data, usize::try_from(at - data).unwrap_or(0))?));
    }
    Ok(pieces)
}

/// Moves what begins at `from` to `to`, holes and all.
fn move_tail(fd: &OwnedFd, from: u64, to: u64, size: u64) -> Result<(), Errno> {
    let pieces = pieces(fd, from)?;
    rustix::fs::ftruncate(fd, from.min(to)).map_err(errno)?;
    rustix::fs::ftruncate(fd, size - from + to).map_err(errno)?;
    pieces.iter().try_for_each(|(at, data)| write_all(fd, *at - from + to, data))
}

fn punch(fd: &OwnedFd, offset: u64, len: u64) -> Result<(), Errno> {
    let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    if len == 0 { Ok(()) } else { rustix::fs::fallocate(fd, how, offset, len).map_err(errno) }
}

impl Kernel {
    /// A regular file's content. What else has content, the kernel that mounts serves itself; opening it here might talk to
    /// a device.
    fn file(&self, fid: Fid, how: OFlags) -> Result<(&Object, OwnedFd), Errno> {
        let object = self.object(fid)?;
        match object.kind {
            S_IFREG | S_IFDIR => Ok((object, object.open(how)?)),
            _ => Err(Errno::EINVAL),
        }
    }

    pub(crate) fn read(&self, fid: Fid, offset: u64, len: u32) -> Result<Answer, Errno> {
        let (_, fd) = self.file(fid, OFlags::RDONLY)?;
        let len = usize::try_from(len.min(IO_MAX)).unwrap_or(0);
        if len == 0 {
            rustix::io::pread(&fd, &mut [0_u8; 0][..], offset).map_err(errno)?;
        }
        read_all(&fd, offset, len).map(Answer::Data)
    }

    /// Writes at `offset`, or at the end.
    pub(crate) fn write(
        &mut self,
        fid: Fid,
        offset: Option<u64>,
        data: &[u8],
        clears: bool,
    ) -> Result<Answer, Errno> {
        let appends = if offset.is_none() { OFlags::APPEND } else { OFlags::empty() };
        let (object, fd) = self.file(fid, OFlags::WRONLY | appends)?;
        let done = clearing(object, self.clearing(clears), || {
            match offset {
                Some(offset) => rustix::io::pwrite(&fd, data, offset),
                None => rustix::io::write(&fd, data),
            }
            .map_err(errno)
        })?;
        let len = u32::try_from(done).unwrap_or(u32::MAX);
        Ok(Answer::Written(len, object.seen(Some(fid))?))
    }

    pub(crate) fn allocate(&self, fid: Fid, mode: u32, offset: u64, len: u64) -> Result<Answer, Errno> {
        let (object, fd) = self.file(fid, OFlags::RDWR)?;
        let flags = FallocateFlags::from_bits_retain(mode);
        match rustix::fs::fallocate(&fd, flags, offset, len) {
            Err(rustix::io::Errno::OPNOTSUPP) if self.differs => reshape(object, &fd, mode, offset, len)?,
            done => done.map_err(errno)?,
        }
        Ok(Answer::Done)
    }

    pub(crate) fn seek(&self, fid: Fid, offset: u64, whence: u32) -> Result<Answer, Errno> {
        let (object, fd) = self.file(fid, OFlags::RDONLY)?;
        let to = match whence {
            3 => SeekFrom::Data(offset),
            4 => SeekFrom::Hole(offset),
            _ => return Err(Errno::EINVAL),
        };
        let size = size(object)?;
        match rustix::fs::seek(&fd, to) {
            Err(rustix::io::Errno::NXIO) if offset < size => {}
            found => drop(found.map_err(errno)?),
        }
        let mut written = Vec::new();
        for (at, data) in pieces(&fd, offset)? {
            let mut at = at;
            for run in data.chunk_by(|a, b| (*a == 0) == (*b == 0)) {
                let end = at + run.len() as u64;
                if run.first() != Some(&0) {
                    written.push((at, end));
                }
                at = end;
            }
        }
        Ok(Answer::Sought { data: whence == 3, offset, size, written })
    }

    pub(crate) fn copy(&self, from: (Fid, u64), to: (Fid, u64), len: u64) -> Result<Answer, Errno> {
        let (object, source) = self.file(from.0, OFlags::RDONLY)?;
        if object.kind == S_IFDIR {
            // What is wrong with the target too comes second: such a pair is never open for this.
            return Err(Errno::EISDIR);
        }
        let (_, target) = self.file(to.0, OFlags::WRONLY)?;
        let there = size(object)?.saturating_sub(from.1);
        let (mut at, mut to_at) = (from.1, to.1);
        let mut done = 0;
        // One call, in parts: what a copy within a file appends to it is not copied again.
        let len = if there == 0 { len } else { len.min(there) };
        loop {
            let left = usize::try_from(len - done).unwrap_or(usize::MAX);
            let copied = rustix::fs::copy_file_range(&source, Some(&mut at), &target, Some(&mut to_at), left);
            match copied.map_err(errno)? {
                0 => return Ok(Answer::Offset(done)),
                n => done += n as u64,
            }
            if done >= len {
                return Ok(Answer::Offset(done));
            }
        }
    }
}

/// What tmpfs cannot do and ext4 can, done by hand as ext4 says it ([`crate::Difference::Reshaped`]).
fn reshape(object: &Object, fd: &OwnedFd, mode: u32, offset: u64, len: u64) -> Result<(), Errno> {
    const ALIGNED: u64 = 64 << 10;
    let (size, end) = (size(object)?, offset + len);
    match mode {
        ZERO => {
            if end > size {
                rustix::fs::ftruncate(fd, end).map_err(errno)?;
            }
            punch(fd, offset, len)
        }
        m if m == ZERO | KEEP_SIZE => punch(fd, offset, len),
        COLLAPSE | INSERT if !offset.is_multiple_of(ALIGNED) || !len.is_multiple_of(ALIGNED) => {
            Err(Errno::EINVAL)
        }
        COLLAPSE if end < size => move_tail(fd, end, offset, size),
        INSERT if offset < size => move_tail(fd, offset, end, size),
        COLLAPSE | INSERT => Err(Errno::EINVAL),
        _ => Err(Errno::EOPNOTSUPP),
    }
}
