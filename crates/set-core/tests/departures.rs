//! Files that move between sets, told as scripts: this set is the one that a file leaves, or the one where it arrives.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails says where")]

use crate::common::brick::{Memory, ROOT};
use crate::common::{self, ME, Rig, answer, done, name};
use ids::{Epoch, Fid, Lsn, OpId, SessionId, SetId, Time};
use namespace::placement::SetRoom;
use set_core::{Departed, Done, FileMove, Input, Output, RebalanceSettings, RebalanceState, Settings};
use std::time::Duration;
use wire::op::{EntryName, SetAttr};
use wire::{Attr, Body, Change, Errno, Fail, Op};

const NONE: [&str; 0] = [];
const HERE: SetId = SetId(1);
const THERE: SetId = SetId(2);
/// A file of this set, `own`.
const OWN: Fid = Fid { set: HERE, epoch: Epoch(1), lsn: Lsn(40) };
/// Its copy.
const COPY: Fid = Fid { set: THERE, epoch: Epoch(5), lsn: Lsn(50) };
/// A directory of the other set.
const FAR: Fid = Fid { set: THERE, epoch: Epoch(5), lsn: Lsn(60) };

fn rig() -> Rig {
    let names = [((ROOT, name("own")), (OWN, HERE))].into();
    let data = [(OWN, vec![7; 3 << 19])].into();
    let mut rig = Rig::with(Memory { names, data, files: [OWN].into(), ..Memory::default() }, &[]);
    // Who may have what open of before is known by now.
    rig.now += Duration::from_secs(60);
    rig.lease = rig.now + Duration::from_secs(600);
    rig.step(Input::Tick);
    rig
}

fn copy() -> Result<Body, Fail> {
    let (t, size) = (Time::default(), 3 << 19);
    let (mode, uid, gid, nlink, rdev, blocks) = (0o100_644, 0, 0, 0, 0, 0);
    let (fid, home, atime, mtime, ctime) = (COPY, THERE, t, t, t);
    Ok(Body::Attr {
        attr: Attr { fid, home, mode, uid, gid, nlink, rdev, size, blocks, atime, mtime, ctime },
    })
}

fn begin(rig: &mut Rig) -> Vec<String> {
    rig.step(Input::Move(FileMove { parent: ROOT, name: name("own"), also: Vec::new(), to: THERE }))
}

/// All of the file is sent: what the next answer leads to is that its own set is asked to let it go.
fn copied(rig: &mut Rig) -> Vec<String> {
    assert_eq!(begin(rig), ["ask 1: arrive of 2"]);
    assert_eq!(answer(rig, 1, copy()), ["ask 2: write of 2"]);
    assert_eq!(done(rig, 2), NONE, "clients go first");
    assert_eq!(rig.wake(), ["ask 3: write of 2"], "the second slice");
    assert_eq!(done(rig, 3), NONE);
    assert_eq!(rig.wake(), ["ask 4: land of 2"]);
    assert_eq!(done(rig, 4), NONE);
    assert_eq!(rig.wake(), ["ask 5: land of 2"], "there are no attributes but those");
    done(rig, 5)
}

fn depart() -> Op {
    Op::Depart { parent: ROOT, name: name("own"), fid: OWN, to: THERE, copy: COPY }
}

fn departed(rig: &mut Rig) -> Departed {
    let now = rig.now;
    rig.core.report(now).departed
}

fn truncate() -> Op {
    let set = SetAttr {
        mode: None,
        uid: None,
        gid: None,
        size: Some(1),
        atime: None,
        mtime: None,
        kill_suid: false,
    };
    Op::SetAttr { fid: OWN, set }
}

/// The moment it counts is the entry, when the copy is marked and on disk; the copy gets its name when the entry is on disk.
#[test]
fn a_file_departs() {
    let mut rig = rig();
    assert_eq!(copied(&mut rig), ["ask 6: depart of 1"]);
    assert_eq!(rig.ask(9, depart()), ["ask 7: preparefile of 2 as 2"]);
    assert_eq!(answer(&mut rig, 7, copy()), ["ask 8: fsync of 2"]);
    assert_eq!(rig.core.brick_mut().journal.len(), 0);
    assert_eq!(done(&mut rig, 8), ["ask 9: fsync of 1"]);
    assert!(matches!(rig.core.brick_mut().journal[0].body, Change::Depart { .. }));
    assert_eq!(done(&mut rig, 9), ["ask 10: endfile of 2"]);
    let told = done(&mut rig, 10);
    assert!(told[0].starts_with("reply 1: done"), "{told:?}");
    assert_eq!(done(&mut rig, 6), NONE);
    assert_eq!(departed(&mut rig), Departed { files: 1, linked: 0, bytes: 3 << 19, left: 0, directories: 0 });
}

