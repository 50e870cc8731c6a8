//! One that works on a tree of its own through three mounts, and knows what has to be there.

use crate::harness::files;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Names in one directory.
const NAMES: usize = 12;
const FILES: usize = 150;
const DIRS: usize = 24;
/// Files that are open, some of them without a name.
const OPEN: usize = 5;
/// One file in thirty is as long as this.
const LONG: usize = 1_500_000;

/// What was acknowledged. Paths begin at a mount.
#[derive(Default)]
pub(super) struct Known {
    dirs: BTreeSet<PathBuf>,
    /// Each name of a file, and which file it is.
    names: BTreeMap<PathBuf, u64>,
    content: BTreeMap<u64, Vec<u8>>,
    pub(super) done: u64,
}

impl Known {
    /// What each of these files holds: its content and how many names it has.
    pub(super) fn files(&self) -> impl Iterator<Item = (&Path, &[u8], usize)> {
        self.names.iter().map(|(path, id)| (path.as_path(), self.content[id].as_slice(), self.links(*id)))
    }

    pub(super) fn dirs(&self) -> impl Iterator<Item = &Path> {
        self.dirs.iter().map(PathBuf::as_path)
    }

    fn links(&self, id: u64) -> usize {
        self.names.values().filter(|n| **n == id).count()
    }

    fn entries(&self, dir: &Path) -> BTreeSet<PathBuf> {
        let all = self.dirs.iter().chain(self.names.keys());
        all.filter(|p| p.parent() == Some(dir)).cloned().collect()
    }

    fn is_used(&self, path: &Path) -> bool {
        self.dirs.contains(path) || self.names.contains_key(path)
    }
}

/// See the module.
pub(super) struct Worker {
    top: PathBuf,
    mounts: Vec<PathBuf>,
    rng: StdRng,
    known: Known,
    open: Vec<(File, u64)>,
    next: u64,
}

#[track_caller]
fn went<T>(what: String, result: io::Result<T>) -> T {
    result.unwrap_or_else(|e| panic!("{what}: {e}"))
}

impl Worker {
    pub(super) fn new(top: &str, mounts: Vec<PathBuf>, seed: u64) -> Worker {
        let mut known = Known::default();
        let top = PathBuf::from(top);
        went(format!("mkdir {top:?}"), fs::create_dir(mounts[0].join(&top)));
        known.dirs.insert(top.clone());
        Worker { top, mounts, rng: StdRng::seed_from_u64(seed), known, open: vec![], next: seed << 32 }
    }

    pub(super) fn end(self) -> Known {
        self.known
    }

    fn below(&mut self, n: usize) -> usize {
        self.rng.random_range(0..n)
    }

    /// The path in one of the mounts: what one has been told holds in all.
    fn at(&mut self, path: &Path) -> PathBuf {
        let n = self.below(self.mounts.len());
        self.mounts[n].join(path)
    }

    fn any_dir(&mut self) -> PathBuf {
        let n = self.below(self.known.dirs.len());
        self.known.dirs.iter().nth(n).unwrap().clone()
    }

    fn any_file(&mut self) -> Option<(PathBuf, u64)> {
        let n = self.below(self.known.names.len().max(1));
        self.known.names.iter().nth(n).map(|(p, id)| (p.clone(), *id))
    }

    fn any_name(&mut self) -> PathBuf {
        let dir = self.any_dir();
        let n = self.below(NAMES);
        dir.join(format!("n{n}"))
    }

    fn bytes(&mut self) -> Vec<u8> {
        let len = if self.below(30) == 0 { LONG } else { self.below(20_000) };
        let seed = self.rng.random();
        files::noise(seed, len)
    }

    pub(super) fn step(&mut self) {
        self.known.done += 1;
        match self.below(20) {
            0..4 => self.make(),
            4..6 => self.write(),
            6 => self.append(),
            7 => self.truncate(),
            8..10 => self.rename(),
            10 => self.link(),
            11..13 => self.unlink(),
            13 => self.make_dir(),
            14 => self.remove_dir(),
            15 => self.rename_dir(),
            16 => self.list(),
            17 => self.use_open(),
            _ => self.read(),
        }
    }

