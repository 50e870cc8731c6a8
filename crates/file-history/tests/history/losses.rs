//! Power cuts of all bricks of a set.

use crate::script::{SET, Script, attr, data, dir, done, fid, file, make, name, root};
use bytes::Bytes;
use file_history::{Excuse, Unrecorded};
use ids::{Fid, SetId};
use wire::op::{Node, rename_flags};
use wire::{Attr, Body, Errno, Op};

fn synced() -> Script {
    let mut s = Script::default();
    s.create(root(), "a", 1);
    s.write(1, 0, &[(10, 1)], 10);
    s.fsync(fid(1), done());
    s
}

/// What may be read after a write that was not synced, and a power cut.
#[test]
fn what_was_not_synced_may_be_lost() {
    for (read, fine) in [
        (vec![(10, 2)], true),
        (vec![(10, 1)], true),
        (vec![(4, 1), (2, 2), (4, 1)], true),
        (vec![(10, 0)], false),
        (vec![(10, 3)], false),
        (vec![(5, 1)], false),
    ] {
        let mut s = synced();
        s.write(1, 0, &[(10, 2)], 10);
        s.lose();
        s.of(
            1,
            Op::Read { fid: fid(1), offset: 0, len: 100 },
            Bytes::new(),
            Ok((wire::Body::Data, crate::script::data(&read))),
        );
        if fine {
            s.accepted();
        } else {
            s.refused();
        }
    }
}

#[test]
fn what_was_lost_stays_lost() {
    let mut s = synced();
    s.write(1, 0, &[(10, 2)], 10);
    s.lose();
    s.read(1, &[(10, 1)]);
    s.read(1, &[(10, 2)]);
    s.refused();
}

#[test]
fn without_a_loss_nothing_is_excused() {
    let mut s = synced();
    s.write(1, 0, &[(10, 2)], 10);
    s.lose();
    s.losses[0].set = SetId(2);
    s.read(1, &[(10, 1)]);
    s.refused();
}

#[test]
fn what_was_synced_is_there() {
    let mut s = synced();
    s.lose();
    s.lookup(root(), "a", Err(Errno::ENOENT));
    s.refused();
    let mut s = synced();
    s.lose();
    s.call(Op::GetAttr { fid: fid(1) }, Err(Errno::ESTALE));
    s.refused();
    let mut s = synced();
    s.lose();
    s.read(1, &[]);
    s.refused();
    let mut s = Script::default();
    s.mkdir(root(), "d", 1);
    s.create(fid(1), "a", 2);
    s.fsync(fid(2), done());
    s.lose();
    s.lookup(root(), "d", Err(Errno::ENOENT));
    s.refused();
}

#[test]
fn what_was_made_and_not_synced_may_be_gone() {
    let mut s = Script::default();
    s.create(root(), "a", 1);
    s.lose();
    s.lookup(root(), "a", Err(Errno::ENOENT));
    s.call(Op::GetAttr { fid: fid(1) }, Err(Errno::ESTALE));
    s.accepted();
    s.lookup(root(), "a", Ok(file(fid(1), 1, 0)));
    s.refused();
    let mut s = Script::default();
    s.create(root(), "a", 1);
    s.call(Op::SyncFs, done());
    s.lose();
    s.lookup(root(), "a", Err(Errno::ENOENT));
    s.refused();
}

/// A listing that began before others saw the name that it does not show came after the unlink, and not after the loss.
#[test]
fn a_long_listing_is_not_placed_where_it_denies_what_others_saw() {
    let mut s = Script::default();
    s.create(root(), "a", 1);
    s.create(root(), "b", 2);
    s.lose();
    let began = s.losses[0].until;
    s.list(root(), &[("b", 2)]);
    s.at(began, 1000);
    s.call(make(root(), "b", Node::File), Err(Errno::EEXIST));
    s.at(began, 1001);
    let then = |s: &mut Script, at: u64| s.at(at, at + 5);
    s.lookup(root(), "b", Ok(file(fid(2), 1, 0)));
    then(&mut s, 100);
    s.call(Op::GetAttr { fid: fid(1) }, attr(file(fid(1), 1, 0)));
    then(&mut s, 110);
    s.unlink("a", done());
    then(&mut s, 120);
    s.accepted();
}

#[test]
fn a_removal_may_be_lost() {
    let mut s = synced();
    s.unlink("a", done());
    s.lose();
    s.lookup(root(), "a", Ok(file(fid(1), 1, 10)));
    s.accepted();
    let mut s = synced();
    s.unlink("a", done());
    s.fsync(root(), done());
    s.lose();
    s.lookup(root(), "a", Ok(file(fid(1), 1, 10)));
    s.refused();
}

