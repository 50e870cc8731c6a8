//! The entry, on another set, that leads to a directory of this set.
//!
//! A directory that lives on another set than its parent hangs at its path, beneath a copy of the parent, and that says
//! which set has the entry that leads to it. In lost+found nothing does: there the entry is kept in an attribute beside the
//! directory. A rename on its set is told to nobody (docs/design/0005): so what is kept is right about the set, also when the
//! directory has its place again, and perhaps not about the name. When the entry moves to another set that one is kept, whatever
//! the directory hangs on then (docs/design/0019).

use crate::object::OpenObject;
use crate::open::Brick;
use crate::service::DirLocation;
use disk_format::tag::{INTENT, Meant, encode_intent};
use file_system::File;
use ids::{Fid, OpId, SetId};
use std::path::Path;
use wire::op::{Ancestor, EntryName, Intent};
use wire::{Errno, Name};

/// What is kept of an entry.
pub(crate) fn intent(coordinator: SetId, dir: Fid, name: &Name) -> Intent {
    let add = Some(EntryName { dir, name: name.clone() });
    Intent { tx: OpId::default(), coordinator, drop: None, add }
}

/// The entry of another set than `own` that a directory is to leave, or was to, and that set.
pub(crate) fn leaves_elsewhere(meant: &Meant, own: SetId) -> Option<(SetId, &EntryName)> {
    let drop = meant.intent.drop.as_ref()?;
    let from = meant.from.unwrap_or(drop.dir.set);
    (from != own).then_some((from, drop))
}

/// What is kept beside a directory. As long as it says which entry of another set the directory is to leave that one counts; if
/// it is one of `own`, the directory has left it.
pub(crate) fn kept_entry(of: &OpenObject, own: SetId) -> Result<Option<(SetId, EntryName)>, Errno> {
    let Some(meant) = of.meant()? else { return Ok(None) };
    Ok(match leaves_elsewhere(&meant, own) {
        Some((from, drop)) => Some((from, drop.clone())),
        None => {
            let coordinator = meant.intent.coordinator;
            meant.intent.add.map(|place| (coordinator, place))
        }
    })
}

/// Keeps an entry beside the directory that it leads to. `at`: the brick, and which directory that is. False if there is no room.
pub(crate) fn write_kept(of: &File, kept: &[u8], at: (&Path, Fid)) -> Result<bool, Errno> {
    match of.set_xattr(INTENT.as_bytes(), kept) {
        Err(error @ (Errno::ENOSPC | Errno::EDQUOT)) => {
            tracing::warn!(brick = %at.0.display(), fid = %at.1, %error, "there is no room beside a directory for the entry that leads to it");
            Ok(false)
        }
        other => other.map(|()| true),
    }
}

impl Brick {
    /// A directory of this set is about to lose its place: its entry is kept beside it, if another set has that. False if it
    /// does not fit beside the other attributes.
    pub(crate) fn keep_entry(&mut self, parent: Fid, name: &[u8], fid: Fid) -> Result<bool, Errno> {
        let own = self.identity.set;
        let owner = self.load(parent)?.tag().home;
        if owner == own || self.load(fid)?.tag().home != own || !self.open_fid(fid)?.is_dir() {
            return Ok(true);
        }
        let open = self.open_fid(fid)?;
        let leaves = open.meant()?.is_some_and(|meant| leaves_elsewhere(&meant, own).is_some());
        if leaves || self.kept_elsewhere(fid, owner)?.is_some() {
            // Its entry has moved, or is to move: no place says so.
            return self.synced(open.sync()).map(|()| true);
        }
        let name = Name::new(name).map_err(|_| Errno::EIO)?;
        self.write_entry(fid, &intent(owner, parent, &name))
    }

    /// What is kept beside a directory of this set that hangs on one of set `above`, if its entry is another set's by now.
    pub(crate) fn kept_elsewhere(
        &mut self,
        fid: Fid,
        above: SetId,
    ) -> Result<Option<(SetId, EntryName)>, Errno> {
        let own = self.identity.set;
        let kept = kept_entry(&self.open_fid(fid)?, own)?;
        Ok(kept.filter(|(owner, _)| *owner != above && *owner != own))
    }

    /// A directory of this set lies in lost+found instead of here.
    pub(crate) fn keep_path(&mut self, path: &[Ancestor], name: &Name, fid: Fid) -> Result<(), Errno> {
        let root = (self.identity.root, self.identity.root_home);
        let (dir, owner) = path.last().map_or(root, |a| (a.fid, a.home));
        self.write_entry(fid, &intent(owner, dir, name)).map(drop)
    }

    fn write_entry(&mut self, fid: Fid, intent: &Intent) -> Result<bool, Errno> {
        let (open, intent) = (self.open_fid(fid)?, encode_intent(intent));
        if open.whole_xattr(INTENT.as_bytes())?.as_ref() == Some(&intent) {
            return Ok(true);
        }
        let kept = write_kept(&open, &intent, (&self.path, fid))?;
        if kept {
            // On disk first: in lost+found nothing else would say it after a power cut.
            self.synced(open.sync())?;
        }
        Ok(kept)
    }

    /// Directory `moved` is to come into `dir`, which may hang beneath it here and does not belong there: then the next
    /// directory of this set that hangs on a copy, from `dir` upwards, waits in lost+found. Whether one does.
    pub(crate) fn disentangle(&mut self, dir: Fid, moved: Fid) -> Result<bool, Errno> {
        if !self.open_fid(moved)?.is_dir() || !self.is_beneath(dir, moved)? {
            return Ok(false);
        }
        let own = self.identity.set;
        let mut at = dir;
        while at != moved {
            let place = self.location(at)?;
            let Some(parent) = place.parent else { break };
            if self.load(at)?.tag().home == own && self.load(parent)?.tag().home != own {
                if !self.keep_entry(parent, &place.name, at)? {
                    return Err(Errno::ENOSPC);
                }
                let above = self.open_to_move(parent, &[at])?;
                self.folders.lost_found().receive(&above, &place.name, at)?;
                self.invalidate_attrs(at);
                self.left(parent, &place.name);
                return Ok(true);
            }
            at = parent;
        }
        Ok(false)
    }

    /// Where a directory that lies in lost+found would hang.
    pub(crate) fn kept_location(&mut self, fid: Fid) -> Result<DirLocation, Errno> {
        let home = self.load(fid)?.tag().home;
        let own = self.identity.set;
        let (parent_home, place) = kept_entry(&self.open_fid(fid)?, own)?.ok_or(Errno::ESTALE)?;
        Ok(DirLocation { home, parent: place.dir, parent_home, name: place.name })
    }
}
