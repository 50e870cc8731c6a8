//! The names of files that live on another set than their directory lie at their paths on the bricks of their home.

use super::{Rig, THREE};
use crate::harness::{Mounted, eventually_ok, files};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

/// The trees of one brick of each set, merged, without stubs, are what the mount shows: names, kinds and content of files.
fn shows(rig: &Rig, mount: &Mounted, which: usize) -> Result<(), String> {
    let mut merged: BTreeMap<PathBuf, (char, Vec<u8>)> = BTreeMap::new();
    for set in rig.bricks.chunks(2) {
        let tree = files::brick_tree(&set[which]);
        for (path, seen) in tree {
            let stub = seen.mode & 0o7777 == 0o1000 && seen.content.is_empty() && !seen.is_dir();
            if seen.is_dir() || stub {
                continue;
            }
            if merged.insert(path.clone(), (seen.kind, seen.content)).is_some() {
                return Err(format!("{} is on two sets", path.display()));
            }
        }
    }
    let wanted = files::tree(&mount.dir).into_iter().filter(|(_, seen)| !seen.is_dir());
    let wanted: BTreeMap<PathBuf, (char, Vec<u8>)> =
        wanted.map(|(path, seen)| (path, (seen.kind, seen.content))).collect();
    let names = |tree: &BTreeMap<PathBuf, (char, Vec<u8>)>| tree.keys().cloned().collect::<Vec<_>>();
    if merged == wanted {
        Ok(())
    } else {
        Err(format!("{:?} instead of {:?}", names(&merged), names(&wanted)))
    }
}

fn both_show(rig: &Rig, mount: &Mounted, when: &str) {
    for which in 0..2 {
        eventually_ok(when, || shows(rig, mount, which));
    }
}

/// However names of other sets' files came to be in directories, and wherever those are moved: who reads the bricks finds all
/// files where users have them.
#[test]
fn bricks_show_files_where_users_have_them() {
    let mut rig = Rig::new(3, &THREE);
    let m = rig.mount();
    for set in 0..3 {
        fs::create_dir_all(rig.at(&m, set, "a/b")).unwrap();
        fs::write(rig.at(&m, set, "f"), format!("content of {set}")).unwrap();
        symlink("target", rig.at(&m, set, "l")).unwrap();
    }
    for set in 0..3 {
        let to = (set + 1) % 3;
        fs::rename(rig.at(&m, set, "f"), rig.at(&m, to, "a/b/renamed")).unwrap();
        fs::rename(rig.at(&m, set, "l"), rig.at(&m, to, "a/link")).unwrap();
        fs::hard_link(rig.at(&m, to, "a/b/renamed"), rig.at(&m, (set + 2) % 3, "a/hard")).unwrap();
        fs::hard_link(rig.at(&m, to, "a/b/renamed"), m.path(&format!("top{set}"))).unwrap();
    }
    both_show(&rig, &m, "names are at their paths");
    for set in 0..3 {
        fs::rename(rig.at(&m, set, "a"), rig.at(&m, set, "moved")).unwrap();
        fs::create_dir(rig.at(&m, set, "a")).unwrap();
        fs::rename(rig.at(&m, set, "moved/b"), rig.at(&m, set, "a/b")).unwrap();
    }
    both_show(&rig, &m, "they follow renames of directories");
    rig.pool.kill(1);
    fs::rename(rig.at(&m, 0, "a/b/renamed"), rig.at(&m, 0, "again")).unwrap();
    fs::rename(rig.at(&m, 1, "moved"), rig.at(&m, 1, "moved2")).unwrap();
    fs::remove_file(m.path("top2")).unwrap();
    rig.pool.start(1);
    rig.pool.wait_in_sync();
    both_show(&rig, &m, "a brick that was away has them there, too");
    m.end();
    rig.assert_sound();
}
