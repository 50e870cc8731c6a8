//! Fault injection: each run draws which kinds of faults it has, and how often (swarm testing, Groce et al. 2012).

use crate::network::Node;
use crate::rng::Prng;
use crate::trace::say;
use crate::world::{Event, World};
use crate::{Config, Family, Power};
use core::time::Duration;
use ids::BrickId;
use wire::Errno;

/// Something that goes wrong, or is to be made good again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Fault {
    /// A process is killed.
    Kill,
    /// A process is killed in the middle of a change.
    KillAtWork,
    /// A process is stopped in order.
    Stop,
    /// The power of one machine fails.
    PowerCut,
    /// The power of one machine fails in the middle of a change.
    PowerCutAtWork,
    /// The power of all machines fails.
    Blackout,
    /// A process stands still.
    Freeze(usize),
    /// A machine answers slowly.
    Slow(usize),
    /// Nothing gets from one machine to another.
    OneWay(Node, Node),
    /// Two machines do not reach each other.
    TwoWays(Node, Node),
    /// A machine reaches no other server.
    CutOff(usize),
    /// A connection breaks.
    Break,
    /// The store has no leader for a while.
    StoreDown,
    /// A disk answers nothing that has to wait for it.
    Hang(usize, BrickId),
    /// A disk is full.
    Full(usize, BrickId),
    /// Changes to a disk fail.
    Writes(usize, BrickId),
    /// Reads from a disk fail.
    Reads(usize, BrickId),
    /// Syncs of a disk fail, and what they should have written is dropped.
    Syncs(usize, BrickId),
    /// A brick loses everything: its disk is replaced by an empty one.
    Wipe,
    /// Somebody sets a wall clock.
    ClockJump,
    /// A client dies.
    ClientDies,
    /// A call is interrupted.
    Interrupt,
}

fn kinds() -> Vec<(Fault, Family, usize)> {
    use Family::{Disks, Network, Power, Processes};
    let (a, b) = (Node::Server(0), Node::Server(0));
    let none = BrickId(0);
    // How often each is drawn, compared with the others.
    vec![
        (Fault::Kill, Processes, 3),
        (Fault::KillAtWork, Processes, 3),
        (Fault::Stop, Processes, 1),
        (Fault::Freeze(0), Processes, 3),
        (Fault::ClockJump, Processes, 1),
        (Fault::ClientDies, Processes, 1),
        (Fault::Interrupt, Processes, 2),
        (Fault::PowerCut, Power, 2),
        (Fault::PowerCutAtWork, Power, 2),
        (Fault::Blackout, Power, 1),
        (Fault::Slow(0), Network, 2),
        (Fault::OneWay(a, b), Network, 2),
        (Fault::TwoWays(a, b), Network, 2),
        (Fault::CutOff(0), Network, 2),
        (Fault::Break, Network, 3),
        (Fault::StoreDown, Network, 1),
        (Fault::Hang(0, none), Disks, 1),
        (Fault::Full(0, none), Disks, 1),
        (Fault::Writes(0, none), Disks, 1),
        (Fault::Reads(0, none), Disks, 1),
        (Fault::Syncs(0, none), Disks, 1),
        (Fault::Wipe, Disks, 3),
    ]
}

/// The run's faults.
#[derive(Debug)]
pub(crate) struct Faults {
    kinds: Vec<Fault>,
    every: Duration,
    /// When the power of all machines fails for certain.
    blackout_at: Option<Duration>,
}

impl Faults {
    pub(crate) fn draw(rng: &mut Prng, config: &Config) -> Faults {
        let share = 150 + rng.below(600);
        let mut chosen = Vec::new();
        for (kind, family, weight) in kinds() {
            let allowed = kind != Fault::Blackout || config.power == Power::Blackout || rng.chance(100);
            if allowed && config.faults.contains(&family) && rng.chance(share) {
                chosen.extend(std::iter::repeat_n(kind, weight));
            }
        }
        let storm = config.storm;
        let blackout_at = (config.power == Power::Blackout).then(|| rng.between(storm / 4, storm));
        Faults { kinds: chosen, every: rng.millis(80, 2500), blackout_at }
    }

    pub(crate) fn blackout_at(&self) -> Option<Duration> {
        self.blackout_at
    }
}

impl World {
    pub(crate) fn fault(&mut self) {
        if self.phase != crate::rest::Phase::Storm {
            return;
        }
        let every = self.faults.every;
        let delay = self.rng.between(every / 8, every * 2);
        self.at(self.now + delay, Event::Fault);
        if let Some(kind) = self.rng.pick(&self.faults.kinds.clone()).copied() {
            self.inject(kind);
        }
    }

