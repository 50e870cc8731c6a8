//! Runs seeds of the simulator.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command for developers")]

use sim::{Config, Failure, Mutant, Stats, run};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const USAGE: &str =
    "sim [--seeds N] [--start S] [--seed X [--trace]] [--blackout] [--slow-syncs] [--mutant M] [--jobs J]";

struct Asked {
    seeds: u64,
    start: u64,
    jobs: u64,
    only: bool,
    config: Config,
}

fn parse() -> Option<Asked> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).ok()?;
    let start = now.as_secs() % 1_000_000 * 1_000_000;
    let mut asked = Asked { seeds: 1000, start, jobs: 2, only: false, config: Config::default() };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut number = || args.next()?.parse::<u64>().ok();
        match arg.as_str() {
            "--seeds" => asked.seeds = number()?,
            "--start" => asked.start = number()?,
            "--jobs" => asked.jobs = number()?.max(1),
            "--seed" => {
                asked.start = number()?;
                (asked.seeds, asked.jobs, asked.only) = (1, 1, true);
            }
            "--trace" => asked.config.trace = true,
            "--mutant" => {
                let name = args.next()?;
                asked.config.mutant = Mutant::ALL.into_iter().find(|m| format!("{m:?}") == name)?;
            }
            "--blackout" => asked.config.blackout = true,
            "--slow-syncs" => {
                asked.config.slow_syncs = true;
                asked.config.calm = Duration::from_secs(240);
            }
            _ => return None,
        }
    }
    Some(asked)
}

thread_local! {
    static SEED: core::cell::Cell<u64> = const { core::cell::Cell::new(0) };
}

fn main() -> ExitCode {
    let Some(asked) = parse() else {
        eprintln!("usage: {USAGE}");
        return ExitCode::from(2);
    };
    // The release profile aborts on a failed assertion: say first whose it was.
    let (trace, usual) = (asked.config.trace, std::panic::take_hook());
    std::panic::set_hook(Box::new(move |info| {
        usual(info);
        if !trace {
            eprintln!("seed {}: replay with --seed {0} --trace in the dev profile", SEED.get());
        }
    }));
    let began = std::time::Instant::now();
    let next = AtomicU64::new(asked.start);
    let found: Mutex<(u64, Stats, Vec<Failure>)> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..asked.jobs {
            scope.spawn(|| work(&asked, &next, &found));
        }
    });
    let (count, stats, failures) = found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    for failure in failures.iter().take(3) {
        println!("{failure}");
    }
    let took = began.elapsed().as_secs_f64();
    println!(
        "{count} seeds from {} in {took:.1} s ({:.1}/s), {} failed: {:?}",
        asked.start,
        f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / took,
        failures.len(),
        failures.iter().map(|f| f.seed).take(20).collect::<Vec<_>>()
    );
    println!(
        "{} events, {} operations, {} changes, {} views",
        stats.events, stats.ops, stats.changes, stats.views
    );
    println!("faults: {:?}", stats.faults);
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn work(asked: &Asked, next: &AtomicU64, found: &Mutex<(u64, Stats, Vec<Failure>)>) {
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= asked.start + asked.seeds {
            return;
        }
        SEED.set(seed);
        let result = run(seed, &asked.config);
        let mut all = found.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        all.0 += 1;
        match result {
            Ok(stats) => {
                if asked.only {
                    println!("seed {seed}: {stats:?}");
                }
                all.1.add(&stats);
            }
            Err(failure) => {
                if !asked.only {
                    println!("seed {seed}: {}", failure.what);
                }
                all.2.push(failure);
            }
        }
        if all.2.len() >= 40 {
            return;
        }
    }
}
