//! A simulated world in one thread, from one seed: machines with clocks, disks and networks, in which the product runs.
//!
//! Owns: the world (clocks, network, processes, disks, the pool store as a register), the faults that are injected into it,
//! what clients do, and what must hold whatever happens. After TigerBeetle's VOPR and FoundationDB's simulation: a storm of
//! faults first, then calm, in which everything has to come to rest and agree.
//! The product runs in it as it ships: `set-core`, `replica`, `namespace`, `brick` (on `memory-fs`), `client-core`,
//! `server-core`, `cluster`, and the codecs of `wire` and `disk-format`. Left out: the agreement of the pool's store (Raft),
//! sockets and threads, and the kernel's FUSE.
//! Invariant: equal seeds and configurations give equal runs, event by event.

mod administrator;
mod arbitration;
mod check;
mod client;
mod clock;
mod control;
mod coverage;
mod disk;
mod faults;
mod history;
mod interruptions;
mod keyed;
mod ledger;
mod links;
mod machine;
mod moves;
mod network;
mod paths;
mod planted;
mod pool;
mod process;
mod questions;
mod rest;
mod rng;
mod store;
mod stripes;
mod succession;
mod trace;
mod workload;
mod world;

pub use interruptions::{Interrupted, Sides, Steps};
pub use planted::Planted;
pub use rng::Prng;
pub use set_core::TransactionKind;

use core::fmt;
use core::time::Duration;
use std::collections::BTreeMap;

/// Which power cuts there are.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Power {
    /// Of single machines; in one run of ten of all at once, too.
    #[default]
    Single,
    /// Of all machines at once, in each run.
    Blackout,
}

/// What a fault concerns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Family {
    /// Processes that are killed, stopped, or stand still; clients that die or give up; clocks that are set.
    Processes,
    /// Paths that are cut, connections that break, slow machines, a store without a leader.
    Network,
    /// Power cuts.
    Power,
    /// Disks that are full, hang, fail, or are lost.
    Disks,
    /// No fault: sets and bricks that an administrator adds, replaces and removes.
    Members,
    /// No fault: files that move to other sets.
    Moves,
    /// No fault: clients often rename directories from one set's to another's.
    Directories,
    /// No fault: they exchange them with what has a name on another set.
    Swaps,
    /// No fault: files grow large and have parts on several sets.
    Stripes,
}

impl Family {
    /// What goes wrong, without an administrator.
    pub const FAULTS: [Family; 4] = [Family::Processes, Family::Network, Family::Power, Family::Disks];
    /// All of them, with clients that do as usual.
    pub const ALL: [Family; 6] =
        [Family::Processes, Family::Network, Family::Power, Family::Disks, Family::Members, Family::Moves];
}

/// How to run.
#[derive(Clone, Debug)]
pub struct Config {
    /// How long faults happen, in simulated time.
    pub storm: Duration,
    /// How long everything may take to come to rest after that.
    pub calm: Duration,
    /// Power cuts.
    pub power: Power,
    /// What goes wrong.
    pub faults: Vec<Family>,
    /// After a power cut any part of what was not synced may be there; else what a journaling file system leaves.
    pub hostile: bool,
    /// Disks take seconds for a sync.
    pub slow_syncs: bool,
    /// Those who take over from each other fail in the worst order, again and again.
    pub successions: bool,
    /// Steps of transactions between sets are interrupted on purpose, each kind of them.
    pub interrupts: bool,
    /// Above all the ends of renames and exchanges, if any steps are.
    pub interrupt_ends: bool,
    /// Calls of all clients, at most.
    pub calls: usize,
    /// Whether what clients were told is checked: else only that all comes to rest and that bricks are alike.
    pub histories: bool,
    /// A mistake in what the checker is told.
    pub planted: Option<Planted>,
    /// Keep the words of every event.
    pub trace: bool,
}

impl Config {
    /// How long everything may take to come to rest where files are striped: pieces go two minutes after their files.
    pub const PIECES_GO: Duration = Duration::from_secs(400);
}

impl Default for Config {
    fn default() -> Config {
        Config {
            storm: Duration::from_secs(12),
            calm: Duration::from_secs(150),
            power: Power::Single,
            faults: Family::FAULTS.to_vec(),
            hostile: true,
            slow_syncs: false,
            successions: false,
            interrupts: false,
            interrupt_ends: false,
            calls: 400,
            histories: true,
            planted: None,
            trace: false,
        }
    }
}

/// What runs came to.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Runs.
    pub runs: u64,
    /// Events.
    pub events: u64,
    /// Calls of clients.
    pub calls: u64,
    /// How often what was reached.
    pub counts: BTreeMap<&'static str, u64>,
    /// How often which step of transactions between sets, and how often it was interrupted.
    pub steps: Steps,
    /// How often which line of the product's log was said.
    pub said: BTreeMap<(&'static str, u32), u64>,
    /// Hash of all events.
    pub hash: u64,
}

impl Stats {
    /// Adds other runs.
    pub fn add(&mut self, other: &Stats) {
        self.runs += other.runs;
        self.events += other.events;
        self.calls += other.calls;
        self.hash ^= other.hash;
        for (k, n) in &other.counts {
            *self.counts.entry(k).or_default() += n;
        }
        self.steps.add(&other.steps);
        for (k, n) in &other.said {
            *self.said.entry(*k).or_default() += n;
        }
    }
}

/// A property did not hold.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The run.
    pub seed: u64,
    /// What was wrong.
    pub what: String,
    /// The last events before it.
    pub trace: Vec<String>,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in &self.trace {
            writeln!(f, "  {line}")?;
        }
        writeln!(f, "seed {}: {}", self.seed, self.what)?;
        write!(f, "replay: cargo run --release -p sim -- --seed {} --trace", self.seed)
    }
}

impl core::error::Error for Failure {}

/// Runs one seed.
///
/// # Errors
/// The property that did not hold; with the words of every event if they were asked for.
pub fn run(seed: u64, config: &Config) -> Result<Stats, Failure> {
    let mut world = world::World::new(seed, config.clone());
    let ran = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| world.run()));
    let what = match ran {
        Ok(Ok(())) => return Ok(world.stats()),
        Ok(Err(what)) => what,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().cloned();
            let text = text.or_else(|| panic.downcast_ref::<&str>().map(|s| (*s).to_owned()));
            format!("assertion: {}", text.unwrap_or_default())
        }
    };
    Err(Failure { seed, what, trace: trace::Trace::lines() })
}
