//! Directories that another set is to answer for, told as scripts: this set is the one that gives a directory, the one that takes
//! it, or one that is asked about a directory that it has given.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails says where")]

use crate::common::brick::{Memory, ROOT, dir};
use crate::common::{ME, Rig, answer, asked, create, done, errno, name};
use ids::{Epoch, Fid, Lsn, OpId, SessionId, SetId, Time};
use namespace::placement::SetRoom;
use set_core::{Done, Input, RebalanceSettings, Settings};
use std::time::Duration;
use wire::op::{Ancestor, EntryName, HandedDir, HandedEntry, Intent, Node, SetAttr};
use wire::reply::DirEntry;
use wire::{Attr, Body, Change, Errno, Fail, Op};

const NONE: [&str; 0] = [];
const HERE: SetId = SetId(1);
const THERE: SetId = SetId(2);
/// A directory of this set, `dir`, and a file in it.
const DIR: Fid = Fid { set: HERE, epoch: Epoch(1), lsn: Lsn(40) };
const FILE: Fid = Fid { set: HERE, epoch: Epoch(1), lsn: Lsn(41) };
/// A directory of the other set.
const FAR: Fid = Fid { set: THERE, epoch: Epoch(5), lsn: Lsn(60) };
/// The transaction by which the other set gives it.
const TX: OpId = OpId { session: SessionId(88), seq: 1 };

/// A set of a volume whose servers all know how to hand directories over.
fn rig() -> Rig {
    let names = [((ROOT, name("dir")), (DIR, HERE)), ((DIR, name("file")), (FILE, HERE))].into();
    // Its attributes are known.
    let data = [(DIR, Vec::new())].into();
    let mut rig =
        Rig::with(Memory { names, data, files: [FILE].into(), listed: listed(), ..Memory::default() }, &[]);
    level(&mut rig, 6);
    rig
}

fn listed() -> Vec<DirEntry> {
    let file = DirEntry { name: name("file"), fid: FILE, home: HERE, kind: 0o100_000, cookie: 1, attr: None };
    vec![file]
}

fn level(rig: &mut Rig, level: u32) {
    let settings = rig.settings(ME, [ME].into());
    rig.step(Input::Settings(Settings { level, ..settings }));
}

fn changes(rig: &mut Rig) -> Vec<&'static str> {
    rig.core.brick_mut().journal.iter().map(|e| e.body.variant()).collect()
}

fn give(rig: &mut Rig) -> Vec<String> {
    rig.step(Input::Give(DIR, THERE))
}

/// The first transaction of this set's own: the message with which it is begun is the second.
const OWN: OpId = OpId { session: SessionId(99), seq: 1 };

fn give_dir() -> Op {
    Op::GiveDir { fid: DIR, tx: OWN, to: THERE }
}

/// The other set has all of it on disk, and still leads: this one asks itself.
fn taken_there(rig: &mut Rig) -> Vec<String> {
    assert_eq!(give(rig), ["ask 1: takedir of 2 as 2"]);
    assert_eq!(done(rig, 1), ["ask 2: syncfs of 2"]);
    assert_eq!(done(rig, 2), ["ask 3: syncfs of 1"], "what the other one has names of is not lost here");
    assert_eq!(done(rig, 3), ["ask 4: takedir of 2 as 3"], "it may have lost it meanwhile");
    done(rig, 4)
}

fn check_given(rig: &mut Rig) -> Vec<String> {
    rig.ask(88, Op::CheckGiven { fid: DIR, tx: OWN, to: THERE })
}

#[test]
fn a_directory_goes_with_what_is_in_it() {
    let mut rig = rig();
    assert_eq!(taken_there(&mut rig), ["ask 5: givedir of 1 as 4"]);
    assert!(changes(&mut rig).is_empty());
    assert_eq!(rig.ask_as(99, 4, give_dir()), ["reply 4: done"]);
    assert_eq!(changes(&mut rig), ["GiveDir"]);
    assert_eq!(done(&mut rig, 5), ["ask 6: syncfs of 1"]);
    assert_eq!(check_given(&mut rig), ["reply 1: busy"], "it is not on disk");
    assert_eq!(done(&mut rig, 6), ["ask 7: endtaking of 2"]);
    assert_eq!(check_given(&mut rig), ["reply 2: done"]);
    let shown = rig.ask(9, Op::GetAttr { fid: DIR });
    assert!(shown[0].contains("elsewhere") && shown[0].contains("setid(2)"), "who asks is told: {shown:?}");
    let shown = rig.ask(9, Op::ReadDir { fid: DIR, cookie: 0, plus: false });
    assert!(shown[0].contains("stale"), "{shown:?}");
}