/// A file of several names tells its copy of all of them, and nothing of this set may come back when it leaves.
#[test]
fn a_file_of_several_names_departs() {
    let names = [((ROOT, name("own")), (OWN, HERE)), ((ROOT, name("too")), (OWN, HERE))].into();
    let data = [(OWN, vec![7; 100])].into();
    let begun = |also: &[&str]| {
        let mut rig = Rig::with(
            Memory {
                names: Clone::clone(&names),
                data: Clone::clone(&data),
                files: [OWN].into(),
                ..Memory::default()
            },
            &[],
        );
        rig.now += Duration::from_secs(60);
        rig.lease = rig.now + Duration::from_secs(600);
        rig.step(Input::Tick);
        let also = also.iter().map(|n| EntryName { dir: ROOT, name: name(n) }).collect();
        let out = rig.step(Input::Move(FileMove { parent: ROOT, name: name("own"), also, to: THERE }));
        (rig, out)
    };
    assert_eq!(begun(&[]).1, NONE, "it has one more");
    assert_eq!(begun(&["too", "none"]).1, NONE, "it has not so many");
    let (mut rig, out) = begun(&["too"]);
    assert_eq!(out, ["ask 1: arrive of 2"]);
    let mut attr = copy();
    if let Ok(Body::Attr { attr }) = &mut attr {
        attr.size = 100;
    }
    assert_eq!(answer(&mut rig, 1, attr.clone()), ["ask 2: write of 2"]);
    assert_eq!(done(&mut rig, 2), NONE);
    assert_eq!(rig.wake(), ["ask 3: land of 2"]);
    assert_eq!(done(&mut rig, 3), NONE);
    assert_eq!(rig.wake(), ["ask 4: setxattr of 2"], "its names");
    assert_eq!(done(&mut rig, 4), NONE);
    assert_eq!(rig.wake(), ["ask 5: land of 2"]);
    assert_eq!(done(&mut rig, 5), ["ask 6: syncfs of 1"]);
    assert_eq!(done(&mut rig, 6), ["ask 7: departall of 1"]);
    let names = ["own", "too"].map(|n| EntryName { dir: ROOT, name: name(n) }).into();
    assert_eq!(
        rig.ask(9, Op::DepartAll { fid: OWN, to: THERE, copy: COPY, names }),
        ["ask 8: preparefile of 2 as 2"]
    );
    assert_eq!(answer(&mut rig, 8, attr), ["ask 9: fsync of 2"]);
    assert_eq!(done(&mut rig, 9), ["ask 10: syncfs of 1"], "not one directory only");
    assert!(matches!(rig.core.brick_mut().journal[0].body, Change::DepartAll { .. }));
    assert_eq!(done(&mut rig, 10), ["ask 11: endfile of 2"]);
    let told = done(&mut rig, 11);
    assert!(told[0].starts_with("reply 1: done"), "{told:?}");
    assert_eq!(done(&mut rig, 7), NONE);
    assert_eq!(departed(&mut rig), Departed { files: 1, linked: 1, bytes: 100, left: 0, directories: 0 });
}

/// A name that the file has in a directory of another set is not an entry that this set could change.
#[test]
fn a_file_with_its_name_in_another_set_stays() {
    let names = [((FAR.names(), name("own")), (OWN, HERE))].into();
    let mut rig = Rig::with(Memory { names, files: [OWN].into(), ..Memory::default() }, &[]);
    rig.now += Duration::from_secs(60);
    rig.lease = rig.now + Duration::from_secs(600);
    rig.step(Input::Tick);
    let op = Op::Depart { parent: FAR.names(), name: name("own"), fid: OWN, to: THERE, copy: COPY };
    let told = rig.ask(9, op);
    assert!(told[0].contains("invalid argument"), "{told:?}");
}

/// Whether the file was refused, as one that may not go.
fn is_refused(said: &[String]) -> bool {
    let busy = Errno::EBUSY.to_string();
    said.len() == 1 && said[0].contains(busy.split(" (").next().unwrap_or_default())
}

#[test]
fn a_file_that_changes_meanwhile_stays() {
    let mut rig = rig();
    copied(&mut rig);
    rig.ask(9, truncate());
    assert!(is_refused(&rig.ask(9, depart())));
    // In the midst of the transaction as well: the copy is told that it gets no name.
    let mut rig = self::rig();
    copied(&mut rig);
    rig.ask(9, depart());
    answer(&mut rig, 7, copy());
    rig.ask(9, truncate());
    let out = done(&mut rig, 8);
    assert!(out[0].ends_with("endfile of 2, given up"), "{out:?}");
    assert!(!rig.core.brick_mut().journal.iter().any(|e| matches!(e.body, Change::Depart { .. })));
}

#[test]
fn a_file_that_somebody_opens_stays() {
    let mut rig = rig();
    rig.ask(9, Op::Open { fid: OWN });
    assert_eq!(begin(&mut rig), NONE);
    assert_eq!(departed(&mut rig).left, 1);
    let mut rig = self::rig();
    copied(&mut rig);
    rig.ask(9, Op::Open { fid: OWN });
    assert!(is_refused(&rig.ask(9, depart())));
    assert_eq!(answer(&mut rig, 6, Err(Errno::EBUSY.into())), NONE);
    assert_eq!(departed(&mut rig).left, 1);
}

fn rebalance(rig: &mut Rig, state: RebalanceState) {
    let settings = rig.settings(ME, [ME].into());
    let rebalance = RebalanceSettings { state, ..RebalanceSettings::default() };
    rig.step(Input::Settings(Settings { rebalance, ..settings }));
}

/// What is not about to get its entry is copied no more; what has moved is counted until it is begun anew.
#[test]
fn a_file_that_is_copied_stays_when_moving_is_paused() {
    let mut rig = rig();
    rebalance(&mut rig, RebalanceState::On);
    assert_eq!(begin(&mut rig), ["ask 1: arrive of 2"]);
    rebalance(&mut rig, RebalanceState::Paused);
    assert_eq!(answer(&mut rig, 1, copy()), NONE);
    rebalance(&mut rig, RebalanceState::On);
    assert_eq!(departed(&mut rig).left, 1);
    rebalance(&mut rig, RebalanceState::Off);
    assert_eq!(departed(&mut rig).left, 1, "it is known afterwards");
    rebalance(&mut rig, RebalanceState::On);
    assert_eq!(departed(&mut rig), Departed::default());
}

/// A new primary has copied nothing: a late request to let the file go does nothing.
#[test]
fn another_primary_has_not_copied_it() {
    let mut rig = rig();
    copied(&mut rig);
    rig.follow(2);
    rig.lead(&[]);
    rig.now += Duration::from_secs(61);
    assert!(is_refused(&rig.ask(9, depart())));
}

