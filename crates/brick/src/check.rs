//! Checking a brick that is not in use: `mortar brick check PATH [--repair]`.

use crate::error::{OpenError, io_errno};
use crate::handle::Handle;
use crate::identity::own;
use crate::index::{Index, Located};
use crate::object::{Opened, S_IFDIR, S_IFMT};
use crate::open::{identify, lock, open_dir, read_state};
use crate::recover::scan_into;
use crate::scan::Seen;
use disk_format::journal::{HEAD, Rest, classify};
use disk_format::{Identity, Record, SegmentHead, State};
use ids::{Fid, Lsn};
use std::collections::HashMap;
use std::fmt;
use std::path::{Path, PathBuf};
use wire::Errno;

/// Something that is not as it should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Problem {
    /// Where, from the brick's top.
    pub path: PathBuf,
    /// What.
    pub problem: String,
    /// What to do about it; empty if it was repaired.
    pub remedy: &'static str,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let remedy = if self.remedy.is_empty() { "repaired" } else { self.remedy };
        write!(f, "{}: {}; {remedy}", self.path.display(), self.problem)
    }
}

/// What a check found.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Report {
    /// Files, hard links counted once.
    pub files: u64,
    /// Directories, copies of other sets' included.
    pub directories: u64,
    /// Files without a name, kept for those who had them open.
    pub orphans: u64,
    /// Changes in the journal.
    pub records: u64,
    /// The last change in the journal.
    pub last: Lsn,
    /// What is wrong.
    pub problems: Vec<Problem>,
}

impl Report {
    /// Whether nothing is wrong (any more).
    pub fn is_sound(&self) -> bool {
        self.problems.iter().all(|p| p.remedy.is_empty())
    }

    fn add(&mut self, path: impl Into<PathBuf>, problem: impl Into<String>, remedy: &'static str) {
        self.problems.push(Problem { path: path.into(), problem: problem.into(), remedy });
    }
}

const ADOPT: &str = "move it out of the brick, or take it into the volume with `mortar volume adopt`";
const REPAIR: &str = "repair with `mortar brick check PATH --repair`";
const WIPE: &str = "wipe the brick and let it heal";

/// Checks the brick at `path`, which must not be in use; with `repair` rebuilds the index if it is wrong, and cuts the
/// journal off where it cannot be read.
///
/// # Errors
/// Why it could not be checked at all.
pub fn check(path: &Path, repair: bool) -> Result<Report, OpenError> {
    let identity = identify(path)?;
    let _lock = lock(path)?;
    let mut report = Report::default();
    let io = |errno| OpenError::Io { path: path.to_path_buf(), doing: "check", errno };
    let root = Opened { fd: open_dir(path)?.into(), kind: S_IFDIR };
    match root.tag().map_err(io)? {
        Some(t) if t.fid == identity.root => {}
        Some(_) => report.add("", "the top directory's tag names another fid than the identity", WIPE),
        None => report.add("", "the top directory has no tag", WIPE),
    }
    let mut state = read_state(path)?;
    if check_journal(path, &identity, repair, &mut report)? && repair {
        // What was cut off is in the tree, yet nobody can tell what it was: nothing counts as sure.
        state = State { durable: State::nothing(), flushed: Lsn(0), clean: false, ..state };
        std::fs::write(own(path).join("state"), state.encode()).map_err(|e| io(io_errno(&e)))?;
    }
    let seen = check_tree(&root, &mut report).map_err(io)?;
    check_index(path, &identity, &root, (state.clean, repair), &seen, &mut report)?;
    Ok(report)
}

/// Reads all segments. True if something at the end is unreadable.
fn check_journal(
    path: &Path,
    identity: &Identity,
    repair: bool,
    report: &mut Report,
) -> Result<bool, OpenError> {
    let dir = own(path).join("journal");
    let io = |errno| OpenError::Io { path: dir.clone(), doing: "read", errno };
    let entries = std::fs::read_dir(&dir).map_err(|e| io(io_errno(&e)))?;
    let mut files: Vec<PathBuf> =
        entries.flatten().map(|e| e.path()).filter(|p| p.extension().is_some_and(|x| x == "seg")).collect();
    files.sort();
    let mut before: Option<Lsn> = None;
    let mut expected: Option<Lsn> = None;
    for (n, file) in files.iter().enumerate() {
        let bytes = std::fs::read(file).map_err(|e| io(io_errno(&e)))?;
        let shown = Path::new(".mortar/journal").join(file.file_name().unwrap_or_default());
        let trouble = match SegmentHead::decode(&bytes) {
            Ok(h) if h.brick != identity.brick => Some((0, format!("it belongs to brick {}", h.brick))),
            Ok(h)
                if before.is_some_and(|b| b != h.previous)
                    || expected.is_some_and(|e| e != h.base.lsn.next()) =>
            {
                Some((0, "the segment before it is missing or cut".into()))
            }
            Ok(h) => {
                before = Some(h.base.lsn.next());
                report.last = h.base.lsn;
                read_records(&bytes, report)
            }
            Err(e) => Some((0, e.to_string())),
        };
        expected = Some(report.last.next());
        let Some((at, why)) = trouble else { continue };
        let tail =
            n + 1 == files.len() && classify(bytes.get(at..).unwrap_or_default(), report.last) == Rest::Torn;
        let what = if tail { "torn tail" } else { "damage" };
        report.add(shown, format!("{what} at byte {at}: {why}"), if repair { "" } else { REPAIR });
        if repair {
            cut(file, at, files.get(n + 1..).unwrap_or_default()).map_err(|e| io(io_errno(&e)))?;
        }
        return Ok(true);
    }
    Ok(false)
}

