//! Random operations: few names, so that they meet; small files, odd offsets, and now and then something extreme.

use ids::{Fid, Time};
use std::collections::VecDeque;
use wire::codec::Blob;
use wire::op::{Node, SetAttr, SetTime};
use wire::{Attr, Body, Errno, Name, Op};

/// Random numbers: one below the given bound, which is not 0.
type Rng<'a> = &'a mut dyn FnMut(u64) -> u64;

/// Objects of one kind that are drawn from.
const KEPT: usize = 24;

/// The objects that a client has heard of, some of them gone by now.
#[derive(Clone, Debug)]
pub struct Known {
    root: Fid,
    dirs: VecDeque<Fid>,
    files: VecDeque<Fid>,
    others: VecDeque<Fid>,
    /// Where a directory was made last: empty yet, perhaps.
    made: Option<(Fid, Name)>,
}

fn add(to: &mut VecDeque<Fid>, fid: Fid) {
    if !to.contains(&fid) {
        to.push_back(fid);
        if to.len() > KEPT {
            to.pop_front();
        }
    }
}

impl Known {
    /// Nothing but the root.
    pub fn new(root: Fid) -> Known {
        Known { root, dirs: VecDeque::new(), files: VecDeque::new(), others: VecDeque::new(), made: None }
    }

    /// An answer tells of objects that are there, or that are gone.
    pub fn learn<P>(&mut self, op: &Op, answer: &Result<(Body, P), Errno>) {
        if let (Op::Create { parent, name, node: Node::Dir, .. }, Ok(_)) = (op, answer) {
            self.made = Some((*parent, name.clone()));
        }
        match answer {
            Ok((Body::Attr { attr }, _)) => self.meet(attr),
            Ok((Body::Attrs { attrs }, _)) => attrs.iter().for_each(|attr| self.meet(attr)),
            Ok((Body::Page { entries, .. }, _)) => {
                entries.iter().filter_map(|e| e.attr.as_ref()).for_each(|attr| self.meet(attr));
            }
            Err(Errno::ESTALE) => match op {
                Op::GetAttr { fid } | Op::SetAttr { fid, .. } | Op::Write { fid, .. } => self.forget(*fid),
                Op::Create { parent, .. } | Op::Lookup { parent, .. } => self.forget(*parent),
                _ => {}
            },
            _ => {}
        }
    }

    fn meet(&mut self, attr: &Attr) {
        let list = match attr.mode & 0o170_000 {
            0o040_000 => &mut self.dirs,
            0o100_000 => &mut self.files,
            _ => &mut self.others,
        };
        add(list, attr.fid);
    }

    fn forget(&mut self, fid: Fid) {
        for list in [&mut self.dirs, &mut self.files, &mut self.others] {
            list.retain(|f| *f != fid);
        }
    }

    fn of(&self, list: &VecDeque<Fid>, rng: Rng<'_>) -> Fid {
        match list.len() as u64 {
            0 => self.root,
            n => list.get(pick(rng, n)).copied().unwrap_or(self.root),
        }
    }

    /// Mostly a directory; the newest ones often, so that paths become long.
    fn dir(&self, rng: Rng<'_>) -> Fid {
        match rng(20) {
            0 => self.any(rng),
            1..=6 => self.root,
            7..=9 => self.dirs.back().copied().unwrap_or(self.root),
            _ => self.of(&self.dirs, rng),
        }
    }

    /// Mostly a file.
    fn file(&self, rng: Rng<'_>) -> Fid {
        match rng(20) {
            0 => self.any(rng),
            1..=5 => self.files.back().copied().unwrap_or(self.root),
            _ => self.of(&self.files, rng),
        }
    }

    fn any(&self, rng: Rng<'_>) -> Fid {
        match rng(4) {
            0 => self.of(&self.dirs, rng),
            1 => self.of(&self.others, rng),
            _ => self.of(&self.files, rng),
        }
    }
}

fn pick(rng: Rng<'_>, n: u64) -> usize {
    usize::try_from(rng(n)).unwrap_or(0)
}

fn one_of<T: Copy>(rng: Rng<'_>, all: &[T]) -> T {
    all[pick(rng, all.len() as u64)]
}

fn name_of(bytes: &[u8]) -> Name {
    Name::new(bytes).unwrap_or_else(|_| unreachable!("a fixed name is a name"))
}

fn name(rng: Rng<'_>) -> Name {
    match rng(40) {
        0 => name_of(&[b'l'; 255]),
        1 => name_of(b".mortar"),
        2 => name_of(b"\xff\xfe"),
        3 => name_of(format!("n{}", rng(1000)).as_bytes()),
        _ => name_of(one_of(rng, &[b"a", b"b", b"c", b"d", b"e"])),
    }
}

