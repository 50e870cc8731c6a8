//! Operations on files by name: each is one call (or few), its answer taken apart.

use std::cell::RefCell;
use std::time::Duration;

use client_core::set::Opening;
use client_core::stripes::{Answer, What};
use ids::{Fid, SetId};
use wire::codec::Blob;
use wire::op::{Node, SetAttr};
use wire::reply::{DirEntry, Room};
use wire::{Attr, Body, Errno, Name, Op};

use crate::call::Client;
use crate::payload::Payload;
use crate::stripes::Data;

/// A file or directory, and the set that answers for it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Object {
    /// Its identity.
    pub fid: Fid,
    /// The set that answers for it.
    pub home: SetId,
}

impl From<&Attr> for Object {
    fn from(attr: &Attr) -> Object {
        Object { fid: attr.fid, home: attr.home }
    }
}

/// What to make.
#[derive(Clone, Debug)]
pub struct NewEntry {
    /// Its name.
    pub name: Name,
    /// What it is.
    pub node: Node,
    /// Permission bits.
    pub mode: u32,
    /// The caller's umask.
    pub umask: u32,
    /// The caller.
    pub uid: u32,
    /// The caller's group.
    pub gid: u32,
}

/// Where a write goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Span {
    /// First byte.
    pub offset: u64,
    /// At the end instead, wherever that is.
    pub append: bool,
    /// Clear set-uid and set-gid.
    pub kill_suid: bool,
}

/// A piece of a directory's listing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Page {
    /// Entries.
    pub entries: Vec<DirEntry>,
    /// There are no more.
    pub end: bool,
}

/// How often a name is looked up again whose object is being made or removed.
const LOOKUPS: u32 = 8;

/// An answer of a kind that the operation does not have.
pub(crate) fn unexpected_reply(what: &str, body: &Body) -> Errno {
    tracing::error!("{what}: unexpected reply {body:?}");
    Errno::EIO
}

impl Client {
    /// The volume's root directory, or the one that the key is for.
    pub fn root(&self) -> Object {
        let generation = self.core.current();
        let fid = generation.map.root;
        Object { fid, home: generation.map.beneath().unwrap_or(fid.set) }
    }

    pub(crate) fn ask(&self, home: SetId, op: Op) -> Result<Body, Errno> {
        self.call(home, op, &[], &mut Payload::new())
    }

    fn attr_of(&self, what: &str, body: Body) -> Result<Attr, Errno> {
        match body {
            Body::Attr { attr } | Body::Written { attr, .. } => Ok(attr),
            Body::Elsewhere { fid, home, .. } => self.getattr(Object { fid, home }),
            other => Err(unexpected_reply(what, &other)),
        }
    }

    /// Finds a name.
    ///
    /// # Errors
    /// `ENOENT`, `ENOTDIR`, `ESTALE` if the directory is gone; and those of [`Client::call`], as everywhere.
    pub fn lookup(&self, parent: Object, name: &Name) -> Result<Attr, Errno> {
        let mut pause = Duration::from_millis(1);
        for _ in 0..LOOKUPS {
            let body = self.ask(parent.home, Op::Lookup { parent: parent.fid, name: name.clone() })?;
            self.core.names.note_told(&body, parent, name);
            let (fid, home) = match body {
                Body::Attr { attr } => return Ok(attr),
                Body::Elsewhere { fid, home, .. } => (fid, home),
                other => return Err(unexpected_reply("lookup", &other)),
            };
            match self.getattr(Object { fid, home }) {
                // The entry is being made or removed.
                Err(Errno::ESTALE | Errno::ENOENT) => self.pause(pause)?,
                other => return other,
            }
            pause *= 2;
        }
        Err(Errno::ENOENT)
    }

    /// Attributes.
    ///
    /// # Errors
    /// `ESTALE` if the object is gone.
    pub fn getattr(&self, object: Object) -> Result<Attr, Errno> {
        if let Some((attr, until)) = self.core.directories.get(object.fid) {
            crate::grant::note_until(until);
            return Ok(attr);
        }
        match self.ask(object.home, Op::GetAttr { fid: object.fid })? {
            Body::Attr { attr } => Ok(attr),
            other => Err(unexpected_reply("getattr", &other)),
        }
    }

