//! `mortar volume rebalance`.

use crate::ask;
use crate::cli::Global;
use crate::live::Live;
use crate::output::with_notes;
use crate::table::{Rows, size};
use admin::{MovedFiles, RebalanceAction, RebalanceReport, RebalanceState};
use clap::{Args, ValueEnum};
use ids::SetName;

/// Move files and directories of fuller sets to emptier ones, while the volume is in use.
///
/// It goes on until it is stopped, and by itself after a crash. Files that are open or that change meanwhile stay, and are
/// tried again later. A file that has moved has another inode number. A directory that has no others in it goes also while it
/// is in use, keeps its number, and its files follow. How eagerly all that moves while clients are active is the option
/// `cluster.rebalance-throttle` (gentle, normal, fast).
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar volume rebalance home start --dry-run")]
pub(crate) struct RebalanceCommand {
    /// The volume.
    #[arg(value_name = "VOL")]
    name: String,
    /// What to do.
    #[arg(value_enum)]
    action: Action,
    /// Only tell what would move.
    #[arg(long)]
    dry_run: bool,
    #[command(flatten)]
    live: Live,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum Action {
    /// Move files and directories, or go on with it.
    Start,
    /// How far it is.
    Status,
    /// Move no more.
    Stop,
    /// Move no more for now; what has moved is counted on.
    Pause,
}

impl RebalanceCommand {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        let RebalanceCommand { name, action, dry_run, live } = self;
        let mut action = match action {
            Action::Start => RebalanceAction::Start,
            Action::Status => RebalanceAction::Status,
            Action::Stop => RebalanceAction::Stop,
            Action::Pause => RebalanceAction::Pause,
        };
        let look = || {
            let report = ask::ask(global, admin::VolumeRebalance { name: name.clone(), action, dry_run })?;
            // What was asked for is done once; then it is looked at.
            action = RebalanceAction::Status;
            Ok(report)
        };
        live.show(global, look, |report, _| show(report))
    }
}

/// Lines about the directories of a set that went, and about the file that could not move, if there are such.
pub(super) fn also(set: SetName, moved: &MovedFiles) -> String {
    let directories = match moved.directories {
        0 => String::new(),
        1 => format!("\nset {set}: 1 directory went to another set"),
        many => format!("\nset {set}: {many} directories went to other sets"),
    };
    let problem = moved.problem.as_ref().map(|why| format!("\nset {set}: a file stays: {why}"));
    directories + &problem.unwrap_or_default()
}

/// The report for people.
fn show(r: &RebalanceReport) -> String {
    let state = match r.state {
        RebalanceState::Off => "off".to_owned(),
        RebalanceState::On => format!("on ({})", r.throttle),
        RebalanceState::Paused => "paused".to_owned(),
    };
    let mut text = format!("volume {}: rebalance is {state}\n", r.name);
    let heads = ["SET", "FREE", "SIZE", "FULL", "MOVED FILES", "MOVED", "LEFT", "FILES/S", "RATE"];
    let mut rows = Rows::new(&heads).right(&[0, 1, 2, 3, 4, 5, 6, 7, 8]);
    for s in &r.sets {
        let used = s.total_bytes.saturating_sub(s.free_bytes);
        rows.row([
            s.set.to_string(),
            size(s.free_bytes),
            size(s.total_bytes),
            format!("{}%", u128::from(used) * 100 / u128::from(s.total_bytes.max(1))),
            s.moved.files.to_string(),
            size(s.moved.bytes),
            s.moved.left.to_string(),
            s.moved.files_per_second.to_string(),
            format!("{}/s", size(s.moved.bytes_per_second)),
        ]);
    }
    text.push_str(&rows.text());
    text.extend(r.sets.iter().map(|s| also(s.set, &s.moved)));
    for p in &r.plan {
        let (from, to) = p.names();
        text.push_str(&format!("\nabout {} to move from set {from} to set {to}", size(p.bytes)));
    }
    match (r.plan.is_empty(), r.remaining_seconds) {
        (true, _) => text.push_str("\nno set is clearly fuller than another one"),
        (false, Some(seconds)) => text.push_str(&format!("\nabout {seconds} s left")),
        (false, None) => {}
    }
    if r.dry_run {
        text.push_str("\nnothing was changed");
    }
    with_notes(text, &r.notes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use admin::{PlannedMove, SetMoves};
    use ids::SetId;

    #[test]
    fn a_report_says_what_has_moved_and_what_is_left() {
        let moved = MovedFiles {
            files: 7,
            bytes: 4096,
            left: 2,
            files_per_second: 3,
            bytes_per_second: 1024,
            none_can_move: false,
            problem: Some("d/f: input/output error (EIO 5)".to_owned()),
            directories: 12,
        };
        let of = |set, free_bytes| SetMoves {
            set: SetName { id: SetId(set + 6), number: set },
            free_bytes,
            total_bytes: 1000,
            moved: moved.clone(),
        };
        let plan =
            vec![PlannedMove { from: SetId(7), from_number: 1, to: SetId(8), to_number: 2, bytes: 2048 }];
        let mut report = RebalanceReport {
            name: "v".to_owned(),
            state: RebalanceState::On,
            throttle: "gentle".to_owned(),
            sets: vec![of(1, 250), of(2, 900)],
            plan,
            remaining_seconds: Some(2),
            ..RebalanceReport::default()
        };
        let text = show(&report);
        for part in [
            "is on (gentle)",
            "75%",
            "10%",
            "from set 1 to set 2",
            "about 2 s left",
            "set 2: 12 directories went to other sets",
            "set 1: a file stays: d/f: input",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        (report.plan, report.dry_run) = (vec![], true);
        let text = show(&report);
        assert!(text.contains("clearly fuller") && text.ends_with("nothing was changed"), "{text}");
    }
}
