//! A small file system in memory, some of whose names wait for a "network".

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use fuse::wait::{self, Wake};
use fuse::*;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

pub(crate) const LONG: Duration = Duration::from_secs(20);

#[derive(Default)]
struct Node {
    attr: Attr,
    data: Vec<u8>,
    entries: BTreeMap<OsString, u64>,
    xattrs: BTreeMap<OsString, Vec<u8>>,
}

/// What the kernel asked, for the tests to look at.
#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) interrupted: AtomicUsize,
    pub(crate) flocks: AtomicUsize,
    pub(crate) fcntls: AtomicUsize,
    pub(crate) destroyed: AtomicUsize,
    /// How often the file system was told that requests may have waited in the kernel, and the longest of these times in
    /// milliseconds.
    pub(crate) crowds: AtomicUsize,
    pub(crate) crowded_for: AtomicU64,
    pub(crate) opens: AtomicUsize,
}

#[derive(Default)]
pub(crate) struct MemFs {
    nodes: Mutex<BTreeMap<u64, Node>>,
    next: AtomicU64,
    /// Requests that wait for the "network": our end answers them.
    calls: Mutex<Vec<OwnedFd>>,
    called: Condvar,
    pub(crate) seen: Seen,
    /// How long the kernel may cache.
    pub(crate) ttl: Duration,
}

impl MemFs {
    pub(crate) fn new(ttl: Duration) -> MemFs {
        let fs = MemFs { next: AtomicU64::new(ROOT + 1), ttl, ..MemFs::default() };
        // Of whoever runs the test: the kernel checks permissions.
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let attr = Attr { ino: ROOT, mode: libc::S_IFDIR | 0o755, nlink: 2, uid, gid, ..Attr::default() };
        fs.nodes.lock().unwrap().insert(ROOT, Node { attr, ..Node::default() });
        fs
    }

    /// Takes the calls as soon as there are `count`, or panics.
    pub(crate) fn take_calls(&self, count: usize) -> Vec<OwnedFd> {
        let calls = self.calls.lock().unwrap();
        let (mut calls, time) =
            self.called.wait_timeout_while(calls, LONG, |calls| calls.len() < count).unwrap();
        assert!(!time.timed_out(), "only {} of {count} calls came", calls.len());
        std::mem::take(&mut *calls)
    }

    /// Changes a file behind the kernel's back.
    pub(crate) fn set_data(&self, ino: u64, data: &[u8]) {
        let mut nodes = self.nodes.lock().unwrap();
        let node = nodes.get_mut(&ino).unwrap();
        node.data = data.to_vec();
        node.attr.size = data.len() as u64;
    }

    /// Adds a file behind the kernel's back.
    pub(crate) fn add_file(&self, name: &str) -> u64 {
        self.make(ROOT, OsStr::new(name), libc::S_IFREG | 0o644).unwrap().node
    }

    fn call(&self) -> Result<(), Errno> {
        let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
        self.calls.lock().unwrap().push(theirs);
        self.called.notify_all();
        match wait::readable(ours.as_fd(), Some(LONG))? {
            Wake::Ready => Ok(()),
            Wake::TimedOut => Err(Errno::ETIMEDOUT),
            Wake::Interrupted => {
                self.seen.interrupted.fetch_add(1, Ordering::SeqCst);
                Err(Errno::EINTR)
            }
        }
    }

    fn entry(&self, attr: Attr) -> Entry {
        Entry { node: attr.ino, generation: 0, attr, entry_timeout: self.ttl, attr_timeout: self.ttl }
    }

    fn make(&self, parent: u64, name: &OsStr, mode: u32) -> Result<Entry, Errno> {
        let mut nodes = self.nodes.lock().unwrap();
        let ino = self.next.fetch_add(1, Ordering::SeqCst);
        let dir = nodes.get_mut(&parent).ok_or(Errno::ENOENT)?;
        if dir.entries.contains_key(name) {
            return Err(Errno::EEXIST);
        }
        dir.entries.insert(name.into(), ino);
        let attr = Attr { ino, mode, nlink: 1, ..Attr::default() };
        nodes.insert(ino, Node { attr, ..Node::default() });
        Ok(self.entry(attr))
    }

    fn with<T>(&self, node: u64, f: impl FnOnce(&mut Node) -> Result<T, Errno>) -> Result<T, Errno> {
        f(self.nodes.lock().unwrap().get_mut(&node).ok_or(Errno::ENOENT)?)
    }

    fn remove(&self, parent: u64, name: &OsStr) -> Result<(), Errno> {
        self.with(parent, |dir| dir.entries.remove(name).map(|_| ()).ok_or(Errno::ENOENT))
    }

