//! What clients do: few names and small files, so that they meet; all operations, so that each is tried under faults.

mod large;

use crate::Family;
use crate::client::ToClient;
use crate::rest::Phase;
use crate::rng::Prng;
use crate::world::World;
use bytes::Bytes;
use ids::{Fid, SetId, Time};
use wire::codec::Blob;
use wire::op::{Node, SetAttr, SetTime, rename_flags};
use wire::{Body, Name, Op};

/// A name, as its directory, the set of that, and the name in it.
type Named = (Fid, SetId, Name);

/// Objects that a client remembers, of each kind.
const REMEMBERED: usize = 8;
/// Parts of a thousand of renames that are of a name which led to a file of another set.
const STUBS: usize = 300;
/// Likewise of exchanges, those of two such names of one set, or of names in directories of two sets.
const EXCHANGED: usize = 700;
/// Those of these that are of two sets.
const OF_TWO_SETS: usize = 600;
/// How often a directory that moves to another set takes the place of one, in thousandths.
const GIVES_WAY: usize = 250;
/// Likewise of all calls, in worlds for that: renames of a directory to a directory of another set.
const DIRECTORIES: usize = 150;
/// Exchanges of a directory with what has a name on another set.
const SWAPS: usize = 60;
const FILE: u32 = 0o100_000;
const DIRECTORY: u32 = 0o040_000;
const KIND: u32 = 0o170_000;

/// A directory or file, and the set that answers for it.
type Object = (Fid, SetId);

/// What a client knows and how it behaves.
#[derive(Debug)]
pub(crate) struct Workload {
    /// Calls at a time.
    width: usize,
    names: usize,
    directories: Vec<Object>,
    files: Vec<Object>,
    links: Vec<Object>,
    open: Vec<Object>,
    /// Names of files in directories of other sets than the file's: the directory, its set, the name.
    stubs: Vec<Named>,
    /// Names of files in directories of the file's set.
    own_names: Vec<Named>,
    /// Names of directories.
    dir_names: Vec<Named>,
    /// The byte that its next write is full of.
    byte: u8,
    /// Bytes of its largest writes.
    large: usize,
    /// Parts of a thousand of calls that read, and that change names rather than data.
    reads: usize,
    naming: usize,
    /// Files become striped.
    striped: bool,
}

impl Workload {
    pub(crate) fn new(rng: &mut Prng, root: Object, striped: bool) -> Workload {
        Workload {
            width: 1 + rng.below(3),
            names: 2 + rng.below(4),
            directories: vec![root],
            files: Vec::new(),
            links: Vec::new(),
            open: Vec::new(),
            stubs: Vec::new(),
            own_names: Vec::new(),
            dir_names: Vec::new(),
            byte: u8::try_from(rng.below(200)).unwrap_or(0),
            large: if rng.chance(100) { 300_000 } else { 9000 },
            reads: 200 + rng.below(400),
            naming: 300 + rng.below(500),
            striped,
        }
    }

    fn remember(list: &mut Vec<Object>, object: Object) {
        if let Some(known) = list.iter_mut().find(|known| known.0 == object.0) {
            // Another set may answer for it by now.
            *known = object;
        } else {
            if list.len() >= REMEMBERED {
                // Not the first one: that is the root among directories.
                list.remove(1);
            }
            list.push(object);
        }
    }

    fn learn(&mut self, fid: Fid, home: SetId, mode: u32) {
        match mode & KIND {
            DIRECTORY => Workload::remember(&mut self.directories, (fid, home)),
            FILE => Workload::remember(&mut self.files, (fid, home)),
            _ => Workload::remember(&mut self.links, (fid, home)),
        }
    }

    fn name(&self, rng: &mut Prng) -> Name {
        let text = format!("n{}", rng.below(self.names));
        Name::new(text.as_bytes()).expect("a short name is one")
    }

