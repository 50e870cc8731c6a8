//! `mortar volume top`.

use crate::ask;
use crate::cli::Global;
use crate::output::{self, with_notes};
use crate::table::{Rows, shown_host, size};
use crate::view::View;
use admin::{ClientStatus, TopLine, TopReport};
use clap::{Args, ValueEnum};
use ids::SetName;
use serde::Serialize;
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Which files, directories or clients a volume works for most: live on a terminal, until it is interrupted.
///
/// Without a terminal, as a document (--json) or with --once it measures once, for --seconds; with --follow again and again
/// all the same, and each time is one line of JSON or a YAML document that begins with `---`. Files are counted only while somebody
/// looks. Where very many are used at once, those that are used little share counters: what may be counted too much is left
/// out.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar volume top home files --by bytes --once")]
pub(crate) struct TopCommand {
    /// The volume.
    #[arg(value_name = "VOL")]
    name: String,
    /// What to show.
    #[arg(value_enum, default_value = "files")]
    what: What,
    /// The order of files and clients.
    #[arg(long, value_enum, default_value = "operations")]
    by: By,
    /// How long to measure each time.
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=20))]
    seconds: u64,
    /// Lines to show.
    #[arg(long, default_value_t = 20)]
    lines: usize,
    /// Measure once.
    #[arg(long)]
    once: bool,
    /// Go on until it is interrupted, though no terminal shows it.
    #[arg(long, short, conflicts_with = "once")]
    follow: bool,
    #[command(flatten)]
    view: View,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    /// Files, by requests or by bytes.
    Files,
    /// Directories, by requests for what is in them.
    Directories,
    /// Mounts.
    Clients,
}

#[derive(ValueEnum, Clone, Copy, PartialEq, Eq, Debug)]
enum By {
    /// Requests a second.
    Operations,
    /// Bytes a second, read and written.
    Bytes,
}

impl TopCommand {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        let terminal = std::io::stdout().is_terminal() && !self.view.is_document(global);
        let once = self.once || !terminal && !self.follow;
        let mut before = self.look(global)?;
        loop {
            let begun = Instant::now();
            std::thread::sleep(Duration::from_secs(self.seconds));
            let now = self.look(global)?;
            let rates = self.rates(&before, &now, begun.elapsed());
            let answer = Answer { name: &now.name, rates: &rates, notes: &now.notes };
            let text = |wide| with_notes(self.show(&rates, wide), &now.notes);
            if once {
                return self.view.show(global, &answer, text);
            }
            if terminal {
                // To the top of an empty screen.
                output::part("\x1b[H\x1b[2J")?;
            }
            self.view.show_one_of_many(global, &answer, text)?;
            before = now;
        }
    }

    fn look(&self, global: &Global) -> anyhow::Result<TopReport> {
        ask::ask(global, admin::VolumeTop { name: self.name.clone() })
    }

    /// What grew between two looks, the fastest first.
    fn rates(&self, before: &TopReport, now: &TopReport, took: Duration) -> Vec<Rate> {
        let rates = match (self.what, self.by) {
            (What::Files, By::Operations) => of_lines(&before.files, &now.files),
            (What::Files, By::Bytes) => of_lines(&before.bytes, &now.bytes),
            (What::Directories, _) => of_lines(&before.directories, &now.directories),
            (What::Clients, by) => of_clients(&before.clients, &now.clients, by),
        };
        let millis = u64::try_from(took.as_millis()).unwrap_or(u64::MAX).max(1);
        let mut rates: Vec<Rate> = rates
            .into_iter()
            .map(|(rate, grew)| Rate { per_second: grew.saturating_mul(1000) / millis, count: grew, ..rate })
            .filter(|r| r.count > 0)
            .collect();
        rates.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.what.cmp(&b.what)));
        rates.truncate(self.lines);
        rates
    }

    fn show(&self, rates: &[Rate], wide: bool) -> String {
        let what = match self.what {
            What::Files => "FILE",
            What::Directories => "DIRECTORY",
            What::Clients => "CLIENT",
        };
        let bytes = self.by == By::Bytes && self.what != What::Directories;
        let [speed, count] = if bytes { ["BYTES/S", "BYTES"] } else { ["REQUESTS/S", "REQUESTS"] };
        let more = if self.what == What::Clients { "SESSION" } else { "SET" };
        let heads = if wide { vec![speed, count, more, what] } else { vec![speed, count, what] };
        let shown = |n: u64| if bytes { size(n) } else { n.to_string() };
        let mut rows = Rows::new(&heads).right(&[0, 1]);
        for r in rates {
            let more = r.session.clone().or_else(|| r.set.map(|set| set.to_string()));
            let cells = [shown(r.per_second), shown(r.count)].into_iter();
            rows.row(cells.chain(more.filter(|_| wide)).chain([r.what.clone()]));
        }
        format!("volume {}: the last {} s\n{}", self.name, self.seconds, rows.text())
    }
}

