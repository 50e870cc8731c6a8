//! What an administrator does while faults happen: more sets, more or fewer copies, other bricks for those that are there.
//!
//! The commands are the product's, and go to the pool's store as an administrator's do: late, or in vain. Numbers of its own
//! ([`Prng`]) say which: a run without them is the same run as before there was an administrator.

use crate::disk::Disk;
use crate::rest::Phase;
use crate::rng::Prng;
use crate::store::{Ask, machine_of, server_id};
use crate::trace::say;
use crate::world::{Event, World};
use crate::{Config, Family};
use cluster::{BrickSpec, Command, FewerCopies, MoreCopies, NewBrick, NewBricks, Set, State, Volume};
use core::time::Duration;

/// More copies or sets than that are not made: a run is to end.
const MOST: u32 = 4;

/// See the module.
#[derive(Debug)]
pub(crate) struct Administrator {
    rng: Prng,
    /// `None`: the volume stays as it is.
    every: Option<Duration>,
    /// Directories named so far.
    paths: u32,
}

impl Administrator {
    pub(crate) fn draw(seed: u64, config: &Config) -> Administrator {
        let mut rng = Prng::new(seed ^ 0x61_646d_696e);
        let works = config.faults.contains(&Family::Members);
        let every = rng.millis(300, 4000);
        Administrator { rng, every: works.then_some(every), paths: 0 }
    }

    /// After which time something is done next.
    pub(crate) fn next(&mut self) -> Option<Duration> {
        let every = self.every?;
        Some(self.rng.between(every / 4, every * 2))
    }

    fn draw_command(&mut self, state: &State, servers: usize) -> Option<Command> {
        let volume = state.volumes.values().next()?;
        match self.rng.below(10) {
            0..3 => self.more_copies(state, volume, servers),
            3..6 => self.fewer_copies(state, volume),
            6..9 => self.other_brick(state, volume, servers),
            _ => self.more_sets(state, volume, servers),
        }
    }

    fn path(&mut self) -> String {
        self.paths += 1;
        format!("/n{}", self.paths)
    }

    fn more_copies(&mut self, state: &State, volume: &Volume, servers: usize) -> Option<Command> {
        let replica = volume.replica + 1;
        let arbiter = u32::from(replica == 3 && self.rng.chance(400));
        let mut bricks = Vec::new();
        for set in state.sets_of(volume) {
            bricks.push(self.free_place(set, servers)?);
        }
        let volume = volume.name.clone();
        (replica <= MOST).then_some(Command::AddCopies(MoreCopies { volume, replica, arbiter, bricks }))
    }

    fn fewer_copies(&mut self, state: &State, volume: &Volume) -> Option<Command> {
        let mut bricks = Vec::new();
        for set in state.sets_of(volume) {
            let fit: Vec<&cluster::Brick> = set.bricks.iter().filter(|b| !b.leaving).collect();
            let arbiter = fit.iter().find(|b| b.arbiter).copied();
            let gone = arbiter.or_else(|| self.rng.pick(&fit).copied())?;
            bricks.push(gone.spec());
        }
        let (volume, replica) = (volume.name.clone(), volume.replica.checked_sub(1)?);
        let force = self.rng.chance(500);
        Some(Command::RemoveCopies(FewerCopies { volume, replica, bricks, force }))
    }

    fn other_brick(&mut self, state: &State, volume: &Volume, servers: usize) -> Option<Command> {
        let sets: Vec<&Set> = state.sets_of(volume).collect();
        let set = *self.rng.pick(&sets)?;
        let old = self.rng.pick(&set.bricks)?.clone();
        let new = match self.free_place(set, servers).filter(|_| !self.rng.chance(300)) {
            Some(new) => new,
            None => BrickSpec { server: old.server, path: self.path() },
        };
        let (set, expect_epoch) = (set.id, set.view.epoch);
        Some(Command::ReplaceBrick(NewBrick { set, expect_epoch, old: old.id, new, force: true }))
    }

    fn more_sets(&mut self, state: &State, volume: &Volume, servers: usize) -> Option<Command> {
        let replica = usize::try_from(volume.replica).ok()?;
        if volume.sets.len() >= MOST as usize || replica > servers {
            return None;
        }
        let first = self.rng.below(servers);
        let place = |i: usize| server_id((first + i) % servers);
        let bricks = (0..replica).map(|i| BrickSpec { server: place(i), path: self.path() }).collect();
        let volume = volume.name.clone();
        let expect_brick = state.next_brick;
        Some(Command::AddBricks(NewBricks { volume, bricks, force: false, expect_brick }))
    }

    /// A directory of a server that has no brick of the set.
    fn free_place(&mut self, set: &Set, servers: usize) -> Option<BrickSpec> {
        let free: Vec<usize> =
            (0..servers).filter(|m| set.bricks.iter().all(|b| machine_of(b.server) != *m)).collect();
        let server = server_id(*self.rng.pick(&free)?);
        Some(BrickSpec { server, path: self.path() })
    }
}

impl World {
    /// The administrator gives a command to any server that runs.
    pub(crate) fn administer(&mut self) {
        let Some(next) = self.administrator.next().filter(|_| self.phase == Phase::Storm) else { return };
        self.at(self.now + next, Event::Administer);
        let living: Vec<usize> = (0..self.machines.len()).filter(|m| self.machines[*m].lives()).collect();
        let state = self.store.state().clone();
        let World { administrator, machines, .. } = self;
        let Some(m) = administrator.rng.pick(&living).copied() else { return };
        if let Some(command) = administrator.draw_command(&state, machines.len()) {
            self.ask_store(self.now, m, Ask::Propose(command, None));
        }
    }

    /// Bricks that the pool has now get their disks. Those of new sets are made bricks, as their servers do before the pool
    /// takes them; others are filled, and begin with an empty directory.
    pub(crate) fn members_changed(&mut self, before: &State, now: &State, command: &Command) {
        let done = match command {
            Command::AddCopies(_) => "copies added",
            Command::RemoveCopies(_) => "copies removed",
            Command::ReplaceBrick(_) => "brick replaced",
            Command::AddBricks(_) => "set added",
            _ => return self.note_departures(before, now),
        };
        self.count(done);
        say!(self, "administrator: {command:?}");
        for (set, brick) in now.bricks().filter(|(_, b)| before.brick(b.id).is_none()) {
            let slow = self.config.slow_syncs;
            let disk = Disk::new(&mut self.administrator.rng, self.rule, slow, &brick.path);
            if !before.sets.contains_key(&set.id) {
                crate::pool::format(now, set, brick, &disk);
            }
            self.ledger.member(set.id, brick);
            self.machines[machine_of(brick.server)].disks.insert(brick.id, disk);
        }
        self.note_departures(before, now);
    }

    fn note_departures(&mut self, before: &State, now: &State) {
        for (set, brick) in before.bricks().filter(|(_, b)| now.brick(b.id).is_none()) {
            let led = set.view.primary == Some(brick.id);
            self.count(if led { "primary left its set" } else { "brick left its set" });
        }
        for (_, brick) in before.bricks().filter(|(_, b)| b.joining) {
            if now.brick(brick.id).is_some_and(|(_, b)| !b.joining) {
                self.count("copy came in sync");
            }
        }
    }
}
