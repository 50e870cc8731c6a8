//! Files whose data lies on several sets: which mistakes are noticed, and what is taken for right.

use crate::script::{SET, Script, attr, data, done, fid, file, root, set_size};
use bytes::Bytes;
use file_history::{Loss, Parted};
use ids::{Fid, SetId};
use wire::{Body, Errno, Name, Op};

const OTHER: SetId = SetId(2);
const UNIT: u64 = 100;

/// A file with units on two sets, of 100 bytes; what is before `base` lies in itself.
fn striped(base: u64, since: u64) -> Script {
    let mut s = Script::default();
    s.create(root(), "a", 1);
    let parted = Parted {
        base,
        unit: UNIT,
        sets: [(SET, since), (OTHER, since)].into(),
        order: vec![SET, OTHER],
        told: Some(since),
    };
    s.excuses.parted.insert(fid(1), parted);
    s
}

/// Three units that differ.
fn written() -> Script {
    let mut s = striped(0, 0);
    s.write(1, 0, &[(100, 1), (100, 2), (100, 3)], 300);
    s
}

fn read_at(s: &mut Script, offset: u64, bytes: &[(usize, u8)]) {
    let op = Op::Read { fid: fid(1), offset, len: 1000 };
    s.of(1, op, Bytes::new(), Ok((Body::Data, data(bytes))));
}

fn lose(s: &mut Script, set: SetId, from: u64, until: u64) {
    s.losses.push(Loss { set, from, until });
}

#[track_caller]
fn verdict(s: &Script, fine: bool) {
    if fine { s.accepted() } else { s.refused() }
}

#[test]
fn a_wrong_unit_is_noticed() {
    for (read, fine) in [
        (vec![(100, 1), (100, 2), (100, 3)], true),
        (vec![(100, 1), (100, 3), (100, 2)], false),
        (vec![(100, 1), (100, 2), (100, 1)], false),
        (vec![(100, 2), (100, 2), (100, 3)], false),
        // The border of a unit is off by one.
        (vec![(101, 1), (99, 2), (100, 3)], false),
    ] {
        let mut s = written();
        read_at(&mut s, 0, &read);
        verdict(&s, fine);
    }
}

#[test]
fn a_lost_write_is_noticed() {
    for (read, fine) in [
        (vec![(50, 1), (50, 9), (100, 9), (50, 9), (50, 3)], true),
        (vec![(100, 1), (100, 2), (100, 3)], false),
        // One unit of it has not arrived.
        (vec![(50, 1), (50, 9), (100, 2), (50, 9), (50, 3)], false),
        (vec![(50, 1), (50, 9), (100, 9), (100, 3)], false),
        (vec![(50, 1), (50, 9), (100, 0), (50, 9), (50, 3)], false),
    ] {
        let mut s = written();
        s.write(1, 50, &[(200, 9)], 300);
        read_at(&mut s, 0, &read);
        verdict(&s, fine);
    }
    // Who read it does not read what was there before.
    let mut s = written();
    s.write(1, 50, &[(200, 9)], 300);
    s.unanswered();
    read_at(&mut s, 0, &[(50, 1), (50, 9), (100, 2), (50, 9), (50, 3)]);
    s.accepted();
    read_at(&mut s, 0, &[(100, 1), (100, 2), (50, 9), (50, 3)]);
    s.refused();
}

#[test]
fn a_stale_size_is_noticed() {
    for (size, fine) in [(300, true), (200, false), (250, false), (0, false), (301, false)] {
        let mut s = written();
        s.call(Op::GetAttr { fid: fid(1) }, attr(file(fid(1), 1, size)));
        verdict(&s, fine);
    }
    for (read, fine) in [(vec![(100, 3)], true), (vec![(50, 3)], false), (vec![], false)] {
        let mut s = written();
        read_at(&mut s, 200, &read);
        verdict(&s, fine);
    }
    // A write that grew the file is answered with the length of before.
    let mut s = written();
    s.write(1, 300, &[(10, 4)], 300);
    s.refused();
    // An append goes where another one went.
    let mut s = written();
    s.append(1, &[(10, 4)], 310);
    s.append(1, &[(10, 5)], 310);
    s.refused();
}

#[test]
fn what_was_cut_does_not_come_back() {
    for (read, fine) in [(vec![(150, 1), (150, 0)], true), (vec![(150, 1), (50, 1), (100, 0)], false)] {
        let mut s = striped(0, 0);
        s.write(1, 0, &[(300, 1)], 300);
        s.call(set_size(1, 150), attr(file(fid(1), 1, 150)));
        s.call(set_size(1, 300), attr(file(fid(1), 1, 300)));
        read_at(&mut s, 0, &read);
        verdict(&s, fine);
    }
}

/// What lies in the file itself is there at once and makes it longer, though the rest comes to nothing as the file is gone.
#[test]
fn a_write_to_a_file_that_goes_may_have_come_as_far_as_the_base() {
    for (size, fine) in [(60, true), (100, true), (250, true), (80, false), (200, false)] {
        let mut s = striped(100, 0);
        s.call(set_size(1, 60), attr(file(fid(1), 1, 60)));
        s.call(Op::GetAttr { fid: fid(1) }, attr(file(fid(1), 1, size)));
        let (op, payload) =
            (Op::Write { fid: fid(1), offset: 70, append: false, kill_suid: false }, data(&[(180, 7)]));
        s.of(1, op, payload, Err(Errno::ESTALE));
        s.at(0, 60);
        s.unlink("a", done());
        s.at(40, 50);
        verdict(&s, fine);
    }
}

