//! Files that have moved to another set, and power cuts of either.

use crate::script::{SET, Script, attr, dir, done, fid, name, root};
use bytes::Bytes;
use file_history::Loss;
use ids::SetId;
use wire::op::SetAttr;
use wire::{Attr, Body, Errno, Op};

const OTHER: SetId = SetId(2);
const THIRD: SetId = SetId(3);

/// A file with ten synced bytes, which is on the other set some time.
fn moved() -> Script {
    let mut s = Script::default();
    s.create(root(), "a", 1);
    s.excuses.moved.insert(fid(1), [OTHER].into());
    s.write(1, 0, &[(10, 1)], 10);
    s.fsync(fid(1), done());
    s
}

fn lose(s: &mut Script, set: SetId) {
    // Between the calls before and the next one.
    let from = s.records.last().unwrap().begun + 6;
    s.losses.push(Loss { set, from, until: from + 2 });
}

#[test]
fn what_was_synced_is_there_wherever_the_file_lies() {
    for set in [SET, OTHER] {
        for (read, fine) in [(vec![(10, 1)], true), (vec![(10, 0)], false), (vec![], false)] {
            let mut s = moved();
            lose(&mut s, set);
            s.read(1, &read);
            if fine { s.accepted() } else { s.refused() }
        }
    }
}

#[test]
fn what_was_not_synced_may_be_lost_with_a_set_that_had_the_file() {
    for (set, fine) in [(SET, true), (OTHER, true), (THIRD, false)] {
        let mut s = moved();
        s.write(1, 0, &[(10, 2)], 10);
        lose(&mut s, set);
        s.read(1, &[(10, 1)]);
        if fine { s.accepted() } else { s.refused() }
    }
}

#[test]
fn a_sync_of_the_set_that_made_it_is_none_of_the_file() {
    let mut s = moved();
    s.write(1, 0, &[(10, 2)], 10);
    s.call(wire::Op::SyncFs, done());
    lose(&mut s, OTHER);
    s.read(1, &[(10, 1)]);
    s.accepted();
}

#[test]
fn a_sync_may_tell_of_a_loss_and_says_by_success_of_none() {
    for told in [Err(Errno::EIO), done()] {
        let mut s = moved();
        s.write(1, 0, &[(10, 2)], 10);
        lose(&mut s, OTHER);
        s.fsync(fid(1), told);
        s.read(1, &[(10, 1)]);
        s.accepted();
    }
}

/// A directory whose set has changed hears later than its entry's set that it was removed.
#[test]
fn a_directory_that_was_removed_may_be_there_still_on_another_set() {
    for (has_moved, told, fine) in [(true, false, true), (true, true, false), (false, false, false)] {
        let mut s = Script::default();
        s.mkdir(root(), "d", 1);
        if has_moved {
            s.excuses.moved.insert(fid(1), [OTHER].into());
        }
        s.call(Op::Rmdir { parent: root(), name: name("d") }, done());
        if told {
            s.call(Op::GetAttr { fid: fid(1) }, Err(Errno::ESTALE));
        }
        s.list(fid(1), &[]);
        if fine { s.accepted() } else { s.refused() }
    }
}

/// A change of a directory's attributes was done, and the client heard of it when another set answered for the directory.
#[test]
fn attributes_are_changed_also_where_they_are_not_told() {
    let told = |fid| Ok((Body::Elsewhere { fid, home: OTHER, kind: 0o040_000 }, Bytes::new()));
    for (fid, told, mode, fine) in [
        (fid(1), told(fid(1)), 0o40_700, true),
        (fid(1), told(fid(1)), 0o40_755, false),
        (fid(1), told(fid(2)), 0o40_700, false),
    ] {
        let mut s = Script::default();
        s.mkdir(root(), "d", 1);
        let (uid, gid, size, atime, mtime, kill_suid) = (None, None, None, None, None, false);
        let set = SetAttr { mode: Some(0o700), uid, gid, size, atime, mtime, kill_suid };
        s.call(Op::SetAttr { fid, set }, told);
        s.call(Op::GetAttr { fid }, attr(Attr { mode, ..dir(fid) }));
        if fine { s.accepted() } else { s.refused() }
    }
}
