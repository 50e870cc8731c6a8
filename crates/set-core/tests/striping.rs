//! Files that become striped, are cut, and are gone, told as scripts: this set is the file's, or a piece's.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that fails says where")]

use crate::common::brick::{Memory, ROOT};
use crate::common::{ME, Rig, To, answer, done, errno, name};
use bytes::Bytes;
use ids::{Epoch, Fid, Lsn, OpId, SessionId, SetId, Time};
use namespace::placement::SetRoom;
use set_core::{FileMove, Input, Request, Settings, StripeSettings};
use std::time::Duration;
use wire::op::SetAttr;
use wire::stripes::{Cut, Layout, PIECE, PieceOf, STRIPES, Stripes};
use wire::{Attr, Body, Call, Change, Errno, Fail, Op};

const NONE: [&str; 0] = [];
const HERE: SetId = SetId(1);
const THERE: SetId = SetId(2);
/// A file of this set, and the pieces that it has.
const FILE: Fid = Fid { set: HERE, epoch: Epoch(1), lsn: Lsn(40) };
const NEAR: Fid = Fid { set: HERE, epoch: Epoch(1), lsn: Lsn(41) };
const FAR: Fid = Fid { set: THERE, epoch: Epoch(5), lsn: Lsn(50) };
const UNIT: u64 = 4096;

fn settings(rig: &Rig, count: u64) -> Settings {
    let stripes = Some(StripeSettings { count, unit: UNIT });
    Settings { large: Some(1000), stripes, ..rig.settings(ME, [ME].into()) }
}

/// The primary of a set with a file of 500 bytes, which is large from 1000 bytes on.
fn rig() -> Rig {
    let names = [((ROOT, name("f")), (FILE, HERE))].into();
    let data = [(FILE, vec![7; 500])].into();
    let mut rig = Rig::with(Memory { names, data, files: [FILE].into(), ..Memory::default() }, &[]);
    rig.now += Duration::from_secs(61);
    rig.lease = rig.now + Duration::from_secs(6000);
    for set in [HERE, THERE] {
        let room = SetRoom::new(set, 1 << 30, 1 << 31);
        rig.world.rooms.borrow_mut().insert(set, room);
    }
    let striped = settings(&rig, 2);
    rig.step(Input::Settings(striped));
    rig
}

fn resize(size: u64) -> Op {
    let (mode, uid, gid, atime, mtime) = (None, None, None, None, None);
    let set = SetAttr { mode, uid, gid, size: Some(size), atime, mtime, kill_suid: false };
    Op::SetAttr { fid: FILE, set }
}

fn made(fid: Fid) -> Result<Body, Fail> {
    let time = Time::default();
    let (mode, uid, gid, nlink, rdev, size, blocks) = (0o100_600, 0, 0, 0, 0, 0, 0);
    let attr = Attr {
        fid,
        home: fid.set,
        mode,
        uid,
        gid,
        nlink,
        rdev,
        size,
        blocks,
        atime: time,
        mtime: time,
        ctime: time,
    };
    Ok(Body::Attr { attr })
}

fn layout(generation: u64) -> Layout {
    Layout { generation, base: UNIT, unit: UNIT, pieces: vec![FAR] }
}

/// What is kept beside the file.
fn kept(rig: &mut Rig) -> Option<Stripes> {
    let beside = &rig.core.brick_mut().beside;
    beside.get(&(FILE, STRIPES)).map(|bytes| Stripes::decode(bytes).unwrap())
}

/// The file is striped already, 9000 bytes long.
fn striped() -> Rig {
    let mut rig = rig();
    let stripes = Stripes { layout: layout(7), cut: None }.encode();
    rig.core.brick_mut().beside.insert((FILE, STRIPES), stripes);
    rig.core.brick_mut().data.insert(FILE, vec![0; 9000]);
    rig
}

/// What a session asks after whatever was granted to others is over.
fn ask(rig: &mut Rig, session: u64, seq: u64, op: Op) -> Vec<String> {
    rig.now += Duration::from_millis(300);
    rig.ask_as(session, seq, op).into_iter().map(|l| l.trim_end_matches(" for 250 ms").to_owned()).collect()
}

