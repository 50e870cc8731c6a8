//! What a user may do whose permissions the server checks, as a key's `--squash` or `--users` says: a row for each
//! operation.
//!
//! Always true: who may not do something is refused whatever his client has checked, and what cannot be known here counts as
//! not allowed. Not checked: the directories above the one that an operation names, as in NFS. Of an operation of two sets only
//! this one's part is checked here; the other set is asked for its own ([`crate::rights`]).

use crate::tree_state::{Entry, TreeState};
use ids::{Fid, SetId};
use wire::op::{Node, SetAttr, SetTime, rename_flags};
use wire::rights::Right;
use wire::user::{ACCESS_LIST, EXECUTE, READ, WRITE};
use wire::{Attr, Errno, Name, Op, User};

const S_ISUID: u32 = 0o4000;
const S_ISGID: u32 = 0o2000;
const S_ISVTX: u32 = 0o1000;

/// Whether somebody who is not root sees this extended attribute.
pub fn shows_xattr(name: &Name) -> bool {
    !name.as_bytes().starts_with(b"trusted.")
}

/// Makes an operation the user's own, whoever it names: what it makes is his, and what it writes loses the bits that let
/// others act as its owner.
pub fn take_as(user: &User, op: &mut Op) {
    match op {
        Op::Create { uid, gid, .. } => {
            *uid = user.uid;
            if !user.is_in(*gid) {
                *gid = user.gid;
            }
        }
        Op::Write { kill_suid, .. } => *kill_suid = true,
        Op::SetAttr { set, .. } if set.size.is_some() || set.uid.is_some() || set.gid.is_some() => {
            set.kill_suid = true;
        }
        _ => {}
    }
}

/// Something that another set knows.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Question {
    /// That set.
    pub set: SetId,
    /// What it is asked for.
    pub right: Right,
    /// What is answered if it does not know the question.
    pub otherwise: Errno,
}

/// Why a user may not do something.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// For certain.
    Errno(Errno),
    /// It depends on what another set says.
    Ask(Question),
}

/// Checks that the user may do what [`take_as`] has made his own, and takes away the part that he gets without if he may not.
/// `known`: what other sets have said he may.
///
/// # Errors
/// `EACCES` and `EPERM` as Linux gives them, `EXDEV` for what another set would have to check and is not asked for; `EAGAIN`: it is
/// not certain what a name leads to; errors of the state.
pub fn check(
    user: &User,
    op: &mut Op,
    set: SetId,
    state: &mut dyn TreeState,
    known: &[Right],
) -> Result<(), Refusal> {
    let mut check = Check { user, set, state, known, ask: None };
    let allowed = check.op(op);
    allowed.map_err(|e| check.ask.map_or(Refusal::Errno(e), Refusal::Ask))
}

pub(crate) struct Check<'a> {
    pub(crate) user: &'a User,
    pub(crate) set: SetId,
    pub(crate) state: &'a mut dyn TreeState,
    /// What other sets have said that he may.
    pub(crate) known: &'a [Right],
    /// What one of them has to be asked.
    pub(crate) ask: Option<Question>,
}

fn allowed(is: bool, otherwise: Errno) -> Result<(), Errno> {
    if is { Ok(()) } else { Err(otherwise) }
}

