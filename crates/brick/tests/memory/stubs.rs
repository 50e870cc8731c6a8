//! Files of other sets that take the place of a file, over full disks and power cuts.

use super::common::*;
use super::disk::Disk;
use ids::{Epoch, Fid, Lsn, SetId};
use memory_fs::CrashRule;
use namespace::TreeState as _;
use wire::change::Replaced;
use wire::op::EntryName;
use wire::{Change, Errno};

const OTHER: SetId = SetId(2);
/// The file of the other set.
const NEW: Fid = Fid { set: OTHER, epoch: Epoch(4), lsn: Lsn(5) };

fn enter(at: &str, old: Option<Fid>, orphan: bool) -> Change {
    let replaced = old.map(|fid| Replaced { fid, dir: false, orphan });
    let kind = 0o100_000;
    Change::Enter { parent: ROOT, name: name(at), fid: NEW, home: OTHER, kind, replaced, time: time(7) }
}

/// A file to be replaced, perhaps by one that has another name here.
fn with_old(disk: &mut Disk, known: bool) -> (Set, Fid) {
    let mut s = Set::new(vec![disk.open().unwrap()]);
    let old = s.file(ROOT, "old");
    if known {
        s.apply(&enter("other", None, false), b"").unwrap();
    }
    s.bricks[0].begin_sync(None).unwrap().run().unwrap();
    (s, old)
}

fn leads_to(s: &mut Set, n: &str) -> Option<Fid> {
    s.bricks[0].entry(ROOT, &name(n)).unwrap().map(|e| e.fid)
}

/// A brick that has no room for it keeps the file that was to give way, and its name.
#[test]
fn a_file_that_cannot_be_replaced_stays() {
    for (known, orphan, calls) in
        (0..16).flat_map(|n| [(false, false, n), (false, true, n), (true, false, n), (true, true, n)])
    {
        let why = format!("known {known} orphan {orphan} after {calls} changes");
        let mut disk = Disk::new(1, CrashRule::Ordered);
        let (mut s, old) = with_old(&mut disk, known);
        disk.fail_writes_after(calls);
        let done = s.apply(&enter("old", Some(old), orphan), b"");
        disk.fail_writes(false);
        if s.bricks[0].is_partial() {
            s.bricks[0].record_partial().unwrap();
        }
        let at = leads_to(&mut s, "old");
        assert!(at == Some(NEW) || done.is_err() && at == Some(old), "{why}: {done:?} {at:?}");
        let gone = at == Some(NEW) && !orphan;
        assert_eq!(s.bricks[0].attr(old).is_err_and(|e| e == Errno::ESTALE), gone, "{why}");
        assert_eq!(leads_to(&mut s, "other"), known.then_some(NEW), "{why}");
        // The next one finds nothing in its way.
        if at == Some(old) {
            s.apply(&enter("old", Some(old), orphan), b"").unwrap();
            assert_eq!(leads_to(&mut s, "old"), Some(NEW), "{why}");
        }
        assert_eq!(disk.names("limbo"), Vec::<String>::new(), "{why}");
    }
}

/// After a power cut, and after a kill, the name leads to one of the two.
#[test]
fn a_stub_takes_a_place_or_not() {
    for (known, orphan, calls) in
        (0..16).flat_map(|n| [(false, false, n), (false, true, n), (true, false, n), (true, true, n)])
    {
        let cuts = [Some(CrashRule::Ordered), Some(CrashRule::Hostile), None];
        for cut in cuts {
            let why = format!("known {known} orphan {orphan} cut {cut:?} after {calls} changes");
            let mut disk = Disk::new(1, cut.unwrap_or(CrashRule::Ordered));
            let (mut s, old) = with_old(&mut disk, known);
            if cut.is_some() {
                disk.cut_power_after(calls)
            } else {
                disk.fail_writes_after(calls)
            }
            let _ = s.apply(&enter("old", Some(old), orphan), b"");
            drop(s);
            disk.fail_writes(false);
            if let Some(rule) = cut {
                // All that was done survives.
                disk.crash(rule, &mut |n| n - 1);
            }
            let mut s = Set::new(vec![disk.open().unwrap()]);
            let at = leads_to(&mut s, "old");
            assert!(at == Some(NEW) || at == Some(old), "{why}: {at:?}");
            assert_eq!(leads_to(&mut s, "other"), known.then_some(NEW), "{why}");
            let gone = at == Some(NEW) && !orphan;
            assert_eq!(s.bricks[0].attr(old).is_err(), gone, "{why}");
            assert_eq!(disk.names("limbo"), Vec::<String>::new(), "{why}");
        }
    }
}

