//! A simple file system in memory, and clients that use it at once.

use crate::script::{SET, Told, data, fid, name, root};
use bytes::Bytes;
use file_history::{Loss, Record};
use ids::{Fid, Time};
use std::collections::{BTreeMap, BTreeSet};
use wire::op::{Node, SetAttr, SetTime, rename_flags};
use wire::reply::DirEntry;
use wire::{Attr, Body, Errno, Name, Op};

/// Numbers that only look random.
pub(crate) struct Draw(pub(crate) u64);

impl Draw {
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }

    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[usize::try_from(self.below(from.len() as u64)).unwrap()]
    }
}

#[derive(Clone)]
struct Object {
    node: Node,
    mode: u32,
    uid: u32,
    gid: u32,
    mtime: Time,
    data: Vec<u8>,
    xattrs: BTreeMap<Name, Bytes>,
    entries: BTreeMap<Name, Fid>,
}

/// The file system. Objects that nobody can reach any more stay in it, and are not there.
#[derive(Clone)]
pub(crate) struct Reference {
    objects: BTreeMap<Fid, Object>,
    opens: BTreeSet<(u32, Fid)>,
    made: u64,
}

fn blank(node: Node, mode: u32, uid: u32, gid: u32) -> Object {
    let (xattrs, entries) = (BTreeMap::new(), BTreeMap::new());
    Object { node, mode, uid, gid, mtime: Time::default(), data: vec![], xattrs, entries }
}

fn ok(body: Body) -> Told {
    Ok((body, Bytes::new()))
}

impl Reference {
    pub(crate) fn new() -> Reference {
        let objects = BTreeMap::from([(root(), blank(Node::Dir, 0o755, 0, 0))]);
        Reference { objects, opens: BTreeSet::new(), made: 0 }
    }

    fn links(&self, f: Fid) -> u32 {
        let names = self.objects.iter().filter(|(d, _)| self.is_reachable(**d));
        u32::try_from(names.flat_map(|(_, o)| o.entries.values()).filter(|e| **e == f).count()).unwrap()
    }

    fn parent(&self, f: Fid) -> Option<Fid> {
        self.objects.iter().find(|(_, o)| o.entries.values().any(|e| *e == f)).map(|(d, _)| *d)
    }

    fn is_reachable(&self, f: Fid) -> bool {
        f == root() || self.parent(f).is_some_and(|p| self.is_reachable(p))
    }

    fn get(&self, f: Fid) -> Result<&Object, Errno> {
        let object = self.objects.get(&f).ok_or(Errno::ESTALE)?;
        let held = self.opens.iter().any(|(_, o)| *o == f) && object.node != Node::Dir;
        if held || self.is_reachable(f) { Ok(object) } else { Err(Errno::ESTALE) }
    }

    fn change(&mut self, f: Fid) -> Result<&mut Object, Errno> {
        self.get(f)?;
        self.objects.get_mut(&f).ok_or(Errno::ESTALE)
    }

    fn directory(&self, f: Fid) -> Result<&Object, Errno> {
        let object = self.get(f)?;
        if object.node == Node::Dir { Ok(object) } else { Err(Errno::ENOTDIR) }
    }

    fn file(&mut self, f: Fid) -> Result<&mut Object, Errno> {
        let object = self.change(f)?;
        match object.node {
            Node::File => Ok(object),
            Node::Dir => Err(Errno::EISDIR),
            _ => Err(Errno::EINVAL),
        }
    }

    fn entry(&self, dir: Fid, n: &Name) -> Result<Option<Fid>, Errno> {
        Ok(self.directory(dir)?.entries.get(n).copied())
    }

    fn attr(&self, f: Fid) -> Result<Attr, Errno> {
        let o = self.get(f)?;
        let size = match &o.node {
            Node::Symlink { target } => target.0.len(),
            _ => o.data.len(),
        };
        let t = Time::default();
        Ok(Attr {
            fid: f,
            home: SET,
            mode: o.node.type_bits() | o.mode,
            uid: o.uid,
            gid: o.gid,
            nlink: self.links(f),
            rdev: 0,
            size: size as u64,
            blocks: 0,
            atime: t,
            mtime: o.mtime,
            ctime: t,
        })
    }

