//! The adapter: each request of the kernel as a call of the client.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use client::{Client, NewEntry, Object, Payload, Span, duration};
use fuse::{
    AttrReply, Capabilities, CopyOp, CreateOp, Data, DirPlusSink, DirSink, Entry, Errno, FallocateOp,
    FileType, Filesystem, FlushOp, InitConfig, Kernel, LinkOp, Lock, LockOp, LseekOp, MkdirOp, MknodOp,
    Notifier, OpenFlags, OpenOp, Opened, ROOT, ReadOp, ReaddirOp, ReleaseOp, RenameOp, Request, SetAttr,
    SetxattrOp, StatFs, WriteOp,
};
use wire::op::{Node, rename_flags};
use wire::{Attr, User, limits};

use crate::convert::{self, errno};
use crate::inodes::Inodes;
use crate::kept::{self, Kept};
use crate::listing::Listings;
use crate::locks::{self, Locks};
use crate::pages::Pages;
use crate::places::Places;

mod attributes;
mod last_seen;
mod list;
mod moved;
mod permission;
mod users;

use last_seen::LastSeen;
use list::{ListFrom, Listed};
use users::Users;

type Reply<T> = Result<T, Errno>;

const CAPABILITY: &[u8] = b"security.capability";
/// The most that one copy_file_range asks for: the kernel's callers go on by themselves.
const COPY_MAX: u64 = 16 << 20;
const S_ISGID: u32 = 0o2000;

/// The file system.
pub(crate) struct FuseAdapter {
    client: Arc<Client>,
    inodes: Inodes,
    listings: Arc<Listings>,
    locks: Arc<Locks>,
    /// And how many threads may wait for the kernel to drop pages.
    notifier: OnceLock<(Notifier, usize)>,
    /// How many do.
    dropping: AtomicUsize,
    places: Places,
    /// How many threads wait for the kernel to forget entries.
    forgetting: Arc<AtomicUsize>,
    next_handle: AtomicU64,
    last_seen: LastSeen,
    entry_timeout: Duration,
    attr_timeout: Duration,
    /// As whom servers take all requests; `None`: as whom the mount says, and the kernel checks permissions.
    squash: Option<User>,
    /// The users whom servers let in, and who opened which handle; `None`: all.
    users: Option<Users>,
    /// What [`kept::ATTRIBUTE`] says.
    kept: Vec<u8>,
}

impl FuseAdapter {
    pub(crate) fn new(client: Arc<Client>, root: Object, kept: &Kept) -> FuseAdapter {
        let option = |key| client.option(key).and_then(|v| duration(&v)).unwrap_or_default();
        let (entry_timeout, attr_timeout) = (option("client.entry-timeout"), option("client.attr-timeout"));
        FuseAdapter {
            inodes: Inodes::new(root),
            listings: Arc::default(),
            locks: Locks::new(Arc::clone(&client)),
            notifier: OnceLock::new(),
            dropping: AtomicUsize::new(0),
            places: Places::default(),
            forgetting: Arc::default(),
            next_handle: AtomicU64::new(1),
            last_seen: LastSeen::default(),
            entry_timeout,
            attr_timeout,
            squash: client.squash(),
            users: client.users().map(Users::new),
            kept: kept.text(),
            client,
        }
    }

    fn object(&self, node: u64) -> Reply<Object> {
        self.inodes.get(node).ok_or(Errno::ESTALE)
    }

    fn make(&self, req: &Request<'_>, parent: u64, new: NewEntry) -> Reply<Entry> {
        let attr = self.client(req)?.create(self.object(parent)?, new).map_err(errno)?;
        Ok(self.made(&attr))
    }

    /// The entry of what was just made.
    fn made(&self, attr: &Attr) -> Entry {
        let entry = self.entry(attr);
        self.inodes.note_made(entry.node, client::grant::until_if_made_now());
        entry
    }

    /// How files are open: the page cache stays, as it is checked against size and mtime at every use. What appends goes
    /// around it: the kernel cuts a write at pages it has not read, and another client's could get between the parts. The
    /// kernel tells of each close only where locks are likely: it costs a call.
    fn opened(&self, req: &Request<'_>, node: u64, flags: i32) -> Opened {
        let appends = flags & libc::O_APPEND != 0;
        let cache = if appends { OpenFlags::DIRECT_IO } else { OpenFlags::KEEP_CACHE };
        self.inodes.pages(node, Pages::open);
        let told = locks::are_likely(flags) || self.inodes.was_locked(node);
        let flush = if told { OpenFlags::empty() } else { OpenFlags::NOFLUSH };
        let fh = self.next_handle.fetch_add(1, Ordering::Relaxed);
        if let Some(users) = &self.users {
            users.opened(fh, req.uid);
        }
        Opened { fh, flags: cache | flush }
    }

