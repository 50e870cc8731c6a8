//! What is checked at the end of a run: all bricks of a set have the same tree, the program's own check finds each brick sound, and
//! what clients were told is explained by a correct file system.

use crate::disk::Disk;
use crate::planted::plant;
use crate::trace::say;
use crate::world::World;
use disk_format::tag::{INTENT, PENDING, Tag, XATTR};
use file_history::{CutShort, Excuse, Excuses, Loss, Unrecorded};
use file_system::{File, FileSystem, S_IFDIR, S_IFLNK};
use ids::{Fid, SetId, Time};
use std::collections::{BTreeMap, BTreeSet};
use wire::Errno;

/// An object as it lies on a disk.
#[derive(PartialEq, Eq, Debug, Clone)]
pub(crate) struct Seen {
    mode: u32,
    owner: (u32, u32),
    mtime: Time,
    size: u64,
    /// A checksum of the data.
    content: Option<brick::Sum>,
    pub(crate) fid: Option<Fid>,
    pub(crate) home: Option<SetId>,
    pub(crate) xattrs: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// The users' tree of a brick, and files without a name.
pub(crate) fn tree(disk: &Disk, here: SetId, arbiter: bool) -> Result<BTreeMap<String, Seen>, Errno> {
    let mut out = BTreeMap::new();
    let root = disk.fs().open_dir(disk.path())?;
    walk(&root, ("", what(&root, here)?), here, arbiter, &mut out)?;
    let orphans = root.open_at(b".mortar", S_IFDIR)?.open_at(b"orphans", S_IFDIR)?;
    walk(&orphans, (".mortar/orphans", Dir::Own), here, arbiter, &mut out)?;
    let lost_found = root.open_at(b".mortar", S_IFDIR)?.open_at(b"limbo", S_IFDIR)?;
    for name in folders_of_names(&lost_found)? {
        let folder = lost_found.open_at(&name, S_IFDIR)?;
        let at = format!("{NAMES}{}", String::from_utf8_lossy(&name));
        walk(&folder, (&at, Dir::Own), here, arbiter, &mut out)?;
    }
    for name in dirs(&lost_found, |digit| digit < b'8')? {
        let dir = lost_found.open_at(&name, S_IFDIR)?;
        let seen = see(&dir, S_IFDIR, here, arbiter)?;
        match seen.fid.filter(|_| seen.home == Some(here)) {
            Some(fid) => {
                let at = on_a_copy(fid);
                walk(&dir, (&at, Dir::Own), here, arbiter, &mut out)?;
                out.insert(at, seen);
            }
            None => walk(&dir, ("copy", what(&dir, here)?), here, arbiter, &mut out)?,
        }
    }
    Ok(out)
}

/// A directory of the set that hangs on a copy of another set's, or waits for its place: where is not compared. Copies do not
/// follow renames, and one may have to give way to a directory that is elsewhere by now: a brick that was away then has it
/// where it was, with all that hangs on it.
fn on_a_copy(fid: Fid) -> String {
    format!("on a copy: {fid}")
}

/// The folders that hold the names of files in other sets' directories: those of high fids.
fn folders_of_names(lost_found: &File) -> Result<Vec<Vec<u8>>, Errno> {
    dirs(lost_found, |digit| digit >= b'8')
}

/// How many names lie in folders of names themselves, and not in copies of their directories.
fn waiting_names(disk: &Disk) -> Result<u64, Errno> {
    let lost_found = disk.fs().open_dir(&disk.path().join(".mortar/limbo"))?;
    let mut many = 0;
    for name in folders_of_names(&lost_found)? {
        lost_found.open_at(&name, S_IFDIR)?.list(&mut |_, _, _| {
            many += 1;
            true
        })?;
    }
    Ok(many)
}

/// What lies beneath directories that wait in lost+found for a place in the tree.
fn waiting(disk: &Disk, here: SetId) -> Result<BTreeMap<String, Seen>, Errno> {
    let mut out = BTreeMap::new();
    let lost_found = disk.fs().open_dir(&disk.path().join(".mortar/limbo"))?;
    for name in dirs(&lost_found, |digit| digit < b'8')? {
        let dir = lost_found.open_at(&name, S_IFDIR)?;
        let at = String::from_utf8_lossy(&name);
        out.insert(at.to_string(), see(&dir, S_IFDIR, here, false)?);
        walk(&dir, (&at, what(&dir, here)?), here, false, &mut out)?;
    }
    Ok(out)
}

/// The directories in lost+found whose names are fids; which of them tells the first digit of the position.
fn dirs(lost_found: &File, wanted: impl Fn(u8) -> bool) -> Result<Vec<Vec<u8>>, Errno> {
    let mut found = Vec::new();
    lost_found.list(&mut |name, kind, _| {
        if kind == S_IFDIR && name.len() == 32 && name.get(16).is_some_and(|digit| wanted(*digit)) {
            found.push(name.to_vec());
        }
        true
    })?;
    Ok(found)
}

pub(crate) fn tag(of: &File) -> Result<Option<Tag>, Errno> {
    Ok(of.whole_xattr(XATTR.as_bytes())?.and_then(|t| Tag::decode(&t).ok()))
}

/// What a directory on a brick is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Dir {
    /// This set's own, so that what is in it is its entries.
    Own,
    /// A copy of another set's, with names of this set's files.
    Copy(Fid),
    Unknown,
}

