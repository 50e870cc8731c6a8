//! How long a check takes.

use crate::reference::{Draw, Plan, run};
use crate::script::{SET, root};
use file_history::{Excuses, check};
use std::time::{Duration, Instant};

/// What one run of the simulator records.
const RECORDS: usize = 600;
const RUNS: u32 = 100;

/// Kinds of runs: of how many operations one is never answered, power cuts, how long a check may take on the mean with the
/// optimisation of tests on a busy machine, and of how many runs a part may stay undecided.
const KINDS: [(u64, usize, u64, usize); 3] = [(0, 0, 30, 0), (30, 0, 40, 0), (30, 2, 400, 10)];

#[test]
fn a_run_is_checked_in_milliseconds() {
    for (unanswered, losses, limit, most) in KINDS {
        let (mut worst, mut sum, mut steps, mut undecided) = (Duration::ZERO, Duration::ZERO, 0, 0);
        for seed in 0..u64::from(RUNS) {
            let plan = Plan { records: RECORDS, clients: 8, unanswered, losses };
            let run = run(&mut Draw(seed), plan);
            let begun = Instant::now();
            let summary = check(&run.records, &run.losses, &Excuses::default(), (root(), SET))
                .unwrap_or_else(|v| panic!("seed {seed}: {v}"));
            let took = begun.elapsed();
            (worst, sum, steps) = (worst.max(took), sum + took, steps + summary.steps);
            undecided += summary.undecided;
        }
        let mean = sum / RUNS;
        println!(
            "one in {unanswered} unanswered, {losses} losses: {mean:?}, {worst:?} at most; {steps} steps, {undecided} undecided"
        );
        assert!(mean < Duration::from_millis(limit), "{mean:?}");
        assert!(undecided <= most, "{undecided} parts undecided");
    }
}
