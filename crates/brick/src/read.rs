//! Reading: data, links, attributes, directories, room.

use crate::folders::HiddenJob;
use crate::listing::{ListJob, Listing, NamesOf};
use crate::object::{OpenObject, S_IFLNK, tag_at};
use crate::open::Brick;
use crate::tree::At;
use bytes::Bytes;
use disk_format::tag::PENDING;
use file_system::File;
use ids::{Fid, SetId};
use namespace::Entry;
use set_core::DirPage;
use std::sync::Arc;
use wire::reply::DirEntry;
use wire::{Errno, Name};

/// The answer to a read.
pub enum ReadOutcome {
    /// The data; shorter than asked only at the end of the file.
    Data(Bytes),
    /// The data is not in memory: run this on a thread that may wait.
    NeedsBlocking(ReadJob),
}

/// A read that has to wait for the disk. Runs on any thread.
pub struct ReadJob {
    file: Arc<File>,
    offset: u64,
    len: usize,
}

impl ReadJob {
    /// Reads; shorter than asked only at the end of the file.
    ///
    /// # Errors
    /// The kernel's.
    pub fn run(self) -> Result<Bytes, Errno> {
        self.file.read_shared(self.offset, self.len, false)
    }
}

/// The size of a directory (as file systems count it) up to which its names are read at once.
const FEW_NAMES: u64 = 128 << 10;
/// About the bytes that an entry and its attributes take in an answer.
const ENTRY_BYTES: usize = 4 + 16 + 4 + 4 + 8 + 1;
const ATTR_BYTES: usize = 96;

/// About how many bytes an entry takes in an answer beside its name.
pub(crate) fn entry_bytes(plus: bool) -> usize {
    ENTRY_BYTES + if plus { ATTR_BYTES } else { 0 }
}

/// Takes so many from what may be spent; false if they are not there.
fn spend(left: &mut usize, many: usize) -> bool {
    let rest = left.checked_sub(many);
    *left = rest.unwrap_or(0);
    rest.is_some()
}

impl Brick {
    /// Reads from memory if the data is there, else says how to wait for it.
    ///
    /// # Errors
    /// `ESTALE`, `EISDIR`, `EINVAL` for what cannot be read, or the kernel's.
    pub fn read(&mut self, fid: Fid, offset: u64, len: u32) -> Result<ReadOutcome, Errno> {
        let open = self.open_fid(fid)?;
        if !open.is_file() {
            return Err(if open.is_dir() { Errno::EISDIR } else { Errno::EINVAL });
        }
        let len = len as usize;
        match open.read_shared(offset, len, true) {
            Ok(data) => Ok(ReadOutcome::Data(data)),
            Err(Errno::EAGAIN | Errno::EOPNOTSUPP) => {
                Ok(ReadOutcome::NeedsBlocking(ReadJob { file: open.share(), offset, len }))
            }
            Err(e) => Err(e),
        }
    }

    /// A symbolic link's target.
    ///
    /// # Errors
    /// `EINVAL` if it is none.
    pub fn readlink(&mut self, fid: Fid) -> Result<Vec<u8>, Errno> {
        let open = self.open_fid(fid)?;
        if open.kind != S_IFLNK {
            return Err(Errno::EINVAL);
        }
        open.read_link()
    }

    /// The value of an extended attribute; ours do not show.
    ///
    /// # Errors
    /// The kernel's.
    pub fn getxattr(&mut self, fid: Fid, name: &Name) -> Result<Option<Vec<u8>>, Errno> {
        if name.as_bytes().starts_with(disk_format::tag::PREFIX) {
            return Ok(None);
        }
        self.open_fid(fid)?.whole_xattr(name.as_bytes())
    }

    /// Names of the extended attributes; ours do not show.
    ///
    /// # Errors
    /// The kernel's.
    pub fn listxattr(&mut self, fid: Fid) -> Result<Vec<Name>, Errno> {
        let names = self.open_fid(fid)?.xattrs()?;
        Ok(names.iter().filter_map(|n| Name::new(n).ok()).collect())
    }

    /// The next data (`whence` `SEEK_DATA`, 3) or hole (`SEEK_HOLE`, 4) from `offset` on.
    ///
    /// # Errors
    /// `ENXIO` beyond the end.
    pub fn lseek(&mut self, fid: Fid, offset: u64, whence: u32) -> Result<u64, Errno> {
        let open = self.open_fid(fid)?;
        if !open.is_file() {
            return Err(Errno::EINVAL);
        }
        let found = match whence {
            3 => open.next_data(offset)?,
            4 => open.next_hole(offset)?,
            _ => return Err(Errno::EINVAL),
        };
        found.ok_or(Errno::ENXIO)
    }

    /// What lists the objects without a name that are kept for those who hold them open; `None` if there are none.
    ///
    /// # Errors
    /// The kernel's.
    pub fn begin_orphans(&self) -> Result<Option<HiddenJob>, Errno> {
        self.folders.orphans().begin_list()
    }

    /// A page of a directory after `cookie` (0: from the start), about `bytes` long; and whether it was the last. Entries
    /// come in an order that is the same on every brick. `.` and `..` are not among them.
    ///
    /// # Errors
    /// `ESTALE`, `ENOTDIR`, or the kernel's.
    pub fn readdir(
        &mut self,
        dir: Fid,
        cookie: u64,
        plus: bool,
        bytes: usize,
    ) -> Result<(Vec<DirEntry>, bool), Errno> {
        let page = self.page(dir, cookie, plus, bytes, usize::MAX)?.ok_or(Errno::EIO)?;
        Ok((page.entries, page.end))
    }

