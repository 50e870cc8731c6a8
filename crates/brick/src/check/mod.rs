//! Checking a brick that is not in use: `mortar brick check PATH [--repair]`.
//!
//! Owns: what is looked at, and what is repaired. Only what can be derived from the rest of the brick is written again;
//! what is no longer certain of an object is recorded as stale (`.mortar/heal`), so that the brick heals it from its set
//! before it serves. Nothing of the users' is removed, except what a healing that has ended left in `.mortar/aside`.

mod index;
mod journal;
mod tree;

use crate::error::OpenError;
use crate::identity::{read_small, trace};
use crate::index::Index;
use crate::index_file::IndexFile;
use crate::object::OpenObject;
use crate::open::{Site, identify, lock, read_state};
use crate::stale::{StaleSet, add_stale, read_stale_set};
use disk_format::tag::Version;
use disk_format::{SealError, State, Tag};
use file_system::{FileSystem, Host};
use ids::{BrickId, Epoch, Fid, Lsn, SetId};
use journal::Trouble;
use std::fmt;
use std::path::{Path, PathBuf};
use wire::peer::Stamp;

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
        let path = if self.path.as_os_str().is_empty() { Path::new(".") } else { &self.path };
        write!(f, "{}: {}; {remedy}", path.display(), self.problem)
    }
}

/// What a repaired brick heals from its set before it serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ToHeal {
    /// So many objects.
    Objects(u64),
    /// Everything: its journal began anew.
    Everything,
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
    /// What the repair recorded as stale.
    pub to_heal: Option<ToHeal>,
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

const ADOPT: &str = "move it out of the brick, and copy it into the volume through a mount if it is wanted";
const REPAIR: &str = "repair with `mortar brick check PATH --repair`";
const WIPE: &str = "empty the brick's directory: it is filled again from its set";
const BY_SERVER: &str = "the server writes it again when it opens the brick";

/// The brick that is checked.
struct CheckedBrick<'a> {
    at: &'a Site,
    number: BrickId,
    root: Fid,
    root_home: SetId,
    /// `None` if its identity is lost.
    set: Option<SetId>,
    repair: bool,
    /// A healing is not finished.
    healing: bool,
    index: Option<&'a Index>,
}

impl CheckedBrick<'_> {
    /// What stands beside a problem that can be repaired.
    fn remedy(&self) -> &'static str {
        if self.repair { "" } else { REPAIR }
    }
}

/// Checks the brick at `path`, which must not be in use; with `repair` writes again what can be derived.
///
/// # Errors
/// Why it could not be checked at all.
pub fn check(path: &Path, repair: bool) -> Result<Report, OpenError> {
    check_on(&Host, path, repair)
}

/// Like [`check`], on any file system.
///
/// # Errors
/// As [`check`].
pub fn check_on(fs: &dyn FileSystem, path: &Path, repair: bool) -> Result<Report, OpenError> {
    let mut report = Report::default();
    let at = Site::open(fs, path)?;
    let mut brick = whose(&at, repair, &mut report)?;
    let _lock = lock(&at)?;
    let io = |errno| at.io("check", errno);
    brick.healing = read_stale_set(&at.meta).map_err(io)?.is_some();
    let mut stale_set = StaleSet { from: Lsn(u64::MAX), objects: vec![], versions_valid_to: Lsn(0) };
    let root = at.root.clone();
    check_root(&root, &brick, &mut report, &mut stale_set).map_err(io)?;

    let state = check_state(&at, &brick, &mut report)?;
    let mut newest =
        Stamp { epoch: state.durable.epoch.max(Epoch(1)), lsn: state.durable.lsn.max(state.flushed) };
    let trouble = journal::check(&at, brick.number, state.clean, (repair, &mut report), &mut newest)?;

    let file = IndexFile::new(path, at.meta.clone());
    let failed = |why: String| OpenError::Index { file: file.path().to_path_buf(), why };
    let open = |_| Index::open(file.clone(), brick.number).map_err(failed);
    let mut index = file.exists().then_some(()).map(open).transpose()?;
    brick.index = index.as_ref().filter(|(_, position)| position.is_some()).map(|(index, _)| index);

    let mut tree = tree::check(&root, &brick, &mut report, &mut newest).map_err(io)?;
    let partial = tree.is_partial();
    tree.repair(&root, &brick, (&mut report, &mut stale_set)).map_err(io)?;
    if partial && repair {
        // Directories that have their tags again were not looked into before.
        tree = look_again(&root, &brick, &mut report, &mut newest, &mut stale_set).map_err(io)?;
    }
    if !partial || repair {
        tree.check_links(&mut report);
    }
    let position = index.as_ref().map(|(_, position)| *position);
    let compared = index::check(&brick, position, (state.clean, partial && !repair), &tree, &mut report);
    let index::Compared { wrong, lost } = compared.map_err(|e| failed(e.to_string()))?;
    if lost {
        // In which directories it was only the set's other bricks know. What is there is what its tag says.
        (stale_set.from, stale_set.versions_valid_to) = (Lsn(0), newest.lsn);
    }
    if !repair {
        return Ok(report);
    }
    let last = end_of_journal(&at, &brick, (trouble, newest), (&mut report, &mut stale_set))?;
    if !stale_set.objects.is_empty() || stale_set.from < last {
        put_down(&brick, &tree, last, stale_set, &mut report).map_err(io)?;
    }
    if wrong || trouble_in(&report) {
        let number = brick.number;
        drop(index.take());
        index::rebuild(&file, number, &root, last).map_err(failed)?;
    }
    root.sync_all().map_err(io)?;
    Ok(report)
}

