//! A volume of one set in memory, as a server's script.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Mutex;

use ids::{Epoch, Fid, Lsn, SessionId, SetId, Time};
use wire::op::{Node, SetAttr, SetTime};
use wire::reply::{DirEntry, Room};
use wire::{Attr, Body, Call, Errno, Name, Op, Reply};

use crate::fake::Act;

struct Object {
    attr: Attr,
    data: Vec<u8>,
    entries: BTreeMap<Vec<u8>, Fid>,
    xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

pub(crate) struct Tree {
    state: Mutex<State>,
}

struct State {
    objects: HashMap<Fid, Object>,
    /// Who holds what open.
    open: HashSet<(SessionId, Fid)>,
    clock: u64,
}

type Answer = Result<(Body, Vec<u8>), Errno>;

const PAGE: usize = 40;
/// A link of this name is answered when its file is gone with all its names.
pub(crate) const GONE: &[u8] = b"gone";

impl Tree {
    pub(crate) fn new() -> Tree {
        let mut state = State { objects: HashMap::new(), open: HashSet::new(), clock: 0 };
        let root = Fid::root(SetId(1));
        state.add(root, &Node::Dir, 0o755, (0, 0));
        Tree { state: Mutex::new(state) }
    }

    pub(crate) fn serve(&self, call: &Call, payload: &[u8]) -> Act {
        match self.state.lock().unwrap().answer(call.id.session, &call.op, payload) {
            Ok((body, data)) => Act::Data(Reply(Ok(body)), data),
            Err(e) => Act::Answer(Reply::errno(e.0)),
        }
    }

    /// Objects that exist, and files held open.
    pub(crate) fn count(&self) -> (usize, usize) {
        let state = self.state.lock().unwrap();
        (state.objects.len(), state.open.len())
    }
}

impl State {
    fn now(&mut self) -> Time {
        self.clock += 1;
        Time { sec: 1_700_000_000 + self.clock as i64 / 1000, nsec: (self.clock % 1000) as u32 }
    }

    fn add(&mut self, fid: Fid, node: &Node, mode: u32, owner: (u32, u32)) {
        let t = self.now();
        let rdev = match node {
            Node::Char { rdev } | Node::Block { rdev } => *rdev,
            _ => 0,
        };
        let data = match node {
            Node::Symlink { target } => target.0.clone(),
            _ => Vec::new(),
        };
        let attr = Attr {
            fid,
            home: SetId(1),
            mode: node.type_bits() | mode & 0o7777,
            uid: owner.0,
            gid: owner.1,
            nlink: if matches!(node, Node::Dir) { 2 } else { 1 },
            rdev,
            size: data.len() as u64,
            blocks: 0,
            atime: t,
            mtime: t,
            ctime: t,
        };
        let object = Object { attr, data, entries: BTreeMap::new(), xattrs: BTreeMap::new() };
        self.objects.insert(fid, object);
    }

    fn get(&mut self, fid: Fid) -> Result<&mut Object, Errno> {
        self.objects.get_mut(&fid).ok_or(Errno::ESTALE)
    }

    fn touch(&mut self, fid: Fid) -> Result<Attr, Errno> {
        let t = self.now();
        let o = self.get(fid)?;
        (o.attr.mtime, o.attr.ctime) = (t, t);
        o.attr.size = o.data.len() as u64;
        o.attr.blocks = o.attr.size.div_ceil(4096) * 8;
        Ok(o.attr.clone())
    }

    fn is_open(&self, fid: Fid) -> bool {
        self.open.iter().any(|(_, f)| *f == fid)
    }

    fn drop_name(&mut self, parent: Fid, name: &Name) -> Result<(), Errno> {
        let fid = self.get(parent)?.entries.remove(name.as_bytes()).ok_or(Errno::ENOENT)?;
        self.touch(parent)?;
        let open = self.is_open(fid);
        let o = self.get(fid)?;
        o.attr.nlink -= 1;
        if (o.attr.nlink == 0 && !open) || o.attr.is_dir() {
            self.objects.remove(&fid);
        }
        Ok(())
    }

