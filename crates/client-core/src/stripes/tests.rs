#![allow(clippy::indexing_slicing, clippy::cast_possible_truncation, reason = "a test that fails says where")]

use super::*;
use alloc::collections::BTreeMap;
use ids::{Lsn, Time};

fn fid(set: u32, n: u64) -> Fid {
    Fid { set: SetId(set), epoch: Epoch(1), lsn: Lsn(n) }
}

const HOME: SetId = SetId(9);
const KIB: u64 = 1024;

fn file() -> Fid {
    fid(9, 1)
}

fn layout(pieces: u32, base: u64) -> Layout {
    let pieces = (1..=pieces).map(|set| fid(set, 7)).collect();
    Layout { generation: 5, base, unit: 64 * KIB, pieces }
}

fn attr(size: u64) -> Attr {
    let time = Time::default();
    Attr {
        fid: file(),
        home: HOME,
        mode: 0o100_644,
        uid: 0,
        gid: 0,
        nlink: 1,
        rdev: 0,
        size,
        blocks: 0,
        atime: time,
        mtime: time,
        ctime: time,
    }
}

fn known(size: u64) -> Known {
    Known { layout: layout(3, 64 * KIB), size, lost_before: Epoch(0) }
}

fn told(generation: u64, size: u64) -> Vec<Result<Body, Errno>> {
    vec![Ok(Body::Stripes { layout: Layout { generation, ..layout(3, 64 * KIB) }, attr: attr(size) })]
}

fn asked(step: Step) -> Vec<(u32, Op)> {
    match step {
        Step::Ask(_, questions) => questions.into_iter().map(|q| (q.set.0, q.op)).collect(),
        Step::End(end) => panic!("it ends: {end:?}"),
    }
}

/// Each byte of a file lies in one object, that of its unit, and parts cover a range without a gap.
#[test]
fn each_byte_lies_in_one_place() {
    let mut seed = 1_u64;
    let mut below = |n: u64| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % n
    };
    for _ in 0..2000 {
        let unit = (1 + below(8)) * 4 * KIB;
        let pieces = 1 + below(5);
        let base = below(4) * unit;
        let pieces: Vec<Fid> = (0..pieces).map(|n| fid(n as u32 + 1, 7)).collect();
        let layout = Layout { generation: 1, base, unit, pieces };
        let start = below(20 * unit);
        let end = start + below(5 * unit);
        let mut owner = BTreeMap::new();
        let mut at = start;
        for part in parts(&layout, file(), start..end) {
            assert_eq!(part.offset, at, "no gap");
            assert!(part.len > 0);
            at += part.len;
            for byte in [part.offset, part.offset + part.len - 1] {
                let piece = layout.pieces[(byte / unit) as usize % layout.pieces.len()];
                let expected = if byte < base { file() } else { piece };
                assert_eq!(part.fid, expected);
                owner.insert(byte, part.fid);
            }
        }
        assert_eq!(at, end.max(start));
        // Another operation that meets the same byte goes to the same object.
        for (byte, fid) in owner {
            assert_eq!(parts(&layout, file(), byte..byte + 1)[0].fid, fid);
        }
    }
}

#[test]
fn a_write_counts_when_all_pieces_have_it() {
    let what = What::Write { offset: 60 * KIB, len: 100 * KIB as u32, append: 0, kill_suid: true };
    let (mut call, step) = StripedCall::begin((file(), HOME), what, Some(&known(0)));
    let generation = 5;
    let write = |fid, at| Op::WritePiece { fid, generation, offset: at * KIB };
    assert_eq!(asked(step), [(9, write(file(), 60)), (2, write(fid(2, 7), 64)), (3, write(fid(3, 7), 128))]);
    let step = call.answered(vec![Ok(Body::Done), Ok(Body::Done), Ok(Body::Done)]);
    let end = 160 * KIB;
    assert_eq!(asked(step), [(9, Op::Extend { fid: file(), generation, end, append: 0, kill_suid: true })]);
    let step = call.answered(vec![Ok(Body::Attr { attr: attr(end) })]);
    assert_eq!(step, Step::End(Ok(Answer::Written(100 * KIB as u32, attr(end)))));
    assert_eq!(call.learnt().map(|(_, size)| size), Some(end));
}

