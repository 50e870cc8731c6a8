//! Each row of the table of differences: Linux without exception answers one thing, Mortar another, and the oracle that knows
//! the table answers as Mortar does.

use crate::rig::{Ours, ROOT, Rig};
use ids::Fid;
use kernel_oracle::{Answer, Difference, Oracle, compare};
use wire::codec::Blob;
use wire::op::{Node, SetAttr};
use wire::{Body, Errno, Name, Op};

/// Mortar, the oracle, and an oracle that knows of no difference.
struct All {
    rig: Rig,
    oracle: Oracle,
    plain: Oracle,
}

fn name(text: &str) -> Name {
    Name::new(text.as_bytes()).unwrap()
}

fn create(text: &str, node: Node, mode: u32) -> Op {
    let (uid, gid) = (1000, 1001);
    Op::Create { parent: ROOT, name: name(text), node, mode, umask: 0, uid, gid, open: false }
}

const NOTHING: SetAttr =
    SetAttr { mode: None, uid: None, gid: None, size: None, atime: None, mtime: None, kill_suid: false };

impl All {
    fn new() -> All {
        All { rig: Rig::new(), oracle: Oracle::new(ROOT).unwrap(), plain: Oracle::plain(ROOT).unwrap() }
    }

    fn ask(&mut self, op: &Op, payload: &[u8]) -> (Ours, Result<Answer, Errno>) {
        let ours = self.rig.ask(op, payload);
        self.oracle.check(op, payload, &ours).unwrap();
        let made = if let Ok((Body::Attr { attr }, _)) = &ours { Some(attr.fid) } else { None };
        let plain = self.plain.apply(op, payload, made);
        (ours, plain)
    }

    /// Something that is done alike by all.
    fn same(&mut self, op: &Op, payload: &[u8]) {
        let (ours, plain) = self.ask(op, payload);
        compare(op, &ours, &plain).unwrap();
    }

    fn make(&mut self, text: &str, node: Node, mode: u32) -> Fid {
        let (ours, _) = self.ask(&create(text, node, mode), b"");
        let Ok((Body::Attr { attr }, _)) = ours else { panic!("{text} is not made: {ours:?}") };
        attr.fid
    }

    fn file(&mut self) -> Fid {
        self.make("f", Node::File, 0o644)
    }

    /// The last step of a row, which Mortar and Linux do not do alike.
    fn show(&mut self, difference: Difference) -> (Op, Vec<u8>) {
        let no_data = |op| (op, vec![]);
        let one = |fid| Op::Write { fid, offset: 0, append: false, kill_suid: true };
        let attribute = |fid, text| Op::SetXattr { fid, name: name(text), flags: 0 };
        match difference {
            Difference::ReservedName => no_data(create(".mortar", Node::File, 0o644)),
            Difference::OwnAttributes => (attribute(self.file(), "trusted.mortar.x"), b"x".to_vec()),
            Difference::AttributesInOneBlock => (attribute(self.file(), "user.a"), vec![1; 4000]),
            Difference::LinkMode => {
                let fid = self.make("l", Node::Symlink { target: Blob(b"t".to_vec()) }, 0o777);
                no_data(Op::SetAttr { fid, set: SetAttr { mode: Some(0o600), ..NOTHING } })
            }
            Difference::SetgidKept => (one(self.make("f", Node::File, 0o2644)), b"x".to_vec()),
            Difference::RemovedDirectory => {
                let fid = self.make("d", Node::Dir, 0o755);
                self.same(&Op::Open { fid }, b"");
                self.same(&Op::Rmdir { parent: ROOT, name: name("d") }, b"");
                no_data(Op::GetAttr { fid })
            }
            Difference::LongFile => {
                let set = SetAttr { size: Some(1 << 45), ..NOTHING };
                no_data(Op::SetAttr { fid: self.file(), set })
            }
            Difference::Reshaped => {
                let fid = self.file();
                self.same(&one(fid), &[7; 10_000]);
                no_data(Op::Fallocate { fid, mode: 0x11, offset: 5, len: 6000 })
            }
        }
    }
}

#[test]
fn each_row_of_the_table_is_a_difference() {
    for difference in Difference::ALL {
        let mut all = All::new();
        let (op, payload) = all.show(difference);
        let (ours, plain) = all.ask(&op, &payload);
        let gone = plain == Err(Errno::ESTALE) && ours.as_ref().err() != Some(&Errno::ESTALE);
        assert!(
            gone || compare(&op, &ours, &plain).is_err(),
            "{difference:?} ({}): both answer {ours:?}",
            difference.reason()
        );
    }
}

/// The oracle notices what is wrong: an answer that is off by a little is told from the right one.
#[test]
fn a_wrong_answer_is_noticed() {
    let mut all = All::new();
    let fid = all.file();
    all.same(&Op::Write { fid, offset: 3, append: false, kill_suid: false }, b"data");
    let op = Op::GetAttr { fid };
    let Ok((Body::Attr { attr }, _)) = all.rig.ask(&op, b"") else { panic!("no attributes") };
    let right = all.oracle.apply(&op, b"", None);
    let is_wrong = |attr| compare(&op, &Ok((Body::Attr { attr }, b"")), &right).is_err();
    assert!(!is_wrong(attr.clone()));
    assert!(is_wrong(wire::Attr { mode: attr.mode ^ 1, ..attr.clone() }));
    assert!(is_wrong(wire::Attr { gid: 1000, ..attr.clone() }));
    assert!(is_wrong(wire::Attr { nlink: 2, ..attr.clone() }));
    assert!(is_wrong(wire::Attr { size: 6, ..attr.clone() }));
    assert!(is_wrong(wire::Attr { fid: ROOT, ..attr }));
    let op = Op::Read { fid, offset: 0, len: 100 };
    let right = all.oracle.apply(&op, b"", None);
    assert_eq!(compare(&op, &Ok((Body::Data, b"\0\0\0data")), &right), Ok(()));
    assert!(compare(&op, &Ok((Body::Data, b"\0\0\0dat_")), &right).is_err());
    let op = Op::ReadDir { fid: ROOT, cookie: 0, plus: false };
    let right = all.oracle.apply(&op, b"", None);
    let nothing = Body::Page { entries: vec![], end: true };
    assert!(compare(&op, &Ok((nothing, b"")), &right).is_err());
}