/// The copy is kept while somebody makes it, is given a name only by this primary, and goes if nobody asks for one.
#[test]
fn a_copy_arrives() {
    let prepare = |fid| {
        let (tx, by) = (OpId { session: SessionId(88), seq: 9 }, SessionId(88));
        let add = Some(EntryName { dir: FAR, name: name("n") });
        Op::PrepareFile { tx, coordinator: THERE, fid: Some(fid), drop: None, add, by }
    };
    let ends = |fid, commit| {
        let tx = OpId { session: SessionId(88), seq: 9 };
        Op::EndFile { fid, tx, commit, by: SessionId(88) }
    };
    let end = |fid| ends(fid, true);
    let arrived = |rig: &mut Rig| {
        let told = rig.ask(88, Op::Arrive);
        assert!(told[0].starts_with("reply 1: attr"), "{told:?}");
        *rig.core.brick_mut().orphans.first().expect("it has no name")
    };
    let mut rig = self::rig();
    let fid = arrived(&mut rig);
    assert_eq!(rig.maintain(), NONE.map(String::from));
    assert!(rig.core.brick_mut().orphans.contains(&fid), "it is being made");
    rig.ask(88, prepare(fid));
    // Its entry may be seen before that is on disk, and be taken back.
    for op in [write(fid), Op::Read { fid, offset: 0, len: 1 }, Op::Open { fid }, Op::Fsync { fid }] {
        let told = rig.ask(9, op.clone());
        assert!(told.concat().contains("busy"), "{op:?}: {told:?}");
    }
    assert!(!rig.ask(88, Op::Fsync { fid }).concat().contains("busy"), "who has marked it brings it to disk");
    rig.ask(88, end(fid));
    let told = rig.ask(9, Op::Open { fid });
    assert!(told.concat().contains("attr"), "{told:?}");
    assert!(rig.core.brick_mut().names.contains_key(&(FAR.names(), name("n"))));
    // It is to have no name: whoever has seen the entry before a power cut finds nothing, and looks the name up again.
    let mut rig = self::rig();
    let fid = arrived(&mut rig);
    rig.ask(88, prepare(fid));
    assert!(rig.ask(9, Op::GetAttr { fid })[0].contains("busy"));
    rig.ask(88, ends(fid, false));
    assert!(!rig.core.brick_mut().orphans.contains(&fid));
    assert!(rig.ask(9, write(fid))[0].contains("stale"));
    rig.now += Duration::from_secs(10);
    assert!(!rig.maintain().iter().any(|line| line.starts_with("ask")), "nobody asks how it ended");
    // Nothing comes for it any more.
    let mut rig = self::rig();
    let fid = arrived(&mut rig);
    rig.now += Duration::from_secs(60);
    rig.maintain();
    assert!(!rig.core.brick_mut().orphans.contains(&fid));
    // This brick led before, and again: what it was told may be lost.
    let mut rig = self::rig();
    let fid = arrived(&mut rig);
    rig.follow(2);
    rig.lead(&[]);
    rig.now += Duration::from_secs(1);
    let told = rig.ask(88, prepare(fid));
    assert!(told[0].contains("no such file"), "{told:?}");
}

/// A client that is alone keeps what it is told while a file of the set departs, but nothing of that file.
#[test]
fn a_file_departs_when_nobody_keeps_anything_of_it() {
    let lookup = |s| Op::Lookup { parent: ROOT, name: name(s) };
    let is_granted = |told: &[String]| told.len() == 1 && told[0].ends_with(" for 250 ms");
    let mut rig = rig();
    assert!(is_granted(&rig.ask(9, Op::GetAttr { fid: OWN })));
    rig.now += Duration::from_millis(100);
    assert_eq!(copied(&mut rig), NONE, "the client may keep it for 150 ms");
    assert!(!is_granted(&rig.ask(9, Op::GetAttr { fid: OWN })));
    assert!(!is_granted(&rig.ask(9, lookup("own"))));
    assert!(is_granted(&rig.ask(9, lookup("other"))));
    let before = rig.now;
    assert_eq!(rig.wake(), NONE, "the next file may begin");
    assert_eq!(rig.wake(), ["ask 6: depart of 1"]);
    assert_eq!(rig.now - before, Duration::from_millis(150));
    assert_eq!(rig.ask(88, depart()), ["ask 7: preparefile of 2 as 2"]);
    assert!(is_granted(&rig.ask(9, lookup("other"))), "the file's own set is not another client");
    assert!(!is_granted(&rig.ask(9, lookup("own"))));
    answer(&mut rig, 7, copy());
    assert_eq!(done(&mut rig, 8), ["ask 9: fsync of 1"]);
    rig.ask(88, Op::Fsync { fid: ROOT });
    done(&mut rig, 6);
    assert!(is_granted(&rig.ask(9, lookup("own"))), "the entry leads to the copy from now on");
}