/// Two files change their names, of which one was never synced: it may be gone wherever it was.
#[test]
fn what_was_never_synced_may_be_gone_from_its_new_place() {
    for (sync, fine) in [(false, true), (true, false)] {
        let mut s = synced();
        s.create(root(), "b", 2);
        if sync {
            s.fsync(fid(2), done());
        }
        let exchange = wire::op::rename_flags::EXCHANGE;
        let (name, to_name) = (crate::script::name("a"), crate::script::name("b"));
        s.call(Op::Rename { parent: root(), name, to_parent: root(), to_name, flags: exchange }, done());
        s.lose();
        s.lookup(root(), "b", Ok(file(fid(1), 1, 10)));
        s.lookup(root(), "a", Err(Errno::ENOENT));
        if fine {
            s.accepted();
        } else {
            s.refused();
        }
    }
}

#[test]
fn a_renamed_file_has_at_least_one_of_its_names() {
    let renamed = |a: bool, b: bool| {
        let mut s = synced();
        s.rename("a", "b", done());
        s.lose();
        let told = |there| {
            if there { Ok(file(fid(1), u32::from(a) + u32::from(b), 10)) } else { Err(Errno::ENOENT) }
        };
        s.lookup(root(), "a", told(a));
        s.lookup(root(), "b", told(b));
        s
    };
    renamed(true, false).accepted();
    renamed(false, true).accepted();
    renamed(true, true).accepted();
    renamed(false, false).refused();
}

#[test]
fn a_sync_after_a_loss_fails_once() {
    let changed = || {
        let mut s = synced();
        s.write(1, 0, &[(10, 2)], 10);
        s.lose();
        s
    };
    let mut s = changed();
    s.fsync(fid(1), Err(Errno::EIO));
    s.fsync(fid(1), done());
    s.accepted();
    let mut s = changed();
    s.fsync(fid(1), Err(Errno::EIO));
    s.fsync(fid(1), Err(Errno::EIO));
    s.refused();
    let mut s = changed();
    s.of(1, Op::Fsync { fid: fid(1) }, Bytes::new(), Err(Errno::EIO));
    s.refused();
    let mut s = synced();
    s.lose();
    s.fsync(fid(1), Err(Errno::EIO));
    s.refused();
    let mut s = synced();
    s.fsync(fid(1), Err(Errno::EIO));
    s.refused();
}

/// A client counts changes from the view that it knew when it sent them.
#[test]
fn a_change_before_the_client_knew_of_a_loss_counts_as_before_it() {
    let mut s = synced();
    s.lose();
    s.write(1, 0, &[(10, 2)], 10);
    s.fsync(fid(1), Err(Errno::EIO));
    s.fsync(fid(1), done());
    s.accepted();
    // What only looks is answered whichever view the client knows.
    for (knows, fine) in [(false, true), (true, false)] {
        let mut s = synced();
        s.lose();
        s.read(1, &[(10, 1)]);
        if knows {
            s.call(Op::Open { fid: fid(1) }, attr(file(fid(1), 1, 10)));
        }
        s.write(1, 0, &[(10, 2)], 10);
        s.fsync(fid(1), Err(Errno::EIO));
        if fine { s.accepted() } else { s.refused() }
    }
}

/// A disk that fails says nothing of losses before or after.
#[test]
fn a_sync_that_a_fault_explains_tells_of_no_loss() {
    let failed = || {
        let mut s = synced();
        s.write(1, 0, &[(10, 2)], 10);
        s.fsync(fid(1), Err(Errno::EIO));
        let until = s.records.last().unwrap().begun + 1;
        s.excuses.errors.push(Excuse { errno: Errno::EIO, set: Some(SET), from: 0, until });
        s.lose();
        s
    };
    let mut s = failed();
    s.fsync(fid(1), Err(Errno::EIO));
    s.fsync(fid(1), done());
    s.accepted();
    let mut s = failed();
    s.read(1, &[(10, 1)]);
    s.fsync(fid(1), done());
    s.accepted();
    let mut s = failed();
    s.fsync(fid(1), Err(Errno::EIO));
    s.fsync(fid(1), Err(Errno::EIO));
    s.refused();
}