fn xattr_name(rng: Rng<'_>) -> Name {
    match rng(40) {
        0 => name_of(b"user."),
        1 => name_of(&[b"user.".as_slice(), &[b'x'; 250]].concat()),
        2 => name_of(b"trusted.mortar.x"),
        3 => name_of(b"nothing.x"),
        4 => name_of(b"trusted."),
        5 => name_of(b"security.x"),
        n if n < 14 => name_of(b"trusted.a"),
        n => name_of(if n % 2 == 0 { b"user.a" } else { b"user.b" }),
    }
}

fn offset(rng: Rng<'_>) -> u64 {
    let near = one_of(rng, &[0, 1, 511, 4095, 4096, 4097, 8192, 65535, 65536, 100_000]);
    match rng(60) {
        0 => (1 << 33) + near,
        1 => (1 << 44) - 4096 + near,
        2..=19 => rng(20_000),
        _ => near,
    }
}

fn length(rng: Rng<'_>) -> u64 {
    match rng(4) {
        0 => 1 + rng(10),
        1 => 1 + rng(5000),
        _ => one_of(rng, &[1, 100, 4096, 4097, 8192, 65536, 70_000]),
    }
}

fn data(rng: Rng<'_>) -> Vec<u8> {
    let first = rng(256);
    (0..length(rng)).map(|n| (first.wrapping_add(n / 16 * 7) & 0xff) as u8).collect()
}

fn mode(rng: Rng<'_>) -> u32 {
    let special = if rng(3) == 0 { one_of(rng, &[0o1000, 0o2000, 0o4000, 0o6000]) } else { 0 };
    special | one_of(rng, &[0o644, 0o600, 0o755, 0o777, 0o711, 0o660, 0o000])
}

fn owner(rng: Rng<'_>) -> u32 {
    one_of(rng, &[0, 0, 1000, 1001, 65534, 3_000_000_000])
}

fn time(rng: Rng<'_>) -> SetTime {
    match rng(6) {
        0 => SetTime::Now,
        1 => SetTime::At { time: Time { sec: -5, nsec: 999_999_999 } },
        2 => SetTime::At { time: Time { sec: 0, nsec: 0 } },
        _ => SetTime::At { time: Time { sec: 1_000_000_000 + rng(100).cast_signed(), nsec: 123 } },
    }
}

fn create(rng: Rng<'_>, known: &Known) -> Op {
    let node = match rng(20) {
        0..=8 => Node::File,
        9..=13 => Node::Dir,
        14..=16 => {
            let len = if rng(8) == 0 { 4095 } else { 1 + pick(rng, 60) };
            Node::Symlink { target: Blob(vec![b't'; len]) }
        }
        17 => Node::Fifo,
        18 => Node::Socket,
        _ if rng(2) == 0 => Node::Char { rdev: 0x0103 },
        _ => Node::Block { rdev: 0x1234_5678 },
    };
    let mode = match node {
        Node::Symlink { .. } => 0o777,
        // The kernel that mounts takes the other bits off before it asks.
        Node::Dir => mode(rng) & 0o1777,
        _ => mode(rng),
    };
    Op::Create {
        parent: known.dir(rng),
        name: name(rng),
        node,
        mode,
        umask: one_of(rng, &[0, 0o022, 0o077, 0o777]),
        uid: owner(rng),
        gid: owner(rng),
        open: rng(3) == 0,
    }
}

fn set_attr(rng: Rng<'_>, known: &Known) -> Op {
    let mut set =
        SetAttr { mode: None, uid: None, gid: None, size: None, atime: None, mtime: None, kill_suid: false };
    match rng(6) {
        0 => {
            set.size = Some(offset(rng));
            set.kill_suid = rng(2) == 0;
        }
        1 => {
            set.uid = (rng(2) == 0).then(|| owner(rng));
            set.gid = (set.uid.is_none() || rng(2) == 0).then(|| owner(rng));
            set.kill_suid = rng(2) == 0;
        }
        2 | 3 => set.mode = Some(mode(rng)),
        _ => {
            set.atime = (rng(2) == 0).then(|| time(rng));
            set.mtime = (set.atime.is_none() || rng(2) == 0).then(|| time(rng));
        }
    }
    if rng(8) == 0 {
        set.mode = Some(mode(rng));
        set.mtime = Some(time(rng));
    }
    let fid = if set.size.is_some() || rng(2) == 0 { known.file(rng) } else { known.any(rng) };
    Op::SetAttr { fid, set }
}

