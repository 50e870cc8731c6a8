//! What a set reports of its work, for people.

use admin::{HealMode, HealProgress, HealState, MovedFiles};
use set_core::{HealReport, Report};
use wire::{Errno, Fail};

/// What has moved to other sets, and why the last file stayed that could not. `path`: where that one probably lies.
pub(super) fn moved(report: &Report, path: Option<String>) -> MovedFiles {
    let problem = report.problem.as_ref().map(|(fid, why)| {
        let path = path.unwrap_or_else(|| fid.to_string());
        format!("{path}: {}", in_words(why))
    });
    MovedFiles {
        files: report.departed.files,
        bytes: report.departed.bytes,
        left: report.departed.left,
        files_per_second: report.departing.0,
        bytes_per_second: report.departing.1,
        none_can_move: report.none_can_move,
        problem,
        directories: report.departed.directories,
    }
}

fn in_words(why: &Fail) -> String {
    match why {
        Fail::Errno { errno } => Errno(*errno).to_string(),
        Fail::WrongView { .. } => "nobody leads the set that is to get it".to_owned(),
        Fail::Busy => "it is busy".to_owned(),
        Fail::BelowQuorum => "the set that is to get it has too few bricks in sync".to_owned(),
    }
}

/// How far a healing is, for people.
pub(super) fn progress(report: HealReport) -> HealProgress {
    let p = report.progress;
    let state = match (p.caught_up, report.finishing) {
        (false, _) => HealState::Learning,
        (true, false) => HealState::Copying,
        (true, true) => HealState::Finishing,
    };
    HealProgress {
        done: p.done,
        total: p.done + p.left,
        bytes: p.bytes,
        same_bytes: p.same,
        mode: if p.full { HealMode::Full } else { HealMode::Journal },
        total_known: p.caught_up && !p.full,
        state,
        seconds: report.taken.as_secs(),
        objects_per_second: report.rate.0,
        bytes_per_second: report.rate.1,
    }
}