    fn list(
        &self,
        node: u64,
        from: u64,
        mut push: impl FnMut(Attr, u64, &OsStr) -> bool,
    ) -> Result<(), Errno> {
        let nodes = self.nodes.lock().unwrap();
        let dir = nodes.get(&node).ok_or(Errno::ENOENT)?;
        for (at, (name, ino)) in dir.entries.iter().enumerate().skip(from as usize) {
            if !push(nodes[ino].attr, at as u64 + 1, name) {
                break;
            }
        }
        Ok(())
    }

    fn lock(&self, op: &LockOp) {
        let counter = if op.flock { &self.seen.flocks } else { &self.seen.fcntls };
        counter.fetch_add(1, Ordering::SeqCst);
    }
}

type Reply<T> = Result<T, Errno>;

impl Filesystem for MemFs {
    fn init(&self, kernel: &Kernel, config: &mut InitConfig) -> Reply<()> {
        assert!(kernel.minor >= 31);
        config.want |= Capabilities::DO_READDIRPLUS
            | Capabilities::FLOCK_LOCKS
            | Capabilities::POSIX_LOCKS
            | Capabilities::ATOMIC_O_TRUNC;
        Ok(())
    }

    fn destroy(&self) {
        self.seen.destroyed.fetch_add(1, Ordering::SeqCst);
    }

    fn was_crowded(&self, lasted: Duration, _: usize) {
        let lasted = u64::try_from(lasted.as_millis()).unwrap();
        self.seen.crowded_for.fetch_max(lasted, Ordering::SeqCst);
        self.seen.crowds.fetch_add(1, Ordering::SeqCst);
    }

    fn lookup(&self, _: &Request<'_>, parent: u64, name: &OsStr) -> Reply<Entry> {
        match name.as_bytes() {
            [b's', b'l', b'o', b'w', ..] => self.call()?,
            b"panic" => panic!("asked to"),
            _ => {}
        }
        let nodes = self.nodes.lock().unwrap();
        let ino = nodes.get(&parent).ok_or(Errno::ENOENT)?.entries.get(name);
        match ino {
            Some(ino) => Ok(self.entry(nodes[ino].attr)),
            None if self.ttl.is_zero() => Err(Errno::ENOENT),
            None => Ok(Entry::negative(self.ttl)),
        }
    }

    fn getattr(&self, _: &Request<'_>, node: u64, _: Option<u64>) -> Reply<AttrReply> {
        self.with(node, |node| Ok(AttrReply { attr: node.attr, timeout: self.ttl }))
    }

    fn setattr(&self, _: &Request<'_>, node: u64, op: &SetAttr) -> Reply<AttrReply> {
        self.with(node, |node| {
            if let Some(size) = op.size {
                node.data.resize(size as usize, 0);
                node.attr.size = size;
            }
            if let Some(mode) = op.mode {
                node.attr.mode = node.attr.mode & libc::S_IFMT | mode & 0o7777;
            }
            if let Some(TimeSet::At(time)) = op.mtime {
                node.attr.mtime = time;
            }
            Ok(AttrReply { attr: node.attr, timeout: self.ttl })
        })
    }

    fn symlink(&self, _: &Request<'_>, parent: u64, name: &OsStr, target: &OsStr) -> Reply<Entry> {
        let entry = self.make(parent, name, libc::S_IFLNK | 0o777)?;
        self.set_data(entry.node, target.as_bytes());
        Ok(entry)
    }

    fn readlink(&self, _: &Request<'_>, node: u64) -> Reply<Vec<u8>> {
        self.with(node, |node| Ok(node.data.clone()))
    }

    fn mkdir(&self, _: &Request<'_>, op: &MkdirOp<'_>) -> Reply<Entry> {
        self.make(op.parent, op.name, libc::S_IFDIR | op.mode)
    }

    fn unlink(&self, _: &Request<'_>, parent: u64, name: &OsStr) -> Reply<()> {
        self.remove(parent, name)
    }

    fn rmdir(&self, _: &Request<'_>, parent: u64, name: &OsStr) -> Reply<()> {
        self.remove(parent, name)
    }

    fn rename(&self, _: &Request<'_>, op: &RenameOp<'_>) -> Reply<()> {
        let ino = self.with(op.parent, |dir| dir.entries.get(op.name).copied().ok_or(Errno::ENOENT))?;
        let taken = self.with(op.new_parent, |dir| Ok(dir.entries.contains_key(op.new_name)))?;
        if taken && op.flags & libc::RENAME_NOREPLACE != 0 {
            return Err(Errno::EEXIST);
        }
        self.remove(op.parent, op.name)?;
        self.with(op.new_parent, |dir| Ok(dir.entries.insert(op.new_name.into(), ino))).map(|_| ())
    }

