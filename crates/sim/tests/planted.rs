//! Mistakes that are planted in what clients were told of striped files are noticed.
#![allow(clippy::print_stdout, reason = "a test tells what it found")]

use sim::{Config, Family, Planted, run};

/// Runs, and how many of those with a mistake may go unnoticed: another call at the same time may explain it.
const RUNS: u64 = 40;

fn check(planted: Planted) {
    let faults = vec![Family::Stripes];
    let right = Config { faults, calm: Config::PIECES_GO, ..Config::default() };
    let wrong = Config { planted: Some(planted), ..right.clone() };
    let (mut noticed, mut unnoticed) = (0, 0);
    for seed in 0..RUNS {
        match run(seed, &wrong) {
            Ok(stats) => unnoticed += u32::from(stats.counts.contains_key("mistake planted")),
            Err(failure) => {
                assert!(failure.what.contains("no order explains"), "{failure}");
                assert!(run(seed, &right).is_ok(), "seed {seed} is right without it");
                noticed += 1;
            }
        }
    }
    println!("{planted:?}: {noticed} noticed, {unnoticed} not");
    assert!(noticed >= 10 && noticed >= 9 * unnoticed, "{planted:?}: {noticed} noticed, {unnoticed} not");
}

#[test]
fn a_wrong_unit() {
    check(Planted::WrongUnit);
}

#[test]
fn a_lost_write() {
    check(Planted::LostWrite);
}

#[test]
fn a_stale_size() {
    check(Planted::StaleSize);
}