    fn set_lock(&self, req: &Request<'_>, node: u64, op: &LockOp, wait: bool) -> Reply<()> {
        let _client = self.client_of_nobody(req);
        self.inodes.note_locked(node);
        self.locks.set(req, node, op, wait)
    }

    /// A name that was made by somebody else after the kernel had looked: opens that.
    fn open_made(&self, req: &Request<'_>, parent: Object, op: &CreateOp<'_>) -> Reply<(Entry, Opened)> {
        let client = self.client(req)?;
        let attr = client.lookup(parent, &convert::name(op.name)?).map_err(errno)?;
        match FileType::from_mode(attr.mode) {
            FileType::Directory => return Err(Errno::EISDIR),
            FileType::Regular => {}
            // The kernel looks the path up anew and follows the link, or finds the device.
            _ => return Err(Errno::ESTALE),
        }
        let object = Object::from(&attr);
        self.may_open(req, object, op.flags.cast_signed())?;
        client.open(object).map_err(errno)?;
        let mut result = Ok(attr);
        if op.flags & libc::O_TRUNC.unsigned_abs() != 0 {
            result = client.setattr(object, convert::truncate(op.kill_suidgid)).map_err(errno);
        }
        let attr = result.inspect_err(|_| client.release(object))?;
        let entry = self.entry(&attr);
        Ok((entry, self.opened(req, entry.node, op.flags.cast_signed())))
    }
}

impl Filesystem for FuseAdapter {
    fn init(&self, _kernel: &Kernel, config: &mut InitConfig) -> Reply<()> {
        // Not ATOMIC_O_TRUNC: with it a program that runs is emptied before the kernel says that it may not be (ETXTBSY).
        config.want |= Capabilities::DONT_MASK
            | Capabilities::HANDLE_KILLPRIV_V2
            | Capabilities::CACHE_SYMLINKS
            | Capabilities::POSIX_LOCKS
            | Capabilities::FLOCK_LOCKS;
        config.want |= Capabilities::DO_READDIRPLUS | Capabilities::READDIRPLUS_AUTO;
        if self.squash.is_none() {
            // With it the kernel would check permissions for its own user.
            config.want |= Capabilities::POSIX_ACL;
        }
        config.max_write = limits::IO_MAX;
        Ok(())
    }

    fn was_crowded(&self, lasted: Duration, threads: usize) {
        self.client.tell_crowded(lasted, threads);
    }

    fn lookup(&self, req: &Request<'_>, parent: u64, name: &OsStr) -> Reply<Entry> {
        let attr = self.client(req)?.lookup(self.object(parent)?, &convert::name(name)?).map_err(errno)?;
        let entry = self.entry(&attr);
        self.forget_other_places(&entry, parent, name);
        Ok(entry)
    }

    fn forget(&self, node: u64, count: u64) {
        if let Some((object, kind)) = self.inodes.forget(node, count) {
            self.client.forget(object);
            if kind == libc::S_IFDIR {
                self.places.forget(node);
            }
        }
    }

    fn getattr(&self, req: &Request<'_>, node: u64, fh: Option<u64>) -> Reply<AttrReply> {
        if node == ROOT {
            return self.look_at_root(self.client_of_anyone(req), self.object(ROOT)?).map_err(errno);
        }
        self.look(self.of_opener(req, fh)?, node, self.object(node)?).map_err(errno)
    }

    fn setattr(&self, req: &Request<'_>, node: u64, op: &SetAttr) -> Reply<AttrReply> {
        let set = convert::set_attr(op);
        let attr = self.through(req, op.fh)?.setattr(self.object(node)?, set).map_err(errno)?;
        Ok(self.changed_reply(node, &attr, op.size.is_some()))
    }

    fn readlink(&self, req: &Request<'_>, node: u64) -> Reply<Vec<u8>> {
        self.client(req)?.readlink(self.object(node)?).map_err(errno)
    }

