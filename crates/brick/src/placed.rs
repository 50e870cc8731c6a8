//! What a comparison from the root does not meet: directories of this set that hang on other sets' directories or lie in
//! lost+found, and files without a name. A walk over all directories finds them, on another thread, one open directory for
//! each level.
//!
//! The tree may change meanwhile. A directory that is moved to where the walk has been already would be missed: the brick
//! notes it before it moves it, and the walk goes there before it ends. So the walk has been in each directory that was
//! there from its beginning to its end. What came later is told by the changes that made it.

use crate::folders::hidden_fid;
use crate::index::{Located, Store};
use crate::locks::locked;
use crate::object::{OpenObject, S_IFDIR, tag_at};
use crate::open::Brick;
use file_system::{File, Handle};
use ids::{Fid, SetId};
use replica::Fids;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, Weak};
use wire::Errno;
use wire::name::RESERVED;

/// Directories that a walk holds open; it comes back for what lies deeper.
const MAX_OPEN: usize = 64;

/// Where walks found directories that the index on disk does not know: it may have lost them.
type Met = Arc<Mutex<HashMap<Fid, Located>>>;

/// Directories that were moved while a walk is under way, and that it has not looked at since.
type Moved = Mutex<HashMap<Fid, Handle>>;

/// The walks under way.
#[derive(Default)]
pub(crate) struct Walks {
    moved: Vec<Weak<Moved>>,
    met: Met,
}

/// A directory that the walk is in, and those of its names that it has not looked at.
struct Level {
    dir: Arc<File>,
    /// Whether this set answers for it: then what it holds is met when its entries are compared.
    own: bool,
    names: Vec<Vec<u8>>,
}

/// Walks over directories. Runs on any thread.
#[must_use = "nothing is found before it has run"]
pub struct WalkJob {
    set: SetId,
    root: Arc<File>,
    /// Files without a name, if they are wanted.
    orphans: Option<Arc<File>>,
    lost_found: Arc<File>,
    levels: Vec<Level>,
    deeper: Vec<Handle>,
    moved: Arc<Moved>,
    entered: Fids,
    found: Vec<Fid>,
    index: Arc<Store>,
    met: Met,
}

impl WalkJob {
    /// Walks.
    ///
    /// # Errors
    /// The kernel's.
    pub fn run(mut self) -> Result<Vec<Fid>, Errno> {
        self.begin()?;
        while self.step()? {}
        Ok(self.found)
    }

    fn begin(&mut self) -> Result<(), Errno> {
        if let Some(orphans) = &self.orphans {
            let found = &mut self.found;
            orphans.list(&mut |name, _, _| {
                found.extend(hidden_fid(name));
                true
            })?;
        }
        let names = directories(&self.lost_found, &|name| hidden_fid(name).is_some())?;
        self.levels.push(Level { dir: self.lost_found.clone(), own: false, names });
        self.enter(self.root.clone(), true)
    }

    /// Looks at one more directory; false if there is none.
    fn step(&mut self) -> Result<bool, Errno> {
        let Some(level) = self.levels.last_mut() else {
            if let Some(handle) = self.deeper.pop() {
                return self.come_to(&handle, true).map(|()| true);
            }
            let moved = std::mem::take(&mut *locked(&self.moved));
            moved.values().try_for_each(|handle| self.come_to(handle, false))?;
            return Ok(!moved.is_empty());
        };
        let Some(name) = level.names.pop() else {
            self.levels.pop();
            return Ok(true);
        };
        let (above, own) = (level.dir.clone(), level.own);
        match above.open_at(&name, S_IFDIR) {
            Ok(dir) => self.enter(Arc::new(dir), own)?,
            // It was removed or moved meanwhile, or is no directory.
            Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::ESTALE) => {}
            Err(e) => return Err(e),
        }
        Ok(true)
    }

    fn come_to(&mut self, handle: &Handle, own: bool) -> Result<(), Errno> {
        match self.root.open_handle(handle, S_IFDIR) {
            Ok(dir) => self.enter(Arc::new(dir), own),
            Err(Errno::ESTALE | Errno::ENOENT) => Ok(()),
            Err(e) => Err(e),
        }
    }

    /// Comes to a directory. `own`: the set answers for the one above, or this one was noted before.
    fn enter(&mut self, dir: Arc<File>, own: bool) -> Result<(), Errno> {
        let dir = OpenObject::from_shared(dir, S_IFDIR);
        // What is not ours is not looked into.
        let Some(tag) = dir.tag()? else { return Ok(()) };
        let ours = tag.home == self.set;
        if (!own || !ours) && self.index.get(tag.fid)?.is_none() {
            let located = Located { handle: dir.handle()?, kind: S_IFDIR };
            locked(&self.met).entry(tag.fid).or_insert(located);
        }
        let is_left = self.orphans.is_some() && !ours && has_stub(&dir)?;
        if ours && !own || is_left {
            self.found.push(tag.fid);
        }
        if self.levels.len() >= MAX_OPEN {
            self.deeper.push(dir.handle()?);
        } else if !self.entered.contains(tag.fid) {
            self.entered.insert(tag.fid);
            let top = tag.fid.is_root();
            let names = directories(&dir, &|name| !(top && name == RESERVED))?;
            self.levels.push(Level { dir: dir.share(), own: ours, names });
        }
        Ok(())
    }
}