/// A set that has no part of the file yet loses nothing of it.
#[test]
fn a_loss_of_another_set_takes_what_it_has() {
    for (since, synced, read, fine) in [
        (0, false, vec![(100, 1), (100, 0), (100, 3)], true),
        (0, false, vec![(100, 1), (50, 2), (50, 0), (100, 3)], true),
        (0, false, vec![(100, 1), (100, 7), (100, 3)], false),
        (0, true, vec![(100, 1), (100, 0), (100, 3)], false),
        (90, false, vec![(100, 1), (100, 0), (100, 3)], false),
    ] {
        let mut s = striped(0, since);
        s.write(1, 0, &[(100, 1), (100, 2), (100, 3)], 300);
        if synced {
            s.fsync(fid(1), done());
        }
        lose(&mut s, OTHER, 60, 70);
        read_at(&mut s, 0, &read);
        s.at(100, 110);
        verdict(&s, fine);
    }
}

fn change_of_attributes() -> Op {
    let name = Name::new(b"user.x").unwrap();
    Op::SetXattr { fid: fid(1), name, flags: 0 }
}

/// Whoever wrote to a set that lost it is told by the next sync, and nobody else.
#[test]
fn a_sync_says_what_other_sets_lost() {
    let write = |offset| Op::Write { fid: fid(1), offset, append: false, kill_suid: false };
    let wrote = |s: &mut Script, op: &Op| {
        let payload = data(&[(10, 8)]);
        let told = match op {
            Op::SetXattr { .. } => Body::Done,
            _ => Body::Written { len: 10, attr: file(fid(1), 1, 300) },
        };
        s.of(2, op.clone(), payload, Ok((told, Bytes::new())));
    };
    let sync = |s: &mut Script, told| drop(s.of(2, Op::Fsync { fid: fid(1) }, Bytes::new(), told).clone());
    // What client 2 changed, and whether its sync may succeed, and fail.
    for (op, succeeds, fails) in
        [(write(150), false, true), (write(50), true, true), (change_of_attributes(), true, false)]
    {
        for (told, fine) in [(done(), succeeds), (Err(Errno::EIO), fails)] {
            let mut s = written();
            wrote(&mut s, &op);
            lose(&mut s, OTHER, 60, 70);
            read_at(&mut s, 100, &[(20, 0), (80, 2), (100, 3)]);
            s.at(80, 90);
            sync(&mut s, told);
            s.at(100, 110);
            verdict(&s, fine);
        }
    }
}

/// A client that has not heard of a loss takes what it writes to that set for lost, also where the file got its part there since.
#[test]
fn a_client_that_is_behind_takes_what_it_writes_for_lost() {
    let write = Op::Write { fid: fid(1), offset: 0, append: false, kill_suid: false };
    let written = Body::Written { len: 10, attr: file(fid(1), 1, 10) };
    for (op, told, fine) in [(write, written, true), (change_of_attributes(), Body::Done, false)] {
        let mut s = striped(0, 90);
        lose(&mut s, OTHER, 60, 70);
        let payload = if fine { data(&[(10, 8)]) } else { Bytes::new() };
        s.of(2, op, payload, Ok((told, Bytes::new())));
        s.at(100, 110);
        s.of(2, Op::Fsync { fid: fid(1) }, Bytes::new(), Err(Errno::EIO));
        s.at(120, 130);
        verdict(&s, fine);
    }
}

/// A write that failed says nothing of what is there.
#[test]
fn a_sync_after_a_write_that_failed_vouches_for_nothing() {
    let mut s = striped(0, 0);
    s.append(1, &[(32, 9)], 32);
    s.fsync(fid(1), done());
    s.append(1, &[(30, 10)], 62);
    let op = Op::Write { fid: fid(1), offset: 0, append: true, kill_suid: false };
    s.of(2, op, data(&[(5, 7)]), Err(Errno::ENOSPC));
    s.excuse(Errno::ENOSPC);
    let from = s.records.last().unwrap().begun + 10;
    lose(&mut s, SET, from, from + 5);
    s.of(2, Op::Fsync { fid: fid(1) }, Bytes::new(), done());
    s.at(from + 10, from + 20);
    s.of(2, Op::GetAttr { fid: fid(1) }, Bytes::new(), attr(file(fid(1), 1, 32)));
    s.accepted();
}

/// An append to a file that may be shorter than it was, and is not: that is no loss.
#[test]
fn an_append_after_a_loss_of_nothing() {
    let mut s = Script::default();
    let f: Fid = fid(1);
    s.create(root(), "a", 1);
    s.append(1, &[(44, 1)], 44);
    s.of(2, change_of_attributes(), Bytes::new(), done());
    s.lose();
    s.append(1, &[(10, 2)], 54);
    s.read(1, &[(44, 1), (10, 2)]);
    // It would have to fail if anything was lost.
    s.of(2, Op::Fsync { fid: f }, Bytes::new(), done());
    s.accepted();
}
