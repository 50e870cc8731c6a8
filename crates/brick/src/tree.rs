//! Finds objects by fid and by name, and implements the tree that the rules of `namespace` read.

use crate::index::Located;
use crate::object::{OpenObject, S_IFDIR, S_IFMT, S_IFREG, tag_at};
use crate::open::Brick;
use disk_format::Tag;
use disk_format::tag::PENDING;
use file_system::File;
use ids::Fid;
use namespace::{Entry, Lineage, TreeState};
use wire::name::RESERVED;
use wire::op::{EntryName, Intent, Leaving, Successor, Taken};
use wire::stripes::{PIECE, PieceOf, STRIPES, Stripes};
use wire::{Attr, DecodeError, Errno, Name};

/// What a name is in a directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum At {
    /// Nothing.
    Free,
    /// Something without a tag: not ours.
    Unknown,
    /// An entry.
    Entry(Entry),
}

impl Brick {
    /// A descriptor of the object, from the cache or by its handle.
    pub(crate) fn open_fid(&mut self, fid: Fid) -> Result<OpenObject, Errno> {
        if fid == self.identity.root {
            return Ok(self.root.clone());
        }
        if let Some(o) = self.fds.get(fid) {
            return Ok(o.clone());
        }
        let mut at = self.index.get(fid)?;
        if at.is_none() {
            self.learn_met()?;
            at = self.index.get(fid)?;
        }
        let at = at.ok_or(Errno::ESTALE)?;
        match self.root.open_handle(&at.handle, at.kind) {
            Ok(file) => {
                let o = OpenObject::new(file, at.kind);
                self.fds.keep(fid, o.clone());
                Ok(o)
            }
            Err(Errno::ESTALE | Errno::ENOENT) => {
                self.index.remove(fid);
                Err(Errno::ESTALE)
            }
            Err(e) => Err(e),
        }
    }

    pub(crate) fn open_dir(&mut self, fid: Fid) -> Result<OpenObject, Errno> {
        let o = self.open_fid(fid)?;
        if o.is_dir() { Ok(o) } else { Err(Errno::ENOTDIR) }
    }

    /// The object is gone: nothing of it is kept.
    pub(crate) fn forget(&mut self, fid: Fid) {
        self.fds.forget(fid);
        self.nodes.remove(fid);
        self.listings.forget(fid);
        self.index.remove(fid);
        self.forget_met(fid);
    }

    /// Notes a new entry everywhere.
    pub(crate) fn entered(&mut self, parent: Fid, name: &[u8], entry: Entry) {
        self.shared.fresh().entered(parent, entry.fid);
        self.names.note(parent, name, Some(entry));
        self.forget_in_copy(parent, name);
        self.listings.added(parent, name, entry.kind);
        if entry.is_dir() {
            // Its parent has one link more.
            self.invalidate_attrs(parent);
        }
    }

    /// Notes everywhere that an object has a new place: a sync of what lies beneath a directory brings its move to disk.
    pub(crate) fn moved_to(&mut self, parent: Fid, name: &[u8], entry: Entry) {
        if entry.is_dir() {
            self.shared.fresh().moved(entry.fid, self.journal.last().lsn);
        }
        self.entered(parent, name, entry);
    }

    /// Notes the end of an entry everywhere.
    pub(crate) fn left(&mut self, parent: Fid, name: &[u8]) {
        self.file_left(parent, name);
        self.invalidate_attrs(parent);
    }

    /// Notes the end of an entry that was no directory's: what is known of its directory stays right.
    pub(crate) fn file_left(&mut self, parent: Fid, name: &[u8]) {
        self.names.note(parent, name, None);
        self.forget_in_copy(parent, name);
        self.listings.removed(parent, name);
    }

    /// A name in a folder of names came or went: what the copy of its directory has under that name is another thing now.
    fn forget_in_copy(&mut self, parent: Fid, name: &[u8]) {
        if parent.is_names() {
            self.names.forget(parent.without_names(), name);
        }
    }

