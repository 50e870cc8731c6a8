//! What a user may do whose permissions the server checks, as tables: an operation, and what is answered.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use ids::{Epoch, Fid, Lsn, SessionId, SetId, Time};
use namespace::permission::{self, Refusal, shows_xattr, take_as};
use namespace::{Entry, Lineage, TreeState};
use wire::op::{Node, SetAttr, SetTime, rename_flags};
use wire::{Attr, Errno, Name, Op, User};

pub(crate) const SET: SetId = SetId(1);
pub(crate) const OTHER: SetId = SetId(2);
pub(crate) const ANN: User = User::of_one_group(1000, 100);
const NO: Result<(), Errno> = Err(Errno::EACCES);
const NEVER: Result<(), Errno> = Err(Errno::EPERM);
const YES: Result<(), Errno> = Ok(());

/// An object: its number, mode with the type, owner and group; its name in the directory of that number.
type Row = (u64, u32, u32, u32, (u64, &'static str));

pub(crate) const OWN: u64 = 1;
pub(crate) const OPEN: u64 = 2;
pub(crate) const SHUT: u64 = 3;
pub(crate) const STICKY: u64 = 4;
const BLIND: u64 = 5;
pub(crate) const LISTED: u64 = 6;
const THEIR_GROUP: u64 = 7;

/// Ann's folder, one that all write to, one of root's with mode 0755, one like /tmp, one that can be searched and not read, one
/// that can be read and not searched, and one with a group that new files get.
const ROWS: [Row; 21] = [
    (OWN, 0o040_755, 1000, 100, (0, "own")),
    (OPEN, 0o040_777, 0, 0, (0, "open")),
    (SHUT, 0o040_755, 0, 0, (0, "shut")),
    (STICKY, 0o041_777, 0, 0, (0, "sticky")),
    (BLIND, 0o040_711, 0, 0, (0, "blind")),
    (LISTED, 0o040_744, 0, 0, (0, "listed")),
    (THEIR_GROUP, 0o042_777, 0, 5, (0, "group")),
    (11, 0o100_600, 1000, 100, (OWN, "mine")),
    (12, 0o100_600, 0, 0, (OPEN, "secret")),
    (13, 0o100_644, 0, 0, (OPEN, "readable")),
    (14, 0o100_666, 0, 0, (OPEN, "all")),
    (15, 0o104_777, 0, 0, (OPEN, "setuid")),
    (16, 0o100_600, 1000, 100, (STICKY, "mine")),
    (17, 0o100_666, 0, 0, (STICKY, "theirs")),
    (18, 0o040_755, 0, 0, (OPEN, "dir")),
    (19, 0o040_755, 1000, 100, (OPEN, "my-dir")),
    (20, 0o100_060, 0, 100, (OPEN, "of-my-group")),
    (21, 0o100_000, 1000, 100, (OWN, "closed")),
    (22, 0o100_711, 0, 0, (OPEN, "program")),
    (23, 0o100_620, 0, 0, (OPEN, "listed-for-ann")),
    (24, 0o100_600, 0, 100, (SHUT, "there")),
];

pub(crate) const fn fid(n: u64) -> Fid {
    Fid { set: SET, epoch: Epoch(1), lsn: Lsn(n) }
}

pub(crate) const THEIRS: Fid = Fid { set: OTHER, epoch: Epoch(1), lsn: Lsn(1) };

pub(crate) fn name(s: &str) -> Name {
    Name::new(s.as_bytes()).unwrap()
}

pub(crate) struct Tree;

impl TreeState for Tree {
    /// A directory's folder of names is here like it.
    fn attr(&mut self, of: Fid) -> Result<Attr, Errno> {
        let found = ROWS.iter().find(|row| fid(row.0) == of.without_names()).ok_or(Errno::ESTALE)?;
        let (t, (_, mode, uid, gid, _)) = (Time::default(), *found);
        let (nlink, rdev, size, blocks) = (1, 0, 0, 0);
        Ok(Attr {
            fid: of,
            home: SET,
            mode,
            uid,
            gid,
            nlink,
            rdev,
            size,
            blocks,
            atime: t,
            mtime: t,
            ctime: t,
        })
    }
    /// Each directory that all write to has a directory of another set as well.
    fn entry(&mut self, parent: Fid, name: &Name) -> Result<Option<Entry>, Errno> {
        let parent = parent.without_names();
        if name.as_bytes() == b"elsewhere" {
            return Ok(Some(Entry { fid: THEIRS, home: OTHER, kind: 0o040_000 }));
        }
        let here = |row: &&Row| fid(row.4.0) == parent && row.4.1.as_bytes() == name.as_bytes();
        let found = ROWS.iter().find(here);
        Ok(found.map(|row| Entry { fid: fid(row.0), home: SET, kind: row.1 & 0o170_000 }))
    }
    fn is_empty(&mut self, _: Fid) -> Result<bool, Errno> {
        Ok(true)
    }
    fn is_pending(&mut self, _: Fid) -> Result<bool, Errno> {
        Ok(false)
    }
    fn intent(&mut self, _: Fid) -> Result<Option<wire::op::Intent>, Errno> {
        Ok(None)
    }
    fn stripes(&mut self, _: Fid) -> Result<Option<wire::stripes::Stripes>, Errno> {
        Ok(None)
    }
    fn piece_of(&mut self, _: Fid) -> Result<Option<wire::stripes::PieceOf>, Errno> {
        Ok(None)
    }
    fn taken(&mut self, _fid: Fid) -> Result<Option<wire::op::Taken>, Errno> {
        Ok(None)
    }

    fn leaving(&mut self, _: Fid) -> Result<Option<wire::op::Leaving>, Errno> {
        Ok(None)
    }
    fn successor(&mut self, _: Fid) -> Result<Option<wire::op::Successor>, Errno> {
        Ok(None)
    }
    fn names_of_copy(&mut self, _: Fid) -> Result<Vec<wire::op::EntryName>, Errno> {
        Ok(Vec::new())
    }
    fn has_default_acl(&mut self, _: Fid) -> Result<bool, Errno> {
        Ok(false)
    }
    fn xattr(&mut self, of: Fid, name: &Name) -> Result<Option<Vec<u8>>, Errno> {
        assert_eq!(name.as_bytes(), b"system.posix_acl_access");
        match of.lsn.0 {
            // user::rw-, user:1000:-w-, group::---, mask::-w-, other::---
            23 => {
                let entries = [(1, 6, 0), (2, 2, 1000), (4, 0, 0), (0x10, 2, 0), (0x20, 0, 0)];
                let bytes = |(tag, bits, id): (u16, u16, u32)| {
                    [&tag.to_le_bytes()[..], &bits.to_le_bytes(), &id.to_le_bytes()].concat()
                };
                Ok(Some([2u32.to_le_bytes().to_vec(), entries.map(bytes).concat()].concat()))
            }
            // The brick's file system has none.
            14 => Err(Errno::EOPNOTSUPP),
            _ => Ok(None),
        }
    }
    fn lineage(&mut self, _: Fid) -> Result<Lineage, Errno> {
        Ok(Lineage::default())
    }
}

/// What is answered if no other set is asked.
pub(crate) fn check(user: &User, op: &mut Op, set: SetId, state: &mut Tree) -> Result<(), Errno> {
    permission::check(user, op, set, state, &[]).map_err(|refusal| match refusal {
        Refusal::Errno(e) => e,
        Refusal::Ask(question) => question.otherwise,
    })
}

fn ask(op: &Op) -> (Result<(), Errno>, Op) {
    let mut op = op.clone();
    take_as(&ANN, &mut op);
    (check(&ANN, &mut op, SET, &mut Tree), op)
}

fn table(rows: &[(Op, Result<(), Errno>)]) {
    for (op, answer) in rows {
        assert_eq!(ask(op).0, *answer, "{op:?}");
    }
}

fn create(parent: u64, node: Node, mode: u32) -> Op {
    Op::Create { parent: fid(parent), name: name("new"), node, mode, umask: 0, uid: 0, gid: 0, open: false }
}

fn rename(from: (u64, &str), to: (u64, &str), flags: u32) -> Op {
    let (parent, to_parent) = (fid(from.0), fid(to.0));
    Op::Rename { parent, name: name(from.1), to_parent, to_name: name(to.1), flags }
}

#[test]
fn what_is_made_is_the_users_whoever_is_named() {
    let (answer, op) = ask(&create(OPEN, Node::File, 0o6755));
    assert_eq!(answer, YES);
    assert!(matches!(op, Op::Create { uid: 1000, gid: 100, mode: 0o6755, .. }), "setuid to himself: {op:?}");
    let (answer, op) = ask(&create(THEIR_GROUP, Node::File, 0o2755));
    assert_eq!(answer, YES);
    assert!(matches!(op, Op::Create { mode: 0o755, .. }), "no setgid to a group that is not his: {op:?}");
    table(&[
        (create(SHUT, Node::File, 0o644), NO),
        (create(LISTED, Node::File, 0o644), NO),
        (create(OPEN, Node::Fifo, 0o644), YES),
        (create(OPEN, Node::Char { rdev: 1 }, 0o644), NEVER),
        (create(OPEN, Node::Block { rdev: 1 }, 0o644), NEVER),
        // Which is refused as such.
        (
            Op::Create {
                parent: fid(SHUT),
                name: name("there"),
                node: Node::Dir,
                mode: 0,
                umask: 0,
                uid: 0,
                gid: 0,
                open: false,
            },
            YES,
        ),
        (create(12, Node::File, 0o644), Err(Errno::ENOTDIR)),
    ]);
}

#[test]
fn directories_are_searched_and_listed_by_those_who_may() {
    let lookup = |parent| Op::Lookup { parent: fid(parent), name: name("x") };
    let list = |n| Op::ReadDir { fid: fid(n), cookie: 0, plus: true };
    table(&[
        (lookup(SHUT), YES),
        (lookup(BLIND), YES),
        (lookup(LISTED), NO),
        (list(SHUT), YES),
        (list(BLIND), NO),
        (list(LISTED), YES),
    ]);
    assert!(matches!(ask(&list(SHUT)).1, Op::ReadDir { plus: true, .. }));
    assert!(matches!(ask(&list(LISTED)).1, Op::ReadDir { plus: false, .. }), "names, but no attributes");
}

#[test]
fn content_is_for_those_who_may_and_for_owners() {
    let read = |n| Op::Read { fid: fid(n), offset: 0, len: 1 };
    let write = |n| Op::Write { fid: fid(n), offset: 0, append: false, kill_suid: false };
    let fallocate = |n| Op::Fallocate { fid: fid(n), mode: 0, offset: 0, len: 1 };
    let copy =
        |from, to| Op::CopyRange { from: fid(from), from_offset: 0, to: fid(to), to_offset: 0, len: 1 };
    table(&[
        (read(11), YES),
        (read(12), NO),
        (read(13), YES),
        (read(20), YES),
        (read(21), YES),
        (read(22), NO),
        (read(23), NO),
        (read(24), NO),
        (Op::Open { fid: fid(12) }, NO),
        (Op::Open { fid: fid(22) }, YES),
        (Op::Open { fid: fid(23) }, YES),
        (Op::Lseek { fid: fid(12), offset: 0, whence: 3 }, NO),
        (Op::Lseek { fid: fid(23), offset: 0, whence: 3 }, YES),
        (write(11), YES),
        (write(13), NO),
        (write(14), YES),
        (write(15), YES),
        (write(23), YES),
        (fallocate(13), NO),
        (fallocate(14), YES),
        (fallocate(15), NEVER),
        (copy(12, 14), NO),
        (copy(13, 14), YES),
        (copy(14, 13), NO),
        (copy(14, 15), NEVER),
        (Op::Read { fid: THEIRS, offset: 0, len: 1 }, Err(Errno::ESTALE)),
    ]);
    assert!(matches!(ask(&write(15)).1, Op::Write { kill_suid: true, .. }), "setuid goes with a write");
}

fn attributes() -> SetAttr {
    SetAttr { mode: None, uid: None, gid: None, size: None, atime: None, mtime: None, kill_suid: false }
}

#[test]
fn attributes_are_changed_by_the_owner() {
    let set = |n, set| Op::SetAttr { fid: fid(n), set };
    let (mode, size) =
        (|m| SetAttr { mode: Some(m), ..attributes() }, SetAttr { size: Some(0), ..attributes() });
    let uid = |uid| SetAttr { uid: Some(uid), ..attributes() };
    let gid = |gid| SetAttr { gid: Some(gid), ..attributes() };
    let now = SetAttr { atime: Some(SetTime::Now), mtime: Some(SetTime::Now), ..attributes() };
    let then = SetAttr { mtime: Some(SetTime::At { time: Time::default() }), ..attributes() };
    table(&[
        (set(11, mode(0o4711)), YES),
        (set(14, mode(0o644)), NEVER),
        (set(12, mode(0o644)), NEVER),
        (set(11, uid(1000)), YES),
        (set(11, uid(0)), NEVER),
        (set(14, uid(1000)), NEVER),
        (set(11, gid(100)), YES),
        (set(11, gid(0)), NEVER),
        (set(20, gid(100)), NEVER),
        (set(11, size.clone()), YES),
        (set(14, size.clone()), YES),
        (set(13, size.clone()), NO),
        (set(14, now.clone()), YES),
        (set(13, now), NO),
        (set(11, then.clone()), YES),
        (set(14, then.clone()), NEVER),
        (set(14, SetAttr { size: Some(0), ..then }), NEVER),
        (set(13, attributes()), NO),
    ]);
    for changed in [size, uid(1000), gid(100)] {
        let op = ask(&set(11, changed)).1;
        assert!(matches!(&op, Op::SetAttr { set, .. } if set.kill_suid), "{op:?}");
    }
    let modes = SetAttr { gid: Some(100), ..mode(0o2755) };
    let kept = ask(&set(11, modes)).1;
    assert!(matches!(&kept, Op::SetAttr { set, .. } if set.mode == Some(0o2755)), "his own group: {kept:?}");
}

#[test]
fn names_go_where_the_directory_allows_it() {
    let unlink = |parent, n| Op::Unlink { parent: fid(parent), name: name(n) };
    let rmdir = |parent, n| Op::Rmdir { parent: fid(parent), name: name(n) };
    table(&[
        (unlink(OWN, "mine"), YES),
        (unlink(OPEN, "secret"), YES),
        (unlink(SHUT, "there"), NO),
        // Which is refused as such.
        (unlink(SHUT, "missing"), YES),
        (unlink(LISTED, "missing"), NO),
        (unlink(STICKY, "mine"), YES),
        (unlink(STICKY, "theirs"), NEVER),
        (rmdir(OPEN, "elsewhere"), YES),
        (rmdir(STICKY, "elsewhere"), NEVER),
        (rename((OPEN, "secret"), (OWN, "x"), 0), YES),
        (rename((OPEN, "secret"), (SHUT, "x"), 0), NO),
        (rename((SHUT, "there"), (OPEN, "x"), 0), NO),
        (rename((STICKY, "theirs"), (OPEN, "x"), 0), NEVER),
        (rename((OPEN, "all"), (STICKY, "theirs"), 0), NEVER),
        (rename((OPEN, "all"), (STICKY, "mine"), 0), YES),
        (rename((STICKY, "mine"), (STICKY, "theirs"), rename_flags::EXCHANGE), NEVER),
        // Which is refused as such.
        (rename((OPEN, "all"), (SHUT, "missing"), rename_flags::EXCHANGE), YES),
        (rename((OPEN, "all"), (LISTED, "missing"), rename_flags::EXCHANGE), NO),
        // A directory that gets another one above it changes.
        (rename((OPEN, "dir"), (OPEN, "x"), 0), YES),
        (rename((OPEN, "dir"), (OWN, "x"), 0), NO),
        (rename((OPEN, "my-dir"), (OWN, "x"), 0), YES),
        (rename((OWN, "mine"), (OPEN, "dir"), rename_flags::EXCHANGE), NO),
        (rename((OPEN, "elsewhere"), (OWN, "x"), 0), Err(Errno::EXDEV)),
        (rename((OPEN, "missing"), (OWN, "x"), 0), YES),
    ]);
    let across =
        Op::Rename { parent: fid(OWN), name: name("mine"), to_parent: THEIRS, to_name: name("x"), flags: 0 };
    table(&[(across, Err(Errno::EXDEV))]);
}

#[test]
fn others_files_are_linked_if_they_could_be_written_and_run_as_nobody() {
    let link = |n, parent| Op::Link { fid: fid(n), parent: fid(parent), name: name("x") };
    table(&[
        (link(11, OWN), YES),
        (link(21, OWN), YES),
        (link(11, SHUT), NO),
        (link(13, OWN), NEVER),
        (link(14, OWN), YES),
        (link(15, OWN), NEVER),
        (link(12, OWN), NEVER),
    ]);
}

#[test]
fn extended_attributes_are_by_their_kind() {
    let get = |n, key| Op::GetXattr { fid: fid(n), name: name(key) };
    let set = |n, key| Op::SetXattr { fid: fid(n), name: name(key), flags: 0 };
    let remove = |n, key| Op::RemoveXattr { fid: fid(n), name: name(key) };
    table(&[
        (get(13, "user.a"), YES),
        (get(12, "user.a"), NO),
        (get(12, "security.capability"), YES),
        (get(12, "system.posix_acl_access"), YES),
        (get(11, "trusted.a"), Err(Errno::ENODATA)),
        (set(11, "user.a"), YES),
        (set(14, "user.a"), YES),
        (set(13, "user.a"), NO),
        (set(STICKY, "user.a"), NEVER),
        (set(11, "trusted.a"), NEVER),
        (set(11, "security.capability"), NEVER),
        (set(11, "system.posix_acl_access"), YES),
        (set(14, "system.posix_acl_access"), NEVER),
        (remove(13, "user.a"), NO),
        (remove(11, "security.capability"), NEVER),
        (remove(11, "trusted.a"), NEVER),
    ]);
    assert!(shows_xattr(&name("user.a")) && shows_xattr(&name("security.selinux")));
    assert!(!shows_xattr(&name("trusted.a")));
}

/// Each of a user's groups counts, for what is his to do and for what he may make of which group.
#[test]
fn a_user_of_several_groups() {
    let bob = User { groups: Some([5, 100].into()), ..User::of_one_group(1001, 7) };
    let ask = |op: &Op| {
        let mut op = op.clone();
        take_as(&bob, &mut op);
        (check(&bob, &mut op, SET, &mut Tree), op)
    };
    let read = |n| Op::Read { fid: fid(n), offset: 0, len: 1 };
    assert_eq!([read(20), read(12)].map(|op| ask(&op).0), [YES, NO], "of a group of his, and of none");
    let of_group = |gid| Op::Create {
        parent: fid(OPEN),
        name: name("new"),
        node: Node::File,
        mode: 0o644,
        umask: 0,
        uid: 1000,
        gid,
        open: false,
    };
    for (named, gets) in [(7, 7), (5, 5), (100, 100), (0, 7), (1001, 7)] {
        let (answer, op) = ask(&of_group(named));
        assert_eq!(answer, YES);
        assert!(matches!(op, Op::Create { uid: 1001, gid, .. } if gid == gets), "{op:?}");
    }
    let (_, op) = ask(&create(THEIR_GROUP, Node::File, 0o2755));
    assert!(matches!(op, Op::Create { mode: 0o2755, .. }), "setgid to a group of his: {op:?}");
}

#[test]
fn what_sets_ask_each_other_is_not_for_users() {
    for op in [
        Op::LockTree { tx: ids::OpId::default() },
        Op::PrepareRmdir { fid: fid(OWN), by: SessionId(1) },
        Op::Arrive,
        Op::Lineage { fid: fid(OWN) },
        Op::PathOf { fid: fid(OWN) },
        Op::Relocate { fid: fid(OWN), path: Vec::new(), name: name("x") },
    ] {
        assert!(op.is_between_sets());
        assert_eq!(ask(&op).0, NEVER, "{op:?}");
    }
    table(&[
        (Op::GetAttr { fid: fid(12) }, YES),
        (Op::ReadLink { fid: fid(12) }, YES),
        (Op::StatFs, YES),
        (Op::SyncFs, YES),
        (Op::Fsync { fid: fid(12) }, YES),
        (Op::ListXattr { fid: fid(12) }, YES),
    ]);
}
