//! Targeted schedules: those who take over from each other fail in the worst order.
//!
//! A storm that draws each fault by itself seldom has two of them within the few milliseconds in which an early
//! acknowledgement, a late message or a short history does harm. Here the second fault follows from the first:
//! - a primary is deposed (dead, or alive and cut off from all servers while clients still reach it) with changes on their way
//!   to some of its secondaries, these arrive directly after its successor begins, and the successor dies at once;
//! - a secondary dies between what it says and what it does, and the others a moment later, so that it leads next;
//! - the power of a set's machines fails, one after the other, each for a moment.

use crate::network::Node;
use crate::rest::Phase;
use crate::store::machine_of;
use crate::trace::say;
use crate::world::{Event, World};
use core::time::Duration;
use ids::SetId;
use std::collections::BTreeMap;

/// A path that was cut is open again after so long at the latest.
const LONGEST_CUT: Duration = Duration::from_secs(9);

/// What happens next.
#[derive(Clone, Debug)]
pub(crate) enum Turn {
    /// One of the schedules begins.
    Begin,
    /// The primary of a set is gone, or cut off.
    Depose(SetId),
    /// What was on its way from the deposed primary arrives.
    Arrive(SetId),
    /// A process is killed, and is away for so long.
    Dies(usize, Duration),
    /// The power of a machine fails, and is away for so long.
    Flickers(usize, Duration),
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Successions {
    /// Primaries that are deposed: their machines, and the paths from them that are cut.
    deposed: BTreeMap<SetId, Deposed>,
    /// How much later clients learn of views: they go on asking whom they know.
    lags: Vec<Duration>,
}

impl Successions {
    pub(crate) fn lag(&self, client: usize) -> Duration {
        self.lags.get(client).copied().unwrap_or_default()
    }
}

#[derive(Debug)]
struct Deposed {
    machine: usize,
    cut: Vec<(Node, Node)>,
    lives: bool,
    succeeded: bool,
}

impl World {
    pub(crate) fn begin_successions(&mut self) {
        for _ in 0..self.clients.len() {
            let lag = if self.rng.chance(400) { self.rng.millis(300, 4000) } else { Duration::ZERO };
            self.successions.lags.push(lag);
        }
        let first = self.rng.millis(300, 2500);
        self.at(first, Event::Succession(Turn::Begin));
    }

    pub(crate) fn take_turn(&mut self, turn: Turn) {
        if let Turn::Arrive(set) = turn {
            return self.arrive_late(set);
        }
        if self.phase != Phase::Storm {
            return;
        }
        match turn {
            Turn::Begin => self.begin_succession(),
            Turn::Depose(set) => self.depose(set),
            Turn::Dies(m, away) => self.kill_for(m, "killed in succession", away),
            Turn::Flickers(m, away) => self.cut_power_for(m, away),
            Turn::Arrive(_) => {}
        }
    }

    fn begin_succession(&mut self) {
        let next = self.rng.millis(300, 4000);
        self.at(self.now + next, Event::Succession(Turn::Begin));
        let sets: Vec<SetId> = self.store.state().sets.keys().copied().collect();
        let Some(set) = self.rng.pick(&sets).copied() else { return };
        let Some((primary, others)) = self.who_serves(set) else { return };
        match self.rng.below(5) {
            0 | 1 => self.begin_deposing(set, primary, &others),
            2 | 3 => {
                if let Some(m) = self.rng.pick(&others).copied() {
                    self.machines[m].dies_between = u32::try_from(self.rng.below(12)).ok().map(|n| (set, n));
                }
            }
            _ => self.flicker(primary, &others),
        }
    }

    /// The machines of a set's primary and of the other bricks in sync, of which there is one at least.
    fn who_serves(&self, set: SetId) -> Option<(usize, Vec<usize>)> {
        let set = self.store.state().sets.get(&set)?;
        let machine = |brick| set.brick(brick).map(|b| machine_of(b.server));
        let primary = set.view.primary?;
        let others: Vec<usize> =
            set.view.in_sync.iter().filter(|b| **b != primary).filter_map(|b| machine(*b)).collect();
        Some((machine(primary)?, others)).filter(|(_, others)| !others.is_empty())
    }

