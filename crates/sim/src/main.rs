//! Runs seeds of the simulator.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command for developers")]

use sim::{Config, Failure, Family, Power, Stats, run};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const USAGE: &str = "sim [--seeds N] [--start S] [--seed X [--trace]] [--blackout] [--slow-syncs] [--successions] [--interrupt] [--interrupt-ends] [--ordered] \
    [--faults processes,network,power,disks] [--members] [--moves] [--directories] [--stripes] [--no-histories] [--jobs J] [--said] [--until-found]";

struct Asked {
    seeds: u64,
    start: u64,
    jobs: u64,
    only: bool,
    said: bool,
    until_found: bool,
    config: Config,
}

fn parse() -> Option<Asked> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).ok()?;
    let start = now.as_secs() % 1_000_000 * 1_000_000;
    let config = Config::default();
    let mut asked =
        Asked { seeds: 1000, start, jobs: 2, only: false, said: false, until_found: false, config };
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
            "--faults" => {
                let names = args.next()?;
                let named = |f: &Family| names.split(',').any(|n| format!("{f:?}").eq_ignore_ascii_case(n));
                asked.config.faults = Family::ALL.into_iter().filter(named).collect();
            }
            "--moves" => asked.config.faults.push(Family::Moves),
            "--directories" => asked.config.faults.extend([Family::Directories, Family::Swaps]),
            "--stripes" => {
                asked.config.faults.push(Family::Stripes);
                asked.config.calm = asked.config.calm.max(Config::PIECES_GO);
            }
            "--members" => asked.config.faults.push(Family::Members),
            "--ordered" => asked.config.hostile = false,
            "--no-histories" => asked.config.histories = false,
            "--said" => asked.said = true,
            "--until-found" => asked.until_found = true,
            "--interrupt" => asked.config.interrupts = true,
            "--interrupt-ends" => (asked.config.interrupts, asked.config.interrupt_ends) = (true, true),
            "--successions" => asked.config.successions = true,
            "--blackout" => asked.config.power = Power::Blackout,
            "--slow-syncs" => {
                asked.config.slow_syncs = true;
                // Renames that meet wait for each other, and each takes several syncs.
                asked.config.calm = Duration::from_secs(900);
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
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        usual(info);
        eprintln!("seed {}: replay with --seed {0} --trace in the dev profile", SEED.get());
    }));
    let began = std::time::Instant::now();
    let next = AtomicU64::new(asked.start);
    let found: Mutex<(Stats, Vec<Failure>)> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..asked.jobs {
            scope.spawn(|| work(&asked, &next, &found));
        }
    });
    let (stats, failures) = found.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    for failure in failures.iter().filter(|_| asked.config.trace) {
        println!("{failure}");
    }
    let (took, count) = (began.elapsed().as_secs_f64(), stats.runs + failures.len() as u64);
    println!(
        "{count} seeds from {} in {took:.1} s ({:.1}/s), {} failed: {:?}",
        asked.start,
        f64::from(u32::try_from(count).unwrap_or(u32::MAX)) / took,
        failures.len(),
        failures.iter().map(|f| f.seed).take(20).collect::<Vec<_>>()
    );
    println!("{} events, {} calls; reached:", stats.events, stats.calls);
    for (what, n) in &stats.counts {
        println!("  {n:>12} {what}");
    }
    print!("{}", stats.steps);
    if asked.said {
        for ((file, line), n) in &stats.said {
            println!("  {n:>12} {file}:{line}");
        }
    }
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn work(asked: &Asked, next: &AtomicU64, found: &Mutex<(Stats, Vec<Failure>)>) {
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= asked.start + asked.seeds {
            return;
        }
        SEED.set(seed);
        let result = run(seed, &asked.config);
        let mut all = found.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        match result {
            Ok(stats) => all.0.add(&stats),
            Err(failure) => {
                println!("seed {seed}: {}", failure.what);
                all.1.push(failure);
            }
        }
        if all.1.len() >= if asked.until_found { 1 } else { 200 } {
            return;
        }
    }
}
