//! Entries that lead to something else, where one of the two is a directory: over kills, power cuts and disks that fail, at each of
//! the steps.

use super::common::*;
use super::disk::Disk;
use ids::{Epoch, Fid, Lsn, OpId, SessionId, SetId};
use memory_fs::CrashRule;
use namespace::TreeState as _;
use wire::change::Replaced;
use wire::op::{Ancestor, EntryName, Intent, Successor};
use wire::{Change, Errno};

const OTHER: SetId = SetId(9);
const THIRD: SetId = SetId(7);
/// A directory of the other set; what the entry leads to of another set, and what it is to lead to.
const FAR: Fid = fid(OTHER, 1);
const THEIRS: Fid = fid(THIRD, 4);
const COMES: Fid = fid(THIRD, 5);
const TX: OpId = OpId { session: SessionId(3), seq: 8 };
const DIR: u32 = 0o040_000;
const FILE: u32 = 0o100_000;
/// More changes of the file system than one of these takes.
const CALLS: u64 = 24;

const fn fid(set: SetId, n: u64) -> Fid {
    Fid { set, epoch: Epoch(1), lsn: Lsn(n) }
}

/// What an entry leads to.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Goes {
    File,
    /// It has another name.
    NamedTwice,
    Dir,
    Stub,
    Copy,
    /// A directory of this set lies in it.
    FullCopy,
}

/// What it is to lead to.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Comes {
    File,
    Dir,
    Stub,
    KnownStub,
    Copy,
    /// A directory of this set lies in it.
    KnownCopy,
    /// So does the one that has the entry, at an old path.
    CopyAbove,
}

const GOES: [Goes; 6] = [Goes::File, Goes::NamedTwice, Goes::Dir, Goes::Stub, Goes::Copy, Goes::FullCopy];
const COMES_TOO: [Comes; 7] =
    [Comes::File, Comes::Dir, Comes::Stub, Comes::KnownStub, Comes::Copy, Comes::KnownCopy, Comes::CopyAbove];

/// All of them, but two that are no directories.
fn cases() -> impl Iterator<Item = (Goes, Comes)> {
    let all = GOES.into_iter().flat_map(|goes| COMES_TOO.into_iter().map(move |comes| (goes, comes)));
    all.filter(|(goes, comes)| goes.is_dir() || comes.is_dir())
}

impl Goes {
    fn is_dir(self) -> bool {
        matches!(self, Goes::Dir | Goes::Copy | Goes::FullCopy)
    }

    fn is_own(self) -> bool {
        matches!(self, Goes::File | Goes::NamedTwice | Goes::Dir)
    }
}

impl Comes {
    fn is_dir(self) -> bool {
        !matches!(self, Comes::File | Comes::Stub | Comes::KnownStub)
    }

    fn is_own(self) -> bool {
        matches!(self, Comes::File | Comes::Dir)
    }
}

fn far(dir: Fid, s: &str) -> Option<EntryName> {
    Some(EntryName { dir, name: name(s) })
}

fn enter(parent: Fid, at: &str, (fid, kind): (Fid, u32)) -> Change {
    let (home, replaced, time) = (fid.set, None, time(5));
    Change::Enter { parent, name: name(at), fid, home, kind, replaced, time }
}

/// A directory of this set in one of another one.
fn placed(s: &mut Set, (above, at): (Fid, &str), fid: Fid, n: &str) -> Fid {
    let path = vec![Ancestor { fid: above, home: above.set, name: name(at) }];
    let (mode, uid, gid, time) = (0o755, 0, 0, time(5));
    s.apply(&Change::PrepareMkdir { path, name: name(n), fid, mode, uid, gid, time }, b"").unwrap();
    s.apply(&Change::EndTransaction { fid, keep: true }, b"").unwrap();
    s.file(fid, "file");
    fid
}

/// A brick with the entry `in/at`, and all that is marked for its exchange.
struct Case {
    goes: Goes,
    comes: Comes,
    dir: Fid,
    out: Fid,
    next: Fid,
    swap: Change,
}

