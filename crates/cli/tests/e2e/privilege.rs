//! What other users of a machine can read, and what a mount keeps of the shell that started it.

use crate::harness::{Pool, is_mounted, mortar, run};
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// The permissions of everything beneath a folder that gives others any.
fn open_to_others(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap().map(|e| e.unwrap().path());
    let of_each = entries.flat_map(|path| {
        let own = (mode(&path) & 0o077 != 0).then(|| format!("{}: {:o}", path.display(), mode(&path)));
        let inside = if path.is_dir() { open_to_others(&path) } else { Vec::new() };
        own.into_iter().chain(inside)
    });
    of_each.collect()
}

#[test]
fn privilege_state_is_closed_to_others() {
    let pool = Pool::new(2);
    pool.volume("v", 2, &[(0, "b"), (1, "b")]);
    for server in &pool.servers {
        assert_eq!(mode(&server.state()), 0o700);
        assert_eq!(open_to_others(&server.state()), Vec::<String>::new());
        assert_eq!(mode(&server.path("b/.mortar")), 0o700);
        assert_eq!(open_to_others(&server.path("b/.mortar")), Vec::<String>::new());
    }
}

/// Unmounts whatever happens.
struct Unmount<'a>(&'a Path);

impl Drop for Unmount<'_> {
    fn drop(&mut self) {
        let _done = Command::new("umount").arg(self.0).status();
    }
}

#[test]
fn privilege_a_mount_keeps_nothing_of_the_shell() {
    let pool = Pool::new(1);
    pool.volume("v", 1, &[(0, "b")]);
    let (dir, lock) = (pool.dir.join("background"), pool.dir.join("lock"));
    fs::create_dir(&dir).unwrap();
    let program = mortar().get_program().to_owned();
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec 9>\"$1\"; flock 9; exec \"$2\" mount \"$3\" \"$4\"", "sh"]);
    shell.arg(&lock).arg(program).arg(pool.source("v")).arg(&dir);
    let unmount = Unmount(&dir);
    run(shell).ok();
    assert!(is_mounted(&dir));
    let lock = File::open(&lock).unwrap();
    lock.try_lock().expect("the lock went with the shell");
    drop(unmount);
    assert!(!is_mounted(&dir));
}
