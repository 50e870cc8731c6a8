//! Directories that change the set which answers for them, over power cuts, kills and failures of the disk at any call.

use super::common::*;
use super::disk::Disk;
use super::handed::*;
use brick::Brick;
use ids::Fid;
use memory_fs::CrashRule;
use wire::Change;

/// How a change is interrupted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// The process.
    Kill,
    /// The power, and all that was done survives.
    All(CrashRule),
    /// Only what was synced.
    Synced(CrashRule),
    /// Some of it.
    Some(CrashRule, u64),
}

impl End {
    fn rule(self) -> CrashRule {
        match self {
            End::Kill => CrashRule::Ordered,
            End::All(rule) | End::Synced(rule) | End::Some(rule, _) => rule,
        }
    }

    /// After so many more changes nothing is done any more.
    fn set(self, disk: &Disk, calls: u64) {
        if self == End::Kill { disk.fail_writes_after(calls) } else { disk.cut_power_after(calls) }
    }

    fn crash(self, disk: &mut Disk) {
        disk.empty();
        match self {
            End::Kill => {}
            End::All(rule) => disk.crash(rule, &mut |n| n - 1),
            End::Synced(rule) => disk.crash(rule, &mut |_| 0),
            End::Some(rule, seed) => disk.crash_by_chance(rule, seed),
        }
        disk.pass_time();
    }
}

/// All ways; so many by chance.
fn ends(chances: u64) -> Vec<End> {
    let rules = [CrashRule::Ordered, CrashRule::Hostile];
    let mut ends = vec![End::Kill];
    ends.extend(rules.iter().flat_map(|rule| [End::All(*rule), End::Synced(*rule)]));
    ends.extend((0..chances).flat_map(|n| rules.map(|rule| End::Some(rule, n * 7919 + 3))));
    ends
}

/// What is seen when the change was made without a break.
fn whole(start: fn(&mut Disk) -> Start) -> View {
    let mut disk = Disk::new(1, CrashRule::Ordered);
    let mut at = start(&mut disk);
    disk.pass_time();
    at.s.apply(&at.change, b"").unwrap();
    view(&mut at.s.bricks[0], at.dir, &at.names)
}

/// Whatever has happened: one of two sets answers, and each file of this set has its name.
fn holds(b: &mut Brick, dir: Fid, own: &Names, why: &str) -> View {
    let seen = view(b, dir, own);
    let home = seen.home;
    assert!(home.is_none_or(|home| home == SET || home == OTHER), "{why}: {home:?}");
    let mut here = seen.far_names.clone().unwrap_or_default();
    here.extend(seen.names.clone().unwrap_or_default());
    for (n, e) in own {
        assert_eq!(here.get(n), Some(e), "{why}: {n} in {seen:?}");
    }
    seen
}

/// What a directory had when it was this set's has gone with it.
fn no_stub_in_a_copy(disk: &Disk, why: &str) {
    let tree = disk.tree();
    let tag = |path: &str| tree.get(path).and_then(|seen| seen.tag);
    for path in tree.keys().filter(|path| tag(path).is_some_and(|tag| tag.stub_kind().is_some())) {
        let above = path.rfind('/').map_or("", |at| &path[..at]);
        let is_copy = tag(above).is_some_and(|tag| tag.home != SET);
        assert!(!is_copy || above.contains(".mortar"), "{why}: {path}");
    }
}

/// The brick closes in order, and nothing is wrong with it.
fn is_sound(b: Brick, disk: &Disk, why: &str) {
    b.close().unwrap();
    assert_eq!(disk.problems(), [], "{why}");
}

/// Interrupts the change after each of its calls. `each` gets what the next process finds.
fn interrupted(start: fn(&mut Disk) -> Start, end: End, each: &mut dyn FnMut(&mut Disk, Set, &Start, &str)) {
    for calls in 0..100 {
        let mut disk = Disk::new(1, end.rule());
        let mut at = start(&mut disk);
        disk.pass_time();
        end.set(&disk, calls);
        let done = at.s.apply(&at.change, b"");
        at.s.bricks.clear();
        end.crash(&mut disk);
        let s = Set::new(vec![disk.open().unwrap()]);
        each(&mut disk, s, &at, &format!("{end:?} after {calls} changes"));
        if done.is_ok() {
            return;
        }
    }
    panic!("the change does not end");
}

/// The change is made once more, unless the directory has been given away: nobody gives it again then.
fn make_again(s: &mut Set, at: &Start, seen: &View) {
    if seen.home == Some(SET) || !matches!(at.change, Change::GiveDir { .. }) {
        s.apply(&at.change, b"").unwrap();
    }
}

#[test]
fn a_change_that_is_made_again_after_an_interruption_is_made_as_a_whole() {
    for (what, start) in STARTS {
        let wanted = whole(start);
        for end in ends(6) {
            interrupted(start, end, &mut |disk, mut s, at, why| {
                let why = format!("{what}, {why}");
                let seen = holds(&mut s.bricks[0], at.dir, &at.own(), &why);
                no_stub_in_a_copy(disk, &why);
                make_again(&mut s, at, &seen);
                let now = view(&mut s.bricks[0], at.dir, &at.names);
                assert_eq!(now.without_unused_copies(), wanted.without_unused_copies(), "{why}");
                is_sound(s.bricks.remove(0), disk, &why);
            });
        }
    }
}

