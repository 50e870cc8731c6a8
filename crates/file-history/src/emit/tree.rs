//! Operations on names.

use super::answers::Behind;
use super::{Emitter, Outcome};
use crate::Violation;
use crate::names::{Ask, Key, Obj, S_IFDIR, S_IFLNK, Told};
use ids::Fid;
use wire::limits::TARGET_MAX;
use wire::op::{Node, rename_flags};
use wire::reply::DirEntry;
use wire::{Body, Errno, Name, Op};

impl Emitter<'_> {
    fn key(&mut self, dir: Fid, name: &Name) -> Key {
        Key { dir: self.table.object(dir), name: self.table.name(name) }
    }

    fn told(outcome: &Outcome) -> Option<Told> {
        match outcome {
            Outcome::Done => Some(Told::Done),
            Outcome::Failed(e) => Some(Told::Not(*e)),
            Outcome::Unknown { .. } => None,
        }
    }

    pub(super) fn tree(&mut self, n: usize, outcome: Outcome) -> Result<(), Violation> {
        let r = &self.records[n];
        let told = Self::told(&outcome);
        match &r.op {
            Op::Lookup { parent, name } => self.lookup(n, *parent, name, &outcome),
            Op::ReadDir { fid, cookie, .. } => self.list(n, *fid, *cookie, &outcome),
            Op::Create { .. } => self.create(n, &outcome),
            Op::Unlink { parent, name } => {
                let key = self.key(*parent, name);
                self.ask(n, Ask::Unlink(key), told, None);
                Ok(())
            }
            Op::Rmdir { parent, name } => {
                let key = self.key(*parent, name);
                self.ask(n, Ask::Rmdir(key), told, None);
                Ok(())
            }
            Op::Rename { parent, name, to_parent, to_name, flags }
            | Op::MoveIn { parent, name, to_parent, to_name, flags, .. } => {
                let (from, to) = (self.key(*parent, name), self.key(*to_parent, to_name));
                let (noreplace, exchange) =
                    (flags & rename_flags::NOREPLACE != 0, flags & rename_flags::EXCHANGE != 0);
                if flags & !(rename_flags::NOREPLACE | rename_flags::EXCHANGE) != 0 || (noreplace && exchange)
                {
                    return self.must_fail(n, &outcome, Errno::EINVAL);
                }
                if self.is_reserved(to) && matches!(outcome, Outcome::Failed(Errno::EPERM)) {
                    return Ok(());
                }
                self.ask(n, Ask::Rename { from, to, exchange, noreplace }, told, None);
                Ok(())
            }
            Op::Link { fid, parent, name } | Op::LinkIn { fid, parent, name, .. } => {
                let (obj, key) = (self.table.object(*fid), self.key(*parent, name));
                if self.is_reserved(key) && matches!(outcome, Outcome::Failed(Errno::EPERM)) {
                    return Ok(());
                }
                let asked = self.ask(n, Ask::Link(obj, key), told, None);
                self.linked(n, asked, &outcome)
            }
            _ => Ok(()),
        }
    }

    /// What the answer to a link shows of the file. One that is gone since is not shown.
    fn linked(&mut self, n: usize, asked: usize, outcome: &Outcome) -> Result<(), Violation> {
        if let (Some((_, Ok((Body::Attr { attr }, _)))), Outcome::Done) = (&self.records[n].answer, outcome) {
            self.attributes(n, attr, Behind { names: Some(asked), inode: None })?;
        }
        Ok(())
    }

    fn must_fail(&self, n: usize, outcome: &Outcome, errno: Errno) -> Result<(), Violation> {
        match outcome {
            Outcome::Unknown { .. } => Ok(()),
            Outcome::Failed(e) if *e == errno || *e == Errno::ESTALE => Ok(()),
            _ => self.wrong(n, &format!("the answer should be {errno}")),
        }
    }

    fn is_reserved(&self, key: Key) -> bool {
        self.table.objects[key.dir].root && self.table.names[key.name].as_bytes() == wire::name::RESERVED
    }

    fn lookup(&mut self, n: usize, parent: Fid, name: &Name, outcome: &Outcome) -> Result<(), Violation> {
        let key = self.key(parent, name);
        let found = match (&self.records[n].answer, outcome) {
            (_, Outcome::Unknown { .. }) => return Ok(()),
            (_, Outcome::Failed(e)) => {
                self.ask(n, Ask::Look(key), Some(Told::Not(*e)), None);
                return Ok(());
            }
            (Some((_, Ok((Body::Attr { attr }, _)))), _) => self.attributes(n, attr, Behind::default())?,
            (Some((_, Ok((Body::Elsewhere { fid, home, kind }, _)))), _) => {
                if fid.set != *home && *kind != S_IFDIR {
                    return self.wrong(n, "an object lives on another set than its identity says");
                }
                self.table.object(*fid)
            }
            _ => return self.wrong(n, "the answer is not one of a lookup"),
        };
        self.ask(n, Ask::Look(key), Some(Told::Found(found)), None);
        Ok(())
    }

    fn create(&mut self, n: usize, outcome: &Outcome) -> Result<(), Violation> {
        let r = &self.records[n];
        let Op::Create { parent, name, node, open, .. } = &r.op else { return Ok(()) };
        let at = self.key(*parent, name);
        let kind = node.type_bits();
        let must = match node {
            _ if self.is_reserved(at) => Some(Errno::EPERM),
            Node::Symlink { target }
                if target.0.is_empty() || target.0.len() > TARGET_MAX || target.0.contains(&0) =>
            {
                Some(Errno::EINVAL)
            }
            _ => None,
        };
        let attr = match &r.answer {
            Some((_, Ok((Body::Attr { attr }, _)))) if matches!(outcome, Outcome::Done) => Some(attr),
            _ => None,
        };
        let made: Option<Obj> = match (&r.answer, outcome) {
            (Some((_, Ok((Body::Attr { attr }, _)))), Outcome::Done) => Some(self.table.object(attr.fid)),
            (Some((_, Ok((Body::Elsewhere { fid, .. }, _)))), Outcome::Done) if kind == S_IFDIR => {
                Some(self.table.object(*fid))
            }
            (_, Outcome::Done) => return self.wrong(n, "the answer is not one of a create"),
            _ => None,
        };
        if let Some(made) = made
            && self.table.made.get(&made) != Some(&n)
        {
            let first = self.table.made.get(&made).copied().unwrap_or(n);
            return Err(crate::wrong(self.records, &[first, n], "an object was made twice"));
        }
        let told = match outcome {
            Outcome::Failed(e) => Some(Told::Not(*e)),
            _ => made.map(Told::Found),
        };
        let bit = if *open { self.table.clients.get(&r.client).copied().unwrap_or(0) } else { 0 };
        let unseen = made.unwrap_or_else(|| self.table.unseen(parent.set, kind));
        let ask = Ask::Make { at, kind, unseen, seen: vec![], open: bit, must };
        let asked = self.ask(n, ask, told, None);
        if let Some(attr) = attr {
            self.attributes(n, attr, Behind { names: Some(asked), inode: None })?;
        }
        Ok(())
    }

    fn list(&mut self, n: usize, fid: Fid, cookie: u64, outcome: &Outcome) -> Result<(), Violation> {
        let dir = self.table.object(fid);
        let r = &self.records[n];
        match outcome {
            Outcome::Unknown { .. } => return Ok(()),
            Outcome::Failed(e) => {
                self.ask(n, Ask::List(dir), Some(Told::Not(*e)), None);
                return Ok(());
            }
            Outcome::Done => {}
        }
        let Some((_, Ok((Body::Page { entries, end }, _)))) = &r.answer else {
            return self.wrong(n, "the answer is not one of a listing");
        };
        let mut all = Vec::with_capacity(entries.len());
        for e in entries {
            all.push((self.table.name(&e.name), self.entry(n, e)?));
        }
        if cookie == 0 && *end {
            let mut names: Vec<usize> = all.iter().map(|(name, _)| *name).collect();
            names.sort_unstable();
            if names.windows(2).any(|w| w[0] == w[1]) {
                return self.wrong(n, "a name is listed twice");
            }
            self.ask(n, Ask::List(dir), Some(Told::All(all)), None);
        } else {
            for (name, obj) in all {
                self.ask(n, Ask::Look(Key { dir, name }), Some(Told::Found(obj)), None);
            }
        }
        Ok(())
    }

    fn entry(&mut self, n: usize, e: &DirEntry) -> Result<Obj, Violation> {
        let obj = match &e.attr {
            Some(attr) => self.attributes(n, attr, Behind::default())?,
            None => self.table.object(e.fid),
        };
        if self.table.object(e.fid) != obj
            || self.table.objects[obj].kind != Some(e.kind & crate::names::S_IFMT)
        {
            return self.wrong(n, "an entry and its attributes are of different objects");
        }
        Ok(obj)
    }

    /// Questions about one object that are about its name or its life.
    pub(super) fn object(&mut self, n: usize, outcome: Outcome) -> Result<(), Violation> {
        let r = &self.records[n];
        let client = self.table.clients.get(&r.client).copied().unwrap_or(0);
        let (Op::Open { fid } | Op::Release { fid } | Op::GetAttr { fid } | Op::ReadLink { fid }) = &r.op
        else {
            return Ok(());
        };
        let obj = self.table.object(*fid);
        match (&r.op, &outcome) {
            (Op::Release { .. }, _) => {
                self.ask(n, Ask::Release(obj, client), Self::told(&outcome).map(|_| Told::Done), None);
            }
            (Op::Open { .. }, Outcome::Unknown { .. }) => {
                self.ask(n, Ask::Open(obj, client), None, None);
            }
            (_, Outcome::Unknown { .. }) => {}
            (Op::ReadLink { .. }, _) if self.table.objects[obj].kind.is_some_and(|k| k != S_IFLNK) => {
                return self.must_fail(n, &outcome, Errno::EINVAL);
            }
            (_, Outcome::Failed(e)) => self.was_gone(n, obj, *e),
            (Op::ReadLink { .. }, Outcome::Done) => {
                self.was_there(n, obj);
                self.target(n, obj)?;
            }
            (op, Outcome::Done) => {
                if let Some((_, Ok((Body::Attr { attr }, _)))) = &r.answer {
                    if attr.fid != *fid {
                        return self.wrong(n, "the attributes are those of another object");
                    }
                    self.attributes(n, attr, Behind::default())?;
                }
                if matches!(op, Op::Open { .. }) {
                    self.ask(n, Ask::Open(obj, client), Some(Told::Done), None);
                } else {
                    self.was_there(n, obj);
                }
            }
        }
        Ok(())
    }

    /// Attributes of several objects: those that are told were there.
    pub(super) fn objects(&mut self, n: usize, outcome: &Outcome) -> Result<(), Violation> {
        let r = &self.records[n];
        let fids = match (&r.op, outcome) {
            (Op::GetAttrs { fids }, Outcome::Done) => fids,
            // Nobody waits for it for long.
            (_, Outcome::Failed(Errno::ETIMEDOUT | Errno::EINTR | Errno::EIO) | Outcome::Unknown { .. }) => {
                return Ok(());
            }
            _ => return self.wrong(n, "attributes are refused"),
        };
        let Some((_, Ok((Body::Attrs { attrs }, _)))) = &r.answer else {
            return self.wrong(n, "an answer of another kind");
        };
        let mut asked = fids.iter();
        for attr in attrs {
            if !asked.any(|fid| *fid == attr.fid) {
                return self.wrong(n, "the attributes are those of other objects, or in another order");
            }
            let obj = self.attributes(n, attr, Behind::default())?;
            self.was_there(n, obj);
        }
        Ok(())
    }

    /// A link's target never changes.
    fn target(&self, n: usize, obj: Obj) -> Result<(), Violation> {
        let Some((_, Ok((_, told)))) = &self.records[n].answer else { return Ok(()) };
        let made = self.table.made.get(&obj).map(|made| &self.records[*made].op);
        let Some(Op::Create { node: Node::Symlink { target }, .. }) = made else { return Ok(()) };
        if target.0 == told[..] { Ok(()) } else { self.wrong(n, "a link has another target") }
    }
}
