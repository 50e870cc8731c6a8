//! Bricks in temporary directories, driven as a primary drives them: decide, then apply everywhere.
#![allow(
    dead_code,
    unreachable_pub,
    clippy::unwrap_used,
    reason = "helpers of tests, each test uses some of them"
)]

pub mod pair;
pub mod partners;

use brick::{Brick, Options};
use disk_format::Identity;
use ids::{BrickId, Epoch, Fid, Lsn, OpId, SessionId, SetId, Time, VolumeId};
use namespace::{Context, Decision, decide};
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use wire::op::{Node, SetAttr};
use wire::peer::Stamp;
use wire::{Change, Errno, Name, Op};

pub const SET: SetId = SetId(1);
pub const ROOT: Fid = Fid { set: SET, epoch: Epoch(0), lsn: Lsn(0) };

pub fn identity(brick: u32) -> Identity {
    Identity {
        pool: [1; 16],
        volume: VolumeId(1),
        set: SET,
        brick: BrickId(brick),
        arbiter: false,
        volume_name: "home".into(),
        root: ROOT,
        root_home: SET,
    }
}

pub fn temp() -> tempfile::TempDir {
    brick::init_process();
    tempfile::Builder::new().prefix("mortar-brick-").tempdir().unwrap()
}

pub fn name(s: &str) -> Name {
    Name::new(s.as_bytes()).unwrap()
}

pub fn stamp(lsn: u64) -> Stamp {
    Stamp { epoch: Epoch(1), lsn: Lsn(lsn) }
}

/// A time that is not now, so that leaks of the kernel's clock show.
pub fn time(n: u64) -> Time {
    Time { sec: 1_000_000_000 + i64::try_from(n).unwrap(), nsec: 123_456_789 }
}

pub fn open(path: &Path, id: &Identity) -> Brick {
    Brick::open(path, id, Options::default()).unwrap()
}

pub fn new_brick(dir: &Path, n: u32) -> Brick {
    let path = dir.join(format!("b{n}"));
    brick::format(&path, &identity(n), ids::Time::default()).unwrap();
    open(&path, &identity(n))
}

/// A set of bricks that apply the same changes.
pub struct Set {
    pub bricks: Vec<Brick>,
    pub open: BTreeSet<Fid>,
    pub seq: u64,
}

impl Set {
    pub fn new(bricks: Vec<Brick>) -> Set {
        Set { bricks, open: BTreeSet::new(), seq: 0 }
    }

    /// Decides on the first brick.
    pub fn decide(&mut self, op: &Op, payload: &[u8]) -> Result<Decision, Errno> {
        let lsn = self.bricks[0].last().lsn.next();
        let open = self.open.clone();
        let cx = Context {
            set: SET,
            epoch: Epoch(1),
            lsn,
            now: time(lsn.0),
            placed: None,
            payload,
            is_open: &|f| open.contains(&f),
            op: OpId::default(),
            holder: &|_| None,
            agreed: &[],
            incoming: None,
            holds_names: &|_| false,
            is_arriving: &|_| false,
            tx: OpId::default(),
            is_copied: &|_, _| false,
            is_given: &|_, _, _| false,
            has_taken: &|_, _| false,
            above: &BTreeMap::new(),
        };
        decide(op, &mut self.bricks[0], &cx)
    }

    pub fn apply(&mut self, change: &Change, payload: &[u8]) -> Result<(), Errno> {
        self.seq += 1;
        let op = OpId { session: SessionId(7), seq: self.seq };
        for b in &mut self.bricks {
            let s = Stamp { epoch: Epoch(1), lsn: b.last().lsn.next() };
            b.apply(s, op, None, change, payload)?;
        }
        Ok(())
    }

    pub fn run(&mut self, op: &Op, payload: &[u8]) -> Result<Option<Fid>, Errno> {
        match self.decide(op, payload)? {
            Decision::Change(c, result_fid) => {
                self.bricks[0].validate(&c)?;
                self.apply(&c, payload).map(|()| result_fid)
            }
            Decision::Answer(_)
            | Decision::RemoveElsewhere(_)
            | Decision::AskAbove(..)
            | Decision::AskHome(_) => Ok(None),
        }
    }