#[test]
fn what_a_piece_refuses_is_done_again_by_the_present_layout() {
    let what = What::Write { offset: 64 * KIB, len: 10, append: 0, kill_suid: false };
    let (mut call, _) = StripedCall::begin((file(), HOME), what, Some(&known(0)));
    let step = call.answered(vec![Err(Errno::ESTALE)]);
    assert!(matches!(&step, Step::Ask(pause, _) if !pause.is_zero()));
    assert_eq!(asked(step), [(9, Op::Stripes { fid: file() })]);
    let step = call.answered(told(6, 0));
    assert_eq!(asked(step), [(2, Op::WritePiece { fid: fid(2, 7), generation: 6, offset: 64 * KIB })]);
    // The same for what the file's own set refuses.
    call.answered(vec![Ok(Body::Done)]);
    let step = call.answered(vec![Err(Errno::ESTALE)]);
    assert_eq!(asked(step), [(9, Op::Stripes { fid: file() })]);
    assert_eq!(call.answered(vec![Err(Errno::ESTALE)]), Step::End(Ok(Answer::Plain)));
}

#[test]
fn a_piece_that_is_not_there_is_an_error_in_the_end() {
    let what = What::Read { offset: 64 * KIB, len: 10 };
    let (mut call, mut step) = StripedCall::begin((file(), HOME), what, Some(&known(100 * KIB)));
    for _ in 0..100 {
        step = match step {
            Step::Ask(_, questions) if matches!(questions[0].op, Op::Stripes { .. }) => {
                call.answered(told(5, 100 * KIB))
            }
            Step::Ask(..) => call.answered(vec![Err(Errno::ESTALE)]),
            end => return assert_eq!(end, Step::End(Err(Errno::EIO))),
        };
    }
    panic!("it has no end");
}

#[test]
fn a_read_asks_how_long_the_file_is_only_if_it_may_end_there() {
    let what = What::Read { offset: 70 * KIB, len: 100 };
    let (mut call, step) = StripedCall::begin((file(), HOME), what, Some(&known(71 * KIB)));
    let read = Op::ReadPiece { fid: fid(2, 7), generation: 5, offset: 70 * KIB, len: 100 };
    assert_eq!(asked(step), [(2, read)]);
    assert_eq!(call.answered(vec![Ok(Body::Data)]), Step::End(Ok(Answer::Read(100))));
    let what = What::Read { offset: 70 * KIB, len: 2048 };
    let (mut call, step) = StripedCall::begin((file(), HOME), what, Some(&known(71 * KIB)));
    assert_eq!(asked(step), [(9, Op::Stripes { fid: file() })]);
    let read = Op::ReadPiece { fid: fid(2, 7), generation: 5, offset: 70 * KIB, len: 1024 };
    assert_eq!(asked(call.answered(told(5, 71 * KIB))), [(2, read)]);
    assert_eq!(call.answered(vec![Ok(Body::Data)]), Step::End(Ok(Answer::Read(1024))));
}

/// Whoever keeps data asks all pieces whether it has changed, and those of the present layout if there is another one by now.
#[test]
fn who_keeps_data_asks_all_pieces() {
    let (mut call, step) = StripedCall::begin((file(), HOME), What::Look, Some(&known(0)));
    let look = |generation| (1..=3).map(move |set| (set, Op::PieceAttr { fid: fid(set, 7), generation }));
    assert_eq!(asked(step), look(5).collect::<Vec<_>>());
    let told_attr = |size| Ok(Body::Attr { attr: attr(size) });
    let step = call.answered(vec![told_attr(1), Err(Errno::ESTALE), told_attr(3)]);
    assert_eq!(asked(step), [(9, Op::Stripes { fid: file() })]);
    assert_eq!(asked(call.answered(told(6, 0))), look(6).collect::<Vec<_>>());
    let step = call.answered(vec![told_attr(1), told_attr(2), told_attr(3)]);
    assert_eq!(step, Step::End(Ok(Answer::Looked(6, vec![attr(1), attr(2), attr(3)]))));
    let (mut call, _) = StripedCall::begin((file(), HOME), What::Look, Some(&known(0)));
    let step = call.answered(vec![told_attr(1), Ok(Body::Done), told_attr(3)]);
    assert_eq!(step, Step::End(Err(Errno::EIO)));
}

