//! The tree: what each object says of itself, and what only the index can still tell.

use super::{ADOPT, CheckedBrick, Report, StaleSet, WIPE};
use crate::far_entry::kept_entry;
use crate::far_names::PutBack;
use crate::folders::{hidden_fid, hidden_name};
use crate::index::{Index, Located};
use crate::object::{OpenObject, S_IFDIR, S_IFMT, Stat, open_at};
use crate::scan::Seen;
use crate::stubs::is_folder_of_names;
use disk_format::Tag;
use disk_format::tag::{INTENT, Meant, ORPHAN, PENDING, Version};
use file_system::Renaming;
use ids::{Fid, SetId};
use std::collections::HashMap;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use wire::Errno;
use wire::peer::Stamp;

const LOOK: &str = "look into it; it is moved when its entry is";
const COPY: &str = "remove one of the two, or wipe the brick and let it heal";

/// An object of the tree.
pub(super) struct Object {
    ino: u64,
    names: u32,
    links: u32,
    dir: bool,
    pub(super) at: Located,
    pub(super) path: PathBuf,
}

/// Something whose tag is not what it should be.
struct Suspect {
    path: PathBuf,
    at: Located,
    stat: Stat,
    what: What,
}

enum What {
    Untagged,
    Unreadable,
    /// Another file has the same fid.
    Twin(Fid),
    /// It says that another set answers for it.
    Foreign(Tag),
}

/// What the walk gathers.
pub(super) struct Tree {
    pub(super) objects: HashMap<Fid, Object>,
    suspects: Vec<Suspect>,
    /// Copies of other sets' directories that hold files of this set.
    owned: Vec<(PathBuf, Tag)>,
    /// The last directory of another set that was met.
    copies: HashMap<PathBuf, Tag>,
    /// Directories beside which a damaged entry is kept.
    unreadable_entries: Vec<(PathBuf, Fid)>,
    /// Files and stubs that wait for a transaction which cannot be told, their kinds, and why.
    unknown_marks: Vec<(PathBuf, Tag, u32, &'static str)>,
}

/// Whether files of this set have names in that directory of another set.
fn has_folder_of_names(root: &OpenObject, dir: Fid) -> Result<bool, Errno> {
    let folder = Path::new(".mortar/limbo").join(hidden_name(dir.names()));
    match open(root, &folder, S_IFDIR) {
        Ok(_) => Ok(true),
        Err(Errno::ENOENT) => Ok(false),
        Err(e) => Err(e),
    }
}

/// Walks the whole tree.
pub(super) fn check(
    root: &OpenObject,
    brick: &CheckedBrick<'_>,
    report: &mut Report,
    newest: &mut Stamp,
) -> Result<Tree, Errno> {
    let mut tree = Tree {
        objects: HashMap::new(),
        suspects: vec![],
        owned: vec![],
        copies: HashMap::new(),
        unreadable_entries: vec![],
        unknown_marks: vec![],
    };
    crate::scan::walk(root, &mut |seen| tree.look(seen, brick, report, newest))?;
    Ok(tree)
}

impl Tree {
    fn look(
        &mut self,
        seen: &Seen<'_>,
        brick: &CheckedBrick<'_>,
        report: &mut Report,
        newest: &mut Stamp,
    ) -> Result<(), Errno> {
        let kind = seen.stat.mode & S_IFMT;
        let at = Located { handle: seen.dir.handle_at(seen.name)?, kind };
        let suspect = |what| Suspect { path: seen.path.to_path_buf(), at, stat: seen.stat, what };
        let tag = match &seen.tag {
            Ok(Some(t)) => *t,
            Ok(None) => {
                self.suspects.push(suspect(What::Untagged));
                return Ok(());
            }
            Err(_) => {
                self.suspects.push(suspect(What::Unreadable));
                return Ok(());
            }
        };
        newest.lsn = newest.lsn.max(tag.version.lsn);
        newest.epoch = newest.epoch.max(tag.version.epoch);
        self.look_at_folder(seen, &tag, brick, report)?;
        if let Some(other) = self.objects.get_mut(&tag.fid) {
            if other.ino == seen.stat.ino {
                other.names += 1;
            } else {
                self.suspects.push(suspect(What::Twin(tag.fid)));
            }
            return Ok(());
        }
        let dir = kind == S_IFDIR;
        if let Some(set) = brick.set {
            if dir && tag.home != set {
                self.copies.insert(seen.path.to_path_buf(), tag);
            } else if !dir && tag.home != set && tag.stub_kind().is_none() {
                self.suspects.push(suspect(What::Foreign(tag)));
                return Ok(());
            } else if !dir
                && tag.home == set
                && let Some((path, tag)) = seen.path.parent().and_then(|p| self.copies.remove_entry(p))
            {
                self.owned.push((path, tag));
            }
        }
        if !dir && tag.flags & PENDING != 0 {
            let unknown = unknown_mark(&open_at(seen.dir, seen.name, kind)?, &tag, brick.set)?;
            self.unknown_marks.extend(unknown.map(|why| (seen.path.to_path_buf(), tag, kind, why)));
        }
        if dir {
            report.directories += 1
        } else {
            report.files += 1
        }
        report.orphans += u64::from(seen.path.starts_with(".mortar/orphans"));
        let (ino, links, path) = (seen.stat.ino, seen.stat.nlink, seen.path.to_path_buf());
        self.objects.insert(tag.fid, Object { ino, names: 1, links, dir, at, path });
        Ok(())
    }