/// The note is on disk; all that is asked of the piece, up to its last question.
fn cut_pieces(rig: &mut Rig, noted: u64) -> u64 {
    let steps = ["fencepiece of 2", "trimpiece of 2", "fsync of 2", "checkcut of 2"];
    steps.into_iter().fold(noted, |at, what| the(&done(rig, at), what))
}

/// Likewise, and then the file is shorter, which is being brought to disk.
fn shorten(rig: &mut Rig, noted: u64) -> u64 {
    let checked = cut_pieces(rig, noted);
    the(&done(rig, checked), "fsync of 1")
}

/// The cut's last steps: the file is shorter, on disk, and so is that the cut is over.
fn end_cut(rig: &mut Rig, shorter: u64) -> Vec<String> {
    let over = done(rig, shorter);
    let id = the(&over, "fsync of 1");
    assert_eq!(ask(rig, 88, id, Op::Stripes { fid: FILE }), [format!("reply {id}: busy")]);
    done(rig, id)
}

/// All of a cut that cuts nothing off.
fn fence(rig: &mut Rig, noted: u64) {
    let before = size(rig);
    let fenced = shorten(rig, noted);
    assert_eq!(end_cut(rig, fenced), NONE);
    assert_eq!(size(rig), before);
}

fn size(rig: &mut Rig) -> usize {
    rig.core.brick_mut().data[&FILE].len()
}

/// The number of the one question, if it is that.
fn the(outputs: &[String], what: &str) -> u64 {
    let [line] = outputs else { panic!("{outputs:?}") };
    let (id, asked) = line.strip_prefix("ask ").and_then(|l| l.split_once(": ")).expect("a question");
    assert_eq!(asked, what);
    id.parse().unwrap()
}

/// The pieces are on disk before the file has a layout; then the request is answered.
#[test]
fn a_file_that_grows_large_becomes_striped() {
    let mut rig = rig();
    assert_eq!(ask(&mut rig, 9, 1, resize(900)), ["reply 1: attr 1.1.40"], "it is small");
    let asked = ask(&mut rig, 9, 2, resize(50_000));
    assert_eq!(asked, ["ask 1: arrive of 1", "ask 2: arrive of 2"]);
    assert_eq!(answer(&mut rig, 1, made(NEAR)), ["ask 3: setxattr of 1"]);
    assert_eq!(answer(&mut rig, 2, made(FAR)), ["ask 4: setxattr of 2"]);
    assert_eq!(ask(&mut rig, 8, 1, resize(60_000)), ["reply 1: busy"], "one request is enough");
    assert_eq!(
        ask(&mut rig, 9, 3, Op::CheckPiece { file: FILE, piece: FAR }),
        ["reply 3: done"],
        "it will be the file's"
    );
    assert_eq!(done(&mut rig, 3), ["ask 5: fsync of 1"]);
    assert_eq!(done(&mut rig, 5), ["ask 6: checkcut of 1"]);
    assert_eq!(done(&mut rig, 6), NONE);
    assert_eq!(done(&mut rig, 4), ["ask 7: fsync of 2"]);
    assert_eq!(done(&mut rig, 7), ["ask 8: checkcut of 2"]);
    let named = the(&done(&mut rig, 8), "stripe of 1");
    assert_eq!(kept(&mut rig), None);
    // That is asked by the executor.
    let op = Op::Stripe { fid: FILE, layout: Layout { pieces: vec![NEAR, FAR], base: 0, ..layout(1 << 32) } };
    assert_eq!(ask(&mut rig, 99, 1, op), ["reply 1: done"]);
    let Stripes { layout, cut } = kept(&mut rig).unwrap();
    assert_eq!((layout.base, &layout.pieces[..], cut), (UNIT, &[NEAR, FAR][..], None));
    assert_eq!(layout.generation >> 32, 1, "none of an earlier epoch comes again");
    assert_eq!(done(&mut rig, named), ["reply 2: attr 1.1.40 for 250 ms"], "it is longer");
    assert_eq!(size(&mut rig), 50_000);
    let read = Op::Read { fid: FILE, offset: 0, len: 5 };
    assert_eq!(
        ask(&mut rig, 9, 4, read),
        ["reply 4: operation not supported"],
        "who knows nothing of stripes must not read it"
    );
    assert!(ask(&mut rig, 9, 5, Op::Stripes { fid: FILE })[0].starts_with("reply 5: stripes"));
    assert_eq!(ask(&mut rig, 9, 6, Op::CheckPiece { file: FILE, piece: NEAR }), ["reply 6: done"]);
    assert_eq!(
        ask(&mut rig, 9, 7, Op::CheckPiece { file: FILE, piece: FILE }),
        ["reply 7: stale file handle"]
    );
}

