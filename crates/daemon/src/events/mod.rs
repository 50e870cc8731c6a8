//! What happened on this server and in its pool: kept in memory and in the state folder, both bounded.
//!
//! Owns the log of events, what is worth one in a change of the pool's state ([`changes`]), and how requests of
//! administrators are told ([`audit`]). Each server keeps its own; who asks for events gets those of all servers.

mod audit;
mod changes;
mod file;
mod webhook;

pub(crate) use audit::{audited, line};
pub(crate) use webhook::{NotTaken, Post, Sender};

use crate::clock;
use crate::shared::lock;
use admin::Event;
use cluster::{State, WebhookSince};
use file::EventFile;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;
use tokio::sync::Notify;

/// Events in memory.
const KEPT: usize = 2000;
/// Characters of a line.
const LINE: usize = 500;
/// Events of one second; more than that is noise. What administrators do is told all the same.
const A_SECOND: u32 = 50;
/// The kind of what administrators do.
pub(crate) const ADMIN: &str = "admin";
/// A command that waits for a server asks again and again: it is told once in so many milliseconds that nobody listens there.
const AGAIN_MS: u64 = 10_000;
/// What happens at once is written together.
const GATHER: Duration = Duration::from_millis(200);

#[derive(Debug, Default)]
struct Ring {
    events: VecDeque<Event>,
    /// How many of the newest are not in the file yet.
    unwritten: usize,
    /// How many came since the process began.
    all: u64,
    /// The second of the newest event, and how many it had.
    second: (u64, u32),
    /// When this server heard of the webhook's address that the pool has now: the version of the pool's state that has it
    /// first, and the number that the next event got then.
    heard: Option<(u64, u64)>,
}

/// The events of this server.
#[derive(Debug, Default)]
pub(crate) struct Events {
    ring: Mutex<Ring>,
    news: Notify,
    /// For the webhook.
    pub(crate) more: Notify,
}

impl Events {
    /// Something happened. `event` needs no time.
    pub(crate) fn add(&self, event: Event) {
        let at_ms = unix_millis();
        let mut ring = lock(&self.ring);
        if ring.second.0 != at_ms / 1000 {
            ring.second = (at_ms / 1000, 0);
        }
        if event.kind != ADMIN {
            ring.second.1 += 1;
            if ring.second.1 > A_SECOND {
                return;
            }
        }
        ring.events.push_back(Event { at_ms, text: shortened(&event.text, LINE), ..event });
        ring.unwritten += 1;
        ring.all += 1;
        if ring.events.len() > KEPT {
            ring.events.pop_front();
            ring.unwritten = ring.unwritten.min(KEPT);
        }
        drop(ring);
        self.news.notify_one();
        self.more.notify_one();
    }

    /// Whether an administrator was told lately to have done this.
    pub(crate) fn is_told(&self, who: &str, text: &str) -> bool {
        let since = unix_millis().saturating_sub(AGAIN_MS);
        let ring = lock(&self.ring);
        let mut late = ring.events.iter().rev().take_while(|e| e.at_ms >= since);
        late.any(|e| e.kind == ADMIN && e.text == text && e.who.as_deref() == Some(who))
    }

    /// The pool's state changed.
    pub(crate) fn note_changes(&self, server: &str, before: &State, after: &State) {
        if before.webhook_since != after.webhook_since {
            let mut ring = lock(&self.ring);
            ring.heard = after.webhook_since.map(|since| (since.version, ring.all));
        }
        for change in changes::changes(before, after) {
            self.add(Event {
                server: server.to_owned(),
                kind: change.kind.to_owned(),
                text: change.text,
                volume: change.volume,
                version: Some(after.version),
                ..Event::default()
            });
        }
    }

    /// The newest events, not older than that; oldest first.
    pub(crate) fn since(&self, at_ms: u64, most: usize) -> Vec<Event> {
        let ring = lock(&self.ring);
        let mut all: Vec<Event> =
            ring.events.iter().rev().filter(|e| e.at_ms >= at_ms).take(most).cloned().collect();
        all.reverse();
        all
    }

    /// The number that the next event gets: they are counted from when the process began.
    pub(crate) fn end(&self) -> u64 {
        lock(&self.ring).all
    }

    /// The number of the first event of this process that counts for a webhook: those after this server heard of its address,
    /// and those right before that are not older than it by this server's clock.
    fn first_since(&self, since: WebhookSince) -> u64 {
        let ring = lock(&self.ring);
        let heard = ring.heard.filter(|(version, _)| *version == since.version);
        let number = heard.map_or(ring.all, |(_, number)| number);
        let Some(at_ms) = since.at_ms else { return number };
        let after = usize::try_from(ring.all.saturating_sub(number)).unwrap_or(usize::MAX);
        let before = ring.events.iter().rev().skip(after);
        let many = before.take_while(|e| e.at_ms >= at_ms).count() as u64;
        number.saturating_sub(many)
    }