    /// What lies in `.mortar` has a reason to.
    fn look_at_folder(
        &mut self,
        seen: &Seen<'_>,
        tag: &Tag,
        brick: &CheckedBrick<'_>,
        report: &mut Report,
    ) -> Result<(), Errno> {
        let Some(folder) = seen.path.parent().filter(|p| p.starts_with(".mortar")) else { return Ok(()) };
        let wanted = hidden_name(tag.fid);
        if folder == Path::new(".mortar/limbo") {
            // A copy of another set's directory that gave way to another one serves what hangs on it here as well.
            let is_copy = brick.set.is_some_and(|set| set != tag.home) && seen.stat.mode & S_IFMT == S_IFDIR;
            if is_copy || is_folder_of_names(tag.fid, seen.name) {
                return Ok(());
            }
            let entry = self.kept_entry(seen, tag, brick.set)?;
            report.add(seen.path, format!("a directory that lost its place{entry}"), LOOK);
        } else if folder == Path::new(".mortar/orphans") && seen.name != wanted.as_bytes() {
            let to = wanted.as_bytes();
            let repaired =
                brick.repair && seen.dir.rename(seen.name, seen.dir, to, Renaming::NoReplace).is_ok();
            let remedy = if repaired { "" } else { super::REPAIR };
            report.add(seen.path, format!("a file without a name whose fid is {}", tag.fid), remedy);
        } else if folder == Path::new(".mortar/aside") && !brick.healing {
            report.add(seen.path, "left over from a healing that has ended", brick.remedy());
            if brick.repair {
                if seen.stat.mode & S_IFMT == S_IFDIR {
                    let left = seen.dir.open_at(seen.name, S_IFDIR)?;
                    if let Some(own) = brick.set {
                        let lost_found = Arc::new(brick.at.meta.open_at(b"limbo", S_IFDIR)?);
                        PutBack { own, lost_found }.beneath(&left)?;
                    }
                    crate::scan::clear(&left)?;
                    seen.dir.remove_dir(seen.name)?;
                } else {
                    seen.dir.unlink(seen.name)?;
                }
            }
        }
        Ok(())
    }

    /// What is known of the entry of a directory that lost its place.
    fn kept_entry(&mut self, seen: &Seen<'_>, tag: &Tag, set: Option<SetId>) -> Result<String, Errno> {
        if seen.stat.mode & S_IFMT != S_IFDIR || set.is_some_and(|set| set != tag.home) {
            return Ok(String::new());
        }
        Ok(match kept_entry(&open_at(seen.dir, seen.name, S_IFDIR)?, tag.home) {
            Ok(Some((set, place))) => {
                format!("; its entry is {} in directory {} of set {set}", place.name, place.dir)
            }
            Ok(None) if tag.flags & PENDING != 0 => {
                "; it waits for its entry, and nothing says which that is".to_owned()
            }
            Ok(None) => String::new(),
            Err(Errno::EIO) => {
                self.unreadable_entries.push((seen.path.to_path_buf(), tag.fid));
                String::new()
            }
            Err(e) => return Err(e),
        })
    }

    /// Names out of the brick's sight: somebody else could change the file there.
    pub(super) fn check_links(&self, report: &mut Report) {
        let mut linked: Vec<&Object> =
            self.objects.values().filter(|o| !o.dir && o.links > o.names).collect();
        linked.sort_by(|a, b| a.path.cmp(&b.path));
        for o in linked {
            let text = format!("it has {} hard links, {} of them in the brick's tree", o.links, o.names);
            report.add(
                o.path.clone(),
                text,
                "remove the others: find them with `find -inum`, or copy the file",
            );
        }
    }

