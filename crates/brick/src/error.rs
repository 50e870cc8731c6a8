//! Errors of the kernel as numbers of the wire, and the refusals of making and opening bricks.

use std::path::PathBuf;
use wire::Errno;

/// An error of the standard library as an errno.
pub(crate) fn io_errno(e: &std::io::Error) -> Errno {
    e.raw_os_error().map_or(Errno::EIO, Errno)
}

/// Why a directory cannot be made a brick.
#[derive(Debug, thiserror::Error)]
pub enum FormatError {
    /// The directory above it is missing.
    #[error("{path}: the directory above it does not exist; create it first", path = .path.display())]
    NoParent {
        /// The brick's path.
        path: PathBuf,
    },
    /// Something else than a directory.
    #[error("{path} is not a directory: give a directory, or a path where one can be made", path = .path.display())]
    NotDirectory {
        /// The brick's path.
        path: PathBuf,
    },
    /// A brick already.
    #[error("{path} is already brick {brick} of volume {volume}", path = .path.display())]
    AlreadyBrick {
        /// The brick's path.
        path: PathBuf,
        /// Its number.
        brick: ids::BrickId,
        /// Whose it is.
        volume: String,
    },
    /// It has a `.mortar` that cannot be read.
    #[error("{path} has a .mortar directory, but not a readable one ({why}); remove it if the brick is not wanted any more", path = .path.display())]
    Leftover {
        /// The brick's path.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A directory above is a brick.
    #[error("{path} lies inside the brick {outer}", path = .path.display(), outer = .outer.display())]
    Inside {
        /// The brick's path.
        path: PathBuf,
        /// The brick around it.
        outer: PathBuf,
    },
    /// A directory beneath is a brick.
    #[error("{path} contains the brick {inner}", path = .path.display(), inner = .inner.display())]
    Around {
        /// The brick's path.
        path: PathBuf,
        /// The brick in it.
        inner: PathBuf,
    },
    /// There are files in it.
    #[error("{path} is not empty: give an empty or new directory (mortar volume create --adopt takes data as it lies)", path = .path.display())]
    NotEmpty {
        /// The brick's path.
        path: PathBuf,
    },
    /// The file system is read-only.
    #[error("{path} is on a read-only file system", path = .path.display())]
    ReadOnly {
        /// The brick's path.
        path: PathBuf,
    },
    /// The file system lacks what bricks need.
    #[error("{path} is on a file system without {what}; use ext4, XFS or btrfs", path = .path.display())]
    Unsuitable {
        /// The brick's path.
        path: PathBuf,
        /// What it lacks.
        what: &'static str,
    },
    /// The kernel does not let the server keep its attributes there.
    #[error(
        "{path}: its file system keeps no trusted extended attributes for this server: run it as root, on ext4, XFS or \
         btrfs, not within a mounted volume",
        path = .path.display()
    )]
    NotPermitted {
        /// The brick's path.
        path: PathBuf,
    },
    /// Something in it cannot be a volume's.
    #[error("{path}: {why}", path = .path.display())]
    CannotAdopt {
        /// The object.
        path: PathBuf,
        /// Why not.
        why: Obstacle,
    },
    /// The kernel refused.
    #[error("{path}: {doing}: {errno}", path = .path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// What was attempted.
        doing: &'static str,
        /// The kernel's answer.
        errno: Errno,
    },
}

/// Why an object cannot be adopted.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum Obstacle {
    /// It lies on another file system than the directory around it.
    #[error("another file system is mounted there: unmount it, or copy what it holds")]
    OtherFileSystem,
    /// It has names that the volume would not see.
    #[error(
        "it has {links} hard links, {within} of them in the directory: remove the others (find -inum), or copy the file"
    )]
    LinkedOutside {
        /// All names.
        links: u32,
        /// Those in the directory.
        within: u32,
    },
    /// Its inode number is no lsn.
    #[error("its inode number {ino} is too large: copy the data into a new volume instead")]
    InodeNumber {
        /// The number.
        ino: u64,
    },
    /// The entry of a file whose data is elsewhere.
    #[error(
        "it holds no data: it is the name of a file that another volume kept on its set {home}: replace or remove it"
    )]
    Stub {
        /// Where the data is.
        home: ids::SetId,
    },
    /// Somebody made it meanwhile.
    #[error("it changed while the directory was being adopted: end what writes there")]
    Changed,
    /// Somebody ended the adoption.
    #[error("the adoption was given up there")]
    GivenUp,
}

/// Why a brick cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// There is no brick.
    #[error("{path} is not a brick (no .mortar/identity); is its disk mounted?", path = .path.display())]
    NotBrick {
        /// The brick's path.
        path: PathBuf,
    },
    /// Another brick.
    #[error("{path} is brick {found} of volume {volume}, not brick {expected}", path = .path.display())]
    OtherBrick {
        /// The brick's path.
        path: PathBuf,
        /// What it is.
        found: ids::BrickId,
        /// Whose it is.
        volume: String,
        /// What it should be.
        expected: ids::BrickId,
    },
    /// In use.
    #[error("{path} is in use by another process", path = .path.display())]
    Locked {
        /// The brick's path.
        path: PathBuf,
    },
    /// A file of ours cannot be read.
    #[error("{file}: {source}", file = .file.display())]
    Sealed {
        /// The file.
        file: PathBuf,
        /// What is wrong with it.
        source: disk_format::SealError,
    },
    /// It is to be made of existing data, which cannot be adopted.
    #[error("it cannot be adopted: {0}")]
    Adopt(#[from] FormatError),
    /// The journal is damaged.
    #[error(transparent)]
    Journal(#[from] JournalError),
    /// The index cannot be opened nor made anew.
    #[error("{file}: {why}", file = .file.display())]
    Index {
        /// The file.
        file: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The kernel refused.
    #[error("{path}: {doing}: {errno}", path = .path.display())]
    Io {
        /// The path.
        path: PathBuf,
        /// What was attempted.
        doing: &'static str,
        /// The kernel's answer.
        errno: Errno,
    },
}

/// Why a journal cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// A record in the middle is damaged.
    #[error("{file}: damaged at byte {offset}: {why}; repair with `mortar brick check PATH --repair`, or wipe the brick and let it heal", file = .file.display())]
    Damaged {
        /// The segment.
        file: PathBuf,
        /// Where.
        offset: u64,
        /// What is wrong.
        why: String,
    },
    /// A segment is missing.
    #[error("{dir}: the segment before {next} is missing; repair with `mortar brick check PATH --repair`, or wipe the brick and let it heal", dir = .dir.display())]
    Missing {
        /// The journal's folder.
        dir: PathBuf,
        /// The segment that follows the gap.
        next: String,
    },
    /// The position is older than the journal, or newer.
    #[error("the journal does not hold change {0}")]
    OutOfReach(ids::Lsn),
    /// The kernel refused.
    #[error("{file}: {errno}", file = .file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// The kernel's answer.
        errno: Errno,
    },
}

impl From<JournalError> for Errno {
    fn from(e: JournalError) -> Errno {
        match e {
            JournalError::Io { errno, .. } => errno,
            JournalError::Damaged { .. } | JournalError::Missing { .. } | JournalError::OutOfReach(_) => {
                Errno::EIO
            }
        }
    }
}