    fn set(&mut self, dir: Fid, n: &Name, to: Option<Fid>) {
        let entries = &mut self.objects.get_mut(&dir).unwrap().entries;
        match to {
            Some(f) => entries.insert(n.clone(), f),
            None => entries.remove(n),
        };
    }

    fn is_dir(&self, f: Fid) -> bool {
        self.objects.get(&f).is_some_and(|o| o.node == Node::Dir)
    }

    fn is_empty(&self, f: Fid) -> bool {
        self.objects.get(&f).is_some_and(|o| o.entries.is_empty())
    }

    fn is_beneath(&self, f: Fid, above: Fid) -> bool {
        f == above || self.parent(f).is_some_and(|p| self.is_beneath(p, above))
    }

    /// Carries out an operation; what the client is told.
    pub(crate) fn perform(&mut self, client: u32, op: &Op, payload: &Bytes) -> Told {
        match op {
            Op::Lookup { parent, name } => {
                let f = self.entry(*parent, name)?.ok_or(Errno::ENOENT)?;
                ok(Body::Attr { attr: self.attr(f)? })
            }
            Op::GetAttr { fid } => ok(Body::Attr { attr: self.attr(*fid)? }),
            Op::Open { fid } => {
                let attr = self.attr(*fid)?;
                self.opens.insert((client, *fid));
                ok(Body::Attr { attr })
            }
            Op::Release { fid } => {
                self.opens.remove(&(client, *fid));
                ok(Body::Done)
            }
            Op::ReadDir { fid, .. } => {
                let entries = self.directory(*fid)?.entries.iter().enumerate().map(|(i, (n, f))| DirEntry {
                    name: n.clone(),
                    fid: *f,
                    home: SET,
                    kind: self.objects[f].node.type_bits(),
                    cookie: i as u64 + 1,
                    attr: self.attr(*f).ok(),
                });
                ok(Body::Page { entries: entries.collect(), end: true })
            }
            Op::Fsync { fid } => self.get(*fid).map(|_| (Body::Done, Bytes::new())),
            Op::SyncFs => ok(Body::Done),
            Op::ReadLink { fid } => match &self.get(*fid)?.node {
                Node::Symlink { target } => Ok((Body::Data, Bytes::from(target.0.clone()))),
                _ => Err(Errno::EINVAL),
            },
            Op::Create { .. }
            | Op::Unlink { .. }
            | Op::Rmdir { .. }
            | Op::Rename { .. }
            | Op::Link { .. } => self.names(client, op),
            _ => self.content(op, payload),
        }
    }

    fn names(&mut self, client: u32, op: &Op) -> Told {
        match op {
            Op::Create { parent, name, node, mode, umask, uid, gid, open } => {
                if self.entry(*parent, name)?.is_some() {
                    return Err(Errno::EEXIST);
                }
                self.made += 1;
                let f = fid(self.made);
                self.objects.insert(f, blank(node.clone(), mode & !umask, *uid, *gid));
                self.set(*parent, name, Some(f));
                if *open {
                    self.opens.insert((client, f));
                }
                ok(Body::Attr { attr: self.attr(f)? })
            }
            Op::Unlink { parent, name } => {
                let f = self.entry(*parent, name)?.ok_or(Errno::ENOENT)?;
                if self.is_dir(f) {
                    return Err(Errno::EISDIR);
                }
                self.set(*parent, name, None);
                ok(Body::Done)
            }
            Op::Rmdir { parent, name } => {
                let f = self.entry(*parent, name)?.ok_or(Errno::ENOENT)?;
                if !self.is_dir(f) {
                    return Err(Errno::ENOTDIR);
                }
                if !self.is_empty(f) {
                    return Err(Errno::ENOTEMPTY);
                }
                self.set(*parent, name, None);
                ok(Body::Done)
            }
            Op::Link { fid, parent, name } => {
                self.directory(*parent)?;
                if self.attr(*fid)?.nlink == 0 {
                    return Err(Errno::ENOENT);
                }
                if self.is_dir(*fid) {
                    return Err(Errno::EPERM);
                }
                if self.entry(*parent, name)?.is_some() {
                    return Err(Errno::EEXIST);
                }
                self.set(*parent, name, Some(*fid));
                ok(Body::Attr { attr: self.attr(*fid)? })
            }
            Op::Rename { parent, name, to_parent, to_name, flags } => {
                self.rename((*parent, name), (*to_parent, to_name), *flags)
            }
            _ => Err(Errno::ENOSYS),
        }
    }