/// The request is carried out as ever.
#[test]
fn a_file_whose_pieces_cannot_be_made_is_like_any_other() {
    let mut rig = rig();
    ask(&mut rig, 9, 1, resize(50_000));
    answer(&mut rig, 1, made(NEAR));
    assert_eq!(answer(&mut rig, 2, errno(Errno::ENOSPC)), ["reply 1: attr 1.1.40 for 250 ms"]);
    assert_eq!(done(&mut rig, 3), NONE);
    assert_eq!((size(&mut rig), kept(&mut rig)), (50_000, None));
    assert_eq!(
        ask(&mut rig, 9, 2, Op::CheckPiece { file: FILE, piece: NEAR }),
        ["reply 2: stale file handle"],
        "it goes"
    );
}

/// The brick leads again: what comes late of what was asked before makes no piece for what is asked now.
#[test]
fn answers_of_an_earlier_time_as_primary_are_for_nobody() {
    let mut rig = rig();
    assert_eq!(ask(&mut rig, 9, 1, resize(50_000)), ["ask 1: arrive of 1", "ask 2: arrive of 2"]);
    rig.second(2);
    rig.lead(&[]);
    rig.now += Duration::from_secs(61);
    let striped = settings(&rig, 2);
    rig.step(Input::Settings(striped));
    let again = ask(&mut rig, 9, 2, resize(60_000));
    assert!(again[0].ends_with("arrive of 1") && again[1].ends_with("arrive of 2"), "{again:?}");
    assert_eq!(answer(&mut rig, 1, made(NEAR)), NONE);
    assert_eq!(answer(&mut rig, 2, errno(Errno::ENOSPC)), NONE);
    assert_eq!((size(&mut rig), kept(&mut rig)), (500, None));
}

/// What waited for a move would be done to the file itself though it is striped by then.
#[test]
fn a_file_whose_pieces_are_made_does_not_go_to_another_set() {
    let mut rig = rig();
    ask(&mut rig, 9, 1, resize(50_000));
    let file_move = || FileMove { parent: ROOT, name: name("f"), also: Vec::new(), to: THERE };
    assert_eq!(rig.step(Input::Move(file_move())), NONE);
    rig.core.brick_mut().full = true;
    ask(&mut rig, 9, 2, Op::Lookup { parent: ROOT, name: name("f") });
    let reserve = Op::Fallocate { fid: FILE, mode: 0, offset: 0, len: 10 };
    assert_eq!(ask(&mut rig, 9, 3, reserve), ["reply 3: busy"], "there is room in a moment");
}

#[test]
fn a_file_is_striped_by_nobody_who_could_not_use_it() {
    let mut rig = rig();
    assert_eq!(
        rig.ask_of(wire::User::of_one_group(0, 0), resize(50_000)),
        ["reply 1: attr 1.1.40 for 250 ms"]
    );
    let mut rig = self::rig();
    let alone = settings(&rig, 1);
    rig.step(Input::Settings(Settings { stripes: None, ..alone }));
    assert_eq!(ask(&mut rig, 9, 1, resize(50_000)), ["reply 1: attr 1.1.40"]);
}

