//! Builds each of the classic mistakes (`crates/tidy/classic.txt`) into a scratch checkout, and says how long the simulator
//! takes to find it.
//!
//! `classic --tree DIR [--only NAME] [--seeds N] [--start S]`; `scripts/classic-mutants` makes the checkout and calls it. A seed
//! counts if it fails with the mistake and not without.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;
use tidy::{Classic, classics, plant};

struct Options {
    tree: PathBuf,
    only: String,
    seeds: u64,
    start: u64,
}

fn options() -> Result<Options, String> {
    let mut args = std::env::args().skip(1);
    let (mut tree, mut only, mut seeds, mut start) = (None, String::new(), 20_000, 1_000_000);
    while let Some(arg) = args.next() {
        let value = args.next().ok_or_else(|| format!("{arg}: a value is missing"))?;
        let number = || value.parse::<u64>().map_err(|e| format!("{arg} {value}: {e}"));
        match arg.as_str() {
            "--tree" => tree = Some(PathBuf::from(value)),
            "--only" => only = value,
            "--seeds" => seeds = number()?,
            "--start" => start = number()?,
            _ => return Err(format!("{arg}: not an option")),
        }
    }
    Ok(Options { tree: tree.ok_or("--tree DIR is missing")?, only, seeds, start })
}

/// Builds the simulator of the checkout.
fn build(tree: &Path) -> Result<PathBuf, String> {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "-q", "--release", "--locked", "-p", "sim"]).current_dir(tree);
    match cargo.status() {
        Ok(status) if status.success() => {}
        other => return Err(format!("cargo build: {other:?}")),
    }
    let target = std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| tree.join("target"), PathBuf::from);
    Ok(target.join("release/sim"))
}

/// Runs the simulator. The failed seed that it names, with what was wrong; or a seed that ended the process.
fn find_one(sim: &Path, how: &[String], args: &[&str]) -> Result<Option<(u64, String)>, String> {
    let ran = Command::new(sim).args(how).args(args).output().map_err(|e| e.to_string())?;
    let said = [ran.stdout, ran.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    let named = |line: &str| {
        let (seed, what) = line.strip_prefix("seed ")?.split_once(": ")?;
        Some((seed.parse().ok()?, what.chars().take(90).collect::<String>()))
    };
    match said.lines().find_map(named) {
        None if !ran.status.success() => Err(format!("{}: {:?}", sim.display(), ran.status)),
        found => Ok(found),
    }
}

/// The first seed that fails with the mistake and not without; how many were tried, and how many fail without it as well.
fn search(o: &Options, sims: (&Path, &Path), how: &[String]) -> Result<(Option<(u64, String)>, u64), String> {
    let (clean, mistaken) = sims;
    let (end, mut from, mut fail_anyway) = (o.start + o.seeds, o.start, 0);
    while from < end {
        let (start, seeds) = (from.to_string(), (end - from).to_string());
        // One job: the seed that is named first is the first one.
        let args = ["--until-found", "--jobs", "1", "--start", &start, "--seeds", &seeds];
        let Some((seed, what)) = find_one(mistaken, how, &args)? else { return Ok((None, fail_anyway)) };
        if find_one(clean, how, &["--seed", &seed.to_string()])?.is_none() {
            return Ok((Some((seed, what)), fail_anyway));
        }
        (from, fail_anyway) = (seed + 1, fail_anyway + 1);
    }
    Ok((None, fail_anyway))
}

fn run() -> Result<bool, String> {
    let o = options()?;
    let wanted: Vec<Classic> = classics()?.into_iter().filter(|c| c.name.contains(&o.only)).collect();
    let built = build(&o.tree)?;
    let (clean, mistaken) = (built.with_file_name("sim-clean"), built.with_file_name("sim-mistaken"));
    fs::copy(&built, &clean).map_err(|e| e.to_string())?;
    let mut all_found = true;
    for Classic { name, how, mutants } in wanted {
        let mut planted = Vec::new();
        for m in &mutants {
            let p = plant(&o.tree, m)?;
            p.write()?;
            planted.push(p);
        }
        let made = build(&o.tree);
        for p in planted.iter().rev() {
            p.undo()?;
        }
        fs::copy(made?, &mistaken).map_err(|e| e.to_string())?;
        let begun = Instant::now();
        let (found, fail_anyway) = search(&o, (&clean, &mistaken), &how)?;
        let took = begun.elapsed().as_secs_f64();
        let besides = format!("{fail_anyway} seeds before that fail without it as well");
        match &found {
            Some((seed, what)) => {
                println!(
                    "{name}: found after {} seeds, {took:.1} s: seed {seed}: {what} ({besides})",
                    seed - o.start + 1
                );
            }
            None => println!("{name}: NOT FOUND in {} seeds, {took:.1} s ({besides})", o.seeds),
        }
        all_found &= found.is_some();
    }
    Ok(all_found)
}

fn main() -> ExitCode {
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::from(2)
        }
    }
}