#[test]
fn a_sync_that_hides_a_loss() {
    let mut s = synced();
    s.write(1, 0, &[(10, 2)], 10);
    s.lose();
    s.fsync(fid(1), done());
    s.accepted();
    let before = s.clone();
    s.read(1, &[(10, 1)]);
    s.refused();
    let mut s = before;
    s.read(1, &[(10, 2)]);
    s.accepted();
    let mut s = Script::default();
    s.create(root(), "a", 1);
    s.lose();
    s.lookup(root(), "a", Err(Errno::ENOENT));
    s.fsync(root(), done());
    s.refused();
}

/// A name on another set is on disk when it is answered: whoever gave it may not be told what others have lost.
#[test]
fn a_name_elsewhere_vouches_for_nothing() {
    let there = |n| Fid { set: SetId(2), ..fid(n) };
    for (elsewhere, fine) in [(true, true), (false, false)] {
        let mut s = synced();
        s.call(make(root(), "other", Node::Dir), attr(Attr { home: SetId(2), ..dir(there(7)) }));
        let write = Op::Write { fid: fid(1), offset: 0, append: false, kill_suid: false };
        s.of(
            1,
            write,
            data(&[(10, 2)]),
            Ok((Body::Written { len: 10, attr: file(fid(1), 1, 10) }, Bytes::new())),
        );
        if elsewhere {
            s.call(Op::LinkIn { fid: fid(1), home: SET, parent: there(7), name: name("b") }, done());
        } else {
            s.call(Op::Link { fid: fid(1), parent: root(), name: name("b") }, attr(file(fid(1), 2, 10)));
        }
        s.lose();
        s.fsync(fid(1), done());
        s.read(1, &[(10, 1)]);
        if fine { s.accepted() } else { s.refused() }
    }
}

/// A sync of everything that tells of a loss brings to disk what came after that loss.
#[test]
fn a_sync_that_tells_of_a_loss_saves_from_the_next_one() {
    let mut s = synced();
    s.write(1, 0, &[(10, 2)], 10);
    s.records.last_mut().unwrap().client = 1;
    s.create(root(), "b", 2);
    s.lose();
    s.read(1, &[(10, 1)]);
    s.write(1, 0, &[(10, 3)], 10);
    s.of(0, Op::SyncFs, Bytes::new(), Err(Errno::EIO));
    s.lose();
    s.fsync(fid(1), done());
    s.read(1, &[(10, 3)]);
    s.accepted();
}

/// What an append across a loss did may be taken by the next loss.
#[test]
fn what_was_perhaps_written_may_be_lost() {
    for (read, fine) in [
        (vec![(10, 1), (4, 2)], true),
        (vec![(10, 1), (4, 0)], true),
        (vec![(10, 1)], true),
        (vec![(10, 1), (4, 3)], false),
        (vec![(10, 0), (4, 2)], false),
    ] {
        let mut s = synced();
        s.append(1, &[(2, 4)], 12);
        s.lose();
        let loss = s.losses[0];
        s.append(1, &[(4, 2)], 14);
        s.records.last_mut().unwrap().begun = loss.from;
        s.read(1, &[(10, 1), (4, 2)]);
        s.lose();
        s.read(1, &read);
        if fine {
            s.accepted();
        } else {
            s.refused();
        }
    }
}

#[test]
fn the_order_of_a_loss_and_a_write_at_once_is_open() {
    let mut s = synced();
    s.lose();
    let loss = s.losses[0];
    s.write(1, 0, &[(10, 2)], 10);
    s.at(loss.from - 1, loss.until + 20);
    s.read(1, &[(10, 1)]);
    s.at(loss.until + 30, loss.until + 40);
    assert_eq!(loss.set, SET);
    s.accepted();
}