    /// A machine, and one of its bricks if it has any.
    fn pick_brick(&mut self) -> Option<(usize, BrickId)> {
        let m = self.rng.below(self.machines.len());
        let bricks: Vec<BrickId> = self.machines[m].disks.keys().copied().collect();
        self.rng.pick(&bricks).map(|b| (m, *b))
    }

    fn pick_node(&mut self) -> Node {
        let servers = self.machines.len();
        match self.rng.below(servers + self.clients.len()) {
            n if n < servers => Node::Server(n),
            n => Node::Client(n - servers),
        }
    }

    fn inject(&mut self, kind: Fault) {
        let m = self.rng.below(self.machines.len());
        let lasts = if self.rng.chance(600) { self.rng.millis(5, 1500) } else { self.rng.millis(1500, 8000) };
        let undo = match kind {
            Fault::Kill => return self.kill(m, "killed"),
            Fault::Stop => return self.stop(m),
            Fault::PowerCut => return self.cut_power(m),
            Fault::KillAtWork | Fault::PowerCutAtWork => return self.die_at_work(m, kind),
            Fault::Blackout => return self.blackout(),
            Fault::Break => return self.break_one(),
            Fault::Wipe => return self.wipe(m),
            Fault::ClockJump => return self.jump(m),
            Fault::ClientDies => return self.client_dies(),
            Fault::Interrupt => {
                let c = self.rng.below(self.clients.len());
                return self.interrupt(c);
            }
            Fault::Freeze(_) if self.machines[m].lives() => {
                self.count("frozen process");
                self.freeze(m);
                Fault::Freeze(m)
            }
            Fault::Slow(_) => {
                self.count("slow machine");
                let extra = self.rng.millis(1, 300);
                self.network.set_slow(Node::Server(m), extra);
                Fault::Slow(m)
            }
            Fault::OneWay(..) | Fault::TwoWays(..) => {
                let (a, b) = (Node::Server(m), self.pick_node());
                let one = matches!(kind, Fault::OneWay(..));
                self.count(if one { "one-way cut" } else { "two-way cut" });
                let (a, b) = if self.rng.chance(500) { (a, b) } else { (b, a) };
                self.cut_path(a, b);
                if one {
                    Fault::OneWay(a, b)
                } else {
                    self.cut_path(b, a);
                    Fault::TwoWays(a, b)
                }
            }
            Fault::CutOff(_) => return self.cut_off(m, lasts),
            Fault::StoreDown => {
                self.count("store without leader");
                self.store.fall(self.now + lasts);
                return;
            }
            Fault::Hang(..) | Fault::Full(..) | Fault::Writes(..) | Fault::Reads(..) | Fault::Syncs(..) => {
                let Some((m, brick)) = self.pick_brick() else { return };
                self.spoil(kind, m, brick)
            }
            _ => return,
        };
        say!(self, "fault: {undo:?} for {lasts:?}");
        self.at(self.now + lasts, Event::Undo(undo));
    }

    /// A machine reaches no other server.
    pub(crate) fn cut_off(&mut self, m: usize, lasts: Duration) {
        self.count("server cut off");
        for other in (0..self.machines.len()).filter(|o| *o != m) {
            self.cut_path(Node::Server(m), Node::Server(other));
            self.cut_path(Node::Server(other), Node::Server(m));
        }
        let undo = Fault::CutOff(m);
        say!(self, "fault: {undo:?} for {lasts:?}");
        self.at(self.now + lasts, Event::Undo(undo));
    }

    fn spoil(&mut self, kind: Fault, m: usize, brick: BrickId) -> Fault {
        let now = self.now;
        let rng = &mut self.rng;
        let Some(disk) = self.machines[m].disks.get_mut(&brick) else { return kind };
        let (fault, what, errno) = match kind {
            Fault::Hang(..) => {
                disk.hangs = true;
                (Fault::Hang(m, brick), "hung disk", None)
            }
            Fault::Full(..) => {
                disk.fault(|f| f.full = true);
                (Fault::Full(m, brick), "full disk", Some(Errno::ENOSPC))
            }
            Fault::Writes(..) if rng.chance(500) => {
                let left = rng.below(40) as u64;
                disk.fault(|f| f.writes_left = Some(left));
                (Fault::Writes(m, brick), "changes fail after some", Some(Errno::EIO))
            }
            Fault::Writes(..) => {
                disk.fault(|f| f.writes = Some(Errno::EIO));
                (Fault::Writes(m, brick), "changes fail", Some(Errno::EIO))
            }
            Fault::Reads(..) => {
                disk.fault(|f| f.reads = Some(Errno::EIO));
                (Fault::Reads(m, brick), "reads fail", Some(Errno::EIO))
            }
            _ => {
                disk.fault(|f| f.syncs = Some(Errno::EIO));
                (Fault::Syncs(m, brick), "syncs fail", Some(Errno::EIO))
            }
        };
        if let Some(errno) = errno {
            self.ledger.disk_fails(now, brick, errno);
        }
        self.count(what);
        fault
    }

