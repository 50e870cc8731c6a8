//! Each kind of violation is found, and what is right is not one.

use crate::script::{
    SET, Script, attr, data, dir, done, entry, fid, file, make, name, root, set_mtime, set_size, symlink,
};
use bytes::Bytes;
use file_history::{CutShort, Excuse};
use ids::{Fid, SetId, Time};
use wire::op::{Node, rename_flags};
use wire::{Attr, Body, Errno, Op};

fn with_file() -> Script {
    let mut s = Script::default();
    s.create(root(), "a", 1);
    s
}

#[test]
fn what_is_right_is_accepted() {
    let mut s = with_file();
    s.write(1, 0, &[(10, 1)], 10);
    s.write(1, 5, &[(10, 2)], 15);
    s.append(1, &[(5, 3)], 20);
    s.read(1, &[(5, 1), (10, 2), (5, 3)]);
    s.mkdir(root(), "d", 2);
    s.lookup(root(), "d", Ok(dir(fid(2))));
    s.rename("a", "b", done());
    s.lookup(root(), "a", Err(Errno::ENOENT));
    s.lookup(root(), "b", Ok(file(fid(1), 1, 20)));
    s.unlink("b", done());
    s.unlink("b", Err(Errno::ENOENT));
    s.call(Op::GetAttr { fid: fid(1) }, Err(Errno::ESTALE));
    s.unlink("d", Err(Errno::EISDIR));
    s.call(Op::Rmdir { parent: root(), name: name("d") }, done());
    s.list(root(), &[]);
    s.accepted();
}

#[test]
fn a_stale_read() {
    let mut s = with_file();
    s.write(1, 0, &[(10, 1)], 10);
    s.write(1, 0, &[(10, 2)], 10);
    let mut right = s.clone();
    s.read(1, &[(10, 1)]);
    s.refused();
    right.read(1, &[(10, 1)]);
    right.at(25, 110);
    right.accepted();
}

#[test]
fn a_torn_write() {
    let mut s = with_file();
    s.write(1, 0, &[(10, 1)], 10);
    s.write(1, 0, &[(10, 2)], 10);
    s.at(50, 90);
    s.read(1, &[(5, 2), (5, 1)]);
    s.at(60, 80);
    s.refused();
}

#[test]
fn a_lost_append() {
    let mut s = with_file();
    s.append(1, &[(10, 1)], 10);
    s.append(1, &[(10, 2)], 10);
    s.refused();
    let mut s = with_file();
    s.append(1, &[(10, 1)], 10);
    s.append(1, &[(10, 2)], 20);
    s.read(1, &[(10, 2)]);
    s.refused();
}

#[test]
fn appends_at_once_have_some_order() {
    let mut s = with_file();
    s.append(1, &[(10, 1)], 20);
    s.at(100, 200);
    s.append(1, &[(10, 2)], 10);
    s.at(100, 200);
    s.read(1, &[(10, 2), (10, 1)]);
    s.accepted();
    s.read(1, &[(10, 1), (10, 2)]);
    s.refused();
}

#[test]
fn a_write_that_says_another_size_than_it_has() {
    let mut s = with_file();
    s.write(1, 0, &[(10, 1)], 0);
    s.refused();
}

#[test]
fn a_write_of_unknown_outcome_is_done_once_or_never() {
    let mut s = with_file();
    s.append(1, &[(10, 1)], 10);
    s.unanswered();
    s.read(1, &[]);
    s.read(1, &[(10, 1)]);
    s.accepted();
    let mut twice = s.clone();
    twice.read(1, &[(20, 1)]);
    twice.refused();
    s.read(1, &[]);
    s.refused();
}

#[test]
fn a_truncation_that_comes_back() {
    let mut s = with_file();
    s.write(1, 0, &[(10, 1)], 10);
    s.call(set_size(1, 5), attr(file(fid(1), 1, 5)));
    s.call(set_size(1, 10), attr(file(fid(1), 1, 10)));
    let mut right = s.clone();
    s.read(1, &[(10, 1)]);
    s.refused();
    right.read(1, &[(5, 1), (5, 0)]);
    right.accepted();
}

#[test]
fn a_lost_rename() {
    let mut s = with_file();
    s.rename("a", "b", done());
    s.lookup(root(), "a", Ok(file(fid(1), 1, 0)));
    s.refused();
}

