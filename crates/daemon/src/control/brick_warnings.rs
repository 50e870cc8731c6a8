//! What speaks against a directory as a brick although it can be one.

use rustix::fs::StatFs;
use std::path::Path;

/// What statfs(2) calls file systems in memory, and what people call them.
const IN_MEMORY: [(u64, &str); 2] = [(0x0102_1994, "tmpfs"), (0x8584_58f6, "ramfs")];

/// The name of a file system that is in memory; `None`: it is on a disk.
pub(super) fn memory_file_system(s: &StatFs) -> Option<&'static str> {
    let number = u64::try_from(s.f_type).ok()?;
    IN_MEMORY.iter().find(|(n, _)| *n == number).map(|(_, name)| *name)
}

/// A line for each, for people, which goes on after the brick's name.
pub(super) fn warnings(path: &Path) -> Vec<String> {
    // A directory that does not exist yet will be on the file system of the one above it.
    let there = path.ancestors().find(|p| p.exists()).unwrap_or(path);
    let is_top = |p: &Path| brick::mount_point(p).is_ok_and(|top| p.canonicalize().is_ok_and(|p| p == top));
    let in_memory = rustix::fs::statfs(there).ok().and_then(|s| memory_file_system(&s));
    if let Some(name) = in_memory {
        vec![format!("is in memory ({name}): all it holds is lost when the machine restarts")]
    } else if there == path && is_top(path) {
        let why = "is the top of a file system: if that is not mounted one day an empty directory is there in its \
                   place; a directory in it is safer";
        vec![why.to_owned()]
    } else {
        vec![]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_or_may_be_missing_is_said() {
        // A file system of its own on each machine, and none of a disk.
        let top = warnings(Path::new("/proc"));
        assert!(top.len() == 1 && top[0].contains("is the top of a file system"), "{top:?}");
        let within = warnings(Path::new("/proc/self"));
        assert!(within.is_empty(), "{within:?}");
        let memory = warnings(Path::new("/dev/shm/no/such/brick"));
        assert!(memory.len() == 1 && memory[0].starts_with("is in memory (tmpfs)"), "{memory:?}");
    }
}
