//! Hard links.

use super::answers::Behind;
use super::{Emitter, Outcome};
use crate::names::{Ask, Key, Obj, Told};
use crate::{Record, Violation};
use ids::Fid;
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
            // It was done, and sent again when the file was gone with all its names.
            self.ask(n, Ask::Link(obj, key), None, None);
            self.was_gone(n, obj, Errno::ENOENT);
            return Ok(());
        }
        let asked = self.ask(n, Ask::Link(obj, key), told, None);
        if let (Some((_, Ok((Body::Attr { attr }, _)))), Outcome::Done) = (&self.records[n].answer, outcome) {
            self.attributes(n, attr, Behind { names: Some(asked), inode: None })?;
        }
        Ok(())
    }

    /// Whether somebody saw the new name of this link, and nobody else can have made it.
    fn was_made(&self, n: usize) -> bool {
        let Op::Link { fid, parent, name } = &self.records[n].op else { return false };
        let others = || self.records.iter().enumerate().filter(|(i, _)| *i != n).map(|(_, r)| r);
        others().any(|r| shows(r, *fid, (*parent, name)))
            && !others().any(|r| may_make(r, *fid, (*parent, name)))
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

/// Whether it may have made the name lead to this file.
fn may_make(r: &Record, fid: Fid, at: (Fid, &Name)) -> bool {
    if matches!(r.answer, Some((_, Err(_)))) {
        return false;
    }
    match &r.op {
        Op::Create { parent, name, .. } => (*parent, name) == at,
        Op::Link { fid: linked, parent, name } => (*parent, name) == at && *linked == fid,
        Op::Rename { parent, name, to_parent, to_name, .. } => {
            (*parent, name) == at || (*to_parent, to_name) == at
        }
        _ => false,
    }
}
