//! Servers that are killed in the midst of many changes of names on several sets: no application sees an error, nothing is
//! lost, no name is there twice, and the bricks are sound.

use super::*;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Instant;

/// Of each kind, and until the last fault is over.
const LEAST: usize = 20;

/// The second server has a brick of each set.
const BRICKS: [(usize, &str); 4] = [(0, "b1"), (1, "b1"), (1, "b2"), (2, "b2")];

/// What must be there, and with how many links, by name in the directory of a set.
type Wanted = BTreeMap<(usize, String), (Vec<u8>, u64)>;

/// Files of set 0 that get names in the directory of set 1, in all ways, again and again.
fn work(dirs: &Dirs, mount: &Mounted, kind: usize, done: &AtomicUsize, over: &AtomicBool) -> Wanted {
    let mut wanted = Wanted::new();
    let at = |set, name: &str| dirs.at(mount, set, name);
    let sure = |what: &str, result: io::Result<()>| result.unwrap_or_else(|e| panic!("{what}: {e}"));
    for n in 0.. {
        if n >= LEAST && over.load(Ordering::Relaxed) {
            break;
        }
        let (name, other) = (format!("k{kind}n{n}"), format!("k{kind}o{n}"));
        let content = files::noise((kind * 1000 + n) as u64, 100);
        sure("write", fs::write(at(0, &name), &content));
        match kind {
            0 => {
                sure("move", fs::rename(at(0, &name), at(1, &name)));
                wanted.insert((1, name), (content, 1));
            }
            1 => {
                sure("link", fs::hard_link(at(0, &name), at(1, &name)));
                wanted.insert((0, name.clone()), (content.clone(), 2));
                wanted.insert((1, name), (content, 2));
            }
            2 => {
                sure("write", fs::write(at(1, &other), "gives way"));
                sure("replace", fs::rename(at(0, &name), at(1, &other)));
                // Then another one of the same home.
                sure("write", fs::write(at(0, &name), [&content[..], b"+"].concat()));
                sure("replace again", fs::rename(at(0, &name), at(1, &other)));
                wanted.insert((1, other), ([&content[..], b"+"].concat(), 1));
            }
            3 => {
                sure("move", fs::rename(at(0, &name), at(1, &name)));
                sure("move on", fs::rename(at(1, &name), at(1, &other)));
                sure("remove", fs::remove_file(at(1, &other)));
            }
            // Between three sets, and onto one that gives way.
            4 => {
                sure("move", fs::rename(at(0, &name), at(1, &name)));
                sure("write", fs::write(at(2, &other), "gives way"));
                sure("move to a third set", fs::rename(at(1, &name), at(2, &other)));
                wanted.insert((2, other), (content, 1));
            }
            _ => {
                sure("move", fs::rename(at(0, &name), at(1, &name)));
                sure("link", fs::hard_link(at(1, &name), at(2, &name)));
                sure("move home", fs::rename(at(1, &name), at(0, &other)));
                wanted.insert((0, other), (content.clone(), 2));
                wanted.insert((2, name), (content, 2));
            }
        }
        done.fetch_add(1, Ordering::Relaxed);
    }
    wanted
}

fn check(rig: &Rig, mount: &Mounted, wanted: &Wanted) {
    for set in 0..rig.dirs.0.len() {
        let there = rig.dirs.names(mount, set);
        let names: Vec<String> = wanted.keys().filter(|(s, _)| *s == set).map(|(_, n)| n.clone()).collect();
        let lost: Vec<_> = names.iter().filter(|n| !there.contains(n)).collect();
        let more: Vec<_> = there.iter().filter(|n| !names.contains(n)).collect();
        assert!(lost.is_empty() && more.is_empty(), "set {set}: lost {lost:?}, too much {more:?}");
        assert_eq!(there.len(), names.len(), "a name twice");
    }
    for ((set, name), (content, links)) in wanted {
        is_one_file(content, &[rig.at(mount, *set, name)], *links);
    }
}