/// A rename to a directory of another set is seen before that set has it on disk, and is undone as a whole; also one that was
/// answered, for its sync may have failed.
#[test]
fn a_rename_to_another_set_is_lost_with_its_new_name() {
    let there = |n| Fid { set: SetId(2), ..fid(n) };
    let moved = |told: bool, synced: bool| {
        let mut s = Script::default();
        s.call(make(root(), "d", Node::Dir), attr(dir(there(1))));
        s.call(make(there(1), "a", Node::File), attr(file(there(2), 1, 0)));
        s.call(Op::SyncFs, done());
        s.fsync(there(2), done());
        let (name, to_name) = (name("a"), name("b"));
        let to_parent = root();
        let op = Op::MoveIn { from: SetId(2), parent: there(1), name, to_parent, to_name, flags: 0 };
        s.call(op, done());
        if !told {
            s.unanswered();
        }
        s.lookup(root(), "b", Ok(file(there(2), 1, 0)));
        if synced {
            s.fsync(root(), done());
        }
        s.lose();
        s
    };
    let lookup = |s: &mut Script, there_too: bool| {
        let told = if there_too { attr(file(there(2), 1, 0)) } else { Err(Errno::ENOENT) };
        s.call(Op::Lookup { parent: there(1), name: name("a") }, told);
    };
    let new_name = |s: &mut Script, stays: bool| {
        s.lookup(root(), "b", if stays { Ok(file(there(2), 1, 0)) } else { Err(Errno::ENOENT) });
    };
    for told in [false, true] {
        for (stays, back) in [(false, true), (true, false), (true, true), (false, false)] {
            let [mut new_first, mut old_first] = [moved(told, false), moved(told, false)];
            new_name(&mut new_first, stays);
            lookup(&mut new_first, back);
            lookup(&mut old_first, back);
            new_name(&mut old_first, stays);
            for s in [new_first, old_first] {
                if stays != back { s.accepted() } else { s.refused() }
            }
        }
        let mut synced = moved(told, true);
        lookup(&mut synced, true);
        synced.refused();
    }
    let mut nowhere = moved(false, false);
    nowhere.lookup(root(), "b", Err(Errno::ENOENT));
    lookup(&mut nowhere, false);
    nowhere.call(Op::GetAttr { fid: there(2) }, Err(Errno::ESTALE));
    nowhere.refused();
}

/// The set of its old name loses all that is known of a file that was not synced, too: it has neither name.
#[test]
fn a_rename_to_another_set_may_be_lost_with_the_file() {
    let there = |n| Fid { set: SetId(2), ..fid(n) };
    for order in [[SetId(1), SetId(2)], [SetId(2), SetId(1)]] {
        let mut s = Script::default();
        s.call(make(root(), "d", Node::Dir), attr(dir(there(1))));
        s.call(Op::SyncFs, done());
        s.fsync(there(1), done());
        s.call(make(there(1), "a", Node::File), attr(file(there(2), 1, 0)));
        let (old, to_name) = (name("a"), name("b"));
        let (parent, to_parent) = (there(1), root());
        let op = Op::MoveIn { from: SetId(2), parent, name: old.clone(), to_parent, to_name, flags: 0 };
        s.call(op, done());
        for set in order {
            s.lose();
            s.losses.last_mut().unwrap().set = set;
        }
        s.lookup(root(), "b", Err(Errno::ENOENT));
        s.call(Op::GetAttr { fid: there(2) }, Err(Errno::ESTALE));
        s.call(Op::Lookup { parent: there(1), name: old }, Err(Errno::ENOENT));
        s.accepted();
    }
}

/// Only the set of its new name brings the old one back.
#[test]
fn a_rename_to_another_set_that_was_synced_where_the_file_was_is_not_undone_by_a_loss_there() {
    let there = |n| Fid { set: SetId(2), ..fid(n) };
    for (lost, other, fine) in [(SetId(2), SET, false), (SET, SetId(2), true)] {
        let mut s = Script::default();
        s.call(make(root(), "d", Node::Dir), attr(dir(there(1))));
        s.call(make(there(1), "a", Node::File), attr(file(there(2), 1, 0)));
        s.fsync(there(2), done());
        let (old, to_name) = (name("a"), name("b"));
        let (parent, to_parent) = (there(1), root());
        let op = Op::MoveIn { from: SetId(2), parent, name: old.clone(), to_parent, to_name, flags: 0 };
        s.call(op, done());
        s.fsync(there(1), done());
        s.lose();
        s.losses[0].set = lost;
        s.call(Op::Lookup { parent: there(1), name: old }, attr(file(there(2), 1, 0)));
        s.lose();
        s.losses[1].set = other;
        if fine { s.accepted() } else { s.refused() }
    }
}

#[test]
fn a_removal_that_was_not_synced_may_be_lost() {
    let mut s = synced();
    s.unlink("a", done());
    s.call(Op::GetAttr { fid: fid(1) }, Err(Errno::ESTALE));
    let mut synced_again = s.clone();
    let mut kept = s.clone();
    s.lose();
    s.lookup(root(), "a", Ok(file(fid(1), 1, 10)));
    s.accepted();
    kept.lookup(root(), "a", Ok(file(fid(1), 1, 10)));
    kept.refused();
    synced_again.call(Op::SyncFs, done());
    synced_again.lose();
    synced_again.lookup(root(), "a", Ok(file(fid(1), 1, 10)));
    synced_again.refused();
}

