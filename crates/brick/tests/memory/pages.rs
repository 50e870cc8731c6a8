//! What another thread has read of a page of a directory, taken over or not.

use super::common::*;
use super::disk::Disk;
use ids::{Fid, Time};
use memory_fs::CrashRule;
use namespace::TreeState as _;
use wire::Op;

/// A directory of which nothing is in memory.
struct Cold {
    s: Set,
    d: Fid,
    /// What is in it; as many as make others leave the memory; and the last in the order of the listing.
    files: Vec<Fid>,
    others: Vec<Fid>,
    last: Fid,
}

fn cold() -> Cold {
    let mut disk = Disk::new(1, CrashRule::Ordered);
    let mut s = Set::new(vec![disk.open().unwrap()]);
    let d = s.dir(ROOT, "d");
    let files = (0..12).map(|n| s.file(d, &format!("f{n}"))).collect();
    let others = (0..20).map(|n| s.file(ROOT, &format!("f{n}"))).collect();
    // The few that memory keeps are the last.
    let last = s.bricks[0].readdir(d, 0, true, 64 << 10).unwrap().0.last().unwrap().fid;
    s.bricks.pop().unwrap().close().unwrap();
    Cold { s: Set::new(vec![disk.open().unwrap()]), d, files, others, last }
}

/// What another thread has read of a page is out of date if something was changed meanwhile, although that has left the
/// memory again.
#[test]
fn what_was_read_of_a_page_before_a_change_is_not_believed() {
    for changed in [false, true] {
        let Cold { mut s, d, files, others, last } = cold();
        let job = s.bricks[0].begin_page(d, 0, true, 64 << 10).expect("nothing is in memory");
        assert_eq!(job.many(), files.len());
        job.run();
        if changed {
            for fid in files {
                let set = wire::op::SetAttr { mode: Some(0o600), ..set_attr() };
                s.run(&Op::SetAttr { fid, set }, b"").unwrap();
            }
        }
        let b = &mut s.bricks[0];
        b.flush_attrs().unwrap();
        assert!(others.iter().all(|fid| b.attr(*fid).is_ok()));
        assert!(!b.readdir(d, 0, true, 300).unwrap().1);
        let mode = if changed { 0o600 } else { 0o644 };
        assert_eq!(b.attr(last).unwrap().mode & 0o777, mode, "changed: {changed}");
    }
}

/// What waited to be written when another thread read a page is not in what it read, although it is on the disk since and has
/// left the memory. (Seed 25766817341601385 of the kernel oracle.)
#[test]
fn what_was_read_of_a_page_before_times_were_written_is_not_believed() {
    for evicted_by_the_page in [false, true] {
        let Cold { mut s, d, others, last, .. } = cold();
        let atime = Time { sec: 77, nsec: 7 };
        let set = wire::op::SetAttr { atime: Some(wire::op::SetTime::At { time: atime }), ..set_attr() };
        s.run(&Op::SetAttr { fid: last, set }, b"").unwrap();
        let b = &mut s.bricks[0];
        b.begin_page(d, 0, true, 64 << 10).expect("no name is in memory").run();
        if !evicted_by_the_page {
            b.flush_attrs().unwrap();
            assert!(others.iter().all(|fid| b.attr(*fid).is_ok()));
        }
        assert!(!b.readdir(d, 0, true, 300).unwrap().1);
        assert_eq!(b.attr(last).unwrap().atime, atime, "evicted by the page: {evicted_by_the_page}");
    }
}
