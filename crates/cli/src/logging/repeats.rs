//! The same line of code logs so often and no oftener: who makes a server complain fills no disk.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use tracing::callsite::Identifier;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Filter};

/// Lines of one place in the code in a [`WINDOW`].
const LINES: u32 = 100;
/// How long lines are counted together.
const WINDOW: Duration = Duration::from_secs(10);

/// What one place in the code has logged.
#[derive(Debug)]
struct Window {
    began: Instant,
    lines: u32,
}

/// A filter: of each place in the code [`LINES`] lines in a [`WINDOW`] are logged. The first line of a later window tells how
/// many were not.
#[derive(Debug, Default)]
pub(super) struct Repeats(Mutex<HashMap<Identifier, Window>>);

impl Repeats {
    /// Whether the next line of that place is logged; and how many before it were not, if it is the first of a window.
    fn count(&self, place: Identifier, now: Instant) -> (bool, u32) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let window = all.entry(place).or_insert(Window { began: now, lines: 0 });
        let mut unsaid = 0;
        if now.saturating_duration_since(window.began) >= WINDOW {
            unsaid = window.lines.saturating_sub(LINES);
            *window = Window { began: now, lines: 0 };
        }
        window.lines = window.lines.saturating_add(1);
        (window.lines <= LINES, unsaid)
    }
}

impl<S: Subscriber> Filter<S> for Repeats {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let meta = event.metadata();
        // What is told of others is not counted: it is rare by itself.
        if meta.target() == UNSAID {
            return true;
        }
        let (logged, unsaid) = self.count(meta.callsite(), Instant::now());
        if unsaid > 0 {
            let place = format!("{}:{}", meta.file().unwrap_or("?"), meta.line().unwrap_or(0));
            tracing::warn!(target: UNSAID, "{unsaid} more lines of {place} were not logged");
        }
        logged
    }
}

/// The target of lines about lines.
const UNSAID: &str = "unsaid";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_logs_a_hundred_lines_in_ten_seconds() {
        let repeats = Repeats::default();
        tracing::trace!("so that there is a place");
        let place = tracing::callsite!(name: "here", kind: tracing::metadata::Kind::EVENT, fields: message);
        let other = tracing::callsite!(name: "there", kind: tracing::metadata::Kind::EVENT, fields: message);
        let (place, other) = (Identifier(place), Identifier(other));
        let start = Instant::now();
        let logged =
            |place: &Identifier, after| repeats.count(place.clone(), start + Duration::from_secs(after));
        let said = (0..5000).filter(|_| logged(&place, 1).0).count();
        assert_eq!(said, 100);
        assert_eq!(logged(&other, 1), (true, 0), "others are not concerned");
        assert_eq!(logged(&place, 12), (true, 4900));
        assert_eq!(logged(&place, 12), (true, 0));
    }
}