#[test]
fn a_file_that_is_gone_comes_back() {
    let mut s = with_file();
    s.unlink("a", done());
    s.lookup(root(), "a", Ok(file(fid(1), 1, 0)));
    s.refused();
    let mut s = with_file();
    s.unlink("a", done());
    s.call(Op::GetAttr { fid: fid(1) }, Err(Errno::ESTALE));
    s.call(Op::GetAttr { fid: fid(1) }, attr(file(fid(1), 0, 0)));
    s.refused();
}

#[test]
fn a_file_that_is_there_is_called_gone() {
    let mut s = with_file();
    s.call(Op::GetAttr { fid: fid(1) }, Err(Errno::ESTALE));
    s.refused();
}

#[test]
fn an_open_file_outlives_its_name() {
    let mut s = with_file();
    s.call(Op::Open { fid: fid(1) }, attr(file(fid(1), 1, 0)));
    s.unlink("a", done());
    s.call(Op::GetAttr { fid: fid(1) }, attr(file(fid(1), 0, 0)));
    let mut dead = s.clone();
    let mut gone = s.clone();
    s.call(Op::Release { fid: fid(1) }, done());
    s.call(Op::GetAttr { fid: fid(1) }, Err(Errno::ESTALE));
    s.accepted();
    gone.call(Op::GetAttr { fid: fid(1) }, Err(Errno::ESTALE));
    gone.refused();
    dead.of(1, Op::GetAttr { fid: fid(1) }, Bytes::new(), Err(Errno::ESTALE));
    dead.refused();
    dead.excuses.dead.push((0, 45));
    dead.accepted();
}

#[test]
fn one_name_is_removed_twice() {
    let mut s = with_file();
    s.unlink("a", done());
    s.at(100, 200);
    s.unlink("a", done());
    s.at(100, 200);
    s.refused();
    let mut s = with_file();
    s.unlink("a", done());
    s.at(100, 200);
    s.unlink("a", Err(Errno::ENOENT));
    s.at(100, 200);
    s.accepted();
}

#[test]
fn one_name_is_made_twice() {
    let mut s = with_file();
    s.create(root(), "a", 2);
    s.refused();
    let mut s = with_file();
    s.create(root(), "b", 1);
    s.refused();
}

#[test]
fn errors_that_are_not_so() {
    let mut tried = 0;
    for wrong in
        [Errno::ENOENT, Errno::EEXIST, Errno::EISDIR, Errno::EINVAL, Errno::EIO, Errno::EROFS, Errno::EXDEV]
    {
        let mut s = with_file();
        s.rename("a", "b", Err(wrong));
        s.refused();
        let mut s = with_file();
        s.unlink("a", Err(wrong));
        s.refused();
        let mut s = Script::default();
        s.call(make(root(), "a", Node::Dir), Err(wrong));
        s.refused();
        tried += 1;
    }
    assert_eq!(tried, 7);
    let mut s = with_file();
    s.call(Op::Rmdir { parent: root(), name: name("a") }, Err(Errno::ENOTDIR));
    s.accepted();
    s.call(Op::Rmdir { parent: root(), name: name("a") }, Err(Errno::ENOTEMPTY));
    s.refused();
}

#[test]
fn of_two_errors_that_apply_either_is_right() {
    let link = |f| Op::Link { fid: fid(f), parent: root(), name: name("b") };
    let mut s = with_file();
    s.create(root(), "b", 2);
    let mut there = s.clone();
    there.call(link(1), Err(Errno::ESTALE));
    there.refused();
    s.unlink("a", done());
    for told in [Errno::EEXIST, Errno::ENOENT, Errno::ESTALE] {
        let mut s = s.clone();
        s.call(link(1), Err(told));
        s.accepted();
    }
    s.call(link(1), Err(Errno::EXDEV));
    s.refused();
}

