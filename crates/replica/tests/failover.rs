//! What becomes of changes that not all bricks had when their primary died: scripts over whole sets.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

use crate::common::{self, Change, fid, op, stamp};
use core::time::Duration;
use ids::{BrickId, Epoch, Lsn, OpId, SessionId};
use replica::{Admission, Input, Outcome, Output, Replica, Results, Role, Ticket, View};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wire::peer::Stamp;

type Record = (Stamp, OpId);

/// What a change at that position came to.
fn outcome(lsn: Lsn) -> Outcome {
    Outcome { lsn, result_fid: None, amount: lsn.0 }
}

struct Brick {
    replica: Replica<Change>,
    journal: Vec<Record>,
    completed: Vec<Ticket>,
}

/// A set, its pool store and the links between its bricks. Messages wait until [`Set::deliver`].
struct Set {
    now: Duration,
    view: View,
    bricks: BTreeMap<u32, Brick>,
    wire: VecDeque<(u32, u32, Input<Change>)>,
    /// Links, from one brick to another, that lose everything.
    cut: BTreeSet<(u32, u32)>,
    /// Why views were asked for.
    reasons: Vec<&'static str>,
    tickets: u64,
}

impl Set {
    fn new(bricks: u32, arbiters: &[u32], quorum: usize) -> Set {
        let all: Vec<u32> = (1..=bricks).collect();
        let mut view = common::view(1, 1, &all);
        view.arbiters = arbiters.iter().map(|b| BrickId(*b)).collect();
        view.quorum = quorum;
        let mut set = Set {
            now: Duration::from_secs(1),
            view,
            bricks: BTreeMap::new(),
            wire: VecDeque::new(),
            cut: BTreeSet::new(),
            reasons: Vec::new(),
            tickets: 0,
        };
        for b in all {
            set.open(b, Vec::new(), Epoch(0));
        }
        set.send_view();
        set.deliver();
        assert_eq!(set.role(1), Role::Primary);
        set
    }

    fn open(&mut self, b: u32, journal: Vec<Record>, floor: Epoch) {
        let last = journal.last().map_or(stamp(0, 0), |r| r.0.clone());
        let mut results = Results::default();
        let mut history = BTreeMap::new();
        for (stamp, op) in &journal {
            results.record(*op, outcome(stamp.lsn));
            history.insert(stamp.epoch, stamp.lsn);
        }
        let mut replica = Replica::new(BrickId(b), floor, last, Lsn(0), results);
        replica.set_history(history);
        self.bricks.insert(b, Brick { replica, journal, completed: Vec::new() });
        self.give(b, Input::Lease(Duration::from_secs(1 << 30)));
    }

    fn role(&self, b: u32) -> Role {
        self.bricks[&b].replica.role()
    }

    fn journal(&self, b: u32) -> Vec<(u32, u64)> {
        self.bricks[&b].journal.iter().map(|(s, _)| (s.epoch.0, s.lsn.0)).collect()
    }

    fn in_sync(&self) -> Vec<u32> {
        self.view.in_sync.iter().map(|b| b.0).collect()
    }

    /// All bricks of the view that are up, in one state, with these changes.
    fn assert_whole(&self, in_sync: &[u32], journal: &[(u32, u64)]) {
        assert_eq!(self.in_sync(), in_sync);
        for b in in_sync {
            assert_eq!(self.journal(*b), journal, "brick {b}");
        }
        assert_eq!(self.role(self.view.primary.unwrap().0), Role::Primary);
    }

    fn send_view(&mut self) {
        for b in self.bricks.keys().copied().collect::<Vec<_>>() {
            self.give(b, Input::View(self.view.clone()));
        }
    }

