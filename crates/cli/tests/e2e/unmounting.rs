//! Mounts that end while somebody uses them.

use crate::harness::{Mounted, Pool, eventually, is_mounted, run};
use std::fs::{self, File};
use std::io::Read;
use std::process::{Child, Command};

const ENOTCONN: i32 = 107;

#[test]
fn a_mount_with_an_open_file_ends() {
    let pool = Pool::new(1);
    pool.volume("v", 1, &[(0, "b")]);
    let mount = pool.mount("v");
    fs::write(mount.path("file"), "x").unwrap();
    let mut open = File::open(mount.path("file")).unwrap();
    mount.end();
    assert_eq!(open.read(&mut [0; 1]).unwrap_err().raw_os_error(), Some(ENOTCONN));
}

/// Ends a program with its test.
struct Program(Child);

impl Drop for Program {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

/// A container that was started while the volume was mounted, for one, has the mount too, and unmounting does not reach it.
#[test]
fn a_mount_that_another_namespace_has_too_ends() {
    let pool = Pool::new(1);
    pool.volume("v", 1, &[(0, "b")]);
    let mount = pool.mount("v");
    let mut container = Command::new("unshare");
    container.args(["--mount", "--propagation", "private", "sleep", "1000"]);
    let container = Program(container.spawn().unwrap());
    let pid = container.0.id();
    eventually("the container runs", || {
        fs::read_to_string(format!("/proc/{pid}/comm")).unwrap().starts_with("sleep").then_some(())
    });
    let inside = |program: &str| {
        let mut command = Command::new("nsenter");
        command.args(["--mount", "--target", &pid.to_string(), program]).arg(&mount.dir);
        command
    };
    run(inside("ls")).ok();
    let after = inside("ls");
    mount.end();
    let refused = run(after).stderr;
    assert!(refused.contains("not connected"), "{refused}");
}

/// umount(8) looks at the root and at the room first. What it is told is what was seen last.
#[test]
fn a_mount_whose_servers_are_away_is_unmounted() {
    let mut pool = Pool::new(2);
    pool.volume("v", 2, &[(0, "b"), (1, "b")]);
    let [mount, fresh] = ["v", "v"].map(|v| pool.mount(v));
    fs::write(mount.path("file"), "x").unwrap();
    let df = |mount: &Mounted| {
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", "40", "stat", "-f", "-c", "%b"]).arg(&mount.dir);
        run(command).ok()
    };
    let room = df(&mount);
    pool.kill(0);
    pool.kill(1);
    assert_eq!(df(&mount), room);
    for mount in [&mount, &fresh] {
        let mut command = Command::new("timeout");
        command.args(["-s", "KILL", "60", "umount"]).arg(&mount.dir);
        run(command).ok();
        assert!(!is_mounted(&mount.dir));
    }
    assert!(mount.log().contains("nobody answers about the root"), "{}", mount.log());
}
