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

/// The numbers of the capabilities that a server keeps: chown, dac_override, dac_read_search, fowner, fsetid,
/// net_bind_service, sys_admin, sys_resource, mknod, setfcap.
const KEPT: [u32; 10] = [0, 1, 2, 3, 4, 10, 21, 24, 27, 31];

#[test]
fn privilege_a_server_keeps_what_bricks_need() {
    let pool = Pool::new(1);
    pool.volume("v", 1, &[(0, "b")]);
    let kept: u64 = KEPT.iter().map(|n| 1 << n).sum();
    let tasks = fs::read_dir(format!("/proc/{}/task", pool.servers[0].pid())).unwrap();
    for task in tasks {
        let status = fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let field = |name: &str| {
            let line = status.lines().find_map(|l| l.strip_prefix(name)).unwrap();
            u64::from_str_radix(line.trim(), 16).unwrap()
        };
        assert_eq!(field("CapEff:") & !kept, 0, "{status}");
        assert_eq!((field("CapPrm:") & !kept, field("CapInh:"), field("NoNewPrivs:")), (0, 0, 1), "{status}");
    }
    let mount = pool.mount("v");
    let line = format!(
        "cd {} && mknod null c 1 3 && touch f && chown 1001:1002 f && chmod 6711 f && \
         mkdir -m 0700 d && chown 1001:1002 d && touch d/g && chown 1003 d/g && ln d/g d/h && rm d/g",
        mount.dir.display()
    );
    let mut shell = Command::new("sh");
    shell.args(["-c", &line]);
    run(shell).ok();
    rustix::fs::setxattr(mount.path("f"), "trusted.a", b"1", rustix::fs::XattrFlags::empty()).unwrap();
    assert_eq!(mode(&pool.servers[0].path("b/f")), 0o6711);
    mount.end();
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