    fn answer(&mut self, who: SessionId, op: &Op, payload: &[u8]) -> Answer {
        let done = Ok((Body::Done, Vec::new()));
        let attr = |attr: Attr| Ok((Body::Attr { attr }, Vec::new()));
        match op {
            Op::Lookup { parent, name } => {
                let fid = *self.get(*parent)?.entries.get(name.as_bytes()).ok_or(Errno::ENOENT)?;
                attr(self.get(fid)?.attr.clone())
            }
            Op::GetAttr { fid } => attr(self.get(*fid)?.attr.clone()),
            Op::SetAttr { fid, set } => {
                self.set(*fid, set)?;
                attr(self.get(*fid)?.attr.clone())
            }
            Op::Create { parent, name, node, mode, umask, uid, gid, open } => {
                if self.get(*parent)?.entries.contains_key(name.as_bytes()) {
                    return Err(Errno::EEXIST);
                }
                self.clock += 1;
                let fid = Fid { set: SetId(1), epoch: Epoch(1), lsn: Lsn(self.clock) };
                self.add(fid, node, mode & !umask, (*uid, *gid));
                self.get(*parent)?.entries.insert(name.as_bytes().to_vec(), fid);
                self.touch(*parent)?;
                if *open {
                    self.open.insert((who, fid));
                }
                attr(self.get(fid)?.attr.clone())
            }
            Op::Unlink { parent, name } => self.drop_name(*parent, name).and(done),
            Op::Rmdir { parent, name } => {
                let fid = *self.get(*parent)?.entries.get(name.as_bytes()).ok_or(Errno::ENOENT)?;
                if !self.get(fid)?.entries.is_empty() {
                    return Err(Errno::ENOTEMPTY);
                }
                self.drop_name(*parent, name).and(done)
            }
            Op::Rename { parent, name, to_parent, to_name, flags } => {
                let fid = *self.get(*parent)?.entries.get(name.as_bytes()).ok_or(Errno::ENOENT)?;
                if self.get(*to_parent)?.entries.contains_key(to_name.as_bytes()) {
                    if *flags & 1 != 0 {
                        return Err(Errno::EEXIST);
                    }
                    self.drop_name(*to_parent, to_name)?;
                }
                self.get(*parent)?.entries.remove(name.as_bytes());
                self.get(*to_parent)?.entries.insert(to_name.as_bytes().to_vec(), fid);
                self.touch(*parent)?;
                self.touch(*to_parent)?;
                done
            }
            // Somebody has removed all its names before the answer came.
            Op::Link { fid, name, .. } if name.as_bytes() == GONE => {
                self.objects.remove(fid);
                done
            }
            Op::Link { fid, parent, name } => {
                self.get(*fid)?.attr.nlink += 1;
                self.get(*parent)?.entries.insert(name.as_bytes().to_vec(), *fid);
                attr(self.touch(*fid)?)
            }
            Op::ReadLink { fid } => Ok((Body::Data, self.get(*fid)?.data.clone())),
            Op::Open { fid } => {
                self.get(*fid)?;
                self.open.insert((who, *fid));
                done
            }
            Op::Release { fid } => {
                self.open.remove(&(who, *fid));
                if self.get(*fid)?.attr.nlink == 0 && !self.is_open(*fid) {
                    self.objects.remove(fid);
                }
                done
            }
            Op::Read { fid, offset, len } => {
                let data = &self.get(*fid)?.data;
                let start = data.len().min(*offset as usize);
                let end = data.len().min(start + *len as usize);
                Ok((Body::Data, data[start..end].to_vec()))
            }
            Op::Write { fid, offset, append, .. } => {
                let o = self.get(*fid)?;
                let at = if *append { o.data.len() } else { *offset as usize };
                if o.data.len() < at + payload.len() {
                    o.data.resize(at + payload.len(), 0);
                }
                o.data[at..at + payload.len()].copy_from_slice(payload);
                let attr = self.touch(*fid)?;
                Ok((Body::Written { len: payload.len() as u32, attr }, Vec::new()))
            }
            Op::ReadDir { fid, cookie, plus } => self.page(*fid, *cookie, *plus),
            Op::StatFs => {
                let room =
                    Room { total: 1 << 40, free: 1 << 39, available: 1 << 38, files: 1000, files_free: 900 };
                Ok((Body::Room { room }, Vec::new()))
            }
            Op::GetXattr { fid, name } => {
                let value = self.get(*fid)?.xattrs.get(name.as_bytes()).cloned();
                value.map(|v| (Body::Data, v)).ok_or(Errno::ENODATA)
            }
            Op::ListXattr { fid } => {
                let names = self.get(*fid)?.xattrs.keys().map(|n| Name::new(n).unwrap()).collect();
                Ok((Body::Names { names }, Vec::new()))
            }
            Op::SetXattr { fid, name, .. } => {
                self.get(*fid)?.xattrs.insert(name.as_bytes().to_vec(), payload.to_vec());
                attr(self.touch(*fid)?)
            }
            Op::RemoveXattr { fid, name } => {
                self.get(*fid)?.xattrs.remove(name.as_bytes()).ok_or(Errno::ENODATA)?;
                done
            }
            Op::Fsync { .. } | Op::SyncFs => done,
            _ => Err(Errno::EOPNOTSUPP),
        }
    }

    fn set(&mut self, fid: Fid, set: &SetAttr) -> Result<(), Errno> {
        let now = self.now();
        let time = |t: &SetTime| match t {
            SetTime::Now => now,
            SetTime::At { time } => *time,
        };
        let o = self.get(fid)?;
        if let Some(size) = set.size {
            o.data.resize(size as usize, 0);
            self.touch(fid)?;
        }
        let a = &mut self.get(fid)?.attr;
        a.mode = set.mode.map_or(a.mode, |m| a.mode & 0o170_000 | m & 0o7777);
        (a.uid, a.gid) = (set.uid.unwrap_or(a.uid), set.gid.unwrap_or(a.gid));
        a.mtime = set.mtime.as_ref().map_or(a.mtime, time);
        a.atime = set.atime.as_ref().map_or(a.atime, time);
        a.ctime = now;
        Ok(())
    }

    fn page(&mut self, fid: Fid, cookie: u64, plus: bool) -> Answer {
        let mut all: Vec<(u64, Vec<u8>, Fid)> =
            self.get(fid)?.entries.iter().map(|(n, f)| (hash(n), n.clone(), *f)).collect();
        all.sort();
        all.retain(|(c, ..)| *c > cookie);
        let end = all.len() <= PAGE;
        all.truncate(PAGE);
        let mut entries = Vec::new();
        for (cookie, name, fid) in all {
            let attr = self.get(fid)?.attr.clone();
            let (kind, attr) = (attr.mode & 0o170_000, plus.then_some(attr));
            entries.push(DirEntry {
                name: Name::new(&name).unwrap(),
                fid,
                home: SetId(1),
                kind,
                cookie,
                attr,
            });
        }
        Ok((Body::Page { entries, end }, Vec::new()))
    }
}

fn hash(name: &[u8]) -> u64 {
    let step = |h: u64, b: &u8| (h ^ u64::from(*b)).wrapping_mul(0x0000_0100_0000_01b3);
    (name.iter().fold(0xcbf2_9ce4_8422_2325, step) >> 1).max(1)
}
