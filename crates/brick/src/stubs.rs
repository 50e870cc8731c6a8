//! Files that live on another set than their directory (docs/design/0016).
//!
//! The set of the directory has a stub: an empty file whose tag says who the file is, where it lives and of what kind it is.
//! All names that a file has in this set's directories are links of one stub. The home of the file keeps the same names in
//! folders in lost+found, one for each directory of another set, so that the links of the file are those of its inode.

use crate::folders::hidden_name;
use crate::making::NewObject;
use crate::object::OpenObject;
use crate::open::Brick;
use crate::tree::At;
use disk_format::tag::{INTENT, PENDING, Version, encode_ended, encode_intent, stub_flags};
use ids::{Fid, Lsn, SetId, Time};
use namespace::{Entry, TreeState};
use wire::op::{EntryName, Intent, Node};
use wire::{Errno, Name};

/// The permission bits of a stub.
const STUB_MODE: u32 = 0o1000;

/// Who a stub stands for: the file, its home, and its kind as type bits.
pub(crate) type Who = (Fid, SetId, u32);

impl Brick {
    /// Makes a stub under a name that is free.
    pub(crate) fn make_stub(
        &mut self,
        parent: Fid,
        name: &[u8],
        (fid, home, kind): Who,
        (version, time): (Version, Time),
    ) -> Result<(), Errno> {
        let what = NewObject {
            fid,
            home,
            node: &Node::File,
            mode: STUB_MODE,
            uid: 0,
            gid: 0,
            time,
            flags: stub_flags(kind),
            version,
        };
        self.create(parent, name, &what)
    }

    /// [`wire::Change::Enter`].
    pub(crate) fn enter_stub(
        &mut self,
        (parent, name): (Fid, &Name),
        who: Who,
        replaced: Option<(Fid, bool)>,
        at: (Version, Time),
    ) -> Result<(), Errno> {
        let name = name.as_bytes();
        match (self.find(parent, name)?, replaced) {
            (At::Free, None) => {}
            (At::Free, Some(_)) if self.progress.is_replaying() => {}
            (At::Entry(e), _) if e.fid == who.0 && self.progress.is_replaying() => return Ok(()),
            (At::Unknown, _) => self.quarantine(parent, name)?,
            (At::Entry(e), Some((out, orphan))) if e.fid == out => {
                let dir = self.open_dir(parent)?;
                self.push_out(&dir, name, out, orphan)?;
                self.left(parent, name);
            }
            (other, _) => return self.diverged(parent, name, other),
        }
        if !self.is_known(who.0)? {
            return self.make_stub(parent, name, who, at);
        }
        let dir = self.open_dir(parent)?;
        self.open_fid(who.0)?.link(&dir, name)?;
        self.invalidate_attrs(who.0);
        self.entered(parent, name, Entry { fid: who.0, home: who.1, kind: who.2 });
        Ok(())
    }

    /// [`wire::Change::PrepareFile`].
    pub(crate) fn prepare_file(&mut self, fid: Fid, intent: &Intent) -> Result<(), Errno> {
        self.load(fid)?;
        self.open_fid(fid)?.set_xattr(INTENT.as_bytes(), &encode_intent(intent))
    }

    /// [`wire::Change::EndFile`].
    pub(crate) fn end_file(
        &mut self,
        fid: Fid,
        (drop, add): (Option<&EntryName>, Option<&EntryName>),
        orphan: bool,
        at: (Version, Time),
    ) -> Result<(), Errno> {
        if let Some(add) = add {
            self.have_folder_of_names(add.dir, at)?;
        }
        match (drop, add) {
            (Some(drop), Some(add)) => self.move_name(fid, drop, add)?,
            (None, Some(add)) => self.add_name(fid, add)?,
            (Some(drop), None) => self.drop_name(fid, drop, orphan)?,
            (None, None) => {}
        }
        if let Some(drop) = drop {
            self.drop_folder_of_names(drop.dir)?;
        }
        // What was meant stays beside the object: the mark goes from the disk later, and must not be there without it.
        let open = match self.open_fid(fid) {
            // It has lost its last name.
            Err(Errno::ESTALE | Errno::ENOENT) => return Ok(()),
            other => other?,
        };
        match open.intent()? {
            Some((intent, _)) => open.set_xattr(INTENT.as_bytes(), &encode_ended(&intent, at.0)),
            None => Ok(()),
        }
    }

