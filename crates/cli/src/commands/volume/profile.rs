//! `mortar volume profile`.

use crate::ask;
use crate::cli::Global;
use crate::output::with_notes;
use crate::table::{Rows, size};
use crate::view::View;
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
    #[command(flatten)]
    view: View,
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
        let ProfileCommand { name, action, interval, view } = self;
        let action = match action {
            Action::Start => ProfileAction::Start,
            Action::Info => ProfileAction::Info,
            Action::Stop => ProfileAction::Stop,
        };
        let report = ask::ask(global, admin::VolumeProfile { name, action })?;
        let name = &report.name;
        view.show(global, &report, |wide| match action {
            ProfileAction::Start => with_notes(format!("volume {name}: the profile begins"), &report.notes),
            ProfileAction::Stop => {
                with_notes(format!("volume {name}: there is no profile any more"), &report.notes)
            }
            ProfileAction::Info => {
                show(&report, if interval { &report.interval } else { &report.total }, wide)
            }
        })
    }
}

/// One span of a profile as tables; with the calls in each class of latencies, if `wide`.
fn show(report: &ProfileReport, span: &ProfileSpan, wide: bool) -> String {
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
        let mut heads =
            ["OPERATION", "CALLS", "TIME", "MEAN", "50 % TO", "99 % TO"].map(str::to_owned).to_vec();
        if wide {
            heads.push("IN ALL".to_owned());
            heads.extend(set.operations.first().into_iter().flat_map(class_heads));
        }
        let heads: Vec<&str> = heads.iter().map(String::as_str).collect();
        let mut rows = Rows::new(&heads).right(&(1..heads.len()).collect::<Vec<_>>());
        for o in &set.operations {
            let more = if wide { wide_row(o) } else { vec![] };
            rows.row(row(o, all).into_iter().chain(more));
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

/// The classes of latencies of an operation, which all operations share.
fn class_heads(o: &OperationProfile) -> Vec<String> {
    let last = o.classes.iter().filter_map(|c| c.at_most_us).max().unwrap_or(0);
    let head =
        |end: Option<u64>| end.map_or_else(|| format!("> {}", time(last)), |end| format!("TO {}", time(end)));
    o.classes.iter().map(|c| head(c.at_most_us)).collect()
}

/// What else is known of an operation: all of its time, and its calls by class.
fn wide_row(o: &OperationProfile) -> Vec<String> {
    [time(o.total_us)].into_iter().chain(o.classes.iter().map(|c| c.calls.to_string())).collect()
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
    fn all_columns_tell_the_calls_of_each_class() {
        let class = |end, calls| admin::LatencyClass { at_most_us: end, calls };
        let operation = OperationProfile {
            operation: "read".to_owned(),
            calls: 5,
            total_us: 2500,
            classes: vec![class(Some(100), 3), class(Some(1000), 2), class(None, 0)],
            ..OperationProfile::default()
        };
        let set = admin::SetProfile { operations: vec![operation], ..admin::SetProfile::default() };
        let span = ProfileSpan { milliseconds: 1000, sets: vec![set] };
        let lines = |wide| {
            let text = show(&ProfileReport::default(), &span, wide);
            text.lines()
                .skip(3)
                .map(|l| l.split_whitespace().collect::<Vec<_>>().join(" "))
                .collect::<Vec<_>>()
        };
        assert_eq!(lines(false)[0], "OPERATION CALLS TIME MEAN 50 % TO 99 % TO");
        let [head, row] = &lines(true)[..] else { panic!("{:?}", lines(true)) };
        assert!(head.ends_with("99 % TO IN ALL TO 100 us TO 1.0 ms > 1.0 ms"), "{head}");
        assert!(row.ends_with("2.5 ms 3 2 0"), "{row}");
    }

    #[test]
    fn times_are_for_people() {
        let shown: Vec<String> = [0, 999, 1000, 2550, 25_000, 1_500_000].map(time).into();
        assert_eq!(shown, ["0 us", "999 us", "1.0 ms", "2.5 ms", "25 ms", "1.5 s"]);
    }
}
