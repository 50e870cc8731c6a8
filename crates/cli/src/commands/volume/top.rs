//! `mortar volume top`.

use crate::ask;
use crate::cli::Global;
use crate::output::{self, with_notes};
use crate::table::{Rows, size};
use admin::{ClientStatus, TopLine, TopReport};
use clap::{Args, ValueEnum};
use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::time::{Duration, Instant};

/// Which files, directories or clients a volume works for most: live on a terminal, until it is interrupted.
///
/// Without a terminal, or with --once or --json, it measures once, for --seconds. Files are counted only while somebody
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
        let once = self.once || global.json || !std::io::stdout().is_terminal();
        let mut before = self.look(global)?;
        loop {
            let begun = Instant::now();
            std::thread::sleep(Duration::from_secs(self.seconds));
            let now = self.look(global)?;
            let rates = self.rates(&before, &now, begun.elapsed());
            if global.json {
                return output::json(&serde_json::json!({
                    "name": now.name, "rates": rates, "notes": now.notes
                }));
            }
            let text = with_notes(self.show(&rates), &now.notes);
            if once {
                return output::line(&text);
            }
            // To the top of an empty screen.
            output::line(&format!("\x1b[H\x1b[2J{text}"))?;
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
            .map(|(what, grew)| Rate { what, per_second: grew.saturating_mul(1000) / millis, count: grew })
            .filter(|r| r.count > 0)
            .collect();
        rates.sort_by(|a, b| b.count.cmp(&a.count).then_with(|| a.what.cmp(&b.what)));
        rates.truncate(self.lines);
        rates
    }

    fn show(&self, rates: &[Rate]) -> String {
        let what = match self.what {
            What::Files => "FILE",
            What::Directories => "DIRECTORY",
            What::Clients => "CLIENT",
        };
        let bytes = self.by == By::Bytes && self.what != What::Directories;
        let heads = if bytes { ["BYTES/S", "BYTES", what] } else { ["REQUESTS/S", "REQUESTS", what] };
        let shown = |n: u64| if bytes { size(n) } else { n.to_string() };
        let mut rows = Rows::new(&heads).right(&[0, 1]);
        for r in rates {
            rows.row([shown(r.per_second), shown(r.count), r.what.clone()]);
        }
        format!("volume {}: the last {} s\n{}", self.name, self.seconds, rows.text())
    }
}

/// How fast something grew.
#[derive(PartialEq, Eq, Debug, serde::Serialize)]
struct Rate {
    what: String,
    per_second: u64,
    count: u64,
}

/// What each line grew by, of what is certain.
fn of_lines(before: &[TopLine], now: &[TopLine]) -> Vec<(String, u64)> {
    let known: BTreeMap<_, _> = before.iter().map(|l| ((l.set, l.path.as_str()), l.count)).collect();
    let grew = |l: &TopLine| {
        let certain = l.count.saturating_sub(l.error);
        known.get(&(l.set, l.path.as_str())).map_or(certain, |b| l.count.saturating_sub(*b).min(certain))
    };
    now.iter().map(|l| (l.path.clone(), grew(l))).collect()
}

fn of_clients(before: &[ClientStatus], now: &[ClientStatus], by: By) -> Vec<(String, u64)> {
    let value = |c: &ClientStatus| match by {
        By::Operations => c.requests,
        By::Bytes => c.read_bytes.saturating_add(c.written_bytes),
    };
    let known: BTreeMap<_, _> = before.iter().map(|c| (c.session.as_str(), value(c))).collect();
    let grew =
        |c: &ClientStatus| value(c).saturating_sub(known.get(c.session.as_str()).copied().unwrap_or(0));
    let name = |c: &ClientStatus| format!("{} {}", c.address, c.session.chars().take(8).collect::<String>());
    now.iter().map(|c| (name(c), grew(c))).collect()
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
        let grew = of_lines(&before, &now);
        assert_eq!(grew, [("/b".to_owned(), 3), ("/a".to_owned(), 20), ("/c".to_owned(), 5)]);
    }
}
