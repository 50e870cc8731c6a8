//! What goes wrong: each run draws which kinds of faults it has, and how often (swarm testing, Groce et al. 2012).

use crate::Config;
use crate::log::say;
use crate::rng::Prng;
use crate::world::{Event, World, server_of};
use core::time::Duration;
use std::collections::BTreeMap;

/// What is to be made good again.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fault {
    Kill,
    KillBetween,
    PowerCut,
    Blackout,
    Freeze(usize),
    Slow(usize),
    Cut(usize),
    StoreDown,
    Block(usize, usize),
    Split(usize, usize),
    Drop,
    ApplyFails(usize, usize),
    SyncFails(usize, usize),
    ClientCut(usize),
}

const KINDS: [Fault; 14] = [
    Fault::Kill,
    Fault::KillBetween,
    Fault::PowerCut,
    Fault::Blackout,
    Fault::Freeze(0),
    Fault::Slow(0),
    Fault::Cut(0),
    Fault::StoreDown,
    Fault::Block(0, 0),
    Fault::Split(0, 0),
    Fault::Drop,
    Fault::ApplyFails(0, 0),
    Fault::SyncFails(0, 0),
    Fault::ClientCut(0),
];

/// The run's faults.
#[derive(Debug)]
pub(crate) struct Faults {
    kinds: Vec<Fault>,
    every: Duration,
    pub(crate) counts: BTreeMap<&'static str, u64>,
}

impl Faults {
    pub(crate) fn draw(rng: &mut Prng, config: &Config) -> Faults {
        let share = 100 + rng.below(600);
        let blackout = config.blackout || rng.chance(80);
        let wanted = |k: &Fault| blackout || !matches!(k, Fault::Blackout);
        let kinds = KINDS.into_iter().filter(|k| wanted(k) && rng.chance(share)).collect();
        Faults { kinds, every: rng.millis(60, 3000), counts: BTreeMap::new() }
    }
}

impl World {
    fn count_fault(&mut self, kind: &'static str) {
        *self.faults.counts.entry(kind).or_default() += 1;
    }

    pub(crate) fn fault(&mut self) {
        if self.calm {
            return;
        }
        let delay = self.rng.between(self.faults.every / 8, self.faults.every * 2);
        self.after(delay, Event::Fault);
        let kind = self.rng.below(self.faults.kinds.len());
        if let Some(kind) = self.faults.kinds.get(kind).copied() {
            let s = self.rng.below(self.servers.len());
            self.befall(kind, s);
        }
    }

    fn befall(&mut self, kind: Fault, s: usize) {
        let other = self.rng.below(self.servers.len());
        let set = self.rng.below(self.sets.len());
        let lasts = if self.rng.chance(600) { self.rng.millis(5, 1500) } else { self.rng.millis(1500, 9000) };
        say!(self, "fault {kind:?} at server {s}");
        let fault = match kind {
            Fault::Kill if self.servers[s].alive => return self.kill(s, "kill"),
            Fault::KillBetween if self.servers[s].alive => {
                self.servers[s].dies_in = u32::try_from(self.rng.below(12)).ok();
                return;
            }
            Fault::PowerCut => return self.power_cut(s),
            Fault::Blackout => {
                for s in 0..self.servers.len() {
                    self.cut_power_of(s);
                }
                return;
            }
            Fault::Freeze(_) if self.servers[s].alive => {
                self.servers[s].frozen = true;
                self.count_fault("freeze");
                Fault::Freeze(s)
            }
            Fault::Slow(_) => {
                self.servers[s].slow = self.rng.millis(1, 300);
                self.count_fault("slow server");
                Fault::Slow(s)
            }
            Fault::Cut(_) => {
                self.servers[s].cut = true;
                self.count_fault("cut off from the store");
                Fault::Cut(s)
            }
            Fault::StoreDown => {
                self.store.fall(self.now);
                self.count_fault("store down");
                Fault::StoreDown
            }
            Fault::Block(..) | Fault::Split(..) if s != other => {
                self.links[s][other].blocked = true;
                self.count_fault("one-way partition");
                if matches!(kind, Fault::Block(..)) {
                    Fault::Block(s, other)
                } else {
                    self.links[other][s].blocked = true;
                    self.count_fault("two-way partition");
                    Fault::Split(s, other)
                }
            }
            Fault::Drop if s != other => {
                self.break_link(s, other);
                self.count_fault("broken link");
                return;
            }
            Fault::ApplyFails(..) => {
                let after = u32::try_from(self.rng.below(4)).unwrap_or(0);
                let Some(brick) = self.brick(s, set) else { return };
                brick.disk.fails_in = Some(after);
                Fault::ApplyFails(s, set)
            }
            Fault::SyncFails(..) => {
                let Some(brick) = self.brick(s, set) else { return };
                brick.disk.sync_fails = true;
                Fault::SyncFails(s, set)
            }
            Fault::ClientCut(_) => {
                let c = self.rng.below(self.clients.len());
                if self.rng.chance(500) {
                    self.clients[c].cut = Some(s);
                    self.count_fault("client cut off");
                } else {
                    self.clients[c].deaf = true;
                    self.count_fault("client without views");
                }
                Fault::ClientCut(c)
            }
            _ => return,
        };
        self.after(lasts, Event::Undo(fault));
    }