    fn rename(&mut self, (from, n): (Fid, &Name), (to, to_n): (Fid, &Name), flags: u32) -> Told {
        let source = self.entry(from, n)?;
        let target = self.entry(to, to_n)?;
        let source = source.ok_or(Errno::ENOENT)?;
        if self.is_dir(source) && self.is_beneath(to, source) {
            return Err(Errno::EINVAL);
        }
        if flags == rename_flags::EXCHANGE {
            let target = target.ok_or(Errno::ENOENT)?;
            if self.is_dir(target) && self.is_beneath(from, target) {
                return Err(Errno::EINVAL);
            }
            self.set(from, n, Some(target));
            self.set(to, to_n, Some(source));
            return ok(Body::Done);
        }
        if let Some(target) = target {
            if flags == rename_flags::NOREPLACE {
                return Err(Errno::EEXIST);
            }
            if target == source {
                return ok(Body::Done);
            }
            match (self.is_dir(source), self.is_dir(target)) {
                (false, true) => return Err(Errno::EISDIR),
                (true, false) => return Err(Errno::ENOTDIR),
                (true, true) if !self.is_empty(target) => return Err(Errno::ENOTEMPTY),
                _ => {}
            }
        }
        self.set(from, n, None);
        self.set(to, to_n, Some(source));
        ok(Body::Done)
    }