    fn directory(&self, rng: &mut Prng) -> Object {
        // The root is met more often than others.
        let first = self.directories.first().copied();
        let any = rng.pick(&self.directories).copied();
        let chosen = if rng.chance(400) { first } else { any };
        chosen.unwrap_or((Fid::default(), SetId(0)))
    }

    /// The two last names of one set that led to files of other sets.
    fn two_stubs(&self) -> Option<(Named, Named)> {
        let last = self.stubs.last()?;
        let other = self.stubs.iter().rev().find(|stub| stub.1 == last.1 && *stub != last)?;
        Some((other.clone(), last.clone()))
    }

    /// Names of files in directories of two sets.
    fn of_two_sets(&self, rng: &mut Prng) -> Option<(Named, Named)> {
        let all: Vec<&Named> = self.stubs.iter().chain(&self.own_names).collect();
        let one = *rng.pick(&all)?;
        let others: Vec<&Named> = all.into_iter().filter(|name| name.1 != one.1).collect();
        Some((one.clone(), (*rng.pick(&others)?).clone()))
    }

    fn remember_name(list: &mut Vec<Named>, dir: Fid, home: SetId, name: &Name) {
        if list.len() >= REMEMBERED {
            list.remove(0);
        }
        list.push((dir, home, name.clone()));
    }

    /// A directory that goes to a directory of another set, if the client knows of both. It may take the place of one that lives on
    /// any set.
    fn move_directory(&self, rng: &mut Prng) -> Option<(SetId, Op, Bytes)> {
        let (parent, home, name) = rng.pick(&self.dir_names)?.clone();
        let (to_parent, there, to_name) = if rng.chance(GIVES_WAY) {
            let names: Vec<&Named> = self.dir_names.iter().filter(|dir| dir.1 != home).collect();
            (*rng.pick(&names)?).clone()
        } else {
            let others: Vec<Object> = self.directories.iter().filter(|dir| dir.1 != home).copied().collect();
            let (to_parent, there) = rng.pick(&others).copied()?;
            (to_parent, there, self.name(rng))
        };
        let op = Op::MoveIn { from: home, parent, name, to_parent, to_name, flags: 0 };
        Some((there, op, Bytes::new()))
    }

    /// A directory that changes places with what has a name on another set, if the client knows of both. Either of the two sets decides.
    fn swap_directory(&self, rng: &mut Prng) -> Option<(SetId, Op, Bytes)> {
        let one = rng.pick(&self.dir_names)?;
        let files = if rng.chance(300) { [&self.stubs, &self.own_names] } else { [&self.dir_names; 2] };
        let others: Vec<&Named> = files.into_iter().flatten().filter(|name| name.1 != one.1).collect();
        let other = *rng.pick(&others)?;
        let (from, to) = if rng.chance(500) { (one, other) } else { (other, one) };
        let ((parent, home, name), (to_parent, there, to_name)) = (from.clone(), to.clone());
        let op = Op::MoveIn { from: home, parent, name, to_parent, to_name, flags: rename_flags::EXCHANGE };
        Some((there, op, Bytes::new()))
    }

    /// It has a file open, once more.
    pub(crate) fn opened(&mut self, fid: Fid, home: SetId) {
        self.open.push((fid, home));
    }

    /// Whether it has a file open.
    pub(crate) fn holds(&self, fid: Fid) -> bool {
        self.open.iter().any(|(f, _)| *f == fid)
    }

    /// What to do next: which set to ask, what, and data.
    fn draw(&mut self, rng: &mut Prng) -> (SetId, Op, Bytes) {
        let file = rng.pick(&self.files).copied();
        match file {
            Some(file) if !rng.chance(self.naming) => self.on_file(rng, file),
            _ => self.on_names(rng),
        }
    }