/// Nothing of the file is shown until all pieces are cut, on disk.
#[test]
fn a_file_gets_shorter_when_its_pieces_have() {
    let mut rig = striped();
    let marked = the(&ask(&mut rig, 9, 1, resize(5000)), "fsync of 1");
    let generation = kept(&mut rig).unwrap().cut.unwrap().generation;
    assert!(generation > 7);
    for op in [Op::Stripes { fid: FILE }, Op::Append { fid: FILE, ticket: 1 }, resize(1), resize(20_000)] {
        assert_eq!(ask(&mut rig, 8, 1, op), ["reply 1: busy"]);
    }
    let shorter = shorten(&mut rig, marked);
    assert_eq!(size(&mut rig), 5000);
    assert_eq!(ask(&mut rig, 8, 2, Op::Stripes { fid: FILE }), ["reply 2: busy"], "until that is on disk");
    let over = done(&mut rig, shorter);
    assert_eq!(over.last().map(String::as_str), Some("reply 1: attr 1.1.40"), "not before");
    let over = the(&over[..1], "fsync of 1");
    assert_eq!(
        ask(&mut rig, 8, 2, Op::Stripes { fid: FILE }),
        ["reply 2: busy"],
        "until that is on disk, too"
    );
    assert_eq!(done(&mut rig, over), NONE);
    assert_eq!(kept(&mut rig), Some(Stripes { layout: layout(generation), cut: None }));
    let late = Op::Extend { fid: FILE, generation: 7, end: 8000, append: 0, kill_suid: false };
    assert_eq!(
        ask(&mut rig, 8, 3, late),
        ["reply 3: stale file handle"],
        "what was written before the cut is gone"
    );
    let extend = Op::Extend { fid: FILE, generation, end: 8000, append: 0, kill_suid: false };
    assert_eq!(ask(&mut rig, 8, 4, extend), ["reply 4: attr 1.1.40"]);
    assert_eq!(size(&mut rig), 8000);
}

/// Under another generation: what comes late of the first try does nothing.
#[test]
fn a_cut_that_was_not_confirmed_begins_anew() {
    let mut rig = striped();
    let marked = the(&ask(&mut rig, 9, 1, resize(5000)), "fsync of 1");
    let first = kept(&mut rig).unwrap().cut.unwrap();
    let fenced = the(&done(&mut rig, marked), "fencepiece of 2");
    assert_eq!(answer(&mut rig, fenced, Err(Fail::Busy)), ["reply 1: busy for 250 ms"]);
    assert_eq!(size(&mut rig), 9000);
    // Whoever asks next; the request itself comes again.
    let again = ask(&mut rig, 8, 1, Op::Stripes { fid: FILE });
    assert_eq!(again.last().map(String::as_str), Some("reply 1: busy"));
    let at = the(&again[..1], "fsync of 1");
    let second = kept(&mut rig).unwrap().cut.unwrap();
    assert!(second.generation > first.generation);
    assert_eq!((second.end, &second.then), (first.end, &first.then));
    let shorter = shorten(&mut rig, at);
    assert_eq!((end_cut(&mut rig, shorter), size(&mut rig)), (Vec::new(), 5000));
    assert_eq!(ask(&mut rig, 9, 1, resize(5000)), ["reply 1: attr 1.1.40"], "it is done, and not done again");
    assert_eq!(kept(&mut rig).unwrap().cut, None);
}

/// It finds the mark, and ends what the file's earlier primary has begun.
#[test]
fn a_new_primary_ends_the_cut() {
    let mut rig = striped();
    let op = OpId { session: SessionId(9), seq: 1 };
    let Op::SetAttr { set, .. } = resize(5000) else { unreachable!() };
    let then = Some(wire::stripes::CutBy { op, set });
    let cut = Some(Cut { generation: 8, end: 5000, then });
    rig.core.brick_mut().beside.insert((FILE, STRIPES), Stripes { layout: layout(7), cut }.encode());
    let at = the(&ask(&mut rig, 8, 1, Op::Stripes { fid: FILE })[..1], "fsync of 1");
    let shorter = shorten(&mut rig, at);
    end_cut(&mut rig, shorter);
    assert_eq!((size(&mut rig), kept(&mut rig).unwrap().cut), (5000, None));
    assert_eq!(ask(&mut rig, 9, 1, resize(5000)), ["reply 1: attr 1.1.40"], "as an answer that was lost");
}