    pub(crate) fn undo(&mut self, fault: Fault) {
        match fault {
            Fault::Freeze(s) => {
                if self.servers[s].frozen {
                    say!(self, "server {s} wakes");
                    self.wake(s);
                }
            }
            Fault::Slow(s) => self.servers[s].slow = Duration::ZERO,
            Fault::Cut(s) => self.servers[s].cut = false,
            Fault::StoreDown => {
                if self.store.down {
                    self.store.up(self.now);
                }
            }
            Fault::Block(a, b) => self.links[a][b].blocked = false,
            Fault::Split(a, b) => {
                self.links[a][b].blocked = false;
                self.links[b][a].blocked = false;
            }
            Fault::ApplyFails(s, set) => self.brick(s, set).into_iter().for_each(|b| b.disk.fails_in = None),
            Fault::SyncFails(s, set) => {
                self.brick(s, set).into_iter().for_each(|b| b.disk.sync_fails = false)
            }
            Fault::ClientCut(c) => {
                self.clients[c].cut = None;
                self.clients[c].deaf = false;
            }
            Fault::Kill | Fault::KillBetween | Fault::PowerCut | Fault::Blackout | Fault::Drop => {}
        }
    }

    /// The storm ends.
    pub(crate) fn end_faults(&mut self) {
        say!(self, "calm");
        self.undo(Fault::StoreDown);
        for s in 0..self.servers.len() {
            self.servers[s].dies_in = None;
            for other in 0..self.servers.len() {
                self.undo(Fault::Block(s, other));
            }
            for set in 0..self.sets.len() {
                self.undo(Fault::ApplyFails(s, set));
                self.undo(Fault::SyncFails(s, set));
            }
            self.undo(Fault::Cut(s));
            self.undo(Fault::Slow(s));
            self.undo(Fault::Freeze(s));
        }
        for c in 0..self.clients.len() {
            self.undo(Fault::ClientCut(c));
        }
    }

    /// The power of one server fails; never so that the last whole copy of a set goes (that is for blackouts).
    fn power_cut(&mut self, s: usize) {
        let safe = self.servers[s].bricks.iter().all(|(set, brick)| {
            let view = &self.store.views[*set];
            let whole = |b: &&replica::View| {
                b.in_sync.iter().any(|o| {
                    let there = self.servers[server_of(*o)].bricks.get(set);
                    *o != brick.id && !b.arbiters.contains(o) && there.is_some_and(|b| !b.torn)
                })
            };
            !view.in_sync.contains(&brick.id) || Some(view).filter(whole).is_some()
        });
        if safe {
            self.cut_power_of(s);
        }
    }

    fn cut_power_of(&mut self, s: usize) {
        if self.servers[s].alive {
            self.kill(s, "power cut");
        }
        self.servers[s].refuses = false;
        let mut lost = false;
        for brick in self.servers[s].bricks.values_mut() {
            lost |= brick.disk.cut(&mut self.rng);
            brick.torn = true;
            brick.close();
        }
        for set in 0..self.sets.len() {
            self.excuse(set);
        }
        if lost {
            self.count_fault("torn journal");
        }
    }
}
