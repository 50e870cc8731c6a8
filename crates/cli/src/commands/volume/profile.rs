//! `mortar volume profile`.

use crate::ask;
use crate::cli::Global;
use crate::output::{self, with_notes};
use crate::table::{Rows, size};
use admin::{OperationProfile, ProfileAction, ProfileReport, ProfileSpan};
use clap::{Args, ValueEnum};

/// How long the requests of a volume take, by set and kind.
///
/// `info` shows what there was since `start`, and with --interval since the last `info`. Requests are counted all the time:
/// a profile costs nothing. It ends with `stop`, and on a server that is started anew.
#[derive(Args, Debug)]
#[command(
    after_help = "Example: mortar volume profile home start; sleep 60; mortar volume profile home info"
)]
pub(crate) struct ProfileCommand {
    /// The volume.
    #[arg(value_name = "VOL")]
    name: String,
    /// What to do.
    #[arg(value_enum)]
    action: Action,
    /// Only what there was since the last `info`.
    #[arg(long)]
    interval: bool,
}

#[derive(ValueEnum, Clone, Copy, Debug)]
enum Action {
    /// Begin, or begin anew.
    Start,
    /// What there was.
    Info,
    /// End it.
    Stop,
}

impl ProfileCommand {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        let ProfileCommand { name, action, interval } = self;
        let action = match action {
            Action::Start => ProfileAction::Start,
            Action::Info => ProfileAction::Info,
            Action::Stop => ProfileAction::Stop,
        };
        let report = ask::ask(global, admin::VolumeProfile { name, action })?;
        let name = &report.name;
        match action {
            ProfileAction::Start => done(global, &report, &format!("volume {name}: the profile begins")),
            ProfileAction::Stop => {
                done(global, &report, &format!("volume {name}: there is no profile any more"))
            }
            ProfileAction::Info if global.json => output::json(&report),
            ProfileAction::Info => {
                let span = if interval { &report.interval } else { &report.total };
                output::line(&show(&report, span))
            }
        }
    }
}

fn done(global: &Global, report: &ProfileReport, what: &str) -> anyhow::Result<()> {
    if global.json { output::json(report) } else { output::line(&with_notes(what.to_owned(), &report.notes)) }
}

/// One span of a profile as tables.
fn show(report: &ProfileReport, span: &ProfileSpan) -> String {
    let mut text =
        format!("volume {}: {}.{} s", report.name, span.milliseconds / 1000, span.milliseconds / 100 % 10);
    if span.sets.is_empty() {
        text.push_str(", nothing was asked");
    }
    for set in &span.sets {
        let failures: Vec<String> =
            set.failures.iter().map(|(reason, n)| format!(", {n} {reason}")).collect();
        text.push_str(&format!(
            "\n\nset {}: read {}, written {}{}\n",
            set.set,
            size(set.read_bytes),
            size(set.written_bytes),
            failures.concat()
        ));
        let all: u64 = set.operations.iter().map(|o| o.total_us).sum();
        let heads = ["OPERATION", "CALLS", "TIME", "MEAN", "50 % TO", "99 % TO"];
        let mut rows = Rows::new(&heads).right(&[1, 2, 3, 4, 5]);
        for o in &set.operations {
            rows.row(row(o, all));
        }
        text.push_str(&rows.text());
    }
    with_notes(text, &report.notes)
}

fn row(o: &OperationProfile, all: u64) -> [String; 6] {
    let share = o.total_us.saturating_mul(100).checked_div(all).unwrap_or(0);
    let last = o.classes.iter().filter_map(|c| c.at_most_us).max().unwrap_or(0);
    let end = |p: Option<u64>| p.map_or_else(|| format!("> {}", time(last)), time);
    [
        o.operation.clone(),
        o.calls.to_string(),
        format!("{share} %"),
        time(o.total_us.checked_div(o.calls).unwrap_or(0)),
        end(o.p50_us),
        end(o.p99_us),
    ]
}

/// Microseconds for people.
fn time(us: u64) -> String {
    match us {
        0..1000 => format!("{us} us"),
        1000..10_000 => format!("{}.{} ms", us / 1000, us / 100 % 10),
        10_000..1_000_000 => format!("{} ms", us / 1000),
        _ => format!("{}.{} s", us / 1_000_000, us / 100_000 % 10),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_for_people() {
        let shown: Vec<String> = [0, 999, 1000, 2550, 25_000, 1_500_000].map(time).into();
        assert_eq!(shown, ["0 us", "999 us", "1.0 ms", "2.5 ms", "25 ms", "1.5 s"]);
    }
}