/// Nobody else asks under that name any more, so it would never be done: what is there says whether it was.
#[test]
fn a_cut_ends_whose_client_waits_no_more() {
    for (size_before, is_done) in [(9000, false), (5000, true)] {
        let mut rig = striped();
        let op = OpId { session: SessionId(9), seq: 1 };
        let Op::SetAttr { set, .. } = resize(5000) else { unreachable!() };
        let then = Some(wire::stripes::CutBy { op, set });
        let cut = Some(Cut { generation: 8, end: 5000, then });
        rig.core.brick_mut().beside.insert((FILE, STRIPES), Stripes { layout: layout(7), cut }.encode());
        rig.core.brick_mut().data.insert(FILE, vec![0; size_before]);
        let id = OpId { session: SessionId(9), seq: 2 };
        let op = Op::SetXattr { fid: FILE, name: name("user.a"), flags: 0 };
        ask(&mut rig, 9, 1, op.clone());
        let call = Call { set: HERE, epoch: Epoch(1), id, finished: 1, op };
        let (payload, session) = (Bytes::new(), SessionId(9));
        let request = Request { call, payload, to: To(2), session, user: None, beneath: None };
        rig.step(Input::Request(request));
        let at = the(&ask(&mut rig, 8, 1, Op::Stripes { fid: FILE })[..1], "fsync of 1");
        let changes = rig.core.brick_mut().journal.len();
        let shorter = shorten(&mut rig, at);
        assert_eq!(rig.core.brick_mut().journal.len() - changes, usize::from(!is_done));
        end_cut(&mut rig, shorter);
        assert_eq!((size(&mut rig), kept(&mut rig).unwrap().cut), (5000, None));
    }
}

/// Else pieces would be of a generation of which the file knows nothing.
#[test]
fn no_piece_is_cut_unless_the_cut_is_noted() {
    let mut rig = striped();
    rig.core.brick_mut().fails = Some((Errno::ENOSPC, false));
    let marked = the(&ask(&mut rig, 9, 1, resize(5000)), "fsync of 1");
    rig.core.brick_mut().fails = None;
    assert_eq!(done(&mut rig, marked), ["reply 1: busy for 250 ms"]);
    assert_eq!((size(&mut rig), kept(&mut rig)), (9000, Some(Stripes { layout: layout(7), cut: None })));
    // It is not over unless the file is shorter, either.
    let at = the(&ask(&mut rig, 9, 1, resize(5000)), "fsync of 1");
    let checked = cut_pieces(&mut rig, at);
    rig.core.brick_mut().fails = Some((Errno::ENOSPC, false));
    let ended = the(&done(&mut rig, checked), "fsync of 1");
    rig.core.brick_mut().fails = None;
    assert_eq!(done(&mut rig, ended), ["reply 1: busy for 250 ms"]);
    assert_eq!(size(&mut rig), 9000);
    assert!(kept(&mut rig).unwrap().cut.is_some(), "whoever asks next goes on with it");
}

#[test]
fn a_striped_file_that_is_gone_is_as_gone_as_any() {
    let mut rig = striped();
    let write = Op::Write { fid: FILE, offset: 0, append: false, kill_suid: false };
    assert_eq!(ask(&mut rig, 9, 1, write.clone()), ["reply 1: operation not supported"]);
    rig.core.brick_mut().names.clear();
    rig.core.brick_mut().data.remove(&FILE);
    rig.core.brick_mut().files.remove(&FILE);
    assert_eq!(ask(&mut rig, 9, 2, write), ["reply 2: stale file handle"]);
}

