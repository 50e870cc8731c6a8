//! Telling the kernel to drop or take up what it caches.
//!
//! A notification may wait for requests on the same node or directory to end:
//! never send one while holding a lock that a method needs, and not from
//! inside a method about the directory that method works on (the kernel holds
//! that directory's lock until the method's reply).

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use crate::abi::{Put, notice, out_header, write_parts};
use crate::wait;

/// Sends notifications; clones share the mount. What the kernel does not
/// have cached is not an error. After unmounting, that is so for all.
#[derive(Clone, Debug)]
pub struct Notifier {
    device: Arc<OwnedFd>,
}

impl Notifier {
    pub(crate) fn new(device: Arc<OwnedFd>) -> Notifier {
        Notifier { device }
    }

    /// Drops a node's attributes and, if `offset` is not negative, its data
    /// from there for `len` bytes (0: to the end).
    pub fn inval_inode(&self, node: u64, offset: i64, len: i64) -> io::Result<()> {
        let mut body = Vec::with_capacity(24);
        body.u64(node);
        body.i64(offset);
        body.i64(len);
        self.send(notice::INVAL_INODE, &[&body])
    }

    /// Drops a name, and the attributes of its directory.
    pub fn inval_entry(&self, parent: u64, name: &OsStr) -> io::Result<()> {
        self.entry(parent, name, 0)
    }

    /// Makes the kernel look a name up again, without dropping what is mounted
    /// or open below it. Needs `HAS_EXPIRE_ONLY`.
    pub fn expire_entry(&self, parent: u64, name: &OsStr) -> io::Result<()> {
        const EXPIRE_ONLY: u32 = 1 << 0;
        self.entry(parent, name, EXPIRE_ONLY)
    }

    /// As [`inval_entry`](Notifier::inval_entry), and tells watchers that the
    /// name was removed, if it still meant `child`.
    pub fn delete_entry(&self, parent: u64, child: u64, name: &OsStr) -> io::Result<()> {
        let mut body = Vec::with_capacity(24);
        body.u64(parent);
        body.u64(child);
        body.u32(name_len(name)?);
        body.u32(0);
        self.send(notice::DELETE, &[&body, name.as_bytes(), &[0]])
    }

    /// Puts data into the page cache.
    pub fn store(&self, node: u64, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut body = Vec::with_capacity(24);
        body.u64(node);
        body.u64(offset);
        body.u32(u32::try_from(data.len()).map_err(|_| io::ErrorKind::InvalidInput)?);
        body.u32(0);
        self.send(notice::STORE, &[&body, data])
    }

    fn entry(&self, parent: u64, name: &OsStr, flags: u32) -> io::Result<()> {
        let mut body = Vec::with_capacity(16);
        body.u64(parent);
        body.u32(name_len(name)?);
        body.u32(flags);
        self.send(notice::INVAL_ENTRY, &[&body, name.as_bytes(), &[0]])
    }

    fn send(&self, code: i32, parts: &[&[u8]]) -> io::Result<()> {
        // The kernel may wait for a reply that nobody reads the request of.
        wait::leave_leadership();
        let len = parts.iter().map(|part| part.len()).sum();
        match write_parts(self.device.as_fd(), &out_header(len, code, 0), parts) {
            Ok(()) | Err(rustix::io::Errno::NOENT | rustix::io::Errno::NODEV) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}

fn name_len(name: &OsStr) -> io::Result<u32> {
    u32::try_from(name.len()).map_err(|_| io::ErrorKind::InvalidInput.into())
}
