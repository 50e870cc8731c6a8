//! Attributes in answers.

use super::Emitter;
use crate::Violation;
use crate::inode::{self, Seen};
use crate::names::{self, Obj, S_IFDIR, S_IFLNK, S_IFMT};
use wire::op::Node;
use wire::{Attr, Op};

/// The questions that come before those about the attributes in the same answer.
#[derive(Clone, Copy, Default)]
pub(super) struct Behind {
    pub(super) names: Option<usize>,
    pub(super) inode: Option<usize>,
}

impl Emitter<'_> {
    /// Attributes that an answer shows. They may be later than what the operation did: a call that is sent again is
    /// answered with what is there then.
    pub(super) fn attributes(&mut self, n: usize, attr: &Attr, behind: Behind) -> Result<Obj, Violation> {
        let obj = self.table.object(attr.fid);
        let kind = attr.mode & S_IFMT;
        if self.table.objects[obj].kind != Some(kind) {
            return self.wrong(n, "the kind of an object is another than it was");
        }
        // Directories change their sets, and keep their fids.
        if attr.home != attr.fid.set && kind != S_IFDIR {
            return self.wrong(n, "an object lives on another set than its identity says");
        }
        self.node(n, obj, attr)?;
        // Nobody is shown what an open or a write says of links: a file may be opened and written while a transaction
        // of several sets is about to change them.
        let shown = !matches!(self.records[n].op, wire::Op::Open { .. } | wire::Op::Write { .. });
        if shown && !self.table.objects[obj].is_dir() {
            self.ask(n, names::Ask::Links(obj), Some(names::Told::Count(attr.nlink)), behind.names);
        }
        let seen = Seen {
            mode: (!self.table.has_acls && kind != S_IFLNK).then_some(attr.mode & 0o7777),
            uid: attr.uid,
            gid: attr.gid,
            size: self.is_file(obj).then_some(attr.size),
            mtime: attr.mtime,
        };
        self.ask_of(n, obj, inode::Ask::Observe, Some(inode::Told::Attr(seen)), behind.inode);
        Ok(obj)
    }

    /// What never changes.
    fn node(&self, n: usize, obj: Obj, attr: &Attr) -> Result<(), Violation> {
        let Some(Op::Create { node, .. }) = self.table.made.get(&obj).map(|made| &self.records[*made].op)
        else {
            return Ok(());
        };
        let wrong = match node {
            _ if node.type_bits() != attr.mode & S_IFMT => "what was made is of another kind",
            Node::Char { rdev } | Node::Block { rdev } if *rdev != attr.rdev => "a device has another number",
            Node::Symlink { target } if target.0.len() as u64 != attr.size => "a link has another length",
            _ => return Ok(()),
        };
        self.wrong(n, wrong)
    }
}