fn case(s: &mut Set, goes: Goes, comes: Comes) -> Case {
    let dir = match comes {
        // The copy that comes lies above the entry here.
        Comes::CopyAbove => placed(s, (COMES, "comes"), fid(SET, 902), "in"),
        _ => s.dir(ROOT, "in"),
    };
    let out = match goes {
        Goes::File => s.file(dir, "at"),
        Goes::NamedTwice => {
            let file = s.file(dir, "at");
            s.apply(&Change::Link { fid: file, parent: ROOT, name: name("too"), time: time(6) }, b"")
                .unwrap();
            file
        }
        Goes::Dir => {
            let out = s.dir(dir, "at");
            s.file(out, "file");
            out
        }
        Goes::Stub | Goes::Copy | Goes::FullCopy => {
            let kind = if goes == Goes::Stub { FILE } else { DIR };
            s.apply(&enter(dir, "at", (THEIRS, kind)), b"").unwrap();
            if goes == Goes::FullCopy {
                placed(s, (THEIRS, "at"), fid(SET, 901), "held");
            }
            THEIRS
        }
    };
    let next = match comes {
        Comes::File => {
            let file = s.file(ROOT, "comes");
            let (drop, add) = (far(ROOT, "comes"), far(FAR.names(), "old"));
            s.apply(&Change::EndFile { fid: file, drop, add, orphan: false, time: time(6) }, b"").unwrap();
            file
        }
        Comes::Dir => placed(s, (FAR, "far"), fid(SET, 900), "old"),
        Comes::KnownStub => {
            s.apply(&enter(ROOT, "known", (COMES, FILE)), b"").unwrap();
            COMES
        }
        Comes::KnownCopy => {
            placed(s, (COMES, "comes"), fid(SET, 903), "held");
            COMES
        }
        Comes::Stub | Comes::Copy | Comes::CopyAbove => COMES,
    };
    let kind = if comes.is_dir() { DIR } else { FILE };
    let successor = Successor { fid: next, home: next.set, kind };
    mark(s, (dir, goes, out), (comes, next), successor.clone());
    let orphan = goes == Goes::File;
    let out_of = Replaced { fid: out, dir: goes.is_dir(), orphan };
    let theirs = if comes == Comes::File { far(FAR.names(), "old") } else { None };
    let (name, time) = (name("at"), time(700));
    let swap = Change::Swap { parent: dir, name, out: out_of, next: successor, theirs, tx: TX, time };
    Case { goes, comes, dir, out, next, swap }
}

fn mark(s: &mut Set, (dir, goes, out): (Fid, Goes, Fid), (comes, next): (Comes, Fid), successor: Successor) {
    let intent = |coordinator, drop, add| Intent { tx: TX, coordinator, drop, add };
    let prepare = match goes {
        Goes::Dir => {
            let intent = intent(OTHER, far(dir, "at"), far(FAR, "new"));
            Change::PrepareSwap { fid: out, intent, successor, from: SET }
        }
        Goes::File | Goes::NamedTwice => {
            let intent = intent(OTHER, far(dir, "at"), far(FAR.names(), "new"));
            Change::PrepareExchange { fid: out, intent, successor }
        }
        _ => {
            let intent = intent(THIRD, far(dir, "at"), None);
            Change::PrepareExchange { fid: out, intent, successor }
        }
    };
    s.apply(&prepare, b"").unwrap();
    let drop = match comes {
        Comes::File => far(FAR.names(), "old"),
        Comes::Dir => far(FAR, "old"),
        _ => return,
    };
    let intent = intent(SET, drop, far(dir, "at"));
    s.apply(&Change::PrepareFile { fid: next, intent }, b"").unwrap();
}

fn leads_to(s: &mut Set, dir: Fid, n: &str) -> Option<Fid> {
    match s.bricks[0].entry(dir, &name(n)) {
        Err(Errno::ESTALE) => None,
        other => other.unwrap().map(|e| e.fid),
    }
}