    fn symlink(&self, req: &Request<'_>, parent: u64, name: &OsStr, target: &OsStr) -> Reply<Entry> {
        let node = Client::symlink_to(target.as_bytes());
        let (uid, gid) = (req.uid, req.gid);
        self.make(req, parent, NewEntry { name: convert::name(name)?, node, mode: 0o777, umask: 0, uid, gid })
    }

    fn mknod(&self, req: &Request<'_>, op: &MknodOp<'_>) -> Reply<Entry> {
        let node = match FileType::from_mode(op.mode) {
            FileType::Regular => Node::File,
            FileType::Fifo => Node::Fifo,
            FileType::Socket => Node::Socket,
            FileType::CharDevice => Node::Char { rdev: op.rdev },
            FileType::BlockDevice => Node::Block { rdev: op.rdev },
            FileType::Unknown | FileType::Directory | FileType::Symlink => return Err(Errno::EINVAL),
        };
        let (mode, umask, uid, gid) = (op.mode, op.umask, req.uid, req.gid);
        self.make(req, op.parent, NewEntry { name: convert::name(op.name)?, node, mode, umask, uid, gid })
    }

    fn mkdir(&self, req: &Request<'_>, op: &MkdirOp<'_>) -> Reply<Entry> {
        let (mode, umask, uid, gid) = (op.mode, op.umask, req.uid, req.gid);
        let name = convert::name(op.name)?;
        let entry = self.make(req, op.parent, NewEntry { name, node: Node::Dir, mode, umask, uid, gid })?;
        self.forget_other_places(&entry, op.parent, op.name);
        Ok(entry)
    }

    fn unlink(&self, req: &Request<'_>, parent: u64, name: &OsStr) -> Reply<()> {
        self.client(req)?.unlink(self.object(parent)?, convert::name(name)?).map_err(errno)
    }

    fn rmdir(&self, req: &Request<'_>, parent: u64, name: &OsStr) -> Reply<()> {
        self.client(req)?.rmdir(self.object(parent)?, convert::name(name)?).map_err(errno)
    }

    fn rename(&self, req: &Request<'_>, op: &RenameOp<'_>) -> Reply<()> {
        if op.flags & !(rename_flags::NOREPLACE | rename_flags::EXCHANGE) != 0 {
            return Err(Errno::EINVAL);
        }
        let from = (self.object(op.parent)?, convert::name(op.name)?);
        let to = (self.object(op.new_parent)?, convert::name(op.new_name)?);
        self.client(req)?.rename(from, to, op.flags).map_err(errno)?;
        let (from, to) = ((op.parent, op.name.to_owned()), (op.new_parent, op.new_name.to_owned()));
        self.places.renamed(from, to, op.flags & rename_flags::EXCHANGE != 0);
        Ok(())
    }

    fn link(&self, req: &Request<'_>, op: &LinkOp<'_>) -> Reply<Entry> {
        let (object, parent) = (self.object(op.node)?, self.object(op.new_parent)?);
        let linked = self.client(req)?.link(object, parent, convert::name(op.new_name)?).map_err(errno)?;
        let attr = linked.unwrap_or_else(|| convert::gone(object, self.inodes.kind(op.node)));
        Ok(self.entry(&attr))
    }

    fn open(&self, req: &Request<'_>, node: u64, op: &OpenOp) -> Reply<Opened> {
        let (client, object) = (self.client(req)?, self.object(node)?);
        self.may_open(req, object, op.flags.cast_signed())?;
        client.open(object).map_err(errno)?;
        Ok(self.opened(req, node, op.flags.cast_signed()))
    }

    fn create(&self, req: &Request<'_>, op: &CreateOp<'_>) -> Reply<(Entry, Opened)> {
        let parent = self.object(op.parent)?;
        let new = NewEntry {
            name: convert::name(op.name)?,
            node: Node::File,
            mode: op.mode,
            umask: op.umask,
            uid: req.uid,
            gid: req.gid,
        };
        match self.client(req)?.create_open(parent, new) {
            Ok(attr) => {
                let entry = self.made(&attr);
                Ok((entry, self.opened(req, entry.node, op.flags.cast_signed())))
            }
            Err(wire::Errno::EEXIST) if op.flags & libc::O_EXCL.unsigned_abs() == 0 => {
                self.open_made(req, parent, op)
            }
            Err(e) => Err(errno(e)),
        }
    }

