//! Open objects, with their tags.

use crate::top;
use disk_format::tag::Meant;
use disk_format::{Tag, Top, tag};
use file_system::File;
pub(crate) use file_system::{S_IFDIR, S_IFLNK, S_IFMT, S_IFREG, Stat};
use std::ops::Deref;
use std::sync::Arc;
use wire::Errno;
use wire::op::{COPY_NAMES, EntryName, Intent, Leaving, TAKEN, Taken, decode_names};
use wire::stripes::{PIECE, STRIPES};
use wire::user::ACCESS_LIST;

/// What a program may do whoever runs it. The kernel takes it away with each change of the file's content, whoever makes it.
pub(crate) const CAPABILITY: &[u8] = b"security.capability";

/// An open object that is kept, and what kind of object it is.
#[derive(Clone, Debug)]
pub(crate) struct OpenObject {
    file: Arc<File>,
    /// Type bits of `st_mode`.
    pub(crate) kind: u32,
    /// Whether it is a brick's top directory, of which users see what `top` says.
    is_top: bool,
}

impl Deref for OpenObject {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

fn as_tag(value: Result<Option<usize>, Errno>, buf: &[u8]) -> Result<Option<Tag>, Errno> {
    match value {
        Ok(Some(n)) => Tag::decode(buf.get(..n).unwrap_or_default()).map(Some).map_err(|e| {
            tracing::error!(error = %e, "an object's tag cannot be read");
            Errno::EIO
        }),
        Ok(None) | Err(Errno::EOPNOTSUPP) => Ok(None),
        Err(Errno::ERANGE) => Err(Errno::EIO),
        Err(e) => Err(e),
    }
}

/// The tag of `name` in `dir`; `None` if it has none.
pub(crate) fn tag_at(dir: &File, name: &[u8]) -> Result<Option<Tag>, Errno> {
    let mut buf = [0u8; 64];
    let found = dir.xattr_at(name, tag::XATTR.as_bytes(), &mut buf);
    as_tag(found, &buf)
}

/// The tag of an open object; `None` if it has none.
pub(crate) fn tag_of(file: &File) -> Result<Option<Tag>, Errno> {
    let mut buf = [0u8; 64];
    let found = file.xattr(tag::XATTR.as_bytes(), &mut buf);
    as_tag(found, &buf)
}

/// Opens `name` in `dir` as its kind demands.
pub(crate) fn open_at(dir: &File, name: &[u8], kind: u32) -> Result<OpenObject, Errno> {
    Ok(OpenObject::new(dir.open_at(name, kind)?, kind))
}

impl OpenObject {
    pub(crate) fn new(file: File, kind: u32) -> OpenObject {
        OpenObject::from_shared(Arc::new(file), kind)
    }

    /// One that is open and shared already.
    pub(crate) fn from_shared(file: Arc<File>, kind: u32) -> OpenObject {
        OpenObject { file, kind, is_top: false }
    }

    /// The file, for others to keep.
    pub(crate) fn into_shared(self) -> Arc<File> {
        self.file
    }

    /// A brick's top directory: users see the owner and the bits that it has for them ([`top`]).
    pub(crate) fn top(file: File) -> OpenObject {
        OpenObject { is_top: true, ..OpenObject::new(file, S_IFDIR) }
    }

    /// Whether it is a brick's top directory.
    pub(crate) fn is_top(&self) -> bool {
        self.is_top
    }

    /// What users see of a top directory, if that is not what the directory itself has.
    fn veil(&self) -> Result<Option<Top>, Errno> {
        if self.is_top { top::read(&self.file) } else { Ok(None) }
    }

    /// The object's attributes, as users see them.
    pub(crate) fn stat(&self) -> Result<Stat, Errno> {
        let stat = self.file.stat()?;
        Ok(self.veil()?.map_or(stat, |top| top::show(stat, top)))
    }

    /// Sets the permission bits that users see.
    pub(crate) fn chmod(&self, mode: u32) -> Result<(), Errno> {
        match self.veil()? {
            Some(top) => top::write(&self.file, Top { mode: mode & 0o7777, ..top }),
            None => self.file.chmod(mode),
        }
    }

    /// Sets the owner and the group that users see, as far as given.
    pub(crate) fn chown(&self, uid: Option<u32>, gid: Option<u32>) -> Result<(), Errno> {
        match self.veil()? {
            Some(top) => {
                let (uid, gid) = (uid.unwrap_or(top.uid), gid.unwrap_or(top.gid));
                top::write(&self.file, Top { uid, gid, ..top })
            }
            None => self.file.chown(uid, gid),
        }
    }

    /// Content is written that the file is to have: it keeps its capability.
    pub(crate) fn keep_capability(&self, write: impl FnOnce() -> Result<(), Errno>) -> Result<(), Errno> {
        let kept = self.whole_xattr(CAPABILITY)?;
        let written = write();
        kept.map_or(Ok(()), |value| self.set_xattr(CAPABILITY, &value))?;
        written
    }

    /// An extended attribute of any length, `None` without it.
    pub(crate) fn whole_xattr(&self, name: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
        let value = self.file.whole_xattr(name)?;
        if name != ACCESS_LIST.as_bytes() {
            return Ok(value);
        }
        let veil = self.veil()?;
        Ok(value.map(|list| veil.map_or(list.clone(), |top| top::show_list(list, top.mode))))
    }

