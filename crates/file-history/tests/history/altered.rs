//! Histories of a correct file system are accepted; with one answer altered most are not.

use crate::reference::{Draw, Plan, Run, run};
use crate::script::{SET, root};
use file_history::{Excuses, Record, Summary, Violation, check};
use wire::{Body, Errno, Op};

fn verdict(run: &Run) -> Result<Summary, Violation> {
    check(&run.records, &run.losses, &Excuses::default(), (root(), SET))
}

fn plan(draw: &mut Draw, losses: usize) -> Plan {
    let records = 10 + usize::try_from(draw.below(40)).unwrap();
    let clients = 2 + u32::try_from(draw.below(7)).unwrap();
    Plan { records, clients, unanswered: [0, 10, 30][usize::try_from(draw.below(3)).unwrap()], losses }
}

/// Another answer than was given, if one comes to mind that is surely another.
fn alter(draw: &mut Draw, record: &mut Record) -> bool {
    let Some((_, told)) = &mut record.answer else { return false };
    match (&record.op, told) {
        (Op::Fsync { .. } | Op::Release { .. } | Op::SyncFs, _) => false,
        (_, told @ Err(_)) => {
            let Err(errno) = told else { return false };
            *errno = if *errno == Errno::ENOENT { Errno::EEXIST } else { Errno::ENOENT };
            // What is gone may be called so either way, and a directory that is gone has no entries.
            !matches!(told, Err(Errno::ENOENT))
        }
        (Op::Read { .. }, Ok((_, data))) if !data.is_empty() => {
            let mut other = data.to_vec();
            let at = usize::try_from(draw.below(other.len() as u64)).unwrap();
            other[at] ^= 0xff;
            *data = other.into();
            true
        }
        (_, Ok((Body::Attr { attr } | Body::Written { attr, .. }, _))) => {
            match draw.below(3) {
                0 if !attr.is_dir() => attr.nlink += 1,
                1 if attr.mode & 0o170_000 == 0o100_000 => attr.size += 1,
                _ => attr.uid += 9,
            }
            true
        }
        (Op::ReadDir { .. }, Ok((Body::Page { entries, .. }, _))) => entries.pop().is_some(),
        (Op::Unlink { .. } | Op::Rmdir { .. }, told @ Ok(_)) => {
            *told = Err(Errno::ENOENT);
            true
        }
        (Op::Rename { .. }, told @ Ok(_)) => {
            *told = Err(Errno::ENOENT);
            true
        }
        (_, Ok((Body::Offset { offset }, _))) => {
            *offset += 1;
            true
        }
        _ => false,
    }
}

#[test]
fn what_a_correct_file_system_does_is_accepted() {
    let (mut altered, mut refused, mut steps) = (0u32, 0u32, 0);
    for seed in 0..10_000 {
        let mut draw = Draw(seed);
        let losses = if seed % 4 == 0 { 1 + usize::try_from(draw.below(2)).unwrap() } else { 0 };
        let plan = plan(&mut draw, losses);
        let mut run = run(&mut draw, plan);
        let summary = verdict(&run).unwrap_or_else(|v| panic!("seed {seed}: {v}"));
        assert_eq!((summary.undecided, summary.excused), (0, 0), "seed {seed}");
        steps += summary.steps;
        if losses > 0 {
            continue;
        }
        let at = usize::try_from(draw.below(run.records.len() as u64)).unwrap();
        if alter(&mut draw, &mut run.records[at]) {
            altered += 1;
            refused += u32::from(verdict(&run).is_err());
        }
    }
    println!("{steps} steps; {refused} of {altered} altered histories refused");
    assert!(altered > 3_000 && refused * 100 >= altered * 80, "{refused} of {altered}");
}