    fn on_names(&mut self, rng: &mut Prng) -> (SetId, Op, Bytes) {
        let (parent, home) = self.directory(rng);
        let name = self.name(rng);
        let none = Bytes::new();
        if rng.chance(self.reads) {
            let op = match rng.below(6) {
                0 => Op::ReadDir { fid: parent, cookie: 0, plus: rng.chance(500) },
                1 => Op::GetAttr { fid: parent },
                2 if !self.links.is_empty() => {
                    let (fid, home) = rng.pick(&self.links).copied().unwrap_or((parent, home));
                    return (home, Op::ReadLink { fid }, none);
                }
                _ => Op::Lookup { parent, name },
            };
            return (home, op, none);
        }
        let op = match rng.below(24) {
            0..6 => self.create(rng, parent, name, Node::File),
            6..9 => self.create(rng, parent, name, Node::Dir),
            9 => {
                let target = Blob(format!("t{}", rng.below(1000)).into_bytes());
                self.create(rng, parent, name, Node::Symlink { target })
            }
            10..14 => Op::Unlink { parent, name },
            14..16 => Op::Rmdir { parent, name },
            16..21 => {
                let stub = if rng.chance(STUBS) { rng.pick(&self.stubs).cloned() } else { None };
                let mut from = stub.unwrap_or((parent, home, name));
                let (dir, there) = if rng.chance(600) { (from.0, from.1) } else { self.directory(rng) };
                let mut to = (dir, there, self.name(rng));
                let flags = match rng.below(8) {
                    0 => rename_flags::NOREPLACE,
                    1 => rename_flags::EXCHANGE,
                    _ => 0,
                };
                if flags == rename_flags::EXCHANGE && rng.chance(EXCHANGED) {
                    let two = if rng.chance(OF_TWO_SETS) { self.of_two_sets(rng) } else { self.two_stubs() };
                    (from, to) = two.unwrap_or((from, to));
                }
                let ((parent, home, name), (to_parent, to_home, to_name)) = (from, to);
                if to_home != home {
                    let op = Op::MoveIn { from: home, parent, name, to_parent, to_name, flags };
                    return (to_home, op, none);
                }
                return (home, Op::Rename { parent, name, to_parent, to_name, flags }, none);
            }
            21 | 22 => match rng.pick(&self.files).copied() {
                Some((fid, there)) if there == home => Op::Link { fid, parent, name },
                Some((fid, there)) => Op::LinkIn { fid, home: there, parent, name },
                None => Op::Unlink { parent, name },
            },
            _ if rng.chance(300) => Op::SyncFs,
            _ => Op::Fsync { fid: parent },
        };
        (home, op, none)
    }

    /// Some files and directories of a set.
    fn of_set(&self, home: SetId) -> Vec<Fid> {
        let all = self.files.iter().chain(&self.directories);
        all.filter(|(_, h)| *h == home).map(|(fid, _)| *fid).take(8).collect()
    }

    fn create(&self, rng: &mut Prng, parent: Fid, name: Name, node: Node) -> Op {
        let open = node == Node::File && rng.chance(300);
        let mode = 0o600 + u32::try_from(rng.below(0o177)).unwrap_or(0);
        let uid = u32::try_from(rng.below(3)).unwrap_or(0);
        Op::Create { parent, name, node, mode, umask: 0o022, uid, gid: uid, open }
    }