fn read_records(bytes: &[u8], report: &mut Report) -> Option<(usize, String)> {
    let mut at = HEAD;
    while at < bytes.len() {
        match Record::decode(bytes.get(at..).unwrap_or_default()) {
            Ok((r, _)) if r.stamp.lsn != report.last.next() => {
                return Some((at, format!("change {} follows {}", r.stamp.lsn, report.last)));
            }
            Ok((r, n)) => {
                report.records += 1;
                report.last = r.stamp.lsn;
                at += n;
            }
            Err(e) => return Some((at, e.to_string())),
        }
    }
    None
}

/// Cuts a segment off at `at` (all of it, if not even its head is good) and removes the later ones.
fn cut(file: &Path, at: usize, later: &[PathBuf]) -> std::io::Result<()> {
    for l in later.iter().rev() {
        std::fs::remove_file(l)?;
    }
    if at < HEAD {
        return std::fs::remove_file(file);
    }
    let f = std::fs::OpenOptions::new().write(true).open(file)?;
    f.set_len(at as u64)?;
    f.sync_all()
}

struct Object {
    ino: u64,
    path: PathBuf,
    at: Located,
}

/// Walks the tree; what it holds by fid.
fn check_tree(root: &Opened, report: &mut Report) -> Result<HashMap<Fid, Object>, Errno> {
    let mut objects: HashMap<Fid, Object> = HashMap::new();
    crate::scan::walk(&root.fd, &mut |seen| check_object(seen, &mut objects, report))?;
    Ok(objects)
}

fn check_object(
    seen: &Seen<'_>,
    objects: &mut HashMap<Fid, Object>,
    report: &mut Report,
) -> Result<(), Errno> {
    let kind = seen.stat.mode & S_IFMT;
    let tag = match &seen.tag {
        Ok(Some(t)) => t,
        Ok(None) => {
            report.add(seen.path, "it has no tag: it does not belong to the volume", ADOPT);
            return Ok(());
        }
        Err(e) => {
            report.add(seen.path, format!("its tag cannot be read: {e}"), WIPE);
            return Ok(());
        }
    };
    let limbo = seen.path.parent().is_some_and(|p| p == Path::new(".mortar/limbo"));
    if limbo {
        report.add(
            seen.path,
            "a directory that lost its place",
            "look into it; it is moved when its entry is",
        );
    }
    if let Some(other) = objects.get(&tag.fid) {
        if other.ino != seen.stat.ino {
            let text =
                format!("it has the same fid {} as {}, and is another file", tag.fid, other.path.display());
            report.add(seen.path, text, "remove the wrong one of the two, or wipe the brick and let it heal");
        }
        return Ok(());
    }
    match kind {
        S_IFDIR => report.directories += 1,
        _ => report.files += 1,
    }
    report.orphans += u64::from(seen.path.starts_with(".mortar/orphans"));
    let at = Located { handle: Handle::of(seen.dir, seen.name)?, kind };
    objects.insert(tag.fid, Object { ino: seen.stat.ino, path: seen.path.to_path_buf(), at });
    Ok(())
}

/// Compares the index with the tree. On a brick that was not closed in order it may lag behind: opening mends that.
fn check_index(
    path: &Path,
    identity: &Identity,
    root: &Opened,
    (clean, repair): (bool, bool),
    objects: &HashMap<Fid, Object>,
    report: &mut Report,
) -> Result<(), OpenError> {
    let file = own(path).join("index.redb");
    let shown = ".mortar/index.redb";
    let failed = |why: String| OpenError::Index { file: file.clone(), why };
    let before = report.problems.len();
    let remedy = if repair { "" } else { "opening the brick rebuilds it" };
    if !file.exists() {
        if report.last > Lsn(0) {
            report.add(shown, "the index is missing", remedy);
        }
    } else {
        let (index, position) = Index::open(&file, identity.brick).map_err(failed)?;
        if position.is_none() && report.last > Lsn(0) && clean {
            report.add(shown, "the index was not readable", remedy);
        } else if clean {
            let remedy = if repair { "" } else { REPAIR };
            compare(&index, objects, remedy, report).map_err(|e| failed(e.to_string()))?;
        }
    }
    if repair && report.problems.len() > before {
        if file.exists() {
            std::fs::remove_file(&file).map_err(|e| failed(e.to_string()))?;
        }
        let (mut index, _) = Index::open(&file, identity.brick).map_err(failed)?;
        scan_into(&mut index, &root.fd).map_err(|e| failed(e.to_string()))?;
        index.seal(report.last).commit(report.last).map_err(|e| failed(e.to_string()))?;
    }
    Ok(())
}

fn compare(
    index: &Index,
    objects: &HashMap<Fid, Object>,
    remedy: &'static str,
    report: &mut Report,
) -> Result<(), Errno> {
    let known: HashMap<Fid, Option<Located>> = index.all()?.into_iter().collect();
    let mut lines: Vec<(PathBuf, String)> = Vec::new();
    for (fid, o) in objects {
        match known.get(fid) {
            None | Some(None) => {
                lines.push((o.path.clone(), format!("the index does not know its fid {fid}")))
            }
            Some(Some(at)) if *at != o.at => {
                lines.push((o.path.clone(), format!("the index leads fid {fid} elsewhere")));
            }
            Some(_) => {}
        }
    }
    for fid in known.keys().filter(|f| !objects.contains_key(f)) {
        lines.push((PathBuf::from(".mortar/index.redb"), format!("fid {fid} leads nowhere")));
    }
    lines.sort();
    for (path, text) in lines {
        report.add(path, text, remedy);
    }
    Ok(())
}