    /// Looks a name up, in memory first. What is found by name is learnt: its node, and its handle if the index lacks it.
    pub(crate) fn find(&mut self, parent: Fid, name: &[u8]) -> Result<At, Errno> {
        match self.names.get(parent, name) {
            Some(Some(e)) => {
                self.connect(parent, name, e);
                return Ok(At::Entry(e));
            }
            Some(None) => return Ok(At::Free),
            None => {}
        }
        let dir = self.dir_of_name(parent, name)?;
        if parent == self.identity.root && name == RESERVED {
            return Ok(At::Free);
        }
        let tag = match tag_at(&dir, name) {
            Err(Errno::ENOENT) => {
                self.names.note(parent, name, None);
                return Ok(At::Free);
            }
            other => other?,
        };
        let Some(tag) = tag else { return Ok(At::Unknown) };
        let stat = dir.stat_at(name)?;
        let kind = stat.mode & S_IFMT;
        self.learn_node(tag, stat)?;
        // A stub, or a copy, that was removed and made again has the fid that it had.
        let known = self.index.get(tag.fid)?;
        let copy = kind == S_IFDIR && tag.home != self.identity.set;
        if tag.stub_kind().is_some() || known.is_none() || copy {
            let here = Located { handle: dir.handle_at(name)?, kind };
            let gone = |at: &Located| matches!(self.root.open_handle(&at.handle, kind), Err(Errno::ESTALE));
            if !copy || known.is_none_or(|at| at != here && gone(&at)) {
                self.index.put(tag.fid, here);
                self.copy_found(copy, tag.fid);
            }
        }
        let entry = Entry { fid: tag.fid, home: tag.home, kind: tag.stub_kind().unwrap_or(kind) };
        self.names.note(parent, name, Some(entry));
        Ok(At::Entry(entry))
    }

    /// The index knows a directory now that it did not know. Files of this set may have names in it.
    fn copy_found(&mut self, is_copy: bool, fid: Fid) {
        if is_copy {
            self.names.clear();
            self.listings.forget(fid.names());
        }
    }

    /// Shows the kernel where a directory hangs, before its handle is opened: a kernel that has forgotten that would search
    /// the whole parent for it (`reconnect_path`).
    fn connect(&mut self, parent: Fid, name: &[u8], e: Entry) {
        if e.is_dir()
            && self.fds.get(e.fid).is_none()
            && let Ok(dir) = self.open_dir(parent)
        {
            let _ = dir.stat_at(name);
        }
    }

    /// Whether this set answers for the object; `ESTALE` if not.
    pub(crate) fn ours(&mut self, fid: Fid) -> Result<(), Errno> {
        let own = self.identity.set;
        let tag = *self.load(fid)?.tag();
        self.is_certain(fid, &tag)?;
        if tag.home == own { Ok(()) } else { Err(Errno::ESTALE) }
    }

    /// Whether it is certain which set answers for the object.
    ///
    /// # Errors
    /// `EAGAIN` if not: it is a directory that is about to change its set.
    fn is_certain(&mut self, fid: Fid, tag: &Tag) -> Result<(), Errno> {
        if tag.flags & PENDING != 0 && self.taken_by(fid)?.is_some() { Err(Errno::EAGAIN) } else { Ok(()) }
    }

    /// Where `name` leads, for lookups by users: what is not ours is not there.
    ///
    /// # Errors
    /// As [`TreeState::entry`].
    pub fn lookup(&mut self, parent: Fid, name: &Name) -> Result<Option<Entry>, Errno> {
        self.ours(parent)?;
        Ok(match self.find(parent, name.as_bytes())? {
            At::Entry(e) => Some(e),
            At::Free | At::Unknown => None,
        })
    }

    /// The attributes of any object that the brick has, copies of other sets' directories included.
    ///
    /// # Errors
    /// `ESTALE` if it has no such object.
    pub fn attr_of_any(&mut self, fid: Fid) -> Result<Attr, Errno> {
        let (node, stat) = self.fresh(fid)?;
        Ok(node.attr(&stat))
    }