    fn on_file(&mut self, rng: &mut Prng, (fid, home): Object) -> (SetId, Op, Bytes) {
        if self.striped {
            return self.on_large_file(rng, (fid, home));
        }
        let none = Bytes::new();
        let offset = self.offset(rng);
        if rng.chance(self.reads) {
            let op = match rng.below(8) {
                0..4 => Op::Read { fid, offset, len: 1 + u32::try_from(rng.below(20_000)).unwrap_or(0) },
                4 => Op::Read { fid, offset: 0, len: 1 << 20 },
                5 => Op::GetXattr { fid, name: xattr(rng) },
                6 => Op::ListXattr { fid },
                // No number is drawn for it: other seeds stay what they are.
                _ if fid.lsn.0.is_multiple_of(3) => Op::GetAttrs { fids: self.of_set(home) },
                _ => Op::GetAttr { fid },
            };
            return (home, op, none);
        }
        let op = match rng.below(30) {
            0..11 => {
                let len = if rng.chance(800) { 1 + rng.below(200) } else { 1 + rng.below(self.large) };
                self.byte = self.byte % 250 + 1;
                let data = vec![self.byte; len];
                let append = rng.chance(300);
                let offset = if append { 0 } else { offset };
                return (home, Op::Write { fid, offset, append, kill_suid: false }, data.into());
            }
            11..14 => Op::Fsync { fid },
            14 | 15 => Op::SetAttr { fid, set: SetAttr { size: Some(offset), ..nothing() } },
            16 | 17 => {
                let mode = 0o600 + u32::try_from(rng.below(0o177)).unwrap_or(0);
                let uid = rng.chance(300).then_some(7);
                Op::SetAttr { fid, set: SetAttr { mode: Some(mode), uid, ..nothing() } }
            }
            18 => {
                let time = Time { sec: 1000 + rng.below(1000) as i64, nsec: 5 };
                Op::SetAttr { fid, set: SetAttr { mtime: Some(SetTime::At { time }), ..nothing() } }
            }
            19..22 => {
                let data = format!("v{}", rng.below(1_000_000)).into_bytes();
                return (home, Op::SetXattr { fid, name: xattr(rng), flags: 0 }, data.into());
            }
            22 => Op::RemoveXattr { fid, name: xattr(rng) },
            23 | 24 => match rng.pick(&self.files).copied() {
                Some((to, there)) if there == home && to != fid => {
                    let len = 1 + rng.below(10_000) as u64;
                    Op::CopyRange { from: fid, from_offset: offset, to, to_offset: self.offset(rng), len }
                }
                _ => Op::Fsync { fid },
            },
            25 => Op::Fallocate { fid, mode: 0, offset, len: 1 + rng.below(5000) as u64 },
            26..29 => Op::Open { fid },
            _ => Op::SyncFs,
        };
        (home, op, none)
    }

    fn offset(&self, rng: &mut Prng) -> u64 {
        match rng.below(10) {
            0..4 => 0,
            4..7 => rng.below(300) as u64,
            7 | 8 => rng.below(5) as u64 * 4096,
            _ => rng.below(self.large * 2) as u64,
        }
    }
}

pub(crate) fn nothing() -> SetAttr {
    SetAttr { mode: None, uid: None, gid: None, size: None, atime: None, mtime: None, kill_suid: false }
}

fn xattr(rng: &mut Prng) -> Name {
    let text = format!("user.x{}", rng.below(3));
    Name::new(text.as_bytes()).expect("a short name is one")
}

impl World {
    /// A client begins a call, now and then.
    pub(crate) fn think(&mut self, c: usize) {
        let (think, phase) = (self.pace.think, self.phase);
        let busy = phase == Phase::Storm || phase == Phase::Calm { busy: true };
        if busy && self.history.len() < self.config.calls {
            if self.clients[c].is_mounted() && self.clients[c].waits() < self.clients[c].work.width {
                self.begin_call(c);
            }
            let slower = if phase == Phase::Storm { 1 } else { 8 };
            let delay = self.rng.between(think / 4, think * 2) * slower;
            self.tell_client(self.now + delay, c, ToClient::Think);
        }
    }