/// A link that was sent again when all names of its file were gone.
#[test]
fn a_link_that_was_seen_is_not_answered_as_if_its_file_had_been_gone_before() {
    let link = || Op::Link { fid: fid(1), parent: root(), name: name("b") };
    let mut seen = with_file();
    seen.lookup(root(), "b", Ok(file(fid(1), 2, 0)));
    seen.at(100, 110);
    // Nobody saw the name, but it was taken away.
    let mut taken = with_file();
    for s in [&mut seen, &mut taken] {
        s.unlink("b", done());
        s.at(120, 130);
        s.unlink("a", done());
        s.at(140, 150);
    }
    for s in [seen, taken] {
        for (told, from, fine) in [(done(), 90, true), (done(), 135, false), (Err(Errno::ENOENT), 90, false)]
        {
            let mut s = s.clone();
            s.call(link(), told);
            s.at(from, 200);
            if fine { s.accepted() } else { s.refused() }
        }
    }
}

/// What took the name away need not be what this link made: a file of another set had it. And a file without names need not be
/// gone.
#[test]
fn a_file_that_cannot_be_linked_may_be_there_without_names() {
    let there_now = attr(file(fid(1), 0, 0));
    let mut other = with_file();
    other.unlink("a", done());
    other.call(make(root(), "other", Node::Dir), attr(wire::Attr { home: SetId(2), ..dir(there(7)) }));
    other.call(make(there(7), "x", Node::File), attr(file(there(9), 1, 0)));
    let (parent, at) = (root(), name("b"));
    other.call(Op::LinkIn { fid: there(9), home: SetId(2), parent, name: at }, attr(file(there(9), 2, 0)));
    other.unlink("b", done());
    other.call(Op::Link { fid: fid(1), parent: root(), name: name("b") }, Err(Errno::ENOENT));
    other.call(Op::GetAttr { fid: fid(1) }, there_now);
    other.accepted();
}

/// A rename from `parent` to a directory of another set.
fn move_to(to_parent: Fid, from: &str, flags: u32) -> Op {
    let (name, to_name) = (name(from), name("b"));
    Op::MoveIn { from: SET, parent: root(), name, to_parent, to_name, flags }
}

fn there(n: u64) -> Fid {
    Fid { set: SetId(2), ..fid(n) }
}

#[test]
fn a_name_that_is_not_there_is_no_reason_to_refuse_another_set() {
    for flags in [rename_flags::EXCHANGE, 0, rename_flags::NOREPLACE] {
        let mut s = with_file();
        s.call(move_to(there(7), "none", flags), Err(Errno::EXDEV));
        s.refused();
    }
    let mut s = with_file();
    s.rename("none", "b", Err(Errno::EXDEV));
    s.refused();
}

/// Files and directories go to a directory of another set, also in place of a directory of a third set, and change places with what
/// is there.
#[test]
fn no_rename_is_refused_between_sets() {
    let other = || {
        let mut s = with_file();
        s.call(make(root(), "other", Node::Dir), attr(wire::Attr { home: SetId(2), ..dir(there(7)) }));
        s.mkdir(root(), "d", 3);
        s
    };
    for (what, gives_way) in [("a", false), ("d", false), ("d", true)] {
        let mut s = other();
        if gives_way {
            let far = Fid { set: SetId(3), ..fid(9) };
            s.call(make(there(7), "b", Node::Dir), attr(wire::Attr { home: SetId(3), ..dir(far) }));
        }
        let mut exchange = s.clone();
        s.call(move_to(there(7), what, 0), Err(Errno::EXDEV));
        s.refused();
        exchange.call(move_to(there(7), what, rename_flags::EXCHANGE), Err(Errno::EXDEV));
        exchange.refused();
    }
    // Nor where the target's directory has gone.
    for what in ["a", "d"] {
        let mut s = other();
        s.call(Op::Rmdir { parent: root(), name: name("other") }, done());
        s.call(move_to(there(7), what, 0), Err(Errno::EXDEV));
        s.refused();
    }
    let mut s = other();
    s.call(move_to(there(7), "a", 0), done());
    s.lookup(there(7), "b", Ok(file(fid(1), 1, 0)));
    s.lookup(root(), "a", Err(Errno::ENOENT));
    // Nor back home, or on to a third set.
    for to in [root(), Fid { set: SetId(3), ..fid(8) }, there(7)] {
        let mut s = s.clone();
        let (from, parent, to_name) = (SetId(2), there(7), name("c"));
        let op = match to.set == from {
            true => Op::Rename { parent, name: name("b"), to_parent: to, to_name, flags: 0 },
            false => Op::MoveIn { from, parent, name: name("b"), to_parent: to, to_name, flags: 0 },
        };
        s.call(op, Err(Errno::EXDEV));
        s.refused();
    }
    // Nor does a name of it change places within the set.
    let (parent, to_name, flags) = (there(7), name("c"), rename_flags::EXCHANGE);
    s.call(Op::Rename { parent, name: name("b"), to_parent: parent, to_name, flags }, Err(Errno::EXDEV));
    s.refused();
}