impl Case {
    /// All is as before, or the entry leads to what comes. Which of the two?
    fn is_whole(&self, s: &mut Set, why: &str) -> bool {
        let Case { goes, comes, dir, out, next, .. } = *self;
        let at = leads_to(s, dir, "at");
        let swapped = at == Some(next);
        assert!(swapped || at == Some(out), "{why}: {at:?}");
        let b = &mut s.bricks[0];
        if goes.is_own() {
            assert!(b.attr(out).is_ok(), "{why}: what has gone is still there");
            assert_eq!(b.is_pending(out), Ok(true), "{why}");
        }
        if goes == Goes::Dir {
            assert_eq!(b.intent(out).unwrap().is_none(), swapped, "{why}: its mark means where it is to be");
            assert_eq!(b.successor(out).unwrap().is_none(), swapped, "{why}");
            assert!(b.entry(out, &name("file")).unwrap().is_some(), "{why}: what is in it stays");
            if swapped {
                let at = b.location_of(out).unwrap();
                assert_eq!((at.parent, at.parent_home, at.name), (FAR, OTHER, name("new")), "{why}");
            }
        } else if !swapped || goes.is_own() {
            assert_eq!(b.successor(out).unwrap().map(|next| next.fid), Some(next), "{why}");
        }
        if goes == Goes::File {
            assert_eq!(b.is_orphan(out), swapped, "{why}");
        }
        if comes.is_own() {
            assert_eq!(b.is_pending(next), Ok(true), "{why}");
        }
        match comes {
            Comes::File => {
                let old = leads_to(s, FAR.names(), "old");
                assert_eq!(old, (!swapped).then_some(next), "{why}: it has one name");
                assert_eq!(s.bricks[0].attr(next).unwrap().nlink, 1, "{why}");
            }
            Comes::Dir => {
                let b = &mut s.bricks[0];
                assert!(b.entry(next, &name("file")).unwrap().is_some(), "{why}: what is in it stays");
                let at = b.location_of(next).unwrap();
                let place = if swapped { (dir, SET, name("at")) } else { (FAR, OTHER, name("old")) };
                assert_eq!((at.parent, at.parent_home, at.name), place, "{why}");
            }
            Comes::KnownStub => assert_eq!(leads_to(s, ROOT, "known"), Some(next), "{why}"),
            _ => {}
        }
        for held in [901, 902, 903].map(|n| fid(SET, n)) {
            let is_there = match held.lsn.0 {
                901 => goes == Goes::FullCopy,
                902 => comes == Comes::CopyAbove,
                _ => comes == Comes::KnownCopy,
            };
            assert_eq!(s.bricks[0].attr(held).is_ok(), is_there, "{why}: {held}");
        }
        swapped
    }

    /// The brick is opened again, and it ends. Whether it was done before.
    fn ends_after_restart(&self, disk: &mut Disk, why: &str) -> bool {
        let mut s = Set::new(vec![disk.open().unwrap()]);
        let is_done = self.is_whole(&mut s, why);
        self.ends(s, disk, why);
        is_done
    }

    /// It is done, and what is left of it is right.
    fn ends(&self, mut s: Set, disk: &Disk, why: &str) {
        if !self.is_whole(&mut s, why) {
            s.apply(&self.swap, b"").unwrap();
            assert!(self.is_whole(&mut s, why), "{why}: nothing is in its way");
        }
        if self.goes == Goes::Stub {
            assert_eq!(s.bricks[0].attr_of_any(self.out), Err(Errno::ESTALE), "{why}");
        }
        s.bricks[0].begin_sync(None).unwrap().run().unwrap();
        s.bricks.pop().unwrap().close().unwrap();
        assert_eq!(disk.problems(), [], "{why}");
        for place in disk.names("limbo") {
            assert!(!place.starts_with("unknown"), "{why}: {place}");
        }
    }
}

fn begin(disk: &mut Disk, goes: Goes, comes: Comes) -> (Set, Case) {
    let mut s = Set::new(vec![disk.open().unwrap()]);
    let case = case(&mut s, goes, comes);
    s.bricks[0].begin_sync(None).unwrap().run().unwrap();
    disk.pass_time();
    (s, case)
}

#[test]
fn whatever_comes_takes_the_place_of_whatever_goes() {
    for (goes, comes) in cases() {
        let mut disk = Disk::new(1, CrashRule::Ordered);
        let (mut s, case) = begin(&mut disk, goes, comes);
        let why = format!("{goes:?} and {comes:?}");
        assert!(!case.is_whole(&mut s, &why), "{why}");
        s.bricks[0].validate(&case.swap).unwrap();
        s.apply(&case.swap, b"").unwrap();
        assert!(case.is_whole(&mut s, &why), "{why}");
        if goes == Goes::Copy {
            assert_eq!(s.bricks[0].attr_of_any(case.out), Err(Errno::ESTALE), "{why}: nothing hangs on it");
        }
        case.ends(s, &disk, &why);
    }
}