impl Check<'_> {
    fn op(&mut self, op: &mut Op) -> Result<(), Errno> {
        match op {
            Op::GetAttr { .. }
            | Op::GetAttrs { .. }
            | Op::ReadLink { .. }
            | Op::Release { .. }
            | Op::Fsync { .. }
            | Op::StatFs
            | Op::ListXattr { .. }
            | Op::SyncFs
            | Op::HoldLocks { .. }
            | Op::DropLocks { .. } => Ok(()),
            Op::Lookup { parent, .. } => self.dir(*parent, EXECUTE).map(drop),
            Op::ReadDir { fid, plus, .. } => {
                let dir = self.dir(*fid, READ)?;
                *plus &= self.may(&dir, EXECUTE)?;
                Ok(())
            }
            Op::Show { open: false, .. } => Ok(()),
            Op::Open { fid } | Op::Show { fid, .. } => self.any(*fid, &[READ, WRITE, EXECUTE]).map(drop),
            Op::Read { fid, .. } => self.any(*fid, &[READ]).map(drop),
            Op::Lseek { fid, .. } => self.any(*fid, &[READ, WRITE]).map(drop),
            Op::Write { fid, .. } => self.any(*fid, &[WRITE]).map(drop),
            Op::Fallocate { fid, .. } => self.content(*fid),
            Op::CopyRange { from, to, .. } => {
                self.any(*from, &[READ])?;
                self.content(*to)
            }
            Op::SetAttr { fid, set } => self.set_attr(*fid, set),
            Op::Create { parent, name, node, mode, .. } => self.create(*parent, name, node, mode),
            Op::Unlink { parent, name } | Op::Rmdir { parent, name } => self.remove(*parent, name),
            Op::Rename { parent, name, to_parent, to_name, flags } => {
                let exchange = *flags & rename_flags::EXCHANGE != 0;
                self.rename((*parent, name), (*to_parent, to_name), exchange)
            }
            Op::Link { fid, parent, .. } => {
                self.gets_name(*parent)?;
                self.link(*fid)
            }
            Op::MoveIn { to_parent, to_name, flags, .. } => {
                self.enter(*to_parent, to_name, *flags & rename_flags::EXCHANGE != 0)
            }
            Op::LinkIn { parent, .. } => self.gets_name(*parent),
            Op::GetXattr { fid, name } => self.get_xattr(*fid, name),
            Op::SetXattr { fid, name, .. } | Op::RemoveXattr { fid, name } => self.set_xattr(*fid, name),
            // A piece's set does not know what the file's users may do.
            op if op.is_about_stripes() => Err(Errno::EOPNOTSUPP),
            // What only sets ask each other for ([`Op::is_between_sets`]), and whatever has no row.
            _ => Err(Errno::EPERM),
        }
    }

    /// What the home of an entry's object knows, if it has said so already.
    fn elsewhere(&mut self, entry: Entry, right: Right, otherwise: Errno) -> Result<(), Errno> {
        if self.known.contains(&right) {
            return Ok(());
        }
        let refused = self.unless_marked(entry, otherwise);
        if refused == otherwise {
            self.ask = Some(Question { set: entry.home, right, otherwise });
        }
        Err(refused)
    }

    /// Why somebody is refused for what an entry leads to. As long as a transaction has marked that, the entry may lead to something
    /// else already: a set may be told late that names were exchanged.
    fn unless_marked(&mut self, entry: Entry, refused: Errno) -> Errno {
        if self.state.is_pending(entry.fid) == Ok(true) { Errno::EAGAIN } else { refused }
    }

    /// Whether bits and access list allow all of `want`.
    fn may(&mut self, attr: &Attr, want: u32) -> Result<bool, Errno> {
        self.user.may_by_what_is_read(attr, want, || {
            let name = Name::new(ACCESS_LIST.as_bytes()).map_err(|_| Errno::EIO)?;
            match self.state.xattr(attr.fid, &name) {
                // The brick's file system has no such lists.
                Err(Errno::EOPNOTSUPP) => Ok(None),
                other => other,
            }
        })
    }

    /// A directory in which the user may do all of `want`.
    pub(crate) fn dir(&mut self, dir: Fid, want: u32) -> Result<Attr, Errno> {
        let attr = self.state.attr(dir)?;
        allowed(attr.is_dir(), Errno::ENOTDIR)?;
        allowed(self.may(&attr, want)?, Errno::EACCES)?;
        Ok(attr)
    }

    /// One of these will do. The owner may always, as in NFS: he may have opened the file before he took the right away, and can
    /// give it back to himself.
    fn any(&mut self, fid: Fid, wants: &[u32]) -> Result<Attr, Errno> {
        let attr = self.state.attr(fid)?;
        if self.user.owns(&attr) {
            return Ok(attr);
        }
        for want in wants {
            if self.may(&attr, *want)? {
                return Ok(attr);
            }
        }
        Err(Errno::EACCES)
    }

    /// Content changes by an operation that cannot clear setuid and setgid at the same time.
    fn content(&mut self, fid: Fid) -> Result<(), Errno> {
        let attr = self.any(fid, &[WRITE])?;
        allowed(self.user.owns(&attr) || attr.mode & (S_ISUID | S_ISGID) == 0, Errno::EPERM)
    }

    fn set_attr(&mut self, fid: Fid, set: &mut SetAttr) -> Result<(), Errno> {
        let attr = self.state.attr(fid)?;
        let SetAttr { mode, uid, gid, atime, mtime, size: _, kill_suid: _ } = set;
        let owns = self.user.owns(&attr);
        let keeps_owner = uid.is_none_or(|uid| uid == attr.uid);
        let keeps_group = gid.is_none_or(|gid| gid == attr.gid || self.user.is_in(gid));
        let is_set = |time: &Option<SetTime>| matches!(time, Some(SetTime::At { .. }));
        let is_owners = mode.is_some() || uid.is_some() || gid.is_some() || is_set(atime) || is_set(mtime);
        allowed(owns || !is_owners, Errno::EPERM)?;
        allowed(keeps_owner && keeps_group, Errno::EPERM)?;
        allowed(owns || self.may(&attr, WRITE)?, Errno::EACCES)?;
        if let Some(mode) = mode
            && !self.user.is_in(gid.unwrap_or(attr.gid))
        {
            *mode &= !S_ISGID;
        }
        Ok(())
    }

    fn create(&mut self, parent: Fid, name: &Name, node: &Node, mode: &mut u32) -> Result<(), Errno> {
        let dir = self.dir(parent, EXECUTE)?;
        if self.state.entry(parent, name)?.is_some() {
            // Which is refused as such.
            return Ok(());
        }
        allowed(self.may(&dir, WRITE)?, Errno::EACCES)?;
        allowed(!matches!(node, Node::Char { .. } | Node::Block { .. }), Errno::EPERM)?;
        // It gets the directory's group.
        if dir.mode & S_ISGID != 0 && !self.user.is_in(dir.gid) {
            *mode &= !S_ISGID;
        }
        Ok(())
    }

    fn remove(&mut self, parent: Fid, name: &Name) -> Result<(), Errno> {
        let dir = self.dir(parent, EXECUTE)?;
        match self.state.entry(parent, name)? {
            Some(entry) => self.may_take(&dir, entry),
            // Which is refused as such.
            None => Ok(()),
        }
    }

    /// Whether an entry of the directory may go.
    pub(crate) fn may_take(&mut self, dir: &Attr, entry: Entry) -> Result<(), Errno> {
        allowed(self.may(dir, WRITE)?, Errno::EACCES)?;
        if dir.mode & S_ISVTX == 0 || self.user.owns(dir) {
            return Ok(());
        }
        if entry.home != self.set {
            return self.elsewhere(entry, Right::Own { fid: entry.fid }, Errno::EPERM);
        }
        self.owner(entry.fid).map_err(|e| self.unless_marked(entry, e))
    }

    /// The object is the user's.
    pub(crate) fn owner(&mut self, fid: Fid) -> Result<(), Errno> {
        allowed(self.user.owns(&self.state.attr(fid)?), Errno::EPERM)
    }

    fn rename(&mut self, from: (Fid, &Name), to: (Fid, &Name), exchange: bool) -> Result<(), Errno> {
        let from_dir = self.dir(from.0, EXECUTE)?;
        let to_dir = match self.dir(to.0, EXECUTE) {
            Err(Errno::ESTALE) if to.0.set != self.set => return Err(Errno::EXDEV),
            other => other?,
        };
        let Some(source) = self.state.entry(from.0, from.1)? else { return Ok(()) };
        self.may_take(&from_dir, source)?;
        self.may_leave(source, from.0 != to.0)?;
        match self.state.entry(to.0, to.1)? {
            Some(target) => {
                self.may_take(&to_dir, target)?;
                self.may_leave(target, exchange && from.0 != to.0)
            }
            // Which is refused as such.
            None if exchange => Ok(()),
            None => allowed(self.may(&to_dir, WRITE)?, Errno::EACCES),
        }
    }

    /// A directory that comes into another one is changed itself: its `..` is.
    pub(crate) fn may_leave(&mut self, entry: Entry, leaves: bool) -> Result<(), Errno> {
        if !entry.is_dir() || !leaves {
            return Ok(());
        }
        if entry.home != self.set {
            return self.elsewhere(entry, Right::Move { fid: entry.fid }, Errno::EXDEV);
        }
        self.dir(entry.fid, WRITE).map(drop).map_err(|e| self.unless_marked(entry, e))
    }

    /// A name of a directory of this set is about to lead to something of another set's, in place of what it leads to: that gives
    /// way, or takes the place of the other in an exchange.
    fn enter(&mut self, to: Fid, name: &Name, exchange: bool) -> Result<(), Errno> {
        let dir = self.dir(to, EXECUTE)?;
        match self.state.entry(to, name)? {
            Some(target) => {
                self.may_take(&dir, target)?;
                self.may_leave(target, exchange)
            }
            // Which is refused as such.
            None if exchange => Ok(()),
            None => allowed(self.may(&dir, WRITE)?, Errno::EACCES),
        }
    }

    /// A directory gets a name that leads to a file.
    fn gets_name(&mut self, dir: Fid) -> Result<(), Errno> {
        self.dir(dir, WRITE | EXECUTE).map(drop)
    }

    /// As Linux with `fs.protected_hardlinks`: somebody else's file only if it can be read and written, and runs as nobody else.
    pub(crate) fn link(&mut self, fid: Fid) -> Result<(), Errno> {
        let attr = self.state.attr(fid)?;
        let is_plain = attr.mode & 0o170_000 == 0o100_000
            && attr.mode & S_ISUID == 0
            && attr.mode & (S_ISGID | 0o010) != S_ISGID | 0o010;
        allowed(self.user.owns(&attr) || is_plain && self.may(&attr, READ | WRITE)?, Errno::EPERM)
    }

    fn get_xattr(&mut self, fid: Fid, name: &Name) -> Result<(), Errno> {
        allowed(shows_xattr(name), Errno::ENODATA)?;
        if name.as_bytes().starts_with(b"user.") { self.any(fid, &[READ]).map(drop) } else { Ok(()) }
    }

    fn set_xattr(&mut self, fid: Fid, name: &Name) -> Result<(), Errno> {
        let attr = self.state.attr(fid)?;
        let owns = self.user.owns(&attr);
        if name.as_bytes().starts_with(b"user.") {
            allowed(owns || self.may(&attr, WRITE)?, Errno::EACCES)?;
            // In a directory that all write to, it is for the owner.
            return allowed(owns || !attr.is_dir() || attr.mode & S_ISVTX == 0, Errno::EPERM);
        }
        allowed(owns && name.as_bytes().starts_with(b"system.posix_acl_"), Errno::EPERM)
    }
}