    /// Whether directories were not looked into, because they have no tag.
    pub(super) fn is_partial(&self) -> bool {
        self.suspects.iter().any(|s| s.at.kind == S_IFDIR)
    }

    /// Says what is wrong with tags, and writes those again that can be told. What was written again is stale.
    pub(super) fn repair(
        &mut self,
        root: &OpenObject,
        brick: &CheckedBrick<'_>,
        (report, stale_set): (&mut Report, &mut StaleSet),
    ) -> Result<(), Errno> {
        for (path, tag) in std::mem::take(&mut self.owned) {
            let Some(set) = brick.set else { continue };
            if has_folder_of_names(root, tag.fid)? {
                continue;
            }
            let text =
                format!("its tag says that set {} answers for it, its files that set {set} does", tag.home);
            report.add(&path, text, brick.remedy());
            if brick.repair {
                open(root, &path, S_IFDIR)?.set_tag(&Tag { home: set, ..tag })?;
                stale_set.objects.push(tag.fid);
            }
        }
        for (path, fid) in std::mem::take(&mut self.unreadable_entries) {
            report.add(&path, "what is kept of its entry is damaged", brick.remedy());
            if brick.repair {
                open(root, &path, S_IFDIR)?.remove_xattr(INTENT.as_bytes())?;
                stale_set.objects.push(fid);
            }
        }
        for (path, tag, kind, why) in std::mem::take(&mut self.unknown_marks) {
            report.add(&path, why, brick.remedy());
            if brick.repair {
                // The mark comes back with the healing if other bricks have it.
                let open = open(root, &path, kind)?;
                open.set_tag(&Tag { flags: tag.flags & !PENDING, ..tag })?;
                open.remove_xattr(INTENT.as_bytes())?;
                stale_set.objects.push(tag.fid);
            }
        }
        let known = self.known(brick.index)?;
        for s in std::mem::take(&mut self.suspects) {
            let hidden = s.path.parent().is_some_and(|p| p == Path::new(".mortar/orphans"));
            let name = s.path.file_name().map(OsStrExt::as_bytes).unwrap_or_default();
            let by_name = hidden_fid(name).filter(|_| hidden);
            let fid = known.get(&s.stat.ino).copied().or(by_name);
            let free = |f: &Fid| self.objects.get(f).is_none_or(|o| o.ino == s.stat.ino);
            let fid = fid.filter(|f| free(f) || matches!(s.what, What::Twin(_)));
            self.repair_one(root, brick, (&s, fid, hidden), (report, stale_set))?;
        }
        Ok(())
    }

    /// The fids under which the index knows what has no good tag of its own, by inode number.
    fn known(&self, index: Option<&Index>) -> Result<HashMap<u64, Fid>, Errno> {
        let mut known = HashMap::new();
        if let Some(index) = index.filter(|_| !self.suspects.is_empty()) {
            index.each(&mut |fid, at| {
                let same = self.suspects.iter().find(|s| at.is_some_and(|a| a.handle == s.at.handle));
                known.extend(same.map(|s| (s.stat.ino, fid)));
            })?;
        }
        Ok(known)
    }