/// Whoever appends has the end for itself, until it takes too long.
#[test]
fn a_file_does_not_grow_while_somebody_appends() {
    let mut rig = striped();
    let append = |ticket| Op::Append { fid: FILE, ticket };
    let at = the(&ask(&mut rig, 8, 1, append(1))[..1], "fsync of 1");
    let shorter = shorten(&mut rig, at);
    end_cut(&mut rig, shorter);
    let generation = kept(&mut rig).unwrap().layout.generation;
    assert!(ask(&mut rig, 8, 2, append(1))[0].starts_with("reply 2: stripes"));
    let write = Op::WritePiece { fid: FILE, generation, offset: 9001 };
    for (seq, op) in [(1, resize(9500)), (2, write)] {
        assert_eq!(ask(&mut rig, 7, seq, op), [format!("reply {seq}: busy")]);
    }
    rig.now += Duration::from_secs(11);
    let begun = ask(&mut rig, 7, 3, resize(9500));
    assert_eq!(begun.last().map(String::as_str), Some("reply 3: busy"));
    let fenced = the(&begun[..1], "fsync of 1");
    fence(&mut rig, fenced);
    assert_eq!(ask(&mut rig, 7, 3, resize(9500)), ["reply 3: attr 1.1.40"], "what the append left is gone");
    let extend = Op::Extend { fid: FILE, generation, end: 9100, append: 1, kill_suid: false };
    assert_eq!(ask(&mut rig, 8, 3, extend), ["reply 3: stale file handle"], "it has to begin anew");
    assert!(ask(&mut rig, 8, 4, append(1))[0].starts_with("reply 4: stripes"));
}

/// Either may have overwritten the other, so whoever is second writes again, by another layout.
#[test]
fn a_write_that_met_an_append_is_done_again() {
    let mut rig = striped();
    let extend = |rig: &mut Rig, append, end| {
        let generation = kept(rig).unwrap().layout.generation;
        Op::Extend { fid: FILE, generation, end, append, kill_suid: false }
    };
    let append = Op::Append { fid: FILE, ticket: 1 };
    // The primary knows of nobody who writes, so that comes first.
    let write = extend(&mut rig, 0, 9000);
    let begun = ask(&mut rig, 7, 1, write.clone());
    assert_eq!(begun.last().map(String::as_str), Some("reply 1: busy"));
    let fenced = the(&begun[..1], "fsync of 1");
    assert_eq!(kept(&mut rig).unwrap().cut.map(|cut| (cut.end, cut.then)), Some((9000, None)));
    fence(&mut rig, fenced);
    assert_eq!(ask(&mut rig, 7, 1, write), ["reply 1: stale file handle"], "it is done again");
    assert_eq!(ask(&mut rig, 8, 1, append.clone()), ["reply 1: busy"], "not before it");
    let write = extend(&mut rig, 0, 9500);
    assert_eq!(ask(&mut rig, 7, 2, write), ["reply 2: attr 1.1.40"]);
    assert!(ask(&mut rig, 8, 1, append.clone())[0].starts_with("reply 1: stripes"), "without another cut");
    let (low, high) = (extend(&mut rig, 0, 9500), extend(&mut rig, 0, 9501));
    assert_eq!(ask(&mut rig, 7, 3, low), ["reply 3: attr 1.1.40"], "it lies before all appends");
    assert_eq!(ask(&mut rig, 7, 4, high.clone()), ["reply 4: busy"]);
    let appended = extend(&mut rig, 1, 9600);
    assert_eq!(ask(&mut rig, 8, 2, appended), ["reply 2: attr 1.1.40"]);
    let begun = ask(&mut rig, 7, 4, high.clone());
    let fenced = the(&begun[..1], "fsync of 1");
    fence(&mut rig, fenced);
    assert_eq!(ask(&mut rig, 7, 4, high), ["reply 4: stale file handle"]);
    // It has gone.
    rig.now += Duration::from_secs(2);
    assert!(ask(&mut rig, 8, 3, append)[0].starts_with("reply 3: stripes"));
    assert_eq!(size(&mut rig), 9600);
}