/// The other set may not have given the directory away: wherever a change is interrupted, also if a power cut takes its record,
/// this set serves nothing of it before it has asked.
#[test]
fn what_is_not_known_to_be_given_is_marked() {
    for (what, start) in STARTS.iter().filter(|(what, _)| *what != "kept" && *what != "given") {
        for end in ends(8) {
            interrupted(*start, end, &mut |disk, mut s, at, why| {
                let seen = view(&mut s.bricks[0], at.dir, &at.names);
                assert!(seen.home != Some(SET) || seen.is_marked, "{what}, {why}: {seen:?}");
                is_sound(s.bricks.remove(0), disk, why);
            });
        }
    }
}

/// The other set has not given the directory away: what was taken of it is given up, and it may come another time.
#[test]
fn what_was_taken_in_part_is_given_up() {
    let takes = STARTS
        .iter()
        .filter(|(what, _)| ["nothing", "waiting", "copied", "again", "taken back"].contains(what));
    for (what, start) in takes {
        let wanted = whole(*start);
        for end in ends(6) {
            interrupted(*start, end, &mut |disk, mut s, at, why| {
                let why = format!("{what}, {why}");
                if view(&mut s.bricks[0], at.dir, &at.names).home == Some(SET) {
                    s.apply(&give(at.dir), b"").unwrap();
                }
                let seen = holds(&mut s.bricks[0], at.dir, &at.own(), &why);
                assert_ne!(seen.home, Some(SET), "{why}");
                assert_eq!(seen.far_names.unwrap_or_default(), at.own(), "{why}");
                s.apply(&at.change, b"").unwrap();
                let now = view(&mut s.bricks[0], at.dir, &at.names);
                assert_eq!(now.without_unused_copies(), wanted.without_unused_copies(), "{why}");
                is_sound(s.bricks.remove(0), disk, &why);
            });
        }
    }
}

/// What was on disk when the power went is as it was said to be.
#[test]
fn a_change_that_is_on_disk_is_there_as_a_whole() {
    for (what, start) in STARTS {
        let wanted = whole(start);
        for end in ends(10).into_iter().filter(|end| *end != End::Kill) {
            let mut disk = Disk::new(1, end.rule());
            let mut at = start(&mut disk);
            disk.pass_time();
            at.s.apply(&at.change, b"").unwrap();
            sync(&mut at.s);
            at.s.bricks.clear();
            end.crash(&mut disk);
            let mut b = disk.open().unwrap();
            assert_eq!(view(&mut b, at.dir, &at.names), wanted, "{what}, {end:?}");
            is_sound(b, &disk, what);
        }
    }
}

/// The disk fails in the midst of it and is well again: no other brick has the change, and this one goes on with what it did.
#[test]
fn a_change_that_fails_half_way_can_be_made_again() {
    for (what, start) in STARTS {
        let wanted = whole(start);
        for (calls, is_killed) in (0..40).flat_map(|calls| [(calls, false), (calls, true)]) {
            let why = format!("{what}, {calls} changes, killed {is_killed}");
            let mut disk = Disk::new(1, CrashRule::Ordered);
            let mut at = start(&mut disk);
            disk.pass_time();
            disk.fail_writes_after(calls);
            let _ = at.s.apply(&at.change, b"");
            disk.empty();
            let mut b = at.s.bricks.remove(0);
            if b.is_partial() {
                b.record_partial().unwrap();
            }
            if is_killed {
                drop(b);
                b = disk.open().unwrap();
            }
            let mut s = Set::new(vec![b]);
            let seen = holds(&mut s.bricks[0], at.dir, &at.own(), &why);
            make_again(&mut s, &at, &seen);
            let now = view(&mut s.bricks[0], at.dir, &at.names);
            assert_eq!(now.without_unused_copies(), wanted.without_unused_copies(), "{why}");
            is_sound(s.bricks.remove(0), &disk, &why);
        }
    }
}

/// A sync fails in the midst of it, and no other brick has the change: the next process finds whose the directory is for this one.
#[test]
fn a_failed_sync_leaves_no_tag_that_this_process_does_not_go_by() {
    for (what, start) in STARTS {
        let mut disk = Disk::new(1, CrashRule::Ordered);
        let mut at = start(&mut disk);
        disk.pass_time();
        disk.fail_syncs(true);
        let done = at.s.apply(&at.change, b"");
        let syncs = !matches!(at.change, Change::EndTransaction { .. });
        assert_eq!(done.is_err(), syncs, "{what}");
        disk.fail_syncs(false);
        disk.empty();
        let mut b = at.s.bricks.remove(0);
        if b.is_partial() {
            b.record_partial().unwrap();
        }
        let seen = holds(&mut b, at.dir, &at.own(), what);
        drop(b);
        let mut s = Set::new(vec![disk.open().unwrap()]);
        assert_eq!(view(&mut s.bricks[0], at.dir, &at.names).home, seen.home, "{what}");
        make_again(&mut s, &at, &seen);
        let now = view(&mut s.bricks[0], at.dir, &at.names);
        assert_eq!(now.without_unused_copies(), whole(start).without_unused_copies(), "{what}");
        is_sound(s.bricks.remove(0), &disk, what);
    }
}
