//! Gives every decoder random and mutated inputs, for as long or as many as asked.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command for developers")]

use fuzz::{Count, Target, planted, targets};
use std::cell::RefCell;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

const USAGE: &str = "fuzz [--inputs N | --seconds S] [--seed X] [--target WORDS] [--planted]";
/// Inputs between two looks at the clock.
const TURN: u64 = 500;

#[derive(Default)]
struct Asked {
    inputs: Option<u64>,
    seconds: u64,
    seed: Option<u64>,
    target: String,
    /// The decoder with a known fault instead of the others.
    planted: bool,
}

fn parse() -> Option<Asked> {
    let mut asked = Asked { seconds: 60, ..Asked::default() };
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        if arg == "--planted" {
            asked.planted = true;
            continue;
        }
        let value = args.next()?;
        match arg.as_str() {
            "--inputs" => asked.inputs = Some(value.parse().ok()?),
            "--seconds" => asked.seconds = value.parse().ok()?,
            "--seed" => asked.seed = Some(value.parse().ok()?),
            "--target" => asked.target = value,
            _ => return None,
        }
    }
    Some(asked)
}

thread_local! {
    static LAST: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// A panic ends the process: the input is shown first, as text and in hexadecimal digits.
fn show_input_of_panics() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        LAST.with_borrow(|input| {
            let digits: String = input.iter().map(|b| format!("{b:02x}")).collect();
            eprintln!("the input: {}\n{digits}", input.escape_ascii());
        });
        before(panic);
    }));
}

/// So many inputs for one decoder, or as many as there is time for.
fn run(target: &Target, seed: u64, inputs: Option<u64>, time: Duration) -> Count {
    let (begun, mut all, mut turn) = (Instant::now(), Count::default(), 0);
    loop {
        let left = inputs.map_or(TURN, |n| (n - all.inputs).min(TURN));
        if left == 0 || inputs.is_none() && begun.elapsed() >= time {
            return all;
        }
        let keep = |input: &[u8]| LAST.with_borrow_mut(|last| input.clone_into(last));
        let count = target.run(seed.wrapping_add(turn), left, keep);
        (all.inputs, all.read, turn) = (all.inputs + count.inputs, all.read + count.read, turn + 1);
    }
}

fn main() -> ExitCode {
    let Some(asked) = parse() else {
        eprintln!("{USAGE}");
        return ExitCode::from(2);
    };
    show_input_of_panics();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs());
    // Apart from each other, so that no two runs give the same inputs.
    let seed = asked.seed.unwrap_or(now << 24);
    let known = if asked.planted { vec![planted()] } else { targets() };
    // With a fault planted there is as much time for it as in a run of all.
    let shares = if asked.planted { targets().len() } else { 0 };
    let chosen: Vec<Target> = known.into_iter().filter(|t| t.name.contains(&asked.target)).collect();
    let Ok(many) = u32::try_from(chosen.len().max(shares).max(1)) else { return ExitCode::FAILURE };
    let (inputs, time) =
        (asked.inputs.map(|n| n.div_ceil(many.into())), Duration::from_secs(asked.seconds) / many);
    println!("seed {seed}: {:>14} {:>12}", "inputs", "read");
    let mut sum = 0;
    for target in &chosen {
        let count = run(target, seed, inputs, time);
        println!("{:<32} {:>14} {:>12}", target.name, count.inputs, count.read);
        sum += count.inputs;
    }
    println!("{sum} inputs, nothing found");
    ExitCode::SUCCESS
}