/// A file that is changed after it was copied, while a client still keeps something of it, is copied anew at once, and nobody keeps
/// anything of it meanwhile. Not for ever, and not if it got another name.
#[test]
fn a_file_that_is_changed_when_its_copy_waits_is_copied_anew() {
    let ready = || {
        let mut rig = rig();
        rig.ask(9, Op::GetAttr { fid: OWN });
        assert_eq!(copied(&mut rig), NONE, "the client may keep it for a while");
        assert_eq!(rig.wake(), NONE, "the next file may begin");
        rig
    };
    let mut rig = ready();
    rig.ask(9, truncate());
    let (mut last, mut told) = (5, rig.wake());
    for _ in 0..3 {
        assert_eq!(told, [format!("ask {}: arrive of 2", last + 1)]);
        let shown = rig.ask(9, Op::GetAttr { fid: OWN });
        assert!(!shown[0].contains(" for "), "{shown:?}");
        assert_eq!(answer(&mut rig, last + 1, copy()), [format!("ask {}: write of 2", last + 2)]);
        for (answered, next) in [(2, "land"), (3, "land")] {
            assert_eq!(done(&mut rig, last + answered), NONE);
            assert_eq!(rig.wake(), [format!("ask {}: {next} of 2", last + answered + 1)]);
        }
        last += 4;
        rig.ask(9, truncate());
        told = done(&mut rig, last);
    }
    assert_eq!(told, NONE);
    assert_eq!(departed(&mut rig).left, 1, "it is left for later");

    let mut rig = ready();
    rig.ask(9, Op::Link { fid: OWN, parent: ROOT, name: name("too") });
    rig.ask(9, Op::Unlink { parent: ROOT, name: name("too") });
    assert_eq!(rig.wake(), NONE);
    assert_eq!(departed(&mut rig).left, 1, "its names were changed");
}

/// A set that is to be emptied takes nothing new from other sets, and is not counted on.
#[test]
fn a_set_that_is_emptied_takes_nothing_new() {
    let mut rig = rig();
    let mkdir = || Op::PrepareMkdir { path: vec![], name: name("new"), mode: 0, uid: 0, gid: 0 };
    assert!(rig.ask(88, Op::Arrive)[0].starts_with("reply 1: attr"));
    let settings = rig.settings(ME, [ME].into());
    let rebalance = RebalanceSettings { drains: true, ..RebalanceSettings::default() };
    rig.step(Input::Settings(Settings { rebalance, ..settings }));
    for op in [mkdir(), Op::Arrive] {
        let told = rig.ask(88, op);
        assert!(told[0].contains("no space left"), "{told:?}");
    }
    let room = rig.ask(9, Op::StatFs);
    assert!(room[0].contains("total: 0"), "{room:?}");
    let room = rig.outputs(Input::Maintenance).into_iter().find_map(|o| match o {
        Output::Room(room) => Some(room.writable),
        _ => None,
    });
    assert_eq!(room, Some(false));
}

/// What a session asks as its request of that number.
fn ask_with(rig: &mut Rig, session: u64, seq: u64, op: Op, bytes: usize) -> Vec<String> {
    let session = SessionId(session);
    let call = wire::Call { set: HERE, epoch: Epoch(1), id: OpId { session, seq }, finished: 0, op };
    let payload = vec![7; bytes].into();
    let request =
        set_core::Request { call, payload, to: common::To(seq), session, user: None, beneath: None };
    rig.step(Input::Request(request))
}

/// A set where files are large from 1000 bytes on, and a file that session 9 has just made and holds open; sets 1 and 2 have
/// as much room.
fn making() -> (Rig, Fid) {
    let mut rig = rig();
    let settings = rig.settings(ME, [ME].into());
    rig.step(Input::Settings(Settings { large: Some(1000), ..settings }));
    for set in [HERE, THERE] {
        rig.world.rooms.borrow_mut().insert(set, SetRoom::new(set, 1 << 30, 1 << 31));
    }
    let fid = made(&mut rig, "first");
    let here = ask_with(&mut rig, 9, 501, write(fid), 2000);
    assert!(here[0].starts_with("reply 501: written"), "the first one stays: {here:?}");
    let fid = made(&mut rig, "made");
    rig.core.brick_mut().data.insert(fid, Vec::new());
    (rig, fid)
}

/// The copy of such a file.
fn empty() -> Result<Body, Fail> {
    let Ok(Body::Attr { attr }) = copy() else { unreachable!("it is told by its attributes") };
    Ok(Body::Attr { attr: Attr { size: 0, ..attr } })
}

fn made(rig: &mut Rig, s: &str) -> Fid {
    let mut op = common::create(s, wire::op::Node::File);
    if let Op::Create { open, .. } = &mut op {
        *open = true;
    }
    rig.ask(9, op);
    rig.core.brick_mut().names[&(ROOT, name(s))].0
}

fn write(fid: Fid) -> Op {
    Op::Write { fid, offset: 0, append: false, kill_suid: false }
}

/// The entry is about to lead to the copy: the request to the own set bears the name of the client's.
fn leaving(rig: &mut Rig, fid: Fid) -> Op {
    assert_eq!(ask_with(rig, 9, 502, write(fid), 2000), ["ask 1: arrive of 2"]);
    assert_eq!(answer(rig, 1, empty()), ["ask 2: land of 2"]);
    assert_eq!(done(rig, 2), ["ask 3: land of 2"]);
    assert_eq!(done(rig, 3), ["ask 4: depart of 1 as 502"]);
    Op::Depart { parent: ROOT, name: name("made"), fid, to: THERE, copy: COPY }
}

#[test]
fn a_file_that_grows_large_goes_on_elsewhere_while_it_is_open() {
    let (mut rig, fid) = making();
    let small = ask_with(&mut rig, 9, 500, write(fid), 999);
    assert!(small[0].starts_with("reply 500: written"), "{small:?}");
    let depart = leaving(&mut rig, fid);
    let busy = ask_with(&mut rig, 9, 503, write(fid), 10);
    assert_eq!(busy, ["reply 503: busy"]);
    assert_eq!(ask_with(&mut rig, 9, 502, depart, 0), ["ask 5: preparefile of 2 as 2"]);
    assert_eq!(rig.ask(9, Op::GetAttr { fid }), ["reply 3: busy"], "it is about to be elsewhere");
    answer(&mut rig, 5, empty());
    assert_eq!(done(&mut rig, 6), ["ask 7: fsync of 1"]);
    done(&mut rig, 7);
    done(&mut rig, 8);
    let told = done(&mut rig, 4);
    assert!(told[0].starts_with("reply 502: moved"), "{told:?}");
    // Who holds it hears where it is, whatever is asked; nobody else does.
    let told = ask_with(&mut rig, 9, 503, write(fid), 10);
    assert!(told[0].starts_with("reply 503: moved"), "{told:?}");
    let gone = rig.ask(10, Op::GetAttr { fid });
    assert!(gone[0].contains("stale"), "{gone:?}");
    // The answer did not get there: the move is the outcome of the request.
    assert_eq!(ask_with(&mut rig, 9, 502, write(fid), 2000), ["ask 9: syncfs of 1"]);
    let told = done(&mut rig, 9);
    assert!(told[0].starts_with("reply 502: moved"), "{told:?}");
    assert_eq!(departed(&mut rig), Departed::default(), "it is not of the rebalance");
}

