//! Replies of varying length: file data and directory listings.
//!
//! File data is never copied here: the kernel takes it from where it lies.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use crate::abi::{DIRENT_NAME_MAX, Put};
use crate::reply;
use crate::types::{Entry, FileType};

/// What a read returns.
pub enum Data {
    /// The first bytes of the buffer given to `read`.
    Filled(usize),
    /// Memory of the file system.
    Owned(Vec<u8>),
    /// Memory shared with the file system, as `Bytes` from a cache.
    Shared(Box<dyn AsRef<[u8]>>),
    /// Several pieces, one after the other.
    Parts(Vec<Box<dyn AsRef<[u8]>>>),
}

impl Data {
    /// End of file.
    pub const EMPTY: Data = Data::Filled(0);

    /// Memory shared with the file system.
    pub fn shared(data: impl AsRef<[u8]> + 'static) -> Data {
        Data::Shared(Box::new(data))
    }
}

/// Pads a name to the next multiple of 8 bytes.
fn padded(len: usize) -> usize {
    len.next_multiple_of(8)
}

/// The kernel takes a whole listing for broken if one name is.
fn acceptable(name: &OsStr) -> bool {
    let bytes = name.as_bytes();
    !bytes.is_empty() && bytes.len() <= DIRENT_NAME_MAX && !bytes.contains(&b'/') && !bytes.contains(&0)
}

struct Dirent<'a> {
    ino: u64,
    offset: u64,
    kind: FileType,
    name: &'a OsStr,
}

const DIRENT: usize = 24;
const ENTRY: usize = 128;

fn dirent(out: &mut Vec<u8>, entry: &Dirent<'_>) {
    let name = entry.name.as_bytes();
    out.u64(entry.ino);
    out.u64(entry.offset);
    out.u32(u32::try_from(name.len()).unwrap_or(0));
    out.u32(entry.kind.dirent());
    out.bytes(name);
    out.resize(out.len() + padded(name.len()) - name.len(), 0);
}

/// Takes the entries of a READDIR.
pub struct DirSink<'a> {
    out: &'a mut Vec<u8>,
    end: usize,
}

impl<'a> DirSink<'a> {
    pub(crate) fn new(out: &'a mut Vec<u8>, size: usize) -> DirSink<'a> {
        let end = out.len() + size;
        DirSink { out, end }
    }

    /// Adds an entry; false if it found no room (then stop, and give it again
    /// next time). `offset` is where to go on after this entry, never 0. A
    /// name the kernel would refuse is left out.
    #[must_use]
    pub fn push(&mut self, ino: u64, offset: u64, kind: FileType, name: &OsStr) -> bool {
        if !acceptable(name) {
            tracing::warn!(?name, ino, "directory entry left out: not a name");
            return true;
        }
        if self.out.len() + DIRENT + padded(name.len()) > self.end {
            return false;
        }
        dirent(self.out, &Dirent { ino, offset, kind, name });
        true
    }
}

/// Takes the entries of a READDIRPLUS.
pub struct DirPlusSink<'a> {
    out: &'a mut Vec<u8>,
    end: usize,
}

impl<'a> DirPlusSink<'a> {
    pub(crate) fn new(out: &'a mut Vec<u8>, size: usize) -> DirPlusSink<'a> {
        let end = out.len() + size;
        DirPlusSink { out, end }
    }

    /// Adds an entry; false if it found no room: it then does not count as a
    /// lookup. `offset` is where to go on after this entry, never 0. The inode
    /// number and type are those of `entry.attr`. An entry with node 0 has no
    /// attributes for the kernel to keep (use it for "." and "..").
    #[must_use]
    pub fn push(&mut self, entry: &Entry, offset: u64, name: &OsStr) -> bool {
        if !acceptable(name) {
            tracing::warn!(?name, ino = entry.attr.ino, "directory entry left out: not a name");
            return true;
        }
        if self.out.len() + ENTRY + DIRENT + padded(name.len()) > self.end {
            return false;
        }
        reply::entry(self.out, entry);
        let kind = FileType::from_mode(entry.attr.mode);
        dirent(self.out, &Dirent { ino: entry.attr.ino, offset, kind, name });
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sink_takes_what_fits_and_leaves_out_what_is_no_name() {
        let mut out = vec![0; 16];
        let mut sink = DirSink::new(&mut out, 64);
        assert!(sink.push(1, 1, FileType::Regular, OsStr::new("a/b")));
        assert!(sink.push(1, 1, FileType::Regular, OsStr::new("")));
        assert!(sink.push(1, 1, FileType::Regular, OsStr::new("a")));
        assert!(sink.push(2, 2, FileType::Regular, OsStr::new("12345678")));
        assert!(!sink.push(3, 3, FileType::Regular, OsStr::new("c")));
        assert_eq!(out.len(), 16 + 64);
    }

    #[test]
    fn a_plus_sink_takes_what_fits() {
        let mut out = Vec::new();
        let mut sink = DirPlusSink::new(&mut out, 320);
        let entry = Entry { node: 5, ..Entry::default() };
        assert!(sink.push(&entry, 1, OsStr::new("a")));
        assert!(sink.push(&entry, 2, OsStr::new("b")));
        assert!(!sink.push(&entry, 3, OsStr::new("c")));
        assert_eq!(out.len(), 320);
    }
}
