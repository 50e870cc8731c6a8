//! The entries of a directory that is healed: names come, go, and lead to what they lead to on the primary.

use crate::making::NewObject;
use crate::object::{S_IFDIR, S_IFMT};
use crate::open::Brick;
use crate::tree::At;
use disk_format::tag::{ORPHAN, Version};
use ids::Fid;
use replica::healing::Made;
use wire::Errno;
use wire::codec::Blob;
use wire::op::Node as Kind;
use wire::reply::DirEntry;

/// What is to be made of this kind, type bits of `st_mode`. `None`: a symbolic link, and where it leads is not known.
pub(crate) fn node(kind: u32, rdev: u32, target: Option<&Blob>) -> Option<Kind> {
    Some(match kind {
        0o040_000 => Kind::Dir,
        0o120_000 => Kind::Symlink { target: target?.clone() },
        0o010_000 => Kind::Fifo,
        0o140_000 => Kind::Socket,
        0o020_000 => Kind::Char { rdev },
        0o060_000 => Kind::Block { rdev },
        _ => Kind::File,
    })
}

impl Brick {
    /// Makes the entries of a directory after `after` and up to `upto` (to the end if `None`) those given. What is there
    /// beside them is moved to the heal trash. Answers what was missing and is made now, still empty.
    ///
    /// # Errors
    /// `ESTALE` if there is no such directory here; the kernel's.
    pub fn take_entries(
        &mut self,
        dir: Fid,
        after: u64,
        upto: Option<u64>,
        entries: &[DirEntry],
        targets: &[(Fid, Blob)],
    ) -> Result<Vec<Made>, Errno> {
        tracing::debug!(brick = %self.path.display(), %dir, after, ?upto, names = ?entries.iter().map(|e| (&e.name, e.fid)).collect::<Vec<_>>(), "takes entries");
        let mtime = self.load(dir)?.mtime();
        self.keep_times(dir)?;
        let here = self.listing(dir)?.between(after, upto.unwrap_or(u64::MAX));
        let there: std::collections::HashMap<&[u8], &DirEntry> =
            entries.iter().map(|e| (e.name.as_bytes(), e)).collect();
        for name in here {
            let wanted = there.get(&name[..]);
            match self.find(dir, &name)? {
                At::Entry(e) if wanted.is_some_and(|w| w.fid == e.fid) => {
                    if let Some(w) = wanted {
                        self.unite(dir, w)?;
                    }
                }
                At::Entry(e) => self.move_to_trash(dir, &name, e.fid)?,
                At::Unknown => self.quarantine(dir, &name)?,
                At::Free => {}
            }
        }
        let mut made = Vec::new();
        for e in entries {
            if self.find(dir, e.name.as_bytes())? == At::Free {
                made.extend(self.take_entry(dir, e, targets)?);
            }
        }
        self.keep_times(dir)?;
        // So many others may have been loaded that it left the memory in between.
        self.load(dir)?.set_mtime(mtime);
        Ok(made)
    }

    /// Takes a name away that the other brick does not have. The object may have another name there: it is kept.
    pub(crate) fn move_to_trash(&mut self, dir: Fid, name: &[u8], fid: Fid) -> Result<(), Errno> {
        tracing::debug!(brick = %self.path.display(), %dir, name = %String::from_utf8_lossy(name), %fid, "moves to the heal trash");
        let parent = self.dir_of_name(dir, name)?;
        let stat = parent.stat_at(name)?;
        let dir_kind = stat.mode & S_IFMT == S_IFDIR;
        let own = self.identity.set;
        if dir_kind && self.load(fid)?.tag().home != own {
            // Its entry may be another set's by now, and directories of this set lie in it.
            self.drop_copy(&parent, name, fid)?;
        } else if !dir_kind && (stat.nlink > 1 || self.is_double(&parent, name, fid)?) {
            parent.unlink(name)?;
        } else {
            // What the other brick keeps without a name stays here as well.
            let orphan = self.load(fid).is_ok_and(|n| n.tag().flags & ORPHAN != 0);
            let to = if orphan { self.folders.orphans() } else { self.folders.heal_trash() };
            to.receive(&parent, name, fid)?;
        }
        self.invalidate_attrs(fid);
        self.left(dir, name);
        Ok(())
    }

