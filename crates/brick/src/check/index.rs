//! The index against the tree. On a brick that was not closed in order it may lag behind: opening repairs that.

use super::tree::Tree;
use super::{CheckedBrick, REPAIR, Report};
use crate::index::{Index, Located};
use crate::index_file::IndexFile;
use crate::object::OpenObject;
use crate::recover::scan_into;
use ids::{BrickId, Fid, Lsn};
use std::collections::HashSet;
use std::path::PathBuf;
use wire::Errno;

const FILE: &str = ".mortar/index.redb";
/// Lines about single objects; the rest is only counted.
const LINES: usize = 50;

/// What the index says of the tree.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Compared {
    /// It is to be made anew.
    pub(super) wrong: bool,
    /// It knows objects that are not in the tree, as where somebody removed files from the brick.
    pub(super) lost: bool,
}

/// `position`: how far the index has come, if there is one.
pub(super) fn check(
    brick: &CheckedBrick<'_>,
    position: Option<Option<Lsn>>,
    (clean, partial): (bool, bool),
    tree: &Tree,
    report: &mut Report,
) -> Result<Compared, Errno> {
    let opening = if brick.repair { "" } else { "opening the brick rebuilds it" };
    let used = !tree.objects.is_empty();
    match position {
        None if used => report.add(FILE, "the index is missing", opening),
        Some(None) if clean && used => report.add(FILE, "the index was not readable", opening),
        Some(Some(_)) if clean => return compare(brick, partial, tree, report),
        _ => return Ok(Compared::default()),
    }
    Ok(Compared { wrong: true, lost: false })
}

fn compare(
    brick: &CheckedBrick<'_>,
    partial: bool,
    tree: &Tree,
    report: &mut Report,
) -> Result<Compared, Errno> {
    let Some(index) = brick.index else { return Ok(Compared::default()) };
    let mut lost = false;
    let mut fits: HashSet<Fid> = HashSet::with_capacity(tree.objects.len());
    let mut lines: Vec<(PathBuf, String)> = Vec::new();
    let mut more = 0u64;
    let mut add = |path: PathBuf, text: String| {
        if lines.len() < LINES { lines.push((path, text)) } else { more += 1 }
    };
    index.each(&mut |fid, at: Option<Located>| match tree.objects.get(&fid) {
        Some(o) if at == Some(o.at) => drop(fits.insert(fid)),
        Some(o) => {
            fits.insert(fid);
            add(o.path.clone(), format!("the index leads fid {fid} elsewhere"));
        }
        // What lies in a directory that was not looked into may well be there.
        None if partial => {}
        None => {
            lost = true;
            add(PathBuf::from(FILE), format!("fid {fid} leads nowhere: the brick has lost it"));
        }
    })?;
    for (fid, o) in tree.objects.iter().filter(|(fid, _)| !fits.contains(fid)) {
        add(o.path.clone(), format!("the index does not know its fid {fid}"));
    }
    let wrong = !lines.is_empty();
    lines.sort();
    let remedy = if brick.repair { "" } else { REPAIR };
    for (path, text) in lines {
        report.add(path, text, remedy);
    }
    if more > 0 {
        report.add(FILE, format!("{more} more objects that index and tree do not agree on"), remedy);
    }
    Ok(Compared { wrong, lost })
}

/// Makes the index anew from the tree.
pub(super) fn rebuild(file: &IndexFile, brick: BrickId, root: &OpenObject, last: Lsn) -> Result<(), String> {
    if file.exists() {
        file.remove().map_err(|e| e.to_string())?;
    }
    let (mut index, _) = Index::open(file.clone(), brick)?;
    scan_into(&mut index, root).map_err(|e| e.to_string())?;
    index.seal(last).commit(last).map_err(|e| e.to_string())
}