    fn open(&self, _: &Request<'_>, node: u64, op: &OpenOp) -> Reply<Opened> {
        self.seen.opens.fetch_add(1, Ordering::SeqCst);
        if op.flags & libc::O_TRUNC as u32 != 0 {
            self.set_data(node, b"");
        }
        Ok(Opened { fh: node, flags: OpenFlags::DIRECT_IO })
    }

    fn create(&self, _: &Request<'_>, op: &CreateOp<'_>) -> Reply<(Entry, Opened)> {
        let entry = self.make(op.parent, op.name, op.mode)?;
        Ok((entry, Opened { fh: entry.node, flags: OpenFlags::DIRECT_IO }))
    }

    fn read(&self, _: &Request<'_>, op: &ReadOp, buf: &mut [u8]) -> Reply<Data> {
        let piece = self.with(op.node, |node| {
            let rest = node.data.get(op.offset as usize..).unwrap_or_default();
            Ok(rest[..rest.len().min(op.size as usize)].to_vec())
        })?;
        if piece.starts_with(b"block") {
            self.call()?;
        }
        // All the ways there are, by size.
        let half = piece.len() / 2;
        Ok(match piece.len() % 4 {
            0 => {
                buf[..piece.len()].copy_from_slice(&piece);
                Data::Filled(piece.len())
            }
            1 => Data::Owned(piece),
            2 => Data::shared(piece),
            _ => Data::Parts(vec![Box::new(piece[..half].to_vec()), Box::new(piece[half..].to_vec())]),
        })
    }

    fn write(&self, _: &Request<'_>, op: &WriteOp<'_>) -> Reply<u32> {
        self.with(op.node, |node| {
            let end = op.offset as usize + op.data.len();
            if node.data.len() < end {
                node.data.resize(end, 0);
            }
            node.data[op.offset as usize..end].copy_from_slice(op.data);
            node.attr.size = node.data.len() as u64;
            Ok(op.data.len() as u32)
        })
    }

    fn release(&self, _: &Request<'_>, _: u64, op: &ReleaseOp) -> Reply<()> {
        assert!(op.fh != 0);
        Ok(())
    }

    fn setxattr(&self, _: &Request<'_>, node: u64, op: &SetxattrOp<'_>) -> Reply<()> {
        self.with(node, |node| Ok(node.xattrs.insert(op.name.into(), op.value.to_vec()))).map(|_| ())
    }

    fn getxattr(&self, _: &Request<'_>, node: u64, name: &OsStr, _: u32) -> Reply<Vec<u8>> {
        self.with(node, |node| node.xattrs.get(name).cloned().ok_or(Errno::ENODATA))
    }

    fn listxattr(&self, _: &Request<'_>, node: u64, _: u32) -> Reply<Vec<u8>> {
        let join =
            |node: &mut Node| node.xattrs.keys().flat_map(|name| [name.as_bytes(), b"\0"].concat()).collect();
        self.with(node, |node| Ok(join(node)))
    }

    fn removexattr(&self, _: &Request<'_>, node: u64, name: &OsStr) -> Reply<()> {
        self.with(node, |node| node.xattrs.remove(name).map(|_| ()).ok_or(Errno::ENODATA))
    }

    fn readdir(&self, _: &Request<'_>, node: u64, op: &ReaddirOp, sink: &mut DirSink<'_>) -> Reply<()> {
        self.list(node, op.offset, |attr, at, name| {
            sink.push(attr.ino, at, FileType::from_mode(attr.mode), name)
        })
    }

    fn readdirplus(
        &self,
        _: &Request<'_>,
        node: u64,
        op: &ReaddirOp,
        sink: &mut DirPlusSink<'_>,
    ) -> Reply<()> {
        self.list(node, op.offset, |attr, at, name| sink.push(&self.entry(attr), at, name))
    }

    fn getlk(&self, _: &Request<'_>, _: u64, op: &LockOp) -> Reply<Lock> {
        Ok(Lock { kind: LockKind::Unlock, ..op.lock })
    }

    fn setlk(&self, _: &Request<'_>, _: u64, op: &LockOp) -> Reply<()> {
        self.lock(op);
        Ok(())
    }

    fn setlkw(&self, _: &Request<'_>, _: u64, op: &LockOp) -> Reply<()> {
        self.lock(op);
        self.call()
    }
}
