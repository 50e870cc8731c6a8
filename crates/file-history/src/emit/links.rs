//! Hard links.

use super::answers::Behind;
use super::{Emitter, Outcome};
use crate::names::{Ask, Key, Obj, Told};
use crate::{Record, Violation};
use ids::Fid;
use wire::op::rename_flags;
use wire::{Body, Errno, Name, Op};

impl Emitter<'_> {
    pub(super) fn link(
        &mut self,
        n: usize,
        (obj, key): (Obj, Key),
        told: Option<Told>,
        outcome: &Outcome,
    ) -> Result<(), Violation> {
        if told == Some(Told::Not(Errno::ENOENT)) && self.was_made(n) {
            // It was done, and sent again when the file had no name any more.
            self.ask(n, Ask::Link(obj, key), None, None);
        }
        let asked = self.ask(n, Ask::Link(obj, key), told, None);
        if let (Some((_, Ok((Body::Attr { attr }, _)))), Outcome::Done) = (&self.records[n].answer, outcome) {
            self.attributes(n, attr, Behind { names: Some(asked), inode: None })?;
        }
        Ok(())
    }

    /// Whether somebody saw the new name of this link, or took it away, and nobody else can have made it.
    fn was_made(&self, n: usize) -> bool {
        let (Op::Link { fid, parent, name } | Op::LinkIn { fid, parent, name, .. }) = &self.records[n].op
        else {
            return false;
        };
        let at = (*parent, name);
        let others = || self.records.iter().enumerate().filter(|(i, _)| *i != n).map(|(_, r)| r);
        let only = |fid| !others().any(|r| may_make(r, fid, at));
        others().any(|r| shows(r, *fid, at)) && only(Some(*fid))
            || others().any(|r| takes(r, at)) && only(None)
    }
}

/// Whether its answer says that the name leads to this file.
fn shows(r: &Record, fid: Fid, (dir, n): (Fid, &Name)) -> bool {
    match (&r.op, &r.answer) {
        (Op::Lookup { parent, name }, Some((_, Ok((Body::Attr { attr }, _))))) => {
            (*parent, name) == (dir, n) && attr.fid == fid
        }
        (Op::ReadDir { fid: parent, .. }, Some((_, Ok((Body::Page { entries, .. }, _))))) => {
            *parent == dir && entries.iter().any(|e| e.name == *n && e.fid == fid)
        }
        _ => false,
    }
}

/// Whether its answer says that the name led to something, and does not any more.
fn takes(r: &Record, at: (Fid, &Name)) -> bool {
    if !matches!(r.answer, Some((_, Ok(_)))) {
        return false;
    }
    match &r.op {
        Op::Unlink { parent, name } => (*parent, name) == at,
        Op::Rename { parent, name, flags, .. } | Op::MoveIn { parent, name, flags, .. } => {
            (*parent, name) == at && flags & rename_flags::EXCHANGE == 0
        }
        _ => false,
    }
}

/// Whether it may have made the name lead to this file. `None`: to any.
fn may_make(r: &Record, fid: Option<Fid>, at: (Fid, &Name)) -> bool {
    if matches!(r.answer, Some((_, Err(_)))) {
        return false;
    }
    match &r.op {
        Op::Create { parent, name, .. } => (*parent, name) == at,
        Op::Link { fid: linked, parent, name } => {
            (*parent, name) == at && fid.is_none_or(|fid| *linked == fid)
        }
        Op::LinkIn { fid: linked, parent, name, .. } => {
            (*parent, name) == at && fid.is_none_or(|fid| *linked == fid)
        }
        Op::MoveIn { to_parent, to_name, .. } => (*to_parent, to_name) == at,
        Op::Rename { parent, name, to_parent, to_name, flags } => {
            let exchanged = flags & rename_flags::EXCHANGE != 0;
            (*to_parent, to_name) == at || exchanged && (*parent, name) == at
        }
        _ => false,
    }
}