/// The home of a file may fail where a name is removed that it has elsewhere; no other set has a part in it.
#[test]
fn a_fault_of_a_set_without_a_part_explains_nothing() {
    let link = || Op::LinkIn { fid: there(9), home: SetId(2), parent: root(), name: name("b") };
    for (linked, from, fine) in [(true, 2, true), (true, 3, false), (false, 2, false)] {
        let mut s = with_file();
        if linked {
            s.create(root(), "b", 4);
            s.call(link(), Err(Errno::EEXIST));
        }
        let (errno, set) = (Errno::EIO, Some(SetId(from)));
        s.excuses.errors.push(Excuse { errno, set, from: 0, until: u64::MAX });
        s.unlink("a", Err(Errno::EIO));
        if fine { s.accepted() } else { s.refused() }
    }
}

/// The home of a file may fail where a name is moved that was moved there from a third set; a set without names there not.
#[test]
fn a_fault_of_the_home_explains_that_a_name_stays_where_it_was_moved_to() {
    let dir = |set, n| Fid { set: SetId(set), ..fid(n) };
    let move_between = |(from, parent): (u32, Fid), to_parent: Fid| Op::MoveIn {
        from: SetId(from),
        parent,
        name: name("b"),
        to_parent,
        to_name: name("b"),
        flags: 0,
    };
    for (home, fine) in [(2, true), (5, false)] {
        let mut s = with_file();
        // A file of set 2 has a name in set 3, which is moved to set 4, and then is to be moved here.
        s.call(move_between((2, dir(2, 7)), dir(3, 8)), Err(Errno::EINTR));
        s.unanswered();
        s.call(move_between((3, dir(3, 8)), dir(4, 9)), Err(Errno::EINTR));
        s.unanswered();
        let (errno, set) = (Errno::EROFS, Some(SetId(home)));
        s.excuses.errors.push(Excuse { errno, set, from: 0, until: u64::MAX });
        s.call(move_between((4, dir(4, 9)), root()), Err(Errno::EROFS));
        if fine { s.accepted() } else { s.refused() }
    }
}

/// The home of a file may fail where a name is removed that an exchange with another set left there.
#[test]
fn a_fault_of_the_home_explains_that_a_name_stays_that_came_by_an_exchange() {
    let exchange = rename_flags::EXCHANGE;
    for (flags, home, fine) in [(exchange, 2, true), (exchange, 3, false), (0, 2, false)] {
        for errno in [Errno::EROFS, Errno::EIO] {
            let mut s = with_file();
            let (from, parent, to_parent) = (SET, root(), there(7));
            let op = Op::MoveIn { from, parent, name: name("a"), to_parent, to_name: name("b"), flags };
            s.call(op, Err(Errno::EINTR)).set = SetId(2);
            s.unanswered();
            let fault = if errno == Errno::EIO { Errno::ENOSPC } else { errno };
            let excuse = Excuse { errno: fault, set: Some(SetId(home)), from: 0, until: u64::MAX };
            s.excuses.errors.push(excuse);
            s.unlink("a", Err(errno));
            if fine { s.accepted() } else { s.refused() }
        }
    }
}

#[test]
fn a_link_to_a_file_of_another_set_is_made() {
    let mut s = with_file();
    s.call(make(root(), "other", Node::Dir), attr(wire::Attr { home: SetId(2), ..dir(there(7)) }));
    let link = || Op::LinkIn { fid: fid(1), home: SET, parent: there(7), name: name("b") };
    let mut refused = s.clone();
    refused.call(link(), Err(Errno::EXDEV));
    refused.refused();
    s.call(link(), done());
    s.lookup(root(), "a", Ok(file(fid(1), 2, 0)));
    let mut once = s.clone();
    s.accepted();
    once.lookup(there(7), "b", Ok(file(fid(1), 1, 0)));
    once.refused();
}