/// The names in a directory that may lead to directories.
fn directories(dir: &File, wanted: &dyn Fn(&[u8]) -> bool) -> Result<Vec<Vec<u8>>, Errno> {
    let mut names = Vec::new();
    dir.list(&mut |name, kind, _| {
        if matches!(kind, S_IFDIR | 0) && wanted(name) {
            names.push(name.to_vec());
        }
        true
    })?;
    Ok(names)
}

/// Whether a copy of another set's directory holds a stub: what is left of its time as this set's own.
fn has_stub(copy: &File) -> Result<bool, Errno> {
    for name in crate::scan::names(copy)? {
        match tag_at(copy, &name) {
            Ok(Some(tag)) if tag.stub_kind().is_some() => return Ok(true),
            Ok(_) | Err(Errno::ENOENT) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(false)
}

impl Brick {
    /// Begins a walk that finds what a comparison from the root does not meet.
    pub fn begin_placed(&mut self) -> WalkJob {
        let orphans = self.folders.orphans().share();
        WalkJob { orphans: Some(orphans), ..self.begin_placed_directories() }
    }

    /// The same without files that have no name, of which there may be very many.
    pub fn begin_placed_directories(&mut self) -> WalkJob {
        let moved = Arc::<Moved>::default();
        self.walks.moved.push(Arc::downgrade(&moved));
        WalkJob {
            set: self.identity.set,
            root: self.root.share(),
            orphans: None,
            lost_found: self.folders.lost_found().share(),
            levels: Vec::new(),
            deeper: Vec::new(),
            moved,
            entered: Fids::default(),
            found: Vec::new(),
            index: self.index.share(),
            met: self.walks.met.clone(),
        }
    }

    /// The index knows what walks have met and it does not.
    pub(crate) fn learn_met(&mut self) -> Result<(), Errno> {
        let met = std::mem::take(&mut *locked(&self.walks.met));
        for (fid, at) in met {
            // The root is known without it.
            if fid != self.identity.root && self.index.get(fid)?.is_none() && self.has_a_name(&at)? {
                self.index.put(fid, at);
                // Files of this set may have names in it.
                self.listings.forget(fid.names());
                self.names.clear();
            }
        }
        Ok(())
    }

    /// Whether it is there still: a walk may have been in a directory when that was removed.
    fn has_a_name(&self, at: &Located) -> Result<bool, Errno> {
        match self.root.open_handle(&at.handle, at.kind).and_then(|open| open.stat()) {
            Ok(stat) => Ok(stat.nlink > 0),
            Err(Errno::ESTALE | Errno::ENOENT) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// The object is gone, or lies where nothing leads to it any more.
    pub(crate) fn forget_met(&mut self, fid: Fid) {
        locked(&self.walks.met).remove(&fid);
    }

    /// A directory, to or from which others are about to be moved (`moved`, files among them).
    pub(crate) fn open_to_move(&mut self, dir: Fid, moved: &[Fid]) -> Result<OpenObject, Errno> {
        self.walks.moved.retain(|walk| walk.strong_count() > 0);
        if !self.walks.moved.is_empty() {
            moved.iter().try_for_each(|fid| self.note_move(*fid))?;
        }
        self.open_dir(dir)
    }

    fn note_move(&mut self, fid: Fid) -> Result<(), Errno> {
        let open = match self.open_fid(fid) {
            Err(Errno::ESTALE | Errno::ENOENT) => return Ok(()),
            other => other?,
        };
        if open.is_dir() {
            let handle = open.handle()?;
            for moved in self.walks.moved.iter().filter_map(Weak::upgrade) {
                locked(&moved).insert(fid, handle);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Options;
    use disk_format::Identity;
    use ids::{BrickId, Epoch, Lsn, OpId, SessionId, Time, VolumeId};
    use memory_fs::MemoryFs;
    use std::collections::{BTreeMap, BTreeSet};
    use std::path::Path;
    use wire::op::{Ancestor, Node};
    use wire::peer::Stamp;
    use wire::{Change, Name};

    const OURS: SetId = SetId(1);
    const THEIRS: SetId = SetId(2);

    fn fid(set: SetId, lsn: u64) -> Fid {
        Fid { set, epoch: Epoch(1), lsn: Lsn(lsn) }
    }

    fn name(n: u64) -> Name {
        Name::new(format!("n{n}").as_bytes()).unwrap()
    }

    /// A brick whose root is ours, with what is above each directory of ours.
    struct Tree {
        brick: Brick,
        lsn: u64,
        /// The directories of ours that lie in others of ours: above and name.
        dirs: BTreeMap<Fid, (Fid, Name)>,
        placed: BTreeSet<Fid>,
        random: u64,
    }

    impl Tree {
        fn new(seed: u64) -> Tree {
            let (fs, path) = (MemoryFs::new(1 << 30), Path::new("/b"));
            fs.make_dirs(path).unwrap();
            let identity = Identity {
                pool: [1; 16],
                volume: VolumeId(1),
                set: OURS,
                brick: BrickId(1),
                arbiter: false,
                volume_name: "v".into(),
                root: Fid::root(OURS),
                root_home: OURS,
            };
            crate::format_on(&fs, path, &identity, ids::Time::default()).unwrap();
            let options = Options { seed: Some(seed), ..Options::default() };
            let brick = Brick::open_on(&fs, path, &identity, options).unwrap();
            Tree { brick, lsn: 0, dirs: BTreeMap::new(), placed: BTreeSet::new(), random: seed + 1 }
        }

        fn draw(&mut self, bound: usize) -> usize {
            self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695);
            usize::try_from(self.random >> 33).unwrap() % bound
        }

        fn apply(&mut self, change: &Change) {
            self.lsn += 1;
            let stamp = Stamp { epoch: Epoch(1), lsn: Lsn(self.lsn) };
            let op = OpId { session: SessionId(1), seq: self.lsn };
            self.brick.apply(stamp, op, None, change, b"").unwrap();
        }

        fn some_dir(&mut self) -> Fid {
            let at = self.draw(self.dirs.len() + 1);
            self.dirs.keys().nth(at).copied().unwrap_or(Fid::root(OURS))
        }

        fn make(&mut self) {
            let (parent, n) = (self.some_dir(), self.lsn + 1);
            let (fid, name, time) = (fid(OURS, n), name(n), Time::default());
            let (home, node) = (OURS, Node::Dir);
            self.dirs.insert(fid, (parent, name.clone()));
            let (mode, uid, gid) = (0o755, 0, 0);
            self.apply(&Change::Create { parent, name, fid, home, node, mode, uid, gid, time });
        }

        /// A directory of ours beneath a copy of another set's, which lies in a directory of ours.
        fn place(&mut self) {
            let (above, n) = (self.some_dir(), self.lsn + 1);
            let copy = Ancestor { fid: fid(THEIRS, n), home: THEIRS, name: name(n) };
            let mut path = vec![copy];
            let mut at = above;
            while let Some((parent, name)) = self.dirs.get(&at) {
                path.insert(0, Ancestor { fid: at, home: OURS, name: name.clone() });
                at = *parent;
            }
            let (entry, time) = (path[path.len() - 1].clone(), Time::default());
            let (mode, uid, gid) = (0o755, 0, 0);
            // The entry of the copy is ours.
            let node = Node::Dir;
            self.apply(&Change::Create {
                parent: above,
                name: entry.name,
                fid: entry.fid,
                home: THEIRS,
                node,
                mode,
                uid,
                gid,
                time,
            });
            let placed = fid(OURS, n + 1);
            self.placed.insert(placed);
            self.apply(&Change::PrepareMkdir { path, name: name(1), fid: placed, mode, uid, gid, time });
        }

        /// Moves a directory somewhere else.
        fn rename(&mut self) {
            let (moved, to_parent) = (self.some_dir(), self.some_dir());
            let Some((parent, name)) = self.dirs.get(&moved).cloned() else { return };
            let mut above = Some(to_parent);
            while let Some(at) = above {
                if at == moved {
                    return;
                }
                above = self.dirs.get(&at).map(|(parent, _)| *parent);
            }
            let to_name = super::tests::name(self.lsn + 1);
            self.dirs.insert(moved, (to_parent, to_name.clone()));
            let time = Time::default();
            self.apply(&Change::Rename {
                parent,
                name,
                fid: moved,
                to_parent,
                to_name,
                replaced: None,
                time,
            });
        }
    }

    fn steps(job: &mut WalkJob) -> usize {
        job.begin().unwrap();
        (0..).take_while(|_| job.step().unwrap()).count()
    }

    /// What is there from the beginning to the end is found, wherever it is moved while the walk is under way. A step looks
    /// at one name, so that whoever walks may stop after any.
    #[test]
    fn a_walk_finds_all_that_stays_whatever_is_moved() {
        let mut moved_before_found = 0;
        for seed in 0..60 {
            let mut tree = Tree::new(seed);
            (0..25).for_each(|_| tree.make());
            (0..8).for_each(|_| tree.place());
            let mut job = tree.brick.begin_placed();
            job.begin().unwrap();
            let mut guard = 0;
            while job.step().unwrap() {
                guard += 1;
                assert!(guard < 10_000, "seed {seed}: the walk does not end");
                if guard % 2 == 0 && guard < 200 {
                    tree.rename();
                }
                moved_before_found += usize::from(!job.moved.lock().unwrap().is_empty());
            }
            let found: BTreeSet<Fid> = job.found.iter().copied().collect();
            let missed: Vec<_> = tree.placed.difference(&found).collect();
            assert!(missed.is_empty(), "seed {seed}: {missed:?} of {} were missed", tree.placed.len());
        }
        assert!(moved_before_found > 100, "directories were moved under the walk");
    }

    /// However often directories are moved, the walk goes into each of them once.
    #[test]
    fn a_walk_enters_each_directory_once() {
        let mut tree = Tree::new(1);
        (0..200).for_each(|_| tree.make());
        let quiet = steps(&mut tree.brick.begin_placed());
        let mut job = tree.brick.begin_placed();
        job.begin().unwrap();
        let mut count = 0;
        while job.step().unwrap() {
            count += 1;
            (0..3).for_each(|_| tree.rename());
            assert!(count < 3 * quiet, "{count} steps and more instead of {quiet}");
            if count > 2 * quiet {
                break;
            }
        }
        assert!(tree.brick.walks.moved.len() <= 2);
        drop(job);
        tree.rename();
        assert!(tree.brick.walks.moved.is_empty(), "nothing is noted for a walk that has ended");
    }

    /// Directories deeper than those that it may hold open are looked into as well.
    #[test]
    fn a_walk_goes_deep_with_few_directories_open() {
        let mut tree = Tree::new(1);
        let mut above = Fid::root(OURS);
        let (mode, uid, gid, time) = (0o755, 0, 0, Time::default());
        for n in 1..=300 {
            let (fid, name, node) = (fid(OURS, n), name(n), Node::Dir);
            let at = (above, name.clone());
            tree.apply(&Change::Create { parent: above, name, fid, home: OURS, node, mode, uid, gid, time });
            tree.dirs.insert(fid, at);
            above = fid;
        }
        (0..20).for_each(|_| tree.place());
        let mut job = tree.brick.begin_placed();
        job.begin().unwrap();
        while job.step().unwrap() {
            assert!(job.levels.len() <= MAX_OPEN);
        }
        assert_eq!(job.found.into_iter().collect::<BTreeSet<_>>(), tree.placed);
    }
}