    /// A mark on disk that a change has ended: it goes from there when what that change did is on disk too.
    pub(crate) fn end_known_mark(&mut self, fid: Fid, open: &OpenObject) -> Result<(), Errno> {
        let Some(Some(at)) = open.intent()?.map(|(_, ended)| ended) else { return Ok(()) };
        if let Some(node) = self.nodes.peek(fid) {
            node.end_mark(at.lsn);
            self.nodes.keeps_mark(fid);
        }
        Ok(())
    }

    /// After a power cut: what ended these files' transactions after `durable` may be lost. They end once more.
    pub(crate) fn bring_marks_back(&mut self, changed: &[Fid], durable: Lsn) -> Result<(), Errno> {
        for fid in changed {
            let open = match self.open_fid(*fid) {
                Err(Errno::ESTALE | Errno::ENOENT) => continue,
                other => other?,
            };
            if open.is_dir() || open.tag()?.is_none_or(|t| t.flags & PENDING == 0) {
                continue;
            }
            if let Some((intent, Some(at))) = open.intent()?
                && at.lsn > durable
            {
                open.set_xattr(INTENT.as_bytes(), &encode_intent(&intent))?;
                if let Some(node) = self.nodes.peek(*fid) {
                    node.mark_again();
                }
            }
        }
        Ok(())
    }

    fn leads_to(&mut self, place: &EntryName, fid: Fid) -> Result<bool, Errno> {
        Ok(matches!(self.find(place.dir, place.name.as_bytes())?, At::Entry(e) if e.fid == fid))
    }

    fn move_name(&mut self, fid: Fid, drop: &EntryName, add: &EntryName) -> Result<(), Errno> {
        if self.progress.is_replaying() && self.leads_to(add, fid)? {
            return Ok(());
        }
        self.rename((drop.dir, &drop.name), fid, (add.dir, &add.name), None)
    }

    fn add_name(&mut self, fid: Fid, add: &EntryName) -> Result<(), Errno> {
        self.link(fid, add.dir, add.name.as_bytes())
    }

    fn drop_name(&mut self, fid: Fid, drop: &EntryName, orphan: bool) -> Result<(), Errno> {
        if self.progress.is_replaying() && !self.is_known(drop.dir)? {
            return Ok(());
        }
        if !self.leads_to(drop, fid)? {
            let found = self.find(drop.dir, drop.name.as_bytes())?;
            return self.diverged(drop.dir, drop.name.as_bytes(), found);
        }
        let dir = self.open_dir(drop.dir)?;
        self.push_out(&dir, drop.name.as_bytes(), fid, orphan)?;
        self.left(drop.dir, drop.name.as_bytes());
        Ok(())
    }

    /// The folder for names in a directory of another set; a directory of this set is there.
    pub(crate) fn have_folder_of_names(
        &mut self,
        dir: Fid,
        (version, time): (Version, Time),
    ) -> Result<(), Errno> {
        if !dir.is_names() || self.is_known(dir)? {
            return Ok(());
        }
        let what = NewObject {
            fid: dir,
            home: self.identity.set,
            node: &Node::Dir,
            mode: 0o700,
            uid: 0,
            gid: 0,
            time,
            flags: 0,
            version,
        };
        self.make_in_lost_found(&what)
    }

    /// A folder that holds no name any more goes.
    fn drop_folder_of_names(&mut self, dir: Fid) -> Result<(), Errno> {
        if !dir.is_names() || !self.is_known(dir)? || !self.is_empty(dir)? {
            return Ok(());
        }
        match self.folders.lost_found().remove_dir(hidden_name(dir).as_bytes()) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(Errno::ENOTEMPTY | Errno::EEXIST) => return Ok(()),
            Err(e) => return Err(e),
        }
        self.forget(dir);
        Ok(())
    }
}

/// The folder's name in lost+found is that of its fid.
pub(crate) fn is_folder_of_names(fid: Fid, name: &[u8]) -> bool {
    fid.is_names() && name == hidden_name(fid).as_bytes()
}