/// What it has left in pieces must not show.
#[test]
fn an_append_that_failed_is_fenced() {
    let mut rig = striped();
    let append = Op::Append { fid: FILE, ticket: 1 };
    let begun = the(&ask(&mut rig, 8, 1, append.clone())[..1], "fsync of 1");
    fence(&mut rig, begun);
    ask(&mut rig, 8, 1, append);
    let generation = kept(&mut rig).unwrap().layout.generation;
    let release = Op::Extend { fid: FILE, generation, end: 0, append: 1, kill_suid: false };
    assert_eq!(ask(&mut rig, 8, 2, release), ["reply 2: attr 1.1.40"]);
    let begun = ask(&mut rig, 7, 1, resize(9500));
    assert_eq!(begun.last().map(String::as_str), Some("reply 1: busy"));
    the(&begun[..1], "fsync of 1");
}

/// Without the note the pieces are not fenced, and whoever asks next begins it anew.
#[test]
fn a_fence_that_is_not_noted_counts_for_nothing() {
    let mut rig = striped();
    let write = Op::Extend { fid: FILE, generation: 7, end: 9500, append: 0, kill_suid: false };
    rig.core.brick_mut().fails = Some((Errno::ENOSPC, false));
    let marked = the(&ask(&mut rig, 9, 1, write.clone())[..1], "fsync of 1");
    rig.core.brick_mut().fails = None;
    assert_eq!(done(&mut rig, marked), NONE);
    assert_eq!(kept(&mut rig), Some(Stripes { layout: layout(7), cut: None }));
    let again = ask(&mut rig, 9, 1, write);
    assert_eq!(again.last().map(String::as_str), Some("reply 1: busy"));
    the(&again[..1], "fsync of 1");
}

/// One after the other; what one of before may still write goes to a layout that is over.
#[test]
fn one_appends_at_a_time() {
    let mut rig = striped();
    let append = |ticket| Op::Append { fid: FILE, ticket };
    let at = the(&ask(&mut rig, 8, 1, append(1))[..1], "fsync of 1");
    let shorter = shorten(&mut rig, at);
    assert_eq!(end_cut(&mut rig, shorter), NONE);
    assert_eq!(size(&mut rig), 9000, "nothing is cut off");
    assert!(ask(&mut rig, 8, 2, append(1))[0].starts_with("reply 2: stripes"));
    assert_eq!(ask(&mut rig, 7, 1, append(1)), ["reply 1: busy"]);
    let generation = kept(&mut rig).unwrap().layout.generation;
    let extend = |append, end| Op::Extend { fid: FILE, generation, end, append, kill_suid: false };
    assert_eq!(ask(&mut rig, 7, 2, extend(0, 9500)), ["reply 2: busy"], "that would be behind it");
    assert_eq!(ask(&mut rig, 7, 3, extend(0, 800)), ["reply 3: attr 1.1.40"]);
    assert_eq!(
        ask(&mut rig, 7, 4, extend(1, 9100)),
        ["reply 4: stale file handle"],
        "it is another session's"
    );
    assert_eq!(ask(&mut rig, 8, 3, extend(1, 9100)), ["reply 3: attr 1.1.40"]);
    assert!(ask(&mut rig, 7, 5, append(1))[0].starts_with("reply 5: stripes"));
    // It says nothing more.
    rig.now += Duration::from_secs(11);
    let begun = ask(&mut rig, 8, 4, append(2));
    assert_eq!(begun.last().map(String::as_str), Some("reply 4: busy"));
    the(&begun[..1], "fsync of 1");
    assert!(kept(&mut rig).unwrap().cut.is_some());
}