    fn make(&mut self) {
        let path = self.any_name();
        if self.known.is_used(&path) || self.known.content.len() >= FILES {
            return self.unlink();
        }
        let at = self.at(&path);
        let data = self.bytes();
        let mut file = went(
            format!("create {at:?}"),
            OpenOptions::new().read(true).write(true).create_new(true).open(&at),
        );
        for part in data.chunks(256 << 10) {
            went(format!("write {at:?}"), file.write_all(part));
        }
        self.next += 1;
        self.known.names.insert(path, self.next);
        self.known.content.insert(self.next, data);
        if self.below(10) == 0 {
            if self.open.len() == OPEN {
                let n = self.below(OPEN);
                let (_, id) = self.open.remove(n);
                self.forget_nameless(id);
            }
            self.open.push((file, self.next));
        }
    }

    fn write(&mut self) {
        let Some((path, id)) = self.any_file() else { return };
        let at = self.at(&path);
        let file = went(format!("open {at:?}"), OpenOptions::new().write(true).open(&at));
        self.write_to(&file, id, &at);
    }

    fn write_to(&mut self, file: &File, id: u64, at: &Path) {
        let (data, offset) = (self.bytes(), self.below(30_000));
        went(format!("write {at:?}"), file.write_all_at(&data, offset as u64));
        if self.below(8) == 0 {
            went(format!("fsync {at:?}"), file.sync_all());
        }
        let content = self.known.content.get_mut(&id).unwrap();
        if data.is_empty() {
            return;
        }
        content.resize(content.len().max(offset + data.len()), 0);
        content[offset..offset + data.len()].copy_from_slice(&data);
    }

    fn append(&mut self) {
        let Some((path, id)) = self.any_file() else { return };
        let (at, data) = (self.at(&path), self.bytes());
        let mut file = went(format!("open {at:?}"), OpenOptions::new().append(true).open(&at));
        went(format!("append {at:?}"), file.write_all(&data));
        self.known.content.get_mut(&id).unwrap().extend(data);
    }

    fn truncate(&mut self) {
        let Some((path, id)) = self.any_file() else { return };
        let (at, len) = (self.at(&path), self.below(30_000));
        let file = went(format!("open {at:?}"), OpenOptions::new().write(true).open(&at));
        went(format!("truncate {at:?}"), file.set_len(len as u64));
        self.known.content.get_mut(&id).unwrap().resize(len, 0);
    }

    fn rename(&mut self) {
        let Some((from, id)) = self.any_file() else { return };
        let to = self.any_name();
        if self.known.dirs.contains(&to) {
            return;
        }
        let n = self.below(self.mounts.len());
        let result = fs::rename(self.mounts[n].join(&from), self.mounts[n].join(&to));
        went(format!("rename {from:?} to {to:?}"), result);
        if self.known.names.get(&to) == Some(&id) {
            // Two names of one file: POSIX says that nothing is done.
            return;
        }
        self.known.names.remove(&from);
        if let Some(replaced) = self.known.names.insert(to, id) {
            self.forget_nameless(replaced);
        }
    }

    fn link(&mut self) {
        let Some((from, id)) = self.any_file() else { return };
        let to = self.any_name();
        if self.known.is_used(&to) {
            return;
        }
        let n = self.below(self.mounts.len());
        let result = fs::hard_link(self.mounts[n].join(&from), self.mounts[n].join(&to));
        went(format!("link {from:?} to {to:?}"), result);
        self.known.names.insert(to, id);
    }

    fn unlink(&mut self) {
        let Some((path, id)) = self.any_file() else { return };
        let at = self.at(&path);
        went(format!("unlink {at:?}"), fs::remove_file(&at));
        self.known.names.remove(&path);
        self.forget_nameless(id);
    }

    fn forget_nameless(&mut self, id: u64) {
        if self.known.links(id) == 0 && self.open.iter().all(|(_, open)| *open != id) {
            self.known.content.remove(&id);
        }
    }