/// A disk that is full, or fails, after any of its changes: the entry leads to one of the two.
#[test]
fn an_entry_stays_or_leads_elsewhere() {
    for ((goes, comes), calls) in cases().flat_map(|case| (0..CALLS).map(move |calls| (case, calls))) {
        let why = format!("{goes:?} and {comes:?} after {calls} changes");
        let mut disk = Disk::new(1, CrashRule::Ordered);
        let (mut s, case) = begin(&mut disk, goes, comes);
        disk.fail_writes_after(calls);
        let done = s.apply(&case.swap, b"");
        disk.fail_writes(false);
        if s.bricks[0].is_partial() {
            // The next process puts it right.
            drop(s);
            s = Set::new(vec![disk.open().unwrap()]);
        }
        assert!(case.is_whole(&mut s, &why) || done.is_err(), "{why}: {done:?}");
        case.ends(s, &disk, &why);
    }
}

/// After a power cut, and after a kill, all is as before, or as it is to be.
#[test]
fn a_swap_is_whole_after_a_crash() {
    let (mut before, mut after) = (0, 0);
    let cuts = [Some(CrashRule::Ordered), Some(CrashRule::Hostile), None];
    for ((goes, comes), calls) in cases().flat_map(|case| (0..CALLS).map(move |calls| (case, calls))) {
        for (n, cut) in cuts.into_iter().enumerate() {
            let why = format!("{goes:?} and {comes:?} cut {cut:?} after {calls} changes");
            let mut disk = Disk::new(1, cut.unwrap_or(CrashRule::Ordered));
            let (mut s, case) = begin(&mut disk, goes, comes);
            if cut.is_some() {
                disk.cut_power_after(calls);
            } else {
                disk.fail_writes_after(calls);
            }
            let _ = s.apply(&case.swap, b"");
            drop(s);
            disk.fail_writes(false);
            match cut {
                // All that was done survives, or some of it.
                Some(rule) if calls % 2 == 0 => disk.crash(rule, &mut |n| n - 1),
                Some(rule) => disk.crash_by_chance(rule, calls * 7 + n as u64),
                None => {}
            }
            if case.ends_after_restart(&mut disk, &why) {
                after += 1;
            } else {
                before += 1;
            }
        }
    }
    println!("{before} times what was before, {after} times what is after");
    assert!(before > 300 && after > 300, "{before}, {after}");
}

/// What was made after the index was written is not in it, and it is read again only when the folders have been put right.
#[test]
fn a_swap_of_what_is_new_is_whole_after_a_kill() {
    for ((goes, comes), calls) in cases().flat_map(|case| (0..CALLS).map(move |calls| (case, calls))) {
        let why = format!("{goes:?} and {comes:?} after {calls} changes");
        let mut disk = Disk::new(1, CrashRule::Ordered);
        let mut s = Set::new(vec![disk.open().unwrap()]);
        s.dir(ROOT, "old");
        s.bricks[0].begin_sync(None).unwrap().run().unwrap();
        let case = case(&mut s, goes, comes);
        disk.pass_time();
        disk.fail_writes_after(calls);
        let _ = s.apply(&case.swap, b"");
        drop(s);
        disk.fail_writes(false);
        case.ends_after_restart(&mut disk, &why);
    }
}

/// A power cut after all of it, before a sync: any part that makes sense is on the disk.
#[test]
fn a_swap_that_was_not_synced_is_whole() {
    let (mut before, mut after) = (0, 0);
    for ((goes, comes), seed) in cases().flat_map(|case| (0..30).map(move |seed| (case, seed))) {
        let why = format!("{goes:?} and {comes:?} {seed}");
        let rule = if seed % 2 == 0 { CrashRule::Hostile } else { CrashRule::Ordered };
        let mut disk = Disk::new(1, rule);
        let (mut s, case) = begin(&mut disk, goes, comes);
        s.apply(&case.swap, b"").unwrap();
        if seed % 3 == 0 {
            s.bricks[0].flush_attrs().unwrap();
        }
        drop(s);
        disk.crash_by_chance(rule, seed);
        if case.ends_after_restart(&mut disk, &why) {
            after += 1;
        } else {
            before += 1;
        }
    }
    println!("{before} times what was before, {after} times what is after");
    assert!(before > 50 && after > 50, "{before}, {after}");
}