    fn begin_deposing(&mut self, set: SetId, machine: usize, others: &[usize]) {
        if self.successions.deposed.contains_key(&set) {
            return;
        }
        let mut cut = Vec::new();
        for other in others {
            if self.rng.chance(600) {
                let (from, to) = (Node::Server(machine), Node::Server(*other));
                self.cut_path(from, to);
                cut.push((from, to));
            }
        }
        say!(self, "set {set}: server {machine} is to be deposed, cut: {cut:?}");
        self.successions.deposed.insert(set, Deposed { machine, cut, lives: false, succeeded: false });
        let soon = self.rng.millis(1, 120);
        self.at(self.now + soon, Event::Succession(Turn::Depose(set)));
        self.at(self.now + LONGEST_CUT, Event::Succession(Turn::Arrive(set)));
    }

    fn depose(&mut self, set: SetId) {
        let Some(machine) = self.successions.deposed.get(&set).map(|d| d.machine) else { return };
        self.count("primary deposed");
        if self.rng.chance(600) {
            let away = self.rng.millis(1500, 6000);
            return self.kill_for(machine, "killed in succession", away);
        }
        say!(self, "server {machine} is cut off from all servers");
        for other in (0..self.machines.len()).filter(|o| *o != machine) {
            for path in
                [(Node::Server(machine), Node::Server(other)), (Node::Server(other), Node::Server(machine))]
            {
                self.cut_path(path.0, path.1);
                if let Some(d) = self.successions.deposed.get_mut(&set) {
                    d.lives = true;
                    d.cut.push(path);
                }
            }
        }
    }

    /// The store agreed on another primary.
    pub(crate) fn succeeded(&mut self, set: SetId, successor: usize) {
        let Some(deposed) = self.successions.deposed.get_mut(&set) else { return };
        if core::mem::replace(&mut deposed.succeeded, true) || deposed.machine == successor {
            return;
        }
        let lives = deposed.lives;
        self.count(if lives { "living primary succeeded" } else { "primary succeeded" });
        let at_once = self.rng.chance(if lives { 400 } else { 600 });
        if at_once || lives {
            let soon = if at_once { self.rng.millis(0, 150) } else { self.rng.millis(500, 4000) };
            self.at(self.now + soon, Event::Succession(Turn::Arrive(set)));
        }
        if self.rng.chance(if lives { 200 } else { 500 }) {
            let (soon, away) = (self.rng.millis(5, 500), self.rng.millis(1500, 6000));
            self.at(self.now + soon, Event::Succession(Turn::Dies(successor, away)));
        }
    }

    fn arrive_late(&mut self, set: SetId) {
        let cut = self.successions.deposed.remove(&set).map_or_else(Vec::new, |d| d.cut);
        for (from, to) in cut {
            self.repair_path(from, to);
        }
    }

    /// Whether the process is to be killed between what a set has said and what it does next.
    pub(crate) fn dies_between(&mut self, m: usize, set: SetId) -> bool {
        match &mut self.machines[m].dies_between {
            Some((its, 0)) => *its == set,
            Some((its, n)) if *its == set => {
                *n -= 1;
                false
            }
            _ => false,
        }
    }

    /// A process is killed there. Those whose bricks are in sync with its own die a moment later, and are away for longer.
    pub(crate) fn die_before_the_rest(&mut self, m: usize) {
        let shares = |(_, others): &(usize, Vec<usize>)| others.contains(&m);
        let state = self.store.state().clone();
        let with: Vec<usize> = state
            .sets
            .keys()
            .filter_map(|set| self.who_serves(*set).filter(shares))
            .flat_map(|(primary, others)| core::iter::once(primary).chain(others))
            .filter(|other| *other != m)
            .collect();
        if self.rng.chance(700) {
            // Nobody hears of the first death from those who die next.
            let until = self.now + self.rng.millis(20, 60);
            self.store.fall(until);
        }
        let back = self.rng.millis(5, 80);
        self.kill_for(m, "killed before what it said was done", back);
        for other in with {
            let (soon, away) = (self.rng.millis(1, 20), self.rng.millis(1500, 6000));
            self.at(self.now + soon, Event::Succession(Turn::Dies(other, away)));
        }
    }

    /// The power of the primary fails for a moment, alone or with that of the others.
    fn flicker(&mut self, primary: usize, others: &[usize]) {
        self.count("power flickers");
        let back = self.rng.millis(20, 600);
        self.at(self.now, Event::Succession(Turn::Flickers(primary, back)));
        if self.rng.chance(400) {
            for other in others {
                let (soon, back) = (self.rng.millis(0, 400), self.rng.millis(20, 3000));
                self.at(self.now + soon, Event::Succession(Turn::Flickers(*other, back)));
            }
        }
    }
}