/// It is told with all that its new set has to know.
#[test]
fn what_the_other_set_is_told() {
    let mut rig = rig();
    let told = rig.outputs(Input::Give(DIR, THERE));
    let [set_core::Output::Ask { op, .. }] = &told[..] else { panic!("one question") };
    let Op::TakeDir { fid, tx, from, path, name: called, dir } = op else { panic!("{op:?}") };
    assert_eq!((*fid, *tx, *from, path.len(), called), (DIR, OWN, HERE, 0, &name("dir")));
    let file = HandedEntry { name: name("file"), fid: FILE, home: HERE, kind: 0o100_000 };
    assert_eq!((dir.mode, &dir.entries[..]), (0o755, &[file][..]));
}

/// Nothing in it changes from the beginning, and nobody keeps what was read; all else goes on.
#[test]
fn a_directory_that_goes_is_only_read() {
    let mut rig = rig();
    give(&mut rig);
    let (uid, gid, size, atime, mtime, kill_suid) = (None, None, None, None, None, false);
    let set = SetAttr { mode: Some(0o700), uid, gid, size, atime, mtime, kill_suid };
    let (mode, umask, uid, gid, open) = (0o755, 0, 0, 0, false);
    let make = |node| Op::Create { parent: DIR, name: name("new"), node, mode, umask, uid, gid, open };
    let waits = [
        make(Node::File),
        make(Node::Dir),
        Op::Unlink { parent: DIR, name: name("file") },
        Op::Rename { parent: DIR, name: name("file"), to_parent: ROOT, to_name: name("out"), flags: 0 },
        Op::Link { fid: FILE, parent: DIR, name: name("too") },
        Op::SetAttr { fid: DIR, set },
        Op::Rename { parent: ROOT, name: name("dir"), to_parent: ROOT, to_name: name("moved"), flags: 0 },
    ];
    for op in waits {
        let told = rig.ask(9, op.clone());
        assert!(told.iter().any(|l| l.contains("busy")), "{op:?}: {told:?}");
    }
    assert!(changes(&mut rig).is_empty());
    let shown = rig.ask(9, Op::GetAttr { fid: DIR });
    assert!(shown[0].contains("attr 1.1.40") && !shown[0].contains(" for "), "{shown:?}");
    let shown = rig.ask(9, Op::Lookup { parent: ROOT, name: name("dir") });
    assert!(!shown[0].contains(" for "), "{shown:?}");
    rig.ask(9, create("beside", Node::File));
    assert_eq!(changes(&mut rig), ["Create"]);
}

#[test]
fn what_does_not_go() {
    // The other set has no primary, or is this one.
    let mut rig = rig();
    assert_eq!(rig.step(Input::Give(DIR, SetId(3))), NONE);
    assert_eq!(rig.step(Input::Give(DIR, HERE)), NONE);
    // What is no directory, or the root.
    assert_eq!(rig.step(Input::Give(FILE, THERE)), NONE);
    assert_eq!(rig.step(Input::Give(ROOT, THERE)), NONE);
    // Servers of before do not know what that is.
    level(&mut rig, 5);
    assert_eq!(give(&mut rig), NONE);
    level(&mut rig, 6);
    // A directory is in it.
    let inner = Fid { lsn: Lsn(42), ..DIR };
    let listed = DirEntry { fid: inner, kind: 0o040_000, ..listed().remove(0) };
    rig.core.brick_mut().listed.push(listed);
    assert_eq!(give(&mut rig), NONE);
    rig.core.brick_mut().listed.pop();
    // A file in it is marked.
    let intent = wire::op::Intent { tx: TX, coordinator: THERE, drop: None, add: None };
    rig.core.brick_mut().marked.insert(FILE, intent);
    assert_eq!(give(&mut rig), NONE);
    rig.core.brick_mut().marked.clear();
    // Its entry is another set's.
    rig.core.brick_mut().names.remove(&(ROOT, name("dir")));
    rig.core.brick_mut().names.insert((FAR.names(), name("dir")), (DIR, HERE));
    assert_eq!(give(&mut rig), NONE);
    rig.core.brick_mut().names.insert((ROOT, name("dir")), (DIR, HERE));
    rig.core.brick_mut().names.remove(&(FAR.names(), name("dir")));
    assert_eq!(give(&mut rig), ["ask 1: takedir of 2 as 2"]);
    assert_eq!(give(&mut rig), NONE, "it goes already");
}