pub(super) fn in_sync(pool: &Pool) {
    eventually("all bricks are in sync", || {
        let output = pool.cli("volume status v --json");
        let status: serde_json::Value = serde_json::from_str(&output.stdout).ok()?;
        let bricks = status[0]["bricks"].as_array()?;
        bricks.iter().all(|b| b["in_sync"] == true && b["online"] == true).then_some(())
    });
}

/// Mounts work while `fault` happens, the first in ways of this kind; what must be there afterwards.
fn worked_through(
    dirs: &Dirs,
    (mounts, first): (&[Mounted], usize),
    fault: impl FnOnce(&AtomicUsize),
) -> Wanted {
    let (done, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let begun = Instant::now();
    let wanted = std::thread::scope(|scope| {
        let (done, over) = (&done, &over);
        let one = |(n, mount)| scope.spawn(move || work(dirs, mount, first + n, done, over));
        let threads: Vec<_> = mounts.iter().enumerate().map(one).collect();
        fault(done);
        over.store(true, Ordering::Relaxed);
        threads.into_iter().flat_map(|t| t.join().unwrap()).collect()
    });
    println!("{} changes in {:?}", done.into_inner(), begun.elapsed());
    wanted
}

fn goes_on(done: &AtomicUsize, what: &str, more: usize) {
    let before = done.load(Ordering::Relaxed);
    eventually(what, || (done.load(Ordering::Relaxed) > before + more).then_some(()));
}

fn end(rig: Rig, mounts: Vec<Mounted>, wanted: &Wanted) {
    in_sync(&rig.pool);
    let seen = rig.mount();
    check(&rig, &seen, wanted);
    mounts.into_iter().for_each(Mounted::end);
    rig.leaves_nothing(seen);
}

/// First a server that has a brick of each set, then the others; each comes back.
#[test]
fn servers_are_killed_in_the_midst_of_renames() {
    let mut rig = Rig::new(3, &BRICKS);
    let mounts: Vec<Mounted> = (0..4).map(|_| rig.mount()).collect();
    let pool = &mut rig.pool;
    let wanted = worked_through(&rig.dirs, (&mounts, 0), |done| {
        for server in [1, 0, 2] {
            goes_on(done, "work goes on", 8);
            pool.kill(server);
            goes_on(done, "work goes on without a server", 4);
            pool.start(server);
            in_sync(pool);
        }
    });
    end(rig, mounts, &wanted);
}

/// A rename between sets of files that live on a third one, and of such as come home; each server is killed at random moments.
#[test]
fn servers_are_killed_in_the_midst_of_renames_between_three_sets() {
    let mut rig = Rig::new(3, &THREE);
    let mounts: Vec<Mounted> = (0..2).map(|_| rig.mount()).collect();
    let pool = &mut rig.pool;
    let wanted = worked_through(&rig.dirs, (&mounts, 4), |done| {
        for server in [1, 0, 2] {
            goes_on(done, "work goes on", 4);
            std::thread::sleep(std::time::Duration::from_millis(rand::random::<u64>() % 300));
            pool.kill(server);
            goes_on(done, "work goes on without a server", 2);
            pool.start(server);
            in_sync(pool);
        }
    });
    end(rig, mounts, &wanted);
}

/// All at once: what was acknowledged is there, as the machine goes on and with it what was written.
#[test]
fn all_servers_are_killed_in_the_midst_of_renames() {
    let mut rig = Rig::new(3, &BRICKS);
    let mounts: Vec<Mounted> = (0..4).map(|_| rig.mount()).collect();
    let pool = &mut rig.pool;
    let wanted = worked_through(&rig.dirs, (&mounts, 0), |done| {
        goes_on(done, "work goes on", 20);
        (0..3).for_each(|server| pool.kill(server));
        (0..3).for_each(|server| pool.start(server));
        goes_on(done, "work goes on with new servers", 8);
    });
    end(rig, mounts, &wanted);
}
