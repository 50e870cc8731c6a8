//! Many objects: stable paging, and figures of speed (printed, and bounded generously).
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests, which show figures")]

mod common;
use brick::Brick;
use common::*;
use namespace::TreeState;
use std::time::Instant;
use wire::{Change, Op};

#[test]
fn paging_is_stable_while_entries_come_and_go() {
    let t = temp();
    let mut s = Set::new(vec![new_brick(t.path(), 1), new_brick(t.path(), 2)]);
    let d = s.dir(ROOT, "d");
    for n in 0..2000 {
        s.file(d, &format!("f{n}"));
    }
    let (mut seen, mut cookie, mut turn) = (std::collections::BTreeSet::new(), 0, 0);
    loop {
        // Pages of either brick, as after a change of primary.
        turn = (turn + 1) % 2;
        let (page, end) = s.bricks[turn].readdir(d, cookie, false, 2000).unwrap();
        for e in &page {
            assert!(seen.insert(e.name.clone()), "{} came twice", e.name);
            cookie = e.cookie;
            s.run(&Op::Unlink { parent: d, name: e.name.clone() }, b"").unwrap();
        }
        if end {
            break;
        }
    }
    assert_eq!(seen.len(), 2000);
    assert!(s.bricks[0].is_empty(d).unwrap() && s.bricks[1].is_empty(d).unwrap());
}

#[test]
fn speed() {
    const N: u32 = 20_000;
    let t = temp();
    let mut b = new_brick(t.path(), 1);
    let mut lsn = 0;
    let mut apply = |b: &mut Brick, c: &Change, p: &[u8]| {
        lsn += 1;
        b.apply(stamp(lsn), ids::OpId::default(), None, c, p).unwrap();
    };
    let fid = |n: u32| ids::Fid { set: SET, epoch: ids::Epoch(1), lsn: ids::Lsn(u64::from(n) + 1) };
    let names: Vec<_> = (0..N).map(|n| name(&format!("file-number-{n}"))).collect();
    let per = |what: &str, start: Instant, n: u32| {
        let us = start.elapsed().as_secs_f64() * 1e6 / f64::from(n);
        println!("{what:28} {us:8.2} us");
        us
    };
    let start = Instant::now();
    for n in 0..N {
        assert_eq!(b.entry(ROOT, &names[n as usize]).unwrap(), None);
        b.attr(ROOT).unwrap();
        let (parent, name) = (ROOT, names[n as usize].clone());
        let c = Change::Create {
            parent,
            name,
            fid: fid(n),
            home: SET,
            node: wire::op::Node::File,
            mode: 0o644,
            uid: 1,
            gid: 1,
            time: time(1),
        };
        apply(&mut b, &c, b"");
        b.attr(fid(n)).unwrap();
    }
    let create = per("create", start, N);
    let start = Instant::now();
    b.flush_attrs().unwrap();
    per("flush after creates (each)", start, N);
    let start = Instant::now();
    for n in N - 1000..N {
        b.entry(ROOT, &names[n as usize]).unwrap().unwrap();
        b.attr(fid(n)).unwrap();
    }
    let cached = per("lookup, cached", start, 1000);
    let start = Instant::now();
    b.begin_sync(None).unwrap().run().unwrap();
    println!("{:28} {:8.2} ms", "full sync", start.elapsed().as_secs_f64() * 1e3);
    let path = b.path().to_path_buf();
    b.close().unwrap();
    let start = Instant::now();
    let mut b = open(&path, &identity(1));
    println!("{:28} {:8.2} ms", "open", start.elapsed().as_secs_f64() * 1e3);
    let start = Instant::now();
    for n in 0..N {
        b.entry(ROOT, &names[n as usize]).unwrap().unwrap();
        b.attr(fid(n)).unwrap();
    }
    let cold = per("lookup, cold", start, N);
    let data = [7u8; 4096];
    let start = Instant::now();
    for n in 0..N {
        let c = Change::Write {
            fid: fid(0),
            offset: u64::from(n) * 4096,
            len: 4096,
            mode: None,
            time: time(n.into()),
        };
        apply(&mut b, &c, &data);
        b.attr(fid(0)).unwrap();
    }
    let write = per("4 KiB write", start, N);
    let start = Instant::now();
    for n in 0..N {
        match b.read(fid(0), u64::from(n) * 4096, 4096).unwrap() {
            brick::ReadOutcome::Data(d) => assert_eq!(d.len(), 4096),
            brick::ReadOutcome::NeedsBlocking(_) => {}
        }
    }
    per("4 KiB read", start, N);
    let start = Instant::now();
    for n in 0..N {
        let c = Change::Write { fid: fid(n), offset: 0, len: 4096, mode: None, time: time(n.into()) };
        apply(&mut b, &c, &data);
    }
    per("4 KiB write, each its file", start, N);
    let start = Instant::now();
    b.flush_attrs().unwrap();
    per("flush after writes (each)", start, N.min(8192));
    let start = Instant::now();
    let (mut cookie, mut count) = (0, 0);
    loop {
        let (page, end) = b.readdir(ROOT, cookie, true, 64 << 10).unwrap();
        count += page.len();
        cookie = page.last().map_or(cookie, |e| e.cookie);
        if end {
            break;
        }
    }
    assert_eq!(count, N as usize);
    per("readdirplus (each)", start, N);
    let start = Instant::now();
    for n in 0..N {
        let c = Change::Unlink {
            parent: ROOT,
            name: names[n as usize].clone(),
            fid: fid(n),
            orphan: false,
            time: time(2),
        };
        apply(&mut b, &c, b"");
    }
    per("unlink", start, N);
    // Fifty times the targets: what grows with the number of files is found, a machine that does other things is not.
    assert!(create < 2000.0 && cached < 150.0 && cold < 750.0 && write < 750.0);
}