    fn give(&mut self, b: u32, input: Input<Change>) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            let Some(brick) = self.bricks.get_mut(&b) else { return };
            let mut out = Vec::new();
            brick.replica.step(self.now, input, &mut out);
            for output in out {
                inputs.extend(self.perform(b, output));
            }
        }
    }

    fn perform(&mut self, me: u32, output: Output<Change>) -> Option<Input<Change>> {
        let from = BrickId(me);
        let brick = self.bricks.get_mut(&me)?;
        match output {
            Output::Apply(entry, _) => {
                let lsn = entry.stamp.lsn;
                assert_eq!(lsn.0, brick.journal.len() as u64 + 1, "journals have no gaps");
                brick.journal.push((entry.stamp, entry.op));
                return Some(Input::Applied { lsn });
            }
            Output::Replicate { to, epoch, commit, entry } => {
                self.wire.push_back((me, to.0, Input::Replicate { from, epoch, commit, entry }));
            }
            Output::Send { to, epoch, message } => {
                self.wire.push_back((me, to.0, Input::Peer { from, epoch, message }));
            }
            Output::Complete(ticket) => brick.completed.push(ticket),
            Output::Propose(p) => {
                self.reasons.push(p.reason);
                if p.expect == self.view.epoch {
                    let view = View {
                        epoch: p.expect.next(),
                        primary: p.primary,
                        in_sync: p.in_sync,
                        ..self.view.clone()
                    };
                    self.wire.push_back((0, 0, Input::View(view)));
                }
            }
            Output::Sync { .. }
            | Output::Fail(..)
            | Output::Redirect(_)
            | Output::AdoptHistory
            | Output::Diverged => {}
        }
        None
    }

    /// Carries messages, and what they lead to, until there are none.
    fn deliver(&mut self) {
        while self.deliver_one() {}
    }

    fn deliver_one(&mut self) -> bool {
        let Some((from, to, input)) = self.wire.pop_front() else { return false };
        match input {
            Input::View(view) if from == 0 && view.epoch > self.view.epoch => {
                self.view = view;
                self.send_view();
            }
            Input::View(_) => {}
            input if !self.cut.contains(&(from, to)) => self.give(to, input),
            _ => {}
        }
        true
    }

    /// Time passes, and all that it leads to happens.
    fn pass(&mut self, ms: u64) {
        for _ in 0..ms / 100 {
            self.now += Duration::from_millis(100);
            for b in self.bricks.keys().copied().collect::<Vec<_>>() {
                self.give(b, Input::Tick);
            }
            self.deliver();
        }
    }

    /// A client's change, at the primary.
    fn change(&mut self) -> u64 {
        self.tickets += 1;
        let n = self.tickets;
        let b = self.view.primary.unwrap().0;
        let replica = &mut self.bricks.get_mut(&b).unwrap().replica;
        assert_eq!(replica.admit(self.now, self.view.epoch, op(n), 0), Admission::Go);
        let body = Change(fid(n));
        self.give(b, Input::Decided { ticket: n, op: op(n), result_fid: None, body });
        n
    }

    fn changes(&mut self, n: u64) {
        for _ in 0..n {
            self.change();
        }
        self.deliver();
    }

    fn admit(&mut self, b: u32, n: u64) -> Admission {
        let op = OpId { session: SessionId(7), seq: n };
        self.bricks.get_mut(&b).unwrap().replica.admit(self.now, self.view.epoch, op, 0)
    }

    /// The process dies, and the store names this primary.
    fn kill(&mut self, b: u32, primary: u32) {
        self.bricks.remove(&b);
        let mut view =
            View { epoch: self.view.epoch.next(), primary: Some(BrickId(primary)), ..self.view.clone() };
        view.in_sync.remove(&BrickId(b));
        self.view = view;
        self.send_view();
    }

    fn lose(&mut self, from: u32, to: u32) {
        self.cut.insert((from, to));
    }
}

fn until(n: u64) -> Vec<(u32, u64)> {
    (1..=n).map(|lsn| (1, lsn)).collect()
}

#[test]
fn the_successor_sends_its_tail_to_who_lacks_it() {
    let mut set = Set::new(3, &[], 2);
    set.changes(3);
    set.lose(1, 3);
    set.changes(2);
    set.kill(1, 2);
    set.deliver();
    set.assert_whole(&[2, 3], &until(5));
    assert_eq!(set.view.epoch, Epoch(2), "no view but the first after the death: {:?}", set.reasons);
}

#[test]
fn the_successor_takes_the_tail_of_who_has_more() {
    let mut set = Set::new(3, &[], 2);
    set.changes(3);
    set.lose(1, 2);
    set.changes(2);
    set.kill(1, 2);
    set.deliver();
    set.assert_whole(&[2, 3], &until(5));
    assert_eq!(set.view.epoch, Epoch(2), "no view but the first after the death: {:?}", set.reasons);
}

#[test]
fn adopted_changes_are_known_and_new_ones_follow_in_the_new_epoch() {
    let mut set = Set::new(3, &[], 2);
    set.changes(3);
    set.lose(1, 2);
    let last = set.change();
    set.deliver();
    set.kill(1, 2);
    set.deliver();
    for b in [2, 3] {
        assert_eq!(set.journal(b).last(), Some(&(1, 4)));
    }
    assert_eq!(set.admit(2, last), Admission::Done(outcome(Lsn(4))), "its client sends it again");
    let next = set.change();
    set.deliver();
    assert_eq!(set.bricks[&2].completed, [next]);
    assert_eq!(set.journal(3).last(), Some(&(2, 5)));
    // And the next successor knows both.
    set.kill(2, 3);
    set.deliver();
    assert_eq!(set.admit(3, last), Admission::Done(outcome(Lsn(4))));
    assert_eq!(set.admit(3, next), Admission::Done(outcome(Lsn(5))));
}