#[test]
fn a_file_that_cannot_go_grows_where_it_is() {
    let (mut rig, fid) = making();
    assert_eq!(ask_with(&mut rig, 9, 502, write(fid), 2000), ["ask 1: arrive of 2"]);
    assert_eq!(answer(&mut rig, 1, empty()), ["ask 2: land of 2"]);
    rig.ask(10, Op::Open { fid });
    assert_eq!(done(&mut rig, 2), ["ask 3: land of 2"]);
    assert_eq!(done(&mut rig, 3), ["ask 4: depart of 1 as 502"]);
    let depart = Op::Depart { parent: ROOT, name: name("made"), fid, to: THERE, copy: COPY };
    assert!(is_refused(&ask_with(&mut rig, 9, 502, depart, 0)), "another session has it open");
    let written = answer(&mut rig, 4, Err(Errno::EBUSY.into()));
    assert!(written[0].starts_with("reply 502: written"), "{written:?}");
    // The other set does not answer, or is full.
    let (mut rig, fid) = making();
    ask_with(&mut rig, 9, 502, write(fid), 2000);
    let written = answer(&mut rig, 1, Err(Fail::Busy));
    assert!(written[0].starts_with("reply 502: written"), "{written:?}");
}

/// The question whether it may go is given up, and refused later.
#[test]
fn a_file_that_could_not_go_is_no_error_of_what_would_have_it_grow() {
    let (mut rig, fid) = making();
    let depart = leaving(&mut rig, fid);
    assert_eq!(ask_with(&mut rig, 9, 502, depart, 0), ["ask 5: preparefile of 2 as 2"]);
    let waits = answer(&mut rig, 4, Err(Fail::BelowQuorum));
    assert!(waits[0].starts_with("reply 502: busy"), "{waits:?}");
    answer(&mut rig, 5, empty());
    done(&mut rig, 6);
    let written = ask_with(&mut rig, 9, 502, write(fid), 2000);
    assert!(written[0].starts_with("reply 502: written"), "{written:?}");
}

#[test]
fn a_request_that_waits_for_a_move_is_refused_when_another_brick_leads() {
    let (mut rig, fid) = making();
    ask_with(&mut rig, 9, 502, write(fid), 2000);
    let out = rig.follow(2);
    assert!(out.iter().any(|line| line.starts_with("reply 502: wrongview")), "{out:?}");
    assert_eq!(answer(&mut rig, 1, empty()), NONE);
}

/// A file that comes from another set may be open: who holds it has a minute to say so.
#[test]
fn a_file_that_came_may_be_open() {
    let mut rig = rig();
    rig.ask(88, Op::Arrive);
    let fid = *rig.core.brick_mut().orphans.first().expect("it has no name");
    let tx = OpId { session: SessionId(88), seq: 9 };
    let add = Some(EntryName { dir: FAR, name: name("n") });
    let by = SessionId(88);
    rig.ask(88, Op::PrepareFile { tx, coordinator: THERE, fid: Some(fid), drop: None, add, by });
    rig.ask(88, Op::EndFile { fid, tx, commit: true, by });
    let drop = Some(EntryName { dir: FAR, name: name("n") });
    let tx = OpId { session: SessionId(88), seq: 10 };
    rig.ask(88, Op::PrepareFile { tx, coordinator: THERE, fid: Some(fid), drop, add: None, by });
    rig.ask(88, Op::EndFile { fid, tx, commit: true, by });
    let last = rig.core.brick_mut().journal.last().expect("the end of the transaction").body.clone();
    assert!(matches!(last, Change::EndFile { orphan: true, .. }), "{last:?}");
}

/// A file whose only name is in a directory of the other set, and the move of it there.
fn away() -> Rig {
    let mut rig = rig();
    let brick = rig.core.brick_mut();
    brick.names = [((FAR.names(), name("own")), (OWN, HERE))].into();
    rig
}

fn leave() -> Op {
    let (tx, by) = (OpId { session: SessionId(88), seq: 9 }, SessionId(88));
    let drop = EntryName { dir: FAR, name: name("own") };
    Op::PrepareLeave { tx, coordinator: THERE, fid: OWN, copy: COPY, drop, by }
}

fn end_leave(commit: bool) -> Op {
    let tx = OpId { session: SessionId(88), seq: 9 };
    Op::EndFile { fid: OWN, tx, commit, by: SessionId(88) }
}

/// All of such a file is sent: the set of the directory is asked next.
fn copied_away(rig: &mut Rig) {
    let parent = FAR.names();
    let begun = rig.step(Input::Move(FileMove { parent, name: name("own"), also: Vec::new(), to: THERE }));
    assert_eq!(begun, ["ask 1: arrive of 2"]);
    answer(rig, 1, copy());
    done(rig, 2);
    rig.wake();
    done(rig, 3);
    rig.wake();
    done(rig, 4);
    rig.wake();
    assert_eq!(done(rig, 5), ["ask 6: retarget of 2"]);
}

