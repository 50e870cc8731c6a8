//! Fresh seeds, the seeds that once found something, and that a run can be repeated.

use sim::{Config, run};
use std::sync::atomic::{AtomicU64, Ordering};

fn check(seed: u64, config: &Config) {
    if let Err(failure) = run(seed, config) {
        panic!("{failure}");
    }
}

#[test]
fn fresh_seeds() {
    let count = std::env::var("MORTAR_SIM_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(1500);
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let base = now.as_secs() * 100_000;
    println!("{count} seeds from {base}");
    let next = AtomicU64::new(base);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= base + count {
                        return;
                    }
                    check(seed, &Config::default());
                }
            });
        }
    });
}

#[test]
fn a_seed_gives_the_same_run() {
    for seed in 0..20 {
        let (a, b) = (run(seed, &Config::default()).unwrap(), run(seed, &Config::default()).unwrap());
        assert_eq!((a.hash, a.events, a.ops), (b.hash, b.events, b.ops), "seed {seed}");
        let words = Config { trace: true, ..Config::default() };
        assert_eq!(a.hash, run(seed, &words).unwrap().hash, "words change nothing");
    }
}

#[test]
fn different_seeds_give_different_runs() {
    let hash = |seed| run(seed, &Config::default()).unwrap().hash;
    assert_ne!(hash(1), hash(2));
}

/// Power cuts of all servers at once: what was synced is there afterwards.
#[test]
fn blackouts() {
    let config = Config { blackout: true, ..Config::default() };
    (0..150).for_each(|seed| check(seed, &config));
}

// Seeds that found something. What they find again depends on the simulator's own draws: they were renewed last, each with its
// fix undone, when the simulator began to delay requests.

#[test]
fn a_read_is_not_refused_for_a_change_of_somebody_else() {
    [84, 183, 213].into_iter().for_each(|seed| check(seed, &Config::default()));
}

#[test]
fn a_new_primary_has_journaled_what_it_calls_committed() {
    [4192, 8334, 10563].into_iter().for_each(|seed| check(seed, &Config::default()));
}

#[test]
fn a_secondary_has_journaled_what_it_says_it_has() {
    check(855, &Config::default());
}

#[test]
fn a_late_request_of_an_older_epoch_is_not_done() {
    [46532, 49829].into_iter().for_each(|seed| check(seed, &Config::default()));
}

#[test]
fn a_failed_sync_is_not_forgotten() {
    [4, 8, 37].into_iter().for_each(|seed| check(seed, &Config::default()));
}