/// Whoever looks at a piece may keep data of it while nobody else is there; others change it when that is over.
#[test]
fn a_piece_is_not_changed_while_its_data_is_kept() {
    let mut rig = rig();
    let brick = rig.core.brick_mut();
    brick.files.insert(NEAR);
    brick.orphans.insert(NEAR);
    brick.beside.insert((NEAR, PIECE), PieceOf { file: FAR, generation: 3 }.encode());
    let look = |generation| Op::PieceAttr { fid: NEAR, generation };
    assert_eq!(ask(&mut rig, 9, 1, look(2)), ["reply 1: stale file handle"]);
    assert_eq!(rig.ask_as(9, 2, look(3)), ["reply 2: attr 1.1.41 for 250 ms"]);
    let write = Op::WritePiece { fid: NEAR, generation: 3, offset: 0 };
    assert_eq!(rig.ask_as(8, 1, write), NONE);
    rig.now += Duration::from_millis(300);
    assert_eq!(rig.wake(), ["reply 1: done"]);
    assert_eq!(rig.ask_as(9, 3, look(3)), ["reply 3: attr 1.1.41"], "two are there now");
    assert_eq!(
        ask(&mut rig, 9, 4, Op::PieceAttr { fid: FILE, generation: 3 }),
        ["reply 4: stale file handle"]
    );
}

/// A piece is read and written by a layout of its generation, and stays until its file's set has said for half a minute that no
/// file has it.
#[test]
fn a_piece_goes_after_its_file() {
    let mut rig = rig();
    let brick = rig.core.brick_mut();
    brick.files.insert(NEAR);
    brick.orphans.insert(NEAR);
    brick.beside.insert((NEAR, PIECE), PieceOf { file: FAR, generation: 3 }.encode());
    let write = |generation| Op::WritePiece { fid: NEAR, generation, offset: 0 };
    assert_eq!(ask(&mut rig, 9, 1, write(2)), ["reply 1: stale file handle"]);
    assert_eq!(ask(&mut rig, 9, 2, write(3)), ["reply 2: done"]);
    assert_eq!(ask(&mut rig, 9, 3, Op::FencePiece { fid: NEAR, generation: 5 }), ["reply 3: done"]);
    assert_eq!(
        ask(&mut rig, 9, 4, Op::FencePiece { fid: NEAR, generation: 4 }),
        ["reply 4: stale file handle"]
    );
    assert_eq!(ask(&mut rig, 9, 5, write(3)), ["reply 5: stale file handle"]);
    assert_eq!(
        ask(&mut rig, 9, 6, Op::TrimPiece { fid: NEAR, generation: 4, end: 0 }),
        ["reply 6: stale file handle"]
    );
    rig.core.brick_mut().data.insert(NEAR, vec![7; 100]);
    assert_eq!(ask(&mut rig, 9, 9, Op::TrimPiece { fid: NEAR, generation: 5, end: 0 }), ["reply 9: done"]);
    let trimmed = rig.core.brick_mut().journal.last().map(|entry| entry.body.clone());
    assert!(
        matches!(trimmed, Some(Change::SetAttr { size: Some(0), mtime: Some(_), .. })),
        "each brick would give its own time"
    );
    assert_eq!(ask(&mut rig, 9, 7, Op::CheckCut { fid: NEAR, generation: 5, end: 0 }), ["reply 7: done"]);
    assert_eq!(
        ask(&mut rig, 9, 8, Op::Read { fid: NEAR, offset: 0, len: 1 }),
        ["reply 8: stale file handle"]
    );
    let check = |rig: &mut Rig| {
        rig.now += Duration::from_secs(11);
        let asked: Vec<String> = rig.maintain().into_iter().filter(|l| l.starts_with("ask")).collect();
        the(&asked, "checkpiece of 2")
    };
    let id = check(&mut rig);
    done(&mut rig, id);
    for _ in 0..3 {
        let id = check(&mut rig);
        assert_eq!(answer(&mut rig, id, errno(Errno::ESTALE)), NONE, "it may be back");
    }
    let id = check(&mut rig);
    let gone = the(&answer(&mut rig, id, errno(Errno::ESTALE)), "syncfs of 2");
    let dropped = |rig: &mut Rig| {
        rig.core
            .brick_mut()
            .journal
            .iter()
            .any(|e| matches!(e.body, Change::DropOrphan { fid } if fid == NEAR))
    };
    assert!(!dropped(&mut rig));
    done(&mut rig, gone);
    assert!(dropped(&mut rig));
}
