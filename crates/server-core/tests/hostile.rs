//! Messages that nobody of good will would send, given to a set with its real brick: whatever comes over the network is
//! answered or dropped, and meets no assertion and no overflow. What a set sends in return fits into frames.
//!
//! The messages are the frozen samples of the wire's format, changed at random places. `HOSTILE_SEEDS=N` runs more of them;
//! a seed that fails is printed and run again by `HOSTILE_START=SEED HOSTILE_SEEDS=1`.
#![allow(clippy::unwrap_used, reason = "a test that fails says where")]

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
    said.answered += set.answered;
    said.refused += set.refused;
    said.sent += set.sent;
    said.worked += set.worked;
    said.failed += usize::from(set.has_failed());
}

#[test]
fn whatever_comes_is_answered_or_dropped() {
    let (start, seeds) = (number("HOSTILE_START", 1), number("HOSTILE_SEEDS", 400));
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
    assert!(
        seeds < 100 || (said.answered > 100 && said.refused > 100 && said.sent > 100 && said.worked > 100)
    );
}