    /// The names in a directory as the file system lists them, with type bits; `stop` ends the pass early.
    pub(crate) fn scan_dir(
        &mut self,
        fid: Fid,
        stop: &mut dyn FnMut(&[u8], u32) -> bool,
    ) -> Result<(), Errno> {
        let dir = self.open_dir(fid)?;
        let root = fid == self.identity.root;
        dir.list(&mut |name, kind, _| (root && name == RESERVED) || !stop(name, kind))
    }
}

/// What a change that was interrupted leaves behind: an object without a tag and without content. A file that somebody
/// put into the brick has content, or is worth nothing either: it is moved to lost+found, not removed.
pub(crate) fn is_remains(dir: &File, name: &[u8]) -> Result<bool, Errno> {
    // The folder that mkfs makes.
    if name == b"lost+found" || tag_at(dir, name)?.is_some() {
        return Ok(false);
    }
    let stat = dir.stat_at(name)?;
    match stat.mode & S_IFMT {
        S_IFREG => Ok(stat.size == 0 && stat.nlink == 1),
        S_IFDIR => {
            let mut empty = true;
            dir.open_at(name, S_IFDIR)?.list(&mut |_, _, _| {
                empty = false;
                false
            })?;
            Ok(empty)
        }
        _ => Ok(true),
    }
}

impl Brick {
    /// Whether `dir` hangs anywhere beneath `above` on this brick, or is it.
    pub(crate) fn is_beneath(&mut self, dir: Fid, above: Fid) -> Result<bool, Errno> {
        let mut at = self.open_dir(dir)?;
        let mut fid = dir;
        loop {
            if fid == above {
                return Ok(true);
            }
            if fid == self.identity.root {
                return Ok(false);
            }
            at = crate::object::open_at(&at, b"..", S_IFDIR)?;
            match at.tag()? {
                Some(t) => fid = t.fid,
                // Above lost+found there is nothing of the tree.
                None => return Ok(false),
            }
        }
    }
}

impl TreeState for Brick {
    fn attr(&mut self, fid: Fid) -> Result<Attr, Errno> {
        let own = self.identity.set;
        let (node, stat) = self.fresh(fid)?;
        let (tag, attr) = (*node.tag(), node.attr(&stat));
        self.is_certain(fid, &tag)?;
        if tag.home == own { Ok(attr) } else { Err(Errno::ESTALE) }
    }

    /// Something that is not ours (copied in behind Mortar's back) answers `EEXIST`: no change may touch the name. What an
    /// interrupted change left is no entry: the change that takes the name moves it to lost+found.
    fn entry(&mut self, parent: Fid, name: &Name) -> Result<Option<Entry>, Errno> {
        self.ours(parent)?;
        match self.find(parent, name.as_bytes())? {
            At::Entry(e) => Ok(Some(e)),
            At::Free => Ok(None),
            At::Unknown if is_remains(&*self.open_dir(parent)?, name.as_bytes())? => Ok(None),
            At::Unknown => {
                tracing::warn!(
                    brick = %self.path.display(), dir = %parent, name = %name,
                    "a name is taken by a file that does not belong to the volume; move it out of the brick or adopt it"
                );
                Err(Errno::EEXIST)
            }
        }
    }

    fn is_empty(&mut self, dir: Fid) -> Result<bool, Errno> {
        self.ours(dir)?;
        if self.listings.peek(dir).is_some_and(|l| l.len() == 0) {
            return Ok(true);
        }
        if self.has_names_in_copy(dir)? {
            return Ok(false);
        }
        let open = self.open_dir(dir)?;
        let mut empty = Ok(true);
        self.scan_dir(dir, &mut |name, _| {
            empty = is_remains(&open, name);
            empty != Ok(true)
        })?;
        empty
    }

