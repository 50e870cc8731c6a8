//! Source trees: untarred, cloned, compared with every brick.

use crate::harness::files::{self, Seen, tree};
use crate::harness::{Pool, eventually_ok, tool};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const BRICKS: [(usize, &str); 4] = [(0, "b1"), (1, "b1"), (1, "b2"), (2, "b2")];

/// Compares the bricks with the source: each file on all bricks of exactly one set, directories on all of one at least,
/// and nothing else.
fn compare(source: &BTreeMap<PathBuf, Seen>, sets: &[Vec<BTreeMap<PathBuf, Seen>>]) -> Result<(), String> {
    for (path, wanted) in source {
        let held = |set: &&Vec<BTreeMap<PathBuf, Seen>>| set.iter().any(|b| b.contains_key(path));
        let same = |set: &Vec<BTreeMap<PathBuf, Seen>>| set.iter().all(|b| b.get(path) == Some(wanted));
        let holding: Vec<_> = sets.iter().filter(held).collect();
        let fine = match wanted.is_dir() {
            true => holding.iter().any(|s| same(s)),
            false => holding.len() == 1 && same(holding[0]),
        };
        if !fine {
            let seen: Vec<Vec<Option<&Seen>>> =
                sets.iter().map(|s| s.iter().map(|b| b.get(path)).collect()).collect();
            return Err(format!("{}: {wanted:?} in the source, on the bricks {seen:?}", path.display()));
        }
    }
    let extra = sets.iter().flatten().flat_map(|b| b.keys()).find(|p| !source.contains_key(*p));
    extra.map_or(Ok(()), |p| Err(format!("{} is on a brick only", p.display())))
}

fn brick_trees(pool: &Pool) -> Vec<Vec<BTreeMap<PathBuf, Seen>>> {
    pool.paths(&BRICKS).chunks(2).map(|set| set.iter().map(|b| tree(b)).collect()).collect()
}

#[test]
fn a_source_tree_untarred() {
    let pool = Pool::new(3);
    pool.volume("v", 2, &BRICKS);
    // Large files may lie on another set than their directory, and their names on both.
    pool.ok("volume set v cluster.large-file-size 0");
    let mount = pool.mount("v");
    let source = pool.dir.join("source");
    let count = files::source_tree(&source, 1200);
    let tar = pool.dir.join("source.tar");
    tool(&format!("tar -C {} --format=posix -cf {} .", source.display(), tar.display()));
    let begun = std::time::Instant::now();
    tool(&format!("tar -C {} -xpf {}", mount.dir.display(), tar.display()));
    println!("{count} files untarred in {:?}", begun.elapsed());
    assert!(count >= 1000);
    tool(&format!("diff -r --no-dereference {} {}", source.display(), mount.dir.display()));
    let wanted = tree(&source);
    let shown = tree(&mount.dir);
    for (path, seen) in &wanted {
        assert_eq!(shown.get(path), Some(seen), "{}", path.display());
    }
    assert_eq!(shown.len(), wanted.len());
    eventually_ok("the bricks hold the source", || compare(&wanted, &brick_trees(&pool)));
    let sets = brick_trees(&pool);
    let on = |i: usize| sets[i][0].values().filter(|s| s.kind == 'f').count();
    println!("files by set: {} and {}", on(0), on(1));
    mount.end();
    bricks_are_sound(pool);
}

/// `mortar brick check` of all bricks after their servers ended.
fn bricks_are_sound(mut pool: Pool) {
    for i in 0..pool.servers.len() {
        pool.stop(i);
    }
    for brick in pool.paths(&BRICKS) {
        let mut command = crate::harness::mortar();
        command.args(["brick", "check"]).arg(&brick);
        println!("{}", crate::harness::run(command).ok().trim_end());
    }
}

fn git(dir: &Path, line: &str) -> String {
    let plain = "-c user.name=t -c user.email=t@example.org -c gc.auto=0 -c safe.directory=*";
    tool(&format!("git -C {} {plain} {line}", dir.display()))
}

#[test]
fn git_works_in_a_mount() {
    let pool = Pool::new(3);
    pool.volume("v", 2, &BRICKS);
    let mount = pool.mount("v");
    let source = pool.dir.join("source");
    files::source_tree(&source, 300);
    tool(&format!("rm -rf {}", source.join("decorated").display()));
    let repository = pool.dir.join("repository");
    tool(&format!("cp -a {} {}", source.display(), repository.display()));
    git(&repository, "init -q");
    git(&repository, "add -A -f");
    git(&repository, "commit -qm all");
    // Into the mount from outside, and within it.
    let clone = mount.path("clone");
    tool(&format!("git -c safe.directory=* clone -q {} {}", repository.display(), clone.display()));
    git(&clone, "fsck --full --strict");
    assert_eq!(git(&clone, "status --porcelain"), "");
    let second = mount.path("second");
    tool(&format!("git -c safe.directory=* clone -q {} {}", clone.display(), second.display()));
    std::fs::write(second.join("new file"), "x").unwrap();
    git(&second, "add -A");
    git(&second, "commit -qm more");
    git(&second, "gc -q");
    git(&second, "fsck --full --strict");
    assert_eq!(git(&second, "rev-list --count HEAD").trim(), "2");
    tool(&format!("diff -r -x .git {} {}", repository.display(), clone.display()));
    let made = mount.path("made");
    std::fs::create_dir(&made).unwrap();
    git(&made, "init -q");
    std::fs::write(made.join("f"), "x").unwrap();
    git(&made, "add f");
    git(&made, "commit -qm f");
    git(&made, "fsck --full --strict");
}
