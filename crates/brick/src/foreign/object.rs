//! One object in `.mortar/foreign`, or beneath one there.

use crate::object::{S_IFDIR, S_IFLNK, S_IFMT, S_IFREG};
use crate::scan::names;
use disk_format::adoption::{ADOPTED, Became};
use disk_format::tag::PREFIX;
use file_system::{File, Stat};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wire::Errno;
use wire::codec::Blob;
use wire::op::Node;

/// An extended attribute of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ForeignAttribute {
    /// Its name.
    pub name: Vec<u8>,
    /// Its value.
    pub value: Vec<u8>,
}

/// See the module.
#[derive(Debug)]
pub struct ForeignObject {
    dir: Arc<File>,
    name: Vec<u8>,
    path: PathBuf,
    stat: Stat,
}

impl ForeignObject {
    pub(super) fn new(dir: Arc<File>, name: Vec<u8>, folder: PathBuf) -> Result<ForeignObject, Errno> {
        let stat = dir.stat_at(&name)?;
        let path = folder.join(OsStr::from_bytes(&name));
        Ok(ForeignObject { dir, name, path, stat })
    }

    /// Where it lies.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its attributes when it was met.
    pub fn stat(&self) -> &Stat {
        &self.stat
    }

    /// Whether it is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind() == S_IFDIR
    }

    /// Whether it is a regular file.
    pub fn is_file(&self) -> bool {
        self.kind() == S_IFREG
    }

    fn kind(&self) -> u32 {
        self.stat.mode & S_IFMT
    }

    /// Opened for its attributes: of anything but a directory its path alone.
    fn reach(&self) -> Result<File, Errno> {
        self.dir.open_at(&self.name, if self.is_dir() { S_IFDIR } else { S_IFLNK })
    }

    /// Opened for its data.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(&self) -> Result<File, Errno> {
        self.dir.open_at(&self.name, self.kind())
    }

    /// What is to be made of it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn node(&self) -> Result<Node, Errno> {
        let rdev = self.stat.rdev;
        Ok(match self.kind() {
            S_IFREG => Node::File,
            S_IFDIR => Node::Dir,
            S_IFLNK => Node::Symlink { target: Blob(self.reach()?.read_link()?) },
            0o010_000 => Node::Fifo,
            0o140_000 => Node::Socket,
            0o020_000 => Node::Char { rdev },
            0o060_000 => Node::Block { rdev },
            _ => return Err(Errno::EINVAL),
        })
    }

    /// Its extended attributes, but Mortar's own.
    ///
    /// # Errors
    /// The kernel's.
    pub fn attributes(&self) -> Result<Vec<ForeignAttribute>, Errno> {
        let open = self.reach()?;
        let mut all = Vec::new();
        for name in open.xattrs()?.into_iter().filter(|n| !n.starts_with(PREFIX)) {
            if let Some(value) = open.whole_xattr(&name)? {
                all.push(ForeignAttribute { name, value });
            }
        }
        Ok(all)
    }

    /// What it became, if it was noted.
    ///
    /// # Errors
    /// The kernel's.
    pub fn became(&self) -> Result<Option<Became>, Errno> {
        Ok(self.reach()?.whole_xattr(ADOPTED.as_bytes())?.and_then(|bytes| Became::decode(&bytes).ok()))
    }

    /// Notes what it became. On disk when this returns, as far as a note can be that is about a symbolic link.
    ///
    /// # Errors
    /// The kernel's.
    pub fn note_became(&self, became: &Became) -> Result<(), Errno> {
        self.reach()?.set_xattr(ADOPTED.as_bytes(), &became.encode())?;
        if self.is_file() || self.is_dir() { self.open()?.sync() } else { Ok(()) }
    }

    /// What a directory holds.
    ///
    /// # Errors
    /// The kernel's.
    pub fn children(&self) -> Result<Vec<(Vec<u8>, ForeignObject)>, Errno> {
        let dir = Arc::new(self.dir.open_at(&self.name, S_IFDIR)?);
        let names = names(&dir)?;
        let child = |name: Vec<u8>| {
            ForeignObject::new(dir.clone(), name.clone(), self.path.clone()).map(|child| (name, child))
        };
        names.into_iter().map(child).collect()
    }

    /// It is as it was when it was met.
    ///
    /// # Errors
    /// The kernel's.
    pub fn is_unchanged(&self) -> Result<bool, Errno> {
        let now = self.dir.stat_at(&self.name)?;
        let key = |s: &Stat| (s.ino, s.size, s.mtime);
        Ok(key(&now) == key(&self.stat))
    }

    /// Removes it: a file's name, or an empty directory.
    ///
    /// # Errors
    /// The kernel's.
    pub fn remove(self) -> Result<(), Errno> {
        if self.is_dir() { self.dir.remove_dir(&self.name) } else { self.dir.unlink(&self.name) }
    }
}