    fn begin_call(&mut self, c: usize) {
        if !self.may_begin(c) {
            return;
        }
        let open = self.clients[c].work.open.len();
        if open > 0 && self.rng.chance(60) {
            let at = self.rng.below(open);
            let (fid, home) = self.clients[c].work.open.swap_remove(at);
            return self.close_file(c, home, fid);
        }
        let moves = self.config.faults.contains(&Family::Directories) && self.rng.chance(DIRECTORIES);
        let swaps = self.config.faults.contains(&Family::Swaps) && self.rng.chance(SWAPS);
        let World { clients, rng, .. } = self;
        let moved = match (swaps, moves) {
            (true, _) => clients[c].work.swap_directory(rng),
            (false, true) => clients[c].work.move_directory(rng),
            (false, false) => None,
        };
        let (set, mut op, payload) = moved.unwrap_or_else(|| clients[c].work.draw(rng));
        if let (Op::CopyRange { from, .. }, true) = (&op, self.config.faults.contains(&Family::Moves)) {
            // Whether a copy is one between sets is not what the checker thinks it is.
            op = Op::GetAttr { fid: *from };
        }
        let payload = self.of_directory(c, &mut op).unwrap_or(payload);
        self.for_user(c, &mut op);
        self.call(c, set, op, payload);
    }

    /// Where directories move they have attributes of their own, which move with them: some of the questions about them are changes
    /// of those. No number is drawn for it.
    fn of_directory(&self, c: usize, op: &mut Op) -> Option<Bytes> {
        let (Op::Fsync { fid } | Op::GetAttr { fid }) = *op else { return None };
        let is_dir = self.clients[c].work.directories.iter().any(|known| known.0 == fid);
        if !is_dir || fid.is_root() || !self.config.faults.contains(&Family::Moves) {
            return None;
        }
        let n = self.history.len();
        let name = Name::new(format!("user.x{}", n / 7 % 3).as_bytes()).ok()?;
        let mode = 0o700 + u32::try_from(n % 0o77).ok()?;
        *op = match n % 7 {
            0 | 1 => Op::SetXattr { fid, name, flags: 0 },
            2 => Op::RemoveXattr { fid, name },
            3 => Op::ListXattr { fid },
            4 => Op::GetXattr { fid, name },
            5 => Op::SetAttr { fid, set: SetAttr { mode: Some(mode), ..nothing() } },
            _ => return None,
        };
        let data = if n % 7 < 2 { format!("v{n}").into_bytes() } else { Vec::new() };
        Some(data.into())
    }

    /// What a client learns from an answer.
    pub(crate) fn learn(&mut self, c: usize, record: usize) {
        let Some(record) = self.history.get(record) else { return };
        let Some((_, Ok((body, _)))) = &record.answer else { return };
        let mut body = body.clone();
        self.clients[c].moved.restore(&mut body);
        let work = &mut self.clients[c].work;
        match (&record.op, &body) {
            (Op::MoveIn { to_parent: dir, to_name: name, .. } | Op::LinkIn { parent: dir, name, .. }, _) => {
                Workload::remember_name(&mut work.stubs, *dir, record.set, name);
            }
            (op, Body::Attr { attr }) => {
                if let Op::Create { parent, name, .. } | Op::Lookup { parent, name } = op {
                    let is_dir = attr.mode & KIND == DIRECTORY;
                    let list = if is_dir { &mut work.dir_names } else { &mut work.own_names };
                    Workload::remember_name(list, *parent, record.set, name);
                }
                if matches!(op, Op::Create { open: true, .. } | Op::Open { .. }) {
                    work.opened(attr.fid, attr.home);
                }
                work.learn(attr.fid, attr.home, attr.mode);
            }
            (Op::Lookup { parent, name }, Body::Elsewhere { kind, fid, home }) if *kind != DIRECTORY => {
                Workload::remember_name(&mut work.stubs, *parent, record.set, name);
                work.learn(*fid, *home, *kind);
            }
            (op, Body::Elsewhere { fid, home, kind }) => {
                if let Op::Create { parent, name, .. } | Op::Lookup { parent, name } = op {
                    Workload::remember_name(&mut work.dir_names, *parent, record.set, name);
                }
                work.learn(*fid, *home, *kind);
            }
            (_, Body::Page { entries, .. }) => {
                entries.iter().for_each(|e| work.learn(e.fid, e.home, e.kind));
            }
            _ => {}
        }
    }
}
