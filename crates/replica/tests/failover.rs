//! What becomes of changes that not all bricks had when their primary died: scripts over whole sets.
#![allow(clippy::indexing_slicing, clippy::unwrap_used, clippy::panic)]

mod common;

use common::{Change, fid, op, stamp};
use core::time::Duration;
use ids::{BrickId, Epoch, Lsn, OpId, SessionId};
use replica::{Admission, Input, Output, Replica, Results, Role, Ticket, View};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use wire::peer::Stamp;

type Record = (Stamp, OpId);

struct Brick {
    replica: Replica<Change>,
    journal: Vec<Record>,
    released: Vec<Ticket>,
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
        set.tell_view();
        set.deliver();
        assert_eq!(set.role(1), Role::Primary);
        set
    }

    fn open(&mut self, b: u32, journal: Vec<Record>, floor: Epoch) {
        let last = journal.last().map_or(stamp(0, 0), |r| r.0.clone());
        let mut results = Results::default();
        let mut history = BTreeMap::new();
        for (stamp, op) in &journal {
            results.record(*op, stamp.lsn, None);
            history.insert(stamp.epoch, stamp.lsn);
        }
        let mut replica = Replica::new(BrickId(b), floor, last, Lsn(0), results);
        replica.set_history(history);
        self.bricks.insert(b, Brick { replica, journal, released: Vec::new() });
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

    fn tell_view(&mut self) {
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
            Output::Apply(entry) => {
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
            Output::Release(ticket) => brick.released.push(ticket),
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
            | Output::Refuse(..)
            | Output::Forget(_)
            | Output::Settle
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
            Input::View(view) if from == 0 => {
                if view.epoch > self.view.epoch {
                    self.view = view;
                    self.tell_view();
                }
            }
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
        self.give(b, Input::Decided { ticket: n, op: op(n), about: None, body });
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
        self.tell_view();
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