    /// Changes attributes.
    ///
    /// # Errors
    /// As `chmod`, `chown`, `truncate`, `utimensat`.
    pub fn setattr(&self, object: Object, set: SetAttr) -> Result<Attr, Errno> {
        let body = self.ask(object.home, Op::SetAttr { fid: object.fid, set })?;
        self.attr_of("setattr", body)
    }

    /// Makes an entry and what it leads to.
    ///
    /// # Errors
    /// `EEXIST`, and as `mkdir`, `mknod`, `symlink`.
    pub fn create(&self, parent: Object, new: NewEntry) -> Result<Attr, Errno> {
        self.make(parent, new, false)
    }

    /// Makes a file and holds it open.
    ///
    /// # Errors
    /// As [`Client::create`].
    pub fn create_open(&self, parent: Object, new: NewEntry) -> Result<Attr, Errno> {
        let attr = self.make(parent, new, true)?;
        let generation = self.core.current();
        let route = generation.route(attr.home).ok_or(Errno::ESTALE)?;
        route.state.state().created(attr.fid);
        self.core.note_open(attr.fid, true);
        Ok(attr)
    }

    fn make(&self, parent: Object, new: NewEntry, open: bool) -> Result<Attr, Errno> {
        let NewEntry { name, node, mode, umask, uid, gid } = new;
        let made = name.clone();
        let op = Op::Create { parent: parent.fid, name, node, mode, umask, uid, gid, open };
        let body = self.ask(parent.home, op)?;
        self.core.names.note_told(&body, parent, &made);
        self.attr_of("create", body)
    }

