//! Messages that nobody of good will would send, given to a set with its real brick: whatever comes over the network is
//! answered or dropped, and meets no assertion and no overflow. What a set sends in return fits into frames.
//!
//! The messages are the frozen samples of the wire's format, changed at random places. `HOSTILE_SEEDS=N` runs more of them;
//! a seed that fails is printed and run again by `HOSTILE_START=SEED HOSTILE_SEEDS=1`.
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that fails says where, and one that does not what it did"
)]

mod keyed;
mod messages;
mod set;

use messages::Messages;
use set::{Role, Set};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Messages of one run.
const MESSAGES: usize = 150;

fn number(variable: &str, usual: u64) -> u64 {
    std::env::var(variable).ok().and_then(|n| n.parse().ok()).unwrap_or(usual)
}

/// What a run did, so that a test can see that it did something.
#[derive(Default)]
struct Reached {
    answered: usize,
    refused: usize,
    sent: usize,
    worked: usize,
    failed: usize,
}

impl Reached {
    fn add(&mut self, set: &Set) {
        self.answered += set.answered;
        self.refused += set.refused;
        self.sent += set.sent;
        self.worked += set.worked;
        self.failed += usize::from(set.has_failed());
    }
}

fn run(seed: u64, said: &mut Reached) {
    let mut messages = Messages::new(seed);
    let role =
        [Role::Alone, Role::Primary, Role::Secondary, Role::Joiner][usize::try_from(seed % 4).unwrap()];
    let mut set = Set::new(role, seed);
    // Half of the runs hear clients and other sets only, which must not cost the brick its place.
    let clients_only = (seed / 4).is_multiple_of(2);
    for _ in 0..MESSAGES {
        set.go_on(&mut messages);
        let known = set.known();
        if clients_only || messages.chance(2) {
            set.request(messages.call(&known), messages.payload());
        } else {
            set.peer(messages.peer(&known), messages.payload());
        }
    }
    assert!(!clients_only || !set.has_failed(), "{role:?}: a client's request made the brick fail");
    said.add(&set);
}

/// Runs of several seeds.
struct SeedRuns {
    start: u64,
    seeds: u64,
}

impl SeedRuns {
    /// So many, unless the environment says otherwise.
    fn new(usual: u64) -> SeedRuns {
        SeedRuns { start: number("HOSTILE_START", 1), seeds: number("HOSTILE_SEEDS", usual) }
    }

    /// Too few to say that all was reached.
    fn are_few(&self) -> bool {
        self.seeds < 100
    }

    /// What they did, if none failed.
    fn all(&self, run: fn(u64, &mut Reached)) -> Reached {
        let SeedRuns { start, seeds } = *self;
        let mut said = Reached::default();
        let mut failed = Vec::new();
        for seed in start..start + seeds {
            if catch_unwind(AssertUnwindSafe(|| run(seed, &mut said))).is_err() {
                failed.push(seed);
            }
        }
        println!(
            "{seeds} seeds: {} answered, {} refused, {} sent, {} works, {} sets failed",
            said.answered, said.refused, said.sent, said.worked, said.failed
        );
        assert!(failed.is_empty(), "HOSTILE_START={} HOSTILE_SEEDS=1 and others: {failed:?}", failed[0]);
        said
    }
}

#[test]
fn whatever_comes_is_answered_or_dropped() {
    let runs = SeedRuns::new(400);
    let said = runs.all(run);
    assert!(
        runs.are_few() || (said.answered > 100 && said.refused > 100 && said.sent > 100 && said.worked > 100)
    );
}