/// Whatever a power cut leaves of it.
#[test]
fn a_name_never_leads_to_a_stub_that_nobody_knows() {
    let (mut olds, mut news) = (0, 0);
    for seed in 0..300_u64 {
        let mut disk = Disk::new(1, CrashRule::Hostile);
        let (mut s, old) = with_old(&mut disk, seed % 3 == 0);
        s.apply(&enter("old", Some(old), seed % 2 == 0), b"").unwrap();
        drop(s);
        disk.crash_by_chance(CrashRule::Hostile, seed);
        let mut s = Set::new(vec![disk.open().unwrap()]);
        match leads_to(&mut s, "old") {
            Some(NEW) => news += 1,
            at => {
                assert_eq!(at, Some(old), "{seed}");
                olds += 1;
            }
        }
    }
    assert!(olds > 50 && news > 50, "{olds} and {news}");
}

/// The folder of names is stale when a healing begins, and made again before it ends: it has the fid that it had.
#[test]
fn a_folder_of_names_that_a_walk_met_is_made_anew_after_it_was_taken_away() {
    let mut disk = Disk::new(1, CrashRule::Ordered);
    let mut s = Set::new(vec![disk.open().unwrap()]);
    let folder = Fid { set: SetId(2), ..ROOT }.names();
    let fid = s.file(ROOT, "file");
    let place = |n: &str| Some(EntryName { dir: folder, name: name(n) });
    let add = |n: &str| Change::EndFile { fid, drop: None, add: place(n), orphan: false, time: time(9) };
    s.apply(&add("stale"), b"").unwrap();
    let b = &mut s.bricks[0];
    b.begin_placed().run().unwrap();
    assert!(!b.take_nothing(folder).unwrap());
    s.apply(&add("new"), b"").unwrap();
    let b = &mut s.bricks[0];
    b.begin_end().unwrap().run().unwrap();
    assert_eq!(b.entry(folder, &name("new")).unwrap().map(|e| e.fid), Some(fid));
    assert_eq!(b.entry(folder, &name("stale")), Ok(None));
}

/// A stub went, and was made again under another name; a power cut may keep both. They are one then, and the index knows it.
#[test]
fn of_two_stubs_that_a_power_cut_left_one_has_both_names() {
    let mut both = 0;
    for seed in 0..1000_u64 {
        let mut disk = Disk::new(1, CrashRule::Hostile);
        let mut s = Set::new(vec![disk.open().unwrap()]);
        let [d, e] = ["d", "e"].map(|n| s.dir(ROOT, n));
        let enter = |parent| {
            let (fid, home, kind, replaced) = (NEW, OTHER, 0o100_000, None);
            Change::Enter { parent, name: name("n"), fid, home, kind, replaced, time: time(7) }
        };
        s.apply(&enter(d), b"").unwrap();
        if seed.is_multiple_of(2) {
            // The index knows the first, and nothing of it changes any more.
            for _ in 0..2 {
                disk.pass_time();
                s.bricks[0].begin_sync(None).unwrap().run().unwrap();
            }
            disk.pass_time();
        }
        let drop_first = Some(EntryName { dir: d, name: name("n") });
        let (fid, add, orphan, time) = (NEW, None, false, time(8));
        s.apply(&Change::EndFile { fid, drop: drop_first, add, orphan, time }, b"").unwrap();
        s.apply(&enter(e), b"").unwrap();
        drop(s);
        disk.crash_by_chance(CrashRule::Hostile, seed);
        let tree = disk.tree();
        let left = ["/d/n", "/e/n"].map(|path| tree.get(path).is_some_and(|seen| seen.tag.is_some()));
        let mut s = Set::new(vec![disk.open().unwrap()]);
        if left == [true, true] {
            both += 1;
            assert_eq!(s.bricks[0].attr_of_any(NEW).unwrap().nlink, 2, "{seed}");
            let drop = Some(EntryName { dir: d, name: name("n") });
            s.apply(&Change::EndFile { fid, drop, add: None, orphan, time }, b"").unwrap();
            assert_eq!(s.bricks[0].attr_of_any(NEW).unwrap().nlink, 1, "{seed}");
        }
        s.bricks.pop().unwrap().close().unwrap();
        assert_eq!(disk.problems(), [], "{seed}");
    }
    assert!(both > 10, "{both}");
}