    /// The same; `None` if for more than `unknown` of its names what they lead to is not in memory. Which names it has does
    /// not depend on what they lead to: [`Brick::begin_page`] reads just those.
    pub(crate) fn page(
        &mut self,
        dir: Fid,
        after: u64,
        plus: bool,
        bytes: usize,
        mut unknown: usize,
    ) -> Result<Option<DirPage>, Errno> {
        let (mut at, mut entries, mut marked) = (after, Vec::new(), false);
        self.take_read_pages(dir)?;
        loop {
            let (names, end) = self.listing(dir)?.page(at, entry_bytes(plus), bytes);
            at = names.last().map_or(at, |(cookie, ..)| *cookie);
            let known: Vec<Option<Option<Entry>>> =
                names.iter().map(|(_, name, _)| self.names.get(dir, name)).collect();
            if !spend(&mut unknown, known.iter().filter(|k| k.is_none()).count()) {
                return Ok(None);
            }
            for ((cookie, name, kind), known) in names.into_iter().zip(known) {
                let found = match known {
                    Some(known) => known,
                    None => self.look_up(dir, &name, kind, plus)?,
                };
                let Some(e) = found else { continue };
                let mut attr = None;
                if plus && e.home == self.identity.set {
                    let cold = self.nodes.peek(e.fid).is_none();
                    if cold && !spend(&mut unknown, 1) {
                        return Ok(None);
                    }
                    let (is_marked, its) = self.attr_by_name(dir, &name, e, cold)?;
                    (marked, attr) = (marked | is_marked, Some(its));
                }
                let name = Name::new(&name).map_err(|_| Errno::EIO)?;
                entries.push(DirEntry { name, fid: e.fid, home: e.home, kind: e.kind, cookie, attr });
            }
            // Whoever asked goes on after the last entry: there has to be one.
            if end || !entries.is_empty() {
                return Ok(Some(DirPage { entries, end, marked }));
            }
        }
    }

    /// What is to be done on another thread before the directory's names are asked for, which may be many; `None` if they
    /// are at hand, or are few.
    pub fn begin_list(&mut self, dir: Fid) -> Option<ListJob> {
        self.listings.take_read(dir);
        if self.listings.peek(dir).is_some() {
            return None;
        }
        let copy = self.copy_of_folder(dir).ok()?;
        let beside = copy.as_ref().map_or(Ok(0), |copy| copy.stat().map(|s| s.size)).ok()?;
        if self.fresh(dir).ok()?.1.size.saturating_add(beside) <= FEW_NAMES {
            return None;
        }
        let open = self.open_dir(dir).ok()?;
        let source = self.source_of_names(dir, &open, copy.as_ref());
        Some(self.listings.begin(dir, source))
    }

    /// The names of a directory. Read here and now unless [`Brick::begin_list`] has seen to it.
    pub(crate) fn listing(&mut self, dir: Fid) -> Result<&Listing, Errno> {
        self.listings.take_read(dir);
        if self.listings.peek(dir).is_none() {
            let (open, copy) = (self.open_dir(dir)?, self.copy_of_folder(dir)?);
            let names = self.source_of_names(dir, &open, copy.as_ref()).read()?;
            self.listings.keep(dir, Listing::new(names));
        }
        self.listings.get(dir).ok_or(Errno::EIO)
    }

    /// What a directory's names are read from: for a folder of names also the copy of its directory.
    fn source_of_names(&self, dir: Fid, open: &OpenObject, copy: Option<&OpenObject>) -> NamesOf {
        let root = dir.without_names() == self.identity.root;
        NamesOf { dir: open.share(), copy: copy.map(OpenObject::share), root }
    }

    /// What a name leads to, `None` if that is not ours.
    fn look_up(&mut self, dir: Fid, name: &[u8], kind: u32, plus: bool) -> Result<Option<Entry>, Errno> {
        if !plus && kind != 0 {
            return self.glance(dir, name, kind);
        }
        Ok(match self.find(dir, name)? {
            At::Entry(e) => Some(e),
            At::Free | At::Unknown => None,
        })
    }

    /// Only who it is: listing names needs no more.
    fn glance(&mut self, dir: Fid, name: &[u8], kind: u32) -> Result<Option<Entry>, Errno> {
        let open = self.dir_of_name(dir, name)?;
        match tag_at(&open, name) {
            Ok(Some(t)) => {
                let kind = t.stub_kind().unwrap_or(kind);
                Ok(Some(Entry { fid: t.fid, home: t.home, kind }))
            }
            Ok(None) | Err(Errno::ENOENT) => Ok(None),
            Err(e) => Err(e),
        }
    }

    /// Attributes of an entry, and whether it is a file that a transaction has marked: by its name, if nothing is in memory
    /// (`cold`), which costs less than opening it.
    fn attr_by_name(
        &mut self,
        dir: Fid,
        name: &[u8],
        e: Entry,
        cold: bool,
    ) -> Result<(bool, wire::Attr), Errno> {
        if cold {
            let open: OpenObject = self.dir_of_name(dir, name)?;
            if let Some(tag) = tag_at(&open, name)?.filter(|t| t.fid == e.fid) {
                let stat = open.stat_at(name)?;
                self.learn_node(tag, stat)?;
            }
        }
        let own = self.identity.set;
        let (node, stat) = self.fresh(e.fid)?;
        if node.tag().home != own {
            return Err(Errno::ESTALE);
        }
        Ok((!e.is_dir() && node.tag().flags & PENDING != 0, node.attr(&stat)))
    }

    /// The set that the brick is one of.
    pub fn set(&self) -> SetId {
        self.identity.set
    }
}
