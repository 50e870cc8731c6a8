//! Renames, exchanges and links between sets: what each of the two checks of a user, as tables.

use crate::permission::{ANN, LISTED, OPEN, OTHER, OWN, SET, SHUT, STICKY, THEIRS, Tree, fid, name};
use ids::Fid;
use namespace::permission::{self, Question, Refusal};
use namespace::{Entry, rights};
use wire::op::rename_flags;
use wire::rights::{Right, STICKY as STICKY_KIND};
use wire::{Errno, Op};

const NO: Result<(), Errno> = Err(Errno::EACCES);
const NEVER: Result<(), Errno> = Err(Errno::EPERM);
const YES: Result<(), Errno> = Ok(());

fn move_in(to: u64, to_name: &str, flags: u32) -> Op {
    let (to_parent, to_name) = (fid(to), name(to_name));
    Op::MoveIn { from: OTHER, parent: THEIRS, name: name("x"), to_parent, to_name, flags }
}

fn link_in(to: u64) -> Op {
    Op::LinkIn { fid: THEIRS, home: OTHER, parent: fid(to), name: name("new") }
}

/// The part of the set that gets the name.
#[test]
fn names_come_where_the_directory_allows_it() {
    for (mut op, answer) in [
        (move_in(OWN, "x", 0), YES),
        (move_in(OPEN, "x", 0), YES),
        (move_in(SHUT, "x", 0), NO),
        (move_in(SHUT, "there", 0), NO),
        (move_in(LISTED, "x", 0), NO),
        (move_in(12, "x", 0), Err(Errno::ENOTDIR)),
        // What gives way.
        (move_in(OPEN, "secret", 0), YES),
        (move_in(STICKY, "x", 0), YES),
        (move_in(STICKY, "mine", 0), YES),
        (move_in(STICKY, "theirs", 0), NEVER),
        (move_in(STICKY, "elsewhere", 0), NEVER),
        (move_in(OPEN, "elsewhere", 0), YES),
        (link_in(OWN), YES),
        (link_in(STICKY), YES),
        (link_in(SHUT), NO),
        (link_in(LISTED), NO),
        (link_in(999), Err(Errno::ESTALE)),
    ] {
        assert_eq!(crate::permission::check(&ANN, &mut op, SET, &mut Tree), answer, "{op:?}");
    }
}

/// In an exchange what was there does not give way: it goes to the other set, as that says.
#[test]
fn names_are_exchanged_where_both_may_be_taken() {
    let exchange = |to, to_name| move_in(to, to_name, rename_flags::EXCHANGE);
    for (mut op, answer) in [
        (exchange(OWN, "mine"), YES),
        (exchange(OPEN, "secret"), YES),
        (exchange(SHUT, "there"), NO),
        (exchange(STICKY, "mine"), YES),
        (exchange(STICKY, "theirs"), NEVER),
        // A directory that gets another one above it changes, which one that gives way need not.
        (exchange(OPEN, "dir"), NO),
        (move_in(OPEN, "dir", 0), YES),
        (exchange(OPEN, "my-dir"), YES),
        (exchange(OPEN, "elsewhere"), Err(Errno::EXDEV)),
        // Which is refused as such.
        (exchange(OPEN, "missing"), YES),
        (exchange(SHUT, "missing"), YES),
        (exchange(LISTED, "missing"), NO),
        (exchange(12, "x"), Err(Errno::ENOTDIR)),
        (exchange(999, "x"), Err(Errno::ESTALE)),
    ] {
        assert_eq!(crate::permission::check(&ANN, &mut op, SET, &mut Tree), answer, "{op:?}");
    }
}

fn check(right: &Right) -> Result<Option<Entry>, Errno> {
    rights::check(&ANN, right, SET, &mut Tree)
}

fn leave(dir: u64, s: &str) -> Right {
    Right::Leave { dir: fid(dir), name: name(s) }
}