    fn repair_one(
        &mut self,
        root: &OpenObject,
        brick: &CheckedBrick<'_>,
        (s, fid, hidden): (&Suspect, Option<Fid>, bool),
        (report, stale_set): (&mut Report, &mut StaleSet),
    ) -> Result<(), Errno> {
        let dir = s.at.kind == S_IFDIR;
        let derived = |fid: Fid| {
            // A directory's home is the set that made it; files lie where their directory does.
            let home = if dir { fid.set } else { brick.set.unwrap_or(fid.set) };
            let flags = if hidden { ORPHAN } else { 0 };
            let (ctime, atime) = (s.stat.mtime, s.stat.mtime);
            Tag { flags, fid, home, version: Version::default(), ctime, atime }
        };
        let (text, tag) = match (&s.what, fid) {
            (What::Untagged, Some(fid)) => {
                (format!("it has no tag; by the index it is {fid}"), Some(derived(fid)))
            }
            (What::Unreadable, Some(fid)) => {
                (format!("its tag is damaged; by the index it is {fid}"), Some(derived(fid)))
            }
            (What::Foreign(tag), Some(fid)) if fid == tag.fid => {
                let text =
                    format!("its tag says that set {} answers for it, which holds no files here", tag.home);
                (text, brick.set.map(|home| Tag { home, ..*tag }))
            }
            (What::Foreign(tag), _) => {
                let text = format!(
                    "its tag is that of a file of set {}: it does not belong to the volume",
                    tag.home
                );
                report.add(&s.path, text, ADOPT);
                return if brick.repair { untag(root, s) } else { Ok(()) };
            }
            (What::Twin(fid), _) => return self.repair_twins(root, brick, (s, *fid), (report, stale_set)),
            (What::Untagged, None) => {
                let what = if dir { "it and all in it do" } else { "it does" };
                report.add(&s.path, format!("it has no tag: {what} not belong to the volume"), ADOPT);
                return Ok(());
            }
            (What::Unreadable, None) => {
                report.add(&s.path, "its tag is damaged, and the index does not know it", WIPE);
                return Ok(());
            }
        };
        let Some(tag) = tag else { return Ok(()) };
        report.add(&s.path, text, brick.remedy());
        if brick.repair {
            open(root, &s.path, s.at.kind)?.set_tag(&tag)?;
            stale_set.objects.push(tag.fid);
        }
        let (ino, links, path) = (s.stat.ino, s.stat.nlink, s.path.clone());
        let again = self.objects.get_mut(&tag.fid).filter(|o| o.ino == ino);
        match again {
            Some(o) => o.names += 1,
            None => drop(self.objects.insert(tag.fid, Object { ino, names: 1, links, dir, at: s.at, path })),
        }
        Ok(())
    }

    /// Two files with one fid: the index knows which of them is the volume's. The other is a copy that somebody made.
    fn repair_twins(
        &mut self,
        root: &OpenObject,
        brick: &CheckedBrick<'_>,
        (s, fid): (&Suspect, Fid),
        (report, stale_set): (&mut Report, &mut StaleSet),
    ) -> Result<(), Errno> {
        let Some(first) = self.objects.get_mut(&fid) else { return Ok(()) };
        let text =
            |other: &Path| format!("it has the same fid {fid} as {}, and is another file", other.display());
        let right = brick.index.and_then(|i| i.get(fid).ok().flatten());
        if right.is_some_and(|r| r.handle == s.at.handle) {
            // The one that was met first is the copy.
            let copy =
                Suspect { path: first.path.clone(), at: first.at, stat: s.stat, what: What::Twin(fid) };
            report.add(&copy.path, text(&s.path), ADOPT);
            (first.path, first.at, first.ino) = (s.path.clone(), s.at, s.stat.ino);
            stale_set.objects.push(fid);
            return if brick.repair { untag(root, &copy) } else { Ok(()) };
        }
        if right.is_some_and(|r| r.handle == first.at.handle) {
            report.add(&s.path, text(&first.path), ADOPT);
            stale_set.objects.push(fid);
            return if brick.repair { untag(root, s) } else { Ok(()) };
        }
        report.add(&s.path, text(&first.path), COPY);
        Ok(())
    }
}

/// What is wrong with the mark of a file or stub that waits for the end of a transaction. A stub asks the home of its file, about a
/// name in a directory of this set (docs/design/0019).
fn unknown_mark(open: &OpenObject, tag: &Tag, set: Option<SetId>) -> Result<Option<&'static str>, Errno> {
    let is_stub = set.is_some_and(|set| set != tag.home);
    Ok(match open.meant() {
        Ok(Some(Meant { intent, ended: None, .. }))
            if is_stub && !(intent.is_of_stub() && intent.coordinator == tag.home) =>
        {
            Some(
                "it stands for a file of another set, and what is kept of its transaction is none of a stub's",
            )
        }
        // A power cut may have taken what was meant: such a mark ends by itself.
        Ok(_) => None,
        Err(Errno::EIO) => Some("what is kept of the transaction that it waits for is damaged"),
        Err(e) => return Err(e),
    })
}

fn untag(root: &OpenObject, s: &Suspect) -> Result<(), Errno> {
    open(root, &s.path, s.at.kind)?.remove_xattr(disk_format::tag::XATTR.as_bytes())
}

/// Opens what a walk met, by its path: nobody else uses the brick.
fn open(root: &OpenObject, path: &Path, kind: u32) -> Result<OpenObject, Errno> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(root.clone()) };
    let mut dir = root.clone();
    for name in parent.iter() {
        dir = open_at(&dir, name.as_bytes(), S_IFDIR)?;
    }
    open_at(&dir, name.as_bytes(), kind)
}