    pub fn make(&mut self, parent: Fid, n: &str, node: Node, mode: u32) -> Fid {
        self.run(&create(parent, n, node, mode), b"").unwrap().unwrap()
    }

    pub fn file(&mut self, parent: Fid, n: &str) -> Fid {
        self.make(parent, n, Node::File, 0o644)
    }

    pub fn dir(&mut self, parent: Fid, n: &str) -> Fid {
        self.make(parent, n, Node::Dir, 0o755)
    }

    pub fn write(&mut self, fid: Fid, offset: u64, data: &[u8]) {
        self.run(&Op::Write { fid, offset, append: false, kill_suid: false }, data).unwrap();
    }
}

pub fn create(parent: Fid, n: &str, node: Node, mode: u32) -> Op {
    Op::Create { parent, name: name(n), node, mode, umask: 0o022, uid: 1000, gid: 1001, open: false }
}

/// One object of a tree, as anybody reading the brick sees it.
#[derive(PartialEq, Eq, Debug, Clone)]
pub struct Seen {
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u64,
    pub rdev: u64,
    pub mtime: (i64, i64),
    pub content: Vec<u8>,
    pub xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

fn see(path: &Path) -> Seen {
    let m = std::fs::symlink_metadata(path).unwrap();
    let content = if m.is_file() {
        // Looking must not change what others see.
        use rustix::fs::{Mode, OFlags};
        let fd = rustix::fs::open(path, OFlags::RDONLY | OFlags::NOATIME, Mode::empty()).unwrap();
        let mut data = vec![];
        std::io::Read::read_to_end(&mut std::fs::File::from(fd), &mut data).unwrap();
        data
    } else if m.is_symlink() {
        std::fs::read_link(path).unwrap().as_os_str().as_bytes().to_vec()
    } else {
        vec![]
    };
    let mut list = vec![0u8; 65536];
    let n = rustix::fs::llistxattr(path, &mut list[..]).unwrap();
    let mut xattrs = BTreeMap::new();
    for x in list[..n].split(|&b| b == 0).filter(|x| !x.is_empty()) {
        let mut v = vec![0u8; 65536];
        let n = rustix::fs::lgetxattr(path, x, &mut v[..]).unwrap();
        v.truncate(n);
        xattrs.insert(x.to_vec(), v);
    }
    Seen {
        mode: m.mode(),
        uid: m.uid(),
        gid: m.gid(),
        nlink: m.nlink(),
        rdev: m.rdev(),
        mtime: (m.mtime(), m.mtime_nsec()),
        content,
        xattrs,
    }
}

pub fn walk(top: &Path, at: &Path, out: &mut BTreeMap<PathBuf, Seen>) {
    let rel = at.strip_prefix(top).unwrap().to_path_buf();
    out.insert(rel, see(at));
    if std::fs::symlink_metadata(at).unwrap().is_dir() {
        for e in std::fs::read_dir(at).unwrap() {
            let e = e.unwrap();
            if e.path() != top.join(".mortar") {
                walk(top, &e.path(), out);
            }
        }
    }
}

/// The users' tree of a brick, orphans included.
pub fn tree(path: &Path) -> BTreeMap<PathBuf, Seen> {
    let mut out = BTreeMap::new();
    walk(path, path, &mut out);
    walk(path, &path.join(".mortar/orphans"), &mut out);
    // The folder itself is no object: its times are the kernel's.
    out.remove(Path::new(".mortar/orphans"));
    out
}

pub fn copy_tree(from: &Path, to: &Path) {
    let status = std::process::Command::new("cp").arg("-a").arg(from).arg(to).status().unwrap();
    assert!(status.success());
}

/// Attributes to change, none of them.
pub fn set_attr() -> SetAttr {
    SetAttr { mode: None, uid: None, gid: None, size: None, atime: None, mtime: None, kill_suid: false }
}