    /// Removes a name of anything but a directory.
    ///
    /// # Errors
    /// As `unlink`.
    pub fn unlink(&self, parent: Object, name: Name) -> Result<(), Errno> {
        let gone = name.clone();
        self.ask(parent.home, Op::Unlink { parent: parent.fid, name })?;
        self.core.names.removed(parent, &gone);
        Ok(())
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// As `rmdir`.
    pub fn rmdir(&self, parent: Object, name: Name) -> Result<(), Errno> {
        self.ask(parent.home, Op::Rmdir { parent: parent.fid, name }).map(drop)
    }

    /// Moves a name; `flags` as in [`wire::op::rename_flags`].
    ///
    /// # Errors
    /// As `renameat2`; `EXDEV` where two sets would have to agree about an exchange.
    pub fn rename(&self, from: (Object, Name), to: (Object, Name), flags: u32) -> Result<(), Errno> {
        let ((from, name), (to, to_name)) = (from, to);
        let names = (name.clone(), to_name.clone());
        self.move_name((from, name), (to, to_name), flags)?;
        self.core.names.renamed((from, &names.0), (to, &names.1), flags);
        Ok(())
    }

    fn move_name(
        &self,
        (from, name): (Object, Name),
        (to, to_name): (Object, Name),
        flags: u32,
    ) -> Result<(), Errno> {
        if from.home != to.home {
            let (parent, to_parent) = (from.fid, to.fid);
            let op = Op::MoveIn { from: from.home, parent, name, to_parent, to_name, flags };
            return self.ask(to.home, op).map(drop);
        }
        let op = Op::Rename { parent: from.fid, name, to_parent: to.fid, to_name, flags };
        self.ask(from.home, op).map(drop)
    }

    /// Gives a file another name. `None`: it was done, and the file is gone since with all its names.
    ///
    /// # Errors
    /// As `link`.
    pub fn link(&self, object: Object, parent: Object, name: Name) -> Result<Option<Attr>, Errno> {
        let linked = |Object { fid, home }, name| {
            let parent_fid = parent.fid;
            let op = if home == parent.home {
                Op::Link { fid, parent: parent_fid, name }
            } else {
                Op::LinkIn { fid, home, parent: parent_fid, name }
            };
            self.ask(parent.home, op)
        };
        let (before, made) = (self.now(object), name.clone());
        let body = match linked(before, name.clone()) {
            // It has moved meanwhile.
            Err(Errno::ESTALE) if self.now(object) != before => linked(self.now(object), name)?,
            other => other?,
        };
        self.core.names.note(object.fid, parent, &made);
        match body {
            Body::Done => match self.getattr(object) {
                Err(Errno::ESTALE | Errno::ENOENT) => Ok(None),
                found => found.map(Some),
            },
            other => self.attr_of("link", other).map(Some),
        }
    }

    /// The target of a symbolic link.
    ///
    /// # Errors
    /// As `readlink`.
    pub fn readlink(&self, object: Object) -> Result<Vec<u8>, Errno> {
        let mut into = Payload::with_room(256);
        self.call(object.home, Op::ReadLink { fid: object.fid }, &[], &mut into)?;
        Ok(into.into_vec())
    }

    /// Holds a file open: it outlives its last name until [`Client::release`].
    ///
    /// # Errors
    /// `ESTALE` if it is gone.
    pub fn open(&self, object: Object) -> Result<(), Errno> {
        let object = self.now(object);
        loop {
            let generation = self.core.current();
            let Some(route) = generation.route(object.home) else { return Err(Errno::ESTALE) };
            let opening = route.state.state().open(object.fid);
            match opening {
                Opening::Known => {
                    self.core.note_open(object.fid, true);
                    return Ok(());
                }
                Opening::Wait => self.core.pause(&generation, Duration::from_millis(1))?,
                Opening::Tell => {
                    let result = self.ask(object.home, self.core.opening(object.fid));
                    match &result {
                        Ok(_) => {
                            route.state.state().opened(object.fid);
                            self.core.note_open(object.fid, true);
                        }
                        Err(why) => self.core.open_failed(route, object.fid, *why),
                    }
                    return result.map(drop);
                }
            }
        }
    }

    /// Ends one [`Client::open`]. The set hears of the last one a little later.
    pub fn release(&self, object: Object) {
        let object = self.now(object);
        let generation = self.core.current();
        self.core.note_open(object.fid, false);
        if let Some(route) = generation.route(object.home) {
            self.core.close(route, object.fid);
        }
    }

    /// Reads into `into` (see [`Payload::lent`]); less than `len` means the end of the file.
    ///
    /// # Errors
    /// As `pread`.
    pub fn read(&self, object: Object, offset: u64, len: u32, into: &mut Payload<'_>) -> Result<(), Errno> {
        let into = RefCell::new(into);
        self.on_content(
            object,
            || {
                let op = Op::Read { fid: object.fid, offset, len };
                self.call(object.home, op, &[], *into.borrow_mut()).map(drop)
            },
            |now| self.read_striped(now, (offset, len), *into.borrow_mut()),
        )
    }

    /// Writes; returns how much, and the attributes after it. At most [`wire::limits::IO_MAX`] bytes.
    ///
    /// # Errors
    /// As `pwrite`.
    pub fn write(&self, object: Object, at: Span, data: &[u8]) -> Result<(u32, Attr), Errno> {
        if data.len() > wire::limits::IO_MAX as usize {
            return Err(Errno::EINVAL);
        }
        let Span { offset, append, kill_suid } = at;
        let plain = || {
            let op = Op::Write { fid: object.fid, offset, append, kill_suid };
            match self.call(object.home, op, data, &mut Payload::new())? {
                Body::Written { len, attr } => Ok((len, attr)),
                other => Err(unexpected_reply("write", &other)),
            }
        };
        let len = u32::try_from(data.len()).map_err(|_| Errno::EINVAL)?;
        let append = if append { self.ticket() } else { 0 };
        let what = What::Write { offset, len, append, kill_suid };
        self.on_content(object, plain, |now| self.write_striped(now, what, data))
    }

    /// Returns when everything acknowledged about the object is on disk.
    ///
    /// # Errors
    /// As `fsync`.
    pub fn fsync(&self, object: Object) -> Result<(), Errno> {
        if let Body::Offset { .. } = self.ask(object.home, Op::Fsync { fid: object.fid })? {
            self.sync_pieces(object)?;
        }
        if self.has_lost(object) { Err(Errno::EIO) } else { Ok(()) }
    }

    /// Returns when everything acknowledged in the volume is on disk.
    ///
    /// # Errors
    /// As `syncfs`.
    pub fn sync(&self) -> Result<(), Errno> {
        self.sets().into_iter().try_for_each(|set| self.ask(set, Op::SyncFs).map(drop))
    }

    fn sets(&self) -> Vec<SetId> {
        self.core.current().sets().map(|r| r.state.set).collect()
    }

    /// Room of all sets together.
    ///
    /// # Errors
    /// Those of [`Client::call`].
    pub fn statfs(&self) -> Result<Room, Errno> {
        let mut sum = Room { total: 0, free: 0, available: 0, files: 0, files_free: 0 };
        for set in self.sets() {
            match self.ask(set, Op::StatFs)? {
                Body::Room { room } => {
                    sum.total = sum.total.saturating_add(room.total);
                    sum.free = sum.free.saturating_add(room.free);
                    sum.available = sum.available.saturating_add(room.available);
                    sum.files = sum.files.saturating_add(room.files);
                    sum.files_free = sum.files_free.saturating_add(room.files_free);
                }
                other => return Err(unexpected_reply("statfs", &other)),
            }
        }
        Ok(sum)
    }

    /// The value of an extended attribute.
    ///
    /// # Errors
    /// `ENODATA` if there is none.
    pub fn getxattr(&self, object: Object, name: Name) -> Result<Vec<u8>, Errno> {
        let mut into = Payload::with_room(256);
        self.call(object.home, Op::GetXattr { fid: object.fid, name }, &[], &mut into)?;
        Ok(into.into_vec())
    }

    /// The names of extended attributes.
    ///
    /// # Errors
    /// As `listxattr`.
    pub fn listxattr(&self, object: Object) -> Result<Vec<Name>, Errno> {
        match self.ask(object.home, Op::ListXattr { fid: object.fid })? {
            Body::Names { names } => Ok(names),
            other => Err(unexpected_reply("listxattr", &other)),
        }
    }

    /// Sets an extended attribute; `flags` as in setxattr(2).
    ///
    /// # Errors
    /// As `setxattr`.
    pub fn setxattr(&self, object: Object, name: Name, value: &[u8], flags: u32) -> Result<(), Errno> {
        let op = Op::SetXattr { fid: object.fid, name, flags };
        self.call(object.home, op, value, &mut Payload::new()).map(drop)
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// `ENODATA` if there is none.
    pub fn removexattr(&self, object: Object, name: Name) -> Result<(), Errno> {
        self.ask(object.home, Op::RemoveXattr { fid: object.fid, name }).map(drop)
    }

    /// Reserves or punches space.
    ///
    /// # Errors
    /// As `fallocate`.
    pub fn fallocate(&self, object: Object, mode: u32, offset: u64, len: u64) -> Result<(), Errno> {
        let plain = || self.ask(object.home, Op::Fallocate { fid: object.fid, mode, offset, len }).map(drop);
        self.on_content(object, plain, |now| {
            let what = What::Allocate { mode, offset, len };
            self.striped(now, what, &mut Data::Out(&[])).map(|done| done.map(drop))
        })
    }

    /// Finds data or a hole.
    ///
    /// # Errors
    /// As `lseek`.
    pub fn lseek(&self, object: Object, offset: u64, whence: u32) -> Result<u64, Errno> {
        let plain = || match self.ask(object.home, Op::Lseek { fid: object.fid, offset, whence })? {
            Body::Offset { offset } => Ok(offset),
            other => Err(unexpected_reply("lseek", &other)),
        };
        self.on_content(object, plain, |now| {
            match self.striped(now, What::Seek { offset, whence }, &mut Data::Out(&[]))? {
                None => Ok(None),
                Some(Answer::Offset(offset)) => Ok(Some(offset)),
                Some(_) => Err(Errno::EIO),
            }
        })
    }

    /// Copies between two files of one set; returns how much.
    ///
    /// # Errors
    /// `EXDEV` if two sets would have to work together; as `copy_file_range`.
    pub fn copy_range(&self, from: (Object, u64), to: (Object, u64), len: u64) -> Result<u64, Errno> {
        let ((from, from_offset), (to, to_offset)) = ((self.now(from.0), from.1), (self.now(to.0), to.1));
        if from.home != to.home {
            return Err(Errno::EXDEV);
        }
        let op = Op::CopyRange { from: from.fid, from_offset, to: to.fid, to_offset, len };
        // Of a striped file the data is sent through this client, as between sets.
        match self.ask(to.home, op).map_err(|e| if e == Errno::EOPNOTSUPP { Errno::EXDEV } else { e })? {
            Body::Offset { offset } => Ok(offset),
            Body::Written { len, .. } => Ok(len.into()),
            other => Err(unexpected_reply("copy_file_range", &other)),
        }
    }

    /// Makes a symbolic link's node.
    pub fn symlink_to(target: &[u8]) -> Node {
        Node::Symlink { target: Blob(target.to_vec()) }
    }
}