/// A file is about to come into it, from another set: nothing of that is undone.
#[test]
fn a_directory_about_which_a_transaction_is_stays() {
    let mut rig = rig();
    let elsewhere = Fid { lsn: Lsn(61), ..FAR };
    let link = Op::LinkIn { fid: elsewhere, home: THERE, parent: DIR, name: name("too") };
    assert!(rig.ask(9, link)[0].starts_with("ask 1: preparefile of 2"));
    assert_eq!(give(&mut rig), NONE);
}

/// Whatever goes wrong before it is given away, it stays, and the other set is told so.
#[test]
fn a_directory_that_is_not_taken_stays() {
    let served = |rig: &mut Rig| {
        let told = rig.ask(9, Op::Unlink { parent: DIR, name: name("file") });
        assert!(!told[0].contains("busy"), "{told:?}");
    };
    let mut rig = rig();
    give(&mut rig);
    assert_eq!(answer(&mut rig, 1, Err(Fail::Busy)), ["ask 2: endtaking of 2, gone"]);
    let told = check_given(&mut rig);
    assert!(told[0].contains("no such file"), "{told:?}");
    served(&mut rig);
    // Its disks fail.
    let mut rig = self::rig();
    give(&mut rig);
    done(&mut rig, 1);
    assert_eq!(answer(&mut rig, 2, errno(Errno::EIO)), ["ask 3: endtaking of 2, gone"]);
    served(&mut rig);
    // This set's do.
    let mut rig = self::rig();
    give(&mut rig);
    done(&mut rig, 1);
    done(&mut rig, 2);
    assert_eq!(answer(&mut rig, 3, errno(Errno::EIO)), ["ask 4: endtaking of 2, gone"]);
    served(&mut rig);
    // It had another primary by then.
    let mut rig = self::rig();
    give(&mut rig);
    done(&mut rig, 1);
    done(&mut rig, 2);
    done(&mut rig, 3);
    assert_eq!(answer(&mut rig, 4, Err(Fail::Busy)), ["ask 5: endtaking of 2, gone"]);
    served(&mut rig);
    // It says nothing for too long.
    let mut rig = self::rig();
    give(&mut rig);
    rig.now += Duration::from_secs(6);
    let told = rig.step(Input::Maintenance);
    assert!(told.contains(&"ask 2: endtaking of 2, gone".to_owned()), "{told:?}");
    assert_eq!(done(&mut rig, 1), NONE, "late");
    served(&mut rig);
}

/// The change that gives it away fails: perhaps on this brick alone, or in part. The other set is told nothing, and asks.
#[test]
fn what_came_of_a_change_that_failed_the_other_set_asks() {
    for fail in [errno(Errno::EIO), Err(Fail::Busy)] {
        let mut rig = rig();
        taken_there(&mut rig);
        assert_eq!(answer(&mut rig, 5, fail), NONE);
        let told = check_given(&mut rig);
        assert!(told[0].contains("no such file"), "{told:?}");
        let told = rig.ask(9, Op::Unlink { parent: DIR, name: name("file") });
        assert!(!told[0].contains("busy"), "it stays: {told:?}");
    }
}