#[test]
fn a_third_brick_gets_what_the_second_had_and_the_first_had_not() {
    // Three survivors, each with another end.
    let mut set = Set::new(4, &[], 3);
    set.changes(2);
    set.lose(1, 4);
    set.changes(2);
    set.lose(1, 2);
    set.changes(2);
    set.kill(1, 2);
    set.deliver();
    set.assert_whole(&[2, 3, 4], &until(6));
    assert_eq!(set.view.epoch, Epoch(2));
}

#[test]
fn messages_of_the_failover_get_lost() {
    // Whatever one link loses until it works again, a moment before it would count as dead.
    for link in [(2, 3), (3, 2), (2, 4), (4, 2)] {
        for messages in 0..12 {
            let mut set = Set::new(4, &[], 2);
            set.changes(2);
            set.lose(1, 4);
            set.changes(2);
            set.lose(1, 2);
            set.changes(2);
            set.kill(1, 2);
            for _ in 0..messages {
                set.deliver_one();
            }
            set.lose(link.0, link.1);
            set.deliver();
            set.pass(1000);
            set.cut.clear();
            set.pass(1000);
            set.assert_whole(&[2, 3, 4], &until(6));
            assert_eq!(set.view.epoch, Epoch(2), "{link:?} after {messages}");
        }
    }
}

#[test]
fn messages_of_the_failover_come_twice_and_in_any_order() {
    for turn in 0..50_usize {
        let mut set = Set::new(4, &[], 2);
        set.changes(2);
        set.lose(1, 4);
        set.changes(2);
        set.lose(1, 2);
        set.changes(2);
        set.kill(1, 2);
        let mut n = turn;
        while !set.wire.is_empty() {
            n = (n * 31 + 7) % 1009;
            let at = n % set.wire.len();
            let message = set.wire[at].clone();
            set.wire.swap(0, at);
            if n % 3 == 0 && !matches!(message.2, Input::View(_)) {
                set.give(message.1, message.2);
            }
            set.deliver_one();
        }
        set.pass(1900);
        set.assert_whole(&[2, 3, 4], &until(6));
        assert_eq!(set.view.epoch, Epoch(2), "turn {turn}");
    }
}

#[test]
fn the_brick_with_the_longest_journal_dies_in_the_middle() {
    for messages in 0..16 {
        let mut set = Set::new(4, &[], 2);
        set.changes(3);
        set.lose(1, 2);
        set.lose(1, 4);
        set.changes(2);
        set.kill(1, 2);
        for _ in 0..messages {
            set.deliver_one();
        }
        set.kill(3, 2);
        set.deliver();
        set.pass(1900);
        let whole = set.journal(2);
        assert!(whole == until(3) || whole == until(5), "all of the tail or nothing of it");
        set.assert_whole(&[2, 4], &whole);
        set.changes(1);
        set.assert_whole(&[2, 4], &[whole, vec![(3, set.journal(2).len() as u64)]].concat());
    }
}

#[test]
fn the_successor_dies_in_the_middle() {
    for messages in 0..16 {
        let mut set = Set::new(4, &[], 2);
        set.changes(2);
        set.lose(1, 4);
        set.changes(2);
        set.lose(1, 2);
        set.changes(2);
        set.kill(1, 2);
        for _ in 0..messages {
            set.deliver_one();
        }
        set.kill(2, 4);
        set.deliver();
        set.pass(1900);
        set.assert_whole(&[3, 4], &until(6));
        assert_eq!(set.view.epoch, Epoch(3), "nobody else left: {:?}", set.reasons);
    }
}

#[test]
fn a_brick_that_says_nothing_leaves() {
    let mut set = Set::new(3, &[], 1);
    set.changes(2);
    set.lose(1, 2);
    set.changes(1);
    set.kill(1, 2);
    // It tells what it has, and then sends nothing of it.
    set.deliver_one();
    set.deliver_one();
    set.lose(3, 2);
    set.deliver();
    assert_eq!(set.role(2), Role::Reconciling);
    set.pass(2500);
    set.assert_whole(&[2], &until(2));
}

#[test]
fn an_arbiter_is_sent_the_tail() {
    let mut set = Set::new(3, &[3], 2);
    set.changes(3);
    set.lose(1, 3);
    set.changes(2);
    set.kill(1, 2);
    set.deliver();
    set.assert_whole(&[2, 3], &until(5));
}