/// What lies in the file itself is there, once, whatever becomes of the rest.
#[test]
fn an_append_that_made_the_file_longer_is_not_done_again() {
    for (size, len, parts) in [(10 * KIB, 10, 1), (63 * KIB, 2 * KIB as u32, 2)] {
        let what = What::Write { offset: 0, len, append: 3, kill_suid: false };
        let (mut call, _) = StripedCall::begin((file(), HOME), what, Some(&known(0)));
        let mut step = call.answered(told(5, size));
        if parts == 2 {
            let Step::Ask(_, questions) = &step else { panic!("{step:?}") };
            assert_eq!(questions[0].data, KIB as usize..2 * KIB as usize);
            let write = Op::WritePiece { fid: fid(2, 7), generation: 5, offset: 64 * KIB };
            assert_eq!(asked(step), [(2, write)]);
            step = call.answered(vec![Ok(Body::Done)]);
        }
        assert_eq!(asked(step), [(9, Op::WritePiece { fid: file(), generation: 5, offset: size })]);
        let end = size + u64::from(len);
        let extend = Op::Extend { fid: file(), generation: 5, end, append: 3, kill_suid: false };
        assert_eq!(asked(call.answered(vec![Ok(Body::Done)])), [(9, extend)]);
        assert_eq!(asked(call.answered(vec![Err(Errno::ESTALE)])), [(9, Op::Stripes { fid: file() })]);
        let own = if parts == 2 { KIB as u32 } else { len };
        assert_eq!(call.answered(told(6, 7)), Step::End(Ok(Answer::Written(own, attr(7)))));
    }
}

/// By a unit of no bytes nobody could tell where anything lies: what a server says of a layout is looked at whenever it says it.
#[test]
fn a_layout_that_says_nothing_is_not_kept() {
    let nonsense = || {
        let layout = Layout { unit: 0, ..layout(3, 64 * KIB) };
        vec![Ok(Body::Stripes { layout, attr: attr(200 * KIB) })]
    };
    let what = What::Write { offset: 0, len: 10, append: 3, kill_suid: false };
    let (mut call, _) = StripedCall::begin((file(), HOME), what, Some(&known(0)));
    assert_eq!(call.answered(nonsense()), Step::End(Err(Errno::EIO)));
    let (mut call, _) = StripedCall::begin((file(), HOME), what, Some(&known(0)));
    call.answered(told(5, 10 * KIB));
    call.answered(vec![Ok(Body::Done)]);
    call.answered(vec![Err(Errno::ESTALE)]);
    assert_eq!(call.answered(nonsense()), Step::End(Err(Errno::EIO)));
    assert!(call.learnt().is_some_and(|(layout, _)| layout.is_sound()));
}

#[test]
fn an_append_that_fails_lets_others_append() {
    let what = What::Write { offset: 0, len: 10, append: 3, kill_suid: false };
    let (mut call, step) = StripedCall::begin((file(), HOME), what, Some(&known(0)));
    assert_eq!(asked(step), [(9, Op::Append { fid: file(), ticket: 3 })]);
    let step = call.answered(told(5, 200 * KIB));
    assert_eq!(asked(step), [(1, Op::WritePiece { fid: fid(1, 7), generation: 5, offset: 200 * KIB })]);
    let step = call.answered(vec![Err(Errno::ENOSPC)]);
    let release = Op::Extend { fid: file(), generation: 5, end: 0, append: 3, kill_suid: false };
    assert_eq!(asked(step), [(9, release)]);
    assert_eq!(call.answered(vec![Ok(Body::Attr { attr: attr(0) })]), Step::End(Err(Errno::ENOSPC)));
}

