//! An open object, on the kernel's file system or on a simulated one.

use crate::host::HostFile;
use crate::object::{Object, Opening, Renaming, Space, Stat, Times};
use crate::{Handle, S_IFDIR};
use bytes::Bytes;
use ids::Time;
use std::any::Any;
use wire::Errno;

#[derive(Debug)]
enum Inner {
    Host(HostFile),
    Other(Box<dyn Object>),
}

/// An open object: a regular file for reading and writing, a directory for reading, or anything else only as a name for
/// its attributes. Closed when it is dropped.
///
/// The errors of all calls are the file system's.
#[derive(Debug)]
pub struct File(Inner);

macro_rules! pass_on {
    ($($(#[$doc:meta])* $name:ident($($arg:ident: $ty:ty),*) -> $out:ty;)*) => {
        $(
            $(#[$doc])*
            pub fn $name(&self, $($arg: $ty),*) -> $out {
                match &self.0 {
                    Inner::Host(f) => f.$name($($arg),*),
                    Inner::Other(f) => f.$name($($arg),*),
                }
            }
        )*
    };
}

#[expect(clippy::missing_errors_doc, reason = "said once, at the type")]
impl File {
    pass_on! {
        /// Opens `name` in this directory as its kind (type bits) demands; a symbolic link itself, not what it leads to.
        open_at(name: &[u8], kind: u32) -> Result<File, Errno>;
        /// Opens a regular file in this directory for reading and writing.
        open_own(name: &[u8], how: Opening) -> Result<File, Errno>;
        /// Makes a directory in this one.
        make_dir(name: &[u8], mode: u32) -> Result<(), Errno>;
        /// Makes a symbolic link in this directory.
        make_symlink(name: &[u8], target: &[u8]) -> Result<(), Errno>;
        /// Makes a FIFO, a socket or a device file in this directory; `mode` has its type bits.
        make_node(name: &[u8], mode: u32, rdev: u32) -> Result<(), Errno>;
        /// Gives this object another name, in `dir`.
        link(dir: &File, name: &[u8]) -> Result<(), Errno>;
        /// Removes the name of anything but a directory from this directory.
        unlink(name: &[u8]) -> Result<(), Errno>;
        /// Removes an empty directory from this one.
        remove_dir(name: &[u8]) -> Result<(), Errno>;
        /// Renames what is `name` in this directory.
        rename(name: &[u8], to: &File, to_name: &[u8], how: Renaming) -> Result<(), Errno>;
        /// Calls `each` with every name in this directory (without `.` and `..`), its type bits (0 if unknown) and inode
        /// number, until it answers false. Passes do not disturb each other.
        list(each: &mut dyn FnMut(&[u8], u32, u64) -> bool) -> Result<(), Errno>;
        /// The object's attributes.
        stat() -> Result<Stat, Errno>;
        /// The attributes of `name` in this directory; links are not followed.
        stat_at(name: &[u8]) -> Result<Stat, Errno>;
        /// Reads an extended attribute into `value`: its length, `None` without it; `ERANGE` if it is longer.
        xattr(name: &[u8], value: &mut [u8]) -> Result<Option<usize>, Errno>;
        /// Like [`File::xattr`] for `entry` in this directory; links are not followed.
        xattr_at(entry: &[u8], name: &[u8], value: &mut [u8]) -> Result<Option<usize>, Errno>;
        /// The names of all extended attributes.
        xattrs() -> Result<Vec<Vec<u8>>, Errno>;
        /// Sets an extended attribute.
        set_xattr(name: &[u8], value: &[u8]) -> Result<(), Errno>;
        /// Removes an extended attribute; `ENODATA` without it.
        remove_xattr(name: &[u8]) -> Result<(), Errno>;
        /// Sets the times.
        set_times(times: Times) -> Result<(), Errno>;
        /// Sets the times of `name` in this directory; links are not followed.
        set_times_at(name: &[u8], times: Times) -> Result<(), Errno>;
        /// Sets owner and group, as far as given.
        chown(uid: Option<u32>, gid: Option<u32>) -> Result<(), Errno>;
        /// Sets the permission bits. Symbolic links have none of their own: nothing happens.
        chmod(mode: u32) -> Result<(), Errno>;
        /// Where a symbolic link leads.
        read_link() -> Result<Vec<u8>, Errno>;
        /// Reads up to `len` bytes; with `nowait` only what is in memory (`EAGAIN` if nothing is). Short only at the end of
        /// the file, or with `nowait` where memory ends.
        read(offset: u64, len: usize, nowait: bool) -> Result<Vec<u8>, Errno>;
        /// Writes some of the data; how many bytes.
        write(offset: u64, data: &[u8]) -> Result<usize, Errno>;
        /// Sets the size.
        truncate(size: u64) -> Result<(), Errno>;
        /// `EFBIG` if this file cannot become that long: by the file system, or by the limits of this process.
        check_size(size: u64) -> Result<(), Errno>;
        /// `fallocate`, with its mode bits.
        allocate(mode: u32, offset: u64, len: u64) -> Result<(), Errno>;
        /// Copies within the file system, as many bytes as are answered. `EXDEV`, `EINVAL`, `EOPNOTSUPP` or `ENOSYS` where
        /// that is not possible: the caller copies by hand.
        copy_range(offset: u64, to: &File, to_offset: u64, len: u64) -> Result<u64, Errno>;
        /// Where data begins, from `offset` on; `None` if there is none up to the end.
        next_data(offset: u64) -> Result<Option<u64>, Errno>;
        /// Where a hole (or the end) begins, from `offset` on; `None` beyond the end.
        next_hole(offset: u64) -> Result<Option<u64>, Errno>;
        /// Brings data and attributes to disk; of a directory its entries.
        sync() -> Result<(), Errno>;
        /// Brings data to disk, and what is needed to read it.
        sync_data() -> Result<(), Errno>;
        /// Brings the whole file system to disk.
        sync_all() -> Result<(), Errno>;
        /// Begins to write data to disk, and waits for nothing. What goes wrong shows when it is synced.
        start_writing() -> ();
        /// The object's handle.
        handle() -> Result<Handle, Errno>;
        /// The handle of `name` in this directory.
        handle_at(name: &[u8]) -> Result<Handle, Errno>;
        /// Opens an object on this object's file system by its handle, whatever it is called now.
        open_handle(handle: &Handle, kind: u32) -> Result<File, Errno>;
        /// What this directory is probably called in the one above.
        name_hint() -> Option<Vec<u8>>;
        /// Where this object probably is, from the machine's root.
        path_hint() -> Option<Vec<u8>>;
        /// The room of the file system.
        space() -> Result<Space, Errno>;
        /// The boot id of the page cache over this file system: under another one may be lost what was not synced in this
        /// one.
        boot_id() -> [u8; 16];
        /// Leaves a mark in this file's inode in memory, which never gets to disk: it says that the file system has not been
        /// away since. Not every file system has such marks.
        leave_witness() -> ();
        /// Whether the mark of [`File::leave_witness`] is there. It may be gone although memory is whole.
        has_witness() -> bool;
        /// The time that the file system would give to a change now.
        now() -> Time;
        /// Takes the lock of this file, if nobody else has it; false if somebody does.
        lock() -> Result<bool, Errno>;
        /// Gives up the lock. Said and not left to the closing: a child process that is being started has a copy of the
        /// descriptor.
        unlock() -> ();
    }

    /// Makes a regular file in this directory and opens it.
    pub fn make_file(&self, name: &[u8], mode: u32) -> Result<File, Errno> {
        self.open_own(name, Opening::New(mode))
    }

    /// The directory above this one.
    pub fn parent(&self) -> Result<File, Errno> {
        self.open_at(b"..", S_IFDIR)
    }

    /// An extended attribute of any length, `None` without it.
    pub fn whole_xattr(&self, name: &[u8]) -> Result<Option<Vec<u8>>, Errno> {
        let mut value = vec![0; 256];
        loop {
            match self.xattr(name, &mut value) {
                Ok(Some(n)) => {
                    value.truncate(n);
                    return Ok(Some(value));
                }
                Ok(None) => return Ok(None),
                Err(Errno::ERANGE) if value.len() < 65536 => value = vec![0; 65536],
                Err(e) => return Err(e),
            }
        }
    }

    /// Writes all of the data. `ENOSPC` if the file system takes nothing more.
    pub fn write_all(&self, offset: u64, mut data: &[u8]) -> Result<(), Errno> {
        let mut at = offset;
        while !data.is_empty() {
            match self.write(at, data)? {
                0 => return Err(Errno::ENOSPC),
                n => {
                    data = data.get(n..).unwrap_or_default();
                    at += n as u64;
                }
            }
        }
        Ok(())
    }

    /// As [`File::read`], for data that is passed on: large pieces lie in memory that was used before.
    pub fn read_shared(&self, offset: u64, len: usize, nowait: bool) -> Result<Bytes, Errno> {
        match &self.0 {
            Inner::Host(f) => f.read_shared(offset, len, nowait),
            Inner::Other(f) => f.read(offset, len, nowait).map(Bytes::from),
        }
    }

    /// The whole content of a small file.
    pub fn read_whole(&self) -> Result<Vec<u8>, Errno> {
        let size = usize::try_from(self.stat()?.size).map_err(|_| Errno::EFBIG)?;
        self.read(0, size, false)
    }

    /// An open object of a file system that is not the kernel's.
    pub fn other(object: Box<dyn Object>) -> File {
        File(Inner::Other(object))
    }

    pub(crate) fn on_host(file: HostFile) -> File {
        File(Inner::Host(file))
    }

    /// Whether it lies on the kernel's file systems, so that paths of the kernel's lead to it.
    pub fn is_on_host(&self) -> bool {
        matches!(self.0, Inner::Host(_))
    }

    /// The kernel's descriptor behind it, if there is one.
    pub(crate) fn host(&self) -> Result<&HostFile, Errno> {
        match &self.0 {
            Inner::Host(f) => Ok(f),
            Inner::Other(_) => Err(Errno::EXDEV),
        }
    }

    /// The object behind it, if it is of that type: for file systems whose calls take two of their objects.
    pub fn as_other<T: Object>(&self) -> Result<&T, Errno> {
        match &self.0 {
            Inner::Host(_) => Err(Errno::EXDEV),
            Inner::Other(f) => {
                let any: &dyn Any = &**f;
                any.downcast_ref().ok_or(Errno::EXDEV)
            }
        }
    }
}