    fn is_pending(&mut self, dir: Fid) -> Result<bool, Errno> {
        Ok(self.load(dir)?.tag().flags & PENDING != 0)
    }

    fn intent(&mut self, fid: Fid) -> Result<Option<Intent>, Errno> {
        let open = self.open_fid(fid)?;
        if !self.is_pending(fid)? {
            return Ok(None);
        }
        if open.is_dir() {
            return self.move_of(fid);
        }
        open.intent()
    }

    fn successor(&mut self, fid: Fid) -> Result<Option<Successor>, Errno> {
        let open = self.open_fid(fid)?;
        if !self.is_pending(fid)? || open.is_dir() && self.move_of(fid)?.is_none() {
            return Ok(None);
        }
        Ok(open.meant()?.and_then(|meant| meant.successor))
    }

    fn names_of_copy(&mut self, fid: Fid) -> Result<Vec<EntryName>, Errno> {
        self.ours(fid)?;
        self.open_fid(fid)?.names_of_copy()
    }

    fn taken(&mut self, fid: Fid) -> Result<Option<Taken>, Errno> {
        self.taken_by(fid)
    }

    fn stripes(&mut self, fid: Fid) -> Result<Option<Stripes>, Errno> {
        self.ours(fid)?;
        let Some(bytes) = self.open_fid(fid)?.own_xattr(STRIPES)? else { return Ok(None) };
        Stripes::decode(&bytes).map(Some).map_err(|error| unreadable(fid, &error))
    }

    fn piece_of(&mut self, fid: Fid) -> Result<Option<PieceOf>, Errno> {
        self.ours(fid)?;
        let Some(bytes) = self.open_fid(fid)?.own_xattr(PIECE)? else { return Ok(None) };
        PieceOf::decode(&bytes).map(Some).map_err(|error| unreadable(fid, &error))
    }

    fn leaving(&mut self, fid: Fid) -> Result<Option<Leaving>, Errno> {
        self.ours(fid)?;
        if !self.is_pending(fid)? {
            return Ok(None);
        }
        self.open_fid(fid)?.leaving()
    }

    fn has_default_acl(&mut self, dir: Fid) -> Result<bool, Errno> {
        let open = self.open_fid(dir)?;
        if !open.is_dir() {
            return Ok(false);
        }
        match open.whole_xattr(b"system.posix_acl_default") {
            Err(Errno::EOPNOTSUPP) => Ok(false),
            other => other.map(|v| v.is_some()),
        }
    }

    fn xattr(&mut self, fid: Fid, name: &Name) -> Result<Option<Vec<u8>>, Errno> {
        self.ours(fid)?;
        self.getxattr(fid, name)
    }

    fn lineage(&mut self, dir: Fid) -> Result<Lineage, Errno> {
        let (own, root) = (self.identity.set, self.identity.root);
        let mut lineage = Lineage::default();
        let mut at = self.open_dir(dir)?;
        let mut fid = dir;
        while fid != root {
            lineage.own.push(fid);
            at = crate::object::open_at(&at, b"..", S_IFDIR)?;
            let above = match at.tag()? {
                Some(tag) => (tag.fid, if tag.fid == root { self.identity.root_home } else { tag.home }),
                // Above lost+found there is nothing of the tree.
                None => {
                    let kept = self.kept_location(fid)?;
                    (kept.parent, kept.parent_home)
                }
            };
            if above.1 != own {
                if self.load(fid)?.tag().home != own {
                    return Err(Errno::ESTALE);
                }
                let moved = self.kept_elsewhere(fid, above.1)?;
                lineage.other = Some((fid, moved.map_or(above.1, |(owner, _)| owner)));
                break;
            }
            fid = above.0;
        }
        Ok(lineage)
    }
}

fn unreadable(fid: Fid, error: &DecodeError) -> Errno {
    tracing::error!(%fid, %error, "what is kept beside a striped file or a piece cannot be read");
    Errno::EIO
}