/// The set of the directory keeps its part of a removal: the entry that comes back leads to nothing, and is removed again.
#[test]
fn a_lost_removal_may_bring_back_an_entry_alone() {
    let removed = |d: Fid, synced: bool| {
        let mut s = Script::default();
        s.call(make(root(), "d", Node::Dir), attr(dir(d)));
        s.call(Op::SyncFs, done());
        s.call(Op::Rmdir { parent: root(), name: name("d") }, done());
        if synced {
            s.call(Op::SyncFs, done());
        }
        s.lose();
        s.lookup(root(), "d", Ok(dir(d)));
        s
    };
    let there = Fid { set: SetId(2), ..fid(1) };
    let mut s = removed(there, false);
    s.call(Op::GetAttr { fid: there }, Err(Errno::ESTALE));
    s.lookup(root(), "d", Ok(dir(there)));
    s.call(make(there, "a", Node::File), Err(Errno::ESTALE));
    s.call(Op::Rmdir { parent: root(), name: name("d") }, done());
    s.lookup(root(), "d", Err(Errno::ENOENT));
    s.accepted();
    let mut whole = removed(there, false);
    whole.create(there, "a", 2);
    whole.accepted();
    removed(there, true).refused();
    let mut own = removed(fid(1), false);
    own.accepted();
    own.call(Op::GetAttr { fid: fid(1) }, Err(Errno::ESTALE));
    own.refused();
}

/// Its own set loses its part of a removal, the set of its name does not: it is there without a name, and takes entries.
#[test]
fn a_lost_removal_may_bring_back_a_directory_without_a_name() {
    let there = Fid { set: SetId(2), ..fid(1) };
    let removed = |told: bool, lost: bool| {
        let mut s = Script::default();
        s.call(make(root(), "d", Node::Dir), attr(dir(there)));
        s.call(Op::SyncFs, done());
        s.fsync(there, done());
        s.call(Op::Rmdir { parent: root(), name: name("d") }, done());
        if told {
            s.call(Op::GetAttr { fid: there }, Err(Errno::ESTALE));
        }
        if lost {
            s.lose();
            s.losses[0].set = there.set;
        }
        s.lookup(root(), "d", Err(Errno::ENOENT));
        s.fsync(there, done());
        let made = Fid { lsn: ids::Lsn(2), ..there };
        s.call(make(there, "a", Node::File), attr(file(made, 1, 0)));
        s.lookup(there, "a", Ok(file(made, 1, 0)));
        s
    };
    for told in [false, true] {
        let mut s = removed(told, true);
        s.accepted();
        s.lookup(root(), "d", Ok(dir(there)));
        s.refused();
        removed(told, false).refused();
    }
}

/// A rename over an open file puts it among the files without a name and takes its name, in two steps: a loss may take the
/// first one alone.
#[test]
fn an_open_file_that_was_replaced_may_be_gone_after_a_loss() {
    let replaced = |sync: Option<Op>, after: Result<(), Errno>| {
        let mut s = synced();
        s.call(Op::Open { fid: fid(1) }, attr(file(fid(1), 1, 10)));
        s.create(root(), "b", 2);
        s.fsync(fid(2), done());
        s.rename("b", "a", done());
        if let Some(op) = sync {
            s.call(op, done());
        }
        s.lose();
        s.lookup(root(), "a", Ok(file(fid(2), 1, 0)));
        s.call(Op::GetAttr { fid: fid(1) }, after.and_then(|()| attr(file(fid(1), 0, 10))));
        s
    };
    replaced(None, Err(Errno::ESTALE)).accepted();
    replaced(None, Ok(())).accepted();
    for sync in [Op::SyncFs, Op::Fsync { fid: root() }, Op::Fsync { fid: fid(1) }] {
        replaced(Some(sync.clone()), Err(Errno::ESTALE)).refused();
        replaced(Some(sync), Ok(())).accepted();
    }
    let gone = || (Op::GetAttr { fid: fid(1) }, Err(Errno::ESTALE));
    let mut met = replaced(None, Ok(()));
    met.call(gone().0, gone().1);
    met.refused();
    let mut synced_later = replaced(None, Err(Errno::ESTALE));
    synced_later.records.pop();
    synced_later.call(Op::SyncFs, Err(Errno::EIO));
    synced_later.call(Op::SyncFs, done());
    synced_later.call(gone().0, gone().1);
    synced_later.accepted();
    let mut without = replaced(None, Err(Errno::ESTALE));
    without.losses.clear();
    without.refused();
}

