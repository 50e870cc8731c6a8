//! What calls do to a file system, as data: applied to the page cache at once, to the disk when synced, or never.

use file_system::S_IFDIR;
use ids::Time;

/// An inode's number. Never given twice.
pub(crate) type Ino = u64;
/// Bytes of a page: data survives page by page.
pub(crate) const PAGE: u64 = 4096;

/// One indivisible operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Op {
    /// An inode comes to be, without a name.
    New { ino: Ino, mode: u32, uid: u32, gid: u32, rdev: u32, target: Vec<u8>, time: Time },
    /// A name for it.
    Link { dir: Ino, name: Vec<u8>, ino: Ino },
    /// A name goes.
    Unlink { dir: Ino, name: Vec<u8>, ino: Ino },
    /// A name moves; what had the new one loses it.
    Rename { dir: Ino, name: Vec<u8>, to: Ino, to_name: Vec<u8>, ino: Ino, replaced: Option<Ino> },
    /// Two names change places.
    Exchange { dir: Ino, name: Vec<u8>, to: Ino, to_name: Vec<u8>, ino: Ino, other: Ino },
    /// Owner, group, permission bits, times.
    Attr { ino: Ino, mode: Option<u32>, uid: Option<u32>, gid: Option<u32>, mtime: Option<Time> },
    /// An extended attribute is set, or removed.
    Xattr { ino: Ino, name: Vec<u8>, value: Option<Vec<u8>> },
    /// A new size: what is beyond is gone.
    Size { ino: Ino, size: u64 },
    /// Data within one page. `extends`: the file was shorter before.
    Write { ino: Ino, offset: u64, data: Vec<u8>, extends: bool },
    /// Whole pages become a hole, parts of pages zeros.
    Punch { ino: Ino, offset: u64, len: u64 },
    /// Whole pages are taken out, and what is behind moves up.
    Collapse { ino: Ino, offset: u64, len: u64 },
    /// A hole of whole pages is put in.
    Insert { ino: Ino, offset: u64, len: u64 },
    /// An inode that has no name and is not open any more goes.
    Free { ino: Ino },
}

/// What two operations have in common if their order matters.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Key {
    /// The inode and the names that lead to it.
    Object(Ino),
    /// An entry of a directory.
    Entry(Ino, Vec<u8>),
    /// Owner, mode, times, and the extended attributes that lie beside them.
    Attr(Ino),
    /// An extended attribute elsewhere.
    Xattr(Ino, Vec<u8>),
    /// A page of data.
    Page(Ino, u64),
    /// All data of a file.
    Data(Ino),
}

impl Op {
    /// What the operation changes.
    pub(crate) fn keys(&self) -> Vec<Key> {
        let entry = |d: &Ino, n: &Vec<u8>| Key::Entry(*d, n.clone());
        match self {
            Op::New { ino, .. } | Op::Free { ino } => vec![Key::Object(*ino)],
            Op::Link { dir, name, ino } | Op::Unlink { dir, name, ino } => {
                vec![Key::Object(*ino), entry(dir, name)]
            }
            Op::Rename { dir, name, to, to_name, ino, replaced } => {
                let mut keys = vec![Key::Object(*ino), entry(dir, name), entry(to, to_name)];
                keys.extend(replaced.map(Key::Object));
                keys
            }
            Op::Exchange { dir, name, to, to_name, ino, other } => {
                vec![Key::Object(*ino), Key::Object(*other), entry(dir, name), entry(to, to_name)]
            }
            Op::Attr { ino, .. } => vec![Key::Attr(*ino)],
            Op::Xattr { ino, name, .. } => match self.in_inode() {
                Some(ino) => vec![Key::Attr(ino)],
                None => vec![Key::Xattr(*ino, name.clone())],
            },
            Op::Write { ino, offset, .. } => vec![Key::Page(*ino, offset / PAGE)],
            Op::Size { ino, .. }
            | Op::Punch { ino, .. }
            | Op::Collapse { ino, .. }
            | Op::Insert { ino, .. } => vec![Key::Data(*ino)],
        }
    }