fn allocate(rng: Rng<'_>, known: &Known) -> Op {
    let mode = one_of(rng, &[0, 1, 3, 3, 0x10, 0x11, 8, 0x20, 8, 0x20, 2, 0x40]);
    let whole = mode & 0x28 != 0 && rng(8) != 0;
    let (offset, len) =
        if whole { (65536 * rng(3), 65536 * (1 + rng(2))) } else { (offset(rng), length(rng)) };
    let len = if rng(40) == 0 { 0 } else { len };
    Op::Fallocate { fid: known.file(rng), mode, offset, len }
}

fn about_attributes(rng: Rng<'_>, known: &Known) -> (Op, Vec<u8>) {
    let fid = match rng(4) {
        0 => known.any(rng),
        1 => known.root,
        _ => known.files.back().copied().unwrap_or(known.root),
    };
    let name = xattr_name(rng);
    match rng(8) {
        0..=2 => {
            let flags = one_of(rng, &[0, 0, 0, 0, 1, 2, 3, 4]);
            let len = one_of(rng, &[0, 1, 10, 100, 1900, 3000, 3900, 5000]);
            (Op::SetXattr { fid, name, flags }, vec![rng(256) as u8; len])
        }
        3 | 4 => (Op::GetXattr { fid, name }, vec![]),
        5 => (Op::ListXattr { fid }, vec![]),
        _ => (Op::RemoveXattr { fid, name }, vec![]),
    }
}

fn about_data(rng: Rng<'_>, known: &Known) -> (Op, Vec<u8>) {
    let fid = known.file(rng);
    let op = match rng(16) {
        0..=4 => {
            let (append, kill_suid) = (rng(4) == 0, rng(4) == 0);
            return (Op::Write { fid, offset: offset(rng), append, kill_suid }, data(rng));
        }
        5..=7 => {
            Op::Read { fid, offset: offset(rng), len: one_of(rng, &[0, 1, 4096, 70_000, 1 << 20, 2 << 20]) }
        }
        8..=10 => allocate(rng, known),
        11 | 12 => Op::Lseek { fid, offset: offset(rng), whence: one_of(rng, &[3, 4, 3, 4, 3, 4, 7]) },
        13..=14 => Op::CopyRange {
            from: known.file(rng),
            from_offset: offset(rng),
            to: fid,
            to_offset: offset(rng),
            len: if rng(20) == 0 { 0 } else { length(rng) },
        },
        _ if rng(8) == 0 => Op::SyncFs,
        _ => Op::Fsync { fid },
    };
    (op, vec![])
}

fn about_names(rng: Rng<'_>, known: &Known) -> Op {
    let (parent, name) = (known.dir(rng), name(rng));
    match rng(12) {
        0 | 1 => Op::Lookup { parent, name },
        2 | 3 => Op::Unlink { parent, name },
        4 | 5 => match &known.made {
            Some((parent, name)) if rng(2) == 0 => Op::Rmdir { parent: *parent, name: name.clone() },
            _ => Op::Rmdir { parent, name },
        },
        6 => {
            let fid = if rng(6) == 0 { known.any(rng) } else { known.file(rng) };
            Op::Link { fid, parent, name }
        }
        7 => Op::ReadDir { fid: parent, cookie: 0, plus: rng(2) == 0 },
        _ => {
            let flags = one_of(rng, &[0, 0, 0, 1, 2, 2, 3]);
            let (to_parent, to_name) = (known.dir(rng), self::name(rng));
            Op::Rename { parent, name, to_parent, to_name, flags }
        }
    }
}

/// Makes up an operation, with the data that goes with it.
pub fn draw(rng: Rng<'_>, known: &Known) -> (Op, Vec<u8>) {
    let op = match rng(40) {
        0..=7 => create(rng, known),
        8..=19 => about_names(rng, known),
        20..=29 => return about_data(rng, known),
        30 | 31 => set_attr(rng, known),
        32..=34 => return about_attributes(rng, known),
        35 if rng(2) == 0 => Op::GetAttrs { fids: (0..3).map(|_| known.any(rng)).collect() },
        35 => Op::GetAttr { fid: known.any(rng) },
        36 => Op::ReadLink { fid: if rng(3) == 0 { known.any(rng) } else { known.of(&known.others, rng) } },
        37 => Op::Open { fid: known.any(rng) },
        38 => Op::Release { fid: known.file(rng) },
        _ if rng(4) == 0 => Op::StatFs,
        _ => set_attr(rng, known),
    };
    (op, vec![])
}