/// The set of the directory decides. From when this one has agreed until it hears the end nobody is answered about the file,
/// also by the next primary: the entry may lead to the copy.
#[test]
fn a_file_leaves_with_its_name_in_another_set() {
    for commit in [true, false] {
        let mut rig = away();
        copied_away(&mut rig);
        let told = rig.ask(88, leave());
        assert!(told[0].starts_with("reply 1: attr"), "{told:?}");
        for another in [false, true] {
            if another {
                rig.follow(2);
                rig.lead(&[]);
                rig.now += Duration::from_secs(1);
            }
            let read = Op::Read { fid: OWN, offset: 0, len: 9 };
            let copies = Op::CopyRange { from: OWN, from_offset: 0, to: COPY, to_offset: 0, len: 9 };
            for op in [Op::Open { fid: OWN }, Op::GetAttr { fid: OWN }, read, truncate(), write(OWN), copies]
            {
                let told = rig.ask(9, op.clone());
                assert!(told.len() == 1 && told[0].contains(": busy"), "{op:?}: {told:?}");
            }
            let sync = rig.ask(88, Op::Fsync { fid: OWN });
            assert!(!sync.iter().any(|line| line.contains("busy")), "{sync:?}");
        }
        rig.now += Duration::from_secs(1);
        rig.ask(88, end_leave(commit));
        let brick = rig.core.brick_mut();
        assert_eq!(brick.names.contains_key(&(FAR.names(), name("own"))), !commit);
        assert!(!brick.marked.contains_key(&OWN));
        let told = rig.ask(9, Op::GetAttr { fid: OWN });
        assert_eq!(told[0].contains(": attr"), !commit, "{told:?}");
    }
}

/// What was opened, or changed, before this set agreed stays; and so does what another primary copied.
#[test]
fn a_file_in_use_does_not_leave_with_its_name_in_another_set() {
    let mut rig = away();
    copied_away(&mut rig);
    rig.ask(9, Op::Open { fid: OWN });
    assert!(is_refused(&rig.ask(88, leave())));
    assert_eq!(answer(&mut rig, 6, Err(Errno::EBUSY.into())), NONE);
    assert_eq!(departed(&mut rig).left, 1);
    let mut rig = away();
    copied_away(&mut rig);
    rig.ask(9, truncate());
    assert!(is_refused(&rig.ask(88, leave())));
    let mut rig = away();
    copied_away(&mut rig);
    rig.follow(2);
    rig.lead(&[]);
    rig.now += Duration::from_secs(61);
    assert!(is_refused(&rig.ask(88, leave())));
}

/// The set of the directory marks the copy, which is its own, asks the file's home, and changes the entry: the moment it counts.
/// Nobody sees the copy before that is on disk.
#[test]
fn a_file_comes_home() {
    const AWAY: Fid = Fid { set: THERE, epoch: Epoch(5), lsn: Lsn(70) };
    let mut rig = rig();
    rig.ask(88, Op::Arrive);
    let brick = rig.core.brick_mut();
    let home = *brick.orphans.first().expect("it has no name");
    brick.names.insert((ROOT, name("away")), (AWAY, THERE));
    brick.files.insert(AWAY);
    let op = Op::Retarget { parent: ROOT, name: name("away"), fid: AWAY, home: THERE, to: HERE, copy: home };
    assert_eq!(rig.ask(88, op.clone()), ["ask 1: preparefile of 1 as 2"]);
    let of = |fid: Fid| {
        let Ok(Body::Attr { attr }) = copy() else { unreachable!("it is told by its attributes") };
        Ok(Body::Attr { attr: Attr { fid, home: fid.set, size: 0, ..attr } })
    };
    let (tx, by) = (OpId { session: SessionId(88), seq: 77 }, SessionId(88));
    let add = Some(EntryName { dir: ROOT, name: name("away") });
    rig.ask(88, Op::PrepareFile { tx, coordinator: HERE, fid: Some(home), drop: None, add, by });
    assert_eq!(answer(&mut rig, 1, of(home)), ["ask 2: fsync of 1"]);
    assert_eq!(done(&mut rig, 2), ["ask 3: prepareleave of 2 as 3"]);
    assert_eq!(answer(&mut rig, 3, of(AWAY)), ["ask 4: fsync of 2"]);
    assert_eq!(done(&mut rig, 4), ["ask 5: fsync of 1"]);
    assert_eq!(rig.core.brick_mut().names[&(ROOT, name("away"))], (home, HERE));
    let told = rig.ask(9, Op::Lookup { parent: ROOT, name: name("away") });
    assert!(told[0].contains(": busy"), "a power cut may take the entry: {told:?}");
    assert_eq!(done(&mut rig, 5), ["ask 6: endfile of 2"], "the file goes first");
    assert_eq!(done(&mut rig, 6), ["ask 7: endfile of 1"]);
    rig.ask(88, Op::EndFile { fid: home, tx, commit: true, by });
    let told = done(&mut rig, 7);
    assert!(told[0].contains(": done"), "{told:?}");
    let told = rig.ask(9, Op::Lookup { parent: ROOT, name: name("away") });
    assert!(told[0].contains(": attr"), "{told:?}");
    // Without the home's agreement, whatever it says, nothing changes.
    for why in [Fail::from(Errno::ESTALE), Errno::EBUSY.into(), Fail::Busy] {
        let mut rig = self::rig();
        rig.ask(88, Op::Arrive);
        let brick = rig.core.brick_mut();
        let home = *brick.orphans.first().expect("it has no name");
        brick.names.insert((ROOT, name("away")), (AWAY, THERE));
        brick.files.insert(AWAY);
        let (parent, name) = (ROOT, name("away"));
        let op = Op::Retarget { parent, name: name.clone(), fid: AWAY, home: THERE, to: HERE, copy: home };
        rig.ask(88, op);
        answer(&mut rig, 1, of(home));
        done(&mut rig, 2);
        let out = answer(&mut rig, 3, Err(why));
        assert!(out.iter().any(|line| line.ends_with("endfile of 1, given up")), "{out:?}");
        assert_eq!(rig.core.brick_mut().names[&(ROOT, name)], (AWAY, THERE));
    }
}