fn what(dir: &File, here: SetId) -> Result<Dir, Errno> {
    Ok(match tag(dir)? {
        Some(tag) if tag.home == here => Dir::Own,
        Some(tag) => Dir::Copy(tag.fid),
        None => Dir::Unknown,
    })
}

/// Where folders of names are, before their names there.
const NAMES: &str = ".mortar/limbo/";

fn walk(
    dir: &File,
    (at, what_it_is): (&str, Dir),
    here: SetId,
    arbiter: bool,
    out: &mut BTreeMap<String, Seen>,
) -> Result<(), Errno> {
    let mut names = Vec::new();
    dir.list(&mut |name, kind, _| {
        names.push((name.to_vec(), kind));
        true
    })?;
    for (name, kind) in names.into_iter().filter(|(n, _)| !(at.is_empty() && n == b".mortar")) {
        let path = format!("{at}/{}", String::from_utf8_lossy(&name));
        let open = dir.open_at(&name, kind)?;
        let seen = see(&open, kind, here, arbiter)?;
        if seen.fid.is_none() && !at.starts_with(".mortar") {
            // What an interrupted change leaves has no tag, and is no entry: users do not see it.
            continue;
        }
        if kind != S_IFDIR {
            // A name in a directory of another set lies in the copy of that or in its folder, which is each brick's own.
            let path = match what_it_is {
                Dir::Copy(of) if seen.home == Some(here) => {
                    format!("{NAMES}{}/{}", hidden(of.names()), String::from_utf8_lossy(&name))
                }
                _ => path,
            };
            out.insert(path, seen);
            continue;
        }
        let own_tag = tag(&open)?.filter(|t| t.home == here);
        let (is_own, own) = (own_tag.is_some(), what_it_is == Dir::Own);
        // In the root a name stays where it is, but of two that are marked one gives way.
        let may_hang_elsewhere = !at.is_empty() || own_tag.is_some_and(|t| t.flags & PENDING != 0);
        let path = match seen.fid.filter(|_| is_own && !own && may_hang_elsewhere) {
            Some(fid) => on_a_copy(fid),
            None => path,
        };
        walk(&open, (&path, what(&open, here)?), here, arbiter, out)?;
        // A copy beneath a copy is there for what is beneath it. It may outlive that, and then serves nothing: a brick that
        // heals makes none.
        if own || is_own {
            out.insert(path, seen);
        }
    }
    Ok(())
}

fn see(open: &File, kind: u32, here: SetId, arbiter: bool) -> Result<Seen, Errno> {
    let st = open.stat()?;
    let (size, content) = match kind {
        S_IFDIR => (0, None),
        S_IFLNK => (st.size, Some(brick::sum(&open.read_link()?))),
        _ if arbiter => (0, None),
        _ => (st.size, Some(brick::sum(&open.read_whole()?))),
    };
    let mut xattrs = BTreeMap::new();
    for name in open.xattrs()? {
        xattrs.insert(name.clone(), open.whole_xattr(&name)?.unwrap_or_default());
    }
    if kind == S_IFDIR {
        // Which bricks had a directory in lost+found is theirs.
        xattrs.remove(INTENT.as_bytes());
    }
    let tag = xattrs.remove(XATTR.as_bytes()).and_then(|t| Tag::decode(&t).ok());
    let (fid, home) = (tag.as_ref().map(|t| t.fid), tag.as_ref().map(|t| t.home));
    if tag.is_some_and(|t| t.home != here) {
        // Only another set's bricks know what it is like.
        let (mode, mtime) = (kind, Time::default());
        return Ok(Seen { mode, owner: (0, 0), mtime, size, content, fid, home, xattrs: BTreeMap::new() });
    }
    let (mode, mtime) = (st.mode, st.mtime);
    Ok(Seen { mode, owner: (st.uid, st.gid), mtime, size, content, fid, home, xattrs })
}

impl World {
    fn disk_of(&self, brick: ids::BrickId) -> Option<&Disk> {
        self.machines.iter().find_map(|m| m.disks.get(&brick))
    }

