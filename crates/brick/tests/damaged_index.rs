//! A brick whose index is damaged opens, and finds every object: the index is made anew from the tree.

#![allow(clippy::unwrap_used, reason = "tests")]

use crate::common::*;
use namespace::TreeState as _;
use std::path::Path;

/// Opens the brick and looks at all objects; true if the index was made anew.
fn look(path: &Path, objects: &[ids::Fid]) -> bool {
    let mut b = open(path, &identity(1));
    let rebuilt = b.found().index_rebuilt;
    for fid in objects {
        assert!(b.attr(*fid).is_ok(), "{fid} is not found");
    }
    b.close().unwrap();
    rebuilt
}

#[test]
fn a_damaged_index_is_made_anew() {
    let t = temp();
    let mut s = Set::new(vec![new_brick(t.path(), 1)]);
    let d = s.dir(ROOT, "d");
    let objects: Vec<_> = (0..200).map(|i| s.file(d, &format!("f{i}"))).collect();
    let path = s.bricks[0].path().to_path_buf();
    s.bricks.pop().unwrap().close().unwrap();
    assert!(!look(&path, &objects), "a sound index is used");
    let file = path.join(".mortar/index.redb");
    let whole = std::fs::read(&file).unwrap();
    let used: Vec<usize> =
        (0..whole.len()).step_by(4096).filter(|at| whole[*at..][..4096].iter().any(|b| *b != 0)).collect();
    let mut rebuilt = 0;
    for page in &used {
        for at in [page + 2, page + page / 4096 * 37 % 4096] {
            let mut bad = whole.clone();
            bad[at] ^= 0x21;
            std::fs::write(&file, &bad).unwrap();
            rebuilt += usize::from(look(&path, &objects));
        }
        let mut bad = whole.clone();
        bad[*page..][..4096].fill(0);
        std::fs::write(&file, &bad).unwrap();
        rebuilt += usize::from(look(&path, &objects));
    }
    for len in [0, 1, 100, 4096, 5000, whole.len() / 2, whole.len() - 1] {
        std::fs::write(&file, &whole[..len]).unwrap();
        assert!(look(&path, &objects), "an index of {len} bytes was used");
    }
    assert!(rebuilt > 0 && rebuilt <= used.len() * 3, "{rebuilt} times made anew, {} pages", used.len());
}
