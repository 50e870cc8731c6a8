//! What somebody put into a brick: found, taken out of the tree, and found again after a crash.
#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::*;
use brick::{Became, ForeignFiles, FoundForeign};
use ids::Time;
use std::fs;
use std::path::{Path, PathBuf};

fn found(files: &ForeignFiles, below: &str) -> Vec<FoundForeign> {
    let mut all = Vec::new();
    files
        .find(Path::new(below), &mut |found| {
            all.push(found);
            true
        })
        .unwrap();
    all.sort_by(|a, b| a.path.cmp(&b.path));
    all
}

fn paths(files: &ForeignFiles, below: &str) -> Vec<PathBuf> {
    found(files, below).into_iter().map(|f| f.path).collect()
}

#[test]
fn what_has_no_tag_is_found_and_taken_out() {
    let t = temp();
    let mut set = Set::new(vec![new_brick(t.path(), 1)]);
    let d = set.dir(ROOT, "d");
    set.file(d, "own");
    let top = t.path().join("b1");
    fs::create_dir(top.join("lost+found")).unwrap();
    fs::create_dir(top.join("d/tree")).unwrap();
    fs::write(top.join("d/tree/f"), b"f").unwrap();
    fs::hard_link(top.join("d/tree/f"), top.join("d/one")).unwrap();
    fs::hard_link(top.join("d/tree/f"), top.join("two")).unwrap();
    let files = ForeignFiles::open(&top).unwrap();
    assert_eq!(paths(&files, ""), ["d/one", "d/tree", "two"].map(PathBuf::from));
    assert_eq!(paths(&files, "d"), ["d/one", "d/tree"].map(PathBuf::from));
    assert_eq!(paths(&files, "d/tree"), [PathBuf::from("d/tree")]);
    assert!(paths(&files, "d/own").is_empty());
    assert_eq!(files.find(Path::new("none"), &mut |_| true), Err(wire::Errno::ENOENT));

    let all = found(&files, "");
    assert!(all[1].fresh && files.take_out(&all[1]).unwrap().is_none(), "it may be a change's at work");
    assert!(!all[0].fresh, "no change makes what has several names");
    std::thread::sleep(std::time::Duration::from_millis(3100));
    for one in &all {
        assert!(files.take_out(one).unwrap().is_some(), "{one:?}");
        assert!(files.take_out(one).unwrap().is_none(), "it is gone from there");
    }
    assert!(paths(&files, "").is_empty());
    assert!(brick::release(&top, &identity(1)).unwrap_err().contains(".mortar/foreign"), "they are not lost");
    // A new process goes on.
    drop(files);
    let files = ForeignFiles::open(&top).unwrap();
    let kept = files.kept().unwrap();
    let places: Vec<_> = kept.iter().map(|(place, _)| (place.dir, place.name.to_string())).collect();
    assert_eq!(places, [(d, "one".into()), (d, "tree".into()), (ROOT, "two".into())]);
    for (_, object) in kept {
        let time = Time { sec: 5, nsec: 6 };
        if object.is_dir() {
            for (name, child) in object.children().unwrap() {
                assert_eq!(
                    (name, child.became().unwrap().map(|b| b.fid)),
                    (b"f".to_vec(), Some(d)),
                    "by its other name"
                );
                child.remove().unwrap();
            }
        } else {
            object.note_became(&Became { fid: d, home: SET, atime: time, mtime: time }).unwrap();
        }
        object.remove().unwrap();
    }
    assert!(files.kept().unwrap().is_empty());
    set.file(d, "tree");
    set.bricks.pop().unwrap().close().unwrap();
    brick::release(&top, &identity(1)).unwrap();
}
