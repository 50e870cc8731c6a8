//! Applies one mutant after the other in a scratch checkout and runs tests, to see which mutants the tests notice.
//!
//! `mutants --tree DIR [--results FILE] [--only TEXT] [--quick | --tests CRATES] [--simulator COMMAND]... [--check]`; `scripts/mutants` makes the
//! checkout and calls it. A mutant that is in the results already is left out, so an interrupted run goes on.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a program for people")]

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;
use tidy::{Mutant, all_mutants, plant, root};

/// Seconds that the tests of a crate may take: a mutant that hangs them is noticed.
const TESTS: u32 = 420;
/// Seconds for one command of the simulator.
const SIMULATOR: u32 = 600;

struct Options {
    tree: PathBuf,
    results: PathBuf,
    only: String,
    simulator: Vec<String>,
    /// The crates whose tests are run, if not those that `packages` says.
    tests: Option<Vec<String>>,
    /// Only the tests of the mutant's own crate.
    quick: bool,
    check: bool,
}

fn options() -> Result<Options, String> {
    let mut args = std::env::args().skip(1);
    let (mut tree, mut results, mut only, mut simulator) = (None, None, String::new(), vec![]);
    let (mut tests, mut quick, mut check) = (None, false, false);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or_else(|| format!("{arg}: a value is missing"));
        match arg.as_str() {
            "--tree" => tree = Some(PathBuf::from(value()?)),
            "--results" => results = Some(PathBuf::from(value()?)),
            "--only" => only = value()?,
            "--simulator" => simulator.push(value()?),
            "--quick" => quick = true,
            "--tests" => tests = Some(value()?.split_whitespace().map(str::to_owned).collect()),
            "--check" => check = true,
            _ => return Err(format!("{arg}: not an option")),
        }
    }
    let tree = if check { tree.unwrap_or_else(root) } else { tree.ok_or("--tree DIR is missing")? };
    let same = |a: &Path, b: &Path| a.canonicalize().ok() == b.canonicalize().ok();
    if !check && same(&tree, &root()) {
        return Err("--tree must be another checkout: its files are changed".to_owned());
    }
    let results = results.unwrap_or_else(|| root().join("target/mutants.txt"));
    Ok(Options { tree, results, only, simulator, tests, quick, check })
}

/// The crates whose tests may notice a mutant, the likeliest first.
fn packages(package: &str) -> &'static [&'static str] {
    match package {
        "replica" => &["replica", "set-core", "brick"],
        "set-core" => &["set-core"],
        "namespace" => &["namespace", "set-core", "brick"],
        "cluster" => &["cluster", "server-core"],
        "brick" => &["brick", "server-core"],
        "server-core" => &["server-core"],
        "trust" => &["trust", "transport"],
        "transport" => &["transport"],
        _ => &[],
    }
}

/// Runs a command for so long at most. True if it ended well.
fn passes(tree: &Path, seconds: u32, command: &[&str]) -> bool {
    let log = Stdio::null;
    let status = Command::new("timeout")
        .args(["--kill-after=5", &seconds.to_string()])
        .args(command)
        .current_dir(tree)
        .env_remove("CARGO_TARGET_DIR")
        .stdin(log())
        .stdout(log())
        .stderr(log())
        .status();
    status.is_ok_and(|s| s.success())
}

/// Who noticed the mutant that is in the tree now.
fn noticed(o: &Options, m: &Mutant) -> String {
    let own = m.package();
    let usual = packages(own).iter().take(if o.quick { 1 } else { usize::MAX }).map(|p| (*p).to_owned());
    let tests = o.tests.clone().unwrap_or_else(|| usual.collect());
    if tests.is_empty() && !passes(&o.tree, 900, &["cargo", "check", "-q", "--locked", "-p", own]) {
        return "invalid: it does not compile".to_owned();
    }
    for package in tests.iter().filter(|p| o.tree.join("crates").join(p).exists()) {
        let build = ["cargo", "test", "-q", "--locked", "-p", package, "--lib", "--tests", "--no-run"];
        let run = ["cargo", "test", "-q", "--locked", "-p", package, "--lib", "--tests"];
        if !passes(&o.tree, 900, &build) {
            return "invalid: it does not compile".to_owned();
        }
        if !passes(&o.tree, TESTS, &run) {
            return format!("killed by the tests of {package}");
        }
    }
    for command in &o.simulator {
        if !passes(&o.tree, SIMULATOR, &["sh", "-c", command]) {
            return format!("killed by {command}");
        }
    }
    "survived".to_owned()
}

fn run() -> Result<(), String> {
    let o = options()?;
    let all: Vec<Mutant> = all_mutants()?.into_iter().filter(|m| m.name.contains(&o.only)).collect();
    let missing: Vec<String> = all.iter().filter_map(|m| plant(&o.tree, m).err()).collect();
    if !missing.is_empty() {
        return Err(missing.join("\n"));
    }
    println!("{} mutants", all.len());
    if o.check {
        return Ok(());
    }
    let known = fs::read_to_string(&o.results).unwrap_or_default();
    let mut results: BTreeMap<String, String> = known
        .lines()
        .filter_map(|l| l.split_once(": "))
        .map(|(name, what)| (name.to_owned(), what.to_owned()))
        .collect();
    let mut file = fs::File::options().create(true).append(true).open(&o.results);
    for m in &all {
        if results.contains_key(&m.name) {
            continue;
        }
        let begun = Instant::now();
        let planted = plant(&o.tree, m)?;
        planted.write()?;
        let what = noticed(&o, m);
        planted.undo()?;
        println!("{}: {what} ({} s)", m.name, begun.elapsed().as_secs());
        let file = file.as_mut().map_err(|e| format!("{}: {e}", o.results.display()))?;
        writeln!(file, "{}: {what}", m.name).map_err(|e| e.to_string())?;
        results.insert(m.name.clone(), what);
    }
    let of =
        |what: &str| all.iter().filter(|m| results.get(&m.name).is_some_and(|r| r.starts_with(what))).count();
    println!(
        "{} killed, {} survived, {} invalid of {}",
        of("killed"),
        of("survived"),
        of("invalid"),
        all.len()
    );
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("{e}");
            ExitCode::FAILURE
        }
    }
}
