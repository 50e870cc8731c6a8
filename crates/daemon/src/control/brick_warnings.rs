//! What speaks against a directory as a brick although it can be one.

use rustix::fs::StatFs;
use std::path::{Path, PathBuf};

/// What statfs(2) calls file systems in memory, and what people call them.
const IN_MEMORY: [(u64, &str); 2] = [(0x0102_1994, "tmpfs"), (0x8584_58f6, "ramfs")];

/// The name of a file system that is in memory; `None`: it is on a disk.
pub(super) fn memory_file_system(s: &StatFs) -> Option<&'static str> {
    let number = u64::try_from(s.f_type).ok()?;
    IN_MEMORY.iter().find(|(n, _)| *n == number).map(|(_, name)| *name)
}

/// Whether a brick there would have nothing in common with the server's state folder, which has its keys.
///
/// # Errors
/// One line that names both.
pub(super) fn apart_from(path: &Path, state_folder: &Path) -> Result<(), String> {
    let (brick, folder) = (real(path), real(state_folder));
    if brick.starts_with(&folder) || folder.starts_with(&brick) {
        let (path, folder) = (path.display(), folder.display());
        return Err(format!(
            "{path} lies inside or around the server's state folder {folder}: choose a directory apart from it"
        ));
    }
    Ok(())
}

/// Without symbolic links, as far as it exists.
fn real(path: &Path) -> PathBuf {
    let there = path.ancestors().find_map(|p| Some((p, p.canonicalize().ok()?)));
    let Some((p, real)) = there else { return path.to_owned() };
    match path.strip_prefix(p) {
        Ok(rest) if !rest.as_os_str().is_empty() => real.join(rest),
        _ => real,
    }
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
    fn a_brick_has_nothing_in_common_with_the_state_folder() {
        let dir = std::env::temp_dir().join(format!("mortar-apart-{}", std::process::id()));
        let state = dir.join("state");
        std::fs::create_dir_all(&state).unwrap();
        std::os::unix::fs::symlink(&state, dir.join("link")).unwrap();
        for bad in ["state", "state/keys", "state/new/brick", "link/brick", ""] {
            let why = apart_from(&dir.join(bad), &state).unwrap_err();
            let folder = state.canonicalize().unwrap();
            let words = format!("inside or around the server's state folder {}: ", folder.display());
            assert!(why.contains(&words), "{why}");
        }
        for good in ["state2", "brick", "brick/state"] {
            apart_from(&dir.join(good), &state).unwrap();
        }
        std::fs::remove_dir_all(&dir).unwrap();
    }

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
