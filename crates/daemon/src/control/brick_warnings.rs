//! What speaks against a directory as a brick although it can be one.

use std::path::Path;

/// The number by which the kernel calls tmpfs.
const TMPFS: i64 = 0x0102_1994;

/// A line for each, for people, which goes on after the brick's name.
pub(super) fn warnings(path: &Path) -> Vec<String> {
    // A directory that does not exist yet will be on the file system of the one above it.
    let there = path.ancestors().find(|p| p.exists()).unwrap_or(path);
    let is_top = |p: &Path| brick::mount_point(p).is_ok_and(|top| p.canonicalize().is_ok_and(|p| p == top));
    if rustix::fs::statfs(there).is_ok_and(|s| s.f_type == TMPFS) {
        vec!["is in memory (tmpfs): all it holds is lost when the machine restarts".to_owned()]
    } else if there == path && is_top(path) {
        let why = "is the top of a file system: if that is not mounted one day an empty directory is there in its \
                   place; a directory in it is safer";
        vec![why.to_owned()]
    } else {
        vec![]
    }
}