/// A file with a name here and one in a directory of the other set, all of it sent there: its own set is asked to let it go.
fn scattered() -> (Rig, Op) {
    let mut rig = rig();
    let brick = rig.core.brick_mut();
    brick.names.insert((FAR.names(), name("far")), (OWN, HERE));
    brick.data.insert(OWN, vec![7; 100]);
    let names =
        [EntryName { dir: FAR.names(), name: name("far") }, EntryName { dir: ROOT, name: name("own") }];
    let [EntryName { dir: parent, name }, also] = names.clone();
    let begun = rig.step(Input::Move(FileMove { parent, name, also: [also].into(), to: THERE }));
    assert_eq!(begun, ["ask 1: arrive of 2"]);
    answer(&mut rig, 1, small());
    for (id, next) in [(2, "land"), (3, "setxattr"), (4, "land")] {
        done(&mut rig, id);
        assert_eq!(rig.wake(), [format!("ask {}: {next} of 2", id + 1)]);
    }
    assert_eq!(done(&mut rig, 5), ["ask 6: syncfs of 1"]);
    assert_eq!(done(&mut rig, 6), ["ask 7: departall of 1"]);
    (rig, Op::DepartAll { fid: OWN, to: THERE, copy: COPY, names: names.into() })
}

fn small() -> Result<Body, Fail> {
    let Ok(Body::Attr { attr }) = copy() else { unreachable!("it is told by its attributes") };
    Ok(Body::Attr { attr: Attr { size: 100, ..attr } })
}

/// It has gone with a change of its own set.
fn gone() -> (Rig, Op) {
    let (mut rig, op) = scattered();
    assert_eq!(rig.ask(9, op.clone()), ["ask 8: preparefile of 2 as 2"]);
    assert_eq!(answer(&mut rig, 8, small()), ["ask 9: fsync of 2"]);
    assert_eq!(done(&mut rig, 9), ["ask 10: syncfs of 1"]);
    assert!(matches!(rig.core.brick_mut().journal[0].body, Change::Leave { .. }));
    (rig, op)
}

fn check_entry(rig: &mut Rig, parent: Fid, s: &str) -> Vec<String> {
    rig.ask(88, Op::CheckEntry { parent, name: name(s), fid: COPY })
}

/// What other sets, or this one, are asked as time goes by.
fn asks(rig: &mut Rig) -> Vec<String> {
    let mut out = rig.maintain();
    out.retain(|line| line.starts_with("ask"));
    out
}

/// What its own set is asked at last.
fn last(op: &Op) -> Op {
    let Op::DepartAll { names, .. } = op else { unreachable!("it leaves under all of its names") };
    Op::Redirect { fid: OWN, home: HERE, to: THERE, copy: COPY, names: names.clone() }
}

/// A file with names in directories of several sets goes with a change of its own. Each of them, the copy's set and then its own
/// hear of it, and it is on disk before the next one does; until then nobody is answered about the file, nor is the copy's set.
#[test]
fn a_file_of_names_in_several_sets_departs() {
    let (mut rig, op) = gone();
    let told = done(&mut rig, 10);
    assert!(told[0].starts_with("reply 1: done"), "{told:?}");
    let mut next = done(&mut rig, 7);
    for (id, expected) in (11..).zip([
        "syncfs of 1",
        "redirect of 2",
        "syncfs of 2",
        "endfile of 2",
        "syncfs of 2",
        "redirect of 1",
    ]) {
        assert_eq!(next, [format!("ask {id}: {expected}")]);
        for ask in
            [Op::GetAttr { fid: OWN }, Op::Open { fid: OWN }, Op::Lookup { parent: ROOT, name: name("own") }]
        {
            let told = rig.ask(9, ask.clone());
            assert!(told.len() == 1 && told[0].contains(": busy"), "{ask:?}: {told:?}");
        }
        for (parent, s) in [(FAR, "far"), (ROOT, "own")] {
            let told = check_entry(&mut rig, parent, s);
            assert!(told[0].contains(": busy"), "{told:?}");
        }
        if expected != "redirect of 1" {
            next = done(&mut rig, id);
        }
    }
    rig.ask(88, last(&op));
    let brick = rig.core.brick_mut();
    assert_eq!(brick.names, [((ROOT, name("own")), (COPY, THERE))].into());
    assert_eq!(done(&mut rig, 16), NONE);
    assert_eq!(departed(&mut rig), Departed { files: 1, linked: 1, bytes: 100, left: 0, directories: 0 });
    let told = rig.ask(9, Op::Lookup { parent: ROOT, name: name("own") });
    assert!(told[0].contains(": elsewhere"), "{told:?}");
    rig.now += Duration::from_secs(10);
    assert_eq!(asks(&mut rig), NONE, "nobody is told once more");
}