    fn read(&self, req: &Request<'_>, op: &ReadOp, buf: &mut [u8]) -> Reply<Data> {
        let object = self.object(op.node)?;
        let mut into = Payload::lent(buf);
        self.through(req, Some(op.fh))?.read(object, op.offset, op.size, &mut into).map_err(errno)?;
        self.note_if_striped(op.node, object);
        Ok(Data::Filled(into.len()))
    }

    fn write(&self, req: &Request<'_>, op: &WriteOp<'_>) -> Reply<u32> {
        let append = !op.from_cache && op.flags & libc::O_APPEND.unsigned_abs() != 0;
        let at = Span { offset: op.offset, append, kill_suid: op.kill_suidgid };
        let object = self.object(op.node)?;
        let (len, attr) = self.through(req, Some(op.fh))?.write(object, at, op.data).map_err(errno)?;
        self.note_if_striped(op.node, object);
        // Pages that may be older than the write are dropped when the kernel asks for attributes.
        let _later = self.changed(op.node, &attr, false);
        Ok(len)
    }

    fn statfs(&self, req: &Request<'_>, _node: u64) -> Reply<StatFs> {
        let room = self.look_at_room(self.client_of_nobody(req)).map_err(errno)?;
        const BLOCK: u32 = 4096;
        let blocks = |bytes: u64| bytes / u64::from(BLOCK);
        Ok(StatFs {
            blocks: blocks(room.total),
            bfree: blocks(room.free),
            bavail: blocks(room.available),
            files: room.files,
            ffree: room.files_free,
            bsize: BLOCK,
            namelen: 255,
            frsize: BLOCK,
        })
    }

    fn flush(&self, _req: &Request<'_>, node: u64, op: &FlushOp) -> Reply<()> {
        self.locks.flush(node, op.lock_owner);
        Ok(())
    }

    fn release(&self, req: &Request<'_>, node: u64, op: &ReleaseOp) -> Reply<()> {
        self.locks.release(node, op.fh);
        if let Some(users) = &self.users {
            users.closed(op.fh);
        }
        let object = self.object(node)?;
        self.client_of_nobody(req).release(object);
        Ok(())
    }

    fn fsync(&self, req: &Request<'_>, node: u64, fh: u64, _datasync: bool) -> Reply<()> {
        self.of_opener(req, Some(fh))?.fsync(self.object(node)?).map_err(errno)
    }

    fn fsyncdir(&self, req: &Request<'_>, node: u64, fh: u64, _datasync: bool) -> Reply<()> {
        self.of_opener(req, Some(fh))?.fsync_dir(self.object(node)?).map_err(errno)
    }

    fn syncfs(&self, req: &Request<'_>, _node: u64) -> Reply<()> {
        self.client_of_nobody(req).sync().map_err(errno)
    }

    fn setxattr(&self, req: &Request<'_>, node: u64, op: &SetxattrOp<'_>) -> Reply<()> {
        let (client, object) = (self.client(req)?, self.object(node)?);
        let name = convert::name(op.name)?;
        self.inodes.note_xattr(node);
        client.setxattr(object, name, op.value, op.flags).map_err(errno)?;
        if op.kill_sgid {
            let attr = client.getattr(object).map_err(errno)?;
            if attr.mode & S_ISGID != 0 {
                let mode = Some(attr.mode & 0o7777 & !S_ISGID);
                let set = convert::set_attr(&SetAttr { mode, ..SetAttr::default() });
                client.setattr(object, set).map_err(errno)?;
            }
        }
        Ok(())
    }

    fn access(&self, req: &Request<'_>, node: u64, mask: u32) -> Reply<()> {
        self.may_access(req, self.object(node)?, mask)
    }

    fn getxattr(&self, req: &Request<'_>, node: u64, name: &OsStr, _size: u32) -> Reply<Vec<u8>> {
        if node == ROOT && name == kept::ATTRIBUTE {
            return Ok(self.kept.clone());
        }
        let capability = name.as_bytes() == CAPABILITY;
        if capability && self.inodes.has_no_capabilities(node) {
            return Err(Errno::ENODATA);
        }
        if self.inodes.is_bare(node) && !name.as_bytes().starts_with(b"system.") {
            return Err(Errno::ENODATA);
        }
        let Ok(name) = convert::name(name) else { return Err(Errno::ENODATA) };
        let result = self.client(req)?.getxattr(self.object(node)?, name).map_err(errno);
        if capability {
            self.inodes.note_capabilities(node, matches!(result, Err(Errno::ENODATA)));
        }
        result
    }

