//! A primary that is to leave its set.

use crate::common::{Rig, fid, stamp, view};
use ids::{BrickId, Lsn};
use replica::{Admission, Input, Message, Role, View};

fn leaving(epoch: u32, primary: u32, in_sync: &[u32], leaving: &[u32]) -> View {
    View { leaving: leaving.iter().map(|b| BrickId(*b)).collect(), ..view(epoch, primary, in_sync) }
}

fn open() -> Message {
    Message::StateReport { last: stamp(0, 0), durable: Lsn(0), kept: Lsn(0) }
}

/// It answers until another brick has said that it is open, and nobody after that. It asks until the view is without it.
#[test]
fn it_ends_its_service_before_it_asks_for_the_view_without_itself() {
    let mut a = Rig::primary(1, &[1, 2, 3]);
    a.decide(5, 9);
    a.applied(1);
    a.give(Input::View(leaving(1, 1, &[1, 2, 3], &[1])));
    assert_eq!(a.tick(50), ["state query to 2", "state query to 3"]);
    assert_eq!(a.admit(1, 0), Admission::Go, "nobody can take its place yet");
    assert_eq!(a.peer(3, 1, open()), ["redirect 5", "propose Some(3) of [2, 3] after 1"]);
    assert_eq!(a.replica.role(), Role::Idle);
    assert!(matches!(a.admit(1, 0), Admission::WrongView(_)), "another one may be answering from now on");
    assert!(a.peer(2, 1, open()).is_empty(), "it has chosen");
    assert!(a.ack(2, 1, 1).is_empty() && a.ack(3, 1, 1).is_empty());
    assert!(a.tick(100).is_empty());
    assert_eq!(a.tick(300), ["propose Some(3) of [2, 3] after 1"]);
    a.give(Input::View(view(2, 3, &[2, 3])));
    assert!(a.tick(1000).is_empty());
}

#[test]
fn it_stays_if_nobody_can_take_its_place() {
    // An arbiter, and a brick that leaves as well.
    let mut a = Rig::primary(1, &[1, 2, 3]);
    let mut v = leaving(2, 1, &[1, 2, 3], &[1, 2]);
    v.arbiters = [BrickId(3)].into();
    a.give(Input::View(v));
    assert!(a.tick(50).is_empty());
    for brick in [2, 3, 4] {
        assert!(a.peer(brick, 2, open()).is_empty());
    }
    assert_eq!(a.replica.role(), Role::Primary);
    // Changes would not be accepted any more.
    let mut a = Rig::primary(1, &[1, 2]);
    a.give(Input::View(View { quorum: 2, ..leaving(1, 1, &[1, 2], &[1]) }));
    assert!(a.tick(50).is_empty() && a.peer(2, 1, open()).is_empty());
    // They are not accepted now either.
    a.give(Input::View(View { quorum: 3, ..leaving(1, 1, &[1, 2], &[1]) }));
    assert_eq!(a.tick(50), ["state query to 2"]);
}

/// Another brick came into the view first: the primary leads anew, and leaves in the next view.
#[test]
fn it_begins_anew_in_another_view() {
    let mut a = Rig::primary(1, &[1, 2]);
    a.give(Input::View(leaving(1, 1, &[1, 2], &[1])));
    assert_eq!(a.peer(2, 1, open()), ["propose Some(2) of [2] after 1"]);
    let asks = a.give(Input::View(leaving(2, 1, &[1, 2, 3], &[1])));
    assert_eq!(asks, ["state query to 2", "state query to 3"]);
    a.peer(2, 2, open());
    assert_eq!(a.replica.role(), Role::Reconciling);
    a.peer(3, 2, open());
    assert_eq!(a.replica.role(), Role::Primary);
    assert_eq!(a.peer(2, 2, open()), ["propose Some(2) of [2, 3] after 2"]);
    // Alone in the view it serves on, with what it has.
    a.give(Input::View(leaving(3, 1, &[1], &[1])));
    assert_eq!(a.replica.role(), Role::Primary);
    assert!(a.tick(50).is_empty());
    assert_eq!(a.decide(6, 9).len(), 1);
    let read = Input::ReadReply { ticket: 7, objects: vec![fid(8)] };
    assert_eq!(a.give(read), ["complete 7"]);
}