/// What clients may keep of the directory runs out before it is given away.
#[test]
fn a_directory_goes_when_nobody_keeps_anything_of_it() {
    let mut rig = rig();
    let shown = rig.ask(9, Op::GetAttr { fid: DIR });
    assert!(shown[0].ends_with(" for 250 ms"), "{shown:?}");
    let before = rig.now;
    assert_eq!(taken_there(&mut rig), NONE);
    assert_eq!(rig.wake(), ["ask 5: givedir of 1 as 4"]);
    assert_eq!(rig.now - before, Duration::from_millis(250));
}

/// Empty directories of this set.
fn several(count: u64) -> (Rig, Vec<Fid>) {
    let dirs: Vec<Fid> = (0..count).map(|n| Fid { lsn: Lsn(50 + n), ..DIR }).collect();
    let names = dirs.iter().map(|dir| ((ROOT, name(&format!("d{}", dir.lsn))), (*dir, HERE))).collect();
    let data = dirs.iter().map(|dir| (*dir, Vec::new())).collect();
    let mut rig = Rig::with(Memory { names, data, ..Memory::default() }, &[]);
    level(&mut rig, 6);
    (rig, dirs)
}

/// Several directories, all of which the other set has but has not on disk.
fn several_taken(count: u64) -> (Rig, Vec<Fid>) {
    let (mut rig, dirs) = several(count);
    for (ask, dir) in (1..).zip(&dirs) {
        let told = rig.step(Input::Give(*dir, THERE));
        assert_eq!(told, [format!("ask {ask}: takedir of 2 as {}", 2 * ask)]);
    }
    (rig, dirs)
}

/// What several need is done once.
#[test]
fn directories_go_together() {
    let (mut rig, dirs) = several_taken(3);
    assert_eq!([done(&mut rig, 2), done(&mut rig, 1)], [NONE; 2]);
    assert_eq!(done(&mut rig, 3), ["ask 4: syncfs of 2"]);
    assert_eq!(done(&mut rig, 4), ["ask 5: syncfs of 1"]);
    assert_eq!(done(&mut rig, 5), [6, 7, 8].map(|ask| format!("ask {ask}: takedir of 2 as {}", ask + 1)));
    assert_eq!([done(&mut rig, 6), done(&mut rig, 7)], [NONE; 2]);
    assert_eq!(done(&mut rig, 8), [9, 10, 11].map(|ask| format!("ask {ask}: givedir of 1 as {}", ask + 1)));
    for (dir, n) in dirs.iter().zip(0..) {
        let give = Op::GiveDir { fid: *dir, tx: OpId { seq: 1 + 2 * n, ..OWN }, to: THERE };
        assert_eq!(rig.ask_as(99, 10 + n, give), [format!("reply {}: done", 10 + n)]);
    }
    assert_eq!([done(&mut rig, 9), done(&mut rig, 11)], [NONE; 2]);
    assert_eq!(done(&mut rig, 10), ["ask 12: syncfs of 1"]);
    assert_eq!(done(&mut rig, 12), [13, 14, 15].map(|ask| format!("ask {ask}: endtaking of 2")));
    let now = rig.now;
    let report = rig.core.report(now);
    assert_eq!((report.departed.directories, report.on_their_way), (3, 0));
}

/// One that does not go, or of which nothing is heard for a while, holds up no other one.
#[test]
fn directories_do_not_wait_for_one_that_stays() {
    let (mut rig, _) = several_taken(3);
    assert_eq!(done(&mut rig, 1), NONE);
    assert_eq!(answer(&mut rig, 2, Err(Fail::Busy)), ["ask 4: endtaking of 2, gone"]);
    assert_eq!(done(&mut rig, 3), ["ask 5: syncfs of 2"]);
    assert_eq!(done(&mut rig, 5), ["ask 6: syncfs of 1"]);
    let asked = done(&mut rig, 6);
    assert_eq!(asked.len(), 2, "{asked:?}");
    let (mut rig, _) = several_taken(3);
    assert_eq!([done(&mut rig, 1), done(&mut rig, 3)], [NONE; 2]);
    rig.now += Duration::from_secs(1);
    let told = rig.step(Input::Maintenance);
    assert!(told.contains(&"ask 4: syncfs of 2".to_owned()), "{told:?}");
    assert_eq!(done(&mut rig, 2), ["ask 5: syncfs of 2"], "it follows");
    assert_eq!(done(&mut rig, 4), ["ask 6: syncfs of 1"]);
    let asked = done(&mut rig, 6);
    assert_eq!(asked.len(), 2, "{asked:?}");
    // The disks of the other set fail: none goes.
    let (mut rig, _) = several_taken(2);
    done(&mut rig, 1);
    done(&mut rig, 2);
    let told = answer(&mut rig, 3, errno(Errno::EIO));
    assert_eq!(told, [4, 5].map(|ask| format!("ask {ask}: endtaking of 2, gone")));
}