    fn take_entry(&mut self, dir: Fid, e: &DirEntry, targets: &[(Fid, Blob)]) -> Result<Option<Made>, Errno> {
        let name = e.name.as_bytes();
        let known = self.is_known(e.fid)?;
        tracing::debug!(%dir, name = %e.name, fid = %e.fid, known, "a name is taken over");
        if known {
            let mut again = None;
            if e.kind == S_IFDIR {
                if e.home != self.identity.set {
                    self.have_home(e.fid, e.home)?;
                }
                again = self.untangle(dir, e.fid)?;
                // It may lie in a directory that was taken away and forgotten.
                let from = self.location(e.fid)?.parent;
                self.keep_times_of(from.as_slice())?;
                match self.move_copy(e.fid, dir, name) {
                    // It cannot lie beneath itself: the directory that it goes into is not where it belongs either.
                    Err(Errno::EINVAL) => {
                        self.displace(dir)?;
                        self.move_copy(e.fid, dir, name)?;
                    }
                    other => other?,
                }
            } else {
                self.link_again(e, dir)?;
            }
            return Ok(again);
        }
        let own = e.home == self.identity.set;
        if !own && e.kind != S_IFDIR {
            self.make_stub(dir, name, (e.fid, e.home, e.kind), (Version::default(), ids::Time::default()))?;
            // It may be marked.
            return Ok(Some(Made { fid: e.fid, dir: false }));
        }
        let rdev = e.attr.as_ref().map_or(0, |a| a.rdev);
        let target = targets.iter().find(|(f, _)| *f == e.fid).map(|(_, target)| target);
        let Some(node) = node(e.kind, rdev, target) else { return Ok(None) };
        let attr = e.attr.as_ref();
        let new_object = NewObject {
            fid: e.fid,
            home: e.home,
            node: &node,
            mode: attr.map_or(0o700, |a| a.mode & 0o7777),
            uid: attr.map_or(0, |a| a.uid),
            gid: attr.map_or(0, |a| a.gid),
            time: attr.map_or(ids::Time::default(), |a| a.mtime),
            flags: 0,
            version: Version::default(),
        };
        self.create(dir, name, &new_object)?;
        Ok(Some(Made { fid: e.fid, dir: own && e.kind == S_IFDIR }))
    }

    /// Directory `fid` is to come into `dir`, which may lie beneath it here: then `dir` is moved to the heal trash until
    /// its own parent is compared, and its present one, which is answered, has to be compared (again).
    fn untangle(&mut self, dir: Fid, fid: Fid) -> Result<Option<Made>, Errno> {
        if !self.is_beneath(dir, fid)? {
            return Ok(None);
        }
        let at = self.location(dir)?;
        let Some(parent) = at.parent else { return Ok(None) };
        self.keep_times(parent)?;
        self.move_to_trash(parent, &at.name, dir)?;
        Ok(Some(Made { fid: parent, dir: true }))
    }

    /// Gives a file that is here under another name, or without one, this name.
    pub(crate) fn link_again(&mut self, e: &DirEntry, dir: Fid) -> Result<(), Errno> {
        let to = self.dir_of_name(dir, e.name.as_bytes())?;
        let mut moved = false;
        for folder in [self.folders.heal_trash(), self.folders.orphans()] {
            match folder.release(e.fid, &to, e.name.as_bytes()) {
                Ok(()) => moved = true,
                Err(Errno::ENOENT) => {}
                Err(err) => return Err(err),
            }
            if moved {
                break;
            }
        }
        if !moved {
            self.open_fid(e.fid)?.link(&to, e.name.as_bytes())?;
        }
        let entry = namespace::Entry { fid: e.fid, home: e.home, kind: e.kind };
        self.invalidate_attrs(e.fid);
        self.entered(dir, e.name.as_bytes(), entry);
        Ok(())
    }

    /// Moves a directory to the heal trash until its own entry is compared.
    fn displace(&mut self, dir: Fid) -> Result<(), Errno> {
        let at = self.location(dir)?;
        self.keep_times_of(at.parent.as_slice())?;
        self.folders.heal_trash().receive(&at.dir, &at.name, dir)?;
        if let Some(parent) = at.parent {
            self.left(parent, &at.name);
        }
        self.invalidate_attrs(dir);
        Ok(())
    }
}
