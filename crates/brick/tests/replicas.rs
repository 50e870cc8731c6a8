//! Random operations, decided on one brick and applied on two: the trees stay identical, memory agrees with the disk, and
//! a model of names agrees with both. In between, servers are killed and descriptors are short.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::*;
use brick::{Brick, Options};
use ids::Fid;
use namespace::TreeState;
use proptest::prelude::*;
use set_core::{DirPage, LocalBrick};
use std::collections::BTreeMap;
use wire::codec::Blob;
use wire::op::{Node, SetAttr, SetTime};
use wire::reply::DirEntry;
use wire::{Attr, Op};

#[derive(Clone, Debug)]
enum Step {
    Create(usize, usize, u8),
    Unlink(usize, usize),
    Rmdir(usize, usize),
    Rename(usize, usize, usize, usize, u32),
    Link(usize, usize, usize),
    Write(usize, u16, u8),
    Attr(usize, u16, u16, u8),
    Xattr(usize, u8, bool),
    Open(usize),
    Flush,
    Sync,
    Kill(usize),
}

fn step() -> impl Strategy<Value = Step> {
    let (o, n) = (0..12usize, 0..5usize);
    prop_oneof![
        6 => (o.clone(), n.clone(), 0..7u8).prop_map(|(d, n, k)| Step::Create(d, n, k)),
        3 => (o.clone(), n.clone()).prop_map(|(d, n)| Step::Unlink(d, n)),
        2 => (o.clone(), n.clone()).prop_map(|(d, n)| Step::Rmdir(d, n)),
        5 => (o.clone(), n.clone(), o.clone(), n.clone(), 0..3u32).prop_map(|(a, b, c, d, f)| Step::Rename(a, b, c, d, f)),
        2 => (o.clone(), o.clone(), n).prop_map(|(f, d, n)| Step::Link(f, d, n)),
        4 => (o.clone(), any::<u16>(), any::<u8>()).prop_map(|(f, a, l)| Step::Write(f, a, l)),
        3 => (o.clone(), any::<u16>(), any::<u16>(), any::<u8>()).prop_map(|(f, m, u, w)| Step::Attr(f, m, u, w)),
        2 => (o.clone(), 0..3u8, any::<bool>()).prop_map(|(f, n, s)| Step::Xattr(f, n, s)),
        1 => o.prop_map(Step::Open),
        1 => Just(Step::Flush),
        1 => Just(Step::Sync),
        1 => (0..2usize).prop_map(Step::Kill),
    ]
}

fn names(b: &mut Brick, dir: Fid) -> BTreeMap<Vec<u8>, Fid> {
    let (mut out, mut cookie) = (BTreeMap::new(), 0);
    loop {
        let (page, end) = b.readdir(dir, cookie, true, 100).unwrap();
        for e in &page {
            assert!(e.cookie > cookie || out.is_empty() || e.cookie == cookie);
            cookie = e.cookie;
            assert!(out.insert(e.name.as_bytes().to_vec(), e.fid).is_none(), "no name comes twice");
            assert_eq!(e.attr.as_ref(), Some(&b.attr(e.fid).unwrap()));
        }
        if end {
            return out;
        }
    }
}

/// Objects that can be named, by (directory, name).
type Model = BTreeMap<(Fid, Vec<u8>), Fid>;

fn options() -> Options {
    Options {
        fd_limit: 6,
        nodes: 8,
        names: 10,
        dirty: 5,
        listing_names: 6,
        segment_size: 2000,
        ..Options::default()
    }
}

fn reopen(t: &tempfile::TempDir, s: &mut Set, n: usize) {
    let id = identity(u32::try_from(n).unwrap() + 1);
    drop(s.bricks.remove(n));
    let b = Brick::open(&t.path().join(format!("b{}", n + 1)), &id, options()).unwrap();
    assert_eq!(b.found().incomplete, None);
    s.bricks.insert(n, b);
}

