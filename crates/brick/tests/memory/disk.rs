//! One brick on a disk in memory, and what its users' tree looks like.

use super::common::*;
use brick::{Brick, OpenError, Options};
use file_system::{File, FileSystem, S_IFDIR, S_IFLNK, S_IFREG};
use ids::Time;
use memory_fs::{CrashRule, Faults, MemoryFs};
use std::collections::BTreeMap;
use std::path::Path;

const PATH: &str = "/b";

pub(crate) struct Disk {
    fs: MemoryFs,
    number: u32,
    openings: u64,
    seconds: i64,
}

/// An object as somebody who reads the brick sees it. Its count of links is left out: a name may be left in lost+found.
#[derive(PartialEq, Eq, Debug, Clone)]
pub(crate) struct Seen {
    mode: u32,
    owner: (u32, u32),
    mtime: Time,
    size: u64,
    content: brick::Sum,
    pub(crate) tag: Option<disk_format::Tag>,
    pub(super) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl Disk {
    pub(crate) fn new(number: u32, rule: CrashRule) -> Disk {
        let fs = MemoryFs::new(1 << 30);
        fs.set_rule(rule);
        fs.make_dirs(Path::new(PATH)).unwrap();
        let mut disk = Disk { fs, number, openings: 0, seconds: 1_700_000_000 };
        disk.pass_time();
        brick::format_on(&disk.fs, Path::new(PATH), &identity(number), ids::Time::default()).unwrap();
        // Whoever makes a brick has its disk synced before it is used.
        disk.fs.open_dir(Path::new("/")).unwrap().sync_all().unwrap();
        disk
    }

    pub(crate) fn open(&mut self) -> Result<Brick, OpenError> {
        self.openings += 1;
        let options = Options {
            fd_limit: 6,
            nodes: 8,
            names: 10,
            dirty: 5,
            listing_names: 6,
            segment_size: 1500,
            seed: Some(self.openings),
            ..Options::default()
        };
        Brick::open_on(&self.fs, Path::new(PATH), &identity(self.number), options)
    }

    /// What a check of the closed brick finds, beside what power cuts left of objects that were being made.
    pub(crate) fn problems(&self) -> Vec<brick::Problem> {
        let mut problems = brick::check_on(&self.fs, Path::new(PATH), false).unwrap().problems;
        problems.retain(|p| !p.path.starts_with(".mortar/limbo"));
        problems
    }

    /// The file system's clock goes on: farther than the grain of times.
    pub(crate) fn pass_time(&mut self) {
        self.seconds += 3;
        self.fs.set_time(Time { sec: self.seconds, nsec: 0 });
    }

    /// Somebody sets the clock to an earlier hour.
    pub(crate) fn set_clock_back(&mut self) {
        self.seconds -= 3600;
        self.pass_time();
    }

    /// And to what it would be by now.
    pub(crate) fn set_clock_right(&mut self) {
        self.seconds += 3600;
        self.pass_time();
    }

    /// The power goes off after so many more changes and syncs.
    pub(crate) fn cut_power_after(&self, calls: u64) {
        self.fs.set_faults(Faults { power_left: Some(calls), ..Faults::default() });
    }

    /// From now on syncs fail, or no longer.
    pub(crate) fn fail_syncs(&self, fail: bool) {
        self.fs.set_faults(Faults { syncs: fail.then_some(wire::Errno::EIO), ..Faults::default() });
    }

    /// From now on everything that changes something fails, or no longer.
    pub(crate) fn fail_writes(&self, fail: bool) {
        self.fs.set_faults(Faults { writes: fail.then_some(wire::Errno::EIO), ..Faults::default() });
    }

    /// After so many more changes everything that changes something fails.
    pub(crate) fn fail_writes_after(&self, calls: u64) {
        self.fs.set_faults(Faults { writes_left: Some(calls), ..Faults::default() });
    }

    /// From now on nothing more fits.
    pub(crate) fn fill(&self) {
        self.fs.set_faults(Faults { full: true, ..Faults::default() });
    }

    /// There is room again.
    pub(crate) fn empty(&self) {
        self.fs.set_faults(Faults::default());
    }

    /// The index is gone.
    pub(crate) fn lose_index(&self) {
        self.fs.open_dir(&Path::new(PATH).join(".mortar")).unwrap().unlink(b"index.redb").unwrap();
    }

    /// How long all segments of the journal are together.
    pub(crate) fn journal_bytes(&self) -> u64 {
        let folder = self.fs.open_dir(&Path::new(PATH).join(".mortar/journal")).unwrap();
        let mut bytes = 0;
        folder
            .list(&mut |name, _, _| {
                bytes += folder.stat_at(name).unwrap().size;
                true
            })
            .unwrap();
        bytes
    }

    pub(crate) fn crash(&self, rule: CrashRule, draw: &mut dyn FnMut(u64) -> u64) {
        self.fs.crash(rule, draw);
    }

    /// By chance something survives, and something does not.
    pub(crate) fn crash_by_chance(&self, rule: CrashRule, seed: u64) {
        let mut random = seed;
        self.crash(rule, &mut |below| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
            (random >> 33) % below
        });
    }

