//! `mortar events`.

use crate::ask;
use crate::cli::Global;
use crate::output;
use crate::table::shown_host;
use crate::unix_time;
use crate::view::View;
use admin::Event;
use anyhow::bail;
use clap::{Args, Subcommand};
use std::time::Duration;

/// How often new events are asked for.
const LOOK: Duration = Duration::from_secs(1);
/// Clocks of servers differ: what is this much older than the latest event may still be new.
const OVERLAP: u64 = 10_000;
/// As many as a server tells at a time.
const ALL: u32 = 2000;

/// What happened in the pool: who changed what, servers and bricks that went and came back, changes of views.
///
/// Each server keeps the events of some time in its state folder. Times are those of the server that noted the event. With
/// --json each event is one line of JSON, with -o yaml a document that begins with `---`.
#[derive(Args, Debug)]
#[command(after_help = "Example: mortar events --since 2h --follow", args_conflicts_with_subcommands = true)]
pub(crate) struct Events {
    #[command(subcommand)]
    command: Option<Command>,
    /// Go on and print what happens, until it is interrupted.
    #[arg(long, short)]
    follow: bool,
    /// Only what is not older: 90s, 10m, 2h or 7d.
    #[arg(long, value_name = "TIME")]
    since: Option<String>,
    /// Only events of this volume.
    #[arg(long, value_name = "VOL")]
    volume: Option<String>,
    /// At most so many of the newest at first.
    #[arg(long, default_value_t = 200)]
    lines: u32,
    #[command(flatten)]
    view: View,
}

#[derive(Subcommand, Debug)]
enum Command {
    Webhook(Webhook),
}

/// Where events are sent to as they happen, how that does, and where from now on.
///
/// The servers POST them, a line of JSON for each as `mortar events --json` prints it, at most 100 at a time. What is not
/// taken is sent again, after 1 s at first and 60 s at most. Each server sends its own events in their order, among those
/// of several servers there is none; `at_ms` tells. An event may come twice. Given up, and counted: what waits when more
/// than 2000 do, and what the receiver answers with 400 to 499 (but 408 and 429). What a server noted itself is not sent if it
/// stops while that waits; `mortar events` has it.
#[derive(Args, Debug)]
#[command(
    after_help = "Examples: mortar events webhook https://hooks.example.org/mortar; mortar events webhook off"
)]
struct Webhook {
    /// http:// or https://, host and path; "off": nowhere. Unless given nothing changes.
    #[arg(value_name = "URL")]
    url: Option<String>,
    #[command(flatten)]
    view: View,
}

impl Webhook {
    fn run(self, global: &Global) -> anyhow::Result<()> {
        let remove = self.url.as_deref() == Some("off");
        let changed = self.url.is_some();
        let report = ask::ask(global, admin::EventsWebhook { url: self.url.filter(|_| !remove), remove })?;
        for note in &report.notes {
            output::complain(&format!("note: {note}"));
        }
        let line = described(&report, changed);
        if changed && global.json {
            return output::done(true, &report, &line);
        }
        self.view.show(global, &report, |_| line)
    }
}

fn described(report: &admin::WebhookReport, changed: bool) -> String {
    let Some(url) = &report.url else { return "events are sent nowhere".to_owned() };
    let now = if changed { " from now on" } else { "" };
    let mut text = format!("events are sent to {url}{now}");
    for s in report.servers.iter().filter(|_| !changed) {
        let error = s.error.as_ref().map_or_else(String::new, |e| format!("; the last try failed: {e}"));
        text += &format!(
            "\n{}: {} sent, {} waiting, {} given up{error}",
            shown_host(&s.server),
            s.sent,
            s.waiting,
            s.dropped
        );
    }
    text
}

impl Events {
    pub(crate) fn run(self, global: &Global) -> anyhow::Result<()> {
        if let Some(Command::Webhook(webhook)) = self.command {
            return webhook.run(global);
        }
        let mut from = match &self.since {
            Some(text) => unix_millis().saturating_sub(span(text)?),
            None => 0,
        };
        let mut seen: Vec<Event> = Vec::new();
        let mut lines = usize::try_from(self.lines).unwrap_or(usize::MAX);
        loop {
            // Who follows knows by this which of the events that come again are old.
            let all = self.follow || self.volume.is_some();
            let most = if all { ALL } else { self.lines };
            let answer = ask::ask(global, admin::GetEvents { since_ms: from, most })?;
            for event in newest(&answer.events, self.volume.as_deref(), lines) {
                if !seen.iter().any(|e| e.is_same(event)) {
                    self.view.show_one_of_many(global, event, |wide| line(event, wide))?;
                }
            }
            if !self.follow {
                for note in &answer.notes {
                    output::complain(&format!("note: {note}"));
                }
                return Ok(());
            }
            let latest = answer.events.iter().map(|e| e.at_ms).max().unwrap_or(from);
            from = from.max(latest.saturating_sub(OVERLAP));
            // Only what may come again is kept.
            seen = answer.events;
            lines = usize::MAX;
            std::thread::sleep(LOOK);
        }
    }
}

