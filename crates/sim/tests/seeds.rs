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