    fn content(&mut self, op: &Op, payload: &Bytes) -> Told {
        match op {
            Op::SetAttr { fid, set } => {
                if let Some(size) = set.size {
                    self.file(*fid)?.data.resize(usize::try_from(size).unwrap(), 0);
                }
                let o = self.change(*fid)?;
                o.mode = set.mode.unwrap_or(o.mode);
                o.uid = set.uid.unwrap_or(o.uid);
                o.gid = set.gid.unwrap_or(o.gid);
                if let Some(SetTime::At { time }) = &set.mtime {
                    o.mtime = *time;
                } else if set.size.is_some() {
                    o.mtime = Time::default();
                }
                ok(Body::Attr { attr: self.attr(*fid)? })
            }
            Op::Read { fid, offset, len } => {
                let data = &self.file(*fid)?.data;
                let from = usize::try_from(*offset).unwrap().min(data.len());
                let to = (from + *len as usize).min(data.len());
                Ok((Body::Data, Bytes::copy_from_slice(&data[from..to])))
            }
            Op::Write { fid, offset, append, .. } => {
                let o = self.file(*fid)?;
                let at = if *append { o.data.len() } else { usize::try_from(*offset).unwrap() };
                let end = at + payload.len();
                if end > o.data.len() {
                    o.data.resize(end, 0);
                }
                o.data[at..end].copy_from_slice(payload);
                o.mtime = Time::default();
                ok(Body::Written { len: u32::try_from(payload.len()).unwrap(), attr: self.attr(*fid)? })
            }
            Op::GetXattr { fid, name } => {
                let value = self.get(*fid)?.xattrs.get(name).cloned().ok_or(Errno::ENODATA)?;
                Ok((Body::Data, value))
            }
            Op::ListXattr { fid } => {
                ok(Body::Names { names: self.get(*fid)?.xattrs.keys().cloned().collect() })
            }
            Op::SetXattr { fid, name, flags } => {
                let o = self.change(*fid)?;
                if !matches!(o.node, Node::File | Node::Dir) {
                    return Err(Errno::EPERM);
                }
                match (o.xattrs.contains_key(name), flags) {
                    (true, 1) => return Err(Errno::EEXIST),
                    (false, 2) => return Err(Errno::ENODATA),
                    _ => {}
                }
                o.xattrs.insert(name.clone(), payload.clone());
                ok(Body::Done)
            }
            Op::RemoveXattr { fid, name } => {
                self.change(*fid)?.xattrs.remove(name).ok_or(Errno::ENODATA)?;
                ok(Body::Done)
            }
            Op::Fallocate { fid, mode, offset, len } => {
                let o = self.file(*fid)?;
                let (from, to) = (usize::try_from(*offset).unwrap(), usize::try_from(offset + len).unwrap());
                if *mode == 0 && to > o.data.len() {
                    o.data.resize(to, 0);
                }
                if *mode == 3 {
                    let size = o.data.len();
                    o.data[from.min(size)..to.min(size)].fill(0);
                }
                o.mtime = Time::default();
                ok(Body::Done)
            }
            Op::CopyRange { from, from_offset, to, to_offset, len } => {
                let data = self.file(*from)?.data.clone();
                self.file(*to)?;
                let begin = usize::try_from(*from_offset).unwrap().min(data.len());
                let end = (begin + usize::try_from(*len).unwrap()).min(data.len());
                let (n, at) = (end - begin, usize::try_from(*to_offset).unwrap());
                let (a, b) = (*from_offset, *to_offset);
                if from == to && a < b + n as u64 && b < a + n as u64 {
                    return Err(Errno::EINVAL);
                }
                let o = self.file(*to)?;
                if n > 0 {
                    if at + n > o.data.len() {
                        o.data.resize(at + n, 0);
                    }
                    o.data[at..at + n].copy_from_slice(&data[begin..end]);
                    o.mtime = Time::default();
                }
                ok(Body::Offset { offset: n as u64 })
            }
            _ => Err(Errno::ENOSYS),
        }
    }
}

/// What a run is like.
#[derive(Clone, Copy)]
pub(crate) struct Plan {
    pub(crate) records: usize,
    pub(crate) clients: u32,
    /// Of how many operations one is never answered.
    pub(crate) unanswered: u64,
    /// Power cuts.
    pub(crate) losses: usize,
}

/// A history that is right.
pub(crate) struct Run {
    pub(crate) records: Vec<Record>,
    pub(crate) losses: Vec<Loss>,
}

enum Stage {
    Asked,
    Done(Told),
}

struct World {
    fs: Reference,
    /// States since the last sync.
    past: Vec<Reference>,
    records: Vec<Record>,
    under_way: Vec<(usize, Stage)>,
    /// Of each client's changed objects: when the oldest change that was not synced was sent.
    unsynced: BTreeMap<(u32, Fid), usize>,
    losses: Vec<Loss>,
    known: Vec<Fid>,
    now: u64,
}

/// Clients that do this and that at once.
pub(crate) fn run(draw: &mut Draw, plan: Plan) -> Run {
    let fs = Reference::new();
    let mut w = World {
        past: vec![fs.clone()],
        fs,
        records: vec![],
        under_way: vec![],
        unsynced: BTreeMap::new(),
        losses: vec![],
        known: vec![root()],
        now: 0,
    };
    let every = (plan.records / (plan.losses + 1)).max(1);
    while w.records.len() < plan.records || !w.under_way.is_empty() {
        w.now += 1;
        let idle: Vec<u32> = (0..plan.clients)
            .filter(|c| !w.under_way.iter().any(|(r, _)| w.records[*r].client == *c))
            .collect();
        if w.records.len() < plan.records && !idle.is_empty() && draw.below(3) == 0 {
            let client = *draw.pick(&idle);
            w.begin(draw, client);
        } else if !w.under_way.is_empty() {
            let at = usize::try_from(draw.below(w.under_way.len() as u64)).unwrap();
            w.go_on(draw, at, plan.unanswered);
        }
        if w.losses.len() < plan.losses && w.records.len() >= every * (w.losses.len() + 1) {
            w.lose(draw);
        }
    }
    Run { records: w.records, losses: w.losses }
}

