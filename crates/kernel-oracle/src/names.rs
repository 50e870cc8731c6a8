//! Names: making them, moving them, taking them away, listing them.

use crate::answer::Answer;
use crate::credentials::{errno, making};
use crate::kernel::{Kernel, decoded};
use ids::Fid;
use rustix::fs::{
    AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, linkat, mkdirat, mknodat, openat, renameat_with,
    symlinkat, unlinkat,
};
use std::collections::BTreeMap;
use wire::op::Node;
use wire::{Errno, Name, Op};

const HOLD: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl Kernel {
    pub(crate) fn lookup(&self, parent: Fid, name: &Name) -> Result<Answer, Errno> {
        let dir = self.object(parent)?;
        // An object whose making was not told of has no fid: its entry is an error of whoever asks.
        let fd = openat(dir.fd(), name.as_bytes(), HOLD, Mode::empty()).map_err(errno)?;
        drop(fd);
        let fid = self.entry(parent, name.as_bytes())?;
        self.see(fid.ok_or(Errno::EIO)?)
    }

    pub(crate) fn create(&mut self, op: &Op, made: Option<Fid>) -> Result<Answer, Errno> {
        let Op::Create { parent, name, node, mode, umask, uid, gid, .. } = op else {
            return Err(Errno::EINVAL);
        };
        let dir = self.object(*parent)?.fd();
        let (name, mode) = (name.as_bytes(), Mode::from_raw_mode(*mode & 0o7777));
        let special = |kind, rdev| mknodat(dir, name, kind, mode, decoded(rdev));
        making((*uid, *gid), *umask, || match node {
            Node::File => {
                let how = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
                openat(dir, name, how, mode).map(drop)
            }
            Node::Dir => mkdirat(dir, name, mode),
            Node::Symlink { target } => symlinkat(target.0.as_slice(), dir, name),
            Node::Fifo => special(FileType::Fifo, 0),
            Node::Socket => special(FileType::Socket, 0),
            Node::Char { rdev } => special(FileType::CharacterDevice, *rdev),
            Node::Block { rdev } => special(FileType::BlockDevice, *rdev),
        })?;
        let fd = openat(dir, name, HOLD, Mode::empty()).map_err(errno)?;
        match made {
            Some(fid) => {
                self.adopt(fid, fd)?;
                self.see(fid)
            }
            None => Ok(Answer::Done),
        }
    }

    pub(crate) fn unlink(&mut self, parent: Fid, name: &Name, how: AtFlags) -> Result<Answer, Errno> {
        let there = self.entry(parent, name.as_bytes())?;
        unlinkat(self.object(parent)?.fd(), name.as_bytes(), how).map_err(errno)?;
        if let Some(fid) = there {
            self.let_go(fid)?;
        }
        Ok(Answer::Done)
    }

    pub(crate) fn rename(
        &mut self,
        from: (Fid, &Name),
        to: (Fid, &Name),
        flags: u32,
    ) -> Result<Answer, Errno> {
        let (dir, to_dir) = (self.object(from.0)?.fd(), self.object(to.0)?.fd());
        // What is no entry of a directory is refused by the rename itself.
        let there = self.entry(to.0, to.1.as_bytes()).ok().flatten();
        let flags = RenameFlags::from_bits_retain(flags);
        renameat_with(dir, from.1.as_bytes(), to_dir, to.1.as_bytes(), flags).map_err(errno)?;
        if let Some(fid) = there {
            self.let_go(fid)?;
        }
        Ok(Answer::Done)
    }

    pub(crate) fn link(&mut self, fid: Fid, parent: Fid, name: &Name) -> Result<Answer, Errno> {
        let (object, dir) = (self.object(fid)?, self.object(parent)?);
        linkat(CWD, object.path(), dir.fd(), name.as_bytes(), AtFlags::SYMLINK_FOLLOW).map_err(errno)?;
        self.see(fid)
    }

    pub(crate) fn list(&self, fid: Fid) -> Result<Answer, Errno> {
        let dir = self.object(fid)?.open(OFlags::RDONLY | OFlags::DIRECTORY)?;
        let mut all = BTreeMap::new();
        for entry in Dir::read_from(&dir).map_err(errno)? {
            let entry = entry.map_err(errno)?;
            let Ok(name) = Name::new(entry.file_name().to_bytes()) else { continue };
            let Some(fid) = self.entry(fid, name.as_bytes())? else { return Err(Errno::EIO) };
            all.insert(name, self.object(fid)?.seen(Some(fid))?);
        }
        Ok(Answer::Listing(all))
    }
}