/// Many are on their way at the same time, and not more.
#[test]
fn directories_on_their_way_are_bounded() {
    let (mut rig, dirs) = several(70);
    let began = dirs.iter().filter(|dir| !rig.step(Input::Give(**dir, THERE)).is_empty()).count();
    assert_eq!(began, 64);
}

/// While clients are active one is taken at a time, and then twice as long passes; they go to disk together all the same.
#[test]
fn directories_are_taken_one_by_one_while_clients_are_active() {
    let (mut rig, dirs) = several(3);
    for (set, available) in [(HERE, 1 << 20), (THERE, 1 << 30)] {
        rig.world.rooms.borrow_mut().insert(set, SetRoom::new(set, available, 1 << 31));
    }
    let settings = rig.settings(ME, [ME].into());
    let rebalance = RebalanceSettings { drains: true, ..RebalanceSettings::default() };
    rig.step(Input::Settings(Settings { rebalance, level: 6, ..settings }));
    let looks = rig.step(Input::Maintenance);
    let walk = looks.iter().find_map(|line| line.strip_prefix("start ")?.strip_suffix(": walk"));
    let mut said = rig.step(Input::Worked(walk.unwrap().parse().unwrap(), Ok(Done::Placed(dirs))));
    let mut asks_next = |rig: &mut Rig| loop {
        if let Some(ask) = said.iter().position(|line| line.starts_with("ask ")) {
            return std::mem::take(&mut said).swap_remove(ask);
        }
        rig.world.last_call.set(rig.now.max(rig.core.next_wake().unwrap()));
        said = rig.wake();
    };
    for ask in 1..=3 {
        assert_eq!(asks_next(&mut rig), format!("ask {ask}: takedir of 2 as {}", 2 * ask));
        rig.now += Duration::from_millis(7);
        rig.world.last_call.set(rig.now);
        let answered = rig.now;
        assert_eq!(done(&mut rig, ask), NONE, "it rests");
        while rig.core.next_wake().unwrap() < answered + Duration::from_millis(14) {
            rig.world.last_call.set(rig.core.next_wake().unwrap());
            assert!(!rig.wake().iter().any(|line| line.contains("of 2")), "it rests");
        }
    }
    assert_eq!(asks_next(&mut rig), "ask 4: syncfs of 2");
}

/// A primary knows nothing of what an earlier one, or it itself before, has begun: late messages of that do nothing.
#[test]
fn another_primary_gives_nothing_away() {
    let mut rig = rig();
    taken_there(&mut rig);
    rig.follow(2);
    rig.lead(&[]);
    level(&mut rig, 6);
    rig.now += Duration::from_secs(2);
    let told = rig.ask_as(99, 4, give_dir());
    assert!(told[0].contains("busy"), "{told:?}");
    let told = check_given(&mut rig);
    assert!(told[0].contains("no such file"), "{told:?}");
    assert!(changes(&mut rig).is_empty());
    // Nor a transaction that this primary has ended.
    let mut rig = self::rig();
    give(&mut rig);
    answer(&mut rig, 1, Err(Fail::Busy));
    let told = rig.ask_as(99, 4, give_dir());
    assert!(told[0].contains("busy"), "{told:?}");
    assert!(changes(&mut rig).is_empty());
}

