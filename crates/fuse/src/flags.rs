//! Bit sets of the protocol: what kernel and file system can do, and how an
//! open file behaves.

use std::ops::{BitOr, BitOrAssign};

macro_rules! flags {
    ($(#[$meta:meta])* $name:ident: $int:ty { $($(#[$fmeta:meta])* $flag:ident = $value:expr,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name(pub $int);

        impl $name {
            $($(#[$fmeta])* pub const $flag: $name = $name($value);)*

            /// No bit set.
            pub const fn empty() -> $name {
                $name(0)
            }

            /// Whether every bit of `other` is set.
            pub const fn contains(self, other: $name) -> bool {
                self.0 & other.0 == other.0
            }

            /// The bits set in both.
            pub const fn and(self, other: $name) -> $name {
                $name(self.0 & other.0)
            }

            /// The bits set in either (`|` in constants).
            pub const fn with(self, other: $name) -> $name {
                $name(self.0 | other.0)
            }

            /// The bits of `self` that are not in `other`.
            pub const fn without(self, other: $name) -> $name {
                $name(self.0 & !other.0)
            }
        }

        impl BitOr for $name {
            type Output = $name;
            fn bitor(self, other: $name) -> $name {
                self.with(other)
            }
        }

        impl BitOrAssign for $name {
            fn bitor_assign(&mut self, other: $name) {
                self.0 |= other.0;
            }
        }
    };
}

flags! {
    /// What the kernel offers in INIT and the file system chooses from.
    Capabilities: u64 {
        /// Several reads of one file at once.
        ASYNC_READ = 1 << 0,
        /// `fcntl` locks are sent to us (else they stay local).
        POSIX_LOCKS = 1 << 1,
        /// `O_TRUNC` arrives with open instead of a SETATTR before it.
        ATOMIC_O_TRUNC = 1 << 3,
        /// Lookups of "." and ".." work, so file handles may be exported.
        EXPORT_SUPPORT = 1 << 4,
        /// Writes above one page.
        BIG_WRITES = 1 << 5,
        /// The umask is not applied by the kernel (default ACLs need this).
        DONT_MASK = 1 << 6,
        /// `flock` locks are sent to us (else they stay local).
        FLOCK_LOCKS = 1 << 10,
        /// ioctl on directories.
        HAS_IOCTL_DIR = 1 << 11,
        /// Cached pages are dropped when size or mtime turn out changed.
        AUTO_INVAL_DATA = 1 << 12,
        /// READDIRPLUS is used; there is no fall-back, so implement it.
        DO_READDIRPLUS = 1 << 13,
        /// READDIRPLUS only where the kernel thinks it pays.
        READDIRPLUS_AUTO = 1 << 14,
        /// Direct reads and writes are submitted asynchronously.
        ASYNC_DIO = 1 << 15,
        /// The kernel buffers writes (we would not see them: leave it off).
        WRITEBACK_CACHE = 1 << 16,
        /// The kernel copes with ENOSYS to OPEN.
        NO_OPEN_SUPPORT = 1 << 17,
        /// Lookups and readdirs in one directory run in parallel.
        PARALLEL_DIROPS = 1 << 18,
        /// We clear set-uid bits and capabilities on write, chown, truncate.
        HANDLE_KILLPRIV = 1 << 19,
        /// POSIX ACLs are ours; the kernel checks them with `default_permissions`.
        POSIX_ACL = 1 << 20,
        /// Reading the device after an abort gives ECONNABORTED.
        ABORT_ERROR = 1 << 21,
        /// Requests above 32 pages; chosen for you from `max_write`.
        MAX_PAGES = 1 << 22,
        /// Symbolic links' targets are cached.
        CACHE_SYMLINKS = 1 << 23,
        /// The kernel copes with ENOSYS to OPENDIR.
        NO_OPENDIR_SUPPORT = 1 << 24,
        /// Cached pages are dropped only by our notifications.
        EXPLICIT_INVAL_DATA = 1 << 25,
        /// As HANDLE_KILLPRIV, but the kernel says when (`kill_suidgid`).
        HANDLE_KILLPRIV_V2 = 1 << 28,
        /// SETXATTR says whether to clear set-gid (`kill_sgid`).
        SETXATTR_EXT = 1 << 29,
        /// Bits above 31 exist; chosen for you.
        INIT_EXT = 1 << 30,
        /// Entries may be expired rather than dropped.
        HAS_EXPIRE_ONLY = 1 << 35,
        /// Shared mappings of files opened with direct I/O.
        DIRECT_IO_ALLOW_MMAP = 1 << 36,
        /// No file handles by the kernel's own means.
        NO_EXPORT_SUPPORT = 1 << 38,
    }
}

flags! {
    /// How the kernel treats an open file.
    OpenFlags: u32 {
        /// No page cache for this open file.
        DIRECT_IO = 1 << 0,
        /// The cache survives this open.
        KEEP_CACHE = 1 << 1,
        /// Not seekable.
        NONSEEKABLE = 1 << 2,
        /// Directory contents are cached.
        CACHE_DIR = 1 << 3,
        /// No file position at all.
        STREAM = 1 << 4,
        /// No FLUSH at close.
        NOFLUSH = 1 << 5,
        /// Direct writes to one file run in parallel.
        PARALLEL_DIRECT_WRITES = 1 << 6,
    }
}
