//! What a directory has of attributes when it has come to another set (docs/design/0018).
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::*;
use ids::{Epoch, Fid, Lsn, OpId, SessionId, SetId};
use namespace::TreeState;
use wire::Change;
use wire::codec::Blob;
use wire::op::HandedDir;

const OTHER: SetId = SetId(2);
/// A directory that the other set has made.
const DIR: Fid = Fid { set: OTHER, epoch: Epoch(4), lsn: Lsn(90) };

fn take(xattrs: &[(&str, &str)]) -> Change {
    let xattrs = xattrs.iter().map(|(n, v)| (name(n), Blob(v.as_bytes().to_vec()))).collect();
    let (atime, mtime, ctime) = (time(1), time(2), time(3));
    let dir = HandedDir { mode: 0o750, uid: 5, gid: 6, atime, mtime, ctime, xattrs, entries: Vec::new() };
    let tx = OpId { session: SessionId(3), seq: 8 };
    Change::TakeDir { fid: DIR, tx, from: OTHER, path: Vec::new(), name: name("d"), dir }
}

fn xattrs(s: &mut Set) -> Vec<String> {
    let all = s.bricks[0].listxattr(DIR).unwrap();
    all.iter().map(|n| String::from_utf8(n.as_bytes().to_vec()).unwrap()).collect()
}

/// An attribute that was removed where the directory lived meanwhile does not come back with it.
#[test]
fn a_directory_has_the_attributes_that_it_came_with_and_no_older_ones() {
    let t = temp();
    let mut s = Set::new(vec![new_brick(t.path(), 1)]);
    s.apply(&take(&[("user.a", "1"), ("user.b", "1")]), b"").unwrap();
    s.apply(&Change::GiveDir { fid: DIR, to: OTHER, time: time(4) }, b"").unwrap();
    s.apply(&take(&[("user.b", "2")]), b"").unwrap();
    s.apply(&Change::EndTransaction { fid: DIR, keep: true }, b"").unwrap();
    assert_eq!(xattrs(&mut s), ["user.b"]);
    assert_eq!(s.bricks[0].xattr(DIR, &name("user.b")).unwrap().unwrap(), b"2");
}