/// Its own set lost nothing, and does not know that the name is gone: a sync there does not bring it back.
#[test]
fn a_directory_whose_name_another_set_lost_stays_without_one() {
    for (of, fine) in [(SetId(2), true), (SET, false)] {
        let d = Fid { set: of, ..fid(1) };
        let mut s = Script::default();
        s.call(make(root(), "d", Node::Dir), attr(dir(d)));
        s.lose();
        s.lookup(root(), "d", Err(Errno::ENOENT));
        s.accepted();
        s.fsync(d, done());
        s.call(Op::GetAttr { fid: d }, attr(dir(d)));
        s.create(d, "a", 2);
        s.lookup(d, "a", Ok(file(fid(2), 1, 0)));
        if fine {
            s.accepted();
        } else {
            s.refused();
        }
        s.lookup(root(), "d", Ok(dir(d)));
        s.refused();
    }
}

#[test]
fn a_call_across_a_loss_may_meet_what_it_did_itself() {
    for (lost, fine) in [(true, true), (false, false)] {
        let mut s = Script::default();
        s.call(make(root(), "a", Node::File), Err(Errno::EEXIST));
        s.at(10, 100);
        if lost {
            s.losses.push(file_history::Loss { set: SET, from: 40, until: 50 });
        }
        s.lookup(root(), "a", Ok(file(fid(1), 1, 0)));
        if fine {
            s.accepted();
        } else {
            s.refused();
        }
        // Not if the call came after it.
        s.records[0].begun = 60;
        s.refused();
    }
}

/// Each loss may have taken what was known of the call, and left what it did.
#[test]
fn a_call_across_several_losses_may_be_done_as_often() {
    for (losses, fine) in [(2, true), (1, false)] {
        let mut s = synced();
        s.append(1, &[(10, 1)], 40);
        s.at(100, 200);
        for n in 0..losses {
            let from = 110 + 20 * n;
            s.losses.push(file_history::Loss { set: SET, from, until: from + 5 });
        }
        s.read(1, &[(40, 1)]);
        if fine { s.accepted() } else { s.refused() }
    }
}

/// Also one that nobody was answered yet.
#[test]
fn an_append_that_waits_may_be_done_once_more() {
    for (lost, fine) in [(true, true), (false, false)] {
        let mut s = synced();
        s.append(1, &[(10, 1)], 20);
        let waits = s.records.len() - 1;
        s.records[waits].answer = None;
        s.at(100, 110);
        s.read(1, &[(30, 1)]);
        s.at(200, 210);
        if lost {
            s.losses.push(file_history::Loss { set: SET, from: 110, until: 120 });
        }
        if fine { s.accepted() } else { s.refused() }
    }
}

/// So may a power cut that took nothing of which anybody was told: an exchange is undone when it is sent again.
#[test]
fn a_call_without_a_record_may_be_done_once_more() {
    for (cut, fine) in [(Some((110, 120)), true), (Some((10, 60)), false), (None, false)] {
        let mut s = Script::default();
        s.call(make(root(), "a", Node::File), attr(file(fid(1), 1, 0)));
        s.call(make(root(), "b", Node::File), attr(file(fid(2), 1, 0)));
        let (parent, to_parent, flags) = (root(), root(), rename_flags::EXCHANGE);
        s.call(Op::Rename { parent, name: name("a"), to_parent, to_name: name("b"), flags }, done());
        s.at(100, 200);
        s.excuses.unrecorded.extend(cut.map(|(from, until)| Unrecorded { set: SET, from, until }));
        s.lookup(root(), "a", Ok(file(fid(1), 1, 0)));
        s.lookup(root(), "b", Ok(file(fid(2), 1, 0)));
        if fine { s.accepted() } else { s.refused() }
    }
}