    /// How many events from that number on are not kept any more, and the first of those that are.
    fn from(&self, number: u64, most: usize) -> (u64, Vec<Event>) {
        let ring = lock(&self.ring);
        let wanted = ring.all.saturating_sub(number);
        let kept = usize::try_from(wanted).map_or(ring.events.len(), |n| n.min(ring.events.len()));
        let first = ring.events.len() - kept;
        let events = ring.events.range(first..).take(most).cloned().collect();
        (wanted - kept as u64, events)
    }

    /// The last events before that number, of this process and of those before; oldest first.
    fn before(&self, number: u64, most: usize) -> Vec<Event> {
        let ring = lock(&self.ring);
        let after = usize::try_from(ring.all.saturating_sub(number)).unwrap_or(usize::MAX);
        let end = ring.events.len().saturating_sub(after);
        ring.events.range(end.saturating_sub(most)..end).cloned().collect()
    }

    /// The newest change of the pool that is told of by events not later than that; 0: none.
    fn newest_change(&self, at_ms: u64) -> u64 {
        let ring = lock(&self.ring);
        ring.events.iter().filter(|e| e.at_ms <= at_ms).filter_map(|e| e.version).max().unwrap_or_default()
    }

    /// Takes up what earlier processes left in the state folder.
    pub(crate) fn take_up(&self, folder: &Path) {
        let mut ring = lock(&self.ring);
        for event in EventFile::new(folder).read(KEPT).into_iter().rev() {
            if ring.events.len() < KEPT {
                ring.events.push_front(event);
            }
        }
    }

    /// Writes events into the state folder, for ever.
    pub(crate) async fn keep_writing(&self, folder: &Path) {
        loop {
            self.news.notified().await;
            tokio::time::sleep(GATHER).await;
            let (new, file) = (self.take_unwritten(), EventFile::new(folder));
            let written = tokio::task::spawn_blocking(move || file.append(&new)).await;
            if let Ok(Err(e)) = written {
                tracing::warn!("events are not written into the state folder: {e}");
            }
        }
    }

    /// Writes what is left, at the end.
    pub(crate) fn write_rest(&self, folder: &Path) {
        if let Err(e) = EventFile::new(folder).append(&self.take_unwritten()) {
            tracing::warn!("events are not written into the state folder: {e}");
        }
    }

    fn take_unwritten(&self) -> Vec<Event> {
        let mut ring = lock(&self.ring);
        let first = ring.events.len().saturating_sub(ring.unwritten);
        ring.unwritten = 0;
        ring.events.range(first..).cloned().collect()
    }
}

/// A line without control characters, and of so many characters at most.
fn shortened(text: &str, most: usize) -> String {
    let clean = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let mut line: String = clean.take(most).collect();
    if text.chars().nth(most).is_some() {
        line.push_str("...");
    }
    line
}

fn unix_millis() -> u64 {
    u64::try_from(clock::unix_time().as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(text: &str) -> Event {
        Event { text: text.to_owned(), ..Event::default() }
    }

    #[test]
    fn a_flood_of_events_takes_bounded_memory() {
        let events = Events::default();
        for n in 0..10_000 {
            events.add(event(&format!("{n}")));
        }
        let many = events.since(0, usize::MAX).len();
        assert!((50..=150).contains(&many), "{many} in a moment");
        events.add(Event { at_ms: 0, ..event("x") });
        assert!(events.since(u64::MAX, 10).is_empty());
        events.add(Event { kind: ADMIN.to_owned(), ..event("volume-delete") });
        assert_eq!(
            events.since(0, 1)[0].text,
            "volume-delete",
            "who floods the log does not hide what he does"
        );
        assert_eq!(events.since(0, 3).len(), 3);
    }

    #[test]
    fn lines_are_short_and_clean() {
        assert_eq!(shortened("a\nb\x1b[1m", LINE), "a b [1m");
        assert_eq!(shortened(&"x".repeat(600), LINE).len(), LINE + 3);
    }

    #[test]
    fn events_outlive_the_process() {
        let dir = std::env::temp_dir().join(format!("mortar-events.{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let events = Events::default();
        ["a", "b"].into_iter().for_each(|text| events.add(event(text)));
        events.write_rest(&dir);
        events.write_rest(&dir);
        let later = Events::default();
        later.add(event("c"));
        later.take_up(&dir);
        let texts: Vec<String> = later.since(0, 10).into_iter().map(|e| e.text).collect();
        assert_eq!(texts, ["a", "b", "c"]);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