#[test]
fn an_arbiter_with_more_leaves_and_changes_wait_for_it() {
    let mut set = Set::new(3, &[3], 2);
    set.changes(3);
    set.lose(1, 2);
    set.changes(2);
    set.kill(1, 2);
    set.deliver();
    // It has no data to send; what it has beyond was not acknowledged by any brick with data.
    set.assert_whole(&[2], &until(3));
    assert_eq!(set.admit(2, 4), Admission::Busy, "it heals, and only then is there a quorum");
    set.now += replica::limits::QUORUM_WAIT;
    assert_eq!(set.admit(2, 4), Admission::BelowQuorum, "it does not come back");
}

#[test]
fn who_was_started_anew_has_nothing_to_send_and_hands_over() {
    let mut set = Set::new(3, &[], 2);
    set.changes(3);
    set.lose(1, 2);
    set.lose(1, 3);
    set.changes(2);
    // The primary's process is back before anybody missed it.
    let journal = set.bricks.remove(&1).unwrap().journal;
    set.wire.clear();
    set.cut.clear();
    set.open(1, journal, Epoch(1));
    set.give(1, Input::View(set.view.clone()));
    set.pass(500);
    set.assert_whole(&[2, 3], &until(3));
    assert_ne!(set.view.primary, Some(BrickId(1)), "one of those that can send what they have");
}

#[test]
fn all_started_anew_most_of_one_mind_stay() {
    let mut set = Set::new(3, &[], 2);
    set.changes(3);
    set.lose(1, 2);
    set.changes(2);
    for b in [1, 2, 3] {
        let journal = set.bricks.remove(&b).unwrap().journal;
        set.open(b, journal, Epoch(1));
        set.give(b, Input::View(set.view.clone()));
    }
    set.cut.clear();
    set.pass(500);
    set.assert_whole(&[1, 3], &until(5));
}

#[test]
fn a_brick_whose_history_parts_leaves() {
    // It cannot be, as long as bricks come into a view only with its history.
    let mut set = Set::new(3, &[], 1);
    set.changes(3);
    let mut journal = set.bricks.remove(&3).unwrap().journal;
    journal.last_mut().unwrap().0 = stamp(0, 3);
    journal.sort_by_key(|(s, _)| s.lsn);
    journal.iter_mut().for_each(|(s, _)| s.epoch = Epoch(0));
    set.open(3, journal, Epoch(1));
    set.kill(1, 2);
    set.deliver();
    set.assert_whole(&[2], &until(3));
}

#[test]
fn what_all_have_is_not_kept() {
    let mut set = Set::new(3, &[], 2);
    set.changes(3);
    set.pass(200);
    set.kill(1, 2);
    let asked = set.wire.iter().any(|m| m.1 == 3);
    assert!(asked);
    set.deliver_one();
    let answer = set.wire.back().map(|m| format!("{:?}", m.2)).unwrap();
    assert!(answer.contains("kept: Lsn(3)"), "{answer}");
}

#[test]
fn a_primary_that_cannot_apply_what_it_adopts_gives_way() {
    let mut b = common::Rig::new(2);
    b.view(1, 1, &[1, 2, 3]);
    b.view(2, 2, &[2, 3]);
    let theirs = replica::Message::StateReport { last: stamp(1, 1), durable: Lsn(0), kept: Lsn(0) };
    assert_eq!(b.peer(3, 2, theirs), ["send what follows 0.0, 3"]);
    assert_eq!(b.replicate(3, 2, common::entry(1, 1, 9)), ["apply 1.1"]);
    assert_eq!(b.apply_failed(1), ["propose Some(3) of [3] after 2", "diverged"]);
}

/// A primary that hears nobody does not know who is away, the others or itself: it leaves the quorum in the view until it
/// has been in touch with the pool's leader for as long as they were silent.
#[test]
fn a_primary_that_is_cut_off_leaves_the_quorum_in_its_view() {
    let mut set = Set::new(3, &[], 2);
    set.changes(3);
    let mut lease = Duration::from_secs(1 << 30);
    let mut connected = |set: &mut Set, ms: u64| {
        for _ in 0..ms / 500 {
            lease += Duration::from_millis(500);
            set.give(1, Input::Lease(lease));
            set.pass(500);
        }
    };
    connected(&mut set, 3000);
    for other in [2, 3] {
        set.lose(1, other);
        set.lose(other, 1);
    }
    let change = set.change();
    set.pass(4000);
    assert_eq!(set.reasons, Vec::<&str>::new());
    // The line is whole again, and the leader is heard first.
    connected(&mut set, 500);
    set.cut.clear();
    connected(&mut set, 2000);
    assert_eq!(set.bricks[&1].completed.last(), Some(&change));
    set.assert_whole(&[1, 2, 3], &until(4));
    // Now the others are away, and the leader is there all the time.
    for other in [2, 3] {
        set.lose(1, other);
    }
    set.change();
    connected(&mut set, 4000);
    assert_eq!(set.in_sync(), [1]);
}