/// Where a directory lies is not certain after a loss: a rename of what was above it beneath it shows it, and whoever is told
/// that it can't be knows.
#[test]
fn a_rename_beneath_itself_shows_where_a_directory_is() {
    let after = |answer, seen: bool| {
        let mut s = synced();
        let (above, below) = (fid(2), fid(3));
        s.call(make(root(), "d", Node::Dir), attr(dir(above)));
        s.call(make(above, "b", Node::Dir), attr(dir(below)));
        s.fsync(above, done());
        s.fsync(below, done());
        s.call(Op::Rmdir { parent: above, name: name("b") }, done());
        s.lose();
        let (parent, to_parent) = (root(), below);
        let rename = Op::Rename { parent, name: name("d"), to_parent, to_name: name("x"), flags: 0 };
        s.call(rename, Err(answer));
        s.lookup(above, "b", if seen { Ok(dir(below)) } else { Err(Errno::ENOENT) });
        s
    };
    after(Errno::EINVAL, true).accepted();
    after(Errno::EINVAL, false).refused();
    after(Errno::ESTALE, false).accepted();
    let mut kept = after(Errno::EINVAL, true);
    kept.losses.clear();
    kept.refused();
}

/// An entry leads to a directory that its own set has lost: that a name in that cannot change places with the entry is seen all the same.
#[test]
fn an_exchange_with_what_is_above_is_refused_by_the_entry_alone() {
    let theirs = Fid { set: SetId(2), ..fid(2) };
    for (to, lost, fine) in [("d", true, true), ("a", true, false), ("d", false, false)] {
        let mut s = synced();
        s.call(make(root(), "d", Node::Dir), attr(dir(theirs)));
        if lost {
            s.lose();
            s.losses[0].set = theirs.set;
        }
        s.call(Op::GetAttr { fid: theirs }, Err(Errno::ESTALE));
        let (to_parent, to_name, flags) = (root(), name(to), rename_flags::EXCHANGE);
        let (from, parent, name) = (theirs.set, theirs, name("x"));
        s.call(Op::MoveIn { from, parent, name, to_parent, to_name, flags }, Err(Errno::EINVAL));
        if fine { s.accepted() } else { s.refused() }
    }
}

/// So does a rename of a file onto a directory that may be above it again.
#[test]
fn a_rename_onto_what_is_above_shows_where_a_directory_is() {
    let after = |answer, below: bool| {
        let mut s = synced();
        let (upper, lower) = (fid(2), fid(3));
        s.call(make(root(), "d", Node::Dir), attr(dir(upper)));
        s.call(make(upper, "b", Node::Dir), attr(dir(lower)));
        s.create(lower, "f", 4);
        for synced in [upper, lower, fid(4)] {
            s.fsync(synced, done());
        }
        let (parent, to_parent) = (upper, root());
        let out = Op::Rename { parent, name: name("b"), to_parent, to_name: name("x"), flags: 0 };
        s.call(out, done());
        s.lose();
        let (parent, to_parent) = (lower, root());
        let onto = Op::Rename { parent, name: name("f"), to_parent, to_name: name("d"), flags: 0 };
        s.call(onto, Err(answer));
        s.lookup(upper, "b", if below { Ok(dir(lower)) } else { Err(Errno::ENOENT) });
        s
    };
    after(Errno::ENOTEMPTY, true).accepted();
    after(Errno::ENOTEMPTY, false).refused();
    after(Errno::EISDIR, false).accepted();
    let mut kept = after(Errno::ENOTEMPTY, true);
    kept.losses.clear();
    kept.refused();
}

/// Somebody who dies has sent a call again after a loss, which took what was known of it and left what it did.
#[test]
fn a_call_without_answer_across_a_loss_may_be_done_twice() {
    let exchanged = |lost: bool, died: u64| {
        let mut s = synced();
        s.create(root(), "b", 2);
        s.fsync(fid(2), done());
        let (parent, to_parent) = (root(), root());
        let op = Op::Rename { parent, name: name("a"), to_parent, to_name: name("b"), flags: 2 };
        s.of(7, op, Bytes::new(), done());
        s.unanswered();
        s.excuses.dead.push((7, died));
        s.lookup(root(), "a", Ok(file(fid(2), 1, 0)));
        if lost {
            s.lose();
        }
        s.lookup(root(), "b", Ok(file(fid(1), 1, 10)));
        s.lookup(root(), "b", Ok(file(fid(2), 1, 0)));
        s
    };
    exchanged(true, 10_000).accepted();
    exchanged(false, 10_000).refused();
    exchanged(true, 1).refused();
}

