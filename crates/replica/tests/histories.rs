//! What a new primary makes of journals that part, and what a brick does in the epoch in which it was opened.

use crate::common::{Rig, entry, stamp, view};
use ids::{BrickId, Epoch, Lsn};
use replica::{Input, Message, Role};

const NONE: [&str; 0] = [];

fn report(rig: &mut Rig, from: u32, epoch: u32, (e, lsn): (u32, u64), kept: u64) -> Vec<String> {
    rig.peer(from, epoch, Message::StateReport { last: stamp(e, lsn), durable: Lsn(0), kept: Lsn(kept) })
}

/// Brick 1 has changes 1 to 3 of epoch 2, which brick 2 ordered, and can send them on; now it leads in epoch 3.
fn successor(in_sync: &[u32]) -> Rig {
    let mut rig = Rig::new(1);
    rig.view(2, 2, &[1, 2, 3]);
    for lsn in 1..=3 {
        rig.replicate(2, 2, entry(2, lsn, lsn));
        rig.applied(lsn);
    }
    rig.view(3, 1, in_sync);
    assert_eq!(rig.replica.role(), Role::Reconciling);
    rig
}

/// An earlier process of it may have said more than it has, or be still at work.
#[test]
fn a_brick_follows_nobody_in_the_epoch_in_which_it_was_opened() {
    let mut rig = Rig::with_journal(1, 3, stamp(2, 7));
    rig.view(3, 2, &[1, 2]);
    assert_eq!(rig.replica.role(), Role::Idle);
    assert_eq!(rig.replicate(2, 3, entry(3, 8, 1)), NONE);
    rig.view(4, 2, &[1, 2]);
    assert_eq!(rig.replica.role(), Role::Secondary);
}

/// Its journal ends with a change that this brick does not have: sending on from there would leave two histories.
#[test]
fn a_brick_whose_journal_parts_from_the_new_primarys_leaves() {
    let mut rig = successor(&[1, 3]);
    assert_eq!(report(&mut rig, 3, 3, (1, 2), 2), ["propose Some(1) of [1] after 3"]);
    let mut whole = successor(&[1, 3]);
    assert_eq!(report(&mut whole, 3, 3, (2, 2), 2), ["replicate 2.3 to 3 in 3"], "the beginning of the same");
}

/// Brick 1 was started anew with three changes of epoch 1, leads in epoch 3, and fetches what brick 3 lacks from brick 2.
fn fetching(upto: (u32, u64)) -> Rig {
    let mut rig = Rig::with_journal(1, 2, stamp(1, 3));
    rig.replica.set_history([(Epoch(1), Lsn(3))].into());
    rig.view(3, 1, &[1, 2, 3]);
    report(&mut rig, 3, 3, (1, 2), 2);
    assert_eq!(report(&mut rig, 2, 3, upto, 0), ["send what follows 1.2, 2"]);
    rig
}

#[test]
fn a_journal_that_is_not_what_its_brick_said_is_not_adopted() {
    // The third change is another one than this brick has; epochs go back; the end is not as it was told.
    let parts = [(2, 3), (2, 4), (2, 5)];
    let goes_back = [(1, 3), (2, 4), (1, 5)];
    let ends_elsewhere = [(1, 3), (1, 4), (1, 5)];
    for (upto, tail) in [((2, 5), parts), ((1, 5), goes_back), ((2, 5), ends_elsewhere)] {
        let mut rig = fetching(upto);
        let out: Vec<String> =
            tail.iter().flat_map(|(e, lsn)| rig.replicate(2, 3, entry(*e, *lsn, *lsn))).collect();
        assert_eq!(out.first().map(String::as_str), Some("propose Some(1) of [1, 3] after 3"), "{tail:?}");
        assert!(!out.iter().any(|l| l.starts_with("apply")), "{out:?}");
    }
    let mut rig = fetching((2, 5));
    let fits = [(1, 3), (1, 4), (2, 5)];
    let out: Vec<String> =
        fits.iter().flat_map(|(e, lsn)| rig.replicate(2, 3, entry(*e, *lsn, *lsn))).collect();
    assert_eq!(out, ["apply 1.4", "apply 2.5"]);
}

/// It has as much as another brick that has data; neither can send it to the new primary.
#[test]
fn an_arbiter_is_not_made_primary_however_long_its_journal() {
    let mut rig = Rig::with_journal(1, 2, stamp(1, 3));
    let mut three = view(3, 1, &[1, 2, 3]);
    three.arbiters = [BrickId(3)].into();
    rig.give(Input::View(three));
    report(&mut rig, 2, 3, (1, 5), 5);
    assert_eq!(report(&mut rig, 3, 3, (1, 5), 5), ["propose Some(2) of [2, 3] after 3"]);
}