/// The last `lines` events that are about the volume, if one is named; oldest first.
fn newest<'a>(events: &'a [Event], volume: Option<&'a str>, lines: usize) -> impl Iterator<Item = &'a Event> {
    let about = move |e: &&Event| volume.is_none() || e.volume.as_deref() == volume;
    let before = events.iter().filter(about).count().saturating_sub(lines);
    events.iter().filter(about).skip(before)
}

/// An event in a line; with the volume and the version of the pool's state, if `wide`.
fn line(e: &Event, wide: bool) -> String {
    let who = e.who.as_ref().map_or_else(String::new, |w| format!(" {w}:"));
    let more = if wide {
        let version = e.version.map_or_else(|| "-".to_owned(), |v| v.to_string());
        format!(" {:<12} {version:>6}", e.volume.as_deref().unwrap_or("-"))
    } else {
        String::new()
    };
    format!("{} {:<9}{more} {}:{who} {}", time(e.at_ms), e.kind, shown_host(&e.server), e.text)
}

/// A time in UTC, as RFC 3339 writes it.
fn time(unix_ms: u64) -> String {
    let (days, second) = (unix_ms / 86_400_000, unix_ms / 1000 % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute) = (second / 3600, second / 60 % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{:02}.{:03}Z", second % 60, unix_ms % 1000)
}

/// The date so many days after 1970-01-01.
fn date(days: u64) -> (u64, u64, u64) {
    // Years that begin in March: the day that leap years have more is their last.
    let days = days + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let (month, later) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + later, month, day)
}

/// A span of time in milliseconds.
fn span(text: &str) -> anyhow::Result<u64> {
    let units = [('s', 1), ('m', 60), ('h', 3600), ('d', 86_400)];
    let found = units.iter().find_map(|(unit, seconds)| {
        let number: u64 = text.strip_suffix(*unit)?.parse().ok()?;
        number.checked_mul(seconds * 1000)
    });
    match found {
        Some(millis) => Ok(millis),
        None => bail!("--since {text}: write a number and s, m, h or d, like 90s or 2h"),
    }
}

fn unix_millis() -> u64 {
    u64::try_from(unix_time().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        assert_eq!(time(0), "1970-01-01T00:00:00.000Z");
        assert_eq!(time(951_826_245_006), "2000-02-29T12:10:45.006Z");
        assert_eq!(time(1_795_391_999_999), "2026-11-22T23:59:59.999Z");
        assert_eq!(time(1_798_761_600_000), "2027-01-01T00:00:00.000Z");
    }

    #[test]
    fn an_event_is_a_line() {
        let mut event = Event {
            at_ms: 0,
            kind: "admin".to_owned(),
            server: "fd00::1".to_owned(),
            text: "volume-set".to_owned(),
            who: Some("ann".to_owned()),
            ..Event::default()
        };
        assert_eq!(line(&event, false), "1970-01-01T00:00:00.000Z admin     [fd00::1]: ann: volume-set");
        assert!(line(&event, true).contains(" -                 - [fd00::1]: ann: volume-set"));
        (event.volume, event.version) = (Some("home".to_owned()), Some(7));
        assert!(line(&event, true).contains(" home              7 [fd00::1]: ann: volume-set"));
    }

    #[test]
    fn lines_are_counted_of_the_volume_that_is_named() {
        let event = |text: &str, volume: Option<&str>| Event {
            text: text.to_owned(),
            volume: volume.map(str::to_owned),
            ..Event::default()
        };
        let all = [event("a", Some("v")), event("b", Some("v")), event("c", Some("w")), event("d", None)];
        let told = |volume, lines| newest(&all, volume, lines).map(|e| e.text.as_str()).collect::<Vec<_>>();
        assert_eq!(told(Some("v"), 1), ["b"]);
        assert_eq!(told(Some("v"), 9), ["a", "b"]);
        assert_eq!(told(None, 2), ["c", "d"]);
        assert!(told(Some("x"), 2).is_empty());
    }

    #[test]
    fn a_webhook_is_described() {
        let mut report = admin::WebhookReport::default();
        assert_eq!(described(&report, true), "events are sent nowhere");
        report.url = Some("http://h/".to_owned());
        assert_eq!(described(&report, true), "events are sent to http://h/ from now on");
        let error = Some("the receiver answered 503".to_owned());
        report.servers =
            vec![admin::WebhookServer { server: "h1".to_owned(), sent: 3, dropped: 1, waiting: 2, error }];
        let text = described(&report, false);
        assert!(
            text.ends_with(
                "\nh1: 3 sent, 2 waiting, 1 given up; the last try failed: the receiver answered 503"
            ),
            "{text}"
        );
    }

    #[test]
    fn spans_have_a_unit() {
        assert_eq!(span("90s").unwrap(), 90_000);
        assert_eq!(span("2h").unwrap(), 7_200_000);
        for bad in ["", "5", "h", "-1h", "1 h", "99999999999999999999d", "1w"] {
            assert!(span(bad).is_err(), "{bad}");
        }
    }
}
