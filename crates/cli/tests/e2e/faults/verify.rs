//! After a fault: everything acknowledged is there, and the bricks of each set are the same.

use super::writer::Model;
use crate::harness::files::Seen;
use crate::harness::{Pool, eventually_ok, files};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What must be there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kept {
    /// All that was acknowledged.
    All,
    /// After a power cut: what was synced.
    Synced,
}

/// Waits until all bricks are in sync, by themselves.
pub(crate) fn all_in_sync(pool: &Pool) {
    eventually_ok("all bricks are in sync", || {
        let status = pool.cli("volume status v --json");
        let status: serde_json::Value =
            serde_json::from_str(&status.stdout).map_err(|e| format!("{e}: {status:?}"))?;
        let bricks = status[0]["bricks"].as_array().ok_or("no bricks")?;
        let fine = bricks.iter().all(|b| b["in_sync"] == true && b["online"] == true);
        let led = bricks.iter().filter(|b| b["role"] == "primary").count();
        if fine && led > 0 { Ok(()) } else { Err(status.to_string()) }
    });
}

/// Looks at everything through a mount of its own, then at the bricks.
pub(super) fn verify(pool: &Pool, bricks: &[(usize, &str)], replica: usize, model: &Model, kept: Kept) {
    all_in_sync(pool);
    let mount = pool.mount("v");
    let mut wrong = Vec::new();
    let mut looked = 0;
    for (path, known) in model.files.iter().filter(|(_, k)| kept == Kept::All || k.synced) {
        looked += 1;
        wrong.extend(known.differs(&mount.dir.join(path)));
    }
    for path in model.gone.iter().filter(|p| kept == Kept::All && !model.uncertain.contains(*p)) {
        if mount.dir.join(path).symlink_metadata().is_ok() {
            wrong.push(format!("{} is back", path.display()));
        }
    }
    assert!(
        wrong.is_empty(),
        "{} of {looked} files are not as acknowledged:\n{}",
        wrong.len(),
        wrong.join("\n")
    );
    mount.end();
    println!(
        "{} operations, {looked} files as acknowledged, {} uncertain",
        model.done,
        model.uncertain.len()
    );
    for set in pool.paths(bricks).chunks(replica) {
        eventually_ok("the bricks of a set are the same", || same(set));
    }
}

fn same(set: &[PathBuf]) -> Result<(), String> {
    let first = &set[0];
    let trees: Vec<BTreeMap<PathBuf, (Seen, Vec<String>)>> =
        set.iter().map(|b| look(b)).collect::<Result<_, _>>()?;
    for (brick, tree) in set.iter().zip(&trees).skip(1) {
        let mut wrong = Vec::new();
        for (path, seen) in &trees[0] {
            match tree.get(path) {
                None => wrong.push(format!("{} is missing", path.display())),
                Some(other) if other != seen => {
                    wrong.push(format!("{}: {seen:?} and {other:?}", path.display()))
                }
                Some(_) => {}
            }
        }
        wrong.extend(
            tree.keys()
                .filter(|p| !trees[0].contains_key(*p))
                .map(|p| format!("{} is too much", p.display())),
        );
        if !wrong.is_empty() {
            wrong.truncate(20);
            return Err(format!("{} against {}:\n{}", brick.display(), first.display(), wrong.join("\n")));
        }
    }
    Ok(())
}

/// A brick's tree with its extended attributes, Mortar's own left out.
fn look(brick: &Path) -> Result<BTreeMap<PathBuf, (Seen, Vec<String>)>, String> {
    let tree = files::brick_tree(brick);
    let with = |(path, seen): (PathBuf, Seen)| {
        let notes = xattrs(&brick.join(&path)).map_err(|e| format!("{}: {e}", path.display()))?;
        Ok((path, (seen, notes)))
    };
    // The folder of mkfs, where a brick is a whole file system.
    tree.into_iter().filter(|(path, _)| path != Path::new("lost+found")).map(with).collect()
}

fn xattrs(path: &Path) -> rustix::io::Result<Vec<String>> {
    let mut names = vec![0; 4096];
    let n = rustix::fs::llistxattr(path, &mut names)?;
    let mut all = Vec::new();
    for name in names[..n].split(|b| *b == 0).filter(|n| !n.is_empty() && !n.starts_with(b"trusted.mortar."))
    {
        let mut value = vec![0; 4096];
        let len = rustix::fs::lgetxattr(path, name, &mut value)?;
        all.push(format!("{}={:?}", String::from_utf8_lossy(name), &value[..len]));
    }
    all.sort();
    Ok(all)
}