impl World {
    fn begin(&mut self, draw: &mut Draw, client: u32) {
        let (op, payload) = self.question(draw);
        self.records.push(Record { client, op, payload, set: SET, begun: self.now, answer: None });
        self.under_way.push((self.records.len() - 1, Stage::Asked));
    }

    fn go_on(&mut self, draw: &mut Draw, at: usize, unanswered: u64) {
        let (n, stage) = self.under_way.swap_remove(at);
        let silent = unanswered > 0 && draw.below(unanswered * 2) == 0;
        if silent {
            return;
        }
        let told = match stage {
            Stage::Asked => {
                let r = &self.records[n];
                let told = self.fs.perform(r.client, &r.op, &r.payload);
                if r.op.changes() {
                    self.past.push(self.fs.clone());
                }
                if matches!(r.op, Op::Fsync { .. }) && told.is_ok() {
                    self.past = vec![self.fs.clone()];
                }
                self.under_way.push((n, Stage::Done(told)));
                return;
            }
            Stage::Done(told) => self.synced(n, told),
        };
        if let Ok((Body::Attr { attr }, _)) = &told {
            self.known.push(attr.fid);
            self.known.sort_unstable();
            self.known.dedup();
        }
        self.records[n].answer = Some((self.now, told));
    }

    /// What the client makes of an answer: it knows what it has not synced, and what was lost.
    fn synced(&mut self, n: usize, told: Told) -> Told {
        let r = &self.records[n];
        let losses = self.losses.len();
        match &r.op {
            Op::Fsync { fid } if told.is_ok() => {
                let since = self.unsynced.remove(&(r.client, *fid));
                if since.is_some_and(|since| since < losses) { Err(Errno::EIO) } else { told }
            }
            Op::Create { parent: f, .. }
            | Op::Unlink { parent: f, .. }
            | Op::Rmdir { parent: f, .. }
            | Op::Write { fid: f, .. }
            | Op::SetAttr { fid: f, .. } => {
                if told.is_ok() {
                    // It may have been sent before the last loss.
                    let sent = self.losses.iter().filter(|l| l.until < r.begun).count();
                    self.unsynced.entry((r.client, *f)).or_insert(sent);
                }
                told
            }
            Op::Rename { parent, to_parent, .. } | Op::Link { fid: parent, parent: to_parent, .. } => {
                for f in [parent, to_parent].into_iter().filter(|_| told.is_ok()) {
                    let sent = self.losses.iter().filter(|l| l.until < r.begun).count();
                    self.unsynced.entry((r.client, *f)).or_insert(sent);
                }
                told
            }
            Op::SetXattr { fid: f, .. }
            | Op::RemoveXattr { fid: f, .. }
            | Op::Fallocate { fid: f, .. }
            | Op::CopyRange { to: f, .. } => {
                if told.is_ok() {
                    let sent = self.losses.iter().filter(|l| l.until < r.begun).count();
                    self.unsynced.entry((r.client, *f)).or_insert(sent);
                }
                told
            }
            _ => told,
        }
    }

    /// The power fails: things are as they were at some time since the last sync.
    fn lose(&mut self, draw: &mut Draw) {
        let was = draw.pick(&self.past).clone();
        let (opens, made) = (std::mem::take(&mut self.fs.opens), self.fs.made);
        self.fs = Reference { opens, made, ..was };
        let fs = self.fs.clone();
        self.fs.opens.retain(|(_, f)| fs.objects.contains_key(f));
        self.past = vec![self.fs.clone()];
        self.losses.push(Loss { set: SET, from: self.now, until: self.now });
        self.now += 1;
    }