    /// All bricks of a set have the same tree.
    pub(crate) fn check_bricks(&mut self) {
        let state = self.store.state().clone();
        let (mut entries, mut kept, mut home) = (BTreeSet::new(), BTreeSet::new(), 0);
        let mut here: BTreeSet<Fid> = BTreeSet::new();
        for (set, places) in self.places() {
            let Some(known) = state.sets.get(&set) else { continue };
            let arbiters = known.bricks.iter().filter(|b| b.arbiter).count() > 0;
            let mut first: Option<(ids::BrickId, BTreeMap<String, Seen>)> = None;
            let mut hidden = BTreeMap::new();
            for (m, brick) in places {
                let Some(disk) = self.machines[m].disks.get(&brick) else { continue };
                // Beside an arbiter only what it has too is compared with it.
                let is_arbiter = known.brick(brick).is_some_and(|b| b.arbiter);
                let read = tree(disk, set, is_arbiter).and_then(|seen| Ok((seen, waiting(disk, set)?)));
                let (seen, beside) = match read {
                    Ok(read) => read,
                    Err(e) => return self.fail(format!("set {set}: brick {brick} cannot be read: {e}")),
                };
                if let Some((other, tree)) = &first
                    && let Some(what) = difference(tree, &seen, is_arbiter)
                {
                    let why = format!("set {set}: bricks {other} and {brick} differ: {what}");
                    return self.fail(why);
                }
                if first.is_none() && !(arbiters && is_arbiter) {
                    first = Some((brick, seen));
                    hidden = beside;
                }
            }
            // Without its tree what others have of its files says nothing.
            let Some((shown, tree)) = &first else { return };
            let waiting = self.disk_of(*shown).map_or(0, |disk| waiting_names(disk).unwrap_or(0));
            let names = tree.keys().filter(|path| path.starts_with(NAMES)).count() as u64;
            self.coverage.add("name elsewhere in its folder", waiting);
            self.coverage.add("name elsewhere in a copy of its directory", names.saturating_sub(waiting));
            let own =
                tree.iter().filter(|(path, seen)| seen.home == Some(set) && !path.starts_with(".mortar"));
            let own: BTreeSet<Fid> = own.filter_map(|(_, seen)| seen.fid).collect();
            home += self.moves.count(own.iter().copied(), |m| m.away);
            here.extend(own);
            for part in [tree, &hidden] {
                names_elsewhere(part, set, self.history.root().0, &mut entries, &mut kept);
            }
        }
        let moved = self.moves.count(entries.iter().map(|(_, _, fid)| *fid), |_| true);
        self.coverage.add("file moved", moved);
        self.coverage.add("file came home", home);
        let third = self.moves.count(entries.iter().map(|(_, _, fid)| *fid), |m| m.away);
        self.coverage.add("file of a name elsewhere moved to a third set", third);
        let mut links: BTreeMap<Fid, u64> = BTreeMap::new();
        entries.iter().for_each(|(_, _, fid)| *links.entry(*fid).or_default() += 1);
        let several = self.moves.count(links.keys().copied(), |m| m.linked);
        self.coverage.add("file of several names moved", several);
        here.extend(links.keys());
        let scattered = self.moves.count(here.into_iter(), |m| m.scattered);
        self.coverage.add("file of names elsewhere moved", scattered);
        if let Some((dir, name, fid)) = entries.symmetric_difference(&kept).next() {
            let which =
                if kept.contains(&(*dir, name.clone(), *fid)) { "no entry" } else { "no name at its home" };
            self.fail(format!("{name} in {dir}, which leads to {fid} of another set, has {which}"));
        }
    }

    /// The program's own check of bricks that were closed in order finds nothing wrong but what crashes left of objects that were
    /// being made: it has no tag, or lies in lost+found.
    pub(crate) fn check_soundness(&mut self) {
        for (set, places) in self.places() {
            for (m, brick) in places {
                let Some(disk) = self.machines[m].disks.get(&brick) else { continue };
                let why = match brick::check_on(disk.fs(), disk.path(), false) {
                    Ok(report) => {
                        let remains = |p: &&brick::Problem| {
                            p.path.starts_with(".mortar/limbo") || p.problem.starts_with("it has no tag")
                        };
                        let Some(problem) = report.problems.iter().find(|p| !remains(p)) else { continue };
                        problem.to_string()
                    }
                    Err(e) => e.to_string(),
                };
                return self.fail(format!("set {set}: a check of brick {brick}: {why}"));
            }
        }
    }