/// Whether anything was repaired that the index may know otherwise.
fn trouble_in(report: &Report) -> bool {
    report.problems.iter().any(|p| p.remedy.is_empty())
}

/// Whose the brick is; without a readable identity, as far as its journal and its top directory tell.
fn whose<'a>(at: &'a Site, repair: bool, report: &mut Report) -> Result<CheckedBrick<'a>, OpenError> {
    let brick = |number, root, root_home, set| CheckedBrick {
        at,
        number,
        root,
        root_home,
        set,
        repair,
        healing: false,
        index: None,
    };
    match identify(at) {
        Ok(i) => Ok(brick(i.brick, i.root, i.root_home, Some(i.set))),
        Err(e @ OpenError::Sealed { source: SealError::Newer { .. }, .. }) => Err(e),
        Err(e @ (OpenError::Sealed { .. } | OpenError::NotBrick { .. })) => {
            let Some((number, tag)) = trace(at) else { return Err(e) };
            let why = match e {
                OpenError::Sealed { source, .. } => source.to_string(),
                _ => "it is missing".to_owned(),
            };
            let text = format!("{why}; by its journal this is brick {number}");
            report.add(".mortar/identity", text, BY_SERVER);
            Ok(brick(number, tag.fid, tag.home, None))
        }
        Err(e) => Err(e),
    }
}

fn check_root(
    root: &OpenObject,
    brick: &CheckedBrick<'_>,
    report: &mut Report,
    stale_set: &mut StaleSet,
) -> Result<(), wire::Errno> {
    let text = match root.tag() {
        Ok(Some(t)) if t.fid == brick.root && t.home == brick.root_home => return Ok(()),
        Ok(Some(t)) if t.fid == brick.root => {
            format!("the top directory's tag names set {}, not {}", t.home, brick.root_home)
        }
        Ok(Some(t)) => format!("the top directory's tag names {}, not {}", t.fid, brick.root),
        Ok(None) => "the top directory has no tag".to_owned(),
        Err(_) => "the top directory's tag is damaged".to_owned(),
    };
    report.add("", text, brick.remedy());
    if brick.repair {
        let mtime = root.stat()?.mtime;
        let version = Version::default();
        let (fid, home) = (brick.root, brick.root_home);
        root.set_tag(&Tag { flags: 0, fid, home, version, ctime: mtime, atime: mtime })?;
        stale_set.objects.push(fid);
    }
    Ok(())
}

fn check_state(at: &Site, brick: &CheckedBrick<'_>, report: &mut Report) -> Result<State, OpenError> {
    if let Ok(Some(bytes)) = read_small(&at.meta, b"state")
        && let Err(e) = State::decode(&bytes)
        && !matches!(e, SealError::Newer { .. })
    {
        let text = format!("{e}: nothing counts as on disk for certain");
        report.add(".mortar/state", text, brick.remedy());
        if brick.repair {
            let state = read_state(at)?;
            write_state(at, &state)?;
        }
    }
    read_state(at)
}

fn write_state(at: &Site, state: &State) -> Result<(), OpenError> {
    let bytes = state.encode();
    crate::identity::write_durably(&at.meta, b"state", &bytes).map_err(|e| at.io("write the state of", e))
}

/// The tree once more: counts and problems that are new.
fn look_again(
    root: &OpenObject,
    brick: &CheckedBrick<'_>,
    report: &mut Report,
    newest: &mut Stamp,
    stale_set: &mut StaleSet,
) -> Result<tree::Tree, wire::Errno> {
    let mut second = Report::default();
    let mut tree = tree::check(root, brick, &mut second, newest)?;
    tree.repair(root, brick, (&mut second, stale_set))?;
    (report.files, report.directories, report.orphans) = (second.files, second.directories, second.orphans);
    for p in second.problems {
        if !report.problems.iter().any(|known| known.path == p.path) {
            report.problems.push(p);
        }
    }
    Ok(tree)
}

/// Repairs the journal. Answers its last position.
fn end_of_journal(
    at: &Site,
    brick: &CheckedBrick<'_>,
    (trouble, newest): (Option<Trouble>, Stamp),
    (report, stale_set): (&mut Report, &mut StaleSet),
) -> Result<Lsn, OpenError> {
    match trouble {
        None => Ok(report.last),
        Some(Trouble::Torn { segment, at: end }) => {
            journal::cut(at, &segment, end)?;
            Ok(report.last)
        }
        Some(Trouble::Damaged) => {
            // What the tree holds more than its tags say can no longer be told.
            (stale_set.from, stale_set.versions_valid_to) = (Lsn(0), Lsn(0));
            journal::begin_anew(at, brick.number, &newest)?;
            let boot = at.root.boot_id();
            let (durable, flushed) = (newest.clone(), newest.lsn);
            write_state(at, &State { boot, durable, flushed, clean: false })?;
            (report.records, report.last) = (0, newest.lsn);
            Ok(newest.lsn)
        }
    }
}

/// Records what is stale.
fn put_down(
    brick: &CheckedBrick<'_>,
    tree: &tree::Tree,
    last: Lsn,
    mut stale_set: StaleSet,
    report: &mut Report,
) -> Result<(), wire::Errno> {
    if stale_set.from < last {
        stale_set.objects = tree.objects.keys().copied().chain([brick.root]).collect();
        report.to_heal = Some(ToHeal::Everything);
    } else {
        (stale_set.from, stale_set.versions_valid_to) = (last, last);
        stale_set.objects.sort_unstable();
        stale_set.objects.dedup();
        report.to_heal = Some(ToHeal::Objects(stale_set.objects.len() as u64));
    }
    add_stale(&brick.at.meta, stale_set)
}