/// What programs read.
#[derive(Serialize)]
struct Answer<'a> {
    name: &'a str,
    rates: &'a [Rate],
    notes: &'a [String],
}

/// How fast something grew.
#[derive(PartialEq, Eq, Debug, Default, Serialize)]
struct Rate {
    what: String,
    per_second: u64,
    count: u64,
    /// The set that has the file or directory.
    #[serde(flatten)]
    set: Option<SetName>,
    /// The client's session.
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<String>,
}

/// What each line grew by, of what is certain.
fn of_lines(before: &[TopLine], now: &[TopLine]) -> Vec<(Rate, u64)> {
    let known: BTreeMap<_, _> = before.iter().map(|l| ((l.set, l.path.as_str()), l.count)).collect();
    let grew = |l: &TopLine| {
        let certain = l.count.saturating_sub(l.error);
        known.get(&(l.set, l.path.as_str())).map_or(certain, |b| l.count.saturating_sub(*b).min(certain))
    };
    let rate = |l: &TopLine| Rate { what: l.path.clone(), set: Some(l.set), ..Rate::default() };
    now.iter().map(|l| (rate(l), grew(l))).collect()
}

fn of_clients(before: &[ClientStatus], now: &[ClientStatus], by: By) -> Vec<(Rate, u64)> {
    let value = |c: &ClientStatus| match by {
        By::Operations => c.requests,
        By::Bytes => c.read_bytes.saturating_add(c.written_bytes),
    };
    let known: BTreeMap<_, _> = before.iter().map(|c| (c.session.as_str(), value(c))).collect();
    let grew =
        |c: &ClientStatus| value(c).saturating_sub(known.get(c.session.as_str()).copied().unwrap_or(0));
    let rate = |c: &ClientStatus| {
        let session: String = c.session.chars().take(8).collect();
        let what = format!("{} {session}", shown_host(&c.address));
        Rate { what, session: Some(c.session.clone()), ..Rate::default() }
    };
    now.iter().map(|c| (rate(c), grew(c))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_is_what_grew_and_is_certain() {
        let line =
            |path: &str, count, error| TopLine { path: path.to_owned(), count, error, ..TopLine::default() };
        let before = [line("/a", 10, 0), line("/b", 100, 0)];
        let now = [line("/b", 103, 0), line("/a", 30, 0), line("/c", 60, 55)];
        let grew: Vec<_> = of_lines(&before, &now).into_iter().map(|(rate, n)| (rate.what, n)).collect();
        assert_eq!(grew, [("/b".to_owned(), 3), ("/a".to_owned(), 20), ("/c".to_owned(), 5)]);
    }

    #[test]
    fn all_columns_tell_the_session_of_a_client() {
        let client = ClientStatus {
            address: "fd00::1".to_owned(),
            session: "0123456789abcdef".to_owned(),
            requests: 5,
            ..ClientStatus::default()
        };
        let mut command = TopCommand {
            name: "v".to_owned(),
            what: What::Clients,
            by: By::Operations,
            seconds: 1,
            lines: 9,
            once: true,
            follow: false,
            view: View::default(),
        };
        let now = TopReport { clients: vec![client], ..TopReport::default() };
        let rates = command.rates(&TopReport::default(), &now, Duration::from_secs(1));
        let last = |command: &TopCommand, wide| {
            let text = command.show(&rates, wide);
            text.lines().last().unwrap().split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(last(&command, false), ["5", "5", "[fd00::1]", "01234567"]);
        assert_eq!(last(&command, true), ["5", "5", "0123456789abcdef", "[fd00::1]", "01234567"]);
        command.lines = 0;
        assert!(command.rates(&TopReport::default(), &now, Duration::from_secs(1)).is_empty());
    }
}