/// Wherever it lives, also where nobody saw that.
#[test]
fn a_rename_within_a_directory_is_not_refused_for_the_sets() {
    for node in [Node::Dir, Node::File] {
        let mut s = Script::default();
        let there = Fid { set: SetId(2), ..fid(7) };
        s.call(make(root(), "other", Node::Dir), attr(wire::Attr { home: SetId(2), ..dir(there) }));
        s.call(make(root(), "d", node), Err(Errno::EINTR));
        s.unanswered();
        let mut placed = s.clone();
        s.rename("d", "e", Err(Errno::EXDEV));
        s.refused();
        placed.rename("other", "e", Err(Errno::EXDEV));
        placed.refused();
    }
}

#[test]
fn a_directory_with_entries_is_removed() {
    let mut s = Script::default();
    s.mkdir(root(), "d", 1);
    s.create(fid(1), "a", 2);
    let mut right = s.clone();
    s.call(Op::Rmdir { parent: root(), name: name("d") }, done());
    s.refused();
    right.call(Op::Rmdir { parent: root(), name: name("d") }, Err(Errno::ENOTEMPTY));
    right.accepted();
}

#[test]
fn a_file_is_made_in_a_directory_that_is_gone() {
    let mut s = Script::default();
    s.mkdir(root(), "d", 1);
    s.call(Op::Rmdir { parent: root(), name: name("d") }, done());
    let mut right = s.clone();
    s.create(fid(1), "a", 2);
    s.refused();
    right.call(make(fid(1), "a", Node::File), Err(Errno::ESTALE));
    right.accepted();
}

/// As a directory that somebody still has open: it is empty, and takes no entries.
#[test]
fn a_removed_directory_of_another_set_may_answer_for_a_while() {
    let there = Fid { set: SetId(2), ..fid(1) };
    let removed = |d: Fid| {
        let mut s = Script::default();
        s.call(make(root(), "d", Node::Dir), attr(dir(d)));
        s.call(Op::Rmdir { parent: root(), name: name("d") }, done());
        s
    };
    let answers = |s: &mut Script, d: Fid| {
        s.list(d, &[]);
        s.lookup(d, "a", Err(Errno::ENOENT));
        s.call(Op::GetAttr { fid: d }, attr(dir(d)));
    };
    let mut s = removed(there);
    answers(&mut s, there);
    s.call(make(there, "a", Node::File), Err(Errno::ESTALE));
    s.accepted();
    s.list(there, &[]);
    s.refused();
    let mut s = removed(there);
    s.create(there, "a", 2);
    s.refused();
    let mut s = removed(there);
    s.lookup(root(), "d", Ok(dir(there)));
    s.refused();
    let mut s = removed(fid(1));
    answers(&mut s, fid(1));
    s.refused();
}

#[test]
fn renames_keep_their_rules() {
    let rename = |from: &str, to: &str, flags| Op::Rename {
        parent: root(),
        name: name(from),
        to_parent: root(),
        to_name: name(to),
        flags,
    };
    let two = || {
        let mut s = with_file();
        s.create(root(), "b", 2);
        s
    };
    let mut s = two();
    s.call(rename("a", "b", rename_flags::NOREPLACE), done());
    s.refused();
    let mut s = two();
    s.call(rename("a", "b", rename_flags::NOREPLACE), Err(Errno::EEXIST));
    s.call(rename("a", "b", rename_flags::EXCHANGE), done());
    s.lookup(root(), "a", Ok(file(fid(2), 1, 0)));
    s.lookup(root(), "b", Ok(file(fid(1), 1, 0)));
    s.accepted();
    s.call(rename("a", "c", rename_flags::EXCHANGE), done());
    s.refused();
    let mut s = Script::default();
    s.mkdir(root(), "d", 1);
    s.mkdir(fid(1), "e", 2);
    let op = Op::Rename { parent: root(), name: name("d"), to_parent: fid(2), to_name: name("f"), flags: 0 };
    s.call(op.clone(), Err(Errno::EINVAL));
    s.accepted();
    s.call(op, done());
    s.refused();
}

