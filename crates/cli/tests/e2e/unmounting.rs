//! Mounts that end while somebody uses them.

use crate::harness::{Pool, eventually, run};
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