fn op(step: &Step, objects: &[Fid]) -> Option<(Op, Vec<u8>)> {
    let at = |i: usize| objects[i % objects.len()];
    let nm = |i: usize| name(["a", "b", "c", "d", "e"][i]);
    let plain = |op| Some((op, vec![]));
    match *step {
        Step::Create(d, n, k) => {
            let node = match k {
                0..=2 => Node::File,
                3..=4 => Node::Dir,
                5 => Node::Symlink { target: Blob(b"target".to_vec()) },
                _ => Node::Fifo,
            };
            plain(create(at(d), ["a", "b", "c", "d", "e"][n], node, 0o7777 >> k))
        }
        Step::Unlink(d, n) => plain(Op::Unlink { parent: at(d), name: nm(n) }),
        Step::Rmdir(d, n) => plain(Op::Rmdir { parent: at(d), name: nm(n) }),
        Step::Rename(a, b, c, d, flags) => {
            plain(Op::Rename { parent: at(a), name: nm(b), to_parent: at(c), to_name: nm(d), flags })
        }
        Step::Link(f, d, n) => plain(Op::Link { fid: at(f), parent: at(d), name: nm(n) }),
        Step::Write(f, offset, len) => {
            let op = Op::Write {
                fid: at(f),
                offset: offset.into(),
                append: len % 3 == 0,
                kill_suid: len % 2 == 0,
            };
            Some((op, vec![len; len.into()]))
        }
        Step::Attr(f, mode, owner, what) => {
            let bit = |n: u8| what & (1 << n) != 0;
            let set = SetAttr {
                mode: bit(0).then_some(mode.into()),
                uid: bit(1).then_some(owner.into()),
                gid: bit(2).then_some(owner.into()),
                size: bit(3).then_some(u64::from(mode)),
                atime: bit(4).then_some(SetTime::At { time: time(owner.into()) }),
                mtime: bit(5).then_some(SetTime::Now),
                kill_suid: bit(6),
            };
            plain(Op::SetAttr { fid: at(f), set })
        }
        Step::Xattr(f, n, set) => {
            let (fid, name) = (at(f), name(&format!("trusted.x{n}")));
            match set {
                true => Some((Op::SetXattr { fid, name, flags: 0 }, vec![n; 20])),
                false => plain(Op::RemoveXattr { fid, name }),
            }
        }
        Step::Open(_) | Step::Flush | Step::Sync | Step::Kill(_) => None,
    }
}

fn follow(model: &mut Model, objects: &mut Vec<Fid>, change: &wire::Change) {
    use wire::Change as C;
    let key = |d: &Fid, n: &wire::Name| (*d, n.as_bytes().to_vec());
    match change {
        C::Create { parent, name, fid, .. } => {
            model.insert(key(parent, name), *fid);
            objects.push(*fid);
        }
        C::Link { fid, parent, name, .. } => {
            model.insert(key(parent, name), *fid);
        }
        C::Unlink { parent, name, .. } | C::Rmdir { parent, name, .. } => {
            model.remove(&key(parent, name));
        }
        C::Rename { parent, name, fid, to_parent, to_name, .. } => {
            model.remove(&key(parent, name));
            model.insert(key(to_parent, to_name), *fid);
        }
        C::Exchange { parent, name, fid, to_parent, to_name, to_fid, .. } => {
            model.insert(key(parent, name), *to_fid);
            model.insert(key(to_parent, to_name), *fid);
        }
        _ => {}
    }
}

fn play(steps: &[Step]) {
    let t = temp();
    let mut s = Set::new(vec![new_brick(t.path(), 1), new_brick(t.path(), 2)]);
    reopen(&t, &mut s, 0);
    reopen(&t, &mut s, 1);
    let mut objects = vec![ROOT];
    let mut model = Model::new();
    for step in steps {
        match step {
            Step::Open(f) => {
                s.open.insert(objects[f % objects.len()]);
            }
            Step::Flush => s.bricks[1].flush_attrs().unwrap(),
            Step::Sync => {
                let job = s.bricks[0].begin_sync(None).unwrap();
                job.run().unwrap();
            }
            Step::Kill(n) => reopen(&t, &mut s, *n),
            _ => {
                let (op, payload) = op(step, &objects).unwrap();
                let Ok(namespace::Decision::Change(change, _)) = s.decide(&op, &payload) else { continue };
                s.apply(&change, &payload).unwrap_or_else(|e| panic!("{change:?}: {e}"));
                follow(&mut model, &mut objects, &change);
            }
        }
    }
    compare(&t, s, &objects, &model);
}