#[test]
fn numbers_of_links() {
    let mut s = with_file();
    s.call(Op::Link { fid: fid(1), parent: root(), name: name("b") }, attr(file(fid(1), 2, 0)));
    s.unlink("a", done());
    let mut right = s.clone();
    s.lookup(root(), "b", Ok(file(fid(1), 2, 0)));
    s.refused();
    right.lookup(root(), "b", Ok(file(fid(1), 1, 0)));
    right.accepted();
}

/// Without a failing disk it is done whole or not at all.
#[test]
fn a_write_of_unknown_outcome_is_done_in_part_on_a_failing_disk() {
    for fails in [true, false] {
        let mut s = with_file();
        s.write(1, 0, &[(10, 1)], 10);
        s.unanswered();
        s.read(1, &[(4, 1)]);
        if fails {
            let until = s.records.last().unwrap().begun;
            s.excuses.errors.push(file_history::Excuse { errno: Errno::EIO, set: Some(SET), from: 0, until });
            s.accepted();
        } else {
            s.refused();
        }
    }
}

#[test]
fn a_create_of_unknown_outcome_is_found_later() {
    let mut s = Script::default();
    s.create(root(), "a", 1);
    s.unanswered();
    s.lookup(root(), "a", Err(Errno::ENOENT));
    s.lookup(root(), "a", Ok(file(fid(7), 1, 0)));
    s.write(7, 0, &[(3, 3)], 3);
    s.read(7, &[(3, 3)]);
    s.accepted();
    s.create(root(), "b", 2);
    s.unanswered();
    s.call(make(root(), "b", Node::File), Err(Errno::EEXIST));
    s.accepted();
    s.lookup(root(), "c", Ok(file(fid(9), 1, 0)));
    s.refused();
}

#[test]
fn listings() {
    let mut s = with_file();
    s.create(root(), "b", 2);
    let started = s;
    let with = |entries: &[(&str, u64)]| {
        let mut s = started.clone();
        s.list(root(), entries);
        s
    };
    with(&[("b", 2), ("a", 1)]).accepted();
    with(&[("a", 1)]).refused();
    with(&[("a", 1), ("b", 1)]).refused();
    with(&[("a", 1), ("b", 2), ("a", 1)]).refused();
    with(&[("a", 1), ("b", 2), ("c", 3)]).refused();
}

#[test]
fn listings_of_several_pages() {
    let page = |s: &mut Script, cookie: u64, entries: &[(&str, u64, u64)], end: bool| {
        let entries = entries.iter().map(|(n, f, c)| entry(n, *f, *c)).collect();
        let op = Op::ReadDir { fid: root(), cookie, plus: false };
        s.call(op, Ok((Body::Page { entries, end }, Bytes::new())));
    };
    let made = || {
        let mut s = with_file();
        s.create(root(), "b", 2);
        s.create(root(), "c", 3);
        s
    };
    let mut s = made();
    page(&mut s, 0, &[("a", 1, 5)], false);
    s.unlink("c", done());
    page(&mut s, 5, &[("b", 2, 9)], true);
    s.accepted();
    let mut s = made();
    page(&mut s, 0, &[("a", 1, 5)], false);
    s.unlink("c", done());
    page(&mut s, 5, &[("c", 3, 9)], true);
    s.refused();
    let mut s = made();
    page(&mut s, 0, &[("a", 1, 5), ("b", 2, 6)], false);
    page(&mut s, 6, &[], true);
    s.refused();
    let mut s = made();
    page(&mut s, 0, &[("a", 1, 5), ("b", 2, 6)], false);
    page(&mut s, 6, &[("a", 1, 7), ("c", 3, 8)], true);
    s.refused();
}

#[test]
fn attributes_and_extended_ones() {
    let xattr = |value: &str| {
        (Op::SetXattr { fid: fid(1), name: name("user.x"), flags: 1 }, Bytes::from(value.to_owned()))
    };
    let mut s = with_file();
    let (op, value) = xattr("one");
    s.of(0, op.clone(), value.clone(), done());
    s.of(0, op.clone(), value.clone(), Err(Errno::EEXIST));
    let get = Op::GetXattr { fid: fid(1), name: name("user.x") };
    s.call(get.clone(), Ok((Body::Data, value)));
    s.call(Op::ListXattr { fid: fid(1) }, Ok((Body::Names { names: vec![name("user.x")] }, Bytes::new())));
    s.accepted();
    let set = wire::op::SetAttr { mode: Some(0o600), ..SetAttrOf::nothing() };
    let mut mode = file(fid(1), 1, 0);
    mode.mode = 0o100_600;
    s.call(Op::SetAttr { fid: fid(1), set }, attr(mode.clone()));
    s.lookup(root(), "a", Ok(mode));
    s.accepted();
    let mut wrong = s.clone();
    wrong.lookup(root(), "a", Ok(file(fid(1), 1, 0)));
    wrong.refused();
    s.call(get, Err(Errno::ENODATA));
    s.refused();
}