    /// What must be there for the operation to make sense.
    pub(crate) fn needs(&self) -> Vec<Key> {
        match self {
            Op::New { .. } | Op::Free { .. } => vec![],
            Op::Link { dir, .. } | Op::Unlink { dir, .. } => vec![Key::Object(*dir)],
            Op::Rename { dir, to, .. } | Op::Exchange { dir, to, .. } => {
                vec![Key::Object(*dir), Key::Object(*to)]
            }
            Op::Attr { ino, .. }
            | Op::Xattr { ino, .. }
            | Op::Write { ino, .. }
            | Op::Size { ino, .. }
            | Op::Punch { ino, .. }
            | Op::Collapse { ino, .. }
            | Op::Insert { ino, .. } => vec![Key::Object(*ino)],
        }
    }

    /// The inode whose content or attributes it changes, if that is all that it does.
    pub(crate) fn inode(&self) -> Option<Ino> {
        match self {
            Op::Attr { ino, .. }
            | Op::Xattr { ino, .. }
            | Op::Write { ino, .. }
            | Op::Size { ino, .. }
            | Op::Punch { ino, .. }
            | Op::Collapse { ino, .. }
            | Op::Insert { ino, .. }
            | Op::New { ino, .. } => Some(*ino),
            _ => None,
        }
    }

    /// The inode, if what it changes lies in that itself: a disk has an inode as it was at one moment. So do owner, mode and
    /// times, and of the extended attributes those of the system. Those of users lie in a block of their own.
    pub(crate) fn in_inode(&self) -> Option<Ino> {
        match self {
            Op::Attr { ino, .. } => Some(*ino),
            Op::Xattr { ino, name, .. } => name.starts_with(b"trusted.").then_some(*ino),
            _ => None,
        }
    }

    /// The inodes whose change time it moves.
    pub(crate) fn inodes(&self) -> Vec<Ino> {
        match self {
            Op::Link { dir, ino, .. } | Op::Unlink { dir, ino, .. } => vec![*dir, *ino],
            Op::Rename { dir, to, ino, replaced, .. } => {
                [*dir, *to, *ino].into_iter().chain(*replaced).collect()
            }
            Op::Exchange { dir, to, ino, other, .. } => vec![*dir, *to, *ino, *other],
            Op::Free { .. } => vec![],
            _ => self.inode().into_iter().collect(),
        }
    }

    /// Whether it is about a name of, or in, this inode.
    pub(crate) fn is_name_of(&self, at: Ino) -> bool {
        match self {
            Op::Link { dir, ino, .. } | Op::Unlink { dir, ino, .. } => *dir == at || *ino == at,
            Op::Rename { dir, to, ino, .. } => *dir == at || *to == at || *ino == at,
            Op::Exchange { dir, to, ino, other, .. } => *dir == at || *to == at || *ino == at || *other == at,
            _ => false,
        }
    }

    /// The inodes that it moves to another directory.
    pub(crate) fn moved(&self) -> Vec<Ino> {
        match self {
            Op::Rename { dir, to, ino, .. } if dir != to => vec![*ino],
            Op::Exchange { dir, to, ino, other, .. } if dir != to => vec![*ino, *other],
            _ => vec![],
        }
    }

    /// The inode that loses a name, and does not get another.
    pub(crate) fn unlinked(&self) -> Option<Ino> {
        match self {
            Op::Unlink { ino, .. } => Some(*ino),
            Op::Rename { replaced, .. } => *replaced,
            _ => None,
        }
    }

    /// Whether it is data, which journaling file systems do not journal.
    pub(crate) fn is_data(&self) -> bool {
        matches!(self, Op::Write { .. })
    }
}

/// Whether type bits say that it is a directory.
pub(crate) fn is_dir(mode: u32) -> bool {
    mode & file_system::S_IFMT == S_IFDIR
}