/// So has somebody who is told in the end that a disk failed.
#[test]
fn an_exchange_that_failed_across_a_loss_may_be_done_twice() {
    for (lost, fine) in [(true, true), (false, false)] {
        let mut s = synced();
        s.create(root(), "b", 2);
        s.fsync(fid(2), done());
        let (parent, to_parent, flags) = (root(), root(), rename_flags::EXCHANGE);
        let op = Op::Rename { parent, name: name("a"), to_parent, to_name: name("b"), flags };
        s.call(op, Err(Errno::EIO));
        s.at(1000, 9000);
        s.excuses.errors.push(Excuse { errno: Errno::EIO, set: None, from: 0, until: 10_000 });
        s.lookup(root(), "a", Ok(file(fid(2), 1, 0)));
        s.at(2000, 2010);
        if lost {
            s.losses.push(file_history::Loss { set: SET, from: 3000, until: 4000 });
        }
        s.lookup(root(), "b", Ok(file(fid(1), 1, 10)));
        s.at(5000, 5010);
        s.lookup(root(), "b", Ok(file(fid(2), 1, 0)));
        s.at(9500, 9510);
        if fine { s.accepted() } else { s.refused() }
    }
}

/// What an entry's own set keeps of another set's directory goes to disk with a sync there, not with one of the directory's.
#[test]
fn an_exchanged_entry_of_another_sets_directory_is_lost_unless_its_own_set_synced_it() {
    let d = Fid { set: SetId(2), ..fid(1) };
    for (synced, fine) in [(d, true), (root(), false)] {
        let mut s = Script::default();
        s.call(make(root(), "d", Node::Dir), attr(dir(d)));
        s.create(root(), "f", 2);
        s.fsync(synced, done());
        s.fsync(fid(2), done());
        let (parent, to_parent) = (root(), root());
        let op = Op::Rename { parent, name: name("d"), to_parent, to_name: name("f"), flags: 2 };
        s.call(op, done());
        s.lose();
        s.lookup(root(), "d", Ok(file(fid(2), 1, 0)));
        s.lookup(root(), "f", Err(Errno::ENOENT));
        if fine { s.accepted() } else { s.refused() }
    }
}

/// Where a directory lies whose name was lost nobody can say: no directory is moved to another one beneath it.
#[test]
fn a_directory_is_not_moved_beneath_one_whose_name_is_lost() {
    let there = |n| Fid { set: SetId(2), ..fid(n) };
    for (is_dir, lost, other_dir, fine) in [
        (true, true, true, true),
        (false, true, true, false),
        (true, false, true, false),
        (true, true, false, false),
    ] {
        let mut s = Script::default();
        s.call(make(root(), "d", Node::Dir), attr(dir(there(1))));
        s.lose();
        let top = if lost { Err(Errno::ENOENT) } else { Ok(dir(there(1))) };
        s.lookup(root(), "d", top);
        s.call(make(there(1), "a", Node::Dir), attr(dir(there(2))));
        s.call(make(there(1), "b", Node::Dir), attr(dir(there(3))));
        let made = if is_dir { dir(there(4)) } else { file(there(4), 1, 0) };
        s.call(make(there(2), "x", if is_dir { Node::Dir } else { Node::File }), attr(made));
        s.accepted();
        let (parent, to_parent) = (there(2), if other_dir { there(3) } else { there(2) });
        let op = Op::Rename { parent, name: name("x"), to_parent, to_name: name("y"), flags: 0 };
        s.call(op, Err(Errno::ESTALE));
        if fine { s.accepted() } else { s.refused() }
    }
}

/// A rename onto the directory that it comes from can't be, whether that directory is there or not.
#[test]
fn a_rename_onto_its_own_directory_is_refused_where_that_is_lost() {
    let there = Fid { set: SetId(2), ..fid(1) };
    for (to, flags, answer, fine) in [
        ("d", rename_flags::EXCHANGE, Errno::EINVAL, true),
        ("d", 0, Errno::ENOTEMPTY, true),
        ("d", rename_flags::EXCHANGE, Errno::ENOTEMPTY, false),
        ("d", 0, Errno::EINVAL, false),
        ("e", rename_flags::EXCHANGE, Errno::EINVAL, false),
        ("e", 0, Errno::ENOTEMPTY, false),
    ] {
        let mut s = Script::default();
        s.call(make(root(), "d", Node::Dir), attr(Attr { home: SetId(2), ..dir(there) }));
        s.call(make(root(), "e", Node::Dir), attr(dir(fid(2))));
        s.lose();
        s.losses[0].set = SetId(2);
        s.call(Op::GetAttr { fid: there }, Err(Errno::ESTALE));
        let (from, parent, to_parent) = (SetId(2), there, root());
        let (old, to_name) = (name("x"), name(to));
        s.call(Op::MoveIn { from, parent, name: old, to_parent, to_name, flags }, Err(answer));
        if fine { s.accepted() } else { s.refused() }
    }
}
