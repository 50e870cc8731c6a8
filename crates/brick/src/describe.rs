//! What this brick tells another one that heals from it: what an object is like, where a placed directory hangs, and the
//! entries of a directory.

use crate::object::{S_IFLNK, S_IFMT};
use crate::open::Brick;
use crate::place::lost_found_name;
use disk_format::tag::ORPHAN;
use ids::Fid;
use wire::codec::Blob;
use wire::op::Ancestor;
use wire::peer::{Object, Stamp, TARGET};
use wire::reply::DirEntry;
use wire::{Errno, Name};

const MAX_DEPTH: usize = wire::limits::DEPTH_MAX;

impl Brick {
    /// What an object of this set is like, or a stub or a directory of another set that is an entry here, either of which may be
    /// marked; `None` if there is none such here.
    ///
    /// # Errors
    /// The kernel's.
    pub fn object(&mut self, fid: Fid) -> Result<Option<Object>, Errno> {
        let set = self.identity.set;
        self.check_orphan(fid)?;
        let (attr, version, flags) = match self.fresh(fid) {
            Ok((node, stat)) => (node.attr(&stat), Stamp::from(node.tag().version), node.tag().flags),
            Err(Errno::ESTALE | Errno::ENOENT) => return Ok(None),
            Err(e) => return Err(e),
        };
        if attr.home != set && attr.is_dir() && !self.is_own_entry(fid)? {
            return Ok(None);
        }
        let open = self.open_fid(fid)?;
        let mut xattrs = Vec::new();
        for name in open.healed_xattrs()? {
            if let (Ok(name), Some(value)) = (Name::new(&name), open.whole_xattr(&name)?) {
                xattrs.push((name, Blob(value)));
            }
        }
        // What has a name is told of with it, and where it leads with that.
        if flags & ORPHAN != 0 && attr.mode & S_IFMT == S_IFLNK {
            xattrs.push((Name::new(TARGET.as_bytes()).map_err(|_| Errno::EIO)?, Blob(self.readlink(fid)?)));
        }
        let place = if attr.is_dir() && attr.home == set { self.foreign_place(fid)? } else { None };
        Ok(Some(Object { attr, version, flags, xattrs, place }))
    }

    /// The path of a directory whose parent lives on another set, or that lies in lost+found: from the root down, or from
    /// lost+found if the first name says so (see [`crate::place::is_in_lost_found`]).
    fn foreign_place(&mut self, fid: Fid) -> Result<Option<(Vec<Ancestor>, Name)>, Errno> {
        if fid.is_root() {
            return Ok(None);
        }
        let Some((parent, name)) = self.parent_and_name(fid)? else {
            return Ok(Some((Vec::new(), lost_found_name(fid)?)));
        };
        let set = self.identity.set;
        if self.load(parent)?.tag().home == set {
            return Ok(None);
        }
        let mut path = Vec::new();
        let mut up = Some(parent);
        while let Some(at) = up.filter(|at| !at.is_root()) {
            if path.len() >= MAX_DEPTH {
                return Err(Errno::ELOOP);
            }
            let home = self.load(at)?.tag().home;
            let (above, name) = match self.parent_and_name(at)? {
                Some((above, name)) => (Some(above), name),
                None => (None, lost_found_name(at)?),
            };
            path.push(Ancestor { fid: at, home, name });
            up = above;
        }
        path.reverse();
        Ok(Some((path, name)))
    }

    /// The directory above and the name there; `None` for what lies in lost+found itself.
    fn parent_and_name(&mut self, fid: Fid) -> Result<Option<(Fid, Name)>, Errno> {
        let at = self.location(fid)?;
        let Some(parent) = at.parent else { return Ok(None) };
        Ok(Some((parent, Name::new(&at.name).map_err(|_| Errno::EIO)?)))
    }

    /// The entries of a directory after `after`, for another brick: up to which position, and symbolic links' targets.
    ///
    /// # Errors
    /// `ESTALE` if this set does not answer for it; the kernel's.
    #[allow(clippy::type_complexity, reason = "it is one message's content")]
    pub fn entries(
        &mut self,
        dir: Fid,
        after: u64,
        bytes: usize,
    ) -> Result<(Vec<DirEntry>, Vec<(Fid, Blob)>, Option<u64>), Errno> {
        let own = self.identity.set;
        if self.load(dir)?.tag().home != own {
            return Err(Errno::ESTALE);
        }
        let (entries, end) = self.readdir(dir, after, true, bytes)?;
        let mut targets = Vec::new();
        for e in entries.iter().filter(|e| e.kind == S_IFLNK && e.home == own) {
            targets.push((e.fid, Blob(self.readlink(e.fid)?)));
        }
        let upto = if end { None } else { entries.last().map(|e| e.cookie) };
        Ok((entries, targets, upto))
    }
}