/// That of the set which loses it.
#[test]
fn names_leave_where_the_directory_allows_it() {
    for (right, answer) in [
        (leave(OWN, "mine"), Ok(11)),
        (leave(OPEN, "secret"), Ok(12)),
        (leave(SHUT, "there"), NO.map(|()| 0)),
        (leave(LISTED, "missing"), Err(Errno::EACCES)),
        (leave(OWN, "missing"), Err(Errno::ENOENT)),
        (leave(STICKY, "mine"), Ok(16)),
        (leave(STICKY, "theirs"), Err(Errno::EPERM)),
        // A directory that gets another one above it changes.
        (leave(OPEN, "dir"), Err(Errno::EACCES)),
        (leave(OPEN, "my-dir"), Ok(19)),
        (leave(12, "x"), Err(Errno::ENOTDIR)),
        (leave(999, "x"), Err(Errno::ESTALE)),
    ] {
        let told = check(&right).map(|entry| entry.map(|e| (e.fid, e.home)));
        assert_eq!(told, answer.map(|n| Some((fid(n), SET))), "{right:?}");
    }
    // It is asked for there.
    let elsewhere = Entry { fid: THEIRS, home: OTHER, kind: 0o040_000 };
    assert_eq!(check(&leave(OPEN, "elsewhere")), Ok(Some(elsewhere)));
    let by_its_owner = Entry { kind: elsewhere.kind | STICKY_KIND, ..elsewhere };
    assert_eq!(check(&leave(STICKY, "elsewhere")), Ok(Some(by_its_owner)));
    for (n, answer) in
        [(19, YES), (OPEN, YES), (18, NO), (12, Err(Errno::ENOTDIR)), (999, Err(Errno::ESTALE))]
    {
        assert_eq!(check(&Right::Move { fid: fid(n) }).map(drop), answer, "{n}");
    }
}

/// What only another set knows is asked for, one after the other, and counts when it has been said.
#[test]
fn what_lives_elsewhere_is_asked_for_there() {
    let rename = |from: u64, to: u64, to_name: &str, flags| {
        let (name, to_name) = (name("elsewhere"), name(to_name));
        Op::Rename { parent: fid(from), name, to_parent: fid(to), to_name, flags }
    };
    let unlink = Op::Unlink { parent: fid(STICKY), name: name("elsewhere") };
    let (owns, writes) = (Right::Own { fid: THEIRS }, Right::Move { fid: THEIRS });
    let exchange = rename_flags::EXCHANGE;
    for (op, asked) in [
        (unlink, vec![owns.clone()]),
        (move_in(STICKY, "elsewhere", 0), vec![owns.clone()]),
        (move_in(OPEN, "elsewhere", exchange), vec![writes.clone()]),
        (move_in(STICKY, "elsewhere", exchange), vec![owns.clone(), writes.clone()]),
        (rename(OPEN, OPEN, "x", 0), vec![]),
        (rename(OPEN, OWN, "x", 0), vec![writes.clone()]),
        (rename(STICKY, STICKY, "x", 0), vec![owns.clone()]),
        (rename(STICKY, OWN, "x", 0), vec![owns.clone(), writes.clone()]),
        (rename(STICKY, OPEN, "all", exchange), vec![owns.clone(), writes.clone()]),
    ] {
        let mut known = Vec::new();
        for right in asked {
            let otherwise = if right == owns { Errno::EPERM } else { Errno::EXDEV };
            let question = Question { set: OTHER, right: right.clone(), otherwise };
            let refused = permission::check(&ANN, &mut op.clone(), SET, &mut Tree, &known);
            assert_eq!(refused, Err(Refusal::Ask(question)), "{op:?}");
            known.push(right);
        }
        assert_eq!(permission::check(&ANN, &mut op.clone(), SET, &mut Tree, &known), Ok(()), "{op:?}");
    }
    // What this set refuses is refused whatever others have said.
    let refused = permission::check(&ANN, &mut rename(STICKY, SHUT, "x", 0), SET, &mut Tree, &[owns, writes]);
    assert_eq!(refused, Err(Refusal::Errno(Errno::EACCES)));
    for (n, answer) in [(11, YES), (14, NEVER), (OWN, YES), (SHUT, NEVER), (999, Err(Errno::ESTALE))] {
        assert_eq!(check(&Right::Own { fid: fid(n) }).map(drop), answer, "{n}");
    }
}

/// As within a set: what could be written, and runs as nobody else.
#[test]
fn others_files_are_linked_if_they_could_be_written() {
    for (n, answer) in
        [(11, YES), (21, YES), (14, YES), (13, NEVER), (15, NEVER), (12, NEVER), (999, Err(Errno::ESTALE))]
    {
        assert_eq!(check(&Right::Link { fid: fid(n) }).map(drop), answer, "{n}");
    }
}

/// Users see no folders of names, whoever owns them.
#[test]
fn folders_of_names_are_nobodys() {
    let folder = fid(OWN).names();
    let rights = [
        Right::Leave { dir: folder, name: name("mine") },
        Right::Move { fid: folder },
        Right::Link { fid: folder },
        Right::Own { fid: folder },
    ];
    for right in rights {
        assert_eq!(check(&right), Err(Errno::ESTALE), "{right:?}");
        assert_eq!(rights::known(&right, &mut Tree), Err(Errno::ESTALE), "{right:?}");
    }
    let known = |fid: Fid| rights::known(&Right::Link { fid }, &mut Tree);
    assert_eq!((known(fid(12)), known(THEIRS)), (YES, Err(Errno::ESTALE)));
}