struct SetAttrOf;

impl SetAttrOf {
    fn nothing() -> wire::op::SetAttr {
        let Op::SetAttr { set, .. } = set_size(1, 0) else { unreachable!("it is one") };
        wire::op::SetAttr { size: None, ..set }
    }
}

#[test]
fn links_keep_their_targets() {
    let mut s = Script::default();
    let mut link = file(fid(1), 1, 3);
    link.mode = 0o120_777;
    s.call(make(root(), "l", symlink("abc")), attr(link));
    s.call(Op::ReadLink { fid: fid(1) }, Ok((Body::Data, Bytes::from("abc"))));
    s.accepted();
    s.call(Op::ReadLink { fid: fid(1) }, Ok((Body::Data, Bytes::from("abd"))));
    s.refused();
}

#[test]
fn ranges() {
    let mut s = with_file();
    s.create(root(), "b", 2);
    s.write(1, 0, &[(10, 1)], 10);
    s.call(
        Op::CopyRange { from: fid(1), from_offset: 2, to: fid(2), to_offset: 4, len: 100 },
        Ok((Body::Offset { offset: 8 }, Bytes::new())),
    );
    s.read(2, &[(4, 0), (8, 1)]);
    s.call(Op::Fallocate { fid: fid(2), mode: 3, offset: 5, len: 2 }, done());
    s.read(2, &[(4, 0), (1, 1), (2, 0), (5, 1)]);
    s.call(Op::Lseek { fid: fid(2), offset: 0, whence: 3 }, Ok((Body::Offset { offset: 0 }, Bytes::new())));
    s.call(Op::Lseek { fid: fid(2), offset: 4, whence: 4 }, Ok((Body::Offset { offset: 12 }, Bytes::new())));
    s.call(Op::Lseek { fid: fid(2), offset: 12, whence: 3 }, Err(Errno::ENXIO));
    s.accepted();
    let before = s.clone();
    s.call(Op::Lseek { fid: fid(2), offset: 4, whence: 3 }, Err(Errno::ENXIO));
    s.refused();
    let mut s = before;
    s.call(Op::Lseek { fid: fid(2), offset: 4, whence: 3 }, Ok((Body::Offset { offset: 5 }, Bytes::new())));
    s.refused();
}

#[test]
fn excused_errors_leave_it_open_whether_it_was_done() {
    let mut s = with_file();
    s.of(
        0,
        Op::Write { fid: fid(1), offset: 0, append: false, kill_suid: false },
        data(&[(10, 1)]),
        Err(Errno::ENOSPC),
    );
    s.refused();
    s.excuse(Errno::ENOSPC);
    s.accepted();
    s.read(1, &[(5, 1)]);
    s.accepted();
    s.read(1, &[(10, 1)]);
    s.refused();
}

#[test]
fn a_directory_may_lie_on_another_set_than_its_entry() {
    for (node, fine) in [(Node::Dir, true), (Node::File, false)] {
        let mut s = with_file();
        s.excuse(Errno::EROFS);
        s.excuses.errors[0].set = Some(SetId(2));
        s.call(make(root(), "d", node), Err(Errno::EROFS));
        if fine {
            s.accepted();
        } else {
            s.refused();
        }
    }
}

#[test]
fn a_directory_that_gives_way_may_lie_on_another_set() {
    for (node, fine) in [(Node::Dir, true), (Node::File, false)] {
        let mut s = with_file();
        s.excuse(Errno::EROFS);
        s.excuses.errors[0].set = Some(SetId(2));
        s.call(make(root(), "d", node), Err(Errno::EINTR));
        s.unanswered();
        s.rename("a", "d", Err(Errno::EROFS));
        if fine { s.accepted() } else { s.refused() }
    }
}

