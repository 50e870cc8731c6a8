//! Encoding of replies: the bodies that follow the reply header.

use std::time::Duration;

use crate::abi::Put;
use crate::types::{Attr, AttrReply, Entry, Lock, Opened, StatFs, Statx, Timestamp};

fn timeout(out: &mut Vec<u8>, secs_first: Duration, also: Option<Duration>) {
    out.u64(secs_first.as_secs());
    if let Some(also) = also {
        out.u64(also.as_secs());
    }
    out.u32(secs_first.subsec_nanos());
    if let Some(also) = also {
        out.u32(also.subsec_nanos());
    }
}

pub(crate) fn attr(out: &mut Vec<u8>, attr: &Attr) {
    for value in [attr.ino, attr.size, attr.blocks] {
        out.u64(value);
    }
    let times = [attr.atime, attr.mtime, attr.ctime];
    for time in times {
        out.i64(time.secs);
    }
    for time in times {
        out.u32(time.nanos);
    }
    for value in [attr.mode, attr.nlink, attr.uid, attr.gid, attr.rdev, attr.blksize, 0] {
        out.u32(value);
    }
}

pub(crate) fn attr_reply(out: &mut Vec<u8>, reply: &AttrReply) {
    timeout(out, reply.timeout, None);
    out.u32(0);
    attr(out, &reply.attr);
}

pub(crate) fn entry(out: &mut Vec<u8>, entry: &Entry) {
    out.u64(entry.node);
    out.u64(entry.generation);
    timeout(out, entry.entry_timeout, Some(entry.attr_timeout));
    attr(out, &entry.attr);
}

pub(crate) fn opened(out: &mut Vec<u8>, opened: &Opened) {
    out.u64(opened.fh);
    out.u32(opened.flags.0);
    out.u32(0);
}

pub(crate) fn statfs(out: &mut Vec<u8>, st: &StatFs) {
    for value in [st.blocks, st.bfree, st.bavail, st.files, st.ffree] {
        out.u64(value);
    }
    for value in [st.bsize, st.namelen, st.frsize, 0, 0, 0, 0, 0, 0, 0] {
        out.u32(value);
    }
}

pub(crate) fn lock(out: &mut Vec<u8>, lock: &Lock) {
    out.u64(lock.start);
    out.u64(lock.end);
    out.u32(lock.kind.raw());
    out.u32(lock.pid);
}

/// A 32-bit number with its padding: sizes of writes and xattrs, poll events.
pub(crate) fn number(out: &mut Vec<u8>, number: u32) {
    out.u32(number);
    out.u32(0);
}

fn statx_time(out: &mut Vec<u8>, time: Timestamp) {
    out.i64(time.secs);
    out.u32(time.nanos);
    out.u32(0);
}

pub(crate) fn statx(out: &mut Vec<u8>, reply: &Statx) {
    const BASIC: u32 = 0x7ff;
    const BTIME: u32 = 0x800;
    let attr = &reply.attr;
    timeout(out, reply.timeout, None);
    for value in [0; 5] {
        out.u32(value);
    }
    out.u32(BASIC | if reply.btime.is_some() { BTIME } else { 0 });
    out.u32(attr.blksize);
    out.u64(reply.attributes);
    for value in [attr.nlink, attr.uid, attr.gid] {
        out.u32(value);
    }
    out.u16(u16::try_from(attr.mode & 0xffff).unwrap_or(0));
    out.u16(0);
    for value in [attr.ino, attr.size, attr.blocks, reply.attributes_mask] {
        out.u64(value);
    }
    for time in [attr.atime, reply.btime.unwrap_or_default(), attr.ctime, attr.mtime] {
        statx_time(out, time);
    }
    let (major, minor) = (attr.rdev >> 8 & 0xfff, attr.rdev & 0xff | attr.rdev >> 12 & 0xfff00);
    for value in [major, minor, 0, 0] {
        out.u32(value);
    }
    for value in [0; 14] {
        out.u64(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn len(encode: impl FnOnce(&mut Vec<u8>)) -> usize {
        let mut out = Vec::new();
        encode(&mut out);
        out.len()
    }

    /// The sizes of the kernel's structs.
    #[test]
    fn bodies_have_the_kernels_sizes() {
        assert_eq!(len(|out| attr(out, &Attr::default())), 88);
        assert_eq!(len(|out| attr_reply(out, &AttrReply::default())), 104);
        assert_eq!(len(|out| entry(out, &Entry::default())), 128);
        assert_eq!(len(|out| opened(out, &Opened::default())), 16);
        assert_eq!(len(|out| statfs(out, &StatFs::default())), 80);
        assert_eq!(len(|out| number(out, 1)), 8);
        assert_eq!(len(|out| statx(out, &Statx::default())), 32 + 256);
    }
}
