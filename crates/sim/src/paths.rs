//! At rest each directory, and each name that a file has in another set's directory, lies at its path on all bricks of its
//! set, though other sets have renamed what is above it.

use crate::check::tag;
use crate::disk::Disk;
use crate::trace::say;
use crate::world::World;
use core::time::Duration;
use disk_format::tag::INTENT;
use file_system::{File, FileSystem, S_IFDIR};
use ids::{BrickId, Fid, SetId};
use std::collections::{BTreeMap, BTreeSet};
use wire::Errno;

/// How often it is looked: to find out takes as long as to read all bricks.
const LOOK: Duration = Duration::from_secs(2);

/// Lost+found in paths.
const LOST: &str = "lost+found";

/// The entries that lead to directories: the directory above, and the name.
type Entries = BTreeMap<Fid, (Fid, String)>;

/// A directory as a brick has it.
struct Dir {
    fid: Fid,
    own: bool,
    path: String,
    /// It lies in lost+found, and a power cut took away what says whose entry it is.
    unknown: bool,
}

/// A name that a file has in another set's directory, and that waits in its folder.
struct Waiting {
    dir: Fid,
    name: String,
}

fn lost_found_of(root: &File) -> Result<File, Errno> {
    root.open_at(b".mortar", S_IFDIR)?.open_at(b"limbo", S_IFDIR)
}

/// The names that wait on a brick.
fn waiting(disk: &Disk) -> Result<Vec<Waiting>, Errno> {
    let root = disk.fs().open_dir(disk.path())?;
    let lost_found = lost_found_of(&root)?;
    let mut waiting = Vec::new();
    for folder in names(&lost_found, |kind| kind == S_IFDIR)? {
        let open = lost_found.open_at(&folder, S_IFDIR)?;
        let Some(tag) = tag(&open)?.filter(|tag| tag.fid.is_names()) else { continue };
        let dir = tag.fid.without_names();
        let names = names(&open, |kind| kind != S_IFDIR)?.into_iter();
        waiting.extend(names.map(|name| Waiting { dir, name: String::from_utf8_lossy(&name).into_owned() }));
    }
    Ok(waiting)
}

fn names(dir: &File, of: impl Fn(u32) -> bool) -> Result<Vec<Vec<u8>>, Errno> {
    let mut names = Vec::new();
    dir.list(&mut |name, kind, _| {
        if of(kind) {
            names.push(name.to_vec());
        }
        true
    })?;
    Ok(names)
}

/// All directories of a brick. The entries of this set's own go to `entries`.
fn directories(disk: &Disk, here: SetId, entries: &mut Entries) -> Result<Vec<Dir>, Errno> {
    let root = disk.fs().open_dir(disk.path())?;
    let mut all = Vec::new();
    walk(&root, "", here, (entries, &mut all))?;
    let lost_found = lost_found_of(&root)?;
    walk(&lost_found, LOST, here, (entries, &mut all))?;
    Ok(all)
}

fn walk(
    dir: &File,
    at: &str,
    here: SetId,
    (entries, all): (&mut Entries, &mut Vec<Dir>),
) -> Result<(), Errno> {
    let above = tag(dir)?.filter(|tag| tag.home == here).map(|tag| tag.fid);
    for name in names(dir, |kind| kind == S_IFDIR)? {
        if at.is_empty() && name == b".mortar" {
            continue;
        }
        let open = dir.open_at(&name, S_IFDIR)?;
        let Some(tag) = tag(&open)?.filter(|tag| !tag.fid.is_names()) else { continue };
        let name = String::from_utf8_lossy(&name).into_owned();
        let path = format!("{at}/{name}");
        if let Some(above) = above {
            entries.insert(tag.fid, (above, name));
        }
        walk(&open, &path, here, (entries, all))?;
        let unknown = at == LOST && open.whole_xattr(INTENT.as_bytes())?.is_none();
        all.push(Dir { fid: tag.fid, own: tag.home == here, path, unknown });
    }
    Ok(())
}

/// The path of a directory, as its entry and those above it tell it; `None` if one has none.
fn path_of(entries: &Entries, root: Fid, dir: Fid) -> Option<String> {
    let (mut at, mut path) = (dir, String::new());
    while at != root {
        let (above, name) = entries.get(&at)?;
        path = format!("/{name}{path}");
        at = *above;
        if path.len() > 1 << 16 {
            return None;
        }
    }
    Some(path)
}

impl World {
    /// A directory of a set, or a name of its files, that does not lie at its path on one of the set's bricks.
    fn misplaced(&mut self) -> Result<Option<String>, (BrickId, Errno)> {
        let (mut entries, mut found, mut wait) = (Entries::new(), Vec::new(), Vec::new());
        for (set, places) in self.places() {
            for (m, brick) in places {
                let Some(disk) = self.machines[m].disks.get(&brick) else { continue };
                let all = directories(disk, set, &mut entries).map_err(|e| (brick, e))?;
                wait.extend(waiting(disk).map_err(|e| (brick, e))?.into_iter().map(|name| (brick, name)));
                found.extend(all.into_iter().filter(|dir| dir.own).map(|dir| (brick, dir)));
            }
        }
        let root = self.history.root().0;
        let unknown: BTreeSet<String> =
            found.iter().filter(|(_, dir)| dir.unknown).map(|(_, dir)| dir.path.clone()).collect();
        for (brick, dir) in found {
            if unknown.iter().any(|lost| dir.path.starts_with(lost)) {
                continue;
            }
            let Some(path) = path_of(&entries, root, dir.fid) else { continue };
            if path != dir.path {
                return Ok(Some(format!("brick {brick} has {} at {} instead of {path}", dir.fid, dir.path)));
            }
        }
        for (brick, Waiting { dir, name }) in wait {
            if let Some(path) = path_of(&entries, root, dir) {
                return Ok(Some(format!("on brick {brick} {name:?} waits to come to {dir}, {path}")));
            }
        }
        Ok(None)
    }

    /// Whether something lies at an old path; if so, when to look again.
    pub(crate) fn paths_unrest(&mut self) -> Option<(Duration, String)> {
        let why = match self.misplaced() {
            Ok(why) => why?,
            Err((brick, e)) => format!("brick {brick} cannot be read: {e}"),
        };
        say!(self, "{why}");
        self.count("waited for paths");
        Some((self.now + LOOK, why))
    }
}
