//! What can and cannot be made a brick.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::*;
use brick::{FormatError, format};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Something mounted, unmounted at the end come what may.
struct Mounted(PathBuf);

impl Mounted {
    fn new(at: &Path, args: &[&str]) -> Option<Mounted> {
        std::fs::create_dir_all(at).unwrap();
        let done = Command::new("mount").args(args).arg(at).output().unwrap().status.success();
        done.then(|| Mounted(at.to_path_buf()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(&self.0).status();
    }
}

#[test]
fn refusals_are_one_clear_line() {
    let t = temp();
    let id = identity(1);
    let at = |p: &str| t.path().join(p);
    format(&at("b"), &id, ids::Time::default()).unwrap();
    let refuse = |p: &str| {
        let e = format(&at(p), &id, ids::Time::default()).unwrap_err();
        assert_eq!(e.to_string().lines().count(), 1);
        e
    };
    assert!(matches!(refuse("no/such"), FormatError::NoParent { .. }));
    assert!(refuse("b").to_string().ends_with("is already brick 1 of volume home"));
    assert!(matches!(refuse("b/in"), FormatError::Inside { .. }));
    std::fs::create_dir_all(at("b/deep/er")).unwrap();
    assert!(matches!(refuse("b/deep/er/in"), FormatError::Inside { .. }));
    std::fs::write(at("file"), b"").unwrap();
    assert!(matches!(refuse("file"), FormatError::NotDirectory { .. }));
    std::fs::create_dir(at("outer")).unwrap();
    format(&at("outer/b"), &id, ids::Time::default()).unwrap();
    assert!(matches!(refuse("outer"), FormatError::Around { .. }));
    std::fs::create_dir_all(at("full/x")).unwrap();
    assert!(matches!(refuse("full"), FormatError::NotEmpty { .. }));
    std::fs::create_dir_all(at("damaged/.mortar")).unwrap();
    std::fs::write(at("damaged/.mortar/identity"), b"junk").unwrap();
    assert!(matches!(refuse("damaged"), FormatError::Leftover { .. }));
    assert_eq!(brick::read_identity(&at("b")).unwrap().unwrap(), id);
}

#[test]
fn unsuitable_file_systems() {
    let t = temp();
    let ro = t.path().join("ro");
    std::fs::create_dir(&ro).unwrap();
    let bind = t.path().to_str().unwrap().to_owned();
    if let Some(m) = Mounted::new(&ro, &["--bind", "-o", "ro", &bind]) {
        let e = format(&m.0.join("b"), &identity(1), ids::Time::default()).unwrap_err();
        assert!(matches!(e, FormatError::ReadOnly { .. }), "{e}");
    }
    if let Some(m) = Mounted::new(&t.path().join("ram"), &["-t", "ramfs", "none"]) {
        let e = format(&m.0.join("b"), &identity(1), ids::Time::default()).unwrap_err();
        assert!(matches!(e, FormatError::Unsuitable { .. }), "{e}");
        assert!(matches!(
            format(&m.0, &identity(1), ids::Time::default()).unwrap_err(),
            FormatError::Unsuitable { .. }
        ));
    }
}

#[test]
fn a_full_file_system_answers_enospc() {
    let t = temp();
    let image = t.path().join("image");
    std::fs::File::create(&image).unwrap().set_len(32 << 20).unwrap();
    let made = Command::new("mkfs.ext4").arg("-q").arg(&image).output().unwrap().status.success();
    let Some(m) =
        made.then(|| Mounted::new(&t.path().join("m"), &["-o", "loop", image.to_str().unwrap()])).flatten()
    else {
        return;
    };
    let path = m.0.clone();
    format(&path, &identity(1), ids::Time::default()).unwrap();
    let mut s = Set::new(vec![open(&path, &identity(1))]);
    let f = s.file(ROOT, "f");
    let mut last = Ok(None);
    let mut lsn = s.bricks[0].last();
    for n in 0..64u64 {
        lsn = s.bricks[0].last();
        let op = wire::Op::Write { fid: f, offset: n << 20, append: false, kill_suid: false };
        last = s.run(&op, &vec![1; 1 << 20]);
        if last.is_err() {
            break;
        }
    }
    assert_eq!(last, Err(wire::Errno::ENOSPC));
    assert_eq!(s.bricks[0].last(), lsn, "what failed is not in the journal");
    drop(s);
}

/// What an interrupted command made goes; nothing that anybody had opened, put a file into, or has.
#[test]
fn a_brick_that_was_never_opened_is_taken_apart() {
    let t = temp();
    let at = t.path().join("b");
    format(&at, &identity(1), ids::Time::default()).unwrap();
    assert!(!brick::clear_unused(&at, |_| false), "somebody has it");
    assert!(brick::clear_unused(&at, |i| *i == identity(1)));
    format(&at, &identity(2), ids::Time::default()).unwrap();
    std::fs::write(at.join("file"), b"").unwrap();
    assert!(!brick::clear_unused(&at, |_| true));
    std::fs::remove_file(at.join("file")).unwrap();
    for data in
        [".mortar/journal/1.seg", ".mortar/orphans/1", ".mortar/aside/1", ".mortar/limbo/1", ".mortar/state"]
    {
        std::fs::write(at.join(data), b"x").unwrap();
        assert!(!brick::clear_unused(&at, |_| true), "{data}");
        assert_eq!(brick::read_identity(&at).unwrap(), Some(identity(2)));
        std::fs::remove_file(at.join(data)).unwrap();
    }
    drop(brick::Brick::open(&at, &identity(2), brick::Options::default()).unwrap());
    assert!(!brick::clear_unused(&at, |_| true), "it was opened");
    assert!(!brick::clear_unused(&t.path().join("none"), |_| true));
    assert!(!brick::clear_unused(t.path(), |_| true), "no brick");
}
