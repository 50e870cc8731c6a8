//! Whole sets with their clients, network, disks and clocks in one thread, from one seed.
//!
//! Owns: a world in which [`replica::Replica`] runs as it does in the daemon, the faults that befall it, and the properties
//! that must hold whatever happens (one file each in `check`). After TigerBeetle's VOPR and FoundationDB's simulation:
//! a storm of faults first, then calm, in which everything has to come to rest and agree.
//! Real are: the rules of names, the order and acknowledgement of changes, views and leases, rejoin and healing (crates
//! `namespace`, `replica` and `cluster`). Modelled are: the pool store's own agreement (one copy of the state stands for it),
//! bytes on the wire, and the bricks' file systems (module `disk`).
//! Invariant: equal seeds and configurations give equal runs, event by event.

mod answer;
mod brick;
mod check;
mod client;
mod disk;
mod faults;
mod heal;
mod log;
mod mend;
mod net;
mod patient;
mod rng;
mod server;
mod store;
mod tree;
mod world;

pub use rng::Prng;

use core::fmt;
use core::time::Duration;
use std::collections::BTreeMap;

/// A driver broken on purpose, to see that the checkers notice.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Mutant {
    /// As it should be.
    #[default]
    None,
    /// A change is answered when this brick has applied it, whatever the others say.
    AnswersEarly,
    /// Leases never run out.
    IgnoresLeases,
    /// Reads do not wait for changes that are under way.
    ShowsPending,
    /// A restarted brick remembers no results.
    ForgetsResults,
    /// A secondary acknowledges what it has only received.
    AcksEarly,
    /// The pool store replaces a server before its lease has run out.
    HastyStore,
    /// A restarted brick acts in the epoch it finds.
    NoFloor,
    /// A brick that heals journals the new changes, and does not apply them.
    HealsWithoutLive,
    /// A brick that heals says that it has before everything is compared.
    HealsHastily,
    /// A healing that was interrupted leaves no mark.
    ForgetsDoubt,
    /// After a power cut a brick trusts its tree.
    TrustsAfterPowerCut,
    /// A healing waits for lost answers as long as any change arrives.
    HealsPatiently,
    /// A sync does not tell the application of a loss before it.
    SyncsPastLosses,
    /// Nobody sends a new primary what it lacks.
    KeepsNothing,
}

impl Mutant {
    /// All that are broken.
    pub const ALL: [Mutant; 14] = [
        Mutant::AnswersEarly,
        Mutant::IgnoresLeases,
        Mutant::ShowsPending,
        Mutant::ForgetsResults,
        Mutant::AcksEarly,
        Mutant::HastyStore,
        Mutant::NoFloor,
        Mutant::HealsWithoutLive,
        Mutant::HealsHastily,
        Mutant::ForgetsDoubt,
        Mutant::TrustsAfterPowerCut,
        Mutant::HealsPatiently,
        Mutant::SyncsPastLosses,
        Mutant::KeepsNothing,
    ];
}

/// How to run.
#[derive(Clone, Debug)]
pub struct Config {
    /// How long faults happen, in virtual time.
    pub storm: Duration,
    /// How long everything may take to come to rest after that.
    pub calm: Duration,
    /// What is broken.
    pub mutant: Mutant,
    /// Power may fail on all servers at once: acknowledged changes may be lost then, synced ones not.
    pub blackout: bool,
    /// Disks take seconds for a sync.
    pub slow_syncs: bool,
    /// Keep the words of every event.
    pub trace: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            storm: Duration::from_secs(25),
            calm: Duration::from_secs(90),
            mutant: Mutant::None,
            blackout: false,
            slow_syncs: false,
            trace: false,
        }
    }
}

/// What a run came to.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Events.
    pub events: u64,
    /// Operations that were answered.
    pub ops: u64,
    /// Changes in the final journals.
    pub changes: u64,
    /// Views that the store agreed on.
    pub views: u64,
    /// Faults by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Hash of all events.
    pub hash: u64,
}

impl Stats {
    /// Adds another run's.
    pub fn add(&mut self, other: &Stats) {
        self.events += other.events;
        self.ops += other.ops;
        self.changes += other.changes;
        self.views += other.views;
        for (k, n) in &other.faults {
            *self.faults.entry(k).or_default() += n;
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

/// Lines of a failure, unless all words were asked for.
const TAIL: usize = 100;

/// Runs one seed.
///
/// # Errors
/// The property that did not hold, with the last events before it.
pub fn run(seed: u64, config: &Config) -> Result<Stats, Failure> {
    match attempt(seed, config) {
        Ok(stats) => Ok(stats),
        // The same once more, for its words.
        Err(first) if !config.trace => {
            let again = attempt(seed, &Config { trace: true, ..config.clone() });
            let tail =
                |f: Failure| Failure { trace: f.trace.into_iter().rev().take(TAIL).rev().collect(), ..f };
            Err(again
                .err()
                .map(tail)
                .unwrap_or(Failure { what: format!("{} (and not again!)", first.what), ..first }))
        }
        Err(failure) => Err(failure),
    }
}

fn attempt(seed: u64, config: &Config) -> Result<Stats, Failure> {
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
    Err(Failure { seed, what, trace: world.log.tail() })
}