#[test]
fn a_full_disk_explains_a_sync_that_fails() {
    let mut s = with_file();
    s.call(Op::SyncFs, Err(Errno::EIO));
    s.refused();
    s.excuse(Errno::ENOSPC);
    s.accepted();
    s.call(Op::Read { fid: fid(1), offset: 0, len: 1 }, Err(Errno::EIO));
    s.refused();
}

/// What the home of a file agrees to is brought to its disk first.
#[test]
fn a_full_disk_explains_that_a_name_on_another_set_is_refused() {
    for (of, fine) in [(SetId(2), true), (SetId(3), false)] {
        let mut s = with_file();
        s.excuses.errors.push(Excuse { errno: Errno::ENOSPC, set: Some(of), from: 0, until: u64::MAX });
        let link = Op::LinkIn { fid: there(9), home: SetId(2), parent: root(), name: name("b") };
        s.call(link, Err(Errno::EIO));
        if fine { s.accepted() } else { s.refused() }
    }
    let mut s = with_file();
    s.excuse(Errno::ENOSPC);
    s.unlink("a", Err(Errno::EIO));
    s.refused();
}

#[test]
fn a_write_that_was_cut_short_may_show_its_time_before_its_data() {
    let time = |sec| Time { sec, nsec: 0 };
    let seen = |size, sec| attr(Attr { mtime: time(sec), ..file(fid(1), 1, size) });
    let mut s = with_file();
    s.call(set_mtime(1, time(7)), seen(0, 7));
    s.write(1, 0, &[(10, 1)], 10);
    s.at(100, 200);
    s.call(Op::GetAttr { fid: fid(1) }, seen(0, 8));
    s.at(150, 160);
    s.refused();
    s.excuses.cut_short = vec![CutShort { set: SetId(2), at: 120 }, CutShort { set: SET, at: 90 }];
    s.refused();
    s.excuses.cut_short.push(CutShort { set: SET, at: 120 });
    s.accepted();
    let mut unanswered = s.clone();
    unanswered.records[2].answer = None;
    unanswered.accepted();
    s.call(set_mtime(1, time(7)), seen(10, 7));
    s.accepted();
    s.call(Op::GetAttr { fid: fid(1) }, seen(10, 8));
    s.refused();
}

#[test]
fn a_write_that_was_cut_short_may_show_a_part_of_its_data() {
    let mut s = with_file();
    s.write(1, 0, &[(10, 1)], 10);
    s.write(1, 2, &[(6, 2)], 10);
    s.at(100, 200);
    s.read(1, &[(2, 1), (3, 2), (5, 1)]);
    s.at(150, 160);
    s.read(1, &[(2, 1), (6, 2), (2, 1)]);
    s.refused();
    s.excuses.cut_short = vec![CutShort { set: SetId(2), at: 120 }, CutShort { set: SET, at: 90 }];
    s.refused();
    s.excuses.cut_short.push(CutShort { set: SET, at: 120 });
    s.accepted();
    // Afterwards all of it is there.
    s.read(1, &[(2, 1), (3, 2), (5, 1)]);
    s.refused();
}

#[test]
fn a_copy_without_answer_may_have_seen_what_was_perhaps_appended() {
    let mut s = with_file();
    s.create(root(), "b", 2);
    s.append(1, &[(10, 1)], 10);
    s.append(1, &[(10, 2)], 20);
    s.records.last_mut().unwrap().answer.as_mut().unwrap().1 = Err(Errno::ENOSPC);
    s.excuse(Errno::ENOSPC);
    let copy = Op::CopyRange { from: fid(1), from_offset: 5, to: fid(2), to_offset: 0, len: 100 };
    s.call(copy, done());
    s.unanswered();
    for (seen, fine) in [
        (&[][..], true),
        (&[(5, 1)][..], true),
        (&[(5, 1), (10, 2)][..], true),
        (&[(15, 1)][..], false),
        (&[(5, 1), (10, 3)][..], false),
        (&[(5, 1), (11, 2)][..], false),
        (&[(4, 1)][..], false),
    ] {
        let mut s = s.clone();
        s.read(2, seen);
        if fine { s.accepted() } else { s.refused() }
    }
}