    fn listxattr(&self, req: &Request<'_>, node: u64, _size: u32) -> Reply<Vec<u8>> {
        let names = self.client(req)?.listxattr(self.object(node)?).map_err(errno)?;
        let mut all = Vec::new();
        for name in names {
            all.extend_from_slice(name.as_bytes());
            all.push(0);
        }
        Ok(all)
    }

    fn removexattr(&self, req: &Request<'_>, node: u64, name: &OsStr) -> Reply<()> {
        let Ok(name) = convert::name(name) else { return Err(Errno::ENODATA) };
        self.client(req)?.removexattr(self.object(node)?, name).map_err(errno)
    }

    fn opendir(&self, _req: &Request<'_>, node: u64, _op: &OpenOp) -> Reply<Opened> {
        Ok(self.opened_directory(node))
    }

    fn releasedir(&self, _req: &Request<'_>, _node: u64, _op: &ReleaseOp) -> Reply<()> {
        Ok(())
    }

    fn readdir(&self, req: &Request<'_>, node: u64, op: &ReaddirOp, sink: &mut DirSink<'_>) -> Reply<()> {
        self.list(req, node, &ListFrom { offset: op.offset, plus: false }, |listed| match listed {
            Listed::Dot { name, ino, offset } => {
                sink.push(ino, offset, FileType::Directory, OsStr::new(name))
            }
            Listed::Entry(e, _) => {
                let name = OsStr::from_bytes(e.name.as_bytes());
                sink.push(e.fid.ino(), e.cookie, FileType::from_mode(e.kind), name)
            }
        })
    }

    fn readdirplus(
        &self,
        req: &Request<'_>,
        node: u64,
        op: &ReaddirOp,
        sink: &mut DirPlusSink<'_>,
    ) -> Reply<()> {
        let bare =
            |ino, mode| Entry { attr: fuse::Attr { ino, mode, ..Default::default() }, ..Entry::default() };
        self.list(req, node, &ListFrom { offset: op.offset, plus: true }, |listed| match listed {
            Listed::Dot { name, ino, offset } => {
                sink.push(&bare(ino, libc::S_IFDIR), offset, OsStr::new(name))
            }
            Listed::Entry(e, until) => {
                let name = OsStr::from_bytes(e.name.as_bytes());
                let Some(attr) = &e.attr else {
                    return sink.push(&bare(e.fid.ino(), e.kind), e.cookie, name);
                };
                // Known before the kernel hears of it; forgotten again if it did not fit.
                let entry = self.entry_until(attr, until);
                let fits = sink.push(&entry, e.cookie, name);
                if !fits {
                    self.forget(entry.node, 1);
                } else if FileType::from_mode(attr.mode) == FileType::Directory {
                    self.places.listed(entry.node, node, name);
                }
                fits
            }
        })
    }

    fn fallocate(&self, req: &Request<'_>, node: u64, op: &FallocateOp) -> Reply<()> {
        self.through(req, Some(op.fh))?
            .fallocate(self.object(node)?, op.mode, op.offset, op.length)
            .map_err(errno)
    }

    fn getlk(&self, _req: &Request<'_>, node: u64, op: &LockOp) -> Reply<Lock> {
        Ok(self.locks.test(node, op))
    }

    fn setlk(&self, req: &Request<'_>, node: u64, op: &LockOp) -> Reply<()> {
        self.set_lock(req, node, op, false)
    }

    fn setlkw(&self, req: &Request<'_>, node: u64, op: &LockOp) -> Reply<()> {
        self.set_lock(req, node, op, true)
    }

    fn destroy(&self) {
        self.locks.end();
    }

    fn lseek(&self, req: &Request<'_>, node: u64, op: &LseekOp) -> Reply<u64> {
        self.of_opener(req, Some(op.fh))?.lseek(self.object(node)?, op.offset, op.whence).map_err(errno)
    }

    fn copy_file_range(&self, req: &Request<'_>, op: &CopyOp) -> Reply<u64> {
        if op.flags != 0 {
            return Err(Errno::EINVAL);
        }
        self.through(req, Some(op.fh_in))?;
        let from = (self.object(op.node_in)?, op.offset_in);
        let to = (self.object(op.node_out)?, op.offset_out);
        self.through(req, Some(op.fh_out))?.copy_range(from, to, op.len.min(COPY_MAX)).map_err(errno)
    }
}
