//! Names of objects: giving them and moving them, with Linux' checks and errors.

use crate::file::{MemoryFile, check_name};
use crate::image::Node;
use crate::op::Op;
use file_system::{File, Renaming};
use std::sync::Arc;
use wire::Errno;

/// Before an extended attribute is looked at.
pub(crate) fn check_xattr(name: &[u8]) -> Result<(), Errno> {
    const PREFIXES: [&[u8]; 4] = [b"user.", b"trusted.", b"security.", b"system.posix_acl_"];
    match PREFIXES.iter().find_map(|p| name.strip_prefix(*p)) {
        Some([]) => Err(Errno::EINVAL),
        Some(_) => Ok(()),
        None => Err(Errno::EOPNOTSUPP),
    }
}

impl MemoryFile {
    /// See [`File::link`].
    pub(crate) fn give_name(&self, dir: &File, name: &[u8]) -> Result<(), Errno> {
        let dir: &MemoryFile = dir.as_other()?;
        let mut d = self.lock_disk()?;
        if !Arc::ptr_eq(&self.disk, &dir.disk) {
            return Err(Errno::EXDEV);
        }
        dir.check_free(&mut d, name)?;
        match self.node(&d)? {
            n if n.is_dir() => return Err(Errno::EPERM),
            n if n.links() == 0 => return Err(Errno::ENOENT),
            _ => {}
        }
        d.perform(Op::Link { dir: dir.ino, name: name.to_vec(), ino: self.ino });
        self.touch(&mut d, dir.ino);
        Ok(())
    }

    /// See [`File::rename`].
    pub(crate) fn give_other_name(
        &self,
        name: &[u8],
        to: &File,
        to_name: &[u8],
        how: Renaming,
    ) -> Result<(), Errno> {
        let to: &MemoryFile = to.as_other()?;
        let mut d = self.lock_disk()?;
        if !Arc::ptr_eq(&self.disk, &to.disk) {
            return Err(Errno::EXDEV);
        }
        if [name, to_name].iter().any(|n| matches!(*n, b"." | b"..")) {
            return Err(Errno::EBUSY);
        }
        check_name(to_name)?;
        to.dir(&d)?;
        let ino = self.child(&d, name)?;
        let there = to.dir(&d)?.entries.get(to_name).copied();
        let moves_dir = d.cache().node(ino).is_some_and(Node::is_dir);
        let inside = moves_dir && d.cache().is_beneath(to.ino, ino);
        match (how, there) {
            (Renaming::NoReplace, Some(_)) => return Err(Errno::EEXIST),
            (Renaming::Exchange, None) => return Err(Errno::ENOENT),
            (Renaming::Exchange, Some(other)) => {
                let other_dir = d.cache().node(other).is_some_and(Node::is_dir);
                if inside || other_dir && d.cache().is_beneath(self.ino, other) {
                    return Err(Errno::EINVAL);
                }
                d.check_write()?;
                if ino != other {
                    let (name, to_name) = (name.to_vec(), to_name.to_vec());
                    d.perform(Op::Exchange { dir: self.ino, name, to: to.ino, to_name, ino, other });
                }
            }
            (_, there) => {
                if inside {
                    return Err(Errno::EINVAL);
                }
                if there == Some(ino) {
                    return Ok(());
                }
                if there.is_some_and(|above| d.cache().is_beneath(self.ino, above)) {
                    return Err(Errno::ENOTEMPTY);
                }
                if let Some(old) = there.and_then(|t| d.cache().node(t)) {
                    match (moves_dir, old.is_dir()) {
                        (true, false) => return Err(Errno::ENOTDIR),
                        (false, true) => return Err(Errno::EISDIR),
                        (true, true) if !old.entries.is_empty() => return Err(Errno::ENOTEMPTY),
                        _ => {}
                    }
                }
                if there.is_none() {
                    to.check_free(&mut d, to_name)?;
                } else {
                    d.check_write()?;
                }
                let (name, to_name) = (name.to_vec(), to_name.to_vec());
                d.perform(Op::Rename { dir: self.ino, name, to: to.ino, to_name, ino, replaced: there });
            }
        }
        self.touch(&mut d, self.ino);
        self.touch(&mut d, to.ino);
        Ok(())
    }
}