fn compare(t: &tempfile::TempDir, mut s: Set, objects: &[Fid], model: &Model) {
    for b in &mut s.bricks {
        let mut found = Model::new();
        for &dir in objects {
            if b.attr(dir).is_ok_and(|a| a.is_dir()) {
                found.extend(names(b, dir).into_iter().map(|(n, f)| ((dir, n), f)));
            }
        }
        assert_eq!(&found, model);
    }
    for &f in objects {
        // How many blocks a file takes is the file system's matter: its map of them takes some as well, when they are written
        // back and lie apart.
        let attr = |b: &mut Brick| b.attr(f).map(|attr| Attr { blocks: 0, ..attr });
        let (a, b) = (attr(&mut s.bricks[0]), attr(&mut s.bricks[1]));
        assert_eq!(a, b, "{f}");
    }
    for b in s.bricks {
        b.close().unwrap();
    }
    let trees: Vec<_> = (1..=2).map(|n| tree(&t.path().join(format!("b{n}")))).collect();
    for (path, a) in &trees[0] {
        assert_eq!(Some(a), trees[1].get(path), "{}", path.display());
    }
    assert_eq!(trees[0].len(), trees[1].len());
    for n in 1..=2 {
        let report = brick::check(&t.path().join(format!("b{n}")), false).unwrap();
        assert!(report.problems.is_empty(), "{:?}", report.problems);
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, max_shrink_iters: 300, failure_persistence: None, ..Default::default() })]
    #[test]
    fn bricks_that_apply_the_same_changes_are_the_same(steps in proptest::collection::vec(step(), 1..120)) {
        play(&steps);
    }
}

fn page(entries: Vec<DirEntry>, end: bool) -> DirPage {
    DirPage { entries, end, marked: false }
}

/// Names that lie side by side in a directory's order lie anywhere on the disk.
#[test]
fn what_many_names_lead_to_is_read_on_another_thread() {
    let dir = temp();
    let mut s = Set::new(vec![new_brick(dir.path(), 1)]);
    for n in 0..50 {
        s.file(ROOT, &format!("f{n}"));
    }
    assert!(s.bricks[0].begin_page(ROOT, 0, true, 64 << 10).is_none(), "all of it is in memory");
    s.bricks[0].shut().unwrap();
    drop(s);
    let mut b = open(&dir.path().join("b1"), &identity(1));
    let few = b.readdir(ROOT, 0, true, 500).unwrap().0;
    assert!((1..20).contains(&few.len()));
    assert_eq!(b.readdir_known(ROOT, 0, true, 500), Ok(Some(page(few.clone(), false))), "it is known by now");
    assert_eq!(b.readdir_known(ROOT, 0, true, 64 << 10), Ok(None), "most of it is not");
    let after = few.last().unwrap().cookie;
    let job = b.begin_page(ROOT, after, true, 3000).expect("most of it is not");
    let many = job.many();
    job.run();
    assert_eq!(b.readdir(ROOT, after, true, 3000).unwrap().0.len(), many, "no name beside those");
    b.begin_page(ROOT, 0, true, 64 << 10).expect("most of it is not").run();
    let (all, end) = b.readdir(ROOT, 0, true, 64 << 10).unwrap();
    assert_eq!((all.len(), end), (50, true));
    assert_eq!(b.readdir_known(ROOT, 0, true, 64 << 10), Ok(Some(page(all, true))));
    assert!(b.begin_page(ROOT, 0, true, 64 << 10).is_none(), "it is now");
}