    /// Sets an extended attribute. An access list sets the permission bits, too.
    pub(crate) fn set_xattr(&self, name: &[u8], value: &[u8]) -> Result<(), Errno> {
        let is_list = name == ACCESS_LIST.as_bytes();
        match if is_list { self.veil()? } else { None } {
            Some(top) => {
                let (hidden, bits) = top::hide_list(value);
                // The kernel says whether it is a list.
                self.file.set_xattr(name, &hidden)?;
                let mode = top.mode & !0o777 | bits;
                top::write(&self.file, Top { mode, ..top })
            }
            None => self.file.set_xattr(name, value),
        }
    }

    /// For work that outlives the brick's thread's interest in it.
    pub(crate) fn share(&self) -> Arc<File> {
        self.file.clone()
    }

    pub(crate) fn is_dir(&self) -> bool {
        self.kind == S_IFDIR
    }

    pub(crate) fn is_file(&self) -> bool {
        self.kind == S_IFREG
    }

    /// Whether only its path is open.
    pub(crate) fn is_path(&self) -> bool {
        !self.is_dir() && !self.is_file()
    }

    pub(crate) fn tag(&self) -> Result<Option<Tag>, Errno> {
        tag_of(&self.file)
    }

    pub(crate) fn set_tag(&self, t: &Tag) -> Result<(), Errno> {
        self.file.set_xattr(tag::XATTR.as_bytes(), &t.encode())
    }

    /// Removes an extended attribute, if it is there.
    pub(crate) fn remove_xattr(&self, name: &[u8]) -> Result<(), Errno> {
        match self.file.remove_xattr(name) {
            Err(Errno::ENODATA) => Ok(()),
            other => other,
        }
    }

    /// What the last transaction about the file's names means or meant to do, and which change has ended it. Beside a
    /// directory: which entry leads to it.
    pub(crate) fn meant(&self) -> Result<Option<Meant>, Errno> {
        let Some(bytes) = self.file.whole_xattr(tag::INTENT.as_bytes())? else { return Ok(None) };
        tag::decode_intent(&bytes).map(Some).map_err(|error| {
            tracing::error!(%error, "what is kept of an entry beside an object cannot be read");
            Errno::EIO
        })
    }

    /// The intent of [`OpenObject::meant`].
    pub(crate) fn intent(&self) -> Result<Option<Intent>, Errno> {
        Ok(self.meant()?.map(|meant| meant.intent))
    }

    /// The names that a copy is to get which has arrived; none if it is not said beside it.
    pub(crate) fn names_of_copy(&self) -> Result<Vec<EntryName>, Errno> {
        let Some(bytes) = self.file.whole_xattr(COPY_NAMES.as_bytes())? else { return Ok(Vec::new()) };
        let leaving = Leaving::decode(&bytes);
        let names = leaving.and_then(|l| l.map_or_else(|| decode_names(&bytes), |l| Ok(l.names)));
        names.map_err(|error| {
            tracing::error!(%error, "the names that a copy is to get cannot be read");
            Errno::EIO
        })
    }

    /// Where a file goes that leaves its set for good, if that is said beside it.
    pub(crate) fn leaving(&self) -> Result<Option<Leaving>, Errno> {
        let Some(bytes) = self.file.whole_xattr(COPY_NAMES.as_bytes())? else { return Ok(None) };
        Leaving::decode(&bytes).map_err(|error| {
            tracing::error!(%error, "where a file goes cannot be read");
            Errno::EIO
        })
    }

    /// By what a directory is marked that its set is to answer for, if that is said beside it.
    pub(crate) fn taken(&self) -> Result<Option<Taken>, Errno> {
        let Some(bytes) = self.file.whole_xattr(TAKEN.as_bytes())? else { return Ok(None) };
        Taken::decode(&bytes).map(Some).map_err(|error| {
            tracing::error!(%error, "by what a directory is to change its set cannot be read");
            Errno::EIO
        })
    }

    /// One of our attributes beside a file; nothing else has any.
    pub(crate) fn own_xattr(&self, name: &str) -> Result<Option<Vec<u8>>, Errno> {
        if self.is_file() { self.file.whole_xattr(name.as_bytes()) } else { Ok(None) }
    }

    /// The names of the extended attributes that a healing carries over: users', what a transaction means to do, and where the
    /// data of a striped file lies.
    pub(crate) fn healed_xattrs(&self) -> Result<Vec<Vec<u8>>, Errno> {
        let mut names = self.file.xattrs()?;
        let travels =
            |n: &[u8]| [tag::INTENT, COPY_NAMES, STRIPES, PIECE, TAKEN].iter().any(|own| own.as_bytes() == n);
        names.retain(|n| travels(n) || !n.starts_with(tag::PREFIX));
        Ok(names)
    }

    /// The names of the extended attributes; ours are not among them.
    pub(crate) fn xattrs(&self) -> Result<Vec<Vec<u8>>, Errno> {
        let mut names = self.file.xattrs()?;
        names.retain(|n| !n.starts_with(tag::PREFIX));
        Ok(names)
    }
}