fn take_by(tx: OpId) -> Op {
    let t = Time::default();
    let file = Fid { lsn: Lsn(62), ..FAR };
    let entries = vec![HandedEntry { name: name("n"), fid: file, home: THERE, kind: 0o100_000 }];
    let xattrs = Vec::new();
    let dir = HandedDir { mode: 0o755, uid: 0, gid: 0, atime: t, mtime: t, ctime: t, xattrs, entries };
    let path = vec![Ancestor { fid: Fid { lsn: Lsn(61), ..FAR }, home: THERE, name: name("above") }];
    Op::TakeDir { fid: FAR, tx, from: THERE, path, name: name("far"), dir }
}

const NEXT: OpId = OpId { session: SessionId(88), seq: 9 };

/// It is this set's when the other one says so: nobody is answered about it before.
#[test]
fn a_directory_is_taken() {
    let mut rig = rig();
    assert_eq!(rig.ask(88, take_by(TX)), ["reply 1: done"]);
    assert_eq!(changes(&mut rig), ["TakeDir"]);
    assert_eq!(rig.ask(88, take_by(TX)), ["reply 2: done"], "it is here");
    for op in [Op::GetAttr { fid: FAR }, Op::ReadDir { fid: FAR, cookie: 0, plus: false }] {
        let told = rig.ask(9, op.clone());
        assert!(told[0].contains("busy"), "{op:?}: {told:?}");
    }
    // Another transaction about it has to wait, and what is told late of one does nothing.
    let told = rig.ask(88, take_by(NEXT));
    assert!(told[0].ends_with("busy"), "{told:?}");
    assert_eq!(rig.ask(88, Op::EndTaking { fid: FAR, tx: NEXT, keep: false }), ["reply 6: done"]);
    assert_eq!(changes(&mut rig), ["TakeDir"]);
    assert_eq!(rig.ask(88, Op::EndTaking { fid: FAR, tx: TX, keep: true }), ["reply 7: done"]);
    assert_eq!(changes(&mut rig), ["TakeDir", "EndTransaction"]);
    let told = rig.ask(9, Op::GetAttr { fid: FAR });
    assert!(told[0].contains("attr 2.5.60"), "{told:?}");
    let told = rig.ask(88, take_by(TX));
    assert!(told[0].contains("stale"), "late: {told:?}");
    rig.core.brick_mut().hangs.insert(FAR, THERE);
    rig.now += Duration::from_secs(1);
    let told = rig.step(Input::Maintenance);
    assert!(told.iter().any(|l| l.contains("pathof")), "who gave it may have told an old path: {told:?}");
}

/// This brick led before, and again: what it was told may be lost, so it does not say that all is here.
#[test]
fn another_primary_has_not_taken_it() {
    let mut rig = rig();
    rig.ask(88, take_by(TX));
    rig.follow(2);
    rig.lead(&[]);
    level(&mut rig, 6);
    rig.now += Duration::from_secs(2);
    let told = rig.ask(88, take_by(TX));
    assert!(told[0].ends_with("busy"), "{told:?}");
}

/// A directory of this set leaves one whose entries are this set's, or the other one's: that is not certain yet.
#[test]
fn what_leaves_a_directory_that_is_taken_waits() {
    let mut rig = rig();
    rig.ask(88, take_by(TX));
    let place = |dir, s| Some(EntryName { dir, name: name(s) });
    let (drop, add, by) = (place(FAR, "sub"), place(ROOT, "out"), SessionId(9));
    let leave = Op::PrepareFile { tx: NEXT, coordinator: HERE, fid: Some(DIR), drop, add, by };
    let told = rig.ask(9, leave);
    assert!(told[0].ends_with("busy"), "{told:?}");
}