    /// A process ends in the middle of what it does, alone or with its machine.
    fn die_at_work(&mut self, m: usize, kind: Fault) {
        if !self.machines[m].lives() {
            return;
        }
        let power = kind == Fault::PowerCutAtWork;
        self.machines[m].dies_with_power = power;
        if self.rng.chance(400) && !power {
            self.machines[m].dies_in = u32::try_from(self.rng.below(30)).ok();
        } else {
            let bricks: Vec<BrickId> = self.machines[m].disks.keys().copied().collect();
            let calls = 1 + self.rng.below(60) as u64;
            if let Some(brick) = self.rng.pick(&bricks)
                && let Some(disk) = self.machines[m].disks.get_mut(brick)
            {
                disk.power_left(Some(calls));
            }
        }
    }

    /// The power of all machines fails at once.
    pub(crate) fn blackout(&mut self) {
        self.count("blackout");
        for m in 0..self.machines.len() {
            self.cut_power(m);
        }
    }

    /// The disk of a brick that is not in sync is replaced by an empty one. (That of a brick in sync may hold what no other
    /// brick has a moment later: then the data is gone for good. The same is true of a brick that has healed: it may be
    /// agreed at any time that it is in sync.)
    fn wipe(&mut self, m: usize) {
        let Some((m, brick)) = self.pick_brick().filter(|(n, _)| *n == m) else { return };
        if self.store.counts_on(brick) || self.has_healed(m, brick) {
            return;
        }
        self.kill(m, "killed to be wiped");
        self.count("wiped brick");
        say!(self, "server {m}: brick {brick} is wiped");
        let World { machines, rule, .. } = self;
        if let Some(disk) = machines[m].disks.get_mut(&brick) {
            disk.wipe(*rule);
        }
        self.ledger.power_failed(self.now, brick);
    }

    /// Whether a brick waits to be let in.
    fn has_healed(&mut self, m: usize, brick: BrickId) -> bool {
        let Some(set) = self.store.state().brick(brick).map(|(set, _)| set.id) else { return false };
        let shown = self.shown(m);
        let Some(serving) = self.process(m).and_then(|p| p.serving(set)) else { return false };
        let report = serving.borrow_mut().core.report(shown);
        report.role == replica::Role::Healing && !report.uncertain
    }

    fn jump(&mut self, m: usize) {
        self.count("clock set");
        let seconds = i64::try_from(self.rng.below(20_000)).unwrap_or(0) - 10_000;
        say!(self, "server {m}: its clock is set {seconds} s on");
        self.machines[m].clock.jump(seconds);
    }

    fn client_dies(&mut self) {
        let living: Vec<usize> = (0..self.clients.len()).filter(|c| self.clients[*c].alive).collect();
        if living.len() > 1
            && let Some(c) = self.rng.pick(&living).copied()
        {
            self.count("client died");
            self.kill_client(c);
        }
    }

    pub(crate) fn undo(&mut self, fault: Fault) {
        match fault {
            Fault::Freeze(m) => self.thaw(m),
            Fault::Slow(m) => self.network.set_slow(Node::Server(m), Duration::ZERO),
            Fault::OneWay(a, b) => self.repair_path(a, b),
            Fault::TwoWays(a, b) => {
                self.repair_path(a, b);
                self.repair_path(b, a);
            }
            Fault::CutOff(m) => {
                for other in (0..self.machines.len()).filter(|o| *o != m) {
                    self.repair_path(Node::Server(m), Node::Server(other));
                    self.repair_path(Node::Server(other), Node::Server(m));
                }
            }
            Fault::Hang(m, brick)
            | Fault::Full(m, brick)
            | Fault::Writes(m, brick)
            | Fault::Reads(m, brick)
            | Fault::Syncs(m, brick) => self.heal_disk(m, brick),
            _ => {}
        }
    }

    fn heal_disk(&mut self, m: usize, brick: BrickId) {
        if let Some(disk) = self.machines[m].disks.get_mut(&brick) {
            disk.heal();
            self.ledger.disk_heals(self.now, brick);
        }
    }

    /// The storm ends.
    pub(crate) fn end_faults(&mut self) {
        self.network.calm();
        self.repair_paths();
        self.store.fall(self.now);
        for m in 0..self.machines.len() {
            (self.machines[m].dies_in, self.machines[m].dies_between) = (None, None);
            self.network.set_slow(Node::Server(m), Duration::ZERO);
            self.thaw(m);
            for brick in self.machines[m].disks.keys().copied().collect::<Vec<_>>() {
                self.heal_disk(m, brick);
            }
        }
    }
}
