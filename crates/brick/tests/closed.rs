//! A brick's directory is closed to all but root, and users of the volume see the owner and the mode that it has for them.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::*;
use brick::Brick;
use ids::Fid;
use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use wire::Op;
use wire::op::SetAttr;

const CLOSED: (u32, u32, u32) = (0o700, 0, 0);
const NOTE: &str = "trusted.mortar.top";

/// Mode, owner and group on disk.
fn on_disk(path: &Path) -> (u32, u32, u32) {
    let m = fs::metadata(path).unwrap();
    (m.mode() & 0o7777, m.uid(), m.gid())
}

/// The same as users of the volume see them.
fn seen(brick: &mut Brick, root: Fid) -> (u32, u32, u32) {
    let a = brick.attr_of_any(root).unwrap();
    (a.mode & 0o7777, a.uid, a.gid)
}

fn set(bricks: &mut Set, root: Fid, attr: SetAttr) {
    bricks.run(&Op::SetAttr { fid: root, set: attr }, b"").unwrap();
}

fn is_readable_by_nobody(path: &Path) -> bool {
    Command::new("cat").arg(path).uid(65534).gid(65534).output().unwrap().status.success()
}

#[test]
fn users_of_the_machine_do_not_get_in() {
    let t = temp();
    fs::set_permissions(t.path(), Permissions::from_mode(0o755)).unwrap();
    let (path, id) = (t.path().join("b1"), identity(1));
    let mut bricks = Set::new(vec![new_brick(t.path(), 1)]);
    let file = bricks.file(id.root, "file");
    bricks.write(file, 0, b"data");
    assert_eq!(on_disk(&path), CLOSED);
    assert!(!is_readable_by_nobody(&path.join("file")), "by a file that all may read");
    assert_eq!(seen(&mut bricks.bricks[0], id.root), (0o755, 0, 0));

    set(&mut bricks, id.root, SetAttr { mode: Some(0o1777), ..set_attr() });
    set(&mut bricks, id.root, SetAttr { uid: Some(1000), gid: Some(1001), ..set_attr() });
    assert_eq!(seen(&mut bricks.bricks[0], id.root), (0o1777, 1000, 1001));
    assert_eq!(on_disk(&path), CLOSED);

    bricks.bricks.pop().unwrap().close().unwrap();
    assert_eq!(seen(&mut open(&path, &id), id.root), (0o1777, 1000, 1001), "opened again");
    brick::release(&path, &id).unwrap();
    assert_eq!(on_disk(&path), (0o1777, 1000, 1001), "a directory as it was for users");
    let mut value = [0; 64];
    assert!(rustix::fs::lgetxattr(&path, NOTE, &mut value[..]).is_err());
}

#[test]
fn a_brick_of_before_is_closed() {
    let t = temp();
    let (path, id) = (t.path().join("b1"), identity(1));
    new_brick(t.path(), 1).close().unwrap();
    // As earlier versions made it.
    rustix::fs::removexattr(&path, NOTE).unwrap();
    chown(&path, Some(5), Some(6)).unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o2775)).unwrap();
    let mut brick = open(&path, &id);
    assert_eq!((on_disk(&path), seen(&mut brick, id.root)), (CLOSED, (0o2775, 5, 6)));
    brick.close().unwrap();
    // Somebody opens it behind our back.
    fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
    let mut brick = open(&path, &id);
    assert_eq!((on_disk(&path), seen(&mut brick, id.root)), (CLOSED, (0o2775, 5, 6)));
    assert!(brick.stale_set().is_none());
}

/// The damage is that of a disk: what users saw is nowhere on this brick.
#[test]
fn a_damaged_note_is_healed() {
    let t = temp();
    let (path, id) = (t.path().join("b1"), identity(1));
    new_brick(t.path(), 1).close().unwrap();
    rustix::fs::setxattr(&path, NOTE, b"\x01junk", rustix::fs::XattrFlags::empty()).unwrap();
    let mut brick = open(&path, &id);
    assert_eq!(seen(&mut brick, id.root), CLOSED, "nobody gets in meanwhile");
    assert!(brick.stale_set().is_some_and(|stale| stale.objects.contains(&id.root)));
}

/// `setfacl -m u:1000:rwx,m::rx` and `chmod` of the volume's top directory.
#[test]
fn an_access_list_of_the_top_directory() {
    const LIST: &str = "system.posix_acl_access";
    let t = temp();
    let (path, id) = (t.path().join("b1"), identity(1));
    let mut bricks = Set::new(vec![new_brick(t.path(), 1)]);
    let entry = |tag: u16, bits: u16, of: u32| {
        [&tag.to_le_bytes()[..], &bits.to_le_bytes(), &of.to_le_bytes()].concat()
    };
    let list = |mask| {
        let all = u32::MAX;
        let parts = [entry(1, 7, all), entry(2, 7, 1000), entry(4, 5, all), entry(16, mask, all)];
        [&2u32.to_le_bytes()[..], &parts.concat(), &entry(32, 1, all)].concat()
    };
    let op = Op::SetXattr { fid: id.root, name: name(LIST), flags: 0 };
    bricks.run(&op, &list(5)).unwrap();
    assert_eq!(seen(&mut bricks.bricks[0], id.root), (0o751, 0, 0));
    assert_eq!(bricks.bricks[0].getxattr(id.root, &name(LIST)).unwrap(), Some(list(5)));
    assert_eq!(on_disk(&path), CLOSED);
    set(&mut bricks, id.root, SetAttr { mode: Some(0o771), ..set_attr() });
    assert_eq!(
        bricks.bricks[0].getxattr(id.root, &name(LIST)).unwrap(),
        Some(list(7)),
        "the mask is the group's bits"
    );
    assert_eq!(on_disk(&path), CLOSED);
    bricks.bricks.pop().unwrap().close().unwrap();
    brick::release(&path, &id).unwrap();
    let mut value = [0; 256];
    let n = rustix::fs::lgetxattr(&path, LIST, &mut value[..]).unwrap();
    assert_eq!(value[..n], list(7), "the kernel's own");
}