/// What the file system cannot do is refused before it is journaled, where it would take bricks out of their set. `Rig`
/// looks at the journal after each operation.
#[test]
fn what_no_file_system_takes_is_refused_before_it_is_journaled() {
    let mut all = All::new();
    let fid = all.file();
    for mode in [0, 1, 3, 0x10, 0x11] {
        let far = Op::Fallocate { fid, mode, offset: 1 << 44, len: 4096 };
        assert_eq!(all.rig.ask(&far, b"").err(), Some(Errno::EFBIG), "mode {mode}");
    }
    let size = Some((1 << 44) - (64 << 10));
    all.same(&Op::SetAttr { fid, set: SetAttr { size, ..NOTHING } }, b"");
    let insert = Op::Fallocate { fid, mode: 0x20, offset: 0, len: 64 << 10 };
    assert_eq!(all.rig.ask(&insert, b"").err(), Some(Errno::EFBIG));
    for text in ["user.", "trusted.", "security."] {
        all.same(&Op::SetXattr { fid, name: name(text), flags: 0 }, b"x");
    }
    // Mortar's own attribute takes 96 bytes of the block of 4096, the head 36, the name and what leads to it 24.
    for (len, fits) in [(3940, true), (3941, false), (4036, false), (4037, false)] {
        let ours = all.rig.ask(&Op::SetXattr { fid, name: name("user.a"), flags: 0 }, &vec![1; len]);
        assert_eq!(ours.map(|_| ()), if fits { Ok(()) } else { Err(Errno::ENOSPC) }, "{len} bytes");
    }
}

/// Two names of one file that change places stay as they are, and so do their directories.
#[test]
fn one_file_is_not_exchanged_with_itself() {
    let mut all = All::new();
    let fid = all.file();
    all.same(&Op::Link { fid, parent: ROOT, name: name("g") }, b"");
    let time = ids::Time { sec: 5, nsec: 0 };
    let mtime = Some(wire::op::SetTime::At { time });
    all.same(&Op::SetAttr { fid: ROOT, set: SetAttr { mtime, ..NOTHING } }, b"");
    let (from, to) = (name("f"), name("g"));
    all.same(&Op::Rename { parent: ROOT, name: from, to_parent: ROOT, to_name: to, flags: 2 }, b"");
    let Ok((Body::Attr { attr }, _)) = all.rig.ask(&Op::GetAttr { fid: ROOT }, b"") else {
        panic!("the root has no attributes")
    };
    assert_eq!(attr.mtime, time);
}

/// Linux' order of errors where several things are wrong at once.
#[test]
fn the_first_of_several_errors_is_linux_own() {
    let mut all = All::new();
    let (file, dir) = (all.file(), all.make("d", Node::Dir, 0o755));
    let fifo = all.make("p", Node::Fifo, 0o644);
    let rename = |name: &str, to: Fid, to_name: &str, flags| Op::Rename {
        parent: ROOT,
        name: self::name(name),
        to_parent: to,
        to_name: self::name(to_name),
        flags,
    };
    let refused = |all: &mut All, op: Op, errno| {
        let (ours, plain) = all.ask(&op, b"x");
        assert_eq!((ours.err(), plain.err()), (Some(errno), Some(errno)), "{op:?}");
    };
    refused(&mut all, Op::Link { fid: dir, parent: ROOT, name: name("f") }, Errno::EEXIST);
    let inner = Op::Create {
        parent: dir,
        name: name("x"),
        node: Node::File,
        mode: 0o644,
        umask: 0,
        uid: 0,
        gid: 0,
        open: false,
    };
    all.same(&inner, b"");
    refused(&mut all, rename("d", dir, "x", 1), Errno::EEXIST);
    refused(&mut all, rename("d", dir, "y", 2), Errno::ENOENT);
    refused(&mut all, rename("d", dir, "y", 0), Errno::EINVAL);
    let out = Op::Rename { parent: dir, name: name("x"), to_parent: ROOT, to_name: name("d"), flags: 0 };
    refused(&mut all, out, Errno::ENOTEMPTY);
    let set = |fid, text, flags| Op::SetXattr { fid, name: name(text), flags };
    refused(&mut all, set(file, "user.a", 3), Errno::ENODATA);
    refused(&mut all, set(file, "nothing.a", 4), Errno::EINVAL);
    refused(&mut all, set(fifo, "user.", 0), Errno::EPERM);
    all.same(&set(file, "user.a", 0), b"x");
    refused(&mut all, set(file, "user.a", 3), Errno::EEXIST);
    refused(&mut all, Op::RemoveXattr { fid: fifo, name: name("user.a") }, Errno::EPERM);
    refused(&mut all, Op::RemoveXattr { fid: file, name: name("user.") }, Errno::EINVAL);
}