/// A set that hears nothing asks; what it hears counts when it is on the other set's disks.
#[test]
fn what_is_taken_is_asked_about() {
    for given in [true, false] {
        let mut rig = rig();
        rig.ask(88, take_by(TX));
        assert_eq!(asked(&mut rig), ["ask 1: checkgiven of 2"]);
        let say = || if given { Ok(Body::Done) } else { errno(Errno::ENOENT) };
        assert_eq!(answer(&mut rig, 1, say()), ["ask 2: syncfs of 2"]);
        assert_eq!(done(&mut rig, 2), ["ask 3: checkgiven of 2"]);
        let end = if given { "ask 4: endtaking of 1" } else { "ask 4: endtaking of 1, gone" };
        assert_eq!(answer(&mut rig, 3, say()), [end]);
        assert_eq!(rig.ask(99, Op::EndTaking { fid: FAR, tx: TX, keep: given }), ["reply 2: done"]);
        assert_eq!(changes(&mut rig)[1], if given { "EndTransaction" } else { "GiveDir" });
        let told = rig.ask(9, Op::GetAttr { fid: FAR });
        assert!(told[0].contains(if given { "attr 2.5.60" } else { "elsewhere" }), "{told:?}");
    }
    // Nobody answers, or it is not certain there: it is asked again.
    let mut rig = rig();
    rig.ask(88, take_by(TX));
    assert_eq!(asked(&mut rig), ["ask 1: checkgiven of 2"]);
    assert_eq!(answer(&mut rig, 1, Err(Fail::Busy)), NONE);
    assert_eq!(asked(&mut rig), ["ask 2: checkgiven of 2"]);
    done(&mut rig, 2);
    assert_eq!(answer(&mut rig, 3, errno(Errno::EIO)), NONE, "its disks fail");
    assert_eq!(asked(&mut rig), ["ask 4: checkgiven of 2"]);
}

/// The request was under way for long: a file of this set has lost the name of which it tells, and would get it back if the directory
/// stays there.
#[test]
fn a_directory_that_is_told_late_is_not_taken_with_old_names() {
    let names_own = || {
        let Op::TakeDir { fid, tx, from, path, name, mut dir } = take_by(TX) else { unreachable!() };
        dir.entries.iter_mut().for_each(|held| (held.fid, held.home) = (FILE, HERE));
        Op::TakeDir { fid, tx, from, path, name, dir }
    };
    for (now, taken) in [("n", true), ("other", false)] {
        let mut rig = rig();
        rig.core.brick_mut().names.insert((FAR.names(), name(now)), (FILE, HERE));
        let told = rig.ask(88, names_own());
        assert!(told[0].ends_with(if taken { "done" } else { "busy" }), "{told:?}");
        assert_eq!(!changes(&mut rig).is_empty(), taken);
    }
}

/// A stub of this set that is marked to lose a name gets no other one: nobody would be told of that as long as it is marked, and the
/// end of the mark waits for it.
#[test]
fn a_directory_with_a_name_of_a_marked_stub_is_not_taken() {
    let Op::TakeDir { dir, .. } = take_by(TX) else { unreachable!() };
    let HandedEntry { fid: stub, home, .. } = dir.entries[0];
    assert_ne!(home, HERE);
    for marked in [false, true] {
        let mut rig = rig();
        if marked {
            let drop = Some(EntryName { dir: ROOT, name: name("stub") });
            let intent = Intent { tx: OWN, coordinator: THERE, drop, add: None };
            rig.core.brick_mut().marked.insert(stub, intent);
        }
        let told = rig.ask(88, take_by(TX));
        assert!(told[0].ends_with(if marked { "busy" } else { "done" }), "{told:?}");
    }
}

/// Likewise: this set got the directory's entry since, and another one answers for it by now.
#[test]
fn a_directory_whose_entry_is_here_is_not_taken() {
    let mut rig = rig();
    rig.core.brick_mut().names.insert((ROOT, name("far")), (FAR, SetId(3)));
    assert!(rig.ask(88, take_by(TX))[0].ends_with("busy"));
    assert!(changes(&mut rig).is_empty());
    assert!(rig.ask(9, Op::Lookup { parent: ROOT, name: name("far") })[0].contains("setid(3)"));
}