    fn question(&self, draw: &mut Draw) -> (Op, Bytes) {
        let names = ["a", "b", "c", "d"];
        let one = name(draw.pick::<&str>(&names));
        let two = name(draw.pick::<&str>(&names));
        let f = *draw.pick(&self.known);
        let dirs: Vec<Fid> = self.known.iter().copied().filter(|f| self.fs.is_dir(*f)).collect();
        let (p, q) = (*draw.pick(&dirs), *draw.pick(&dirs));
        let (offset, len) = (draw.below(30), 1 + draw.below(20));
        let bytes = data(&[(usize::try_from(len).unwrap(), u8::try_from(1 + draw.below(250)).unwrap())]);
        let nothing = Bytes::new();
        let plain = |op: Op| (op, nothing.clone());
        match draw.below(30) {
            0..3 => plain(Op::Lookup { parent: p, name: one }),
            3 => plain(Op::GetAttr { fid: f }),
            4 => plain(Op::SetAttr { fid: f, set: self.attributes(draw) }),
            5..8 => {
                let node = match draw.below(6) {
                    0 | 1 => Node::Dir,
                    2 => crate::script::symlink("where"),
                    _ => Node::File,
                };
                let (mode, umask, open) = (0o777, 0o022, node == Node::File && draw.below(2) == 0);
                plain(Op::Create { parent: p, name: one, node, mode, umask, uid: 1, gid: 2, open })
            }
            8 => plain(Op::Unlink { parent: p, name: one }),
            9 => plain(Op::Rmdir { parent: p, name: one }),
            10..12 => {
                let flags = u32::try_from(draw.below(4)).unwrap() % 3;
                plain(Op::Rename { parent: p, name: one, to_parent: q, to_name: two, flags })
            }
            12 => plain(Op::Link { fid: f, parent: p, name: one }),
            13 => plain(Op::ReadLink { fid: f }),
            14 => plain(Op::Open { fid: f }),
            15 => plain(Op::Release { fid: f }),
            16..18 => plain(Op::Read { fid: f, offset: offset / 2, len: 60 }),
            18..21 => {
                let append = draw.below(3) == 0;
                (Op::Write { fid: f, offset, append, kill_suid: false }, bytes)
            }
            21 | 22 => plain(Op::Fsync { fid: f }),
            23 => plain(Op::ReadDir { fid: p, cookie: 0, plus: true }),
            24 => plain(Op::GetXattr { fid: f, name: name("user.x") }),
            25 => (
                Op::SetXattr { fid: f, name: name("user.x"), flags: u32::try_from(draw.below(3)).unwrap() },
                bytes,
            ),
            26 => plain(Op::RemoveXattr { fid: f, name: name("user.x") }),
            27 => plain(Op::ListXattr { fid: f }),
            28 => {
                let mode = *draw.pick(&[0, 3]);
                plain(Op::Fallocate { fid: f, mode, offset, len })
            }
            _ => plain(Op::CopyRange {
                from: f,
                from_offset: offset / 2,
                to: *draw.pick(&self.known),
                to_offset: offset,
                len,
            }),
        }
    }

    fn attributes(&self, draw: &mut Draw) -> SetAttr {
        let mut set = SetAttr {
            mode: None,
            uid: None,
            gid: None,
            size: None,
            atime: None,
            mtime: None,
            kill_suid: false,
        };
        match draw.below(4) {
            0 => set.mode = Some(0o600 + u32::try_from(draw.below(4)).unwrap()),
            1 => set.uid = Some(7),
            2 => set.size = Some(draw.below(50)),
            _ => set.mtime = Some(SetTime::At { time: Time { sec: 5, nsec: 5 } }),
        }
        set
    }
}