#[test]
fn a_hole_is_punched_in_all_pieces_and_room_is_reserved_unit_by_unit() {
    let allocate = |mode, offset, len| {
        let what = What::Allocate { mode, offset, len };
        StripedCall::begin((file(), HOME), what, Some(&known(1 << 30)))
    };
    let (mut call, step) = allocate(KEEP_SIZE | PUNCH_HOLE, 0, 1 << 30);
    assert_eq!(asked(step).len(), 4);
    let step = call.answered(vec![Ok(Body::Done); 4]);
    assert!(matches!(asked(step)[..], [(9, Op::Extend { end: 0, .. })]));
    let (mut call, mut step) = allocate(0, 0, 600 * 64 * KIB);
    let mut many = 0;
    while let Step::Ask(_, questions) = &step {
        if let Op::Extend { end, .. } = questions[0].op {
            assert_eq!(end, 600 * 64 * KIB);
            break;
        }
        many += questions.len();
        let done = questions.iter().map(|_| Ok(Body::Done)).collect();
        step = call.answered(done);
    }
    assert_eq!(many, 600);
    assert_eq!(allocate(8, 0, 65536).1, Step::End(Err(Errno::EOPNOTSUPP)));
    assert_eq!(allocate(0, 0, 0).1, Step::End(Err(Errno::EINVAL)));
}

/// What is there belongs to an append, or a write, that has not come to its end.
#[test]
fn no_hole_is_punched_beyond_the_end() {
    for mode in [KEEP_SIZE | PUNCH_HOLE, KEEP_SIZE | ZERO] {
        let what = What::Allocate { mode, offset: 130 * KIB, len: 100 * KIB };
        let (mut call, step) = StripedCall::begin((file(), HOME), what, Some(&known(150 * KIB)));
        assert_eq!(asked(step), [(9, Op::Stripes { fid: file() })]);
        let (generation, offset, mode) = (5, 130 * KIB, KEEP_SIZE | PUNCH_HOLE);
        let punch = |set| Op::AllocatePiece { fid: fid(set, 7), generation, mode, offset, len: 30 * KIB };
        assert_eq!(asked(call.answered(told(5, 160 * KIB))), [1, 2, 3].map(|set| (set, punch(set))));
        let (mut call, _) = StripedCall::begin((file(), HOME), what, Some(&known(0)));
        assert!(matches!(asked(call.answered(told(5, 130 * KIB)))[..], [(9, Op::Extend { end: 0, .. })]));
    }
}

/// What was appended where a hole is, after it was punched, stays.
#[test]
fn a_hole_is_punched_once() {
    let what = What::Allocate { mode: KEEP_SIZE | PUNCH_HOLE, offset: 130 * KIB, len: 100 * KIB };
    let (mut call, _) = StripedCall::begin((file(), HOME), what, Some(&known(0)));
    call.answered(told(5, 160 * KIB));
    let step = call.answered(vec![Ok(Body::Done), Err(Errno::ESTALE), Ok(Body::Done)]);
    assert_eq!(asked(step), [(9, Op::Stripes { fid: file() })]);
    let (generation, offset, mode) = (6, 130 * KIB, KEEP_SIZE | PUNCH_HOLE);
    let rest = Op::AllocatePiece { fid: fid(2, 7), generation, mode, offset, len: 60 * KIB };
    assert_eq!(asked(call.answered(told(6, 190 * KIB))), [(2, rest)]);
    // All of it is there when the file's set refuses.
    call.answered(vec![Ok(Body::Done)]);
    call.answered(vec![Err(Errno::ESTALE)]);
    let (generation, end, append, kill_suid) = (7, 0, 0, false);
    let extend = Op::Extend { fid: file(), generation, end, append, kill_suid };
    assert_eq!(asked(call.answered(told(7, 200 * KIB))), [(9, extend)]);
    assert_eq!(call.answered(vec![Ok(Body::Attr { attr: attr(0) })]), Step::End(Ok(Answer::Done)));
}

/// The length that was known no longer holds, and what is not there any more would be read as zeros.
#[test]
fn a_read_across_a_loss_begins_again() {
    let read = Ok(Answer::Read(10));
    assert!(is_before_loss(&read, Epoch(0), Epoch(3)) && !is_before_loss(&read, Epoch(3), Epoch(3)));
    assert!(!is_before_loss(&Ok(Answer::Done), Epoch(0), Epoch(3)), "what was written is written");
    let what = What::Read { offset: 0, len: 10 };
    let known = known(100);
    let begin = |lost| asked(StripedCall::begin_after((file(), HOME), what, Some(&known), Epoch(lost)).1);
    assert!(matches!(begin(0)[..], [(9, Op::ReadPiece { .. })]));
    assert!(matches!(begin(3)[..], [(9, Op::Stripes { .. })]));
}