/// Whoever leads next tells all of them, from the beginning; so does this one if one does not answer.
#[test]
fn all_hear_again_of_a_file_that_has_left() {
    let (mut rig, op) = gone();
    done(&mut rig, 10);
    assert_eq!(done(&mut rig, 7), ["ask 11: syncfs of 1"]);
    assert_eq!(done(&mut rig, 11), ["ask 12: redirect of 2"]);
    rig.now += Duration::from_secs(10);
    assert_eq!(asks(&mut rig), NONE, "it is being asked");
    assert_eq!(answer(&mut rig, 12, Err(Fail::Busy)), NONE);
    rig.now += Duration::from_secs(4);
    assert_eq!(asks(&mut rig), ["ask 13: syncfs of 1"]);
    rig.follow(2);
    assert_eq!(answer(&mut rig, 13, Err(Fail::Busy)), NONE);
    rig.lead(&[]);
    rig.now += Duration::from_secs(4);
    let out = asks(&mut rig);
    assert!(out.len() == 1 && out[0].ends_with(": syncfs of 1"), "{out:?}");
    rig.ask(88, last(&op));
    rig.ask(88, last(&op));
    assert_eq!(rig.core.brick_mut().names, [((ROOT, name("own")), (COPY, THERE))].into());
    // What the pool lost before: the copy is one of nothing.
    let (mut rig, _) = scattered();
    for (parent, s) in [(FAR, "far"), (ROOT, "own")] {
        let told = check_entry(&mut rig, parent, s);
        assert!(told[0].contains("no such file"), "{told:?}");
    }
}

/// A file stays whose names are in directories of a set that does not answer: nobody would be answered about it.
#[test]
fn a_file_of_names_in_a_set_that_is_away_stays() {
    let mut rig = rig();
    let brick = rig.core.brick_mut();
    let far = Fid { set: SetId(3), ..FAR };
    brick.names.insert((far.names(), name("far")), (OWN, HERE));
    let also = [EntryName { dir: far.names(), name: name("far") }].into();
    assert_eq!(rig.step(Input::Move(FileMove { parent: ROOT, name: name("own"), also, to: THERE })), NONE);
    assert_eq!(departed(&mut rig).left, 1);
}

/// Entries here lead to the copy from now on, which may have arrived here.
#[test]
fn entries_are_redirected() {
    const AWAY: Fid = Fid { set: THERE, epoch: Epoch(5), lsn: Lsn(70) };
    let third = (SetId(3), Fid { set: SetId(3), ..COPY });
    let mut rig = rig();
    rig.ask(88, Op::Arrive);
    let home = *rig.core.brick_mut().orphans.first().expect("it has no name");
    for (to, copy) in [third, (HERE, home)] {
        let brick = rig.core.brick_mut();
        for s in ["a", "b"] {
            brick.names.insert((ROOT, name(s)), (AWAY, THERE));
        }
        brick.files.insert(AWAY);
        let names = ["a", "b", "none"].map(|s| EntryName { dir: ROOT, name: name(s) }).into();
        let op = Op::Redirect { fid: AWAY, home: THERE, to, copy, names };
        for _ in 0..2 {
            let told = rig.ask(88, op.clone());
            assert!(told[0].contains(": done"), "{told:?}");
            for s in ["a", "b"] {
                assert_eq!(rig.core.brick_mut().names[&(ROOT, name(s))], (copy, to));
            }
        }
    }
}

/// What is spent on a file is all that is asked for it; then three times as long passes, while clients ask this server for
/// something, or the one that gets the file.
#[test]
fn moves_rest_while_clients_of_either_server_are_active() {
    for (here, there, rests) in [(false, false, false), (true, false, true), (false, true, true)] {
        let mut rig = rig();
        let ms = Duration::from_millis;
        let room = SetRoom { asked: there, ..SetRoom::new(THERE, 1 << 30, 1 << 31) };
        rig.world.rooms.borrow_mut().insert(THERE, room);
        begin(&mut rig);
        rig.now += ms(3);
        answer(&mut rig, 1, copy());
        rig.now += ms(2);
        if here {
            rig.world.last_call.set(rig.now);
        }
        done(&mut rig, 2);
        let next = rig.core.next_wake().unwrap();
        assert_eq!(next - rig.now, if rests { ms(15) } else { ms(0) }, "here {here}, there {there}");
        rig.now = next;
        assert_eq!(rig.step(Input::Wake), ["ask 3: write of 2"]);
        rig.now += ms(1);
        rig.world.last_call.set(ms(0));
        done(&mut rig, 3);
        let next = rig.core.next_wake().unwrap();
        let still = rests && there;
        assert_eq!(next - rig.now, if still { ms(3) } else { ms(0) }, "nobody asked here for a while");
    }
}

/// A program of before would misread a directory that has changed its set.
#[test]
fn a_directory_goes_when_no_server_is_older() {
    const DIR: Fid = Fid { set: HERE, epoch: Epoch(1), lsn: Lsn(41) };
    for (level, goes) in [(5, false), (6, true)] {
        let names = [((ROOT, name("dir")), (DIR, HERE))].into();
        let data = [(DIR, Vec::new())].into();
        let mut rig = Rig::with(Memory { names, data, ..Memory::default() }, &[]);
        for (set, available) in [(HERE, 1 << 20), (THERE, 1 << 30)] {
            rig.world.rooms.borrow_mut().insert(set, SetRoom::new(set, available, 1 << 31));
        }
        let settings = rig.settings(ME, [ME].into());
        let rebalance = RebalanceSettings { state: RebalanceState::On, ..RebalanceSettings::default() };
        rig.step(Input::Settings(Settings { rebalance, level, ..settings }));
        let looks = rig.step(Input::Maintenance);
        let walk = looks.iter().find_map(|line| line.strip_prefix("start ")?.strip_suffix(": walk"));
        rig.step(Input::Worked(walk.unwrap().parse().unwrap(), Ok(Done::Placed(vec![DIR]))));
        let mut later = || {
            rig.now += Duration::from_secs(1);
            rig.step(Input::Maintenance)
        };
        let said: Vec<String> = (0..5).flat_map(|_| later()).collect();
        assert_eq!(said.iter().any(|line| line.contains("takedir of 2")), goes, "{level}: {said:?}");
    }
}