    fn make_dir(&mut self) {
        let path = self.any_name();
        if self.known.is_used(&path) || self.known.dirs.len() >= DIRS {
            return;
        }
        let at = self.at(&path);
        went(format!("mkdir {at:?}"), fs::create_dir(&at));
        self.known.dirs.insert(path);
    }

    fn remove_dir(&mut self) {
        let path = self.any_dir();
        if path == self.top || !self.known.entries(&path).is_empty() {
            return;
        }
        let at = self.at(&path);
        went(format!("rmdir {at:?}"), fs::remove_dir(&at));
        self.known.dirs.remove(&path);
    }

    /// Anywhere, perhaps to the entries of another set, or in place of an empty directory, wherever that lives. Linux
    /// moves no directory of another mount's renaming in which something is open: what is open is closed first (docs/semantics.md).
    fn rename_dir(&mut self) {
        let from = self.any_dir();
        let takes_a_place = self.below(3) == 0;
        let to = if takes_a_place { self.any_dir() } else { self.any_name() };
        let is_free =
            if takes_a_place { self.known.entries(&to).is_empty() } else { !self.known.is_used(&to) };
        if from == self.top || to.starts_with(&from) || !is_free {
            return;
        }
        for (_, id) in std::mem::take(&mut self.open) {
            self.forget_nameless(id);
        }
        let n = self.below(self.mounts.len());
        let result = fs::rename(self.mounts[n].join(&from), self.mounts[n].join(&to));
        went(format!("rename {from:?} to {to:?}"), result);
        self.known.dirs.remove(&to);
        let moved = |p: &Path| p.strip_prefix(&from).map_or(p.to_path_buf(), |rest| to.join(rest));
        let plain = |p: PathBuf| p.components().collect::<PathBuf>();
        self.known.dirs = self.known.dirs.iter().map(|p| plain(moved(p))).collect();
        self.known.names = self.known.names.iter().map(|(p, id)| (plain(moved(p)), *id)).collect();
    }

    fn list(&mut self) {
        let dir = self.any_dir();
        let at = self.at(&dir);
        let listed = went(format!("list {at:?}"), fs::read_dir(&at));
        let listed: Vec<PathBuf> =
            listed.map(|e| dir.join(went(format!("list {at:?}"), e).file_name())).collect();
        let once: BTreeSet<PathBuf> = listed.iter().cloned().collect();
        assert_eq!(once.len(), listed.len(), "{at:?} has a name twice: {listed:?}");
        assert_eq!(once, self.known.entries(&dir), "what {at:?} has");
    }

    fn use_open(&mut self) {
        let n = self.below(OPEN);
        let Some((file, id)) = self.open.get(n).map(|(f, id)| (f.try_clone().unwrap(), *id)) else { return };
        let at = PathBuf::from(format!("open file {id:x}"));
        if self.below(2) == 0 {
            return self.write_to(&file, id, &at);
        }
        let size = went(format!("stat of {at:?}"), file.metadata()).len();
        let mut found = vec![0; usize::try_from(size).unwrap()];
        went(format!("read {at:?}"), file.read_exact_at(&mut found, 0));
        self.compare(&at, &found, id);
    }

    fn read(&mut self) {
        let Some((path, id)) = self.any_file() else { return };
        let at = self.at(&path);
        let found = went(format!("read {at:?}"), fs::read(&at));
        self.compare(&at, &found, id);
        let meta = went(format!("stat {at:?}"), fs::metadata(&at));
        let (links, size) = (self.known.links(id), self.known.content[&id].len());
        assert_eq!((meta.nlink(), meta.size()), (links as u64, size as u64), "links and size of {at:?}");
    }

    fn compare(&self, at: &Path, found: &[u8], id: u64) {
        let wanted = &self.known.content[&id];
        let differs = found.iter().zip(wanted).position(|(a, b)| a != b);
        let lens = (found.len(), wanted.len());
        assert!(
            found == wanted,
            "{at:?} differs from byte {differs:?} on; lengths {lens:?}, step {}",
            self.known.done
        );
    }
}
