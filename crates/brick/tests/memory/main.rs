//! Bricks on file systems in memory that lose what was not synced: random changes, syncs, and power cuts at any call.
//!
//! Fresh seeds each run, printed with what fails. `BRICK_SEED=N` repeats one, `BRICK_SEEDS=N` runs so many.
#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "tests, which show seeds")]

#[path = "../common/mod.rs"]
mod common;
mod copies;
mod dir_moves;
mod disk;
mod entries;
mod failed;
mod hand_over;
mod handed;
mod handed_heal;
mod life;
mod marks;
mod pages;
mod segments;
mod stubs;
mod swaps;
mod synced;

use life::Life;
use memory_fs::CrashRule;
use std::hash::{BuildHasher, RandomState};
use std::time::{Duration, Instant};

/// How long a usual run takes for each rule.
const USUAL: Duration = Duration::from_secs(1);

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap())
}

/// Says which seed it was, if the test fails.
struct Seed(u64, CrashRule);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            println!("BRICK_SEED={} {:?}", self.0, self.1);
        }
    }
}

fn run(rule: CrashRule) {
    let one = |seed| {
        let _say = Seed(seed, rule);
        Life::new(seed, rule).run();
    };
    if let Some(seed) = number("BRICK_SEED") {
        return one(seed);
    }
    let most = number("BRICK_SEEDS");
    let (first, began) = (RandomState::new().hash_one(0) >> 8, Instant::now());
    let mut count = 0;
    while most.map_or(began.elapsed() < USUAL, |most| count < most) {
        one(first + count);
        count += 1;
    }
    println!("{rule:?}: {count} seeds from {first}");
}

#[test]
fn power_cuts_on_an_ordered_file_system() {
    run(CrashRule::Ordered);
}

#[test]
fn power_cuts_on_a_hostile_file_system() {
    run(CrashRule::Hostile);
}

/// Lives that once ended badly: with an object made twice, a healing that failed for ever, a file that stayed without a name.
#[test]
fn lives_that_ended_badly() {
    for seed in [0, 27_466_004_328_202_836, 29_279_563_052_447_279] {
        let _say = Seed(seed, CrashRule::Ordered);
        Life::new(seed, CrashRule::Ordered).run();
    }
}

/// With the same seed everything happens in the same way: a failure can be repeated.
#[test]
fn equal_seeds_make_equal_lives() {
    for seed in 0..10 {
        let trace = || Life::new(seed, CrashRule::Ordered).run();
        assert_eq!(trace(), trace(), "seed {seed}");
    }
}