    pub(crate) fn write_back(&self, rule: CrashRule, draw: &mut dyn FnMut(u64) -> u64) {
        self.fs.write_back(rule, draw);
    }

    pub(crate) fn unsynced(&self) -> usize {
        self.fs.unsynced()
    }

    /// Somebody puts a file into the brick.
    pub(crate) fn put(&self, name: &str, data: &[u8]) {
        let root = self.fs.open_dir(Path::new(PATH)).unwrap();
        root.make_file(name.as_bytes(), 0o644).unwrap().write_all(0, data).unwrap();
    }

    /// All is on disk.
    pub(crate) fn sync(&self) {
        self.fs.open_dir(Path::new("/")).unwrap().sync_all().unwrap();
    }

    /// A second copy of the directory at `of`, which holds a file of nobody's and, as `name`, one more name of `file`.
    pub(crate) fn plant_copy(&self, of: &str, at: &str, file: &str, name: &str) {
        let open = |path: &str| self.fs.open_dir(&Path::new(PATH).join(path)).unwrap();
        let (above, last) = at.rsplit_once('/').unwrap();
        open(above).make_dir(last.as_bytes(), 0o755).unwrap();
        let tag = open(of).whole_xattr(disk_format::tag::XATTR.as_bytes()).unwrap().unwrap();
        let copy = open(at);
        copy.set_xattr(disk_format::tag::XATTR.as_bytes(), &tag).unwrap();
        copy.make_file(b"nobodys", 0o644).unwrap();
        open("").open_at(file.as_bytes(), S_IFREG).unwrap().link(&copy, name.as_bytes()).unwrap();
    }

    /// What lies in a folder of the brick's own.
    pub(crate) fn names(&self, folder: &str) -> Vec<String> {
        let mut out = Vec::new();
        let folder = self.fs.open_dir(&Path::new(PATH).join(".mortar").join(folder)).unwrap();
        folder
            .list(&mut |name, _, _| {
                out.push(String::from_utf8_lossy(name).into_owned());
                true
            })
            .unwrap();
        out
    }

    /// The users' tree, and files without a name.
    pub(crate) fn tree(&self) -> BTreeMap<String, Seen> {
        let mut out = BTreeMap::new();
        let root = self.fs.open_dir(Path::new(PATH)).unwrap();
        walk(&root, "", &mut out);
        let meta = root.open_at(b".mortar", S_IFDIR).unwrap();
        for folder in ["orphans", "aside"] {
            let open = meta.open_at(folder.as_bytes(), S_IFDIR).unwrap();
            walk(&open, &format!(".mortar/{folder}"), &mut out);
        }
        out
    }
}

fn see(open: &File, dir: bool, link: bool) -> Seen {
    let st = open.stat().unwrap();
    let content = match (dir, link) {
        (true, _) => vec![],
        (_, true) => open.read_link().unwrap(),
        _ => open.read_whole().unwrap_or_default(),
    };
    let value = |n: &Vec<u8>| open.whole_xattr(n).unwrap().unwrap();
    let mut xattrs: BTreeMap<_, _> =
        open.xattrs().unwrap().into_iter().map(|n| (n.clone(), value(&n))).collect();
    let tag =
        xattrs.remove(disk_format::tag::XATTR.as_bytes()).map(|t| disk_format::Tag::decode(&t).unwrap());
    Seen {
        mode: st.mode,
        owner: (st.uid, st.gid),
        mtime: st.mtime,
        size: st.size,
        content: brick::sum(&content),
        tag,
        xattrs,
    }
}

fn walk(dir: &File, at: &str, out: &mut BTreeMap<String, Seen>) {
    let mut names = Vec::new();
    dir.list(&mut |name, kind, _| {
        names.push((name.to_vec(), kind));
        true
    })
    .unwrap();
    for (name, kind) in names.into_iter().filter(|(n, _)| !(at.is_empty() && n == b".mortar")) {
        let path = format!("{at}/{}", String::from_utf8_lossy(&name));
        let open = dir.open_at(&name, kind).unwrap();
        out.insert(path.clone(), see(&open, kind == S_IFDIR, kind == S_IFLNK));
        if kind == S_IFDIR {
            walk(&open, &path, out);
        }
    }
}