#[test]
fn what_cannot_be_taken() {
    let told = |op: Op| {
        let mut rig = rig();
        let told = rig.ask(88, op);
        assert!(changes(&mut rig).is_empty(), "{told:?}");
        told[0].clone()
    };
    let take = |of: Fid, by: SetId| match take_by(TX) {
        Op::TakeDir { tx, path, name, dir, .. } => Op::TakeDir { fid: of, tx, from: by, path, name, dir },
        _ => unreachable!(),
    };
    assert!(told(take(DIR, THERE)).contains("stale"), "this set answers for it");
    assert!(told(take(FAR, HERE)).contains("invalid"), "from this set itself");
    assert!(
        told(take(Fid { set: THERE, epoch: Epoch(0), lsn: Lsn(0) }, THERE)).contains("invalid"),
        "the root"
    );
    assert!(told(take(FAR.names(), THERE)).contains("invalid"), "a folder of names");
    // Its entry moves just now.
    let mut rig = rig();
    let intent = wire::op::Intent { tx: NEXT, coordinator: THERE, drop: None, add: None };
    rig.core.brick_mut().hangs.insert(FAR, THERE);
    rig.core.brick_mut().given.insert(FAR, THERE);
    rig.core.brick_mut().marked.insert(FAR, intent);
    let told = rig.ask(88, take_by(TX));
    assert!(told[0].ends_with("busy"), "{told:?}");
}

/// A directory that this set gave away: whoever asks this set about one of its names is answered by the set that has it now.
#[test]
fn questions_go_on_to_the_set_that_has_the_directory() {
    let question = || Op::CheckName { parent: DIR, name: name("file"), fid: FILE, tx: TX };
    let given = || {
        let mut rig = rig();
        rig.core.brick_mut().given.insert(DIR, THERE);
        rig
    };
    let there = || Ok(Body::Attr { attr: Attr { home: THERE, ..dir(DIR) } });
    let mut rig = given();
    assert_eq!(rig.ask(88, question()), ["ask 1: getattr of 2"]);
    assert_eq!(answer(&mut rig, 1, there()), ["ask 2: checkname of 2"]);
    assert_eq!(done(&mut rig, 2), ["ask 3: syncfs of 2"], "what it says has to be on disk");
    assert_eq!(done(&mut rig, 3), ["ask 4: checkname of 2"]);
    assert_eq!(done(&mut rig, 4), ["reply 1: done"]);
    // Nobody has it: it was removed, and nothing is there.
    let mut rig = given();
    rig.ask(88, question());
    let told = answer(&mut rig, 1, errno(Errno::ESTALE));
    assert!(told[0].contains("no such file") || told[0].contains("stale"), "{told:?}");
    // The set that has it may be the one that says nothing.
    let mut rig = given();
    rig.ask(88, question());
    assert_eq!(answer(&mut rig, 1, Err(Fail::Busy)), ["reply 1: busy"]);
    // It changes what is there: `Redirect` is sent on under its own number.
    let mut rig = given();
    let names = vec![EntryName { dir: DIR, name: name("file") }];
    let copy = Fid { lsn: Lsn(62), ..FAR };
    let told = rig.ask(88, Op::Redirect { fid: FILE, home: THERE, to: THERE, copy, names });
    assert_eq!(told, ["ask 1: getattr of 2"]);
    assert_eq!(answer(&mut rig, 1, there()), ["ask 2: redirect of 2 as 1"]);
    assert!(changes(&mut rig).is_empty());
}

/// Who answered for the directory when a mark was made asks whether it still has the entry.
#[test]
fn an_entry_is_of_one_set() {
    let mut rig = rig();
    rig.core.brick_mut().hangs.insert(DIR, THERE);
    assert_eq!(rig.ask(88, Op::CheckOwner { fid: DIR, set: THERE }), ["reply 1: done"]);
    let told = rig.ask(88, Op::CheckOwner { fid: DIR, set: SetId(3) });
    assert!(told[0].contains("no such file"), "{told:?}");
}

/// The journal's record of what is taken says so to the next primary, too.
#[test]
fn a_change_that_takes_is_remembered() {
    let mut rig = rig();
    rig.ask(88, take_by(TX));
    let record = rig.core.brick_mut().journal[0].body.clone();
    assert!(matches!(record, Change::TakeDir { fid: FAR, tx: TX, from: THERE, .. }), "{record:?}");
    let now = rig.now;
    assert_eq!(rig.core.report(now).marked, 1, "it is told until it is certain");
    rig.ask(88, Op::EndTaking { fid: FAR, tx: TX, keep: true });
    assert_eq!(rig.core.report(now).marked, 0);
    assert!(matches!(rig.ask(9, Op::GetAttr { fid: FAR })[0].as_str(), said if said.contains("attr")));
}