    /// What clients were told is explained.
    pub(crate) fn check_history(&mut self) {
        let nanos = |d: core::time::Duration| u64::try_from(d.as_nanos()).unwrap_or(u64::MAX);
        let losses: Vec<Loss> = self
            .ledger
            .losses()
            .iter()
            .map(|l| Loss { set: l.set, from: nanos(l.from), until: nanos(l.until) })
            .collect();
        let errors = self
            .ledger
            .excuses()
            .iter()
            .map(|e| Excuse {
                errno: e.errno,
                // Where a file lies that has moved is not known here.
                set: self.moves.are_none().then_some(e.set),
                from: nanos(e.from),
                until: e.until.map_or(u64::MAX, nanos),
            })
            .collect();
        let cut_short = self.ledger.changes_cut_short().iter();
        let cut_short = cut_short.map(|(set, at)| CutShort { set: *set, at: nanos(*at) }).collect();
        let unrecorded = self.ledger.unrecorded().iter();
        let unrecorded = unrecorded
            .map(|u| Unrecorded { set: u.set, from: nanos(u.from), until: nanos(u.until) })
            .collect();
        let parted = self.stripes.parted().iter();
        let parted = parted.map(|(fid, parted)| (self.moves.before(*fid), parted.clone())).collect();
        let kept = self.moves.kept(self.history.records());
        let placed = kept
            .iter()
            .enumerate()
            .filter_map(|(n, record)| Some((n, self.history.placed().get(record)?.clone())));
        let placed = placed.collect();
        let dead = self.history.dead().to_vec();
        let moved = self.moves.sets_of_moved(&self.store.state().sets.keys().copied().collect());
        let excuses = Excuses { errors, dead, cut_short, unrecorded, parted, placed, moved };
        let root = self.history.root();
        if !self.moves.are_none() && !losses.is_empty() {
            // See the module of moves.
            self.count("names not checked");
        }
        let mut records = self.moves.as_one_file(self.history.records());
        if let Some(planted) = self.config.planted
            && plant(planted, &mut records, &excuses.parted)
        {
            self.count("mistake planted");
        }
        match file_history::check(&records, &losses, &excuses, root) {
            Ok(summary) => {
                say!(self, "{summary:?}, {} losses", losses.len());
                self.coverage.add("part of a history explained", summary.objects as u64);
                self.coverage.add("part of a history undecided", summary.undecided as u64);
                self.coverage.add("error excused", summary.excused as u64);
                self.coverage.add("call without answer", summary.unanswered as u64);
            }
            Err(violation) => self.fail(format!("no order explains what clients were told: {violation}")),
        }
    }
}

/// Entries of this set's directories that lead to files of others, and the names that its files have in others' directories.
fn names_elsewhere(
    tree: &BTreeMap<String, Seen>,
    set: SetId,
    root: Fid,
    entries: &mut BTreeSet<(Fid, String, Fid)>,
    kept: &mut BTreeSet<(Fid, String, Fid)>,
) {
    for (path, seen) in tree.iter().filter(|(_, seen)| seen.mode & 0o170_000 != S_IFDIR) {
        let (Some((dir, name)), Some(fid)) = (path.rsplit_once('/'), seen.fid) else { continue };
        if let Some(folder) = dir.strip_prefix(NAMES) {
            kept.extend(hidden_dir(folder).map(|dir| (dir, name.to_owned(), fid)));
        } else if seen.home != Some(set) && !dir.starts_with(".mortar") {
            let dir = if dir.is_empty() { Some(root) } else { tree.get(dir).and_then(|d| d.fid) };
            entries.extend(dir.map(|dir| (dir, name.to_owned(), fid)));
        }
    }
}

/// The name of an object in one of Mortar's own folders.
fn hidden(fid: Fid) -> String {
    format!("{:08x}{:08x}{:016x}", fid.set.0, fid.epoch.0, fid.lsn.0)
}

/// The directory that a folder of names is for.
fn hidden_dir(folder: &str) -> Option<Fid> {
    let part = |r: std::ops::Range<usize>| folder.get(r).and_then(|s| u64::from_str_radix(s, 16).ok());
    let (set, epoch) = (u32::try_from(part(0..8)?).ok()?, u32::try_from(part(8..16)?).ok()?);
    Some(Fid { set: SetId(set), epoch: ids::Epoch(epoch), lsn: ids::Lsn(part(16..32)?) }.without_names())
}

fn difference(a: &BTreeMap<String, Seen>, b: &BTreeMap<String, Seen>, arbiter: bool) -> Option<String> {
    for name in a.keys().chain(b.keys()) {
        match (a.get(name), b.get(name)) {
            (Some(x), Some(y)) => {
                let x = if arbiter && x.mode & 0o170_000 == 0o100_000 {
                    Seen { size: 0, content: None, ..x.clone() }
                } else {
                    x.clone()
                };
                if x != *y {
                    return Some(format!("{name}: {x:?} and {y:?}"));
                }
            }
            (Some(x), None) => return Some(format!("{name} is on the first only: {x:?}")),
            (None, Some(y)) => return Some(format!("{name} is on the second only: {y:?}")),
            (None, None) => {}
        }
    }
    None
}
